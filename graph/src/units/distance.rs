//! How unlike two call paths are, and how unlike two units: equations 1 and 2; algorithm 1, lines 11 to 22.
//!
//! Where the paper can be read in several ways:
//! - Equation 1 writes `p_j`, equation 2 `q_i` where lines 12 to 14 and 20 to 21 have `q_j`: a path of the other
//!   unit. Taken: `q_j`.
//! - `∪` in lines 6 and 9 is that of sets: a path that was taken many times counts once.
//! - Line 3 begins with the root, so the root is part of each path and counts in |p|.
//! - Nothing is said of empty paths and sets, where the fractions are 0/0. Taken: two that are empty are equal
//!   (0), an empty set is as unlike a set with paths as can be (1).
//! - Equation 2 is the *mean over all pairs*, so the distance of a unit to itself is not 0 when it has several
//!   paths: {ABC, ADE} to itself is (0 + 2/3 + 2/3 + 0) / 4 = 1/3. That is what is printed, and what
//!   [`unit_distance`] gives. What it means for clustering is told at [`super::Measure`].

use super::lcs::Lcs;
use super::path::{CallPath, PathSet};

/// Paths whose distances are worked out once for all: 33 million pairs, 67 MB.
const MOST_CACHED: usize = 8192;
/// So many functions or more are not common, or it was not worked out.
const MANY: u8 = u8::MAX;

/// `PathDistance`, equation 1: the share of the longer path that is not common with the other; 0 (equal) to 1
/// (no function in common).
pub fn path_distance(p: &CallPath, q: &CallPath) -> f64 {
    distance_with(&mut Lcs::new(), p, q)
}

fn distance_with(lcs: &mut Lcs, p: &CallPath, q: &CallPath) -> f64 {
    fraction(missing(lcs, p, q), p.len().max(q.len()))
}

/// b - |l| of line 14.
fn missing(lcs: &mut Lcs, p: &CallPath, q: &CallPath) -> usize {
    p.len().max(q.len()) - lcs.length(p.functions(), q.functions())
}

fn fraction(missing: usize, longer: usize) -> f64 {
    if longer == 0 { 0.0 } else { missing as f64 / longer as f64 }
}

/// `UnitDistance`, equation 2: the mean distance of a path of `x` to a path of `y`, 0 to 1. The same number, to
/// the last bit, in both directions.
pub fn unit_distance(x: &PathSet, y: &PathSet) -> f64 {
    let mut lcs = Lcs::new();
    // Sums of floating-point numbers depend on their order: always the same one.
    let (x, y) = if x <= y { (x, y) } else { (y, x) };
    mean(x.len(), y.len(), |i, j| distance_with(&mut lcs, &x.paths()[i], &y.paths()[j]))
}

/// Lines 18 to 22 for sets of `m` and `n` paths.
fn mean(m: usize, n: usize, mut distance: impl FnMut(usize, usize) -> f64) -> f64 {
    match (m, n) {
        (0, 0) => return 0.0,
        (0, _) | (_, 0) => return 1.0,
        _ => {}
    }
    let mut sum = 0.0;
    for i in 0..m {
        for j in 0..n {
            sum += distance(i, j);
        }
    }
    sum / (m as f64 * n as f64)
}

/// Unit distances among many units that share paths: each pair of distinct paths is compared once.
#[derive(Debug)]
pub struct PathDistances {
    paths: Vec<CallPath>,
    /// b - |l| of each pair, row by row: a row is read from begin to end, which a half of the square would not allow. [`MANY`]
    /// stands for that and more. None where there are too many paths.
    missing: Option<Vec<u8>>,
    lcs: Lcs,
}

impl PathDistances {
    /// For units whose paths are among those of `sets`. The time grows with the square of the number of
    /// distinct paths (about 0.3 us a pair); above 8192 of them pairs are compared when they are needed.
    pub fn new<'a>(sets: impl IntoIterator<Item = &'a PathSet>) -> Self {
        let mut paths: Vec<&CallPath> = sets.into_iter().flat_map(PathSet::paths).collect();
        paths.sort_unstable();
        paths.dedup();
        let paths: Vec<CallPath> = paths.into_iter().cloned().collect();
        let mut lcs = Lcs::new();
        let missing = (paths.len() <= MOST_CACHED).then(|| {
            let n = paths.len();
            let mut all = vec![0; n * n];
            for (i, p) in paths.iter().enumerate() {
                for (j, q) in paths.iter().enumerate().skip(i + 1) {
                    let missing = u8::try_from(missing(&mut lcs, p, q)).unwrap_or(MANY);
                    (all[i * n + j], all[j * n + i]) = (missing, missing);
                }
            }
            all
        });
        Self { paths, missing, lcs }
    }

    /// The places of the paths of `set`, ascending; paths that were not given to [`Self::new`] are not there.
    pub fn places(&self, set: &PathSet) -> Vec<u32> {
        set.paths().iter().filter_map(|p| self.paths.binary_search(p).ok()).map(|i| i as u32).collect()
    }

    /// Equation 2 between sets given by the places of their paths, to the last bit as [`unit_distance`].
    pub fn unit(&mut self, x: &[u32], y: &[u32]) -> f64 {
        // Places ascend as paths do, so they order sets as paths would.
        let (x, y) = if x <= y { (x, y) } else { (y, x) };
        let (n, Self { paths, missing: known, lcs }) = (self.paths.len(), self);
        mean(x.len(), y.len(), |i, j| {
            let (i, j) = (x[i] as usize, y[j] as usize);
            let (p, q) = (&paths[i], &paths[j]);
            let missing = match known.as_ref().map_or(MANY, |all| all[i * n + j]) {
                MANY if i != j => missing(lcs, p, q),
                MANY => 0,
                few => few.into(),
            };
            fraction(missing, p.len().max(q.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::tests::{any_set, path, paths};
    use proptest::prelude::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn equation_1_on_the_call_paths_of_figure_4() {
        let d = |p, q| path_distance(&path(p), &path(q));
        // X and Y: ABEC is common, the longer has 6. X and Z: ABE of 5. Y and Z: ABED of 6.
        close(d("ABECF", "ABECDG"), 2.0 / 6.0);
        close(d("ABECF", "ABEDH"), 2.0 / 5.0);
        close(d("ABECDG", "ABEDH"), 2.0 / 6.0);
        close(d("ABECF", "ABECF"), 0.0);
        close(d("ABC", "DEF"), 1.0);
        // A subsequence has gaps: ACE of ABCDE.
        close(d("ABCDE", "ACE"), 2.0 / 5.0);
        close(d("", ""), 0.0);
        close(d("", "AB"), 1.0);
    }

    #[test]
    fn equation_2_on_the_units_of_figure_4() {
        let d = |x: &[&str], y: &[&str]| unit_distance(&paths(x), &paths(y));
        // With one path each it is equation 1.
        close(d(&["ABECF"], &["ABECDG"]), 1.0 / 3.0);
        // A unit that is X and then Z, against Y: (1/3 + 1/3) / (2 * 1).
        close(d(&["ABECF", "ABEDH"], &["ABECDG"]), 1.0 / 3.0);
        // Against X: (0 + 2/5) / 2; against itself: (0 + 2/5 + 2/5 + 0) / 4, which is not 0.
        close(d(&["ABECF", "ABEDH"], &["ABECF"]), 1.0 / 5.0);
        close(d(&["ABECF", "ABEDH"], &["ABECF", "ABEDH"]), 1.0 / 5.0);
        // X and Y against Y and Z: (1/3 + 2/5 + 0 + 1/3) / 4.
        close(d(&["ABECF", "ABECDG"], &["ABECDG", "ABEDH"]), (1.0 / 3.0 + 0.4 + 1.0 / 3.0) / 4.0);
        close(d(&["ABC", "ADE"], &["ABC", "ADE"]), 1.0 / 3.0);
        close(d(&[], &[]), 0.0);
        close(d(&[], &["A"]), 1.0);
    }

    /// The two request types of figure 3b by their call paths from `worker_main`, one letter a function:
    /// W worker_main, P ap_process_connection, C ap_run_create_connection, S ap_create_sb_handle, D dav_handler,
    /// M dav_method_propfind, R dav_get_resource, G dav_fs_get_resource, H default_handler, O apr_file_open,
    /// B ap_discard_request_body.
    #[test]
    fn equation_2_on_requests_like_those_of_figure_3() {
        let dav = paths(&["WCS", "WPDMRG", "WPDB"]);
        let html = paths(&["WCS", "WPHO", "WPHB"]);
        // Rows WCS, WPDMRG, WPDB; columns WCS, WPHO, WPHB.
        let rows = [
            [0.0, 3.0 / 4.0, 3.0 / 4.0],
            [5.0 / 6.0, 4.0 / 6.0, 4.0 / 6.0],
            [3.0 / 4.0, 2.0 / 4.0, 1.0 / 4.0],
        ];
        close(unit_distance(&dav, &html), rows.iter().flatten().sum::<f64>() / 9.0);
    }

    proptest! {
        #[test]
        fn units_distances_hold(x in any_set(), y in any_set(), z in any_set()) {
            let d = unit_distance(&x, &y);
            prop_assert!((0.0..=1.0).contains(&d));
            prop_assert_eq!(d.to_bits(), unit_distance(&y, &x).to_bits());
            let mut all = PathDistances::new([&x, &y, &z]);
            let (a, b) = (all.places(&x), all.places(&y));
            prop_assert_eq!(d.to_bits(), all.unit(&a, &b).to_bits());
            prop_assert_eq!(d.to_bits(), all.unit(&b, &a).to_bits());
            all.missing = None;
            prop_assert_eq!(d.to_bits(), all.unit(&a, &b).to_bits());
            for p in x.paths() {
                for q in y.paths() {
                    for r in z.paths() {
                        // Equation 1 is a metric: LCS keeps the triangle, and so does dividing by the longer.
                        prop_assert!(path_distance(p, r) <= path_distance(p, q) + path_distance(q, r) + 1e-12);
                    }
                }
            }
        }
    }
}
