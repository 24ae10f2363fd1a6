//! A server that idles while somebody at the other end of one of its connections stands still: it may wait for that one's answer
//! (a replica's), which nothing else tells.

use super::activity::{Group, Spans, activity, total};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::walk::Walk;
use pg_event::{Relation, ThreadId};

impl Walk<'_> {
    /// The one process that has the other end of a connection of `server`, is not on the way, and was stopped, or frozen, for
    /// nearly all of the time. `None` when there is none, or several.
    pub(super) fn stopped_peer(&self, server: ThreadId, spans: &Spans) -> Option<Candidate> {
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let on_way = |t: ThreadId| self.path.iter().any(|p| process(p.0) == process(t));
        let peers = self.g.holds(server, 0..b.saturating_add(1)).filter(|h| h.relation == Relation::Peer);
        let others = peers.map(|h| h.holder).filter(|t| process(*t) != process(server) && !on_way(*t));
        let mut processes: Vec<_> = others.filter_map(process).collect();
        processes.sort_unstable();
        processes.dedup();
        let stopped = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            let halts = |g: &Group| g.halts() && g.blocked * 10 >= total(spans) * 9;
            self.counts(*t) && act.waiting().is_some_and(halts)
        };
        let first = processes.into_iter().filter_map(|p| main_thread(self.g, self.c, p));
        let mut first = first.filter(stopped);
        let one = first.next().filter(|_| first.next().is_none())?;
        let why = "no wake-up was recorded; it has the other end of a connection, and stands still";
        let mut c = Candidate::unseen(one, spans.clone(), (self.g.vertex_at(one, a), a), why);
        (c.relation, c.entry.doubt) = (Some(Relation::Peer), 0.2);
        Some(c)
    }
}
