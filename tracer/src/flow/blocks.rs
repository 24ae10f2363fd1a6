//! The flow of control within one function, from its machine code: basic blocks and where each leads.
//!
//! All code of a function's parts is decoded from their beginnings on: compilers for x86-64 put no data between
//! instructions. A part that lies elsewhere (`.cold`) belongs to a function when a jump leads into its middle, when it
//! begins with a frame set up, or when it jumps back into the middle; other jumps out of the function are calls in tail
//! position and leave it.

use super::table;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Most bytes of a function that are read; the largest parsers and interpreters have some 300 KiB.
const MAX_BYTES: u64 = 1 << 20;
/// Most parts of a function.
const MAX_PARTS: usize = 16;
/// Most basic blocks: dominators take quadratic time at worst.
pub(super) const MAX_BLOCKS: usize = 20_000;
/// Most edges.
const MAX_EDGES: usize = 200_000;
/// Most jumps out of a function of which is asked whether they lead to a part of it.
const MAX_LOOKED: usize = 128;
/// Most indirect jumps: for each, what comes before it and what may be its table are looked at.
const MAX_INDIRECT: usize = 512;
/// Largest piece of code that is looked through to find out whether it is part of a function.
const MAX_COLD: u64 = 64 << 10;

/// Why a function's flow is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// No symbol and no unwind entry covers the address.
    #[error("no symbol and no unwind entry says where the function begins and ends")]
    NoBounds,
    /// The file does not have the bytes.
    #[error("the code cannot be read from the file")]
    NoCode,
    /// It goes beyond what is looked at.
    #[error("the function is too large to be looked at")]
    TooLarge,
}

/// Whether a call comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// As far as is known.
    Always,
    /// Not where the compiler knew it, which depends on the arguments (a log with a level that ends the transaction).
    Sometimes,
    /// Declared so, or found out.
    Never,
}

/// What the flow of a function is read from.
pub trait Source {
    /// Bytes at an address, fewer where there are no more.
    fn bytes(&self, address: u64, len: u64) -> Option<Vec<u8>>;
    /// The piece of code around an address that has a symbol or an unwind entry of its own.
    fn part(&self, address: u64) -> Option<Range<u64>>;
    /// Is there nothing but the return address on the stack?
    fn bare(&self, address: u64) -> bool;
    /// Can the program change what is at the address?
    fn writable(&self, address: u64) -> bool;
    /// Does whoever this instruction calls come back?
    fn returns(&self, call: &Instruction) -> Returns;
}

/// Instructions that are executed one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Addresses of its bytes.
    pub code: Range<u64>,
    /// The blocks it leads to.
    pub next: Vec<usize>,
    /// There is a call in it, of a function or of the kernel.
    pub calls: bool,
    /// It ends with a jump whose targets could not be found out.
    pub unresolved: bool,
}

/// The blocks of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// By address.
    pub blocks: Vec<Block>,
    /// Where it is entered.
    pub entry: usize,
    /// Pieces of code, by address.
    pub parts: Vec<Range<u64>>,
}

impl Flow {
    /// Read the function around an address.
    ///
    /// # Errors
    /// Where the function begins and ends is not known, or it is too large or not to be read: see [`FlowError`].
    pub fn read(source: &impl Source, address: u64) -> Result<Self, FlowError> {
        let first = source.part(address).ok_or(FlowError::NoBounds)?;
        let mut text = Text::default();
        text.add(source, first)?;
        text.join_parts(source)?;
        text.blocks(source)
    }

    /// The block that an address is in.
    pub fn block(&self, address: u64) -> Option<usize> {
        let i = self.blocks.partition_point(|b| b.code.start <= address).checked_sub(1)?;
        self.blocks.get(i).is_some_and(|b| b.code.contains(&address)).then_some(i)
    }
}

/// Decode a piece of code.
pub(crate) fn decode(bytes: &[u8], address: u64) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut out = Vec::with_capacity(bytes.len() / 4);
    while decoder.can_decode() {
        out.push(decoder.decode());
    }
    out
}

/// Where a direct jump leads.
pub(super) fn jump_target(i: &Instruction) -> Option<u64> {
    let jump = matches!(
        i.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
    );
    (jump && i.near_branch_target() != 0).then(|| i.near_branch_target())
}

fn is_call(i: &Instruction) -> bool {
    matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall) && i.code() != Code::Syscall
}

/// The code of a function.
#[derive(Default)]
pub(super) struct Text {
    pub parts: Vec<Range<u64>>,
    /// By address.
    pub code: Vec<Instruction>,
}

impl Text {
    fn add(&mut self, source: &impl Source, part: Range<u64>) -> Result<(), FlowError> {
        let len = part.end.saturating_sub(part.start);
        let all: u64 = self.parts.iter().map(|p| p.end - p.start).sum();
        if all + len > MAX_BYTES || self.parts.len() >= MAX_PARTS {
            return Err(FlowError::TooLarge);
        }
        let bytes = source.bytes(part.start, len).filter(|b| b.len() as u64 == len && len > 0);
        self.code.extend(decode(&bytes.ok_or(FlowError::NoCode)?, part.start));
        let indirect = self.code.iter().filter(|i| i.flow_control() == FlowControl::IndirectBranch);
        if indirect.count() > MAX_INDIRECT {
            return Err(FlowError::TooLarge);
        }
        self.code.sort_by_key(Instruction::ip);
        self.parts.push(part);
        self.parts.sort_by_key(|p| p.start);
        Ok(())
    }

    /// Is it in a part, but not where that begins?
    fn within(&self, address: u64) -> bool {
        self.parts.iter().any(|p| p.contains(&address) && p.start != address)
    }

    fn inside(&self, address: u64) -> bool {
        self.parts.iter().any(|p| p.contains(&address))
    }

    fn join_parts(&mut self, source: &impl Source) -> Result<(), FlowError> {
        for _ in 0..MAX_PARTS {
            let tables = (0..self.code.len())
                .filter(|&i| self.code[i].flow_control() == FlowControl::IndirectBranch)
                .filter_map(|i| table::targets(self, source, i));
            let mut out: BTreeSet<u64> = tables.flatten().collect();
            out.extend(self.code.iter().filter_map(jump_target));
            let mut out = out.into_iter().filter(|&t| !self.inside(t)).take(MAX_LOOKED);
            match out.find_map(|t| source.part(t).filter(|p| self.belongs(source, p, t))) {
                Some(part) => self.add(source, part)?,
                None => return Ok(()),
            }
        }
        Err(FlowError::TooLarge)
    }

    /// Is the piece of code that a jump leads to a part of this function?
    fn belongs(&self, source: &impl Source, part: &Range<u64>, target: u64) -> bool {
        let len = part.end.saturating_sub(part.start);
        let overlaps = self.parts.iter().any(|p| p.start < part.end && part.start < p.end);
        // An entry of a procedure linkage table: one unwind entry describes them all.
        let stub = source.bytes(target, 16).is_some_and(|b| {
            let first = decode(&b, target).into_iter().find(|i| i.mnemonic() != Mnemonic::Endbr64);
            first.is_some_and(|i| {
                i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand()
            })
        });
        if overlaps || stub || len > MAX_BYTES {
            return false;
        }
        if target != part.start || !source.bare(part.start) {
            return true;
        }
        len <= MAX_COLD
            && source.bytes(part.start, len).is_some_and(|b| {
                decode(&b, part.start).iter().filter_map(jump_target).any(|t| self.within(t))
            })
    }

    /// Index of the instruction that begins at an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.code.binary_search_by_key(&address, Instruction::ip).ok()
    }

    /// Does the next instruction follow without a gap?
    fn falls_into(&self, i: usize) -> bool {
        let end = self.code[i].next_ip();
        self.code.get(i + 1).is_some_and(|next| next.ip() == end)
            && self.parts.iter().any(|p| p.contains(&self.code[i].ip()) && p.contains(&end))
    }

    /// The instruction after one and after what only fills up to it.
    fn behind(&self, i: usize) -> Option<usize> {
        let fills = |c: &Instruction| c.mnemonic() == Mnemonic::Nop;
        let mut at = i;
        while self.falls_into(at) {
            at += 1;
            if !fills(&self.code[at]) {
                return Some(at);
            }
        }
        None
    }

    fn blocks(&self, source: &impl Source) -> Result<Flow, FlowError> {
        let mut leaders: BTreeSet<usize> = self.parts.iter().filter_map(|p| self.at(p.start)).collect();
        // What ends a block, and where it leads to.
        let mut ends: BTreeMap<usize, (Vec<usize>, bool)> = BTreeMap::new();
        let mut edges = 0;
        for (i, instruction) in self.code.iter().enumerate() {
            let Some((targets, falls, unresolved)) = self.leads(source, i, instruction) else { continue };
            let mut next: Vec<usize> = targets.iter().filter_map(|&t| self.at(t)).collect();
            leaders.extend(&next);
            next.extend((falls && self.falls_into(i)).then_some(i + 1));
            next.sort_unstable();
            next.dedup();
            edges += next.len();
            // A jump into the middle of an instruction leads to where we do not know.
            let odd = targets.iter().any(|&t| self.inside(t) && self.at(t).is_none());
            ends.insert(i, (next, unresolved || odd));
        }
        // Behind a call that does not come back stands what others jump to, or nothing.
        for (i, call) in self.code.iter().enumerate().filter(|(_, c)| is_call(c)) {
            let never = match source.returns(call) {
                Returns::Always => false,
                Returns::Sometimes => self.behind(i).is_none_or(|next| leaders.contains(&next)),
                Returns::Never => true,
            };
            if never {
                ends.insert(i, (Vec::new(), false));
            }
        }
        leaders.extend(ends.keys().map(|i| i + 1).filter(|&n| n < self.code.len()));
        if leaders.len() > MAX_BLOCKS || edges > MAX_EDGES {
            return Err(FlowError::TooLarge);
        }
        let leaders: Vec<usize> = leaders.into_iter().collect();
        let number = |i: usize| leaders.binary_search(&i).ok();
        let mut blocks = Vec::with_capacity(leaders.len());
        for (b, &first) in leaders.iter().enumerate() {
            let after = leaders.get(b + 1).copied().unwrap_or(self.code.len());
            let last = after - 1;
            let (next, unresolved) = match ends.remove(&last) {
                Some(end) => end,
                None if self.falls_into(last) => (vec![after], false),
                None => (Vec::new(), false),
            };
            let next = next.into_iter().filter_map(number).collect();
            let code = self.code[first].ip()..self.code[last].next_ip();
            let calls = self.code[first..after]
                .iter()
                .any(|i| matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall));
            blocks.push(Block { code, next, calls, unresolved });
        }
        let entry = self.entry(source, &blocks);
        Ok(Flow { blocks, entry, parts: self.parts.clone() })
    }

    /// Where an instruction that ends a block leads, and whether it falls through.
    fn leads(&self, source: &impl Source, i: usize, code: &Instruction) -> Option<(Vec<u64>, bool, bool)> {
        match code.flow_control() {
            FlowControl::Next | FlowControl::Interrupt if !code.is_invalid() => None,
            FlowControl::Call | FlowControl::IndirectCall => None,
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                Some((jump_target(code).into_iter().collect(), true, false))
            }
            FlowControl::UnconditionalBranch => Some((jump_target(code).into_iter().collect(), false, false)),
            FlowControl::IndirectBranch => {
                let targets = table::targets(self, source, i);
                // Without a frame it is a call in tail position.
                let unresolved = targets.is_none() && !source.bare(code.ip());
                Some((targets.unwrap_or_default(), false, unresolved))
            }
            _ => Some((Vec::new(), false, false)),
        }
    }

    /// The part that is entered by calls: nobody jumps to its beginning from another, and no frame is set up yet.
    fn entry(&self, source: &impl Source, blocks: &[Block]) -> usize {
        let begins = |p: &Range<u64>| blocks.iter().position(|b| b.code.start == p.start);
        let jumped: BTreeSet<u64> = self.code.iter().filter_map(jump_target).collect();
        let mut parts: Vec<&Range<u64>> = self.parts.iter().collect();
        parts.sort_by_key(|p| (!source.bare(p.start), jumped.contains(&p.start), p.start));
        parts.first().and_then(|p| begins(p)).unwrap_or(0)
    }
}
