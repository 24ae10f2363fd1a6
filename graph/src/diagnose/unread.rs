//! Who waits to write to a process that waits for whatever comes, and does not ask for that.

use super::activity::Spans;
use super::ask::Candidate;
use super::walk::Walk;
use crate::class::{WaitClass, class};
use crate::{EventGraph, HoldFact, Weak};
use pg_event::{Catalog, Ns, Relation, ThreadId};

/// What is known of others that wait for room to write to the process of `thread` for at least half of the time from `a` to
/// `b`, ns.
pub(crate) fn unread<'a>(
    graph: &'a EventGraph,
    catalog: &'a Catalog,
    thread: ThreadId,
    (a, b): (Ns, Ns),
) -> impl Iterator<Item = &'a HoldFact> {
    let process = |t: ThreadId| catalog.process_id_of(t);
    let own = process(thread);
    graph.holds.iter().filter(move |h| {
        let end = matches!(h.relation, Relation::Reads | Relation::Peer);
        let wait = graph.vertex_at(h.subject, h.time).map(|w| graph.vertex(w));
        end && process(h.holder) == own
            && process(h.subject) != own
            && wait.is_some_and(|w| {
                let both = w.woken.min(b).saturating_sub(w.start.max(a));
                class(&w, catalog) == WaitClass::Room && both * 2 >= b.saturating_sub(a)
            })
    })
}

impl Walk<'_> {
    /// Who waits for room to write to the process of `thread`, which watches other things and does not read that: it has
    /// paused its reader, or never began.
    pub(super) fn unread(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let within = (spans.first()?.0, spans.last()?.1);
        let free = |t: ThreadId| self.counts(t) && !self.path.iter().any(|p| p.0 == t);
        let h = unread(self.g, self.c, thread, within).find(|h| free(h.subject))?;
        let why =
            format!("{}: it waits to write to this one, which does not read that", Weak::FromState.words());
        let at = (self.g.vertex_at(h.subject, h.time), h.time);
        let found = Candidate::unseen(h.subject, spans.clone(), at, why);
        Some(Candidate { relation: Some(Relation::Peer), ..found })
    }
}
