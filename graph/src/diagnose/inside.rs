//! Who within a process works for the thread that waits, where no message and no wake-up tells: recordings that begin in
//! the middle of a hang do not see how the work was handed over.

use super::activity::{Group, Mostly, Spans, activity, total};
use super::ask::Candidate;
use super::node::Entry;
use super::walk::Walk;
use crate::{EdgeKind, Weak};
use pg_event::{Ns, ObjectKind, ThreadId};

impl Walk<'_> {
    /// Does it wait for nothing but event counters, which its own threads write?
    pub(super) fn only_counts(&self, group: &Group) -> bool {
        let Some(o) = self.c.object(self.representative(group).object) else { return false };
        let counts = |k: ObjectKind| matches!(k, ObjectKind::EventFd | ObjectKind::TimerFd);
        let mut members = o.members.iter().filter_map(|m| self.c.object(*m)).map(|o| o.kind);
        match o.kind {
            ObjectKind::Set => {
                o.members.len() == members.clone().count()
                    && members.clone().any(|k| k == ObjectKind::EventFd)
                    && members.all(counts)
            }
            k => k == ObjectKind::EventFd,
        }
    }

    /// Both ends of what it waits for are with its own process: the other thread there, or the only one that does
    /// something, is who would have had to act.
    pub(super) fn within(&self, thread: ThreadId, silent: &Spans) -> Option<Candidate> {
        let others = self.others_of(thread, silent);
        let at_work = |t: &&ThreadId| self.at_work_for(**t, silent) * 2 >= total(silent);
        let outside = |t: &&ThreadId| self.looks_outside(**t, silent);
        let one = |all: Vec<ThreadId>| if let [one] = all[..] { Some(one) } else { None };
        let (holder, how) = if let [only] = others[..] {
            (only, "it is the only other thread of that")
        } else if let Some(t) = one(others.iter().filter(at_work).copied().collect()) {
            (t, "it is the only other thread of that which does something")
        } else {
            let t = one(others.iter().filter(outside).copied().collect())?;
            (t, "it is the only other thread of that which waits for somebody outside")
        };
        let why = format!("no wake-up was recorded; the process has both ends of it, and {how}");
        Some(self.inside(holder, silent, why))
    }

    /// Who does something in a process whose event loop has nothing to do, though an answer is expected of it: it may have
    /// handed the work on.
    pub(super) fn handed_inside(&self, thread: ThreadId, spans: &Spans) -> Vec<Candidate> {
        let others = self.others_of(thread, spans).into_iter();
        let mut all: Vec<_> = others.map(|t| (self.at_work_for(t, spans), t)).collect();
        all.retain(|(time, t)| time * 2 >= total(spans) && !self.path.iter().any(|p| p.0 == *t));
        all.sort_by_key(|(time, t)| (std::cmp::Reverse(*time), *t));
        let why =
            "no wake-up was recorded; it does something in that process, whose event loop had nothing to do";
        all.into_iter().map(|(_, t)| self.inside(t, spans, why.to_owned())).collect()
    }

    /// The other threads of its process that were there.
    fn others_of(&self, thread: ThreadId, spans: &Spans) -> Vec<ThreadId> {
        let own = self.c.thread(thread).map(|t| t.process);
        let (a, b) = (spans.first().map_or(0, |s| s.0), spans.last().map_or(0, |s| s.1));
        let there = |t: &ThreadId| {
            let born = self.g.vertices_of(*t).next().is_some_and(|v| self.g.vertex(v).start < b);
            *t != thread && self.counts(*t) && born && self.g.ended(*t).is_none_or(|e| e > a)
        };
        own.map_or_else(Vec::new, |p| self.g.threads_of(p).filter(there).collect())
    }

    /// For how long it ran, or waited for what only somebody else can bring.
    fn at_work_for(&self, t: ThreadId, spans: &Spans) -> Ns {
        let act = activity(self.g, self.c, t, spans);
        (act.running + act.runnable).max(self.owing(t, spans))
    }

    /// Does it mostly wait for what comes over a connection, besides what its own process tells it?
    fn looks_outside(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        let Mostly::Waiting(i) = act.mostly() else { return false };
        let Some(o) = act.groups.get(i).and_then(|g| self.c.object(self.representative(g).object)) else {
            return false;
        };
        let connection = |o: &pg_event::Object| {
            matches!(o.kind, ObjectKind::Tcp | ObjectKind::Udp | ObjectKind::UnixStream) && o.peer != 0
        };
        connection(o) || o.members.iter().filter_map(|m| self.c.object(*m)).any(connection)
    }

    fn inside(&self, holder: ThreadId, spans: &Spans, why: String) -> Candidate {
        let (a, b) = (spans.first().map_or(0, |s| s.0), spans.last().map_or(0, |s| s.1));
        Candidate {
            thread: holder,
            spans: spans.clone(),
            time: total(spans),
            entry: Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why), ..Entry::default() },
            weak: Some(Weak::FromState),
            waking: false,
            vertex: self.g.vertex_at(holder, b.saturating_sub(1)),
            at: a,
            kind: EdgeKind::Holder,
            relation: None,
        }
    }
}
