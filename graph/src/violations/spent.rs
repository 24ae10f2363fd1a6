//! What a slow unit did with its time.

use super::ViolationFact;
use crate::cause::stopped_by;
use crate::diagnose::activity;
use crate::words::span;
use crate::{EventGraph, Vertex};
use pg_event::{Catalog, Ns, OffState};

/// What is less than this part of a unit's time is not worth a word.
const LEAST: Ns = 50;
const STOPPED: &str = "stopped";

/// A unit's time, as far as it is known to have gone on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// On a CPU, ns.
    pub on_cpu: Ns,
    /// It seemed to have one, which the host of the machine, a guest, had given to others, ns.
    pub stolen: Ns,
    /// Ready to run, without one, ns.
    pub ready: Ns,
    /// Asleep, ns.
    pub asleep: Ns,
    /// Stopped by a signal, a tracer or a freezer, ns.
    pub stopped: Ns,
    /// Nothing was seen of its thread, ns.
    pub unseen: Ns,
}

impl Spent {
    /// In words, what is worth one: a fiftieth of it.
    pub fn words(&self) -> String {
        let parts = [
            (self.on_cpu, "on a CPU"),
            (self.stolen, "the host had its CPU"),
            (self.ready, "ready without a CPU"),
            (self.asleep, "asleep"),
            (self.stopped, STOPPED),
            (self.unseen, "unseen"),
        ];
        let least = parts.iter().map(|p| p.0).sum::<Ns>() / LEAST;
        let told = parts.into_iter().filter(|p| p.0 > least);
        told.map(|(ns, what)| format!("{} {what}", span(ns))).collect::<Vec<_>>().join(", ")
    }
}

impl EventGraph {
    /// What the thread of a slow unit did from its begin to its end, or as long as it is known to have gone on.
    pub fn spent(&self, catalog: &Catalog, v: &ViolationFact) -> Spent {
        let act = activity(self, catalog, v.thread, &[(v.start, v.until)]);
        let unseen = act.unseen + act.unborn + act.gone;
        let stopped: Ns = act.groups.iter().filter(|g| g.halts()).map(|g| g.blocked).sum();
        let asleep = act.total.saturating_sub(act.running + act.runnable + unseen + stopped);
        let stolen = v.stolen.min(act.running);
        Spent { on_cpu: act.running - stolen, stolen, ready: act.runnable, asleep, stopped, unseen }
    }

    /// What stopped a slow unit's thread, in words, where that was recorded and took long enough to be told.
    pub fn stopped_by(&self, catalog: &Catalog, v: &ViolationFact) -> Option<String> {
        let stopped = |x: &Vertex| matches!(x.state, OffState::Stopped | OffState::Traced);
        let all = self.vertices_in(v.thread, v.start..v.until).map(|id| self.vertex(id)).filter(stopped);
        let longest = all.max_by_key(Vertex::waited).filter(|x| x.waited() > v.duration() / LEAST)?;
        stopped_by(self, catalog, v.thread, longest.start)
    }

    /// Both in words.
    pub fn spent_words(&self, catalog: &Catalog, v: &ViolationFact) -> String {
        let by = self.stopped_by(catalog, v).map_or_else(String::new, |by| format!(" {by}"));
        self.spent(catalog, v).words().replace(STOPPED, &format!("{STOPPED}{by}"))
    }
}
