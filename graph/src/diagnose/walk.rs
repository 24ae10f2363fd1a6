//! The walk backwards from the victim: at each step, who kept the thread of the step before waiting, and
//! what did *it* do meanwhile? Time decides: a step goes where most of the waiting time went.

use super::Options;
use super::activity::{Clip, Group, Mostly, Spans, activity, merged, total};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind, Outcome};
use super::node::{Entry, SliceNode};
use crate::class::{WaitClass, class, is_schedulers_own};
use crate::report::QuestionInfo;
use crate::words::{clean, short_who, span};
use crate::{Decision, EdgeKind, EventGraph, Question, Vertex, VertexId, Victim, Weak};
use pg_event::{Catalog, ModuleKind, Ns, ThreadId};
use std::cell::Cell;
use std::rc::Rc;

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
    /// Who let a server on the way turn, where the way went on to who answered it for the step before instead.
    passed: Vec<(ThreadId, Candidate)>,
    /// Steps that looks ahead may still take; looks within one share it.
    ahead: Rc<Cell<u32>>,
}

/// Steps of a look ahead, those of the looks within it included: where several threads have what each other one of them waits
/// for, all ways between them are too many.
const MAX_AHEAD: u32 = 1000;

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
        let (out, path, passed) = (Outcome::default(), Vec::new(), Vec::new());
        let ahead = Rc::new(Cell::new(MAX_AHEAD));
        Self { g, c, options, victim, decisions, auto: false, out, path, passed, ahead }
    }

    pub fn run(mut self) -> Outcome {
        if let Err(q) = self.begin() {
            self.out.ask = Some(q);
        }
        self.killed_on_the_way();
        self.name_session();
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
            passed: self.passed.clone(),
            ahead: if self.auto { Rc::clone(&self.ahead) } else { Rc::new(Cell::new(MAX_AHEAD)) },
        }
    }

    fn begin(&mut self) -> Flow<()> {
        let v = self.victim;
        let spans = vec![(v.start, v.end())];
        if let Some(r) = self.retries(v.thread, &spans).filter(|_| v.episode.tries > 0).cloned() {
            return self.tries(v.thread, &r, &spans, Entry::default());
        }
        let Some(key) = v.episode.key else {
            let act = activity(self.g, self.c, v.thread, &spans);
            // A stretch that was found by its length ran; a slow unit may have been kept from it.
            let kept_off = v.violation.is_some() && act.on_cpu() == Mostly::Runnable;
            let kind = if kept_off { FindingKind::NoCpu } else { FindingKind::Running };
            return self.busy(v.thread, &act, &spans, Entry::default(), kind);
        };
        let act = activity(self.g, self.c, v.thread, &spans);
        // All waits of the key within the episode, as one; those of a loop of children are for another one each.
        let Some(mut group) = act.groups.into_iter().find(|g| g.key == key) else { return Ok(()) };
        if let (Some(first), Some(last), false) = (
            group.clips.first().copied(),
            group.clips.last().copied(),
            v.episode.pieces || v.episode.tries > 0,
        ) {
            let mut one = first;
            // What the end of the recording cut was ended by nobody.
            one.last = crate::episode::typical(self.g, self.c, first.first, last.last);
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
        if self.auto {
            let Some(left) = self.ahead.get().checked_sub(1) else { return Ok(()) };
            self.ahead.set(left);
        }
        let spans = merged(spans);
        // The timer that ended its waits is its own.
        if entry.edge == Some(EdgeKind::Timer) && self.out.nodes.last().is_some_and(|n| n.thread == thread) {
            let first = self.out.nodes.len() <= 1;
            self.found(thread, if first { FindingKind::Unanswered } else { FindingKind::Idle }, spans);
            return Ok(());
        }
        if self.path.iter().any(|(t, _)| *t == thread) {
            // A server on the way twice is none of those that wait for one another: it hands on what they ask.
            let asker = self.out.nodes.last().map(|n| n.thread);
            let handed = asker.and_then(|a| self.handed_on(thread, a, &spans));
            let inside = || self.waited_for_inside(asker?, thread, &spans);
            let deaf = || self.deaf(thread, asker?, &spans);
            let Some(c) = handed.or_else(|| self.let_turn(thread)).or_else(inside).or_else(deaf) else {
                if !self.asked_before_over_bus(thread, &spans) {
                    self.ring(thread, &spans, entry);
                }
                return Ok(());
            };
            if !self.path.iter().any(|(t, _)| *t == c.thread) {
                return self.visit(c.thread, c.spans, c.entry);
            }
            self.out.ring = true;
            self.circular(c.thread, &c.spans, c.entry);
            return Ok(());
        }
        let act = activity(self.g, self.c, thread, &spans);
        if self.path.len() >= MAX_STEPS {
            self.out.notes.push(format!("the way back was cut after {MAX_STEPS} steps"));
            return Ok(());
        }
        if let Some(r) = self.retries(thread, &spans).cloned() {
            return self.tries(thread, &r, &spans, entry);
        }
        // To be stopped or frozen is never what a program means to do: it need not be most of the time.
        let halted = act.groups.iter().position(|g| g.halts() && g.blocked * 3 >= act.total);
        match halted.map_or_else(|| act.mostly(), Mostly::Waiting) {
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
                let watched = self.watched(&act, i, &entry);
                let Some(group) = watched.or_else(|| act.groups.get(i).cloned()) else { return Ok(()) };
                self.push_wait(thread, &group, entry);
                self.path.push((thread, spans));
                self.resolve(thread, &group)
            }
            Mostly::Unknown => {
                let unseen = if act.unseen > 0 { act.unseen } else { act.total };
                if unseen > 0 {
                    self.out.notes.push(format!(
                        "{} was not seen for {} of the time that matters: {}",
                        clean(&short_who(self.c, thread), 60),
                        span(unseen),
                        self.why_unseen(&spans)
                    ));
                }
                let vertex = self.last_vertex(thread);
                if vertex.0 != u32::MAX {
                    // What it did before the step after it began to wait leaves no time to look at.
                    let at = || self.out.nodes.last().map_or(0, |n| n.start);
                    let all = (spans.first().map_or_else(at, |s| s.0), spans.last().map_or_else(at, |s| s.1));
                    let node = SliceNode::plain(thread, vertex, "unknown", all, act.unseen).entered(entry);
                    self.out.nodes.push(node);
                    self.found(thread, FindingKind::Here, spans);
                }
                Ok(())
            }
        }
    }

    /// Who let a server turn that the way has come to again, and was passed by when it came there first.
    fn let_turn(&self, server: ThreadId) -> Option<Candidate> {
        let on_the_way = |t: ThreadId| self.path.iter().any(|p| p.0 == t);
        self.passed.iter().find(|(s, c)| *s == server && !on_the_way(c.thread)).map(|(_, c)| c.clone())
    }

    fn why_unseen(&self, spans: &Spans) -> &'static str {
        if spans.iter().any(|s| self.g.lost_within(&(s.0..s.1))) {
            "events were lost"
        } else {
            "no record and no sample tells what it did"
        }
    }

    pub fn last_vertex(&self, thread: ThreadId) -> VertexId {
        self.g.vertices_of(thread).next_back().unwrap_or(VertexId(u32::MAX))
    }

    pub fn found(&mut self, thread: ThreadId, kind: FindingKind, spans: Spans) {
        let node = self.out.nodes.len().saturating_sub(1);
        self.out.findings.push(Finding { thread, node, kind, spans });
    }

    pub fn push_wait(&mut self, thread: ThreadId, group: &Group, entry: Entry) {
        let Some(longest) = group.longest() else { return };
        let (a, b) = group.extent();
        // Renewals: the longest single wait of the clip has the stack.
        let vertex = self
            .g
            .vertices_in(thread, longest.start..longest.end)
            .filter(|v| *v >= longest.first && *v <= longest.last)
            .filter(|v| crate::episode::wait_key(&self.g.vertex(*v), self.c) == group.key)
            .max_by_key(|v| self.g.vertex(*v).waited())
            .unwrap_or(longest.last);
        let vertex = if group.waits > 1 { self.with_python(thread, (a, b), group, vertex) } else { vertex };
        let mut node = SliceNode::waiting(self.g, self.c, vertex, (a, b)).entered(entry);
        node.spent = group.blocked;
        node.waits = group.waits;
        self.out.nodes.push(node);
        let lock = !self.auto && !crate::class::no_read_lock(&self.representative(group), self.c);
        if let Some((at, readers)) = self.g.readers(thread, a..b.saturating_add(1)).filter(|_| lock) {
            let s = if readers == 1 { " has" } else { "s have" };
            self.out.notes.push(format!(
                "{readers} reader{s} the lock that {} wants to write (at {}); the C library counts readers and does not record who they are",
                clean(&short_who(self.c, thread), 60),
                crate::words::moment(at)
            ));
        }
    }

    /// Of waits that are alike, one with a stack that has Python functions, if `longest` has none: of short waits
    /// that come again and again, the recorder looks at some.
    fn with_python(&self, thread: ThreadId, (a, b): (Ns, Ns), group: &Group, longest: VertexId) -> VertexId {
        const MOST: usize = 20_000;
        let python = |v: &Vertex| crate::words::has_python(self.c, v.user_stack);
        let best = self.g.vertex(longest);
        if python(&best) || !self.c.modules.iter().any(|m| m.kind == ModuleKind::Python) {
            return longest;
        }
        let alike = |v: &Vertex| {
            python(v) && v.waited() * 2 >= best.waited() && crate::episode::wait_key(v, self.c) == group.key
        };
        let mut all = self.g.vertices_in(thread, a..b).rev().take(MOST);
        all.find(|v| alike(&self.g.vertex(*v))).unwrap_or(longest)
    }

    /// The wait of the last step: who ended it?
    fn resolve(&mut self, thread: ThreadId, group: &Group) -> Flow<()> {
        if self.by_write_back(thread, group)? || self.by_ordered_data(thread, group)? {
            return Ok(());
        }
        let deaf = match &self.path[..] {
            [.., (asker, _), (_, spans)] => self.deaf(thread, *asker, spans),
            _ => None,
        };
        if let Some(c) = deaf {
            if self.on_the_way(c.thread) {
                self.out.ring = true;
                self.circular(c.thread, &c.spans, c.entry);
                return Ok(());
            }
            return self.visit(c.thread, c.spans, c.entry);
        }
        if self.by_lost_tokens(thread, group) {
            return Ok(());
        }
        let (candidates, silent) = self.wakers(group);
        let Some((candidates, silent)) = self.past_workers(thread, group, candidates, silent) else {
            return Ok(());
        };
        let (candidates, silent) = self.past_releasers(candidates, silent);
        let (candidates, silent) = self.past_rescuers(thread, group, candidates, silent);
        let (candidates, silent) = self.past_latecomers(thread, group, candidates, silent);
        let (candidates, silent) = self.past_who_gave_up(thread, group, candidates, silent);
        let (candidates, silent) = self.renewed(group, candidates, silent);
        let candidates = self.past_the_last_to_end(thread, group, candidates);
        if let Some(c) = self.answered_by(thread, &candidates) {
            self.passed.extend(candidates.into_iter().map(|c| (thread, c)));
            return self.visit(c.thread, c.spans, c.entry);
        }
        let woken: Ns = candidates.iter().map(|c| c.time).max().unwrap_or(0);
        let v = self.representative(group);
        let class = class(&v, self.c);
        let unanswered = total(&silent);
        // That it was stopped is what matters, whoever continued it in the end.
        if class == WaitClass::Stopped {
            if let Some(c) = self.stopped_at_terminal(thread, group) {
                let node = self.out.nodes.len() - 1;
                self.follow(c, class)?;
                let (kind, spans) = (FindingKind::Stopped, group_spans(group));
                self.out.findings.push(Finding { thread, node, kind, spans });
                return Ok(());
            }
            self.found(thread, FindingKind::Stopped, group_spans(group));
        }
        if crate::waits::for_thaw(&v, self.c) {
            return self.frozen(group, candidates);
        }
        if super::paused::seen_paused(&v, self.c) {
            return self.paused(thread, group, candidates);
        }
        // Who gave memory back, or raised the limit, ended that and did not cause it.
        if crate::waits::memory_limit(&v, self.c).is_some() {
            let why = "it gave memory back or raised the limit";
            self.out.rejected.extend(candidates.iter().map(|c| (c.thread, why.to_owned())));
            if let Some(n) = self.out.nodes.last_mut() {
                n.limit = Some("the memory limit of its control group".into());
            }
            self.found(thread, FindingKind::NoMemory, group_spans(group));
            return Ok(());
        }
        if class == WaitClass::Terminal && self.by_input(thread, group, &candidates) {
            return Ok(());
        }
        // Whichever signal came: as long as the child lived, that is what it waited for.
        if self.waits_for_child(thread, group) {
            return self.answerless(thread, group, class, group_spans(group));
        }
        // Whatever cut a sleep short: what it waits for is what it tried for after the ones before.
        if self.refused(group, class).is_some() {
            return self.answerless(thread, group, class, group_spans(group));
        }
        // Threads of a scheduler wake each other for whatever there is to execute: none of them waits for another one.
        let schedules = |w: &Self| {
            candidates.iter().all(|c| {
                w.in_scheduler(c.thread, &group_spans(group))
                    && w.c.process_id_of(c.thread) == w.c.process_id_of(thread)
            })
        };
        if !candidates.is_empty() && is_schedulers_own(&v, self.c) && schedules(self) {
            return self.answerless(thread, group, class, group_spans(group));
        }
        // Whoever waits for it and asks once more answers nothing.
        let asks_again = |w: &Self| candidates.iter().all(|c| w.on_the_way(c.thread));
        if !candidates.is_empty() && unanswered > 0 && class == WaitClass::EventLoop && asks_again(self) {
            return self.answerless(thread, group, class, group_spans(group));
        }
        if class == WaitClass::EventLoop && self.told_by_others(thread, group, &candidates) {
            return self.answerless(thread, group, class, group_spans(group));
        }
        if woken == 0 || woken < unanswered {
            if self.is_paused(thread, group) {
                self.found(thread, FindingKind::Paused, group_spans(group));
                return Ok(());
            }
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
        // What is to be mended is found: who continued it in the end is no question.
        let chosen = if class == WaitClass::Stopped {
            let best = self.recommended(&candidates);
            self.take(candidates, best)
        } else {
            self.choose_edge(thread, group, candidates)?
        };
        let Some(c) = chosen else {
            self.found(thread, FindingKind::Here, group_spans(group));
            return Ok(());
        };
        self.follow(c, class)
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
        let typical = |c: &Clip| crate::episode::typical(self.g, self.c, c.first, c.last);
        self.g.vertex(group.longest().map_or(VertexId(u32::MAX), typical))
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
