//! Of the waits of whom a person named, the one that they mean.

use crate::class::{WaitClass, class, connected, only_timers, vague};
use crate::diagnose::unread::unread;
use crate::victim::{COMPLAINT, INNOCENT};
use crate::{EventGraph, Victim};
use pg_event::{Catalog, Ns, Object, ObjectId, ObjectKind, Process, Relation, ThreadId};

/// Give more weight to what a person means who names a process.
pub(super) fn weigh(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)]) {
    // The wait for a child, not how the process began.
    for (v, _) in all.iter_mut() {
        if class(&graph.vertex(v.vertex), catalog) == WaitClass::Child && v.episode.key.is_some() {
            v.score *= 4.0;
        }
    }
    // The thread that does not read, while another process waits to write to it.
    for (v, w) in all.iter_mut().filter(|(v, _)| leaves_waiting(graph, catalog, v)) {
        *w = w.max(COMPLAINT);
        v.score = v.score.max(v.duration as f64 / 1e9 * COMPLAINT);
    }
    before_the_parked(graph, catalog, all);
    before_its_workers(graph, catalog, all);
}

/// Does it wait all through the recording in an event loop, with a connection that it made? It may have asked something
/// before; or it has nothing to do, which whoever names it does not think.
pub(super) fn asked_before(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let (first, last) = (graph.vertex(v.first), graph.vertex(v.vertex));
    let members = catalog.object(last.object).map_or(&[][..], |o| &o.members);
    v.episode.key.is_some()
        && first.begun_before
        && last.open
        && class(&last, catalog) == WaitClass::EventLoop
        && members.iter().any(|m| connected(catalog, *m))
}

/// Does it wait in an event loop to the end of the recording, beside much else for what its children write, which are there
/// all that time? A launcher does that until they have ended; whoever names it means this.
pub(super) fn listens_to_children(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let last = graph.vertex(v.vertex);
    let pipe = |o| catalog.object(o).is_some_and(|o: &Object| o.kind == ObjectKind::Pipe);
    let own = catalog.process_id_of(v.thread);
    let lives = |p: &Process| {
        Some(p.parent) == own
            && p.start <= v.start + v.duration / 8
            && p.end.is_none_or(|e| e >= v.end() - v.duration / 8)
    };
    v.episode.key.is_some()
        && last.open
        && class(&last, catalog) == WaitClass::EventLoop
        && catalog.object(last.object).is_some_and(|o| o.members.iter().any(|m| pipe(*m)))
        && catalog.processes.iter().any(lives)
}

/// Is what hung nothing but sleeps, beside a wait for a signal several times as long? That one is meant.
pub(super) fn naps_before_signal(
    graph: &EventGraph,
    catalog: &Catalog,
    hung: &[(Victim, f64)],
    idle: &[(Victim, f64)],
) -> bool {
    let sleeps =
        |v: &Victim| v.episode.key.is_some() && class(&graph.vertex(v.vertex), catalog) == WaitClass::Sleep;
    let Some(longest) = hung.iter().map(|(v, _)| v.duration).max() else { return false };
    let longer = |v: &Victim| v.duration > longest.saturating_mul(3);
    hung.iter().all(|(v, _)| sleeps(v))
        && idle.iter().any(|(v, _)| longer(v) && lost_signal(graph, catalog, v))
}

/// Does the only thread of a process without children wait for a signal, or for nothing but timers, for a good part of the
/// recording and to its end, or the thread's? Who names it may mean that the signal came before the wait did.
pub(super) fn lost_signal(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    /// A thread that a signal kills is gone within this, ns.
    const BRIEF: Ns = 50_000_000;
    let last = graph.vertex(v.vertex);
    let Some(own) = catalog.process_id_of(v.thread) else { return false };
    let child = |p: &Process| p.parent == own && p.end.is_none();
    let killed =
        || graph.exited(v.thread).is_some_and(|(at, status)| at <= v.end() + BRIEF && status & 0x7f != 0);
    v.episode.key.is_some()
        && (last.open || last.interrupted || killed())
        && v.duration >= graph.duration() / 4
        && (class(&last, catalog) == WaitClass::Signal || only_timers(&last, catalog))
        && graph.threads_of(own).nth(1).is_none()
        && !catalog.processes.iter().any(child)
}

/// Does the first thread of a process wait all through the recording in an event loop for what comes from another one, as its
/// standard output or by a pair of sockets in place of that? Whoever starts programs does that until all that inherited the
/// other end have closed it.
fn reads_output(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let (first, last) = (graph.vertex(v.first), graph.vertex(v.vertex));
    let own = catalog.process_id_of(v.thread);
    let output = |o: ObjectId, relation: Relation| {
        catalog.object(o).is_some_and(|o| match o.kind {
            ObjectKind::Pipe => relation == Relation::Writes,
            ObjectKind::UnixStream => relation == Relation::Peer && o.name.is_empty(),
            _ => false,
        })
    };
    let theirs = |t: ThreadId| {
        let holder = catalog.process_id_of(t);
        holder != own && own.is_some_and(|own| !catalog.ancestors(own).any(|p| Some(p) == holder))
    };
    v.episode.key.is_some()
        && first.begun_before
        && last.open
        && catalog.is_first(v.thread)
        && class(&last, catalog) == WaitClass::EventLoop
        && graph.holds(v.thread, v.start..v.end().saturating_add(1)).any(|h| {
            let member = catalog.object(last.object).is_some_and(|o| o.members.contains(&h.object));
            member && output(h.object, h.relation) && theirs(h.holder)
        })
}

/// Threads of a runtime park when there is nothing for them to do: where another one of their process waits for an answer to
/// what it may have asked before the recording, or for the output of others, that is told first.
fn before_the_parked(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)]) {
    let process = |v: &Victim| catalog.process_id_of(v.thread);
    let parks = |v: &Victim| {
        let (first, last) = (graph.vertex(v.first), graph.vertex(v.vertex));
        v.episode.key.is_some()
            && first.begun_before
            && last.open
            && (vague(&last, catalog) || class(&last, catalog) == WaitClass::Condition)
            && !catalog.is_first(v.thread)
    };
    let meant = |v: &Victim| asked_before(graph, catalog, v) || reads_output(graph, catalog, v);
    for i in (0..all.len()).filter(|i| meant(&all[*i].0)).collect::<Vec<_>>() {
        let own = process(&all[i].0);
        let parked = all.iter().filter(|(v, _)| process(v) == own && parks(v)).map(|(v, _)| v.score);
        if let Some(most) = parked.max_by(f64::total_cmp) {
            let (victim, weight) = &mut all[i];
            victim.score = victim.score.max(most * 1.01);
            *weight = weight.max(INNOCENT);
        }
    }
}

/// A first thread that waited for whatever comes until a worker of its process let it go on, which had computed all that time:
/// the wait is what a person sees of that.
fn before_its_workers(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)]) {
    let process = |t: ThreadId| catalog.process_id_of(t);
    let waits = |v: &Victim| {
        v.episode.key.is_some()
            && catalog.is_first(v.thread)
            && class(&graph.vertex(v.vertex), catalog) == WaitClass::EventLoop
    };
    for i in (0..all.len()).filter(|i| waits(&all[*i].0)).collect::<Vec<_>>() {
        let v = &all[i].0;
        let Some(waker) = graph.waking(v.vertex).map(|e| graph.vertex(graph.edge(e).from).thread) else {
            continue;
        };
        let worker = |(w, _): &&(Victim, f64)| {
            let both = w.end().min(v.end()).saturating_sub(w.start.max(v.start));
            let computes = w.episode.key.is_none() && w.thread != v.thread;
            computes
                && process(w.thread) == process(v.thread)
                && both * 2 >= v.duration
                && both * 2 >= w.duration
        };
        let workers: Vec<_> = all.iter().filter(worker).map(|(w, _)| (w.thread, w.score)).collect();
        if !workers.iter().any(|w| w.0 == waker) {
            continue;
        }
        let most = workers.iter().map(|w| w.1).fold(0.0, f64::max);
        let (victim, weight) = &mut all[i];
        victim.score = victim.score.max(most * 1.01);
        *weight = weight.max(INNOCENT);
    }
}

/// Does it wait for whatever comes, while another process waits for most of that time to write to it?
fn leaves_waiting(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    v.episode.key.is_some()
        && class(&graph.vertex(v.vertex), catalog) == WaitClass::EventLoop
        && unread(graph, catalog, v.thread, (v.start, v.end())).any(|h| h.holder == v.thread)
}
