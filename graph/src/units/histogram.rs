//! A histogram of durations that merges exactly.
//!
//! Log-linear, as HdrHistogram (Tene): 128 equal steps to each power of two, so a value is known to 1/128 (0.8 %),
//! below 256 ns to the nanosecond. What is kept is a count for each step that occurred; merging adds counts, so the
//! order of merging changes nothing.

use pg_event::Ns;
use serde::Serialize;
use std::collections::BTreeMap;

/// Durations are cut off here: 2^50 - 1 ns, 13 days. Squares of them can be added up 2^28 times in 128 bits at
/// least; for units below a second it is 2^68 times.
pub const LONGEST: Ns = (1 << 50) - 1;

/// Steps to a power of two: 2^7.
const PRECISION: u32 = 7;

/// The greatest number of a step.
pub(super) const LAST_STEP: u16 = step_of(LONGEST);

/// How many durations fell into which step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Histogram(BTreeMap<u16, u64>);

/// The step that a duration falls into.
const fn step_of(ns: Ns) -> u16 {
    let ns = if ns > LONGEST { LONGEST } else { ns };
    // Values below two powers of steps are steps themselves; each further bit halves the resolution.
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PRECISION + 1);
    ((shift as u64) << PRECISION) as u16 + (ns >> shift) as u16
}

/// The least and the greatest duration of a step.
const fn bounds(step: u16) -> (Ns, Ns) {
    let shift = ((step >> PRECISION) as u32).saturating_sub(1);
    let least = (step as u64 - ((shift as u64) << PRECISION)) << shift;
    (least, least + (1 << shift) - 1)
}

impl Histogram {
    /// Adds one duration, in ns.
    pub fn add(&mut self, ns: Ns) {
        let n = self.0.entry(step_of(ns)).or_default();
        *n = n.saturating_add(1);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (&step, &n) in &other.0 {
            let sum = self.0.entry(step).or_default();
            *sum = sum.saturating_add(n);
        }
    }

    /// Durations counted.
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |sum, &n| sum.saturating_add(n))
    }

    /// Steps that occurred, ascending: the least and the greatest duration of each, in ns, and how often.
    pub fn steps(&self) -> impl Iterator<Item = (Ns, Ns, u64)> {
        self.0.iter().map(|(&step, &n)| {
            let (least, greatest) = bounds(step);
            (least, greatest, n)
        })
    }

    /// The same in at most `most` steps (at least one): where they are more, neighbours are put together until they fit, so
    /// that none is left out.
    pub fn coarse(&self, most: usize) -> Vec<(Ns, Ns, u64)> {
        let mut shift = 0;
        loop {
            let mut out: Vec<(Ns, Ns, u64)> = Vec::new();
            let mut last = None;
            for (&step, &n) in &self.0 {
                let (least, greatest) = bounds(step);
                match out.last_mut() {
                    Some(row) if last == Some(step >> shift) => {
                        *row = (row.0, greatest, row.2.saturating_add(n));
                    }
                    _ => out.push((least, greatest, n)),
                }
                last = Some(step >> shift);
            }
            if out.len() <= most.max(1) {
                return out;
            }
            shift += 1;
        }
    }

    /// An upper bound of the `rank`-th least duration (the first is 1): at most 1/128 above it, in ns. `None`
    /// when there are not so many.
    pub fn at_rank(&self, rank: u64) -> Option<Ns> {
        let mut before = 0u64;
        for (_, greatest, n) in self.steps() {
            before = before.saturating_add(n);
            if rank >= 1 && before >= rank {
                return Some(greatest);
            }
        }
        None
    }

    /// Durations that may be greater than `ns`: those in steps that reach beyond it.
    pub fn above(&self, ns: Ns) -> u64 {
        self.steps().filter(|s| s.1 > ns).fold(0, |sum, s| sum.saturating_add(s.2))
    }

    /// The first and the last step that occurred.
    pub(super) fn ends(&self) -> Option<(u16, u16)> {
        Some((*self.0.keys().next()?, *self.0.keys().next_back()?))
    }

    /// Counts by step; steps beyond [`LAST_STEP`] and counts of 0 must not be among them.
    pub(super) fn from_counts(counts: BTreeMap<u16, u64>) -> Self {
        Self(counts)
    }

    /// Counts by step.
    pub(super) fn counts(&self) -> &BTreeMap<u16, u64> {
        &self.0
    }
}

/// The step of a duration, for whoever checks that a histogram and other figures agree.
pub(super) fn step(ns: Ns) -> u16 {
    step_of(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fewer_steps_hold_all_durations() {
        let mut h = Histogram::default();
        (0..2_000u64).for_each(|n| h.add(4_000 + n * 37));
        h.add(2_400_000);
        let all = h.coarse(usize::MAX);
        assert_eq!(all, h.steps().collect::<Vec<_>>());
        for most in [0, 1, 7, 100, 512] {
            let few = h.coarse(most);
            assert!(few.len() <= most.max(1), "{most}: {}", few.len());
            assert_eq!(few.iter().map(|s| s.2).sum::<u64>(), h.count());
            assert_eq!((few[0].0, few[few.len() - 1].1), (all[0].0, all[all.len() - 1].1));
            assert!(few.windows(2).all(|w| w[0].1 < w[1].0), "{few:?}");
        }
    }

    #[test]
    fn steps_follow_each_other_without_gap() {
        let mut next = 0;
        for step in 0..=LAST_STEP {
            let (least, greatest) = bounds(step);
            assert_eq!(least, next, "step {step}");
            assert!(greatest >= least && (greatest - least) * 128 <= least);
            assert_eq!((step_of(least), step_of(greatest)), (step, step));
            next = greatest + 1;
        }
        assert_eq!(next, LONGEST + 1);
        assert_eq!(step_of(u64::MAX), LAST_STEP);
    }

    proptest! {
        #[test]
        fn units_ranks_are_those_of_the_sorted_list(mut all in prop::collection::vec(0..LONGEST, 1..60), ns in 0..LONGEST) {
            let mut h = Histogram::default();
            for &ns in &all {
                h.add(ns);
            }
            all.sort_unstable();
            for (i, &exact) in all.iter().enumerate() {
                let found = h.at_rank(i as u64 + 1).expect("a rank within");
                prop_assert!(found >= exact && (found - exact) * 128 <= exact);
            }
            prop_assert_eq!(h.at_rank(0), None);
            prop_assert_eq!(h.at_rank(all.len() as u64 + 1), None);
            prop_assert_eq!(h.count(), all.len() as u64);
            let exact = all.iter().filter(|&&a| a > ns).count() as u64;
            let near = all.iter().filter(|&&a| step_of(a) == step_of(ns)).count() as u64;
            prop_assert!((exact..=exact + near).contains(&h.above(ns)));
        }
    }
}
