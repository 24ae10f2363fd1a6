//! Who could still act? A thread is stuck when everybody who could end its wait is stuck, too: a circle, however many
//! have an end of what it waits for. Only what is certain is called so; whoever may still act ends the search.

use super::activity::{Group, Mostly, activity};
use super::walk::Walk;
use crate::Vertex;
use crate::class::{WaitClass, class, joins};
use pg_event::{Ns, Relation, ThreadId};

/// Threads that have waited for one another for so long do not go on by themselves, ns.
pub(super) const CLOSED: Ns = 1_000_000_000;
/// Most threads looked at.
const MOST: usize = 256;
/// The recorder tells of so many holders of one object at most: there may be more.
const TOLD: usize = 16;

impl Walk<'_> {
    /// Is nobody left who could end what `thread` waited for until `end`, since all of them wait for one another?
    pub(super) fn nobody_left(&self, thread: ThreadId, end: Ns) -> bool {
        let mut all = vec![thread];
        let mut at = 0;
        while let Some(&t) = all.get(at) {
            let Some(by) = self.enders(t, end).filter(|by| !by.is_empty()) else { return false };
            for x in by {
                if !all.contains(&x) {
                    all.push(x);
                }
            }
            if all.len() > MOST {
                return false;
            }
            at += 1;
        }
        true
    }

    /// The wait that a thread is in at `end`, if it is long and nobody ended it.
    fn lasting(&self, t: ThreadId, end: Ns) -> Option<(Vertex, Group)> {
        let v = self.g.vertex_at(t, end.saturating_sub(1)).map(|v| self.g.vertex(v))?;
        let long = end.saturating_sub(v.start);
        if v.timed_out || v.woken < end || long < CLOSED {
            return None;
        }
        let mut act = activity(self.g, self.c, t, &[(v.start, end)]);
        let Mostly::Waiting(i) = act.mostly() else { return None };
        let group = act.groups.swap_remove(i);
        group.clips.iter().all(|c| self.brought(c).is_none()).then_some((v, group))
    }

    /// The threads that could end the wait in which a thread is at `end`. `None` when that is not known, or it waits
    /// for nobody in particular.
    fn enders(&self, t: ThreadId, end: Ns) -> Option<Vec<ThreadId>> {
        let (v, group) = self.lasting(t, end)?;
        let own = self.c.thread(t)?.process;
        let alive = |x: &ThreadId| *x != t && self.g.exited(*x).is_none_or(|e| e.0 > end);
        let facts: Vec<_> =
            self.g.holds(t, v.start..end.saturating_add(1)).filter(|h| h.object == v.object).collect();
        if facts.len() >= TOLD {
            return None;
        }
        if self.private_futex(&group) {
            // Each of them has to come to the barrier; that all are stuck is the safe sign that nobody will.
            let missing = facts.iter().filter(|h| h.relation == Relation::Missing).map(|h| h.holder);
            let missing: Vec<_> = missing.collect();
            if !missing.is_empty() {
                return Some(missing);
            }
            let joined = joins(&v, self.c);
            let owner = facts.iter().find(|h| joined || h.relation == Relation::Owns).map(|h| h.holder);
            let others = || self.g.threads_of(own).filter(alive);
            return Some(owner.map_or_else(|| others().collect(), |o| vec![o]));
        }
        let class = class(&v, self.c);
        let owed = |r: Relation| match r {
            // Whoever waits to hear something over a connection may wait for ever, and rightly.
            Relation::Peer | Relation::Listens => class == WaitClass::Room,
            Relation::Reads | Relation::Writes => matches!(class, WaitClass::Channel | WaitClass::Room),
            Relation::ChildOf => class == WaitClass::Child,
            Relation::Owns | Relation::Shares => class == WaitClass::Lock,
            Relation::Traces
            | Relation::Serves
            | Relation::Reader
            | Relation::Missing
            | Relation::Maps
            | Relation::Makes
            | Relation::Removes => false,
        };
        if !facts.iter().all(|h| owed(h.relation)) {
            return None;
        }
        let mut out = Vec::new();
        for h in facts {
            let process = self.c.thread(h.holder).filter(|x| !x.own)?.process;
            out.extend(self.g.threads_of(process).filter(alive));
        }
        Some(out)
    }
}
