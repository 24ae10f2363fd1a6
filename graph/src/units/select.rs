//! Which functions are guarded: those shared by units of the fewest types (section 5, "Low Run-Time Overhead").

use super::inference::Context;
use super::path::{CallPath, FunctionId};
use super::types::{TypeId, UnitTypes};
use std::collections::{BTreeMap, BTreeSet};

/// Types that share a context, at most: one that more share is not told by guards.
pub const MOST_SHARED: usize = 15;

/// Contexts that tell types from each other, each with these types, given the contexts of each type. Where more than half of
/// all types (rounded up: of three, each of two contexts may have two) come by, nothing is told: a unit that comes by no other
/// is of no known type, rather than of the shortest of all.
pub fn telling(contexts: &[BTreeSet<Context>]) -> BTreeMap<Context, Vec<usize>> {
    let mut told: BTreeMap<Context, Vec<usize>> = BTreeMap::new();
    for (t, c) in contexts.iter().enumerate().flat_map(|(t, all)| all.iter().map(move |c| (t, *c))) {
        told.entry(c).or_default().push(t);
    }
    let most = contexts.len().div_ceil(2).min(contexts.len().saturating_sub(1));
    told.retain(|_, types| types.len() <= most);
    told
}

/// A function that could be guarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The function.
    pub function: FunctionId,
    /// Types whose units call it.
    pub types: BTreeSet<TypeId>,
    /// How often it is called, in any unit common to all candidates (calls a second, say); 0 when not known. Of
    /// functions shared by as many types the one that is called less costs less.
    pub calls: u64,
}

/// How many are guarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectOptions {
    /// Functions at most.
    pub most: usize,
    /// Functions for each type at most, unless another type wants them.
    pub per_type: usize,
}

impl Default for SelectOptions {
    /// At most 200, as in the issue's own measurements; table 3 of the paper has 15 to 370.
    fn default() -> Self {
        Self { most: 200, per_type: 8 }
    }
}

/// Candidates: every function on the call paths of the types, with the types that call it; how often is not known
/// here.
pub fn candidates(types: &UnitTypes) -> Vec<Candidate> {
    let mut shared: BTreeMap<FunctionId, BTreeSet<TypeId>> = BTreeMap::new();
    for (i, tree) in types.trees().iter().enumerate() {
        let Some(t) = types.type_of(i) else { continue };
        for f in tree.paths.paths().iter().flat_map(CallPath::functions) {
            shared.entry(*f).or_default().insert(t);
        }
    }
    shared.into_iter().map(|(function, types)| Candidate { function, types, calls: 0 }).collect()
}

/// The functions to guard, the most telling first.
///
/// The paper instruments "the functions that are shared by the least number of units of distinct types" and does
/// not say how many, nor what becomes of types that share all of theirs. Taken: in rounds; in round r each type
/// that has fewer than r functions yet gets the one of its own that the fewest types share. So no type goes
/// without while another has many.
pub fn select(candidates: &[Candidate], options: SelectOptions) -> Vec<FunctionId> {
    let mut order: Vec<&Candidate> = candidates.iter().filter(|c| !c.types.is_empty()).collect();
    order.sort_by_key(|c| (c.types.len(), c.calls, c.function));
    let mut of_type: BTreeMap<TypeId, Vec<usize>> = BTreeMap::new();
    for (i, t) in order.iter().enumerate().flat_map(|(i, c)| c.types.iter().map(move |t| (i, *t))) {
        of_type.entry(t).or_default().push(i);
    }
    // What each type has, and where in its list it goes on.
    let mut has: BTreeMap<TypeId, usize> = BTreeMap::new();
    let mut next: BTreeMap<TypeId, usize> = BTreeMap::new();
    let mut taken = vec![false; order.len()];
    let mut chosen = Vec::new();
    for round in 1..=options.per_type {
        let before = chosen.len();
        for (t, list) in &of_type {
            if chosen.len() >= options.most {
                return chosen;
            }
            if has.get(t).is_some_and(|&n| n >= round) {
                continue;
            }
            let at = next.entry(*t).or_default();
            while list.get(*at).is_some_and(|&i| taken[i]) {
                *at += 1;
            }
            let Some(&i) = list.get(*at) else { continue };
            taken[i] = true;
            chosen.push(order[i].function);
            for t in &order[i].types {
                *has.entry(*t).or_default() += 1;
            }
        }
        if before == chosen.len() && chosen.len() == order.len() {
            break;
        }
    }
    chosen
}

/// The functions to guard of types that were split by these contexts: those first, then as [`select`] has it.
pub fn guards(splits: &[Context], candidates: &[Candidate], options: SelectOptions) -> Vec<FunctionId> {
    let known: BTreeSet<FunctionId> = candidates.iter().map(|c| c.function).collect();
    let mut chosen: Vec<FunctionId> = Vec::new();
    let split = splits.iter().map(|c| c.function).filter(|f| known.contains(f));
    for f in split.chain(select(candidates, options)) {
        if chosen.len() < options.most && !chosen.contains(&f) {
            chosen.push(f);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TypeOptions;
    use crate::units::tests::paths;
    use proptest::prelude::*;

    fn letters(functions: &[FunctionId]) -> String {
        functions.iter().map(|f| char::from_u32(f.0).unwrap_or('?')).collect()
    }

    #[test]
    fn figure_4_guards_what_only_one_type_calls() {
        let trees = [(paths(&["ABECF"]), 3), (paths(&["ABECDG"]), 2), (paths(&["ABEDH"]), 1)];
        let types = UnitTypes::new(trees, TypeOptions { cut_off: 0.0, ..TypeOptions::default() });
        let all = candidates(&types);
        let of = |l: char| all.iter().find(|c| c.function == FunctionId(l.into())).map(|c| c.types.len());
        assert_eq!("ABECDFGH".chars().map(|l| of(l).unwrap()).collect::<Vec<_>>(), [3, 3, 3, 2, 2, 1, 1, 1]);
        let select = |most, per_type| letters(&select(&all, SelectOptions { most, per_type }));
        assert_eq!(select(200, 1), "FGH");
        // Then what two types share; the second round of Y and Z is done by C (X and Y) and D (Y and Z).
        assert_eq!(select(200, 2), "FGHCD");
        assert_eq!(select(2, 2), "FG");
        assert_eq!(select(200, 200).len(), 8);
        assert_eq!(select(0, 5), "");
    }

    #[test]
    fn of_equals_the_one_that_is_called_less() {
        let one =
            |function, calls| Candidate { function: FunctionId(function), types: [TypeId(0)].into(), calls };
        let chosen = select(&[one(1, 900), one(2, 3), one(3, 40)], SelectOptions { most: 9, per_type: 2 });
        assert_eq!(chosen, [FunctionId(2), FunctionId(3)]);
    }

    #[test]
    fn what_most_types_come_by_tells_nothing() {
        let at = |f, depth| Context { function: FunctionId(f), depth };
        // Function 1 is called by all, at one depth of two by half of them; function 2 by one.
        let contexts = [
            [at(1, 8), at(1, 16), at(2, 24)].into(),
            [at(1, 8), at(1, 16)].into(),
            [at(1, 8)].into(),
            [at(1, 8)].into(),
        ];
        assert_eq!(telling(&contexts), [(at(1, 16), vec![0, 1]), (at(2, 24), vec![0])].into());
        // Of three types one comes by both, the others by one each.
        let three = [[at(1, 8), at(2, 8)].into(), [at(1, 8)].into(), [at(2, 8)].into()];
        assert_eq!(telling(&three), [(at(1, 8), vec![0, 1]), (at(2, 8), vec![0, 2])].into());
        // The only type needs no telling.
        assert!(telling(&contexts[..1]).is_empty());
    }

    #[test]
    fn what_explains_times_is_guarded_first() {
        let one =
            |function| Candidate { function: FunctionId(function), types: [TypeId(0)].into(), calls: 0 };
        let at = |f| Context { function: FunctionId(f), depth: 8 };
        let guards = |most| {
            guards(&[at(3), at(9), at(3)], &[one(1), one(2), one(3)], SelectOptions { most, per_type: 1 })
        };
        // 9 is no candidate; 1 is what `select` takes.
        assert_eq!(guards(5), [FunctionId(3), FunctionId(1)]);
        assert_eq!(guards(1), [FunctionId(3)]);
    }

    /// The same by looking through everything for each choice.
    fn reference(candidates: &[Candidate], options: SelectOptions) -> Vec<FunctionId> {
        let mut chosen: Vec<&Candidate> = Vec::new();
        let types: BTreeSet<TypeId> = candidates.iter().flat_map(|c| c.types.iter().copied()).collect();
        for round in 1..=options.per_type {
            for t in &types {
                let has = chosen.iter().filter(|c| c.types.contains(t)).count();
                if chosen.len() == options.most || has >= round {
                    continue;
                }
                let left = candidates.iter().filter(|c| c.types.contains(t) && !chosen.contains(c));
                chosen.extend(left.min_by_key(|c| (c.types.len(), c.calls, c.function)));
            }
        }
        chosen.iter().map(|c| c.function).collect()
    }

    proptest! {
        #[test]
        fn units_guards_are_those_of_the_plain_search(
            sets in prop::collection::vec((prop::collection::btree_set((0u32..6).prop_map(TypeId), 0..6), 0u64..3), 0..20),
            most in 0usize..20,
            per_type in 0usize..6,
        ) {
            let one = |(i, (types, calls)): (usize, (BTreeSet<TypeId>, u64))| {
                Candidate { function: FunctionId(i as u32), types, calls }
            };
            let candidates: Vec<Candidate> = sets.into_iter().enumerate().map(one).collect();
            let options = SelectOptions { most, per_type };
            prop_assert_eq!(select(&candidates, options), reference(&candidates, options));
        }
    }
}
