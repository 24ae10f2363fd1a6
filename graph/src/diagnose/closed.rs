//! Waits for a lock whose owner is not recorded (semaphores, locks of languages): a futex that is private to its
//! process can only be woken by the other threads of that process. When all of them wait themselves, nobody is
//! left: a deadlock. When one is left, it is that one.

use super::activity::{Group, Mostly, Spans, activity, total};
use super::ask::Candidate;
use super::node::one_of;
use super::pose::Posed;
use super::stuck::CLOSED;
use super::walk::{Flow, Walk};
use crate::class::{WaitClass, class, joins, private_futex, vague};
use crate::initialise::{initialises, waits_for_initialiser};
use crate::words::short_who;
use crate::{Edge, EdgeKind, EventGraph, QuestionKind, Vertex, Weak};
use pg_event::{Catalog, Ns, ObjectKind, Relation, ThreadId};

/// A process may take so long to end, ns.
const ENDING: Ns = 500_000_000;

/// Does `v` lead in with a wait for a futex that only threads of its process can wake, when no other was left at `end`?
pub(crate) fn left_alone(g: &EventGraph, c: &Catalog, v: &Vertex, end: Ns) -> bool {
    let Some(own) = c.process_id_of(v.thread) else { return false };
    let left = |t: ThreadId| t != v.thread && g.exited(t).is_none_or(|x| x.0 >= end);
    private_futex(v, c) && !g.threads_of(own).any(left)
}

/// What another thread of the process did while one waited.
enum Other {
    /// Waits for a futex as well, and nobody ended that.
    Stuck(Group),
    /// Waits for the one that waited: for its end, or until that one let it go on itself (`true`: by an unlock).
    Behind(Group, bool),
    /// Works, or waits for something else: could release it afterwards.
    Busy,
    /// Had nothing to do since before the wait, until something else came after it.
    Rests,
    /// Waits for whatever comes next.
    Idle,
    /// Did not exist, or nothing is known.
    None,
}

impl Walk<'_> {
    /// Whose act is missing, by who could act at all. Returns whether that led anywhere.
    pub(crate) fn by_elimination(&mut self, thread: ThreadId, group: &Group, silent: &Spans) -> Flow<bool> {
        if !self.private_futex(group) {
            return Ok(false);
        }
        let Some(process) = self.c.process_id_of(thread) else { return Ok(false) };
        let (mut stuck, mut behind, mut busy, mut rests, mut idle) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
        for t in self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t)) {
            match self.other(t, thread, silent, 0) {
                Other::Stuck(g) => stuck.push((t, g)),
                Other::Behind(g, unlocked) => behind.push((t, g, unlocked)),
                Other::Busy => busy.push(t),
                Other::Rests => rests.push(t),
                Other::Idle => idle += 1,
                Other::None => {}
            }
        }
        // Of a pool whose threads wait for each other none is left that would take what was asked for.
        let stack = |g: &Group| self.representative(g).user_stack;
        if stack(group).is_none() || stuck.iter().all(|(_, g)| stack(g) != stack(group)) {
            busy.append(&mut rests);
        }
        if waits_for_initialiser(&self.representative(group), self.c) {
            let initialises = |t: &ThreadId| self.initialises_meanwhile(*t, silent);
            if busy.iter().any(initialises) {
                busy.retain(initialises);
            }
        }
        // A lock that one has who is in one sleep all that time, where nobody else can have it.
        let object = |g: &Group| self.representative(g).object;
        let behind_it = stuck.iter().all(|(_, g)| object(g) == object(group));
        if busy.is_empty() && behind_it && self.for_lock(group) {
            busy.extend(self.sleeps_with_it(thread, silent));
        }
        if busy.is_empty() {
            if let Some(c) = self.looks_after(thread, silent).filter(|_| !self.for_lock(group)) {
                return self.visit(c.thread, c.spans, c.entry).map(|()| true);
            }
            if stuck.is_empty()
                && idle == 0
                && let Some(c) = self.ended_with_it(thread, silent)
            {
                self.visit(c.thread, c.spans, c.entry)?;
                return Ok(true);
            }
            if stuck.is_empty() {
                stuck = self.closed_behind(group, silent, behind);
            }
            if let Some(c) = self.keeps_while_waiting(group, &stuck, silent).filter(|_| idle > 0) {
                return self.visit(c.thread, c.spans, c.entry).map(|()| true);
            }
            if stuck.is_empty() || idle > 0 {
                return Ok(false);
            }
            return self.closed_or_child(thread, group, stuck, silent).map(|()| true);
        }
        let n = busy.len();
        let mut all: Vec<Candidate> = busy.into_iter().map(|t| self.left(t, n, silent)).collect();
        let best = self.recommended(&all);
        all.swap(0, best);
        all.truncate(5);
        let mut take = 0;
        if !self.auto && all.len() > 1 && self.share(total(silent)) >= 0.2 {
            let end = group.clips.last().map_or(0, |c| c.end);
            let q = self.pose(
                thread,
                group,
                Posed {
                    kind: QuestionKind::Edge,
                    text: format!("Which thread should have let {} go on?", short_who(self.c, thread)),
                    why: format!(
                        "{}. The futex is private to its process and who owns it is not recorded; these {} threads of the process did something else meanwhile.",
                        self.waited_in(thread, group),
                        all.len()
                    ),
                    choices: all.iter().map(|c| self.choice(c, end)).collect(),
                    stop: format!("stop here: {} itself is the cause", short_who(self.c, thread)),
                    recommended: 1,
                    reason: format!("{} {}", short_who(self.c, all[0].thread), self.did(&all[0])),
                },
                Some(&all[0]),
            );
            match self.decide(q)? {
                0 => return Ok(false),
                k => take = k - 1,
            }
        }
        let last = all.len() - 1;
        let Some(c) = self.take(all, take.min(last)) else { return Ok(false) };
        self.visit(c.thread, c.spans, c.entry)?;
        Ok(true)
    }

    /// Of the threads that wait, the only one that does not want the lock, and went to wait for something else before anybody came
    /// to that: it may have the lock meanwhile.
    fn keeps_while_waiting(
        &self,
        group: &Group,
        stuck: &[(ThreadId, Group)],
        silent: &Spans,
    ) -> Option<Candidate> {
        if !self.for_lock(group) {
            return None;
        }
        let object = |g: &Group| self.representative(g).object;
        let begun = |g: &Group| g.clips.first().map(|c| self.g.vertex(c.first).start);
        let (wants, others): (Vec<_>, Vec<_>) =
            stuck.iter().partition(|(_, g)| self.for_lock(g) && object(g) == object(group));
        let first = wants.iter().filter_map(|(_, g)| begun(g)).chain(begun(group)).min()?;
        let mut before = others.iter().filter(|(t, g)| {
            let way = self.path.iter().any(|p| p.0 == *t);
            !way && !self.for_lock(g) && begun(g).is_some_and(|b| b <= first)
        });
        let ((t, _), None) = (before.next()?, before.next()) else { return None };
        let mut c = self.left(*t, 1, silent);
        let why = "who owns the lock is not recorded; it is the only thread that waits for something else since before anybody wanted that";
        (c.entry.why_weak, c.entry.sole, c.entry.doubt) = (Some(why.into()), false, 0.4);
        Some(c)
    }

    /// The other threads of the process where all of them wait for private futexes in the end, so that nobody is left
    /// to wake one: a circle of which no baseline can tell more. `None` when somebody may still act, or wakes by itself.
    pub(super) fn locked_in(
        &self,
        thread: ThreadId,
        group: &Group,
        silent: &Spans,
    ) -> Option<Vec<(ThreadId, Group)>> {
        let process = self.c.process_id_of(thread)?;
        let (begun, end) = (silent.first()?.0, silent.last()?.1);
        // Who is told to end wakes some of its threads before it does.
        let ends = self.g.exited(thread).is_some_and(|x| x.0.abs_diff(end) <= ENDING);
        let (over, end) = (end, if ends { end - ENDING.min((end - begun) / 20) } else { end });
        let last = |t: ThreadId| self.g.vertex_at(t, end.saturating_sub(1)).map(|v| self.g.vertex(v));
        let own = last(thread).filter(|v| self.private_futex(group) && !v.timed_out)?;
        let house = |t: ThreadId| {
            let act = activity(self.g, self.c, t, silent);
            act.waiting().is_some_and(|g| self.keeps_house(g, thread))
        };
        let left = || self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t) && !house(*t));
        // From when on all of them wait.
        let from = left().filter_map(last).map(|v| v.start).fold(own.start.max(begun), Ns::max);
        let long = end.saturating_sub(from);
        if long < CLOSED && long.saturating_mul(2) < total(silent) {
            return None;
        }
        let mut stuck = Vec::new();
        for t in left() {
            match self.other(t, thread, &vec![(from, end)], 0) {
                Other::Stuck(_) => {
                    let v = last(t).filter(|v| !v.timed_out)?;
                    let whole = activity(self.g, self.c, t, &[(v.start.max(begun), over)]);
                    let Mostly::Waiting(i) = whole.mostly() else { return None };
                    stuck.push((t, whole.groups.into_iter().nth(i)?));
                }
                Other::Busy | Other::Rests | Other::Idle => return None,
                Other::Behind(..) | Other::None => {}
            }
        }
        (!stuck.is_empty()).then_some(stuck)
    }

    /// Is the wait for a lock, by the names of the functions?
    pub(super) fn for_lock(&self, group: &Group) -> bool {
        let v = self.representative(group);
        class(&v, self.c) == WaitClass::Lock && !vague(&v, self.c) && !joins(&v, self.c)
    }

    /// Does it wait until another thread has initialised something, while it does so itself for something else?
    pub(super) fn keeps_initialiser(&self, group: &Group) -> bool {
        let v = self.representative(group);
        waits_for_initialiser(&v, self.c) && initialises(v.user_stack, self.c)
    }

    /// Is what a thread was in, for most of the time that it was seen, part of an initialisation?
    fn initialises_meanwhile(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        if let Mostly::Waiting(i) = act.mostly() {
            let stack = act.groups.get(i).map(|g| self.representative(g).user_stack);
            return stack.is_some_and(|s| initialises(s, self.c));
        }
        let (mut of, mut all) = (0, 0);
        for s in spans.iter().flat_map(|(a, b)| self.g.samples_of(t, *a..*b)) {
            all += 1;
            of += usize::from(initialises(s.user_stack, self.c));
        }
        of * 2 > all
    }

    /// FUTEX_PRIVATE_FLAG: no other process can wake it.
    pub(crate) fn private_futex(&self, group: &Group) -> bool {
        crate::class::private_futex(&self.representative(group), self.c)
    }

    /// Who was seen to get the lock last before the wait began, and to wake nobody for it since. It may have
    /// ended without giving it back.
    pub(crate) fn last_taker(&self, thread: ThreadId, group: &Group, silent: &Spans) -> Option<Candidate> {
        if !self.private_futex(group) {
            return None;
        }
        let (object, begun) = (self.representative(group).object, silent.first()?.0);
        let process = self.c.thread(thread)?.process;
        let taken = |t: ThreadId| {
            let mut of = self.g.vertices_in(t, 0..begun.saturating_add(1)).rev();
            of.find(|id| {
                let v = self.g.vertex(*id);
                let woken = v.woken <= begun && v.waited() > 0 && !v.open && !v.timed_out && !v.interrupted;
                woken && v.object == object && self.g.waking(*id).is_some()
            })
        };
        let others = self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t));
        let (at, id, t) = others.filter_map(|t| taken(t).map(|v| (self.g.vertex(v).woken, v, t))).max()?;
        let end = silent.last()?.1;
        let gave_back = self.g.vertices_in(t, at..end).any(|v| {
            self.g.outgoing(v).any(|e| {
                let e = self.g.edge(e);
                e.kind == EdgeKind::Futex && e.object == object && e.from_time > at
            })
        });
        if gave_back {
            return None;
        }
        let mut c = self.left(t, 1, silent);
        let why = "who owns the lock is not recorded; it was the last one seen to get it, and woke nobody for it since";
        c.entry.why_weak = Some(why.into());
        (c.vertex, c.at, c.relation) = (Some(id), at, Some(Relation::Owns));
        Some(c)
    }

    /// No thread is left that could release it: the one that ended last before the wait may have had it.
    fn ended_with_it(&self, thread: ThreadId, silent: &Spans) -> Option<Candidate> {
        let process = self.c.thread(thread)?.process;
        let (a, b) = (silent.first()?.0, silent.last()?.1);
        let ended = |t: ThreadId| self.g.exited(t).map(|x| x.0).filter(|e| *e <= a + (b - a) / 2);
        let others = self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t));
        let (end, t) = others.filter_map(|t| ended(t).map(|e| (e, t))).max()?;
        let spans: Spans = silent.iter().map(|s| (s.0.max(end), s.1)).filter(|s| s.0 < s.1).collect();
        let mut c = self.left(t, 1, &spans);
        let why = "who owns the futex is not recorded and no thread is left that could release it; this one ended before and may have had it";
        (c.entry.why_weak, c.at) = (Some(why.into()), end);
        Some(c)
    }

    fn other(&self, t: ThreadId, waiter: ThreadId, spans: &Spans, depth: usize) -> Other {
        const DEEPEST: usize = 16;
        let act = activity(self.g, self.c, t, spans);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => Other::Busy,
            Mostly::Waiting(i) => {
                let Some(g) = act.groups.get(i) else { return Other::None };
                let v = self.representative(g);
                // Whoever joins the waiter is behind it, whatever it waits for.
                let ns_tid = self.c.thread(waiter).map_or(0, |t| t.ns_tid);
                if joins(&v, self.c) && v.value == ns_tid {
                    return Other::Behind(g.clone(), false);
                }
                // Whoever joins a third one goes on when that one has ended.
                let process = self.c.process_id_of(t);
                let third = |x: &ThreadId| {
                    self.c.thread(*x).is_some_and(|x| x.ns_tid == v.value && Some(x.process) == process)
                };
                if joins(&v, self.c)
                    && depth < DEEPEST
                    && let Some(x) = self.g.threads().find(third)
                {
                    return match self.other(x, waiter, spans, depth + 1) {
                        Other::Busy | Other::Rests => Other::Busy,
                        Other::Idle => Other::Idle,
                        Other::Stuck(_) | Other::Behind(..) | Other::None => Other::Stuck(g.clone()),
                    };
                }
                // Whoever waits for clients to come has nothing that one who serves a client could wait for; nor has one
                // that waits to be told something by the other threads.
                if self.accepts(t, spans) || self.told_by_own(t, g) || self.keeps_house(g, waiter) {
                    return Other::None;
                }
                match class(&v, self.c) {
                    WaitClass::Lock | WaitClass::Condition if self.private_futex(g) => {
                        let ended = g.longest().and_then(|c| self.brought(c));
                        let ended = ended.filter(|(_, e)| e.kind != EdgeKind::Exit);
                        let whole = g.blocked * 20 >= act.total * 19;
                        // What it did before it came to wait does not matter any more.
                        let most =
                            whole || g.clips.last().is_some_and(|c| Some(c.end) == spans.last().map(|s| s.1));
                        match ended {
                            None if whole => Other::Stuck(g.clone()),
                            Some((_, e)) if most && self.let_go_by(&e, waiter, spans) => {
                                Other::Behind(g.clone(), e.weak == Some(Weak::MutexHandOff))
                            }
                            Some((_, e)) if whole && self.rests(g, &e, spans) => Other::Rests,
                            _ => Other::Busy,
                        }
                    }
                    WaitClass::Sleep | WaitClass::Other => Other::Idle,
                    c if c.idle() => Other::Idle,
                    _ => Other::Busy,
                }
            }
            Mostly::Unborn | Mostly::Gone | Mostly::Unknown => Other::None,
        }
    }

    /// The one other thread of the process that was in one and the same sleep all the time.
    fn sleeps_with_it(&self, thread: ThreadId, spans: &Spans) -> Option<ThreadId> {
        let process = self.c.process_id_of(thread)?;
        let sleeps = |t: &ThreadId| {
            *t != thread && self.counts(*t) && self.asleep(*t, spans) * 20 >= total(spans) * 19
        };
        let mut all = self.g.threads_of(process).filter(sleeps);
        all.next().filter(|_| all.next().is_none())
    }

    /// Did it wait on a condition since before `spans`, until after them?
    fn rests(&self, group: &Group, ended: &Edge, spans: &Spans) -> bool {
        let Some((a, b)) = spans.first().zip(spans.last()).map(|(a, b)| (a.0, b.1)) else { return false };
        let begun = group.clips.first().is_some_and(|c| self.g.vertex(c.first).start < a);
        begun && ended.from_time >= b && class(&self.representative(group), self.c) == WaitClass::Condition
    }

    /// Does it wait, without a time-out of its own, only for what its own process writes into a pipe?
    fn told_by_own(&self, t: ThreadId, group: &Group) -> bool {
        let v = self.representative(group);
        let pipe = self.c.object(v.object).is_some_and(|o| o.kind == ObjectKind::Pipe);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let (a, b) = group.extent();
        let mut writers = self.g.holds(t, a..b.saturating_add(1)).peekable();
        pipe && !v.timed_out
            && class(&v, self.c) == WaitClass::Channel
            && writers.peek().is_some()
            && writers.all(|h| h.relation == Relation::Writes && process(h.holder) == process(t))
    }

    /// Did `waiter` let go whoever this edge woke, itself or through others that waited until then, after its own wait in `spans`?
    fn let_go_by(&self, edge: &Edge, waiter: ThreadId, spans: &Spans) -> bool {
        const FARTHEST: usize = 8;
        let over = spans.last().map_or(0, |s| s.1);
        let mut e = *edge;
        for _ in 0..FARTHEST {
            if e.from_time < over {
                return false;
            }
            let from = self.g.vertex(e.from).thread;
            if from == waiter {
                return true;
            }
            // What it waited for when that wait was over: others (of Python's global lock) may have come since.
            let waited = self.g.vertex_at(from, over).filter(|v| self.g.vertex(*v).waited() > 0);
            let Some(id) = waited.and_then(|v| self.g.waking(v)) else { return false };
            e = self.g.edge(id);
        }
        false
    }

    /// Those of the threads `behind` a waiter that close a circle with it: none where it may have been a sleep. That
    /// it was none is certain of a lock without a time-out, and likely where it had a lock that others wanted.
    fn closed_behind(
        &self,
        group: &Group,
        silent: &Spans,
        mut behind: Vec<(ThreadId, Group, bool)>,
    ) -> Vec<(ThreadId, Group)> {
        let v = self.representative(group);
        if joins(&v, self.c) || total(silent) < CLOSED {
            return Vec::new();
        }
        if v.timed_out {
            behind.retain(|(.., unlocked)| *unlocked);
        } else if class(&v, self.c) != WaitClass::Lock {
            return Vec::new();
        }
        behind.into_iter().map(|(t, g, _)| (t, g)).collect()
    }

    /// Who asks again and again, for a moment each, for what only its process can give (Python's global lock) waits for the one
    /// thread there that was on the CPU all the time.
    pub(super) fn one_that_runs(&self, thread: ThreadId, group: &Group, silent: &Spans) -> Option<Candidate> {
        let process = self.c.process_id_of(thread).filter(|_| self.private_futex(group))?;
        let on_cpu = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, silent);
            matches!(act.mostly(), Mostly::Running | Mostly::Runnable)
        };
        let free = |t: &ThreadId| self.counts(*t) && !self.path.iter().any(|p| p.0 == *t);
        let mut all = self.g.threads_of(process).filter(|t| free(t) && on_cpu(t));
        let (Some(t), None) = (all.next(), all.next()) else { return None };
        Some(self.left(t, 1, silent))
    }

    /// A thread that is left when the others are ruled out.
    pub(super) fn left(&self, t: ThreadId, of: usize, silent: &Spans) -> Candidate {
        let why = if of == 1 {
            "who owns the futex is not recorded; it is the only thread of the process that did something else"
        } else {
            "who owns the futex is not recorded; it is one of the threads of the process that could wake it"
        };
        let at: Ns = silent.first().map_or(0, |s| s.0);
        let mut c = Candidate::unseen(t, silent.clone(), (self.g.vertex_at(t, at), at), why);
        (c.entry.sole, c.entry.doubt) = (of == 1, one_of(of));
        c
    }
}
