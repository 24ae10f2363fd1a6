//! Who within a process works for the thread that waits, where no message and no wake-up tells: recordings that begin in
//! the middle of a hang do not see how the work was handed over.

use super::activity::{Group, Spans, activity, extent, total};
use super::ask::Candidate;
use super::walk::Walk;
use crate::class::{WaitClass, asked, class, connected, members, semaphore_for_lock};
use crate::{HoldFact, Vertex};
use pg_event::{Direction, ModuleKind, Ns, Object, ObjectId, ObjectKind, ProcessId, Relation, ThreadId};

impl Walk<'_> {
    /// Does it wait for nothing but event counters, which its own threads write?
    pub(super) fn only_counts(&self, group: &Group) -> bool {
        let Some(o) = self.c.object(self.representative(group).object) else { return false };
        let counts = |k: ObjectKind| matches!(k, ObjectKind::EventFd | ObjectKind::TimerFd);
        let known = members(self.c, o).count() == o.members.len();
        match o.kind {
            ObjectKind::Set => {
                known
                    && members(self.c, o).any(|o| o.kind == ObjectKind::EventFd)
                    && members(self.c, o).all(|o| counts(o.kind))
            }
            k => k == ObjectKind::EventFd,
        }
    }

    /// Both ends of what it waits for are with its own process: the other thread there, or the only one that does
    /// something, is who would have had to act.
    pub(super) fn within(&self, thread: ThreadId, silent: &Spans) -> Option<Candidate> {
        let others = self.others_of(thread, silent);
        let at_work = |t: &&ThreadId| self.at_work_for(**t, silent) * 2 >= total(silent);
        let outside = |t: &&ThreadId| self.looks_outside(**t, silent);
        let one = |all: Vec<ThreadId>| if let [one] = all[..] { Some(one) } else { None };
        let (holder, how) = if let [only] = others[..] {
            (only, "it is the only other thread of that")
        } else if let Some(t) = one(others.iter().filter(at_work).copied().collect()) {
            (t, "it is the only other thread of that which does something")
        } else {
            let t = one(others.iter().filter(outside).copied().collect())?;
            (t, "it is the only other thread of that which waits for somebody outside")
        };
        let why = format!("no wake-up was recorded; the process has both ends of it, and {how}");
        Some(self.inside(holder, silent, why))
    }

    /// Who does something in a process whose event loop has nothing to do, though an answer is expected of it: it may have
    /// handed the work on.
    pub(super) fn handed_inside(&self, thread: ThreadId, spans: &Spans) -> Vec<Candidate> {
        let others = self.others_of(thread, spans);
        let mut all: Vec<_> = others.iter().map(|t| (self.at_work_for(*t, spans), *t)).collect();
        let half = |time: Ns| time * 2 >= total(spans);
        if !all.iter().any(|(time, _)| half(*time)) {
            // Who waits for a lock may be kept from its work, where nobody does any; so may who tries for something in vain.
            let kept = |t: ThreadId| self.locked_out(t, spans).max(self.tries_in_vain(t, spans));
            all = others.iter().map(|t| (kept(*t), *t)).collect();
        }
        if !all.iter().any(|(time, _)| half(*time)) {
            // One of several event loops may have asked for all of them (a limit of requests keeps the others).
            all = others.iter().map(|t| (self.asks_in_loop(*t, spans), *t)).collect();
        }
        if !all.iter().any(|(time, _)| half(*time)) {
            // It has a program do the work, and listens to that besides much else.
            all = others.iter().map(|t| (self.hears_child(*t, spans), *t)).collect();
        }
        all.retain(|(time, t)| half(*time) && !self.path.iter().any(|p| p.0 == *t));
        all.sort_by_key(|(time, t)| (std::cmp::Reverse(*time), *t));
        let loops = activity(self.g, self.c, thread, spans);
        let sleeps = |g: &Group| class(&self.representative(g), self.c) == WaitClass::Sleep;
        let parked = |g: &Group| self.parked(&self.representative(g));
        let why = if loops.waiting().is_some_and(parked) {
            "no wake-up was recorded; it does something in that process, whose first thread takes no part in anything"
        } else if loops.waiting().is_some_and(sleeps) {
            "no wake-up was recorded; it does something in that process, whose listener looked again and again whether it may accept"
        } else {
            "no wake-up was recorded; it does something in that process, whose event loop had nothing to do"
        };
        all.into_iter().map(|(_, t)| self.inside(t, spans, why.to_owned())).collect()
    }

    /// Who does something in a family of processes that share the memory in which the word lies that `thread` waits for:
    /// children of one process that execute the same program. Who has a lock there is not recorded.
    pub(super) fn in_family(&self, thread: ThreadId, group: &Group, spans: &Spans) -> Vec<Candidate> {
        let shared = self.c.object(self.representative(group).object).is_some_and(Object::is_shared_futex);
        let Some(own) = self.c.process_id_of(thread).filter(|_| shared) else {
            return Vec::new();
        };
        let kin = |t: ThreadId| self.c.thread(t).is_some_and(|t| self.c.serve_together(t.process, own));
        let free = |t: &ThreadId| *t != thread && self.counts(*t) && !self.path.iter().any(|p| p.0 == *t);
        let threads = self.g.threads().filter(|t| free(t) && kin(*t));
        let mut all: Vec<_> = threads.map(|t| (self.at_work_for(t, spans), t)).collect();
        all.retain(|(time, _)| time * 2 >= total(spans));
        all.sort_by_key(|(time, t)| (std::cmp::Reverse(*time), *t));
        let why = "no wake-up was recorded, and who has the lock is not known; of the processes that share it, it does something";
        all.into_iter().map(|(_, t)| self.inside(t, spans, why.to_owned())).collect()
    }

    /// Of the processes of a server that serve together, the one whose client is stopped, if there is one such: that is never
    /// what anybody means, and all may wait for its answer (a standby's).
    pub(super) fn kin_of_stopped(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let own = self.c.thread(thread)?.process;
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let stopped = |t: ThreadId| {
            let still = self.stood_still(t, spans);
            self.counts(t) && still > 0 && still * 2 >= total(spans)
        };
        let client = |t: ThreadId| {
            let holds = self.g.holds(t, a..b.saturating_add(1));
            let peers = holds.filter(|h| h.relation == Relation::Peer).map(|h| h.holder);
            peers.filter(|h| process(*h) != process(t)).any(stopped)
        };
        let mut all = self.siblings(own).filter(|t| client(*t));
        let one = all.next().filter(|_| all.next().is_none())?;
        let why = "no wake-up was recorded; of the processes that serve together with it, this is the one whose client is stopped";
        Some(self.inside(one, spans, why.to_owned()))
    }

    /// Threads of the other processes of a server that serve together with one, none of which is on the way.
    fn siblings(&self, own: ProcessId) -> impl Iterator<Item = ThreadId> + '_ {
        let kin = move |t: &ThreadId| {
            let other = self.c.process_id_of(*t).filter(|p| *p != own);
            other.is_some_and(|p| self.c.serve_together(p, own)) && !self.on_the_way(*t)
        };
        self.g.threads().filter(kin)
    }

    /// Of the processes that serve together with one, the only thread at work all the time.
    pub(super) fn sibling_at_work(&self, own: ProcessId, spans: &Spans) -> Option<ThreadId> {
        let works = |t: &ThreadId| self.counts(*t) && self.at_work_for(*t, spans) * 10 >= total(spans) * 9;
        let mut all = self.siblings(own).filter(works);
        all.next().filter(|_| all.next().is_none())
    }

    /// Who looks again and again, by time-outs of its own, whether it may go on: of the processes of a server that serve
    /// together with it, the one that is at work all the time, if there is one such. What they tell one another is in
    /// memory that they share, or in files.
    pub(super) fn kin_at_work(&self, thread: ThreadId, group: &Group, spans: &Spans) -> Option<Candidate> {
        let own = self.c.process_id_of(thread)?;
        let asks = group.waits > 1 && self.representative(group).timed_out;
        let one = self.sibling_at_work(own, spans).filter(|_| asks)?;
        let why = "no wake-up was recorded; of the processes that serve together with it, this is the only one at work all the time";
        Some(self.inside(one, spans, why.to_owned()))
    }

    /// The other threads of its process that were there.
    fn others_of(&self, thread: ThreadId, spans: &Spans) -> Vec<ThreadId> {
        let own = self.c.process_id_of(thread);
        let (a, b) = extent(spans);
        let there = |t: &ThreadId| {
            let born = self.g.vertices_of(*t).next().is_some_and(|v| self.g.vertex(v).start < b);
            *t != thread && self.counts(*t) && born && self.g.ended(*t).is_none_or(|e| e > a)
        };
        own.map_or_else(Vec::new, |p| self.g.threads_of(p).filter(there).collect())
    }

    /// For how long it ran, or waited for what only somebody else can bring.
    fn at_work_for(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        let busy = act.running + act.runnable;
        let from_child = act.waiting().filter(|g| self.reads_from_child(t, g)).map(|g| g.blocked);
        from_child.unwrap_or_else(|| busy.max(self.owing(t, spans)))
    }

    /// Does it wait for what a child of its process writes, into a pipe or one of a pair of sockets in its place?
    pub(super) fn reads_from_child(&self, t: ThreadId, group: &Group) -> bool {
        let v = self.representative(group);
        let pair = |o: &Object| o.kind == ObjectKind::UnixStream && o.name.is_empty();
        let output = |o: &Object| o.kind == ObjectKind::Pipe || pair(o);
        let pipe = self.c.object(v.object).is_some_and(|o| {
            // Counters tell of signals and time.
            let inner = |o: &Object| {
                matches!(o.kind, ObjectKind::EventFd | ObjectKind::SignalFd | ObjectKind::TimerFd)
            };
            output(o) || members(self.c, o).any(output) && members(self.c, o).all(|m| output(m) || inner(m))
        });
        let its_end = |h: &HoldFact| match h.relation {
            Relation::Writes => true,
            Relation::Peer => self.c.object(h.object).is_some_and(pair),
            _ => false,
        };
        let own = self.c.process_id_of(t);
        let (a, b) = group.extent();
        let parent = |t: ThreadId| self.c.process_of(t).map(|p| p.parent);
        matches!(class(&v, self.c), WaitClass::Channel | WaitClass::EventLoop)
            && pipe
            && self
                .g
                .holds(t, a..b.saturating_add(1))
                .any(|h| its_end(&h) && parent(h.holder) == own && own.is_some())
    }

    /// The only other thread of its process that listens to a program which the process runs, or waits for an answer to what
    /// the process asked, where the others wait for whatever comes: what `thread` waits for comes after that, most likely.
    pub(super) fn looks_after(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let half = |time: Ns| time * 2 >= total(spans);
        let free = |t: &ThreadId| !self.on_the_way(*t);
        let one = |outside: &dyn Fn(ThreadId) -> Ns| {
            let mut all =
                self.others_of(thread, spans).into_iter().filter(free).filter(|t| half(outside(*t)));
            all.next().filter(|_| all.next().is_none())
        };
        let child = |t| self.hears_child(t, spans);
        let answer = |t| self.expects_answer(t, spans);
        let (t, whom) = one(&child)
            .map(|t| (t, "a program that the process runs"))
            .or_else(|| one(&answer).map(|t| (t, "of whom the process asked something")))?;
        let why = format!(
            "who owns the futex is not recorded; it is the only thread of the process that waits for somebody outside, {whom}"
        );
        Some(self.inside(t, spans, why))
    }

    /// For how long it waited in an event loop, which watches a connection over which its process (whichever thread) asked and
    /// had no answer.
    fn expects_answer(&self, t: ThreadId, spans: &Spans) -> Ns {
        const LOOKED_AT: usize = 4096;
        let act = activity(self.g, self.c, t, spans);
        let loops = |g: &&Group| class(&self.representative(g), self.c) == WaitClass::EventLoop;
        let (Some(g), Some(process)) = (act.waiting().filter(loops), self.c.process_id_of(t)) else {
            return 0;
        };
        let until = spans.last().map_or(0, |s| s.1);
        let o = self.representative(g).object;
        let members = self.c.object(o).map_or(&[][..], |o| &o.members);
        let asked = |o: &ObjectId| {
            let last = |t: ThreadId| {
                let all = self.g.ipc_of(t, 0..until);
                let m = all.iter().rev().take(LOOKED_AT).find(|m| m.what.object == *o);
                m.map(|m| (m.time, m.what.direction == Direction::Send))
            };
            let last = self.g.threads_of(process).filter_map(last).max();
            connected(self.c, *o) && last.is_some_and(|(_, sent)| sent)
        };
        if members.iter().chain([&o]).any(asked) { g.blocked } else { 0 }
    }

    /// For how long it waited in an event loop, among other things for what a descendant of its process writes into a pipe, or
    /// sends over a pair of sockets.
    fn hears_child(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        let own = self.c.process_id_of(t);
        let below = |h: &crate::HoldFact| {
            let process = self.c.process_id_of(h.holder);
            process.is_some_and(|p| self.c.ancestors(p).any(|a| Some(a) == own))
        };
        let (a, b) = extent(spans);
        let mut holds = self.g.holds(t, a..b.saturating_add(1));
        let hears = holds.any(|h| matches!(h.relation, Relation::Writes | Relation::Peer) && below(&h));
        act.waiting().filter(|_| hears).map_or(0, |g| {
            let loops = class(&self.representative(g), self.c) == WaitClass::EventLoop;
            if loops { g.blocked } else { 0 }
        })
    }

    /// Has it waited for nothing since before the recording, in a poll without descriptors that does not end? A program's
    /// first thread does that when others do all the work.
    pub(super) fn parked(&self, v: &Vertex) -> bool {
        let polls = class(v, self.c) == WaitClass::Sleep && v.syscall.is_any(crate::class::POLLS);
        let others = self.c.thread(v.thread).is_some_and(|t| self.g.threads_of(t.process).nth(1).is_some());
        polls && v.begun_before && v.open && others
    }

    /// For how long it waited for what is a lock by the names of the functions.
    fn locked_out(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().map_or(0, |g| {
            let v = self.representative(g);
            let semaphore = semaphore_for_lock(&v, self.c) && !self.waits_in_library(&v);
            if self.for_lock(g) || semaphore { g.blocked } else { 0 }
        })
    }

    /// For how long it slept between calls that failed.
    fn tries_in_vain(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        let in_vain = |g: &&Group| self.refused(g, class(&self.representative(g), self.c)).is_some();
        act.waiting().filter(in_vain).map_or(0, |g| g.blocked)
    }

    /// For how long it waited in an event loop, and somebody whom it had asked did not answer.
    fn asks_in_loop(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().map_or(0, |g| {
            let loops = class(&self.representative(g), self.c) == WaitClass::EventLoop;
            if loops && g.longest().is_some_and(|l| asked(self.g, self.c, l.last)) { g.blocked } else { 0 }
        })
    }

    /// Is it a function of Python's own library that waits (for a condition, for work)? That is made of locks.
    fn waits_in_library(&self, v: &Vertex) -> bool {
        const FILES: [&str; 3] = ["threading.py", "queue.py", "thread.py"];
        let modules = self.c.frames_of(v.user_stack).filter_map(|f| self.c.modules.get(f.module.index()));
        let nearest = modules.into_iter().find(|m| m.kind == ModuleKind::Python);
        nearest.is_some_and(|m| FILES.iter().any(|f| m.path.rsplit('/').next() == Some(f)))
    }

    /// Does the thread have nothing to do but what comes from anybody: in an event loop, at a socket that listens, or as it
    /// carries messages for others? Of a unix socket without a peer that is so in a process that has connections by its name.
    pub(super) fn serves_anybody(&self, v: &Vertex) -> bool {
        let listens = |o: &Object| o.kind == ObjectKind::UnixStream && o.peer == 0 && !o.name.is_empty();
        let Some(o) = self.c.object(v.object) else { return false };
        class(v, self.c) == WaitClass::EventLoop
            || listens(o)
            || self.carries(v)
            || members(self.c, o).any(listens)
                && members(self.c, o).all(|o| listens(o) || o.kind == ObjectKind::EventFd)
    }

    /// Does it wait as a thread that carries messages for others of its process: over connections, and for an event counter by
    /// which these tell it that there is something to send?
    pub(super) fn carries(&self, v: &Vertex) -> bool {
        let Some(set) = self.c.object(v.object) else { return false };
        let kinds = || members(self.c, set).map(|o| o.kind);
        let connection = |k| matches!(k, ObjectKind::Tcp | ObjectKind::UnixStream);
        kinds().count() == set.members.len()
            && kinds().any(connection)
            && kinds().any(|k| k == ObjectKind::EventFd)
            && kinds().all(|k| connection(k) || k == ObjectKind::EventFd)
    }

    /// Does it mostly wait for an answer over one connection, which it made to `thread`? Over a unix socket for nothing
    /// beside: buses and display servers hand requests on to who connected to them, and who expects these has more to watch.
    pub(super) fn waits_at_other_end(&self, t: ThreadId, thread: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        let Some(v) = act.waiting().map(|g| self.representative(g)) else { return false };
        let Some(own) = self.c.object(v.object) else { return false };
        let asks = own.members.iter().chain([&v.object]).filter(|o| connected(self.c, **o));
        let asks = asks.filter_map(|o| self.c.object(*o));
        let asks: Vec<_> =
            asks.filter(|o| o.kind != ObjectKind::UnixStream || own.members.len() < 2).collect();
        class(&v, self.c) == WaitClass::Channel && self.is_at_other_end(&asks, thread, spans)
    }

    /// Does a wait look at the other end of a connection that `thread` waits at?
    pub(super) fn looks_at_other_end(&self, v: &Vertex, thread: ThreadId, spans: &Spans) -> bool {
        let Some(own) = self.c.object(v.object) else { return false };
        let all: Vec<_> = members(self.c, own).chain([own]).collect();
        self.is_at_other_end(&all, thread, spans)
    }

    /// Is one of these the other end of what `thread` was found to wait at?
    fn is_at_other_end(&self, of: &[&Object], thread: ThreadId, spans: &Spans) -> bool {
        let (a, b) = extent(spans);
        let mut ends = self.g.holds(thread, a..b.saturating_add(1)).filter_map(|h| self.c.object(h.object));
        ends.any(|e| of.iter().any(|o| o.is_other_end_of(e)))
    }

    /// The thread of the process of `holder` that waits for what comes over one of the other ends of these.
    pub(super) fn watcher(&self, holder: ThreadId, ends: &[ObjectId], spans: &Spans) -> Option<ThreadId> {
        let own: Vec<_> = ends.iter().filter_map(|o| self.c.object(*o)).collect();
        let other = |o: &Object| own.iter().any(|e| e.is_other_end_of(o));
        let watches = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            let o = act.waiting().and_then(|g| self.c.object(self.representative(g).object));
            o.is_some_and(|o| other(o) || members(self.c, o).any(other))
        };
        let process = self.c.process_id_of(holder)?;
        if watches(&holder) { None } else { self.g.threads_of(process).find(watches) }
    }

    /// The thread of the process of `holder` that waited last for what comes over one of the other ends of these, and was woken
    /// by the process of `by`: it took what that sent, where the message itself was not recorded.
    pub(super) fn woken_over(
        &self,
        holder: ThreadId,
        by: ThreadId,
        ends: &[ObjectId],
        until: Ns,
    ) -> Option<ThreadId> {
        const LOOKED_AT: usize = 256;
        let own: Vec<_> = ends.iter().filter_map(|o| self.c.object(*o)).collect();
        let other = |o: &Object| o.kind.is_channel() && own.iter().any(|e| e.is_other_end_of(o));
        let process = |t: ThreadId| self.c.process_id_of(t);
        let last = |t: ThreadId| {
            let mut waits = self.g.vertices_in(t, 0..until).rev().take(LOOKED_AT);
            let id = waits.find(|id| {
                let over = self.c.object(self.g.vertex(*id).object);
                let waker = self.g.waking(*id).map(|e| self.g.vertex(self.g.edge(e).from).thread);
                over.is_some_and(|o| other(o) || members(self.c, o).any(other))
                    && waker.is_some_and(|w| process(w) == process(by))
            })?;
            Some((self.g.vertex(id).woken, t))
        };
        self.g.threads_of(process(holder)?).filter_map(last).max().map(|x| x.1)
    }

    /// Does it mostly wait for what comes over a connection, besides what its own process tells it?
    fn looks_outside(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        let Some(o) = act.waiting().and_then(|g| self.c.object(self.representative(g).object)) else {
            return false;
        };
        let connection = |o: &Object| {
            matches!(o.kind, ObjectKind::Tcp | ObjectKind::Udp | ObjectKind::UnixStream) && o.peer != 0
        };
        connection(o) || members(self.c, o).any(connection)
    }

    fn inside(&self, holder: ThreadId, spans: &Spans, why: String) -> Candidate {
        let (a, b) = extent(spans);
        let vertex = self.g.vertex_at(holder, b.saturating_sub(1));
        Candidate::unseen(holder, spans.clone(), (vertex, a), why)
    }
}
