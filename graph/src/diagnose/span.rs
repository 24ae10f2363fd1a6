//! The critical path of any span of a thread, as steps for a screen.

use super::SliceNode;
use super::node::Entry;
use crate::episode::renewed_waits;
use crate::path::{self, Interval, Link, State, Timeline};
use crate::profile::profile;
use crate::{EdgeKind, Episode, EventGraph, VertexId};
use pg_event::{Catalog, Ns, OffState, ThreadId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// Pieces shorter than this share of the span are added up by what the thread did in them.
const SMALL: Ns = 100;
/// Steps shorter than this share of the span belong to what the thread did before or after.
const TINY: Ns = 1000;
/// How many steps of one thread behind one another small pieces are added to: one for each state.
const STATES: usize = 4;

/// What made `thread` take the time it took within `span`, the latest first: the bounded critical path ([`path::bounded`]).
/// A wait that its own time-out ended and that was renewed until somebody ended it counts as one wait. Of each step
/// `spent` says for how long the thread was in its state; short pieces of running and waiting in turns are one step each.
pub fn path_of_span(
    graph: &EventGraph,
    catalog: &Catalog,
    thread: ThreadId,
    span: Range<Ns>,
) -> Vec<SliceNode> {
    let renewed = Renewed { graph, catalog, waits: RefCell::default() };
    let small = (span.end.saturating_sub(span.start) / SMALL).max(1);
    let mut rows = Rows { graph, catalog, small, out: Vec::new(), entry: Entry::default() };
    for step in path::bounded(&renewed, thread, span).into_iter().rev() {
        match step {
            path::Step::Interval { worker, interval } => rows.interval(worker, &interval),
            path::Step::Link(l) => rows.entry = entered(graph, &l),
        }
    }
    let tiny = rows.small * SMALL / TINY;
    let mut out = without_tiny(rows.out, tiny);
    for n in out.iter_mut().filter(|n| n.state == "running") {
        let p = profile(graph, catalog, n.thread, &[(n.start, n.start + n.duration)]);
        (n.function, n.stack) = (p.function, p.stack);
    }
    out
}

/// Steps below `tiny` become a part of the step beside them, where that is the same thread's.
fn without_tiny(rows: Vec<SliceNode>, tiny: Ns) -> Vec<SliceNode> {
    let mut out: Vec<SliceNode> = Vec::with_capacity(rows.len());
    for n in rows {
        let Some(last) = out.last_mut().filter(|l| l.thread == n.thread) else {
            out.push(n);
            continue;
        };
        if n.spent < tiny || alike(last, &n) {
            extend(last, &n);
        } else if last.spent < tiny {
            let later = std::mem::replace(last, n);
            last.duration = (later.start + later.duration).saturating_sub(last.start);
            last.spent += later.spent;
            (last.edge, last.edge_id, last.why_weak) = (later.edge, later.edge_id, later.why_weak);
        } else {
            out.push(n);
        }
    }
    out
}

fn alike(a: &SliceNode, b: &SliceNode) -> bool {
    (a.thread, a.state, a.object, &a.syscall) == (b.thread, b.state, b.object, &b.syscall)
}

/// `earlier` becomes a part of `s`.
fn extend(s: &mut SliceNode, earlier: &SliceNode) {
    let start = s.start.min(earlier.start);
    s.duration = (s.start + s.duration).saturating_sub(start);
    s.start = start;
    s.spent += earlier.spent;
}

/// How the steps before a link are reached from those behind it.
fn entered(graph: &EventGraph, l: &Link<ThreadId>) -> Entry {
    let edge = l.edge.map(|e| graph.edge(e));
    Entry {
        edge: Some(edge.map_or(EdgeKind::ProgramOrder, |e| e.kind)),
        id: l.edge,
        why_weak: edge.and_then(|e| e.weak).map(|w| w.words().to_owned()),
        ..Entry::default()
    }
}

/// The event graph as a timeline in which a wait lasts from when it began first.
struct Renewed<'a> {
    graph: &'a EventGraph,
    catalog: &'a Catalog,
    waits: RefCell<HashMap<ThreadId, Rc<[Episode]>>>,
}

impl Renewed<'_> {
    fn waits_of(&self, w: ThreadId) -> Rc<[Episode]> {
        let of = || renewed_waits(self.graph, self.catalog, w).into();
        self.waits.borrow_mut().entry(w).or_insert_with(of).clone()
    }
}

impl Timeline for Renewed<'_> {
    type Worker = ThreadId;
    type Tag = VertexId;

    fn span(&self, w: ThreadId) -> Option<Range<Ns>> {
        self.graph.span(w)
    }

    fn before(&self, w: ThreadId, time: Ns) -> Option<Interval<VertexId>> {
        let i = self.graph.before(w, time)?;
        if i.state != State::Blocked || i.end != time {
            return Some(i);
        }
        let all = self.waits_of(w);
        let at = all.partition_point(|e| e.last < i.tag);
        let start = all.get(at).filter(|e| e.last == i.tag).map_or(i.start, |e| e.start.min(i.start));
        Some(Interval { start, ..i })
    }

    fn entering(&self, w: ThreadId, time: Ns) -> Option<Link<ThreadId>> {
        self.graph.entering(w, time)
    }
}

struct Rows<'a> {
    graph: &'a EventGraph,
    catalog: &'a Catalog,
    /// Pieces below this are added to an earlier step of the same state, ns.
    small: Ns,
    out: Vec<SliceNode>,
    /// How the next step is reached.
    entry: Entry,
}

impl Rows<'_> {
    fn interval(&mut self, thread: ThreadId, i: &Interval<Option<VertexId>>) {
        let (a, b) = (i.start, i.end);
        let Some(id) = i.tag.or_else(|| self.graph.vertices_of(thread).next()).filter(|_| b > a) else {
            return;
        };
        let throttled = self.graph.vertex(id).state == OffState::Throttled;
        let state = match i.state {
            State::Running => "running",
            State::Preempted => "runnable",
            State::Unknown => "unknown",
            _ if throttled => "throttled",
            _ => "blocked",
        };
        let node = if state == "blocked" {
            SliceNode::waiting(self.graph, self.catalog, id, (a, b))
        } else {
            SliceNode::plain(thread, id, state, (a, b), b - a)
        };
        if !self.joined(&node) {
            let then = Entry { edge: Some(EdgeKind::ProgramOrder), ..Entry::default() };
            let entry = std::mem::replace(&mut self.entry, then);
            self.out.push(node.entered(entry));
        }
    }

    /// Add a piece to a step of the same thread and state: to the one behind it, or, a short one, also past what the thread
    /// did between them.
    fn joined(&mut self, n: &SliceNode) -> bool {
        let own = self.out.iter().rev().take(STATES).take_while(|s| s.thread == n.thread);
        let near = own.enumerate().find(|(back, s)| alike(s, n) && (*back == 0 || n.spent < self.small));
        let Some((back, _)) = near else { return false };
        let at = self.out.len() - 1 - back;
        let s = &mut self.out[at];
        if s.spent < n.spent {
            s.vertex = n.vertex;
        }
        extend(s, n);
        s.waits += n.waits;
        true
    }
}
