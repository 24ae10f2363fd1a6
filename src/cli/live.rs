//! `pg-tui live`: waits as they are.

use super::args::Live;
use super::exit::{Failure, Outcome};
use crate::app::live::{Left, circle, die_of, run as screen, since, sort, waits, word};
use crate::app::{Options, RunError};
use crate::clean::clean;
use pg_tracer::live::Live as Look;
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
        Ok(Left::Record(pid)) => record(pid),
        Ok(Left::Signal(n)) => {
            die_of(n);
            Ok(ExitCode::FAILURE)
        }
        Err(e @ (RunError::Config(_) | RunError::NoTerminal(_))) => Err(Failure::Usage(e.to_string())),
        Err(e) => Err(Failure::Other(e.to_string())),
    }
}

/// Becomes a recorder: a new program image, so that nothing of the screen is left over.
fn record(pid: u32) -> Outcome {
    let me = std::env::current_exe().map_err(|e| Failure::Other(format!("cannot find myself: {e}")))?;
    eprintln!("pg-tui: recording process {pid}; press Ctrl-C when it has hung");
    let e = Command::new(me).args(["record", "-p", &pid.to_string()]).exec();
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
        let (what, who) = waits(r);
        let ring = circle(r, &rows);
        let ring = if ring.is_empty() { ring } else { format!("  circle: {ring}") };
        let polls: Vec<&str> = r.members.iter().map(String::as_str).collect();
        let polls = if polls.len() < 2 { String::new() } else { format!(" ({})", polls.join(", ")) };
        let who = if who.is_empty() { who } else { format!("  <- {who}") };
        let name = format!("{}/{}", clean(&r.process), clean(&r.thread));
        let line = format!(
            "{:>8} {:>8}  {name:<24} {:<8} {:>10}  {what}{polls}{who}{ring}",
            r.pid,
            r.tid,
            word(r.doing),
            since(r)
        );
        writeln!(out, "{}", clean(line.trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}
