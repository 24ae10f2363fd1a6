//! The flag that a recorded thread asks, looked for in the thread itself, if it still runs here.

use super::recording::Recording;
use crate::clean::clean;
use crate::found_flag::lines;
use pg_event::ThreadId;
use pg_tracer::flags::{Ask, find};
use pg_tracer::procfs::{join_argv, read_cmdline, read_stat};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Instructions followed at most.
const STEPS: u32 = 2000;
/// How long the thread may sleep in between.
const PATIENCE: Duration = Duration::from_secs(3);
/// Clock ticks a second in `/proc` (`USER_HZ` on x86-64).
const TICKS: f64 = 100.0;

/// Number of the process and thread, if they are still those that were recorded.
pub(super) fn still_there(r: &Recording, thread: ThreadId) -> Result<(u32, u32), String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let here = read("/proc/sys/kernel/hostname");
    if !r.header.redacted.is_empty() {
        return Err("this copy of the recording is redacted: its processes have other names".into());
    }
    if here.trim() != r.header.host {
        let host = clean(&r.header.host).into_owned();
        let host = if host.is_empty() { "another machine".to_owned() } else { host };
        return Err(format!("this was recorded on {host}: run `pg-tui find-flag` there, while it hangs"));
    }
    let gone =
        || "the process no longer runs: make it hang again, and run `pg-tui find-flag -p PID`".to_owned();
    let (t, p) = r.catalog.thread(thread).zip(r.catalog.process_of(thread)).ok_or_else(gone)?;
    let stat = read_stat(p.pid).ok_or_else(gone)?;
    // A number passes on to another process, at the latest when the machine is started anew.
    let uptime: f64 = read("/proc/uptime").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    let began = now - (uptime - stat.start_ticks as f64 / TICKS);
    let recorded = r.header.start_wall.saturating_add(r.graph.duration()) as f64 / 1e9;
    let argv = read_cmdline(p.pid).map(|a| join_argv(&a)).unwrap_or_default();
    if began > recorded + 1.0 || (!argv.is_empty() && argv != p.cmdline()) {
        return Err(gone());
    }
    if std::fs::symlink_metadata(format!("/proc/{}/task/{}", p.pid, t.tid)).is_err() {
        return Err("the process still runs, but this thread of it has ended".into());
    }
    Ok((p.pid, t.tid))
}

/// What was found, in lines; or why nothing can be.
///
/// # Errors
/// A sentence.
pub fn run(r: &Recording, thread: ThreadId) -> Result<Vec<String>, String> {
    let (pid, tid) = still_there(r, thread)?;
    let ask = Ask { pid, tid: Some(tid), steps: STEPS, patience: PATIENCE };
    match find(&ask) {
        Ok(found) => Ok(lines(&found)),
        Err(e) => Err(e.to_string()),
    }
}
