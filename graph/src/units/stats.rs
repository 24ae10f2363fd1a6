//! Durations of the units of a type, in figures that merge exactly.

use super::histogram::{Histogram, LONGEST};
use pg_event::Ns;
use serde::Serialize;

/// What is kept of many durations. All of it are integers that are added up (or the least and greatest of them),
/// so runs and machines can be merged in any order and give the same, bit by bit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UnitStats {
    count: u64,
    sum: u128,
    squares: u128,
    least: Option<Ns>,
    greatest: Option<Ns>,
    histogram: Histogram,
}

/// Why figures read from outside cannot be of any durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the figures of durations contradict each other: {0}")]
pub struct Contradiction(pub(super) &'static str);

impl UnitStats {
    /// Of these durations, in ns.
    pub fn of(durations: impl IntoIterator<Item = Ns>) -> Self {
        let mut stats = Self::default();
        durations.into_iter().for_each(|ns| stats.add(ns));
        stats
    }

    /// Adds a duration, in ns; what is above 13 days ([`LONGEST`]) counts as that.
    pub fn add(&mut self, ns: Ns) {
        let ns = ns.min(LONGEST);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(ns.into());
        self.squares = self.squares.saturating_add(u128::from(ns) * u128::from(ns));
        self.least = Some(self.least.map_or(ns, |l| l.min(ns)));
        self.greatest = self.greatest.max(Some(ns));
        self.histogram.add(ns);
    }

    /// Adds what another one counted. (Saturated sums merge alike in any order, too.)
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.least = match (self.least, other.least) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.greatest = self.greatest.max(other.greatest);
        self.histogram.merge(&other.histogram);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, in ns.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The least, in ns.
    pub fn least(&self) -> Option<Ns> {
        self.least
    }

    /// The greatest, in ns.
    pub fn greatest(&self) -> Option<Ns> {
        self.greatest
    }

    /// How they are distributed.
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// The arithmetic mean, mu in equation 3, in ns.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The standard deviation, sigma in equation 3, in ns: of a sample, with n - 1 below the line. (The paper does
    /// not say which; for few units this is the greater, so thresholds err towards fewer alarms.) `None` below two
    /// durations.
    pub fn sigma(&self) -> Option<f64> {
        if self.count < 2 {
            return None;
        }
        // With mean m + r/n in integers: the sum of squares around it is squares - m (sum + r) - r^2 / n, where
        // the great terms cancel before anything is rounded.
        let n = u128::from(self.count);
        let (m, r) = (self.sum / n, self.sum % n);
        let whole = self.squares.saturating_sub(m.saturating_mul(self.sum.saturating_add(r)));
        let around = (whole as f64 - (r as f64) * (r as f64) / n as f64).max(0.0);
        Some((around / (n - 1) as f64).sqrt())
    }

    /// The deviation relative to the mean, c in table 5, in percent.
    pub fn relative(&self) -> Option<f64> {
        let mean = self.mean().filter(|m| *m > 0.0)?;
        Some(100.0 * self.sigma()? / mean)
    }

    /// The empirical `q`-quantile (0 to 1): the least duration that a share of `q` does not exceed, at most 1/128
    /// more; in ns.
    pub fn quantile(&self, q: f64) -> Option<Ns> {
        let n = self.histogram.count();
        let rank = ((n as f64 * q.clamp(0.0, 1.0)).ceil() as u64).clamp(1, n.max(1));
        Some(self.histogram.at_rank(rank)?.min(self.greatest?))
    }

    /// The sum of squares, in ns^2.
    pub(super) fn squares(&self) -> u128 {
        self.squares
    }

    /// From figures that came from outside.
    ///
    /// # Errors
    /// [`Contradiction`] when no durations have these.
    pub(super) fn from_parts(
        sum: u128,
        squares: u128,
        least: Ns,
        greatest: Ns,
        histogram: Histogram,
    ) -> Result<Self, Contradiction> {
        let count = histogram.count();
        let Some((first, last)) = histogram.ends() else {
            let none = sum == 0 && squares == 0 && least == 0 && greatest == 0;
            return if none { Ok(Self::default()) } else { Err(Contradiction("durations without a count")) };
        };
        if greatest > LONGEST
            || super::histogram::step(least) != first
            || super::histogram::step(greatest) != last
        {
            return Err(Contradiction("least or greatest are not where the histogram begins and ends"));
        }
        // The sum lies between what the histogram allows at least and at most; so do the squares.
        let (mut sums, mut square_sums) = ((0u128, 0u128), (0u128, 0u128));
        for (from, to, n) in histogram.steps() {
            let (from, to, n) = (u128::from(from), u128::from(to), u128::from(n));
            sums = (sums.0.saturating_add(from * n), sums.1.saturating_add(to * n));
            let add = |s: u128, x: u128| s.saturating_add((x * x).saturating_mul(n));
            square_sums = (add(square_sums.0, from), add(square_sums.1, to));
        }
        if !(sums.0..=sums.1).contains(&sum) || !(square_sums.0..=square_sums.1).contains(&squares) {
            return Err(Contradiction("sums that do not fit the histogram"));
        }
        Ok(Self { count, sum, squares, least: Some(least), greatest: Some(greatest), histogram })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn mean_and_deviation() {
        let s = UnitStats::of([2, 4, 4, 4, 5, 5, 7, 9]);
        close(s.mean().unwrap(), 5.0);
        close(s.sigma().unwrap(), (32.0f64 / 7.0).sqrt());
        close(s.relative().unwrap(), 100.0 * (32.0f64 / 7.0).sqrt() / 5.0);
        assert_eq!(
            (s.least(), s.greatest(), s.quantile(0.5), s.quantile(1.0)),
            (Some(2), Some(9), Some(4), Some(9))
        );
        // A mean that is not whole, and no deviation although the numbers are great.
        close(UnitStats::of([1, 2]).sigma().unwrap(), 0.5f64.sqrt());
        close(UnitStats::of([LONGEST; 1000]).sigma().unwrap(), 0.0);
        close(UnitStats::of([LONGEST - 2, LONGEST, u64::MAX]).sigma().unwrap(), (4.0f64 / 3.0).sqrt());
        assert_eq!(UnitStats::of([7]).sigma(), None);
        assert_eq!((UnitStats::default().mean(), UnitStats::default().quantile(0.5)), (None, None));
    }

    proptest! {
        #[test]
        fn units_merged_in_any_way_are_the_whole(
            parts in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..20), 1..8),
            order in any::<prop::sample::Index>(),
            seed in any::<u64>(),
        ) {
            let whole = UnitStats::of(parts.iter().flatten().copied());
            // Merge two of them that are drawn, until one is left.
            let mut left: Vec<UnitStats> = parts.iter().map(|p| UnitStats::of(p.iter().rev().copied())).collect();
            let mut draw = seed;
            while left.len() > 1 {
                draw = draw.wrapping_mul(6364136223846793005).wrapping_add(1);
                let a = left.swap_remove((draw >> 33) as usize % left.len());
                let at = order.index(left.len());
                left[at].merge(&a);
            }
            prop_assert_eq!(&left[0], &whole);
            let write = |s: &UnitStats| serde_json::to_string(s).expect("figures can be written");
            prop_assert_eq!(write(&left[0]), write(&whole));
        }

        #[test]
        fn units_deviation_is_that_of_two_passes(all in prop::collection::vec(0u64..1 << 40, 2..50)) {
            let n = all.len() as f64;
            let mean = all.iter().map(|&x| x as f64).sum::<f64>() / n;
            let squares: f64 = all.iter().map(|&x| (x as f64 - mean).powi(2)).sum();
            let s = UnitStats::of(all);
            let expected = (squares / (n - 1.0)).sqrt();
            prop_assert!((s.sigma().unwrap() - expected).abs() <= 1e-9 * expected + 1e-3);
            let (least, greatest) = (s.least().unwrap(), s.greatest().unwrap());
            let read = UnitStats::from_parts(s.sum(), s.squares(), least, greatest, s.histogram().clone());
            prop_assert_eq!(read, Ok(s.clone()));
            let wrong = UnitStats::from_parts(s.sum() * 2 + 1000, s.squares(), least, greatest, s.histogram().clone());
            prop_assert!(wrong.is_err());
        }
    }
}
