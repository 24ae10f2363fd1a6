//! Makes a copy of a recording that can be shared: what the focus and its causes touch, and nobody else.
//!
//! Three classes: what a diagnosis of the focus names is kept with its names; what its graph only touches
//! keeps what it did, under made-up names; the rest is dropped. The copy is then diagnosed like the
//! original; if the verdict differs, more is kept: the past of the hang, in the end everybody's events (anonymously).

mod keep;
#[cfg(test)]
mod kinds_tests;
mod names;
mod rows;
#[cfg(test)]
mod tests;

use crate::session::{self, Header, Loaded, Session, SessionError, Writer};
use crate::unit_rule::UnitRule;
use keep::{Class, Keep, Reach, Verdict};
use names::Names;
use pg_event::{Coverage, Event, Item};
use pg_graph::{VictimOptions, run_with_policy, victims};
use regex::Regex;
use rows::Used;
use std::ops::ControlFlow;
use std::path::Path;

/// What to keep beyond the focus and its causes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Processes whose name or command line matches.
    pub keep_process: Vec<Regex>,
    /// Host and user name, and the kernel's release, which may be of one machine only.
    pub keep_host: bool,
    /// Notes and bookmarks: words of people.
    pub keep_notes: bool,
}

/// What is kept, renamed and dropped of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// With its name.
    pub kept: usize,
    /// Under a made-up name.
    pub renamed: usize,
    /// Not at all.
    pub dropped: usize,
}

impl Count {
    fn of(classes: &[Class]) -> Self {
        let n = |class| classes.iter().filter(|c| **c == class).count();
        Self { kept: n(Class::Named), renamed: n(Class::Anonymous), dropped: n(Class::Dropped) }
    }
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Processes.
    pub processes: Count,
    /// Threads.
    pub threads: Count,
    /// Objects: files, sockets, ...
    pub objects: Count,
    /// Programs and libraries.
    pub modules: Count,
    /// Events kept and dropped.
    pub events: (u64, u64),
    /// Different names that are not in the copy.
    pub names: usize,
    /// Notes and sentences of the coverage that were left out.
    pub notes: usize,
    /// How many victims of the focus were diagnosed in both.
    pub compared: usize,
    /// For how many of them the copy leads to another verdict.
    pub differ: usize,
    /// Everybody's events had to be kept for the verdict.
    pub everybody: bool,
    /// Length of the copy, bytes.
    pub bytes: u64,
}

/// Most victims that are diagnosed, worst first.
const MAX_VICTIMS: usize = 8;

/// Write a copy of `input` that can be shared to `output`.
pub fn redact(input: &Path, output: &Path, options: &Options) -> Result<Summary, SessionError> {
    let loaded = load(input)?;
    let verdicts = verdicts(&loaded);
    // As little as the verdict allows.
    let mut summary = Summary::default();
    for reach in [Reach::WakeUps, Reach::Past, Reach::Everybody] {
        let keep = Keep::new(&loaded, &verdicts, options, reach);
        summary = write(&loaded, output, &keep, options)?;
        summary.everybody = reach == Reach::Everybody;
        let first;
        (summary.compared, summary.differ, first) = compare(&verdicts, &load(output)?, &keep);
        // Everybody is kept for the worst hang only, which is what a copy is made for; that others would be told
        // differently is said.
        if summary.differ == 0 || (first && reach == Reach::Past) {
            break;
        }
    }
    Ok(summary)
}

fn load(path: &Path) -> Result<Loaded, SessionError> {
    session::load(path, |_| ControlFlow::Continue(()))
}

fn verdicts(loaded: &Loaded) -> Vec<Verdict> {
    let options = VictimOptions { limit: MAX_VICTIMS, ..VictimOptions::default() };
    let diagnose = |victim: pg_graph::Victim| {
        let report =
            run_with_policy(&loaded.graph, &loaded.catalog, victim.clone(), pg_graph::Options::default());
        Verdict { victim, report }
    };
    victims(&loaded.graph, &loaded.catalog, &options).into_iter().map(diagnose).collect()
}

/// Of how many victims the verdict was compared, for how many it differs, and whether that on the first is the same.
fn compare(before: &[Verdict], copy: &Loaded, keep: &Keep) -> (usize, usize, bool) {
    let options = VictimOptions { limit: usize::MAX, ..VictimOptions::default() };
    let mut after = victims(&copy.graph, &copy.catalog, &options);
    let mut compared = 0;
    let (mut differ, mut first) = (0, true);
    // What hung outside of what is kept by name is nobody's business.
    for v in before.iter().filter(|v| keep.thread(v.victim.thread) == Class::Named) {
        compared += 1;
        let same = |a: &pg_graph::Victim| {
            (a.thread, a.start, a.duration) == (v.victim.thread, v.victim.start, v.victim.duration)
        };
        let gist = |r: &pg_graph::report::Report| {
            let first = r.root_causes.first().map(|c| (c.pid, c.tid, c.block_type));
            (r.victim.tid, r.victim.block_type, r.slice.iter().map(|s| s.tid).collect::<Vec<_>>(), first)
        };
        let report = after.iter().position(same).map(|i| {
            let victim = after.swap_remove(i);
            run_with_policy(&copy.graph, &copy.catalog, victim, pg_graph::Options::default())
        });
        if report.as_ref().map(gist) != Some(gist(&v.report)) {
            tracing::warn!("redacted: {:?} instead of {:?}", report.as_ref().map(gist), gist(&v.report));
            differ += 1;
            first &= compared > 1;
        }
    }
    (compared, differ, first)
}

fn write(loaded: &Loaded, output: &Path, keep: &Keep, options: &Options) -> Result<Summary, SessionError> {
    let catalog = &loaded.catalog;
    let mut summary = Summary::default();
    let mut used = Used::new(catalog, keep);
    each(&loaded.session, |e| {
        if is_kept(e, keep) {
            summary.events.0 += 1;
            used.event(e, keep);
        } else {
            summary.events.1 += 1;
        }
    });
    used.spread(catalog);
    let mut names = Names::default();
    names.keep_kernel = options.keep_host;
    if !options.keep_host {
        names.hide_word(&loaded.header.host, "host");
        names.hide_word(&loaded.header.user, "user");
    }
    let rows = used.rows(catalog, &mut names);
    let mut copy = pg_event::Catalog::default();
    copy.apply(rows.clone());
    let kept = rows::strings(&copy);
    let gone: Vec<&str> = rows::strings(catalog).into_iter().filter(|s| !kept.contains(s)).collect();
    summary.processes = Count::of(&used.processes);
    summary.threads = Count::of(&used.threads);
    summary.objects = Count::of(&used.objects);
    summary.modules = Count::of(&used.modules);
    summary.names = gone.len();

    let mut writer = Writer::create(output, &header(loaded, &summary, options, &mut names))?;
    writer.item(&Item::Catalog(rows))?;
    let mut end = None;
    for item in loaded.session.items() {
        match item {
            Item::Events(mut events) => {
                events.retain(|e| is_kept(e, keep));
                writer.item(&Item::Events(events))?;
            }
            Item::End { duration, coverage } => end = Some((duration, coverage)),
            Item::Catalog(_) => {}
        }
    }
    if let Some((duration, mut coverage)) = end {
        summary.notes += keep_harmless(&mut coverage, &gone, &mut names);
        writer.item(&Item::End { duration, coverage })?;
    }
    summary.bytes = writer.finish()?;
    carry_over(&loaded.session, output, options, &mut summary)?;
    Ok(summary)
}

/// Is an event kept? What the program of somebody else executed, instruction by instruction, is not.
fn is_kept(e: &Event, keep: &Keep) -> bool {
    let class = keep.thread(e.thread);
    class == Class::Named || class == Class::Anonymous && !matches!(e.kind, pg_event::Kind::Burst(_))
}

fn each(session: &Session, mut f: impl FnMut(&Event)) {
    let mut items = session.items();
    while let Some(item) = items.next() {
        if let Item::Events(events) = item {
            events.iter().for_each(&mut f);
            items.recycle(events);
        }
    }
}

fn header(loaded: &Loaded, summary: &Summary, options: &Options, names: &mut Names) -> Header {
    let h = &loaded.header;
    let what = format!(
        "{} processes renamed, {} dropped; {} events dropped",
        summary.processes.renamed, summary.processes.dropped, summary.events.1
    );
    let hidden = |text: &str| if options.keep_host { text.to_owned() } else { String::new() };
    Header {
        host: hidden(&h.host),
        user: hidden(&h.user),
        kernel: hidden(&h.kernel),
        // It tells of two recordings that they are of one machine, and is of use on that machine alone.
        boot: String::new(),
        command: h.command.iter().map(|a| names.scrub(a)).collect(),
        focus: without_cgroups(&names.scrub(&h.focus)),
        redacted: if h.redacted.is_empty() { what } else { format!("{}; then {what}", h.redacted) },
        ..h.clone()
    }
}

/// The focus in words; control groups are named after containers, units and users.
fn without_cgroups(focus: &str) -> String {
    let part = |p: &str| if p.starts_with("cgroup ") { "cgroup (left out)".to_owned() } else { p.to_owned() };
    focus.split(", ").map(part).collect::<Vec<_>>().join(", ")
}

/// Leave out the sentences that hold a name which is gone. Returns how many.
fn keep_harmless(coverage: &mut Coverage, gone: &[&str], names: &mut Names) -> usize {
    let before = coverage.notes.len();
    coverage.notes.retain(|n| !gone.iter().any(|g| g.len() >= 3 && n.contains(g)));
    coverage.notes.iter_mut().for_each(|n| *n = names.scrub(n));
    before - coverage.notes.len()
}

/// Decisions and thresholds are numbers and stay; notes are words of people.
fn carry_over(
    from: &Session,
    to: &Path,
    options: &Options,
    summary: &mut Summary,
) -> Result<(), SessionError> {
    let notes = from.notes();
    if !options.keep_notes {
        summary.notes += notes.len();
    }
    let wanted = if options.keep_notes { notes } else { Vec::new() };
    if wanted.is_empty() && from.decisions().is_empty() && from.guard_rules().is_empty() {
        return Ok(());
    }
    let mut copy = Session::open(to)?;
    for note in wanted {
        copy.append_note(note)?;
    }
    for log in from.decisions() {
        copy.append_decisions(log.clone())?;
    }
    // Whatever else stands in place of a rule may be words.
    for rule in from.guard_rules().iter().filter(|r| UnitRule::parse(&r.rule).is_ok()) {
        copy.append_guard_rule(rule.clone())?;
    }
    Ok(())
}
