//! Who holds what a thread waits for: told by the recorder, by the catalogue, or by the messages before.

use super::activity::{Group, Mostly, Spans, activity, extent, total};
use super::answerless::{main_thread, relation_words};
use super::ask::Candidate;
use super::sessions::waits_for_lock;
use super::walk::Walk;
use crate::builder::{SIGWAIT, any_address, call_is};
use crate::class::{WaitClass, asked, class, owed};
use crate::refused;
use crate::{EdgeKind, EventGraph, HoldFact, Weak};
use pg_event::{Catalog, Direction, Ns, Object, ObjectId, ObjectKind, ProcessId, Relation, ThreadId};

/// How one was found that keeps others from making a file.
const MADE_FILE: &str = "its number is in the file that is there already, or it alone has that open";

/// The file by which a holder was found that keeps `tries` from making one of that name.
pub(crate) fn made_file(g: &EventGraph, c: &Catalog, holder: ThreadId, tries: ThreadId) -> Option<ObjectId> {
    let file = |o: ObjectId| c.object(o).is_some_and(|o| o.kind == ObjectKind::File);
    let of = |h: &&HoldFact| (h.holder, h.subject, h.relation) == (holder, tries, Relation::Owns);
    g.holds.iter().find(|h| of(h) && file(h.object)).map(|h| h.object)
}

impl Walk<'_> {
    /// Does a wait for signals stand for one for a child's end, and did something else end it?
    pub(super) fn waits_for_child(&self, thread: ThreadId, group: &Group) -> bool {
        let Some(clip) = group.longest() else { return false };
        let by_child = self.g.waking(clip.last).is_some_and(|e| self.g.edge(e).kind == EdgeKind::Exit);
        let mut holds = self.g.holds(thread, clip.start..clip.end.saturating_add(1));
        !by_child
            && call_is(self.representative(group).syscall, SIGWAIT)
            && holds.any(|h| h.relation == Relation::ChildOf && h.object.is_none())
    }

    /// Who holds what the group waits for, one candidate per process.
    pub(crate) fn holders(
        &self,
        thread: ThreadId,
        group: &Group,
        class: WaitClass,
        silent: &Spans,
    ) -> Vec<Candidate> {
        let mut facts: Vec<(ThreadId, Relation, Ns)> = Vec::new();
        let mut ends: Vec<ObjectId> = Vec::new();
        // Who has the other end of a socket that it waited for in between says nothing of a futex.
        let kind = |o: ObjectId| self.c.object(o).map(|o| o.kind);
        let futex = kind(self.representative(group).object) == Some(ObjectKind::Futex);
        // ... nor, where it was answered, of the sleeps between.
        let answered = |o: ObjectId| {
            const LOOKED_AT: usize = 256;
            let (a, b) = extent(silent);
            let last =
                || self.g.ipc_of(thread, a..b).iter().rev().take(LOOKED_AT).find(|m| m.what.object == o);
            class == WaitClass::Sleep && last().is_some_and(|m| m.what.direction == Direction::Receive)
        };
        let about = |o: ObjectId| (!futex || kind(o).is_none_or(|k| k == ObjectKind::Futex)) && !answered(o);
        let found = |spans: &Spans| -> Vec<HoldFact> {
            let spans = spans.iter().map(|&(a, b)| a..b.saturating_add(1));
            spans.flat_map(|s| self.g.holds(thread, s)).filter(|h| about(h.object)).collect()
        };
        let mut held = found(silent);
        held.retain(|h| !self.of_postmaster(h));
        let (alive, other): (Vec<_>, Vec<_>) = held.into_iter().partition(|h| self.only_lives(h));
        for h in if other.is_empty() { alive } else { other } {
            facts.push((h.holder, h.relation, h.time));
            if h.relation == Relation::Peer && !ends.contains(&h.object) {
                ends.push(h.object);
            }
        }
        // The same wait may have gone on by short ones, which are not looked at.
        if facts.is_empty() {
            let (object, begun) = (self.representative(group).object, silent.first().map_or(0, |s| s.0));
            let lock = |h: &HoldFact| object.is_some() && h.object == object && h.relation.has_lock();
            let before = self.g.holds(thread, 0..begun).filter(lock).map(|h| (h.holder, h.relation, h.time));
            let before: Vec<_> = before.collect();
            let last = before.iter().map(|f| f.2).max();
            let since = last.is_some_and(|at| self.waited_since(thread, object, at, begun));
            facts.extend(before.into_iter().filter(|f| since && Some(f.2) == last));
        }
        if facts.is_empty()
            && class == WaitClass::Sleep
            && let Some(object) = self.tried_for(thread, silent).filter(|o| !answered(*o))
        {
            let of = |h: &&crate::HoldFact| h.object == object && h.holder != thread;
            facts.extend(self.g.holds.iter().filter(of).map(|h| (h.holder, h.relation, h.time)));
        }
        // By a pipe from its parent a session hears of the server's end: that is not what it waits for a lock by.
        if self.out.nodes.last().is_some_and(waits_for_lock) {
            let parent = self.c.process_of(thread).map(|p| p.parent);
            facts.retain(|f| f.1 != Relation::Writes || self.c.process_id_of(f.0) != parent);
        }
        // Whose end is waited for is told: what else was found is of waits before.
        if class == WaitClass::Child && facts.iter().any(|f| f.1 == Relation::ChildOf) {
            facts.retain(|f| f.1 == Relation::ChildOf);
        }
        let from_facts = !facts.is_empty();
        let mut heard: Vec<ThreadId> = Vec::new();
        if let Some((at, n)) = self.readers_of(thread, group, silent) {
            let seen = self.seen_to_read(thread, group, at, silent, n);
            if !seen.is_empty() {
                return seen;
            }
            let left = if from_facts { Vec::new() } else { self.left_to_read(thread, group, silent, n) };
            if !left.is_empty() {
                return left;
            }
        }
        if !from_facts && class == WaitClass::Lock {
            let last = self.last_taker(thread, group, silent);
            return last.map_or_else(|| self.in_family(thread, group, silent), |c| vec![c]);
        }
        if !from_facts && class == WaitClass::Child {
            facts = self.children(thread, group, silent);
        }
        let until = silent.last().map_or(0, |s| s.1);
        let o = self.representative(group).object;
        let members = self.c.object(o).map_or(&[][..], |x| &x.members);
        // By a pipe of its own process it is told to end; whom it waits for has one of the connections beside.
        let beside = |h: &HoldFact| members.len() > 1 && self.own_pipe(h);
        let to_end = !facts.is_empty() && found(silent).iter().all(beside);
        let by_messages = class == WaitClass::Channel && (facts.is_empty() || to_end);
        if by_messages {
            ends = members.iter().copied().chain([o]).collect();
            facts.extend(self.last_to_say(thread, &ends, until).map(|(at, t)| (t, Relation::Peer, at)));
        }
        // What an epoll instance watched just then may not have been read, and a datagram may go to anybody: by the messages,
        // who was asked over what.
        let several = class == WaitClass::Channel && members.len() > 1 && !facts.is_empty();
        if class == WaitClass::EventLoop || several {
            let epoll = kind(self.representative(group).object) == Some(ObjectKind::Epoll);
            let mut owed = self.owed_in(thread, group, silent);
            let watched = |o: &ObjectId| {
                if several { members.contains(o) } else { epoll || kind(*o) == Some(ObjectKind::Udp) }
            };
            owed.retain(|o| !ends.contains(o) && watched(o));
            let asked = self.at_other_ends(thread, &owed, until);
            heard.extend(asked.iter().map(|x| x.1));
            facts.extend(asked.into_iter().map(|(at, t)| (t, Relation::Peer, at)));
            ends.extend(owed);
        }
        let own = self.c.process_id_of(thread);
        let joins = crate::class::joins(&self.representative(group), self.c);
        let alone = facts.iter().all(|f| self.c.process_id_of(f.0) == own);
        let ends_only = facts.iter().all(|f| !f.1.has_lock() && f.1 != Relation::ChildOf);
        let mut out: Vec<Candidate> = Vec::new();
        for (holder, relation, time) in facts {
            if !self.counts(holder) {
                continue;
            }
            let process = self.c.process_id_of(holder);
            // A process that has both ends open does not wait for itself, unless nobody else has one.
            if process == own && !alone && relation != Relation::Traces && !relation.has_lock() {
                continue;
            }
            if holder == thread {
                continue;
            }
            let peer = relation == Relation::Peer && process != own;
            let by_wait = || self.watcher(holder, &ends, silent).filter(|_| peer);
            let serves = (relation == Relation::Peer).then(|| self.serving(holder, &ends, until)).flatten();
            let woken = || self.woken_over(holder, thread, &ends, until).filter(|_| peer);
            let at_it = || self.its_thread(holder, thread, silent).filter(|_| peer);
            let serves = serves.or_else(by_wait).or_else(woken).or_else(at_it);
            let likely = serves.map_or_else(
                || {
                    let mut likely = self.likely(holder, relation, silent);
                    let named = likely[0] == holder && !relation.has_lock() && relation != Relation::Traces;
                    if named
                        && self.only_joins(holder, silent)
                        && let Some(t) = self.on_the_way_of(holder, thread)
                    {
                        likely = vec![t];
                    }
                    if named
                        && relation == Relation::Writes
                        && let Some(t) = self.feeder(holder, silent)
                    {
                        likely = vec![t];
                    }
                    likely
                },
                |t| vec![t],
            );
            let told = from_facts && !heard.contains(&holder);
            let why = if told && !(to_end && relation == Relation::Peer) {
                let how = match relation {
                    _ if joins => "it is the thread to be joined",
                    Relation::Owns if made_file(self.g, self.c, holder, thread).is_some() => MADE_FILE,
                    _ => relation_words(relation),
                };
                format!("{}: {how}", Weak::FromState.words())
            } else if by_messages || relation == Relation::Peer {
                "no wake-up was recorded; it took or sent the last message at the other end".to_owned()
            } else {
                "no wake-up was recorded; it is the only child in the catalogue that lived then".to_owned()
            };
            for holder in likely {
                if out.iter().any(|c| c.thread == holder) {
                    continue;
                }
                let at = (self.g.vertex_at(holder, time), time);
                let found = Candidate::unseen(holder, silent.clone(), at, why.clone());
                out.push(Candidate { relation: Some(relation), ..found });
            }
        }
        if out.is_empty() && !joins && (from_facts && alone && ends_only || self.only_counts(group)) {
            out.extend(self.within(thread, silent));
        }
        if out.is_empty() && !from_facts {
            out = self.in_family(thread, group, silent);
        }
        out
    }

    /// Who took or sent the last message at the other end of any of these channels, and when. One that the way comes from waits
    /// for `thread` itself: then rather who was asked over another one.
    fn last_to_say(&self, thread: ThreadId, ends: &[ObjectId], until: Ns) -> Option<(Ns, ThreadId)> {
        let others = || self.g.threads().filter(|t| *t != thread && self.counts(*t));
        let last = self.last_at_other_end(others(), ends, until)?;
        let on_way = |t: ThreadId| self.path.iter().any(|p| p.0 == t);
        if !on_way(last.1) || ends.len() < 2 {
            return Some(last);
        }
        let mut owed = owed(self.g, self.c, thread, until);
        owed.retain(|o| ends.contains(o));
        let asked = self.at_other_ends(thread, &owed, until).into_iter();
        asked.filter(|x| !on_way(x.1)).max().or(Some(last))
    }

    /// Is it an end of a pipe within one process?
    fn own_pipe(&self, h: &HoldFact) -> bool {
        let process = |t: ThreadId| self.c.process_id_of(t);
        h.relation == Relation::Writes
            && process(h.holder) == process(h.subject)
            && self.c.object(h.object).is_some_and(|o| o.kind == ObjectKind::Pipe)
    }

    /// Did it wait for the same from `at` until `begun`?
    fn waited_since(&self, thread: ThreadId, object: ObjectId, at: Ns, begun: Ns) -> bool {
        let mut all = self.g.vertices_in(thread, at..begun).map(|id| self.g.vertex(id));
        all.all(|v| v.object == object || v.waited() == 0)
    }

    /// Of the process of `holder`, the thread that the way came by last, if it is not `thread` itself.
    fn on_the_way_of(&self, holder: ThreadId, thread: ThreadId) -> Option<ThreadId> {
        let process = |t| self.c.process_id_of(t);
        let mut way = self.path.iter().rev().map(|(t, _)| *t);
        way.find(|t| *t != thread && process(*t) == process(holder))
    }

    /// Does the thread wait for another one of its process to end? It has descriptors as all threads have them, and is not
    /// who uses them.
    fn only_joins(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().is_some_and(|g| crate::class::joins(&self.representative(g), self.c))
    }

    /// What a retry loop tries for between its sleeps: what the call that tells most is about, else the one that failed
    /// most often.
    fn tried_for(&self, thread: ThreadId, spans: &Spans) -> Option<ObjectId> {
        let within = (spans.first()?.0, spans.last()?.1.saturating_add(1));
        let told = refused::between_sleeps(self.g, self.c, thread, within).map(|e| e.object);
        told.filter(|o| o.is_some()).or_else(|| self.failing(thread, spans))
    }

    fn failing(&self, thread: ThreadId, spans: &Spans) -> Option<ObjectId> {
        const LEAST: u32 = 2;
        const NO_ANSWER: [i64; 2] = [-4, -110];
        let mut counts: Vec<(ObjectId, u32)> = Vec::new();
        for &(a, b) in spans {
            for s in self.g.syscalls_of(thread, a..b.saturating_add(1)) {
                let u = &s.what;
                let failed = (-4095..0).contains(&u.result) && !NO_ANSWER.contains(&u.result);
                if !failed || u.object.is_none() {
                    continue;
                }
                match counts.iter_mut().find(|c| c.0 == u.object) {
                    Some(c) => c.1 = c.1.saturating_add(u.count.max(1)),
                    None => counts.push((u.object, u.count.max(1))),
                }
            }
        }
        counts.into_iter().filter(|c| c.1 >= LEAST).max_by_key(|c| c.1).map(|c| c.0)
    }

    /// The live children of the thread's process, from the catalogue.
    fn children(&self, thread: ThreadId, group: &Group, silent: &Spans) -> Vec<(ThreadId, Relation, Ns)> {
        let Some(own) = self.c.process_id_of(thread) else { return Vec::new() };
        let v = self.representative(group);
        let wanted =
            self.c.object(v.object).filter(|o| o.kind == ObjectKind::Child).map_or(0, |o| o.id as u32);
        let (a, b) = extent(silent);
        let mut out = Vec::new();
        for (i, p) in self.c.processes.iter().enumerate() {
            let lived = p.start <= b && p.end.is_none_or(|e| e >= a);
            let fits = wanted == 0 || p.ns_pid == wanted || p.pid == wanted;
            if p.parent == own
                && own.is_some()
                && lived
                && fits
                && let Some(t) = main_thread(self.g, self.c, ProcessId(i as u32))
            {
                out.push((t, Relation::ChildOf, a));
            }
        }
        out
    }

    /// The thread of the holder's process that has to do with the other end of one of these channels: who took or sent
    /// the last message there.
    pub(super) fn serving(&self, holder: ThreadId, ends: &[ObjectId], until: Ns) -> Option<ThreadId> {
        let process = self.c.process_id_of(holder)?;
        self.last_at_other_end(self.g.threads_of(process), ends, until).map(|x| x.1)
    }

    /// Who took or sent the last message at the other end of each of these channels of `thread`, and when.
    pub(super) fn at_other_ends(
        &self,
        thread: ThreadId,
        ends: &[ObjectId],
        until: Ns,
    ) -> Vec<(Ns, ThreadId)> {
        let others = || self.g.threads().filter(|t| *t != thread && self.counts(*t));
        ends.iter().filter_map(|o| self.last_at_other_end(others(), &[*o], until)).collect()
    }

    /// Which of these threads took or sent the last message at the other end of one of these channels, and when.
    pub(super) fn last_at_other_end(
        &self,
        threads: impl Iterator<Item = ThreadId>,
        ends: &[ObjectId],
        until: Ns,
    ) -> Option<(Ns, ThreadId)> {
        const LOOKED_AT: usize = 256;
        let own: Vec<_> = ends.iter().filter_map(|o| self.c.object(*o)).collect();
        let other = |o: &ObjectId| {
            self.c.object(*o).is_some_and(|o| o.kind.is_channel() && own.iter().any(|x| meets(x, o)))
        };
        let last = |t: ThreadId| {
            let messages = self.g.ipc_of(t, 0..until);
            let found = messages.iter().rev().take(LOOKED_AT).find(|m| other(&m.what.object));
            found.map(|m| (m.time, t))
        };
        threads.filter_map(last).max()
    }

    /// The first of [`Self::likely`].
    pub(super) fn busiest(&self, holder: ThreadId, relation: Relation, spans: &Spans) -> ThreadId {
        self.likely(holder, relation, spans)[0]
    }

    /// A fact names one thread of the holder's process. When that one just idles, the thread of the process that did not is
    /// meant: who ran; else, all those that wait for somebody else, as far as anybody can tell. One at least.
    fn likely(&self, holder: ThreadId, relation: Relation, spans: &Spans) -> Vec<ThreadId> {
        if matches!(relation, Relation::Traces | Relation::Missing) || relation.has_lock() {
            return vec![holder];
        }
        let Some(process) = self.c.process_id_of(holder) else { return vec![holder] };
        let gone = |t: ThreadId| activity(self.g, self.c, t, spans).mostly() == Mostly::Gone;
        // A process goes on after its first thread has ended (pthread_exit(3) in `main`).
        if gone(holder) {
            let mut alive: Vec<_> = self.g.threads_of(process).filter(|t| !gone(*t)).collect();
            alive.sort_by_key(|t| self.at_rest(*t, spans));
            if !alive.is_empty() {
                return alive;
            }
        }
        let busy = |t: ThreadId| {
            let act = activity(self.g, self.c, t, spans);
            match act.mostly() {
                Mostly::Running | Mostly::Runnable => act.running + act.runnable,
                Mostly::Waiting(i) => act.groups.get(i).map_or(0, |g| {
                    let idle = class(&self.representative(g), self.c).idle();
                    if idle { act.running } else { g.blocked }
                }),
                Mostly::Unborn | Mostly::Gone | Mostly::Unknown => 0,
            }
        };
        // Who only listens to its own side (a manager that asks whether it lives) serves nobody over a connection.
        let aside = relation == Relation::Peer && self.only_pipes(holder, spans);
        let sleeps = activity(self.g, self.c, holder, spans)
            .waiting()
            .is_some_and(|g| class(&self.representative(g), self.c) == WaitClass::Sleep);
        let joins = relation == Relation::Peer && self.only_joins(holder, spans);
        let own = busy(holder);
        if own * 2 >= total(spans) && !aside && !sleeps && !joins {
            return vec![holder];
        }
        // A futex wait of another thread is as likely an idle worker of a pool: running counts, and what is known to be a lock.
        let ran = |t: ThreadId| activity(self.g, self.c, t, spans).running;
        let most = |of: &dyn Fn(ThreadId) -> Ns| {
            let all = self.g.threads_of(process).map(|t| (of(t), t));
            let mut all: Vec<_> = all.filter(|(time, _)| time * 2 >= total(spans)).collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            all.into_iter().map(|x| x.1).collect::<Vec<_>>()
        };
        let owing = |t: ThreadId| self.owing(t, spans);
        // A process that has both ends answers itself by some other way.
        let asks = self.path.last().and_then(|p| self.c.thread(p.0)).map(|t| t.process);
        let serves_none = self.accepts(holder, spans) || sleeps || joins;
        let others_may = relation == Relation::Peer && asks != Some(process) && serves_none;
        let ran = most(&ran);
        if let Some(t) = ran.first() {
            return vec![*t];
        }
        let mut others = if others_may || aside { most(&owing) } else { Vec::new() };
        if others.is_empty() && others_may {
            others = most(&|t| self.at_lock(t, spans));
        }
        // Where the one only takes new connections, somebody else serves the old one: who sleeps may.
        if others.is_empty() && others_may {
            others = most(&|t| self.asleep(t, spans));
        }
        if others.is_empty() { vec![holder] } else { others }
    }

    /// Does a thread wait for what may come, or for nobody knows what: one with nothing to do, perhaps?
    fn at_rest(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().is_some_and(|g| {
            let v = self.representative(g);
            let class = class(&v, self.c);
            class.idle() || class == WaitClass::Condition || crate::class::vague(&v, self.c)
        })
    }

    /// For how long a thread waited for what its stack tells to be a lock: it has work, unlike one of a pool that waits for some.
    fn at_lock(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        let at = act.waiting().filter(|g| crate::class::enters_lock(&self.representative(g), self.c));
        at.map_or(0, |g| g.blocked)
    }

    /// For how long a thread was in one and the same sleep.
    pub(super) fn asleep(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        let once = act.waiting().filter(|g| g.waits == 1);
        let sleep = once.filter(|g| class(&self.representative(g), self.c) == WaitClass::Sleep);
        sleep.map_or(0, |g| g.blocked)
    }

    /// Does the thread mostly watch nothing but pipes, and not those of its children?
    fn only_pipes(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        let Some(g) = act.waiting() else { return false };
        let Some(o) = self.c.object(self.representative(g).object) else { return false };
        let pipe = |o: &pg_event::Object| o.kind == ObjectKind::Pipe;
        let all = pipe(o) || !o.members.is_empty() && crate::class::members(self.c, o).all(pipe);
        all && !self.reads_from_child(t, g)
    }

    /// Does the thread mostly wait for new connections? That is never ended by who waits for an answer over an old one,
    /// nor does it keep anybody from answering.
    pub(super) fn accepts(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().is_some_and(|g| {
            let v = self.representative(g);
            // Beside its connections a runtime may watch a counter, by which its other threads let it turn.
            let counter = |o: &Object| o.kind == ObjectKind::EventFd;
            let listens = || {
                self.c.object(v.object).is_some_and(|o| {
                    let mut beside = crate::class::members(self.c, o).filter(|m| !counter(m)).peekable();
                    crate::class::only_listens(self.c, o)
                        || beside.peek().is_some() && beside.all(|m| crate::class::only_listens(self.c, m))
                })
            };
            // One that is stopped there accepts nothing.
            let accepts = v.syscall.is_any(&["accept", "accept4"]) || listens();
            matches!(class(&v, self.c), WaitClass::EventLoop | WaitClass::Channel) && accepts
        })
    }

    /// For how long a thread waited for an answer that it had asked for, for room, for a device or for a child: it does
    /// something for somebody, unlike a worker that waits for work.
    pub(super) fn owing(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        let Some((g, longest)) = act.waiting().and_then(|g| Some((g, g.longest()?))) else { return 0 };
        let works = match class(&self.representative(g), self.c) {
            // It may have asked again in between.
            WaitClass::Channel => [longest.first, longest.last].iter().any(|v| asked(self.g, self.c, *v)),
            WaitClass::Room | WaitClass::Disk | WaitClass::Child => true,
            _ => false,
        };
        if works { g.blocked } else { 0 }
    }
}

/// Is `other` the other end of `own`? A socket for datagrams need not know its own address, nor who sent what it takes.
fn meets(own: &Object, other: &Object) -> bool {
    let same = |a: u64, b: u64| a == b || any_address(a, b);
    let datagram = own.kind == ObjectKind::Udp && own.kind == other.kind && own.peer != 0;
    own.is_other_end_of(other)
        || datagram && same(own.peer, other.id) && (other.peer == 0 || same(own.id, other.peer))
}
