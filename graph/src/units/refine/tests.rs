//! Types split and put together again.

use super::*;
use crate::units::FunctionId;
use pg_event::Ns;
use proptest::prelude::*;

fn at(letter: char) -> Context {
    Context { function: FunctionId(letter.into()), depth: 64 }
}

/// Trees by the letters of what they come by, and times.
fn refined(
    trees: &[(&str, Vec<Ns>)],
    groups: &[&[usize]],
    options: RefineOptions,
) -> (Vec<Vec<usize>>, String) {
    let stats: Vec<UnitStats> = trees.iter().map(|t| UnitStats::of(t.1.iter().copied())).collect();
    let contexts: Vec<BTreeSet<Context>> = trees.iter().map(|t| t.0.chars().map(at).collect()).collect();
    let times: Vec<TreeTimes> =
        stats.iter().zip(&contexts).map(|(stats, contexts)| TreeTimes { stats, contexts }).collect();
    let of = refine(groups.iter().map(|g| g.to_vec()).collect(), &times, options);
    let letters = of.splits.iter().map(|c| char::from_u32(c.function.0).unwrap_or('?')).collect();
    (of.groups, letters)
}

/// Times around one.
fn around(ns: Ns, n: u64) -> Vec<Ns> {
    (0..n).map(|i| ns - ns / 50 + i * ns / 25 / n).collect()
}

#[test]
fn a_type_of_two_times_is_split_by_what_tells_them() {
    // All come by A; B and C tell quick from slow, D is come by now and then by both.
    let trees = [
        ("AB", around(1000, 50)),
        ("ABD", around(1000, 40)),
        ("AC", around(9000, 50)),
        ("ACD", around(9000, 30)),
    ];
    let (groups, splits) = refined(&trees, &[&[0, 1, 2, 3]], RefineOptions::default());
    assert_eq!((groups, splits.as_str()), (vec![vec![0, 1], vec![2, 3]], "B"));
    // Two types before stay two.
    let (groups, splits) =
        refined(&trees, &[&[0, 2], &[1, 3]], RefineOptions { most: 3, ..RefineOptions::default() });
    assert_eq!((groups.len(), splits.len()), (3, 1));
}

#[test]
fn what_takes_as_long_stays_together() {
    let trees = [("AB", around(1000, 90)), ("AC", around(1050, 90))];
    assert_eq!(refined(&trees, &[&[0, 1]], RefineOptions::default()).0, [vec![0, 1]]);
    // Few units say nothing.
    let trees = [("AB", around(1000, 90)), ("AC", around(9000, 29))];
    assert_eq!(refined(&trees, &[&[0, 1]], RefineOptions::default()).0, [vec![0, 1]]);
    // Nothing tells them apart.
    let trees = [("A", around(1000, 90)), ("A", around(9000, 90))];
    assert_eq!(refined(&trees, &[&[0, 1]], RefineOptions::default()).0, [vec![0, 1]]);
    assert_eq!(refined(&[], &[], RefineOptions::default()).0, [[0usize; 0]; 0]);
}

#[test]
fn a_type_of_many_kinds_of_work_is_split_though_none_explains_much_of_it() {
    // Forty pages, each by a function of its own, of 1 and of 2 ms.
    let pages: Vec<(String, Vec<Ns>)> = ('\u{100}'..'\u{128}')
        .enumerate()
        .map(|(i, l)| (format!("A{l}"), around(1_000_000 + 1_000_000 * (i as u64 % 2), 40)))
        .collect();
    let trees: Vec<(&str, Vec<Ns>)> = pages.iter().map(|(p, t)| (p.as_str(), t.clone())).collect();
    let group: Vec<usize> = (0..trees.len()).collect();
    let (groups, splits) = refined(&trees, &[&group], RefineOptions::default());
    assert!(groups.len() >= 20 && splits.len() + 1 >= groups.len(), "{groups:?} {splits}");
    let (whole, _) = refined(&trees, &[&group], RefineOptions { own: 2.0, ..RefineOptions::default() });
    assert_eq!(whole, [group]);
    // What some come by at random is no kind of work.
    let times =
        |seed: u64| (0..40).map(move |i| 1_000_000 + (i * 7919 + seed * 104_729) % 997 * 1000).collect();
    let trees = [("A", times(1)), ("AB", times(2)), ("AC", times(3)), ("AD", times(4))];
    assert_eq!(refined(&trees, &[&[0, 1, 2, 3]], RefineOptions::default()).0, [vec![0, 1, 2, 3]]);
}

#[test]
fn what_guards_cannot_tell_is_one_type() {
    let others = [("ZB", around(5, 90)), ("YB", around(5, 90))];
    let with = |own: [(&'static str, Vec<Ns>); 2]| [own.to_vec(), others.to_vec()].concat();
    // B is come by all but one: it tells nothing, and A nothing of these two.
    let trees = with([("AB", around(1000, 90)), ("A", around(9000, 90))]);
    let of = |trees: &[_]| refined(trees, &[&[0, 1], &[2], &[3]], RefineOptions::default()).0;
    assert_eq!(of(&trees), [vec![0, 1], vec![2], vec![3]]);
    // C tells the quick ones.
    let trees = with([("AC", around(1000, 90)), ("A", around(9000, 90))]);
    assert_eq!(of(&trees).len(), 4);
    let trees = with([("AC", around(9000, 90)), ("A", around(1000, 90))]);
    assert_eq!(of(&trees).len(), 4);
}

#[test]
fn what_hardly_any_unit_comes_by_tells_no_type() {
    // One of B's units came by what tells C's, too.
    let of = |rare| {
        let trees = [("AB", around(1000, 990)), ("ABC", around(1000, rare)), ("AC", around(9000, 990))];
        refined(
            &[&trees[..], &[("Z", around(5, 90)), ("Y", around(5, 90))]].concat(),
            &[&[0, 1, 2], &[3], &[4]],
            RefineOptions::default(),
        )
        .0
    };
    assert_eq!(of(1), [vec![0, 1], vec![2], vec![3], vec![4]]);
    let times =
        [UnitStats::of(around(1000, 297)), UnitStats::of(around(1000, 3)), UnitStats::of(around(1000, 2))];
    let contexts = ["A", "AB", "AC"].map(|t| t.chars().map(at).collect::<BTreeSet<_>>());
    let trees: Vec<TreeTimes> =
        times.iter().zip(&contexts).map(|(stats, contexts)| TreeTimes { stats, contexts }).collect();
    assert_eq!(contexts_of(&[0, 1], &trees), ['A', 'B'].map(at).into());
    assert_eq!(contexts_of(&[0, 1, 2], &trees), [at('A')].into());
    assert_eq!(contexts_of(&[2], &trees), ['A', 'C'].map(at).into());
}

/// [`precedence`] of types of one tree each.
fn preceding(trees: &[(&str, Vec<Ns>)]) -> Vec<(usize, usize)> {
    let stats: Vec<UnitStats> = trees.iter().map(|t| UnitStats::of(t.1.iter().copied())).collect();
    let contexts: Vec<BTreeSet<Context>> = trees.iter().map(|t| t.0.chars().map(at).collect()).collect();
    let times: Vec<TreeTimes> =
        stats.iter().zip(&contexts).map(|(stats, contexts)| TreeTimes { stats, contexts }).collect();
    precedence(&(0..trees.len()).map(|t| vec![t]).collect::<Vec<_>>(), &times)
}

#[test]
fn a_slow_type_that_comes_by_less_precedes_the_quick_one_that_comes_by_more() {
    let others = [("Z", around(5, 90)), ("Y", around(5, 90))];
    let of = |quick, slow| {
        preceding(&[&[("AC", around(quick, 90)), ("A", around(slow, 90))], &others[..]].concat())
    };
    assert_eq!(of(1000, 9000), [(1, 0)]);
    // It has the smaller threshold anyway; or takes no longer than the other may.
    assert_eq!(of(9000, 1000), []);
    assert_eq!(of(1000, 1001), []);
    // Each comes by something of its own.
    assert_eq!(preceding(&[("AC", around(1000, 90)), ("AD", around(9000, 90)), ("Z", around(5, 90))]), []);
}

proptest! {
    /// Every tree is in one type, of no other type before than it was; no units are told as too slow since they are taken
    /// for another type's; most units of a type are not taken for another's that it was split from; and the order of things
    /// does not matter.
    #[test]
    fn units_refined_are_the_same_units(
        drawn in prop::collection::vec((prop::collection::btree_set(0u32..8, 0..6), 1u64..5, 1u64..60, 0usize..3), 1..14),
    ) {
        let stats: Vec<UnitStats> =
            drawn.iter().map(|d| UnitStats::of(around(1000 * d.1 * d.1, d.2))).collect();
        let of = |c: &u32| Context { function: FunctionId(*c), depth: 8 };
        let contexts: Vec<BTreeSet<Context>> = drawn.iter().map(|d| d.0.iter().map(of).collect()).collect();
        let times: Vec<TreeTimes> =
            stats.iter().zip(&contexts).map(|(stats, contexts)| TreeTimes { stats, contexts }).collect();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); 3];
        drawn.iter().enumerate().for_each(|(i, d)| before[d.3].push(i));
        before.retain(|g| !g.is_empty());
        let refined = refine(before.clone(), &times, RefineOptions::default());
        let mut all: Vec<usize> = refined.groups.iter().flatten().copied().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..drawn.len()).collect::<Vec<_>>());
        for g in &refined.groups {
            prop_assert!(before.iter().any(|b| g.iter().all(|t| b.contains(t))));
        }
        let inferring = Inferring::of(&refined.groups, &times);
        for (own, &t) in refined.groups.iter().enumerate().flat_map(|(g, all)| all.iter().map(move |t| (g, t))) {
            let Some(other) = inferring.inferred(t) else { continue };
            let above = times[t].stats.histogram().above(inferring.limits[other].0);
            prop_assert!(other == own || above == 0 || inferring.limits[other].0 >= inferring.limits[own].0);
        }
        for (a, b) in inferring.confused() {
            let whole = |g: usize| before.iter().position(|w| w.contains(&refined.groups[g][0]));
            prop_assert_ne!(whole(a), whole(b));
        }
        let mut other = before;
        other.reverse();
        prop_assert_eq!(refine(other, &times, RefineOptions::default()).groups, refined.groups);
    }
}
