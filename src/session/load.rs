//! Loads a session whole: catalogue and event graph, built while the file is unpacked.

use super::error::{SessionError, Warning};
use super::{Header, Session};
use pg_event::{Catalog, Coverage, Item};
use pg_graph::report::{CoverageInfo, SessionInfo};
use pg_graph::{BuildOptions, Builder, EventGraph, Task};
use std::ops::ControlFlow;
use std::path::Path;
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
    load_session(Session::open(path)?, BuildOptions::default(), progress)
}

/// Load a session that is open.
///
/// # Errors
/// [`SessionError::Stopped`]: `progress` wanted no more.
pub fn load_session(
    session: Session,
    options: BuildOptions,
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
    if refused > 0 {
        coverage
            .notes
            .push(format!("session file: {refused} catalogue rows have impossible numbers and are left out"));
    }
    let focus = &session.header().focus;
    if !["", "everything"].contains(&focus.as_str()) && !catalog.threads.iter().any(|t| t.focus) {
        coverage.notes.push(format!("nobody fitted the focus ({focus}): everybody was looked at"));
    }
    let mut warnings = session.warnings().to_vec();
    warnings.extend_from_slice(items.warnings());
    drop(items);
    for w in session.warnings() {
        coverage.notes.push(format!("session file: {w}"));
    }
    let graph = builder.finish_with(duration, &catalog, &side_by_side);
    Ok(Loaded { header: session.header().clone(), catalog, graph, coverage, warnings, session })
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
