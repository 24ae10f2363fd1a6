//! `pg-tui record --flight`: the recorder that runs all the time.

use super::{AFTER_INTERRUPT, PAUSE, QUEUE, about, begin, end_of, flags, lost, name, tracer_failure};
use crate::clean::{clean, clean_to};
use crate::cli::args::Record;
use crate::cli::exit::{Failure, Outcome};
use crate::cli::text::{bytes, count};
use crate::flight::{Answer, Control, Limit, Limits, Mark, Ration, Saved, Triggers, Window, save};
use crate::session::{Header, SessionError};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use pg_event::{CatalogDelta, Item, Ns, ThreadId};
use pg_graph::words::span;
use pg_tracer::Collector;
use pg_tracer::command::{Command, Interrupts};
use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that names are waited for.
const NAMES: Duration = Duration::from_secs(15);
/// Waits that go on are reported this long before a file is written: what is reported takes its time to come.
const REPORT: Duration = Duration::from_millis(1200);
/// Time between two looks at what goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two drawings of the progress line.
const DRAW: Duration = Duration::from_millis(500);

/// Bytes of what a file was written for, where several ask for it, at most (and one more).
const MOST_WORDS: usize = 1000;

/// A file that is to be written.
struct Pending {
    why: String,
    /// When it happened, in time of the recording.
    time: Ns,
    thread: ThreadId,
    /// When to have open waits reported again, and the number of that report.
    report: Instant,
    reported: Option<u64>,
    /// When to write; but a while later when that report is not complete, or names are still being looked up.
    write: Instant,
    /// Who wants to know.
    answers: Vec<Sender<String>>,
}

impl Pending {
    /// Its file is for something that is far worse now: that is told first, and what happens after it is in the file, too.
    fn is_for(&mut self, why: &str, time: Ns, thread: ThreadId, now: Instant, after: Duration) {
        if self.why.len() < MOST_WORDS {
            self.why = format!("{why}; before that: {}", self.why);
        } else {
            why.clone_into(&mut self.why);
        }
        (self.time, self.thread) = (time, thread);
        let write = now + after;
        if write > self.write {
            (self.report, self.reported, self.write) = (now + after.saturating_sub(REPORT), None, write);
        }
    }
}

/// A file that is being written.
struct Writing {
    thread: JoinHandle<Result<Saved, SessionError>>,
    answers: Vec<Sender<String>>,
}

struct Flight<'a> {
    args: &'a Record,
    folder: PathBuf,
    header: Header,
    window: Window,
    triggers: Triggers,
    collector: Collector,
    pending: Option<Pending>,
    writing: Option<Writing>,
    /// Files written, the oldest first.
    files: VecDeque<PathBuf>,
    ration: Ration,
    /// Since the last file it was said that others have none for a while.
    withheld: bool,
    failed: bool,
}

/// What goes on beside it, and has files written as well.
pub trait Companion {
    /// Rows that its events name.
    fn rows(&self) -> CatalogDelta;
    /// Look at what happened: gives it to the collector, and says why a file is to be written, and how bad that is: what is
    /// four times as bad as what the last file was written for does not wait its time.
    ///
    /// # Errors
    /// What it tells cannot be told.
    fn look(&mut self, collector: &Collector) -> Result<Option<(String, f64)>, Failure>;
    /// It is over.
    fn has_ended(&mut self) -> bool;
}

/// Run it.
pub fn run(args: &Record, limit: Limit) -> Outcome {
    run_beside(args, limit, None)
}

/// Files of a flight recorder go to a folder.
pub fn no_folder(path: &Path) -> Failure {
    let what =
        if path.exists() { "this is no folder" } else { "there is no such folder (mkdir -p makes it)" };
    Failure::Usage(format!("-o {}: {what}; files that are kept go to a folder", path.display()))
}

/// Run it beside something else.
pub fn run_beside(args: &Record, limit: Limit, companion: Option<&mut dyn Companion>) -> Outcome {
    let options = about::options(args)?;
    flags::check(args)?;
    pg_tracer::check_permission().map_err(|e| tracer_failure(&e))?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from("."));
    if !folder.is_dir() {
        return Err(no_folder(&folder));
    }
    let asked = Arc::new(AtomicBool::new(false));
    let other = |e: std::io::Error| Failure::Other(format!("cannot watch for SIGUSR1: {e}"));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&asked)).map_err(other)?;
    let control = match Control::listen() {
        Ok(c) => Some(c),
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && companion.is_none() => {
            return Err(Failure::Usage(e.to_string()));
        }
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            say!(
                "pg-tui: `pg-tui mark` reaches another flight recorder, which runs already: SIGUSR1 reaches this one"
            );
            None
        }
        Err(e) => {
            say!("pg-tui: `pg-tui mark` will not work: {e}");
            None
        }
    };
    let interrupts =
        Interrupts::install().map_err(|e| Failure::Other(format!("cannot watch for Ctrl-C: {e}")))?;
    let mut command = match args.command.as_slice() {
        [] => None,
        argv => Some(Command::spawn(argv).map_err(|e| Failure::Usage(e.to_string()))?),
    };
    let (send, items) = bounded(QUEUE);
    pg_tracer::prefer();
    let collector = Collector::start(options, send).map_err(|e| tracer_failure(&e))?;
    let header = about::header(args);
    if let Err(e) = begin(args, &collector, command.as_mut()) {
        drop(items);
        let _ = collector.stop();
        return Err(e);
    }
    let limits = Limits {
        wait: args.on_wait,
        turn: args.on_turn,
        unserved: args.on_unserved,
        calls: args.on_syscall.clone(),
        runtime: args.on_runtime,
    };
    let mut flight = Flight {
        args,
        folder,
        header,
        window: Window::new(limit),
        triggers: Triggers::new(limits).of_command(command.as_ref().map(Command::pid)),
        collector,
        pending: None,
        writing: None,
        files: VecDeque::new(),
        ration: Ration::new(Duration::from_nanos(args.every)),
        withheld: false,
        failed: false,
    };
    say!(
        "pg-tui: flight recorder is on (pid {}); `pg-tui mark`, or SIGUSR1, writes a file to {}; Ctrl-C ends it",
        std::process::id(),
        clean(&flight.folder.display().to_string())
    );
    if let Some(c) = &companion {
        flight.window.item(Item::Catalog(c.rows()));
    }
    let marks = control.as_ref().map(|c| &c.marks);
    let why = flight.until_the_end(&items, marks, &asked, &interrupts, command.as_mut(), companion);
    flight.end(&items);
    let Flight { collector, failed, .. } = flight;
    let stats = collector.stats();
    drop(items);
    collector.stop().map_err(|e| Failure::Other(e.to_string()))?;
    say!("pg-tui: flight recorder ends after {}{}", pg_graph::words::span(stats.elapsed_ns), lost(&stats));
    let code = match &mut command {
        Some(c) => end_of(c, why.is_ours(), why == super::Why::TimeOver, &interrupts),
        None => u8::from(why == super::Why::CollectorEnded || failed) * 5,
    };
    Ok(ExitCode::from(code))
}

impl Flight<'_> {
    fn until_the_end(
        &mut self,
        items: &Receiver<Item>,
        marks: Option<&Receiver<Mark>>,
        asked: &AtomicBool,
        interrupts: &Interrupts,
        mut command: Option<&mut Command>,
        mut companion: Option<&mut dyn Companion>,
    ) -> super::Why {
        use super::Why;
        let (mut looked, mut drawn, mut interrupted) = (Instant::now(), Instant::now(), None);
        let progress = command.is_none() && stderr().is_terminal();
        let mut echo = progress.then(super::echo::Echo::off);
        loop {
            match items.recv_timeout(PAUSE) {
                Ok(item) => self.take(item),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Why::CollectorEnded,
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let now = self.collector.stats().elapsed_ns;
                for mark in marks.into_iter().flat_map(Receiver::try_iter) {
                    let why = if mark.words.is_empty() { "`pg-tui mark`".to_owned() } else { mark.words };
                    self.fire(why, now, ThreadId::NONE, Some(mark.answer));
                }
                if let Some(c) = &mut companion {
                    match c.look(&self.collector) {
                        Ok(Some((why, weight))) => self.triggered(why, now, ThreadId::NONE, weight),
                        Ok(None) if !c.has_ended() => {}
                        // Who cannot be told any more has gone.
                        Ok(None) | Err(_) => return Why::TargetsEnded,
                    }
                }
                if asked.swap(false, Ordering::Relaxed) {
                    self.fire("SIGUSR1".into(), now, ThreadId::NONE, None);
                }
                if let Some(f) = self.triggers.tick(&self.window) {
                    self.triggered(f.why, f.time, f.thread, 1.0);
                }
                self.write_when_due(items, false);
            }
            if let Some(echo) = &mut echo
                && drawn.elapsed() >= DRAW
            {
                drawn = Instant::now();
                echo.keep_off();
                let _ = write!(stderr(), "\r{}\x1b[K", clean_to(&self.line(), super::progress::columns()));
            }
            if let Some(c) = &mut command
                && c.try_wait().map_or(true, |s| s.is_some())
            {
                return Why::CommandEnded;
            }
            let since = (interrupts.count() > 0).then(|| *interrupted.get_or_insert_with(Instant::now));
            if interrupts.stop(command.is_some()) || since.is_some_and(|t| t.elapsed() > AFTER_INTERRUPT) {
                return Why::Interrupted;
            }
        }
    }

    fn take(&mut self, item: Item) {
        if let Item::Events(events) = &item
            && let Some(f) = self.triggers.events(events, self.window.catalog())
        {
            self.triggered(f.why, f.time, f.thread, 1.0);
        }
        self.window.item(item);
    }

    /// A trigger fired. People who ask get a file whenever they do; these get one now and then.
    fn triggered(&mut self, why: String, time: Ns, thread: ThreadId, weight: f64) {
        let now = Instant::now();
        match self.ration.ask(now, weight, self.pending.is_some()) {
            Answer::File => self.fire(why, time, thread, None),
            Answer::Pending => {
                let why: String = clean(&why).into_owned();
                note(&format!("{why}; that is far worse: the file is for this now"));
                let after = self.after();
                if let Some(p) = &mut self.pending {
                    p.is_for(&why, time, thread, now, after);
                }
            }
            // What happens before a file is written is in that.
            Answer::Nothing if self.pending.is_none() && !self.withheld => {
                self.withheld = true;
                let every = span(self.args.every);
                note(&format!(
                    "{}: this has no file, since the last one was less than {every} ago; what is far worse has one",
                    clean(&why)
                ));
            }
            Answer::Nothing => tracing::info!("not written, too soon after another: {why}"),
        }
    }

    /// How long after what happened a file is written.
    fn after(&self) -> Duration {
        Duration::from_nanos(self.args.after).max(REPORT)
    }

    fn fire(&mut self, why: String, time: Ns, thread: ThreadId, answer: Option<Sender<String>>) {
        let why: String = clean(&why).into_owned();
        if let Some(p) = &mut self.pending {
            // It will be in the file that is to be written anyway, and so are its words.
            p.answers.extend(answer);
            if !p.why.contains(&why) && p.why.len() < MOST_WORDS {
                note(&why);
                p.why = format!("{}; {why}", p.why);
            }
            return;
        }
        note(&why);
        let after = self.after();
        let write = Instant::now() + after;
        // Names take time to be found: begin with those of what was there already.
        self.collector.report_open();
        self.pending = Some(Pending {
            why,
            time,
            thread,
            report: Instant::now() + after.saturating_sub(REPORT),
            reported: None,
            write,
            answers: answer.into_iter().collect(),
        });
    }

    fn write_when_due(&mut self, items: &Receiver<Item>, at_once: bool) {
        self.written(at_once);
        let now = Instant::now();
        if let Some(p) = &mut self.pending
            && p.reported.is_none()
            && (at_once || now >= p.report)
        {
            p.reported = Some(self.collector.report_open());
        }
        let whole = self.is_reported();
        let early = |p: &Pending| now < p.write || (!whole && now < p.write + NAMES);
        if self.writing.is_some() || self.pending.as_ref().is_none_or(|p| early(p) && !at_once) {
            return;
        }
        // What belongs to the report was sent before it was said to be complete.
        for item in items.try_iter().take(items.len()) {
            self.take(item);
        }
        let Some(p) = self.pending.take() else { return };
        self.ration.written(now);
        self.withheld = false;
        let path = name::free_of(&self.folder, "pg-tui-flight");
        match save(&self.window, &path, &self.header, &p.why, p.time, p.thread) {
            Ok(thread) => self.writing = Some(Writing { thread, answers: p.answers }),
            Err(e) => self.tell(&p.answers, Err(format!("cannot start a thread: {e}"))),
        }
    }

    /// The report that the pending file waits for is complete.
    fn is_reported(&self) -> bool {
        let number = self.pending.as_ref().and_then(|p| p.reported);
        number.is_some_and(|n| self.collector.stats().reported >= n)
    }

    /// Take note of a file that has been written; wait for it if asked to.
    fn written(&mut self, wait: bool) {
        if self.writing.as_ref().is_none_or(|w| !wait && !w.thread.is_finished()) {
            return;
        }
        let Some(w) = self.writing.take() else { return };
        let result = w.thread.join().unwrap_or_else(|_| {
            let source = std::io::Error::other("the writing thread panicked");
            Err(SessionError::Io { path: self.folder.clone(), action: "write to it", source })
        });
        if let Ok(saved) = &result {
            self.files.push_back(saved.path.clone());
            while self.files.len() > usize::from(self.args.keep) {
                let Some(oldest) = self.files.pop_front() else { break };
                match std::fs::remove_file(&oldest) {
                    Ok(()) => note(&format!("{} is deleted, as --keep says", shown(&oldest))),
                    Err(e) => tracing::warn!("{}: {e}", oldest.display()),
                }
            }
        }
        self.tell(&w.answers, result.map_err(|e| e.to_string()));
    }

    fn tell(&mut self, answers: &[Sender<String>], result: Result<Saved, String>) {
        let (text, answer) = match result {
            Ok(s) => {
                let path = std::fs::canonicalize(&s.path).unwrap_or_else(|_| s.path.clone());
                let size = format!(
                    "{}, {} events, {}",
                    pg_graph::words::span(s.span),
                    count(s.events),
                    bytes(s.bytes)
                );
                (format!("{} written: {size}", shown(&s.path)), shown(&path))
            }
            Err(e) => {
                self.failed = true;
                (format!("no file was written: {e}"), format!("error: {e}"))
            }
        };
        note(&text);
        for a in answers {
            let _ = a.send(answer.clone());
        }
    }

    fn line(&self) -> String {
        let s = self.collector.stats();
        format!(
            "keeping {} ({})  {} events/s  {} files written  Ctrl-C ends",
            pg_graph::words::span(self.window.span()),
            bytes(self.window.bytes() as u64),
            count(s.events_per_s),
            self.files.len()
        )
    }

    /// What was asked for before the end is still written.
    fn end(&mut self, items: &Receiver<Item>) {
        if stderr().is_terminal() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
        if let Some(p) = &mut self.pending {
            // Asked for anew: what came since belongs to it.
            p.reported = Some(self.collector.report_open());
            let until = Instant::now() + NAMES;
            while !self.is_reported() && Instant::now() < until {
                match items.recv_timeout(PAUSE) {
                    Ok(item) => self.window.item(item),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
        self.write_when_due(items, true);
        self.written(true);
    }
}

/// Say it in place of the progress line.
fn note(text: &str) {
    let clear = if stderr().is_terminal() { "\r\x1b[K" } else { "" };
    say!("{clear}pg-tui: {text}");
}

fn shown(path: &Path) -> String {
    clean(&path.display().to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_for_the_worst_and_has_the_time_after_it() {
        let now = Instant::now();
        let after = Duration::from_secs(3);
        let mut pending = Pending {
            why: "a trifle".into(),
            time: 5,
            thread: ThreadId(1),
            report: now,
            reported: Some(7),
            write: now + Duration::from_secs(1),
            answers: Vec::new(),
        };
        pending.is_for("a hang", 9, ThreadId(2), now, after);
        assert_eq!(pending.why, "a hang; before that: a trifle");
        assert_eq!((pending.time, pending.thread), (9, ThreadId(2)));
        // What goes on is reported again before it is written.
        assert_eq!((pending.reported, pending.write), (None, now + after));
        assert_eq!(pending.report, now + after.saturating_sub(REPORT));
    }
}
