//! The options of `pg-tui guard`.

use super::values::{percent, pid, point, seconds};
use crate::unit_rule::parse_limit;
use clap::{Args, ValueEnum, ValueHint};
use pg_graph::units::Limit;
use pg_tracer::given::GivenPoint;
use std::path::PathBuf;

pub(super) const GUARD_HELP: &str = "\
Watch a running program's units of work, and catch those that take too long while they run.

The profile (`pg-tui train`) says which turns of which loops are units, how they are told from each other, and how \
long each type may take. A unit that exceeds that is told with its stack at that moment; with --on-violation record \
the last seconds of the whole machine around it are written to a file, where `v` lists the violations and one key \
leads to the cause.

Without a profile, name a function and how long a call of it may take: --unit-begin FUNCTION --threshold 50ms.

The program is not changed but for probes at some of its functions, which the kernel takes out when pg-tui ends, \
however it ends. A type that rings on and on is told less and less often; all violations are counted.

What tells types from each other may come when a unit's time was spent already. So one that exceeds its limit is told, with its \
stack at that moment, once it has ended, or has taken as long as units of any type may, or after a second. One that turns out \
before to be of another type, which may take as long, is no violation: it is counted as withdrawn, and told with --json only.

Where units are so short that probes would take more than --budget, these are set for a while from time to time. In \
between a unit's type is not known, so it may take as long as any; one that sleeps for longer is told at once, one that \
computes for longer once probes have watched it for that long, and never as longer than it took for certain. At the end it \
is said what share of the time probes saw, and how many stretches of work between two sleeps were too short to hide a slow \
unit.

Exit codes: 0 no unit took too long, 6 some did; else as everywhere.";

const GUARD_EXAMPLES: &str = "\
\
WHERE a unit begins or ends: FUNCTION, MODULE:FUNCTION, MODULE+0xOFFSET (entered), usdt:PROVIDER:NAME (a static probe), \
syscall:NAME or syscall:NAME(fd=socket|pipe|file|device) (begins when the call has given more than 0, ends when it is \
made).

Examples:
  Tell me each time a call of this function takes longer than 50 ms, and where it is then:
      sudo pg-tui guard -p 1234 --unit-begin processCommand --threshold 50ms
  sudo pg-tui guard --comm postgres --threshold 1s --unit-begin usdt:postgresql:query__start \\
      --unit-end usdt:postgresql:query__done
  sudo pg-tui guard -p 1234 --profile app.pgprof
  sudo pg-tui guard --comm '^nginx' --profile nginx.pgprof --on-violation record -o /var/tmp
  sudo pg-tui guard -p 1234 --profile app.pgprof --json --duration 60
  sudo pg-tui guard -p 1234 --profile app.pgprof --on-violation command --run 'logger -t slow'";

/// What is done when a unit takes too long.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnViolation {
    /// Print it with its stack
    #[default]
    Stack,
    /// Also write what the whole machine did around it to a file
    Record,
    /// Also run a command (--run)
    Command,
}

/// `pg-tui guard`.
#[derive(Args, Debug)]
#[command(after_help = GUARD_EXAMPLES)]
pub struct Guard {
    /// Guard this process and those it creates (can be repeated)
    #[arg(short, long = "pid", value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: Vec<u32>,
    /// Guard processes whose name matches this regular expression, later ones too (can be repeated)
    #[arg(long, value_name = "REGEX")]
    pub comm: Vec<String>,
    /// What `pg-tui train` has learnt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<PathBuf>,
    /// Units begin here: without --unit-end each call of this function is one
    #[arg(long, value_name = "WHERE", value_parser = point)]
    pub unit_begin: Option<GivenPoint>,
    /// And end here
    #[arg(long, value_name = "WHERE", value_parser = point, requires = "unit_begin")]
    pub unit_end: Option<GivenPoint>,
    /// How long units may take, where the profile has nobody's word for their type: a time (40ms), mean and deviation
    /// (k=5: mean + 5 sigma), a quantile that they are to exceed seldom (p99.99), or `auto`: mean + 4 sigma (more
    /// of few units), or p99.99 where that was exceeded often when it was learnt. Without a profile a time
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_limit, default_value = "auto")]
    pub threshold: Limit,
    /// What to do about a violation
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub on_violation: OnViolation,
    /// Command for --on-violation command: run by a shell, the violation as a line of JSON on its standard input
    #[arg(long, value_name = "CMD", required_if_eq("on_violation", "command"), value_hint = ValueHint::CommandString)]
    pub run: Option<String>,
    /// Folder for the files of --on-violation record
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// How much of the time before a violation is kept for --on-violation record
    #[arg(long, value_name = "TIME|SIZE", default_value = "20s", value_parser = crate::flight::Limit::parse)]
    pub window: crate::flight::Limit,
    /// One line of JSON for each violation, one (`withdrawn`) for each unit that only seemed to be one, and one (`ended`) when a unit ends that was told while it ran; `mostly` is the
    /// function that most of its time went to, with its callers, if it was seen often enough
    #[arg(long)]
    pub json: bool,
    /// Write counts of units and violations to this file, every few seconds, as Prometheus reads it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metrics: Option<PathBuf>,
    /// Set no probes: types are not told from each other, a unit is held to the greatest threshold
    #[arg(long)]
    pub no_probes: bool,
    /// What all probes may take of the time that the guarded threads have a CPU, in percent. Where units are so short that
    /// they would take more, they are set for a while from time to time only; in between units are told from each other
    /// where their thread slept, and one that may take too long is looked into, as soon as the budget has room for it. 100: they stay set
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "100")]
    pub budget: f64,
    /// End after this many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<f64>,
}
