//! Types found again in units whose types are known.

use super::*;
use crate::units::tests::{any_set, paths};
use crate::units::{CallTree, FunctionId};
use proptest::prelude::*;

/// Numbers that follow from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Stacks of one kind of request: a handler of its own below common frames, with `wide` branches of functions of
/// its own and of a library that all use.
fn kind(draw: &mut Draw, frames: u32, handler: u32, wide: u64) -> Vec<Vec<u32>> {
    let mut stacks = Vec::new();
    for branch in 0..wide {
        let mut stack: Vec<u32> = (0..frames).collect();
        stack.extend([handler, handler + 1 + branch as u32]);
        for _ in 0..=draw.below(3) {
            stack.push(handler + 20 + draw.below(10) as u32);
        }
        let library = 1000 + 10 * draw.below(6) as u32;
        stack.extend((library..).take(1 + draw.below(5) as usize));
        stacks.push(stack);
    }
    stacks
}

/// Units of several kinds, with the kind of each: a unit shows each of its kind's stacks with probability
/// `seen` percent; all begin with the same `frames`.
fn units(seed: u64, frames: u32, seen: u64) -> Vec<(PathSet, usize)> {
    let mut draw = Draw(seed);
    let kinds: Vec<_> = [1, 2, 4, 8, 16]
        .into_iter()
        .enumerate()
        .map(|(i, w)| kind(&mut draw, frames, 100 * (i as u32 + 1), w))
        .collect();
    let mut units = Vec::new();
    for (k, stacks) in kinds.iter().enumerate() {
        for _ in 0..20 {
            let mut tree = CallTree::new();
            for s in stacks {
                if draw.below(100) < seen {
                    tree.add(s.iter().map(|&f| FunctionId(f)));
                }
            }
            // A unit of which nothing was seen tells nothing.
            if !tree.paths().is_empty() {
                units.push((tree.paths(), k));
            }
        }
    }
    units
}

/// Pairs of units that are put together or apart as they should be, of all pairs.
fn right(units: &[(PathSet, usize)], options: TypeOptions) -> f64 {
    let types = UnitTypes::new(units.iter().map(|(p, _)| (p.clone(), 1)), options);
    let of = |p: &PathSet| match types.belongs(p) {
        Belongs::Known(t) => t,
        other => panic!("{other:?}"),
    };
    let (mut right, mut all) = (0, 0);
    for (i, (x, kx)) in units.iter().enumerate() {
        for (y, ky) in &units[i + 1..] {
            right += usize::from((kx == ky) == (of(x) == of(y)));
            all += 1;
        }
    }
    right as f64 / all as f64
}

/// The worst of several drawings, for each number of frames that all stacks begin with.
fn worst(options: TypeOptions, frames: &[u32], seen: u64) -> f64 {
    let all = frames.iter().flat_map(|&f| (0..2).map(move |seed| (f, seed)));
    all.map(|(f, seed)| right(&units(seed, f, seen), options)).fold(1.0, f64::min)
}

#[test]
fn units_of_known_types_are_found() {
    for seen in [70, 95, 100] {
        let found = worst(TypeOptions::default(), &[1, 4, 10], seen);
        assert!(found > 0.93, "{found} of the pairs, {seen} % of the stacks seen");
    }
}

/// Why [`Measure::Excess`] is the default: equation 2 holds the spread of each unit's own paths, which depends
/// on how many frames all stacks have in common.
#[test]
fn no_cut_off_of_equation_2_fits_short_and_long_stacks() {
    let mean = |cut_off| TypeOptions { measure: Measure::Mean, cut_off, ..TypeOptions::default() };
    for cut_off in (1..=19).map(|c| f64::from(c) * 0.05) {
        let found = worst(mean(cut_off), &[20, 1], 70);
        assert!(found < 0.9, "{found} of the pairs at {cut_off}");
    }
    // For stacks of one length there is one that does.
    assert!(worst(mean(0.5), &[4], 70) > 0.93);
}

proptest! {
    #[test]
    fn units_give_the_same_types_in_any_order(
        sets in prop::collection::vec((any_set(), 1u64..5), 0..12),
        cut_off in 0.0..1.0f64,
        most in 0usize..12,
    ) {
        let options = TypeOptions { cut_off, most, ..TypeOptions::default() };
        let forth = UnitTypes::new(sets.iter().cloned(), options);
        // Backwards, and each unit by itself.
        let single = |(s, n): &(PathSet, u64)| std::iter::repeat_n((s.clone(), 1), *n as usize);
        let back = UnitTypes::new(sets.iter().rev().flat_map(single), options);
        prop_assert_eq!(forth.trees(), back.trees());
        prop_assert_eq!(forth.types(), back.types());
        // Each tree is in one type, and the numbers add up.
        let mut members: Vec<usize> = forth.types().iter().flat_map(|t| t.trees.clone()).collect();
        members.sort_unstable();
        prop_assert_eq!(members, (0..forth.trees().len()).collect::<Vec<_>>());
        let total: u64 = sets.iter().map(|(_, n)| n).sum();
        prop_assert_eq!(forth.types().iter().map(|t| t.units).sum::<u64>(), total);
        for t in forth.types() {
            prop_assert!(t.trees.contains(&t.representative));
        }
    }

    #[test]
    fn units_belong_to_the_nearest(
        sets in prop::collection::vec(any_set(), 1..8),
        new in any_set(),
        measure in prop::sample::select(vec![Measure::Mean, Measure::Excess]),
    ) {
        let options = TypeOptions { measure, ..TypeOptions::default() };
        let types = UnitTypes::new(sets.iter().map(|s| (s.clone(), 1)), options);
        let reference = |s: &PathSet| {
            let d = super::super::unit_distance(s, &new);
            match measure {
                Measure::Mean => d,
                Measure::Excess => (d - f64::midpoint(
                    super::super::unit_distance(s, s),
                    super::super::unit_distance(&new, &new),
                )).max(0.0),
            }
        };
        let least = types.trees().iter().map(|t| reference(&t.paths)).fold(f64::INFINITY, f64::min);
        match types.belongs(&new) {
            Belongs::Known(t) => {
                let place = types.trees().iter().position(|t| t.paths == new);
                prop_assert_eq!(place.and_then(|p| types.type_of(p)), Some(t));
            }
            Belongs::Near(t, d) => {
                prop_assert_eq!(d.to_bits(), least.to_bits());
                prop_assert!(d <= options.unknown);
                let member = |&i: &usize| reference(&types.trees()[i].paths) <= least;
                prop_assert!(types.types()[t.0 as usize].trees.iter().any(member));
            }
            Belongs::New(far) => {
                prop_assert_eq!(far.map(|f| f.1), Some(least));
                prop_assert!(least > options.unknown);
            }
        }
    }
}

#[test]
fn nothing_is_known() {
    let none = UnitTypes::new([(); 0].map(|()| (PathSet::default(), 0)), TypeOptions::default());
    assert_eq!(none.belongs(&paths(&["AB"])), Belongs::New(None));
    assert_eq!(none.types(), []);
}

#[test]
fn the_cut_off_decides() {
    // X and Y of figure 4 are 1/3 apart, Z is 2/5 from X and 1/3 from Y.
    let figure_4 = || [(paths(&["ABECF"]), 5), (paths(&["ABECDG"]), 2), (paths(&["ABEDH"]), 3)];
    let number =
        |cut_off| UnitTypes::new(figure_4(), TypeOptions { cut_off, ..TypeOptions::default() }).types().len();
    assert_eq!(number(0.0), 3);
    assert_eq!(number(0.32), 3);
    // Average linkage: the pair that is merged first is (2/5 + 1/3) / 2 from the third.
    assert_eq!(number(0.34), 2);
    assert_eq!(number(0.36), 2);
    assert_eq!(number(0.37), 1);
    let types = UnitTypes::new(figure_4(), TypeOptions { cut_off: 0.0, ..TypeOptions::default() });
    assert_eq!(types.types().iter().map(|t| t.units).collect::<Vec<_>>(), [5, 3, 2]);
    assert_eq!(types.belongs(&paths(&["ABECF"])), Belongs::Known(TypeId(0)));
    assert_eq!(types.belongs(&paths(&["ABEDHI"])), Belongs::Near(TypeId(1), 1.0 / 6.0));
    assert!(matches!(types.belongs(&paths(&["WXYZ"])), Belongs::New(Some((_, 1.0)))));
}

#[test]
fn rare_trees_join_the_type_they_share_most_functions_with() {
    let trees = [("ABCD", 9), ("ABXY", 8), ("ABCE", 2), ("ABXZ", 3), ("PQ", 1), ("RST", 1)];
    let trees = trees.map(|(word, n)| (paths(&[word]), n));
    let types = UnitTypes::new(trees, TypeOptions { most: 2, ..TypeOptions::default() });
    // ABCE has ABC of ABCDE in common with the first; PQ and RST nothing with any, so they are one type.
    let of = |word: &str| {
        let place = types.trees().iter().position(|t| t.paths == paths(&[word])).expect("it is there");
        types.type_of(place).expect("each has a type").0
    };
    let found = ["ABCD", "ABCE", "ABXY", "ABXZ", "PQ", "RST"].map(of);
    // 11 units each; the one with ABCD comes first.
    assert_eq!(found, [0, 0, 1, 1, 2, 2]);
    assert_eq!(types.types().iter().map(|t| t.units).collect::<Vec<_>>(), [11, 11, 2]);
}
