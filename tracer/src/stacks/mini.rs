//! The symbols that stripped files of some distributions still carry: an xz-compressed ELF file in the
//! section `.gnu_debugdata` (GDB manual, "MiniDebugInfo").

use super::elf::{Bytes, Elf};
use lzma_rust2::XzReader;
use std::io::Read;

/// Largest compressed section taken.
const MAX_PACKED: u64 = 16 << 20;
/// Largest ELF file that is unpacked from it.
const MAX_UNPACKED: u64 = 128 << 20;
/// Most memory for unpacking, in KiB: the greatest dictionary that xz(1) makes, and some.
const MAX_MEMORY: u32 = 80 << 10;

/// The ELF file with the symbols of functions that are not exported; `None` when there is none, or when it
/// is damaged or larger than makes sense.
pub(super) fn read(elf: &Elf, src: &(impl Bytes + ?Sized)) -> Option<Vec<u8>> {
    let (offset, size) = elf.place_of(".gnu_debugdata").filter(|p| p.1 <= MAX_PACKED)?;
    unpack(&src.at(offset, size)?)
}

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let reader = XzReader::new_mem_limit(packed, false, MAX_MEMORY);
    let n = reader.take(MAX_UNPACKED + 1).read_to_end(&mut out).ok()? as u64;
    (n <= MAX_UNPACKED && out.starts_with(b"\x7fELF")).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::sync::OnceLock;

    fn xz(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut child = Command::new("xz").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut input = child.stdin.take()?;
        let bytes = bytes.to_vec();
        std::thread::spawn(move || input.write_all(&bytes));
        Some(child.wait_with_output().ok()?.stdout)
    }

    fn packed() -> Option<&'static [u8]> {
        static PACKED: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        PACKED.get_or_init(|| xz(&[&b"\x7fELF"[..], &b"some bytes ".repeat(100)].concat())).as_deref()
    }

    #[test]
    fn unpacked_within_bounds() {
        let Some(good) = packed() else {
            println!("skipped: xz is not installed");
            return;
        };
        assert_eq!(unpack(good).unwrap().len(), 4 + 1100);
        assert_eq!(unpack(&good[..good.len() / 2]), None);
        assert_eq!(unpack(&xz(b"no ELF file").unwrap()), None);
        assert_eq!(unpack(b""), None);
        // A hundred bytes of input that would fill the memory.
        let mut bomb = b"\x7fELF".to_vec();
        bomb.resize(MAX_UNPACKED as usize + 2, 0);
        assert_eq!(unpack(&xz(&bomb).unwrap()), None);
    }

    proptest! {
        #[test]
        fn damage_gives_no_panic(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let Some(good) = packed() else { return Ok(()) };
            let mut bytes = good.to_vec();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            unpack(&bytes);
        }
    }
}
