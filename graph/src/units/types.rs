//! Types of units: distinct call trees clustered by their distance, and where an unknown unit belongs
//! (section 4.3).

use super::cluster::{Linkage, cut, merges};
use super::distance::PathDistances;
use super::inference::Context;
use super::path::{CallPath, Called, FunctionId, PathSet};
use super::refine::{RefineOptions, TreeTimes, refine};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Paths of all call trees that are clustered: two billion pairs, a few seconds.
const MOST_PATHS: usize = 1 << 16;
/// Distinct ones among them: 33 million comparisons, ten seconds.
const MOST_DISTINCT: usize = 1 << 13;

/// A type of units: its place in [`UnitTypes::types`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TypeId(pub u32);

/// What is clustered by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Measure {
    /// Equation 2 as it is printed. It holds the spread of each unit's own paths: two units that take the same
    /// hundred different paths are far apart (0.5, say), two that take the same single path are not. How far
    /// depends on how many frames all stacks share, so no one cut-off fits (a test shows it).
    Mean,
    /// Equation 2 less the mean of both units' distance to themselves (and 0 where that is less): 0 for equal
    /// sets of paths, and the same as equation 2 for units of one path. (It is the energy distance of Székely
    /// and Rizzo, halved, with equation 1 as the distance below it.) Ours, not the paper's.
    #[default]
    Excess,
}

/// How units are told apart. The paper says neither which linkage nor which cut-off it used (section 4.3).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TypeOptions {
    /// What is clustered by.
    pub measure: Measure,
    /// The distance of clusters.
    pub linkage: Linkage,
    /// Clusters at this distance or nearer are one type; 0 to 1. 0 makes a type of each distinct call tree.
    pub cut_off: f64,
    /// A unit further than this from every known one is of a type that is not known; 0 to 1.
    pub unknown: f64,
    /// Distinct call trees that are clustered, the most frequent; fewer when they have very many paths, since the
    /// time grows with the square. What is rarer joins the type whose representative it shares most functions
    /// with, half of both's at least; what shares less becomes one type, the last before sorting.
    pub most: usize,
    /// What is split by time after that.
    pub refine: RefineOptions,
}

impl Default for TypeOptions {
    fn default() -> Self {
        Self {
            measure: Measure::default(),
            linkage: Linkage::default(),
            cut_off: 0.1,
            unknown: 0.2,
            most: 1024,
            refine: RefineOptions::default(),
        }
    }
}

/// A distinct call tree and how many units had it: |U_C| of table 3 counts these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Its call paths.
    pub paths: PathSet,
    /// What its units came by, as far as that is known: trees of the same paths are told from each other by it.
    pub contexts: BTreeSet<Context>,
    /// Units that had exactly these.
    pub units: u64,
}

impl Tree {
    /// What its units called.
    pub fn called(&self) -> Called {
        Called { paths: self.paths.clone(), contexts: self.contexts.clone() }
    }
}

/// One type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitType {
    /// Its call trees, as places in [`UnitTypes::trees`], ascending.
    pub trees: Vec<usize>,
    /// The call tree that is nearest to all of them: a place as well.
    pub representative: usize,
    /// Units of all of them.
    pub units: u64,
}

/// Where a unit belongs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Belongs {
    /// Its call tree is known (that of most units, where several have its paths).
    Known(TypeId),
    /// To the type of the nearest known call tree, at this distance.
    Near(TypeId, f64),
    /// To none: the nearest known one is too far off. `None` when nothing is known at all.
    New(Option<(TypeId, f64)>),
}

/// All types of one loop.
#[derive(Debug)]
pub struct UnitTypes {
    options: TypeOptions,
    trees: Vec<Tree>,
    types: Vec<UnitType>,
    type_of: Vec<TypeId>,
    distances: Spread,
}

impl UnitTypes {
    /// Clusters call trees, given with the number of units that had them, in any order and with repetitions.
    /// The same units give the same types, whatever the order.
    pub fn new(trees: impl IntoIterator<Item = (impl Into<Called>, u64)>, options: TypeOptions) -> Self {
        let mut distinct = BTreeMap::<Called, u64>::new();
        for (called, units) in trees {
            let n = distinct.entry(called.into()).or_default();
            *n = n.saturating_add(units);
        }
        let tree = |(Called { paths, contexts }, units)| Tree { paths, contexts, units };
        let trees: Vec<Tree> = distinct.into_iter().map(tree).collect();
        // The most frequent are clustered; among equals the first in order of their paths.
        let mut order: Vec<usize> = (0..trees.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(trees[i].units), i));
        let (clustered, rare) = order.split_at(affordable(&order, &trees, options.most));
        let mut clustered = clustered.to_vec();
        clustered.sort_unstable();
        let mut distances = Spread::new(&clustered, &trees, options.measure);
        let mut condensed = Vec::with_capacity(clustered.len() * clustered.len().saturating_sub(1) / 2);
        for (n, &i) in clustered.iter().enumerate() {
            condensed.extend(clustered[n + 1..].iter().map(|&j| distances.between(i, j)));
        }
        let merges = merges(&mut condensed, clustered.len(), options.linkage);
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (&i, group) in clustered.iter().zip(cut(&merges, clustered.len(), options.cut_off)) {
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(i);
        }
        let mut types: Vec<UnitType> = groups.into_iter().map(|g| one(g, &trees, &mut distances)).collect();
        join_rare(&mut types, rare, &trees);
        let mut all = Self { options, trees, types, type_of: Vec::new(), distances };
        all.number();
        all
    }

    /// Those with most units first.
    fn number(&mut self) {
        self.types.sort_by_key(|t| (std::cmp::Reverse(t.units), t.trees[0]));
        self.type_of = vec![TypeId(0); self.trees.len()];
        for (t, of) in self.types.iter().enumerate() {
            for &tree in &of.trees {
                self.type_of[tree] = TypeId(t as u32);
            }
        }
    }

    /// Splits types by what explains how long their units took, see [`refine`]; `times` has an entry for each of
    /// [`Self::trees`], else nothing is done. The contexts that split are given back, what explains most first.
    pub fn refine(&mut self, times: &[TreeTimes]) -> Vec<Context> {
        if times.len() != self.trees.len() {
            return Vec::new();
        }
        let groups = self.types.iter().map(|t| t.trees.clone()).collect();
        let refined = refine(groups, times, self.options.refine);
        // Rare trees have no distances: the most frequent stands for a type of such.
        let mut types = Vec::new();
        for group in refined.groups {
            let known = group.iter().all(|i| self.distances.own.contains_key(i));
            let of = match self.types.iter().find(|t| t.trees == group) {
                Some(same) => same.clone(),
                None if known => one(group, &self.trees, &mut self.distances),
                None => {
                    let most = group.iter().max_by_key(|&&i| (self.trees[i].units, std::cmp::Reverse(i)));
                    let representative = most.copied().unwrap_or_default();
                    let units = group.iter().fold(0u64, |sum, &i| sum.saturating_add(self.trees[i].units));
                    UnitType { trees: group, representative, units }
                }
            };
            types.push(of);
        }
        self.types = types;
        self.number();
        refined.splits
    }

    /// The distinct call trees, ascending by their paths, then by what their units came by.
    pub fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// The types, those with most units first.
    pub fn types(&self) -> &[UnitType] {
        &self.types
    }

    /// The type of a call tree, given by its place in [`Self::trees`].
    pub fn type_of(&self, tree: usize) -> Option<TypeId> {
        self.type_of.get(tree).copied()
    }

    /// Where a unit with these paths belongs: to the type of the nearest known unit ("mapping a new unit to the
    /// closest known unit", section 4.3), unless that is further than [`TypeOptions::unknown`].
    pub fn belongs(&self, paths: &PathSet) -> Belongs {
        let from = self.trees.partition_point(|t| t.paths < *paths);
        let known = (from..self.trees.len()).take_while(|&i| self.trees[i].paths == *paths);
        if let Some(i) = known.max_by_key(|&i| (self.trees[i].units, std::cmp::Reverse(i))) {
            return Belongs::Known(self.type_of[i]);
        }
        let measure = self.options.measure;
        let own = measure.spread(paths);
        let distance = |i: usize| {
            measure.of(super::unit_distance(&self.trees[i].paths, paths), self.distances.own[&i], own)
        };
        // Those that were clustered: rarer ones may be in a type for want of a better.
        let all = self.distances.own.keys().map(|&i| (self.type_of[i], distance(i)));
        match all.min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((t, d)) if d <= self.options.unknown => Belongs::Near(t, d),
            far => Belongs::New(far),
        }
    }
}

/// A type of these call trees.
fn one(mut members: Vec<usize>, trees: &[Tree], distances: &mut Spread) -> UnitType {
    members.sort_unstable();
    // Towards many units rather than towards many call trees: rare ones are many.
    let weighed = |i: usize, distances: &mut Spread| -> f64 {
        members.iter().map(|&j| distances.between(i, j) * trees[j].units as f64).sum()
    };
    let mut best = (members[0], f64::INFINITY);
    for &i in &members {
        let sum = weighed(i, distances);
        if sum < best.1 {
            best = (i, sum);
        }
    }
    let units = members.iter().fold(0u64, |sum, &i| sum.saturating_add(trees[i].units));
    UnitType { representative: best.0, units, trees: members }
}

impl Measure {
    /// The measure of two units whose distance is `d`, and each's to itself `x` and `y`.
    fn of(self, d: f64, x: f64, y: f64) -> f64 {
        match self {
            Self::Mean => d,
            Self::Excess => (d - f64::midpoint(x, y)).max(0.0),
        }
    }

    /// A unit's distance to itself, where it is asked for.
    fn spread(self, paths: &PathSet) -> f64 {
        match self {
            Self::Mean => 0.0,
            Self::Excess => super::unit_distance(paths, paths),
        }
    }
}

/// Distances among the call trees that are clustered, by their places.
#[derive(Debug)]
struct Spread {
    measure: Measure,
    paths: PathDistances,
    /// Each tree's paths by their places.
    places: BTreeMap<usize, Vec<u32>>,
    /// Each tree's distance to itself; 0 where the measure does not ask for it.
    own: BTreeMap<usize, f64>,
}

impl Spread {
    fn new(clustered: &[usize], trees: &[Tree], measure: Measure) -> Self {
        let mut paths = PathDistances::new(clustered.iter().map(|&i| &trees[i].paths));
        let places: BTreeMap<usize, Vec<u32>> =
            clustered.iter().map(|&i| (i, paths.places(&trees[i].paths))).collect();
        let own =
            places.iter().map(|(i, p)| (*i, if measure == Measure::Excess { paths.unit(p, p) } else { 0.0 }));
        let own = own.collect();
        Self { measure, paths, places, own }
    }

    fn between(&mut self, i: usize, j: usize) -> f64 {
        if i == j {
            return 0.0;
        }
        let d = self.paths.unit(&self.places[&i], &self.places[&j]);
        self.measure.of(d, self.own[&i], self.own[&j])
    }
}

/// How many of `order` can be clustered in a time that a person waits.
fn affordable(order: &[usize], trees: &[Tree], most: usize) -> usize {
    let mut paths = 0;
    let mut distinct = HashSet::new();
    let fits = |&&i: &&usize| {
        let set = trees[i].paths.paths();
        paths += set.len();
        // Before these are remembered, their number is looked at.
        if paths > MOST_PATHS {
            return false;
        }
        distinct.extend(set);
        distinct.len() <= MOST_DISTINCT
    };
    order.iter().take(most).take_while(fits).count()
}

/// Puts call trees that were not clustered into types by the functions that they have in common.
fn join_rare(types: &mut Vec<UnitType>, rare: &[usize], trees: &[Tree]) {
    let functions = |i: usize| -> BTreeSet<FunctionId> {
        trees[i].paths.paths().iter().flat_map(CallPath::functions).copied().collect()
    };
    let known: Vec<BTreeSet<FunctionId>> = types.iter().map(|t| functions(t.representative)).collect();
    let mut apart: Vec<usize> = Vec::new();
    for &i in rare {
        let own = functions(i);
        let likeness = known.iter().map(|k| {
            let common = k.intersection(&own).count();
            (common, k.len() + own.len() - common)
        });
        // The greatest ratio of common to all, compared without rounding; the first of equals.
        let best = likeness.enumerate().reduce(|a, b| if b.1.0 * a.1.1 > a.1.0 * b.1.1 { b } else { a });
        match best {
            Some((t, (common, all))) if 2 * common >= all => {
                types[t].units = types[t].units.saturating_add(trees[i].units);
                types[t].trees.push(i);
            }
            _ => apart.push(i),
        }
    }
    for t in types.iter_mut() {
        t.trees.sort_unstable();
    }
    if let Some(&representative) = apart.first() {
        let units = apart.iter().fold(0u64, |sum, &i| sum.saturating_add(trees[i].units));
        apart.sort_unstable();
        types.push(UnitType { trees: apart, representative, units });
    }
}

#[cfg(test)]
mod tests;
