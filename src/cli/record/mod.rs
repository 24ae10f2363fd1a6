//! `pg-tui record`.

mod about;
mod echo;
mod flags;
pub(super) mod flight;
mod name;
mod progress;
mod steps;
mod target;

use super::args::{Record, ns};
use super::exit::{Failure, Outcome};
use super::{open, text};
use crate::clean::clean;
use crate::session::{self, Session, SessionError, Writer};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use pg_event::{Item, Loss, Ns};
use pg_tracer::command::{Command, CommandError, Interrupts, exit_code};
use pg_tracer::{Collector, LiveStats};
use progress::Progress;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use target::Targets;

/// Items under way between collector and file.
const QUEUE: usize = 256;
/// How often signals and the command are looked at, at least.
const PAUSE: Duration = Duration::from_millis(100);
/// A command that got Ctrl-C has this long to end by itself before the recording ends without it.
const AFTER_INTERRUPT: Duration = Duration::from_secs(2);
/// A command that outlived its recording has this long to end on SIGTERM.
const AFTER_TERMINATE: Duration = Duration::from_secs(3);

/// Run it.
pub fn run(args: &Record) -> Outcome {
    // `record -- $CMD` with nothing in it is not meant to record the whole machine.
    if args.command.is_empty() && std::env::args_os().next_back().is_some_and(|a| a == "--") {
        return Err(Failure::Usage(
            "no command stands behind `--`; without `--`, everything is recorded".into(),
        ));
    }
    if let Some(limit) = args.flight {
        return flight::run(args, limit);
    }
    let done = record(args)?;
    let shown = clean(&done.path.display().to_string()).into_owned();
    say!(
        "pg-tui: {} recorded, {} events ({}/s), {} in {shown}{}",
        pg_graph::words::span(done.stats.elapsed_ns),
        text::count(done.events),
        text::count(rate(done.events, done.stats.elapsed_ns)),
        text::bytes(done.bytes),
        if done.cut { "; what came after that is missing".into() } else { lost(&done.stats) },
    );
    if !args.no_tui && open::can_show() {
        return open::after(&done.path, ExitCode::from(done.code), !done.hurried);
    }
    say!("pg-tui: look at it:     pg-tui open {shown}\npg-tui: or in one text: pg-tui diagnose {shown}");
    Ok(ExitCode::from(done.code))
}

fn rate(events: u64, ns: Ns) -> u64 {
    (events as f64 * 1e9 / ns.max(1) as f64) as u64
}

fn lost(stats: &LiveStats) -> String {
    let l = stats.lost;
    if l.events + l.stacks + l.samples == 0 {
        return ", nothing lost".into();
    }
    format!(
        "; lost: {} events, {} stacks, {} samples (a larger --ring-size or a lower --level loses less)",
        text::count(l.events),
        text::count(l.stacks),
        text::count(l.samples)
    )
}

/// A recording that was made.
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// The exit code to end with.
    pub code: u8,
    events: u64,
    bytes: u64,
    stats: LiveStats,
    /// Functions were left without names, since whoever records did not want to wait.
    pub hurried: bool,
    /// Not all of it could be written.
    cut: bool,
}

/// Why the recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    CommandEnded,
    TimeOver,
    TargetsEnded,
    Interrupted,
    CollectorEnded,
    CannotWrite,
}

impl Why {
    /// Did the recorder end, and may a command go on that is its own to end?
    fn is_ours(self) -> bool {
        !matches!(self, Self::CommandEnded | Self::CannotWrite | Self::CollectorEnded)
    }
}

/// Record to a file.
pub fn record(args: &Record) -> Result<Recorded, Failure> {
    let options = about::options(args)?;
    flags::check(args)?;
    let steps = steps::ask(args)?;
    pg_tracer::check_permission().map_err(|e| tracer_failure(&e))?;
    let path = args.output.clone().unwrap_or_else(|| name::free(Path::new("")));
    let interrupts =
        Interrupts::install().map_err(|e| Failure::Other(format!("cannot watch for Ctrl-C: {e}")))?;
    // Before there are threads of the collector: the child is a fork of this process until it execs.
    let mut command = match args.command.as_slice() {
        [] => None,
        argv => Some(Command::spawn(argv).map_err(|e| Failure::Usage(e.to_string()))?),
    };
    let unusable = |e: SessionError| Failure::Usage(e.to_string());
    let kept = session::keep_old(&path).map_err(unusable)?;
    session::buffers_are_kept();
    let writer = match Writer::create(&path, &about::header(args)) {
        Ok(w) => w,
        Err(e) => {
            put_back(&path, kept.as_deref());
            return Err(unusable(e));
        }
    };
    let give_up = |writer| discard(writer, &path, kept.as_deref());
    let (send, items) = bounded(QUEUE);
    // This thread writes what the collector sends: it must not starve beside a busy target. The command
    // was started before and keeps its priority.
    pg_tracer::prefer();
    let collector = match Collector::start(options, send) {
        Ok(c) => c,
        Err(e) => {
            give_up(writer);
            return Err(tracer_failure(&e));
        }
    };
    let begun = begin(args, &collector, command.as_mut()).and_then(|()| steps::follow(steps, &collector));
    if let Err(e) = begun {
        drop(items);
        let _ = collector.stop();
        give_up(writer);
        return Err(e);
    }
    if command.is_none() {
        say!("pg-tui: recording to {}; Ctrl-C ends it", clean(&path.display().to_string()));
    }
    if let Some(old) = &kept {
        say!("pg-tui: the recording that was there is now {}", clean(&old.display().to_string()));
    }
    let mut run = Run {
        writer,
        error: None,
        interrupts,
        targets: Targets::of(args),
        progress: Progress::new(args.progress, command.is_some()),
        until: args.duration.map(|s| Instant::now() + Duration::from_nanos(ns(s))),
        interrupted: None,
        end: None,
        missed: Vec::new(),
        hurried: false,
        unnamed: 0,
    };
    let why = run.until_the_end(&items, &collector, command.as_mut());
    tracing::info!("recording ends: {why:?}");
    run.progress.ending();
    let mut stats = run.stop(collector, items);
    run.progress.clear();
    if why == Why::TargetsEnded {
        say!("pg-tui: what -p named has ended");
    }
    let Run { writer, mut error, interrupts, end, missed, hurried, unnamed, .. } = run;
    if hurried && unnamed > 0 {
        say!(
            "pg-tui: {} places in code have no function name yet; `pg-tui open` and `diagnose` look them up",
            text::count(unnamed)
        );
    }
    for who in &missed {
        say!("pg-tui: {}", clean(who));
    }
    if let Some((duration, loss)) = end {
        (stats.elapsed_ns, stats.lost) = (duration, loss);
    }
    let mut events = writer.events();
    let mut bytes = writer.bytes();
    match writer.finish() {
        Ok(n) => bytes = session::compact(&path).unwrap_or(n),
        Err(e) => error = error.or(Some(e.to_string())),
    }
    let mut code = 0;
    if let Some(e) = &error {
        say!(
            "pg-tui: the recording ended early: {}\npg-tui: what was written before can be opened",
            clean(e)
        );
        code = 5;
        if let Ok(kept) = Session::open(&path) {
            (stats.elapsed_ns, events, bytes) = (kept.duration(), kept.len_events(), kept.len_bytes());
        }
    }
    if let Some(c) = &mut command {
        // The command's own failure tells more; its success must not hide ours.
        code = match end_of(c, why.is_ours(), why == Why::TimeOver, &interrupts) {
            0 => code,
            own => own,
        };
    }
    let hurried = hurried && unnamed > 0;
    Ok(Recorded { path, code, events, bytes, stats, hurried, cut: error.is_some() })
}

/// Watches the flags that were asked for, and lets the command begin.
fn begin(args: &Record, collector: &Collector, command: Option<&mut Command>) -> Result<(), Failure> {
    let Some(c) = command else { return flags::watch(args, collector, None) };
    collector.focus_on_command(c.pid());
    let mut held = flags::hold(args, c.pid())?;
    c.resume().map_err(|e| not_started(&e))?;
    let stopped = held.as_mut().is_some_and(|h| h.wait().unwrap_or(false));
    let watched = flags::watch(args, collector, stopped.then(|| c.pid()));
    if watched.is_err() {
        // It has not run yet.
        c.terminate();
    }
    watched
}

/// A recording under way.
struct Run {
    writer: Writer,
    /// What went wrong first.
    error: Option<String>,
    interrupts: Interrupts,
    progress: Progress,
    targets: Targets,
    until: Option<Instant>,
    /// When the command got its Ctrl-C.
    interrupted: Option<Instant>,
    /// What the collector said at the end: length and loss.
    end: Option<(Ns, Loss)>,
    /// What --steps and --flag asked for and did not get, and why.
    missed: Vec<String>,
    /// Ctrl-C came again while names were looked up.
    hurried: bool,
    /// Places in code that were left without a name for that.
    unnamed: u64,
}

impl Run {
    /// Write what comes until something ends the recording.
    fn until_the_end(
        &mut self,
        items: &Receiver<Item>,
        collector: &Collector,
        mut command: Option<&mut Command>,
    ) -> Why {
        loop {
            let written = match items.recv_timeout(PAUSE) {
                Ok(item) => self.take(&item),
                Err(RecvTimeoutError::Timeout) => self.writer.tick(),
                Err(RecvTimeoutError::Disconnected) => return Why::CollectorEnded,
            };
            if let Err(e) = written {
                self.error = Some(e.to_string());
                return Why::CannotWrite;
            }
            if let Some(c) = &mut command {
                // An error means that somebody else reaped it: it has ended.
                if c.try_wait().map_or(true, |s| s.is_some()) {
                    return Why::CommandEnded;
                }
            }
            if self.interrupts.stop(command.is_some()) {
                return Why::Interrupted;
            }
            if self.interrupts.count() > 0 {
                let since = *self.interrupted.get_or_insert_with(Instant::now);
                if since.elapsed() > AFTER_INTERRUPT {
                    return Why::Interrupted;
                }
            }
            if self.until.is_some_and(|t| Instant::now() >= t) {
                return Why::TimeOver;
            }
            if self.targets.ended() {
                return Why::TargetsEnded;
            }
            self.progress.show(&collector.stats(), self.writer.bytes());
        }
    }

    fn take(&mut self, item: &Item) -> Result<(), SessionError> {
        if let Item::End { duration, coverage } = item {
            (self.end, self.unnamed) = (Some((*duration, coverage.loss)), coverage.unnamed);
            let of = |n: &&String| n.contains("not followed") || n.contains("was never there");
            self.missed = coverage.notes.iter().filter(of).cloned().collect();
        }
        self.writer.item(item)
    }

    /// End the recording; take over what the collector sends as it ends.
    fn stop(&mut self, collector: Collector, items: Receiver<Item>) -> LiveStats {
        let (before, hurry) = (self.interrupts.count(), collector.hurry());
        std::thread::scope(|scope| {
            let stopping = scope.spawn(move || {
                let before = collector.stats();
                (before, collector.stop())
            });
            while self.error.is_none() {
                match items.recv_timeout(PAUSE) {
                    Ok(item) => self.error = self.take(&item).err().map(|e| e.to_string()),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                // Whoever asks once more does not want to wait for names; the next time, the file neither.
                if self.interrupts.count() > before && !self.hurried {
                    self.hurried = true;
                    hurry.leave_names();
                    self.progress.hurried();
                    self.interrupts.give_back();
                }
            }
            // Nobody takes what still comes: the collector need not wait for room.
            drop(items);
            let Ok((stats, result)) = stopping.join() else {
                self.error.get_or_insert_with(|| "the collector panicked".into());
                return LiveStats::default();
            };
            if let Err(e) = result {
                self.error.get_or_insert_with(|| e.to_string());
            }
            stats
        })
    }
}

/// The command's exit code. If it is `ours` to end it, and it has not ended by itself, it is asked to; where that was
/// `foreseen` it is no failure of it.
pub(super) fn end_of(command: &mut Command, ours: bool, foreseen: bool, interrupts: &Interrupts) -> u8 {
    if ours && command.try_wait().is_ok_and(|s| s.is_none()) {
        let name = command.program().to_string_lossy().into_owned();
        say!("pg-tui: {} (pid {}) still runs: it is told to end (SIGTERM)", clean(&name), command.pid());
        command.terminate();
        let begin = Instant::now();
        while command.try_wait().is_ok_and(|s| s.is_none()) {
            if begin.elapsed() > AFTER_TERMINATE {
                say!(
                    "pg-tui: {} (pid {}) does not end and is left running",
                    clean(&command.program().to_string_lossy()),
                    command.pid()
                );
                return 0;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It was ended by us: that is what was asked for.
        if foreseen {
            return 0;
        }
    }
    loop {
        match command.try_wait() {
            Ok(Some(status)) => return exit_code(status) as u8,
            Ok(None) if !interrupts.stop(true) => std::thread::sleep(PAUSE),
            Ok(None) => return 130,
            Err(_) => return 0,
        }
    }
}

/// Nothing was recorded: leave no empty file behind, and what was there before where it was.
fn discard(writer: Writer, path: &Path, kept: Option<&Path>) {
    drop(writer);
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        let _ = std::fs::remove_file(path);
    }
    put_back(path, kept);
}

fn put_back(path: &Path, kept: Option<&Path>) {
    if let Some(old) = kept
        && !path.exists()
    {
        let _ = std::fs::rename(old, path);
    }
}

/// Why a command was not started, with the exit code that a shell would give.
pub(super) fn not_started(e: &CommandError) -> Failure {
    Failure::Command(e.exit_code() as u8, e.to_string())
}

pub(super) fn tracer_failure(e: &pg_tracer::Error) -> Failure {
    match e {
        pg_tracer::Error::Flag(e) => Failure::Usage(e.to_string()),
        e if e.is_refusal() => Failure::NotPermitted(e.to_string()),
        e => Failure::Other(e.to_string()),
    }
}
