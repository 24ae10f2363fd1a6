//! From a trace to the flag: the loop, the branches that would leave it, and where their conditions come from.
//!
//! The loop is what is executed again and again in the outermost frame that is. A branch one of whose ways was
//! never taken may be its exit. Its condition is followed back (`source.rs`) to memory that somebody else must have
//! written: that is the flag.

use super::source::{Ground, Source, sources};
use super::trace::{Step, Trace};
use iced_x86::FlowControl;
use std::collections::{HashMap, HashSet};

/// What a trace tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Analysis {
    /// What the exits of the loop depend on: the flag first.
    pub sources: Vec<Source>,
    /// How often the loop was gone round, at least.
    pub turns: u32,
    /// The turns are about equally long, and the way out does not depend on data that the loop walks through as well: who
    /// only asks does the same each time.
    pub alike: bool,
    /// System calls whose results the exits depend on.
    pub calls: Vec<u64>,
}

/// Most branches looked at.
const BRANCHES: usize = 64;

/// The loop's frame and its instructions.
struct Loop {
    depth: i32,
    turns: u32,
    alike: bool,
    executed: HashSet<u64>,
}

fn find_loop(t: &[Step]) -> Option<Loop> {
    let mut counts: HashMap<(i32, u64), u32> = HashMap::new();
    for s in t {
        *counts.entry((s.depth, s.regs.ip)).or_default() += 1;
    }
    let depth = counts.iter().filter(|c| *c.1 >= 2).map(|c| c.0.0).min()?;
    // The instruction of that frame that comes least often is of its outermost loop.
    let turns = counts.iter().filter(|c| c.0.0 == depth && *c.1 >= 2).map(|c| *c.1).min()?;
    let first = t.iter().position(|s| s.depth == depth && counts[&(s.depth, s.regs.ip)] >= 2)?;
    let executed = t[first..].iter().map(|s| s.regs.ip).collect();
    // From one time at such an instruction to the next.
    let head = t.iter().find(|s| s.depth == depth && counts[&(depth, s.regs.ip)] == turns)?.regs.ip;
    let at: Vec<usize> = (0..t.len()).filter(|&i| t[i].depth == depth && t[i].regs.ip == head).collect();
    let lengths = || at.windows(2).map(|w| w[1] - w[0]);
    let (short, long) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    let alike = at.len() > 2 && long <= short + short / 4 + 4;
    Some(Loop { depth, turns, alike, executed })
}

/// What a trace tells of the loop its thread is in; `ground` says what lies at an address.
pub fn analyse(trace: &Trace, ground: &dyn Fn(u64, &Step) -> Ground) -> Analysis {
    let t = trace.steps.as_slice();
    let Some(l) = find_loop(t) else { return Analysis::default() };
    // The last time each branch came, those of the outermost frame first.
    let mut seen = HashSet::new();
    let mut exits: Vec<usize> = (0..t.len())
        .rev()
        .filter(|&k| {
            let i = &t[k].instruction;
            i.flow_control() == FlowControl::ConditionalBranch
                && t[k].depth >= l.depth
                && seen.insert(t[k].regs.ip)
                && !(l.executed.contains(&i.next_ip()) && l.executed.contains(&i.near_branch_target()))
                // The trace ended here: where it would have gone is not known.
                && k + 1 < t.len()
        })
        .collect();
    exits.sort_by_key(|&k| (t[k].depth, std::cmp::Reverse(k)));
    exits.truncate(BRANCHES);
    let outermost = exits.first().map_or(l.depth, |&k| t[k].depth);
    let mut calls = Vec::new();
    let mut all: Vec<Source> = Vec::new();
    for k in exits {
        let deeper = (t[k].depth - l.depth) as u32;
        let mut own_calls = Vec::new();
        for mut s in sources(t, k, deeper, ground, &mut own_calls) {
            s.outermost = t[k].depth == outermost;
            let known = all.iter_mut().find(|o| o.address == s.address);
            match known {
                Some(o) => o.own |= s.own,
                None => all.push(s),
            }
        }
        if t[k].depth == outermost {
            calls.append(&mut own_calls);
        }
    }
    all.retain(|s| s.ground != Ground::Constant);
    // The clock last but one: a loop that looks at the time gives up some day; the flag lets it go on.
    all.sort_by_key(|s| {
        (!s.is_flag(), s.own, !s.steady, s.ground, s.deeper, s.hops, std::cmp::Reverse(s.branch))
    });
    // A sort compares one value with many: that one stays where it is for some turns, too.
    let walks = |f: &Source| {
        let other = |s: &Source| s.branch == f.branch && s.ground == Ground::Data && !s.steady && !s.own;
        all.iter().any(other)
    };
    let alike = l.alike && !all.first().is_some_and(|f| f.is_flag() && walks(f));
    Analysis { sources: all, turns: l.turns, alike, calls }
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::Hand;
    use super::*;

    fn ground(at: u64, s: &Step) -> Ground {
        match at {
            0x9000..=0x9fff => Ground::Clock,
            0xa000..=0xafff => Ground::Constant,
            _ if at >= s.regs.sp && at < s.regs.sp + 0x1000 => Ground::Stack,
            _ => Ground::Data,
        }
    }

    fn of(h: &Hand) -> Analysis {
        analyse(&h.trace, &ground)
    }

    fn hand() -> Hand {
        let mut h = Hand::default();
        h.regs.sp = 0x7000;
        h
    }

    /// `while (!flag);` with the flag at 0x4000.
    #[test]
    fn a_plain_variable() {
        let mut h = hand();
        for _ in 0..3 {
            // mov eax, [rip+...]; test eax, eax; je -10
            h.at(0x1000, &[0x8b, 0x05, 0xfa, 0x2f, 0, 0]).at(0x1006, &[0x85, 0xc0]).at(0x1008, &[0x74, 0xf6]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        assert_eq!((a.turns, a.sources.len()), (3, 1), "{a:#?}");
        let s = &a.sources[0];
        assert_eq!((s.address, s.size, s.own, s.deeper, s.pointer), (0x4000, 4, false, 0, None));
        assert!(a.alike && s.is_flag());
    }

    /// A merge of two sorted halves: one value is compared with several of the other half.
    #[test]
    fn a_sort_does_not_ask() {
        let mut h = hand();
        (h.regs.di, h.regs.si) = (0x4000, 0x5000);
        for _ in 0..3 {
            // mov rdx, [rdi]; cmp rdx, [rsi]; jl
            h.at(0x1000, &[0x48, 0x8b, 0x17]).at(0x1003, &[0x48, 0x3b, 0x16]).at(0x1006, &[0x7c, 0x20]);
            // add rsi, 8; jmp
            h.at(0x1008, &[0x48, 0x83, 0xc6, 0x08]);
            h.regs.si += 8;
            h.at(0x100c, &[0xeb, 0xf2]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        let [first, second] = a.sources.as_slice() else { panic!("{a:#?}") };
        assert!(first.is_flag() && first.address == 0x4000 && !second.steady, "{a:#?}");
        assert!(!a.alike);
    }

    /// `while (!w->shown) beats++;`: the counter is the thread's own, the pointer lay at 0x4100.
    #[test]
    fn behind_a_pointer_beside_a_counter() {
        let mut h = hand();
        for _ in 0..3 {
            // mov rax, [rip+...] (0x4100)
            h.at(0x1000, &[0x48, 0x8b, 0x05, 0xf9, 0x30, 0, 0]);
            h.regs.ax = 0x5000;
            // add qword [rip+...], 1 (0x4200); mov eax, [rax+0x18]; test eax, eax; je
            h.at(0x1007, &[0x48, 0x83, 0x05, 0xf1, 0x31, 0, 0, 1]);
            h.at(0x100f, &[0x8b, 0x40, 0x18]);
            h.regs.ax = 0;
            h.at(0x1012, &[0x85, 0xc0]).at(0x1014, &[0x74, 0xea]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        assert_eq!(a.sources.len(), 1, "{a:#?}");
        assert_eq!((a.sources[0].address, a.sources[0].pointer), (0x5018, Some((0x4100, 0x18))));
    }

    /// The condition is made in a function that is called.
    #[test]
    fn through_a_call() {
        let mut h = hand();
        for _ in 0..3 {
            h.at(0x1000, &[0xe8, 0xfb, 0x0f, 0, 0]); // call 0x2000
            h.regs.sp -= 8;
            h.at(0x2000, &[0x8b, 0x05, 0xfa, 0x1f, 0, 0]).at(0x2006, &[0xc3]); // mov eax, [0x4000]; ret
            h.regs.sp += 8;
            h.at(0x1005, &[0x85, 0xc0]).at(0x1007, &[0x74, 0xf7]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        assert_eq!(a.sources.iter().map(|s| s.address).collect::<Vec<_>>(), [0x4000], "{a:#?}");
    }

    /// `for (i = 0; i < 100 && !flag; i++)` without optimisation: `i` lies on the stack and is the loop's own.
    #[test]
    fn a_counter_on_the_stack_is_not_the_flag() {
        let mut h = hand();
        for _ in 0..3 {
            // cmp dword [rsp+8], 99; jg; cmp dword [rip+..], 0 (0x4000); jne; add dword [rsp+8], 1; jmp
            h.at(0x1000, &[0x83, 0x7c, 0x24, 8, 99]).at(0x1005, &[0x7f, 0x40]);
            h.at(0x1007, &[0x83, 0x3d, 0xf2, 0x2f, 0, 0, 0]).at(0x100e, &[0x75, 0x40]);
            h.at(0x1010, &[0x83, 0x44, 0x24, 8, 1]).at(0x1015, &[0xeb, 0xe9]);
        }
        let a = of(&h);
        assert_eq!(a.sources.len(), 2, "{a:#?}");
        assert_eq!((a.sources[0].address, a.sources[0].own), (0x4000, false));
        assert_eq!((a.sources[1].address, a.sources[1].own), (0x7008, true));
    }

    /// A copy of the flag in a local variable leads on to the flag.
    #[test]
    fn what_the_thread_stored_itself_is_followed() {
        let mut h = hand();
        for _ in 0..3 {
            // mov eax, [0x4000]; mov [rsp+8], eax; cmp dword [rsp+8], 0; je
            h.at(0x1000, &[0x8b, 0x05, 0xfa, 0x2f, 0, 0]).at(0x1006, &[0x89, 0x44, 0x24, 8]);
            h.at(0x100a, &[0x83, 0x7c, 0x24, 8, 0]).at(0x100f, &[0x74, 0xef]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        assert_eq!(a.sources.iter().map(|s| s.address).collect::<Vec<_>>(), [0x4000], "{a:#?}");
    }

    /// A lock that is tried again and again, and a clock beside it.
    #[test]
    fn a_lock_word_and_a_clock() {
        let mut h = hand();
        for _ in 0..3 {
            // cmp qword [0x9000], 5; ja; mov eax, 1; xchg [0x4000], eax; test eax, eax; jne
            h.at(0x1000, &[0x48, 0x83, 0x3d, 0xf8, 0x7f, 0, 0, 5]).at(0x1008, &[0x77, 0x40]);
            h.at(0x100a, &[0xb8, 1, 0, 0, 0]).at(0x100f, &[0x87, 0x05, 0xeb, 0x2f, 0, 0]);
            h.at(0x1015, &[0x85, 0xc0]).at(0x1017, &[0x75, 0xe7]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        assert_eq!(
            (a.sources[0].address, a.sources[0].ground, a.sources[0].own),
            (0x4000, Ground::Data, false)
        );
        assert_eq!(a.sources[1].ground, Ground::Clock, "{a:#?}");
    }

    /// `while (fcntl(...) < 0);`: no variable at all.
    #[test]
    fn the_result_of_a_system_call() {
        let mut h = hand();
        for _ in 0..3 {
            h.regs.ax = 72;
            h.at(0x1000, &[0x0f, 0x05]);
            h.regs.ax = (-11i64) as u64;
            h.at(0x1002, &[0x48, 0x85, 0xc0]).at(0x1005, &[0x78, 0xf9]);
        }
        h.regs.ax = 72;
        h.at(0x1000, &[0x0f, 0x05]);
        let a = of(&h);
        assert_eq!((a.sources.len(), a.calls.as_slice()), (0, &[72][..]), "{a:#?}");
    }

    /// `for (p = list; *p != 7; p++);` walks through memory; nobody is waited for.
    #[test]
    fn who_walks_through_data_waits_for_nobody() {
        let mut h = hand();
        for i in 0..4 {
            // cmp dword [rbx], 7; je; add rbx, 4; jmp
            h.regs.bx = 0x5000 + i * 4;
            h.at(0x1000, &[0x83, 0x3b, 7]).at(0x1003, &[0x74, 0x40]);
            h.at(0x1005, &[0x48, 0x83, 0xc3, 4]).at(0x1009, &[0xeb, 0xf5]);
        }
        let a = of(&h);
        assert!(a.sources.len() == 1 && !a.sources[0].steady && !a.sources[0].is_flag(), "{a:#?}");
    }

    /// A loop that ends by its own count calls a function that asks a setting: that is no flag of the loop.
    #[test]
    fn a_setting_asked_deeper_within_is_not_the_flag() {
        let mut h = hand();
        for i in 0..4 {
            h.regs.bx = i;
            h.at(0x1000, &[0xe8, 0xfb, 0x0f, 0, 0]); // call 0x2000
            h.regs.sp -= 8;
            // cmp dword [0x4000], 0; jne; ret
            h.at(0x2000, &[0x83, 0x3d, 0xf9, 0x1f, 0, 0, 0]).at(0x2007, &[0x75, 0x40]).at(0x2009, &[0xc3]);
            h.regs.sp += 8;
            // inc rbx; cmp rbx, 100; jne
            h.at(0x1005, &[0x48, 0xff, 0xc3]).at(0x1008, &[0x48, 0x83, 0xfb, 100]).at(0x100c, &[0x75, 0xf2]);
        }
        h.at(0x1000, &[0x90]);
        let a = of(&h);
        assert!(a.sources.len() == 1 && a.sources[0].address == 0x4000 && !a.sources[0].is_flag(), "{a:#?}");
    }

    #[test]
    fn no_loop_no_flag() {
        let mut h = hand();
        h.at(0x1000, &[0x90]).at(0x1001, &[0x74, 0x10]);
        assert_eq!(of(&h), Analysis::default());
        assert_eq!(of(&Hand::default()), Analysis::default());
    }
}
