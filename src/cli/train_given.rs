//! `pg-tui train --unit-begin`: units that a person gave the boundaries of. What they call is seen in a recording first,
//! then in every unit by probes.

use super::args::Train;
use super::exit::{Failure, Outcome};
use super::guard::targets::Targets;
use super::measure::{log, unwritable};
use super::record::{self, tracer_failure};
use super::train::{Recording, as_typed};
use super::{profile, record::record};
use crate::clean::clean;
use crate::guard::{Ask, Bounds, Located, Measuring, measure};
use crate::session::Session;
use crate::units;
use pg_graph::units::Limit;
use pg_tracer::command::Interrupts;
use pg_tracer::units::Places;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long is measured when the command line says 0: without that nothing is learnt.
const LEAST: f64 = 1.0;

/// Run it.
pub fn run(args: &Train, bounds: &Bounds, out: &mut dyn Write) -> Outcome {
    pg_tracer::check_permission().map_err(|e| tracer_failure(&e))?;
    let mut targets = Targets::of(&args.pid, &args.comm)?;
    let pids = targets.pids();
    // Better to know before minutes are spent.
    let located = Located::of(bounds, &pids).map_err(|e| Failure::Usage(e.to_string()))?;
    let recording = Recording::new(args.keep.as_deref());
    let done = record(&as_typed(args, &recording.path)?)?;
    let session = Session::open(&done.path)?;
    let focus = |c: &pg_event::Catalog, t| c.thread(t).is_some_and(|t| t.focus);
    let within = bounds.end.is_none();
    let seen = units::inside(session.items(), &mut Places::default(), &located.key, within, focus);
    let mut functions: BTreeSet<_> = seen.into_iter().collect();
    // Also those that were learnt earlier: the units of all runs must be told by the same functions.
    let earlier = args.output.as_ref().and_then(|p| units::read(p).ok()).unwrap_or_default();
    functions.extend(earlier.placed_functions());
    let functions: Vec<_> = functions.into_iter().collect();
    drop(targets.arrived());
    let pids = targets.pids();
    let seed = located.seed();
    let ask = Ask { profile: &seed, file: "", pids: &pids, limit: Limit::Auto, probes: true };
    let interrupts =
        Interrupts::install().map_err(|e| Failure::Other(format!("cannot watch for Ctrl-C: {e}")))?;
    let duration = Duration::from_secs_f64(args.measure.max(LEAST));
    out.flush()?;
    let units_file = args.units.as_deref();
    let log = log(units_file, &functions)?;
    let measured =
        measure(&ask, &functions, duration, log, || interrupts.stop(false)).map_err(|e| match e {
            Measuring::Refused(e) => Failure::Usage(e.to_string()),
            Measuring::Tracer(e) => record::tracer_failure(&e),
            Measuring::Units(e) => unwritable(units_file, &e),
        })?;
    for n in &measured.notes {
        writeln!(out, "note: {}", clean(n))?;
    }
    let given = located.key.given.as_ref().map(ToString::to_string).unwrap_or_default();
    let learnt = measured.profile;
    if learnt.units() == 0 {
        out.flush()?;
        return Err(Failure::Nothing(format!(
            "no unit ({given}) began and ended in {} s: was the program busy with that?",
            duration.as_secs_f64()
        )));
    }
    writeln!(
        out,
        "measured by probes: {} units ({}), told from each other at {} functions ({} ns a probe)",
        learnt.units(),
        clean(&given),
        measured.functions,
        measured.hit_ns
    )?;
    let name = located.module.rsplit('/').next().unwrap_or("app");
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.pgprof", clean(name))));
    let written =
        units::update(&path, |old| old.unwrap_or_default().merge(&learnt)).map_err(profile::unchanged)?;
    writeln!(out)?;
    profile::show(&written.profile, out)?;
    writeln!(out, "\n{}: {} units", clean(&path.display().to_string()), learnt.units())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
