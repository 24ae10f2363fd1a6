//! What the programs send through their ring: the records of `bpf/guard.h`, read with every length checked.

use super::layout::At;
use crate::stacks::{PT_REGS, RawFrame, Regs};

/// Different contexts kept of a unit that is learnt from.
const CONTEXTS: usize = 512;
const KERNEL_FRAMES: usize = 64;
/// Frames of Python, and bytes of each.
const PY_FRAMES: usize = 48;
const PY_FRAME: usize = 24;
const HEAD: usize = 24;
const REGS: usize = PT_REGS * 8;
/// Place of the number of the system call among them.
const ORIG_AX: usize = 15;

/// `struct head`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub tid: u32,
    pub tgid: u32,
    pub of_loop: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
}

/// What the programs send.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A stack that is not known yet, of a wait or of a turn.
    Stack { head: Head, turn: bool, image: u64, regs: Regs, syscall: i64, copy: Vec<u8> },
    /// A unit that ended.
    Unit(Box<Ended>),
    /// The stack of a call; `frame` is the stack pointer of the loop's frame.
    Call { tid: u32, tgid: u32, function: u32, depth: u32, frame: u64, regs: Regs, copy: Vec<u8> },
    /// A unit that takes too long.
    Violation(Box<Violation>),
    /// Where a unit is that was told and goes on; it has no kernel stack and no limit.
    Look(Box<Violation>),
    /// A unit ended: one whose violation was told, be it withdrawn since, or one that took no longer than it may.
    Ended { head: Head, violated: bool, start: u64, elapsed: u64, number: u32, of: u32 },
    /// What was told of a unit does not hold: it has turned out to be of another type.
    Withdrawn { head: Head, start: u64, elapsed: u64, number: u32, of: u32 },
    /// A guarded process was created by `parent`.
    Fork { head: Head, parent: u32 },
    /// A guarded process has a new program.
    Exec(Head),
    /// A thread ended.
    Exit(Head),
    /// A thread came under guard.
    Enlisted { head: Head, slot: u32 },
    /// A function whose calls are units returns to this address.
    Caller { head: Head, address: u64 },
}

/// `struct rec_unit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub head: Head,
    pub start: u64,
    pub spent: u64,
    /// Off the CPU, and of that ready to run.
    pub away: u64,
    pub ready: u64,
    /// Function, depth, how often.
    pub contexts: Vec<(u32, u32, u32)>,
    /// Times that it came by others.
    pub more: u32,
}

/// `struct rec_violation`.
#[derive(Clone, PartialEq, Debug)]
pub struct Violation {
    pub head: Head,
    pub start: u64,
    pub elapsed: u64,
    pub threshold: u64,
    pub away: u64,
    pub ready: u64,
    pub stolen: u64,
    /// Of the time off the CPU: stopped by a signal or a tracer.
    pub halted: u64,
    pub of: u32,
    pub seen: u32,
    pub number: u32,
    pub kernel: Vec<u64>,
    pub asleep: At,
    /// The innermost frames of Python, where they were read.
    pub python: Vec<RawFrame>,
    pub regs: Regs,
    pub copy: Vec<u8>,
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

/// `struct regs`, and the number of the system call.
fn regs(b: &[u8], at: usize) -> Option<(Regs, i64)> {
    let mut r = [0; PT_REGS];
    for (i, r) in r.iter_mut().enumerate() {
        *r = u64_at(b, at + i * 8)?;
    }
    Some((r.into(), r[ORIG_AX] as i64))
}

fn copy(b: &[u8], len: usize, at: usize) -> Option<Vec<u8>> {
    Some(b.get(at..at.checked_add(u32_at(b, len)? as usize)?)?.to_vec())
}

impl Record {
    /// Read a record; `None` when it is damaged or of no known kind.
    pub fn parse(b: &[u8]) -> Option<Self> {
        let head =
            Head { tid: u32_at(b, 4)?, tgid: u32_at(b, 8)?, of_loop: u32_at(b, 12)?, time: u64_at(b, 16)? };
        let kind = u32_at(b, 0)?;
        let b = b.get(HEAD..)?;
        Some(match kind {
            1 => {
                let (regs, syscall) = regs(b, 16)?;
                let (turn, image) = (u32_at(b, 0)? != 0, u64_at(b, 8)?);
                Self::Stack { head, turn, image, regs, syscall, copy: copy(b, 4, 16 + REGS)? }
            }
            2 => Self::Unit(Box::new(ended(b, head)?)),
            3 => Self::Violation(Box::new(violation(b, head)?)),
            12 => Self::Look(Box::new(violation(b, head)?)),
            4 | 8 => Self::Ended {
                head,
                violated: kind == 4,
                start: u64_at(b, 0)?,
                elapsed: u64_at(b, 8)?,
                number: u32_at(b, 16)?,
                of: u32_at(b, 20)?,
            },
            13 => Self::Withdrawn {
                head,
                start: u64_at(b, 0)?,
                elapsed: u64_at(b, 8)?,
                number: u32_at(b, 16)?,
                of: u32_at(b, 20)?,
            },
            11 => Self::Call {
                tid: head.tid,
                tgid: head.tgid,
                function: head.of_loop,
                depth: u32_at(b, 0)?,
                frame: head.time,
                regs: regs(b, 8)?.0,
                copy: copy(b, 4, 8 + REGS)?,
            },
            5 => Self::Fork { head, parent: u32_at(b, 16)? },
            6 => Self::Exec(head),
            7 => Self::Exit(head),
            9 => Self::Enlisted { head, slot: u32_at(b, 16)? },
            10 => Self::Caller { head, address: u64_at(b, 0)? },
            _ => return None,
        })
    }
}

fn ended(b: &[u8], head: Head) -> Option<Ended> {
    const CONTEXT: usize = 48;
    let count = (u32_at(b, 36)? as usize).min(CONTEXTS);
    let context = |i| {
        let at = CONTEXT + i * 12;
        Some((u32_at(b, at)?, u32_at(b, at + 4)?, u32_at(b, at + 8)?))
    };
    Some(Ended {
        head,
        start: u64_at(b, 0)?,
        spent: u64_at(b, 8)?,
        away: u64_at(b, 16)?,
        ready: u64_at(b, 24)?,
        contexts: (0..count).map(context).collect::<Option<_>>()?,
        more: u32_at(b, 40)?,
    })
}

fn violation(b: &[u8], head: Head) -> Option<Violation> {
    const PLACE: usize = 72 + KERNEL_FRAMES * 8;
    const PYTHON: usize = PLACE + 24;
    const REGISTERS: usize = PYTHON + PY_FRAMES * PY_FRAME;
    let frames = (u32_at(b, 68)? as usize).min(KERNEL_FRAMES);
    let python = (u32_at(b, PLACE + 20)? as usize).min(PY_FRAMES);
    let python_frame = |i| {
        let at = PYTHON + i * PY_FRAME;
        let (code, instruction, marks) = (u64_at(b, at)?, u64_at(b, at + 8)?, u64_at(b, at + 16)?);
        Some(RawFrame { code, instruction, marks })
    };
    Some(Violation {
        head,
        start: u64_at(b, 0)?,
        elapsed: u64_at(b, 8)?,
        threshold: u64_at(b, 16)?,
        away: u64_at(b, 24)?,
        ready: u64_at(b, 32)?,
        stolen: u64_at(b, 40)?,
        halted: u64_at(b, 48)?,
        of: u32_at(b, 56)?,
        seen: u32_at(b, 60)?,
        number: u32_at(b, 64)?,
        kernel: (0..frames).map(|i| u64_at(b, 72 + i * 8)).collect::<Option<_>>()?,
        asleep: At { ip: u64_at(b, PLACE)?, sp: u64_at(b, PLACE + 8)? },
        python: (0..python).map(python_frame).collect::<Option<_>>()?,
        regs: regs(b, REGISTERS)?.0,
        copy: copy(b, PLACE + 16, REGISTERS + REGS)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::headers::{assert_defined, assert_size};
    use super::*;
    use proptest::prelude::*;

    /// The numbers in the source of the programs.
    #[test]
    fn sizes_are_those_of_the_programs() {
        assert_size("rec_stack", HEAD + 16 + REGS + 16384);
        assert_size("rec_unit", HEAD + 48 + CONTEXTS * 12);
        assert_size(
            "rec_violation",
            HEAD + 72 + KERNEL_FRAMES * 8 + 24 + PY_FRAMES * PY_FRAME + REGS + 16384,
        );
        assert_size("rec_life", HEAD + 24);
        assert_defined("CONTEXTS", CONTEXTS);
        assert_defined("PY_FRAMES", PY_FRAMES);
    }

    fn put(b: &mut [u8], at: usize, value: u64, bytes: usize) {
        b[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    #[test]
    fn fields_are_where_the_programs_put_them() {
        let mut b = vec![0; HEAD + 48 + 2 * 12];
        let fields =
            [(0, 2, 4), (4, 7, 4), (8, 5, 4), (12, 3, 4), (16, 9_000, 8), (24, 4_000, 8), (32, 11, 8)];
        let more = [
            (40, 300, 8),
            (48, 100, 8),
            (56, 6, 4),
            (60, 2, 4),
            (64, 9, 4),
            (72, 5, 4),
            (76, 64, 4),
            (92, 7, 4),
        ];
        for (at, value, bytes) in fields.into_iter().chain(more) {
            put(&mut b, at, value, bytes);
        }
        let head = Head { tid: 7, tgid: 5, of_loop: 3, time: 9_000 };
        let contexts = vec![(5, 64, 0), (0, 0, 7)];
        let unit = Ended { head, start: 4_000, spent: 11, away: 300, ready: 100, contexts, more: 9 };
        assert_eq!(Record::parse(&b), Some(Record::Unit(Box::new(unit))));
        b.truncate(HEAD + 48 + 2 * 12 - 1);
        assert_eq!(Record::parse(&b), None);

        let frames = PY_FRAMES * PY_FRAME;
        let mut b = vec![0; HEAD + 72 + KERNEL_FRAMES * 8 + 24 + frames + REGS + 8];
        put(&mut b, 0, 3, 4);
        let at = HEAD;
        let fields = [
            (16, 77, 8),
            (24, 30, 8),
            (32, 20, 8),
            (40, 9, 8),
            (48, 6, 8),
            (56, 2, 4),
            (60, 1, 4),
            (68, 1, 4),
            (72, 0xffff, 8),
        ];
        for (field, value, bytes) in fields {
            put(&mut b, at + field, value, bytes);
        }
        let place = at + 72 + KERNEL_FRAMES * 8;
        for (field, value, bytes) in
            [(0, 0x10, 8), (8, 0x20, 8), (16, 8, 4), (20, 2, 4), (24 + PY_FRAME, 0x77, 8), (64, 5, 8)]
        {
            put(&mut b, place + field, value, bytes);
        }
        for (field, value, bytes) in [(24 + frames + 16 * 8, 0x1000, 8), (24 + frames + REGS, 1, 8)] {
            put(&mut b, place + field, value, bytes);
        }
        let Some(Record::Violation(v)) = Record::parse(&b) else { panic!() };
        assert_eq!((v.threshold, v.of, v.seen, v.kernel.as_slice()), (77, 2, 1, &[0xffff][..]));
        assert_eq!((v.away, v.ready, v.stolen, v.halted), (30, 20, 9, 6));
        assert_eq!((v.asleep, v.regs.ip, v.copy.len()), (At { ip: 0x10, sp: 0x20 }, 0x1000, 8));
        let python: Vec<_> = v.python.iter().map(|f| (f.code, f.instruction, f.marks)).collect();
        assert_eq!(python, [(0, 0, 0), (0x77, 0, 5)]);
    }

    proptest! {
        #[test]
        fn any_bytes(kind in 0u32..15, mut b in proptest::collection::vec(any::<u8>(), 4..1200)) {
            put(&mut b, 0, kind.into(), 4);
            let _ = Record::parse(&b);
        }
    }
}
