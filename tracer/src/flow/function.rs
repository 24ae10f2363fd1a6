//! A function with its loops, and what a thread must have done to get from one call of it to another.

use super::blocks::{Block, Flow, FlowError, Source};
use super::natural::{LoopId, Loops};
use super::split::{merge, split};
use std::collections::{BTreeSet, VecDeque};

/// How a thread that was at one place of a function got to another, within the same call of the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It went on: no loop has to have turned.
    On,
    /// Round this loop, or one around it.
    Around(LoopId),
    /// Not at all: the function returned and was called again.
    Not,
    /// The machine code does not tell.
    Unknown,
}

/// A function and its natural loops.
#[derive(Clone, Debug)]
pub struct Function {
    flow: Flow,
    /// Where blocks lead; those behind the last are copies of some.
    next: Vec<Vec<usize>>,
    loops: Loops,
    /// Heads of those that had several entries.
    merged: BTreeSet<usize>,
    /// A jump could not be followed: what seems not to be reached may be.
    open: bool,
}

impl Function {
    /// Read the function around an address.
    ///
    /// # Errors
    /// Its bounds or its bytes are not known, or it is too large.
    pub fn read(source: &impl Source, address: u64) -> Result<Self, FlowError> {
        let flow = Flow::read(source, address)?;
        let mut next: Vec<Vec<usize>> = flow.blocks.iter().map(|b| b.next.clone()).collect();
        split(&mut next, flow.entry, |b| !flow.blocks[b].calls);
        let merged = merge(&mut next, flow.entry);
        let loops = Loops::find(&next, flow.entry);
        let open = flow.blocks.iter().any(|b| b.unresolved);
        Ok(Self { flow, next, loops, merged, open })
    }

    /// Where it is entered.
    pub fn entry(&self) -> u64 {
        self.flow.blocks.get(self.flow.entry).map_or(0, |b| b.code.start)
    }

    /// Could a jump not be followed?
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Is the address one of its code?
    pub fn contains(&self, address: u64) -> bool {
        self.flow.parts.iter().any(|p| p.contains(&address))
    }

    /// Is it a cycle that had several entries, and was given a head?
    pub fn is_merged(&self, id: LoopId) -> bool {
        self.loops.loops.get(id).is_some_and(|l| self.merged.contains(&l.head))
    }

    /// The address that every turn of a loop passes.
    pub fn head(&self, id: LoopId) -> u64 {
        let node = self.loops.loops.get(id).map(|l| l.head);
        node.and_then(|n| self.flow.blocks.get(n)).map_or(0, |b| b.code.start)
    }

    /// The block at the head of a loop, and all of its blocks. `None` where it has several heads.
    pub(super) fn body(&self, id: LoopId) -> Option<(usize, BTreeSet<usize>)> {
        let head = self.loops.loops.get(id)?.head;
        let inside = (0..self.flow.blocks.len()).filter(|&b| self.loops.around(b).any(|l| l == id)).collect();
        (head < self.flow.blocks.len() && !self.merged.contains(&head)).then_some((head, inside))
    }

    /// A block of its code.
    pub(super) fn block(&self, b: usize) -> Option<&Block> {
        self.flow.blocks.get(b)
    }

    /// The loops around the instruction at (or ending at) an address, the innermost first.
    pub fn around(&self, address: u64) -> Vec<LoopId> {
        self.flow.block(address).map(|b| self.loops.around(b).collect()).unwrap_or_default()
    }

    /// Is the instruction reached from the entry, as far as the code tells?
    pub fn reached(&self, address: u64) -> bool {
        self.flow.block(address).is_some_and(|b| self.loops.reached(b))
    }

    /// How a thread got from one address to another. From an address to itself: it was there twice.
    pub fn way(&self, from: u64, to: u64) -> Way {
        let (Some(a), Some(b)) = (self.flow.block(from), self.flow.block(to)) else { return Way::Unknown };
        if !self.loops.reached(a) || !self.loops.reached(b) {
            return Way::Unknown;
        }
        if from < to && a == b || (a != b && self.leads_on(a, b)) {
            return Way::On;
        }
        match self.loops.common(a, b) {
            Some(id) => Way::Around(id),
            // From the body to behind the loop by its head: another turn was begun and not made.
            None if a != b && self.leads(a, b, |_, _| true) => Way::On,
            // It may go round by a jump that we cannot follow, or by a cycle without a head.
            None if self.open || self.leads(a, a, |_, _| true) => Way::Unknown,
            None => Way::Not,
        }
    }

    /// Without going back to the head of a loop.
    fn leads_on(&self, a: usize, b: usize) -> bool {
        self.leads(a, b, |from, to| !self.loops.dominates(to, from))
    }

    /// Is there a way of at least one edge?
    fn leads(&self, a: usize, b: usize, takes: impl Fn(usize, usize) -> bool) -> bool {
        let mut seen = vec![false; self.next.len()];
        let mut work = VecDeque::from([a]);
        while let Some(node) = work.pop_front() {
            for &next in &self.next[node] {
                if !takes(node, next) {
                    continue;
                }
                if next == b {
                    return true;
                }
                if !std::mem::replace(&mut seen[next], true) {
                    work.push_back(next);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{DATA, Program};
    use super::*;
    use proptest::prelude::*;

    fn heads(p: &Program, f: &Function, at: &str) -> Vec<u64> {
        f.around(p.at(at)).into_iter().map(|id| f.head(id)).collect()
    }

    fn read(text: &str) -> (Program, Function) {
        let p = Program::new(text);
        let f = Function::read(&p, super::super::fake::CODE).unwrap();
        (p, f)
    }

    #[test]
    fn a_while_loop_with_continue() {
        let (p, f) = read("nop head: jne:out body: call jne:head more: call jmp:head out: last: call ret");
        let head = vec![p.at("head")];
        assert_eq!((heads(&p, &f, "body"), heads(&p, &f, "more")), (head.clone(), head));
        assert_eq!(heads(&p, &f, "last"), []);
        assert_eq!(f.way(p.at("body"), p.at("more")), Way::On);
        assert!(matches!(f.way(p.at("more"), p.at("body")), Way::Around(_)));
        // Another turn is begun, none is made.
        assert_eq!(f.way(p.at("more"), p.at("last")), Way::On);
        assert_eq!(
            (f.way(p.at("last"), p.at("body")), f.way(p.at("last"), p.at("last"))),
            (Way::Not, Way::Not)
        );
    }

    #[test]
    fn two_calls_of_one_block() {
        let (p, f) = read("one: call two: call ret");
        assert_eq!((f.way(p.at("one"), p.at("two")), f.way(p.at("two"), p.at("one"))), (Way::On, Way::Not));
        let (p, f) = read("one: call two: call jne:one ret");
        assert_eq!(f.way(p.at("one"), p.at("two")), Way::On);
        assert!(matches!(f.way(p.at("two"), p.at("one")), Way::Around(_)));
    }

    #[test]
    fn nested_loops_turn_as_far_out_as_is_seen() {
        let (p, f) = read("outer: inner: wait: call jne:inner work: call jne:outer ret");
        let (inner, outer) = (p.at("inner"), p.at("outer"));
        // Both begin at the same instruction: one loop with two ways back.
        assert_eq!(inner, outer);
        let (p, f2) = read("outer: nop jne:inner inner: wait: call jne:inner work: call jne:outer ret");
        let of = |way| match way {
            Way::Around(id) => f2.head(id),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(f2.way(p.at("wait"), p.at("wait"))), p.at("inner"));
        assert_eq!(of(f2.way(p.at("work"), p.at("wait"))), p.at("outer"));
        assert_eq!(heads(&p, &f2, "wait"), [p.at("inner"), p.at("outer")]);
        assert_eq!(f.around(inner).len(), 1);
    }

    #[test]
    fn a_call_that_never_returns_leads_nowhere() {
        // Were it to return, the loop would have a second entry and no head.
        let (p, f) = read("jne:bad head: call jne:out jmp:head bad: abort mid: call jmp:head out: ret");
        assert_eq!(heads(&p, &f, "head"), [p.at("head")]);
        assert!(!f.reached(p.at("mid")));
        assert_eq!(f.way(p.at("head"), p.at("mid")), Way::Unknown);
        let (p, f) = read("head: call jmp:head end: abort");
        assert_eq!((heads(&p, &f, "head"), f.reached(p.at("end"))), (vec![p.at("head")], false));
    }

    #[test]
    fn a_call_that_returns_at_times() {
        // What follows is jumped to: it does not return there.
        let (p, f) = read("jne:bad head: call jne:out jmp:head bad: log mid: jmp:head out: ret");
        assert!(f.reached(p.at("mid")));
        let (p, f) = read("jne:mid head: call jne:bad back: jmp:head bad: log mid: call ret");
        assert_eq!(f.way(p.at("bad"), p.at("mid")), Way::Not);
        let (p, f2) = read("head: call jne:bad back: jmp:head bad: log mid: call jmp:back");
        assert_eq!((f2.way(p.at("bad"), p.at("mid")), heads(&p, &f2, "mid")), (Way::On, vec![p.at("head")]));
    }

    #[test]
    fn a_cycle_with_two_entries_is_a_loop() {
        let (p, f) = read("jne:b a: call b: there: call jne:a ret");
        assert_eq!(heads(&p, &f, "there"), [p.at("a")]);
        assert!(matches!(f.way(p.at("a"), p.at("a")), Way::Around(_)));
        assert!(matches!(f.way(p.at("there"), p.at("a")), Way::Around(_)));
        assert_eq!(f.way(p.at("a"), p.at("there")), Way::On);
    }

    #[test]
    fn cold_parts_belong_to_their_function() {
        let text = "head: wait: call jne:cold back: jne:head ret |cold cold: rare: call jmp:back";
        let p = Program::new(text);
        for from in ["wait", "rare"] {
            let f = Function::read(&p, p.at(from)).unwrap();
            assert_eq!(f.entry(), p.at("head"));
            assert_eq!(
                (heads(&p, &f, "wait"), heads(&p, &f, "rare")),
                (vec![p.at("head")], vec![p.at("head")])
            );
        }
        // Without a frame of its own: by its jump back into the middle.
        let p = Program::new(&text.replace("|cold", "|"));
        let f = Function::read(&p, p.at("wait")).unwrap();
        assert_eq!((f.entry(), heads(&p, &f, "rare")), (p.at("head"), vec![p.at("head")]));
        // A call in tail position, and one of itself.
        let p = Program::new("one: call jmp:two | two: call jmp:one");
        let f = Function::read(&p, p.at("one")).unwrap();
        assert!(!f.contains(p.at("two")) && f.around(p.at("one")).is_empty());
    }

    /// A switch in a loop: `cmp $2, %eax; ja out`, a table, three cases that go back.
    fn switch(jump: &[u8], entry: impl Fn(u64) -> Vec<u8>) -> Program {
        let mut code = vec![0x90]; // 1000
        code.extend([0x83, 0xf8, 0x02]); // 1001 head: cmp $2, %eax
        code.extend([0x77, 0]); // 1004 ja out
        let ja = code.len();
        code.extend(jump);
        let cases = code.len();
        for _ in 0..3 {
            code.push(0x90);
            let back = 1i64 - (code.len() as i64 + 2);
            code.extend([0xeb, back as u8]); // jmp head
        }
        code[ja - 1] = (code.len() - ja) as u8;
        code.push(0xc3);
        let data = (0..3).flat_map(|i| entry(0x1000 + cases as u64 + i * 3)).chain([1; 8]).collect();
        Program::raw(&code, data)
    }

    #[test]
    fn jump_tables() {
        let distances = |to: u64| (to.wrapping_sub(DATA) as u32).to_le_bytes().to_vec();
        let addresses = |to: u64| to.to_le_bytes().to_vec();
        let lea = [0x48, 0x8d, 0x15, 0xf3, 0x6f, 0, 0]; // 1006: lea 0x8000(%rip), %rdx
        let relative = [&lea[..], &[0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0x3e, 0xff, 0xe0]].concat();
        let in_register = [&lea[..], &[0xff, 0x24, 0xc2]].concat();
        let absolute = [0xff, 0x24, 0xc5, 0x00, 0x80, 0, 0];
        for p in [switch(&relative, distances), switch(&in_register, addresses), switch(&absolute, addresses)]
        {
            let f = Function::read(&p, 0x1000).unwrap();
            assert!(!f.is_open());
            let last = p.parts_end() - 4;
            assert!(f.reached(last));
            assert_eq!(f.around(last).iter().map(|&id| f.head(id)).collect::<Vec<_>>(), [0x1001]);
        }
        // A table that the program could change is none, and the jump stays open.
        let writable = [0xff, 0x24, 0xc5, 0x00, 0x10, 0, 0];
        let f = Function::read(&switch(&writable, addresses), 0x1000).unwrap();
        assert!(f.is_open() && f.around(0x1001).is_empty());
        assert_eq!(f.way(0x1001, 0x1001), Way::Unknown);
    }

    #[test]
    fn what_is_too_large_is_refused() {
        use super::super::fake::CODE;
        let of =
            |code: &[u8], times: usize| Function::read(&Program::raw(&code.repeat(times), Vec::new()), CODE);
        // Indirect jumps, conditional jumps to the next instruction, a megabyte and more.
        assert_eq!(of(&[0xff, 0xe0], 5000).unwrap_err(), FlowError::TooLarge);
        assert_eq!(of(&[0x75, 0x00], 30_000).unwrap_err(), FlowError::TooLarge);
        assert_eq!(of(&[0x90], 7 << 20).unwrap_err(), FlowError::TooLarge);
        // Just small enough: jumps back, each a loop around the one before.
        let back: Vec<u8> = (0..9000u32)
            .flat_map(|i| {
                let to = (i * 6 + 6).wrapping_neg().to_le_bytes();
                [&[0x0f, 0x85][..], &to].concat()
            })
            .chain([0xc3])
            .collect();
        let f = Function::read(&Program::raw(&back, Vec::new()), CODE).unwrap();
        assert_eq!(f.around(CODE).len(), 1);
    }

    proptest! {
        #[test]
        fn any_code(code in proptest::collection::vec(any::<u8>(), 1..400), data in proptest::collection::vec(any::<u8>(), 0..100), a in 0u64..400, b in 0u64..400) {
            let p = Program::raw(&code, data);
            if let Ok(f) = Function::read(&p, 0x1000) {
                f.way(0x1000 + a, 0x1000 + b);
                f.around(0x1000 + a);
            }
        }

        /// Jumps between nops, so that there are many blocks.
        #[test]
        fn any_jumps(jumps in proptest::collection::vec((any::<bool>(), 0usize..40), 1..40)) {
            let n = jumps.len();
            let jump = |(i, (cond, to)): (usize, &(bool, usize))| {
                format!("l{i}: call {}:l{} ", if *cond { "jne" } else { "jmp" }, to % n)
            };
            let text = jumps.iter().enumerate().map(jump).collect::<Vec<_>>().concat();
            let p = Program::new(&(text + "ret"));
            let f = Function::read(&p, 0x1000).unwrap();
            // What a graph search over the same jumps says of getting from each place to each.
            let next = |i: usize| {
                let (cond, to) = jumps[i];
                let falls = (cond && i + 1 < n).then_some(i + 1);
                std::iter::once(to % n).chain(falls)
            };
            let reach = |from: usize| {
                let mut seen = vec![false; n];
                let mut work: Vec<usize> = next(from).collect();
                while let Some(i) = work.pop() {
                    if !std::mem::replace(&mut seen[i], true) { work.extend(next(i)); }
                }
                seen
            };
            let live = reach(0);
            for a in 0..n {
                for b in 0..n {
                    let (there, live) = (reach(a)[b], (a == 0 || live[a]) && (b == 0 || live[b]));
                    match f.way(p.at(&format!("l{a}")), p.at(&format!("l{b}"))) {
                        Way::Not => prop_assert!(live && !there),
                        Way::Around(_) => prop_assert!(live && there),
                        Way::On => prop_assert!(live && (there || a == b)),
                        Way::Unknown => {}
                    }
                }
            }
        }
    }
}
