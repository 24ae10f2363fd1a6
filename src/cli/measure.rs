//! `pg-tui train`, second part: what the recording showed of a program that still runs is measured by probes.

use super::exit::Failure;
use super::guard::targets::Targets;
use super::record::tracer_failure;
use crate::app::time::counted;
use crate::clean::clean;
use crate::guard::{Ask, Measuring, UnitLog, measure};
use pg_graph::units::{Function, Limit, Place, Profile};
use pg_tracer::command::Interrupts;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The file that each measured unit is written to, when one is wanted.
pub fn log(units: Option<&Path>, functions: &[(Function, Place)]) -> Result<Option<UnitLog>, Failure> {
    units.map(|p| UnitLog::create(p, functions)).transpose().map_err(|e| unwritable(units, &e))
}

/// It cannot be written.
pub fn unwritable(units: Option<&Path>, e: &std::io::Error) -> Failure {
    let path = units.map_or_else(String::new, |p| p.display().to_string());
    Failure::Other(format!("cannot write {}: {e}", clean(&path)))
}

/// The profile with the units of its loops measured anew at these functions; loops without any are left as they are.
pub fn measured(
    recorded: Profile,
    functions: &[(Function, Place)],
    targets: &Targets,
    seconds: f64,
    units: Option<&Path>,
    out: &mut dyn Write,
) -> Result<Profile, Failure> {
    let pids = targets.pids();
    let ask = Ask { profile: &recorded, file: "", pids: &pids, limit: Limit::Auto, probes: true };
    let interrupts =
        Interrupts::install().map_err(|e| Failure::Other(format!("cannot watch for Ctrl-C: {e}")))?;
    let log = log(units, functions)?;
    let duration = Duration::from_secs_f64(seconds);
    let measured = match measure(&ask, functions, duration, log, || interrupts.stop(false)) {
        Ok(m) => m,
        Err(Measuring::Refused(e)) => {
            writeln!(out, "not measured by probes: {e}")?;
            return Ok(recorded);
        }
        Err(Measuring::Tracer(e)) => return Err(tracer_failure(&e)),
        Err(Measuring::Units(e)) => return Err(unwritable(units, &e)),
    };
    for n in &measured.notes {
        writeln!(out, "note: {}", clean(n))?;
    }
    if measured.functions == 0 {
        writeln!(out, "not measured by probes: no function of the program can be probed here")?;
        return Ok(recorded);
    }
    let hot = match measured.hot {
        0 => String::new(),
        n => format!("; {n} others are called too often for that"),
    };
    writeln!(
        out,
        "measured by probes ({} ns each): {}; seen at {}{hot}; times at the {} that tell types apart",
        measured.hit_ns,
        counted(measured.profile.units() as usize, "unit"),
        counted(measured.functions, "function"),
        measured.telling
    )?;
    let mut all = recorded;
    all.retain_loops(|l| !measured.profile.loops().any(|m| m == l));
    Ok(all.merge(&measured.profile))
}
