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
fn what_guards_would_mistake_is_one_type() {
    // The slow ones come by nothing that the quick ones do not: they would be taken for these.
    let trees =
        [("AB", around(1000, 90)), ("A", around(9000, 90)), ("Z", around(5, 90)), ("Y", around(5, 90))];
    assert_eq!(
        refined(&trees, &[&[0, 1], &[2], &[3]], RefineOptions::default()).0,
        [vec![0, 1], vec![2], vec![3]]
    );
    // The other way round the quick ones are taken for what they are: it has the smaller threshold.
    let trees =
        [("AB", around(9000, 90)), ("A", around(1000, 90)), ("Z", around(5, 90)), ("Y", around(5, 90))];
    assert_eq!(refined(&trees, &[&[0, 1], &[2], &[3]], RefineOptions::default()).0.len(), 4);
}

proptest! {
    /// Every tree is in one type, of no other type before than it was; no type has units that are told as too slow since
    /// they are taken for another that it was split from; and the order of things does not matter.
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
        for (a, b) in confused(&refined.groups, &times) {
            let whole = |g: usize| before.iter().position(|w| w.contains(&refined.groups[g][0]));
            prop_assert_ne!(whole(a), whole(b));
        }
        let mut other = before;
        other.reverse();
        prop_assert_eq!(refine(other, &times, RefineOptions::default()).groups, refined.groups);
    }
}
