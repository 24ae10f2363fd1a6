//! Threads that wait for locks whose owners are not recorded (monitors of Java, locks of languages), in a process that goes
//! on living: its housekeeping turns, its workers wait for work. Whoever has such a lock does something, or waits for one
//! itself; when all that could have one wait, they wait for each other.

use super::activity::{Group, Mostly, Spans, activity, total};
use super::stuck::CLOSED;
use super::walk::Walk;
use crate::class::{WaitClass, class, joins};
use crate::{EdgeKind, Vertex};
use pg_event::{Ns, StackId, ThreadId};

/// A thread that waits so soon after it began has had no time to take anything, ns.
const AT_ONCE: Ns = 20_000_000;

impl Walk<'_> {
    /// The other threads of the process that wait for locks all that time, where `thread` waits for one, too, and nobody
    /// else there could have one. `None` when somebody may.
    pub(super) fn locked_together(
        &self,
        thread: ThreadId,
        group: &Group,
        silent: &Spans,
    ) -> Option<Vec<(ThreadId, Group)>> {
        let readers = || self.readers_of(thread, group, silent).is_some();
        if !self.private_futex(group) || !self.for_lock(group) || total(silent) < CLOSED || readers() {
            return None;
        }
        let process = self.c.thread(thread)?.process;
        let (mut locked, mut waits) = (Vec::new(), Vec::new());
        for t in self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t)) {
            let mut act = activity(self.g, self.c, t, silent);
            let i = match act.mostly() {
                Mostly::Running | Mostly::Runnable => return None,
                Mostly::Waiting(i) => i,
                Mostly::Unborn | Mostly::Gone | Mostly::Unknown => continue,
            };
            let (all, g) = (act.total, act.groups.swap_remove(i));
            if self.keeps_house(&g, thread) {
                continue;
            }
            if self.for_lock(&g) {
                let ended = g.clips.iter().any(|c| self.brought(c).is_some());
                if ended || g.blocked * 20 < all * 19 {
                    return None;
                }
                locked.push((t, g));
            } else if !self.has_no_lock(t, &g, silent) {
                waits.push((t, g));
            }
        }
        // Who made the others waits for their end, or for the program's.
        let mut makers: Vec<ThreadId> = Vec::new();
        for t in locked.iter().map(|x| x.0).chain([thread]) {
            makers.extend(self.makers(t));
        }
        let condition = |g: &Group| class(&self.representative(g), self.c) == WaitClass::Condition;
        // Who went to wait for something else before any of these was there can hardly have what one of them had first.
        let born =
            locked.iter().map(|x| x.0).chain([thread]).filter_map(|t| self.c.thread(t)).map(|t| t.start);
        let born = born.min().unwrap_or(0);
        let before = |g: &Group| g.clips.first().is_some_and(|c| self.g.vertex(c.first).start < born);
        let may = waits.iter().any(|(t, g)| !condition(g) || !(makers.contains(t) || before(g)));
        // Of those that want the same lock none has it.
        let object = |g: &Group| self.representative(g).object;
        let same = locked.iter().all(|(_, g)| object(g).is_some() && object(g) == object(group));
        (!same && !may).then_some(locked)
    }

    /// Who made a thread, who made that one, and so on.
    fn makers(&self, thread: ThreadId) -> impl Iterator<Item = ThreadId> + '_ {
        const GENERATIONS: usize = 16;
        let made = |t: &ThreadId| {
            let first = self.g.vertices_of(*t).next()?;
            let spawn = self.g.incoming(first).map(|e| self.g.edge(e)).find(|e| e.kind == EdgeKind::Spawn)?;
            Some(self.g.vertex(spawn.from).thread)
        };
        std::iter::successors(made(&thread), made).take(GENERATIONS)
    }

    /// Does a thread that waits for something else have nothing that others could wait for? It waits for work, where it and
    /// its like always wait, or for the next turn of what it does every now and then.
    fn has_no_lock(&self, t: ThreadId, group: &Group, silent: &Spans) -> bool {
        let v = self.representative(group);
        if joins(&v, self.c) || self.accepts(t, silent) {
            return true;
        }
        match class(&v, self.c) {
            WaitClass::Condition | WaitClass::Sleep | WaitClass::Lock => {
                let turns = group.waits > 2 && v.timed_out;
                turns || self.waits_as_ever(t, &v)
            }
            c => c.idle(),
        }
    }

    /// Has it, or another thread of its process, waited at this place before, or does another one so now? Or did it do
    /// nothing else since it began?
    fn waits_as_ever(&self, t: ThreadId, v: &Vertex) -> bool {
        const LOOKED_AT: usize = 4096;
        let Some(row) = self.c.thread(t) else { return false };
        if v.begun_before || v.start < row.start.saturating_add(AT_ONCE) {
            return true;
        }
        let same = |x: &Vertex| x.user_stack == v.user_stack && x.waited() > 0 && x.start != v.start;
        let place = |t: ThreadId| {
            let mut all = self.g.vertices_in(t, 0..v.start.saturating_add(CLOSED)).rev().take(LOOKED_AT);
            all.any(|id| same(&self.g.vertex(id)))
        };
        v.user_stack != StackId::NONE && self.g.threads_of(row.process).any(place)
    }

    /// May `thread` have the lock that one of these waits for? Not when it began its work (or itself) after they were stuck.
    pub(super) fn came_later(&self, thread: ThreadId, group: &Group, others: &[(ThreadId, Group)]) -> bool {
        let Some(begun) = group.clips.first().map(|c| c.start) else { return false };
        let idle = |id: crate::VertexId| {
            let v = self.g.vertex(id);
            let class = class(&v, self.c);
            v.waited() > 0 && v.woken <= begun && (class.idle() || class == WaitClass::Condition)
        };
        let woken = self.g.vertices_in(thread, 0..begun).rev().find(|id| idle(*id));
        let began = woken.map(|id| self.g.vertex(id).woken);
        let began = began.or_else(|| self.c.thread(thread).map(|t| t.start).filter(|s| *s > 0));
        let stuck = others.iter().filter_map(|(_, g)| g.clips.first()).map(|c| self.g.vertex(c.first).start);
        began.zip(stuck.max()).is_some_and(|(began, stuck)| stuck < began)
    }
}
