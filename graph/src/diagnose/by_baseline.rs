//! Baselines in a diagnosis: who acts when the wait goes well, and what did that thread do this time?

use super::activity::{Group, Mostly, Spans, activity, extent};
use super::ask::{Candidate, nearby};
use super::pose::Posed;
use super::walk::{Flow, Walk};
use crate::baseline::{Similar, similar, similar_among};
use crate::class::{WaitClass, accepted, asked, class, idles_in_scheduler, opens_fifo};
use crate::facts::HoldFact;
use crate::kernel::idles;
use crate::words::{moment, percent, short_who, span};
use crate::{Choice, EdgeKind, Question, QuestionKind, Vertex, VertexId};
use pg_event::{Direction, Ns, ObjectId, ObjectKind, Relation, ThreadId};
use std::collections::HashSet;

impl Walk<'_> {
    /// Algorithm 1, lines 12-22: find a similar vertex that went well, walk its wake-up path, and look at
    /// each of its threads during the hang. Returns whether that led anywhere.
    pub(crate) fn by_baseline(&mut self, thread: ThreadId, group: &Group, silent: &Spans) -> Flow<bool> {
        let Some(clip) = group.longest() else { return Ok(false) };
        let mut found = self.baselines(thread, clip.last);
        // Who opens another FIFO was let go on by somebody else.
        let own = self.g.vertex(clip.last);
        if opens_fifo(&own, self.c) {
            found.retain(|s| self.g.vertex(s.vertex).object == own.object);
        }
        // Only those that lead to somebody who behaves unusually are worth a question.
        let mut useful: Vec<(Similar, Candidate)> = Vec::new();
        let told = self.out.nodes.last().map(|n| n.thread);
        for s in found {
            if let Some(c) = self.expected(&s, thread, silent)
                && told != Some(c.thread)
                && !useful.iter().any(|(_, o)| o.thread == c.thread)
            {
                useful.push((s, c));
            }
        }
        if useful.is_empty() {
            return Ok(false);
        }
        let mut take = 0;
        if !self.auto && useful.len() > 1 {
            let q = self.baseline_question(thread, group, &useful);
            match self.decide(q)? {
                0 => return Ok(false),
                n => take = n - 1,
            }
        }
        let (_, c) = useful.swap_remove(take.min(useful.len() - 1));
        self.visit(c.thread, c.spans, c.entry)?;
        Ok(true)
    }

    /// Waits like the one that `vertex` of `thread` leads in with. Of a slow unit those of the normal one of its type,
    /// where it has any: it did the same work.
    fn baselines(&self, thread: ThreadId, vertex: VertexId) -> Vec<Similar> {
        const MOST: usize = 5;
        let slow = self.victim.violation.filter(|v| v.thread == thread);
        if let Some(n) = slow.and_then(|v| self.g.normal_unit(v.unit_type)) {
            let within = self.g.vertices_in(n.unit.thread, n.unit.start..n.unit.end);
            let best = similar_among(self.g, self.c, vertex, within).into_iter().next();
            if best.is_some() {
                return best.into_iter().collect();
            }
        }
        similar(self.g, self.c, vertex, MOST)
    }

    /// The first thread on the baseline's wake-up path that behaved abnormally during the hang.
    fn expected(&self, s: &Similar, victim: ThreadId, silent: &Spans) -> Option<Candidate> {
        // The word of a private futex is another one in each process, even at the same address.
        const PRIVATE: u32 = 128;
        let v = self.g.vertex(s.vertex);
        let e = self.g.edge(self.g.waking(s.vertex)?);
        let futex = self.c.object(v.object).is_some_and(|o| o.kind == ObjectKind::Futex);
        let process = |t| self.c.process_id_of(t);
        if futex && v.op & PRIVATE != 0 && process(self.g.vertex(e.from).thread) != process(victim) {
            return None;
        }
        let by = self.g.vertex(e.from).thread;
        if self.only_served(s.vertex, by, silent) || e.kind == EdgeKind::Exit && self.only_left(&v, by) {
            return None;
        }
        let why = format!(
            "no wake-up was recorded; expected as in the baseline at {} (similarity {:.0} %), where it came after {}",
            moment(v.start),
            s.similarity * 100.0,
            span(v.waited())
        );
        let found = self.along((e.from, e.kind, e.from_time), victim, silent, &why);
        found.map(|mut c| {
            c.entry.doubt = 1.0 - s.similarity;
            c
        })
    }

    /// Back from `step` (a vertex, the edge out of it and its time) by what woke each thread: the first one
    /// that behaved abnormally within `silent`.
    pub(crate) fn along(
        &self,
        step: (VertexId, EdgeKind, Ns),
        victim: ThreadId,
        silent: &Spans,
        why: &str,
    ) -> Option<Candidate> {
        const LONGEST: usize = 16;
        let mut seen = HashSet::from([victim]);
        let (mut at, mut kind, mut time) = step;
        for _ in 0..LONGEST {
            let from = self.g.vertex(at).thread;
            // Beyond who asks, a client or a thread on the way, is why it asks and not why it is not answered.
            let on_the_way = self.path.iter().any(|(t, _)| *t == from);
            if on_the_way && from != victim || self.waits_for_process_of(from, victim, silent) {
                return None;
            }
            let new = seen.insert(from) && !on_the_way;
            if new
                && self.counts(from)
                && !self.became_another(from, time, silent)
                && !self.in_scheduler(from, silent)
                && self.abnormal(from, silent)
            {
                return Some(self.missing((at, kind, time), silent, why));
            }
            let e = self.g.edge(self.g.waking(at)?);
            // A program that came to ask a server something: that somebody starts another one is nobody's duty.
            if e.kind == EdgeKind::Spawn && self.out.nodes.len() > 1 {
                return None;
            }
            (at, kind, time) = (e.from, e.kind, e.from_time);
        }
        None
    }

    /// Did a runtime that schedules tasks by itself have nothing to execute on this thread most of the time?
    pub(super) fn in_scheduler(&self, thread: ThreadId, silent: &Spans) -> bool {
        let act = activity(self.g, self.c, thread, silent);
        act.waiting().is_some_and(|g| idles_in_scheduler(&self.representative(g), self.c))
    }

    /// Did a server turn since a process ended that is no child of its own: a client that left? That brings nobody an answer.
    fn only_left(&self, turn: &Vertex, by: ThreadId) -> bool {
        let own = self.c.process_id_of(turn.thread);
        class(turn, self.c) == WaitClass::EventLoop && self.c.process_of(by).map(|p| p.parent) != own
    }

    /// Did a server answer, in the turn that `turn` begins, nobody but the process of who let it turn, which waits for what comes
    /// over that connection itself? A request of one client brings the others nothing.
    fn only_served(&self, turn: VertexId, by: ThreadId, silent: &Spans) -> bool {
        let v = self.g.vertex(turn);
        let server = self.c.process_id_of(v.thread);
        let Some(client) = self.c.process_id_of(by).filter(|p| Some(*p) != server) else { return false };
        if class(&v, self.c) != WaitClass::EventLoop {
            return false;
        }
        let of_client: Vec<_> = self.g.threads_of(client).flat_map(|t| self.g.ipc_of(t, 0..v.end)).collect();
        let theirs = |o: ObjectId| {
            // A server asks those that it connected to.
            let own = self.c.object(o).filter(|_| accepted(self.c, o))?;
            let other = |o: &ObjectId| self.c.object(*o).is_some_and(|x| own.is_other_end_of(x));
            of_client.iter().map(|m| m.what.object).find(other)
        };
        let all = self.g.ipc_of(v.thread, v.woken..v.end.saturating_add(1)).iter();
        let sent = all.filter(|m| m.what.direction == Direction::Send).map(|m| theirs(m.what.object));
        let Some(ends) = sent.collect::<Option<Vec<_>>>().filter(|e| !e.is_empty()) else { return false };
        let act = activity(self.g, self.c, by, silent);
        let waits = act.waiting().map(|g| self.representative(g).object);
        waits.is_some_and(|o| {
            ends.contains(&o) || self.c.object(o).is_some_and(|o| o.members.iter().any(|m| ends.contains(m)))
        })
    }

    /// Did a thread execute another program after what it did in the baseline? That one does not do it again.
    fn became_another(&self, t: ThreadId, acted: Ns, silent: &Spans) -> bool {
        let end = silent.last().map_or(acted, |s| s.1);
        let execs = self.g.execs();
        let after = &execs[execs.partition_point(|x| x.1 < acted)..];
        after.iter().take_while(|x| x.1 < end).any(|x| x.0 == t)
    }

    /// Is `client` of another process than `server`, and waits for an answer from that?
    fn waits_for_process_of(&self, client: ThreadId, server: ThreadId, spans: &Spans) -> bool {
        let process = |t| self.c.process_id_of(t);
        if process(client) == process(server) {
            return false;
        }
        let act = activity(self.g, self.c, client, spans);
        let Some(longest) = act.waiting().and_then(Group::longest) else { return false };
        let v = self.g.vertex(longest.last);
        if class(&v, self.c) != WaitClass::Channel || !asked(self.g, self.c, longest.first) {
            return false;
        }
        let members = self.c.object(v.object).map_or(&[][..], |o| &o.members);
        let ends: Vec<_> = members.iter().copied().chain([v.object]).collect();
        let (a, b) = extent(spans);
        // A server that takes datagrams of everybody has a socket without another end.
        let known = |h: &HoldFact| {
            h.relation == Relation::Peer && ends.contains(&h.object) && process(h.holder) == process(server)
        };
        self.serving(server, &ends, b).is_some()
            || self.g.holds(client, a..b.saturating_add(1)).any(|h| known(&h))
    }

    /// The thread of a step of the baseline, as the one whose act is missing.
    pub(crate) fn missing(
        &self,
        (vertex, kind, at): (VertexId, EdgeKind, Ns),
        silent: &Spans,
        why: &str,
    ) -> Candidate {
        let thread = self.g.vertex(vertex).thread;
        let mut c = Candidate::unseen(thread, silent.clone(), (Some(vertex), at), why);
        (c.kind, c.entry.edge) = (kind, Some(kind));
        c
    }

    /// Long running, repeated yield or long wait, and not its usual idle.
    pub(crate) fn abnormal(&self, thread: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, thread, spans);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => true,
            Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                let v = self.representative(g);
                g.blocked * 2 >= act.total && !class(&v, self.c).idle() && !idles(&v, self.c)
            }),
            _ => false,
        }
    }

    fn baseline_question(
        &self,
        thread: ThreadId,
        group: &Group,
        useful: &[(Similar, Candidate)],
    ) -> Question {
        let v = self.representative(group);
        let choice = |(s, c): &(Similar, Candidate)| {
            let x = self.g.vertex(s.vertex);
            let by = short_who(self.c, c.thread);
            Choice {
                label: format!(
                    "{} at {}: {} instead of {}, woken by way of {by}",
                    short_who(self.c, x.thread),
                    moment(x.start),
                    span(x.waited()),
                    span(v.waited()),
                ),
                detail: format!(
                    "similarity {:.0} %; {by} {} during the hang",
                    s.similarity * 100.0,
                    self.did(c)
                ),
                vertex: Some(s.vertex),
                edge: self.g.waking(s.vertex),
                strong: false,
                time: x.start,
                stack: self.c.show_stack(x.user_stack),
                nearby: nearby(self.g, self.c, x.thread, x.woken),
            }
        };
        let (best, c) = &useful[0];
        self.pose(
            thread,
            group,
            Posed {
                kind: QuestionKind::Baseline,
                text: format!("Which of these shows how {} normally goes on?", short_who(self.c, thread)),
                why: format!(
                    "{} and nobody woke it. {} similar waits ended well, by different threads.",
                    self.waited_in(thread, group),
                    useful.len()
                ),
                choices: useful.iter().map(choice).collect(),
                stop: "none of them: the wait itself is the cause".into(),
                recommended: 1,
                reason: format!(
                    "it is the most similar one ({:.0} % of the features agree; {} of the victim's time is at stake), and {} {}",
                    best.similarity * 100.0,
                    percent(c.time, self.victim.duration),
                    short_who(self.c, c.thread),
                    self.did(c)
                ),
            },
            Some(c),
        )
    }
}
