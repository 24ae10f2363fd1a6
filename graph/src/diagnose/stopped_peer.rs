//! A server that idles while somebody at the other end of one of its connections stands still: it may wait for that one's answer
//! (a replica's), which nothing else tells.

use super::activity::{Spans, activity, total};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::walk::Walk;
use crate::HoldFact;
use pg_event::{Ns, Relation, ThreadId};

impl Walk<'_> {
    /// How long a thread that mostly was stopped, or frozen, was that, ns; 0 for any other one.
    pub(super) fn stood_still(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().filter(|g| g.halts()).map_or(0, |g| g.blocked)
    }

    /// The one process that has the other end of a connection of `server`, is not on the way, and was stopped, or frozen, for
    /// nearly all of the time. `None` when there is none, or several.
    pub(super) fn stopped_peer(&self, server: ThreadId, spans: &Spans) -> Option<Candidate> {
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let on_way = |t: ThreadId| self.path.iter().any(|p| process(p.0) == process(t));
        let waits = self.g.vertex(self.g.vertex_at(server, a.midpoint(b))?);
        let watched = self.c.object(waits.object).map_or(&[][..], |o| &o.members);
        let peer = |h: &HoldFact| h.relation == Relation::Peer && watched.contains(&h.object);
        let peers = self.g.holds(server, 0..b.saturating_add(1)).filter(peer);
        let others = peers.map(|h| h.holder).filter(|t| process(*t) != process(server) && !on_way(*t));
        let mut processes: Vec<_> = others.filter_map(process).collect();
        processes.sort_unstable();
        processes.dedup();
        let stopped = |t: &ThreadId| self.counts(*t) && self.stood_still(*t, spans) * 10 >= total(spans) * 9;
        let first = processes.into_iter().filter_map(|p| main_thread(self.g, self.c, p));
        let mut first = first.filter(stopped);
        let one = first.next().filter(|_| first.next().is_none())?;
        let why = "no wake-up was recorded; it has the other end of a connection, and stands still";
        let mut c = Candidate::unseen(one, spans.clone(), (self.g.vertex_at(one, a), a), why);
        (c.relation, c.entry.doubt) = (Some(Relation::Peer), 0.2);
        Some(c)
    }
}
