//! How long units may take while some functions are not probed: a type is held to its own limit as long as others that may
//! take longer are told from it.

use super::layout::CANDIDATES;
use super::plan::Plan;
use pg_event::Ns;
use std::collections::{BTreeMap, BTreeSet};

/// So many contexts tell a unit, if it was not by fewer from the beginning.
const ENOUGH: usize = 2;
/// One unit in so many may be taken for another type's, and told without cause.
const SELDOM: u64 = 10_000;

/// Is a function probed?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probed {
    /// It is.
    Yes,
    /// It is, but lately was not: units that are under way may have come by it unseen.
    Since,
    /// It is not.
    No,
}

/// Contexts of a loop: the function, and the types that come by it there.
pub type Contexts<'a> = Vec<(usize, &'a [usize])>;

/// Those of a loop of a plan that the programs know.
pub fn contexts(plan: &Plan, of_loop: usize) -> Contexts<'_> {
    let of = plan.contexts.iter().filter(|c| c.0 == of_loop && c.3.len() <= CANDIDATES);
    of.map(|c| (c.1, c.3.as_slice())).collect()
}

/// What units of a loop that were seen would be taken for by what they came by, while functions are `out`: the type each is
/// of, that it is taken for, and how many of all units of its type that are, where it is more than one in [`SELDOM`]. `ranks`
/// are the types as the programs count them: of equals the first.
fn taken(plan: &Plan, of_loop: usize, ranks: &[usize], out: impl Fn(usize) -> bool) -> Vec<(usize, usize)> {
    let Some(of) = plan.loops.get(of_loop) else { return Vec::new() };
    let mut all: BTreeMap<usize, u64> = BTreeMap::new();
    let mut wrong: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut hits = vec![0; ranks.len()];
    for seen in &of.seen {
        *all.entry(seen.of).or_default() += seen.units;
        hits.fill(0);
        let came_by = seen.contexts.iter().filter_map(|c| plan.contexts.get(*c));
        for (_, _, _, types) in came_by.filter(|c| c.3.len() <= CANDIDATES && !out(c.1)) {
            for &t in types.iter().filter(|t| **t < ranks.len()) {
                hits[t] += 1;
            }
        }
        let best = ranks.iter().copied().reduce(|a, b| if hits[b] > hits[a] { b } else { a });
        if let Some(t) = best.filter(|&t| hits[t] > 0 && t != seen.of) {
            *wrong.entry((seen.of, t)).or_default() += seen.units;
        }
    }
    let often = |((of, _), n): &(&(usize, usize), &u64)| n.saturating_mul(SELDOM) > all[of];
    wrong.iter().filter(often).map(|(pair, _)| *pair).collect()
}

/// The limits of the types of a loop (0: none), by their own, while functions are `probed` or not.
pub fn held(plan: &Plan, of_loop: usize, ranks: &[usize], probed: impl Fn(usize) -> Probed) -> Vec<Ns> {
    let (own, contexts) = (&plan.loops[of_loop].thresholds, contexts(plan, of_loop));
    let mut all = limits(own, &contexts, &probed);
    let out = |f| probed(f) != Probed::Yes;
    if contexts.iter().any(|c| out(c.0)) {
        for (of, t) in taken(plan, of_loop, ranks, out) {
            if let (Some(&own), Some(limit)) = (own.get(of), all.get_mut(t)) {
                *limit = longer(*limit, own);
            }
        }
    }
    all
}

fn longer(a: Ns, b: Ns) -> Ns {
    if a == 0 || b == 0 { 0 } else { a.max(b) }
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

/// The limits by their own and by its contexts, while functions are `probed` or not. A unit of one
/// type that comes by little which another type's do not may be taken for one of that, and must not be held to a limit that
/// its own kind exceeds: it is told as long as some of what tells them is probed. (Where they have nothing to tell them from
/// the beginning, something else does, or nothing.)
fn limits(own: &[Ns], contexts: &Contexts, probed: impl Fn(usize) -> Probed) -> Vec<Ns> {
    let mut all = vec![BTreeSet::new(); own.len()];
    let (mut left, mut met) = (all.clone(), all.clone());
    let mut any = false;
    for (i, (function, types)) in contexts.iter().enumerate() {
        let probed = probed(*function);
        any |= probed != Probed::Yes;
        for &t in types.iter().filter(|t| **t < own.len()) {
            all[t].insert(i);
            if probed == Probed::Yes {
                left[t].insert(i);
            }
            if probed != Probed::No {
                met[t].insert(i);
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
    let limit = |t: usize| {
        // What comes by nothing of another type is not taken for it.
        let taken_for_it =
            (0..own.len()).filter(|&o| o != t && !met[o].is_disjoint(&met[t]) && !is_told(o, t));
        taken_for_it.fold(own[t], |limit, o| longer(limit, own[o]))
    };
    (0..own.len()).map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::{GuardedLoop, SeenUnits};
    use super::*;

    fn no(out: bool) -> Probed {
        if out { Probed::No } else { Probed::Yes }
    }

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

    /// Three contexts tell the long type from the short one, but most of its units come by the hottest only, which rests.
    #[test]
    fn units_that_come_by_little_of_their_type_are_not_held_to_anothers_limit() {
        let seen = |of, units, contexts: &[usize]| SeenUnits { of, units, contexts: contexts.into() };
        let mut of = GuardedLoop { thresholds: vec![10, 500, 30], ..GuardedLoop::default() };
        of.seen = vec![
            seen(0, 46, &[0, 1]),
            seen(1, 9_000, &[0, 1, 2]),
            seen(1, 900, &[0, 2, 3, 4]),
            seen(2, 5, &[5]),
        ];
        let contexts = [(1, &[0, 1][..]), (2, &[0]), (3, &[1]), (4, &[1]), (5, &[1]), (6, &[2])];
        let contexts = contexts.map(|(f, types)| (0, f, 16, types.to_vec())).into();
        let mut plan = Plan { loops: vec![of], contexts, ..Plan::default() };
        let held = |plan: &Plan, out: &[usize]| held(plan, 0, &[0, 2, 1], |f| no(out.contains(&f)));
        assert_eq!(held(&plan, &[]), [10, 500, 30]);
        assert_eq!(held(&plan, &[3]), [500, 500, 30]);
        assert_eq!(
            limits(&[10, 500, 30], &super::contexts(&plan, 0), |f| no(f == 3)),
            [10, 500, 30],
            "by the contexts alone"
        );
        // Those that come by none of it are of no known type; one in ten thousand may be told without cause.
        assert_eq!(held(&plan, &[1, 2, 3]), [10, 500, 30]);
        plan.loops[0].seen[1].units = 1;
        plan.loops[0].seen[2].units = 10_000;
        assert_eq!(held(&plan, &[3]), [10, 500, 30]);
    }

    #[test]
    fn types_that_are_not_told_apart_may_take_as_long_as_each_other() {
        let own = [10, 500, 30, 0];
        // The first two come by function 1, the second alone by function 2, the third by 3, the last by 4 and 5.
        let contexts: Contexts = vec![(1, &[0, 1]), (2, &[1]), (3, &[2]), (4, &[3]), (5, &[3])];
        let of = |out: &[usize]| limits(&own, &contexts, |f| no(out.contains(&f)));
        assert_eq!(of(&[]), own);
        assert_eq!(of(&[2]), [500, 500, 30, 0], "one of the second looks like one of the first");
        // Of three things that tell them one may be lost, not two.
        let many: Contexts = vec![(1, &[0, 1]), (2, &[1]), (3, &[1]), (4, &[1])];
        let lost = |out: &[usize]| limits(&own[..2], &many, |f| no(out.contains(&f)));
        assert_eq!((lost(&[2]), lost(&[2, 3])), (vec![10, 500], vec![500, 500]));
        assert_eq!(of(&[3]), own, "what comes by nothing is of no known type");
        assert_eq!(of(&[4]), own);
        assert_eq!(of(&[1, 2, 3, 4, 5]), own);
        // All of them lately: who came by one that two share may have come by another unseen.
        assert_eq!(limits(&own, &contexts, |_| Probed::Since), [500, 500, 30, 0]);
        let since = |f| if f == 2 { Probed::Since } else { Probed::Yes };
        assert_eq!(limits(&own, &contexts, since), [500, 500, 30, 0]);
        // One without a limit.
        let contexts: Contexts = vec![(1, &[0, 3]), (2, &[3])];
        assert_eq!(limits(&own, &contexts, |f| no(f == 2)), [0, 500, 30, 0]);
        // Not told apart from the beginning: as it was.
        let contexts: Contexts = vec![(1, &[0, 1]), (2, &[2])];
        assert_eq!(limits(&own, &contexts, |f| no(f == 2)), own);
    }
}
