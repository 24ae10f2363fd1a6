//! Static probes of a program: the notes that `sys/sdt.h` leaves in the section `.note.stapsdt` (SystemTap wiki,
//! "UserSpaceProbeImplementation"). What they say comes from the file, and is checked.

use super::elf::{Bytes, Elf, u32_at, u64_at};
use super::text::clean;

/// Most bytes of notes, and most of them.
const MAX_BYTES: u64 = 16 << 20;
const MAX_NOTES: usize = 1 << 16;
/// NT_STAPSDT.
const TYPE: u32 = 3;

/// A place of a static probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usdt {
    /// Who defines it.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Address of its instruction, as the file counts.
    pub address: u64,
    /// Address of the counter that says whether somebody listens, 0 when it has none.
    pub semaphore: u64,
}

/// All of a file.
pub(super) fn read(elf: &Elf, src: &(impl Bytes + ?Sized)) -> Vec<Usdt> {
    let notes = elf.place_of(".note.stapsdt").filter(|p| p.1 <= MAX_BYTES);
    let Some(bytes) = notes.and_then(|(offset, size)| src.at(offset, size)) else { return Vec::new() };
    parse(&bytes, elf.address_of_section(".stapsdt.base"))
}

/// `base`: where the section `.stapsdt.base` is. The notes say where it was when they were written: a later step of
/// the build (prelink) may have moved everything.
pub fn parse(mut bytes: &[u8], base: Option<u64>) -> Vec<Usdt> {
    let mut out = Vec::new();
    while out.len() < MAX_NOTES {
        let Some((note, rest)) = split(bytes) else { break };
        out.extend(note.and_then(|description| one(description, base)));
        bytes = rest;
    }
    out
}

/// The next note: its description, if it is one of these, and what follows.
fn split(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (name_len, len, kind) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    let padded = |n: u32| (n as usize).checked_add(3).map(|n| n & !3);
    let name_end = padded(name_len)?.checked_add(12)?;
    let name = bytes.get(12..12usize.checked_add(name_len as usize)?)?;
    let description = bytes.get(name_end..name_end.checked_add(len as usize)?)?;
    let is_one = kind == TYPE && name == b"stapsdt\0";
    // The last one need not be padded.
    let end = name_end.checked_add(padded(len)?)?.min(bytes.len());
    Some((is_one.then_some(description), bytes.get(end..)?))
}

fn one(description: &[u8], base: Option<u64>) -> Option<Usdt> {
    let (address, noted, semaphore) =
        (u64_at(description, 0)?, u64_at(description, 8)?, u64_at(description, 16)?);
    let mut words = description.get(24..)?.split(|&b| b == 0);
    let (provider, name) = (words.next()?, words.next()?);
    // Only what is ended by a NUL is whole.
    words.next()?;
    let moved = base.filter(|_| noted != 0).map_or(0, |b| b.wrapping_sub(noted));
    if address == 0 || provider.is_empty() || name.is_empty() {
        return None;
    }
    Some(Usdt {
        provider: clean(provider),
        name: clean(name),
        address: address.wrapping_add(moved),
        semaphore: if semaphore == 0 { 0 } else { semaphore.wrapping_add(moved) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [name.len() as u32, description.len() as u32, kind] {
            out.extend(word.to_le_bytes());
        }
        for part in [name, description] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    fn description(address: u64, base: u64, semaphore: u64, text: &[u8]) -> Vec<u8> {
        [&address.to_le_bytes()[..], &base.to_le_bytes(), &semaphore.to_le_bytes(), text].concat()
    }

    #[test]
    fn notes_of_all_kinds() {
        let mut bytes =
            note(b"stapsdt\0", 3, &description(0x1000, 0x2000, 0x3000, b"shop\0order\0-4@%edi\0"));
        bytes.extend(note(b"GNU\0", 3, b"\x12\x34\x56"));
        bytes.extend(note(b"stapsdt\0", 3, &description(0x1004, 0x2000, 0, b"shop\0paid__for\0\0")));
        // No address, no name, cut off in the name, too short.
        bytes.extend(note(b"stapsdt\0", 3, &description(0, 0, 0, b"a\0b\0\0")));
        bytes.extend(note(b"stapsdt\0", 3, &description(1, 0, 0, b"a\0\0\0")));
        bytes.extend(note(b"stapsdt\0", 3, &description(1, 0, 0, b"a\0bcd")));
        bytes.extend(note(b"stapsdt\0", 3, b"short"));
        let one = |name: &str, address, semaphore| Usdt {
            provider: "shop".into(),
            name: name.into(),
            address,
            semaphore,
        };
        assert_eq!(parse(&bytes, Some(0x2000)), [one("order", 0x1000, 0x3000), one("paid__for", 0x1004, 0)]);
        // Everything was moved.
        assert_eq!(parse(&bytes, Some(0x2100)), [one("order", 0x1100, 0x3100), one("paid__for", 0x1104, 0)]);
        assert_eq!(parse(&bytes, None)[0].address, 0x1000);
        // Lengths that lead out.
        for at in [0, 4] {
            let mut wrong = bytes.clone();
            wrong[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(parse(&wrong, None), []);
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400), base in any::<Option<u64>>()) {
            let _ = parse(&bytes, base);
        }

        #[test]
        fn damaged_notes(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
            let one = note(b"stapsdt\0", 3, &description(1, 2, 3, b"ab\0cd\0ef\0"));
            let mut bytes = one.repeat(4);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = parse(&bytes, Some(7));
        }
    }
}
