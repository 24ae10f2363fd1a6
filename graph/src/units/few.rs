//! How long units of a type may take of which few were learnt: what is estimated from few carries its uncertainty. An own
//! step, not the paper's.

use super::stats::UnitStats;
use pg_event::Ns;

/// Fewer units than this do not show how skewed their times are: of five thousand, the five that would
/// (`thresholds.rs`) are a thousandth.
pub(super) const FEW_FOR_THE_TAIL: u64 = 5_000;
/// What mean + 4 sigma is of durations that are normally distributed.
const K: f64 = 4.0;
/// The 95 % quantile of the normal distribution: how certain the bound is to let as many pass.
const CONFIDENT: f64 = 1.645;

/// How many deviations above the mean of `n` normally distributed values lies, with a confidence of 95 %, what the 4-sigma
/// quantile of their distribution is at most: a one-sided tolerance factor, as approximated by Natrella (NIST/SEMATECH
/// e-Handbook of Statistical Methods, 7.2.6.3). 5.2 of 30 values, 4.5 of 120, 4 of many; infinite of too few.
fn tolerance(n: u64) -> f64 {
    let n = n as f64;
    let a = 1.0 - CONFIDENT * CONFIDENT / (2.0 * (n - 1.0));
    let b = K * K - CONFIDENT * CONFIDENT / n;
    if n < 3.0 || a <= 0.0 { f64::INFINITY } else { (K + (K * K - a * b).max(0.0).sqrt()) / a }
}

/// Bounds of fewer than [`FEW_FOR_THE_TAIL`] durations, ns: were they normally distributed, and were their logarithms, as
/// latencies' are rather. `None` of more, or of too few to tell.
pub(super) fn bounds(stats: &UnitStats) -> Option<(Ns, Ns)> {
    let n = stats.count();
    let k = tolerance(n);
    if n >= FEW_FOR_THE_TAIL || !k.is_finite() {
        return None;
    }
    let plain = stats.mean()? + k * stats.sigma()?;
    let steps = || {
        stats.histogram().steps().map(|(from, to, n)| ((from.midpoint(to) as f64).max(1.0).ln(), n as f64))
    };
    let mean = steps().map(|(x, n)| x * n).sum::<f64>() / n as f64;
    let around: f64 = steps().map(|(x, n)| (x - mean) * (x - mean) * n).sum();
    let skewed = (mean + k * (around / (n - 1) as f64).sqrt()).exp();
    let ns = |x: f64| x.ceil().clamp(0.0, u64::MAX as f64) as Ns;
    Some((ns(plain), ns(skewed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_tell_less() {
        // Of k = 3.09 (99.9 %) the handbook's tables have 4.02 for 30 values; for 4 sigma the approximation says:
        for (n, factor) in [(30, 5.15), (68, 4.70), (120, 4.50), (360, 4.28), (4_999, 4.07)] {
            assert!((tolerance(n) - factor).abs() < 0.02, "{n} {}", tolerance(n));
        }
        assert!(tolerance(2).is_infinite() && tolerance(1_000_000) < 4.01);
    }

    /// 68 turns of an event loop: most take 45 us, some five times as long. Of the next ten thousand with such times many are
    /// above what was seen.
    #[test]
    fn times_that_are_skewed_are_bounded_by_their_logarithms() {
        let of = |x: f64| (45_000.0 * (0.6 * x).exp()) as Ns;
        // 68 quantiles of a normal distribution, roughly: logit / 1.7.
        let normal = |p: f64| (p / (1.0 - p)).ln() / 1.7;
        let stats = UnitStats::of((0..68).map(|i| of(normal((f64::from(i) + 0.5) / 68.0))));
        let (plain, skewed) = bounds(&stats).unwrap();
        let greatest = stats.greatest().unwrap();
        assert!(
            plain > stats.mean().unwrap() as Ns && skewed > 2 * greatest && skewed < 8 * greatest,
            "{plain} {skewed}"
        );
        assert!(skewed > of(4.0), "{skewed}: more than what it bounds");
        // Times that hardly differ: both say the same, and not much.
        let same = UnitStats::of((0..68).map(|i| 1_000_000 + 2_000 * (i % 50)));
        let (plain, skewed) = bounds(&same).unwrap();
        assert!(plain.abs_diff(skewed) < 20_000 && plain < 1_250_000, "{plain} {skewed}");
        assert_eq!((bounds(&UnitStats::of([5, 6])), bounds(&UnitStats::of(0..5_000))), (None, None));
    }
}
