//! Jump tables: where the indirect jump of a `switch` leads.
//!
//! Two forms are known: distances from the table itself (position-independent code of gcc and clang: `lea table(%rip),B;
//! movslq (B,I,4),J; add B,J; jmp *J`) and addresses (`jmp *table(,I,8)`, with the table's address in the instruction or
//! in a register). The table lies in memory that the program cannot write. Its length is that of the comparison before
//! the jump; without one, entries are taken as long as they lead to instructions of the function.

use super::blocks::{Source, Text};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Most entries.
const MAX_ENTRIES: usize = 4096;
/// Most tables tried for a jump.
const MAX_TABLES: usize = 8;
/// How many instructions before the jump are looked at.
const BACK: usize = 32;

struct Table {
    address: u64,
    /// Bytes of an entry: 4, distances from the table; 8, addresses.
    width: usize,
}

/// Where the jump at an index leads, `None` when that cannot be found out. Some of it may lie in parts of the function
/// that are not known yet.
pub(super) fn targets(text: &Text, source: &impl Source, at: usize) -> Option<Vec<u64>> {
    let bound = bound(text, at).filter(|&n| n <= MAX_ENTRIES);
    tables(text, at).iter().find_map(|t| {
        if source.writable(t.address) {
            return None;
        }
        let most = bound.unwrap_or(MAX_ENTRIES);
        let mut entries = entries(t, &source.bytes(t.address, (most * t.width) as u64)?);
        let ours = |&a: &u64| text.at(a).is_some();
        if bound.is_none() {
            let valid = entries.iter().take_while(|a| ours(a)).count();
            entries.truncate(valid);
        }
        // Another table has entries that lead anywhere.
        let many = entries.iter().filter(|a| ours(a)).count() * 2 > entries.len();
        many.then_some(entries)
    })
}

fn entries(t: &Table, bytes: &[u8]) -> Vec<u64> {
    let value = |b: &[u8]| match t.width {
        4 => b.try_into().ok().map(|b| t.address.wrapping_add_signed(i32::from_le_bytes(b).into())),
        _ => b.try_into().ok().map(u64::from_le_bytes),
    };
    bytes.chunks_exact(t.width).filter_map(value).collect()
}

/// The instructions before one, the nearest first, up to what another way leads around.
fn before(text: &Text, at: usize) -> impl Iterator<Item = &Instruction> {
    let near = text.code[at.saturating_sub(BACK)..at].iter().rev();
    near.take_while(|i| {
        let ends = matches!(
            i.flow_control(),
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::UnconditionalBranch
        );
        !ends && !i.is_invalid()
    })
}

fn writes(i: &Instruction, register: Register) -> bool {
    let compares = matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    !compares && i.op0_kind() == OpKind::Register && i.op0_register().full_register() == register
}

/// Tables that the jump may use, the likeliest first.
fn tables(text: &Text, at: usize) -> Vec<Table> {
    let jump = &text.code[at];
    if jump.op0_kind() == OpKind::Memory {
        return by_address(text, at, jump);
    }
    if jump.op0_kind() != OpKind::Register {
        return Vec::new();
    }
    let target = jump.op0_register().full_register();
    // What the register was made of: the sum of the entry and the table's address, or the entry.
    let Some(made) = before(text, at).find(|i| writes(i, target)) else { return Vec::new() };
    let made_at = text.at(made.ip()).unwrap_or(at);
    if made.code() == Code::Mov_r64_rm64 && made.op1_kind() == OpKind::Memory {
        return by_address(text, made_at, made);
    }
    if made.mnemonic() != Mnemonic::Add || made.op1_kind() != OpKind::Register {
        return Vec::new();
    }
    for part in [target, made.op1_register().full_register()] {
        let Some(load) = before(text, made_at).find(|i| writes(i, part)) else { continue };
        if load.mnemonic() == Mnemonic::Movsxd
            && load.op1_kind() == OpKind::Memory
            && load.memory_index_scale() == 4
        {
            let load_at = text.at(load.ip()).unwrap_or(made_at);
            return addresses(text, load_at, load.memory_base(), 4);
        }
    }
    Vec::new()
}

/// A jump or load by `table(,I,8)` or `(B,I,8)`.
fn by_address(text: &Text, at: usize, i: &Instruction) -> Vec<Table> {
    if i.memory_index() == Register::None || i.memory_index_scale() != 8 {
        return Vec::new();
    }
    match i.memory_base() {
        Register::None => vec![Table { address: i.memory_displacement64(), width: 8 }],
        base if i.memory_displacement64() == 0 => addresses(text, at, base, 8),
        _ => Vec::new(),
    }
}

/// Addresses that a register may have got by `lea`: those set nearest before come first, for compilers set it before the
/// loop that the switch is in.
fn addresses(text: &Text, at: usize, register: Register, width: usize) -> Vec<Table> {
    let register = register.full_register();
    let sets = |i: &&Instruction| {
        i.mnemonic() == Mnemonic::Lea
            && i.op0_register().full_register() == register
            && i.is_ip_rel_memory_operand()
    };
    let (head, tail) = text.code.split_at(at);
    let all = head.iter().rev().filter(sets).chain(tail.iter().filter(sets));
    all.take(MAX_TABLES).map(|i| Table { address: i.ip_rel_memory_address(), width }).collect()
}

/// How many entries the comparison before the jump lets through.
fn bound(text: &Text, at: usize) -> Option<usize> {
    let mut above = None;
    for i in before(text, at) {
        match i.mnemonic() {
            Mnemonic::Ja => above = Some(1),
            Mnemonic::Jae => above = Some(0),
            Mnemonic::Cmp if i.op_count() == 2 && above.is_some() => {
                let last = match i.op1_kind() {
                    OpKind::Immediate8
                    | OpKind::Immediate8to16
                    | OpKind::Immediate8to32
                    | OpKind::Immediate8to64
                    | OpKind::Immediate16
                    | OpKind::Immediate32
                    | OpKind::Immediate32to64 => i.immediate(1),
                    _ => return None,
                };
                return usize::try_from(last).ok()?.checked_add(above?);
            }
            _ => {}
        }
    }
    None
}
