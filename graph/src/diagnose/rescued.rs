//! Waits that were ended for another one: locks that were given back for who had ended with them, queues that were emptied or
//! removed by who came late.

use super::activity::{Group, Spans, merged};
use super::ask::Candidate;
use super::walk::Walk;
use crate::HoldFact;
use crate::class::{WaitClass, class};
use pg_event::{ObjectKind, Relation, ThreadId};

impl Walk<'_> {
    /// Who came to be only late in a wait for room and ended it (it took what was there, or removed the queue), while another
    /// one that was to read was there all the time: that one is whom the thread waited for.
    pub(super) fn past_latecomers(
        &mut self,
        thread: ThreadId,
        group: &Group,
        candidates: Vec<Candidate>,
        mut silent: Spans,
    ) -> (Vec<Candidate>, Spans) {
        let v = self.representative(group);
        let room = class(&v, self.c) == WaitClass::Room || v.syscall.is_any(&["msgsnd", "mq_timedsend"]);
        let (a, b) = group.extent();
        let middle = a + (b - a) / 2;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let late = |c: &Candidate| self.c.process_of(c.thread).is_some_and(|p| p.start > middle);
        let there = |h: &HoldFact| {
            let other = process(h.holder) != process(thread) && self.counts(h.holder);
            let lived = self.c.process_of(h.holder).is_some_and(|p| p.start <= a);
            h.object == v.object && other && lived && self.g.ended(h.holder).is_none_or(|e| e >= b)
        };
        let came = room && !candidates.is_empty() && candidates.iter().all(late);
        if !came || !self.g.holds(thread, a..b.saturating_add(1)).any(|h| there(&h)) {
            return (candidates, silent);
        }
        for c in candidates {
            let why = "it ended the wait, and came to be only when most of that had passed";
            self.out.rejected.push((c.thread, why.to_owned()));
            silent.extend(c.spans);
        }
        (Vec::new(), merged(silent))
    }

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
