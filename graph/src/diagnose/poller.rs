//! Runtimes whose threads take turns at watching the descriptors of all (Go's scheduler, many thread pools): a thread that
//! has nothing to do parks, until it is woken to watch them, or to pass a timer on. What made it answer in the end is what it
//! saw while it watched, however long it was parked before.

use super::activity::{Activity, Group};
use super::node::Entry;
use super::walk::Walk;
use crate::EdgeKind;
use crate::class::{WaitClass, class};
use pg_event::Ns;

/// Between the end of being parked and the watch, ns: more than a hand-over takes it does some work.
const HAND_OVER: Ns = 10_000_000;

impl Walk<'_> {
    /// The watch that ended before the message by which the way goes on, with the time parked before as a part of it. `i`:
    /// the wait that took most of the time.
    pub(super) fn watched(&self, act: &Activity, i: usize, entry: &Entry) -> Option<Group> {
        let e = self.g.edge(entry.id.filter(|_| entry.edge == Some(EdgeKind::Ipc))?);
        let of = |g: &Group| class(&self.representative(g), self.c);
        let by_hand_over = |g: &&Group| matches!(of(g), WaitClass::Condition | WaitClass::Lock);
        let parked = act.groups.get(i).filter(by_hand_over)?.longest()?;
        // Of a lock somebody is the owner.
        let thread = self.g.vertex(e.from).thread;
        if self.g.holds(thread, parked.start..parked.end).any(|h| h.relation.has_lock()) {
            return None;
        }
        let ends_it = |g: &&Group| {
            of(g) == WaitClass::EventLoop && g.clips.last().is_some_and(|c| c.last == e.from && c.resolved)
        };
        let watch = act.groups.iter().find(ends_it)?;
        let mut clip = *watch.clips.last()?;
        if clip.start < parked.end || clip.start - parked.end > HAND_OVER {
            return None;
        }
        (clip.start, clip.blocked) = (parked.start, clip.blocked.saturating_add(parked.blocked));
        Some(Group { blocked: clip.blocked, clips: vec![clip], ..watch.clone() })
    }
}
