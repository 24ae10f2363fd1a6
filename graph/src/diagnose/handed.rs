//! Requests that a server hands on: a bus, a display server, a broker takes the message of one client and sends one to
//! another. While that one does not answer, the server waits for whatever comes next, and so tells nothing.

use super::activity::{Group, Mostly, Spans, activity, merged};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::walk::{Flow, Walk};
use crate::class::{WaitClass, asked, class, vague};
use crate::{Edge, EdgeId, EdgeKind, VertexId};
use pg_event::{Direction, Display, Ns, ObjectId, ObjectKind, StackId, ThreadId};

/// A server hands a request on at once, ns.
pub(super) const AT_ONCE: Ns = 100_000_000;

impl Walk<'_> {
    /// To whom `server`, which waits for whatever comes, handed the last request of `asker` on before it began to wait:
    /// somebody who did not idle since.
    pub(super) fn handed_on(&self, server: ThreadId, asker: ThreadId, spans: &Spans) -> Option<Candidate> {
        const LOOKED_AT: usize = 64;
        if server == asker || !self.serves_all(server, spans) {
            return None;
        }
        let begun = spans.first()?.0;
        let object = |o| self.c.object(o);
        // Who was asked itself asks on a moment after whoever asked it began to wait.
        let until = begun.saturating_add(if self.path.len() > 1 { AT_ONCE } else { 1 });
        let before = self.g.ipc_of(asker, 0..until).iter().rev().take(LOOKED_AT);
        let sent = before.filter(|m| m.what.direction == Direction::Send);
        let mut taken = sent.filter_map(|m| {
            let own = object(m.what.object)?;
            let taken = self.g.ipc_of(server, m.what.first..m.time.saturating_add(AT_ONCE));
            let taken = taken.iter().filter(|r| r.what.direction == Direction::Receive && r.time >= m.time);
            let of_it = |r: &&crate::At<pg_event::IpcUse>| {
                object(r.what.object).is_some_and(|o| o.is_other_end_of(own))
            };
            let at = taken.filter(of_it).map(|r| r.what.first.max(m.what.first)).min()?;
            Some((at, m.what.object))
        });
        let Some(last) = taken.next() else { return self.asks_meanwhile(server, asker, spans) };
        // Who looks again and again whether it is done asked for it before the first look.
        let earlier = taken.take_while(|(at, _)| at.saturating_add(AT_ONCE) >= begun);
        let polls = self.sleeps(asker, spans);
        let of = |taken: (Ns, ObjectId)| self.sent_on(server, asker, taken, spans);
        of(last).or_else(|| earlier.filter(|_| polls).find_map(of))
    }

    /// To whom `server` sent something in the turn at `at` in which it had taken a message of `asker` over this.
    fn sent_on(
        &self,
        server: ThreadId,
        asker: ThreadId,
        (at, over): (Ns, ObjectId),
        spans: &Spans,
    ) -> Option<Candidate> {
        let turn = at..at.saturating_add(AT_ONCE);
        let outgoing = self.g.vertices_in(server, turn.clone()).flat_map(|v| self.g.outgoing(v));
        let mut sent: Vec<_> = outgoing.map(|id| (self.g.edge(id), id)).collect();
        sent.retain(|(e, _)| e.kind == EdgeKind::Ipc && turn.contains(&e.from_time));
        sent.sort_by_key(|(e, _)| e.from_time);
        sent.retain(|(e, _)| {
            let to = self.g.vertex(e.to).thread;
            // One thread of a program may send, and another one receive over the same connection. Over another one a program may
            // ask itself.
            let own = to == asker || e.object.is_some() && self.is_end_of(e.object, over);
            !own && to != server && self.counts(to)
        });
        let busy = sent.iter().find_map(|&(e, id)| {
            let to = self.g.vertex(e.to).thread;
            let own = || Some(to).filter(|_| self.at_work(to, spans));
            let other = || self.took_on(to, e.from_time, spans).or_else(|| self.calls_meanwhile(to, spans));
            let taken = if self.hands_over(to) { other() } else { own().or_else(other) };
            taken.map(|t| (e, id, t))
        });
        let silent = || self.never_replied(asker, &sent, spans);
        let (e, id, thread) = busy.or_else(|| self.died_with_it(&sent, spans)).or_else(silent)?;
        let why = "no wake-up by it was recorded; the server handed the request on to it and waited for whatever came next";
        let mut c = Candidate::unseen(thread, spans.clone(), (Some(e.to), e.from_time), why);
        (c.kind, c.entry.edge, c.entry.id) = (EdgeKind::Ipc, Some(EdgeKind::Ipc), Some(id));
        Some(c)
    }

    /// Is it one of the two ends of the connection that `own` is an end of?
    fn is_end_of(&self, object: ObjectId, own: ObjectId) -> bool {
        let both = self.c.object(object).zip(self.c.object(own));
        object == own || both.is_some_and(|(a, b)| a.is_other_end_of(b))
    }

    /// The only one to whom a server sent something in a turn, if its process was killed, or failed, before it said anything: what
    /// it had taken nobody answers.
    fn died_with_it(&self, sent: &[(Edge, EdgeId)], spans: &Spans) -> Option<(Edge, EdgeId, ThreadId)> {
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let process_of = |v: VertexId| self.c.process_id_of(self.g.vertex(v).thread);
        let process = |e: &Edge| process_of(e.to);
        // What its own threads are told stays with the server.
        let mut sent = sent.iter().filter(|(e, _)| process(e) != process_of(e.from));
        let &(e, id) = sent.next()?;
        let (to, own) = (self.g.vertex(e.to).thread, process(&e)?);
        // Who ends as it should had what it wanted.
        let failed = self.c.process(own).filter(|p| p.exit_status.is_some_and(|s| s != 0));
        let at = failed.and_then(|p| p.end).filter(|at| (e.from_time..a.midpoint(b)).contains(at))?;
        let only = sent.all(|(x, _)| process(x) == Some(own));
        let says = |m: &crate::At<pg_event::IpcUse>| m.what.direction == Direction::Send;
        let said = |t| self.g.ipc_of(t, e.from_time..at).iter().any(says);
        (only && !self.g.threads_of(own).any(said)).then_some((e, id, to))
    }

    /// The only one to whom a server sent something in a turn, if it said nothing from then on: it came to the server as
    /// `asker` did, so what it is sent is what others ask.
    fn never_replied(
        &self,
        asker: ThreadId,
        sent: &[(Edge, EdgeId)],
        spans: &Spans,
    ) -> Option<(Edge, EdgeId, ThreadId)> {
        let &(e, id) = sent.iter().min_by_key(|(e, _)| e.from_time)?;
        let to = self.g.vertex(e.to).thread;
        let end = spans.last()?.1;
        // By what name they connected: another one's end may be a log that it writes.
        let names = |t: ThreadId, until: Ns| -> Vec<&str> {
            let own =
                self.g.ipc_of(t, 0..until).iter().rev().take(64).filter_map(|m| self.c.object(m.what.object));
            let named = own.filter(|o| o.kind == ObjectKind::UnixStream && !o.name.is_empty() && o.peer != 0);
            named.map(|o| o.name.as_str()).collect()
        };
        let (came, others) = (names(to, end), names(asker, end));
        let alike = came.iter().any(|n| others.contains(n));
        let display = came.iter().any(|n| Display::of_socket(n) != Display::None);
        let says = |m: &crate::At<pg_event::IpcUse>| m.what.direction == Direction::Send;
        let said = self.g.ipc_of(to, e.from_time..end).iter().any(says);
        // Who hangs asked for something; those on the way may merely have told others of something.
        let asks = self.path.len() == 1 && !self.sleeps(asker, spans);
        let only = sent.iter().all(|(x, _)| self.g.vertex(x.to).thread == to);
        let listens = || {
            let act = activity(self.g, self.c, to, spans);
            let g = act.waiting().filter(|g| g.blocked * 20 >= act.total * 19);
            g.is_some_and(|g| class(&self.representative(g), self.c) == WaitClass::Channel)
        };
        (asks && only && alike && !display && !said && listens()).then_some((e, id, to))
    }

    /// Who answered a server right before that answered the step before, after all the time and with nothing said in
    /// between: it was asked on behalf of that step. Whoever else let the server turn meanwhile brought what others, or it
    /// by way of the same server, waited for.
    pub(super) fn answered_by(&self, server: ThreadId, candidates: &[Candidate]) -> Option<Candidate> {
        const LOOKED_AT: usize = 64;
        // Who tries for something again and again until it answers has many short waits.
        const MOST_WAITS: usize = 4096;
        let most = candidates.first()?.thread;
        let answer = self.g.edge(self.out.nodes.last()?.edge_id?);
        let asker = self.path.len().checked_sub(2).map(|i| self.path[i].0)?;
        let spans = &self.path.last()?.1;
        let begun = spans.first()?.0;
        let from_server = answer.kind == EdgeKind::Ipc && self.g.vertex(answer.from).thread == server;
        if !from_server || answer.from_time <= begun || !self.serves_all(server, spans) {
            return None;
        }
        let turn = answer.from_time.saturating_sub(AT_ONCE).max(begun)..answer.from_time.saturating_add(1);
        let vertices = self.g.vertices_in(server, turn).rev().take(LOOKED_AT);
        let messages = vertices.flat_map(|v| self.g.incoming(v)).map(|id| (id, self.g.edge(id)));
        let before = |e: &crate::Edge| e.kind == EdgeKind::Ipc && e.to_time <= answer.from_time;
        let from = |e: &crate::Edge| self.g.vertex(e.from).thread;
        let others = messages.filter(|(_, e)| before(e) && from(e) != asker && from(e) != server);
        let (id, e) = others.max_by_key(|(_, e)| e.to_time)?;
        let by = from(&e);
        if by == most || !self.counts(by) || self.path.iter().any(|p| p.0 == by) {
            return None;
        }
        let to_server = |e: &crate::Edge| e.kind == EdgeKind::Ipc && self.g.vertex(e.to).thread == server;
        let (early, late) = (begun.saturating_sub(AT_ONCE), e.from_time.saturating_sub(AT_ONCE));
        let mut own: Vec<VertexId> = self.g.vertices_in(by, early..late).take(MOST_WAITS + 1).collect();
        let spoke = |v: &VertexId| {
            let said = |s: crate::Edge| to_server(&s) && (begun + AT_ONCE..late).contains(&s.from_time);
            self.g.outgoing(*v).any(|id| said(self.g.edge(id)))
        };
        if own.len() > MOST_WAITS || own.iter().any(spoke) {
            return None;
        }
        // Also what came while it had not begun to wait yet.
        own.extend(self.g.vertex_at(by, late));
        let soon = early..begun.saturating_add((e.from_time.saturating_sub(begun)) / 10);
        let heard =
            |s: crate::Edge| s.kind == EdgeKind::Ipc && from(&s) == server && soon.contains(&s.from_time);
        if !own.iter().any(|v| self.g.incoming(*v).any(|id| heard(self.g.edge(id)))) {
            return None;
        }
        let mut all = Vec::new();
        let until = e.from_time.max(begun);
        Candidate::add(&mut all, self, id, &e, (begun, until), until - begun, true);
        all.pop()
    }

    /// On by way of the server `c` to whom it handed the request on.
    pub(super) fn past_server(&mut self, c: Candidate, next: Candidate) -> Flow<()> {
        let spans = merged(c.spans);
        let act = activity(self.g, self.c, c.thread, &spans);
        if let Mostly::Waiting(i) = act.mostly()
            && let Some(g) = act.groups.get(i)
        {
            self.push_wait(c.thread, g, c.entry);
        }
        self.path.push((c.thread, spans));
        let own = self.out.nodes.len().saturating_sub(2);
        let spans = merged(next.spans.clone());
        let act = activity(self.g, self.c, next.thread, &spans);
        // Who took the request and says nothing waits for nobody.
        let at_work = self.at_work(next.thread, &spans) || self.calls_over_bus(next.thread, &spans);
        if let Some(g) = act.waiting().filter(|_| !at_work)
            && class(&self.representative(g), self.c) == WaitClass::Channel
        {
            self.push_wait(next.thread, g, next.entry);
            self.found(next.thread, FindingKind::Idle, spans.clone());
            let asker = self.out.nodes.get(own).map(|n| n.thread);
            let kind = FindingKind::Unanswered;
            self.out.findings.extend(asker.map(|thread| Finding { thread, node: own, kind, spans }));
            return Ok(());
        }
        self.visit(next.thread, next.spans, next.entry)
    }

    /// Does a thread mostly sleep?
    fn sleeps(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().is_some_and(|g| class(&self.representative(g), self.c) == WaitClass::Sleep)
    }

    /// A thread of its process that this one created or woke just before it began to wait, and that was at work for
    /// somebody outside ever since: what is waited for is likely its result.
    pub(super) fn given_work(&self, thread: ThreadId, group: &Group, silent: &Spans) -> Option<Candidate> {
        if !self.private_futex(group) {
            return None;
        }
        // When it really began, which may be long before anybody waited for it.
        let begun = self.g.vertex(group.longest()?.first).start;
        let process = |t| self.c.process_id_of(t);
        let before = begun.saturating_sub(AT_ONCE)..begun.saturating_add(AT_ONCE / 10);
        let given = self.g.vertices_in(thread, before.clone()).flat_map(|v| self.g.outgoing(v));
        let mut found: Vec<(ThreadId, crate::EdgeId, Ns)> = Vec::new();
        for (id, e) in given.map(|id| (id, self.g.edge(id))) {
            let to = self.g.vertex(e.to).thread;
            let kind = matches!(e.kind, EdgeKind::Futex | EdgeKind::Spawn | EdgeKind::WakeUp);
            let own = to != thread && process(to) == process(thread) && before.contains(&e.from_time);
            if kind && own && self.works_outside(to, silent) && !found.iter().any(|f| f.0 == to) {
                found.push((to, id, e.from_time));
            }
        }
        let [(t, id, at)] = found[..] else { return None };
        let why = "no wake-up was recorded; it was given something to do just before the wait began, and was at that ever since";
        let mut c = Candidate::unseen(t, silent.clone(), (self.g.vertex_at(t, at), at), why);
        (c.entry.id, c.entry.sole) = (Some(id), true);
        Some(c)
    }

    /// Did it run, or wait for one particular act of another process or of a device, for nearly all of the time?
    fn works_outside(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => (act.running + act.runnable) * 10 >= act.total * 9,
            Mostly::Waiting(i) => {
                act.groups.get(i).filter(|g| g.blocked * 10 >= act.total * 9).is_some_and(|g| {
                    let first = g.longest().map_or(VertexId(u32::MAX), |c| c.first);
                    match class(&self.representative(g), self.c) {
                        WaitClass::Channel => asked(self.g, self.c, first),
                        c => matches!(c, WaitClass::Child | WaitClass::Room | WaitClass::Disk),
                    }
                })
            }
            _ => false,
        }
    }

    /// Does a thread mostly wait for whatever comes from many?
    pub(super) fn serves_all(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        let Mostly::Waiting(i) = act.mostly() else { return false };
        let loops = |g| class(&self.representative(g), self.c) == WaitClass::EventLoop;
        act.groups.get(i).is_some_and(loops)
    }

    /// The thread of a program that took a message on which another one of its threads received: it began to wait for
    /// something in particular, or for a person, soon after that, and did so ever since.
    fn took_on(&self, receiver: ThreadId, at: Ns, spans: &Spans) -> Option<ThreadId> {
        const SOON: Ns = 1_000_000_000;
        let process = self.c.thread(receiver)?.process;
        let took = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            let Some(longest) = act.waiting().and_then(Group::longest) else { return false };
            let v = self.g.vertex(longest.first);
            let own = match class(&v, self.c) {
                WaitClass::Channel => asked(self.g, self.c, longest.first),
                WaitClass::Lock => !vague(&v, self.c),
                WaitClass::Terminal | WaitClass::Child | WaitClass::Room | WaitClass::Disk => true,
                _ => false,
            };
            own && (at..at.saturating_add(SOON)).contains(&v.start) && longest.blocked * 10 >= act.total * 8
        };
        let others = self.g.threads_of(process).filter(|t| *t != receiver && self.counts(*t));
        let mut all = others.filter(took);
        let (one, None) = (all.next()?, all.next()) else { return None };
        Some(one)
    }

    /// Did a thread run, or wait for something in particular, for most of the time?
    pub(super) fn at_work(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => true,
            Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                let first = g.longest().map_or(VertexId(u32::MAX), |c| c.first);
                match class(&self.representative(g), self.c) {
                    // Who took part in the way here waits for the answer to its own request, whatever came since.
                    WaitClass::Channel => {
                        let on_way = self.path.iter().any(|p| p.0 == t);
                        on_way || asked(self.g, self.c, first) || self.still_asks(t, first)
                    }
                    c => !c.idle() && c != WaitClass::Condition,
                }
            }),
            _ => false,
        }
    }

    /// Had it asked for something when it came to where it still waits? On a bus others' requests come over the connection on
    /// which one waits for an answer. Who looks at a display's events does that in one place, too, and asks for nothing.
    fn still_asks(&self, t: ThreadId, first: VertexId) -> bool {
        const LOOKED_AT: usize = 16;
        const DEEP: usize = 12;
        let v = self.g.vertex(first);
        let display = self.c.object(v.object).is_some_and(|o| self.of_display(o));
        if first.0 == u32::MAX || display || v.user_stack.is_none() {
            return false;
        }
        let says = |m: &crate::At<pg_event::IpcUse>| {
            (m.what.direction, m.what.object) == (Direction::Send, v.object)
        };
        // How much of a stack is known differs from copy to copy, and so does whether the interpreter's functions are the script's.
        let script = |f: &pg_event::Frame| {
            self.c.modules.get(f.module.index()).is_some_and(|m| m.kind == pg_event::ModuleKind::Python)
        };
        let alike = |a: StackId, b: StackId| {
            let (a, b) = (self.c.frames_of(a), self.c.frames_of(b));
            let mut both = a.zip(b).take(DEEP).peekable();
            both.peek().is_some()
                && both.all(|(a, b)| (a.module, a.address) == (b.module, b.address) || script(a) || script(b))
        };
        let mut since = v.start;
        let before = self.g.vertices_in(t, 0..v.start).rev().filter(|id| *id < first).take(LOOKED_AT);
        for id in before {
            let x = self.g.vertex(id);
            let same = x.object == v.object && alike(x.user_stack, v.user_stack);
            if !same || self.g.ipc_of(t, x.woken..since).iter().any(says) {
                return false;
            }
            if asked(self.g, self.c, id) {
                return true;
            }
            since = x.start;
        }
        false
    }
}
