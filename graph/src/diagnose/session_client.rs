//! What the client of a session of a database server does while the session idles. One that is in the middle of a
//! transaction is so because its client does something else first: it waits for somebody, or sleeps through it all. A
//! pool's connections are in none: their client waits for whatever comes.

use super::activity::{Mostly, activity};
use super::walk::Walk;
use crate::class::{WaitClass, class};
use pg_event::{Ns, Relation, ThreadId};

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
    pub(super) fn client(&self, session: ThreadId, (a, b): (Ns, Ns)) -> Client {
        let Some(own) = self.g.vertex_at(session, b).map(|v| self.g.vertex(v).object) else {
            return Client::Unknown;
        };
        let does = |t: ThreadId| {
            if self.path.iter().any(|p| p.0 == t) {
                Client::OnTheWay
            } else if self.is_kept(t, (a, b)) {
                Client::Kept
            } else {
                Client::Rests
            }
        };
        if let Some(&(_, t)) = self.at_other_ends(session, &[own], b).first() {
            return does(t);
        }
        let mut holds = self.g.holds(session, 0..b.saturating_add(1));
        let peer = holds.find(|h| h.object == own && h.relation == Relation::Peer);
        let Some(process) = peer.and_then(|h| self.c.process_id_of(h.holder)) else { return Client::Unknown };
        self.g.threads_of(process).map(does).min().unwrap_or(Client::Unknown)
    }

    /// Does a thread mostly wait for somebody (a person, too), or sleep through this time at once?
    fn is_kept(&self, t: ThreadId, (a, b): (Ns, Ns)) -> bool {
        let act = activity(self.g, self.c, t, &vec![(a, b)]);
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
