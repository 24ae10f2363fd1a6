//! Requests that a server hands on: a bus, a display server, a broker takes the message of one client and sends one to
//! another. While that one does not answer, the server waits for whatever comes next, and so tells nothing.

use super::activity::{Mostly, Spans, activity, merged, total};
use super::ask::Candidate;
use super::node::Entry;
use super::walk::{Flow, Walk};
use crate::class::{WaitClass, asked, class};
use crate::{EdgeKind, VertexId, Weak};
use pg_event::{Direction, Ns, ThreadId};

/// A server hands a request on at once, ns.
const AT_ONCE: Ns = 100_000_000;

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
        let before = self.g.ipc_of(asker, 0..begun.saturating_add(1)).iter().rev().take(LOOKED_AT);
        let mut sent = before.filter(|m| m.what.direction == Direction::Send);
        let at: Ns = sent.find_map(|m| {
            let own = object(m.what.object)?;
            let taken = self.g.ipc_of(server, m.what.first..m.time.saturating_add(AT_ONCE));
            let taken = taken.iter().filter(|r| r.what.direction == Direction::Receive && r.time >= m.time);
            let of_it = |r: &&crate::At<pg_event::IpcUse>| {
                object(r.what.object).is_some_and(|o| o.is_other_end_of(own))
            };
            taken.filter(of_it).map(|r| r.what.first.max(m.what.first)).min()
        })?;
        let turn = at..at.saturating_add(AT_ONCE);
        let outgoing = self.g.vertices_in(server, turn.clone()).flat_map(|v| self.g.outgoing(v));
        let mut sent: Vec<_> = outgoing.map(|id| (self.g.edge(id), id)).collect();
        sent.retain(|(e, _)| e.kind == EdgeKind::Ipc && turn.contains(&e.from_time));
        sent.sort_by_key(|(e, _)| e.from_time);
        let (e, id) = sent.into_iter().find(|(e, _)| {
            let to = self.g.vertex(e.to).thread;
            to != asker && to != server && self.counts(to) && self.at_work(to, spans)
        })?;
        let thread = self.g.vertex(e.to).thread;
        let why = "no wake-up by it was recorded; the server handed the request on to it and waited for whatever came next";
        Some(Candidate {
            thread,
            spans: spans.clone(),
            time: total(spans),
            entry: Entry {
                edge: Some(EdgeKind::Ipc),
                id: Some(id),
                why_weak: Some(why.into()),
                ..Entry::default()
            },
            weak: Some(Weak::FromState),
            waking: false,
            vertex: Some(e.to),
            at: e.from_time,
            kind: EdgeKind::Ipc,
            relation: None,
        })
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
        self.visit(next.thread, next.spans, next.entry)
    }

    /// Does a thread mostly wait for whatever comes from many?
    pub(super) fn serves_all(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        let Mostly::Waiting(i) = act.mostly() else { return false };
        let loops = |g| class(&self.representative(g), self.c) == WaitClass::EventLoop;
        act.groups.get(i).is_some_and(loops)
    }

    /// Did a thread run, or wait for something in particular, for most of the time?
    fn at_work(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => true,
            Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                let first = g.longest().map_or(VertexId(u32::MAX), |c| c.first);
                match class(&self.representative(g), self.c) {
                    // Who took part in the way here waits for the answer to its own request, whatever came since.
                    WaitClass::Channel => asked(self.g, self.c, first) || self.path.iter().any(|p| p.0 == t),
                    c => !c.idle() && c != WaitClass::Condition,
                }
            }),
            _ => false,
        }
    }
}
