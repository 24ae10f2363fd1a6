//! Calls over a bus by GIO: one thread of a process ("gdbus") sends and receives all its messages. Who calls waits to be told by
//! that one, which only idles, or ends the call by a time-out of its own.

use super::activity::{Spans, activity, total};
use super::ask::Candidate;
use super::late::asks_over_bus;
use super::walk::{Flow, Walk};
use pg_event::ThreadId;

impl Walk<'_> {
    /// Is it the thread by which GIO sends and receives all messages of a bus for its process? What they ask others do.
    pub(super) fn hands_over(&self, t: ThreadId) -> bool {
        self.c.thread(t).is_some_and(|t| t.name == "gdbus") && !self.c.is_first(t)
    }

    /// The one other thread of a process that calls somebody over the bus nearly all the time: what `receiver` receives for it
    /// has to wait.
    pub(super) fn calls_meanwhile(&self, receiver: ThreadId, spans: &Spans) -> Option<ThreadId> {
        let calls = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            act.waiting().is_some_and(|g| {
                g.blocked * 10 >= total(spans) * 8 && asks_over_bus(self.c, self.representative(g).user_stack)
            })
        };
        let process = self.c.thread(receiver)?.process;
        let mut all = self.g.threads_of(process).filter(|t| *t != receiver && self.counts(*t)).filter(calls);
        all.next().filter(|_| all.next().is_none())
    }

    /// Does it call somebody over the bus nearly all the time, or receive for one that does?
    pub(super) fn calls_over_bus(&self, thread: ThreadId, spans: &Spans) -> bool {
        self.call_of(thread, spans).is_some()
    }

    /// The call over a bus that a thread makes or receives for: who receives, and who calls.
    fn call_of(&self, thread: ThreadId, spans: &Spans) -> Option<(ThreadId, ThreadId)> {
        let own = self.c.process_id_of(thread)?;
        let receiver = self.g.threads_of(own).find(|t| self.hands_over(*t))?;
        let caller = self.calls_meanwhile(receiver, spans)?;
        [receiver, caller].contains(&thread).then_some((receiver, caller))
    }

    /// On from a thread that calls somebody over a bus, or receives for one that does, to whom the bus handed the call on to, if
    /// no answer came.
    pub(super) fn by_call_over_bus(&mut self, thread: ThreadId, spans: &Spans) -> Flow<bool> {
        let Some((caller, next)) = self.handed_on_by_bus(thread, spans) else { return Ok(false) };
        if caller != thread && !self.on_the_way(caller) {
            let why = "no wake-up was recorded; what comes over the bus for its process is its to do, and it calls another one itself";
            let at = spans.first().map_or(0, |s| s.0);
            let c = Candidate::unseen(caller, spans.clone(), (self.g.vertex_at(caller, at), at), why);
            let act = activity(self.g, self.c, caller, spans);
            if let Some(g) = act.waiting() {
                self.push_wait(caller, g, c.entry);
                self.path.push((caller, spans.clone()));
            }
        }
        self.visit(next.thread, next.spans, next.entry)?;
        Ok(true)
    }

    /// Who calls over the bus by way of `thread`, and to whom the bus handed that on.
    fn handed_on_by_bus(&self, thread: ThreadId, spans: &Spans) -> Option<(ThreadId, Candidate)> {
        let (receiver, caller) = self.call_of(thread, spans)?;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let until = spans.last()?.1;
        let sent = self.g.ipc_of(receiver, 0..until).last()?.what.object;
        let bus = self.at_other_ends(receiver, &[sent], until).into_iter().max()?.1;
        let next = self.handed_on(bus, receiver, spans).filter(|c| process(c.thread) != process(thread))?;
        Some((caller, next))
    }
}
