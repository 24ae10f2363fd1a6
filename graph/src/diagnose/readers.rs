//! Readers of a read-write lock, which the C library counts and does not write down.

use super::activity::{Group, Mostly, Spans, activity};
use super::ask::Candidate;
use super::walk::Walk;
use crate::EdgeKind;
use crate::class::{class, joins, no_read_lock};
use pg_event::{Ns, Object, ObjectId, ObjectKind, Relation, ThreadId};

/// The words of one lock on which readers and writers sleep lie within so many bytes.
const LOCK: u64 = 12;

impl Walk<'_> {
    /// How many readers have the lock that a thread waits for, and when that was read: for itself, or for a writer that wants
    /// the same lock (readers queue behind it).
    pub(super) fn readers_of(&self, thread: ThreadId, group: &Group, silent: &Spans) -> Option<(Ns, usize)> {
        let v = self.representative(group);
        let (a, b) = (silent.first()?.0, silent.last()?.1.saturating_add(1));
        if no_read_lock(&v, self.c) {
            return None;
        }
        let own = self.g.readers(thread, a..b);
        let wants = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, silent);
            act.waiting().is_some_and(|g| self.of_one_lock(v.object, self.representative(g).object))
        };
        own.or_else(|| {
            let process = self.c.process_id_of(thread)?;
            let mut others = self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t));
            others.find_map(|t| self.g.readers(t, a..b).filter(|_| wants(&t)))
        })
    }

    /// Do two futex words belong to one read-write lock, most likely?
    fn of_one_lock(&self, a: ObjectId, b: ObjectId) -> bool {
        let word = |o| self.c.object(o).filter(|o: &&Object| o.kind == ObjectKind::Futex);
        word(a).zip(word(b)).is_some_and(|(a, b)| a.peer == b.peer && a.id.abs_diff(b.id) <= LOCK)
    }

    /// Nobody was seen to get it: the threads of the process that do not wait for the lock, nor for whatever comes next, if
    /// they are no more than there are readers.
    pub(super) fn left_to_read(
        &self,
        thread: ThreadId,
        group: &Group,
        silent: &Spans,
        readers: usize,
    ) -> Vec<Candidate> {
        let word = self.representative(group).object;
        let Some(process) = self.c.process_id_of(thread) else { return Vec::new() };
        let may = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, silent);
            match act.mostly() {
                Mostly::Running | Mostly::Runnable => true,
                Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                    let v = self.representative(g);
                    let wants = self.of_one_lock(word, v.object) || joins(&v, self.c);
                    !wants && !class(&v, self.c).idle() && !self.keeps_house(g, thread)
                }),
                Mostly::Unborn | Mostly::Gone | Mostly::Unknown => false,
            }
        };
        let others = self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t));
        let all: Vec<ThreadId> = others.filter(may).take(readers + 1).collect();
        if all.len() > readers {
            return Vec::new();
        }
        let s = if readers == 1 { " has" } else { "s have" };
        let why = format!(
            "{readers} reader{s} the lock, and the C library does not record who; this thread of the process does something else than to wait for it"
        );
        let found = |t| {
            let mut c = self.left(t, 1, silent);
            (c.entry.why_weak, c.entry.sole) = (Some(why.clone()), false);
            c.relation = Some(Relation::Reader);
            c
        };
        all.into_iter().map(found).collect()
    }

    /// Readers have the lock that a thread wants to write, and the C library does not write down who: threads that were
    /// seen to get this lock before `at` and have woken nobody for it since.
    pub(crate) fn seen_to_read(
        &self,
        thread: ThreadId,
        group: &Group,
        at: Ns,
        silent: &Spans,
        readers: usize,
    ) -> Vec<Candidate> {
        // Readers and writers sleep on words that lie side by side.
        const APART: u64 = 4;
        let row = |o| self.c.object(o).filter(|o| o.kind == ObjectKind::Futex);
        let wanted = self.representative(group).object;
        let Some((word, process)) = row(wanted).zip(self.c.process_id_of(thread)) else {
            return Vec::new();
        };
        let same = |o| row(o).is_some_and(|x| x.peer == word.peer && x.id.abs_diff(word.id) <= APART);
        let mut out = Vec::new();
        for t in self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t)) {
            let got = self.g.vertices_in(t, 0..at).rev().find(|id| {
                let v = self.g.vertex(*id);
                let woken = v.woken <= at && v.waited() > 0 && !v.open && !v.timed_out && !v.interrupted;
                woken && same(v.object) && self.g.waking(*id).is_some()
            });
            let Some(id) = got else { continue };
            let since = self.g.vertex(id).woken;
            let gave_back = self.g.vertices_in(t, since..at).any(|v| {
                self.g.outgoing(v).map(|e| self.g.edge(e)).any(|e| {
                    e.kind == EdgeKind::Futex && same(e.object) && e.from_time > since && e.from_time < at
                })
            });
            let alive = self.g.exited(t).is_none_or(|x| x.0 > at);
            if !gave_back && alive {
                let mut c = self.left(t, 1, silent);
                let why = format!(
                    "{readers} readers have the lock, and the C library does not record who; this one was seen to get it and woke nobody for it since"
                );
                c.entry.why_weak = Some(why);
                (c.vertex, c.at, c.relation) = (Some(id), since, Some(Relation::Reader));
                out.push(c);
            }
        }
        out
    }
}
