//! A server of many that waits for one of its clients, which does not take what it was sent: a display server asks the owner of
//! a selection for its content, say, and that one does not look at its events.

use super::activity::{Spans, total};
use super::ask::Candidate;
use super::walk::Walk;
use crate::EdgeKind;
use crate::class::members;
use pg_event::{Object, ObjectKind, ThreadId};

/// Why such a client is followed.
const DEAF: &str =
    "the server waits for whatever comes, and this one of its clients does not take what it was sent since";

impl Walk<'_> {
    /// The only client of `server` that leaves what came from it unread while `asker`, a step on the way, waits at another
    /// connection with it, for half of the time at least. Connections are told to be of one server by its name.
    pub(super) fn deaf(&self, server: ThreadId, asker: ThreadId, spans: &Spans) -> Option<Candidate> {
        if self.g.unserved().is_empty() {
            return None;
        }
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let step = self.out.nodes.iter().rev().find(|n| n.thread == asker)?;
        let own = self.c.object(step.object.unwrap_or_else(|| self.g.vertex(step.vertex).object))?;
        let named = |o: &&Object| o.kind == ObjectKind::UnixStream && o.peer != 0 && !o.name.is_empty();
        let name = members(self.c, own).chain([own]).find(named).map(|o| o.name.as_str())?;
        if !self.serves_all(server, spans) {
            return None;
        }
        let process = |t: ThreadId| self.c.process_id_of(t);
        let others = self.g.unserved().iter().filter(|u| {
            let both = u.until.min(b).saturating_sub(u.since.max(a));
            let same = self.c.object(u.object).is_some_and(|o| named(&o) && o.name == name);
            same && u.matters() && both * 2 >= total(spans)
        });
        let these = [process(asker), process(server)];
        let mut others = others.filter(|u| !these.contains(&process(u.thread)) && self.counts(u.thread));
        let (only, None) = (others.next()?, others.next()) else { return None };
        let at = only.since.clamp(a, b);
        let mut c =
            Candidate::unseen(only.thread, spans.clone(), (self.g.vertex_at(only.thread, at), at), DEAF);
        (c.kind, c.entry.edge) = (EdgeKind::Ipc, Some(EdgeKind::Ipc));
        Some(c)
    }
}
