//! What the client of a session of a database server does while the session idles. One that is in the middle of a
//! transaction is so because its client does something else first: it waits for somebody, or sleeps through it all. A
//! pool's connections are in none: their client waits for whatever comes.

use super::activity::{Mostly, Spans, activity, extent};
use super::walk::Walk;
use crate::class::{WaitClass, class};
use pg_event::{Ns, ObjectId, ObjectKind, Relation, ThreadId};

/// What a session's client does, the likelier to be in a transaction first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Client {
    /// It is on the way already: in the end it waits for itself.
    OnTheWay,
    /// Something keeps it from going on.
    Kept,
    Unknown,
    /// It waits for whatever comes, or has pauses.
    Rests,
}

impl Client {
    pub(super) fn is_kept(self) -> bool {
        self <= Self::Kept
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::OnTheWay => "; its client waits for this very lock by another session",
            Self::Kept => "; its client was kept from going on, too",
            Self::Unknown | Self::Rests => "",
        }
    }
}

impl Walk<'_> {
    /// What the client of a session that idles does in this time.
    pub(super) fn client(&self, session: ThreadId, spans: &Spans) -> Client {
        let does = |t: ThreadId| {
            if self.on_the_way(t) {
                Client::OnTheWay
            } else if self.is_kept(t, spans) {
                Client::Kept
            } else {
                Client::Rests
            }
        };
        self.clients(session, extent(spans).1).into_iter().map(does).min().unwrap_or(Client::Unknown)
    }

    /// Who has the other end of the connection at which a session waits at a time: by the messages the one thread that does; else
    /// all threads of the process.
    pub(super) fn clients(&self, session: ThreadId, at: Ns) -> Vec<ThreadId> {
        let Some(v) = self.g.vertex_at(session, at).map(|v| self.g.vertex(v)) else { return Vec::new() };
        let members = self.c.object(v.object).map_or(&[][..], |o| &o.members);
        let ends: Vec<_> =
            members.iter().copied().chain([v.object]).filter(|o| self.is_connection(*o)).collect();
        if let Some((_, t)) = self.at_other_ends(session, &ends, at).into_iter().max() {
            return vec![t];
        }
        let mut holds = self.g.holds(session, 0..at.saturating_add(1));
        let peer = holds.find(|h| ends.contains(&h.object) && h.relation == Relation::Peer);
        let process = peer.and_then(|h| self.c.process_id_of(h.holder));
        process.map_or_else(Vec::new, |p| self.g.threads_of(p).collect())
    }

    fn is_connection(&self, o: ObjectId) -> bool {
        self.c
            .object(o)
            .is_some_and(|o| matches!(o.kind, ObjectKind::UnixStream | ObjectKind::Tcp) && o.peer != 0)
    }

    /// Does a thread mostly wait for somebody (a person, too), or sleep through this time at once?
    pub(super) fn is_kept(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => true,
            Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                let v = self.representative(g);
                let class = class(&v, self.c);
                let idles = matches!(class, WaitClass::EventLoop | WaitClass::Condition | WaitClass::Signal);
                let naps = class == WaitClass::Sleep && g.waits > 1;
                !idles && !naps
            }),
            Mostly::Unborn | Mostly::Gone | Mostly::Unknown => false,
        }
    }
}
