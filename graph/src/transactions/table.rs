//! Figures of many hand-overs: by pair of loops, and by way.

use super::{HandOver, How, Transaction, Transactions, WorkUnit};
use crate::diagnose::activity;
use crate::violations::parts;
use crate::{EdgeKind, EventGraph};
use pg_event::{Catalog, Ns, ObjectId, ProcessId, ThreadId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The longest queueing times of a pair for which it is looked at what workers did.
const LOOKED_AT: usize = 64;
/// Parts of what workers did that are told at most.
const MOST_PARTS: usize = 4;

/// A mean and how far it spreads, of exact values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Arithmetic mean, ns.
    pub mean: Ns,
    /// Half of the values are no greater, ns.
    pub median: Ns,
    /// 99 of 100 are no greater, ns.
    pub p99: Ns,
    /// The greatest, ns.
    pub max: Ns,
    /// All together, ns.
    pub sum: Ns,
}

impl Times {
    /// Of these values.
    pub fn of(mut all: Vec<Ns>) -> Self {
        all.sort_unstable();
        let Some(&max) = all.last() else { return Self::default() };
        let sum: u128 = all.iter().map(|v| u128::from(*v)).sum();
        let mean = u64::try_from(sum / all.len() as u128).unwrap_or(Ns::MAX);
        let at = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1];
        Self { mean, median: at(50), p99: at(99), max, sum: u64::try_from(sum).unwrap_or(Ns::MAX) }
    }
}

/// What workers did: a part of their time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doing {
    /// The words of the report: `disk`, `futex`, ...; `running`, `runnable`.
    pub what: &'static str,
    /// The program's own function that waited; empty when that is not known, or it did not wait.
    pub function: String,
    /// Sum over the workers, ns.
    pub time: Ns,
}

/// All hand-overs from one type of unit to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// Type and loop of the units that hand on.
    pub from: (u32, u32),
    /// Type and loop of those that take.
    pub to: (u32, u32),
    /// How many.
    pub count: usize,
    /// How many of them are certain.
    pub strong: usize,
    /// How many of them no event shows.
    pub by_order: usize,
    /// Units of the type that takes of which nobody knows who handed them on.
    pub unknown: usize,
    /// Threads that handed on, and that took.
    pub threads: (usize, usize),
    /// Through what most of them went.
    pub object: ObjectId,
    /// From handed on to taken.
    pub queued: Times,
    /// Of that, runnable without a CPU, ns, all together.
    pub runnable: Ns,
    /// Of that, all threads of the loop that takes were in units, ns, all together.
    pub all_busy: Ns,
    /// Time of the units that took, from when they took it.
    pub service: Times,
    /// Of the time, the share in which all threads of the loop that takes were in units.
    pub saturated: f64,
    /// How many threads that loop has, in the process in which it has most.
    pub workers: usize,
    /// What those threads did while all of them were busy and work waited, most first.
    pub meanwhile: Vec<Doing>,
    /// How often threads that hand on waited until one of those that take was free, and how long, ns.
    pub held_up: (usize, Ns),
}

impl Pair {
    /// Of the time from handed on to done, how much passed before it was taken.
    pub fn share_queued(&self) -> f64 {
        self.queued.sum as f64 / (self.queued.sum + self.service.sum).max(1) as f64
    }
}

/// All transactions that go the same way.
#[derive(Clone, PartialEq, Debug)]
pub struct Ways {
    /// Types and loops of the units on the way.
    pub way: Vec<(u32, u32)>,
    /// How many.
    pub count: usize,
    /// How many of them by certain hand-overs only.
    pub strong: usize,
    /// Whether they end where they came back to a loop.
    pub back: bool,
    /// From the begin of the first unit to the end of the last.
    pub total: Times,
    /// Between units.
    pub queued: Times,
    /// Of the last unit.
    pub service: Times,
}

/// The ways, those that took most time together first.
pub fn ways(t: &Transactions) -> Vec<Ways> {
    /// Types and loops on the way, and whether it comes back.
    type Key = (Vec<(u32, u32)>, bool);
    let mut all: BTreeMap<Key, Vec<Transaction>> = BTreeMap::new();
    for x in t.transactions() {
        let way = x.units.iter().map(|u| (t.units[*u].kind, t.units[*u].of_loop)).collect();
        all.entry((way, x.back)).or_default().push(x);
    }
    let of = |all: &[Transaction], value: fn(&Transaction) -> Ns| Times::of(all.iter().map(value).collect());
    let sum = |((way, back), all): (Key, Vec<Transaction>)| Ways {
        way,
        count: all.len(),
        strong: all.iter().filter(|x| x.strong).count(),
        back,
        total: of(&all, Transaction::total),
        queued: of(&all, |x| x.queued),
        service: of(&all, |x| x.service),
    };
    let mut out: Vec<Ways> = all.into_iter().map(sum).collect();
    out.sort_by_key(|w| Reverse(w.total.sum));
    out
}

/// The hand-overs by the types of the units, those that waited longest together first.
pub fn pairs(t: &Transactions, graph: &EventGraph, catalog: &Catalog) -> Vec<Pair> {
    let mut all: BTreeMap<[(u32, u32); 2], Vec<&HandOver>> = BTreeMap::new();
    for h in &t.hand_overs {
        let of = |u: usize| (t.units[u].kind, t.units[u].of_loop);
        all.entry([of(h.from), of(h.to)]).or_default().push(h);
    }
    let mut unknown: HashMap<(u32, u32), usize> = HashMap::new();
    for (i, u) in t.units.iter().enumerate() {
        *unknown.entry((u.kind, u.of_loop)).or_default() += usize::from(t.into_unit(i).next().is_none());
    }
    let looks = Looks { t, graph, catalog, unknown };
    let mut out: Vec<Pair> = all.into_iter().map(|(k, all)| looks.pair(k, &all)).collect();
    out.sort_by_key(|p| Reverse((p.queued.sum, p.count)));
    out
}

struct Looks<'a> {
    t: &'a Transactions,
    graph: &'a EventGraph,
    catalog: &'a Catalog,
    unknown: HashMap<(u32, u32), usize>,
}

impl Looks<'_> {
    fn unit(&self, i: usize) -> &WorkUnit {
        &self.t.units[i]
    }

    fn pair(&self, [from, to]: [(u32, u32); 2], all: &[&HandOver]) -> Pair {
        let mut objects: HashMap<ObjectId, usize> = HashMap::new();
        for h in all {
            *objects.entry(h.object).or_default() += 1;
        }
        let object = objects.into_iter().max_by_key(|(o, n)| (*n, Reverse(o.0))).map(|o| o.0);
        let threads = |of: fn(&HandOver) -> usize| {
            all.iter().map(|h| self.unit(of(h)).thread).collect::<HashSet<_>>().len()
        };
        // Spans in which work waited and every worker was busy.
        let held_up = self.held_up(from.1, to.1);
        let (saturated, workers) = self.saturated(to.1);
        let busy: Vec<(ProcessId, (Ns, Ns))> = all.iter().flat_map(|h| self.all_busy(h)).collect();
        Pair {
            from,
            to,
            count: all.len(),
            strong: all.iter().filter(|h| h.is_strong()).count(),
            by_order: all.iter().filter(|h| h.how == How::Order).count(),
            unknown: self.unknown.get(&to).copied().unwrap_or(0),
            threads: (threads(|h| h.from), threads(|h| h.to)),
            object: object.unwrap_or(ObjectId::NONE),
            queued: Times::of(all.iter().map(|h| h.queued()).collect()),
            runnable: all.iter().map(|h| h.runnable).sum(),
            all_busy: busy.iter().map(|(_, (a, b))| b - a).sum(),
            service: Times::of(all.iter().map(|h| self.unit(h.to).end.saturating_sub(h.taken)).collect()),
            saturated,
            workers,
            held_up: (held_up.len(), held_up.iter().map(|(_, (a, b))| b - a).sum()),
            meanwhile: self.meanwhile(to.1, busy.into_iter().chain(held_up).collect()),
        }
    }

    fn workers(&self, process: ProcessId, of_loop: u32) -> &[ThreadId] {
        self.t.threads.get(&(process, of_loop)).map(Vec::as_slice).unwrap_or_default()
    }

    fn process(&self, thread: ThreadId) -> ProcessId {
        self.catalog.thread(thread).map_or(ProcessId::NONE, |t| t.process)
    }

    /// When, while a piece of work waited, all threads of the loop that took it were in units.
    fn all_busy(&self, h: &HandOver) -> Vec<(ProcessId, (Ns, Ns))> {
        let process = self.process(self.unit(h.to).thread);
        let mut free = vec![(h.time, h.taken)];
        free.retain(|s| s.1 > s.0);
        for w in self.workers(process, self.unit(h.to).of_loop) {
            if free.is_empty() {
                break;
            }
            // What is left of each span where this one was in units, too.
            let busy = self.busy_of(*w, h.time, h.taken);
            let both = |&(a, b): &(Ns, Ns)| {
                busy.iter().map(move |&(c, d)| (a.max(c), b.min(d))).filter(|s| s.1 > s.0).collect::<Vec<_>>()
            };
            free = free.iter().flat_map(both).collect();
        }
        free.into_iter().map(|s| (process, s)).collect()
    }

    fn busy_of(&self, thread: ThreadId, from: Ns, to: Ns) -> Vec<(Ns, Ns)> {
        let first = super::unit_before(&self.t.units, thread, from);
        let first =
            first.unwrap_or_else(|| self.t.units.partition_point(|u| (u.thread, u.start) < (thread, from)));
        let own = self.t.units[first..].iter().take_while(|u| u.thread == thread && u.start < to);
        own.map(|u| (u.start.max(from), u.end.min(to))).filter(|s| s.1 > s.0).collect()
    }

    /// What the workers did in the longest of these spans.
    fn meanwhile(&self, of_loop: u32, mut spans: Vec<(ProcessId, (Ns, Ns))>) -> Vec<Doing> {
        spans.sort_by_key(|(_, (a, b))| Reverse(b - a));
        spans.truncate(LOOKED_AT);
        let mut by_process: BTreeMap<ProcessId, Vec<(Ns, Ns)>> = BTreeMap::new();
        for (p, s) in spans {
            by_process.entry(p).or_default().push(s);
        }
        let mut all: Vec<Doing> = Vec::new();
        for (process, spans) in by_process {
            let spans = crate::diagnose::merged(spans);
            for w in self.workers(process, of_loop) {
                for (key, side) in
                    parts(self.graph, self.catalog, &activity(self.graph, self.catalog, *w, &spans))
                {
                    match all.iter_mut().find(|d| d.what == key.what && d.function == key.function) {
                        Some(d) => d.time += side.time,
                        None => all.push(Doing { what: key.what, function: key.function, time: side.time }),
                    }
                }
            }
        }
        all.sort_by_key(|d| Reverse(d.time));
        all.truncate(MOST_PARTS);
        all
    }

    /// Waits of threads of one loop that threads of the other ended for sure: for a free one, if the other has no fewer
    /// threads; else those who wait are the workers.
    fn held_up(&self, from: u32, to: u32) -> Vec<(ProcessId, (Ns, Ns))> {
        let mut all = Vec::new();
        for ((process, _), threads) in self.t.threads.iter().filter(|t| t.0.1 == from && from != to) {
            let workers: HashSet<ThreadId> = self.workers(*process, to).iter().copied().collect();
            if workers.len() < threads.len() {
                continue;
            }
            for v in threads.iter().flat_map(|t| self.graph.vertices_of(*t)) {
                let Some(e) = self.graph.waking(v).map(|e| self.graph.edge(e)) else { continue };
                let certain = e.weak.is_none() && e.kind == EdgeKind::Futex;
                if certain && workers.contains(&self.graph.vertex(e.from).thread) {
                    let v = self.graph.vertex(v);
                    all.push((*process, (v.start, v.woken)));
                }
            }
        }
        all
    }

    /// Of the time from the first to the last unit of a loop, the share in which all of its threads were in units; of
    /// several processes, of all their time together. And how many threads these are.
    fn saturated(&self, of_loop: u32) -> (f64, usize) {
        let (mut busy, mut all, mut most) = (0, 0, 0);
        for (_, threads) in self.t.threads.iter().filter(|t| t.0.1 == of_loop) {
            let own = threads.iter().flat_map(|t| self.busy_of(*t, 0, Ns::MAX));
            let mut steps: Vec<(Ns, i32)> = own.flat_map(|(a, b)| [(a, 1), (b, -1)]).collect();
            steps.sort_unstable();
            let (mut now, mut since) = (0, 0);
            for (time, step) in &steps {
                let (before, threads) = (now, threads.len() as i32);
                now += step;
                match (before == threads, now == threads) {
                    (false, true) => since = *time,
                    (true, false) => busy += time - since,
                    _ => {}
                }
            }
            all += steps.last().map_or(0, |l| l.0) - steps.first().map_or(0, |f| f.0);
            most = most.max(threads.len());
        }
        (busy as f64 / all.max(1) as f64, most)
    }
}
