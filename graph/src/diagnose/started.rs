//! Processes that were to make an answer possible: programs that a server started for a request (an activated
//! service, a helper, a job), and children that failed.

use super::activity::{Group, Spans, total};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::handed::AT_ONCE;
use super::node::{Entry, SliceNode};
use super::walk::{Flow, Walk};
use crate::class::{WaitClass, class};
use crate::{Edge, EdgeKind, EventGraph, SignalFact};
use pg_event::{Catalog, Ns, Process, ProcessId, Relation, ThreadId};

/// Most generations between a server and what it starts.
const GENERATIONS: usize = 8;

impl Walk<'_> {
    /// The program that `server` (or a process that it made for that) started soon after it was asked, and that
    /// lived on while nobody answered. `None` when it started none, or several.
    pub(super) fn started_for(&self, server: ThreadId, spans: &Spans) -> Option<Candidate> {
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let own = self.c.thread(server)?.process;
        // The request comes just before the wait for its answer, and what it needs is started at once.
        let soon = (a.saturating_sub(100_000_000), a + (b - a) / 5);
        let fits = |p: &Process| {
            (soon.0..=soon.1).contains(&p.start) && p.end.is_none_or(|e| e >= b) && self.descends(p, own)
        };
        let all = self.c.processes.iter().enumerate().filter(|(_, p)| fits(p));
        let all: Vec<(ProcessId, &Process)> = all.map(|(i, p)| (ProcessId(i as u32), p)).collect();
        // Whoever made another one of them is only the way there.
        let mut last = all.iter().filter(|(id, _)| !all.iter().any(|(_, p)| p.parent == *id));
        let ((id, p), None) = (last.next()?, last.next()) else { return None };
        let thread = main_thread(self.g, self.c, *id).filter(|t| self.counts(*t))?;
        if self.path.iter().any(|(t, _)| *t == thread) {
            return None;
        }
        let began: Ns = p.start;
        let spans: Spans = spans.iter().map(|s| (s.0.max(began), s.1)).filter(|s| s.0 < s.1).collect();
        let why = "the server started it when it was asked, and did not answer while it lived";
        Some(Candidate::unseen(thread, spans, (None, began), why))
    }

    fn descends(&self, p: &Process, of: ProcessId) -> bool {
        p.parent == of || self.c.ancestors(p.parent).take(GENERATIONS - 1).any(|id| id == of)
    }

    /// The program that `server` (or a process that it made for that) started at once when it was asked, and that ended while
    /// nobody answered, and when. `None` when it started none, or several.
    pub(super) fn started_in_vain(&self, server: ThreadId, spans: &Spans) -> Option<(ThreadId, Ns)> {
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let own = self.c.thread(server)?.process;
        let soon = a.saturating_sub(AT_ONCE)..=a.saturating_add(AT_ONCE);
        // What only prepares it executes no program.
        let program = |p: &Process| p.cmdlines.len() > 1 && soon.contains(&p.start) && self.descends(p, own);
        let all: Vec<(ProcessId, &Process)> = self
            .c
            .processes
            .iter()
            .enumerate()
            .map(|(i, p)| (ProcessId(i as u32), p))
            .filter(|(_, p)| program(p))
            .collect();
        // What it started itself is part of it.
        let mut first = all.iter().filter(|(_, p)| !all.iter().any(|(id, _)| p.parent == *id));
        let ((id, p), None) = (first.next()?, first.next()) else { return None };
        let at = p.end.filter(|e| *e < b.saturating_sub((b - a) / 10))?;
        let thread = main_thread(self.g, self.c, *id).filter(|t| self.counts(*t))?;
        Some((thread, at))
    }

    /// Whoever sleeps again and again until a child has ended (`waitpid` with `WNOHANG`) waits for that child. That it
    /// does so is told by its calls, or by the end of its sleeps: it comes with the child's.
    pub(super) fn slept_for_child(
        &self,
        thread: ThreadId,
        slept: &Spans,
        rounds: usize,
    ) -> Option<Candidate> {
        let own = self.c.thread(thread)?.process;
        let (a, b) = (slept.first()?.0, slept.last()?.1);
        let soon = total(slept) / rounds.max(1) as u64;
        let calls = self.g.syscalls_of(thread, a..b);
        let asks_for = calls.iter().any(|s| s.what.nr.is_any(&["wait4", "waitid"]) && s.what.result == 0);
        // Of whom somebody else waits for no calls need be recorded, where that goes on: it is likely for its only child.
        let last = self.g.vertex_at(thread, b.saturating_sub(1));
        let goes_on = last.is_some_and(|v| self.g.vertex(v).open);
        let unknown = calls.is_empty() && self.path.len() > 1 && goes_on;
        let waits = asks_for || unknown;
        let kept = |p: &Process| {
            let over = p.end.filter(|e| *e <= b.saturating_add(soon));
            let ends_it = over.is_some_and(|e| e.saturating_add(2 * soon) >= b);
            // It must have lived nearly all the time.
            p.parent == own && p.start <= a + (b - a) / 10 && (ends_it || waits && over.is_none())
        };
        let mut all = self.c.processes.iter().enumerate().filter(|(_, p)| kept(p));
        let ((i, p), None) = (all.next()?, all.next()) else { return None };
        let child = main_thread(self.g, self.c, ProcessId(i as u32)).filter(|t| self.counts(*t))?;
        let began = p.start;
        let spans: Spans = slept.iter().map(|s| (s.0.max(began), s.1)).filter(|s| s.0 < s.1).collect();
        let why = if p.end.is_some_and(|e| e <= b.saturating_add(soon)) {
            "it slept again and again while this child of it lived, and went on when that had ended"
        } else if asks_for {
            "it sleeps again and again while this child of it lives, and asks whether that has ended"
        } else {
            "it sleeps again and again while this child of it lives, its only one; what it asks in between was not recorded"
        };
        let vertex = self.g.vertex_at(child, b.saturating_sub(1));
        let c = Candidate {
            relation: Some(Relation::ChildOf),
            ..Candidate::unseen(child, spans, (vertex, a), why)
        };
        // A child that waits for what the sleeper sends it ends when that has come to its end, not the other way round.
        (!self.closes_ring(&c)).then_some(c)
    }

    /// The only child of a process of which a thread waits for a condition, and those that could tell it wait for it, since before
    /// the recording began: some runtimes wait for a child so (the thread that is told of its end tells the others).
    pub(super) fn waited_for_inside(
        &self,
        thread: ThreadId,
        other: ThreadId,
        spans: &Spans,
    ) -> Option<Candidate> {
        let own = self.c.thread(thread)?.process;
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let v = self.g.vertex(self.g.vertex_at(thread, b.saturating_sub(1))?);
        let condition = class(&v, self.c) == WaitClass::Condition && v.begun_before && v.open;
        if self.c.thread(other)?.process != own || !condition {
            return None;
        }
        let lives = |p: &Process| p.parent == own && p.start <= a && p.end.is_none_or(|e| e >= b);
        let mut all = self.c.processes.iter().enumerate().filter(|(_, p)| lives(p));
        let ((i, _), None) = (all.next()?, all.next()) else { return None };
        let child = main_thread(self.g, self.c, ProcessId(i as u32)).filter(|t| self.counts(*t))?;
        let why = "no wake-up was recorded; the threads of the process wait for one another, and it is its only child";
        let vertex = self.g.vertex_at(child, b.saturating_sub(1));
        let c = Candidate {
            relation: Some(Relation::ChildOf),
            ..Candidate::unseen(child, spans.clone(), (vertex, a), why)
        };
        // A helper waits for what its parent asks it next.
        (!self.is_idle(&c) && !self.closes_ring(&c)).then_some(c)
    }

    /// On to the child that one of the threads that are left waits for, as it seems, else they wait for one another.
    pub(super) fn closed_or_child(
        &mut self,
        thread: ThreadId,
        group: &Group,
        others: Vec<(ThreadId, Group)>,
        silent: &Spans,
    ) -> Flow<()> {
        let of = |(t, g): &(ThreadId, Group)| {
            if self.for_lock(g) || self.path.iter().any(|p| p.0 == *t) {
                return None;
            }
            let child = self.spawned_before(*t, g).or_else(|| self.waited_for_inside(*t, thread, silent));
            Some((*t, g.clone(), child?))
        };
        let Some((t, g, child)) = others.iter().find_map(of) else {
            self.closed(thread, group, others);
            return Ok(());
        };
        let why = "who owns the futex is not recorded; it waits for a child of the process, as it seems, and all others for one another";
        let entry = Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why.into()), ..Entry::default() };
        self.push_wait(t, &g, entry);
        self.path.push((t, silent.clone()));
        self.visit(child.thread, child.spans, child.entry)
    }

    /// The only child of a process, if `t` made it right before it began to wait and it lived on all that time.
    fn spawned_before(&self, t: ThreadId, group: &Group) -> Option<Candidate> {
        const SHORTLY: Ns = 1_000_000_000;
        let own = self.c.thread(t)?.process;
        let (a, b) = group.extent();
        let begun = self.g.vertex(group.clips.first()?.first).start;
        let lives = |p: &Process| p.parent == own && p.end.is_none_or(|e| e >= b);
        let mut all = self.c.processes.iter().enumerate().filter(|(_, p)| lives(p));
        let ((i, p), None) = (all.next()?, all.next()) else { return None };
        let child = main_thread(self.g, self.c, ProcessId(i as u32)).filter(|t| self.counts(*t))?;
        let made = self.g.vertices_in(t, begun.saturating_sub(SHORTLY)..b).any(|v| {
            let to_child = |e: Edge| e.kind == EdgeKind::Spawn && self.g.vertex(e.to).thread == child;
            self.g.outgoing(v).any(|e| to_child(self.g.edge(e)))
        });
        let spans = vec![(a.max(p.start), b)];
        let why = "no wake-up was recorded; it made this child, the only one of its process, right before it began to wait";
        let vertex = self.g.vertex_at(child, b.saturating_sub(1));
        made.then(|| Candidate {
            relation: Some(Relation::ChildOf),
            ..Candidate::unseen(child, spans, (vertex, a), why)
        })
    }

    /// A child that failed while its parent waited for a message: what nobody else can send may have been its to
    /// send.
    pub(super) fn lost_child(&self, thread: ThreadId, class: WaitClass, silent: &Spans) -> Option<Candidate> {
        if class != WaitClass::Channel {
            return None;
        }
        let own = self.c.process_id_of(thread).filter(|p| p.is_some())?;
        let (a, b) = (silent.first()?.0, silent.last()?.1);
        let failed = |p: &pg_event::Process| {
            p.parent == own && p.end.is_some_and(|e| a <= e && e < b) && p.exit_status.is_some_and(|s| s != 0)
        };
        let children = self.c.processes.iter().enumerate().filter(|(_, p)| failed(p));
        let (i, p) = children.max_by_key(|(_, p)| p.end)?;
        let child = main_thread(self.g, self.c, ProcessId(i as u32))?;
        let end = p.end.unwrap_or(a);
        let spans: Spans = silent.iter().map(|s| (s.0.max(end), s.1)).filter(|s| s.0 < s.1).collect();
        let why = "nobody is known to have the other end; it is a child that failed during the wait";
        Some(Candidate::unseen(child, spans, (None, end), why))
    }

    /// A process of the way and its children wait for one another, or for what nobody brings, and one of these children was
    /// killed or failed: what that was to do nobody does. The way ends there, instead of among those that are left.
    pub(super) fn killed_on_the_way(&mut self) {
        let Some((f, first)) = self.out.findings.first().and_then(|f| Some((f, self.out.nodes.get(f.node)?)))
        else {
            return;
        };
        let vain = match f.kind {
            FindingKind::Idle | FindingKind::Unanswered | FindingKind::Here => true,
            // No state says so: each link is a guess.
            FindingKind::Circular => {
                self.out.nodes[1..].iter().all(|n| n.why_weak.is_some()) && !self.owned()
            }
            _ => false,
        };
        let waits = self.g.vertex(first.vertex);
        if !vain || waits.timed_out || self.out.ask.is_some() {
            return;
        }
        let Some(of) = self.c.process_of(f.thread) else { return };
        let family = [self.c.process_id_of(f.thread).unwrap_or(ProcessId::NONE), of.parent];
        let found = self.out.nodes.iter().enumerate().find_map(|(i, n)| {
            let p = self.c.process_id_of(n.thread).filter(|p| p.is_some() && family.contains(p))?;
            let began = self.g.vertex(n.vertex).start;
            self.killed_child(p, began, n.start + n.duration / 2).map(|(child, at)| (i, child, at))
        });
        let Some((node, child, at)) = found else { return };
        let until = self.out.nodes[node].start + self.out.nodes[node].duration;
        self.out.nodes.truncate(node + 1);
        self.out.ring = false;
        let missed = until.saturating_sub(at.max(self.out.nodes[node].start));
        self.push_ended(child, (at, until), missed, KILLED);
        let waiter = &self.out.nodes[node];
        let (thread, within) = (waiter.thread, vec![(waiter.start, until)]);
        let (ended, unanswered) = (FindingKind::Ended, FindingKind::Unanswered);
        self.out.findings = vec![
            Finding { thread: child, node: node + 1, kind: ended, spans: vec![(at, until.max(at))] },
            Finding { thread, node, kind: unanswered, spans: within },
        ];
    }

    /// A step for somebody who ended at the first of two times; that lasts to the second one and counts for `missed`, ns.
    pub(super) fn push_ended(&mut self, who: ThreadId, (at, until): (Ns, Ns), missed: Ns, why: &str) {
        let entry = Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why.into()), ..Entry::default() };
        let gone = SliceNode::plain(who, self.last_vertex(who), "exited", (at, until.max(at)), missed);
        self.out.nodes.push(gone.entered(entry));
    }

    /// Is the owner of a lock on the way known?
    fn owned(&self) -> bool {
        let owns = |n: &SliceNode| {
            let mut holds = self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1));
            holds.any(|h| h.relation == Relation::Owns)
        };
        self.out.nodes.iter().any(owns)
    }

    /// Did a process fail that executed no program of its own: a worker, unlike a command, whose failure may be its answer?
    fn failed_copy(&self, p: &Process) -> bool {
        let Some(parent) = self.c.process(p.parent) else { return false };
        let copy = p.cmdlines.len() < 2 || p.start == 0;
        let same = !p.exe.is_empty() && (&p.exe, p.cmdline()) == (&parent.exe, parent.cmdline());
        copy && same && p.exit_status.is_some_and(|s| matches!((s & 0x7f, s >> 8), (0, 1..)))
    }

    /// The child of a process that was killed, or a copy of it that failed, last before `until`, while the process waited or shortly
    /// before it began to; not by its parent, which means it.
    fn killed_child(&self, parent: ProcessId, began: Ns, until: Ns) -> Option<(ThreadId, Ns)> {
        const SHORTLY: Ns = 1_000_000_000;
        let killed = |(i, p): (usize, &Process)| {
            let signal = p.exit_status.map(|s| s & 0x7f)?;
            if killed_by(p).is_none() && !self.failed_copy(p) {
                return None;
            }
            let at = p.end.filter(|e| *e > 0 && *e < until && began <= e.saturating_add(SHORTLY))?;
            let id = ProcessId(i as u32);
            let meant = || meant(self.g, self.c, id, signal, at);
            (p.parent == parent && !meant()).then_some((at, id))
        };
        let (at, id) = self.c.processes.iter().enumerate().filter_map(killed).max()?;
        main_thread(self.g, self.c, id).map(|t| (t, at))
    }
}

/// The signal that ended a process, where it is one that kills.
fn killed_by(p: &Process) -> Option<u32> {
    /// SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM, SIGSYS.
    const KILLS: [u32; 8] = [4, 6, 7, 8, 9, 11, 15, 31];
    p.exit_status.map(|s| s & 0x7f).filter(|s| KILLS.contains(s))
}

/// Of the processes that fit, the one that was killed last before `until`: its first thread, by which signal, when.
pub(crate) fn last_killed(
    g: &EventGraph,
    c: &Catalog,
    until: Ns,
    fits: impl Fn(ProcessId, &Process) -> bool,
) -> Option<(ThreadId, u32, Ns)> {
    let killed = |(i, p): (usize, &Process)| {
        let at = p.end.filter(|e| *e > 0 && *e < until)?;
        let (signal, id) = (killed_by(p)?, ProcessId(i as u32));
        fits(id, p).then_some((at, signal, id))
    };
    let (at, signal, id) = c.processes.iter().enumerate().filter_map(killed).max()?;
    main_thread(g, c, id).map(|t| (t, signal, at))
}

/// How a killed child came to be on the way.
pub(crate) const KILLED: &str =
    "no wake-up was recorded; the process and its other children wait in vain since this child of it ended";

/// How a program came to be on the way that a server started.
pub(crate) const STARTED: &str =
    "the server started it when it was asked, and did not answer, before it ended or after";

/// Did a process' parent send the signal that ended it at `end`? It has no more use for it then.
pub(crate) fn meant(g: &EventGraph, c: &Catalog, process: ProcessId, signal: u32, end: Ns) -> bool {
    let by = sent_by(g, c, process, signal, end).and_then(|t| c.process_id_of(t));
    by.is_some() && by == c.process(process).map(|p| p.parent)
}

/// Who sent the signal that ended a process at `end`, where that was seen.
pub(crate) fn sent_by(
    g: &EventGraph,
    c: &Catalog,
    process: ProcessId,
    signal: u32,
    end: Ns,
) -> Option<ThreadId> {
    let of = |t: ThreadId| c.process_id_of(t) == Some(process);
    let fits = |s: &&SignalFact| u32::from(s.signal) == signal && s.time <= end && of(s.to) && !of(s.from);
    g.signals().iter().rev().find(fits).map(|s| s.from)
}
