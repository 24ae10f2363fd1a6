//! What user space and the programs share: `bpf/guard.h`, field by field.
#![allow(unsafe_code)] // `aya::Pod` is an unsafe marker trait.

use crate::stacks::{PT_REGS, RawFrame, Regs};

/// Threads guarded at a time.
pub const THREADS: usize = 8192;
/// Loops of a plan.
pub const LOOPS: usize = 16;
/// Functions of a plan.
pub const FUNCTIONS: usize = 4096;
/// Types of a loop.
pub const TYPES: usize = 64;
/// Boundary waits of a thread.
pub const WAITS: usize = 4;
/// Boundary waits that are known in all threads of an image.
pub const SHAPES: usize = 4096;
/// Different stacks of one place in an image.
pub const VARIANTS: usize = 4;
/// Frames from a boundary wait to its loop.
pub const LINKS: usize = 16;
/// In the cookie of a probe: the kernel has to step through its instruction.
pub const STEPPED: u64 = 0x8000_0000;
/// Of a turn's, behind the number of the loop: bytes from the return address to the probe, from this bit on.
pub const SKIP: u32 = 16;
/// Of `enum told`: nothing yet; counted as too long; told as well.
pub const UNTOLD: u32 = 0;
pub const COUNTED: u32 = 1;
pub const TOLD: u32 = 2;
/// In the cookie of a probe at the begin or end of given units, beside the number of the loop: it is at the entry of a
/// function.
pub const FRAMED: u64 = 0x100;
/// The unit ends when that returns.
pub const RETURNS: u64 = 0x200;
/// Behind a system call, only if it gave more than 0,
pub const RESULT: u64 = 0x400;
/// or 0, too,
pub const NO_ERROR: u64 = 0x1_0000;
/// or whatever.
pub const ANYTHING: u64 = 0x2_0000;
/// Only if this use of `io_uring_enter` waits.
pub const WAITS_FOR_RING: u64 = 0x4_0000;
/// Only if this use of `futex` waits.
pub const WAITS_FOR_WORD: u64 = 0x8_0000;
/// It is made by `syscall(2)`: before that the arguments are where functions have them, behind the number.
pub const BY_FUNCTION: u64 = 0x10_0000;
/// Only if the descriptor in the first argument is of this kind, from this bit on.
pub const KIND_SHIFT: u32 = 12;
/// Types that share a context.
pub const CANDIDATES: usize = 15;
/// Why a unit took too long (`enum slow`): it was ready without a CPU for what it exceeds, or the host had that, or it would have done so with one.
pub const STARVED: u32 = 1;
/// See [`STARVED`].
pub const SLOW: u32 = 2;
/// A unit that goes on is told again when it has taken so many times as long.
pub const AGAIN: u64 = 8;
/// Different contexts kept of a unit that is learnt from.
const CONTEXTS: usize = 512;
/// Threads of which units are learnt.
pub const LEARNERS: usize = 1024;
const KERNEL_FRAMES: usize = 64;
/// Frames of Python, and bytes of each.
const PY_FRAMES: usize = 48;
const PY_FRAME: usize = 24;

/// `struct control`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Control {
    pub hit_ns: u64,
    pub step_ns: u64,
    pub period_ns: u64,
    pub longest_ns: u64,
    pub sparse_ns: u64,
    pub learning: u32,
    pub given: u32,
    pub stacks: u32,
    pub zero: u32,
}

/// `struct place`: a system call of a thread.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct At {
    pub ip: u64,
    pub sp: u64,
}

/// `struct boundary`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Boundary {
    pub call: At,
    pub turn: u64,
}

/// `struct unit`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    pub tid: u32,
    pub tgid: u32,
    pub of_loop: u32,
    pub running: u32,
    pub frame: u64,
    pub waits: [Boundary; WAITS],
    pub start: u64,
    pub spent: u64,
    pub off: u64,
    pub away: u64,
    pub ready: u64,
    pub delay: u64,
    pub asleep: At,
    pub best: u32,
    pub most: u32,
    pub told: u32,
    pub woken: u32,
    pub number: u32,
    pub slow: u32,
    pub counted_as: u32,
    pub turned: u32,
    pub slot: u32,
    pub contexts: u32,
    pub more: u32,
    pub hazy: u32,
    pub hits: [u16; TYPES],
    pub caller: u64,
    pub returns: u32,
    pub pad: u32,
    pub again: u64,
    pub held: u64,
    pub first: u64,
    pub waited: u64,
    pub least: u64,
    pub got: u64,
    pub served: u64,
    pub answered: u32,
    pub came: u32,
    pub stolen: u64,
    pub stolen_so_far: u64,
    pub apart: i64,
    pub put_off: u32,
    pub pad2: u32,
}

impl Unit {
    /// A thread of which no unit began yet.
    pub fn new(tid: u32, tgid: u32, of_loop: u32, frame: u64, slot: u32) -> Self {
        Self {
            tid,
            tgid,
            of_loop,
            running: 0,
            frame,
            waits: [Boundary::default(); WAITS],
            start: 0,
            spent: 0,
            off: 0,
            away: 0,
            ready: 0,
            delay: u64::MAX,
            asleep: At::default(),
            best: u32::MAX,
            most: 0,
            told: 0,
            woken: 0,
            number: 0,
            slow: 0,
            counted_as: u32::MAX,
            turned: 0,
            slot,
            contexts: 0,
            more: 0,
            hazy: 0,
            hits: [0; TYPES],
            caller: 0,
            returns: 0,
            pad: 0,
            again: 0,
            held: 0,
            first: 0,
            waited: 0,
            least: 0,
            got: 0,
            served: 0,
            answered: 0,
            came: 0,
            stolen: 0,
            stolen_so_far: 0,
            apart: 0,
            put_off: 0,
            pad2: 0,
        }
    }
}

/// `struct guarded_type`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct TypeCounts {
    pub threshold: u64,
    pub units: u64,
    pub sum: u64,
    pub violations: u64,
    pub starved: u64,
    /// `struct alarm`: end and length of the time in which nothing is told, and the longest told; of those that starved and of
    /// the others.
    pub alarms: [u64; 6],
}

/// `struct guarded_loop`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    pub types: [TypeCounts; TYPES + 1],
    pub passed: u64,
    pub abandoned: u64,
    pub busy: u64,
    pub answered: u64,
    pub ahead: u64,
}

/// `struct sight`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Sight {
    pub on: u64,
    pub suspects: u64,
}

/// `struct usage`, ns.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    pub cpu: u64,
    pub lit: u64,
    pub probed: u64,
    pub in_time: u64,
    pub unsure: u64,
}

/// `struct context_key`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ContextKey {
    pub of_loop: u32,
    pub function: u32,
    pub depth: u32,
    pub zero: u32,
}

/// `struct candidates`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Candidates {
    pub count: u8,
    pub types: [u8; CANDIDATES],
}

/// `struct shape_key`: a place in what processes have mapped that were forked from each other.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ShapeKey {
    pub image: u64,
    pub ip: u64,
    pub variant: u32,
    pub zero: u32,
}

/// `struct link`: a return address, and where it lies above the stack pointer.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Link {
    pub address: u64,
    pub at: u32,
    pub zero: u32,
}

/// `struct shape`: the stack of a boundary wait.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    pub of_loop: u32,
    pub count: u32,
    pub frame: u32,
    pub turn: u32,
    pub links: [Link; LINKS],
}

// SAFETY: plain numbers without padding, laid out as in C.
unsafe impl aya::Pod for Control {}
// SAFETY: as above.
unsafe impl aya::Pod for ShapeKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Shape {}
// SAFETY: as above.
unsafe impl aya::Pod for Unit {}
// SAFETY: as above.
unsafe impl aya::Pod for Loop {}
// SAFETY: as above.
unsafe impl aya::Pod for ContextKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Candidates {}
// SAFETY: as above.
unsafe impl aya::Pod for Usage {}

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
    /// A unit ended: one whose violation was told, or one that took no longer than it may.
    Ended { head: Head, violated: bool, start: u64, elapsed: u64, number: u32, of: u32 },
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
            4 | 8 => Self::Ended {
                head,
                violated: kind == 4,
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
    const PLACE: usize = 64 + KERNEL_FRAMES * 8;
    const PYTHON: usize = PLACE + 24;
    const REGISTERS: usize = PYTHON + PY_FRAMES * PY_FRAME;
    let frames = (u32_at(b, 60)? as usize).min(KERNEL_FRAMES);
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
        of: u32_at(b, 48)?,
        seen: u32_at(b, 52)?,
        number: u32_at(b, 56)?,
        kernel: (0..frames).map(|i| u64_at(b, 64 + i * 8)).collect::<Option<_>>()?,
        asleep: At { ip: u64_at(b, PLACE)?, sp: u64_at(b, PLACE + 8)? },
        python: (0..python).map(python_frame).collect::<Option<_>>()?,
        regs: regs(b, REGISTERS)?.0,
        copy: copy(b, PLACE + 16, REGISTERS + REGS)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The numbers in the source of the programs.
    #[test]
    fn sizes_are_those_of_the_programs() {
        let source = concat!(
            include_str!("../../bpf/guard.h"),
            include_str!("../../bpf/learn.h"),
            include_str!("../../bpf/python_frames.h"),
            include_str!("../../bpf/shape.h"),
            include_str!("../../bpf/sight.h")
        );
        let size = |name: &str, size: usize| {
            let line = format!("_Static_assert(sizeof(struct {name}) == {size}, ");
            assert!(source.contains(&line), "{name}: {size}");
        };
        size("unit", size_of::<Unit>());
        size("guarded_loop", size_of::<Loop>());
        size("control", size_of::<Control>());
        size("usage", size_of::<Usage>());
        size("rec_stack", HEAD + 16 + REGS + 16384);
        size("shape", size_of::<Shape>());
        size("rec_unit", HEAD + 48 + CONTEXTS * 12);
        size("rec_violation", HEAD + 64 + KERNEL_FRAMES * 8 + 24 + PY_FRAMES * PY_FRAME + REGS + 16384);
        size("rec_life", HEAD + 24);
        for (name, value) in [
            ("THREADS", THREADS),
            ("LOOPS", LOOPS),
            ("TYPES", TYPES),
            ("FUNCTIONS", FUNCTIONS),
            ("WAITS", WAITS),
            ("CANDIDATES", CANDIDATES),
            ("CONTEXTS", CONTEXTS),
            ("LEARNERS", LEARNERS),
            ("SHAPES", SHAPES),
            ("VARIANTS", VARIANTS),
            ("LINKS", LINKS),
            ("PY_FRAMES", PY_FRAMES),
        ] {
            let defined = |l: &str| l.split_whitespace().take(3).eq(["#define", name, &value.to_string()]);
            assert!(source.lines().any(defined), "{name}");
        }
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
        let mut b = vec![0; HEAD + 64 + KERNEL_FRAMES * 8 + 24 + frames + REGS + 8];
        put(&mut b, 0, 3, 4);
        let at = HEAD;
        let fields = [
            (16, 77, 8),
            (24, 30, 8),
            (32, 20, 8),
            (40, 9, 8),
            (48, 2, 4),
            (52, 1, 4),
            (60, 1, 4),
            (64, 0xffff, 8),
        ];
        for (field, value, bytes) in fields {
            put(&mut b, at + field, value, bytes);
        }
        let place = at + 64 + KERNEL_FRAMES * 8;
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
        assert_eq!((v.away, v.ready, v.stolen), (30, 20, 9));
        assert_eq!((v.asleep, v.regs.ip, v.copy.len()), (At { ip: 0x10, sp: 0x20 }, 0x1000, 8));
        let python: Vec<_> = v.python.iter().map(|f| (f.code, f.instruction, f.marks)).collect();
        assert_eq!(python, [(0, 0, 0), (0x77, 0, 5)]);
    }

    proptest! {
        #[test]
        fn any_bytes(kind in 0u32..13, mut b in proptest::collection::vec(any::<u8>(), 4..1200)) {
            put(&mut b, 0, kind.into(), 4);
            let _ = Record::parse(&b);
        }
    }
}
