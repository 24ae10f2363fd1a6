//! Hand-overs that the event graph shows.
//!
//! Before a unit its thread waited, and somebody ended that wait: if he was in a unit, that unit handed on the work.
//! After a condition variable the thread may wait for the mutex around it, too: then the wait before that counts, since
//! who unlocks hands on nothing. Through pipes, eventfds and sockets a unit may also take messages without a wait before
//! it; these are hand-overs if the same channel was seen to end waits before units: other messages are answers.

use super::{HandOver, How, Transactions, WorkUnit, previous, unit_before};
use crate::class::takes_semaphore;
use crate::{EdgeId, EdgeKind, EventGraph, Vertex, VertexId, Weak};
use pg_event::{Catalog, Ns, ObjectId, ThreadId};
use std::collections::HashSet;

/// From the end of a wait to the begin of its unit, at most: the way back from the wait, and what a guard takes.
const BACK: Ns = 200_000;
/// Clocks of a unit's end and of the switch behind it differ by less.
const SLACK: Ns = 50_000;
/// Waits before one unit that are looked at: for a signal, then for its mutex, and so again for nothing.
const MOST_WAITS: usize = 16;
/// Messages that are looked at in one unit.
const MOST_MESSAGES: usize = 4096;

/// The hand-overs that edges show, in no order.
pub(super) fn hand_overs(graph: &EventGraph, catalog: &Catalog, units: &[WorkUnit]) -> Vec<HandOver> {
    let mut all = Vec::new();
    // By channel and loop: it ended a wait before a unit.
    let mut channels: HashSet<(ObjectId, u32)> = HashSet::new();
    for (i, u) in units.iter().enumerate() {
        let Some(before) = waited_before(graph, units, i) else { continue };
        let Some(h) = woken(graph, catalog, units, i, &before) else { continue };
        let by = units[h.from].thread;
        // The wait was for a set of descriptors; which of them the message came through is told by what was read.
        if let How::Woken(e) = h.how
            && graph.edge(e).kind == EdgeKind::Ipc
        {
            channels.insert((graph.edge(e).object, u.of_loop));
            let took = messages(graph, u).filter(|m| m.1 == by).map(|m| (m.2, u.of_loop));
            channels.extend(took);
        }
        all.push(h);
    }
    if !channels.is_empty() {
        add_messages(graph, units, &channels, &mut all);
    }
    all
}

/// The vertices whose leading waits lie between a unit and the one before, the last first.
pub(super) fn waited_before(graph: &EventGraph, units: &[WorkUnit], unit: usize) -> Option<Vec<VertexId>> {
    let u = &units[unit];
    let ended = previous(units, unit).map_or(0, |p| p.end.saturating_sub(SLACK));
    let mut at = graph.vertex_at(u.thread, u.start)?;
    let mut all = Vec::new();
    let mut until = u.start;
    for _ in 0..MOST_WAITS {
        let v = graph.vertex(at);
        // It worked between that wait and this one.
        if until.saturating_sub(v.run) > BACK || v.start < ended {
            break;
        }
        if v.woken > v.start {
            all.push(at);
        }
        until = v.start;
        let Some(before) = graph.previous(at) else { break };
        at = before;
    }
    (!all.is_empty()).then_some(all)
}

/// The hand-over that ended the wait before a unit: of several waits the last one that was ended for sure, else the last.
fn woken(
    graph: &EventGraph,
    catalog: &Catalog,
    units: &[WorkUnit],
    unit: usize,
    waits: &[VertexId],
) -> Option<HandOver> {
    let from_unit = |v: &VertexId| {
        if gives_back(graph, catalog, units, *v) {
            return None;
        }
        let id = graph.waking(*v)?;
        let e = graph.edge(id);
        if e.weak == Some(Weak::MutexHandOff)
            || !matches!(e.kind, EdgeKind::Futex | EdgeKind::Ipc | EdgeKind::WakeUp)
        {
            return None;
        }
        let by = graph.vertex(e.from).thread;
        let from = Transactions::containing(units, by, e.from_time)?;
        (by != units[unit].thread).then_some((*v, id, e, from))
    };
    let mut found: Vec<_> = waits.iter().filter_map(from_unit).collect();
    let strong = found.iter().position(|f| f.2.weak.is_none()).unwrap_or(0);
    if found.is_empty() {
        return None;
    }
    let (v, id, e, from) = found.swap_remove(strong);
    let taken = units[unit].start;
    let since = waits.iter().map(|w| graph.vertex(*w)).filter(|w| w.woken >= graph.vertex(v).woken);
    let runnable = since.map(|w: Vertex| w.run.min(taken).saturating_sub(w.woken)).sum();
    let object = told(catalog, e.object);
    Some(HandOver {
        from,
        to: unit,
        time: e.from_time.min(taken),
        taken,
        runnable,
        busy: 0,
        object,
        how: How::Woken(id),
        weak: e.weak,
    })
}

/// Whether a wait for a semaphore was ended by a thread that had got in by the same one before its unit, as the queues of
/// Python's executors do: who was let in lets the next one in, to look whether there is more. Who has put something in is
/// not told by that. Where the thread puts in something itself later in that unit, that is left out, too.
fn gives_back(graph: &EventGraph, catalog: &Catalog, units: &[WorkUnit], wait: VertexId) -> bool {
    let v = graph.vertex(wait);
    let Some(e) = graph.waking(wait).map(|e| graph.edge(e)) else { return false };
    let by = graph.vertex(e.from).thread;
    if e.kind != EdgeKind::Futex || v.object.is_none() || !takes_semaphore(&v, catalog) {
        return false;
    }
    let unit = Transactions::containing(units, by, e.from_time);
    let before = unit.and_then(|u| waited_before(graph, units, u)).unwrap_or_default();
    before.iter().any(|w| graph.vertex(*w).object == v.object)
}

/// An object that the catalogue has.
fn told(catalog: &Catalog, object: ObjectId) -> ObjectId {
    if catalog.object(object).is_some() { object } else { ObjectId::NONE }
}

/// Messages that arrived in a unit: edge, sender, channel, and when it arrived.
fn messages<'g>(
    graph: &'g EventGraph,
    u: &'g WorkUnit,
) -> impl Iterator<Item = (EdgeId, ThreadId, ObjectId, Ns)> + 'g {
    let within = graph.vertices_in(u.thread, u.start..u.end.max(u.start + 1));
    let edges = within.flat_map(|v| graph.incoming(v)).take(MOST_MESSAGES);
    edges.filter_map(move |id| {
        let e = graph.edge(id);
        let fits = e.kind == EdgeKind::Ipc && graph.waking(e.to) != Some(id);
        let by = graph.vertex(e.from).thread;
        (fits && by != u.thread && (u.start..=u.end).contains(&e.to_time))
            .then_some((id, by, e.object, e.to_time))
    })
}

/// Adds the messages through channels that hand work on, but those that a wake-up stands for already.
fn add_messages(
    graph: &EventGraph,
    units: &[WorkUnit],
    channels: &HashSet<(ObjectId, u32)>,
    all: &mut Vec<HandOver>,
) {
    let known: HashSet<(usize, usize)> = all.iter().map(|h| (h.from, h.to)).collect();
    for (to, u) in units.iter().enumerate() {
        for (id, by, object, taken) in messages(graph, u).filter(|m| channels.contains(&(m.2, u.of_loop))) {
            let e = graph.edge(id);
            let Some(from) = Transactions::containing(units, by, e.from_time) else { continue };
            if !known.contains(&(from, to)) {
                let (time, how, weak) = (e.from_time, How::Message(id), e.weak);
                all.push(HandOver { from, to, time, taken, runnable: 0, busy: 0, object, how, weak });
            }
        }
    }
}

impl Transactions {
    /// The unit of a thread in which it did something. Between units it waits and does nothing: what it did just before a
    /// unit began it did in that one, and the clocks differ.
    fn containing(units: &[WorkUnit], thread: ThreadId, time: Ns) -> Option<usize> {
        let in_one = |i: &usize| units[*i].end >= time;
        unit_before(units, thread, time).filter(in_one).or_else(|| {
            let next = units.partition_point(|u| (u.thread, u.start) <= (thread, time));
            let u = units.get(next)?;
            (u.thread == thread && u.start - time <= SLACK).then_some(next)
        })
    }
}
