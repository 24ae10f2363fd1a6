//! `pg-tui record --steps`: threads that are followed instruction by instruction while it is recorded.

use super::tracer_failure;
use crate::cli::args::Record;
use crate::cli::diagnose::regex;
use crate::cli::exit::Failure;
use pg_tracer::Collector;
use pg_tracer::steps::{Ask, Who};
use std::time::Duration;

/// What was asked for, if anything was.
pub fn ask(args: &Record) -> Result<Option<Ask>, Failure> {
    if args.steps.is_empty() {
        return Ok(None);
    }
    let focus =
        !(args.pid.is_empty() && args.cgroup.is_empty() && args.comm.is_empty() && args.command.is_empty());
    let who = |text: &String| {
        match text.as_str() {
        "" if !focus => Err(Failure::Usage(
            "--steps: which thread? Choose the focus (-p, --comm, --cgroup or a command), or name the thread: \
             --steps TID"
                .into(),
        )),
        "" => Ok(Who::Busiest),
        _ => match text.parse::<u32>() {
            Ok(tid) if tid > 0 && !std::path::Path::new(&format!("/proc/{tid}")).exists() => {
                Err(Failure::Usage(format!("--steps {tid}: there is no such thread")))
            }
            Ok(tid) => Ok(Who::Tid(tid)),
            Err(_) => regex("--steps", text).map(Who::Name),
        },
    }
    };
    Ok(Some(Ask {
        who: args.steps.iter().map(who).collect::<Result<_, _>>()?,
        time: Duration::from_nanos(args.steps_for),
        most: args.steps_max,
        after: Duration::from_nanos(args.steps_after),
    }))
}

/// Begin, once it is recorded.
pub fn follow(ask: Option<Ask>, collector: &Collector) -> Result<(), Failure> {
    ask.map_or(Ok(()), |ask| collector.follow(ask).map_err(|e| tracer_failure(&e)))
}
