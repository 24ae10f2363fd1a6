//! `pg-tui guard`: units of work of running programs, held to what a profile says.

mod beside;
pub(super) mod given;
mod profile_file;
pub(super) mod targets;
mod unsettled;
mod watch;

use super::args::{Guard, OnViolation};
use super::exit::{Failure, Outcome};
use super::{profile, record};
use crate::clean::{clean, clean_lines};
use crate::guard::{
    Ask, Guarding, Located, Refused, Watched, json, metrics, over_json, over_text, seen, text,
};
use crate::units;
use pg_event::Ns;
use pg_graph::words::span;
use pg_tracer::command::Interrupts;
use pg_tracer::guards::{Counts, Sight};
use profile_file::ProfileFile;
use serde_json::json as value;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use targets::Targets;
use watch::{Ended, Out, Watch};

/// Exit code when units took too long.
const VIOLATED: u8 = 6;
/// Samples a second, to see units that run long without coming by a guard.
const HZ: u32 = 99;
/// After a violation of a type none of it is told for so long; then for twice as long.
const PERIOD: u64 = 200_000_000;
/// What probes at functions may take of the time that units have a CPU, by what a probe costs in a short loop: in a server
/// that is busy with other things each takes longer.
const SHARE: f64 = 0.005;
/// A unit of a loop in so long is recorded that took no longer than it may, ns: slow ones are compared with these.
const SPARSE: u64 = 5_000_000;
/// Commands of --run that run at a time, at most.
const COMMANDS: usize = 16;
/// How often metrics are written.
const METRICS: Duration = Duration::from_secs(5);
/// To find the types of more call trees takes so long that people wonder.
const MANY: usize = 300;
/// How often targets and signals are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What is said where neither profile nor function is named.
const UNSAID: &str = "what is guarded? Name a profile (--profile FILE; `pg-tui train` makes one), or a function and how long a \
                      call of it may take (--unit-begin FUNCTION --threshold 50ms)";

/// Run it.
pub fn run(args: &Guard, out: &mut dyn Write) -> Outcome {
    for (given, option, what, wanted) in [
        (args.run.is_some(), "--run", OnViolation::Command, "command"),
        (args.output.is_some(), "-o", OnViolation::Record, "record"),
    ] {
        if given && args.on_violation != what {
            return Err(Failure::Usage(format!("{option} goes with --on-violation {wanted}")));
        }
    }
    if let Some(folder) = args.output.as_deref().filter(|f| !f.is_dir()) {
        return Err(record::flight::no_folder(folder));
    }
    if let Some(path) = &args.metrics {
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let wrong = if folder.is_dir() { "this is a folder" } else { "there is no such folder" };
        if path.is_dir() || !folder.is_dir() {
            return Err(Failure::Usage(format!("--metrics {}: {wrong}", path.display())));
        }
    }
    if args.profile.is_none() && args.unit_begin.is_none() && args.unit_end.is_none() {
        return Err(Failure::Usage(UNSAID.into()));
    }
    let mut file = ProfileFile::new(args);
    let bounds = given::bounds(args.unit_begin.as_ref(), args.unit_end.as_ref())?;
    let mut learnt =
        args.profile.as_ref().map(|p| units::read(p).map_err(profile::unreadable)).transpose()?;
    let mut targets = Targets::of(&args.pid, &args.comm)?;
    pg_tracer::check_permission().map_err(|e| record::tracer_failure(&e))?;
    let pids = targets.pids();
    let refused = |e: Refused| Failure::Usage(e.to_string());
    let located = bounds.map(|b| Located::of(&b, &pids)).transpose().map_err(refused)?;
    let mut guarding = match (&mut learnt, located) {
        (Some(learnt), located) => {
            if let Some(located) = located {
                located.only(learnt).map_err(refused)?;
            }
            let path = args.profile.as_ref().map_or_else(String::new, |p| p.display().to_string());
            if learnt.call_trees() > MANY {
                note(&format!(
                    "finding the types of {} different units: that may take a while",
                    learnt.call_trees()
                ));
            }
            let ask = Ask {
                profile: learnt,
                file: &path,
                pids: &pids,
                limit: args.threshold,
                probes: !args.no_probes,
            };
            Guarding::of(&ask).map_err(refused)?
        }
        (None, Some(located)) => located.guard(given::time(args.threshold)?),
        (None, None) => return Err(Failure::Usage(UNSAID.into())),
    };
    if let Some(learnt) = learnt {
        file.guards(learnt);
    }
    for n in &guarding.notes {
        note(n);
    }
    guarding.plan.share = SHARE;
    // All of it is no limit.
    guarding.plan.budget = if args.budget < 100.0 { args.budget / 100.0 } else { 0.0 };
    (guarding.plan.hz, guarding.plan.period) = (HZ, PERIOD);
    if args.on_violation == OnViolation::Record {
        guarding.plan.sparse = SPARSE;
    }
    let about: Vec<String> = guarding.loops.iter().map(about).collect();
    let mut watch = Watch::start(guarding, &pids).map_err(|e| record::tracer_failure(&e))?;
    // Said when it is true.
    for l in &about {
        note(l);
    }
    if args.on_violation == OnViolation::Record {
        beside::run(args, &mut watch, file, &mut targets, out)?;
        return end(args, watch, &mut targets, out);
    }
    let interrupts =
        Interrupts::install().map_err(|e| Failure::Other(format!("cannot watch for Ctrl-C: {e}")))?;
    let until = args.duration.map(|s| Instant::now() + Duration::from_secs_f64(s));
    let mut written = Instant::now();
    loop {
        for told in watch.receive(LOOK) {
            match told {
                Out::Shown(shown) => tell(args, &shown, out)?,
                Out::Violation(..) | Out::Look(..) | Out::TakenBack(..) | Out::Unit(..) => {}
                Out::Withdrawn(w) => tell_withdrawn(args, &w, out)?,
                Out::Over(over) => tell_over(args, &over, out)?,
                Out::Note(n) => note(&n),
            }
        }
        out.flush()?;
        for pid in targets.arrived() {
            watch.add(pid);
        }
        file.follow(&mut watch);
        if written.elapsed() >= METRICS {
            written = Instant::now();
            let (counts, sight) = watch.counts();
            write_metrics(args, watch.loops(), &counts, &sight);
        }
        let over = until.is_some_and(|t| Instant::now() >= t) || targets.ended() || watch.is_finished();
        if over || interrupts.stop(false) {
            return end(args, watch, &mut targets, out);
        }
    }
}

/// What is guarded of a loop.
fn about(l: &Watched) -> String {
    let file = l.module.rsplit('/').next().unwrap_or_default();
    let unnamed = format!("the loop at {file}+{:#x}", l.key.offset);
    let name = if l.function.is_empty() { &unnamed } else { &l.function };
    let types = l.types.len();
    if let (Some(given), [only], 0) = (&l.given, l.types.as_slice(), l.guards) {
        return match only.threshold {
            0 => format!("guarding {given}"),
            ns => format!("guarding {given}: {} each", span(ns)),
        };
    }
    let name = l.given.as_deref().unwrap_or(name);
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    if !l.known.is_enough() && l.types.iter().all(|t| t.threshold == 0) {
        return format!(
            "not guarding units of {name}: too few were learnt to say how long one may take (train longer, or set it: pg-tui \
             profile threshold)"
        );
    }
    if let [only] = l.types.as_slice() {
        return match only.threshold {
            0 => format!("guarding units of {name}: each may take as long as it likes"),
            ns => format!("guarding units of {name}: each may take {}", span(ns)),
        };
    }
    if l.guards == 0 {
        let may = match l.limits.1 {
            0 => String::new(),
            ns => format!("; each unit may take {}", span(ns)),
        };
        return format!(
            "guarding units of {name}: {types} types, but no probe tells them from each other{may}"
        );
    }
    format!(
        "guarding units of {name}: {types} types, told from each other at {} function{}",
        l.guards,
        plural(l.guards)
    )
}

/// Say it, and do what is asked for.
fn tell(args: &Guard, shown: &crate::guard::Shown, out: &mut dyn Write) -> Result<(), Failure> {
    let line = json(shown).to_string();
    if args.json {
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}", clean_lines(&text(shown)))?;
    }
    out.flush()?;
    let calls = args.on_violation == OnViolation::Command && !shown.goes_on;
    if let Some(command) = args.run.as_deref().filter(|_| calls)
        && let Err(e) = call(command, &line)
    {
        note(&format!("cannot run {command:?}: {e}"));
    }
    Ok(())
}

/// Say how long it took in the end, and where.
fn tell_over(args: &Guard, over: &crate::guard::Over, out: &mut dyn Write) -> Result<(), Failure> {
    if args.json {
        writeln!(out, "{}", over_json(over))?;
    } else if let Some(text) = over_text(over) {
        writeln!(out, "{}", clean_lines(&text))?;
    }
    Ok(out.flush()?)
}

/// Say that it does not take too long.
fn tell_withdrawn(args: &Guard, w: &crate::guard::Withdrawn, out: &mut dyn Write) -> Result<(), Failure> {
    if args.json {
        writeln!(out, "{}", w.json())?;
    } else if let Some(text) = w.text() {
        writeln!(out, "{}", clean_lines(&text))?;
    }
    Ok(out.flush()?)
}

/// Run a person's command. Nobody waits for it: it must not hold up the guards. Those that hang do not pile up.
fn call(command: &str, line: &str) -> std::io::Result<()> {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    if RUNNING.fetch_add(1, Ordering::Relaxed) >= COMMANDS {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        return Err(std::io::Error::other(format!("{COMMANDS} of these have not ended yet")));
    }
    let started =
        Command::new("/bin/sh").args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut child = started.inspect_err(|_| {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    })?;
    let (stdin, line) = (child.stdin.take(), format!("{line}\n"));
    std::thread::spawn(move || {
        // It need not read it.
        let _ = stdin.map(|mut s| s.write_all(line.as_bytes()));
        let _ = child.wait();
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    });
    Ok(())
}

/// The last counts, and the exit code.
fn end(args: &Guard, watch: Watch, targets: &mut Targets, out: &mut dyn Write) -> Outcome {
    if targets.ended() {
        note("what -p named has ended");
    }
    let Ended { loops, counts, sight, stolen, notes, told } = watch.stop();
    for told in told {
        match told {
            Out::Shown(shown) => tell(args, &shown, out)?,
            Out::Over(over) => tell_over(args, &over, out)?,
            Out::Withdrawn(w) => tell_withdrawn(args, &w, out)?,
            Out::Violation(..) | Out::Look(..) | Out::TakenBack(..) | Out::Unit(..) | Out::Note(_) => {}
        }
    }
    for n in notes {
        note(&n);
    }
    write_metrics(args, &loops, &counts, &sight);
    let all = total(&counts);
    if args.json {
        writeln!(out, "{}", summary(&loops, &counts, &all, (&sight, stolen)))?;
    } else {
        for (l, counts) in loops.iter().zip(&counts) {
            for (t, c) in counts.iter().enumerate().filter(|(_, c)| c.units + c.withdrawn > 0) {
                let name = l.types.get(t).map_or("units of no known type", |t| t.name.as_str());
                let mean = span(c.sum / c.units.max(1));
                let long = too_long(c);
                writeln!(out, "{}: {} units, {mean} each, {long}", clean(name), c.units)?;
            }
        }
    }
    out.flush()?;
    note(&format!("{} units of work, {}", all.units, too_long(&all)));
    if let Some(seen) = seen(&sight) {
        note(&seen);
    }
    if let Some(stolen) = host(stolen, &all) {
        note(&stolen);
    }
    for (l, counts) in loops.iter().zip(&counts) {
        let none = counts.iter().all(|c| c.units + c.violations == 0);
        if let Some(given) = l.given.as_ref().filter(|_| none) {
            note(&format!(
                "none of {given} was seen: was there work meanwhile? A compiler may also have made a function part of its \
                 callers, and leave a copy that nobody calls: guard one of its callers then"
            ));
        }
    }
    Ok(ExitCode::from(if all.violations > 0 { VIOLATED } else { 0 }))
}

/// For how long the machine had no CPUs itself. What a unit lost to that it says, as far as the kernel counts it.
fn host(stolen: Ns, all: &Counts) -> Option<String> {
    (stolen > 0 && all.violations > all.starved).then(|| {
        format!(
            "this machine is a guest, and its host gave the CPUs to others for {} meanwhile: units that lost time to that say \
             so, where the kernel counts it",
            span(stolen)
        )
    })
}

fn too_long(c: &Counts) -> String {
    let violations = c.violations;
    let starved = match c.starved {
        0 => String::new(),
        n => format!(", {n} of them since others had the CPUs"),
    };
    let withdrawn = match c.withdrawn {
        0 => String::new(),
        n => format!("; {n} only seemed to before more was known of them"),
    };
    format!("{violations} took too long{starved}{withdrawn}")
}

/// The counts of all types of all loops together.
fn total(counts: &[Vec<Counts>]) -> Counts {
    counts.iter().flatten().fold(Counts::default(), |a, c| Counts {
        units: a.units + c.units,
        violations: a.violations + c.violations,
        starved: a.starved + c.starved,
        sum: a.sum + c.sum,
        withdrawn: a.withdrawn + c.withdrawn,
        unsettled: a.unsettled + c.unsettled,
    })
}

fn summary(
    loops: &[Watched],
    counts: &[Vec<Counts>],
    all: &Counts,
    (sight, stolen): (&Sight, Ns),
) -> serde_json::Value {
    let types = loops.iter().zip(counts).flat_map(|(l, counts)| {
        counts.iter().enumerate().filter(|(_, c)| c.units + c.withdrawn > 0).map(|(t, c)| {
            let of = l.types.get(t);
            value!({
                "loop": l.function,
                "type": of.map_or("", |t| t.name.as_str()),
                "threshold_ns": of.map_or(l.limits.1, |t| t.threshold),
                "units": c.units,
                "sum_ns": c.sum,
                "violations": c.violations,
                "starved": c.starved,
                "withdrawn": c.withdrawn,
            })
        })
    });
    value!({
        "event": "summary",
        "units": all.units,
        "violations": all.violations,
        "starved": all.starved,
        "withdrawn": all.withdrawn,
        "stolen_ns": stolen,
        "windows": sight.windows,
        "seen_share": (sight.share() * 1e4).round() / 1e4,
        "unseen": { "in_time": sight.in_time, "unsure": sight.unsure },
        "types": types.collect::<Vec<_>>(),
    })
}

/// Said when it begins to fail, not every few seconds.
fn write_metrics(args: &Guard, loops: &[Watched], counts: &[Vec<Counts>], sight: &Sight) {
    static FAILED: AtomicBool = AtomicBool::new(false);
    let Some(path) = &args.metrics else { return };
    let written = put_metrics(path, &metrics(loops, counts, sight));
    let failed = FAILED.swap(written.is_err(), Ordering::Relaxed);
    if let Err(e) = written
        && !failed
    {
        note(&format!("cannot write {}: {e}", path.display()));
    }
}

/// Replaced as a whole: a reader never sees half of it.
fn put_metrics(path: &Path, text: &str) -> std::io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    // What is there of that name is replaced, not written to: it may be somebody's link.
    let _ = std::fs::remove_file(part);
    let written = File::create_new(part)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(part, path));
    if written.is_err() {
        // Of a full disk nothing is left.
        let _ = std::fs::remove_file(part);
    }
    written
}

fn note(text: &str) {
    say!("pg-tui: {}", clean_lines(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_said_where_it_may_explain_something() {
        let of = |violations, starved| Counts { violations, starved, ..Counts::default() };
        let said = |stolen, counts| host(stolen, &counts);
        assert!(said(1_500_000_000, of(3, 1)).is_some_and(|s| s.contains(&span(1_500_000_000))));
        assert_eq!(
            [said(0, of(3, 1)), said(1_500_000_000, of(3, 3)), said(1_500_000_000, of(0, 0))],
            [None, None, None]
        );
    }

    #[test]
    fn commands_that_hang_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let gate = dir.path().join("gate");
        // They end when the gate is there, or gone with all that is around it.
        let at = dir.path().display();
        let wait = format!("while [ -d '{at}' ] && ! [ -e '{}' ]; do sleep 0.02; done", gate.display());
        for _ in 0..COMMANDS {
            call(&wait, "{}").unwrap();
        }
        assert!(call("true", "{}").is_err());
        std::fs::write(&gate, "").unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while call("true", "{}").is_err() {
            assert!(Instant::now() < until, "there is room again");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
