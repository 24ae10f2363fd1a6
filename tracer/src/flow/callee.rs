//! Small functions that only look: what a loop that calls one depends on.
//!
//! Programs that were built without optimisation ask by calls of such (`flag.load()`, `is_ready()`).

use super::blocks::{Source, decode};
use super::step::{Cell, Step, register};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Register};
use std::collections::BTreeSet;

/// Longest such function, bytes.
const MAX_BYTES: u64 = 512;
/// How deep such functions call others.
const MAX_DEPTH: usize = 4;

/// Registers that a call may change (System V ABI, x86-64 supplement, figure 3.4).
const CHANGED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// A call as one step: what the function reads that it has not written, and the registers that it may change. `None` where
/// it does more: writes to memory but on its own stack, turns, calls what is not known.
pub(super) fn call(
    source: &impl Source,
    factory: &mut InstructionInfoFactory,
    i: &Instruction,
) -> Option<Step> {
    Some(as_step(looks(source, factory, i.near_branch_target(), MAX_DEPTH)?))
}

/// Who reads this, and keeps the registers that it must keep.
fn as_step(reads: BTreeSet<Cell>) -> Step {
    let reads = reads.into_iter().map(|c| (c, 8)).collect();
    let writes = changed().map(Cell::Register).chain([Cell::Flags]).map(|c| (c, 8)).collect();
    Step { reads, writes, ..Step::default() }
}

fn changed() -> impl Iterator<Item = u32> {
    CHANGED.into_iter().map(register)
}

fn looks(
    source: &impl Source,
    factory: &mut InstructionInfoFactory,
    address: u64,
    depth: usize,
) -> Option<BTreeSet<Cell>> {
    let part =
        source.part(address).filter(|p| p.start == address && p.end - p.start <= MAX_BYTES && depth > 0)?;
    let code = decode(&source.bytes(part.start, part.end - part.start)?, part.start);
    let (mut reads, mut written) = (BTreeSet::new(), BTreeSet::new());
    // Behind a jump it is not known whether what stands before was executed: nothing is taken to be written there.
    let (mut straight, mut returns) = (true, false);
    for i in &code {
        let step = match i.flow_control() {
            FlowControl::Return => {
                returns = true;
                straight = false;
                continue;
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let to = i.near_branch_target();
                // Forward, and no call in tail position.
                (to > i.ip() && part.contains(&to)).then_some(())?;
                straight = false;
                Step::of(source, factory, i)?
            }
            FlowControl::Call => as_step(looks(source, factory, i.near_branch_target(), depth - 1)?),
            _ => Step::of(source, factory, i)?,
        };
        reads.extend(step.reads.iter().map(|r| r.0).filter(|c| !written.contains(c)));
        for (c, size) in &step.writes {
            // A frame of its own it may write to.
            if matches!(c, Cell::Memory | Cell::Fixed(_)) {
                return None;
            }
            if straight && *size >= 4 {
                written.insert(*c);
            }
        }
    }
    // What lies on its own stack it has put there; other registers it has only saved.
    reads.retain(|c| match c {
        Cell::Register(r) => changed().any(|x| x == *r),
        c => matches!(c, Cell::Memory | Cell::Fixed(_)),
    });
    returns.then_some(reads)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{CODE, Program};
    use super::super::{Turn, Turns};

    /// What the loop of the second function does, whose first instruction is looked at.
    fn of(callee: &[u8], caller: &[u8]) -> Turn {
        let p = Program::functions(&[callee, caller]);
        Turns::new(&p).at(CODE + callee.len() as u64)
    }

    /// `call` of the first function by the second, at a distance from CODE; `test %eax, %eax; je` so many bytes back; `ret`.
    fn asks_by(at: i32, back: u8) -> Vec<u8> {
        [&[0xe8][..], &(-at - 5).to_le_bytes(), &[0x85, 0xc0, 0x74, back, 0xc3]].concat()
    }

    #[test]
    fn a_loop_that_calls_who_only_looks_asks() {
        // mov 0x4000(%rip), %eax; ret.
        let looks = [0x8b, 0x05, 0xfa, 0x2f, 0, 0, 0xc3];
        assert_eq!(of(&looks, &asks_by(7, 0xf7)), Turn::Asks(vec![0x4000]));
        // push %rbp; mov %rsp, %rbp; mov %rdi, -8(%rbp); mov -8(%rbp), %rax; mov (%rax), %eax; pop %rbp; ret: of what its
        // caller gives it, lea 0x4000(%rip), %rdi.
        let own =
            [0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x00, 0x5d, 0xc3];
        let gives = [&[0x48, 0x8d, 0x3d, 0xe9, 0x2f, 0, 0][..], &asks_by(23, 0xf0)].concat();
        assert_eq!(of(&own, &gives), Turn::Asks(vec![0x4000]));
        // It goes on by one each turn: add $8, %rbx; mov %rbx, %rdi.
        let next = [&[0x48, 0x83, 0xc3, 0x08, 0x48, 0x89, 0xdf][..], &asks_by(23, 0xf0)].concat();
        assert_eq!(of(&own, &next), Turn::Works);
    }

    #[test]
    fn who_does_more_decides_by_itself() {
        // lock incl 0x4000(%rip); mov 0x4000(%rip), %eax; ret: it counts.
        let counts = [0xf0, 0xff, 0x05, 0xf9, 0x2f, 0, 0, 0x8b, 0x05, 0xf3, 0x2f, 0, 0, 0xc3];
        assert_eq!(of(&counts, &asks_by(14, 0xf7)), Turn::Unknown);
        // A loop of its own; a call of itself; a system call; no way back.
        for callee in [
            &[0x85, 0xc0, 0x75, 0xfc, 0xc3][..],
            &[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3],
            &[0x0f, 0x05, 0xc3],
            &[0x90, 0x90],
        ] {
            assert_eq!(of(callee, &asks_by(callee.len() as i32, 0xf7)), Turn::Unknown, "{callee:x?}");
        }
    }
}
