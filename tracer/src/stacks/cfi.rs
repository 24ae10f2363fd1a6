//! Unwind rows: call frame information of `.eh_frame` and `.debug_frame` (DWARF 5, section 6.4; LSB 5.0,
//! chapter 10.6), looked up by address and made compact.

use super::elf::u32_at;
use super::regs::COLUMNS;
use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection,
};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Most entries indexed when a file has no search table.
const MAX_INDEX: usize = 4 << 20;
/// Longest entry evaluated: a hostile one could otherwise be a section of instructions.
const MAX_ENTRY: usize = 256 << 10;
/// Longest DWARF expression kept; those of compilers and the C library have about ten bytes.
const MAX_EXPRESSION: usize = 128;

/// How the value that a register had in the caller is found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Rule {
    /// Not recoverable; as rule of the return address: this is the outermost frame.
    Undefined,
    /// As it is.
    Same,
    /// In memory at CFA + offset.
    At(i64),
    /// CFA + offset.
    Is(i64),
    /// In another register.
    Register(u8),
    /// In memory at the address that the expression yields.
    ExpressionAt(Arc<[u8]>),
    /// What the expression yields.
    ExpressionIs(Arc<[u8]>),
}

/// How the canonical frame address is found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum CfaRule {
    /// Register + offset.
    Register(u8, i64),
    /// What the expression yields.
    Expression(Arc<[u8]>),
}

/// One row of the unwind table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Row {
    pub cfa: CfaRule,
    /// Rules of the registers that have one, by DWARF number; the last is the return address.
    pub rules: Box<[(u8, Rule)]>,
    /// The caller was interrupted by a signal here: its address is exact, not a return address.
    pub signal: bool,
}

/// Entries sorted by address: (start, end, offset of the entry).
type Index = Vec<(u64, u64, usize)>;

/// The unwind tables of one module.
#[derive(Default, Debug)]
pub(super) struct Cfi {
    text: u64,
    hdr: Option<(u64, Vec<u8>)>,
    eh: Option<(u64, Vec<u8>)>,
    debug: Option<Vec<u8>>,
    eh_index: OnceLock<Index>,
    debug_index: OnceLock<Index>,
}

/// Encodings of a search table that every linker writes: pc-relative or data-relative 32-bit numbers.
const HDR_FORM: [u8; 3] = [0x1b, 0x03, 0x3b];

impl Cfi {
    /// `hdr` and `eh` with their addresses.
    pub fn new(
        text: u64,
        hdr: Option<(u64, Vec<u8>)>,
        eh: Option<(u64, Vec<u8>)>,
        debug: Option<Vec<u8>>,
    ) -> Self {
        // A table of another form is not used; the entries are indexed instead.
        let hdr = hdr.filter(|(_, b)| b.first() == Some(&1) && b.get(1..4) == Some(&HDR_FORM));
        Self { text, hdr, eh, debug, ..Self::default() }
    }

    /// Bytes that the tables take.
    pub fn size(&self) -> usize {
        let len = |t: &Option<(u64, Vec<u8>)>| t.as_ref().map_or(0, |t| t.1.len());
        len(&self.hdr) + len(&self.eh) + self.debug.as_ref().map_or(0, Vec::len)
    }

    /// Where `.eh_frame` begins according to `.eh_frame_hdr`.
    pub fn eh_frame_address(address: u64, hdr: &[u8]) -> Option<u64> {
        (hdr.get(..2)? == [1, 0x1b]).then_some(())?;
        Some(address.wrapping_add(4).wrapping_add_signed(u32_at(hdr, 4)? as i32 as i64))
    }

    /// The row for an address of the module, `None` when there is none.
    pub fn row(&self, ctx: &mut UnwindContext<usize>, address: u64) -> Option<Row> {
        self.eh_row(ctx, address).or_else(|| self.debug_row(ctx, address))
    }

    /// Begin and end of the code that the entry for an address covers.
    pub fn bounds(&self, address: u64) -> Option<Range<u64>> {
        let bases = self.bases();
        if let Some((start, bytes)) = &self.eh {
            let mut section = EhFrame::new(bytes, LittleEndian);
            section.set_address_size(8);
            let index = || self.eh_index.get_or_init(|| index(&section, &bases, |o| o.0));
            let entry = match &self.hdr {
                Some(_) => self.search(*start, address),
                None => find(index(), address),
            };
            if let Some(range) = entry.and_then(|at| range_at(&section, &bases, at.into(), address)) {
                return Some(range);
            }
        }
        let mut section = DebugFrame::new(self.debug.as_ref()?, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default();
        let index = self.debug_index.get_or_init(|| index(&section, &bases, |o| o.0));
        range_at(&section, &bases, find(index, address)?.into(), address)
    }

    /// Begin and end of the code of each entry of `.eh_frame`, sorted.
    pub fn all_bounds(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let of = |bytes: &Vec<u8>| {
            let mut section = EhFrame::new(bytes, LittleEndian);
            section.set_address_size(8);
            index(&section, &self.bases(), |o| o.0)
        };
        let entries = self.eh.as_ref().map(|(_, bytes)| self.eh_index.get_or_init(|| of(bytes)));
        entries.into_iter().flatten().map(|&(start, end, _)| start..end)
    }

    fn bases(&self) -> BaseAddresses {
        let mut bases = BaseAddresses::default().set_text(self.text);
        if let Some((a, _)) = &self.hdr {
            bases = bases.set_eh_frame_hdr(*a);
        }
        if let Some((a, _)) = &self.eh {
            bases = bases.set_eh_frame(*a);
        }
        bases
    }

    fn eh_row(&self, ctx: &mut UnwindContext<usize>, address: u64) -> Option<Row> {
        let (start, bytes) = self.eh.as_ref()?;
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let bases = self.bases();
        let entry = self.search(*start, address);
        if let Some(row) = entry.and_then(|at| row_at(&section, &bases, at.into(), ctx, address)) {
            return Some(row);
        }
        if self.hdr.is_some() {
            return None;
        }
        let index = self.eh_index.get_or_init(|| index(&section, &bases, |o| o.0));
        row_at(&section, &bases, find(index, address)?.into(), ctx, address)
    }

    fn debug_row(&self, ctx: &mut UnwindContext<usize>, address: u64) -> Option<Row> {
        let mut section = DebugFrame::new(self.debug.as_ref()?, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default();
        let index = self.debug_index.get_or_init(|| index(&section, &bases, |o| o.0));
        row_at(&section, &bases, find(index, address)?.into(), ctx, address)
    }

    /// Search `.eh_frame_hdr` by halves: offset within `.eh_frame` of the last entry that begins at or
    /// before the address.
    fn search(&self, eh_start: u64, address: u64) -> Option<usize> {
        let (base, bytes) = self.hdr.as_ref()?;
        let rows = bytes.get(12..)?;
        let count = (u32_at(bytes, 8)? as usize).min(rows.len() / 8);
        let at = |i: usize, field: usize| {
            let delta = u32_at(rows, i * 8 + field)? as i32;
            Some(base.wrapping_add_signed(delta as i64))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let mid = low + (high - low) / 2;
            if at(mid, 0)? <= address {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        usize::try_from(at(low.checked_sub(1)?, 4)?.checked_sub(eh_start)?).ok()
    }
}

fn find(index: &Index, address: u64) -> Option<usize> {
    let i = index.partition_point(|e| e.0 <= address).checked_sub(1)?;
    let &(_, end, offset) = index.get(i)?;
    (address < end).then_some(offset)
}

/// Index all entries of a section. Stops at the first that cannot be read.
fn index<'a, S>(section: &S, bases: &BaseAddresses, offset: impl Fn(S::Offset) -> usize) -> Index
where
    S: UnwindSection<Reader<'a>>,
{
    let mut out = Index::new();
    let mut entries = section.entries(bases);
    // CIEs repeat: keep the latest.
    let mut last_cie: Option<(usize, gimli::CommonInformationEntry<Reader<'a>>)> = None;
    while let Ok(Some(entry)) = entries.next() {
        if out.len() >= MAX_INDEX {
            break;
        }
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|s, b, o| {
            let at = offset(o);
            if let Some((known, cie)) = &last_cie
                && *known == at
            {
                return Ok(cie.clone());
            }
            let cie = s.cie_from_offset(b, o)?;
            last_cie = Some((at, cie.clone()));
            Ok(cie)
        });
        if let Ok(fde) = parsed
            && fde.len() > 0
        {
            out.push((fde.initial_address(), fde.initial_address().saturating_add(fde.len()), fde.offset()));
        }
    }
    out.sort_unstable();
    out
}

fn range_at<'a, S>(section: &S, bases: &BaseAddresses, offset: S::Offset, address: u64) -> Option<Range<u64>>
where
    S: UnwindSection<Reader<'a>>,
{
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    let range = fde.initial_address()..fde.initial_address().saturating_add(fde.len());
    range.contains(&address).then_some(range)
}

fn row_at<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    ctx: &mut UnwindContext<usize>,
    address: u64,
) -> Option<Row>
where
    S: UnwindSection<Reader<'a>>,
{
    let fde: FrameDescriptionEntry<Reader<'a>> =
        section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    let in_range = address >= fde.initial_address() && address - fde.initial_address() < fde.len();
    if !in_range || fde.entry_len() > MAX_ENTRY || fde.cie().entry_len() > MAX_ENTRY {
        return None;
    }
    let return_column = fde.cie().return_address_register();
    // x86-64 has column 16; another would need registers that nobody saved.
    if usize::from(return_column.0) != COLUMNS - 1 {
        return None;
    }
    let row = fde.unwind_info_for_address(section, bases, ctx, address).ok()?;
    let expression = |e: &gimli::UnwindExpression<usize>| {
        let bytes = e.get(section).ok()?.0;
        (bytes.len() <= MAX_EXPRESSION).then(|| Arc::from(bytes.slice()))
    };
    let cfa = match row.cfa() {
        gimli::CfaRule::RegisterAndOffset { register, offset } => {
            CfaRule::Register(u8::try_from(register.0).ok()?, *offset)
        }
        gimli::CfaRule::Expression(e) => CfaRule::Expression(expression(e)?),
    };
    let mut rules = Vec::new();
    for (register, rule) in row.registers() {
        // Vector registers are not kept.
        let Some(column) = u8::try_from(register.0).ok().filter(|&c| usize::from(c) < COLUMNS) else {
            continue;
        };
        let rule = match rule {
            RegisterRule::SameValue => Rule::Same,
            RegisterRule::Offset(n) => Rule::At(*n),
            RegisterRule::ValOffset(n) => Rule::Is(*n),
            RegisterRule::Register(r) => Rule::Register(u8::try_from(r.0).ok()?),
            RegisterRule::Expression(e) => Rule::ExpressionAt(expression(e)?),
            RegisterRule::ValExpression(e) => Rule::ExpressionIs(expression(e)?),
            _ => Rule::Undefined,
        };
        rules.push((column, rule));
    }
    rules.sort_by_key(|r| r.0);
    Some(Row { cfa, rules: rules.into(), signal: fde.is_signal_trampoline() })
}

#[cfg(test)]
mod tests {
    use super::super::elf::Elf;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn search_table_and_index_agree() {
        let exe = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::read(exe.as_slice()).unwrap();
        let with = elf.cfi(exe.as_slice());
        let without = Cfi { hdr: None, ..elf.cfi(exe.as_slice()) };
        assert!(with.hdr.is_some() && with.eh.is_some());
        let mut ctx = UnwindContext::new();
        without.row(&mut ctx, 0);
        let index = without.eh_index.get().unwrap();
        assert!(index.len() > 1000);
        let mut rows = 0;
        for &(start, end, _) in index.iter().step_by(97) {
            for a in [start, start + (end - start) / 2, end - 1, end] {
                let (x, y) = (with.row(&mut ctx, a), without.row(&mut ctx, a));
                assert_eq!(x, y, "{a:x}");
                rows += usize::from(x.is_some());
            }
        }
        assert!(rows > 100);
    }

    proptest! {
        #[test]
        fn any_sections(
            hdr in proptest::collection::vec(any::<u8>(), 0..80),
            eh in proptest::collection::vec(any::<u8>(), 0..200),
            debug in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<u64>(),
        ) {
            let mut h = vec![1, 0x1b, 0x03, 0x3b];
            h.extend(hdr);
            let cfi = Cfi::new(0, Some((0x1000, h)), Some((0x2000, eh.clone())), Some(debug.clone()));
            cfi.row(&mut UnwindContext::new(), at);
            let cfi = Cfi::new(0, None, Some((0x2000, eh)), Some(debug));
            cfi.row(&mut UnwindContext::new(), at);
        }

        /// Real tables with damaged bytes.
        #[test]
        fn damaged(damage in proptest::collection::vec((0usize..4096, any::<u8>()), 1..20), pick in any::<usize>()) {
            let file = std::fs::File::open("/bin/sh").unwrap();
            let mut cfi = Elf::read(&file).unwrap().cfi(&file);
            let (_, eh) = cfi.eh.as_mut().unwrap();
            for (at, byte) in damage {
                if let Some(b) = eh.get_mut(at) {
                    *b = byte;
                }
            }
            cfi.hdr = None;
            let mut ctx = UnwindContext::new();
            cfi.row(&mut ctx, 0);
            let index = cfi.eh_index.get().unwrap();
            if !index.is_empty() {
                let (start, end, _) = index[pick % index.len()];
                cfi.row(&mut ctx, start);
                cfi.row(&mut ctx, end - 1);
            }
        }
    }
}
