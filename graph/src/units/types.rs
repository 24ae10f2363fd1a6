//! Types of units: distinct call trees clustered by their distance, and where an unknown unit belongs
//! (section 4.3).

use super::cluster::{Linkage, cut, merges};
use super::distance::PathDistances;
use super::path::PathSet;
use serde::{Deserialize, Serialize};

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
    /// Distinct call trees that are clustered, the most frequent; others join the nearest of them. The time
    /// grows with the square.
    pub most: usize,
}

impl Default for TypeOptions {
    fn default() -> Self {
        Self {
            measure: Measure::default(),
            linkage: Linkage::default(),
            cut_off: 0.1,
            unknown: 0.2,
            most: 1024,
        }
    }
}

/// A distinct call tree and how many units had it: |U_C| of table 3 counts these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Its call paths.
    pub paths: PathSet,
    /// Units that had exactly these.
    pub units: u64,
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
    /// Its call tree is known.
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
    pub fn new(trees: impl IntoIterator<Item = (PathSet, u64)>, options: TypeOptions) -> Self {
        let mut by_paths = std::collections::BTreeMap::<PathSet, u64>::new();
        for (paths, units) in trees {
            let n = by_paths.entry(paths).or_default();
            *n = n.saturating_add(units);
        }
        let trees: Vec<Tree> = by_paths.into_iter().map(|(paths, units)| Tree { paths, units }).collect();
        let mut distances = Spread::new(&trees, options.measure);
        // The most frequent are clustered; among equals the first in order of their paths.
        let mut order: Vec<usize> = (0..trees.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(trees[i].units), i));
        let (clustered, others) = order.split_at(options.most.min(order.len()));
        let mut clustered = clustered.to_vec();
        clustered.sort_unstable();
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
        for &i in others {
            let near = groups.iter().enumerate().flat_map(|(g, of)| of.iter().map(move |&j| (g, j)));
            let near = near.map(|(g, j)| (g, distances.between(i, j))).min_by(|a, b| a.1.total_cmp(&b.1));
            match near {
                Some((g, d)) if d <= options.cut_off => groups[g].push(i),
                _ => groups.push(vec![i]),
            }
        }
        let mut types: Vec<UnitType> = groups.into_iter().map(|g| one(g, &trees, &mut distances)).collect();
        types.sort_by_key(|t| (std::cmp::Reverse(t.units), t.trees[0]));
        let mut type_of = vec![TypeId(0); trees.len()];
        for (t, tree) in
            types.iter().enumerate().flat_map(|(t, of)| of.trees.iter().map(move |&tree| (t, tree)))
        {
            type_of[tree] = TypeId(t as u32);
        }
        Self { options, trees, types, type_of, distances }
    }

    /// The distinct call trees, ascending by their paths.
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
        if let Ok(i) = self.trees.binary_search_by(|t| t.paths.cmp(paths)) {
            return Belongs::Known(self.type_of[i]);
        }
        let measure = self.options.measure;
        let own = measure.spread(paths);
        let distance = |i: usize| {
            measure.of(super::unit_distance(&self.trees[i].paths, paths), self.distances.own[i], own)
        };
        let all = (0..self.trees.len()).map(|i| (self.type_of[i], distance(i)));
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

/// Distances among the call trees.
#[derive(Debug)]
struct Spread {
    measure: Measure,
    paths: PathDistances,
    /// Each tree's paths by their places.
    places: Vec<Vec<u32>>,
    /// Each tree's distance to itself; 0 where the measure does not ask for it.
    own: Vec<f64>,
}

impl Spread {
    fn new(trees: &[Tree], measure: Measure) -> Self {
        let mut paths = PathDistances::new(trees.iter().map(|t| &t.paths));
        let places: Vec<Vec<u32>> = trees.iter().map(|t| paths.places(&t.paths)).collect();
        let own = places.iter().map(|p| if measure == Measure::Excess { paths.unit(p, p) } else { 0.0 });
        let own = own.collect();
        Self { measure, paths, places, own }
    }

    fn between(&mut self, i: usize, j: usize) -> f64 {
        if i == j {
            return 0.0;
        }
        let d = self.paths.unit(&self.places[i], &self.places[j]);
        self.measure.of(d, self.own[i], self.own[j])
    }
}

#[cfg(test)]
mod tests;
