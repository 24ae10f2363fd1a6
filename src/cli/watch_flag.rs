//! `pg-tui watch-flag`: who writes a variable and who reads it, line by line.

use super::args::{WatchFlag, ns};
use super::exit::{Failure, Outcome};
use crate::clean::clean;
use crossbeam_channel::RecvTimeoutError;
use pg_event::{Catalog, StackId};
use pg_tracer::command::Interrupts;
use pg_tracer::flags::{FlagError, Touch, Watch};
use pg_tracer::stacks::StackTable;
use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often signals are looked at.
const PAUSE: Duration = Duration::from_millis(100);
/// Like accesses in a row are told together, at the latest after this.
const TOGETHER: Duration = Duration::from_secs(1);
/// Longest wait for the names of functions of one access.
const NAMES: Duration = Duration::from_secs(5);
/// Frames shown of a stack.
const FRAMES: usize = 4;

/// Run it.
pub fn run(args: &WatchFlag, out: &mut dyn Write) -> Outcome {
    let failed = |e: FlagError| {
        if e.is_refusal() { Failure::NotPermitted(e.to_string()) } else { Failure::Usage(e.to_string()) }
    };
    if let Some(f) = args.flags.iter().find(|f| f.pid.is_some_and(|p| p != args.pid)) {
        return Err(Failure::Usage(format!("{f}: one process at a time; -p says which")));
    }
    pg_tracer::check_permission().map_err(|e| Failure::NotPermitted(e.to_string()))?;
    let interrupts =
        Interrupts::install().map_err(|e| Failure::Other(format!("cannot watch for Ctrl-C: {e}")))?;
    let watch = Watch::start().map_err(|e| Failure::Other(e.to_string()))?;
    for flag in &args.flags {
        let Some(row) = watch.add(args.pid, flag, false).map_err(failed)? else { continue };
        let s = if row.len == 1 { "" } else { "s" };
        say!("pg-tui: watching {}, {} byte{s}", clean(&row.label()), row.len);
    }
    say!("pg-tui: in {} threads and those they create; Ctrl-C ends it", watch.threads());
    let mut printer = Printer::new(args);
    let until = args.duration.map(|s| Instant::now() + Duration::from_nanos(ns(s)));
    loop {
        match watch.touches().recv_timeout(PAUSE) {
            Ok(touches) => touches.iter().try_for_each(|t| printer.touch(t, out))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        printer.overdue(out)?;
        if interrupts.stop(false) || until.is_some_and(|t| Instant::now() >= t) {
            break;
        }
        if !std::fs::exists(format!("/proc/{}", args.pid)).unwrap_or(true) {
            say!("pg-tui: process {} has ended", args.pid);
            break;
        }
    }
    let (touches, notes) = watch.finish();
    touches.iter().try_for_each(|t| printer.touch(t, out))?;
    printer.flush(out)?;
    for note in notes {
        say!("pg-tui: {}", clean(&note));
    }
    Ok(ExitCode::SUCCESS)
}

/// Accesses of one thread that are not told one by one: equal reads, and writes of a loop.
struct Row {
    /// The last one.
    touch: Touch,
    /// How many of them are not told yet.
    count: u64,
    /// How many there were in all.
    all: u64,
    since: Instant,
}

impl Row {
    /// Does `t` belong to it?
    fn goes_on(&self, t: &Touch) -> bool {
        let old = &self.touch;
        let same = old.hit.tid == t.hit.tid && old.flag == t.flag && old.write == t.write;
        same && old.hit.key == t.hit.key && (t.write || old.hit.value == t.hit.value)
    }
}

/// Writes of one thread in one place are told together after so many.
const SINGLY: u64 = 10;

struct Printer<'a> {
    args: &'a WatchFlag,
    stacks: StackTable,
    catalog: Catalog,
    known: HashMap<u64, StackId>,
    /// By thread, flag, and whether it writes.
    rows: HashMap<(u32, u64, bool), Row>,
    /// `CLOCK_MONOTONIC` of the first access.
    start: Option<u64>,
}

impl<'a> Printer<'a> {
    fn new(args: &'a WatchFlag) -> Self {
        Self {
            args,
            stacks: StackTable::new(),
            catalog: Catalog::default(),
            known: HashMap::new(),
            rows: HashMap::new(),
            start: None,
        }
    }

    fn touch(&mut self, t: &Touch, out: &mut dyn Write) -> Result<(), Failure> {
        self.start.get_or_insert(t.hit.time);
        if !t.hit.stack.is_empty() {
            let id = self.stacks.user(t.hit.tgid, &t.hit.regs, &t.hit.stack);
            if self.known.len() > 10_000 {
                self.known.clear();
            }
            self.known.insert(t.hit.key, id);
        }
        if self.args.writes && !t.write {
            return Ok(());
        }
        let place = (t.hit.tid, t.flag.address, t.write);
        match self.rows.get_mut(&place) {
            Some(r) if r.goes_on(t) => {
                r.touch.clone_from(t);
                r.all += 1;
                if t.write && r.all <= SINGLY {
                    self.line(t, 1, out)
                } else {
                    r.count += 1;
                    Ok(())
                }
            }
            _ => {
                // What was before is told before.
                self.flush(out)?;
                self.line(t, 1, out)?;
                let row = Row { touch: t.clone(), count: 0, all: 1, since: Instant::now() };
                self.rows.insert(place, row);
                Ok(())
            }
        }
    }

    fn overdue(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.rows.values().any(|r| r.count > 0 && r.since.elapsed() > TOGETHER) {
            self.tell(out)?;
        }
        Ok(out.flush()?)
    }

    /// Tells what was not told yet.
    fn tell(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut due: Vec<(Touch, u64)> = Vec::new();
        for r in self.rows.values_mut().filter(|r| r.count > 0) {
            due.push((r.touch.clone(), std::mem::take(&mut r.count)));
            r.since = Instant::now();
        }
        due.sort_by_key(|d| d.0.hit.time);
        due.iter().try_for_each(|(t, n)| self.line(t, *n + 1, out))
    }

    fn flush(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        self.tell(out)?;
        self.rows.clear();
        Ok(out.flush()?)
    }

    fn stack(&mut self, key: u64) -> String {
        let Some(id) = self.known.get(&key).copied() else { return String::new() };
        let begin = Instant::now();
        loop {
            let named = self.catalog.frames_of(id).any(|f| !f.function.is_empty());
            if (named && self.stacks.pending() == 0) || begin.elapsed() > NAMES {
                break;
            }
            let delta = self.stacks.symbolize_some(NAMES);
            self.catalog.apply(delta);
            if self.stacks.pending() == 0 {
                break;
            }
        }
        let place = self.catalog.frames_of(id).find(|f| f.line > 0).map_or_else(String::new, |f| {
            format!("  {}:{}", f.file.rsplit('/').next().unwrap_or_default(), f.line)
        });
        let frames: Vec<String> = self.catalog.show_stack(id).into_iter().take(FRAMES).collect();
        clean(&format!("  {}{place}", frames.join(" <- "))).into_owned()
    }

    fn line(&mut self, t: &Touch, count: u64, out: &mut dyn Write) -> Result<(), Failure> {
        let h = &t.hit;
        let seconds = h.time.saturating_sub(self.start.unwrap_or(h.time)) as f64 / 1e9;
        let verb = if t.write { "writes" } else { "reads" };
        let who =
            std::fs::read_to_string(format!("/proc/{}/task/{}/comm", h.tgid, h.tid)).unwrap_or_default();
        let who = if h.tid == h.tgid {
            format!("{} ({})", who.trim(), h.tid)
        } else {
            format!("{} ({} of {})", who.trim(), h.tid, h.tgid)
        };
        let flag = if self.args.flags.len() > 1 { format!(" {}", t.flag.label()) } else { String::new() };
        let times = if count > 1 { format!(" after {} more times", count - 1) } else { String::new() };
        let by = if h.in_kernel { " in a system call" } else { "" };
        let stack = self.stack(h.key);
        writeln!(
            out,
            "{seconds:10.6} s  {:<24} {verb:<6} {}{}{times}{by}{stack}",
            clean(&who),
            h.value,
            clean(&flag)
        )?;
        Ok(())
    }
}
