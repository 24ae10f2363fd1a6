//! Programs whose tasks are executed by any thread (Go): a thread with nothing to do says nothing of the task that has a
//! request. Whom the process as a whole asked does.

use super::activity::Spans;
use super::ask::Candidate;
use super::handed::AT_ONCE;
use super::walk::Walk;
use crate::class::connected;
use pg_event::{Direction, Ns, ObjectId, Relation, ThreadId};
use std::collections::BTreeMap;

impl Walk<'_> {
    /// The only one that the process of `server` had asked in the turn in which it was asked itself, or before the recording, and
    /// that has not answered. `None` when there is none, or several.
    pub(super) fn asked_by_tasks(&self, server: ThreadId, spans: &Spans) -> Option<Candidate> {
        let own = self.c.process_id_of(server)?;
        let (a, b) = (spans.first()?.0, spans.last()?.1);
        let threads: Vec<ThreadId> = self.g.threads_of(own).collect();
        // The last message over each connection that the process made, whichever thread sent or took it.
        let mut last: BTreeMap<ObjectId, (Ns, Direction)> = BTreeMap::new();
        for m in threads.iter().flat_map(|t| self.g.ipc_of(*t, 0..b)) {
            if connected(self.c, m.what.object) {
                let l = last.entry(m.what.object).or_insert((m.time, m.what.direction));
                if l.0 <= m.time {
                    *l = (m.time, m.what.direction);
                }
            }
        }
        let soon = a.saturating_sub(AT_ONCE)..=a.saturating_add(AT_ONCE);
        let asked = last.iter().filter(|(_, l)| l.1 == Direction::Send && soon.contains(&l.0)).map(|l| *l.0);
        let asked: Vec<ObjectId> = asked.collect();
        let at_ends = self.at_other_ends(server, &asked, b).into_iter().map(|(_, t)| t);
        let holds = || threads.iter().flat_map(|t| self.g.holds(*t, a..b.saturating_add(1)));
        let held = holds().filter(|h| h.relation == Relation::Peer && asked.contains(&h.object));
        let mut found: Vec<ThreadId> = at_ends.chain(held.map(|h| h.holder)).collect();
        let mut doubt = 0.0;
        if asked.is_empty() {
            // What was asked before is known by the connections that are there and over which nothing came.
            let silent = |o: ObjectId| connected(self.c, o) && !last.contains_key(&o);
            found = holds()
                .filter(|h| h.relation == Relation::Peer && silent(h.object))
                .map(|h| h.holder)
                .collect();
            doubt = 0.3;
        }
        let process = |t: &ThreadId| self.c.process_id_of(*t);
        found.retain(|t| self.counts(*t) && process(t) != Some(own) && !self.on_the_way(*t));
        let mut processes: Vec<_> = found.iter().map(process).collect();
        processes.sort_unstable();
        processes.dedup();
        let ([_], Some(t)) = (&processes[..], found.first().copied()) else { return None };
        let ends: Vec<ObjectId> =
            holds().filter(|h| process(&h.holder) == process(&t)).map(|h| h.object).collect();
        let serves = self.serving(t, &asked, b).or_else(|| self.watcher(t, &ends, spans));
        let thread = serves.or_else(|| self.its_thread(t, server, spans)).unwrap_or(t);
        let why = "no wake-up was recorded; the process, of which any thread may execute any task, asked it and had no answer";
        let mut c = Candidate::unseen(thread, spans.clone(), (self.g.vertex_at(thread, a), a), why);
        (c.relation, c.entry.doubt) = (Some(Relation::Peer), doubt);
        Some(c)
    }
}
