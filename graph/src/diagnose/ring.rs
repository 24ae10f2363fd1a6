//! The way comes back to a thread that is on it: a circle of waits, or somebody in it who idles.

use super::activity::{Group, Spans, activity};
use super::answerless::relation_words;
use super::ask::Candidate;
use super::data_flag::DATA_FLAG;
use super::finding::{Finding, FindingKind};
use super::node::{Entry, SliceNode};
use super::sessions::waits_for_lock;
use super::walk::Walk;
use crate::class::{WaitClass, asked, class, vague};
use crate::{EdgeKind, EventGraph, HoldFact, Vertex, VertexId, Weak};
use pg_event::{Catalog, Ns, ObjectId, ObjectKind, POLLS, Relation, ThreadId};

/// By what a thread keeps itself waiting in this time: the word of the lock that it wants names it, it has the file locked
/// already, it alone serves the file system, or the connection on
/// which it waits is to a socket at which it listens itself, or it alone has the other end of a pipe or connection. `None` when another one is there to act, too.
pub(crate) fn keeps_itself(g: &EventGraph, c: &Catalog, t: ThreadId, (a, b): (Ns, Ns)) -> Option<Relation> {
    let process = |t: ThreadId| c.process_id_of(t);
    let own = process(t)?;
    let lived = |x: &ThreadId| c.thread(*x).is_some_and(|x| x.start <= b && x.end.is_none_or(|e| e > a));
    let mut found = None;
    let alone = || g.threads_of(own).filter(lived).count() == 1;
    let waits = |h: &HoldFact| g.vertex_at(t, h.time).map(|v| g.vertex(v)).filter(|v| v.object == h.object);
    for h in g.holds(t, a..b.saturating_add(1)) {
        let by = match h.relation {
            // Who has a lock of a file may have another part of it.
            Relation::Owns if c.object(h.object).is_some_and(|o| o.kind == ObjectKind::Futex) => {
                h.holder == t
            }
            // ... but flock(2) locks all of it, for who opened it that time.
            Relation::Owns => h.holder == t && waits(&h).is_some_and(|v| v.syscall.is_any(&["flock"])),
            Relation::Serves => h.holder == t && alone(),
            // Who has a socket, or the end of a pipe from which it would have to read, is known by process only.
            Relation::Listens | Relation::Reads | Relation::Writes | Relation::Peer => {
                // What it watches beside, or in an event loop, may be its own means to tell itself.
                let own_end = || waits(&h).is_some_and(|v| !v.syscall.is_any(&POLLS));
                let end = matches!(h.relation, Relation::Listens | Relation::Reads) || own_end();
                end && h.holder == t && alone()
            }
            _ => false,
        };
        if !by || found.is_some_and(|f| f != h.relation) {
            return None;
        }
        found = Some(h.relation);
    }
    found
}

impl Walk<'_> {
    /// The thread is on the way already. When every step of the ring must be ended by the next one, it waits
    /// for itself in the end; else somebody in it idles, and was expected to act.
    pub(super) fn ring(&mut self, thread: ThreadId, spans: &Spans, entry: Entry) {
        // Its end let the server go on: that one had not waited for anything that this one waits for itself.
        if let Some(n) = self.out.nodes.last().filter(|n| n.edge == Some(EdgeKind::Exit))
            && self.serves_all(thread, spans)
        {
            let (thread, spans) = (n.thread, vec![(n.start, n.start + n.duration)]);
            self.found(thread, FindingKind::Unanswered, spans);
            return;
        }
        self.out.ring = true;
        let Some(from) = self.out.nodes.iter().position(|n| n.thread == thread) else { return };
        // The last one waits to write to the first one, which waits for whatever comes and does not read that.
        let full = self.out.nodes.last().is_some_and(|n| {
            n.state == "blocked" && class(&self.g.vertex(n.vertex), self.c) == WaitClass::Room
        });
        let idle = (from..self.out.nodes.len()).rev().find(|&i| {
            let n = &self.out.nodes[i];
            let first = self.first_of(n);
            let v = self.g.vertex(n.vertex);
            let obliged = class(&v, self.c).obliges(asked(self.g, self.c, first)) && !vague(&v, self.c);
            // A server waits for its own locks, and in the middle of a statement, by its event loop's means.
            let obliged = obliged || waits_for_lock(n) || self.executes(n.thread, n.start + n.duration);
            let obliged = obliged || self.wants_room(n, &v) || !full && self.hears_child_of(n);
            let obliged = obliged || self.kept_open_by_parents(i, from) || self.is_session(i);
            let obliged = obliged || self.calls_over_bus(n.thread, &vec![(n.start, n.start + n.duration)]);
            let next = self.out.nodes.get(i + 1);
            // Who waits for signals may wait for a child's end by them.
            let child = relation_words(Relation::ChildOf);
            let obliged =
                obliged || next.is_some_and(|x| x.why_weak.as_deref().is_some_and(|w| w.contains(child)));
            let sole = next.map_or(entry.sole, |next| next.sole || self.only_two(n, next));
            let sole = sole || full && self.hears_of(n, &v, next);
            let flag = n.waits_on.as_deref() == Some(DATA_FLAG);
            n.state != "not-created" && n.state != "exited" && !obliged && !sole && !flag
        });
        // Nobody asked anybody: each waits for the other to begin. Or others could act, too, and wait for these.
        let end = spans.last().map_or(0, |s| s.1);
        let circle = |w: &Self| w.all_wait_to_begin(from) || w.nobody_left(thread, end);
        let Some(idle) = idle.filter(|_| !circle(self)) else {
            return self.circular(thread, spans, entry);
        };
        let last = self.out.nodes.len() - 1;
        let by_timer = self.goes_on_by_timer(last);
        let mut find = |node: usize, kind| {
            let n = &self.out.nodes[node];
            let spans = vec![(n.start, n.start + n.duration)];
            self.out.findings.push(Finding { thread: n.thread, node, kind, spans });
        };
        // That it was there to be told does not explain the time: it had set that itself, and then went on.
        if idle < last && by_timer {
            return find(last, FindingKind::Idle);
        }
        if idle == 0 {
            return find(if full { last } else { 0 }, FindingKind::Unanswered);
        }
        find(idle, FindingKind::Idle);
        find(idle - 1, FindingKind::Unanswered);
    }

    /// Did a time-out of its own end what the step waited for, whereupon it ended the wait of the step before?
    fn goes_on_by_timer(&self, step: usize) -> bool {
        let Some(before) = step.checked_sub(1).and_then(|i| self.out.nodes.get(i)) else { return false };
        let waking = self.g.waking(before.vertex).map(|id| self.g.vertex(self.g.edge(id).from));
        let own = |v: &Vertex| v.thread == self.out.nodes[step].thread && v.timed_out;
        waking.is_some_and(|v| own(&v) && v.waited().saturating_mul(2) >= before.spent)
    }

    /// Does the step, whose process has not accepted what the one before asks, or serves its file system, wait for the output of
    /// a child of its process?
    fn hears_child_of(&self, n: &SliceNode) -> bool {
        let owes = [Relation::Listens, Relation::Serves].map(relation_words);
        if !n.why_weak.as_deref().is_some_and(|w| owes.iter().any(|o| w.contains(o))) {
            return false;
        }
        let act = activity(self.g, self.c, n.thread, &[(n.start, n.start + n.duration)]);
        act.waiting().is_some_and(|g| self.reads_from_child(n.thread, g))
    }

    /// Does the step wait for a futex of its process, in which only the next step's thread is left to wake it?
    fn only_two(&self, n: &SliceNode, next: &SliceNode) -> bool {
        const PRIVATE: u32 = 128;
        let v = self.g.vertex(n.vertex);
        let futex = self.c.object(v.object).is_some_and(|o| o.kind == ObjectKind::Futex);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let Some(own) = process(n.thread).filter(|p| process(next.thread) == Some(*p)) else { return false };
        // Others had ended when the wait began.
        let left = |t: &ThreadId| self.counts(*t) && self.g.exited(*t).is_none_or(|x| x.0 > n.start);
        futex
            && v.op & PRIVATE != 0
            && n.thread != next.thread
            && self.g.threads_of(own).filter(left).count() == 2
    }

    /// Does a step ask by `poll` or its kin for room in a pipe, and for nothing else? What it was found to watch of other
    /// processes are pipes of which they have the reading end, and it has something to write.
    fn wants_room(&self, n: &SliceNode, v: &Vertex) -> bool {
        let kind = |o: ObjectId| self.c.object(o).map(|o| o.kind);
        let watched = self.c.object(v.object).map_or(&[][..], |o| &o.members);
        let watched = || watched.iter().copied().chain([v.object]);
        let pipes = || watched().filter(|o| kind(*o) == Some(ObjectKind::Pipe));
        // A counter of its own process tells it to stop.
        let beside = |k| matches!(k, ObjectKind::Pipe | ObjectKind::EventFd | ObjectKind::Set);
        let mut found = self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1)).peekable();
        class(v, self.c) == WaitClass::Channel
            && watched().all(|o| kind(o).is_some_and(beside))
            && found.peek().is_some()
            && found.all(|h| h.relation == Relation::Reads && pipes().any(|o| o == h.object))
    }

    /// Does a step wait at one pipe of which nobody but the next step's process was found to have the writing end? Its end is
    /// what many learn by such a pipe (the sentinels of Python's `multiprocessing`).
    fn hears_of(&self, n: &SliceNode, v: &Vertex, next: Option<&SliceNode>) -> bool {
        let kind = self.c.object(v.object).map(|o| o.kind);
        let writer = next.and_then(|x| self.c.process_id_of(x.thread));
        let mut found = self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1)).peekable();
        kind == Some(ObjectKind::Pipe)
            && found.peek().is_some()
            && found.all(|h| {
                let held = h.relation == Relation::Writes && h.object == v.object;
                held && self.c.process_id_of(h.holder) == writer
            })
    }

    /// Does the step wait at a pipe of which only processes of the ring were found to have the writing end, all of which wait for
    /// its end, or for that of one that does? They keep the pipe open until it has ended, and it reads until they close it.
    fn kept_open_by_parents(&self, step: usize, from: usize) -> bool {
        let ring = &self.out.nodes[from..];
        let n = &self.out.nodes[step];
        let v = self.g.vertex(n.vertex);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let pipe = self.c.object(v.object).is_some_and(|o| o.kind == ObjectKind::Pipe);
        let end = (n.start + n.duration).saturating_add(1);
        let found: Vec<_> = self.g.holds(n.thread, n.start..end).filter(|h| h.object == v.object).collect();
        let ancestors: Vec<_> = process(n.thread).into_iter().flat_map(|p| self.c.ancestors(p)).collect();
        let others = ring.iter().filter(|o| o.thread != n.thread);
        pipe && !found.is_empty()
            && found.iter().all(|h| {
                h.relation == Relation::Writes && ring.iter().any(|o| process(o.thread) == process(h.holder))
            })
            && others.filter_map(|o| process(o.thread)).all(|p| ancestors.contains(&p))
    }

    /// Do all steps from `from` on wait for data on one channel, without a request of their own?
    pub(super) fn all_wait_to_begin(&self, from: usize) -> bool {
        self.out.nodes[from..].iter().all(|n| {
            let v = self.g.vertex(n.vertex);
            n.state == "blocked"
                && class(&v, self.c) == WaitClass::Channel
                && !asked(self.g, self.c, self.first_of(n))
        })
    }

    /// The vertex that leads in with the first wait of a step.
    pub(super) fn first_of(&self, n: &SliceNode) -> VertexId {
        let key = crate::episode::wait_key(&self.g.vertex(n.vertex), self.c);
        self.g
            .vertices_in(n.thread, n.start..n.start + n.duration)
            .find(|v| crate::episode::wait_key(&self.g.vertex(*v), self.c) == key)
            .unwrap_or(n.vertex)
    }

    /// Does the thread wait for what only it could bring? Then it is a circle of one.
    pub(super) fn waits_for_itself(&mut self, thread: ThreadId, group: &Group, silent: &Spans) -> bool {
        let v = self.representative(group);
        // Whoever watches the socket at which it listens, too, is woken by the connection.
        let Some(within) = silent.first().zip(silent.last()).map(|(a, b)| (a.0, b.1)) else { return false };
        if vague(&v, self.c) || class(&v, self.c) == WaitClass::EventLoop {
            return false;
        }
        let why = match keeps_itself(self.g, self.c, thread, within) {
            Some(by) => format!("{}: {}", Weak::FromState.words(), relation_words(by)),
            None if self.locked_by_handler(thread, group, silent) => {
                "no wake-up was recorded, nor who owns the lock; it waits in the handler of a signal, and what that interrupted goes on only when it returns".into()
            }
            None => return false,
        };
        self.out.ring = true;
        let entry = Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why), ..Entry::default() };
        self.circular(thread, silent, entry);
        true
    }

    /// Another thread of the process that waits for the same lock in the handler of a signal: what that interrupted has the lock,
    /// most likely.
    pub(super) fn locked_in_handler(
        &self,
        thread: ThreadId,
        group: &Group,
        silent: &Spans,
    ) -> Option<Candidate> {
        let v = self.representative(group);
        let (own, end) = (self.c.process_id_of(thread)?, silent.last()?.1);
        if class(&v, self.c) != WaitClass::Lock || !self.private_futex(group) {
            return None;
        }
        let same = |t: &ThreadId| {
            let w = self.g.vertex_at(*t, end.saturating_sub(1)).map(|w| self.g.vertex(w));
            let waits =
                |w: &Vertex| w.object == v.object && w.woken >= end && w.waited() >= super::stuck::CLOSED;
            w.is_some_and(|w| waits(&w) && crate::handler::handler(self.c, w.user_stack).is_some())
        };
        let free = |t: &ThreadId| *t != thread && !self.path.iter().any(|p| p.0 == *t);
        let t = self.g.threads_of(own).find(|t| free(t) && same(t))?;
        let at = self.g.vertex_at(t, end.saturating_sub(1));
        let why = "no wake-up was recorded, nor who owns the lock; it wants the lock in the handler of a signal, and what that interrupted goes on only when it returns";
        Some(Candidate::unseen(t, silent.clone(), (at, silent.first()?.0), why))
    }

    /// Does it wait for a lock of its process within the handler of a signal, while no other thread there works? The function that
    /// was interrupted has the lock, most likely: handlers may only call what needs none (signal-safety(7)).
    fn locked_by_handler(&self, thread: ThreadId, group: &Group, silent: &Spans) -> bool {
        let v = self.representative(group);
        let lasts = super::activity::total(silent) >= super::stuck::CLOSED && !v.timed_out;
        let in_handler = crate::handler::handler(self.c, v.user_stack).is_some();
        in_handler
            && lasts
            && class(&v, self.c) == WaitClass::Lock
            && self.private_futex(group)
            && self.one_that_runs(thread, group, silent).is_none()
    }

    /// The thread is on the way already: it waits for itself in the end.
    pub(super) fn circular(&mut self, thread: ThreadId, spans: &Spans, entry: Entry) {
        let Some(at) = self.out.nodes.iter().position(|n| n.thread == thread) else { return };
        let last = self.out.nodes.len() - 1;
        self.out.nodes.push(SliceNode { why_weak: None, ..self.out.nodes[at].clone() }.entered(entry));
        // The last one before the circle closes is what a person can act on, then the closing one.
        let mut two = vec![last, at];
        two.dedup_by_key(|i| self.out.nodes[*i].thread);
        // ... but where each waits to hear of the other, whoever began later to do so.
        let hears =
            |i: &usize| class(&self.g.vertex(self.out.nodes[*i].vertex), self.c) == WaitClass::Channel;
        let begun = |i: usize| self.g.vertex(self.first_of(&self.out.nodes[i])).start;
        if two.iter().all(hears) && begun(at) > begun(last) {
            two.reverse();
        }
        for node in two {
            let (kind, spans) = (FindingKind::Circular, spans.clone());
            self.out.findings.push(Finding { thread: self.out.nodes[node].thread, node, kind, spans });
        }
    }
}
