//! `pg-tui diagnose --steps`: what threads executed while they were followed.

use super::args::Diagnose;
use super::diagnose::harmless;
use super::exit::{Failure, Outcome};
use crate::clean::clean;
use crate::session::Loaded;
use crate::steps::{Steps, print};
use pg_graph::BurstFact;
use regex::Regex;
use std::io::Write;
use std::process::ExitCode;

/// Run it. Code 1: nobody was followed.
pub fn run(args: &Diagnose, process: Option<&Regex>, loaded: &Loaded, out: &mut dyn Write) -> Outcome {
    let catalog = &loaded.catalog;
    let wanted = |b: &&BurstFact| {
        let (thread, of) = (catalog.thread(b.thread), catalog.process_of(b.thread));
        let named = |r: &Regex| {
            thread.is_some_and(|t| r.is_match(&t.name))
                || of.is_some_and(|p| p.cmdlines.iter().any(|c| r.is_match(&c.text)))
        };
        args.tid.is_none_or(|tid| thread.is_some_and(|t| t.tid == tid || t.ns_tid == tid))
            && args.pid.is_none_or(|pid| of.is_some_and(|p| p.pid == pid || p.ns_pid == pid))
            && process.is_none_or(named)
    };
    let mut bursts: Vec<&BurstFact> = loaded.graph.bursts().iter().filter(wanted).collect();
    bursts.sort_by_key(|b| b.start);
    let steps = |b: &BurstFact| catalog.trace(b.trace).map(|t| Steps::new(t, catalog));
    if args.json {
        let all: Vec<_> = bursts.iter().filter_map(|b| Some(print::json(&steps(b)?, b, catalog))).collect();
        let text = serde_json::to_string_pretty(&serde_json::json!({"format": 1, "bursts": all}))
            .map_err(|e| Failure::Other(e.to_string()))?;
        writeln!(out, "{}", harmless(&text))?;
    } else {
        for (n, b) in bursts.iter().enumerate() {
            let Some(s) = steps(b) else { continue };
            let name = catalog.thread(b.thread).map_or("", |t| t.name.as_str());
            let tid = catalog.thread(b.thread).map_or(0, |t| t.tid);
            let pid = catalog.process_of(b.thread).map_or(0, |p| p.pid);
            let gap = if n > 0 { "\n" } else { "" };
            write!(
                out,
                "{gap}{}",
                print::text(&s, b, &format!("thread {tid} ({}) of process {pid}", clean(name)))
            )?;
        }
    }
    out.flush()?;
    if bursts.is_empty() {
        let told = loaded.coverage.notes.iter().find(|n| n.contains("not followed"));
        let why = told.map_or_else(|| "record it with --steps".to_owned(), |n| clean(n).into_owned());
        return Err(Failure::Nothing(format!("{}: nobody was followed: {why}", args.file.display())));
    }
    Ok(ExitCode::SUCCESS)
}
