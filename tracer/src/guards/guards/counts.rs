//! What was counted of units.

use super::super::layout::{LOOPS, TYPES, TypeCounts};
use super::super::told::Counts;
use super::Guards;
use crate::clock::monotonic;
use std::collections::HashMap;

/// `violations` are added by user space and taken back by the programs, which may be first.
fn positive(n: u64) -> u64 {
    n.try_into().map_or(0, |n: i64| n.unsigned_abs())
}

impl Guards {
    /// Units of a loop so far, by type; the last one is for units of no known type.
    pub fn counts(&self, of_loop: usize) -> Vec<Counts> {
        let Some(ranks) = self.ranks.get(of_loop).filter(|_| of_loop < LOOPS) else { return Vec::new() };
        // Before what is counted: those that settle meanwhile are settled.
        let unsettled = self.unsettled(of_loop);
        let Ok(of) = self.program.loops.get(&(of_loop as u32), 0) else { return Vec::new() };
        let refuted = |of: Option<usize>| self.refuted.get(&(of_loop, of)).copied().unwrap_or(0);
        let read = |rank: usize, t: &TypeCounts| Counts {
            units: t.units,
            sum: t.sum,
            violations: positive(t.violations),
            starved: t.starved,
            withdrawn: t.withdrawn,
            unsettled: unsettled.get(&rank).copied().unwrap_or(0),
        };
        let mut counts = vec![Counts::default(); ranks.len() + 1];
        for ((rank, t), &place) in of.types.iter().enumerate().zip(ranks).take(TYPES) {
            counts[place] = read(rank, t);
        }
        let unknown = read(TYPES, &of.types[TYPES]);
        match counts.as_mut_slice() {
            [one, _] => {
                one.units += unknown.units;
                one.sum += unknown.sum;
                one.violations += unknown.violations;
                one.starved += unknown.starved;
                one.withdrawn += unknown.withdrawn;
                one.unsettled += unknown.unsettled;
            }
            all => all[ranks.len()] = unknown,
        }
        for (i, c) in counts.iter_mut().enumerate() {
            c.violations = c.violations.saturating_sub(refuted(Some(i).filter(|i| *i < ranks.len())));
            c.unsettled = c.unsettled.min(c.violations);
        }
        counts
    }

    /// Units under way that were counted as too slow and may turn out to be of another type, by the number of the type in the
    /// kernel.
    fn unsettled(&self, of_loop: usize) -> HashMap<usize, u64> {
        let (mut all, now, settles) = (HashMap::new(), monotonic(), self.settles(of_loop));
        if settles == 0 {
            return all;
        }
        for &slot in self.threads.values().filter(|s| self.program.mapped.of_loop(**s) == of_loop) {
            let alarmed = self.program.mapped.alarmed(slot);
            if let Some((of, _)) = alarmed.filter(|(_, since)| now.saturating_sub(*since) <= settles) {
                *all.entry((of as usize).min(TYPES)).or_default() += 1;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_first_is_none() {
        assert_eq!([0, 7, u64::MAX, u64::MAX - 3].map(positive), [0, 7, 0, 0]);
    }
}
