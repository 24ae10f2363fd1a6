//! A pool that waits for itself: each of its threads waits for the result of work that lies in the pool's queue, which
//! none of them is left to do.

use super::activity::{Group, activity};
use super::finding::{Finding, FindingKind};
use super::node::Entry;
use super::walk::{Walk, group_spans};
use crate::EdgeKind;
use crate::python::{is_of_pool, waits_for_result};
use crate::words::who;
use pg_event::ThreadId;

impl Walk<'_> {
    /// The thread waits for a result, and so do all the threads of its process that do such work: it is theirs.
    pub(super) fn by_starved_pool(&mut self, thread: ThreadId, group: &Group) -> bool {
        let v = self.representative(group);
        if !waits_for_result(&v, self.c) {
            return false;
        }
        let Some(workers) = self.all_starved(thread, group) else { return false };
        let kind = FindingKind::Starved(workers.len() as u32);
        let own = self.out.nodes.len().saturating_sub(1);
        if is_of_pool(&v, self.c) {
            self.found(thread, kind, group_spans(group));
            return true;
        }
        // Whose wait began last had hoped for the others.
        let begin = |g: &Group| g.clips.first().map_or(0, |c| self.g.vertex(c.first).start);
        let Some((worker, g)) = workers.iter().max_by_key(|(t, g)| (begin(g), *t)) else { return false };
        let why = format!(
            "all {} threads of {}'s pool wait for results themselves: none is left to bring this one",
            workers.len(),
            who(self.c, thread)
        );
        let entry = Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why), ..Entry::default() };
        self.push_wait(*worker, g, entry);
        self.out.findings.push(Finding { thread: *worker, node: own + 1, kind, spans: vec![g.extent()] });
        true
    }

    /// The threads of the pools of a process, where all of them mostly wait for results.
    fn all_starved(&self, thread: ThreadId, group: &Group) -> Option<Vec<(ThreadId, Group)>> {
        let spans = group_spans(group);
        let process = self.c.process_id_of(thread)?;
        let mut starved = Vec::new();
        for t in self.g.threads_of(process) {
            let act = activity(self.g, self.c, t, &spans);
            let worker = |g: &Group| is_of_pool(&self.representative(g), self.c);
            if !act.groups.iter().any(worker) {
                continue;
            }
            let g = act.waiting().filter(|g| waits_for_result(&self.representative(g), self.c))?;
            starved.push((t, g.clone()));
        }
        (!starved.is_empty()).then_some(starved)
    }
}
