//! Processes that were stopped since one of them uses its terminal from the background (SIGTTIN, SIGTTOU): the kernel
//! stops their whole group. Where that was before the recording no signal tells, but what they were at does.

use super::activity::{Group, activity};
use super::ask::Candidate;
use super::walk::{Walk, group_spans};
use crate::Vertex;
use crate::class::{WaitClass, class};
use crate::facts::SignalFact;
use pg_event::{Catalog, Ns, ObjectKind, ThreadId};

/// SIGTTIN and SIGTTOU.
const TERMINAL: [u8; 2] = [21, 22];

/// Was it stopped in a call for its terminal, which stops who is in the background? What a stopped thread reads from may not
/// be recorded: then it may be.
pub(crate) fn calls_terminal(v: &Vertex, catalog: &Catalog) -> bool {
    match catalog.object(v.object) {
        Some(o) => {
            o.kind == ObjectKind::Tty && v.syscall.is_any(&["read", "readv", "write", "writev", "ioctl"])
        }
        None => v.syscall.is_any(&["read", "readv"]),
    }
}

impl Walk<'_> {
    /// The process below a stopped one that was stopped at its terminal.
    pub(super) fn stopped_at_terminal(&self, thread: ThreadId, group: &Group) -> Option<Candidate> {
        let v = self.representative(group);
        let own = self.c.thread(thread)?.process;
        if let Some(c) = self.stopped_with(thread, group) {
            return Some(c);
        }
        if !v.begun_before || calls_terminal(&v, self.c) {
            return None;
        }
        let spans = group_spans(group);
        let below = |t: &ThreadId| {
            let process = self.c.process_id_of(*t);
            process.is_some_and(|p| p != own && self.c.ancestors(p).any(|a| a == own))
        };
        let stopped = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, &spans);
            act.waiting().map(|g| self.representative(g)).is_some_and(|v| {
                class(&v, self.c) == WaitClass::Stopped && v.begun_before && calls_terminal(&v, self.c)
            })
        };
        let t = self.g.threads().filter(|t| self.counts(*t)).find(|t| below(t) && stopped(t))?;
        let vertex = self.g.vertex_at(t, spans.last()?.1.saturating_sub(1));
        let why = "no signal was recorded; it was stopped as well, as it read: who reads its terminal from the background is stopped with its whole group";
        Some(Candidate::unseen(t, spans.clone(), (vertex, spans.first()?.0), why.to_owned()))
    }

    /// In whose name the kernel stopped the group of a thread: another process of that, which is stopped as well.
    fn stopped_with(&self, thread: ThreadId, group: &Group) -> Option<Candidate> {
        const SOON: Ns = 1_000_000;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let (spans, start) = (group_spans(group), self.representative(group).start);
        let stops = |s: &&SignalFact| {
            let at = s.time <= start.saturating_add(SOON) && start <= s.time.saturating_add(SOON);
            at && TERMINAL.contains(&s.signal) && process(s.to) == process(thread)
        };
        let by = self.g.signals().iter().rev().find(stops).map(|s| s.from)?;
        let act = activity(self.g, self.c, by, &spans);
        let stopped = act.waiting().is_some_and(Group::halts) && self.counts(by);
        let other = stopped && process(by) != process(thread) && !self.on_the_way(by);
        let vertex = self.g.vertex_at(by, spans.last()?.1.saturating_sub(1));
        let why = "the kernel stopped the whole process group in its name, as it used the terminal from the background";
        other.then(|| Candidate::unseen(by, spans.clone(), (vertex, spans[0].0), why.to_owned()))
    }
}
