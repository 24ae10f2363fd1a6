//! Answers that came in the end, from a thread that had nothing to do meanwhile: it kept the request back itself.

use super::Writer;
use crate::EdgeKind;
use crate::diagnose::{SliceNode, only_reacts};
use crate::episode::times_put_off;
use pg_event::Ns;

/// An answer that ended a wait.
pub(super) struct Answer {
    /// When it was sent, ns of the recording.
    pub at: Ns,
    /// A time-out made its sender go on, nobody else.
    timer: bool,
}

impl Answer {
    /// What made its sender go on, with a comma in front; empty when that is not known.
    pub fn by_timer(&self) -> &'static str {
        if self.timer { ", when a time-out of its own had passed" } else { "" }
    }
}

impl Writer<'_> {
    /// The answer by which the thread of `by` itself ended the wait of `of`.
    pub(super) fn answered(&self, by: &SliceNode, of: &SliceNode) -> Option<Answer> {
        let last = self.last_of(of);
        let v = self.g.vertex(last);
        if v.open || v.timed_out || v.interrupted {
            return None;
        }
        let e = self.g.edge(self.g.waking(last)?);
        let from = self.g.vertex(e.from);
        // Who closes its end since the other one did answers nothing.
        let closes = || only_reacts(self.g, last, &e).is_some();
        let sent = e.kind == EdgeKind::Ipc && from.thread == by.thread && !closes();
        sent.then_some(Answer { at: e.from_time, timer: from.timed_out })
    }

    /// How often a step was put off: answered when a time-out of the server's had passed, whereupon it asked again.
    pub(super) fn put_off(&self, of: &SliceNode) -> usize {
        times_put_off(self.g, self.c, &self.g.vertex(of.vertex), (of.start, of.start + of.duration))
    }
}
