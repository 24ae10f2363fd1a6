//! The types that follow from a profile, and the list in which people see and number them.

use super::{Function, KnownTypes, LoopKey, Profile};
use crate::units::inference::Context;
use crate::units::names::type_names;
use crate::units::path::{CallPath, FunctionId};
use crate::units::refine::{TreeTimes, contexts_of, precedence};
use crate::units::table::{Row, table};
use crate::units::thresholds::Rule;
use crate::units::types::{TypeId, TypeOptions, UnitTypes};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Begin of the name of what stands for the calls of a unit of which too little was seen.
const UNSEEN: &str = "(unseen";

/// The types of a loop as a profile has them.
#[derive(Debug)]
pub struct LoopTypes {
    /// The types, by [`TypeId`]; functions are those of [`Profile::functions`].
    pub types: UnitTypes,
    /// The usual contexts of each: with a threshold they are [`crate::units::TypeContexts`].
    pub contexts: Vec<BTreeSet<Context>>,
    /// What units of the types came by, as they were seen: the type, how many units did, and the contexts. Not every unit of
    /// a type comes by all that is usual of it.
    pub seen: Vec<(usize, u64, BTreeSet<Context>)>,
    /// Contexts that tell types of much different times from each other, what explains most first.
    pub splits: Vec<Context>,
    /// Types, by their numbers, of which the first is meant where a unit may be of both, though the second has the smaller
    /// threshold: [`precedence`].
    pub first: Vec<(usize, usize)>,
    /// Their durations, and what people say of them.
    pub known: KnownTypes,
}

impl LoopTypes {
    /// The types by cost, with these thresholds.
    pub fn table(&self, rule: Rule) -> Vec<Row> {
        let mut rows = table(&self.known.stats, rule);
        for row in &mut rows {
            row.threshold = self.known.threshold(TypeId(row.of as u32), rule).unwrap_or(row.threshold);
        }
        rows
    }

    /// Whether nothing is known of what the units of a type called, since too little was seen of them. Units of
    /// different work may be among them.
    pub fn unseen(&self, of: TypeId, functions: &[Function]) -> bool {
        let Some(of) = self.types.types().get(of.0 as usize) else { return false };
        let unseen = |f: &FunctionId| functions.get(f.0 as usize).is_some_and(Function::is_unseen);
        let of_path = |p: &CallPath| p.functions().iter().any(unseen);
        let mut trees = of.trees.iter().map(|&i| self.types.trees()[i].paths.paths());
        trees.all(|paths| paths.iter().all(of_path))
    }
}

/// A loop with its types in the order in which they are listed.
#[derive(Debug)]
pub struct Listed {
    /// The loop.
    pub key: LoopKey,
    /// Its types.
    pub of: LoopTypes,
    /// Number and row of each type, the costliest first. Numbers begin with 1 and go on from loop to loop; they
    /// change when more is learnt.
    pub rows: Vec<(usize, Row)>,
}

impl Profile {
    /// The types of a loop's units with their durations and names. `None` when the loop is not known.
    pub fn types(&self, of: &LoopKey, options: TypeOptions) -> Option<LoopTypes> {
        let l = self.loops.get(of)?;
        let mut types =
            UnitTypes::new(l.trees.iter().map(|(of, stats)| (of.clone(), stats.count())), options);
        // Trees are in the same order on both sides.
        let times = l.trees.iter().map(|(of, stats)| TreeTimes { stats, contexts: &of.contexts });
        let times: Vec<TreeTimes> = times.collect();
        let splits = types.refine(&times);
        let groups: Vec<Vec<usize>> = types.types().iter().map(|t| t.trees.clone()).collect();
        let first = precedence(&groups, &times);
        let labels: Vec<Cow<str>> = self.functions.iter().map(Function::label).collect();
        let name = |f: FunctionId| labels.get(f.0 as usize).map_or("?", |l| l.as_ref());
        let known = KnownTypes::new(l, &types, type_names(&types, name));
        let contexts = groups.iter().map(|g| contexts_of(g, &times)).collect();
        let trees = groups.iter().enumerate().flat_map(|(of, g)| g.iter().map(move |&t| (of, t)));
        let seen = trees.map(|(of, t)| (of, times[t].stats.count(), times[t].contexts.clone())).collect();
        Some(LoopTypes { types, contexts, seen, splits, first, known })
    }

    /// All loops with their types, numbered.
    pub fn listed(&self, options: TypeOptions, rule: Rule) -> Vec<Listed> {
        let mut number = 0;
        let listed = |key: &LoopKey| {
            let of = self.types(key, options)?;
            let numbered = |row| {
                number += 1;
                (number, row)
            };
            let rows = of.table(rule).into_iter().map(numbered).collect();
            Some(Listed { key: key.clone(), of, rows })
        };
        self.loops.keys().filter_map(listed).collect()
    }
}

impl Function {
    /// What stands in a call path for calls that were not seen: `how` says what is known of them (system calls and
    /// messages), so that units which did different things are told apart.
    pub fn unseen(how: &str) -> Self {
        let name = if how.is_empty() { format!("{UNSEEN})") } else { format!("{UNSEEN}: {how})") };
        Self { module: String::new(), name }
    }

    /// Its name; of one without a name the file that it is in, and where: `nginx+0x51af0`.
    pub fn label(&self) -> Cow<'_, str> {
        if self.name.starts_with("+0x") {
            format!("{}{}", self.module, self.name).into()
        } else {
            self.name.as_str().into()
        }
    }

    /// Is it one of these?
    pub fn is_unseen(&self) -> bool {
        self.module.is_empty() && self.name.starts_with(UNSEEN)
    }
}
