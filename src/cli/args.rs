//! The command line, and the help that explains it.

mod guard;
mod profile;
mod record;
mod symbols;
mod train;
mod units;
mod values;
mod violations;

pub use guard::{Guard, OnViolation};
pub use profile::{Change, Profile};
use record::RECORD_HELP;
pub use record::{Level, Record};
pub use symbols::SymbolFiles;
pub use train::Train;
pub use units::Units;
pub use values::At;
pub(super) use values::ns;
use values::{demo_seconds, flag, moment, number, pid, seconds, time, whole_seconds};
pub use violations::Violations;

use super::exit::Failure;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use pg_tracer::flags::FlagSpec;
use std::ffi::OsString;
use std::path::PathBuf;

const ABOUT: &str = "From \"it hangs\" to the thread, the function and the variable that cause it.";

const LONG_ABOUT: &str = "\
From \"it hangs\" to the thread, the function and the variable that cause it.

pg-tui records what every thread of the machine waits for and who wakes it, builds a graph of causes from \
that, and leads you back from the thread that hung to the one that made it hang, across processes. The \
programs need no change, no debug build and no restart.";

const EXAMPLES: &str = "\
Examples:
  A program hangs when you start it:
      sudo pg-tui record -- ./program --its --options
  A program that is running hangs now and then (Ctrl-C when it has happened):
      sudo pg-tui record -p 1234
  Look at a recording again (`open` may be left out):
      pg-tui open pg-tui-20260131-101500.pgs
  Just tell me (also in a script):
      pg-tui diagnose pg-tui-20260131-101500.pgs
  See it work on a bundled program:
      sudo pg-tui demo

Exit codes: 0 done, 1 nothing abnormal was found, 2 bad arguments, 3 unreadable or damaged input, \
4 not permitted to trace, 5 anything else that went wrong. `record -- CMD` passes the exit code of CMD on; `guard` \
ends with 6 when units of work took too long.

Files: settings in ~/.config/pg-tui/config.toml, messages in ~/.local/state/pg-tui/log \
(PG_TUI_LOG=debug says more).";

/// From "it hangs" to its cause.
#[derive(Parser, Debug)]
#[command(
    name = "pg-tui",
    bin_name = "pg-tui",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A recording as if its command line had been typed: what `line` (after the program's name) does not say is as
/// `pg-tui record` has it.
///
/// # Errors
/// A fault of ours: the line is none of `record`.
pub fn record_as_typed(line: impl IntoIterator<Item = OsString>) -> Result<Record, Failure> {
    let line = ["pg-tui".into(), "record".into()].into_iter().chain(line);
    match Cli::try_parse_from(line).map_err(|e| Failure::Other(e.to_string()))?.command {
        Command::Record(record) => Ok(*record),
        _ => Err(Failure::Other("the command line is none of a recording".into())),
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // One is made, when the program starts.
pub enum Command {
    /// Record what every thread waits for, while you make the program hang
    #[command(long_about = RECORD_HELP)]
    Record(Box<Record>),
    /// Have a running flight recorder write what it has to a file
    #[command(long_about = MARK_HELP)]
    Mark(Mark),
    /// Find the variable that a spinning thread asks again and again
    #[command(long_about = FIND_FLAG_HELP)]
    FindFlag(FindFlag),
    /// Watch a variable of a running program: who writes it, who reads it
    #[command(long_about = WATCH_FLAG_HELP)]
    WatchFlag(WatchFlag),
    /// Look at a recording: what hung, and step by step why
    #[command(long_about = OPEN_HELP)]
    Open(Open),
    /// Look at waits as they are: who waits for what, and who could end it
    #[command(long_about = LIVE_HELP)]
    Live(Live),
    /// Name the cause of a hang without a screen: as text, or as JSON for scripts
    #[command(long_about = DIAGNOSE_HELP)]
    Diagnose(Diagnose),
    /// List units of work that took too long, as a guard recorded them
    #[command(long_about = violations::VIOLATIONS_HELP)]
    Violations(Violations),
    /// List units of work, and how long work waited between threads
    #[command(long_about = units::UNITS_HELP)]
    Units(Units),
    /// Learn how long a program's units of work take, by type
    #[command(long_about = train::TRAIN_HELP)]
    Train(Train),
    /// Watch a program's units of work, and catch those that take too long while they run
    #[command(long_about = guard::GUARD_HELP)]
    Guard(Guard),
    /// Show and merge what was learnt of units of work, name types, set thresholds
    #[command(long_about = profile::PROFILE_HELP)]
    Profile(Profile),
    /// Make a copy of a recording that can be shared: without other people's processes
    #[command(long_about = REDACT_HELP)]
    Redact(Redact),
    /// Record a bundled program that hangs for real, and open the result
    #[command(long_about = DEMO_HELP)]
    Demo(Demo),
    /// Print the completion script for a shell
    Completions(Completions),
    /// Print a manual page
    Man(Man),
}

/// When something is shown.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// When it disturbs nobody
    #[default]
    Auto,
    /// Whenever there is a terminal
    Always,
    /// Not at all
    Never,
}

const MARK_HELP: &str = "\
Have a running flight recorder (`pg-tui record --flight`) write what it has to a file.

The file holds the last while and what follows for some seconds (--after). Its name is printed when it is \
written. A recorder that runs as root can be asked by root only.";

/// `pg-tui mark`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sudo pg-tui mark the checkout page hung again")]
pub struct Mark {
    /// What happened, in a few words: kept as a bookmark in the file
    #[arg(value_name = "WORDS")]
    pub words: Vec<String>,
}

const FIND_FLAG_HELP: &str = "\
Find the variable that a spinning thread asks again and again whether it may go on.

The thread is followed for one or two turns of its loop, a few hundred instructions one by one (some tens of \
milliseconds). The branch that leaves the loop is looked for, and what its condition was read from: that is the flag, \
shown with its variable and source line where debug information tells. Watch it with `watch-flag`, or record who \
writes it with `record --flag`.

The program goes on as before, also when pg-tui is killed; only SIGKILL of the process pg-stepper itself, within \
these milliseconds, takes a program along that computes.";

/// `pg-tui find-flag`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo pg-tui find-flag -p 1234\n  sudo pg-tui find-flag -p 1234 -t 1240 --json"
)]
pub struct FindFlag {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: u32,
    /// The thread that spins [default: of those that used the CPU most lately, the first that asks a variable]
    #[arg(short, long, value_name = "TID", value_parser = pid, allow_negative_numbers = true)]
    pub tid: Option<u32>,
    /// Follow at most this many instructions
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    pub steps: u32,
    /// Wait at most this long while the thread sleeps between two turns
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub patience: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

const WATCH_FLAG_HELP: &str = "\
Watch a variable of a running program: who writes it, who reads it, with value, thread and stack.

A hardware breakpoint is set in every thread of the process, and for a variable in shared memory in every process \
that maps it. The program is not stopped; each access costs it 9 to 80 us. A variable that is touched more than 500 \
times a second is watched for writes only. Ctrl-C ends it, and nothing stays behind.";

const WATCH_FLAG_EXAMPLES: &str = "\
SYMBOL is a global variable, or SYMBOL+OFFSET; LEN is how many bytes: 1, 2, 4 or 8.

Examples:
  sudo pg-tui watch-flag -p 1234 shutdown_done
  sudo pg-tui watch-flag -p 1234 0x55d0c0a04010:1 --writes";

/// `pg-tui watch-flag`.
#[derive(Args, Debug)]
#[command(after_help = WATCH_FLAG_EXAMPLES)]
pub struct WatchFlag {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: u32,
    /// What to watch (up to four)
    #[arg(value_name = "SYMBOL|0xADDR[:LEN]", value_parser = flag, required = true)]
    pub flags: Vec<FlagSpec>,
    /// Print writes only
    #[arg(long)]
    pub writes: bool,
    /// End after this many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<f64>,
}

/// How a screen is to look: what commands that open one have in common.
#[derive(Args, Clone, Debug, Default)]
pub struct Screen {
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Colours: auto, dark, light, 16, none, or one of your configuration
    #[arg(long, value_name = "THEME")]
    pub theme: Option<String>,
    /// Configuration file instead of ~/.config/pg-tui/config.toml
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

impl From<&Screen> for crate::app::Options {
    fn from(s: &Screen) -> Self {
        Self { ascii: s.ascii, theme: s.theme.clone(), config: s.config.clone(), ..Self::default() }
    }
}

const OPEN_HELP: &str = "Look at a recording: what hung, and step by step why.\n\nPress ? for the keys, q to leave. \
                  Answers, notes and bookmarks are kept in the file.";

/// `pg-tui open`.
#[derive(Args, Debug)]
pub struct Open {
    /// Recording to open
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Where names of functions are looked for.
    #[command(flatten)]
    pub symbols: SymbolFiles,
    /// How the screen is to look.
    #[command(flatten)]
    pub screen: Screen,
}

const LIVE_HELP: &str = "\
Look at waits as they are: who waits for what, and who could end it.

Like top, but for waits: every thread with its state, for how long, the system call and what it waits for, and \
once the wait is long, who holds that. Nothing is recorded and nobody is slowed. Press r to record the \
process of the selected thread (for five seconds, if that hangs already) and see why it hangs.

Other people's processes need root.";

/// `pg-tui live`.
#[derive(Args, Debug)]
pub struct Live {
    /// Only this process [default: all]
    #[arg(short, long, value_name = "PID", value_parser = number, allow_negative_numbers = true)]
    pub pid: Vec<u32>,
    /// Print the waits of this many seconds as text, and end [without a number: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = whole_seconds, allow_negative_numbers = true)]
    pub once: Option<u32>,
    /// How the screen is to look.
    #[command(flatten)]
    pub screen: Screen,
}

const DIAGNOSE_HELP: &str = "\
Name the cause of a hang without a screen: as text, or as JSON for scripts.

Without a selection the worst victim of the focus is taken. Who fits a selection and is in the focus comes before \
who fits and is not; the report says so when it is about one outside. Where the way back forks, a question arises; \
without --answers each is answered as recommended, and the report says so.";

const DIAGNOSE_EXAMPLES: &str = "\
An answers file has one answer a line: `edge = 2` answers the next question of that kind (edge, baseline, \
data-flag), `3: 0` the third question; 0 stops there, `recommended` takes the recommendation.

Examples:
  pg-tui diagnose hang.pgs
  pg-tui diagnose hang.pgs --process '^redis-cli .* get'
  pg-tui diagnose hang.pgs --tid 4711 --at 12.5
  pg-tui diagnose guarded.pgs --violation 1
  pg-tui diagnose guarded.pgs --violation 1 --transaction
  pg-tui diagnose hang.pgs --steps
  pg-tui diagnose hang.pgs --json | jq '.root_causes[0].why'";

/// `pg-tui diagnose`.
#[derive(Args, Debug)]
#[command(after_help = DIAGNOSE_EXAMPLES)]
pub struct Diagnose {
    /// Recording to read
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The victim is a thread of this process
    #[arg(long, value_name = "PID", group = "who", value_parser = number, allow_negative_numbers = true, help_heading = "Which hang")]
    pub pid: Option<u32>,
    /// The victim is this thread
    #[arg(long, value_name = "TID", group = "who", value_parser = number, allow_negative_numbers = true, help_heading = "Which hang")]
    pub tid: Option<u32>,
    /// The victim's thread name or command line matches this regular expression
    #[arg(long, value_name = "REGEX", group = "who", help_heading = "Which hang")]
    pub process: Option<String>,
    /// It hung at this moment: seconds since the recording began, or a time of day in UTC (09:10:13)
    #[arg(long, value_name = "SECONDS|TIME", value_parser = moment, allow_negative_numbers = true, help_heading = "Which hang")]
    pub at: Option<At>,
    /// It is this unit of work that took too long, by its number (`pg-tui violations`)
    #[arg(long, value_name = "N", conflicts_with_all = ["who", "at", "steps"], help_heading = "Which hang")]
    pub violation: Option<std::num::NonZeroUsize>,
    /// Not that unit alone: of its transaction (the unit that handed it on, the wait until it was taken, ...) the part that
    /// took longest
    #[arg(long, requires = "violation")]
    pub transaction: bool,
    /// Answer questions from this file (`-`: standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "replay")]
    pub answers: Option<PathBuf>,
    /// Take the answers that were given for this victim on the screen and kept in the file
    #[arg(long)]
    pub replay: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Do not split turns of event loops and other segments that served several peers
    #[arg(long)]
    pub whole_turns: bool,
    /// Also say which threads were looked at and are no cause, and why (JSON always has them)
    #[arg(long)]
    pub why_not: bool,
    /// Print what threads executed while they were followed (`record --steps`), instead of the causes
    #[arg(long, conflicts_with_all = ["stats", "answers", "replay", "why_not"])]
    pub steps: bool,
    /// Print how the graph was cut down and what the answers saved, instead of the causes (with --json: both)
    #[arg(long)]
    pub stats: bool,
    /// Where names of functions are looked for.
    #[command(flatten)]
    pub symbols: SymbolFiles,
    /// Name at most this many causes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub top: u16,
}

const REDACT_HELP: &str = "\
Make a copy of a recording that can be shared: without other people's processes.

What the focus and its causes touch is kept. All other processes, paths, command lines, addresses, host and \
user names are dropped, or replaced by made-up names that stay the same throughout. What was dropped is \
counted and printed; read the result before you share it all the same.";

/// `pg-tui redact`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  pg-tui redact hang.pgs for-the-ticket.pgs\n  pg-tui redact --keep-process '^nginx' hang.pgs out.pgs"
)]
pub struct Redact {
    /// Recording to read
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// File to write
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Also keep processes whose name or command line matches this regular expression (can be repeated)
    #[arg(long, value_name = "REGEX")]
    pub keep_process: Vec<String>,
    /// Keep the names of host and user, and the kernel's release
    #[arg(long)]
    pub keep_host: bool,
    /// Keep notes and bookmarks
    #[arg(long)]
    pub keep_notes: bool,
}

const DEMO_HELP: &str = "Record a bundled program that hangs for real, and open the result.\n\nA shop asks its payment \
                  service, over a socket, and gets no answer for seconds. Who is to blame? Without the right to \
                  trace, a recording of the same hang is opened.";

/// `pg-tui demo`.
#[derive(Args, Debug)]
pub struct Demo {
    /// How long it hangs
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0, value_parser = demo_seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// File to write [default: pg-tui-demo.pgs in the folder for temporary files]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Do not open the recording, print its diagnosis
    #[arg(long)]
    pub no_tui: bool,
}

/// `pg-tui completions`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  pg-tui completions bash > ~/.local/share/bash-completion/completions/pg-tui"
)]
pub struct Completions {
    /// Shell to complete in
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `pg-tui man`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  pg-tui man | man -l -\n  pg-tui man --dir ~/.local/share/man/man1")]
pub struct Man {
    /// Page of this command, such as `record` or `profile show` [default: the main page]
    #[arg(value_name = "COMMAND")]
    pub page: Vec<String>,
    /// Write all pages to this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "page", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn record_as_the_contract_has_it() {
        let cli = Cli::try_parse_from([
            "pg-tui",
            "record",
            "-o",
            "x.pgs",
            "--duration",
            "3",
            "--no-tui",
            "-p",
            "1",
            "-p",
            "2",
            "--cgroup",
            "/a",
            "--comm",
            "x",
            "--comm",
            "y",
            "--",
            "make",
            "-j5",
            "--",
            "all",
        ]);
        let Ok(Cli { command: Command::Record(r) }) = cli else { panic!("{cli:?}") };
        assert_eq!(
            (r.pid, r.comm, r.duration),
            (vec![1, 2], vec!["x".to_owned(), "y".to_owned()], Some(3.0))
        );
        assert_eq!(r.command, ["make", "-j5", "--", "all"]);
    }
}
