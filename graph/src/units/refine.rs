//! Types finer than the paper's, where time asks for it. Section 4.3 groups units whose control flow is alike and takes it
//! that these take about as long. A cut-off of distances knows nothing of time: two pages whose handlers differ in one call
//! of two hundred are near each other and may take 0.2 and 20 ms. Here a type is split by a context (function and stack
//! depth) that some of its units come by, as long as that explains much of how their times differ. What guards could not
//! tell from each other as they run is put together again. An own step, not the paper's.

use super::inference::Context;
use super::select::{MOST_SHARED, telling};
use super::stats::UnitStats;
use super::thresholds::{Rule, threshold};
use std::collections::{BTreeMap, BTreeSet};

/// What is split, and how far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RefineOptions {
    /// Types of a loop at most; a split that would make more is not made. 0 or 1 splits nothing.
    pub most: usize,
    /// Units that each side must have at least.
    pub units: u64,
    /// Share of the variance (of the logarithm of times) within a type that a split must explain, 0 to 1.
    pub gain: f64,
    /// How far apart the means of both sides must be: the difference of logarithms, so 0.1 is about 10 %.
    pub apart: f64,
}

impl Default for RefineOptions {
    /// 60 types: guards know 64 of a loop. 30 units are what a deviation takes. 10 % of time and of variance: less is what
    /// the paper finds within types (section 7.2).
    fn default() -> Self {
        Self { most: 60, units: 30, gain: 0.1, apart: 0.1 }
    }
}

/// What is known of the units with one call tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeTimes<'a> {
    /// How long they took.
    pub stats: &'a UnitStats,
    /// What they came by.
    pub contexts: &'a BTreeSet<Context>,
}

/// Groups of call trees after splitting, and the contexts that told them apart.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Refined {
    /// Places of the trees of each type, ascending; each tree is in one.
    pub groups: Vec<Vec<usize>>,
    /// The contexts, what explains most first.
    pub splits: Vec<Context>,
}

/// Moments of the logarithm of times: those of a few units that were interrupted count for less there.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Moments {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn of(stats: &UnitStats) -> Self {
        stats.histogram().steps().fold(Self::default(), |m, (from, to, n)| {
            let (x, n) = ((f64::midpoint(from as f64, to as f64) + 1.0).ln(), n as f64);
            Self { n: m.n + n, sum: m.sum + n * x, squares: m.squares + n * x * x }
        })
    }

    fn plus(self, o: Self) -> Self {
        Self { n: self.n + o.n, sum: self.sum + o.sum, squares: self.squares + o.squares }
    }

    fn minus(self, o: Self) -> Self {
        Self { n: self.n - o.n, sum: self.sum - o.sum, squares: self.squares - o.squares }
    }

    fn mean(self) -> f64 {
        if self.n > 0.0 { self.sum / self.n } else { 0.0 }
    }

    /// Sum of squares around the mean.
    fn around(self) -> f64 {
        if self.n > 0.0 { (self.squares - self.sum * self.sum / self.n).max(0.0) } else { 0.0 }
    }
}

/// A way to split a group.
struct Split {
    /// Place of the context.
    by: usize,
    /// Sum of squares that it explains.
    gain: f64,
}

struct Refining {
    moments: Vec<Moments>,
    /// Contexts of each tree by their places, ascending.
    came_by: Vec<Vec<usize>>,
    contexts: usize,
    options: RefineOptions,
}

impl Refining {
    /// The best way to split a group, if there is a good one.
    fn split(&self, group: &[usize]) -> Option<Split> {
        let all = group.iter().fold(Moments::default(), |m, &t| m.plus(self.moments[t]));
        let o = &self.options;
        if all.n < 2.0 * o.units as f64 {
            return None;
        }
        let mut with = vec![Moments::default(); self.contexts];
        for &t in group {
            for &c in &self.came_by[t] {
                with[c] = with[c].plus(self.moments[t]);
            }
        }
        let mut best: Option<Split> = None;
        for (by, &with) in with.iter().enumerate() {
            let without = all.minus(with);
            if with.n < o.units as f64 || without.n < o.units as f64 {
                continue;
            }
            let gain = all.around() - with.around() - without.around();
            let apart = (with.mean() - without.mean()).abs();
            if gain < o.gain * all.around()
                || apart < o.apart
                || best.as_ref().is_some_and(|b| b.gain >= gain)
            {
                continue;
            }
            best = Some(Split { by, gain });
        }
        best
    }
}

/// Splits groups of call trees, what explains most of all time's variance first. Then puts together what guards take for
/// each other, see [`confused`]. The same trees give the same groups in any order.
pub fn refine(mut groups: Vec<Vec<usize>>, trees: &[TreeTimes], options: RefineOptions) -> Refined {
    let known: BTreeSet<Context> = trees.iter().flat_map(|t| t.contexts).copied().collect();
    let known: Vec<Context> = known.into_iter().collect();
    let place: BTreeMap<Context, usize> = known.iter().enumerate().map(|(i, c)| (*c, i)).collect();
    let refining = Refining {
        moments: trees.iter().map(|t| Moments::of(t.stats)).collect(),
        came_by: trees.iter().map(|t| t.contexts.iter().map(|c| place[c]).collect()).collect(),
        contexts: known.len(),
        options,
    };
    groups.sort();
    let before = groups.clone();
    let mut open: Vec<(Vec<usize>, Option<Split>)> =
        groups.into_iter().map(|g| (refining.split(&g), g)).map(|(s, g)| (g, s)).collect();
    let mut splits = Vec::new();
    while open.len() < options.most {
        let gain = |s: &Option<Split>| s.as_ref().map_or(-1.0, |s| s.gain);
        let Some(next) =
            (0..open.len()).reduce(|a, b| if gain(&open[b].1) > gain(&open[a].1) { b } else { a })
        else {
            break;
        };
        let Some(split) = open[next].1.take() else { break };
        let whole = std::mem::take(&mut open[next].0);
        let (with, without): (Vec<usize>, Vec<usize>) =
            whole.into_iter().partition(|&t| refining.came_by[t].binary_search(&split.by).is_ok());
        splits.push(known[split.by]);
        let again = refining.split(&with);
        open[next] = (with, again);
        let again = refining.split(&without);
        open.push((without, again));
    }
    let groups = put_together(open.into_iter().map(|o| o.0).collect(), &before, trees);
    Refined { groups, splits }
}

/// Joins groups that came of one type as long as units of one would be told as too slow since they are taken for another.
fn put_together(mut groups: Vec<Vec<usize>>, before: &[Vec<usize>], trees: &[TreeTimes]) -> Vec<Vec<usize>> {
    let mut whole = vec![usize::MAX; trees.len()];
    for (g, t) in before.iter().enumerate().flat_map(|(g, all)| all.iter().map(move |&t| (g, t))) {
        whole[t] = g;
    }
    loop {
        groups.sort();
        let found = confused(&groups, trees);
        let related = |&&(a, b): &&(usize, usize)| whole[groups[a][0]] == whole[groups[b][0]];
        let Some(&(a, b)) = found.iter().find(related) else { break };
        let (keep, gone) = (a.min(b), a.max(b));
        let joined = groups.swap_remove(gone);
        groups[keep].extend(joined);
        groups[keep].sort_unstable();
    }
    groups
}

/// Pairs (a, b) of groups such that units of a would be told as too slow since guards take them for b: the most first. It is
/// played through what algorithm 2 does with each call tree at the contexts that tell types; those that are come by again and
/// again count once.
pub fn confused(groups: &[Vec<usize>], trees: &[TreeTimes]) -> Vec<(usize, usize)> {
    let of =
        |g: &[usize]| -> BTreeSet<Context> { g.iter().flat_map(|&t| trees[t].contexts).copied().collect() };
    let contexts: Vec<BTreeSet<Context>> = groups.iter().map(|g| of(g)).collect();
    let limit = |g: &Vec<usize>| {
        let mut all = UnitStats::default();
        for &t in g {
            all.merge(trees[t].stats);
        }
        (threshold(&all, Rule::default()).map_or(0, |t| t.ns), all.count())
    };
    let limits: Vec<(u64, u64)> = groups.iter().map(limit).collect();
    let told: BTreeMap<Context, Vec<usize>> =
        telling(&contexts).into_iter().filter(|(_, types)| types.len() <= MOST_SHARED).collect();
    let mut wrong: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (own, group) in groups.iter().enumerate() {
        for &t in group {
            let mut hits: BTreeMap<usize, u32> = BTreeMap::new();
            for of in trees[t].contexts.iter().filter_map(|c| told.get(c)).flatten() {
                *hits.entry(*of).or_default() += 1;
            }
            // The most hits, then the smallest threshold; the first of equals.
            let best = hits.iter().min_by_key(|(g, n)| (std::cmp::Reverse(**n), limits[**g].0, **g));
            let Some((&best, _)) = best.filter(|b| *b.0 != own && limits[*b.0].0 < limits[own].0) else {
                continue;
            };
            let too_slow = trees[t].stats.histogram().above(limits[best].0);
            if too_slow > 0 {
                *wrong.entry((own, best)).or_default() += too_slow;
            }
        }
    }
    // A unit in ten thousand is what may be told without cause.
    let mut all: Vec<_> =
        wrong.into_iter().filter(|((own, _), n)| n.saturating_mul(10_000) > limits[*own].1).collect();
    all.sort_by_key(|(pair, n)| (std::cmp::Reverse(*n), *pair));
    all.into_iter().map(|(pair, _)| pair).collect()
}

#[cfg(test)]
mod tests;
