//! FIFOs that are opened crosswise. open(2) of a FIFO waits until somebody opens the other end; who was to do that is
//! written nowhere. But somebody near who waits in the same way cannot: together they look like a circle. And
//! FIFOs and pipes of which only those have the other end who wait for the reader.

use super::activity::{Group, Spans, activity};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::node::Entry;
use super::walk::{Flow, Walk, group_spans};
use crate::class::opens_fifo;
use crate::words::{clean, short_label};
use crate::{EdgeKind, Vertex};
use pg_event::{Object, ProcessId, Relation, StackId, ThreadId};

/// More than so many that open FIFOs are no circle but what these programs do.
const MOST: usize = 4;

impl Walk<'_> {
    /// Have only idle threads the writing end of a pipe that `thread` reads, in processes that wait for `thread` by others of
    /// theirs? They opened it for it, or gave it to it, and write nothing.
    pub(super) fn only_waiters_write(&self, thread: ThreadId, holders: &[Candidate]) -> bool {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let waits = |c: &Candidate| {
            let of = |p: &&(ThreadId, _)| p.0 != thread && process(p.0) == process(c.thread);
            self.path.iter().any(|p| of(&p)) && !self.on_the_way(c.thread)
        };
        let idles = |c: &Candidate| c.relation == Some(Relation::Writes) && waits(c) && self.is_idle(c);
        !holders.is_empty() && holders.iter().all(idles)
    }

    /// The thread waits for the other end of a FIFO that nobody had open. Others near it do so, too: each is shown.
    pub(super) fn by_fifos(&mut self, thread: ThreadId, group: &Group, silent: &Spans) -> Flow<bool> {
        let v = self.representative(group);
        let Some(own) = self.c.object(v.object).filter(|_| opens_fifo(&v, self.c)) else { return Ok(false) };
        let Some(&(from, until)) = silent.iter().max_by_key(|s| s.1 - s.0) else { return Ok(false) };
        // Who waits for most of it does so in the middle.
        let middle = from + (until - from) / 2;
        let opens = |t: &ThreadId| {
            let at = self.g.vertex_at(*t, middle).map(|v| self.g.vertex(v));
            at.is_some_and(|v| opens_fifo(&v, self.c))
        };
        let all = self.g.threads().filter(|t| *t != thread && self.counts(*t)).filter(opens);
        let mut others: Vec<(ThreadId, Group)> = all
            .filter_map(|t| {
                let act = activity(self.g, self.c, t, silent);
                let g = act.groups.into_iter().find(|g| opens_fifo(&self.representative(g), self.c))?;
                let other = self.c.object(self.representative(&g).object)?;
                let alone = g.clips.iter().all(|c| self.brought(c).is_none());
                let apart = (own.id, &own.name) != (other.id, &other.name);
                let near = same_folder(own, other) || self.kin(thread, t);
                let jobs = self.jobs_of_a_kind(&v, &self.representative(&g));
                (alone && apart && near && !jobs && g.blocked * 2 >= act.total).then_some((t, g))
            })
            .take(MOST + 1)
            .collect();
        if others.is_empty()
            && let Some(t) = self.names_it(thread, &own.name, silent)
        {
            let why = "who was to open the other end is written nowhere; its command line names the FIFO";
            let entry =
                Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why.into()), ..Entry::default() };
            return self.visit(t, silent.clone(), entry).map(|()| true);
        }
        if others.is_empty() || others.len() > MOST {
            return Ok(false);
        }
        let begin = |g: &Group| g.clips.first().map_or(0, |c| c.start);
        others.sort_by_key(|(t, g)| (std::cmp::Reverse(begin(g)), *t));
        let why = format!(
            "who was to open the other end of {} is written nowhere; this one is near, and waits for somebody to open the other end of another FIFO",
            clean(&short_label(&own.label()), 60)
        );
        let node = self.out.nodes.len() - 1;
        for (t, g) in &others {
            if self.out.nodes.iter().any(|n| n.thread == *t) {
                continue;
            }
            let entry =
                Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why.clone()), ..Entry::default() };
            self.push_wait(*t, g, entry);
            self.found(*t, FindingKind::Closed, group_spans(g));
        }
        let spans = group_spans(group);
        self.out.findings.push(Finding { thread, node, kind: FindingKind::Closed, spans });
        Ok(true)
    }

    /// The only process that lived then whose command line has the path in it, besides who waits and who started that.
    fn names_it(&self, thread: ThreadId, path: &str, silent: &Spans) -> Option<ThreadId> {
        let own = self.c.thread(thread)?.process;
        let (a, b) = (silent.first()?.0, silent.last()?.1);
        let line: Vec<ProcessId> = self.c.ancestors(own).chain([own]).collect();
        let has = |text: &str| {
            let part_of = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "/._-".contains(c));
            text.match_indices(path).any(|(i, _)| {
                !part_of(text[..i].chars().next_back()) && !part_of(text[i + path.len()..].chars().next())
            })
        };
        let names = |(i, p): (usize, &pg_event::Process)| {
            let id = ProcessId(i as u32);
            let there = p.start < b && p.end.is_none_or(|e| e > a);
            (path.starts_with('/') && there && !line.contains(&id) && has(p.cmdline())).then_some(id)
        };
        let mut all = self.c.processes.iter().enumerate().filter_map(names);
        let (one, None) = (all.next()?, all.next()) else { return None };
        main_thread(self.g, self.c, one).filter(|t| self.counts(*t))
    }

    /// Threads of one process at the same place: of a pool that opens whatever it is given, one does not wait for another.
    fn jobs_of_a_kind(&self, a: &Vertex, b: &Vertex) -> bool {
        let process = |v: &Vertex| self.c.process_id_of(v.thread);
        process(a) == process(b) && a.user_stack == b.user_stack && a.user_stack != StackId::NONE
    }

    /// Of one process, one the parent of the other, or of one parent.
    fn kin(&self, a: ThreadId, b: ThreadId) -> bool {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let (Some(a), Some(b)) = (process(a), process(b)) else { return false };
        let parent = |p| self.c.process(p).map(|p| p.parent).filter(|p| p.is_some());
        a == b
            || parent(a) == Some(b)
            || parent(b) == Some(a)
            || (parent(a).is_some() && parent(a) == parent(b))
    }
}

fn same_folder(a: &Object, b: &Object) -> bool {
    let folder = |o: &Object| o.name.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    folder(a).is_some() && folder(a) == folder(b)
}
