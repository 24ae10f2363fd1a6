//! The options of `pg-tui train`.

use super::Level;
use super::values::{pid, point, seconds};
use clap::{Args, ValueHint};
use pg_tracer::given::GivenPoint;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const TRAIN_HELP: &str = "\
Learn how long a program's units of work take, by type.

A unit of work is one turn of an event loop: a request of a server, an event of a window. pg-tui records the program \
under normal load, finds its event loops by itself, cuts the time of its threads into units, puts those that call \
alike into one type, and writes down how long each type takes: the profile. What another run or machine teaches is \
added to it.

What was seen of a program that still runs is then measured by probes (--measure): they show the calls of every unit, \
as guards see them.

A unit's type is told by the calls that were seen in it: where it blocked and, if it ran for some milliseconds, where \
it was sampled. Shorter ones are told apart by their system calls alone (--level syscalls), or not at all; the table \
says so.

Where you know better what a unit of work is, say so: with --unit-begin FUNCTION each call of a function is one (`pg-tui \
guard --help` has all forms). Such units are measured by probes in the running program; a recording (5 s of a command, 30 s \
of other programs, or what --from names) only shows which functions tell them apart.

Tracing needs root, or the capabilities CAP_BPF and CAP_PERFMON; learning from recordings (--from) needs nothing. \
With CMD, the exit code is that of CMD.";

const TRAIN_EXAMPLES: &str = "\
Examples:
  sudo pg-tui train -p 1234 --duration 60
  sudo pg-tui train --comm '^nginx' -o nginx.pgprof
  sudo pg-tui train -p 1234 --unit-begin processCommand
  sudo pg-tui train --unit-begin handle_line --duration 3 --measure 20 -- ./batch input.txt
  pg-tui train --from monday.pgs tuesday.pgs -o nginx.pgprof
  pg-tui profile show nginx.pgprof";

/// `pg-tui train`.
#[derive(Args, Debug)]
#[command(after_help = TRAIN_EXAMPLES)]
pub struct Train {
    /// Learn from this process and its children (can be repeated)
    #[arg(short, long = "pid", value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: Vec<u32>,
    /// Learn from processes and threads whose name matches this regular expression (can be repeated)
    #[arg(long, value_name = "REGEX")]
    pub comm: Vec<String>,
    /// Learn from these recordings instead; of threads in their focus, or of those that -p and --comm name. With --unit-begin
    /// they only show what units call: how long these take is measured in the program that -p, --comm or CMD names
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["duration", "keep", "level", "sample_rate"], value_hint = ValueHint::FilePath)]
    pub from: Vec<PathBuf>,
    /// The profile; what it has already is added to [default: PROGRAM.pgprof in this folder]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Record for so many seconds [default: 30; with CMD until that ends, with CMD and --unit-begin 5]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<f64>,
    /// Keep the recording that was learnt from
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keep: Option<PathBuf>,
    /// How much is recorded: `syscalls` also finds turns of a busy loop that never waits, and costs more; with `waits`
    /// units of servers that keep connections are connections, since answers are messages [default: messages as long as
    /// they are few, in windows where they are many]
    #[arg(long, value_enum)]
    pub level: Option<Level>,
    /// Samples per second of what runs on each CPU: more of them show shorter units, each takes 10 to 20 us
    #[arg(long, value_name = "HZ", default_value_t = 3989, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sample_rate: u32,
    /// Then measure for so many seconds by probes at the functions that were seen, which shows the calls of every unit,
    /// 0 for not at all [default: 10]. Not with CMD, which has ended by then, unless --unit-begin says what a unit is
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub measure: Option<f64>,
    /// Units begin here, not with turns of loops: without --unit-end each call of this function is one
    #[arg(long, value_name = "WHERE", value_parser = point)]
    pub unit_begin: Option<GivenPoint>,
    /// And end here
    #[arg(long, value_name = "WHERE", value_parser = point, requires = "unit_begin")]
    pub unit_end: Option<GivenPoint>,
    /// Write each measured unit to this file as well, a line of JSON each: how long it took, how long of that it had no CPU,
    /// and the functions it came by
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub units: Option<PathBuf>,
    /// Command to run and learn from
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments, num_args = 1..)]
    pub command: Vec<OsString>,
}
