//! The options of `pg-tui units`.

use super::values::pid;
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const UNITS_HELP: &str = "\
List the units of work of a recording, and how work went from thread to thread.

A unit is one turn of an event loop. Where a listener's unit hands work on to a worker, the two are joined into one \
transaction: how long the work waited for a worker (queueing time), how long the worker took (service time), and what \
the workers were busy with while work waited. A hand-over is certain when an event shows it: who ended the wait before \
a unit, or whose message it took. A worker that is busy takes its next work without a wait, which no event shows: \
such a hand-over is put together by the order of the queue, and counted apart.

Units are told by their event loops, which are found from the recording and the programs' files on this machine; of a \
guard's recording also by their types.";

const UNITS_FIELDS: &str = "\
With --json one object in each line, times in nanoseconds:
  units        of a loop or type: name, count, threads, mean_ns, median_ns, p99_ns, max_ns
  hand_over    from one to another: from, to, on (through what), count; how many of them are strong,
               by_order, unknown; queued_*_ns, service_*_ns, share_queued; of the queueing time
               runnable_ns and all_busy_ns; meanwhile (what the workers did); workers, saturated
               (share of the time they were all busy); held_up, held_up_ns; words
  transaction  a way of work through units: way, count, strong, back, total_*_ns, queued_*_ns,
               service_*_ns
  each         with --each: from_tid, to_tid, time_ns, taken_ns, queued_ns, end_ns, strong, ...

Exit codes: 0 there are units, 1 there are none.

Examples:
  pg-tui units shop.pgs
  pg-tui units shop.pgs --comm '^httpd' --json | jq -r '.hand_over.words // empty'";

/// `pg-tui units`.
#[derive(Args, Debug)]
#[command(after_help = UNITS_FIELDS)]
pub struct Units {
    /// Recording to read
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Of this process only (can be repeated) [default: those in the recording's focus, or all]
    #[arg(short, long = "pid", value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: Vec<u32>,
    /// Of processes and threads whose name matches this regular expression (can be repeated)
    #[arg(long, value_name = "REGEX")]
    pub comm: Vec<String>,
    /// Print lines of JSON
    #[arg(long)]
    pub json: bool,
    /// Also each hand-over: when, who, to whom
    #[arg(long)]
    pub each: bool,
}
