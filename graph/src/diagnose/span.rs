//! The critical path of any span of a thread, as steps for a screen.

use super::SliceNode;
use super::node::Entry;
use crate::words::{named, telling};
use crate::{EdgeKind, EventGraph, VertexId};
use pg_event::{Catalog, Ns, ThreadId};
use std::ops::Range;

/// Deepest nesting of waits that is followed.
const DEPTH: usize = 32;

/// What made `thread` take the time it took within `span`: the bounded critical path (Giraldeau and
/// Dagenais), from the end backwards. Each wait is replaced by what its waker did within the wait;
/// pieces shorter than a thousandth of the span are joined to their neighbours' step.
pub fn path_of_span(
    graph: &EventGraph,
    catalog: &Catalog,
    thread: ThreadId,
    span: Range<Ns>,
) -> Vec<SliceNode> {
    let mut out = Vec::new();
    let least = (span.end.saturating_sub(span.start) / 1000).max(1);
    let mut w = Way { graph, catalog, least, out: &mut out, on: Vec::new() };
    w.back(thread, span.start, span.end, Entry::default());
    out
}

struct Way<'a> {
    graph: &'a EventGraph,
    catalog: &'a Catalog,
    least: Ns,
    out: &'a mut Vec<SliceNode>,
    on: Vec<ThreadId>,
}

impl Way<'_> {
    /// The way of `thread` from `to` back to `from`.
    fn back(&mut self, thread: ThreadId, from: Ns, to: Ns, mut entry: Entry) {
        self.on.push(thread);
        let ids: Vec<VertexId> = self.graph.vertices_in(thread, from..to).collect();
        for id in ids.into_iter().rev() {
            let v = self.graph.vertex(id);
            self.step(id, "running", v.run.max(from), v.end.min(to), &mut entry);
            self.step(id, "runnable", v.woken.max(from), v.run.min(to), &mut entry);
            let (a, b) = (v.start.max(from), v.woken.min(to));
            if b <= a {
                continue;
            }
            let waking = self.graph.waking(id).map(|e| (e, self.graph.edge(e)));
            let follow = waking.filter(|(_, e)| {
                let waker = self.graph.vertex(e.from).thread;
                v.woken <= to && b - a >= self.least && self.on.len() < DEPTH && !self.on.contains(&waker)
            });
            match follow {
                Some((eid, e)) => {
                    let waker = self.graph.vertex(e.from).thread;
                    let why_weak = e.weak.map(|w| w.words().to_owned());
                    let into = Entry { edge: Some(e.kind), id: Some(eid), why_weak, ..Entry::default() };
                    self.back(waker, a, b.min(e.from_time.max(a)), into);
                    entry = Entry {
                        edge: Some(EdgeKind::ProgramOrder),
                        id: None,
                        why_weak: None,
                        ..Entry::default()
                    };
                }
                None => self.step(id, "blocked", a, b, &mut entry),
            }
        }
        // Before its first moment: whoever created it.
        if let Some(first) = self.graph.vertices_of(thread).next() {
            let born = self.graph.vertex(first).start;
            let spawn = self.graph.incoming(first).find(|e| self.graph.edge(*e).kind == EdgeKind::Spawn);
            if born > from
                && born <= to
                && let Some(id) = spawn
                && self.on.len() < DEPTH
            {
                let creator = self.graph.vertex(self.graph.edge(id).from).thread;
                if !self.on.contains(&creator) {
                    let into = Entry {
                        edge: Some(EdgeKind::Spawn),
                        id: Some(id),
                        why_weak: None,
                        ..Entry::default()
                    };
                    self.back(creator, from, born, into);
                }
            }
        }
        self.on.pop();
    }

    fn step(&mut self, id: VertexId, state: &'static str, a: Ns, b: Ns, entry: &mut Entry) {
        if b <= a {
            return;
        }
        let v = self.graph.vertex(id);
        if let Some(l) = self.out.last_mut()
            && l.thread == v.thread
            && (l.state == state || b - a < self.least)
        {
            let end = l.start + l.duration;
            l.start = a;
            l.duration = end.saturating_sub(a);
            l.spent += b - a;
            return;
        }
        let e = std::mem::replace(
            entry,
            Entry { edge: Some(EdgeKind::ProgramOrder), id: None, why_weak: None, ..Entry::default() },
        );
        let node = if state == "blocked" {
            SliceNode::waiting(self.graph, self.catalog, id, (a, b))
        } else {
            let mut n = SliceNode::plain(v.thread, id, state, (a, b), b - a);
            let sample = self.graph.samples_of(v.thread, a..b).first().map(|s| s.user_stack);
            if let Some(stack) = sample {
                n.stack = self.catalog.show_stack(stack);
                n.function = telling(&named(self.catalog, stack)).map(|f| f.function.clone());
            }
            n
        };
        self.out.push(node.entered(e));
    }
}
