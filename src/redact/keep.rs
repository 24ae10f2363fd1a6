//! Who is kept: the focus and those its causes lead to by name, those the graph touches without one.

use super::Options;
use crate::session::Loaded;
use pg_event::{Ns, ProcessId, ThreadId};
use pg_graph::report::Report;
use pg_graph::{EventGraph, HoldFact, VertexId, Victim};
use std::collections::{HashMap, HashSet};

/// What is kept of something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Class {
    /// Nothing.
    #[default]
    Dropped,
    /// What it did, under a made-up name.
    Anonymous,
    /// All.
    Named,
}

/// A victim of the focus and what was found about it.
pub(super) struct Verdict {
    pub(super) victim: Victim,
    pub(super) report: Report,
}

/// What is kept of each thread.
pub(super) struct Keep {
    pub(super) threads: Vec<Class>,
    pub(super) processes: Vec<Class>,
}

/// How far what a graph touches is followed from the focus and the threads that a verdict names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Who woke one of them or holds what it waits for, and by whose wake-ups that one came to run then. What such
    /// a thread did before is its own business: on a busy machine everybody is woken by everybody in the end.
    WakeUps,
    /// All that came before by any chain of wake-ups.
    Past,
    /// Everybody.
    Everybody,
}

/// Most wake-ups followed from one that ended a wait of who is named.
const CHAIN: usize = 4;

/// A hang may have begun to show this long before the victim stopped.
const BEFORE: Ns = 1_000_000_000;

impl Keep {
    pub(super) fn new(loaded: &Loaded, verdicts: &[Verdict], options: &Options, reach: Reach) -> Self {
        let catalog = &loaded.catalog;
        let mut named: HashSet<ProcessId> = focus(loaded, verdicts);
        // Those a report names, by pid and by tid.
        let mut pids = HashSet::new();
        let mut tids = HashSet::new();
        for r in verdicts.iter().map(|v| &v.report) {
            tids.extend(r.slice.iter().map(|s| s.tid));
            pids.extend(r.slice.iter().map(|s| s.pid));
            pids.extend(r.root_causes.iter().filter_map(|c| c.pid));
            pids.extend(r.root_causes.iter().filter_map(|c| c.waits_for.as_ref()?.pid));
        }
        let by_thread = catalog
            .threads
            .iter()
            .filter(|t| tids.contains(&t.tid) || tids.contains(&t.ns_tid))
            .map(|t| t.process);
        named.extend(by_thread);
        for (i, p) in catalog.processes.iter().enumerate() {
            let wanted = options
                .keep_process
                .iter()
                .any(|r| r.is_match(&p.name) || p.cmdlines.iter().any(|c| r.is_match(&c.text)));
            if wanted || pids.contains(&p.pid) || pids.contains(&p.ns_pid) {
                named.insert(ProcessId(i as u32));
            }
        }
        let mut keep = Self {
            threads: vec![Class::Dropped; catalog.threads.len()],
            processes: vec![Class::Dropped; catalog.processes.len()],
        };
        for id in &named {
            keep.processes.get_mut(id.index()).into_iter().for_each(|c| *c = Class::Named);
        }
        for (i, t) in catalog.threads.iter().enumerate() {
            if named.contains(&t.process) {
                keep.threads[i] = Class::Named;
            }
        }
        for v in verdicts {
            let span = (v.victim.start.saturating_sub(BEFORE), v.victim.end());
            match reach {
                Reach::WakeUps => keep.wake_ups(loaded, span),
                Reach::Past => keep.past(&loaded.graph, v.victim.thread, span),
                Reach::Everybody => keep.threads.iter_mut().for_each(|c| *c = (*c).max(Class::Anonymous)),
            }
        }
        keep.name_processes(loaded);
        keep
    }

    fn touched(&mut self, thread: ThreadId) {
        if let Some(c) = self.threads.get_mut(thread.index()) {
            *c = (*c).max(Class::Anonymous);
        }
    }

    /// See [`Reach::WakeUps`].
    fn wake_ups(&mut self, loaded: &Loaded, (from, to): (Ns, Ns)) {
        let graph = &loaded.graph;
        let mut seen: HashSet<VertexId> = HashSet::new();
        let named = |t: &ThreadId| {
            let kernel = loaded.catalog.thread(*t).is_some_and(|t| t.kernel);
            self.thread(*t) == Class::Named && !kernel
        };
        let all: Vec<ThreadId> = graph.threads().filter(named).collect();
        for t in all {
            let holders = graph.holds(t, from..to.saturating_add(1)).map(|h| h.holder);
            for other in holders.chain(changed_for(graph, t, (from, to)).map(|h| h.holder)) {
                self.touched(other);
            }
            for edge in graph.vertices_in(t, from..to.saturating_add(1)).flat_map(|v| graph.incoming(v)) {
                let first = graph.edge(edge).from;
                let waker = |v: &VertexId| graph.waking(*v).map(|e| graph.edge(e).from);
                for v in std::iter::successors(Some(first), waker).take(CHAIN) {
                    if !seen.insert(v) {
                        break;
                    }
                    self.touched(graph.vertex(v).thread);
                }
            }
        }
    }

    /// See [`Reach::Past`]: each thread up to the moment at which it acted on another one that is on the way.
    fn past(&mut self, graph: &EventGraph, thread: ThreadId, (from, to): (Ns, Ns)) {
        let mut until: HashMap<ThreadId, Ns> = HashMap::from([(thread, to)]);
        let mut todo = vec![(thread, to)];
        while let Some((t, to)) = todo.pop() {
            self.touched(t);
            let edges = graph.vertices_in(t, from..to.saturating_add(1)).flat_map(|v| graph.incoming(v));
            let wakers = edges.map(|e| graph.edge(e)).filter(|e| e.to_time <= to);
            let wakers = wakers.map(|e| (graph.vertex(e.from).thread, e.from_time));
            let holders = graph.holds(t, from..to.saturating_add(1)).map(|h| (h.holder, to));
            let changed = changed_for(graph, t, (from, to)).map(|h| (h.holder, h.time));
            for (other, at) in wakers.chain(holders).chain(changed).filter(|x| x.0.is_some()) {
                let known = until.entry(other).or_insert(0);
                if at > *known {
                    *known = at;
                    todo.push((other, at));
                }
            }
        }
    }

    /// A process is kept as far as one of its threads is.
    pub(super) fn name_processes(&mut self, loaded: &Loaded) {
        for (i, t) in loaded.catalog.threads.iter().enumerate() {
            if let Some(p) = self.processes.get_mut(t.process.index()) {
                *p = (*p).max(self.threads[i]);
            }
        }
    }

    pub(super) fn thread(&self, id: ThreadId) -> Class {
        // What belongs to nobody (lost events) is kept.
        if id.is_none() {
            Class::Anonymous
        } else {
            self.threads.get(id.index()).copied().unwrap_or_default()
        }
    }
}

/// What others did to files that a thread asked for, within a span.
fn changed_for(
    graph: &EventGraph,
    thread: ThreadId,
    (from, to): (Ns, Ns),
) -> impl Iterator<Item = &HoldFact> {
    let all = graph.changed_files().iter();
    all.filter(move |h| h.subject == thread && (from..=to).contains(&h.time))
}

/// The processes of the focus. When nobody was chosen everybody is: then those that hung.
fn focus(loaded: &Loaded, verdicts: &[Verdict]) -> HashSet<ProcessId> {
    let catalog = &loaded.catalog;
    let in_focus = |p: &&pg_event::Process| p.focus && !p.own;
    let chosen = catalog.processes.iter().any(|p| !p.focus && !p.kernel && !p.own && p.pid != 0);
    let everybody = loaded.header.focus == "everything" || !chosen;
    if everybody {
        let process = |v: &Verdict| Some(catalog.thread(v.victim.thread)?.process);
        return verdicts.iter().take(1).filter_map(process).collect();
    }
    catalog
        .processes
        .iter()
        .enumerate()
        .filter(|(_, p)| in_focus(p))
        .map(|(i, _)| ProcessId(i as u32))
        .collect()
}
