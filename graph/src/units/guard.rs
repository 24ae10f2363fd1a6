//! The three guard functions of algorithm 2 as a state machine without a clock: what the programs in the kernel
//! do, to be tested and compared with.

use super::inference::{Context, Contexts, Inference};
use super::types::TypeId;
use pg_event::Ns;

/// A unit that takes longer than its type may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The type it is taken for; `None` when no context of any type was seen, and all thresholds are exceeded.
    pub of: Option<TypeId>,
    /// How long it runs so far, in ns, less what the guards took.
    pub elapsed: Ns,
    /// The threshold that this exceeds, in ns.
    pub threshold: Ns,
}

/// The guard of one thread: `S` in algorithm 2. (`onLoopEntry`, which keeps the loop's frame, is where the depth of
/// a [`Context`] comes from.)
#[derive(Clone, Debug, Default)]
pub struct Guard {
    started: Option<Ns>,
    inference: Inference,
}

impl Guard {
    /// `onUnitStart`: the wait call returned at `now` (ns, any clock that all calls share).
    pub fn unit_start(&mut self, now: Ns) {
        self.inference.start();
        self.started = Some(now);
    }

    /// The wait call begins: the unit has ended (section 3), and nothing is checked until the next.
    pub fn unit_end(&mut self) {
        self.started = None;
    }

    /// `onUnitContext`: the unit came by `context` at `now`; `done` is when this guard function and what it set
    /// off were finished, and the time in between is taken out of the unit's (lines 28 and 29).
    pub fn unit_context(
        &mut self,
        contexts: &Contexts,
        context: Context,
        now: Ns,
        done: Ns,
    ) -> Option<Violation> {
        self.started?;
        self.inference.hit(contexts, context);
        let found = match self.inferred(contexts) {
            Some((t, threshold)) => self.exceeds(now, Some(t), threshold),
            None => None,
        };
        self.spent(done.saturating_sub(now));
        found
    }

    /// A check at any other moment (a switch of the thread, a sample): for a unit that is stuck in one place or
    /// asleep and comes by no guard. Ours, not the paper's. A unit of which no context was seen may be of any
    /// type, so it is held to the greatest threshold.
    pub fn check(&self, contexts: &Contexts, now: Ns) -> Option<Violation> {
        match self.inferred(contexts) {
            Some((t, threshold)) => self.exceeds(now, Some(t), threshold),
            None => self.exceeds(now, None, contexts.greatest_threshold()?),
        }
    }

    /// Was what was told of this unit none, since by what it has come by it is of another type, which may take as long? Ours,
    /// not the paper's: what tells a type may be come by when the time was spent.
    pub fn withdraws(&self, contexts: &Contexts, told: &Violation, now: Ns) -> bool {
        let other = self.inferred(contexts).filter(|(t, _)| Some(*t) != told.of);
        other.is_some_and(|(t, threshold)| self.exceeds(now, Some(t), threshold).is_none())
    }

    /// `ns` of the unit's time were ours.
    pub fn spent(&mut self, ns: Ns) {
        self.started = self.started.map(|s| s.saturating_add(ns));
    }

    /// The type it is taken for so far.
    pub fn inferred(&self, contexts: &Contexts) -> Option<(TypeId, Ns)> {
        let t = self.inference.inferred(contexts)?;
        Some((t, contexts.threshold(t)?))
    }

    fn exceeds(&self, now: Ns, of: Option<TypeId>, threshold: Ns) -> Option<Violation> {
        let elapsed = now.saturating_sub(self.started?);
        (elapsed > threshold).then_some(Violation { of, elapsed, threshold })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{FunctionId, TypeContexts};
    use std::collections::BTreeSet;

    fn context(letter: char) -> Context {
        Context { function: FunctionId(letter.into()), depth: 0 }
    }

    /// Types AB (100 ns) and AC (1000 ns).
    fn contexts() -> Contexts {
        let of =
            |path: &str, threshold| TypeContexts { contexts: path.chars().map(context).collect(), threshold };
        let guards: BTreeSet<FunctionId> = "ABC".chars().map(|l| FunctionId(l.into())).collect();
        Contexts::new(&[of("AB", 100), of("AC", 1000)], &guards)
    }

    #[test]
    fn a_violation_is_seen_while_the_unit_runs() {
        let (contexts, mut guard) = (contexts(), Guard::default());
        // No unit runs before the first wait returns.
        assert_eq!(guard.unit_context(&contexts, context('A'), 5000, 5000), None);
        guard.unit_start(10_000);
        assert_eq!(guard.unit_context(&contexts, context('A'), 10_100, 10_100), None);
        // A may be either: the smaller threshold decides. Then C tells.
        let early = guard.clone().unit_context(&contexts, context('A'), 10_101, 10_101);
        assert_eq!(early, Some(Violation { of: Some(TypeId(0)), elapsed: 101, threshold: 100 }));
        assert_eq!(guard.unit_context(&contexts, context('C'), 11_000, 11_000), None);
        let late = guard.unit_context(&contexts, context('C'), 11_001, 11_001);
        assert_eq!(late, Some(Violation { of: Some(TypeId(1)), elapsed: 1001, threshold: 1000 }));
        // Waiting for input is no part of a unit, and the next one begins without a type.
        guard.unit_end();
        assert_eq!(
            (guard.check(&contexts, 99_000), guard.inferred(&contexts)),
            (None, Some((TypeId(1), 1000)))
        );
        guard.unit_start(100_000);
        assert_eq!(guard.inferred(&contexts), None);
    }

    #[test]
    fn what_turns_out_to_be_of_a_slower_type_is_no_violation() {
        let (contexts, mut guard) = (contexts(), Guard::default());
        guard.unit_start(0);
        let told = guard.unit_context(&contexts, context('A'), 101, 101).unwrap();
        assert_eq!(told.of, Some(TypeId(0)));
        assert!(!guard.withdraws(&contexts, &told, 900), "nothing more is known of it");
        assert_eq!(guard.unit_context(&contexts, context('C'), 900, 900), None);
        assert!(guard.withdraws(&contexts, &told, 1000));
        assert!(!guard.withdraws(&contexts, &told, 1001), "too long for that, too");
        // Of the type that it was told for.
        let mut guard = Guard::default();
        guard.unit_start(0);
        let told = guard.unit_context(&contexts, context('B'), 101, 101).unwrap();
        assert!(!guard.withdraws(&contexts, &told, 101));
    }

    #[test]
    fn our_own_time_is_taken_out() {
        let (contexts, mut guard) = (contexts(), Guard::default());
        guard.unit_start(0);
        assert_eq!(guard.unit_context(&contexts, context('B'), 50, 90), None);
        // 140 on the clock, 40 of them ours.
        assert_eq!(guard.check(&contexts, 140), None);
        let violation = guard.unit_context(&contexts, context('B'), 141, 1141);
        assert_eq!(violation, Some(Violation { of: Some(TypeId(0)), elapsed: 101, threshold: 100 }));
        // What the inspection of a violation took is ours as well.
        assert_eq!(guard.check(&contexts, 1141).map(|v| v.elapsed), Some(101));
    }

    #[test]
    fn a_unit_that_comes_by_no_guard_is_held_to_the_greatest_threshold() {
        let (contexts, mut guard) = (contexts(), Guard::default());
        guard.unit_start(0);
        assert_eq!(guard.unit_context(&contexts, context('X'), 5000, 5000), None);
        assert_eq!(guard.check(&contexts, 1000), None);
        assert_eq!(
            guard.check(&contexts, 1001),
            Some(Violation { of: None, elapsed: 1001, threshold: 1000 })
        );
        assert_eq!(guard.check(&Contexts::default(), 1001), None);
    }
}
