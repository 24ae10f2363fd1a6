//! A queue for a lock: each that waits hands it on to the next.

use super::activity::{Group, Mostly};
use super::ask::Candidate;
use super::walk::Walk;
use crate::Weak;
use crate::class::{WaitClass, class};
use crate::episode::WaitKey;
use pg_event::{ObjectKind, ThreadId};
use std::collections::HashSet;

impl Walk<'_> {
    /// Whoever handed the lock over had queued for it too: what made it scarce is the one that had it before
    /// them all, so a hand-off through a queue is one step.
    pub(super) fn past_the_queue(&self, thread: ThreadId, key: WaitKey, candidates: &mut Vec<Candidate>) {
        const LONGEST_QUEUE: usize = 10_000;
        let mut seen = HashSet::from([thread]);
        for c in candidates.iter_mut() {
            let mut passed = 0;
            // Who has a lock of a file that others had lets it go as plainly as any other.
            while (key.kind == ObjectKind::FileLock || c.weak == Some(Weak::MutexHandOff))
                && passed < LONGEST_QUEUE
                && seen.insert(c.thread)
            {
                let Some(queued) = self.queued(c, key) else { break };
                let (before, _) = self.wakers(&queued);
                let Some(next) = before.into_iter().find(|n| n.waking && !seen.contains(&n.thread)) else {
                    break;
                };
                passed += 1;
                *c = Candidate { time: c.time.min(next.time), ..next };
            }
            if passed > 0 {
                let others = if passed == 1 { "another thread".into() } else { format!("{passed} threads") };
                let why = c.weak.map_or_else(String::new, |w| format!("{}; ", w.words()));
                c.entry.why_weak = Some(format!("{why}{others} that queued for it handed it on"));
            }
        }
        let mut known = HashSet::new();
        candidates.retain(|c| known.insert(c.thread));
    }

    /// The wait of a candidate for the same lock, or that of the child it waited for: flock(1) takes one for a shell.
    fn queued(&self, c: &Candidate, key: WaitKey) -> Option<Group> {
        let waits = |c: &Candidate| {
            let mut act = self.meanwhile(c);
            let Mostly::Waiting(i) = act.mostly() else { return None };
            (i < act.groups.len()).then(|| act.groups.swap_remove(i))
        };
        let own = waits(c)?;
        let same = |g: &Group| match key.kind {
            ObjectKind::FileLock => g.key.object == key.object,
            _ => g.key == key,
        };
        if same(&own) {
            return Some(own);
        }
        let for_child = class(&self.representative(&own), self.c) == WaitClass::Child;
        let child = self.wakers(&own).0.into_iter().find(|n| n.waking && for_child)?;
        waits(&child).filter(same)
    }
}
