//! What the loops around places in a module do, and the names of the variables that they ask.

use super::SymbolFile;
use crate::flow::{self, Returns, Turn, Turns};
use crate::stacks::cfi::{CfaRule, Cfi};
use crate::stacks::elf::Elf;
use crate::stacks::module::{Source, open_plain};
use crate::stacks::text::demangle;
use gimli::UnwindContext;
use iced_x86::Instruction;
use pg_event::LoopTurn;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

/// Column of the stack pointer in unwind rows (System V ABI, x86-64 supplement, figure 3.36).
const RSP: u8 = 7;
/// Most variables that a loop is said to ask.
const MAX_ASKED: usize = 4;

/// A module as a source of machine code.
struct Code<'a> {
    elf: &'a Elf,
    source: &'a Source,
    cfi: Cfi,
}

impl flow::Source for Code<'_> {
    fn bytes(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let (offset, there) = self.elf.place(address)?;
        self.source.bytes(offset, len.min(there))
    }

    fn part(&self, address: u64) -> Option<Range<u64>> {
        self.cfi.bounds(address)
    }

    fn bare(&self, address: u64) -> bool {
        let row = self.cfi.row(&mut UnwindContext::new(), address);
        row.is_none_or(|row| row.cfa == CfaRule::Register(RSP, 8))
    }

    fn writable(&self, address: u64) -> bool {
        self.elf.writable(address)
    }

    // Loops with calls are not looked into.
    fn returns(&self, _: &Instruction) -> Returns {
        Returns::Always
    }
}

/// What the loops around these addresses do, in their order.
pub(super) fn turns(elf: &Elf, source: &Source, files: &[SymbolFile], addresses: &[u64]) -> Vec<LoopTurn> {
    let code = Code { elf, source, cfi: source.cfi(elf) };
    let variables = OnceCell::new();
    let name = |at: u64| {
        let all: &Vec<Variable> = variables.get_or_init(|| named(files));
        let i = all.partition_point(|v| v.start <= at).checked_sub(1)?;
        let v = all.get(i).filter(|v| at == v.start || at - v.start < v.size)?;
        Some(if at == v.start { v.name.clone() } else { format!("{}+{:#x}", v.name, at - v.start) })
    };
    let mut known: HashMap<Vec<u64>, Vec<String>> = HashMap::new();
    let mut turns = Turns::new(&code);
    let of = |&address: &u64| match turns.at(address) {
        Turn::Unknown => LoopTurn::Unknown,
        Turn::Works => LoopTurn::Works,
        Turn::Endless => LoopTurn::Endless,
        Turn::Asks(at) => LoopTurn::Asks(
            known
                .entry(at)
                .or_insert_with_key(|at| {
                    let own = at.iter().filter(|&&a| elf.writable(a));
                    own.take(MAX_ASKED).map(|&a| name(a).unwrap_or_else(|| format!("{a:#x}"))).collect()
                })
                .clone(),
        ),
    };
    addresses.iter().map(of).collect()
}

/// A variable: where it begins, its bytes, its name.
struct Variable {
    start: u64,
    size: u64,
    name: String,
}

/// The variables that these files name, in order.
fn named(files: &[SymbolFile]) -> Vec<Variable> {
    let mut all = Vec::new();
    for f in files {
        let Some(file) = open_plain(&f.path) else { continue };
        let Some(elf) = Elf::read(&file) else { continue };
        for (table, names) in [(".symtab", ".strtab"), (".dynsym", ".dynstr")] {
            let _ = elf.variables(&file, table, names, &mut |name, start, size| {
                all.push(Variable { start, size, name: demangle(name) });
            });
        }
        if !all.is_empty() {
            break;
        }
    }
    all.sort_by_key(|v| v.start);
    all
}
