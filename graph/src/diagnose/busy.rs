//! Steps in which a thread did not wait: it ran, wanted the CPU, or did not exist yet.

use super::activity::{Activity, Spans, activity, extent, merged, total};
use super::answerless::{self, main_thread, relation_words};
use super::ask::Candidate;
use super::data_flag::Asks;
use super::finding::{Finding, FindingKind};
use super::node::{Entry, SliceNode};
use super::walk::{Flow, Walk};
use crate::class::WaitClass;
use crate::facts::HoldFact;
use crate::profile::profile;
use crate::starved::{Starved, starved};
use crate::words::span;
use crate::yields::{YieldLoop, ended_at_last, living, yield_loop};
use crate::{EdgeKind, Weak};
use pg_event::{ObjectId, Relation, ThreadId};

impl Walk<'_> {
    pub(super) fn busy(
        &mut self,
        thread: ThreadId,
        act: &Activity,
        spans: &Spans,
        entry: Entry,
        kind: FindingKind,
    ) -> Flow<()> {
        let all = extent(&act.active);
        let longest = act.active.iter().max_by_key(|s| s.1 - s.0).map_or(all.0, |s| s.0);
        let vertex = self.g.vertex_at(thread, longest).unwrap_or(self.last_vertex(thread));
        let starved = (act.runnable * 3 > act.total).then(|| starved(self.g, self.c, thread, spans));
        let kind = match &starved {
            Some(s) if s.throttled() || act.throttled * 2 > act.runnable => FindingKind::Throttled,
            Some(s) if s.passed_over(act.total) => FindingKind::NoCpu,
            _ => kind,
        };
        let (state, spent) = match kind {
            FindingKind::NoCpu => ("runnable", act.runnable),
            FindingKind::Throttled => ("throttled", act.runnable),
            _ => ("running", act.running),
        };
        let mut node = SliceNode::plain(thread, vertex, state, all, spent).entered(entry);
        let p = profile(self.g, self.c, thread, spans);
        // Whoever had no CPU did not turn either.
        let passed_over = starved.as_ref().is_some_and(|s| s.passed_over(act.total));
        let yields = (!passed_over).then(|| yield_loop(self.g, self.c, thread, spans, &p)).flatten();
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
            let own = self.out.nodes.len() - 1;
            // Whoever told somebody to end turns until that has.
            if let Some(c) = self.lives_on(thread, spans).filter(|_| kind != FindingKind::Throttled) {
                self.path.push((thread, spans.clone()));
                self.follow(c, WaitClass::Child)?;
            }
            self.out.findings.push(Finding { thread, node: own, kind, spans: spans.clone() });
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
            variable: how.variable().map(str::to_owned),
        };
        self.path.push((thread, spans.clone()));
        let own = self.out.nodes.len() - 1;
        if self.by_flag(thread, &asks)? {
            return Ok(());
        }
        let next = match how {
            YieldLoop::Fails { object, .. } => self.keeps_failing(thread, object, spans),
            YieldLoop::Polls(_) => self.kin_behind(thread, spans),
            YieldLoop::Child { .. } => self.spun_for_child(thread, spans),
            _ => self.let_go_on(thread, spans, 0, how.variable()).or_else(|| self.kin_behind(thread, spans)),
        };
        let next = next.or_else(|| self.lives_on(thread, spans));
        let asks_memory = matches!(how, YieldLoop::GivesUp | YieldLoop::Spins { .. });
        let next = next.or_else(|| self.shares_memory(thread, spans).filter(|_| asks_memory));
        let for_certain = matches!(how, YieldLoop::Spins { asks: Some(_), .. });
        let next = next.or_else(|| self.left_to_write(thread, spans).filter(|_| for_certain));
        if let Some(c) = next {
            self.follow(c, WaitClass::Lock)?;
        } else {
            self.no_flag(thread, &asks)?;
        }
        self.out.findings.push(Finding {
            thread,
            node: own,
            kind: FindingKind::Yielding,
            spans: spans.clone(),
        });
        Ok(())
    }

    /// The child whose end a loop went on with, or has not seen yet.
    fn spun_for_child(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let (start, end) = (spans.first()?.0, spans.last()?.1);
        let own = self.c.thread(thread)?.process;
        let (child, why) = match ended_at_last(self.c, own, (start, end)) {
            Some(ended) => {
                (ended, "it asked again and again whether a child had ended, and went on when this one had")
            }
            None => (
                living(self.g, self.c, own, (start, end))?,
                "it asks again and again whether a child has ended, and this is the only one",
            ),
        };
        let child = main_thread(self.g, self.c, child)?;
        let c = self.keeping(child, Relation::ChildOf, start, why.into(), spans);
        (self.counts(child) && !self.on_the_way(child)).then_some(c)
    }

    /// Who has what a call fails for again and again, as it was found while that went on.
    fn keeps_failing(&self, thread: ThreadId, object: ObjectId, spans: &Spans) -> Option<Candidate> {
        let (a, b) = (spans.first()?.0, spans.last()?.1.saturating_add(1));
        let own = self.c.thread(thread)?.process;
        let other = |h: &HoldFact| {
            h.object == object && self.counts(h.holder) && self.c.process_id_of(h.holder) != Some(own)
        };
        let found: Vec<HoldFact> = self.g.holds(thread, a..b).filter(other).collect();
        // Children inherit what their parent opened; of several others nobody is to be blamed.
        let process = |h: &HoldFact| self.c.process_id_of(h.holder);
        let opened = |h: &&HoldFact| {
            let own = process(h);
            found.iter().all(|x| process(x).zip(own).is_some_and(|(p, own)| self.comes_from(p, own)))
        };
        let h = found.iter().find(opened)?;
        let holder = self.busiest(h.holder, h.relation, spans);
        let why = format!("{}: {}", Weak::FromState.words(), relation_words(h.relation));
        Some(self.keeping(holder, h.relation, h.time, why, spans)).filter(|c| !self.on_the_way(c.thread))
    }

    /// Is a thread on the way already?
    pub(super) fn on_the_way(&self, t: ThreadId) -> bool {
        self.path.iter().any(|p| p.0 == t)
    }

    /// The thread that had the CPU while the last step's wanted it: it comes first, since it is what a person can
    /// act on.
    pub(super) fn taken_by(&mut self, peer: ThreadId, share: f64, act: &Activity, spans: &Spans) {
        if !self.counts(peer) || self.path.iter().any(|p| p.0 == peer) {
            return;
        }
        let own = activity(self.g, self.c, peer, spans);
        let all = extent(&act.active);
        let vertex = self.g.vertex_at(peer, all.0).unwrap_or(self.last_vertex(peer));
        let why = format!(
            "it ran {:.0} % of the time in which the other could have run and had no CPU",
            share * 100.0
        );
        let entry = Entry { edge: Some(EdgeKind::Holder), id: None, why_weak: Some(why), ..Entry::default() };
        let mut node = SliceNode::plain(peer, vertex, "running", all, own.running).entered(entry);
        let p = profile(self.g, self.c, peer, spans);
        (node.stack, node.function) = (p.stack, p.function);
        self.out.nodes.push(node);
        let node = self.out.nodes.len() - 1;
        let finding = Finding { thread: peer, node, kind: FindingKind::Running, spans: spans.clone() };
        let before = self.out.findings.len().saturating_sub(1);
        self.out.findings.insert(before, finding);
    }

    pub(super) fn unborn(&mut self, thread: ThreadId, act: Activity, entry: Entry) -> Flow<()> {
        let before = merged(act.before_birth);
        let Some(first) = self.g.vertices_of(thread).next() else { return Ok(()) };
        let all = extent(&before);
        let node = SliceNode::plain(thread, first, "not-created", all, act.unborn).entered(entry);
        self.out.nodes.push(node);
        self.path.push((thread, before.clone()));
        let spawn = self.g.incoming(first).find(|e| self.g.edge(*e).kind == EdgeKind::Spawn);
        let (creator, entry) = if let Some(id) = spawn {
            let e = self.g.edge(id);
            let why_weak = e.weak.map(|w| w.words().to_owned());
            let entry = Entry { edge: Some(EdgeKind::Spawn), id: Some(id), why_weak, ..Entry::default() };
            (Some(self.g.vertex(e.from).thread), entry)
        } else {
            let parent = self.c.process_of(thread).map(|p| p.parent);
            let main = parent.and_then(|p| answerless::main_thread(self.g, self.c, p));
            let why_weak = Some("no creation was recorded; the parent is taken for the creator".into());
            (main, Entry { edge: Some(EdgeKind::Spawn), id: None, why_weak, ..Entry::default() })
        };
        if let Some(t) = creator {
            return self.visit(t, before, entry);
        }
        self.found(thread, FindingKind::Here, before);
        Ok(())
    }
}
