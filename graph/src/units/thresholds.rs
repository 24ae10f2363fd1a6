//! How long a unit of a type may take: equation 3, and a bound of a quantile where latencies are skewed.

use super::stats::UnitStats;
use pg_event::Ns;
use serde::{Deserialize, Serialize};

/// Units below which mean and deviation say little.
pub(super) const FEW: u64 = 30;

/// Of the durations that were learnt so many, and this share, lie above mean + 4 sigma: they are too skewed for that.
const SKEWED: u64 = 5;
const SKEWED_SHARE: f64 = 0.001;
/// What bounds those.
const OF_SKEWED: Rule = Rule::Quantile { q: 0.9999, confidence: 0.95 };

/// How a threshold comes from durations.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub enum Rule {
    /// Mean + 4 sigma, as the paper has it. Where one of a thousand durations and more lie above that, it would be
    /// exceeded as often by what is usual: then what bounds 99.99 % of them, if that is more. (What fewer than 5,000
    /// durations say is not known so well: [`KnownTypes::threshold`](super::KnownTypes::threshold).)
    #[default]
    Auto,
    /// Equation 3: mean + k sigma. The paper takes k = 4 (section 6): 1 of 31,574 normally distributed values is
    /// greater. Latencies are not normally distributed: see [`Threshold::above`].
    Sigma {
        /// k.
        k: f64,
    },
    /// A bound of the `q`-quantile of the type: an order statistic of the n durations that is, with the given
    /// confidence, at least the true quantile, whatever the distribution.
    ///
    /// The j-th greatest of n independent durations is at least the q-quantile unless fewer than j of them lie
    /// above it; how many do is binomial with n and p = 1 - q. Taken is the greatest j with
    /// P(Binomial(n, p) <= j - 1) <= 1 - confidence. There is none when q^n > 1 - confidence: for q = 0.9999 and
    /// a confidence of 0.95, n must be 29,956. Then the greatest duration and mean + 4 sigma are taken,
    /// whichever is more, with [`Caution::TooFew`].
    Quantile {
        /// The share of units that the threshold is to let pass, 0 to 1.
        q: f64,
        /// How certain that is to be, 0 to 1.
        confidence: f64,
    },
}

/// What to be careful about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caution {
    /// There are fewer durations than the rule needs.
    TooFew {
        /// How many there are.
        have: u64,
        /// How many it takes.
        need: u64,
    },
    /// The rule's numbers are no numbers that make sense: defaults were taken.
    Rule,
}

/// A threshold and what speaks for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Threshold {
    /// A unit that takes longer is a violation; in ns.
    pub ns: Ns,
    /// Units, of those it was learnt from, that may have been above it (to the histogram's 0.8 %).
    pub above: u64,
    /// What to be careful about.
    pub caution: Option<Caution>,
    /// It was to be mean + 4 sigma, which the durations are too skewed for: the quantile was taken.
    pub skewed: bool,
    /// It is more than the rule says, since few durations do not tell that well (`few.rs`).
    pub few: bool,
}

/// The threshold for these durations. `None` when there are none.
pub fn threshold(stats: &UnitStats, rule: Rule) -> Option<Threshold> {
    let n = stats.count();
    let greatest = stats.greatest()?;
    let sigma_rule = |k: f64| {
        let ns = stats.mean().unwrap_or(0.0) + k * stats.sigma().unwrap_or(0.0);
        // From one duration no deviation is known: nothing below it is a bound.
        if n < 2 { greatest } else { ns.ceil().clamp(0.0, u64::MAX as f64) as Ns }
    };
    let (ns, caution) = match rule {
        Rule::Auto => return auto(stats),
        Rule::Sigma { k } if k.is_finite() && k >= 0.0 => {
            (sigma_rule(k), (n < FEW).then_some(Caution::TooFew { have: n, need: FEW }))
        }
        Rule::Quantile { q, confidence } if open(q) && open(confidence) => {
            let rank = rank_from_top(n, 1.0 - q, 1.0 - confidence);
            if let Some(ns) = rank.and_then(|j| stats.histogram().at_rank(n - j + 1)) {
                (ns.min(greatest), None)
            } else {
                let need = needed(q, confidence);
                (greatest.max(sigma_rule(4.0)), Some(Caution::TooFew { have: n, need }))
            }
        }
        _ => (sigma_rule(4.0), Some(Caution::Rule)),
    };
    // The steps of the histogram that reach above it; none when nothing was.
    let above = if greatest <= ns { 0 } else { stats.histogram().above(ns) };
    Some(Threshold { ns, above, caution, skewed: false, few: false })
}

/// [`Rule::Auto`].
fn auto(stats: &UnitStats) -> Option<Threshold> {
    let plain = threshold(stats, Rule::Sigma { k: 4.0 })?;
    if plain.above < SKEWED || (plain.above as f64) < SKEWED_SHARE * stats.count() as f64 {
        return Some(plain);
    }
    let bound = threshold(stats, OF_SKEWED).filter(|t| t.ns > plain.ns);
    Some(bound.map_or(plain, |t| Threshold { skewed: true, ..t }))
}

fn open(share: f64) -> bool {
    share > 0.0 && share < 1.0
}

/// Durations that a bound of the `q`-quantile takes at that confidence: the least n with q^n <= 1 - confidence.
pub fn needed(q: f64, confidence: f64) -> u64 {
    if open(q) && open(confidence) { ((1.0 - confidence).ln() / q.ln()).ceil() as u64 } else { 0 }
}

/// The greatest j with P(Binomial(n, p) <= j - 1) <= `risk`; `None` when there is none.
fn rank_from_top(n: u64, p: f64, risk: f64) -> Option<u64> {
    if n as f64 * p > 10_000.0 { rank_by_bound(n, p, risk) } else { rank_by_sum(n, p, risk) }
}

/// Summed term by term. The terms are kept as logarithms, since the first may be too small for a float.
fn rank_by_sum(n: u64, p: f64, risk: f64) -> Option<u64> {
    let odds = (p / (1.0 - p)).ln();
    let mut term = n as f64 * (-p).ln_1p();
    let mut sum = 0.0;
    let mut j = 0;
    while j <= n {
        sum += term.exp();
        if sum > risk {
            break;
        }
        // Terms 0 to j are within the risk: j + 1 is a rank.
        term += odds + ((n - j) as f64).ln() - ((j + 1) as f64).ln();
        j += 1;
    }
    (j > 0 && j <= n).then_some(j)
}

/// For many durations Chernoff's bound, P(Binomial(n, p) <= a n) <= exp(-n KL(a, p)) for a < p, takes the place
/// of the sum: on the safe side, and less than one standard deviation from it.
fn rank_by_bound(n: u64, p: f64, risk: f64) -> Option<u64> {
    let risky = |below: u64| {
        let a = below as f64 / n as f64;
        let part = |x: f64, y: f64| if x > 0.0 { x * (x / y).ln() } else { 0.0 };
        let kl = part(a, p) + part(1.0 - a, 1.0 - p);
        -(n as f64) * kl > risk.ln()
    };
    // The least `below` that is too risky lies between these.
    let (mut safe, mut too_many) = (0, (n as f64 * p) as u64);
    if risky(safe) {
        return None;
    }
    while too_many - safe > 1 {
        let middle = u64::midpoint(safe, too_many);
        if risky(middle) { too_many = middle } else { safe = middle }
    }
    Some(safe + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equation_3() {
        // Mean 5, sigma sqrt(32/7) = 2.138...
        let s = UnitStats::of([2, 4, 4, 4, 5, 5, 7, 9]);
        let at = |k| threshold(&s, Rule::Sigma { k }).unwrap().ns;
        assert_eq!((at(0.0), at(1.0), at(4.0)), (5, 8, 14));
        let t = threshold(&s, Rule::default()).unwrap();
        assert_eq!(
            t,
            Threshold {
                ns: 14,
                above: 0,
                caution: Some(Caution::TooFew { have: 8, need: 30 }),
                skewed: false,
                few: false
            }
        );
        assert_eq!(threshold(&s, Rule::Sigma { k: 1.0 }).unwrap().above, 1);
        assert_eq!(threshold(&UnitStats::of([7]), Rule::default()).unwrap().ns, 7);
        assert_eq!(threshold(&UnitStats::default(), Rule::default()), None);
        let bad = threshold(&s, Rule::Sigma { k: f64::NAN }).unwrap();
        assert_eq!((bad.ns, bad.caution), (14, Some(Caution::Rule)));
    }

    /// Turns of 5 us of which one in eighty takes 70: the deviation is 7, and all of those would be too long.
    #[test]
    fn what_is_often_above_the_deviation_is_bounded_by_a_quantile() {
        let turns = |n: u64, slow: u64| {
            UnitStats::of((0..n).map(|i| if i % slow == 0 { 70_000 + i % 7 } else { 5_000 }))
        };
        let plain = |s: &UnitStats| threshold(s, Rule::Sigma { k: 4.0 }).unwrap();
        let many = turns(80_000, 80);
        assert_eq!(plain(&many).above, 1000);
        let t = threshold(&many, Rule::Auto).unwrap();
        assert!(t.skewed && t.caution.is_none() && t.ns >= 70_000 && t.above == 0, "{t:?}");
        // Too few for the quantile: what was learnt is the bound.
        let t = threshold(&turns(8_000, 80), Rule::Auto).unwrap();
        assert!(t.skewed && t.ns >= 70_006 && t.caution.is_some(), "{t:?}");
        // One in two thousand is no habit, nor are four.
        for few in [turns(80_000, 2_000), turns(300, 80)] {
            assert!(plain(&few).above > 0);
            assert_eq!(threshold(&few, Rule::Auto), Some(plain(&few)));
        }
    }

    #[test]
    fn how_many_a_quantile_takes() {
        // Textbook values (Wilks): 59 for 95/95, 299 for 99/95; the 59th greatest of 59 is the only choice.
        assert_eq!((needed(0.95, 0.95), needed(0.99, 0.95), needed(0.9999, 0.95)), (59, 299, 29956));
        assert_eq!((rank_by_sum(58, 0.05, 0.05), rank_by_sum(59, 0.05, 0.05)), (None, Some(1)));
        assert_eq!((rank_by_sum(92, 0.05, 0.05), rank_by_sum(93, 0.05, 0.05)), (Some(1), Some(2)));
    }

    #[test]
    fn a_quantile_of_skewed_latencies() {
        let q = Rule::Quantile { q: 0.95, confidence: 0.95 };
        let t = threshold(&UnitStats::of((1..=93).map(|x| x * x)), q).unwrap();
        // The second greatest, 92^2 = 8464, to 1/128.
        assert!((8464..=8464 + 8464 / 128).contains(&t.ns) && t.caution.is_none() && t.above <= 2, "{t:?}");
        let few = threshold(&UnitStats::of((1..=58).map(|x| x * x)), q).unwrap();
        assert_eq!(few.caution, Some(Caution::TooFew { have: 58, need: 59 }));
        assert!(few.ns >= 58 * 58);
        let wrong = Rule::Quantile { q: 1.0, confidence: 0.5 };
        assert_eq!(threshold(&UnitStats::of([1, 2]), wrong).unwrap().caution, Some(Caution::Rule));
    }

    #[test]
    fn the_bound_for_many_is_safe_and_near() {
        for (n, p) in [(200_000, 0.01), (1_000_000, 0.002), (30_000, 0.3)] {
            let (sum, bound) = (rank_by_sum(n, p, 0.05).unwrap(), rank_by_bound(n, p, 0.05).unwrap());
            let deviation = (n as f64 * p * (1.0 - p)).sqrt();
            assert!(bound <= sum && (sum - bound) as f64 <= deviation, "{bound} {sum} {deviation}");
        }
        assert!(threshold(&UnitStats::of(0..20_000), Rule::Quantile { q: 0.4, confidence: 0.9 }).is_some());
    }

    proptest! {
        /// The binomial sum by Pascal's recurrence, which knows no logarithms.
        #[test]
        fn units_ranks_are_those_of_the_plain_sum(n in 1u64..120, p in 0.01..0.99f64, risk in 0.01..0.99f64) {
            let mut row = vec![1.0];
            for _ in 0..n {
                let mut next = vec![0.0; row.len() + 1];
                for (k, x) in row.iter().enumerate() {
                    next[k] += x * (1.0 - p);
                    next[k + 1] += x * p;
                }
                row = next;
            }
            let below = |j: u64| row[..j as usize].iter().sum::<f64>();
            let expected = (1..=n).filter(|&j| below(j) <= risk).max();
            let found = rank_by_sum(n, p, risk);
            // Where a sum meets the risk to within rounding, either is right.
            let edge = (1..=n + 1).any(|j| (below(j) - risk).abs() < 1e-9);
            prop_assert!(found == expected || edge, "{:?} {:?}", found, expected);
        }
    }
}
