//! Readers of a pipe, or of a pair of sockets in its place, that wait for its end: it comes when the last one that has the
//! writing end open closes it, often a program in the background that inherited it and never writes.

use super::Writer;
use crate::HoldFact;
use crate::class::{WaitClass, class};
use crate::diagnose::SliceNode;
use crate::words::{clean, moment, short_label, span, who};
use pg_event::{Ns, Object, ObjectKind, POLLS, ProcessId, Relation, ThreadId};
use std::ops::Range;

/// A process closes its files so long before or after its end is recorded, at most, ns.
const CLOSING: Ns = 100_000_000;

/// May it be somebody's standard output, of which the reader has the other end? Some programs make pairs of sockets for it.
fn is_output(o: &Object) -> bool {
    matches!(o.kind, ObjectKind::Pipe | ObjectKind::Fifo)
        || o.kind == ObjectKind::UnixStream && o.name.is_empty()
}

/// Which end of it a holder has.
fn its_end(o: &Object) -> &'static str {
    if o.kind == ObjectKind::UnixStream { "other" } else { "writing" }
}

const READS: [&str; 5] = ["read", "readv", "recvfrom", "recvmsg", "splice"];

impl Writer<'_> {
    /// Has somebody the end by which what another one reads from comes?
    fn has_end(&self, h: &HoldFact) -> bool {
        let pair = |o: &Object| o.kind == ObjectKind::UnixStream && is_output(o);
        h.relation == Relation::Writes
            || h.relation == Relation::Peer && self.c.object(h.object).is_some_and(pair)
    }

    /// The pipe that `of` read from until the last writer of it ended, or reads still; and who that was and when. Of several that it
    /// watches still, the one that `by` can write to.
    fn read_to_its_end(&self, of: &SliceNode, by: ThreadId) -> Option<(&Object, Option<(ThreadId, Ns)>)> {
        let last = self.last_of(of);
        let v = self.g.vertex(last);
        let row = self.c.object(v.object)?;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let watched = || {
            let mut holds = self.g.holds(of.thread, of.start..(of.start + of.duration).saturating_add(1));
            let has = |h: &HoldFact| self.has_end(h) && process(h.holder) == process(by);
            let hold = holds.find(|h| row.members.contains(&h.object) && has(h))?;
            self.c.object(hold.object)
        };
        let pipe = Some(row).filter(|o| is_output(o)).or_else(|| watched().filter(|o| is_output(o)))?;
        let reads = v.syscall.is_any(&READS) || v.syscall.is_any(&POLLS);
        // Nobody has ended it when the recording ended first, a signal, or patience.
        let closed = match self.g.waking(last).map(|id| self.g.edge(id)) {
            None => None,
            Some(_) if v.interrupted => None,
            Some(e) => {
                let closed = self.g.vertex(e.from).thread;
                let ended = self.g.exited(closed)?.0;
                let at_end = e.from_time.abs_diff(ended) <= CLOSING;
                Some(Some((closed, ended)).filter(|_| at_end)?)
            }
        };
        reads.then_some((pipe, closed))
    }

    /// `of` read from a pipe until `by` ended, which only slept: nothing else would say what one has to do with the other.
    pub(super) fn kept_open_asleep(&self, by: &SliceNode, of: &SliceNode) -> Option<String> {
        let (pipe, closed) = self.read_to_its_end(of, by.thread)?;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let within = of.start..(of.start + of.duration).saturating_add(1);
        let end = its_end(pipe);
        let pipe = clean(&short_label(&pipe.label()), 60);
        let has = |h: &HoldFact| self.has_end(h) && process(h.holder) == process(by.thread);
        match closed {
            Some((t, ended)) if process(t) == process(by.thread) => {
                Some(format!("it had the {end} end of {pipe} open until it ended at {}", moment(ended)))
            }
            None if self.g.holds(of.thread, within).any(|h| has(&h)) => {
                Some(format!("it has the {end} end of {pipe} open"))
            }
            _ => None,
        }
    }

    /// `of` waits for room in a pipe or socket of which `by` has the other end, and only slept.
    pub(super) fn unread_asleep(&self, by: &SliceNode, of: &SliceNode) -> Option<String> {
        let v = self.g.vertex(self.last_of(of));
        let o = self.c.object(v.object).filter(|_| class(&v, self.c) == WaitClass::Room)?;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let within = of.start..(of.start + of.duration).saturating_add(1);
        let has = |h: &HoldFact| {
            let end = matches!(h.relation, Relation::Reads | Relation::Peer);
            end && h.object == v.object && process(h.holder) == process(by.thread)
        };
        let end = if matches!(o.kind, ObjectKind::Pipe | ObjectKind::Fifo) { "reading" } else { "other" };
        let had = if v.open { "has" } else { "had" };
        let known = self.g.holds(of.thread, within).any(|h| has(&h));
        let label = clean(&short_label(&o.label()), 60);
        known.then(|| format!("it {had} the {end} end of {label} and did not read"))
    }

    /// The pipe that some thread of one process waits to read from, of which another process has the writing end.
    fn reads_in_turn(&self, reader: ProcessId, writer: ProcessId, within: Range<Ns>) -> Option<&Object> {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let found = |h: HoldFact| {
            let pipe = self.c.object(h.object).filter(|o| o.kind == ObjectKind::Pipe)?;
            let waits =
                self.g.vertex_at(h.subject, h.time).is_some_and(|v| self.g.vertex(v).object == h.object);
            (waits && h.relation == Relation::Writes && process(h.holder) == Some(writer)).then_some(pipe)
        };
        let threads = self.g.threads_of(reader);
        threads.into_iter().find_map(|t| self.g.holds(t, within.clone()).find_map(found))
    }

    /// Who waits for an answer of this step over a connection.
    fn asker_of(&self, of: &SliceNode) -> Option<ThreadId> {
        let at = self.o.nodes.iter().position(|n| n.thread == of.thread)?;
        let before = &self.o.nodes[at.checked_sub(1)?];
        let over = before.object.and_then(|o| self.c.object(o))?;
        matches!(over.kind, ObjectKind::Tcp | ObjectKind::UnixStream).then_some(before.thread)
    }

    /// `of` read from a pipe until the last writer of it ended, or reads still; `by` had it open all that time, idled and wrote
    /// nothing: said instead of a late answer.
    pub(super) fn kept_open(&self, full: &str, by: &SliceNode, of: &SliceNode) -> Option<String> {
        let (pipe, closed) = self.read_to_its_end(of, by.thread)?;
        // Over a pair of sockets an answer may be what did not come.
        if pipe.kind == ObjectKind::UnixStream {
            return None;
        }
        let process = |t: ThreadId| self.c.process_id_of(t);
        let within = of.start..(of.start + of.duration).saturating_add(1);
        let holds = || self.g.holds(of.thread, within.clone()).filter(|h| h.relation == Relation::Writes);
        let closes = closed.is_some_and(|c| c.0 == by.thread);
        let has = closes || holds().any(|h| process(h.holder) == process(by.thread));
        if !has {
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
        let had = if closed.is_some() { "had" } else { "has" };
        let too = match &others[..] {
            [] => String::new(),
            [one] => format!(", and so {had} {}", who(self.c, *one)),
            [one, rest @ ..] => format!(", and so {had} {} and {} more", who(self.c, *one), rest.len()),
        };
        let call = by.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let reader = who(self.c, of.thread);
        if closed.is_none()
            && let Some(back) = self.reads_in_turn(process(by.thread)?, process(of.thread)?, within.clone())
        {
            // A request whose body is shorter than announced keeps whoever takes it on reading.
            let asker = self
                .asker_of(of)
                .map_or_else(String::new, |t| format!(", or was not all sent by {}", who(self.c, t)));
            return Some(format!(
                "{full} wrote nothing to {} for {}, from which {reader} reads, and reads what that writes to {}: each waits for the other to send something, which may be lost with a process that ended{asker}",
                clean(&short_label(&pipe.label()), 60),
                span(by.spent),
                clean(&short_label(&back.label()), 60),
            ));
        }
        let end = match closed {
            Some((_, ended)) if closes => {
                format!("{reader} read to its end, when it ended at {}", moment(ended))
            }
            Some((closed, ended)) => {
                format!("{reader} read to its end, when {} ended at {}", who(self.c, closed), moment(ended))
            }
            None => {
                let all =
                    others.iter().filter_map(|t| process(*t)).chain(process(by.thread)).collect::<Vec<_>>();
                let other =
                    || format!("{reader} goes on when one of them writes, or when all that have it close it");
                self.stands_in(&all).unwrap_or_else(other)
            }
        };
        Some(format!(
            "{full} {had} the writing end of {} open and wrote nothing{too}: idle for {}{call}; {end}",
            clean(&short_label(&pipe.label()), 60),
            span(by.spent),
        ))
    }
}
