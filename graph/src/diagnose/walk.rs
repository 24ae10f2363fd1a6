//! The walk backwards from the victim: at each step, who kept the thread of the step before waiting, and
//! what did *it* do meanwhile? Time decides: a step goes where most of the waiting time went.

use super::activity::{Activity, Group, Mostly, Spans, activity, merged, total};
use super::ask::Candidate;
use super::data_flag::{Asks, DATA_FLAG};
use super::node::{Entry, SliceNode};
use super::{Options, answerless};
use crate::class::{WaitClass, asked, class, vague};
use crate::episode::WaitKey;
use crate::profile::profile;
use crate::report::QuestionInfo;
use crate::starved::{Starved, starved};
use crate::words::{clean, short_who, span};
use crate::yields::yield_loop;
use crate::{Decision, EdgeKind, EventGraph, Question, Vertex, VertexId, Victim, Weak};
use pg_event::{Catalog, Ns, Relation, ThreadId};
use std::collections::HashSet;

/// What a walk came to.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Outcome {
    pub nodes: Vec<SliceNode>,
    pub ask: Option<Box<Question>>,
    pub asked: Vec<QuestionInfo>,
    pub used: Vec<Decision>,
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
    /// Threads that could have been followed and were not, and why.
    pub rejected: Vec<(ThreadId, String)>,
    /// The way came back to a thread that is on it.
    pub ring: bool,
    /// In a look ahead: how often a question would have come.
    pub would_ask: usize,
}

/// Where a walk ended, and why it is a cause.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Finding {
    pub thread: ThreadId,
    /// Index of its step in the slice.
    pub node: usize,
    pub kind: FindingKind,
    /// The spans it is about.
    pub spans: Spans,
}

/// Sorts of causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FindingKind {
    /// On the CPU.
    Running,
    /// On the CPU only to give it up again: a yield loop.
    Yielding,
    /// Wanted the CPU and did not have it.
    NoCpu,
    /// The same by a limit, while CPUs were idle.
    Throttled,
    /// Slept for a time it chose itself.
    Sleeping,
    /// Waits for something to do: the missing step was expected of it.
    Idle,
    /// Waits for what nobody brings.
    Unanswered,
    /// Waits for somebody who waits for it.
    Circular,
    /// All threads that could let each other go on wait.
    Closed,
    /// Waits for a device or file system.
    Device,
    /// Stopped by a signal.
    Stopped,
    /// Keeps another one stopped as its tracer.
    Tracer,
    /// Ended.
    Ended,
    /// The walk was told to stop here, or cannot see further.
    Here,
}

/// Either go on, or a question is open.
pub(crate) type Flow<T> = Result<T, Box<Question>>;

pub(crate) struct Walk<'g> {
    pub g: &'g EventGraph,
    pub c: &'g Catalog,
    pub options: &'g Options,
    pub victim: &'g Victim,
    decisions: &'g [Decision],
    /// Take recommendations without asking (a look ahead).
    pub auto: bool,
    pub out: Outcome,
    /// Threads on the way and their waiting spans.
    pub path: Vec<(ThreadId, Spans)>,
}

/// Longest way: real ones have a handful of steps.
const MAX_STEPS: usize = 48;

impl<'g> Walk<'g> {
    pub fn new(
        g: &'g EventGraph,
        c: &'g Catalog,
        victim: &'g Victim,
        options: &'g Options,
        decisions: &'g [Decision],
    ) -> Self {
        Self { g, c, options, victim, decisions, auto: false, out: Outcome::default(), path: Vec::new() }
    }

    pub fn run(mut self) -> Outcome {
        if let Err(q) = self.begin() {
            self.out.ask = Some(q);
        }
        self.out
    }

    /// A copy that does not ask, for looking ahead.
    pub fn ahead(&self) -> Self {
        Self {
            g: self.g,
            c: self.c,
            options: self.options,
            victim: self.victim,
            decisions: &[],
            auto: true,
            out: Outcome { nodes: self.out.nodes.clone(), ..Outcome::default() },
            path: self.path.clone(),
        }
    }

    fn begin(&mut self) -> Flow<()> {
        let v = self.victim;
        let spans = vec![(v.start, v.end())];
        let Some(key) = v.episode.key else {
            let act = activity(self.g, self.c, v.thread, &spans);
            return self.busy(v.thread, &act, &spans, Entry::default(), FindingKind::Running);
        };
        let act = activity(self.g, self.c, v.thread, &spans);
        // All waits of the key within the episode, as one.
        let Some(mut group) = act.groups.into_iter().find(|g| g.key == key) else { return Ok(()) };
        if let (Some(first), Some(last)) = (group.clips.first().copied(), group.clips.last().copied()) {
            let mut one = first;
            one.last = last.last;
            one.end = last.end;
            one.full_end = last.full_end;
            one.blocked = group.blocked;
            one.resolved = true;
            group.clips = vec![one];
        }
        self.push_wait(v.thread, &group, Entry::default());
        self.path.push((v.thread, spans));
        self.resolve(v.thread, &group)
    }

    /// What did `thread` do within `spans`, in which the step before waited for it?
    pub fn visit(&mut self, thread: ThreadId, spans: Spans, entry: Entry) -> Flow<()> {
        let spans = merged(spans);
        if self.path.iter().any(|(t, _)| *t == thread) {
            self.ring(thread, &spans, entry);
            return Ok(());
        }
        let act = activity(self.g, self.c, thread, &spans);
        if self.path.len() >= MAX_STEPS {
            self.out.notes.push(format!("the way back was cut after {MAX_STEPS} steps"));
            return Ok(());
        }
        match act.mostly() {
            Mostly::Running => self.busy(thread, &act, &spans, entry, FindingKind::Running),
            Mostly::Runnable => self.busy(thread, &act, &spans, entry, FindingKind::NoCpu),
            Mostly::Unborn => self.unborn(thread, act, entry),
            Mostly::Gone => {
                let at = self.g.ended(thread).unwrap_or(0);
                let vertex = self.last_vertex(thread);
                let end = spans.last().map_or(at, |s| s.1);
                self.out.nodes.push(
                    SliceNode::plain(thread, vertex, "exited", (at.min(end), end), act.gone).entered(entry),
                );
                self.found(thread, FindingKind::Ended, spans);
                Ok(())
            }
            Mostly::Waiting(i) => {
                let Some(group) = act.groups.get(i).cloned() else { return Ok(()) };
                self.push_wait(thread, &group, entry);
                self.path.push((thread, spans));
                self.resolve(thread, &group)
            }
            Mostly::Unknown => {
                self.out.notes.push(format!(
                    "{} was not seen for {} of the time that matters: {}",
                    clean(&short_who(self.c, thread), 60),
                    span(if act.unseen > 0 { act.unseen } else { act.total }),
                    self.why_unseen(&spans)
                ));
                let vertex = self.last_vertex(thread);
                if vertex.0 != u32::MAX {
                    let all = (spans.first().map_or(0, |s| s.0), spans.last().map_or(0, |s| s.1));
                    let node = SliceNode::plain(thread, vertex, "unknown", all, act.unseen).entered(entry);
                    self.out.nodes.push(node);
                    self.found(thread, FindingKind::Here, spans);
                }
                Ok(())
            }
        }
    }

    fn why_unseen(&self, spans: &Spans) -> &'static str {
        if spans.iter().any(|s| self.g.lost_within(&(s.0..s.1))) {
            "events were lost"
        } else {
            "no record and no sample tells what it did"
        }
    }

    fn last_vertex(&self, thread: ThreadId) -> VertexId {
        self.g.vertices_of(thread).next_back().unwrap_or(VertexId(u32::MAX))
    }

    pub fn found(&mut self, thread: ThreadId, kind: FindingKind, spans: Spans) {
        let node = self.out.nodes.len().saturating_sub(1);
        self.out.findings.push(Finding { thread, node, kind, spans });
    }

    fn busy(
        &mut self,
        thread: ThreadId,
        act: &Activity,
        spans: &Spans,
        entry: Entry,
        kind: FindingKind,
    ) -> Flow<()> {
        let all = (act.active.first().map_or(0, |s| s.0), act.active.last().map_or(0, |s| s.1));
        let longest = act.active.iter().max_by_key(|s| s.1 - s.0).map_or(all.0, |s| s.0);
        let vertex = self.g.vertex_at(thread, longest).unwrap_or(self.last_vertex(thread));
        let starved = (act.runnable * 3 > act.total).then(|| starved(self.g, self.c, thread, spans));
        let kind = match &starved {
            Some(s) if s.throttled() || act.throttled * 2 > act.runnable => FindingKind::Throttled,
            _ => kind,
        };
        let (state, spent) = match kind {
            FindingKind::NoCpu => ("runnable", act.runnable),
            FindingKind::Throttled => ("throttled", act.runnable),
            _ => ("running", act.running),
        };
        let mut node = SliceNode::plain(thread, vertex, state, all, spent).entered(entry);
        let p = profile(self.g, self.c, thread, spans);
        let yields = yield_loop(self.g, self.c, thread, spans, &p);
        node.stack = p.stack;
        node.function = p.function;
        match kind {
            FindingKind::NoCpu => node.waits_on = Some("run-queue".into()),
            FindingKind::Throttled => {
                let group = self.c.process_of(thread).map_or("", |p| p.cgroup.as_str());
                node.waits_on = Some("cpu-quota".into());
                node.object = act.quota;
                node.limit = (!group.is_empty()).then(|| format!("cgroup {group}"));
            }
            _ => {}
        }
        self.out.nodes.push(node);
        let Some(how) = yields else {
            self.found(thread, kind, spans.clone());
            if kind == FindingKind::NoCpu
                && let Some((peer, share)) = starved.as_ref().and_then(Starved::peer)
            {
                self.taken_by(peer, share, act, spans);
            }
            return Ok(());
        };
        let asks = Asks {
            vertex,
            start: spans.first().map_or(0, |s| s.0),
            spans: spans.clone(),
            rounds: 0,
            how: format!("{} for {}", how.words(), span(total(spans))),
        };
        self.path.push((thread, spans.clone()));
        if !self.by_flag(thread, &asks)? {
            self.no_flag(thread, &asks)?;
            self.found(thread, FindingKind::Yielding, spans.clone());
        }
        Ok(())
    }

    /// The thread that had the CPU while the last step's wanted it: it comes first, since it is what a person can
    /// act on.
    fn taken_by(&mut self, peer: ThreadId, share: f64, act: &Activity, spans: &Spans) {
        if !self.counts(peer) || self.path.iter().any(|p| p.0 == peer) {
            return;
        }
        let own = activity(self.g, self.c, peer, spans);
        let all = (act.active.first().map_or(0, |s| s.0), act.active.last().map_or(0, |s| s.1));
        let vertex = self.g.vertex_at(peer, all.0).unwrap_or(self.last_vertex(peer));
        let why = format!(
            "it ran {:.0} % of the time in which the other could have run and had no CPU",
            share * 100.0
        );
        let entry = Entry { edge: Some(EdgeKind::Holder), id: None, why_weak: Some(why) };
        let mut node = SliceNode::plain(peer, vertex, "running", all, own.running).entered(entry);
        let p = profile(self.g, self.c, peer, spans);
        (node.stack, node.function) = (p.stack, p.function);
        self.out.nodes.push(node);
        let node = self.out.nodes.len() - 1;
        let finding = Finding { thread: peer, node, kind: FindingKind::Running, spans: spans.clone() };
        let before = self.out.findings.len().saturating_sub(1);
        self.out.findings.insert(before, finding);
    }

    fn unborn(&mut self, thread: ThreadId, act: Activity, entry: Entry) -> Flow<()> {
        let before = merged(act.before_birth);
        let Some(first) = self.g.vertices_of(thread).next() else { return Ok(()) };
        let all = (before.first().map_or(0, |s| s.0), before.last().map_or(0, |s| s.1));
        let node = SliceNode::plain(thread, first, "not-created", all, act.unborn).entered(entry);
        self.out.nodes.push(node);
        self.path.push((thread, before.clone()));
        let spawn = self.g.incoming(first).find(|e| self.g.edge(*e).kind == EdgeKind::Spawn);
        let (creator, entry) = if let Some(id) = spawn {
            let e = self.g.edge(id);
            let why_weak = e.weak.map(|w| w.words().to_owned());
            let entry = Entry { edge: Some(EdgeKind::Spawn), id: Some(id), why_weak };
            (Some(self.g.vertex(e.from).thread), entry)
        } else {
            let parent = self.c.process_of(thread).map(|p| p.parent);
            let main = parent.and_then(|p| answerless::main_thread(self.g, self.c, p));
            let why_weak = Some("no creation was recorded; the parent is taken for the creator".into());
            (main, Entry { edge: Some(EdgeKind::Spawn), id: None, why_weak })
        };
        if let Some(t) = creator {
            return self.visit(t, before, entry);
        }
        self.found(thread, FindingKind::Here, before);
        Ok(())
    }

    /// The thread is on the way already. When every step of the ring must be ended by the next one, it waits
    /// for itself in the end; else somebody in it idles, and was expected to act.
    fn ring(&mut self, thread: ThreadId, spans: &Spans, entry: Entry) {
        self.out.ring = true;
        let Some(from) = self.out.nodes.iter().position(|n| n.thread == thread) else { return };
        let idle = (from..self.out.nodes.len()).rev().find(|i| {
            let n = &self.out.nodes[*i];
            let first = self.first_of(n);
            let v = self.g.vertex(n.vertex);
            let obliged = class(&v, self.c).obliges(asked(self.g, self.c, first)) && !vague(&v, self.c);
            let flag = n.waits_on.as_deref() == Some(DATA_FLAG);
            n.state != "not-created" && n.state != "exited" && !obliged && !flag
        });
        // Nobody asked anybody: each waits for the other to begin.
        let Some(idle) = idle.filter(|_| !self.all_wait_to_begin(from)) else {
            return self.circular(thread, spans, entry);
        };
        let mut find = |node: usize, kind| {
            let n = &self.out.nodes[node];
            let spans = vec![(n.start, n.start + n.duration)];
            self.out.findings.push(Finding { thread: n.thread, node, kind, spans });
        };
        if idle == 0 {
            return find(0, FindingKind::Unanswered);
        }
        find(idle, FindingKind::Idle);
        find(idle - 1, FindingKind::Unanswered);
    }

    /// Do all steps from `from` on wait for data on one channel, without a request of their own?
    fn all_wait_to_begin(&self, from: usize) -> bool {
        self.out.nodes[from..].iter().all(|n| {
            let v = self.g.vertex(n.vertex);
            n.state == "blocked"
                && class(&v, self.c) == WaitClass::Channel
                && !asked(self.g, self.c, self.first_of(n))
        })
    }

    /// The vertex that leads in with the first wait of a step.
    fn first_of(&self, n: &SliceNode) -> VertexId {
        let key = crate::episode::wait_key(&self.g.vertex(n.vertex), self.c);
        self.g
            .vertices_in(n.thread, n.start..n.start + n.duration)
            .find(|v| crate::episode::wait_key(&self.g.vertex(*v), self.c) == key)
            .unwrap_or(n.vertex)
    }

    /// The thread is on the way already: it waits for itself in the end.
    fn circular(&mut self, thread: ThreadId, spans: &Spans, entry: Entry) {
        let Some(at) = self.out.nodes.iter().position(|n| n.thread == thread) else { return };
        let last = self.out.nodes.len() - 1;
        self.out.nodes.push(SliceNode { why_weak: None, ..self.out.nodes[at].clone() }.entered(entry));
        // The last one before the circle closes is what a person can act on, then the closing one.
        let from = self.out.nodes[last].thread;
        self.out.findings.push(Finding {
            thread: from,
            node: last,
            kind: FindingKind::Circular,
            spans: spans.clone(),
        });
        if from != thread {
            self.out.findings.push(Finding {
                thread,
                node: at,
                kind: FindingKind::Circular,
                spans: spans.clone(),
            });
        }
    }

    pub fn push_wait(&mut self, thread: ThreadId, group: &Group, entry: Entry) {
        let Some(longest) = group.longest() else { return };
        let (a, b) = (group.clips.first().map_or(0, |c| c.start), group.clips.last().map_or(0, |c| c.end));
        // Renewals: the longest single wait of the clip has the stack.
        let vertex = self
            .g
            .vertices_in(thread, longest.start..longest.end)
            .filter(|v| *v >= longest.first && *v <= longest.last)
            .filter(|v| crate::episode::wait_key(&self.g.vertex(*v), self.c) == group.key)
            .max_by_key(|v| self.g.vertex(*v).waited())
            .unwrap_or(longest.last);
        let mut node = SliceNode::waiting(self.g, self.c, vertex, (a, b)).entered(entry);
        node.spent = group.blocked;
        node.waits = group.waits;
        self.out.nodes.push(node);
    }

    /// The wait of the last step: who ended it?
    fn resolve(&mut self, thread: ThreadId, group: &Group) -> Flow<()> {
        let (candidates, silent) = self.wakers(group);
        let Some((candidates, silent)) = self.past_workers(thread, group, candidates, silent) else {
            return Ok(());
        };
        let woken: Ns = candidates.iter().map(|c| c.time).max().unwrap_or(0);
        let v = self.representative(group);
        let class = class(&v, self.c);
        let unanswered = total(&silent);
        // That it was stopped is what matters, whoever continued it in the end.
        if class == WaitClass::Stopped {
            self.found(thread, FindingKind::Stopped, group_spans(group));
        }
        if woken == 0 || woken < unanswered {
            return self.answerless(thread, group, class, silent);
        }
        let mut candidates = candidates;
        if class == WaitClass::Lock {
            self.past_the_queue(thread, group.key, &mut candidates);
        }
        // Who handed a lock over need not be who held it: the owner found from its state is an option too.
        if class == WaitClass::Lock && candidates.first().is_some_and(|c| c.weak == Some(Weak::MutexHandOff))
        {
            for h in self.holders(thread, group, class, &group_spans(group)) {
                if !candidates.iter().any(|c| c.thread == h.thread) {
                    candidates.push(h);
                }
            }
        }
        let Some(c) = self.choose_edge(thread, group, candidates)? else {
            self.found(thread, FindingKind::Here, group_spans(group));
            return Ok(());
        };
        self.follow(c, class)
    }

    /// Whoever handed the lock over had queued for it too: what made it scarce is the one that had it before
    /// them all, so a hand-off through a queue is one step.
    fn past_the_queue(&self, thread: ThreadId, key: WaitKey, candidates: &mut Vec<Candidate>) {
        const LONGEST_QUEUE: usize = 10_000;
        let mut seen = HashSet::from([thread]);
        for c in candidates.iter_mut() {
            let mut passed = 0;
            while c.weak == Some(Weak::MutexHandOff) && passed < LONGEST_QUEUE && seen.insert(c.thread) {
                let act = activity(self.g, self.c, c.thread, &merged(c.spans.clone()));
                let Mostly::Waiting(i) = act.mostly() else { break };
                let Some(queued) = act.groups.get(i).filter(|g| g.key == key) else { break };
                let (before, _) = self.wakers(queued);
                let Some(next) = before.into_iter().find(|n| n.waking && !seen.contains(&n.thread)) else {
                    break;
                };
                passed += 1;
                *c = Candidate { time: c.time.min(next.time), ..next };
            }
            if passed > 0 {
                let others = if passed == 1 { "another thread".into() } else { format!("{passed} threads") };
                let why = c.weak.map_or("", Weak::words);
                c.entry.why_weak = Some(format!("{why}; {others} that queued for it handed it on"));
            }
        }
        let mut known = HashSet::new();
        candidates.retain(|c| known.insert(c.thread));
    }

    /// Go on to a candidate; a tracer is a cause by being attached, whatever it waits for itself.
    pub fn follow(&mut self, c: Candidate, class: WaitClass) -> Flow<()> {
        let at = self.out.nodes.len();
        let (thread, spans) = (c.thread, c.spans.clone());
        let flow = self.visit(c.thread, c.spans, c.entry);
        let reached = self.out.nodes.get(at).is_some_and(|n| n.thread == thread);
        if class == WaitClass::Traced && reached {
            self.out.findings.insert(0, Finding { thread, node: at, kind: FindingKind::Tracer, spans });
        }
        flow
    }

    pub fn representative(&self, group: &Group) -> Vertex {
        let last = group.longest().map_or(VertexId(u32::MAX), |c| c.last);
        self.g.vertex(last)
    }

    /// Who ended the waits of a group, by the time waited for each, and the spans that nobody ended.
    fn wakers(&self, group: &Group) -> (Vec<Candidate>, Spans) {
        let mut out: Vec<Candidate> = Vec::new();
        let mut silent = Spans::new();
        for clip in &group.clips {
            let v = self.g.vertex(clip.last);
            let real =
                |e: &crate::Edge| e.weak != Some(Weak::Signal) && self.counts(self.g.vertex(e.from).thread);
            let waking = self.g.waking(clip.last).map(|id| (id, self.g.edge(id))).filter(|(_, e)| real(e));
            let ended = !v.timed_out && !v.open && !v.interrupted;
            let brought = |e: &crate::Edge| !self.only_interrupts(clip, e);
            let Some((id, e)) = waking.filter(|(_, e)| ended && brought(e)) else {
                silent.push((clip.start, clip.end));
                continue;
            };
            let spans = (clip.start, clip.end.min(e.from_time.max(clip.start)));
            Candidate::add(&mut out, self, id, &e, spans, clip.blocked, true);
        }
        // Other edges into the longest wait: messages that the vertex took besides the one that woke it.
        if let Some(clip) = group.longest()
            && !out.is_empty()
        {
            for id in self.g.incoming(clip.last).skip(1) {
                let e = self.g.edge(id);
                let from = self.g.vertex(e.from).thread;
                let relevant = e.kind != EdgeKind::ProgramOrder && self.counts(from);
                if relevant && !out.iter().any(|c| c.thread == from) {
                    let spans = (clip.start, clip.end.min(e.from_time.max(clip.start)));
                    Candidate::add(&mut out, self, id, &e, spans, clip.blocked, false);
                }
            }
        }
        out.sort_by(|a, b| b.waking.cmp(&a.waking).then(b.time.cmp(&a.time)).then(a.thread.cmp(&b.thread)));
        (out, merged(silent))
    }

    /// A child's end interrupts any wait of its parent (SIGCHLD). If the wait was for a channel of which others
    /// have the other end open, that end did not bring what was waited for.
    pub fn only_interrupts(&self, clip: &super::activity::Clip, e: &crate::Edge) -> bool {
        let v = self.g.vertex(clip.last);
        let channel = matches!(class(&v, self.c), WaitClass::Channel | WaitClass::Room);
        if e.kind != EdgeKind::Exit || !channel {
            return false;
        }
        let process = |t| self.c.thread(t).map(|t| t.process);
        let (own, ended) = (process(v.thread), process(self.g.vertex(e.from).thread));
        let child = ended.and_then(|p| self.c.process(p)).map(|p| p.parent) == own && own.is_some();
        child
            && self.g.holds(v.thread, clip.start..clip.end.saturating_add(1)).any(|h| {
                let other = process(h.holder);
                let end = matches!(h.relation, Relation::Reads | Relation::Writes | Relation::Peer);
                end && other != own && other != ended
            })
    }

    /// May the thread be a cause at all?
    pub fn counts(&self, thread: ThreadId) -> bool {
        self.c.thread(thread).is_some_and(|t| !t.own)
    }

    /// Record an answer, or hand the question out.
    pub fn decide(&mut self, q: Question) -> Flow<usize> {
        if self.auto {
            return Ok(q.recommended);
        }
        if let Some(d) = self.decisions.iter().find(|d| d.question == q.key) {
            let answer = if d.answer > q.choices.len() { q.recommended } else { d.answer };
            self.out.used.push(Decision { answer, ..*d });
            self.out.asked.push(QuestionInfo {
                kind: q.key.kind.name().into(),
                text: q.text.clone(),
                options: q.choices.len(),
                answer,
                by: d.by.name().into(),
            });
            return Ok(answer);
        }
        if self.out.asked.len() >= self.options.max_questions {
            self.out.notes.push(format!(
                "more than {} questions came up; for \"{}\" the recommended answer was taken",
                self.options.max_questions,
                clean(&q.text, 120)
            ));
            return Ok(q.recommended);
        }
        Err(Box::new(q))
    }

    /// How much of the victim's time `time` is.
    pub fn share(&self, time: Ns) -> f64 {
        time as f64 / self.victim.duration.max(1) as f64
    }

    /// "12.9 s of 13.0 s".
    pub fn of_victim(&self, time: Ns) -> String {
        format!("{} of the {} that it hung", span(time), span(self.victim.duration))
    }
}

/// Spans of a group's waits.
pub(crate) fn group_spans(group: &Group) -> Spans {
    merged(group.clips.iter().map(|c| (c.start, c.end)).collect())
}
