//! How long units may take, and by which probes their types are told: those that cost too much rest for a while.

use super::super::apart;
use super::super::layout::{LOOPS, TYPES};
use super::{Guards, limit};
use crate::clock::monotonic;
use pg_event::Ns;

/// Nobody waits longer for what a unit that exceeds its limit may turn out to be, ns.
const SETTLED: Ns = 1_000_000_000;

impl Guards {
    /// From now on units of a loop may take so long, by their types as the plan counts them, and those of no known type;
    /// 0: as long as they like.
    pub fn limit(&mut self, of_loop: usize, thresholds: &[Ns], unknown: Ns) {
        let Some(plan) = self.plan.loops.get_mut(of_loop).filter(|l| l.thresholds.len() == thresholds.len())
        else {
            return;
        };
        plan.thresholds = thresholds.into();
        plan.unknown = unknown;
        self.hold(of_loop);
        self.program.rings.limit(of_loop, TYPES, limit(unknown, self.plan.learning));
        let longest = self.longest_unit();
        if let Some(windows) = &mut self.windows {
            windows.limit(longest);
        }
    }

    /// A unit of a loop that has taken so long, ns, or has ended, took too long whatever it may turn out to be: no type may take
    /// longer, or nobody wants to wait for that. 0: it turns out to be nothing else.
    pub(super) fn settles(&self, of_loop: usize) -> Ns {
        let told_apart = !self.plan.learning && !apart::contexts(&self.plan, of_loop).is_empty();
        let longest = self.held.get(of_loop).filter(|_| told_apart).and_then(|l| l.iter().max());
        longest.map_or(0, |ns| (*ns).min(SETTLED))
    }

    /// The limits of a loop's types hold, as far as the probes that are set tell them apart.
    pub(super) fn hold(&mut self, of_loop: usize) {
        let held = apart::held(&self.plan, of_loop, &self.ranks[of_loop], |f| self.probes.probed(f));
        for (rank, &place) in self.ranks[of_loop].iter().enumerate().take(TYPES) {
            self.program.rings.limit(of_loop, rank, limit(held[place], self.plan.learning));
        }
        self.held[of_loop] = held;
        self.program.rings.settle(of_loop, self.settles(of_loop));
    }

    /// Probes that cost more than they may are taken out, and set again when they have rested.
    pub(super) fn shed(&mut self) {
        if self.windows.as_ref().is_some_and(|w| !w.are_open()) {
            return;
        }
        // Units that have not ended count as well, as one that is a connection, or waits for somebody else. Threads of given
        // units are outside of these most of the time; what is learnt from is to end.
        let time = if self.given.is_some() || self.plan.learning {
            let of = |l: usize| self.program.loops.get(&(l as u32), 0).map_or(0, |l| l.busy);
            (0..self.ranks.len()).map(of).sum()
        } else {
            let used = self.program.used();
            used.lit.saturating_sub(used.probed)
        };
        let (counted, costs) = ((self.calls(), time), self.costs());
        if self.probes.shed(monotonic(), counted, costs, self.plan.share, &mut self.notes) {
            (0..self.plan.loops.len().min(LOOPS)).for_each(|l| self.hold(l));
        }
    }

    /// Messages are heard as long as they may begin units.
    pub(super) fn listen(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        let loops = 0..self.plan.loops.len().min(LOOPS);
        let served: Vec<_> = loops.map(|l| self.program.rings.served(l)).collect();
        if let Some(heard) = ahead.look(&served)
            && let Err(e) = self.program.hear(heard)
        {
            self.notes.push(format!("messages are {}heard: {e}", if heard { "not " } else { "still " }));
        }
    }
}
