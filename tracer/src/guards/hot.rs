//! Which guarded functions are called too often: a state machine without I/O or a clock.
//!
//! Probes at functions may take a share of the time that units have a CPU, whether those have ended or not. What they did
//! not take of it is kept for a while, so that one unit that comes by many of them does no harm where the others come by
//! few. What is taken out comes back after a rest, since load changes; what is taken out again rests for longer.

use std::collections::{BTreeMap, BTreeSet};

/// What probes may cost beyond their share before some are taken out: less is chance.
const TOLERANCE: f64 = 1.3;
/// What probes may take between two looks in any case, ns: a thousandth of one CPU.
const HARMLESS: f64 = 500_000.0;
/// To which share of their cost probes are brought down with one look at most.
const AT_ONCE: f64 = 0.125;
/// What was not taken is kept up to so many looks' worth.
const KEPT: f64 = 20.0;
/// The first rest of a function, and the longest, ns.
const REST: u64 = 60_000_000_000;
const LONGEST: u64 = 3_600_000_000_000;

/// What became of a function that was called too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rest {
    /// Until when, ns; 0: it is back.
    until: u64,
    /// How long it was, ns.
    length: u64,
    /// When it began, ns.
    since: u64,
}

/// The account.
#[derive(Debug, Default)]
pub struct Hot {
    /// What is taken out stays out, and nothing is kept: while it is learnt, what hinders must go at once.
    strict: bool,
    saved: f64,
    /// By number of the function.
    rests: BTreeMap<usize, Rest>,
    /// What each tells: numbers of pairs of types, of which it shows that a unit is of the first and not of the second.
    tells: BTreeMap<usize, BTreeSet<u32>>,
}

impl Hot {
    /// `strict`: nothing is kept, and nothing comes back. `tells`: by number of the function, the pairs of types that it
    /// tells from each other.
    pub fn new(strict: bool, tells: BTreeMap<usize, BTreeSet<u32>>) -> Self {
        Self { strict, tells, ..Self::default() }
    }

    /// What the probes at each function took since the last look, ns, and how long units had a CPU meanwhile, of which all
    /// together may take `share`. Returns the functions whose probes are to go, ascending.
    pub fn look(&mut self, now: u64, costs: &[(usize, u64)], time: u64, share: f64) -> Vec<usize> {
        let all = costs.iter().map(|c| c.1).sum::<u64>() as f64;
        // Before the first unit was seen to have a CPU nothing is known of their time: some hits harm nobody.
        let may = (time as f64 * share).max(HARMLESS);
        if all <= may * TOLERANCE + self.saved {
            if !self.strict {
                self.saved = (self.saved + may - all).clamp(0.0, KEPT * may);
            }
            return Vec::new();
        }
        self.saved = 0.0;
        let kept = affordable(costs, may, &self.tells);
        let mut gone: Vec<usize> = costs.iter().map(|c| c.0).filter(|f| !kept.contains(f)).collect();
        gone.sort_unstable();
        for &number in &gone {
            let again = self.rests.get(&number).filter(|r| now.saturating_sub(r.since) <= 3 * r.length);
            let length = again.map_or(REST, |r| (2 * r.length).min(LONGEST));
            self.rests.insert(number, Rest { until: now.saturating_add(length), length, since: now });
        }
        gone
    }

    /// Functions that have rested and are to be probed again, ascending.
    pub fn rested(&mut self, now: u64) -> Vec<usize> {
        if self.strict {
            return Vec::new();
        }
        let over = self.rests.iter_mut().filter(|(_, r)| r.until != 0 && r.until <= now);
        over.map(|(&number, r)| {
            r.until = 0;
            number
        })
        .collect()
    }

    /// How many rest.
    pub fn resting(&self) -> usize {
        self.rests.values().filter(|r| r.until != 0).count()
    }

    /// Does this function?
    pub fn rests(&self, number: usize) -> bool {
        self.rests.get(&number).is_some_and(|r| r.until != 0)
    }
}

/// Which functions are kept, of these with what each costs, when they may cost so much together: those first that tell most
/// types from each other for their cost, until nothing is left that they could tell, then the cheapest. A unit that goes on may
/// call a function a million times, and would take all others along: so they come down to [`AT_ONCE`] of what they cost at
/// most, and further with the next look.
fn affordable(costs: &[(usize, u64)], may: f64, tells: &BTreeMap<usize, BTreeSet<u32>>) -> BTreeSet<usize> {
    let all: u64 = costs.iter().map(|c| c.1).sum();
    let may = may.max(all as f64 * AT_ONCE);
    let (mut kept, mut told, mut sum) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut rest: Vec<(usize, u64)> = costs.to_vec();
    rest.sort_unstable_by_key(|&(f, cost)| (cost, f));
    loop {
        rest.retain(|c| (sum + c.1) as f64 <= may);
        let more =
            |f: usize| tells.get(&f).map_or(0, |pairs: &BTreeSet<u32>| pairs.difference(&told).count());
        let worth = |(i, &(f, cost)): (usize, &(usize, u64))| (more(f) as f64 / (cost + 1) as f64, i);
        // Of equals the first, which is the cheapest.
        let best = rest.iter().enumerate().map(worth).reduce(|a, b| if b.0 > a.0 { b } else { a });
        let Some((_, i)) = best else { return kept };
        let (function, cost) = rest.remove(i);
        told.extend(tells.get(&function).into_iter().flatten());
        kept.insert(function);
        sum += cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    /// Costs of functions 0, 1, ...
    fn costs(of: &[u64]) -> Vec<(usize, u64)> {
        of.iter().copied().enumerate().collect()
    }

    #[test]
    fn what_is_come_by_most_is_taken_out() {
        // All of them cost 1110, of which 1000 and a little more may be.
        let kept =
            |of: &[u64], may| affordable(&costs(of), may, &BTreeMap::new()).into_iter().collect::<Vec<_>>();
        assert_eq!(kept(&[10, 1000, 0, 100], 800.0), [0, 2, 3]);
        // A unit that has not ended yet: what it comes by most goes, not all the others.
        assert_eq!(kept(&[10, 1000, 0, 100], 0.0), [0, 2, 3]);
        assert_eq!(kept(&[10, 0, 100], 0.0), [0, 1]);
        assert_eq!(kept(&[0, 5], 0.0), [0]);
        let mut hot = Hot::new(true, BTreeMap::new());
        // Half a second of units may cost 5 ms, and a little more.
        assert_eq!(hot.look(S, &costs(&[MS, 5 * MS]), 500 * MS, 0.01), [0; 0]);
        assert_eq!(hot.look(S, &costs(&[MS, 6 * MS]), 500 * MS, 0.01), [1]);
        // Nothing was done: nothing is known. A few hits harm nobody.
        assert_eq!(hot.look(S, &costs(&[0]), 0, 0.01), [0; 0]);
        assert_eq!(hot.look(S, &costs(&[MS / 2]), 0, 0.01), [0; 0]);
        assert_eq!(hot.look(S, &costs(&[MS]), 0, 0.01), [0]);
        assert_eq!(hot.rested(u64::MAX), [0; 0]);
    }

    #[test]
    fn what_tells_types_apart_stays_before_what_is_cheap() {
        // Two cheap ones tell the same; a costlier one tells what nothing else does, the costliest all of it.
        let tells = [(0, &[1, 2][..]), (1, &[1, 2]), (2, &[3]), (3, &[1, 2, 3])];
        let tells = tells.map(|(f, pairs)| (f, pairs.iter().copied().collect())).into();
        let kept =
            |may| affordable(&costs(&[20, 40, 70, 900, 0]), may, &tells).into_iter().collect::<Vec<_>>();
        assert_eq!(kept(100.0), [0, 2, 4], "rather than both that are cheap");
        assert_eq!(kept(150.0), [0, 1, 2, 4]);
        assert_eq!(kept(1030.0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_rare_unit_that_comes_by_many_takes_nothing_along() {
        // One look in ten has such a unit: twice what may be at that time, and little all together.
        let mut hot = Hot::new(false, BTreeMap::new());
        for look in 0..200 {
            let own = if look % 10 == 9 { 5 * MS } else { MS / 10 };
            assert_eq!(hot.look(look * S / 2, &costs(&[own, MS / 10]), 500 * MS, 0.005), [0; 0], "{look}");
        }
        // Where nothing else is, it goes at once: a million calls.
        assert_eq!(hot.look(100 * S, &costs(&[800 * MS, MS / 10]), 500 * MS, 0.005), [0]);
        // A long peace is no excuse either.
        let mut hot = Hot::new(false, BTreeMap::new());
        for look in 0..10_000 {
            assert_eq!(hot.look(look * S / 2, &costs(&[0]), 0, 0.005), [0; 0]);
        }
        assert_eq!(hot.look(5000 * S, &costs(&[12 * MS]), 0, 0.005), [0]);
    }

    #[test]
    fn what_is_taken_out_comes_back_and_rests_longer_each_time() {
        let mut hot = Hot::new(false, BTreeMap::new());
        let (mut now, mut rests) = (S, Vec::new());
        for _ in 0..9 {
            assert_eq!(hot.look(now, &costs(&[100, 300 * MS]), 500 * MS, 0.005), [1]);
            assert!(hot.rests(1) && !hot.rests(0) && hot.resting() == 1);
            let gone = now;
            while hot.rested(now).is_empty() {
                now += S;
            }
            assert!(hot.resting() == 0);
            rests.push((now - gone) / S);
        }
        assert_eq!(rests, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        // It was quiet for so long that this is another load.
        now += 8000 * S;
        assert_eq!(hot.look(now, &costs(&[100, 300 * MS]), 500 * MS, 0.005), [1]);
        assert_eq!((hot.rested(now + 59 * S), hot.rested(now + 60 * S)), (vec![], vec![1]));
    }
}
