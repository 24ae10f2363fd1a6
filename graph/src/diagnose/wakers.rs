//! Who ended the waits of a thread, as the edges into them tell.

use super::activity::{Clip, Group, Spans, merged, total};
use super::ask::Candidate;
use super::walk::Walk;
use crate::class::{WaitClass, class};
use crate::{Edge, EdgeId, EdgeKind, EventGraph, VertexId, Weak};
use pg_event::{Ns, Relation, ThreadId};

impl Walk<'_> {
    /// Who ended the waits of a group, by the time waited for each, and the spans that nobody ended.
    pub(super) fn wakers(&self, group: &Group) -> (Vec<Candidate>, Spans) {
        let mut out: Vec<Candidate> = Vec::new();
        let mut silent = Spans::new();
        // Once for all waits: a group may have a hundred thousand of them.
        let asker = self.asker(group);
        for clip in &group.clips {
            let by = self.brought(clip).filter(|(_, e)| self.counts(self.g.vertex(e.from).thread));
            // Who waits for this one and had given up when it let it know is not whom it listened to meanwhile; nor is who had
            // sent what it took before it began to wait.
            let gave_up = |e: &Edge| {
                let from = self.g.vertex(e.from).thread;
                let listens = || class(&self.g.vertex(clip.last), self.c);
                let asker = || e.from_time >= clip.end && self.path.iter().any(|p| p.0 == from);
                !clip.resolved
                    && (asker() || e.from_time < self.g.vertex(clip.first).start)
                    && matches!(listens(), WaitClass::Channel | WaitClass::EventLoop)
            };
            let Some((id, mut e)) = by.filter(|(_, e)| !gave_up(e) && !slept_since(self.g, clip.last, e))
            else {
                silent.push((clip.start, clip.end));
                continue;
            };
            // What took the time was over then.
            let most = |over: &Ns| *over > clip.start && over - clip.start > clip.end.saturating_sub(*over);
            if let Some(over) = only_reacts(self.g, clip.last, &e).filter(most) {
                silent.push((clip.start, over));
                continue;
            }
            self.own_request(asker, &mut e);
            let spans = (clip.start, clip.end.min(e.from_time.max(clip.start)));
            Candidate::add(&mut out, self, id, &e, spans, clip.blocked, true);
        }
        // Other edges into the longest wait: messages that the vertex took besides the one that woke it, and before it did
        // what the step before waited for.
        if let Some(clip) = group.longest()
            && !out.is_empty()
        {
            let left = self.out.nodes.last().and_then(|n| n.edge_id).map(|id| self.g.edge(id));
            let until = left.filter(|e| e.from == clip.last).map_or(Ns::MAX, |e| e.from_time);
            for id in self.g.incoming(clip.last).skip(1) {
                let mut e = self.g.edge(id);
                if e.to_time > until {
                    continue;
                }
                self.own_request(asker, &mut e);
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

    /// Who waits for an answer, with a time-out after which it does something else and then goes on to wait, waited for who
    /// answered in the end: if that made it answer the step before.
    pub(super) fn renewed(
        &mut self,
        group: &Group,
        mut candidates: Vec<Candidate>,
        silent: Spans,
    ) -> (Vec<Candidate>, Spans) {
        let Some((last, before)) = group.clips.split_last() else { return (candidates, silent) };
        let left = self.out.nodes.last().and_then(|n| n.edge_id).map(|id| self.g.edge(id).from);
        let answers =
            matches!(class(&self.representative(group), self.c), WaitClass::Channel | WaitClass::EventLoop);
        let by = self.brought(last).map(|(_, e)| self.g.vertex(e.from).thread);
        let timed_out = left == Some(last.last) && before.iter().all(|c| self.g.vertex(c.last).timed_out);
        let reacts = self.brought(last).is_some_and(|(_, e)| only_reacts(self.g, last.last, &e).is_some());
        let renews = answers && timed_out && !reacts;
        if let Some(c) = candidates.iter_mut().find(|c| renews && Some(c.thread) == by) {
            c.time += total(&silent);
            c.spans.extend(silent);
            return (candidates, Spans::new());
        }
        // Who was asked by a bare wake-up (of a latch, a condition) right before, and gave the last one: those that others
        // gave in between did not let it go on.
        let bare = |c: &Candidate| c.kind == EdgeKind::WakeUp && c.waking;
        let called = group.clips.first().map_or_else(Vec::new, |c| self.woken_before(c.first));
        let one = candidates.iter().position(|c| Some(c.thread) == by && called.contains(&c.thread));
        if let Some(i) = one.filter(|_| answers && candidates.len() > 1 && candidates.iter().all(bare)) {
            let mut c = candidates.swap_remove(i);
            let why = "it woke the thread, which went on to wait for whom it had asked before";
            for other in candidates {
                c.time += other.time;
                c.spans.extend(other.spans);
                self.out.rejected.push((other.thread, why.to_owned()));
            }
            c.spans = merged(c.spans);
            return (vec![c], silent);
        }
        (candidates, silent)
    }

    /// Whom a thread woke in the segment that ended with the wait which `v` leads in with.
    fn woken_before(&self, v: VertexId) -> Vec<ThreadId> {
        let Some(before) = v.0.checked_sub(1).map(VertexId) else { return Vec::new() };
        let own = self.g.vertex(v).thread;
        if self.g.vertex(before).thread != own {
            return Vec::new();
        }
        let woke = |e: &EdgeId| self.g.waking(self.g.edge(*e).to) == Some(*e);
        let to = self.g.outgoing(before).filter(woke).map(|e| self.g.vertex(self.g.edge(e).to).thread);
        to.filter(|t| *t != own).collect()
    }

    /// The thread that the way comes from to the one whose waits are in the group.
    fn asker(&self, group: &Group) -> Option<ThreadId> {
        let server = group.longest().map(|c| self.g.vertex(c.last).thread);
        self.path.iter().rev().map(|(t, _)| *t).find(|t| Some(*t) != server)
    }

    /// A server that answers several together: the request of the process that the way comes from is no guess.
    fn own_request(&self, asker: Option<ThreadId>, e: &mut Edge) {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let own = asker.is_some_and(|t| process(t) == process(self.g.vertex(e.from).thread));
        if own && e.weak == Some(Weak::Together) {
            e.weak = None;
        }
    }

    /// A child's end interrupts any wait of its parent (SIGCHLD). If the wait was for a channel of which others
    /// have the other end open, that end did not bring what was waited for.
    pub fn only_interrupts(&self, clip: &Clip, e: &Edge) -> bool {
        let v = self.g.vertex(clip.last);
        let channel = matches!(class(&v, self.c), WaitClass::Channel | WaitClass::Room);
        if e.kind != EdgeKind::Exit || !channel {
            return false;
        }
        let process = |t| self.c.process_id_of(t);
        let (own, ended) = (process(v.thread), process(self.g.vertex(e.from).thread));
        let child = ended.and_then(|p| self.c.process(p)).map(|p| p.parent) == own && own.is_some();
        child
            && self.g.holds(v.thread, clip.start..clip.end.saturating_add(1)).any(|h| {
                let other = process(h.holder);
                let end = matches!(h.relation, Relation::Reads | Relation::Writes | Relation::Peer);
                end && other != own && other != ended
            })
    }

    /// Children whose end interrupted the waits, as a second opinion.
    pub(super) fn interruptions(&self, group: &Group) -> Vec<Candidate> {
        let mut out: Vec<Candidate> = Vec::new();
        for clip in &group.clips {
            let Some(id) = self.g.waking(clip.last) else { continue };
            let e = self.g.edge(id);
            if self.only_interrupts(clip, &e) && self.counts(self.g.vertex(e.from).thread) {
                let spans = (clip.start, clip.end.min(e.from_time.max(clip.start)));
                Candidate::add(&mut out, self, id, &e, spans, clip.blocked, true);
            }
        }
        for c in &mut out {
            let why =
                "its end interrupted the wait (SIGCHLD); others have the other end of what was waited for";
            (c.weak, c.entry.why_weak) = (Some(Weak::Signal), Some(why.into()));
        }
        out
    }
}

/// Is it a packet by which somebody would have ended the wait that `last` leads in with who sent nothing after it began, since it
/// slept all the time? The kernel acknowledges and closes for it, too.
fn slept_since(g: &EventGraph, last: VertexId, e: &Edge) -> bool {
    let began = g.vertex(last).start;
    let packet = e.kind == EdgeKind::Ipc && e.weak == Some(Weak::InterruptInferred);
    let slept = |v: VertexId| {
        let v = g.vertex(v);
        v.start < began && e.to_time <= v.woken
    };
    packet && e.from_time < began && g.next(e.from).is_some_and(slept)
}

/// When the time-out was before the wait that `last` leads in with, if who ended that only reacted to what the thread did then,
/// as the other end of a connection does that is closed.
pub(crate) fn only_reacts(g: &EventGraph, last: VertexId, e: &Edge) -> Option<Ns> {
    let v = g.vertex(last);
    let mut before =
        g.vertices_in(v.thread, 0..v.start.saturating_add(1)).rev().take(4).map(|id| g.vertex(id));
    let over = before.find(|w| w.waited() > 0 && w.start < v.start).filter(|w| w.timed_out)?.woken;
    let ours = |id: EdgeId| {
        let w = g.edge(id);
        g.vertex(w.from).thread == v.thread && w.from_time >= over
    };
    let mut since = g.vertices_in(g.vertex(e.from).thread, over..e.from_time.max(over + 1));
    since.any(|id| g.waking(id).is_some_and(ours)).then_some(over)
}
