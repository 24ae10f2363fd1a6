//! Hand-overs one after the other: the ways of work through threads.
//!
//! The hand-over before one is the last that its unit had taken by then. A way ends where it comes back to a loop in
//! which it has been: there it may be the answer to the first piece of work and the begin of the next, which one turn of
//! an event loop does not tell apart.

use super::{HandOver, Transactions, WorkUnit};
use pg_event::Ns;

/// Hand-overs of one way that are followed.
const LONGEST: u32 = 16;
const NONE: u32 = u32::MAX;

/// Where a hand-over is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    /// Number of the hand-over before.
    before: u32,
    /// How many are before it.
    depth: u32,
    /// Others follow it on its way.
    followed: bool,
    /// It came back to a loop in which the work had been.
    back: bool,
}

/// Of hand-overs by when they were taken.
pub(super) fn links(units: &[WorkUnit], all: &[HandOver]) -> Vec<Link> {
    let mut out: Vec<Link> = Vec::with_capacity(all.len());
    // By unit: the hand-overs into it so far, by when they were taken.
    let mut into: Vec<Vec<u32>> = vec![Vec::new(); units.len()];
    for (i, h) in all.iter().enumerate() {
        // What was handed on before it was taken has been seen already.
        let taken = |n: &&u32| all[**n as usize].taken <= h.time;
        let before = into[h.from].iter().rev().find(taken).copied();
        let before = before.filter(|b| !out[*b as usize].back && out[*b as usize].depth + 1 < LONGEST);
        let mut link = Link { before: before.unwrap_or(NONE), depth: 0, followed: false, back: false };
        if let Some(b) = before {
            link.depth = out[b as usize].depth + 1;
            out[b as usize].followed = true;
        }
        let to = units[h.to].of_loop;
        let mut at = i as u32;
        for _ in 0..=LONGEST {
            if units[all[at as usize].from].of_loop == to {
                link.back = true;
                break;
            }
            let next = if at == i as u32 { link.before } else { out[at as usize].before };
            if next == NONE {
                break;
            }
            at = next;
        }
        out.push(link);
        into[h.to].push(i as u32);
    }
    out
}

/// A way of work through threads: from the first unit by hand-overs to the last.
#[derive(Clone, PartialEq, Debug)]
pub struct Transaction {
    /// Numbers of the hand-overs, one at least, in order.
    pub hand_overs: Vec<usize>,
    /// Numbers of the units: one more than the hand-overs.
    pub units: Vec<usize>,
    /// When its first unit began, ns.
    pub start: Ns,
    /// When its last unit ended, ns.
    pub end: Ns,
    /// Time between hand-overs and the begins of the units that took them, ns.
    pub queued: Ns,
    /// Time of the last unit, ns.
    pub service: Ns,
    /// It ends where it came back to a loop that it had been in.
    pub back: bool,
    /// All of its hand-overs are certain.
    pub strong: bool,
}

impl Transaction {
    /// From the begin of its first unit to the end of its last, ns.
    pub fn total(&self) -> Ns {
        self.end.saturating_sub(self.start)
    }
}

impl Transactions {
    /// The ways, by the number of their last hand-over.
    pub fn transactions(&self) -> impl Iterator<Item = Transaction> + '_ {
        let last = |(_, link): &(usize, &Link)| !link.followed;
        self.links.iter().enumerate().filter(last).map(|(i, _)| self.way_to(i))
    }

    /// The way that ends with a hand-over.
    pub fn way_to(&self, hand_over: usize) -> Transaction {
        let mut hand_overs = vec![hand_over];
        let mut at = self.links[hand_over].before;
        while at != NONE && hand_overs.len() <= LONGEST as usize {
            hand_overs.push(at as usize);
            at = self.links[at as usize].before;
        }
        hand_overs.reverse();
        let of = |i: &usize| &self.hand_overs[*i];
        let first = self.hand_overs[hand_overs[0]].from;
        let units: Vec<usize> = std::iter::once(first).chain(hand_overs.iter().map(|h| of(h).to)).collect();
        let last = of(&hand_over);
        let (start, end) = (self.units[first].start, self.units[last.to].end);
        Transaction {
            start,
            end,
            queued: hand_overs.iter().map(|h| of(h).queued()).sum(),
            service: end.saturating_sub(last.taken),
            back: self.links[hand_over].back,
            strong: hand_overs.iter().all(|h| of(h).is_strong()),
            hand_overs,
            units,
        }
    }

    /// How many units handed on to several, and the most that one handed on to.
    pub fn fan_out(&self) -> (usize, usize) {
        let mut count = vec![0_usize; self.units.len()];
        for h in &self.hand_overs {
            count[h.from] += 1;
        }
        (count.iter().filter(|c| **c > 1).count(), count.into_iter().max().unwrap_or(0))
    }
}
