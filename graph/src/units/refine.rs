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

/// A context that fewer than one of so many units of a type come by is not the type's.
const RARE: u64 = 100;

/// What is split, and how far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RefineOptions {
    /// Types of a loop at most; a split that would make more is not made. 0 or 1 splits nothing.
    pub most: usize,
    /// Units that each side must have at least.
    pub units: u64,
    /// Share of the variance (of the logarithm of times) within a type that a split must explain, 0 to 1,
    pub gain: f64,
    /// or of what the units of one side differ from the mean of the type: of a type of twenty kinds of work that all
    /// differ no single one explains much of the whole.
    pub own: f64,
    /// How far apart the means of both sides must be: the difference of logarithms, so 0.1 is about 10 %.
    pub apart: f64,
}

impl Default for RefineOptions {
    /// 60 types: guards know 64 of a loop. 30 units are what a deviation takes. 10 % of time and of variance: less is what
    /// the paper finds within types (section 7.2). A third of what a side differs by: 30 units with times at random have
    /// that once in ten thousand times, and there may be hundreds of contexts.
    fn default() -> Self {
        Self { most: 60, units: 30, gain: 0.1, own: 0.33, apart: 0.1 }
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

    /// Share of the sum of squares around `mean` that lies in its own mean being another, 0 to 1.
    fn explained(self, mean: f64) -> f64 {
        let by_mean = self.n * (self.mean() - mean).powi(2);
        by_mean / (by_mean + self.around()).max(f64::MIN_POSITIVE)
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
            let own = with.explained(all.mean()).max(without.explained(all.mean()));
            if (gain < o.gain * all.around() && own < o.own)
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
/// each other's. The same trees give the same groups in any order.
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

/// Joins groups that came of one type as long as guards take most units of one for another's.
fn put_together(mut groups: Vec<Vec<usize>>, before: &[Vec<usize>], trees: &[TreeTimes]) -> Vec<Vec<usize>> {
    let mut whole = vec![usize::MAX; trees.len()];
    for (g, t) in before.iter().enumerate().flat_map(|(g, all)| all.iter().map(move |&t| (g, t))) {
        whole[t] = g;
    }
    loop {
        groups.sort();
        let found = Inferring::of(&groups, trees).confused();
        let related = |&&(a, b): &&(usize, usize)| whole[groups[a][0]] == whole[groups[b][0]];
        let Some(&(a, b)) = found.iter().find(related) else { break };
        let (keep, gone) = (a.min(b), a.max(b));
        let joined = groups.swap_remove(gone);
        groups[keep].extend(joined);
        groups[keep].sort_unstable();
    }
    groups
}

/// What units of a type with these trees come by: every context that at least one of [`RARE`] does. A unit that once came by
/// what tells another type makes neither of the two the other.
pub fn contexts_of(group: &[usize], trees: &[TreeTimes]) -> BTreeSet<Context> {
    let mut units: BTreeMap<Context, u64> = BTreeMap::new();
    for t in group.iter().map(|&t| &trees[t]) {
        for c in t.contexts {
            *units.entry(*c).or_default() += t.stats.count();
        }
    }
    let all: u64 = group.iter().map(|&t| trees[t].stats.count()).sum();
    units.into_iter().filter(|(_, n)| n.saturating_mul(RARE) >= all).map(|(c, _)| c).collect()
}

/// Pairs (a, b) of types such that a comes before b where a unit has come by as many contexts of the one as of the other,
/// though b has the smaller threshold: units of a come by nothing that b's do not, and would be told as too slow for b. Units of
/// b come by more sooner or later. (Algorithm 2 takes the smallest threshold of all in any case.) The first of a pair has the
/// greater threshold, so no pairs go round in circles.
pub fn precedence(groups: &[Vec<usize>], trees: &[TreeTimes]) -> Vec<(usize, usize)> {
    Inferring::of(groups, trees).first
}

/// What guards make of units of these types, played through with each call tree: contexts that are come by again and again
/// count once.
struct Inferring<'a> {
    groups: &'a [Vec<usize>],
    trees: &'a [TreeTimes<'a>],
    /// For each tree the groups with the most of its contexts, ascending.
    likely: Vec<Vec<usize>>,
    /// How long units of each may take, ns, and how many there are.
    limits: Vec<(u64, u64)>,
    /// [`precedence`], ascending.
    first: Vec<(usize, usize)>,
}

impl<'a> Inferring<'a> {
    fn of(groups: &'a [Vec<usize>], trees: &'a [TreeTimes<'a>]) -> Self {
        let contexts: Vec<BTreeSet<Context>> = groups.iter().map(|g| contexts_of(g, trees)).collect();
        let limit = |g: &Vec<usize>| {
            let mut all = UnitStats::default();
            for &t in g {
                all.merge(trees[t].stats);
            }
            (threshold(&all, Rule::Sigma { k: 4.0 }).map_or(0, |t| t.ns), all.count())
        };
        let limits: Vec<(u64, u64)> = groups.iter().map(limit).collect();
        let told: BTreeMap<Context, Vec<usize>> =
            telling(&contexts).into_iter().filter(|(_, types)| types.len() <= MOST_SHARED).collect();
        let likely = |t: &TreeTimes| {
            let mut hits: BTreeMap<usize, u32> = BTreeMap::new();
            for of in t.contexts.iter().filter_map(|c| told.get(c)).flatten() {
                *hits.entry(*of).or_default() += 1;
            }
            let most = hits.values().max().copied();
            hits.into_iter().filter(|(_, n)| Some(*n) == most).map(|(g, _)| g).collect()
        };
        let mut all =
            Self { groups, trees, likely: trees.iter().map(likely).collect(), limits, first: Vec::new() };
        all.first = all.order();
        all
    }

    fn order(&self) -> Vec<(usize, usize)> {
        let mut wrong: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (own, &t) in self.groups.iter().enumerate().flat_map(|(g, all)| all.iter().map(move |t| (g, t))) {
            for &other in self.likely[t].iter().filter(|&&g| self.limits[g].0 < self.limits[own].0) {
                *wrong.entry((own, other)).or_default() +=
                    self.trees[t].stats.histogram().above(self.limits[other].0);
            }
        }
        // A unit in ten thousand is what may be told without cause.
        wrong.retain(|(own, _), n| n.saturating_mul(10_000) > self.limits[*own].1);
        wrong.into_keys().collect()
    }

    /// What a unit with a tree is taken for at last: of the likely ones that no other precedes, that with the smallest
    /// threshold, the first of equals.
    fn inferred(&self, tree: usize) -> Option<usize> {
        let likely = &self.likely[tree];
        let preceded = |b: &&usize| likely.iter().any(|&a| self.first.binary_search(&(a, **b)).is_ok());
        likely.iter().filter(|b| !preceded(b)).min_by_key(|&&g| (self.limits[g].0, g)).copied()
    }

    /// Pairs (a, b) of groups such that most units of a are taken for b: the most first.
    fn confused(&self) -> Vec<(usize, usize)> {
        let mut taken: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (own, &t) in self.groups.iter().enumerate().flat_map(|(g, all)| all.iter().map(move |t| (g, t))) {
            if let Some(other) = self.inferred(t).filter(|&g| g != own) {
                *taken.entry((own, other)).or_default() += self.trees[t].stats.count();
            }
        }
        let mut all: Vec<_> = taken.into_iter().filter(|((own, _), n)| 2 * n > self.limits[*own].1).collect();
        all.sort_by_key(|(pair, n)| (std::cmp::Reverse(*n), *pair));
        all.into_iter().map(|(pair, _)| pair).collect()
    }
}

#[cfg(test)]
mod tests;
