//! From a branch back to what its condition was read from: through registers, flags and what the thread itself
//! stored, until memory that somebody else must have written.

use super::trace::Step;
use iced_x86::{
    Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};
use std::collections::{HashMap, HashSet};
/// What lies at an address, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ground {
    /// Memory that others may write.
    Data,
    /// The thread's own stack.
    Stack,
    /// The kernel's page of clocks.
    Clock,
    /// Memory that nobody can write.
    Constant,
}

/// What a condition of a branch was read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Address.
    pub address: u64,
    /// Bytes read.
    pub size: u8,
    /// What lies there.
    pub ground: Ground,
    /// The branch: its step in the trace.
    pub branch: usize,
    /// How many calls deeper than the loop's frame the branch is.
    pub deeper: u32,
    /// The instruction that read it: its step.
    pub load: usize,
    /// So many steps of reckoning lie between the branch and the load.
    pub hops: u32,
    /// The thread itself changes it in the loop: a counter.
    pub own: bool,
    /// The same address is read in each turn. A loop that computes walks through its data.
    pub steady: bool,
    /// The branch is in the outermost frame that has a way out of the loop.
    pub outermost: bool,
    /// The pointer that led there: where it lay, and how far behind it the flag is.
    pub pointer: Option<(u64, i64)>,
}

impl Source {
    /// Can it be what the loop waits for? What a thread changes itself, walks through, or asks somewhere within its
    /// work is not that.
    pub fn is_flag(&self) -> bool {
        !self.own && self.steady && self.outermost && matches!(self.ground, Ground::Data | Ground::Stack)
    }
}

/// Longest way back from a branch, steps.
const FAR: usize = 4000;
/// Most sources of one branch.
const SOURCES: usize = 16;

fn writes(a: OpAccess) -> bool {
    matches!(a, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
}

fn reads(a: OpAccess) -> bool {
    matches!(a, OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead | OpAccess::ReadCondWrite)
}

/// Address and size of a memory operand at a step.
fn place(m: &UsedMemory, s: &Step) -> Option<(u64, u64)> {
    let at = m.virtual_address(0, |r, _, _| s.register(r))?;
    Some((at, (m.memory_size().size() as u64).max(1)))
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
}

/// Read, changed and written at once: what others see changes by it, but it is asked as well.
fn atomic(i: &Instruction) -> bool {
    i.has_lock_prefix() || i.mnemonic() == Mnemonic::Xchg
}

/// Is it data that is read (no address, no stack pointer)?
fn wanted(r: Register) -> Option<Register> {
    let full = r.full_register();
    ((full.is_gpr64() && full != Register::RSP) || full.is_vector_register()).then_some(full)
}

/// What is looked for on the way back.
#[derive(Default)]
struct Wanted {
    /// Registers, and how many steps of reckoning they are away from the branch.
    registers: HashMap<Register, u32>,
    /// Bits of the flags register.
    flags: Option<(u32, u32)>,
    /// Memory that was read: who wrote it before?
    memory: Vec<(Source, (u64, u64))>,
}

/// Data that an instruction reads in registers: those of addresses are no data.
fn data_registers(i: &Instruction, info: &InstructionInfo) -> Vec<Register> {
    let addresses: HashSet<Register> =
        info.used_memory().iter().flat_map(|m| [m.base(), m.index()]).map(Register::full_register).collect();
    let as_operand = |r: Register| {
        (0..i.op_count()).any(|n| {
            i.op_kind(n) == OpKind::Register
                && i.op_register(n).full_register() == r
                && reads(info.op_access(n))
        })
    };
    info.used_registers()
        .iter()
        .filter(|u| reads(u.access()))
        .filter_map(|u| wanted(u.register()))
        .filter(|r| !addresses.contains(r) || as_operand(*r))
        .collect()
}

/// The pointer by which an operand was reached, when it was loaded from memory before.
fn pointer(t: &[Step], load: usize, m: &UsedMemory, at: u64) -> Option<(u64, i64)> {
    let base = wanted(m.base()).filter(|r| *r != Register::RIP)?;
    let mut info = InstructionInfoFactory::new();
    let mut register = base;
    for s in t[..load].iter().rev().take(FAR) {
        let i = info.info(&s.instruction);
        if !i.used_registers().iter().any(|u| writes(u.access()) && u.register().full_register() == register)
        {
            continue;
        }
        if s.instruction.mnemonic() != Mnemonic::Mov {
            return None;
        }
        if let Some(from) = i.used_memory().iter().find(|m| reads(m.access())) {
            let (address, size) = place(from, s)?;
            let value = t[load].register(base)?;
            return (size == 8).then(|| (address, at.wrapping_sub(value) as i64));
        }
        // From another register.
        register = data_registers(&s.instruction, i).first().copied()?;
    }
    None
}

/// Does the instruction of a step read the same address whenever it is executed, and is it so more than once?
fn steady(t: &[Step], load: usize, m: &UsedMemory, at: u64) -> bool {
    let ip = t[load].regs.ip;
    let mut times = 0;
    let same = t.iter().filter(|s| s.regs.ip == ip).all(|s| {
        times += 1;
        place(m, s).is_some_and(|p| p.0 == at)
    });
    same && times > 1
}

/// Looks back from a branch.
pub(super) fn sources(
    t: &[Step],
    k: usize,
    deeper: u32,
    ground: &dyn Fn(u64, &Step) -> Ground,
    calls: &mut Vec<u64>,
) -> Vec<Source> {
    let mut factory = InstructionInfoFactory::new();
    let mut out: Vec<Source> = Vec::new();
    let need = t[k].instruction.rflags_read();
    let mut w = Wanted { flags: (need != 0).then_some((need, 0)), ..Wanted::default() };
    // jrcxz and the like ask a register.
    for r in data_registers(&t[k].instruction, factory.info(&t[k].instruction)) {
        w.registers.insert(r, 0);
    }
    for j in (k.saturating_sub(FAR)..k).rev() {
        let s = &t[j];
        let i = &s.instruction;
        let info = factory.info(i).clone();
        let stored: Vec<(u64, u64)> =
            info.used_memory().iter().filter(|m| writes(m.access())).filter_map(|m| place(m, s)).collect();
        // What was read from memory later, was it stored here?
        let mut hops = None;
        if !stored.is_empty() && i.mnemonic() != Mnemonic::Syscall {
            w.memory.retain(|(source, at)| {
                if !stored.iter().any(|p| overlap(*p, *at)) {
                    return true;
                }
                if atomic(i) {
                    // Taken and given back by everybody who asks for it.
                    out.push(source.clone());
                } else if info.used_memory().iter().any(|m| writes(m.access()) && reads(m.access())) {
                    out.push(Source { own: true, ..source.clone() });
                } else {
                    hops = Some(source.hops);
                }
                false
            });
        }
        if let Some(n) = hops {
            for r in data_registers(i, &info) {
                w.registers.entry(r).or_insert(n + 1);
            }
        }
        // Was a flag or a register that is wanted made here?
        let mut hops = None;
        if let Some((need, n)) = w.flags
            && i.rflags_modified() & need != 0
        {
            w.flags = None;
            hops = Some(n);
        }
        for u in info.used_registers().iter().filter(|u| writes(u.access())) {
            let full = u.register().full_register();
            if let Some(n) = w.registers.get(&full).copied() {
                // A conditional move may have left the old value.
                let old = matches!(u.access(), OpAccess::CondWrite | OpAccess::ReadCondWrite);
                if !old {
                    w.registers.remove(&full);
                }
                hops = Some(hops.map_or(n, |h: u32| h.min(n)));
            }
        }
        // Its result, which the decoder knows nothing of.
        if i.mnemonic() == Mnemonic::Syscall && w.registers.remove(&Register::RAX).is_some() {
            if !calls.contains(&s.regs.ax) {
                calls.push(s.regs.ax);
            }
            continue;
        }
        let Some(n) = hops else { continue };
        match i.mnemonic() {
            Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Cpuid | Mnemonic::Rdrand | Mnemonic::Syscall => {
                continue;
            }
            _ => {}
        }
        for m in info.used_memory().iter().filter(|m| reads(m.access())) {
            let Some(at) = place(m, s) else { continue };
            let source = Source {
                address: at.0,
                size: at.1.min(8) as u8,
                ground: ground(at.0, s),
                branch: k,
                deeper,
                load: j,
                hops: n,
                own: false,
                steady: steady(t, j, m, at.0),
                outermost: false,
                pointer: pointer(t, j, m, at.0),
            };
            if atomic(i) {
                out.push(source);
            } else if w.memory.len() < SOURCES {
                w.memory.push((source, at));
            }
        }
        for r in data_registers(i, &info) {
            w.registers.entry(r).or_insert(n + 1);
        }
        let need = i.rflags_read();
        if need != 0 {
            w.flags = Some((need, n + 1));
        }
        if w.registers.is_empty() && w.flags.is_none() && w.memory.is_empty() {
            break;
        }
    }
    // What nobody stored within the trace came from outside.
    out.extend(w.memory.into_iter().map(|m| m.0));
    out.truncate(SOURCES);
    out
}
