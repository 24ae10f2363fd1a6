//! Kernel workers: who had asked for what they do is carried on to whom they wake.
//!
//! A worker that ends somebody's wait did so since its work was done. Until that work was asked for, the wait was
//! for whoever asked; from then on for the worker. The edge begins where most of the wait went.

use super::channel::Segment;
use super::thread::Role;
use super::{Builder, number_of};
use crate::columns::EdgeRow;
use crate::{At, EdgeKind, WorkFact};
use pg_event::{Catalog, Ns, ObjectId, OffCpu, StackId, Sysno, ThreadId, Work};

impl Builder {
    /// `worker` did `w` at `time`.
    pub(super) fn work(&mut self, worker: ThreadId, time: Ns, w: &Work, catalog: &Catalog) {
        let queued = w.queued.min(time);
        let at = self.current(worker);
        let Some(t) = self.threads.get_mut(worker.index()) else { return };
        t.work = Some(At { time, what: Work { queued, ..*w } });
        let begun = t.rows.last().map_or(0, |r| r.times.run);
        self.works.push(WorkFact { time, worker, object: w.object, requester: w.requester, queued });
        let Some(from) = self.asked(w, worker, time, catalog) else { return };
        // Asked for before this segment began: that is what it began for.
        let to_time = if queued <= begun { begun } else { time };
        let (from, to) = (number_of(&self.threads, from), number_of(&self.threads, at));
        let double = self.edges.last().is_some_and(|e| (e.from, e.to, e.kind) == (from, to, EdgeKind::Work));
        if !double {
            self.edges.push(row((from, queued), (to, to_time), w.object, false));
        }
    }

    /// The segment in which the requester of `w` asked for it.
    fn asked(&mut self, w: &Work, worker: ThreadId, now: Ns, catalog: &Catalog) -> Option<Segment> {
        if w.requester.is_none() || w.requester == worker || w.queued == 0 {
            return None;
        }
        let t = self.touch(w.requester, now, catalog)?;
        if matches!(t.role, Role::Own | Role::Maintenance) {
            return None;
        }
        Some(Segment { thread: w.requester, index: t.segment_at(w.queued.min(now))? })
    }

    /// The worker whose segment is `from` woke `to` at `woken`. True when most of that wait had passed before
    /// somebody else asked for the work: then the edge is from there.
    pub(super) fn carried_on(
        &mut self,
        from: Segment,
        to: Segment,
        woken: Ns,
        o: &OffCpu,
        catalog: &Catalog,
    ) -> bool {
        let Some(work) = self.work_at(from, woken) else { return false };
        let (before, since) = (work.queued.saturating_sub(o.start), woken.saturating_sub(work.queued));
        if work.requester == to.thread || before <= since {
            return false;
        }
        let Some(asked) = self.asked(&work, from.thread, woken, catalog) else { return false };
        let (from, to) = (number_of(&self.threads, asked), number_of(&self.threads, to));
        let object = if o.object.is_some() { o.object } else { work.object };
        self.edges.push(row((from, work.queued), (to, woken), object, true));
        true
    }

    /// What the worker was doing in this segment at `time`.
    fn work_at(&self, from: Segment, time: Ns) -> Option<Work> {
        let t = self.threads.get(from.thread.index())?;
        let begun = t.rows.get(from.index as usize)?.times.run;
        t.work.filter(|w| begun <= w.time && w.time <= time).map(|w| w.what)
    }
}

fn row(
    (from, from_time): (crate::VertexId, Ns),
    (to, to_time): (crate::VertexId, Ns),
    object: ObjectId,
    waking: bool,
) -> EdgeRow {
    EdgeRow {
        from_time: from_time.min(to_time),
        to_time,
        from,
        to,
        object,
        stack: StackId::NONE,
        syscall: Sysno::NONE,
        kind: EdgeKind::Work,
        weak: None,
        waking,
    }
}
