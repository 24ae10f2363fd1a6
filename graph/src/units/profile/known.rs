//! What a profile says of a loop's types, kept apart from how they were found: to cluster a big profile takes minutes, and
//! whoever only names, limits or silences a type changes none.

use super::Limit;
use super::settings::CONFIDENCE;
use super::{LoopKey, LoopProfile, Profile};
use crate::units::few::bounds;
use crate::units::inference::Context;
use crate::units::path::{CallPath, FunctionId, PathSet};
use crate::units::stats::UnitStats;
use crate::units::thresholds::{Caution, FEW, Rule, Threshold, needed};
use crate::units::types::{TypeId, UnitTypes};

/// So many times the longest ever seen is too long, whatever is known: guards tell such at once, too (`bpf/guard.h`).
const FAR_BEYOND: u64 = 4;

/// The durations of the types of a loop, and what people say of them, by [`TypeId`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KnownTypes {
    /// The durations of each.
    pub stats: Vec<UnitStats>,
    /// The name of each: the one that a person gave, or one made of its functions.
    pub names: Vec<String>,
    /// How long units of each may take, as a person said.
    pub limits: Vec<Limit>,
    /// Whether violations of each are not to be told.
    pub silent: Vec<bool>,
    /// Names made of their functions.
    made: Vec<String>,
    /// The type of each call tree, in the order of the profile.
    type_of: Vec<TypeId>,
}

impl KnownTypes {
    /// Of the types of a loop, with the names that were made for them.
    pub(super) fn new(of: &LoopProfile, types: &UnitTypes, made: Vec<String>) -> Self {
        let count = types.types().len();
        let mut known = Self { stats: vec![UnitStats::default(); count], made, ..Self::default() };
        // Trees are in the same order on both sides.
        for (i, (called, stats)) in of.trees.iter().enumerate() {
            debug_assert_eq!(&types.trees()[i].called(), called);
            let t = types.type_of(i).unwrap_or(TypeId(0));
            known.type_of.push(t);
            known.stats[t.0 as usize].merge(stats);
        }
        known.hear(of);
        known
    }

    /// Takes over what people say in a profile of the same types.
    fn hear(&mut self, of: &LoopProfile) {
        let count = self.stats.len();
        let (mut names, mut limits, mut silent) = (vec![None; count], vec![None; count], vec![None; count]);
        for (called, t) in of.trees.keys().zip(&self.type_of) {
            let (Some(said), t) = (of.settings.get(called), t.0 as usize) else { continue };
            // The latest of all trees counts.
            names[t] = names[t].take().max(said.name.as_ref());
            limits[t] = limits[t].take().max(said.limit.as_ref());
            silent[t] = silent[t].take().max(said.silent.as_ref());
        }
        let name = |(made, said): (&String, Option<&super::settings::Dated<String>>)| match said {
            Some(said) if !said.what.is_empty() => crate::words::clean(&said.what, 200),
            _ => made.clone(),
        };
        self.names = self.made.iter().zip(names).map(name).collect();
        self.limits = limits.into_iter().map(|l| l.map_or(Limit::Auto, |l| l.what)).collect();
        self.silent = silent.into_iter().map(|s| s.is_some_and(|s| s.what)).collect();
    }

    /// Were enough units of the loop learnt to say how long any of them may take?
    pub fn is_enough(&self) -> bool {
        self.stats.iter().map(UnitStats::count).sum::<u64>() >= FEW
    }

    /// How long a unit of a type may take: as a person said, or by `rule`. What few units took bounds little: those of a type
    /// of fewer than 30 may take as long as those of the whole loop may, if that is more. By [`Rule::Auto`] those of up to
    /// 5,000 may take what bounds their type with a confidence of 95 %, were its times normally distributed; or their
    /// logarithms, as long as that is not more than units of the whole loop may take. (Where those are fewer than 299 their
    /// logarithms count, too, up to four times the longest: they are of several types, whose times differ in any case.) `None`
    /// for a type without units.
    pub fn threshold(&self, of: TypeId, rule: Rule) -> Option<Threshold> {
        let i = of.0 as usize;
        let (limit, stats) = (self.limits.get(i)?, self.stats.get(i)?);
        let own = limit.threshold(stats, rule)?;
        let rare = stats.count() < FEW;
        let few = bounds(stats).filter(|_| rule == Rule::Auto);
        if *limit != Limit::Auto || (!rare && few.is_none()) {
            return Some(own);
        }
        let mut all = UnitStats::default();
        self.stats.iter().for_each(|s| all.merge(s));
        let (plain, skewed) = bounds(&all).filter(|_| rule == Rule::Auto).unwrap_or_default();
        // From fewer it is not known how long one of a hundred takes, whatever their type.
        let hardly = all.count() < needed(0.99, CONFIDENCE);
        let far = all.greatest().unwrap_or(0).saturating_mul(FAR_BEYOND);
        let plain = if hardly { plain.max(skewed.min(far)) } else { plain };
        let of_all = limit.threshold(&all, rule).map_or(0, |t| t.ns.max(plain));
        let ns = match few {
            Some((plain, skewed)) if !rare => plain.max(skewed.min(of_all)),
            _ => of_all,
        };
        if ns <= own.ns {
            return Some(own);
        }
        let caution = rare.then_some(Caution::TooFew { have: stats.count(), need: FEW });
        let above = if stats.greatest()? <= ns { 0 } else { stats.histogram().above(ns) };
        Some(Threshold { ns, above, caution, skewed: false, few: true })
    }
}

impl Profile {
    /// The types of a loop with what people say of them in this profile, where it knows the same units of this loop as
    /// `before`, of which they are `known`. Nothing is clustered: it takes as long as it takes to compare both. `None` when
    /// it knows other units, and so may have other types, or does not know the loop.
    pub fn said_since(&self, before: &Self, of: &LoopKey, known: &KnownTypes) -> Option<KnownTypes> {
        let (was, is) = (before.loops.get(of)?, self.loops.get(of)?);
        // Functions are sorted in both: their numbers may differ, the order of trees and contexts does not.
        let number = |f| self.functions.binary_search(f).ok().map(|i| FunctionId(i as u32));
        let now: Vec<Option<FunctionId>> = before.functions.iter().map(number).collect();
        let now = |f: &FunctionId| now.get(f.0 as usize).copied().flatten();
        let same_path = |(a, b): (&CallPath, &CallPath)| {
            a.len() == b.len() && a.functions().iter().zip(b.functions()).all(|(a, b)| now(a) == Some(*b))
        };
        let same_paths =
            |a: &PathSet, b: &PathSet| a.len() == b.len() && a.paths().iter().zip(b.paths()).all(same_path);
        let same_context =
            |(a, b): (&Context, &Context)| a.depth == b.depth && now(&a.function) == Some(b.function);
        let same = was.trees.len() == is.trees.len()
            && known.type_of.len() == is.trees.len()
            && was.trees.iter().zip(&is.trees).all(|((a, a_stats), (b, b_stats))| {
                a_stats == b_stats
                    && a.contexts.len() == b.contexts.len()
                    && same_paths(&a.paths, &b.paths)
                    && a.contexts.iter().zip(&b.contexts).all(same_context)
            });
        if !same {
            return None;
        }
        let mut known = known.clone();
        known.hear(is);
        Some(known)
    }
}
