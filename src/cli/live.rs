//! `pg-tui live`: waits as they are.

use super::args::Live;
use super::exit::{Failure, Outcome};
use crate::app::live::{Left, circle, die_of, run as screen, since, sort, waits, word};
use crate::app::{Options, RunError};
use crate::clean::clean;
use crate::ui::parts::{left, right, thread_name};
use pg_tracer::live::{Live as Look, Row};
use std::io::{Write, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Run it.
pub fn run(args: &Live) -> Outcome {
    for pid in &args.pid {
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            return Err(Failure::Usage(format!("there is no process {pid}")));
        }
    }
    if let Some(seconds) = args.once {
        return print(args, seconds);
    }
    match screen(&args.pid, &Options::from(&args.screen)) {
        Ok(Left::Quit) => Ok(ExitCode::SUCCESS),
        Ok(Left::Record { pid, hangs }) => record(pid, hangs),
        Ok(Left::Signal(n)) => {
            die_of(n);
            Ok(ExitCode::FAILURE)
        }
        Err(e @ (RunError::Config(_) | RunError::NoTerminal(_))) => Err(Failure::Usage(e.to_string())),
        Err(e) => Err(Failure::Other(e.to_string())),
    }
}

/// How long what hangs already is recorded: holders are looked up after half a second, and some waits are short.
const SECONDS: u32 = 5;

/// Becomes a recorder: a new program image, so that nothing of the screen is left over.
fn record(pid: u32, hangs: bool) -> Outcome {
    let me = std::env::current_exe().map_err(|e| Failure::Other(format!("cannot find myself: {e}")))?;
    let mut args = vec!["record".to_owned(), "-p".to_owned(), pid.to_string()];
    if hangs {
        args.extend(["-d".to_owned(), SECONDS.to_string()]);
        say!("pg-tui: {pid} hangs already: recording it for {SECONDS} s, then it is shown why");
    } else {
        say!("pg-tui: recording {pid}: wait until it has hung, then press Ctrl-C");
    }
    let e = Command::new(me).args(args).exec();
    Err(Failure::Other(format!("cannot start the recorder: {e}")))
}

/// One list as text.
fn print(args: &Live, seconds: u32) -> Outcome {
    let mut look = Look::new(&args.pid);
    look.look();
    std::thread::sleep(Duration::from_secs(u64::from(seconds)) + Duration::from_millis(50));
    let mut rows = look.look();
    sort(&mut rows);
    let mut out = stdout().lock();
    for r in &rows {
        writeln!(out, "{}", text(r, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns of `process/thread`.
const NAME: usize = 28;

/// A thread as a line. What tells most of it comes last and is not cut.
fn text(r: &Row, all: &[Row]) -> String {
    let (what, who) = waits(r, all);
    let ring = circle(r, all);
    let ring = if ring.is_empty() { ring } else { format!("  circle: {ring}") };
    let polls: Vec<&str> = r.members.iter().map(String::as_str).collect();
    let polls = if polls.len() < 2 { String::new() } else { format!(" ({})", polls.join(", ")) };
    let who = if who.is_empty() { who } else { format!("  <- {who}") };
    let name = left(&thread_name(&clean(&format!("{}/{}", r.process, r.thread)), NAME), NAME);
    let (state, since) = (left(word(r.doing), 8), right(&since(r), 10));
    let line = format!("{:>8} {:>8}  {name} {state} {since}  {what}{polls}{who}{ring}", r.pid, r.tid);
    clean(line.trim_end()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::parts::width;
    use pg_tracer::live::Doing;

    fn row(process: &str, thread: &str) -> Row {
        Row {
            pid: 4_194_303,
            tid: 4_194_304,
            process: process.into(),
            thread: thread.into(),
            cmdline: String::new(),
            doing: Doing::Waits,
            since: 3_723_000_000_000,
            longer: true,
            cpu: 0.0,
            call: "read".into(),
            object: "pipe:[7]".into(),
            members: Vec::new(),
            holders: Vec::new(),
            parent: 0,
            opens: false,
            circle: Vec::new(),
            likely: false,
        }
    }

    #[test]
    fn columns_stay_where_they_are() {
        let names = [
            ("sh", "sh"),
            ("NetworkManager-d", "pool-spawner-99"),
            // The kernel has names of 63 bytes for its workers, and characters may be two columns wide.
            ("kworker/u256:12-events_unbound_and_much_more_than_that_is", "x"),
            (
                "\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}",
                "\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}",
            ),
            ("e\u{301}\u{1b}[2J", "\u{301}\u{301}"),
        ];
        for (process, thread) in names {
            let line = text(&row(process, thread), &[]);
            let at = line.find("blocked").expect("its state");
            assert_eq!(width(&line[..at]), 8 + 1 + 8 + 2 + NAME + 1, "{line}");
            let at = line.find("read pipe:[7]").expect("its wait");
            assert_eq!(width(&line[..at]), 8 + 1 + 8 + 2 + NAME + 1 + 8 + 1 + 10 + 2, "{line}");
            assert!(!line.contains('\u{1b}'));
        }
        let long = text(&row("NetworkManager-d", "pool-spawner-99"), &[]);
        assert!(long.contains("\u{2026}/pool-spawner-99 "), "{long}");
    }
}
