//! Guards beside a flight recorder: each violation is an event of the recording, and has the last while written to a
//! file.

use super::profile_file::ProfileFile;
use super::targets::Targets;
use super::watch::{Out, Watch};
use super::{METRICS, note, tell, write_metrics};
use crate::cli::args::{Guard, Record, record_as_typed};
use crate::cli::exit::Failure;
use crate::cli::record::flight::{Companion, run_beside};
use pg_event::CatalogDelta;
use pg_graph::words::span;
use pg_tracer::Collector;
use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, Instant};

/// Run it until it ends.
pub fn run<'a>(
    args: &'a Guard,
    watch: &'a mut Watch,
    file: ProfileFile<'a>,
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
    file: ProfileFile<'a>,
    targets: &'a mut Targets,
    out: &'a mut dyn Write,
    until: Option<Instant>,
    written: Instant,
}

impl Companion for Beside<'_> {
    fn rows(&self) -> CatalogDelta {
        self.watch.rows()
    }

    fn look(&mut self, collector: &Collector) -> Result<Option<String>, Failure> {
        let mut why = None;
        for told in self.watch.receive(Duration::ZERO) {
            match told {
                Out::Violation(v, of, shown) => {
                    tell(self.args, &shown, self.out)?;
                    let named =
                        if shown.info.unit_type.is_empty() { "a unit" } else { &shown.info.unit_type };
                    why.get_or_insert_with(|| {
                        format!("{named} of {} runs for {}", shown.info.process, span(shown.info.elapsed_ns))
                    });
                    collector.violation(*v, of);
                }
                Out::Unit(unit, of) => collector.unit(unit, of),
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
            write_metrics(self.args, self.watch.loops(), &self.watch.counts());
        }
        Ok(why)
    }

    fn has_ended(&mut self) -> bool {
        self.until.is_some_and(|t| Instant::now() >= t) || self.targets.ended() || self.watch.is_finished()
    }
}
