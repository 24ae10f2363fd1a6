//! Whom an event loop waits for: it has connections with many, and has asked a few.

use super::activity::{Group, Spans, activity, extent};
use super::ask::Candidate;
use super::handed::AT_ONCE;
use super::walk::{Walk, group_spans};
use crate::class::{WaitClass, accepted, class, connected, members, only_listens, owed, owed_or_greeted};
use crate::episode::times_put_off;
use crate::words::span;
use crate::{EdgeKind, HoldFact};
use pg_event::{Direction, Ns, Object, ObjectId, ObjectKind, ProcessId, Relation, ThreadId};
use std::collections::HashSet;

impl Walk<'_> {
    /// Of those that hold an end of what an event loop watches, those that it waits for: whoever serves many waits for those
    /// that it asked something, not for all that it has a connection with. `by_timer`: its own time-out ends its waits.
    pub(super) fn asked_by_loop(
        &mut self,
        thread: ThreadId,
        group: &Group,
        silent: &Spans,
        mut holders: Vec<Candidate>,
        by_timer: bool,
    ) -> Vec<Candidate> {
        let why = "it is a program at a terminal of a server, which waits for whoever connects to that";
        let own = holders.extract_if(.., |c| self.at_its_terminal(group, thread, c, silent));
        let own: Vec<_> = own.collect();
        self.out.rejected.extend(own.into_iter().map(|c| (c.thread, why.to_owned())));
        let owed = self.owed_in(thread, group, silent);
        let asked = self.asked_processes(thread, &owed, silent);
        let asked = |c: &Candidate| asked.contains(&self.c.process_id_of(c.thread));
        let (mut kept, others): (Vec<_>, Vec<_>) = holders.into_iter().partition(asked);
        if let Some(o) = self.asked_by_datagram(thread, &owed, &kept, silent)
            && let Some(n) = self.out.nodes.last_mut()
        {
            n.object = Some(o);
        }
        if !kept.is_empty() || by_timer {
            self.only_asked(thread, silent, &mut kept, others);
            return kept;
        }
        // Whoever waits for this one itself brings it nothing.
        let (mut behind, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|c| self.waits_at_other_end(c.thread, thread, silent));
        // ... which a helper does by pipes. Where nobody else is there, one of the two waits for what was lost.
        let (helpers, mut others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|c| self.reads_what_it_writes(c, thread, silent));
        if others.is_empty() {
            others = helpers;
        } else {
            behind.extend(helpers);
        }
        let (mute, others): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|c| (!behind.is_empty() || self.started_by(thread, c)) && self.only_heeds_signals(c));
        let why = "it waits for an answer itself, at the other end of a connection with it";
        self.out.rejected.extend(behind.into_iter().map(|c| (c.thread, why.to_owned())));
        let why = "it waits for signals, and sends nothing";
        self.out.rejected.extend(mute.into_iter().map(|c| (c.thread, why.to_owned())));
        // What was asked before the recording it may have handed on to any of them.
        let asker = self.path.len().checked_sub(2).map(|i| self.path[i].0);
        if asker.is_some_and(|t| self.waits_from_before(t, silent).is_some()) {
            let works = |c: &&Candidate| self.works_late(c, thread, silent);
            let (clients, mut works): (Vec<_>, Vec<_>) =
                others.iter().filter(works).cloned().partition(|c| self.is_client_of(c, thread, silent));
            if works.is_empty() {
                works = clients;
                // They may have asked it for something, and the others may have been asked and idle.
                let doubt =
                    if others.iter().all(|c| self.is_client_of(c, thread, silent)) { 0.0 } else { 0.3 };
                for c in &mut works {
                    c.entry.doubt = doubt;
                }
            }
            if !works.is_empty() {
                return works;
            }
        }
        // Its other clients bring it requests, not answers.
        let (clients, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|c| self.is_client_of(c, thread, silent));
        if others.is_empty() {
            return clients;
        }
        let late = self.asked_late(thread, silent);
        let idles = |c: &Candidate| late.is_some_and(|of_bus| self.idle_client(c, thread, of_bus, silent));
        let (idle, others): (Vec<_>, Vec<_>) = others.into_iter().partition(idles);
        let why = "it idles at its own connection with this one, and what others had asked before the recording is not known";
        self.out.rejected.extend(idle.into_iter().map(|c| (c.thread, why.to_owned())));
        let why = "it is another client of this one, which asked it nothing";
        self.out.rejected.extend(clients.into_iter().map(|c| (c.thread, why.to_owned())));
        others
    }

    /// Was the step before answered again and again when a time-out of this server had passed, and asked again? What it asks
    /// for is not there yet.
    pub(super) fn puts_off(&self) -> bool {
        let Some(n) = self.out.nodes.len().checked_sub(2).map(|i| &self.out.nodes[i]) else { return false };
        times_put_off(self.g, self.c, &self.g.vertex(n.vertex), (n.start, n.start + n.duration)) > 1
    }

    /// Of those that a server is connected with, the one that is at work, and may have what another one asks for. Of several
    /// nobody can tell which.
    pub(super) fn only_at_work(&mut self, server: ThreadId, silent: &Spans, holders: &mut Vec<Candidate>) {
        let idle: Vec<_> = holders.extract_if(.., |c| self.takes_nothing_on(c, server, silent)).collect();
        let why = "it idles, or waits for this server itself";
        self.out.rejected.extend(idle.into_iter().map(|c| (c.thread, why.to_owned())));
        if let [one] = &mut holders[..] {
            one.entry.doubt = 0.3;
            return;
        }
        let why = "it is one of several that may have what was asked for";
        self.out.rejected.extend(holders.drain(..).map(|c| (c.thread, why.to_owned())));
    }

    /// Is it at work, though nobody knows for whom, or does it wait for what comes over a connection that it made to somebody
    /// else than `server`, and for nothing beside?
    fn works_late(&self, c: &Candidate, server: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, c.thread, spans);
        let v = act.waiting().map(|g| self.representative(g));
        let channel = v.filter(|v| class(v, self.c) == WaitClass::Channel);
        let asks = channel.map_or_else(
            || self.at_work(c.thread, spans),
            |v| connected(self.c, v.object) && !self.looks_at_other_end(&v, server, spans),
        );
        asks && !self.takes_nothing_on(c, server, spans)
    }

    /// Does it idle, sleep, or wait for this server itself?
    fn takes_nothing_on(&self, c: &Candidate, server: ThreadId, silent: &Spans) -> bool {
        let act = self.meanwhile(c);
        let own = act.waiting().map(|g| class(&self.representative(g), self.c));
        self.is_idle(c)
            || matches!(own, Some(WaitClass::Sleep | WaitClass::Condition))
            || self.waits_at_other_end(c.thread, server, silent)
    }

    /// Nobody is known to have been answered by this server, which had asked others than who let it turn, or was only asked by those:
    /// what they told it led to nothing. A thread of its own process may have done what was asked.
    pub(super) fn told_by_others(&self, thread: ThreadId, group: &Group, candidates: &[Candidate]) -> bool {
        let unanswered = self.out.nodes.last().is_some_and(|n| n.edge == Some(EdgeKind::Holder));
        if candidates.is_empty() || self.path.len() < 2 || !unanswered {
            return false;
        }
        let process = |t: ThreadId| self.c.process_id_of(t);
        if candidates.iter().any(|c| process(c.thread) == process(thread)) {
            return false;
        }
        let spans = group_spans(group);
        let mut owed = self.owed_in(thread, group, &spans);
        owed.retain(|o| self.answers_come_over(thread, *o, extent(&spans)));
        if owed.is_empty() {
            // Its clients ask it for something.
            let asks = |c: &Candidate| self.on_the_way(c.thread) || self.comes_as_client(c, thread);
            return candidates.iter().all(asks);
        }
        let asked = self.asked_processes(thread, &owed, &spans);
        let of_asked = |asked: &HashSet<_>| candidates.iter().any(|c| asked.contains(&process(c.thread)));
        if !of_asked(&asked) {
            return true;
        }
        // What it asks somebody again and again, and is told, is beside: one that it had asked before has not answered yet.
        owed.retain(|o| self.owes_since(thread, *o, &spans));
        !owed.is_empty() && !of_asked(&self.asked_processes(thread, &owed, &spans))
    }

    /// Had this connection been asked over before, and came nothing over it in all this time, while who has its other end is at
    /// work?
    fn owes_since(&self, thread: ThreadId, over: ObjectId, spans: &Spans) -> bool {
        let (a, b) = extent(spans);
        let silent =
            self.g.ipc_of(thread, a.saturating_add(AT_ONCE)..b).iter().all(|m| m.what.object != over);
        let at_work = |h: &HoldFact| {
            let process = self.c.process_id_of(h.holder);
            process.is_some_and(|p| self.g.threads_of(p).any(|t| self.at_work(t, spans)))
        };
        let mut held = self.g.holds(thread, a..b.saturating_add(1));
        silent && held.any(|h| h.object == over && h.relation == Relation::Peer && at_work(&h))
    }

    /// Did it let `server` turn by what it sent over a connection that it made to it?
    fn comes_as_client(&self, c: &Candidate, server: ThreadId) -> bool {
        let Some(e) = c.entry.id.map(|id| self.g.edge(id)) else { return false };
        let of_server = self.g.vertex(e.to).thread == server;
        let comes = accepted(self.c, e.object) || connected(self.c, e.object);
        let listens = self.c.object(e.object).is_some_and(|o| only_listens(self.c, o));
        e.kind == EdgeKind::Ipc && of_server && (comes || listens)
    }

    /// Is a connection one over which answers come, or was it asked over for the first time in the turn in which this wait began?
    /// What only ever is sent is a log.
    fn answers_come_over(&self, thread: ThreadId, over: ObjectId, (a, b): (Ns, Ns)) -> bool {
        const LOOKED_AT: usize = 4096;
        let before = self.g.ipc_of(thread, 0..b).iter().rev().take(LOOKED_AT);
        let mut of = before.filter(|m| m.what.object == over).peekable();
        let mut first = true;
        let received = of.any(|m| {
            first &= m.time.saturating_add(AT_ONCE) >= a;
            m.what.direction == Direction::Receive
        });
        received || first
    }

    /// Of those that hold an end of several channels that are waited for at once, those that were asked over theirs; all,
    /// where nobody is known to have been.
    pub(super) fn asked_of_several(
        &mut self,
        thread: ThreadId,
        silent: &Spans,
        holders: Vec<Candidate>,
    ) -> Vec<Candidate> {
        let owed = owed(self.g, self.c, thread, silent.first().map_or(0, |s| s.0));
        let asked = self.asked_processes(thread, &owed, silent);
        let asked = |c: &Candidate| asked.contains(&self.c.process_id_of(c.thread));
        let (mut kept, others): (Vec<_>, Vec<_>) = holders.into_iter().partition(asked);
        if kept.is_empty() {
            return others;
        }
        self.only_asked(thread, silent, &mut kept, others);
        kept
    }

    /// Did the candidate's process start the one of `thread`, which serves somebody?
    fn started_by(&self, thread: ThreadId, c: &Candidate) -> bool {
        let parent = self.c.process_of(thread).map(|p| p.parent).filter(|p| p.is_some());
        self.out.nodes.len() > 1 && parent.is_some() && self.c.process_id_of(c.thread) == parent
    }

    /// The others are out; of those that were asked it is said since when, where it was before the recording.
    fn only_asked(
        &mut self,
        thread: ThreadId,
        silent: &Spans,
        kept: &mut [Candidate],
        others: Vec<Candidate>,
    ) {
        let why = "it was asked for nothing that had not come";
        self.out.rejected.extend(others.into_iter().map(|c| (c.thread, why.to_owned())));
        for c in kept {
            let since = self.asked_since(thread, c, silent);
            if let (Some(since), Some(why)) = (since, &mut c.entry.why_weak) {
                why.push_str(&since);
            }
        }
    }

    /// Over which connections a server had asked somebody when it began to wait: when the step before did, and a moment later
    /// in its turn, when its longest wait began.
    pub(super) fn owed_in(&self, thread: ThreadId, group: &Group, spans: &Spans) -> Vec<ObjectId> {
        let begun = spans.first().map_or(0, |s| s.0);
        let mut all = owed_or_greeted(self.g, self.c, thread, begun);
        let later = self.representative(group).start;
        if later > begun {
            let more = owed_or_greeted(self.g, self.c, thread, later);
            all.extend(more.into_iter().filter(|o| !all.contains(o)).collect::<Vec<_>>());
        }
        all
    }

    /// By which datagram a server asked one of those: what it watches does not tell.
    fn asked_by_datagram(
        &self,
        thread: ThreadId,
        owed: &[ObjectId],
        asked: &[Candidate],
        spans: &Spans,
    ) -> Option<ObjectId> {
        let until = spans.last()?.1;
        let datagram = |o: &&ObjectId| self.c.object(**o).is_some_and(|o| o.kind == ObjectKind::Udp);
        let mut all = owed.iter().filter(datagram);
        let one = |t: ThreadId| asked.iter().any(|c| c.thread == t);
        all.find(|o| self.at_other_ends(thread, &[**o], until).iter().any(|x| one(x.1))).copied()
    }

    /// Over which connection a server asked somebody in the turn in which it was asked itself, and had no answer: nobody on
    /// this machine was found at the other end.
    pub(super) fn asked_outside(&self, thread: ThreadId, group: &Group, spans: &Spans) -> Option<ObjectId> {
        let (a, b) = (spans.first()?.0.saturating_sub(AT_ONCE), spans.last()?.1);
        let still = owed(self.g, self.c, thread, b);
        let mut all = self.owed_in(thread, group, spans);
        let sent = self.g.ipc_of(thread, a..b);
        all.retain(|o| still.contains(o) && sent.iter().any(|m| m.what.object == *o));
        all.pop().filter(|_| all.is_empty())
    }

    /// Did it ask somebody else by a datagram, and is owed the answer? Who has that address was read from the system's state.
    pub(super) fn asked_on(&self, c: &Candidate) -> bool {
        let (a, b) = extent(&c.merged());
        let mut owed = owed(self.g, self.c, c.thread, b);
        owed.retain(|o| self.c.object(*o).is_some_and(|o| o.kind == ObjectKind::Udp));
        let mut held = self.g.holds(c.thread, a..b.saturating_add(1));
        held.any(|h| h.relation == Relation::Peer && owed.contains(&h.object) && !self.on_the_way(h.holder))
    }

    /// The processes that `thread`, which is owed answers over these, had asked for something.
    fn asked_processes(
        &self,
        thread: ThreadId,
        owed: &[ObjectId],
        spans: &Spans,
    ) -> HashSet<Option<ProcessId>> {
        let (a, b) = extent(spans);
        let held = self.g.holds(thread, a..b.saturating_add(1)).filter(|h| owed.contains(&h.object));
        let held = held.map(|h| h.holder);
        let others = self.at_other_ends(thread, owed, b).into_iter().map(|(_, t)| t);
        held.chain(others).map(|t| self.c.process_id_of(t)).collect()
    }

    /// In words, what `thread` had asked the candidate's process before the recording began.
    fn asked_since(&self, thread: ThreadId, c: &Candidate, spans: &Spans) -> Option<String> {
        let (a, b) = extent(spans);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let held = self.g.holds(thread, a..b.saturating_add(1));
        let held = held.filter(|h| process(h.holder) == process(c.thread));
        let since = held.filter_map(|h| self.c.object(h.object)).map(|o| o.unanswered).max()?;
        match since {
            0 => None,
            1 => Some(", and had not read what it was sent when the recording began".to_owned()),
            ns => Some(format!(", and was asked {} before the recording began", span(ns))),
        }
    }

    /// Is it known only for a terminal that the server emulates, which at the same time looks who connects to the address at
    /// which it is asked (tmux, screen)? What a client asks for is not what some program there says.
    pub(super) fn at_its_terminal(
        &self,
        group: &Group,
        thread: ThreadId,
        c: &Candidate,
        spans: &Spans,
    ) -> bool {
        let Some(set) = self.c.object(self.representative(group).object) else { return false };
        let unix = |o: &&Object| o.kind == ObjectKind::UnixStream && !o.name.is_empty();
        let socket = || members(self.c, set).filter(unix);
        let at = |o: &Object| o.peer != 0 && socket().any(|l| l.peer == 0 && l.name == o.name);
        let (a, b) = extent(spans);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let held = self.g.holds(thread, a..b.saturating_add(1));
        let mut held = held.filter(|h| process(h.holder) == process(c.thread)).peekable();
        let terminal = |o: ObjectId| self.c.object(o).is_some_and(|o| o.kind == ObjectKind::Tty);
        socket().any(at) && held.peek().is_some() && held.all(|h| terminal(h.object))
    }

    /// Does it wait for what the process of `thread` writes to a pipe, as a helper does that is asked by one pipe and answers by
    /// another one, and else only for those who wait so for it?
    fn reads_what_it_writes(&self, c: &Candidate, thread: ThreadId, spans: &Spans) -> bool {
        let (a, b) = extent(spans);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let writers =
            |t: ThreadId| self.g.holds(t, a..b.saturating_add(1)).filter(|h| h.relation == Relation::Writes);
        let by = |h: &HoldFact, t: ThreadId| process(h.holder) == process(t);
        let behind = |h: &HoldFact| {
            let mut own = writers(h.holder).peekable();
            own.peek().is_some() && own.all(|x| by(&x, c.thread))
        };
        let act = activity(self.g, self.c, c.thread, spans);
        let waits = act.waiting().map(|g| class(&self.representative(g), self.c));
        c.relation == Some(Relation::Writes)
            && process(c.thread) != process(thread)
            && matches!(waits, Some(WaitClass::Channel | WaitClass::EventLoop))
            && writers(c.thread).any(|h| by(&h, thread))
            && writers(c.thread).all(|h| by(&h, thread) || behind(&h))
    }

    /// Was the candidate found at the other end of network connections only that its process made to `thread`?
    fn is_client_of(&self, c: &Candidate, thread: ThreadId, spans: &Spans) -> bool {
        let (a, b) = extent(spans);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let mut held = self
            .g
            .holds(thread, a..b.saturating_add(1))
            .filter(|h| process(h.holder) == process(c.thread))
            .peekable();
        let network = |o| self.c.object(o).is_some_and(|o| o.kind == ObjectKind::Tcp);
        held.peek().is_some() && held.all(|h| network(h.object) && accepted(self.c, h.object))
    }
}
