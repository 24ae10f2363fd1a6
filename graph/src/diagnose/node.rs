//! One step of the slice.

use crate::class::{WaitClass, class};
use crate::report::SliceStep;
use crate::words::{
    cmdline_at, container, container_pid, is_plumbing, named, process_at, short_who, span, telling,
};
use crate::{EdgeId, EdgeKind, EventGraph, VertexId, main_object, waits_on};
use pg_event::{Catalog, Ns, ObjectId, ObjectKind, ThreadId};

/// One step of a slice, from the victim backwards.
#[derive(Clone, PartialEq, Debug)]
pub struct SliceNode {
    /// The vertex shown (of several: the longest).
    pub vertex: VertexId,
    /// Its thread.
    pub thread: ThreadId,
    /// Begin.
    pub start: Ns,
    /// Length, ns.
    pub duration: Ns,
    /// How much of it is accounted to this step, ns.
    pub spent: Ns,
    /// Single waits in it.
    pub waits: usize,
    /// `running`, `runnable`, `throttled`, `blocked`, `stopped`, `exited`, `not-created`, `unknown` (not seen).
    pub state: &'static str,
    /// What it waited on, by the words of the report.
    pub waits_on: Option<String>,
    /// The object.
    pub object: Option<ObjectId>,
    /// What it waited on when that is no object of the recording: a control group.
    pub limit: Option<String>,
    /// System call.
    pub syscall: Option<String>,
    /// Kind of the edge that leads here from the step before.
    pub edge: Option<EdgeKind>,
    /// The edge, if it is one of the graph.
    pub edge_id: Option<EdgeId>,
    /// Why the edge is weak, if it is.
    pub why_weak: Option<String>,
    /// Nobody else could have ended the wait of the step before.
    pub sole: bool,
    /// What it did to the step before.
    pub keeps: Keeps,
    /// How likely it is, from 0 to 1, that it is another one: of a guess.
    pub doubt: f64,
    /// `function (module)`, leaf first.
    pub stack: Vec<String>,
    /// The function that tells most, when known.
    pub function: Option<String>,
}

/// What a step did to the one before, where that tried in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keeps {
    /// It kept it from that.
    #[default]
    Has,
    /// It may have: that is a guess.
    May,
    /// What it served in the end was not there before.
    Served,
    /// It made the file that was asked for in the end.
    Made,
    /// It removed it.
    Removed,
}

/// How a step was reached.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Entry {
    pub edge: Option<EdgeKind>,
    pub id: Option<EdgeId>,
    pub why_weak: Option<String>,
    /// Nobody else could have ended the wait of the step before.
    pub sole: bool,
    pub keeps: Keeps,
    pub doubt: f64,
}

/// The doubt about one of so many of which the same is known.
pub(super) fn one_of(many: usize) -> f64 {
    1.0 - 1.0 / (many.max(1) as f64).sqrt()
}

/// What a wait was for. Of several that were watched, a pipe may be there to be told of somebody's end only: when
/// something else ended the wait it is not what it was for.
fn waited_on(graph: &EventGraph, catalog: &Catalog, vertex: VertexId) -> Option<ObjectId> {
    let v = graph.vertex(vertex);
    let main = main_object(&v, catalog);
    let row = |o: ObjectId| catalog.object(o);
    let pipe = main.and_then(row).is_some_and(|o| matches!(o.kind, ObjectKind::Pipe | ObjectKind::Fifo));
    let members = row(v.object).map_or(&[][..], |o| &o.members);
    let Some(e) = graph.waking(vertex).map(|e| graph.edge(e)).filter(|_| pipe && !members.is_empty()) else {
        return main;
    };
    if main == Some(e.object) {
        return main;
    }
    let other_end = |m: &&ObjectId| row(**m).zip(row(e.object)).is_some_and(|(m, o)| o.is_other_end_of(m));
    members.iter().find(other_end).copied()
}

impl SliceNode {
    /// A step in which the thread waited: `vertex` leads in with the wait.
    pub(crate) fn waiting(graph: &EventGraph, catalog: &Catalog, vertex: VertexId, span: (Ns, Ns)) -> Self {
        let v = graph.vertex(vertex);
        let class = class(&v, catalog);
        let state = match class {
            WaitClass::Stopped | WaitClass::Traced => "stopped",
            _ => "blocked",
        };
        let frames = named(catalog, v.user_stack);
        let mut stack = catalog.show_stack(v.kernel_stack);
        stack.extend(catalog.show_stack(v.user_stack));
        Self {
            vertex,
            thread: v.thread,
            start: span.0,
            duration: span.1.saturating_sub(span.0),
            spent: span.1.saturating_sub(span.0),
            waits: 1,
            state,
            waits_on: waits_on(&v, catalog).map(Into::into),
            object: waited_on(graph, catalog, vertex),
            limit: None,
            syscall: v.syscall.name().map(Into::into),
            edge: None,
            edge_id: None,
            why_weak: None,
            sole: false,
            keeps: Keeps::Has,
            doubt: 0.0,
            function: telling(&frames)
                .filter(|f| f.python.is_some() || !is_plumbing(&f.module))
                .map(|f| f.function.clone()),
            stack,
        }
    }

    /// A step of another state.
    pub(crate) fn plain(
        thread: ThreadId,
        vertex: VertexId,
        state: &'static str,
        span: (Ns, Ns),
        spent: Ns,
    ) -> Self {
        Self {
            vertex,
            thread,
            start: span.0,
            duration: span.1.saturating_sub(span.0),
            spent,
            waits: 0,
            state,
            waits_on: None,
            object: None,
            limit: None,
            syscall: None,
            edge: None,
            edge_id: None,
            why_weak: None,
            sole: false,
            keeps: Keeps::Has,
            doubt: 0.0,
            stack: Vec::new(),
            function: None,
        }
    }

    pub(crate) fn entered(mut self, entry: Entry) -> Self {
        self.edge = entry.edge;
        self.edge_id = entry.id;
        self.why_weak = entry.why_weak;
        (self.sole, self.keeps, self.doubt) = (entry.sole, entry.keeps, entry.doubt);
        self
    }

    /// The object in words, empty when there is none.
    pub fn object_label(&self, catalog: &Catalog) -> Option<String> {
        let object = self.object.and_then(|o| catalog.object(o)).map(pg_event::Object::label);
        object.or_else(|| self.limit.clone())
    }

    /// One line for a progress display.
    pub fn text(&self, catalog: &Catalog) -> String {
        let on = match (&self.waits_on, &self.syscall) {
            (Some(w), Some(s)) => format!(", {s} ({w})"),
            (Some(w), None) => format!(", {w}"),
            (None, Some(s)) => format!(", {s}"),
            (None, None) => String::new(),
        };
        format!("{} {} {}{on}", short_who(catalog, self.thread), self.state, span(self.duration))
    }

    /// As the report has it.
    pub fn step(&self, catalog: &Catalog) -> SliceStep {
        let t = catalog.thread(self.thread);
        let p = catalog.process_of(self.thread);
        // What did not exist yet is named by what it became.
        let when = if self.state == "not-created" { Ns::MAX } else { self.start + self.duration };
        let process = process_at(catalog, self.thread, when);
        let main = t.zip(p).is_some_and(|(t, p)| t.tid == p.pid && t.name == p.name);
        let thread = if main { process.clone() } else { t.map_or_else(String::new, |t| t.name.clone()) };
        SliceStep {
            pid: p.map_or(0, |p| p.pid),
            tid: t.map_or(0, |t| t.tid),
            process,
            cmdline: cmdline_at(catalog, self.thread, when),
            thread,
            start_ns: self.start,
            duration_ns: self.duration,
            spent_ns: self.spent,
            container: p.and_then(container),
            container_pid: p.and_then(container_pid),
            // The contract has no word for it; a thread that no sample met was at least not on the CPU.
            state: if self.state == "unknown" { "blocked" } else { self.state }.into(),
            seen: self.state != "unknown",
            waits_on: self.waits_on.clone(),
            object: self.object_label(catalog),
            syscall: self.syscall.clone(),
            edge: self.edge.map(|e| e.name().into()),
            strength: self.edge.map(|_| if self.why_weak.is_some() { "weak" } else { "strong" }.into()),
            why_weak: self.why_weak.clone(),
            stack: self.stack.clone(),
        }
    }
}
