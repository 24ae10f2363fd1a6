//! What a loop does, turn by turn: does it compute, or does it ask whether something has changed?
//!
//! What its ways on depend on is followed back through its instructions (a backward slice). If a turn takes over none of
//! that from the turn before, and writes nothing of the memory that it reads, then all turns are alike until somebody
//! else writes there: the loop asks. Argus tells such loops by hand (section 4.3).

use super::blocks::{Source, decode};
use super::function::Function;
use super::natural::LoopId;
use super::step::{Cell, Step};
use iced_x86::InstructionInfoFactory;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most instructions of a loop that is looked into.
const MAX_STEPS: usize = 512;
/// Most loops around one another.
const MAX_AROUND: usize = 4;

/// What a loop does in a turn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Turn {
    /// The code does not tell: there is no loop, or what it calls decides.
    #[default]
    Unknown,
    /// A turn begins with what the one before has changed.
    Works,
    /// All turns are alike until somebody else changes what it reads; the addresses of that, as the file counts, as far as
    /// the code has them.
    Asks(Vec<u64>),
    /// Nothing in it leads out.
    Endless,
}

/// What loops of a binary do. Functions that were read are kept.
pub struct Turns<'a, S> {
    source: &'a S,
    functions: HashMap<u64, Option<Function>>,
}

impl<'a, S: Source> Turns<'a, S> {
    /// Of nothing yet.
    pub fn new(source: &'a S) -> Self {
        Self { source, functions: HashMap::new() }
    }

    /// What the innermost loop around an instruction does; or, where that only lets time pass, the one around it.
    pub fn at(&mut self, address: u64) -> Turn {
        let Some(part) = self.source.part(address) else { return Turn::Unknown };
        let read = || Function::read(self.source, address).ok();
        let Some(f) = self.functions.entry(part.start).or_insert_with(read) else { return Turn::Unknown };
        turn(self.source, f, address)
    }
}

fn turn(source: &impl Source, f: &Function, address: u64) -> Turn {
    let mut found = Turn::Unknown;
    for id in f.around(address).into_iter().take(MAX_AROUND) {
        match Body::read(source, f, id).map(|b| b.turn()) {
            // What it asks may be in the loop around it.
            Some(Turn::Asks(at)) if at.is_empty() => found = Turn::Asks(at),
            Some(other) if found == Turn::Unknown || matches!(other, Turn::Asks(_)) => return other,
            _ => break,
        }
    }
    found
}

/// The instructions of a loop.
struct Body {
    /// By block: its instructions, and where it leads within the loop.
    blocks: BTreeMap<usize, (Vec<Step>, Vec<usize>)>,
    head: usize,
    /// Something leads out of it.
    leaves: bool,
}

impl Body {
    fn read(source: &impl Source, f: &Function, id: LoopId) -> Option<Self> {
        let (head, inside) = f.body(id)?;
        let mut factory = InstructionInfoFactory::new();
        let (mut blocks, mut count, mut leaves) = (BTreeMap::new(), 0, false);
        for &b in &inside {
            let block = f.block(b)?;
            let len = block.code.end - block.code.start;
            let code = decode(&source.bytes(block.code.start, len)?, block.code.start);
            count += code.len();
            if count > MAX_STEPS || block.unresolved {
                return None;
            }
            let steps: Option<Vec<Step>> = code.iter().map(|i| Step::of(source, &mut factory, i)).collect();
            let next: Vec<usize> = block.next.iter().copied().filter(|n| inside.contains(n)).collect();
            leaves |= next.len() < block.next.len();
            blocks.insert(b, (steps?, next));
        }
        Some(Self { blocks, head, leaves })
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.blocks.values().flat_map(|b| &b.0)
    }

    fn turn(&self) -> Turn {
        let written: BTreeSet<Cell> = self.steps().flat_map(|s| &s.writes).map(|w| w.0).collect();
        let moves = |c: &Cell| match c {
            Cell::Slot(base, _) => written.contains(&Cell::Register(*base)),
            c => *c == Cell::Memory,
        };
        // Where it writes is not known, so what it reads may be that.
        if written.iter().any(moves) {
            return Turn::Unknown;
        }
        if !self.leaves {
            return Turn::Endless;
        }
        let wanted = self.wanted();
        let asks = |c: &&Cell| !matches!(c, Cell::Register(_) | Cell::Flags) && !written.contains(*c);
        let pauses = self.steps().any(|s| s.pauses);
        let taken_over = wanted.at_head.iter().any(|c| wanted.made.contains(c));
        if !pauses && (taken_over || !wanted.ever.iter().any(|c| asks(&c))) {
            return Turn::Works;
        }
        let at = wanted.ever.iter().filter(asks);
        Turn::Asks(at.filter_map(|c| if let Cell::Fixed(at) = c { Some(*at) } else { None }).collect())
    }

    /// Back from the ways on: what each depends on, turn after turn.
    fn wanted(&self) -> Wanted {
        let mut widest: BTreeMap<Cell, usize> = BTreeMap::new();
        for &(c, size) in self.steps().flat_map(|s| &s.reads) {
            let w = widest.entry(c).or_default();
            *w = (*w).max(size);
        }
        // Four bytes of a register clear the rest.
        let whole = |c: &Cell, size: usize| {
            size >= widest.get(c).copied().unwrap_or(0) || (size >= 4 && matches!(c, Cell::Register(_)))
        };
        let mut at_begin: BTreeMap<usize, BTreeSet<Cell>> = BTreeMap::new();
        let mut out = Wanted::default();
        loop {
            let mut changed = false;
            for (b, (steps, next)) in self.blocks.iter().rev() {
                let mut wanted: BTreeSet<Cell> =
                    next.iter().filter_map(|n| at_begin.get(n)).flatten().copied().collect();
                for s in steps.iter().rev() {
                    let made: Vec<_> = s.writes.iter().filter(|w| wanted.contains(&w.0)).collect();
                    for (c, size) in &made {
                        if *size > 0 && whole(c, *size) {
                            wanted.remove(c);
                        }
                    }
                    if s.branches || !made.is_empty() {
                        wanted.extend(s.reads.iter().map(|r| r.0));
                    }
                    out.made.extend(made.into_iter().map(|w| w.0));
                    out.ever.extend(&wanted);
                }
                if at_begin.get(b) != Some(&wanted) {
                    at_begin.insert(*b, wanted);
                    changed = true;
                }
            }
            if !changed {
                out.at_head = at_begin.remove(&self.head).unwrap_or_default();
                return out;
            }
        }
    }
}

/// What the ways on of a loop depend on.
#[derive(Default)]
struct Wanted {
    /// All of it.
    ever: BTreeSet<Cell>,
    /// What a turn, or one after it, reads before it is written.
    at_head: BTreeSet<Cell>,
    /// What is written and read after that.
    made: BTreeSet<Cell>,
}

#[cfg(test)]
mod tests {
    use super::super::fake::{CODE, Program};
    use super::*;
    use proptest::prelude::*;

    fn of(code: &[&[u8]]) -> Turn {
        let p = Program::raw(&code.concat(), Vec::new());
        Turns::new(&p).at(CODE)
    }

    /// `mov 0x4000(%rip), %eax`, at a distance from the beginning.
    fn load(at: u32) -> [u8; 6] {
        let [a, b, c, d] = (0x3000 - at - 6).to_le_bytes();
        [0x8b, 0x05, a, b, c, d]
    }

    const TEST: &[u8] = &[0x85, 0xc0]; // test %eax, %eax
    const RET: &[u8] = &[0xc3];

    #[test]
    fn who_reads_until_it_changes_asks() {
        let asks = |at: &[u64]| Turn::Asks(at.into());
        // je back.
        assert_eq!(of(&[&load(0), TEST, &[0x74, 0xf6], RET]), asks(&[0x4000]));
        // Through a pointer on the stack, without optimisation: mov -8(%rbp), %rax; mov (%rax), %eax.
        assert_eq!(of(&[&[0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x00], TEST, &[0x74, 0xf6], RET]), asks(&[]));
        // ... kept in a variable: mov %eax, -12(%rbp); cmpl $0, -12(%rbp).
        let kept: &[u8] = &[0x89, 0x45, 0xf4, 0x83, 0x7d, 0xf4, 0x00];
        assert_eq!(of(&[&[0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x00], kept, &[0x74, 0xf1], RET]), asks(&[]));
        // It counts its turns, which decides nothing: add $1, %ecx.
        assert_eq!(of(&[&[0x83, 0xc1, 0x01], &load(3), TEST, &[0x74, 0xf3], RET]), asks(&[0x4000]));
        // A lock by exchange: mov $1, %eax; xchg %al, (%rdi); test %al, %al; jne.
        let lock: &[u8] = &[0xb8, 1, 0, 0, 0, 0x86, 0x07, 0x84, 0xc0, 0x75, 0xf5];
        assert_eq!(of(&[lock, RET]), asks(&[]));
        // For a while only, but with pauses: pause; ...; jne out; dec %ecx; jne back.
        let until: &[u8] = &[0x75, 0x04, 0xff, 0xc9, 0x75, 0xf0];
        assert_eq!(of(&[&[0xf3, 0x90], &load(2), TEST, until, RET]), asks(&[0x4000]));
        // Pauses in a loop of their own, before it is asked: mov $9, %ecx; pause; dec %ecx; jne; ...; je back.
        let wait: &[u8] = &[0xb9, 9, 0, 0, 0, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa];
        let p = Program::raw(&[wait, &load(11), TEST, &[0x74, 0xeb], RET].concat(), Vec::new());
        assert_eq!(Turns::new(&p).at(CODE + 5), asks(&[0x4000]));
    }

    #[test]
    fn who_changes_what_it_reads_works() {
        // add $1, %eax; cmp $1000, %eax; jne.
        assert_eq!(of(&[&[0x83, 0xc0, 0x01, 0x3d, 0xe8, 3, 0, 0, 0x75, 0xf6], RET]), Turn::Works);
        // A list: mov (%rax), %rax; test %rax, %rax; jne.
        assert_eq!(of(&[&[0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf8], RET]), Turn::Works);
        // ... without optimisation.
        let slow: &[u8] =
            &[0x48, 0x8b, 0x45, 0xf8, 0x48, 0x8b, 0x00, 0x48, 0x89, 0x45, 0xf8, 0x48, 0x83, 0x7d, 0xf8, 0x00];
        assert_eq!(of(&[slow, &[0x75, 0xee], RET]), Turn::Works);
        // For a while only, without pauses.
        let until: &[u8] = &[0x75, 0x04, 0xff, 0xc9, 0x75, 0xf0];
        assert_eq!(of(&[&[0x66, 0x90], &load(2), TEST, until, RET]), Turn::Works);
        // A number is added to by compare and exchange: lea 1(%rax), %edx; lock cmpxchg %edx, (%rdi); jne.
        assert_eq!(of(&[&[0x8d, 0x50, 0x01, 0xf0, 0x0f, 0xb1, 0x17, 0x75, 0xf7], RET]), Turn::Works);
        // Memory at an address that the code has: lock incl 0x4000(%rip); js back.
        assert_eq!(of(&[&[0xf0, 0xff, 0x05, 0xf9, 0x2f, 0, 0, 0x78, 0xf7], RET]), Turn::Works);
    }

    #[test]
    fn what_the_code_does_not_tell() {
        // No loop; a call; a clock; memory written anywhere: mov %eax, (%rdi).
        assert_eq!(of(&[&load(0), TEST, RET]), Turn::Unknown);
        assert_eq!(of(&[&[0xe8, 0, 0x10, 0, 0], TEST, &[0x74, 0xf7], RET]), Turn::Unknown);
        assert_eq!(of(&[&[0x0f, 0x31, 0x39, 0xd8, 0x72, 0xfa], RET]), Turn::Unknown);
        assert_eq!(of(&[&[0x89, 0x07], &load(2), TEST, &[0x74, 0xf4], RET]), Turn::Unknown);
        // A stack pointer that moves: push %rax; cmp (%rsp), %ecx; je.
        assert_eq!(of(&[&[0x50, 0x3b, 0x0c, 0x24, 0x74, 0xfa], RET]), Turn::Unknown);
        assert_eq!(of(&[&[0xeb, 0xfe], RET]), Turn::Endless);
    }

    proptest! {
        #[test]
        fn any_code(code in proptest::collection::vec(any::<u8>(), 1..400), at in 0u64..400) {
            let p = Program::raw(&code, Vec::new());
            Turns::new(&p).at(CODE + at);
        }
    }
}
