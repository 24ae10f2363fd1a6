//! Frames of stacks as columns. They are most of a catalogue: there are thousands, and the same function
//! and file names come again and again. Payload: rows, then length and bytes of each column.

use super::column::{Col, Out, columns};
use pg_event::{Frame, FrameId, ModuleId};
use std::collections::HashMap;

const IDS: usize = 0;
const MODULES: usize = 1;
const ADDRESSES: usize = 2;
const FUNCTIONS: usize = 3;
const OFFSETS: usize = 4;
const FILES: usize = 5;
const LINES: usize = 6;
const INLINED: usize = 7;
const LENGTHS: usize = 8;
const TEXT: usize = 9;
const COLUMNS: usize = 10;

/// The payload of these rows.
pub(super) fn encode(frames: &[(FrameId, Frame)]) -> Vec<u8> {
    let mut c: [Out; COLUMNS] = std::array::from_fn(|_| Out::default());
    let mut known: HashMap<&str, u64> = HashMap::new();
    let mut text = Vec::new();
    let mut name = |column: &mut Out, lengths: &mut Out, s| {
        let next = known.len() as u64 + 1;
        let n = *known.entry(s).or_insert(next);
        // 0 = the next new one.
        column.u(if n == next { 0 } else { n });
        if n == next {
            lengths.u(s.len() as u64);
            text.extend_from_slice(s.as_bytes());
        }
    };
    let (mut id, mut address) = (0u32, 0u64);
    for (i, f) in frames {
        c[IDS].i(i64::from(i.0) - i64::from(id));
        c[MODULES].id(f.module.0);
        c[ADDRESSES].i(f.address.wrapping_sub(address) as i64);
        let [_, _, _, functions, offsets, files, lines, inlined, lengths, _] = &mut c;
        name(functions, lengths, f.function.as_str());
        offsets.u(u64::from(f.offset));
        name(files, lengths, f.file.as_str());
        lines.u(u64::from(f.line));
        let names = &f.inlined[..f.inlined.len().min(MAX_INLINED as usize)];
        inlined.u(names.len() as u64);
        for s in names {
            name(inlined, lengths, s.as_str());
        }
        (id, address) = (i.0, f.address);
    }
    let mut head = Out::default();
    head.u(frames.len() as u64);
    let mut out = head.bytes().to_vec();
    for (i, column) in c.iter().enumerate() {
        let bytes = if i == TEXT { &text } else { column.bytes() };
        let mut len = Out::default();
        len.u(bytes.len() as u64);
        out.extend_from_slice(len.bytes());
        out.extend_from_slice(bytes);
    }
    out
}

/// Names read so far, and where new ones come from.
struct Texts<'a> {
    known: Vec<&'a str>,
    lengths: Col<'a>,
    text: Col<'a>,
}

impl<'a> Texts<'a> {
    fn next(&mut self, column: &mut Col<'a>) -> Result<&'a str, String> {
        let n = column.u();
        if n > 0 {
            return self
                .known
                .get(n as usize - 1)
                .copied()
                .ok_or_else(|| "a name is used before it comes".into());
        }
        let bytes = self.text.take(self.lengths.u());
        if column.is_bad() || self.lengths.is_bad() || self.text.is_bad() {
            return Err("its names are cut off".into());
        }
        let s = std::str::from_utf8(bytes).map_err(|e| format!("a name is no UTF-8: {e}"))?;
        self.known.push(s);
        Ok(s)
    }
}

/// Most names of inlined functions at one place.
const MAX_INLINED: u64 = 1024;
/// Names may be shared by rows and are not when read: their sum is bounded.
const MAX_TEXT: usize = 256 << 20;

/// The rows of a payload.
pub(super) fn decode(payload: &[u8]) -> Result<Vec<(FrameId, Frame)>, String> {
    let (rows, mut c) = columns::<COLUMNS>(payload)?;
    let mut texts = Texts { known: Vec::new(), lengths: c[LENGTHS], text: c[TEXT] };
    let mut total = 0;
    let mut own = |s: &str| {
        total += s.len();
        if total > MAX_TEXT { Err("its names are too long".to_owned()) } else { Ok(s.to_owned()) }
    };
    let mut out = Vec::new();
    let (mut id, mut address) = (0i64, 0u64);
    for _ in 0..rows {
        id = id.wrapping_add(c[IDS].i());
        let number = u32::try_from(id).map_err(|_| "a number of a frame makes no sense")?;
        address = address.wrapping_add(c[ADDRESSES].i() as u64);
        let module = ModuleId(c[MODULES].id());
        let function = own(texts.next(&mut c[FUNCTIONS])?)?;
        let offset = c[OFFSETS].u32();
        let file = own(texts.next(&mut c[FILES])?)?;
        let line = c[LINES].u32();
        let count = c[INLINED].u();
        if count > MAX_INLINED {
            return Err(format!("claims {count} inlined functions at one place"));
        }
        let inlined = (0..count).map(|_| own(texts.next(&mut c[INLINED])?)).collect::<Result<_, _>>()?;
        out.push((FrameId(number), Frame { module, address, function, offset, file, line, inlined }));
        if c.iter().any(Col::is_bad) {
            return Err("its columns are too short or hold what cannot be".into());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = (FrameId, Frame)> {
        let name = || prop_oneof![Just(String::new()), "[a-c]{1,2}", any::<String>()];
        let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
        (numbers, name(), name(), proptest::collection::vec(name(), 0..3)).prop_map(
            |(n, function, file, inlined)| {
                let (id, module, address, offset, line) = n;
                (
                    FrameId(id),
                    Frame { module: ModuleId(module), address, function, offset, file, line, inlined },
                )
            },
        )
    }

    proptest! {
        #[test]
        fn frames_come_back(frames in proptest::collection::vec(frame(), 0..40)) {
            prop_assert_eq!(decode(&encode(&frames)).unwrap(), frames);
        }

        #[test]
        fn damage_ends_in_an_error_or_in_frames(
            frames in proptest::collection::vec(frame(), 1..20),
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut payload = encode(&frames);
            for (i, b) in flips { let i = i.index(payload.len()); payload[i] ^= b; }
            let _ = decode(&payload);
            payload.truncate(cut.index(payload.len()));
            let _ = decode(&payload);
        }
    }
}
