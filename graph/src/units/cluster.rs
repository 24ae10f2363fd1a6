//! Hierarchical clustering of a distance matrix, cut at a height.

use kodama::Method;
use serde::{Deserialize, Serialize};

/// How far apart two clusters are, given the distances of their members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Linkage {
    /// The least distance of two members: chains grow long.
    Single,
    /// The greatest distance of two members.
    Complete,
    /// The mean distance of two members (UPGMA). Section 4.3 names no linkage; a unit's distance is a mean over
    /// pairs of paths there, and this is the same one level up.
    #[default]
    Average,
}

/// One merge of two clusters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Merge {
    /// Who are merged, the smaller number first: an observation, or from `n` on the clusters in the order of
    /// their merges.
    pub of: (usize, usize),
    /// Their distance.
    pub height: f64,
    /// Observations in the new cluster.
    pub size: usize,
}

/// Merges `n` observations until one cluster is left, nearest first.
///
/// `distances` holds the pairs i < j row by row: (0,1), (0,2), ... (1,2), ...; it is used as working memory.
/// A length that does not fit `n` gives no merge at all.
pub fn merges(distances: &mut [f64], n: usize, linkage: Linkage) -> Vec<Merge> {
    if n < 2 || distances.len() != n * (n - 1) / 2 {
        return Vec::new();
    }
    let method = match linkage {
        Linkage::Single => Method::Single,
        Linkage::Complete => Method::Complete,
        Linkage::Average => Method::Average,
    };
    let tree = kodama::linkage(distances, n, method);
    let merge =
        |s: &kodama::Step<f64>| Merge { of: (s.cluster1, s.cluster2), height: s.dissimilarity, size: s.size };
    tree.steps().iter().map(merge).collect()
}

/// The clusters below `cut_off`: those merged at that distance or nearer. Each observation's cluster, numbered
/// in the order of their first observations.
pub fn cut(merges: &[Merge], n: usize, cut_off: f64) -> Vec<usize> {
    // The cluster that each observation or cluster went into, itself at first.
    let mut into: Vec<usize> = (0..n + merges.len()).collect();
    for (i, m) in merges.iter().enumerate().filter(|(_, m)| m.height <= cut_off) {
        for child in [m.of.0, m.of.1] {
            if let Some(of) = into.get_mut(child) {
                *of = n + i;
            }
        }
    }
    // Merges come after their parts: from the last on, everybody's end is known before it is asked for.
    for i in (0..into.len()).rev() {
        into[i] = into[into[i]];
    }
    let mut numbers = std::collections::HashMap::new();
    let number = |end: &usize| {
        let next = numbers.len();
        *numbers.entry(*end).or_insert(next)
    };
    into[..n].iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::tests::path;
    use crate::units::{PathSet, unit_distance};
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Deserialize)]
    struct Case {
        n: usize,
        units: Option<Vec<Vec<String>>>,
        distances: Vec<f64>,
        methods: BTreeMap<String, Expected>,
    }

    #[derive(Deserialize)]
    struct Expected {
        merges: Vec<[f64; 4]>,
        flat: Vec<Flat>,
    }

    #[derive(Deserialize)]
    struct Flat {
        at: f64,
        labels: Vec<usize>,
    }

    fn cases() -> Vec<Case> {
        serde_json::from_str(include_str!("../../tests/clustering/scipy.json")).expect("the file is whole")
    }

    /// Numbers in the order of first appearance.
    fn renumbered(labels: &[usize]) -> Vec<usize> {
        let mut seen = Vec::new();
        let number = |l: &usize| {
            seen.iter().position(|s| s == l).unwrap_or_else(|| {
                seen.push(*l);
                seen.len() - 1
            })
        };
        labels.iter().map(number).collect()
    }

    #[test]
    fn units_clustered_as_scipy_does() {
        let cases = cases();
        assert_eq!(cases.len(), 8);
        for case in cases {
            assert_eq!(case.methods.len(), 3);
            for (name, expected) in &case.methods {
                let linkage = match name.as_str() {
                    "single" => Linkage::Single,
                    "complete" => Linkage::Complete,
                    "average" => Linkage::Average,
                    other => panic!("{other}"),
                };
                let merges = merges(&mut case.distances.clone(), case.n, linkage);
                assert_eq!(merges.len(), case.n - 1);
                for (m, [a, b, height, size]) in merges.iter().zip(&expected.merges) {
                    let of = (a.min(*b) as usize, a.max(*b) as usize);
                    assert_eq!((m.of, m.size), (of, *size as usize), "{name} of {}", case.n);
                    assert!((m.height - height).abs() < 1e-12, "{name}: {} is not {height}", m.height);
                }
                assert!(!expected.flat.is_empty());
                for flat in &expected.flat {
                    let ours = cut(&merges, case.n, flat.at);
                    assert_eq!(ours, renumbered(&flat.labels), "{name} of {} at {}", case.n, flat.at);
                }
            }
        }
    }

    #[test]
    fn unit_distances_as_python_works_them_out() {
        let mut compared = 0;
        for case in cases() {
            let Some(units) = case.units else { continue };
            let sets: Vec<PathSet> =
                units.iter().map(|u| PathSet::new(u.iter().map(|word| path(word)))).collect();
            let mut expected = case.distances.iter();
            for (i, x) in sets.iter().enumerate() {
                for y in &sets[i + 1..] {
                    let d = unit_distance(x, y);
                    let e = expected.next().expect("a distance for each pair");
                    assert!((d - e).abs() < 1e-12, "{d} is not {e}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 15 + 66);
    }

    #[test]
    fn nothing_and_one() {
        assert!(merges(&mut [], 0, Linkage::Average).is_empty());
        assert!(merges(&mut [], 1, Linkage::Average).is_empty());
        assert!(merges(&mut [0.5], 3, Linkage::Average).is_empty());
        assert_eq!(cut(&[], 3, 1.0), [0, 1, 2]);
        let one = merges(&mut [0.25], 2, Linkage::Average);
        assert_eq!(one, [Merge { of: (0, 1), height: 0.25, size: 2 }]);
        // The cut-off itself merges, as scipy's does.
        assert_eq!(cut(&one, 2, 0.25), [0, 0]);
        assert_eq!(cut(&one, 2, 0.24), [0, 1]);
    }
}
