//! `pg-tui record --flag`: data flags that are watched while it is recorded.

use super::tracer_failure;
use crate::cli::args::Record;
use crate::cli::exit::Failure;
use pg_tracer::Collector;
use pg_tracer::flags::{AtExec, FlagError, FlagSpec};

fn failure(e: FlagError) -> Failure {
    tracer_failure(&e.into())
}

/// Can it be known in which process each flag is?
pub fn check(args: &Record) -> Result<(), Failure> {
    let nowhere = args.pid.is_empty() && args.command.is_empty();
    match args.flag.iter().find(|f| f.pid.is_none() && nowhere) {
        Some(f) => Err(failure(FlagError::NoProcess(f.to_string()))),
        None => Ok(()),
    }
}

/// Has the command stop at its exec, when a flag of it is to be watched.
pub fn hold(args: &Record, command: u32) -> Result<Option<AtExec>, Failure> {
    if args.flag.iter().all(|f| f.pid.is_some()) {
        return Ok(None);
    }
    AtExec::seize(command)
        .map(Some)
        .map_err(|e| Failure::Other(format!("cannot hold the command until its flags are watched: {e}")))
}

/// Watches the flags; `command` is stopped at its exec.
pub fn watch(args: &Record, collector: &Collector, command: Option<u32>) -> Result<(), Failure> {
    for flag in &args.flag {
        let one: &[FlagSpec] = std::slice::from_ref(flag);
        if let Some(pid) = flag.pid {
            collector.watch(pid, one, false).map_err(failure)?;
            continue;
        }
        // A library of the command's may have it: none is loaded yet.
        let mut watched = command.is_some();
        if let Some(pid) = command {
            collector.watch(pid, one, true).map_err(failure)?;
        }
        let mut first = None;
        for pid in &args.pid {
            match collector.watch(*pid, one, false) {
                Ok(()) => watched = true,
                Err(e @ (FlagError::NoSymbol { .. } | FlagError::NotMapped { .. })) => {
                    first.get_or_insert(e);
                }
                Err(e) => return Err(failure(e)),
            }
        }
        if let Some(e) = first.filter(|_| !watched) {
            return Err(failure(e));
        }
    }
    Ok(())
}
