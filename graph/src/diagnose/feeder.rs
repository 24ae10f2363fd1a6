//! Which thread of a process writes to a pipe that another process reads, where the one known of waits for that process itself:
//! git has a thread of its own for what comes over the network, for one.

use super::activity::{Group, Spans, activity};
use super::walk::Walk;
use crate::class::{WaitClass, class};
use pg_event::ThreadId;

impl Walk<'_> {
    /// The only other thread of the process of `holder`, which is on the way itself, that wanted something from outside of that
    /// process nearly all the time: what it gets it may pass on.
    pub(super) fn feeder(&self, holder: ThreadId, spans: &Spans) -> Option<ThreadId> {
        let process = self.c.process_id_of(holder).filter(|_| self.on_the_way(holder))?;
        let feeds = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            let Some(g) = act.waiting().filter(|g| g.blocked * 10 >= act.total * 9) else { return false };
            match class(&self.representative(g), self.c) {
                WaitClass::Channel => !self.within_its_process(*t, g),
                WaitClass::Child | WaitClass::Disk => true,
                _ => false,
            }
        };
        let mut all =
            self.g.threads_of(process).filter(|t| !self.on_the_way(*t) && self.counts(*t)).filter(feeds);
        let (one, None) = (all.next()?, all.next()) else { return None };
        Some(one)
    }

    /// Has a thread of its own process the other end of what it waits for, as far as is known?
    fn within_its_process(&self, t: ThreadId, group: &Group) -> bool {
        let process = self.c.process_id_of(t);
        let spans = group.clips.iter().map(|c| c.start..c.end.saturating_add(1));
        let mut holds = spans.flat_map(|s| self.g.holds(t, s)).filter(|h| !h.relation.has_lock()).peekable();
        holds.peek().is_some() && holds.all(|h| self.c.process_id_of(h.holder) == process)
    }
}
