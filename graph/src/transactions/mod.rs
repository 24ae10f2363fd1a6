//! Transactions: the units of several threads that are one piece of work. A listener's unit takes a request and hands
//! it on; a worker's unit does the work, later. PerfGuard knows both kinds of loops (section 4.1) but takes each unit for
//! itself; here the event graph joins them, and tells how long the work waited in between.
//!
//! | file | what |
//! |---|---|
//! | `taken` | hand-overs that the event graph shows: who ended the wait before a unit, whose message it took |
//! | `order` | hand-overs to a busy worker, which no event shows: by the order of the queue |
//! | `chain` | hand-overs one after the other: ways of work through threads |
//! | `recorded` | the units of a guard's recording |
//! | `table` | figures of many |
//! | `words` | which of it a person should know |
//!
//! A worker that is busy takes its next work from a queue without waiting for it: the C library then makes no system
//! call to signal, and there is no wake-up. What is known is that a unit of the listener woke nobody, and that a worker's
//! loop turned without a wait. These are put together in their order, and marked ([`How::Order`]): who takes what of
//! several may be wrong, the mean of the queueing times is not, as long as nothing is missing.

mod chain;
mod order;
mod recorded;
mod table;
mod taken;
mod words;

pub use chain::Transaction;
pub use recorded::{HandedOn, Recorded};
pub use table::{Doing, Pair, Times, Ways, pairs, ways};
pub use words::pair_words;

use crate::{EdgeId, EdgeKind, EventGraph, Weak};
use pg_event::{Catalog, Ns, ObjectId, ProcessId, ThreadId};
use std::collections::{BTreeMap, BTreeSet};

/// A unit of work, of whatever told where it begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkUnit {
    /// Whose.
    pub thread: ThreadId,
    /// Number of its event loop.
    pub of_loop: u32,
    /// Number of its type; where types are not known that of the loop.
    pub kind: u32,
    /// When it began, ns.
    pub start: Ns,
    /// When it ended, ns; the recording's end if it had not.
    pub end: Ns,
}

impl WorkUnit {
    /// Length, ns.
    pub fn duration(&self) -> Ns {
        self.end.saturating_sub(self.start)
    }
}

/// How a hand-over is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// By the edge that ended the wait before the unit.
    Woken(EdgeId),
    /// By a message that the unit took: the edge from its sender.
    Message(EdgeId),
    /// No event shows it: by the order of what was handed on and what was taken.
    Order,
}

/// A unit handed work on to a unit of another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOver {
    /// Number of the unit that handed on.
    pub from: usize,
    /// Number of the unit that took it.
    pub to: usize,
    /// When it was handed on, ns. Of one that no event shows, about.
    pub time: Ns,
    /// When the work on it began, ns.
    pub taken: Ns,
    /// Of the time between, how long the thread that took it could run and had no CPU, ns.
    pub runnable: Ns,
    /// Of the time between, how long the thread that took it was in other units, ns.
    pub busy: Ns,
    /// Through what; none when that is not known.
    pub object: ObjectId,
    /// How it is known.
    pub how: How,
    /// Why it may be wrong, if it may. `None` of it with [`How::Order`]: that is reason enough.
    pub weak: Option<Weak>,
}

impl HandOver {
    /// How long the work waited, ns.
    pub fn queued(&self) -> Ns {
        self.taken.saturating_sub(self.time)
    }

    /// Is it certain?
    pub fn is_strong(&self) -> bool {
        self.weak.is_none() && self.how != How::Order
    }
}

/// Units of work, and which of them handed work on to which.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Transactions {
    /// By thread and begin.
    pub units: Vec<WorkUnit>,
    /// By when they were taken.
    pub hand_overs: Vec<HandOver>,
    /// By hand-over: the one before it on the same way, and whether the way ends there because it came back to a loop.
    links: Vec<chain::Link>,
    /// By unit: numbers of the hand-overs into it are a range of this list.
    into: Vec<u32>,
    into_start: Vec<u32>,
    threads: Members,
}

/// Threads by their process and loop.
type Members = BTreeMap<(ProcessId, u32), Vec<ThreadId>>;

impl Transactions {
    /// Joins units. Units of one thread that overlap are left out, all but the first. `members`: threads, and the loops
    /// they wait in for units, also if they got none.
    pub fn new(
        graph: &EventGraph,
        catalog: &Catalog,
        mut units: Vec<WorkUnit>,
        members: &[(ThreadId, u32)],
    ) -> Self {
        units.sort_by_key(|u| (u.thread, u.start, u.end));
        units.dedup_by(|later, first| later.thread == first.thread && later.start < first.end);
        let threads = threads_of(catalog, &units, members);
        let mut all = taken::hand_overs(graph, catalog, &units);
        leave_out_free_workers(graph, catalog, &units, &threads, &mut all);
        order::add(graph, catalog, &units, &threads, &mut all);
        all.sort_by_key(|h| (h.taken, h.to, h.time, h.from));
        for h in &mut all {
            h.busy = busy(&units, h);
        }
        let links = chain::links(&units, &all);
        let (into, into_start) = by_unit(units.len(), &all);
        Self { units, hand_overs: all, links, into, into_start, threads }
    }

    /// The hand-overs into a unit, by when they were taken.
    pub fn into_unit(&self, unit: usize) -> impl Iterator<Item = &HandOver> + '_ {
        self.numbers_into(unit).iter().map(|&h| &self.hand_overs[h as usize])
    }

    /// Number of the first hand-over into a unit.
    pub fn first_into(&self, unit: usize) -> Option<usize> {
        self.numbers_into(unit).first().map(|&h| h as usize)
    }

    fn numbers_into(&self, unit: usize) -> &[u32] {
        let at = |i: usize| self.into_start.get(i).copied().unwrap_or(0) as usize;
        let (a, b) = (at(unit), at(unit + 1));
        &self.into[a..b.max(a)]
    }

    /// Number of the unit that a thread is in at a moment. What is at its very end belongs to it.
    pub fn unit_at(&self, thread: ThreadId, time: Ns) -> Option<usize> {
        let i = unit_before(&self.units, thread, time)?;
        (self.units[i].end >= time).then_some(i)
    }
}

/// The last unit of a thread that begins no later than `time`.
fn unit_before(units: &[WorkUnit], thread: ThreadId, time: Ns) -> Option<usize> {
    let after = units.partition_point(|u| (u.thread, u.start) <= (thread, time));
    let i = after.checked_sub(1)?;
    (units[i].thread == thread).then_some(i)
}

/// The unit before one, of its thread.
fn previous(units: &[WorkUnit], unit: usize) -> Option<&WorkUnit> {
    let before = &units[unit.checked_sub(1)?];
    (before.thread == units[unit].thread).then_some(before)
}

/// How long the thread that took work was in other units while the work waited.
fn busy(units: &[WorkUnit], h: &HandOver) -> Ns {
    let thread = units[h.to].thread;
    let own = units[..h.to].iter().rev().take_while(|u| u.thread == thread && u.end > h.time);
    own.map(|u| u.end.min(h.taken).saturating_sub(u.start.max(h.time))).sum()
}

/// Numbers of hand-overs by the unit that took them.
fn by_unit(units: usize, all: &[HandOver]) -> (Vec<u32>, Vec<u32>) {
    let mut start = vec![0_u32; units + 1];
    for h in all {
        start[h.to + 1] += 1;
    }
    for i in 0..units {
        start[i + 1] += start[i];
    }
    let mut next = start.clone();
    let mut into = vec![0; all.len()];
    for (i, h) in all.iter().enumerate() {
        into[next[h.to] as usize] = i as u32;
        next[h.to] += 1;
    }
    (into, start)
}

/// A pair of loops of one process each, between which work is handed over.
type Route = (ProcessId, u32, ProcessId, u32);

fn route(catalog: &Catalog, from: &WorkUnit, to: &WorkUnit) -> Route {
    let process = |t| catalog.thread(t).map_or(ProcessId::NONE, |t| t.process);
    (process(from.thread), from.of_loop, process(to.thread), to.of_loop)
}

/// The threads of each loop.
fn threads_of(catalog: &Catalog, units: &[WorkUnit], members: &[(ThreadId, u32)]) -> Members {
    let mut all = Members::new();
    let with_units = units.iter().map(|u| (u.thread, u.of_loop));
    let both: BTreeSet<(ThreadId, u32)> = with_units.chain(members.iter().copied()).collect();
    for (thread, of_loop) in both {
        let process = catalog.thread(thread).map_or(ProcessId::NONE, |t| t.process);
        all.entry((process, of_loop)).or_default().push(thread);
    }
    all
}

/// A listener that takes a request only when a worker is free waits for the worker's signal, which hands on no work.
/// Where two loops wake each other by futexes, those of more threads are the workers.
fn leave_out_free_workers(
    graph: &EventGraph,
    catalog: &Catalog,
    units: &[WorkUnit],
    threads: &Members,
    all: &mut Vec<HandOver>,
) {
    let futex = |h: &HandOver| matches!(h.how, How::Woken(e) if graph.edge(e).kind == EdgeKind::Futex);
    let route_of = |h: &HandOver| route(catalog, &units[h.from], &units[h.to]);
    let routes: BTreeSet<Route> = all.iter().filter(|h| futex(h)).map(route_of).collect();
    let count = |of: (ProcessId, u32)| threads.get(&of).map_or(0, Vec::len);
    all.retain(|h| {
        let r = route_of(h);
        let tells_free = routes.contains(&(r.2, r.3, r.0, r.1)) && count((r.0, r.1)) > count((r.2, r.3));
        !(futex(h) && tells_free)
    });
}
