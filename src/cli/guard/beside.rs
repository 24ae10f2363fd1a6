//! Guards beside a flight recorder: each violation is an event of the recording, and has the last while written to a
//! file.

use super::profile_file::ProfileFile;
use super::targets::Targets;
use super::watch::{Out, Watch};
use super::{METRICS, note, tell, write_metrics};
use crate::cli::args::{Guard, Record, record_as_typed};
use crate::cli::exit::Failure;
use crate::cli::record::flight::{Companion, run_beside};
use pg_event::{CatalogDelta, Ns};
use pg_graph::words::span;
use pg_tracer::Collector;
use pg_tracer::guards::Ended;
use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, Instant};

/// Run it until it ends.
pub fn run<'a>(
    args: &'a Guard,
    watch: &'a mut Watch,
    file: ProfileFile,
    targets: &'a mut Targets,
    out: &'a mut dyn Write,
) -> Result<(), Failure> {
    let record = as_typed(args)?;
    let until = args.duration.map(|s| Instant::now() + Duration::from_secs_f64(s));
    let mut beside = Beside { args, watch, file, targets, out, until, written: Instant::now() };
    run_beside(&record, args.window, Some(&mut beside)).map(|_| ())
}

/// The flight recorder, as if typed: what is not said here is as `pg-tui record` has it.
fn as_typed(args: &Guard) -> Result<Record, Failure> {
    // The window is given apart.
    let mut line: Vec<OsString> = ["--no-tui", "--flight", "1s"].map(Into::into).into();
    line.extend(args.pid.iter().flat_map(|p| ["-p".into(), p.to_string().into()]));
    line.extend(args.comm.iter().map(|c| format!("--comm={c}").into()));
    line.extend(args.output.iter().flat_map(|o| ["-o".into(), o.into()]));
    record_as_typed(line)
}

struct Beside<'a> {
    args: &'a Guard,
    watch: &'a mut Watch,
    file: ProfileFile,
    targets: &'a mut Targets,
    out: &'a mut dyn Write,
    until: Option<Instant>,
    written: Instant,
}

impl Beside<'_> {
    /// What kind of unit it was, and how long it may take, ns; `None`: as long as it likes.
    fn limit(&self, unit: &Ended) -> Option<(&str, Ns)> {
        let watched = self.watch.loops().get(unit.of_loop)?;
        let known =
            unit.of.and_then(|t| Some((watched.types.get(t)?.name.as_str(), *watched.limits.0.get(t)?)));
        Some(known.unwrap_or(("a unit", watched.limits.1))).filter(|l| l.1 > 0)
    }
}

impl Companion for Beside<'_> {
    fn rows(&self) -> CatalogDelta {
        self.watch.rows()
    }

    fn look(&mut self, collector: &Collector) -> Result<Option<(String, f64)>, Failure> {
        let mut why: Option<(String, f64)> = None;
        let mut weigh = |text: String, weight: f64| {
            if why.as_ref().is_none_or(|w| w.1 < weight) {
                why = Some((text, weight));
            }
        };
        let since = collector.began();
        for told in self.watch.receive(Duration::ZERO) {
            match told {
                Out::Violation(v, of) => collector.violation(*v, of),
                Out::Look(l, of) => collector.look(l, of),
                Out::TakenBack(w, of) => collector.withdrawn(w, of),
                Out::Withdrawn(w) => super::tell_withdrawn(self.args, &w, self.out)?,
                Out::Shown(shown) => {
                    tell(self.args, &shown, self.out)?;
                    let named =
                        if shown.info.unit_type.is_empty() { "a unit" } else { &shown.info.unit_type };
                    // For want of a CPU any unit may take some while.
                    let weight = if shown.starved { 1.0 } else { shown.info.excess };
                    let (process, took) = (&shown.info.process, span(shown.info.elapsed_ns));
                    // The recording has nothing of what was before it. Told again as slow: what it took in the end is
                    // weighed then.
                    if shown.seen >= since && (shown.starved || !shown.slow_before) {
                        weigh(format!("{named} of {process} runs for {took}"), weight);
                    }
                }
                Out::Unit(unit, of, slow) => {
                    // Only its end says how long it took: it is told as soon as it takes too long.
                    if let Some((name, limit)) = self.limit(&unit).filter(|_| slow && unit.end >= since) {
                        let took = format!("{name} of process {} took {}", unit.pid, span(unit.elapsed));
                        weigh(took, unit.elapsed as f64 / limit as f64);
                    }
                    collector.unit(unit, of);
                }
                Out::Over(over) => super::tell_over(self.args, &over, self.out)?,
                Out::Note(n) => note(&n),
            }
        }
        for pid in self.targets.arrived() {
            self.watch.add(pid);
            collector.focus_on(pid);
        }
        self.file.follow(self.watch);
        if self.written.elapsed() >= METRICS {
            self.written = Instant::now();
            let (counts, sight) = self.watch.counts();
            write_metrics(self.args, self.watch.loops(), &counts, &sight);
        }
        Ok(why)
    }

    fn has_ended(&mut self) -> bool {
        self.until.is_some_and(|t| Instant::now() >= t) || self.targets.ended() || self.watch.is_finished()
    }
}
