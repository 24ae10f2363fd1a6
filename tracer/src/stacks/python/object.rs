//! Objects of the interpreter: strings, bytes, code.

use super::layout::{CONTENT, CodeLayout, Layout, SIZE, STATE, TYPE};
use super::lines;
use super::memory::Memory;
use super::{Function, Interpreter};
use crate::stacks::text::clean;

/// Longest name taken, characters.
const MAX_TEXT: u64 = 1024;
/// Longest line table taken, bytes.
const MAX_TABLE: u64 = 1 << 20;
/// Most instructions of a function.
const MAX_INSTRUCTIONS: u64 = 1 << 28;
/// Bytes that hold all that is asked of a code object, and those before 3.11. The objects are not longer than that
/// for sure, and what follows need not be memory.
const CODE_HEAD: usize = 192;
const OLD_CODE_HEAD: usize = 128;

/// A string, made fit to be shown.
fn text(m: &impl Memory, i: &Interpreter, address: u64) -> Option<String> {
    let head = m.block::<40>(address)?;
    let state = head.u64(STATE)? as u32;
    let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
    // Text that lies apart from its head is that of classes derived from `str`: no names of code.
    if head.u64(TYPE)? != i.types.text || !compact {
        return None;
    }
    let length = head.u64(SIZE)?.min(MAX_TEXT) as usize;
    let content = address.checked_add(i.layout.text_heads[usize::from(!ascii)])?;
    let mut bytes = vec![0; length * kind as usize];
    m.read(content, &mut bytes)?;
    Some(match kind {
        1 if ascii => clean(&bytes),
        1 => clean(bytes.iter().map(|&b| char::from(b)).collect::<String>().as_bytes()),
        2 => {
            let units: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            clean(String::from_utf16_lossy(&units).as_bytes())
        }
        4 => {
            let one = |b: &[u8]| char::from_u32(u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let text: String = bytes.chunks_exact(4).map(|b| one(b).unwrap_or('\u{fffd}')).collect();
            clean(text.as_bytes())
        }
        _ => return None,
    })
}

fn bytes(m: &impl Memory, i: &Interpreter, address: u64) -> Option<Vec<u8>> {
    let head = m.block::<24>(address)?;
    let length = head.u64(SIZE).filter(|&n| n <= MAX_TABLE)?;
    if head.u64(TYPE)? != i.types.bytes {
        return None;
    }
    let mut out = vec![0; length as usize];
    m.read(address.checked_add(CONTENT)?, &mut out)?;
    Some(out)
}

/// Where in its code a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Instruction {
    /// Number of the last instruction's byte (3.9) or of the instruction (3.10), -1 before the first.
    Last(i32),
    /// Address of an instruction.
    At(u64),
}

/// What a frame executes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Executes {
    /// A function.
    Function(Function),
    /// A function that is being called: nothing of it ran yet.
    Prepares,
}

/// The function of a code object and the line it is at. `generator`: a frame of one is never being made.
pub(super) fn function(
    m: &impl Memory,
    i: &Interpreter,
    code: u64,
    at: Instruction,
    generator: bool,
) -> Option<Executes> {
    let Layout { code: l, .. } = i.layout;
    let length = if l.instructions.is_some() { CODE_HEAD } else { OLD_CODE_HEAD };
    let head = m.part::<CODE_HEAD>(code, length)?;
    if head.u64(TYPE)? != i.types.code {
        return None;
    }
    let at = match (at, l.instructions) {
        (Instruction::Last(n), _) if n < 0 => -1,
        // Counted in instructions of two bytes since 3.10.
        (Instruction::Last(n), _) if l.format != lines::BY_BYTES => i64::from(n) * 2,
        (Instruction::Last(n), _) => i64::from(n),
        (Instruction::At(address), Some(begin)) => {
            let offset = address.wrapping_sub(code.wrapping_add(begin)) as i64;
            let units = head.u64(SIZE).filter(|&n| n <= MAX_INSTRUCTIONS)? as i64;
            // It points to the instruction before the next one: before the first, to none.
            if offset < -2 || offset > units * 2 || offset % 2 != 0 {
                return None;
            }
            if !generator && offset < i64::from(head.i32(l.first_traceable)?) * 2 {
                return Some(Executes::Prepares);
            }
            offset
        }
        (Instruction::At(_), None) => return None,
    };
    let CodeLayout { filename, name, first_line, lines: table, format, .. } = l;
    let table = bytes(m, i, head.u64(table)?)?;
    Some(Executes::Function(Function {
        name: text(m, i, head.u64(name)?)?,
        file: text(m, i, head.u64(filename)?)?,
        line: lines::line(format, &table, head.i32(first_line)?, at),
    }))
}
