//! How long units may take while some functions are not probed: a type is held to its own limit as long as others that may
//! take longer are told from it.

use super::layout::CANDIDATES;
use super::plan::Plan;
use pg_event::Ns;
use std::collections::{BTreeMap, BTreeSet};

/// So many contexts tell a unit, if it was not by fewer from the beginning.
const ENOUGH: usize = 2;

/// Contexts of a loop: the function, and the types that come by it there.
pub type Contexts<'a> = Vec<(usize, &'a [usize])>;

/// Those of a loop of a plan that the programs know.
pub fn contexts(plan: &Plan, of_loop: usize) -> Contexts<'_> {
    let of = plan.contexts.iter().filter(|c| c.0 == of_loop && c.3.len() <= CANDIDATES);
    of.map(|c| (c.1, c.3.as_slice())).collect()
}

/// By function, numbers of pairs of types of which it shows that a unit is of the first and not of the second.
pub fn told(plan: &Plan) -> BTreeMap<usize, BTreeSet<u32>> {
    let mut all: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    let mut first = 0;
    for (i, of) in plan.loops.iter().enumerate() {
        let count = of.thresholds.len();
        for (function, types) in contexts(plan, i) {
            let others =
                |t: usize| (0..count).filter(move |o| !types.contains(o)).map(move |o| first + t * count + o);
            let pairs = types.iter().filter(|t| **t < count).flat_map(|&t| others(t)).map(|pair| pair as u32);
            all.entry(function).or_default().extend(pairs);
        }
        first += count * count;
    }
    all
}

/// The limits of the types of a loop (0: none), by their own and by its contexts, while functions are `out`. A unit of one
/// type that comes by little which another type's do not may be taken for one of that, and must not be held to a limit that
/// its own kind exceeds: it is told as long as some of what tells them is probed. (Where they have nothing to tell them from
/// the beginning, something else does, or nothing.)
pub fn limits(own: &[Ns], contexts: &Contexts, out: impl Fn(usize) -> bool) -> Vec<Ns> {
    let mut all = vec![BTreeSet::new(); own.len()];
    let mut left = all.clone();
    let mut any = false;
    for (i, (function, types)) in contexts.iter().enumerate() {
        let is_out = out(*function);
        any |= is_out;
        for &t in types.iter().filter(|t| **t < own.len()) {
            all[t].insert(i);
            if !is_out {
                left[t].insert(i);
            }
        }
    }
    if !any {
        return own.to_vec();
    }
    let is_told = |a: usize, b: usize| {
        let before = all[a].difference(&all[b]).count();
        let now = left[a].difference(&left[b]).count();
        // Not every unit of a type comes by each of its contexts.
        now >= before.min(ENOUGH) && 4 * now >= before
    };
    let longer = |a: Ns, b: Ns| if a == 0 || b == 0 { 0 } else { a.max(b) };
    let limit = |t: usize| {
        // What comes by nothing of another type is not taken for it.
        let taken_for_it =
            (0..own.len()).filter(|&o| o != t && !left[o].is_disjoint(&left[t]) && !is_told(o, t));
        taken_for_it.fold(own[t], |limit, o| longer(limit, own[o]))
    };
    (0..own.len()).map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::GuardedLoop;
    use super::*;

    #[test]
    fn what_a_function_tells() {
        let of = |count| GuardedLoop { thresholds: vec![9; count], ..GuardedLoop::default() };
        let contexts = vec![(0, 7, 16, vec![0, 2]), (1, 7, 16, vec![1]), (1, 8, 16, vec![0, 1])];
        let plan = Plan { loops: vec![of(3), of(2)], contexts, ..Plan::default() };
        // Of the first loop: first and third, which are not the second; of the other: second, which is not the first.
        let told = told(&plan);
        assert_eq!(told[&7], [1, 3 * 2 + 1, 9 + 2].into());
        assert!(told[&8].is_empty());
    }

    #[test]
    fn types_that_are_not_told_apart_may_take_as_long_as_each_other() {
        let own = [10, 500, 30, 0];
        // The first two come by function 1, the second alone by function 2, the third by 3, the last by 4 and 5.
        let contexts: Contexts = vec![(1, &[0, 1]), (2, &[1]), (3, &[2]), (4, &[3]), (5, &[3])];
        let of = |out: &[usize]| limits(&own, &contexts, |f| out.contains(&f));
        assert_eq!(of(&[]), own);
        assert_eq!(of(&[2]), [500, 500, 30, 0], "one of the second looks like one of the first");
        // Of three things that tell them one may be lost, not two.
        let many: Contexts = vec![(1, &[0, 1]), (2, &[1]), (3, &[1]), (4, &[1])];
        let lost = |out: &[usize]| limits(&own[..2], &many, |f| out.contains(&f));
        assert_eq!((lost(&[2]), lost(&[2, 3])), (vec![10, 500], vec![500, 500]));
        assert_eq!(of(&[3]), own, "what comes by nothing is of no known type");
        assert_eq!(of(&[4]), own);
        assert_eq!(of(&[1, 2, 3, 4, 5]), own);
        // One without a limit.
        let contexts: Contexts = vec![(1, &[0, 3]), (2, &[3])];
        assert_eq!(limits(&own, &contexts, |f| f == 2), [0, 500, 30, 0]);
        // Not told apart from the beginning: as it was.
        let contexts: Contexts = vec![(1, &[0, 1]), (2, &[2])];
        assert_eq!(limits(&own, &contexts, |f| f == 2), own);
    }
}
