//! The options of `pg-tui record`.

use super::When;
use super::values::{call_time, flag, milliseconds, pid, seconds, time};
use crate::flight::Limit;
use clap::{Args, ValueEnum, ValueHint};
use pg_tracer::flags::FlagSpec;
use std::ffi::OsString;
use std::path::PathBuf;

/// How much is recorded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// Waits, who ended them and through what; costs least
    Waits,
    /// Also messages between threads that never block; costs some more
    #[default]
    Messages,
    /// Also every system call; costs up to half as much again on programs that do little else
    Syscalls,
}

impl Level {
    /// Name as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Messages => "messages",
            Self::Syscalls => "syscalls",
        }
    }
}

pub(super) const RECORD_HELP: &str = "\
Record what every thread waits for, while you make the program hang.

Causes are often in another process, so the whole machine is recorded. With -p, --cgroup, --comm or a \
command you choose the focus: whose stacks are recorded in full, and who the victim is by default. Make the \
program hang, wait until it goes on (or a few seconds, if it never does), and press Ctrl-C.

Tracing needs root, or the capabilities CAP_BPF and CAP_PERFMON. Under sudo, CMD runs as you, and the file \
is yours. The file holds command lines and names of all processes: use `pg-tui redact` before you share it.";

const RECORD_EXAMPLES: &str = "\
Examples:
  sudo pg-tui record -- curl http://localhost:8080/
  sudo pg-tui record -p 1234 -p 1235 -o hang.pgs
  sudo pg-tui record --comm '^postgres' --duration 30 --no-tui
  sudo pg-tui record -p 1234 --flag shutdown_done
  sudo pg-tui record -p 1234 --steps --steps-for 50ms -d 5
  sudo pg-tui record --flight 60s --comm '^nginx' --on-turn 200ms
  sudo pg-tui record --flight 60s -p 1234 --on-unserved 500ms
  sudo pg-tui record --cgroup /sys/fs/cgroup/system.slice/nginx.service";

/// `pg-tui record`.
#[derive(Args, Debug)]
#[command(after_help = RECORD_EXAMPLES)]
pub struct Record {
    /// File to write [default: pg-tui-DATE-TIME.pgs in this folder]
    ///
    /// A recording of that name is kept as FILE.old; any other file is left alone.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// End the recording after this many seconds
    ///
    /// A CMD that still runs then is told to end (SIGTERM).
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<f64>,
    /// Do not open the recording when it has ended
    #[arg(long)]
    pub no_tui: bool,
    /// When to show how the recording goes, in a line on the terminal
    ///
    /// `auto` leaves the terminal to CMD when there is one; `always` draws the line between what CMD prints.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub progress: When,
    /// Focus on this process and its children (can be repeated); the recording ends when all of them have
    #[arg(short, long = "pid", value_name = "PID", value_parser = pid, allow_negative_numbers = true, help_heading = "Focus")]
    pub pid: Vec<u32>,
    /// Focus on the processes of this control group (can be repeated)
    #[arg(long, value_name = "PATH", help_heading = "Focus", value_hint = ValueHint::DirPath)]
    pub cgroup: Vec<String>,
    /// Focus on processes and threads whose name matches this regular expression (can be repeated)
    #[arg(long, value_name = "REGEX", help_heading = "Focus")]
    pub comm: Vec<String>,
    /// Also record who reads and who writes this variable (can be repeated, up to four)
    ///
    /// `pg-tui find-flag` finds the variable that a loop waits for. Without PID it is one of CMD or of -p. Each access
    /// costs the program 9 to 80 us; of one that is touched too often only the writes are recorded.
    #[arg(long, value_name = "[PID:]SYMBOL|0xADDR[:LEN]", value_parser = flag, help_heading = "Data flags")]
    pub flag: Vec<FlagSpec>,
    /// Also follow a thread instruction by instruction for a short while (can be repeated: one after the other)
    ///
    /// Without a name, the thread of the focus that uses the CPU most. What it executed is shown with its calls, loops,
    /// source lines and disassembly. For that while the thread executes some 15,000 instructions a second instead of
    /// billions; then it is as before, also when the recorder is killed. Only SIGKILL of the process pg-stepper itself
    /// within that while takes a program along that computes.
    #[arg(long, value_name = "TID|REGEX", num_args = 0..=1, default_missing_value = "", conflicts_with = "flight", help_heading = "Instructions")]
    pub steps: Vec<String>,
    /// Follow each of these threads for this long
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = burst_time, requires = "steps", conflicts_with = "flight", help_heading = "Instructions")]
    pub steps_for: u64,
    /// Follow each of these threads for this many instructions at most
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "steps", conflicts_with = "flight", help_heading = "Instructions")]
    pub steps_max: u32,
    /// Begin with that after this time
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time, requires = "steps", conflicts_with = "flight", help_heading = "Instructions")]
    pub steps_after: u64,
    /// How much is recorded [default: messages, as long as there are not too many]
    ///
    /// Without this, messages are recorded all the time up to 10,000 a second on each CPU; above that in windows,
    /// at least one each second, so that the programs you trace lose no more than a sixth of a percent to it.
    #[arg(long, value_enum, hide_default_value = true, help_heading = "Cost and detail")]
    pub level: Option<Level>,
    /// Memory for events under way, in MiB: more of it loses less on a busy machine
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Cost and detail")]
    pub ring_size: u32,
    /// Memory for copies of user stacks under way, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Cost and detail")]
    pub stack_ring_size: u32,
    /// Samples per second of what runs on each CPU, 0 for none [default: 99, with `--level waits` 0]
    ///
    /// Of threads that waited less than 4 ms ago one in four is taken: their waits have stacks, too. Without samples a
    /// thread that ran for long has no profile, and nobody notices a loop that only computes or asks: verdicts about such
    /// threads name no function.
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(0..=10_000), help_heading = "Cost and detail")]
    pub sample_rate: Option<u32>,
    /// Take kernel stacks of waits longer than this many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = milliseconds, allow_negative_numbers = true, help_heading = "Cost and detail")]
    pub kernel_stack_threshold: f64,
    /// Look up who holds what a thread waits for when it has waited this many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500.0, value_parser = milliseconds, allow_negative_numbers = true, help_heading = "Cost and detail")]
    pub long_wait: f64,
    /// Take no kernel stacks
    #[arg(long, help_heading = "Cost and detail")]
    pub no_kernel_stacks: bool,
    /// Take no user stacks
    #[arg(long, help_heading = "Cost and detail")]
    pub no_user_stacks: bool,
    /// Never record more for a short time when a thread looks as if it spun
    #[arg(long, help_heading = "Cost and detail")]
    pub no_bursts: bool,
    /// Keep the last while only, and write it to a file each time something happens
    ///
    /// WINDOW is a time (60s, 5m) or a size (500MB). A file is written on SIGUSR1, on `pg-tui mark`, and when one
    /// of the --on-... options says so; recording goes on. With -o FOLDER the files go there.
    #[arg(long, value_name = "WINDOW", value_parser = Limit::parse, conflicts_with_all = ["duration"], help_heading = "Flight recorder")]
    pub flight: Option<Limit>,
    /// Keep recording this long after it happened, before the file is written
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub after: u64,
    /// Write a file when a thread of the focus waits longer, other than for work or time
    #[arg(long, value_name = "TIME", value_parser = time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub on_wait: Option<u64>,
    /// Write a file when an event loop of the focus does not wait for events for longer
    #[arg(long, value_name = "TIME", value_parser = time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub on_turn: Option<u64>,
    /// Write a file when something waits longer in a connection of the focus without being received
    ///
    /// For a program with windows these are the events of its X or Wayland display; for a server, requests. The focus
    /// is that of -p, --cgroup, --comm or CMD.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub on_unserved: Option<u64>,
    /// Write a file when a thread of the focus blocks longer in this system call (can be repeated)
    #[arg(long, value_name = "CALL=TIME", value_parser = call_time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub on_syscall: Vec<(pg_event::Sysno, u64)>,
    /// Write a file when CMD, or a process of the focus that began meanwhile, runs longer
    #[arg(long, value_name = "TIME", value_parser = time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub on_runtime: Option<u64>,
    /// Write at most one file in this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time, requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub every: u64,
    /// Keep this many files; older ones are deleted
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..), requires = "flight", conflicts_with = "duration", help_heading = "Flight recorder")]
    pub keep: u16,
    /// Command to run and record: it is the focus, and the recording ends with it
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments, num_args = 1..)]
    pub command: Vec<OsString>,
}

impl Record {
    /// How many samples a second are taken on each CPU.
    pub fn samples(&self) -> u32 {
        self.sample_rate.unwrap_or(if self.level == Some(Level::Waits) { 0 } else { 99 })
    }
}

/// How long a thread is followed: the shorter the better for the program.
fn burst_time(text: &str) -> Result<u64, String> {
    let ns = time(text)?;
    let most = pg_tracer::steps::LONGEST;
    if ns == 0 || u128::from(ns) > most.as_nanos() {
        return Err(format!("a time of at most {} s is expected, such as 20ms", most.as_secs()));
    }
    Ok(ns)
}
