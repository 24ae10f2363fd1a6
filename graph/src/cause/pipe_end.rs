//! Readers of a pipe that wait for its end: it comes when the last one that has the writing end open closes it, often
//! a program in the background that inherited it and never writes.

use super::Writer;
use crate::diagnose::SliceNode;
use crate::words::{clean, moment, short_label, span, who};
use pg_event::{Ns, ObjectKind, Relation, ThreadId};

/// A process closes its files so long before its end is recorded, at most, ns.
const CLOSING: Ns = 100_000_000;

impl Writer<'_> {
    /// `of` read from a pipe until `by` ended, which idled and wrote nothing: said instead of a late answer.
    pub(super) fn kept_open(&self, full: &str, by: &SliceNode, of: &SliceNode) -> Option<String> {
        let last = self.last_of(of);
        let v = self.g.vertex(last);
        let pipe =
            self.c.object(v.object).filter(|o| matches!(o.kind, ObjectKind::Pipe | ObjectKind::Fifo))?;
        let e = self.g.edge(self.g.waking(last)?);
        let ended = self.g.exited(by.thread)?.0;
        let at_end = (e.from_time..=e.from_time.saturating_add(CLOSING)).contains(&ended);
        let reads = v.syscall.is_any(&["read", "readv", "poll", "ppoll", "select", "pselect6", "splice"]);
        if !at_end || !reads || self.g.vertex(e.from).thread != by.thread {
            return None;
        }
        let process = |t: ThreadId| self.c.thread(t).map(|t| t.process);
        let known = [process(by.thread), process(of.thread)];
        let within = of.start..(of.start + of.duration).saturating_add(1);
        let mut others: Vec<ThreadId> = Vec::new();
        for h in self.g.holds(of.thread, within).filter(|h| h.relation == Relation::Writes) {
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
        Some(format!(
            "{full} had the writing end of {} open and wrote nothing{too}: it was idle for {}{call}, while {} waited {} \
             for the pipe's end, which came when it ended at {}",
            clean(&short_label(&pipe.label()), 60),
            span(by.spent),
            who(self.c, of.thread),
            self.patience(of),
            moment(ended),
        ))
    }
}
