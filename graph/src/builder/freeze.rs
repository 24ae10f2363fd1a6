//! From the threads' states to the columns of the graph.

use super::futex::Uses;
use super::related::{Fit, fit};
use super::split::{self, Peers};
use super::together;
use super::{Builder, Join, POLL, RECV};
use crate::class::tells_of_barrier;
use crate::columns::{Detail, EdgeRow, OPEN, SPLIT, TIMED_OUT, ThreadRows, Times};
use crate::flag::Flags;
use crate::graph::EventGraph;
use crate::lane::LaneIndex;
use crate::{EdgeId, EdgeKind, HoldFact, VertexId, Weak};
use pg_event::{Catalog, Ns, ObjectId, Relation, ThreadId};
use std::ops::Range;

pub(super) fn freeze(b: Builder, duration: Ns, catalog: &Catalog, join: Join<'_>) -> EventGraph {
    let Builder {
        options,
        mut threads,
        mut edges,
        numbers,
        holds,
        mut bursts,
        signals,
        mut works,
        flags,
        marks,
        unserved,
        units,
        execs,
        lost,
        unheard,
        culled,
        events,
        last_cpu,
        ..
    } = b;
    let mut g = EventGraph {
        signals,
        works: {
            works.sort_by_key(|w| (w.worker, w.time));
            works
        },
        flags: Flags::new(flags),
        marks,
        unserved: crate::unserved::latest(unserved),
        execs,
        duration,
        events,
        culled,
        cpus: u32::from(last_cpu) + 1,
        partial: options.partial,
        ..EventGraph::default()
    };
    bursts.sort_by_key(|b| (b.thread, b.start));
    g.bursts = bursts;
    // Readers of a lock are counted, not known.
    let (mapped, holds): (Vec<_>, Vec<_>) = holds.into_iter().partition(|h| h.relation == Relation::Maps);
    let changes = |h: &HoldFact| matches!(h.relation, Relation::Makes | Relation::Removes);
    let (changed, holds): (Vec<_>, Vec<_>) = holds.into_iter().partition(changes);
    g.changed = changed;
    g.changed.sort_by_key(|h| (h.object, h.time));
    (g.readers, g.holds) = holds.into_iter().partition(|h| h.relation == Relation::Reader);
    g.mapped = mapped;
    g.mapped.sort_by_key(|h| (h.subject, h.time));
    g.readers.sort_by_key(|h| (h.subject, h.time));
    g.holds.sort_by_key(|h| (h.subject, h.time));
    g.lost = joined(lost);
    g.unheard = joined(unheard);

    let ids = (0..threads.len() as u32).map(ThreadId);
    let peers = Peers::new(ids.zip(&threads).map(|(id, t)| (id, &t.ipc[..])), catalog);
    let vertices: usize = threads.iter().map(|t| t.rows.len()).sum();
    g.times.reserve_exact(vertices);
    g.details.reserve_exact(vertices);
    g.threads.reserve_exact(threads.len());
    let mut seen = Vec::with_capacity(threads.len());
    let wakes = if threads.iter().all(|t| t.ipc.is_empty()) {
        split::Wakes::default()
    } else {
        let ids = (0..threads.len() as u32).map(ThreadId);
        let segments = ids.zip(&threads).flat_map(|(id, t)| t.rows.iter().map(move |r| (r.number, id)));
        split::Wakes::new(&edges, segments, numbers, catalog)
    };
    // A vertex that was replaced has none.
    let mut final_id = vec![VertexId(u32::MAX); numbers as usize];
    for t in &mut threads {
        let first = g.times.len() as u32;
        seen.push(t.seen);
        let last_run = t.rows.last().map_or(0, |r| r.times.run);
        // A thread that did not exit was there until the end.
        let end = t.exited.map_or(duration, |x| x.0.max(t.seen)).max(last_run);
        let id = ThreadId(g.threads.len() as u32);
        let rows = std::mem::take(&mut t.rows);
        for (i, r) in rows.iter().enumerate() {
            if let Some(id) = final_id.get_mut(r.number as usize) {
                *id = VertexId(g.times.len() as u32);
            }
            g.times.push(r.times);
            g.details.push(r.detail);
            let polled = super::call_is(r.detail.syscall, POLL);
            let flags = split::criterion(polled, &options);
            if let (Some(flags), false) = (flags, t.ipc.is_empty()) {
                let span = (r.times.run, rows.get(i + 1).map_or(end, |n| n.times.start));
                let ender = wakes.ender(r.number).filter(|_| polled);
                let mut at = split::boundaries(&t.ipc, span, wakes.of(r.number), ender, &peers, catalog);
                // Nobody takes a message while off the CPU: damage.
                at.retain(|x| {
                    let off = t.put_off.get(t.put_off.partition_point(|p| p.1 <= *x));
                    off.is_none_or(|p| *x <= p.0)
                });
                split_up(&mut g, id, &at, span.1, flags, &t.put_off);
            }
        }
        g.threads.push(ThreadRows {
            vertices: first..g.times.len() as u32,
            put_off: whole(std::mem::take(&mut t.put_off)),
            cpus: whole(std::mem::take(&mut t.cpus)),
            yields: whole(std::mem::take(&mut t.yields)),
            samples: whole(std::mem::take(&mut t.samples)),
            ipc: whole(std::mem::take(&mut t.ipc)),
            syscalls: whole(std::mem::take(&mut t.syscalls)),
            end,
            exited: t.exited,
        });
    }
    drop(threads);
    g.extend_told(&seen);
    g.find_unseen(catalog);
    g.take_units(units, catalog);
    let id = |v: VertexId| final_id.get(v.index()).copied().filter(|v| v.0 != u32::MAX);
    edges.retain_mut(|e| match (id(e.from), id(e.to)) {
        (Some(from), Some(to)) => {
            e.from = part_at(&g, from, e.from_time);
            // What ended the leading wait ended that of the first part.
            e.to = if e.waking { to } else { part_at(&g, to, e.to_time) };
            true
        }
        _ => false,
    });
    // Growing left room that is not needed any more.
    edges.shrink_to_fit();
    drop(final_id);
    (g.edges, g.in_start) = link(&g, edges, catalog, join);
    let (mut out, mut lanes) = (Outgoing::default(), LaneIndex::default());
    join(&mut || out = outgoing(&g.edges, g.times.len()), &mut || lanes = LaneIndex::new(&g));
    (g.out_start, g.out, g.lanes) = (out.start, out.edges, lanes);
    for thread in g.threads().collect::<Vec<_>>() {
        if let Some(t) = catalog.thread(thread) {
            g.by_process.entry(t.process).or_default().push(thread);
        }
    }
    if options.split_batches {
        together::mark(&mut g, catalog);
    }
    let mut holds = std::mem::take(&mut g.holds);
    holds.retain(|h| is_believed(&g, h, catalog));
    g.holds = holds;
    g.retries = crate::retries::find(&g, catalog);
    g
}

/// Who has not come to a barrier was told by words in memory: where the stack tells of none, they were another thing's.
fn is_believed(g: &EventGraph, h: &HoldFact, catalog: &Catalog) -> bool {
    let waits = || g.vertex_at(h.subject, h.time).map(|v| g.vertex(v));
    h.relation != Relation::Missing || waits().is_some_and(|v| tells_of_barrier(&v, catalog))
}

/// Split the last vertex at these moments; it ends at `end`.
fn split_up(g: &mut EventGraph, id: ThreadId, at: &[Ns], end: Ns, flags: u8, put_off: &[(Ns, Ns)]) {
    let Some(whole) = g.details.last_mut().filter(|_| !at.is_empty()) else { return };
    // What was put off is that of each part.
    let off = |a: Ns, b: Ns| -> Ns {
        let from = put_off.partition_point(|p| p.1 <= a);
        put_off[from..].iter().take_while(|p| p.0 < b).map(|p| p.1.min(b).saturating_sub(p.0.max(a))).sum()
    };
    let ends = at.iter().skip(1).copied().chain([end]);
    let parts: Vec<_> = at.iter().zip(ends).map(|(a, b)| split::part(*a, id, off(*a, b), flags)).collect();
    let later: Ns = parts.iter().map(|p| p.1.preempted).sum();
    whole.preempted = whole.preempted.saturating_sub(later);
    for (times, detail) in parts {
        g.times.push(times);
        g.details.push(detail);
    }
}

/// The part of a split segment that was on the CPU at `time`.
fn part_at(g: &EventGraph, first: VertexId, time: Ns) -> VertexId {
    let mut at = first.index();
    let is_part = |i: usize| g.details.get(i).is_some_and(|d| d.flags & SPLIT != 0);
    while is_part(at + 1) && g.times[at + 1].start <= time {
        at += 1;
    }
    VertexId(at as u32)
}

/// A list that will not grow any more.
fn whole<T>(mut list: Vec<T>) -> Vec<T> {
    list.shrink_to_fit();
    list
}

/// Disjoint spans, by time.
fn joined(mut spans: Vec<(Ns, Ns)>) -> Vec<(Ns, Ns)> {
    spans.sort_unstable();
    let mut out: Vec<(Ns, Ns)> = Vec::new();
    for s in spans {
        match out.last_mut() {
            Some(l) if s.0 <= l.1 => l.1 = l.1.max(s.1),
            _ => out.push(s),
        }
    }
    out
}

/// Where the edges into each vertex begin, once they are sorted.
fn starts(edges: &[EdgeRow], n: usize, end: impl Fn(&EdgeRow) -> VertexId) -> Vec<u32> {
    let mut start = vec![0u32; n + 1];
    for e in edges {
        start[end(e).index() + 1] += 1;
    }
    for i in 0..n {
        start[i + 1] += start[i];
    }
    start
}

/// Numbers of the edges in the order of where they end. (Sorting the rows themselves in place takes three
/// times as long: it jumps about in memory.)
fn order(edges: &[EdgeRow], start: &[u32]) -> Vec<u32> {
    let mut next = start.to_vec();
    let mut order = vec![0u32; edges.len()];
    for (i, e) in edges.iter().enumerate() {
        let cell = &mut next[e.to.index()];
        order[*cell as usize] = i as u32;
        *cell += 1;
    }
    order
}

/// Sort the edges by where they end, join double ones, judge futex edges. Returns them and where those into
/// each vertex begin.
fn link(g: &EventGraph, raw: Vec<EdgeRow>, catalog: &Catalog, join: Join<'_>) -> (Vec<EdgeRow>, Vec<u32>) {
    let n = g.times.len();
    let start = starts(&raw, n, |e| e.to);
    let order = order(&raw, &start);
    let sorted = Sorted { rows: &raw, start: &start, order: &order };
    let middle = start.partition_point(|s| (*s as usize) < raw.len() / 2).min(n);
    // Room for all, as the second half is put behind the first.
    let mut first = Linked { rows: Vec::with_capacity(raw.len()), start: Vec::with_capacity(n + 1) };
    let mut second = Linked::default();
    join(&mut || first.link(g, &sorted, 0..middle, catalog), &mut || {
        second.rows.reserve_exact(raw.len() - start[middle] as usize);
        second.link(g, &sorted, middle..n, catalog);
    });
    drop(raw);
    let Linked { mut rows, start: mut in_start } = first;
    let before = rows.len() as u32;
    rows.extend_from_slice(&second.rows);
    in_start.extend(second.start.iter().map(|s| s + before));
    in_start.push(rows.len() as u32);
    drop(second);
    rows.shrink_to_fit();
    (rows, in_start)
}

/// Edges as they were made, and their order by where they end.
struct Sorted<'a> {
    rows: &'a [EdgeRow],
    start: &'a [u32],
    order: &'a [u32],
}

/// The edges into a range of vertices, and where those into each vertex begin.
#[derive(Default)]
struct Linked {
    rows: Vec<EdgeRow>,
    start: Vec<u32>,
}

impl Linked {
    fn link(&mut self, g: &EventGraph, sorted: &Sorted<'_>, vertices: Range<usize>, catalog: &Catalog) {
        let mut uses = Uses::default();
        let mut own: Vec<EdgeRow> = Vec::new();
        let mut group: Vec<EdgeRow> = Vec::new();
        for v in vertices {
            self.start.push(self.rows.len() as u32);
            let numbers = &sorted.order[sorted.start[v] as usize..sorted.start[v + 1] as usize];
            if numbers.is_empty() {
                continue;
            }
            own.clear();
            own.extend(numbers.iter().map(|i| sorted.rows[*i as usize]));
            own.sort_by_key(|e| (e.to_time, e.from_time, e.from, !e.waking));
            group.clear();
            for e in &own {
                add(&mut group, *e);
            }
            if !group.iter().any(|e| e.waking) && awaits_message(&g.details[v]) {
                let waited_for = g.details[v].object;
                promote(&mut group, &g.times[v], |object| fit(waited_for, object, catalog) != Fit::Differs);
            }
            for e in &mut group {
                if e.waking
                    && e.kind == EdgeKind::Futex
                    && e.weak.is_none()
                    && uses.is_lock(&g.details[v], catalog)
                {
                    e.weak = Some(Weak::MutexHandOff);
                }
                if e.weak.is_none() && e.waking && lost_around(&g.lost, e) {
                    e.weak = Some(Weak::LostEvents);
                }
            }
            group.sort_by_key(|e| (!e.waking, e.to_time, e.from_time));
            self.rows.extend_from_slice(&group);
        }
    }
}

/// Edges by where they begin: `start[v]..start[v + 1]` of `edges` leave `v`, by time.
#[derive(Default)]
struct Outgoing {
    start: Vec<u32>,
    edges: Vec<EdgeId>,
}

fn outgoing(rows: &[EdgeRow], n: usize) -> Outgoing {
    let start = starts(rows, n, |e| e.from);
    let mut next = start.clone();
    let mut edges = vec![EdgeId(0); rows.len()];
    for (i, r) in rows.iter().enumerate() {
        let cell = &mut next[r.from.index()];
        edges[*cell as usize] = EdgeId(i as u32);
        *cell += 1;
    }
    for v in 0..n {
        let own = &mut edges[start[v] as usize..start[v + 1] as usize];
        if own.len() > 1 {
            own.sort_unstable_by_key(|e| (rows[e.index()].from_time, e.0));
        }
    }
    Outgoing { start, edges }
}

/// A message whose arrival also woke is one edge: that of the wake-up, made certain by the bytes.
fn add(group: &mut Vec<EdgeRow>, e: EdgeRow) {
    let Some(same) = group.iter_mut().find(|x| x.from == e.from && x.waking != e.waking) else {
        let double =
            group.iter().any(|x| x.from == e.from && !e.waking && x.kind == e.kind && x.object == e.object);
        if !double {
            group.push(e);
        }
        return;
    };
    let (wake, message) = if same.waking { (*same, e) } else { (e, *same) };
    let merges = message.kind == EdgeKind::Ipc
        && matches!(wake.kind, EdgeKind::Ipc | EdgeKind::WakeUp)
        && matches!(wake.weak, None | Some(Weak::InterruptInferred | Weak::ObjectMismatch));
    if merges {
        *same = EdgeRow { kind: EdgeKind::Ipc, weak: None, object: message.object, ..wake };
    } else {
        group.push(e);
    }
}

/// Did a vertex lead in with a wait that a message can end, and nothing else is known to have ended?
fn awaits_message(d: &Detail) -> bool {
    d.flags & (OPEN | TIMED_OUT) == 0 && super::call_is(d.syscall, RECV | POLL)
}

/// No wake-up was attributed: the first message received in this segment that was sent during the wait
/// ended it.
fn promote(group: &mut [EdgeRow], t: &Times, fits: impl Fn(ObjectId) -> bool) {
    if t.woken == t.start {
        return;
    }
    let during = |e: &EdgeRow| e.kind == EdgeKind::Ipc && e.from_time <= t.woken && e.from_time >= t.start;
    let first = group.iter_mut().filter(|e| during(e) && fits(e.object)).min_by_key(|e| e.to_time);
    if let Some(e) = first {
        e.waking = true;
        e.to_time = t.woken;
    }
}

fn lost_around(lost: &[(Ns, Ns)], e: &EdgeRow) -> bool {
    let i = lost.partition_point(|l| l.1 < e.from_time);
    lost.get(i).is_some_and(|l| l.0 <= e.to_time)
}
