//! The options of `pg-tui profile`.

use crate::unit_rule::parse_limit;
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
        /// (more of few units), or p99.99 where that was exceeded often when it was learnt
        #[arg(value_name = "THRESHOLD", value_parser = parse_limit)]
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
