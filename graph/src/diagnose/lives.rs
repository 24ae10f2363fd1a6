//! Pipes that nobody writes to: their end tells that a process has ended.

use super::walk::Walk;
use crate::{HoldFact, Vertex};
use pg_event::{ObjectId, ObjectKind, Relation, ThreadId};

impl Walk<'_> {
    /// Is it the pipe by which PostgreSQL's processes hear that their parent has ended? Each of their waits watches that.
    pub(super) fn of_postmaster(&self, h: &HoldFact) -> bool {
        let latch = |v: Vertex| self.c.frames_of(v.user_stack).any(|f| f.function == "WaitEventSetWait");
        h.relation == Relation::Writes
            && self.c.object(h.object).is_some_and(|o| o.kind == ObjectKind::Pipe)
            && self.g.vertex_at(h.subject, h.time).is_some_and(|v| latch(self.g.vertex(v)))
    }

    /// Does it only tell by an end of a pipe that it lives? Several processes watch such a pipe, beside what they wait for, and
    /// nobody writes to it: its end tells them that.
    pub(super) fn only_lives(&self, h: &HoldFact) -> bool {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let kind = |o: ObjectId| self.c.object(o).map(|o| o.kind);
        let beside = |h: &HoldFact| {
            let v = self.g.vertex_at(h.subject, h.time).map(|v| self.g.vertex(v));
            v.is_some_and(|v| matches!(kind(v.object), Some(ObjectKind::Epoll | ObjectKind::Set)))
        };
        let same = |x: &&HoldFact| (x.object, x.relation) == (h.object, h.relation);
        h.relation == Relation::Writes
            && kind(h.object) == Some(ObjectKind::Pipe)
            && beside(h)
            && self.g.holds.iter().filter(same).any(|x| process(x.subject) != process(h.subject) && beside(x))
    }
}
