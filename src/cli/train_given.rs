//! `pg-tui train --unit-begin`: units that a person gave the boundaries of. What they call is seen in a recording first,
//! then in every unit by probes.

use super::args::Train;
use super::exit::{Failure, Outcome};
use super::guard::targets::Targets;
use super::launched::{Launched, too_short};
use super::measure::{log, unwritable};
use super::record::{self, tracer_failure};
use super::train::{MEASURE, Recording, as_typed};
use super::{profile, record::record};
use crate::app::time::counted;
use crate::clean::clean;
use crate::guard::{Ask, Bounds, Located, Measuring, measure};
use crate::session::Session;
use crate::unit_rule::quoted;
use crate::units;
use pg_event::{Catalog, Item};
use pg_graph::units::{Function, Limit, Place};
use pg_tracer::command::Interrupts;
use pg_tracer::units::Places;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long is measured when the command line says 0: without that nothing is learnt.
const LEAST: f64 = 1.0;
/// How long a command is recorded when nothing says so, in seconds: the rest of it is measured.
const SEEING: f64 = 5.0;

/// Run it.
pub fn run(args: &Train, bounds: &Bounds, out: &mut dyn Write) -> Outcome {
    let command = args.command.as_slice();
    if !args.from.is_empty() && command.is_empty() && args.pid.is_empty() && args.comm.is_empty() {
        return Err(Failure::Usage(format!(
            "a recording does not say when units begin that you name ({}): probes see that in a program that runs. Name it as \
             well, and the recording shows which functions tell its units apart: -p PID, --comm REGEX, or a command after --",
            bounds.begin
        )));
    }
    pg_tracer::check_permission().map_err(|e| tracer_failure(&e))?;
    let launched = if command.is_empty() { None } else { Some(Launched::start(command)?) };
    let named = args.pid.iter().copied().chain(launched.as_ref().map(Launched::pid));
    // A command may have ended meanwhile.
    let ended = |e| if launched.as_ref().is_some_and(Launched::has_ended) { too_short() } else { e };
    let mut targets = Targets::of(&named.collect::<Vec<_>>(), &args.comm).map_err(ended)?;
    // Better to know before minutes are spent.
    let located = match &launched {
        Some(launched) => launched.locate(bounds)?,
        None => Located::of(bounds, &targets.pids()).map_err(|e| Failure::Usage(e.to_string()))?,
    };
    let mut functions = functions(args, &located, bounds, launched.as_ref())?;
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
    let duration = Duration::from_secs_f64(args.measure.unwrap_or(MEASURE).max(LEAST));
    out.flush()?;
    let units_file = args.units.as_deref();
    let log = log(units_file, &functions)?;
    let over = || interrupts.stop(false) || launched.as_ref().is_some_and(Launched::has_ended);
    let measured = measure(&ask, &functions, duration, log, over).map_err(|e| match e {
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
        if launched.as_ref().is_some_and(Launched::has_ended) {
            return Err(too_short());
        }
        return Err(Failure::Nothing(format!(
            "no unit ({given}) began and ended in {} s: was the program busy with that?",
            duration.as_secs_f64()
        )));
    }
    writeln!(
        out,
        "measured by probes: {} ({}), told from each other at {} ({} ns a probe)",
        counted(learnt.units() as usize, "unit"),
        clean(&given),
        counted(measured.functions, "function"),
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
    Ok(launched.map_or(ExitCode::SUCCESS, |l| ExitCode::from(l.end(&interrupts))))
}

/// Functions that were seen within the units: in recordings that are there, or in one that is made now.
fn functions(
    args: &Train,
    located: &Located,
    bounds: &Bounds,
    launched: Option<&Launched>,
) -> Result<BTreeSet<(Function, Place)>, Failure> {
    let mut places = Places::default();
    let mut seen = |path: &Path| -> Result<Vec<(Function, Place)>, Failure> {
        let session = Session::open(path)?;
        // Where nothing was asked for, everything was.
        let in_focus = |i: &Item| matches!(i, Item::Catalog(d) if d.threads.iter().any(|(_, t)| t.focus));
        let focus = session.items().any(|i| in_focus(&i));
        let wanted = |c: &Catalog, t| !focus || c.thread(t).is_some_and(|t| t.focus);
        Ok(units::inside(session.items(), &mut places, &located.key, bounds.end.is_none(), wanted))
    };
    let mut all = BTreeSet::new();
    for path in &args.from {
        all.extend(seen(path)?);
    }
    if !args.from.is_empty() {
        return Ok(all);
    }
    let recording = Recording::new(args.keep.as_deref());
    let done = record(&as_typed(args, &recording.path, launched.map(|l| (l.pid(), SEEING)))?)?;
    all.extend(seen(&done.path)?);
    if launched.is_some_and(Launched::has_ended) {
        return Err(Failure::Nothing(ended_early(args, bounds, &recording.keep())));
    }
    Ok(all)
}

/// What to do when a command ends within its recording.
fn ended_early(args: &Train, bounds: &Bounds, kept: &Path) -> String {
    let mut words = vec!["pg-tui".to_owned(), "train".into(), "--from".into(), kept.display().to_string()];
    words.extend(["--unit-begin".into(), bounds.begin.to_string()]);
    words.extend(bounds.end.iter().flat_map(|e| ["--unit-end".into(), e.to_string()]));
    words.extend(args.output.iter().flat_map(|o| ["-o".into(), o.display().to_string()]));
    let command = args.command.iter().map(|w| w.to_string_lossy().into_owned());
    let quoted = |w: String| quoted(&w);
    let words: Vec<String> =
        words.into_iter().map(quoted).chain(["--".into()]).chain(command.map(quoted)).collect();
    format!(
        "the command ended within its recording, before its units were measured. Record less of it (--duration), or measure \
         another run from its begin: {}",
        words.join(" ")
    )
}
