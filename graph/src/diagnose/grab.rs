//! A display server that reads the requests of one client alone: that one has grabbed it (`XGrabServer`), and all others
//! wait until it lets go.

use super::activity::{Group, Spans, activity};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::walk::{Flow, Walk, group_spans};
use crate::class::members;
use pg_event::{Display, Object, ObjectKind, Relation, ThreadId};

/// Why such a client is followed.
pub(crate) const GRAB: &str =
    "the display server reads what this client sends and nobody else: it has grabbed the server";

impl Walk<'_> {
    /// Is it an end of a connection with a display server?
    pub(super) fn of_display(&self, o: &Object) -> bool {
        let other = || self.c.objects.iter().find(|x| x.is_other_end_of(o));
        Display::of_socket(&o.name) != Display::None
            || other().is_some_and(|x| Display::of_socket(&x.name) != Display::None)
    }

    /// The client that `server` reads from alone while `group` waits at another connection with it: what its epoll instance
    /// asks for tells.
    pub(super) fn grabber(&self, server: ThreadId, group: &Group, spans: &Spans) -> Option<Candidate> {
        let own = self.c.object(self.representative(group).object)?;
        let asked: Vec<_> =
            members(self.c, own).chain([own]).filter(|o| o.kind == ObjectKind::UnixStream).collect();
        let act = activity(self.g, self.c, server, spans);
        let watched = self.c.object(self.representative(act.waiting()?).object)?;
        let known = members(self.c, watched).all(|o| o.kind != ObjectKind::Unknown);
        if watched.kind != ObjectKind::Epoll
            || members(self.c, watched).count() != watched.members.len()
            || !known
            || !asked.iter().any(|o| self.of_display(o))
        {
            return None;
        }
        // Connections that were made to it.
        let mut served = watched.members.iter().filter(|id| {
            self.c
                .object(**id)
                .is_some_and(|o| o.kind == ObjectKind::UnixStream && o.peer != 0 && !o.connected)
        });
        let (only, None) = (*served.next()?, served.next()) else { return None };
        let end = self.c.object(only)?;
        if asked.iter().any(|o| o.is_other_end_of(end)) {
            return None;
        }
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let mut holds = self.g.holds(server, a..b.saturating_add(1));
        let client = holds.find(|h| h.object == only && h.relation == Relation::Peer).map(|h| h.holder);
        let client = client.or_else(|| Some(self.last_at_other_end(self.g.threads(), &[only], b)?.1))?;
        let thread = self.watcher(client, &[only], spans).unwrap_or(client);
        let vertex = self.g.vertex_at(thread, b.saturating_sub(1));
        self.counts(thread).then(|| Candidate::unseen(thread, spans.clone(), (vertex, a), GRAB))
    }

    /// On by way of the server `c` to the client that has grabbed it. Where that waits for a person to use its window, the way
    /// ends there.
    pub(super) fn past_grab(&mut self, c: Candidate, client: Candidate) -> Flow<()> {
        let spans = client.spans.clone();
        let act = activity(self.g, self.c, client.thread, &spans);
        let Some(g) = act.waiting().filter(|g| self.waits_at_window(g)) else {
            return self.past_server(c, client);
        };
        let server = activity(self.g, self.c, c.thread, &spans);
        if let Some(g) = server.waiting() {
            self.push_wait(c.thread, g, c.entry);
        }
        self.push_wait(client.thread, g, client.entry);
        let (thread, node) = (client.thread, self.out.nodes.len() - 1);
        self.out.findings.push(Finding { thread, node, kind: FindingKind::Input, spans: group_spans(g) });
        Ok(())
    }
}
