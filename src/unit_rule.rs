//! How long units of a type may take, as a person sets it: on the command line, and in a session.

use pg_event::{Ns, UnitTypeRow};
use pg_graph::units::{Limit, Threshold};
use std::fmt;

/// What a person decided about the guard of a type of units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitRule {
    /// No unit of the type takes too long.
    Silence,
    /// They may take this long.
    Limit(Limit),
}

impl UnitRule {
    /// What was learnt of the type, with nothing decided.
    pub const AUTO: Self = Self::Limit(Limit::Auto);

    /// Reads a threshold (see [`parse_limit`]) or `silence`.
    ///
    /// # Errors
    /// What may be written, when it is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "silence" => Ok(Self::Silence),
            text => parse_limit(text).map(Self::Limit).map_err(|_| {
                let shown = crate::clean::clean_to(text, 40);
                format!("\"{shown}\" is no threshold: write a time (40ms, 1.5s), k=5, p99.9, auto or silence")
            }),
        }
    }

    /// How long units of this type may take by it, ns; `None` when that is not limited, or nothing was learnt that
    /// would tell. Of a quantile the step of the histogram that it falls into: the profile, which has more, may bound
    /// it better.
    pub fn threshold(self, of: &UnitTypeRow) -> Option<Ns> {
        match self {
            Self::Silence => None,
            Self::Limit(Limit::Auto) => Some(of.threshold).filter(|t| *t > 0),
            Self::Limit(Limit::Fixed(ns)) => Some(ns),
            Self::Limit(Limit::Sigma(k)) => {
                let above = u128::from(k) * u128::from(of.sigma) / 1000;
                (of.mean > 0).then(|| of.mean.saturating_add(above.min(u128::from(Ns::MAX)) as Ns))
            }
            Self::Limit(Limit::Quantile(q)) => quantile(of, q),
        }
    }

    /// The command that writes it into a profile.
    pub fn command(self, profile: &str, unit_type: &str) -> String {
        let (profile, unit_type) = (quoted(profile), quoted(unit_type));
        match self {
            Self::Silence => format!("pg-tui profile silence {profile} {unit_type}"),
            Self::Limit(_) => format!("pg-tui profile threshold {profile} {unit_type} {self}"),
        }
    }
}

/// As it is written.
impl fmt::Display for UnitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Silence => f.write_str("silence"),
            Self::Limit(Limit::Auto) => f.write_str("auto"),
            Self::Limit(Limit::Fixed(ns)) if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            Self::Limit(Limit::Fixed(ns)) if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            Self::Limit(Limit::Fixed(ns)) => write!(f, "{}us", ns as f64 / 1e3),
            Self::Limit(Limit::Sigma(k)) => write!(f, "k={}", f64::from(k) / 1e3),
            Self::Limit(Limit::Quantile(q)) => write!(f, "p{}", f64::from(q) / 1e4),
        }
    }
}

/// Where a threshold comes from, in words.
pub fn rule_words(limit: Limit) -> String {
    match limit {
        Limit::Auto => "mean + 4 sigma".into(),
        Limit::Fixed(_) => "set by hand".into(),
        Limit::Sigma(k) => format!("mean + {} sigma", f64::from(k) / 1e3),
        Limit::Quantile(q) => format!("{} % quantile", f64::from(q) / 1e4),
    }
}

/// The same of a threshold that it came to.
pub fn threshold_words(limit: Limit, of: Option<&Threshold>) -> String {
    match of {
        Some(t) if t.skewed => "99.99 % quantile".into(),
        Some(t) if t.few => "bounded from few units".into(),
        _ => rule_words(limit),
    }
}

/// A threshold: `40ms`, `k=5`, `p99.9`, `auto`.
///
/// # Errors
/// What is expected.
pub fn parse_limit(text: &str) -> Result<Limit, String> {
    let number =
        |text: &str, least: f64, most: f64| text.parse::<f64>().ok().filter(|n| (least..=most).contains(n));
    if text == "auto" {
        return Ok(Limit::Auto);
    }
    if let Some(k) = text.strip_prefix("k=") {
        let k = number(k, 0.0, 1e6).ok_or("k is a number, such as k=5")?;
        return Ok(Limit::Sigma((k * 1e3).round() as u32));
    }
    if let Some(q) = text.strip_prefix('p') {
        let q =
            number(q, 0.0001, 99.9999).ok_or("a quantile is between p0.0001 and p99.9999, such as p99.9")?;
        return Ok(Limit::Quantile((q * 1e4).round() as u32));
    }
    match duration(text) {
        Some(ns) if ns > 0 => Ok(Limit::Fixed(ns)),
        _ => Err("a time (40ms), k=5, p99.9 or auto is expected".into()),
    }
}

/// A time with its unit, as ns. Units of a server may take microseconds, which no other option of pg-tui does.
pub fn duration(text: &str) -> Option<Ns> {
    const LONGEST: f64 = 1e16;
    let units = [
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("min", 60e9),
        ("m", 60e9),
        ("h", 3600e9),
        ("s", 1e9),
        ("", 1e9),
    ];
    let (number, scale) = units.iter().find_map(|(name, scale)| Some((text.strip_suffix(name)?, scale)))?;
    let ns = number.trim().parse::<f64>().ok()? * scale;
    (0.0..=LONGEST).contains(&ns).then_some(ns.round() as Ns)
}

/// The greatest duration of the step that a quantile, in millionths, falls into.
fn quantile(of: &UnitTypeRow, q: u32) -> Option<Ns> {
    let total: u128 = of.histogram.iter().map(|s| u128::from(s.2)).sum();
    let rank = (total * u128::from(q)).div_ceil(1_000_000).max(1);
    let mut before = 0u128;
    of.histogram.iter().find_map(|(_, greatest, n)| {
        before += u128::from(*n);
        (before >= rank).then_some(*greatest)
    })
}

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
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
        let limit = UnitRule::Limit;
        for (text, rule, threshold, written) in [
            ("40ms", limit(Limit::Fixed(40_000_000)), Some(40_000_000), "40ms"),
            (" 1.5s ", limit(Limit::Fixed(1_500_000_000)), Some(1_500_000_000), "1500ms"),
            ("2", limit(Limit::Fixed(2_000_000_000)), Some(2_000_000_000), "2s"),
            ("2min", limit(Limit::Fixed(120_000_000_000)), Some(120_000_000_000), "120s"),
            ("250us", limit(Limit::Fixed(250_000)), Some(250_000), "250us"),
            // As pg-tui itself writes times.
            ("250 µs", limit(Limit::Fixed(250_000)), Some(250_000), "250us"),
            ("0.007us", limit(Limit::Fixed(7)), Some(7), "0.007us"),
            ("k=5", limit(Limit::Sigma(5_000)), Some(1_700), "k=5"),
            ("k=2.5", limit(Limit::Sigma(2_500)), Some(1_450), "k=2.5"),
            ("p99", limit(Limit::Quantile(990_000)), Some(2_100), "p99"),
            ("p99.9", limit(Limit::Quantile(999_000)), Some(9_900), "p99.9"),
            ("auto", UnitRule::AUTO, Some(1_600), "auto"),
            ("silence", UnitRule::Silence, None, "silence"),
        ] {
            assert_eq!(UnitRule::parse(text), Ok(rule), "{text}");
            assert_eq!((rule.threshold(&learnt()), rule.to_string().as_str()), (threshold, written));
            assert_eq!(UnitRule::parse(written), Ok(rule));
        }
        let wrong = [
            "", "0ms", "-3ms", "k=", "k=-1", "k=x", "k=nan", "p0", "p100", "px", "1e99s", "inf s", "ms",
            "fast", "autos",
        ];
        for text in wrong {
            let refused = UnitRule::parse(text).unwrap_err();
            assert!(refused.contains("40ms") && refused.contains("silence"), "{refused}");
            assert!(parse_limit(text).is_err(), "{text}");
        }
        assert!(parse_limit("silence").is_err(), "that is a command of its own");
        let nothing = UnitTypeRow::default();
        for rule in [Limit::Auto, Limit::Sigma(4_000), Limit::Quantile(500_000)] {
            assert_eq!(limit(rule).threshold(&nothing), None, "{rule:?}");
        }
        let hostile =
            UnitTypeRow { mean: 1, sigma: u64::MAX, histogram: vec![(0, 9, u64::MAX); 3], ..nothing };
        assert_eq!(limit(Limit::Sigma(u32::MAX)).threshold(&hostile), Some(u64::MAX));
        assert_eq!(limit(Limit::Quantile(999_999)).threshold(&hostile), Some(9));
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let fixed = UnitRule::Limit(Limit::Fixed(40_000_000));
        assert_eq!(fixed.command("app.pgprof", "serve"), "pg-tui profile threshold app.pgprof serve 40ms");
        assert_eq!(
            UnitRule::Silence.command("my app.pgprof", "it's $(x)"),
            r"pg-tui profile silence 'my app.pgprof' 'it'\''s $(x)'"
        );
    }
}
