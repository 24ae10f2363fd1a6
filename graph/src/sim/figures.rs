//! How true the edges of a graph are, where the truth is known: do true causes stay (recall), and how many edges and
//! connections that mean no causality stay strong (precision)?

use super::{Act, Recording, Script, Setup, TrueWait};
use crate::{BuildOptions, Builder, Edge, EdgeId, EdgeKind, EventGraph, Weak};
use pg_event::{Catalog, Ns, ObjectKind, ThreadId};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::AddAssign;

/// Counts of one machine, or of several added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Waits that somebody ended, and how many have the edge from him.
    pub ended: usize,
    /// See `ended`.
    pub found: usize,
    /// Edges that end a wait and come from somebody else than who ended it, and how many of them are strong.
    pub wrong: usize,
    /// See `wrong`.
    pub wrong_strong: usize,
    /// Hand-offs of a mutex, which are mutual exclusion, and how many of their edges are strong.
    pub hand_offs: usize,
    /// See `hand_offs`.
    pub hand_offs_strong: usize,
    /// Writes of a data flag that another thread read, and how many have an edge to a reader.
    pub writes: usize,
    /// See `writes`.
    pub written: usize,
    /// Requests connected with their answers through one turn of a server, and how many are so after splitting.
    pub connected: usize,
    /// See `connected`.
    pub kept: usize,
    /// Of those that are so after splitting, how many over strong edges.
    pub kept_strong: usize,
    /// Requests connected with answers to others through one turn of a server (over-connections), and how many of them
    /// stay strong: in one part of the turn, over edges that are strong.
    pub over: usize,
    /// See `over`.
    pub over_strong: usize,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, o: Self) {
        self.ended += o.ended;
        self.found += o.found;
        self.wrong += o.wrong;
        self.wrong_strong += o.wrong_strong;
        self.hand_offs += o.hand_offs;
        self.hand_offs_strong += o.hand_offs_strong;
        self.writes += o.writes;
        self.written += o.written;
        self.connected += o.connected;
        self.kept += o.kept;
        self.kept_strong += o.kept_strong;
        self.over += o.over;
        self.over_strong += o.over_strong;
    }
}

impl Figures {
    /// Head of a table whose rows are the figures as text.
    pub const HEAD: &str = "    waits   recall    wrong  strong  hand-offs  strong    flags   recall  answers   recall   strong     over  strong";

    /// Let a machine run for so long and compare its graph with what really happened.
    pub fn of(setup: Setup, scripts: Vec<Script>, duration: Ns) -> Self {
        let writers: Vec<ThreadId> = (0..scripts.len() as u32)
            .map(ThreadId)
            .filter(|t| scripts[t.index()].acts.iter().any(|a| matches!(a, Act::Set(..))))
            .collect();
        let channels = Ends { first: first_channel(&scripts), asks: scripts.iter().map(asks).collect() };
        let (r, truth) = Recording::of(setup, scripts, duration);
        let g = r.graph();
        let mut out = Self::default();
        out.waits(&g, &truth);
        out.flags(&g, &writers, r.duration);
        let whole = BuildOptions { split_batches: false, split_peers: false, ..BuildOptions::default() };
        let mut b = Builder::new(whole);
        b.events(&r.events, &r.catalog);
        let pairs =
            |g: &EventGraph, counts: &dyn Fn(EdgeId, EdgeId) -> bool| pairs(g, &r.catalog, &channels, counts);
        let [right, wrong] = pairs(&b.finish(r.duration, &r.catalog), &|_, _| true);
        let [kept, _] = pairs(&g, &|_, _| true);
        let [kept_strong, over_strong] = pairs(&g, &|into, answer| g.way(into, answer, &r.catalog).is_none());
        (out.connected, out.kept) = (right.len(), right.intersection(&kept).count());
        out.kept_strong = right.intersection(&kept_strong).count();
        (out.over, out.over_strong) = (wrong.len(), over_strong.len());
        out
    }

    fn waits(&mut self, g: &EventGraph, truth: &[TrueWait]) {
        let by_wait: HashMap<(ThreadId, Ns), &TrueWait> =
            truth.iter().map(|w| ((w.thread, w.start), w)).collect();
        for id in g.vertices() {
            let v = g.vertex(id);
            let Some(w) = by_wait.get(&(v.thread, v.start)).filter(|_| v.waited() > 0 && !v.open) else {
                continue;
            };
            let edge = g.waking(id).map(|e| g.edge(e));
            let from = edge.map(|e| g.vertex(e.from).thread);
            let strong = edge.is_some_and(|e| e.weak.is_none());
            if let Some(by) = w.by {
                self.ended += 1;
                self.found += usize::from(from == Some(by));
                self.hand_offs += usize::from(w.lock);
                let weak = edge.is_some_and(|e| e.weak == Some(Weak::MutexHandOff));
                self.hand_offs_strong += usize::from(w.lock && !weak);
            }
            let wrong = from.is_some() && from != w.by;
            self.wrong += usize::from(wrong);
            self.wrong_strong += usize::from(wrong && strong);
        }
    }

    fn flags(&mut self, g: &EventGraph, writers: &[ThreadId], end: Ns) {
        for t in writers {
            // A write that somebody waited for is read by another thread before the next one.
            let writes: Vec<_> = g.flags_of(*t, 0..Ns::MAX).filter(|f| f.write).copied().collect();
            for (i, w) in writes.iter().enumerate() {
                let next = writes[i + 1..].iter().find(|n| n.object == w.object).map_or(end, |n| n.time);
                let all = g.flag_accesses();
                let after = &all[all.partition_point(|f| f.time <= w.time)..];
                let read = after
                    .iter()
                    .take_while(|f| f.time < next)
                    .any(|f| !f.write && f.object == w.object && f.thread != *t);
                let Some(from) = g.vertex_at(*t, w.time).filter(|_| read) else { continue };
                self.writes += 1;
                let has = g.outgoing(from).any(|e| {
                    let e = g.edge(e);
                    e.kind == EdgeKind::DataFlag && e.object == w.object
                });
                self.written += usize::from(has);
            }
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |a: usize, b: usize| {
            if b == 0 { "-".to_owned() } else { format!("{:.2} %", 100.0 * a as f64 / b as f64) }
        };
        write!(
            f,
            "{:>9} {:>8} {:>8} {:>7} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}",
            self.ended,
            share(self.found, self.ended),
            self.wrong,
            self.wrong_strong,
            self.hand_offs,
            self.hand_offs_strong,
            self.writes,
            share(self.written, self.writes),
            self.connected,
            share(self.kept, self.connected),
            share(self.kept_strong, self.connected),
            self.over,
            self.over_strong
        )
    }
}

/// The object of the first channel: mutexes and conditions come before.
fn first_channel(scripts: &[Script]) -> usize {
    let most = |f: &dyn Fn(&Act) -> Option<usize>| {
        scripts.iter().flat_map(|s| &s.acts).filter_map(f).map(|n| n + 1).max().unwrap_or(0)
    };
    most(&|a| if let Act::Lock(n) | Act::Unlock(n) = a { Some(*n) } else { None })
        + most(&|a| if let Act::Wait(n) | Act::Signal(n) = a { Some(*n) } else { None })
}

/// The channel of requests that a thread sends into: a client has one.
fn asks(script: &Script) -> Option<usize> {
    script
        .acts
        .iter()
        .find_map(|a| if let Act::Send(n, _) = a { Some(*n).filter(|n| n % 2 == 0) } else { None })
}

/// What tells the channel of an edge.
struct Ends {
    /// See [`first_channel`].
    first: usize,
    /// See [`asks`], by thread.
    asks: Vec<Option<usize>>,
}

impl Ends {
    /// The channel that a message went through. Of one that ended a poll only who sent it is known.
    fn channel(&self, e: &Edge, g: &EventGraph, catalog: &Catalog) -> Option<usize> {
        if catalog.object(e.object)?.kind == ObjectKind::Set {
            return *self.asks.get(g.vertex(e.from).thread.index())?;
        }
        Some(e.object.index().checked_sub(self.first)? / 2)
    }
}

/// An answer (by whom, when, through which channel) and the channel of a request that its vertex took.
type Pair = (ThreadId, Ns, usize, usize);

/// Requests and answers given after them that meet in one vertex: those that belong together, and those that do not.
fn pairs(
    g: &EventGraph,
    catalog: &Catalog,
    ends: &Ends,
    counts: impl Fn(EdgeId, EdgeId) -> bool,
) -> [HashSet<Pair>; 2] {
    let through = |e: &Edge| (e.kind == EdgeKind::Ipc).then(|| ends.channel(e, g, catalog)).flatten();
    let [mut right, mut wrong] = [HashSet::new(), HashSet::new()];
    for v in g.vertices() {
        let took = g.incoming(v).map(|id| (id, g.edge(id)));
        let took = took.filter_map(|(id, e)| Some((id, e.to_time, through(&e)?)));
        let requests: Vec<(EdgeId, Ns, usize)> = took.filter(|r| r.2 % 2 == 0).collect();
        let thread = g.vertex(v).thread;
        for id in g.outgoing(v) {
            let e = g.edge(id);
            let Some(answer) = through(&e).filter(|c| c % 2 == 1) else { continue };
            for (_, _, request) in requests.iter().filter(|r| r.1 <= e.from_time && counts(r.0, id)) {
                let of = if request + 1 == answer { &mut right } else { &mut wrong };
                of.insert((thread, e.from_time, answer, *request));
            }
        }
    }
    [right, wrong]
}
