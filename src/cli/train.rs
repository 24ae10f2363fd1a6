//! `pg-tui train`: records a program, or reads recordings, and learns how long its units of work take.

use super::args::{Train, record_as_typed};
use super::chosen::Chosen;
use super::exit::{Failure, Outcome};
use super::guard::targets::Targets;
use super::measure::measured;
use super::{profile, record};
use crate::clean::clean;
use crate::session::Session;
use crate::units::{self, Learnt, Left, Quiet};
use pg_graph::units::Profile;
use pg_tracer::units::Places;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How long is recorded when nothing says so, in seconds.
const DURATION: f64 = 30.0;
/// How long is measured by probes when nothing says so, in seconds.
pub(super) const MEASURE: f64 = 10.0;
/// Names of threads that are told at most.
const MAX_QUIET: usize = 8;
/// Threads of one name that came and went, from which on they may be one for each request.
const BRIEF: usize = 5;

/// Run it.
pub fn run(args: &Train, out: &mut dyn Write) -> Outcome {
    if args.pid.is_empty() && args.comm.is_empty() && args.from.is_empty() && args.command.is_empty() {
        return Err(Failure::Usage(
            "whose units? Name the program (-p PID, --comm REGEX, or a command after --), or recordings (--from FILE)"
                .into(),
        ));
    }
    let chosen = Chosen::of(&args.pid, &args.comm)?;
    if let Some(path) = &args.output {
        // Better to know before minutes are spent.
        match units::read(path) {
            Err(e) if !e.is_not_found() => return Err(profile::unreadable(e)),
            _ => {}
        }
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|f| !f.is_dir()) {
            return Err(Failure::Usage(format!(
                "-o {}: there is no folder {} (mkdir -p makes it)",
                path.display(),
                folder.display()
            )));
        }
    }
    if let Some(bounds) = super::guard::given::bounds(args.unit_begin.as_ref(), args.unit_end.as_ref())? {
        return super::train_given::run(args, &bounds, out);
    }
    fits(args)?;
    if !args.from.is_empty() {
        return learn(args, &args.from, &chosen, None, out);
    }
    // A command has ended when its recording has.
    let seconds = args.measure.unwrap_or(MEASURE);
    let running = args.command.is_empty() && seconds > 0.0;
    let targets = if running { Some(Targets::of(&args.pid, &args.comm)?) } else { None };
    let recording = Recording::new(args.keep.as_deref());
    let done = record::record(&as_typed(args, &recording.path, None)?)?;
    match learn(args, std::slice::from_ref(&done.path), &Chosen::Focus, targets.as_ref(), out) {
        // What was recorded is worth another try.
        Err(Failure::Other(why)) => {
            let kept = recording.keep();
            Err(Failure::Other(format!("{why}; try again with: pg-tui train --from {}", kept.display())))
        }
        learnt => learnt.map(|_| ExitCode::from(done.code)),
    }
}

/// What has no meaning for turns of loops.
fn fits(args: &Train) -> Result<(), Failure> {
    let (from, command) = (!args.from.is_empty(), !args.command.is_empty());
    let refused = match () {
        () if from && command => "--from cannot be used with a command: one of them is learnt from",
        () if from && (args.measure.is_some() || args.units.is_some()) => {
            "--measure and --units cannot be used with --from: probes measure a program that runs (-p PID)"
        }
        () if command && args.units.is_some() => {
            "--units cannot be used with a command, which has ended when its units would be measured: start it, and name \
             it with -p PID"
        }
        () => return Ok(()),
    };
    Err(Failure::Usage(refused.into()))
}

/// A recording, which goes when it was learnt from unless it is wanted.
pub(super) struct Recording {
    pub path: PathBuf,
    temporary: bool,
}

impl Recording {
    pub fn new(keep: Option<&Path>) -> Self {
        let name = format!("pg-tui-train-{}.pgs", std::process::id());
        let path = keep.map_or_else(|| std::env::temp_dir().join(name), Path::to_owned);
        Self { path, temporary: keep.is_none() }
    }

    /// Keeps it; its path.
    pub fn keep(mut self) -> PathBuf {
        self.temporary = false;
        self.path.clone()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.temporary {
            // It need not be there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The recording, as if typed: what is not said here is as `pg-tui record` has it. `launched`: of a command that was
/// started before, with its process and how many seconds if nothing says it.
pub(super) fn as_typed(
    args: &Train,
    path: &Path,
    launched: Option<(u32, f64)>,
) -> Result<super::args::Record, Failure> {
    let mut line: Vec<OsString> = ["--no-tui", "--no-bursts", "-o"].map(Into::into).into();
    line.push(path.into());
    // Messages tell requests of one connection from each other.
    line.extend(args.level.iter().flat_map(|l| ["--level".into(), l.name().into()]));
    line.extend(["--sample-rate".into(), args.sample_rate.to_string().into()]);
    let command = if launched.is_none() { args.command.as_slice() } else { &[] };
    let end = launched.map_or(DURATION, |l| l.1);
    if let Some(s) = args.duration.or(command.is_empty().then_some(end)) {
        line.extend(["--duration".into(), s.to_string().into()]);
    }
    let pids = args.pid.iter().copied().chain(launched.map(|l| l.0));
    line.extend(pids.flat_map(|p| ["-p".into(), p.to_string().into()]));
    line.extend(args.comm.iter().map(|c| format!("--comm={c}").into()));
    if !command.is_empty() {
        line.push("--".into());
        line.extend(command.iter().cloned());
    }
    record_as_typed(line)
}

/// Learns from recordings and adds that to the profile.
fn learn(
    args: &Train,
    files: &[PathBuf],
    chosen: &Chosen,
    targets: Option<&Targets>,
    out: &mut dyn Write,
) -> Outcome {
    let mut all = Profile::default();
    let mut program = String::new();
    let mut functions = BTreeSet::new();
    for file in files {
        let session = Session::open(file)?;
        for w in session.warnings() {
            say!("pg-tui: {}: {}", clean(&file.display().to_string()), clean(&w.to_string()));
        }
        let learnt = units::learn(|| session.items(), &mut Places::default(), |c, t| chosen.wants(c, t));
        if files.len() > 1 {
            writeln!(out, "{}", clean(&file.display().to_string()))?;
        }
        tell(&learnt, out)?;
        all = all.merge(&learnt.profile);
        functions.extend(learnt.functions);
        if program.is_empty() {
            program = learnt.program;
        }
    }
    if all.units() == 0 {
        out.flush()?;
        return Err(Failure::Nothing(nothing(chosen)));
    }
    if let Some(targets) = targets {
        out.flush()?;
        // Also those that were learnt earlier: the units of all runs must be told by the same functions.
        let earlier = args.output.as_ref().and_then(|p| units::read(p).ok()).unwrap_or_default();
        functions.extend(earlier.placed_functions());
        let functions: Vec<_> = functions.into_iter().collect();
        all =
            measured(all, &functions, targets, args.measure.unwrap_or(MEASURE), args.units.as_deref(), out)?;
    }
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{program}.pgprof")));
    let written =
        units::update(&path, |old| old.unwrap_or_default().merge(&all)).map_err(profile::unchanged)?;
    writeln!(out)?;
    profile::show(&written.profile, out)?;
    let before = match written.profile.units().saturating_sub(all.units()) {
        0 => String::new(),
        n => format!(", added to {n} that it had"),
    };
    let cut = written.cut_to.map(profile::cut).unwrap_or_default();
    writeln!(out, "\n{}: {} units{before}{cut}", clean(&path.display().to_string()), all.units())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn nothing(chosen: &Chosen) -> String {
    let of = match chosen {
        Chosen::Focus => "in the focus of the recording",
        Chosen::Named(..) => "in the threads that -p and --comm name",
    };
    format!("no unit of work was found {of}: was the program busy, and does it wait for its work in a loop?")
}

/// What was learnt of a recording, and what was not.
fn tell(l: &Learnt, out: &mut dyn Write) -> std::io::Result<()> {
    for n in &l.notes {
        writeln!(out, "note: {}", clean(n))?;
    }
    for of in &l.loops {
        let place = format!("{}+{:#x}", of.file, of.key.offset);
        let name =
            if of.name.is_empty() { format!("loop at {place}") } else { format!("{} ({place})", of.name) };
        let unseen = match of.unseen {
            0 => String::new(),
            n if n == of.units => "; too little was seen of them to say what they called".into(),
            n => format!("; too little was seen of {n} of them to say what they called"),
        };
        writeln!(
            out,
            "{}: {} unit{} in {} thread{}{unseen}",
            clean(&name),
            of.units,
            plural(usize::try_from(of.units).unwrap_or(usize::MAX)),
            of.threads,
            plural(of.threads),
        )?;
        if of.requests > 0 {
            let (waits, where_) = (of.requests, plural(of.requests));
            writeln!(
                out,
                "  it takes connections, and its units are requests: they also end where the next one of a connection is \
                 waited for, after an answer (at {waits} place{where_})"
            )?;
        }
        // A server that keeps connections for itself, not one that was told to wait for a rest now and then.
        if of.next_requests > of.units / 10 {
            writeln!(
                out,
                "  in these were {} waits for the next request of a connection that had been answered: such a unit is a \
                 connection. Units that are requests are those of the function that serves one: --unit-begin FUNCTION",
                of.next_requests
            )?;
        }
        if of.likely {
            writeln!(out, "  where its units begin is likely, not proven: at its commonest wait for events")?;
        }
    }
    left_out(l.left, out)?;
    for q in l.quiet.iter().take(MAX_QUIET) {
        let of = format!("{} ({} thread{})", q.name, q.threads, plural(q.threads));
        writeln!(out, "nothing learnt of {}: {}{}", clean(&of), why(q), brief(q))?;
    }
    if l.quiet.len() > MAX_QUIET {
        writeln!(out, "nor of threads with {} other names", l.quiet.len() - MAX_QUIET)?;
    }
    Ok(())
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Threads that come and go may serve a request each: that is no turn of a loop.
fn brief(q: &Quiet) -> String {
    if q.brief < BRIEF {
        return String::new();
    }
    format!(
        "; {} of these began and ended meanwhile: if each serves a request, its unit is the call of the function that it \
         runs (--unit-begin FUNCTION)",
        q.brief
    )
}

fn why(q: &Quiet) -> String {
    if q.waits == 0 {
        return "no wait for input or a signal was seen with a stack".into();
    }
    let waits = if q.waits == 1 { "1 wait".to_owned() } else { format!("{} waits", q.waits) };
    if q.loops.is_empty() {
        return format!("{waits} for input or a signal, but no loop was seen to turn around them");
    }
    let named: Vec<&str> = q.loops.iter().take(3).map(String::as_str).collect();
    format!("{waits} for input or a signal in {}, but no whole unit between two", clean(&named.join(", ")))
}

fn left_out(l: Left, out: &mut dyn Write) -> std::io::Result<()> {
    for (count, why) in [
        (l.edges, "begun before the recording, or not ended in it"),
        (l.lost, "with something lost in them (events, a stack, or a switch that the kernel did not report)"),
        (l.turned, "of several turns without a wait between them (--level syscalls tells these apart)"),
        (l.other, "that ended in another loop"),
        (l.empty, "that took no time: one wait followed the other"),
    ] {
        if count > 0 {
            writeln!(out, "left out: {count} unit{} {why}", plural(count as usize))?;
        }
    }
    Ok(())
}
