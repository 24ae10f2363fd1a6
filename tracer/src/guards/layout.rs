//! The maps that user space and the programs share: `bpf/guard.h`, field by field.
#![allow(unsafe_code)] // `aya::Pod` is an unsafe marker trait.

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
/// Bit in the number of a shape's loop: the wait is outside of it.
const LEFT_AT: u32 = 31;
pub const LEFT: u32 = 1 << LEFT_AT;
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
/// Until then its stack is taken whenever it has taken longer by this part.
pub const NEXT_PART: u64 = 8;
/// Threads of which units are learnt.
pub const LEARNERS: usize = 1024;

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
    pub withdrawn: u32,
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
    pub halts: u32,
    pub halted: u64,
    pub next: u64,
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
            withdrawn: 0,
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
            halts: 0,
            halted: 0,
            next: 0,
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
    pub withdrawn: u64,
    pub doubt_until: u64,
    pub doubt: u64,
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
    pub settles: u64,
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

#[cfg(test)]
mod tests {
    use super::super::headers::{assert_defined, assert_size};
    use super::*;

    /// The numbers in the source of the programs.
    #[test]
    fn sizes_are_those_of_the_programs() {
        assert_size("unit", size_of::<Unit>());
        assert_size("guarded_loop", size_of::<Loop>());
        assert_size("control", size_of::<Control>());
        assert_size("usage", size_of::<Usage>());
        assert_size("shape", size_of::<Shape>());
        for (name, value) in [
            ("THREADS", THREADS),
            ("LOOPS", LOOPS),
            ("TYPES", TYPES),
            ("FUNCTIONS", FUNCTIONS),
            ("WAITS", WAITS),
            ("CANDIDATES", CANDIDATES),
            ("LEARNERS", LEARNERS),
            ("SHAPES", SHAPES),
            ("VARIANTS", VARIANTS),
            ("LINKS", LINKS),
            ("LEFT_AT", LEFT_AT as usize),
            ("AGAIN", AGAIN as usize),
            ("NEXT_PART", NEXT_PART as usize),
        ] {
            assert_defined(name, value);
        }
    }
}
