//! Waits that lasted until the process was told to end: what wakes a thread then is its end, not what it waited for.

use super::activity::Clip;
use super::walk::Walk;
use crate::class::{WaitClass, class};
use crate::{Edge, EdgeId, EdgeKind, SignalFact, VertexId, Weak};
use pg_event::{Ns, ThreadId};

/// Signals that ask a process to end (signal(7)): HUP, INT, QUIT, KILL, TERM.
const ENDS: [u8; 5] = [1, 2, 3, 9, 15];
/// A process that obeys has ended so long after it was told, ns.
const OBEYS: Ns = 5_000_000_000;
/// A signal is told of so long after what its sender wakes by it, at most, ns.
const TOLD_LATE: Ns = 1_000_000;

impl Walk<'_> {
    /// The edge that brought what a wait was for. `None` when its own time-out ended it, a signal did, it never
    /// ended, or its process had been told to end.
    pub(super) fn brought(&self, clip: &Clip) -> Option<(EdgeId, Edge)> {
        let v = self.g.vertex(clip.last);
        if v.timed_out || v.open || v.interrupted {
            return None;
        }
        let id = self.g.waking(clip.last)?;
        let e = self.g.edge(id);
        let real = e.weak != Some(Weak::Signal) && !self.only_interrupts(clip, &e);
        // Nor does the end of a process that was told to end, unless it is what was waited for, or a server that it
        // had kept from it answers at once.
        let ended =
            e.kind == EdgeKind::Exit && class(&v, self.c) != WaitClass::Child && !self.answers(clip.last);
        let from = self.g.vertex(e.from).thread;
        let told = |t| self.told_to_end(t, clip.start, e.from_time, from).is_some();
        (real && !told(v.thread) && !(ended && told(from))).then_some((id, e))
    }

    /// Does a server answer in this turn somebody on the way, who had waited for that?
    pub(super) fn answers(&self, turn: VertexId) -> bool {
        let on_the_way = |t: ThreadId| self.path.iter().any(|p| p.0 == t);
        class(&self.g.vertex(turn), self.c) == WaitClass::EventLoop
            && self.g.outgoing(turn).any(|id| {
                let e = self.g.edge(id);
                let to = self.g.vertex(e.to).thread;
                e.kind == EdgeKind::Ipc && self.g.waking(e.to) == Some(id) && on_the_way(to)
            })
    }

    /// The signal between `from` and `until`, when `waker` woke somebody, on which the thread's process ended.
    fn told_to_end(&self, thread: ThreadId, from: Ns, until: Ns, waker: ThreadId) -> Option<SignalFact> {
        let process = |t: ThreadId| self.c.thread(t).map(|t| t.process);
        let own = process(thread)?;
        let main = super::answerless::main_thread(self.g, self.c, own)?;
        let end = self.g.exited(main).map(|x| x.0).or_else(|| self.c.process(own)?.end)?;
        // The kernel tells of a signal after it has woken who reads them from a descriptor.
        let (late, all) = (until.saturating_add(TOLD_LATE), self.g.signals());
        let told = all[all.partition_point(|s| s.time < from)..].iter().take_while(|s| s.time <= late);
        told.filter(|s| s.time <= until || s.from == waker)
            .filter(|s| ENDS.contains(&s.signal) && process(s.to) == Some(own))
            // What a thread does to its own process is the program's way.
            .filter(|s| process(s.from) != Some(own))
            .find(|s| s.time <= end && end - s.time <= OBEYS)
            .copied()
    }
}
