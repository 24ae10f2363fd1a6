//! Who is kept: the focus and those its causes lead to by name, those the graph touches without one.

use super::Options;
use crate::session::Loaded;
use pg_event::{Ns, ProcessId, ThreadId};
use pg_graph::report::Report;
use pg_graph::{EventGraph, Victim};
use std::collections::HashSet;

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

/// A hang may have begun to show this long before the victim stopped.
const BEFORE: Ns = 1_000_000_000;

impl Keep {
    pub(super) fn new(loaded: &Loaded, verdicts: &[Verdict], options: &Options) -> Self {
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
            keep.touch(&loaded.graph, v.victim.thread, v.victim.start.saturating_sub(BEFORE), v.victim.end());
        }
        keep.name_processes(loaded);
        keep
    }

    /// All whose waits or wake-ups lead, within a span of time, to a thread.
    fn touch(&mut self, graph: &EventGraph, thread: ThreadId, from: Ns, to: Ns) {
        let mut todo = vec![thread];
        let mut seen: HashSet<ThreadId> = todo.iter().copied().collect();
        while let Some(t) = todo.pop() {
            if let Some(c) = self.threads.get_mut(t.index()) {
                *c = (*c).max(Class::Anonymous);
            }
            let edges = graph.vertices_in(t, from..to.saturating_add(1)).flat_map(|v| graph.incoming(v));
            let wakers = edges.map(|e| graph.vertex(graph.edge(e).from).thread);
            let holders = graph.holds(t, from..to.saturating_add(1)).map(|h| h.holder);
            for other in wakers.chain(holders) {
                if other.is_some() && seen.insert(other) {
                    todo.push(other);
                }
            }
        }
    }

    /// Keep at least what everybody did: the fallback when less changes the verdict.
    pub(super) fn everybody(&mut self, loaded: &Loaded) {
        self.threads.iter_mut().for_each(|c| *c = (*c).max(Class::Anonymous));
        self.name_processes(loaded);
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
