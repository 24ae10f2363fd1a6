//! The options of `pg-tui profile`.

use clap::{Args, Subcommand, ValueHint};
use pg_graph::units::Limit;
use std::path::PathBuf;

pub(super) const PROFILE_HELP: &str = "\
Look at what was learnt of a program's units of work, merge it, name types, set thresholds.

A TYPE is given by the number or the name that `profile show` prints; numbers change when more is learnt. What is \
said of a type stays with it when the profile learns more or is merged; the latest word counts.";

const PROFILE_EXAMPLES: &str = "\
Examples:
  pg-tui profile show app.pgprof
  pg-tui profile merge app.pgprof monday.pgprof tuesday.pgprof
  pg-tui profile name app.pgprof 3 'search'
  pg-tui profile threshold app.pgprof search 40ms
  pg-tui profile silence app.pgprof 'nightly report'";

/// `pg-tui profile`.
#[derive(Args, Debug)]
#[command(after_help = PROFILE_EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Profile {
    /// What to do.
    #[command(subcommand)]
    pub change: Change,
}

/// What `pg-tui profile` can do.
#[derive(Subcommand, Debug)]
pub enum Change {
    /// Print the types of units by what they cost
    Show {
        /// Profile to read
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write what several profiles have learnt to one
    Merge {
        /// File to write; one that is there already must be among IN
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        out: PathBuf,
        /// Profiles to read
        #[arg(value_name = "IN", required = true, value_hint = ValueHint::FilePath)]
        from: Vec<PathBuf>,
    },
    /// Name a type of units
    Name {
        /// Profile to change
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Number or name of the type
        #[arg(value_name = "TYPE")]
        of: String,
        /// Its name from now on; an empty one gives back the one made of its functions
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Say how long units of a type may take
    Threshold {
        /// Profile to change
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Number or name of the type
        #[arg(value_name = "TYPE")]
        of: String,
        /// A time (40ms), mean and deviation (k=5: mean + 5 sigma), a quantile (p99.9), or `auto`: mean + 4 sigma
        #[arg(value_name = "THRESHOLD", value_parser = limit)]
        limit: Limit,
    },
    /// Do not tell when units of a type take too long
    Silence {
        /// Profile to change
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Number or name of the type
        #[arg(value_name = "TYPE")]
        of: String,
        /// Tell it again
        #[arg(long)]
        off: bool,
    },
}

/// A threshold: `40ms`, `k=5`, `p99.9`, `auto`.
fn limit(text: &str) -> Result<Limit, String> {
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
    // Units of a server may take microseconds; nothing else here does.
    let (text, scale) = match text.strip_suffix("us") {
        Some(us) => (format!("{us}ms"), 1_000),
        None => (text.to_owned(), 1),
    };
    match super::values::time(&text).map(|ns| ns / scale) {
        Ok(ns) if ns > 0 => Ok(Limit::Fixed(ns)),
        _ => Err("a time (40ms), k=5, p99.9 or auto is expected".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        assert_eq!(limit("auto"), Ok(Limit::Auto));
        assert_eq!(limit("40ms"), Ok(Limit::Fixed(40_000_000)));
        assert_eq!(limit("250us"), Ok(Limit::Fixed(250_000)));
        assert_eq!(limit("1.5s"), Ok(Limit::Fixed(1_500_000_000)));
        assert_eq!(limit("k=5"), Ok(Limit::Sigma(5_000)));
        assert_eq!(limit("k=2.5"), Ok(Limit::Sigma(2_500)));
        assert_eq!(limit("p99.9"), Ok(Limit::Quantile(999_000)));
        for wrong in ["", "0ms", "k=-1", "k=x", "p100", "p0", "-3ms", "fast", "k=nan"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
