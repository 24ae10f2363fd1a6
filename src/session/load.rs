//! Loads a session whole: catalogue and event graph, built while the file is unpacked.

use super::error::{SessionError, Warning};
use super::{Header, Session};
use pg_event::{Catalog, Coverage, Frame, FrameId, Item, Ns};
use pg_graph::report::{CoverageInfo, SessionInfo};
use pg_graph::{BuildOptions, Builder, EventGraph, Task};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How far loading is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes of the file that were read.
    pub bytes: u64,
    /// Bytes of the file.
    pub bytes_total: u64,
    /// Events that were read.
    pub events: u64,
    /// Events in the file, as far as it says.
    pub events_total: u64,
    /// All are read: functions are named and the graph is put in order.
    pub read: bool,
}

/// Where the names of functions come from that the file does not have.
#[derive(Clone, Debug, Default)]
pub enum Symbols {
    /// From files of this machine with the same build-ids, and from its kernel if that still runs, if the recorder ended
    /// before it looked names up.
    #[default]
    WhereMissed,
    /// From nowhere.
    AsRecorded,
    /// From these folders and files of this machine with the same build-ids, also where the recorder found none.
    Look(Vec<PathBuf>),
}

/// A session in memory.
pub struct Loaded {
    /// What the recording says about itself.
    pub header: Header,
    /// Threads, processes, objects, stacks.
    pub catalog: Catalog,
    /// Vertices and edges.
    pub graph: EventGraph,
    /// What the recording did not see, damage of the file included.
    pub coverage: Coverage,
    /// What is wrong with the file.
    pub warnings: Vec<Warning>,
    /// The file, for single events, notes and decisions.
    pub session: Session,
}

/// Load the session at `path`. `progress` is called after each chunk and can stop it.
///
/// # Errors
/// See [`Session::open`]; [`SessionError::Stopped`].
pub fn load(path: &Path, progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<Loaded, SessionError> {
    load_session(Session::open(path)?, BuildOptions::default(), &Symbols::default(), progress)
}

/// Load a session that is open.
///
/// # Errors
/// [`SessionError::Stopped`]: `progress` wanted no more.
pub fn load_session(
    mut session: Session,
    options: BuildOptions,
    symbols: &Symbols,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Loaded, SessionError> {
    super::memory::lists_grow_in_pages();
    let mut catalog = Catalog::default();
    let partial = !session.header().redacted.is_empty();
    let mut builder = Builder::new(BuildOptions { partial, ..options });
    let mut done = Progress {
        bytes_total: session.len_bytes(),
        events_total: session.len_events(),
        ..Progress::default()
    };
    let (mut duration, mut coverage) = (session.duration(), Coverage::default());
    let mut refused = 0;
    let mut items = session.items();
    while let Some(item) = items.next() {
        match item {
            Item::Catalog(delta) => refused += catalog.apply(delta),
            Item::Events(events) => {
                done.events += events.len() as u64;
                builder.events(&events, &catalog);
                items.recycle(events);
            }
            Item::End { duration: d, coverage: c } => (duration, coverage) = (d, c),
        }
        done.bytes = items.bytes_done();
        if progress(done).is_break() {
            return Err(SessionError::Stopped { path: session.path().to_owned() });
        }
    }
    done.read = true;
    if progress(done).is_break() {
        return Err(SessionError::Stopped { path: session.path().to_owned() });
    }
    if refused > 0 {
        coverage
            .notes
            .push(format!("session file: {refused} catalogue rows have impossible numbers and are left out"));
    }
    let focus = &session.header().focus;
    if !["", "everything"].contains(&focus.as_str()) && !catalog.threads.iter().any(|t| t.focus) {
        coverage.notes.push(format!("nobody fitted the focus ({focus}): everybody was looked at"));
    }
    let named = name_functions(&session, symbols, &mut catalog, &mut coverage);
    let mut warnings = session.warnings().to_vec();
    warnings.extend_from_slice(items.warnings());
    drop(items);
    if !named.is_empty()
        && let Err(e) = session.append_names(&named)
    {
        tracing::debug!("names that were found are not kept: {e}");
    }
    for w in session.warnings() {
        coverage.notes.push(format!("session file: {w}"));
    }
    let graph = builder.finish_with(duration, &catalog, &side_by_side);
    of_focus(&graph, &catalog, &mut coverage);
    Ok(Loaded { header: session.header().clone(), catalog, graph, coverage, warnings, session })
}

/// Names that the recorder did not find, and how much of the stacks is known where it did not say so. Returns the frames
/// that the file should have: looking again takes long, and on another machine there is nothing to look at.
fn name_functions(
    session: &Session,
    symbols: &Symbols,
    catalog: &mut Catalog,
    coverage: &mut Coverage,
) -> Vec<(FrameId, Frame)> {
    let since = session.named_since();
    if since > 0 {
        coverage.named(since);
    }
    let dirs = match symbols {
        Symbols::Look(dirs) => dirs.as_slice(),
        Symbols::WhereMissed if session.is_closed() && (coverage.unnamed == 0 || since > 0) => {
            return Vec::new();
        }
        Symbols::AsRecorded if session.is_closed() => return Vec::new(),
        Symbols::WhereMissed | Symbols::AsRecorded => &[],
    };
    if !matches!(symbols, Symbols::AsRecorded) {
        // Addresses of the kernel mean the same until the machine starts anew.
        let boot = &session.header().boot;
        let kernel = !boot.is_empty() && *boot == pg_tracer::boot_id();
        let nameless: Vec<usize> = (0..catalog.frames.len())
            .filter(|i| catalog.frames.get(*i).is_some_and(|f| f.function.is_empty()))
            .collect();
        let named = pg_tracer::stacks::symbolize_catalog(catalog, dirs, kernel) as u64;
        if session.is_closed() {
            coverage.named(named);
            if matches!(symbols, Symbols::Look(_)) {
                return Vec::new();
            }
            let frame = |i: usize| Some((FrameId(i as u32), catalog.frames.get(i)?.clone()));
            return nameless.into_iter().filter_map(frame).filter(|(_, f)| !f.function.is_empty()).collect();
        }
    }
    let taken = || catalog.stacks.iter().filter(|s| !s.frames.is_empty());
    coverage.stacks_total = taken().count() as u64;
    coverage.stacks_complete = taken().filter(|s| !s.truncated).count() as u64;
    let frames = || catalog.frames.iter();
    coverage.symbols_total = frames().count() as u64;
    coverage.symbols_resolved = frames().filter(|f| !f.function.is_empty()).count() as u64;
    Vec::new()
}

/// How much is known of the stacks of the focus, if there is one. Of others only some words of a stack are copied, on
/// purpose: counted with them, most stacks of any recording are cut off.
fn of_focus(graph: &EventGraph, catalog: &Catalog, coverage: &mut Coverage) {
    if catalog.processes.iter().all(|p| p.focus || p.kernel || p.own || p.pid == 0) {
        return;
    }
    let mut stacks = HashSet::new();
    for t in graph.threads().filter(|t| catalog.thread(*t).is_some_and(|t| t.focus)) {
        let waits = graph.vertices_in(t, 0..Ns::MAX).map(|v| graph.vertex(v).user_stack);
        let samples = graph.samples_of(t, 0..Ns::MAX).iter().map(|s| s.user_stack);
        stacks.extend(waits.chain(samples).filter(|s| s.is_some()));
    }
    let stacks: Vec<_> = stacks.into_iter().filter_map(|s| catalog.stack(s)).collect();
    if stacks.is_empty() {
        return;
    }
    coverage.stacks_total = stacks.len() as u64;
    coverage.stacks_complete = stacks.iter().filter(|s| !s.truncated).count() as u64;
    let frames: HashSet<FrameId> = stacks.iter().flat_map(|s| s.frames.iter().copied()).collect();
    let frames: Vec<_> = frames.into_iter().filter_map(|f| catalog.frames.get(f.index())).collect();
    coverage.symbols_total = frames.len() as u64;
    coverage.symbols_resolved = frames.iter().filter(|f| !f.function.is_empty()).count() as u64;
}

/// Runs two tasks, the second on a thread of its own, or here when there is none.
fn side_by_side(a: Task<'_>, b: Task<'_>) {
    let b = Mutex::new(Some(b));
    let second = || {
        let task = b.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task();
        }
    };
    std::thread::scope(|s| {
        if let Err(e) = std::thread::Builder::new().name("build".into()).spawn_scoped(s, second) {
            tracing::warn!("no thread to build the graph with: {e}");
        }
        a();
        // Not begun yet, by whatever reason: here.
        second();
    });
}

impl Loaded {
    /// The recording as the report shows it, and what it did not see.
    pub fn info(&self) -> (SessionInfo, CoverageInfo) {
        info(self.session.path(), &self.header, &self.graph, &self.coverage)
    }
}

/// The parts of a report that the recording alone decides: what it is, and what it did not see.
pub fn info(
    path: &Path,
    header: &Header,
    graph: &EventGraph,
    coverage: &Coverage,
) -> (SessionInfo, CoverageInfo) {
    // Of nothing nothing is missing; a file may claim that more is there than there was.
    let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { (part as f64 / whole as f64).min(1.0) };
    (
        SessionInfo {
            file: path.display().to_string(),
            host: header.host.clone(),
            kernel: header.kernel.clone(),
            start_unix_ns: header.start_wall,
            duration_ns: graph.duration(),
            events: graph.event_count(),
            vertices: graph.vertex_count() as u64,
            edges: graph.edge_count() as u64,
        },
        CoverageInfo {
            lost_events: coverage.loss.events,
            lost_ns: coverage.loss.ns,
            stacks_complete: share(coverage.stacks_complete, coverage.stacks_total),
            symbols_resolved: share(coverage.symbols_resolved, coverage.symbols_total),
            notes: coverage.notes.clone(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Writer;
    use pg_tracer::stacks::StackTable;

    /// A recording with a stack of this program and an address that nobody knows, as the recorder has them before it
    /// looks names up.
    fn recorded(path: &Path, closed: bool) {
        let mut table = StackTable::new();
        table.at(std::process::id(), &[name_functions as *const () as u64, 1]);
        let mut writer = Writer::create(path, &Header::default()).unwrap();
        writer.item(&Item::Catalog(table.drain())).unwrap();
        if closed {
            writer.item(&Item::End { duration: 1, coverage: Coverage::default() }).unwrap();
        }
        writer.finish().unwrap();
    }

    fn loaded(path: &Path, symbols: &Symbols) -> Loaded {
        let session = Session::open(path).unwrap();
        load_session(session, BuildOptions::default(), symbols, |_| ControlFlow::Continue(())).unwrap()
    }

    /// The recorder was killed before it looked names up: they are looked up here, and what has none is counted.
    #[test]
    fn a_killed_recorder_leaves_names_to_be_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pgs");
        recorded(&path, false);
        let l = loaded(&path, &Symbols::default());
        let names: Vec<_> = l.catalog.frames.iter().map(|f| f.function.as_str()).collect();
        assert!(names[0].contains("name_functions") && names[1].is_empty(), "{names:?}");
        let c = &l.coverage;
        assert_eq!((c.symbols_resolved, c.symbols_total, c.stacks_total), (1, 2, 1));
        let told = l.info().1;
        assert!((told.symbols_resolved - 0.5).abs() < 1e-9, "{told:?}");
        assert_eq!(told.notes.iter().filter(|n| n.contains("not closed")).count(), 1, "{:?}", told.notes);
    }

    /// The recorder had no time for them: they are looked up once, and the file has them from then on, also where there is
    /// nothing to look at.
    #[test]
    fn names_that_were_found_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pgs");
        let mut table = StackTable::new();
        table.at(std::process::id(), &[name_functions as *const () as u64, 1]);
        let mut writer = Writer::create(&path, &Header::default()).unwrap();
        writer.item(&Item::Catalog(table.drain())).unwrap();
        let notes = vec![format!("{} it took too long", Coverage::LEFT_UNNAMED), "another".into()];
        let coverage = Coverage { unnamed: 2, symbols_total: 2, notes, ..Coverage::default() };
        writer.item(&Item::End { duration: 1, coverage }).unwrap();
        writer.finish().unwrap();
        let size = || std::fs::metadata(&path).unwrap().len();
        let recorded = size();
        let state = |look: Symbols| {
            let l = loaded(&path, &look);
            assert!(l.warnings.is_empty(), "{:?}", l.warnings);
            let names: Vec<bool> = l.catalog.frames.iter().map(|f| !f.function.is_empty()).collect();
            (names, l.coverage.symbols_resolved, l.coverage.unnamed, l.coverage.notes.len())
        };
        assert_eq!(state(Symbols::AsRecorded), (vec![false, false], 0, 2, 2));
        assert_eq!(size(), recorded);
        let found = (vec![true, false], 1, 1, 1);
        assert_eq!(state(Symbols::WhereMissed), found);
        let kept = size();
        assert!(kept > recorded);
        assert_eq!((state(Symbols::AsRecorded), state(Symbols::WhereMissed)), (found.clone(), found));
        assert_eq!(size(), kept);
        assert_eq!(Session::open(&path).unwrap().named_since(), 1);
    }

    #[test]
    fn names_of_a_closed_recording_are_looked_up_when_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pgs");
        recorded(&path, true);
        assert_eq!(loaded(&path, &Symbols::default()).catalog.frames[0].function, "");
        let l = loaded(&path, &Symbols::Look(vec![dir.path().to_owned()]));
        assert!(l.catalog.frames[0].function.contains("name_functions"));
    }
}
