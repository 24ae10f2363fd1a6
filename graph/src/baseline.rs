//! Baselines: vertices that did the same as the victim and went on as they should.
//!
//! Similar are vertices with the same semantic events (system call, kind of object, functions on the
//! stack, messages before the wait); different is the result: woken instead of timed out, and much sooner.

use crate::words::{is_plumbing, named};
use crate::{EventGraph, Vertex, VertexId};
use pg_event::{Catalog, Direction, Frame, ObjectKind, StackId, ThreadId};
use std::collections::{HashMap, HashSet};

/// A similar vertex with another result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Similar {
    /// It.
    pub vertex: VertexId,
    /// 0 to 1.
    pub similarity: f64,
}

/// Least similarity.
const LEAST: f64 = 0.5;

/// Baselines for the wait that `vertex` leads in with, most similar first, at most `limit`.
/// Looks at the vertex' own process and at processes of the same program.
pub fn similar(graph: &EventGraph, catalog: &Catalog, vertex: VertexId, limit: usize) -> Vec<Similar> {
    let thread = graph.vertex(vertex).thread;
    let program = |t: ThreadId| {
        catalog.process_of(t).map(|p| if p.exe.is_empty() { p.name.as_str() } else { p.exe.as_str() })
    };
    let own = program(thread);
    let same = |t: &ThreadId| *t == thread || own.is_some() && program(*t) == own;
    let among = graph.threads().filter(same).flat_map(|t| graph.vertices_of(t));
    let mut out = similar_among(graph, catalog, vertex, among);
    out.truncate(limit);
    out
}

/// The same among given vertices.
pub(crate) fn similar_among(
    graph: &EventGraph,
    catalog: &Catalog,
    vertex: VertexId,
    among: impl Iterator<Item = VertexId>,
) -> Vec<Similar> {
    let v = graph.vertex(vertex);
    if v.thread.is_none() {
        return Vec::new();
    }
    let ending = ends(catalog, &v);
    let by = leads_in(catalog, &v);
    let mut stacks = HashMap::new();
    let mine = Features::of(graph, catalog, vertex, &v, &mut stacks);
    let mut out = Vec::new();
    for id in among {
        let x = graph.vertex(id);
        if id == vertex || x.syscall != v.syscall || !went_well(graph, id, &x, &v) {
            continue;
        }
        // Threads of a runtime have the functions that start them in common, whatever they wait for.
        let another = x.thread != v.thread && x.object != v.object;
        if another && by.is_some() && leads_in(catalog, &x).is_some_and(|f| Some(f) != by) {
            continue;
        }
        let similarity = mine.compare(&Features::of(graph, catalog, id, &x, &mut stacks))
            - if x.thread == v.thread { 0.0 } else { 0.05 };
        if similarity >= LEAST && ends(catalog, &x) == ending {
            out.push(Similar { vertex: id, similarity });
        }
    }
    // Equally similar: the latest before the victim, since state drifts.
    out.sort_by(|a, b| {
        let late = |s: &Similar| {
            let at = graph.vertex(s.vertex).start;
            if at <= v.start { v.start - at } else { u64::MAX / 2 + (at - v.start) }
        };
        b.similarity.total_cmp(&a.similarity).then(late(a).cmp(&late(b))).then(a.vertex.cmp(&b.vertex))
    });
    out
}

/// The function of the program or its runtime by which it waits for a futex.
fn leads_in<'a>(catalog: &'a Catalog, v: &Vertex) -> Option<&'a str> {
    let futex = catalog.object(v.object).is_some_and(|o| o.kind == ObjectKind::Futex);
    let module = |f: &Frame| catalog.modules.get(f.module.index());
    let mut frames =
        catalog.frames_of(v.user_stack).filter(|f| module(f).is_some_and(|m| !is_plumbing(m.short())));
    frames.next().filter(|f| futex && !f.function.is_empty()).map(|f| f.function.as_str())
}

/// Did it wait while its thread ended: for what is closed and given back then, whatever the call was that ended it?
fn ends(catalog: &Catalog, v: &Vertex) -> bool {
    catalog.frames_of(v.kernel_stack).any(|f| f.function == "do_exit")
}

/// Woken by somebody, and in at most a third of the time.
fn went_well(graph: &EventGraph, id: VertexId, x: &Vertex, victim: &Vertex) -> bool {
    !x.open
        && !x.timed_out
        && !x.interrupted
        && x.waited() > 0
        && x.waited() <= victim.waited() / 3
        && graph.waking(id).is_some_and(|e| graph.edge(e).weak.is_none())
}

struct Features {
    kind: ObjectKind,
    object: pg_event::ObjectId,
    op: u32,
    functions: HashSet<u64>,
    before: HashSet<(ObjectKind, Direction)>,
}

impl Features {
    fn of(
        graph: &EventGraph,
        catalog: &Catalog,
        id: VertexId,
        v: &Vertex,
        stacks: &mut HashMap<StackId, HashSet<u64>>,
    ) -> Self {
        let kind = |o| catalog.object(o).map_or(ObjectKind::Unknown, |o| o.kind);
        let functions =
            stacks.entry(v.user_stack).or_insert_with(|| functions(catalog, v.user_stack)).clone();
        let before = graph.previous(id).map_or_else(HashSet::new, |p| {
            let p = graph.vertex(p);
            graph
                .ipc_of(v.thread, p.run..v.start.saturating_add(1))
                .iter()
                .map(|m| (kind(m.what.object), m.what.direction))
                .collect()
        });
        Self { kind: kind(v.object), object: v.object, op: v.op, functions, before }
    }

    /// 0 to 1: the stack says most about what the program was at.
    fn compare(&self, other: &Self) -> f64 {
        let kind = f64::from(self.kind == other.kind);
        let object = f64::from(self.object == other.object && self.object.is_some());
        let op = f64::from(self.op == other.op);
        let stack = if self.functions.is_empty() && other.functions.is_empty() {
            0.5
        } else {
            jaccard(&self.functions, &other.functions)
        };
        let before = jaccard(&self.before, &other.before);
        0.2 * kind + 0.15 * object + 0.05 * op + 0.45 * stack + 0.15 * before
    }
}

fn functions(catalog: &Catalog, stack: StackId) -> HashSet<u64> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    named(catalog, stack)
        .iter()
        // Only of long waits are the Python functions known, in place of the interpreter's loop.
        .filter(|f| !is_plumbing(&f.module) && f.python.is_none() && f.function != "_PyEval_EvalFrameDefault")
        .map(|f| {
            let mut h = DefaultHasher::new();
            (&f.function, &f.module).hash(&mut h);
            h.finish()
        })
        .collect()
}

fn jaccard<T: Eq + std::hash::Hash>(a: &HashSet<T>, b: &HashSet<T>) -> f64 {
    let union = a.union(b).count();
    if union == 0 { 1.0 } else { a.intersection(b).count() as f64 / union as f64 }
}
