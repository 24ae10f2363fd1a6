//! The event graph as a timeline: its workers are threads, its tags vertices.

use super::{Interval, Link, LinkKind, State, Timeline};
use crate::{EdgeKind, EventGraph, VertexId};
use pg_event::{Ns, OffState, ThreadId};
use std::ops::Range;

impl Timeline for EventGraph {
    type Worker = ThreadId;
    type Tag = VertexId;

    fn span(&self, w: ThreadId) -> Option<Range<Ns>> {
        Some(self.began(w)?..self.ended(w)?)
    }

    fn before(&self, w: ThreadId, time: Ns) -> Option<Interval<VertexId>> {
        let own = self.times_of(w);
        let i = own.partition_point(|x| x.start < time).checked_sub(1)?;
        let tag = VertexId(self.rows(w).vertices.start + i as u32);
        let v = self.vertex(tag);
        if time > v.end {
            return None;
        }
        let (start, end, state) = if time <= v.woken {
            // Its own time-out, or a sleep, is not for others to explain.
            let state = if v.timed_out {
                State::Timer
            } else if v.state == OffState::Runnable {
                State::Preempted
            } else {
                State::Blocked
            };
            (v.start, v.woken, state)
        } else if time <= v.run {
            (v.woken, v.run, State::Preempted)
        } else {
            let off = &self.rows(w).put_off;
            let k = off.partition_point(|p| p.0 < time);
            let next = off.get(k).map_or(v.end, |p| p.0.min(v.end));
            match k.checked_sub(1).map(|k| off[k]) {
                Some((a, b)) if time <= b => (a.max(v.run), b, State::Preempted),
                Some((_, b)) => (b.max(v.run), next, State::Running),
                None => (v.run, next, State::Running),
            }
        };
        Some(Interval { start, end, state, tag })
    }

    fn entering(&self, w: ThreadId, time: Ns) -> Option<Link<ThreadId>> {
        let own = self.times_of(w);
        // Several waits can end at one moment only if they take no time; the last one counts.
        let i = own.partition_point(|x| x.woken <= time).checked_sub(1)?;
        if own[i].woken != time {
            return None;
        }
        let id = self.waking(VertexId(self.rows(w).vertices.start + i as u32))?;
        let e = self.edge(id);
        let kind = match e.kind {
            EdgeKind::Ipc => LinkKind::Network,
            EdgeKind::Timer => LinkKind::Timer,
            _ => LinkKind::Default,
        };
        let from = (self.vertex(e.from).thread, e.from_time.min(time));
        Some(Link { from, to: (w, time), kind, edge: Some(id) })
    }
}
