//! Waits that lasted until the process was told to end: what wakes a thread then is its end, not what it waited for.

use super::activity::{Clip, Group, Spans, activity, merged};
use super::ask::Candidate;
use super::walk::Walk;
use crate::class::{WaitClass, class};
use crate::{Edge, EdgeId, EdgeKind, SignalFact, VertexId, Weak};
use pg_event::{Ns, ObjectKind, ThreadId};

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

    /// A thread that watches channels for others of its process: one of those that wait for what it sees told it that it
    /// had given up, by a time-out of its own. What was watched brought nothing.
    pub(super) fn past_who_gave_up(
        &self,
        thread: ThreadId,
        group: &Group,
        mut candidates: Vec<Candidate>,
        mut silent: Spans,
    ) -> (Vec<Candidate>, Spans) {
        if !self.watches_outside(group) {
            return (candidates, silent);
        }
        let process = |t| self.c.process_id_of(t);
        let gave_up = |c: &Candidate| {
            let own = c.waking && c.thread != thread && process(c.thread) == process(thread);
            let spans = merged(c.spans.clone());
            let act = activity(self.g, self.c, c.thread, if own { &spans } else { &[] });
            act.waiting().filter(|g| g.blocked * 20 >= act.total * 19).is_some_and(|g| {
                let v = self.representative(g);
                (crate::class::private_futex(&v, self.c) || self.only_counts(g))
                    && v.timed_out
                    && g.clips.iter().all(|clip| self.brought(clip).is_none())
            })
        };
        for c in candidates.extract_if(.., |c| gave_up(c)) {
            silent.extend(c.spans);
        }
        (candidates, merged(silent))
    }

    /// What all threads of a process have open is closed when the last of them ends; which one that is tells nothing. It was
    /// the one on the way that had the other end, where there is one.
    pub(super) fn past_the_last_to_end(
        &self,
        thread: ThreadId,
        group: &Group,
        mut candidates: Vec<Candidate>,
    ) -> Vec<Candidate> {
        let class = class(&self.representative(group), self.c);
        if !matches!(class, WaitClass::Room | WaitClass::Channel) {
            return candidates;
        }
        let process = |t: ThreadId| self.c.process_id_of(t);
        let on_the_way = |t: ThreadId| {
            let mut all = self.path.iter().rev().map(|p| p.0);
            all.find(|p| process(*p) == process(t) && process(*p) != process(thread))
        };
        for c in candidates.iter_mut().filter(|c| c.waking && c.kind == EdgeKind::Exit) {
            if let Some(t) = on_the_way(c.thread).filter(|t| *t != c.thread) {
                let why = "its process had the other end open until the last thread of it ended";
                *c = Candidate::unseen(t, c.spans.clone(), (None, c.at), why);
            }
        }
        candidates
    }

    /// Does it wait for several things, of which some reach beyond its process?
    fn watches_outside(&self, group: &Group) -> bool {
        let inside = [ObjectKind::Pipe, ObjectKind::EventFd, ObjectKind::SignalFd, ObjectKind::TimerFd];
        let set = self.c.object(self.representative(group).object);
        let members = set.into_iter().flat_map(|o| &o.members).filter_map(|m| self.c.object(*m));
        let (within, beyond): (Vec<_>, Vec<_>) = members.partition(|o| inside.contains(&o.kind));
        !within.is_empty() && !beyond.is_empty()
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
        let process = |t: ThreadId| self.c.process_id_of(t);
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
