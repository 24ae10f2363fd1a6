//! A loop that asks a server every now and then until the answer is another one: for the state of a job, for a lock in a
//! database. Who told the server something just before the last question changed the answer; what that one did until then
//! is what the loop waited for.

use super::activity::{Group, Spans};
use super::ask::Candidate;
use super::walk::{Walk, group_spans};
use crate::looks::asked_over;
use crate::words::{clean, short_who};
use pg_event::{Direction, Ns, ObjectId, ProcessId, Relation, ThreadId};

/// Whoever tells the server something in more than one of so many turns is in conversation with it.
const SELDOM: usize = 8;
/// Most turns that are counted.
const TURNS: usize = 4096;

impl Walk<'_> {
    /// Who changed the answer, as the one whose act the loop waited for. `None` while the loop goes on, and where several may
    /// have.
    pub(super) fn changed_answer(&self, thread: ThreadId, group: &Group) -> Option<Candidate> {
        let spans = group_spans(group);
        let (start, end) = (spans.first()?.0, spans.last()?.1);
        if group.clips.iter().any(|c| self.g.vertex(c.last).open) {
            return None;
        }
        let over = asked_over(self.g, self.c, thread, (start, end), group.waits)?;
        let questions = |from: Ns, to: Ns| {
            let all = self.g.ipc_of(thread, from..to).iter();
            all.filter(|m| m.what.direction == Direction::Send && over.contains(&m.what.object))
                .map(|m| m.time)
        };
        let asked: Vec<Ns> = questions(start, end).take(TURNS).collect();
        let (before, last) = (*asked.last()?, questions(end, Ns::MAX).next()?);
        let others = || self.g.threads().filter(|t| *t != thread && self.counts(*t));
        let server = self.last_at_other_end(others(), &over, last.saturating_add(1))?.1;
        let serving = self.c.thread(server)?.process;
        let serves = |p: ProcessId| self.c.serve_together(p, serving);
        // What the server heard from others between the last two questions, and in how many turns before.
        let heard: Vec<(Ns, ObjectId)> = others()
            .filter(|t| self.c.thread(*t).is_some_and(|t| serves(t.process)))
            .flat_map(|t| self.g.ipc_of(t, before..last))
            .filter(|m| m.what.direction == Direction::Receive)
            .map(|m| (m.time, m.what.object))
            .collect();
        let to_server = |o: ObjectId| {
            let own = self.c.object(o).filter(|o| o.kind.is_channel());
            own.is_some_and(|own| {
                heard.iter().filter_map(|h| self.c.object(h.1)).any(|x| own.is_other_end_of(x))
            })
        };
        let own = self.c.thread(thread)?.process;
        let told = |t: ThreadId| {
            let process = self.c.thread(t)?.process;
            let sent = |from: Ns, to: Ns| {
                let mut all = self.g.ipc_of(t, from..to).iter();
                all.find(|m| m.what.direction == Direction::Send && to_server(m.what.object)).map(|m| m.time)
            };
            let at =
                sent(before, last).filter(|_| process != own && !serves(process) && !self.on_the_way(t))?;
            let turns = asked.windows(2).filter(|w| sent(w[0], w[1]).is_some()).count();
            (turns * SELDOM <= asked.len()).then_some((turns, at, t, process))
        };
        let mut all: Vec<_> = others().filter_map(told).collect();
        all.sort_unstable();
        let (_, at, changer, process) = *all.first()?;
        // A worker and the child that does its job are one; of others each may have changed it.
        let related = |p: ProcessId| self.comes_from(p, process) || self.comes_from(process, p);
        if !all.iter().all(|x| related(x.3)) {
            return None;
        }
        let cut: Spans = vec![(start, at.min(end))];
        let why = format!(
            "no wake-up can tell; nobody else sent {} something between the last two questions",
            clean(&short_who(self.c, server), 60),
        );
        let c = self.keeping(changer, Relation::Owns, at, why, &cut);
        Some(Candidate { relation: None, ..c })
    }
}
