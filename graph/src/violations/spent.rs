//! What a slow unit did with its time.

use super::ViolationFact;
use crate::EventGraph;
use crate::diagnose::activity;
use crate::words::span;
use pg_event::{Catalog, Ns};

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
            (self.unseen, "unseen"),
        ];
        let least = parts.iter().map(|p| p.0).sum::<Ns>() / 50;
        let told = parts.into_iter().filter(|p| p.0 > least);
        told.map(|(ns, what)| format!("{} {what}", span(ns))).collect::<Vec<_>>().join(", ")
    }
}

impl EventGraph {
    /// What the thread of a slow unit did from its begin to its end, or as long as it is known to have gone on.
    pub fn spent(&self, catalog: &Catalog, v: &ViolationFact) -> Spent {
        let act = activity(self, catalog, v.thread, &[(v.start, v.until)]);
        let unseen = act.unseen + act.unborn + act.gone;
        let asleep = act.total.saturating_sub(act.running + act.runnable + unseen);
        let stolen = v.stolen.min(act.running);
        Spent { on_cpu: act.running - stolen, stolen, ready: act.runnable, asleep, unseen }
    }
}
