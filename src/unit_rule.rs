//! How long units of a type may take, as a person sets it: on the command line, and in a session.

use pg_event::{Ns, UnitTypeRow};
use std::fmt;

/// A rule for the threshold of a type of units.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum UnitRule {
    /// As it was learnt.
    Auto,
    /// No unit of the type takes too long.
    Silence,
    /// This long, ns.
    Fixed(Ns),
    /// The mean and this many standard deviations.
    Sigmas(f64),
    /// What this share of the units that were learnt from did not exceed, percent.
    Quantile(f64),
}

impl UnitRule {
    /// Reads `40ms`, `k=5`, `p99.9`, `auto` or `silence`.
    ///
    /// # Errors
    /// What may be written, when it is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = |n: &str, range: std::ops::RangeInclusive<f64>| {
            n.trim().parse::<f64>().ok().filter(|n| range.contains(n))
        };
        let rule = match text {
            "auto" => Some(Self::Auto),
            "silence" => Some(Self::Silence),
            _ => None,
        };
        let sigmas = || Some(Self::Sigmas(number(text.strip_prefix("k=")?, 0.0..=1000.0)?));
        let quantile = || Some(Self::Quantile(number(text.strip_prefix('p')?, 0.0..=100.0)?));
        rule.or_else(sigmas).or_else(quantile).or_else(|| duration(text).map(Self::Fixed)).ok_or_else(|| {
            let shown = crate::clean::clean_to(text, 40);
            format!("\"{shown}\" is no threshold: write a time (40ms, 1.5s), k=5, p99.9, auto or silence")
        })
    }

    /// How long units of this type may take by it, ns; `None` when that is not limited, or nothing was learnt that
    /// would tell.
    pub fn threshold(self, of: &UnitTypeRow) -> Option<Ns> {
        match self {
            Self::Auto => Some(of.threshold).filter(|t| *t > 0),
            Self::Silence => None,
            Self::Fixed(ns) => Some(ns),
            Self::Sigmas(k) => (of.mean > 0).then(|| of.mean.saturating_add((k * of.sigma as f64) as Ns)),
            Self::Quantile(p) => quantile(of, p / 100.0),
        }
    }

    /// The command that writes it into a profile.
    pub fn command(self, profile: &str, unit_type: &str) -> String {
        let (profile, unit_type) = (quoted(profile), quoted(unit_type));
        match self {
            Self::Silence => format!("pg-tui profile silence {profile} {unit_type}"),
            rule => format!("pg-tui profile threshold {profile} {unit_type} {rule}"),
        }
    }
}

/// As it is written.
impl fmt::Display for UnitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Silence => f.write_str("silence"),
            Self::Fixed(ns) if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            Self::Fixed(ns) if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            Self::Fixed(ns) if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            Self::Fixed(ns) => write!(f, "{ns}ns"),
            Self::Sigmas(k) => write!(f, "k={k}"),
            Self::Quantile(p) => write!(f, "p{p}"),
        }
    }
}

/// `40ms`, `1.5s`, `300us`, `800ns`; more than nothing, and below a day.
fn duration(text: &str) -> Option<Ns> {
    const DAY: f64 = 86_400e9;
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units.iter().find_map(|(name, ns)| Some((text.strip_suffix(name)?, ns)))?;
    let ns = number.trim().parse::<f64>().ok()? * unit;
    (1.0..=DAY).contains(&ns).then_some(ns.round() as Ns)
}

/// The greatest duration of the step that the share falls into.
fn quantile(of: &UnitTypeRow, share: f64) -> Option<Ns> {
    let total: u64 = of.histogram.iter().fold(0, |n, s| n.saturating_add(s.2));
    let rank = (share * total as f64).ceil().max(1.0) as u64;
    let mut before = 0u64;
    of.histogram.iter().find_map(|(_, greatest, n)| {
        before = before.saturating_add(*n);
        (before >= rank).then_some(*greatest)
    })
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt() -> UnitTypeRow {
        let histogram = vec![(1_000, 1_100, 90), (2_000, 2_100, 9), (9_000, 9_900, 1)];
        UnitTypeRow { mean: 1_200, sigma: 100, threshold: 1_600, histogram, ..UnitTypeRow::default() }
    }

    #[test]
    fn rules_are_read_written_and_applied() {
        for (text, rule, threshold, written) in [
            ("40ms", UnitRule::Fixed(40_000_000), Some(40_000_000), "40ms"),
            (" 1.5 s ", UnitRule::Fixed(1_500_000_000), Some(1_500_000_000), "1500ms"),
            ("2s", UnitRule::Fixed(2_000_000_000), Some(2_000_000_000), "2s"),
            ("3µs", UnitRule::Fixed(3_000), Some(3_000), "3us"),
            ("7ns", UnitRule::Fixed(7), Some(7), "7ns"),
            ("k=5", UnitRule::Sigmas(5.0), Some(1_700), "k=5"),
            ("p99", UnitRule::Quantile(99.0), Some(2_100), "p99"),
            ("p99.9", UnitRule::Quantile(99.9), Some(9_900), "p99.9"),
            ("p0", UnitRule::Quantile(0.0), Some(1_100), "p0"),
            ("auto", UnitRule::Auto, Some(1_600), "auto"),
            ("silence", UnitRule::Silence, None, "silence"),
        ] {
            assert_eq!(UnitRule::parse(text), Ok(rule), "{text}");
            assert_eq!((rule.threshold(&learnt()), rule.to_string().as_str()), (threshold, written));
            assert_eq!(UnitRule::parse(written), Ok(rule));
        }
        let odd =
            ["", "40", "-3ms", "0ms", "k=", "k=-1", "k=nan", "p101", "px", "1e99s", "inf s", "ms", "autos"];
        for text in odd {
            let refused = UnitRule::parse(text).unwrap_err();
            assert!(refused.contains("40ms") && refused.contains("silence"), "{refused}");
        }
        let nothing = UnitTypeRow::default();
        for rule in [UnitRule::Auto, UnitRule::Sigmas(4.0), UnitRule::Quantile(50.0)] {
            assert_eq!(rule.threshold(&nothing), None, "{rule}");
        }
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let fixed = UnitRule::Fixed(40_000_000);
        assert_eq!(fixed.command("app.pgprof", "serve"), "pg-tui profile threshold app.pgprof serve 40ms");
        assert_eq!(
            UnitRule::Silence.command("my app.pgprof", "it's $(x)"),
            r"pg-tui profile silence 'my app.pgprof' 'it'\''s $(x)'"
        );
    }
}
