//! The types that follow from a profile, and the list in which people see and number them.

use super::{Function, Limit, LoopKey, Profile};
use crate::units::inference::Context;
use crate::units::names::type_names;
use crate::units::path::{CallPath, FunctionId};
use crate::units::refine::TreeTimes;
use crate::units::stats::UnitStats;
use crate::units::table::{Row, table};
use crate::units::thresholds::{Caution, FEW, Rule, Threshold};
use crate::units::types::{TypeId, TypeOptions, UnitTypes};
use std::collections::BTreeSet;

/// Begin of the name of what stands for the calls of a unit of which too little was seen.
const UNSEEN: &str = "(unseen";

/// The types of a loop as a profile has them.
#[derive(Debug)]
pub struct LoopTypes {
    /// The types, by [`TypeId`]; functions are those of [`Profile::functions`].
    pub types: UnitTypes,
    /// The durations of each.
    pub stats: Vec<UnitStats>,
    /// The contexts of each: with a threshold they are [`crate::units::TypeContexts`].
    pub contexts: Vec<BTreeSet<Context>>,
    /// Contexts that tell types of much different times from each other, what explains most first.
    pub splits: Vec<Context>,
    /// The name of each: the one that a person gave, or one made of its functions.
    pub names: Vec<String>,
    /// How long units of each may take, as a person said.
    pub limits: Vec<Limit>,
    /// Whether violations of each are not to be told.
    pub silent: Vec<bool>,
}

impl LoopTypes {
    /// How long a unit of a type may take: as a person said, or by `rule`. What a handful of units took bounds nothing:
    /// units of such a type may take as long as those of the whole loop may, if that is more. `None` for a type without
    /// units.
    pub fn threshold(&self, of: TypeId, rule: Rule) -> Option<Threshold> {
        let i = of.0 as usize;
        let (limit, stats) = (self.limits.get(i)?, self.stats.get(i)?);
        let own = limit.threshold(stats, rule)?;
        if *limit != Limit::Auto || stats.count() >= FEW {
            return Some(own);
        }
        let mut all = UnitStats::default();
        self.stats.iter().for_each(|s| all.merge(s));
        let Some(all) = limit.threshold(&all, rule).filter(|a| a.ns > own.ns) else { return Some(own) };
        let caution = Caution::TooFew { have: stats.count(), need: FEW };
        let above = if stats.greatest()? <= all.ns { 0 } else { stats.histogram().above(all.ns) };
        Some(Threshold { ns: all.ns, above, caution: Some(caution) })
    }

    /// The types by cost, with these thresholds.
    pub fn table(&self, rule: Rule) -> Vec<Row> {
        let mut rows = table(&self.stats, rule);
        for row in &mut rows {
            row.threshold = self.threshold(TypeId(row.of as u32), rule).unwrap_or(row.threshold);
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
        let mut types = UnitTypes::new(l.trees.iter().map(|(p, t)| (p.clone(), t.stats.count())), options);
        // Trees are in the same order on both sides: sorted by their paths.
        let times = l.trees.values().map(|t| TreeTimes { stats: &t.stats, contexts: &t.contexts });
        let splits = types.refine(&times.collect::<Vec<_>>());
        let name = |f: FunctionId| self.functions.get(f.0 as usize).map_or("?", |f| f.name.as_str());
        let mut names = type_names(&types, name);
        let count = types.types().len();
        let mut stats = vec![UnitStats::default(); count];
        let mut contexts = vec![BTreeSet::new(); count];
        for (i, (paths, tree)) in l.trees.iter().enumerate() {
            let Some(t) = types.type_of(i) else { continue };
            debug_assert_eq!(&types.trees()[i].paths, paths);
            stats[t.0 as usize].merge(&tree.stats);
            contexts[t.0 as usize].extend(&tree.contexts);
        }
        let (mut limits, mut silent) = (vec![Limit::Auto; count], vec![false; count]);
        for (t, of) in types.types().iter().enumerate() {
            let said = || of.trees.iter().filter_map(|&i| l.settings.get(&types.trees()[i].paths));
            let name = said().filter_map(|s| s.name.as_ref()).max();
            if let Some(name) = name.filter(|n| !n.what.is_empty()) {
                names[t] = crate::words::clean(&name.what, 200);
            }
            limits[t] = said().filter_map(|s| s.limit.as_ref()).max().map_or(Limit::Auto, |l| l.what);
            silent[t] = said().filter_map(|s| s.silent.as_ref()).max().is_some_and(|s| s.what);
        }
        Some(LoopTypes { types, stats, contexts, splits, names, limits, silent })
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

    /// Is it one of these?
    pub fn is_unseen(&self) -> bool {
        self.module.is_empty() && self.name.starts_with(UNSEEN)
    }
}
