//! What one instruction of a loop reads and writes.

use super::blocks::Source;
use super::callee;
use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
    UsedMemory,
};

/// Something that has a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Cell {
    /// A register, in full width.
    Register(u32),
    /// The flags.
    Flags,
    /// A variable on the stack, or memory at another address that stays: register and distance.
    Slot(u32, u64),
    /// Memory at an address that the code has, as the file counts.
    Fixed(u64),
    /// Memory anywhere else.
    Memory,
}

/// An instruction of a loop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Step {
    /// What it reads, with the bytes of it.
    pub reads: Vec<(Cell, usize)>,
    /// What it writes, with the bytes of it; 0: perhaps.
    pub writes: Vec<(Cell, usize)>,
    /// It is there for loops that ask.
    pub pauses: bool,
    /// The way on depends on what it reads.
    pub branches: bool,
}

/// Tries that leave memory as it was when they fail.
const TRIES: [Mnemonic; 3] = [Mnemonic::Cmpxchg, Mnemonic::Xchg, Mnemonic::Bts];
/// Waits of a processor for somebody else, who writes.
const PAUSES: [Mnemonic; 4] = [Mnemonic::Pause, Mnemonic::Tpause, Mnemonic::Umwait, Mnemonic::Mwaitx];
/// What gives another value each time, by itself.
const CHANGES: [Mnemonic; 7] = [
    Mnemonic::Rdtsc,
    Mnemonic::Rdtscp,
    Mnemonic::Rdrand,
    Mnemonic::Rdseed,
    Mnemonic::Rdpmc,
    Mnemonic::Rdpru,
    Mnemonic::Cpuid,
];

pub(super) fn register(r: Register) -> u32 {
    r.full_register() as u32
}

fn reads(a: OpAccess) -> bool {
    use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite};
    // What is written under a condition may stay what it was.
    matches!(a, Read | CondRead | CondWrite | ReadWrite | ReadCondWrite)
}

/// Written for certain, or perhaps.
fn writes(a: OpAccess) -> Option<bool> {
    match a {
        OpAccess::Write | OpAccess::ReadWrite => Some(true),
        OpAccess::CondWrite | OpAccess::ReadCondWrite => Some(false),
        _ => None,
    }
}

fn cell(i: &Instruction, m: &UsedMemory) -> Cell {
    let stays = |r: Register| matches!(r, Register::RBP | Register::RSP | Register::None);
    let usual =
        matches!(m.segment(), Register::DS | Register::SS | Register::ES | Register::CS | Register::None);
    if i.is_ip_rel_memory_operand() {
        return Cell::Fixed(i.ip_rel_memory_address());
    }
    if !usual || m.index() != Register::None || !stays(m.base()) {
        return Cell::Memory;
    }
    match m.base() {
        Register::None => Cell::Fixed(m.displacement()),
        base => Cell::Slot(register(base), m.displacement()),
    }
}

impl Step {
    /// `None` where what it does is not known, or does not stay within the loop: calls of all but small functions that only look, system calls, clocks.
    pub fn of(source: &impl Source, factory: &mut InstructionInfoFactory, i: &Instruction) -> Option<Self> {
        let branches = match i.flow_control() {
            FlowControl::Call if i.code() == Code::Call_rel32_64 => return callee::call(source, factory, i),
            FlowControl::Next | FlowControl::UnconditionalBranch => false,
            FlowControl::ConditionalBranch => true,
            _ => return None,
        };
        if i.is_invalid() || CHANGES.contains(&i.mnemonic()) {
            return None;
        }
        let mut s = Self { pauses: PAUSES.contains(&i.mnemonic()), branches, ..Self::default() };
        let tries = TRIES.contains(&i.mnemonic()) && i.op0_kind() == OpKind::Memory;
        let info = factory.info(i);
        for r in info.used_registers() {
            let c = Cell::Register(register(r.register()));
            let size = r.register().size();
            // What is put there by an exchange does not decide what comes back.
            let given = tries && i.mnemonic() == Mnemonic::Xchg && r.register() == i.op1_register();
            if reads(r.access()) && !given {
                s.reads.push((c, size));
            }
            if let Some(certain) = writes(r.access()) {
                s.writes.push((c, if certain { size } else { 0 }));
            }
        }
        for m in info.used_memory() {
            let (c, size) = (cell(i, m), m.memory_size().size());
            if reads(m.access()) || tries {
                s.reads.push((c, size));
            }
            if let Some(certain) = writes(m.access()).filter(|_| !tries) {
                s.writes.push((c, if certain { size } else { 0 }));
            }
        }
        // An address that the code has, for the next instruction to read there.
        if i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand() {
            s.reads.push((Cell::Fixed(i.ip_rel_memory_address()), 8));
        }
        if i.rflags_read() != RflagsBits::NONE {
            s.reads.push((Cell::Flags, 8));
        }
        if i.rflags_modified() != RflagsBits::NONE {
            s.writes.push((Cell::Flags, 8));
        }
        Some(s)
    }
}
