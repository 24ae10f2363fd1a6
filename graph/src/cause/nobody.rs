//! Waits that nobody ended: who alone could have, and what they did instead.

use super::Writer;
use crate::class::{WaitClass, class, is_schedulers_own, on_condition, private_futex};
use crate::diagnose::{Mostly, SliceNode, activity, last_killed};
use crate::words::{moment, short_who, span, who};
use crate::{HoldFact, Vertex};
use pg_event::{Ns, Relation, ThreadId};

impl Writer<'_> {
    /// Only the other threads of its process could have woken a step, and none did: what the only one did meanwhile.
    pub(super) fn none_of_its_own(&self, n: &SliceNode) -> Option<String> {
        let v = self.g.vertex(self.last_of(n));
        let (own, end) = (self.c.process_id_of(n.thread)?, n.start + n.duration);
        let lives = |t: &ThreadId| {
            let row = self.c.thread(*t).filter(|x| !x.own);
            *t != n.thread
                && row.is_some_and(|x| x.start < end)
                && self.g.exited(*t).is_none_or(|x| x.0 >= end)
        };
        let others: Vec<ThreadId> = self.g.threads_of(own).filter(lives).collect();
        // One that ended otherwise was ended by somebody who was not recorded.
        let ended = !(v.open || v.interrupted || v.timed_out);
        if ended || !private_futex(&v, self.c) || is_schedulers_own(&v, self.c) || others.is_empty() {
            return None;
        }
        // Whoever notified before it waited is not to be seen.
        let lost =
            if on_condition(&v, self.c) { "; a notification that came before it waited is lost" } else { "" };
        Some(match &others[..] {
            // Whom that held up is told after it: more would be too much for one sentence.
            [_] if self.o.nodes.first().is_none_or(|v| v.thread != n.thread) => {
                format!("no other thread of its process woke it{lost}")
            }
            [one] => {
                let did = self.did(*one, (n.start, end));
                format!("no other thread of its process woke it: {} {did}{lost}", short_who(self.c, *one))
            }
            all => {
                let lost = if self.o.nodes.first().is_none_or(|v| v.thread == n.thread) { lost } else { "" };
                format!("none of the {} other threads of its process woke it{lost}", all.len())
            }
        })
    }

    /// A thread of its process that let it go on the last times it waited for the same, and that ended since: a worker whose end
    /// nobody noticed.
    pub(super) fn its_waker_ended(&self, n: &SliceNode) -> Option<String> {
        const LOOKED_AT: usize = 256;
        let own = self.c.process_id_of(n.thread)?;
        let half = n.start + n.duration / 2;
        let mut earlier = self.g.vertices_in(n.thread, 0..n.start).rev().take(LOOKED_AT);
        let last = earlier.find(|id| {
            let v = self.g.vertex(*id);
            v.woken <= n.start && Some(v.object) == n.object && self.g.waking(*id).is_some()
        })?;
        let by = self.g.vertex(self.g.edge(self.g.waking(last)?).from).thread;
        let at = self.g.exited(by).map(|x| x.0).filter(|at| *at < half)?;
        let row = self.c.thread(by).filter(|_| by != n.thread && self.c.process_id_of(by) == Some(own))?;
        Some(format!("thread {} of it, which woke it the last time, ended at {}", row.tid, moment(at)))
    }

    /// "waited 3.02 s (3 times) in clock_nanosleep, called from step".
    fn did(&self, t: ThreadId, spans: (Ns, Ns)) -> String {
        let act = activity(self.g, self.c, t, &[spans]);
        match act.mostly() {
            Mostly::Waiting(i) => act.groups.get(i).and_then(|g| Some((g, g.longest()?))).map_or_else(
                || "waited".to_owned(),
                |(g, clip)| {
                    let vertex = crate::episode::typical(self.g, self.c, clip.first, clip.last);
                    let mut node = SliceNode::waiting(self.g, self.c, vertex, spans);
                    (node.spent, node.waits) = (g.blocked, g.waits);
                    self.waited(&node)
                },
            ),
            Mostly::Running => format!("ran {}", span(act.running)),
            Mostly::Runnable => format!("wanted the CPU for {}", span(act.runnable)),
            Mostly::Unborn | Mostly::Gone | Mostly::Unknown => "did nothing that was recorded".to_owned(),
        }
    }

    /// Of a step that reads from a pipe: that only processes which wait for it by other threads have its writing end.
    pub(super) fn only_waiters_write(&self, n: &SliceNode) -> Option<String> {
        let mut holds = self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1));
        let writes = holds.find(|h| h.relation == Relation::Writes && Some(h.object) == n.object)?;
        let one = self.came_by(n, writes.holder)?;
        Some(format!("only {}, which waits for it itself, has the writing end open", who(self.c, one.thread)))
    }

    /// Of a step that waits for room in a socket: who has the other end, of those that the way came by.
    pub(super) fn has_its_other_end(&self, n: &SliceNode, last: &Vertex) -> Option<String> {
        let mut holds = self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1));
        let peer = |h: &HoldFact| h.relation == Relation::Peer && Some(h.object) == n.object;
        let holder = holds.find(peer).filter(|_| class(last, self.c) == WaitClass::Room)?.holder;
        let one = self.came_by(n, holder)?;
        Some(format!("{} has the other end", who(self.c, one.thread)))
    }

    /// The first step before this one that is of the same process as a thread.
    fn came_by(&self, n: &SliceNode, thread: ThreadId) -> Option<&SliceNode> {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let mut before = self.o.nodes.iter().take_while(|x| !std::ptr::eq(*x, n));
        before.find(|x| process(x.thread) == process(thread))
    }

    /// Another process of the same program that was killed before the end of a step: `app (pid 9), which was killed (signal 9) at
    /// 3.1 s, may have been to`.
    fn killed_fellow(&self, n: &SliceNode) -> Option<String> {
        let own = self.c.process_id_of(n.thread)?;
        let exe = &self.c.process(own)?.exe;
        let end = n.start + n.duration;
        let (one, signal, at) = last_killed(self.g, self.c, end, |_, p| !exe.is_empty() && p.exe == *exe)?;
        let one = who(self.c, one);
        Some(format!("{one}, which was killed (signal {signal}) at {}, may have been to", moment(at)))
    }

    /// Of a step that waits for a word of shared memory, in a process without other threads: that no other process has it mapped,
    /// or which of those that have wait for it, too.
    pub(super) fn nobody_maps(&self, n: &SliceNode) -> Option<String> {
        let within = n.start..(n.start + n.duration).saturating_add(1);
        let alone = self.c.process_id_of(n.thread).is_some_and(|p| self.g.threads_of(p).nth(1).is_none());
        let found = self.g.sharers(n.thread, within);
        if !alone || !found.iter().any(|h| h.holder == n.thread && Some(h.object) == n.object) {
            return None;
        }
        let fellows: Vec<_> = found.iter().map(|h| h.holder).filter(|t| *t != n.thread).collect();
        let gone = self.killed_fellow(n).unwrap_or_else(|| "whoever was to has ended or never came".into());
        Some(match fellows[..] {
            [] => format!(
                "nobody can wake it as things are: no other process has that memory mapped, so {gone}"
            ),
            [one] => format!(
                "nobody can wake it as things are: the one other process that has that memory mapped, {}, waits for the same, so {gone}",
                who(self.c, one)
            ),
            _ => format!(
                "nobody can wake it as things are: the {} other processes that have that memory mapped wait for the same, so {gone}",
                fellows.len()
            ),
        })
    }
}
