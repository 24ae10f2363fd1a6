//! Output of a terminal that somebody paused (Ctrl-S): writers wait until it goes on (Ctrl-Q), and whoever has the other
//! end waits for output that does not come.

use super::activity::{Group, activity, extent, total};
use super::ask::Candidate;
use super::finding::FindingKind;
use super::walk::{Flow, Walk, group_spans};
use crate::Vertex;
use crate::builder::{SEND, call_is};
use pg_event::{Catalog, Object, ObjectId, ObjectKind, Relation, TTY_PAUSED, ThreadId};

/// Was it seen that the wait is one to write to a terminal whose output is paused?
pub(crate) fn seen_paused(v: &Vertex, c: &Catalog) -> bool {
    let tty = || c.object(v.object).is_some_and(|o| o.kind == ObjectKind::Tty);
    v.op == TTY_PAUSED && call_is(v.syscall, SEND) && tty()
}

impl Walk<'_> {
    /// Output that was seen to be paused is what `thread` waits for, whoever let it go on.
    pub(super) fn paused(&mut self, thread: ThreadId, group: &Group, candidates: Vec<Candidate>) -> Flow<()> {
        self.found(thread, FindingKind::Paused, group_spans(group));
        match candidates.into_iter().find(|c| !self.path.iter().any(|p| p.0 == c.thread)) {
            Some(c) => self.visit(c.thread, c.spans, c.entry),
            None => Ok(()),
        }
    }

    /// Does `thread` wait to write to a terminal whose other end is asked for output nearly all that time? Nothing else
    /// keeps one that reads from one that writes, also where the kernel was not asked whether output is paused.
    pub(super) fn is_paused(&self, thread: ThreadId, group: &Group) -> bool {
        let v = self.representative(group);
        let Some(slave) = self.c.object(v.object).filter(|o| o.kind == ObjectKind::Tty && o.peer != 0) else {
            return false;
        };
        if !call_is(v.syscall, SEND) || v.object.is_none() {
            return false;
        }
        let spans = group_spans(group);
        let (a, b) = extent(&spans);
        let others = self.g.holds(thread, a..b.saturating_add(1)).filter(|h| h.relation == Relation::Peer);
        let mut processes: Vec<_> =
            others.filter_map(|h| self.c.thread(h.holder)).map(|t| t.process).collect();
        processes.sort_unstable();
        processes.dedup();
        let master = |o: &Object| o.kind == ObjectKind::Tty && o.id == slave.peer;
        let asks = |o: ObjectId| {
            self.c
                .object(o)
                .is_some_and(|o| master(o) || o.members.iter().filter_map(|m| self.c.object(*m)).any(master))
        };
        self.g.threads().filter(|t| self.c.thread(*t).is_some_and(|t| processes.contains(&t.process))).any(
            |t| {
                let act = activity(self.g, self.c, t, &spans);
                let waits = act.groups.iter().filter(|g| asks(self.representative(g).object));
                waits.map(|g| g.blocked).sum::<u64>() * 10 >= total(&spans) * 9
            },
        )
    }
}
