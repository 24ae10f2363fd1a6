//! What has been learnt of a program's units: the contents of an `app.pgprof`.
//!
//! Kept are the *distinct call trees* of each loop with the durations of their units. The types follow from them
//! ([`Profile::types`]), so profiles of several runs and machines merge exactly, in any order: trees are joined,
//! figures added up. (Types that had been clustered apart could not be merged so.)
//!
//! Beside that it says where functions and loops are in the binaries (`places`), which is no part of what they are:
//! builds of a program share their types. What people say of a type is kept with a call tree of it (`settings`).
//!
//! A profile is always in one form: functions sorted and only those that occur, numbered in that order. So equal
//! contents are equal values and, written, equal bytes.

mod known;
mod places;
mod settings;
mod show;
#[cfg(test)]
mod tests;
mod types;
mod wire;

pub use known::KnownTypes;
pub use places::{Boundary, LoopFunction, MAX_BUILD_ID, NativeWay, Place, RequestWay};
pub use settings::{CONFIDENCE, Limit};
pub use types::{Listed, LoopTypes};
pub use wire::{DecodeError, EncodeError, MAX_BYTES, VERSION};

use super::inference::Context;
use super::path::{CallPath, Called, FunctionId, PathSet, Unit};
use super::stats::UnitStats;
use places::LoopFacts;
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Bytes of a path, build-id or name that are kept.
pub const MAX_TEXT: usize = 4096;

/// A program or library that was trained on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Binary {
    /// Where it was.
    pub path: String,
    /// Its build-id in hexadecimal digits; empty when it has none.
    pub build_id: String,
}

/// A function by what stays the same from run to run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Function {
    /// The file name of its module.
    pub module: String,
    /// Its name, or `+0x` and its offset in the module where it has none.
    pub name: String,
}

/// Where units begin and end that a person gave the boundaries of, as `pg_tracer::given::GivenPoint` prints it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Given {
    /// Where they begin.
    pub begin: String,
    /// Where they end; empty: with the call of the function that they begin with.
    pub end: String,
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.end.as_str() {
            "" => write!(f, "calls of {}", self.begin),
            end => write!(f, "{} to {end}", self.begin),
        }
    }
}

/// An event-processing loop, or what a person named in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LoopKey {
    /// The build-id of the module that it is in, or the module's file name where it has none.
    pub build_id: String,
    /// Where its head is in the module's file, in bytes.
    pub offset: u64,
    /// Set when its units are no turns of a loop: `offset` is where they begin then.
    pub given: Option<Given>,
}

/// What was learnt of one loop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct LoopProfile {
    /// Where it is.
    facts: LoopFacts,
    /// How long the units with each distinct call tree took.
    trees: BTreeMap<Called, UnitStats>,
    /// What people said, by a call tree of the type that it was said of.
    settings: BTreeMap<Called, Settings>,
}

/// What has been learnt of a program's units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    binaries: BTreeSet<Binary>,
    functions: Vec<Function>,
    /// Of each function.
    places: Vec<BTreeSet<Place>>,
    loops: BTreeMap<LoopKey, LoopProfile>,
}

impl Profile {
    /// Of units that were recorded. Their functions are places in `functions`; a place beyond it is a function
    /// that nothing is known of. The more runs are to be learnt from, the more profiles are made and merged.
    pub fn new<'a>(
        binaries: impl IntoIterator<Item = Binary>,
        functions: &[Function],
        units: impl IntoIterator<Item = (LoopKey, &'a Unit)>,
    ) -> Self {
        let mut loops: BTreeMap<LoopKey, LoopProfile> = BTreeMap::new();
        for (key, unit) in units {
            let called = Called { paths: unit.paths.clone(), contexts: unit.contexts.clone() };
            loops.entry(key).or_default().trees.entry(called).or_default().add(unit.duration);
        }
        let binaries = binaries.into_iter().collect();
        let places = vec![BTreeSet::new(); functions.len()];
        Self { binaries, functions: functions.to_vec(), places, loops }.in_one_form(super::MAX_FRAMES)
    }

    /// The same of units that were counted together: those of a loop that called the same, with what they came by and how
    /// long they took.
    pub fn of_trees(
        binaries: impl IntoIterator<Item = Binary>,
        functions: &[Function],
        trees: impl IntoIterator<Item = (LoopKey, Called, UnitStats)>,
    ) -> Self {
        let mut loops: BTreeMap<LoopKey, LoopProfile> = BTreeMap::new();
        for (key, called, stats) in trees {
            loops.entry(key).or_default().trees.entry(called).or_default().merge(&stats);
        }
        let binaries = binaries.into_iter().collect();
        let places = vec![BTreeSet::new(); functions.len()];
        Self { binaries, functions: functions.to_vec(), places, loops }.in_one_form(super::MAX_FRAMES)
    }

    /// What both have learnt. Exact, and the same in any order and grouping: `a.merge(&b) == b.merge(&a)`.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut all = self.clone();
        let shift = all.functions.len() as u32;
        all.functions.extend(other.functions.iter().cloned());
        all.places.extend(other.places.iter().cloned());
        all.binaries.extend(other.binaries.iter().cloned());
        for (key, theirs) in &other.loops {
            let ours = all.loops.entry(key.clone()).or_default();
            // Not sorted into ours yet: places above `shift` are other functions, which `in_one_form` joins.
            let moved = |called: &Called| mapped(called, super::MAX_FRAMES, |f| FunctionId(f.0 + shift));
            for (called, stats) in &theirs.trees {
                ours.trees.entry(moved(called)).or_default().merge(stats);
            }
            for (called, settings) in &theirs.settings {
                ours.settings.entry(moved(called)).or_default().merge(settings.clone());
            }
            ours.facts.merge(theirs.facts.clone());
        }
        all.in_one_form(super::MAX_FRAMES)
    }

    /// Leaves out the loops that `keep` does not want.
    pub fn retain_loops(&mut self, keep: impl Fn(&LoopKey) -> bool) {
        self.loops.retain(|l, _| keep(l));
        *self = std::mem::take(self).in_one_form(super::MAX_FRAMES);
    }

    /// The same with call paths cut to their `frames` outermost functions; trees that are equal then become one.
    /// For where there are more distinct trees than can be kept ([`EncodeError`]). Cutting and merging may be
    /// done in either order, but for the places of functions that are cut off: these are gone.
    #[must_use]
    pub fn cut_to(&self, frames: usize) -> Self {
        self.clone().in_one_form(frames)
    }

    /// The programs and libraries that were trained on.
    pub fn binaries(&self) -> impl Iterator<Item = &Binary> {
        self.binaries.iter()
    }

    /// The functions, by [`FunctionId`].
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The loops.
    pub fn loops(&self) -> impl Iterator<Item = &LoopKey> {
        self.loops.keys()
    }

    /// How many distinct call trees are known: what it takes to find the types grows with their square.
    pub fn call_trees(&self) -> usize {
        self.loops.values().map(|l| l.trees.len()).sum()
    }

    /// Units learnt from, of all loops.
    pub fn units(&self) -> u64 {
        let all = self.loops.values().flat_map(|l| l.trees.values());
        all.fold(0, |sum, stats| sum.saturating_add(stats.count()))
    }

    /// Functions sorted, each once, and only those that occur; texts and paths no longer than allowed.
    fn in_one_form(mut self, frames: usize) -> Self {
        let binary =
            |b: Binary| Binary { path: cut(&b.path, MAX_TEXT), build_id: cut(&b.build_id, MAX_TEXT) };
        self.binaries = self.binaries.into_iter().map(binary).collect();
        for LoopProfile { trees, settings, .. } in self.loops.values_mut() {
            trees.retain(|_, stats| stats.count() > 0);
            // What a file says of a tree that it has not is said of no type.
            settings.retain(|tree, _| trees.contains_key(tree));
        }
        self.loops.retain(|_, l| !l.trees.is_empty());
        let unknown = Function { module: String::new(), name: "?".into() };
        let mut used: BTreeMap<FunctionId, Function> = BTreeMap::new();
        let sets = self.loops.values().flat_map(|l| l.trees.keys().chain(l.settings.keys()));
        for id in sets.flat_map(|called| called.paths.paths()).flat_map(|p| p.functions().iter().take(frames))
        {
            used.entry(*id).or_insert_with(|| {
                self.functions.get(id.0 as usize).map_or_else(|| unknown.clone(), Function::in_one_form)
            });
        }
        let sorted: BTreeSet<&Function> = used.values().collect();
        let place: BTreeMap<&Function, u32> = sorted.iter().zip(0..).map(|(f, i)| (*f, i)).collect();
        let to: BTreeMap<FunctionId, FunctionId> =
            used.iter().map(|(id, f)| (*id, FunctionId(place[f]))).collect();
        let mut places = vec![BTreeSet::new(); sorted.len()];
        for (from, to) in &to {
            let known = self.places.get_mut(from.0 as usize).map(std::mem::take);
            places[to.0 as usize].append(&mut known.unwrap_or_default());
        }
        let mut loops: BTreeMap<LoopKey, LoopProfile> = BTreeMap::new();
        for (key, l) in &self.loops {
            let given = key.given.as_ref();
            let given = given.map(|g| Given { begin: cut(&g.begin, MAX_TEXT), end: cut(&g.end, MAX_TEXT) });
            let key = LoopKey { build_id: cut(&key.build_id, MAX_TEXT), offset: key.offset, given };
            let into = loops.entry(key).or_default();
            for (called, stats) in &l.trees {
                into.trees.entry(mapped(called, frames, |f| to[&f])).or_default().merge(stats);
            }
            for (called, settings) in &l.settings {
                into.settings.entry(mapped(called, frames, |f| to[&f])).or_default().merge(settings.clone());
            }
            into.facts.merge(l.facts.in_one_form());
        }
        let functions = sorted.into_iter().cloned().collect();
        Self { binaries: self.binaries, functions, places, loops }
    }
}

/// The same of other numbers, with paths cut. Contexts of functions that are not on the paths (any more) would tell what the
/// paths do not.
fn mapped(called: &Called, frames: usize, to: impl Fn(FunctionId) -> FunctionId) -> Called {
    let paths = || called.paths.paths().iter().map(|p| p.functions().iter().take(frames));
    let on_paths: BTreeSet<&FunctionId> = paths().flatten().collect();
    let kept = called.contexts.iter().filter(|c| on_paths.contains(&c.function));
    Called {
        contexts: kept.map(|c| Context { function: to(c.function), ..*c }).collect(),
        paths: PathSet::new(paths().map(|p| CallPath::new(p.map(|f| to(*f))))),
    }
}

/// The first `most` bytes at most, without a broken character.
fn cut(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}
