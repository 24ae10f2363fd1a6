//! Locks that were given back for another one, which had ended with them.

use super::activity::{Group, Spans, merged};
use super::ask::Candidate;
use super::walk::Walk;
use crate::HoldFact;
use crate::class::{WaitClass, class};
use pg_event::{ObjectKind, Relation, ThreadId};

impl Walk<'_> {
    /// Who lets go on who waits for a semaphore or a lock in memory, whose owner had ended with it, never had it: a person
    /// repairs that, or a script. Those spans nobody ended who could have.
    pub(super) fn past_rescuers(
        &mut self,
        thread: ThreadId,
        group: &Group,
        candidates: Vec<Candidate>,
        mut silent: Spans,
    ) -> (Vec<Candidate>, Spans) {
        let v = self.representative(group);
        let kind = self.c.object(v.object).map(|o| o.kind);
        let stays = matches!(kind, Some(ObjectKind::SysvIpc | ObjectKind::Futex));
        let (Some(first), Some(last)) = (group.clips.first(), group.clips.last()) else {
            return (candidates, silent);
        };
        let (a, b) = (first.start, last.end);
        let process = |t: ThreadId| self.c.process_id_of(t);
        // Found to have it when it had ended already: one that was alive may have given it to somebody else.
        let gone = |h: &HoldFact| self.g.ended(h.holder).is_some_and(|at| at <= h.time);
        let mut held = self.g.holds(thread, a..b.saturating_add(1));
        let owner = held.find(|h| h.object == v.object && h.relation == Relation::Owns && gone(h));
        let owner = owner.map(|h| h.holder).filter(|_| stays && class(&v, self.c) == WaitClass::Lock);
        let Some(owner) = owner.filter(|o| candidates.iter().all(|c| process(c.thread) != process(*o)))
        else {
            return (candidates, silent);
        };
        let why =
            format!("it gave back what process {} had ended with", self.c.thread(owner).map_or(0, |t| t.tid));
        for c in candidates {
            self.out.rejected.push((c.thread, why.clone()));
            silent.extend(c.spans);
        }
        (Vec::new(), merged(silent))
    }
}
