//! Readers of a pipe that wait for its end: it comes when the last one that has the writing end open closes it, often
//! a program in the background that inherited it and never writes.

use super::Writer;
use crate::diagnose::SliceNode;
use crate::words::{clean, moment, short_label, span, who};
use pg_event::{Ns, ObjectKind, Relation, ThreadId};

/// A process closes its files so long before its end is recorded, at most, ns.
const CLOSING: Ns = 100_000_000;

impl Writer<'_> {
    /// `of` read from a pipe until the last writer of it ended; `by` had it open all that time, idled and wrote nothing:
    /// said instead of a late answer.
    pub(super) fn kept_open(&self, full: &str, by: &SliceNode, of: &SliceNode) -> Option<String> {
        let last = self.last_of(of);
        let v = self.g.vertex(last);
        let pipe =
            self.c.object(v.object).filter(|o| matches!(o.kind, ObjectKind::Pipe | ObjectKind::Fifo))?;
        let e = self.g.edge(self.g.waking(last)?);
        let closed = self.g.vertex(e.from).thread;
        let ended = self.g.exited(closed)?.0;
        let at_end = (e.from_time..=e.from_time.saturating_add(CLOSING)).contains(&ended);
        let reads = v.syscall.is_any(&["read", "readv", "poll", "ppoll", "select", "pselect6", "splice"]);
        let process = |t: ThreadId| self.c.thread(t).map(|t| t.process);
        let within = of.start..(of.start + of.duration).saturating_add(1);
        let holds = || self.g.holds(of.thread, within.clone()).filter(|h| h.relation == Relation::Writes);
        let has = closed == by.thread || holds().any(|h| process(h.holder) == process(by.thread));
        if !at_end || !reads || !has {
            return None;
        }
        let known = [process(by.thread), process(of.thread)];
        let mut others: Vec<ThreadId> = Vec::new();
        for h in holds() {
            let p = process(h.holder);
            if !known.contains(&p) && !others.iter().any(|t| process(*t) == p) {
                others.push(h.holder);
            }
        }
        let too = match &others[..] {
            [] => String::new(),
            [one] => format!(", and so had {}", who(self.c, *one)),
            [one, rest @ ..] => format!(", and so had {} and {} more", who(self.c, *one), rest.len()),
        };
        let call = by.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let closes = if closed == by.thread { "it".into() } else { who(self.c, closed) };
        Some(format!(
            "{full} had the writing end of {} open and wrote nothing{too}: idle for {}{call}; {} read to its end, when {closes} ended at {}",
            clean(&short_label(&pipe.label()), 60),
            span(by.spent),
            who(self.c, of.thread),
            moment(ended),
        ))
    }
}
