//! Questions about edges: which of several, or whether to follow a weak one.

use super::activity::{Activity, Group, Mostly, Spans, activity, merged, total};
use super::node::Entry;
use super::pose::Posed;
use super::walk::{Flow, Walk, group_spans};
use crate::class::class;
use crate::words::{moment, percent, process_at, short_who_at, span};
use crate::{
    Choice, Edge, EdgeId, EdgeKind, EventGraph, NearbyEvent, Question, QuestionKind, VertexId, Weak, waits_on,
};
use pg_event::{Catalog, Direction, Ns, Object, Relation, ThreadId};

/// Somebody who may have kept the thread waiting.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub thread: ThreadId,
    pub spans: Spans,
    /// Time waited for it, ns.
    pub time: Ns,
    pub entry: Entry,
    pub weak: Option<Weak>,
    /// It ended the wait (else it only sent something too).
    pub waking: bool,
    /// Where it acted, for the question.
    pub vertex: Option<VertexId>,
    pub at: Ns,
    pub kind: EdgeKind,
    /// How it is tied to the object, when it was found from the resource's state.
    pub relation: Option<Relation>,
}

impl Candidate {
    /// Somebody by whom no act was recorded: who holds, by the state of the system, or who alone could have acted. All
    /// of `spans` are put down to it.
    pub fn unseen(
        thread: ThreadId,
        spans: Spans,
        (vertex, at): (Option<VertexId>, Ns),
        why: impl Into<String>,
    ) -> Self {
        Self {
            thread,
            time: total(&spans),
            spans,
            entry: Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why.into()), ..Entry::default() },
            weak: Some(Weak::FromState),
            waking: false,
            vertex,
            at,
            kind: EdgeKind::Holder,
            relation: None,
        }
    }

    /// The spans in which it was waited for, each moment once.
    pub fn merged(&self) -> Spans {
        merged(self.spans.clone())
    }

    /// Add an edge, together with those of the same thread.
    pub fn add(
        all: &mut Vec<Self>,
        w: &Walk<'_>,
        id: EdgeId,
        e: &Edge,
        spans: (Ns, Ns),
        time: Ns,
        waking: bool,
    ) {
        let thread = w.g.vertex(e.from).thread;
        let why_weak = e.weak.map(|x| x.words().to_owned());
        if let Some(c) = all.iter_mut().find(|c| c.thread == thread) {
            c.spans.push(spans);
            c.time += time;
            // Of many edges the strongest speaks for all.
            if c.weak.is_some() && e.weak.is_none() {
                c.weak = None;
                c.entry = Entry { edge: Some(e.kind), id: Some(id), why_weak, ..Entry::default() };
                c.kind = e.kind;
            }
            (c.vertex, c.at) = (Some(e.from), e.from_time);
            return;
        }
        all.push(Self {
            thread,
            spans: vec![spans],
            time,
            entry: Entry { edge: Some(e.kind), id: Some(id), why_weak, ..Entry::default() },
            weak: e.weak,
            waking,
            vertex: Some(e.from),
            at: e.from_time,
            kind: e.kind,
            relation: None,
        });
    }
}

/// Weak reasons that deserve a person's eye even when there is only one edge.
fn doubtful(w: Option<Weak>) -> bool {
    matches!(
        w,
        Some(
            Weak::MutexHandOff
                | Weak::HeuristicSplit
                | Weak::ObjectMismatch
                | Weak::Batch
                | Weak::Together
                | Weak::LostEvents
        )
    )
}

impl Walk<'_> {
    /// Which candidate to follow: asks when there is a choice that matters. `None`: stop here.
    pub(crate) fn choose_edge(
        &mut self,
        thread: ThreadId,
        group: &Group,
        mut candidates: Vec<Candidate>,
    ) -> Flow<Option<Candidate>> {
        let most = candidates.iter().map(|c| c.time).max().unwrap_or(0);
        // What explains only a sliver of the wait is no choice.
        let slivers: Vec<Candidate> = candidates.extract_if(.., |c| c.time * 5 < most).collect();
        for c in slivers {
            let why = format!("it explains only {} of {} of the wait", span(c.time), span(group.blocked));
            self.out.rejected.push((c.thread, why));
        }
        candidates.truncate(5);
        let best = self.recommended(&candidates);
        let (only, share) = (candidates.len() == 1, self.share(most));
        let worth = if only {
            candidates.first().is_some_and(|c| doubtful(c.weak)) && share >= 0.3
        } else {
            share >= 0.2
        };
        if self.auto {
            self.out.would_ask += usize::from(worth);
        }
        if self.auto || !worth {
            return Ok(self.take(candidates, best));
        }
        if !only {
            let ends: Vec<_> = candidates.iter().map(|c| self.end_of(c)).collect();
            if ends.windows(2).all(|w| w[0] == w[1]) {
                return Ok(self.take(candidates, best));
            }
        }
        let q = self.edge_question(thread, group, &candidates, best);
        match self.decide(q)? {
            0 => Ok(None),
            n => Ok(self.take(candidates, n - 1)),
        }
    }

    /// Take one of the candidates and keep in mind why not the others.
    pub(crate) fn take(&mut self, mut candidates: Vec<Candidate>, which: usize) -> Option<Candidate> {
        if which >= candidates.len() {
            return None;
        }
        let taken = candidates.swap_remove(which);
        // A look ahead is not told of.
        if !self.auto {
            for c in candidates {
                let how = match (c.waking, c.weak) {
                    (_, Some(w)) => {
                        format!("its link is weak ({})", c.entry.why_weak.as_deref().unwrap_or(w.words()))
                    }
                    (true, None) => "it ended the wait, too".to_owned(),
                    (false, None) => "it sent something, but another one ended the wait".to_owned(),
                };
                let why =
                    format!("{how}; it {}; {}", self.did(&c), crate::others::instead(self.c, taken.thread));
                self.out.rejected.push((c.thread, why));
            }
        }
        Some(taken)
    }

    /// The thread that a walk from here ends at.
    pub(crate) fn end_of(&self, c: &Candidate) -> Option<ThreadId> {
        let mut ahead = self.ahead();
        ahead.visit(c.thread, c.spans.clone(), c.entry.clone()).ok()?;
        ahead.out.findings.first().map(|f| f.thread)
    }

    /// About how many questions follow if this candidate is taken.
    pub(crate) fn questions_after(&self, c: &Candidate) -> usize {
        let mut ahead = self.ahead();
        let open = ahead.visit(c.thread, c.spans.clone(), c.entry.clone()).is_err();
        ahead.out.would_ask + usize::from(open)
    }

    pub(crate) fn recommended(&self, candidates: &[Candidate]) -> usize {
        let score = |c: &Candidate| {
            let mut s = self.share(c.time);
            s += match c.weak {
                None => 0.6,
                Some(Weak::InterruptInferred) => 0.4,
                Some(Weak::MutexHandOff | Weak::Batch | Weak::Together) => 0.25,
                Some(_) => 0.1,
            };
            if c.waking {
                s += 0.3;
            }
            let act = self.meanwhile(c);
            // Who is on the way waits for this one, and hardly ended what that waited for, if it ran for a moment or not.
            let asks = self.on_the_way(c.thread);
            s += match act.mostly() {
                _ if asks => -0.3,
                Mostly::Running | Mostly::Runnable | Mostly::Unborn => 0.5,
                Mostly::Waiting(i) => {
                    let idle =
                        act.groups.get(i).is_some_and(|g| class(&self.representative(g), self.c).idle());
                    if idle { 0.0 } else { 0.4 }
                }
                Mostly::Gone | Mostly::Unknown => -0.3,
            };
            s
        };
        let mut best = 0;
        for (i, c) in candidates.iter().enumerate() {
            if score(c) > score(&candidates[best]) {
                best = i;
            }
        }
        best
    }

    /// What a candidate did while it was waited for.
    pub(super) fn meanwhile(&self, c: &Candidate) -> Activity {
        activity(self.g, self.c, c.thread, &c.merged())
    }

    /// What the candidate did while it was waited for, in words.
    pub(crate) fn did(&self, c: &Candidate) -> String {
        let act = self.meanwhile(c);
        let of = |part: Ns| format!("{} ({})", span(part), percent(part, act.total));
        match act.mostly() {
            Mostly::Running => format!("ran {} meanwhile", of(act.running)),
            Mostly::Runnable => format!("wanted the CPU {} meanwhile", of(act.runnable)),
            Mostly::Unborn => format!("did not exist for {} of it", of(act.unborn)),
            Mostly::Gone => format!("had ended {} before", of(act.gone)),
            Mostly::Waiting(i) => act.groups.get(i).map_or_else(String::new, |g| {
                let v = self.representative(g);
                let on = waits_on(&v, self.c).unwrap_or("something unknown");
                let call = v.syscall.name().unwrap_or_else(|| "the kernel".into());
                let on = if on == call { String::new() } else { format!(" ({on})") };
                format!("itself waited {} in {call}{on} meanwhile", of(g.blocked))
            }),
            Mostly::Unknown => "nothing was recorded of it meanwhile".into(),
        }
    }

    fn edge_question(
        &self,
        thread: ThreadId,
        group: &Group,
        candidates: &[Candidate],
        best: usize,
    ) -> Question {
        let (a, b) = group_spans(group).iter().fold((Ns::MAX, 0), |m, s| (m.0.min(s.0), m.1.max(s.1)));
        let weak = candidates.iter().filter(|c| c.weak.is_some()).count();
        let c = &candidates[best];
        self.pose(
            thread,
            group,
            Posed {
                kind: QuestionKind::Edge,
                text: format!("What made {} go on at {}?", short_who_at(self.c, thread, b), moment(b)),
                why: format!(
                    "{} (from {} on). {}",
                    self.waited_in(thread, group),
                    moment(a),
                    match (candidates.len(), weak) {
                        (1, _) => format!("The only edge in is weak: {}.", c.weak.map_or("", Weak::words)),
                        (n, 0) => format!("{n} edges come in, all strong."),
                        (n, w) => format!("{n} edges come in, {w} of them weak."),
                    }
                ),
                choices: candidates.iter().map(|c| self.choice(c, b)).collect(),
                stop: format!("stop here: {} itself is the cause", short_who_at(self.c, thread, b)),
                recommended: best + 1,
                reason: format!(
                    "{} {}{}",
                    short_who_at(self.c, c.thread, c.at),
                    self.did(c),
                    match c.weak {
                        None => ", and the edge is strong".to_owned(),
                        Some(w) => format!(", though the edge is weak ({})", w.words()),
                    }
                ),
            },
            Some(c),
        )
    }

    pub(crate) fn choice(&self, c: &Candidate, until: Ns) -> Choice {
        // That it is strong or weak stands before the label; here only why.
        let weak = c.weak.map(|w| c.entry.why_weak.clone().unwrap_or_else(|| w.words().to_owned()));
        let weak = weak.map_or_else(String::new, |w| format!("; weak: {w}"));
        let stack = c.entry.id.map(|id| self.c.show_stack(self.g.edge_stack(id))).unwrap_or_default();
        // Whoever executed another program before it acted is called otherwise in the slice.
        let then = c.spans.first().map_or(c.at, |s| s.0.midpoint(s.1));
        let then = process_at(self.c, c.thread, then);
        let called =
            if then == process_at(self.c, c.thread, c.at) { String::new() } else { format!(" as {then}") };
        Choice {
            label: format!("{} ({})", short_who_at(self.c, c.thread, c.at), act_of(self.g, c)),
            detail: format!(
                "{}{called}; acted {}; accounts for {}{weak}",
                self.did(c),
                match until.saturating_sub(c.at) {
                    0 => "at that moment".to_owned(),
                    before => format!("{} before", span(before)),
                },
                self.of_victim(c.time)
            ),
            vertex: c.vertex,
            edge: c.entry.id,
            strong: c.weak.is_none(),
            time: c.at,
            stack,
            nearby: nearby(self.g, self.c, c.thread, c.at),
        }
    }
}

fn act_of(g: &EventGraph, c: &Candidate) -> String {
    let call = c.entry.id.and_then(|id| g.edge_syscall(id).name()).map(std::borrow::Cow::into_owned);
    match (c.kind, call) {
        (EdgeKind::Holder, _) => "holds it".into(),
        (EdgeKind::Spawn, _) => "created it".into(),
        (EdgeKind::Exit, _) => "ended".into(),
        (k, Some(n)) if n == k.name() => n,
        (k, Some(n)) => format!("{n}, {}", k.name()),
        (k, None) => k.name().into(),
    }
}

/// A call and its object, the kind said once: `futex 0x10`, `read pipe:[7]`.
pub(crate) fn call_on(call: &str, object: &str) -> String {
    match object {
        "" => call.to_owned(),
        o if o.starts_with(call) => o.to_owned(),
        o => format!("{call} {o}"),
    }
}

/// Events of a thread around a moment, at most eight, by time.
pub(crate) fn nearby(g: &EventGraph, c: &Catalog, thread: ThreadId, at: Ns) -> Vec<NearbyEvent> {
    let mut out = Vec::new();
    let Some(v) = g.vertex_at(thread, at) else { return out };
    let mut ids = vec![v];
    ids.extend(g.previous(v));
    ids.extend(g.next(v));
    for id in ids {
        let x = g.vertex(id);
        if x.waited() > 0 {
            let call = x.syscall.name().unwrap_or_else(|| "the kernel".into());
            let on = c.object(x.object).map(Object::label).unwrap_or_default();
            let how = if x.open {
                "not ended"
            } else if x.timed_out {
                "timed out"
            } else {
                "woken"
            };
            out.push(NearbyEvent {
                time: x.start,
                text: format!("waits {} in {}, {how}", span(x.waited()), call_on(&call, &on)),
            });
        }
        for m in g.ipc_of(thread, x.run..x.end.saturating_add(1)).iter().take(4) {
            let verb = if m.what.direction == Direction::Send { "sends" } else { "receives" };
            let on = c.object(m.what.object).map(Object::label).unwrap_or_default();
            out.push(NearbyEvent { time: m.time, text: format!("{verb} {} B over {on}", m.what.bytes) });
        }
    }
    out.sort_by_key(|e| e.time);
    out.dedup();
    let near = out.iter().position(|e| e.time >= at).unwrap_or(out.len());
    let from = near.saturating_sub(4);
    out.into_iter().skip(from).take(8).collect()
}
