//! The code of a binary: its bytes by address, and where its functions begin and end.

use super::cfi::{CfaRule, Cfi};
use super::debugfile;
use super::elf::{Bytes, Elf, name_at, u32_at, u64_at};
use super::module::open_plain;
use gimli::UnwindContext;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Column of the stack pointer in unwind rows (System V ABI, x86-64 supplement, figure 3.36).
const RSP: u8 = 7;
/// Most symbols that are kept of a file.
const MAX_SYMBOLS: usize = 4 << 20;
/// Relocations that put the address of a symbol into a slot.
const GLOB_DAT: u32 = 6;
const JUMP_SLOT: u32 = 7;

/// A binary that code is read from. Nothing of it is mapped, so it may change or be cut off meanwhile.
pub(crate) struct Image {
    file: File,
    elf: Elf,
    cfi: Cfi,
    /// Functions with a size: begin, end; sorted.
    symbols: Vec<(u64, u64)>,
}

impl Image {
    /// The binary at a path, if it has this build-id (any, when that is empty).
    pub fn open(path: &Path, build_id: &str) -> Option<Self> {
        let file = open_plain(path)?;
        let elf = Elf::read(&file)?;
        if !build_id.is_empty() && (!debugfile::usable(build_id) || elf.build_id != build_id) {
            return None;
        }
        let cfi = elf.cfi(&file);
        let (table, names) = if elf.has_symtab { (".symtab", ".strtab") } else { (".dynsym", ".dynstr") };
        let mut symbols = Vec::new();
        let _ = elf.symbols(&file, table, names, &mut |_, start, size| {
            let end = start.saturating_add(size);
            let code = size > 0 && !elf.code.is_empty() && elf.same_code(start, end - 1);
            if code && symbols.len() < MAX_SYMBOLS {
                symbols.push((start, end));
            }
        });
        symbols.sort_unstable();
        symbols.dedup();
        Some(Self { file, elf, cfi, symbols })
    }

    /// Bytes at an address, as many as there are of the wanted.
    pub fn bytes(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let (offset, there) = self.elf.place(address)?;
        self.file.at(offset, len.min(there))
    }

    /// Can the program change what is at the address?
    pub fn writable(&self, address: u64) -> bool {
        self.elf.writable(address)
    }

    /// The piece of code that an address is in: from a symbol with a size, else from the unwind tables, where each
    /// function, and each part that a compiler put elsewhere, has an entry of its own.
    pub fn part(&self, address: u64) -> Option<Range<u64>> {
        let i = self.symbols.partition_point(|s| s.0 <= address);
        // Several begin at one address, or lie within another: the innermost counts.
        let near = self.symbols.get(..i).unwrap_or_default().iter().rev().take(8);
        let symbol = near.copied().find(|s| address < s.1).map(|s| s.0..s.1);
        symbol.or_else(|| self.cfi.bounds(address))
    }

    /// Is the stack at an address as it is when a function is entered: nothing but the return address on it?
    pub fn bare(&self, address: u64) -> bool {
        let row = self.cfi.row(&mut UnwindContext::new(), address);
        row.is_none_or(|row| row.cfa == CfaRule::Register(RSP, 8))
    }

    /// The last bytes of each piece of code that has an unwind entry, with the address behind them.
    pub fn ends<const N: usize>(&self) -> Vec<(u64, [u8; N])> {
        let mut out = Vec::new();
        for &(start, end) in &self.elf.code {
            let Some(code) = self.bytes(start, end.saturating_sub(start)) else { continue };
            for part in self.cfi.all_bounds().filter(|p| p.start >= start && p.end <= end) {
                let last = (part.end - start) as usize;
                let bytes = last.checked_sub(N).and_then(|from| code.get(from..last)?.try_into().ok());
                out.extend(bytes.map(|b| (part.end, b)));
            }
        }
        out
    }

    /// Slots that the loader fills with the address of one of these functions, sorted.
    pub fn slots_of(&self, wanted: &[&[u8]]) -> Vec<u64> {
        slots_of(&self.elf, &self.file, wanted)
    }
}

/// Slots that the loader fills with the address of one of these functions, sorted.
pub(super) fn slots_of(elf: &Elf, file: &File, wanted: &[&[u8]]) -> Vec<u64> {
    let read =
        |name: &str| elf.place_of(name).and_then(|(offset, size)| file.at(offset, size)).unwrap_or_default();
    let (symbols, names) = (read(".dynsym"), read(".dynstr"));
    let named = |index: usize| Some(name_at(&names, u32_at(&symbols, index.checked_mul(24)?)?));
    let mut out = Vec::new();
    for table in [".rela.plt", ".rela.dyn"] {
        for entry in read(table).chunks_exact(24) {
            let (Some(slot), Some(info)) = (u64_at(entry, 0), u64_at(entry, 8)) else { continue };
            if [GLOB_DAT, JUMP_SLOT].contains(&(info as u32))
                && named((info >> 32) as usize).is_some_and(|n| wanted.contains(&n))
            {
                out.push(slot);
            }
        }
    }
    out.sort_unstable();
    out
}
