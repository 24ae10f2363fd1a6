//! The options of `pg-tui violations`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const VIOLATIONS_HELP: &str = "\
List units of work that took too long, as a guard recorded them.

A unit is one turn of an event loop: a request, say. A guard (`pg-tui guard`) knows from a profile how long units of \
each type take, and tells of those that take longer while they run. Each is listed with its number, for \
`pg-tui diagnose FILE --violation N`, which says why it was slow.";

const VIOLATIONS_FIELDS: &str = "\
With --json one line for each, in order of time, times in nanoseconds of the recording's clock:
  number        its number, from 1; with --withdrawn 0
  time          when it was seen to take too long
  pid, tid      process and thread; process and thread are their names
  type          name of the unit's type, empty when that is not known
  start_ns      when the unit began
  elapsed_ns    how long it had taken when it was seen, without what the guard itself took
  duration_ns   how long it took in the end; null when that was not seen
  threshold_ns  how long units of its type may take
  excess        how many times as long it took, as far as is known
  at            what saw it: context (a guarded function), switch, sample, asleep, or end (it was over)
  stack         where it was then, `function (module)`, outermost last, the kernel's functions first
  distance      how many frames of the program lie inside of the loop's; null when that is not known
  handed_on     whose unit handed it on, and how long it waited then; left out when that is not known
  withdrawn     with --withdrawn: the type that it turned out to be, and how long such a unit may take

Exit codes: 0 there are some, 1 there are none.

Examples:
  pg-tui violations guarded.pgs
  pg-tui violations guarded.pgs --json | jq -r 'select(.excess > 10) | .type'
  pg-tui diagnose guarded.pgs --violation 1";

/// `pg-tui violations`.
#[derive(Args, Debug)]
#[command(after_help = VIOLATIONS_FIELDS)]
pub struct Violations {
    /// Recording to read
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// List those instead that only seemed to take too long: they turned out to be of another type, which may take as long
    #[arg(long)]
    pub withdrawn: bool,
}
