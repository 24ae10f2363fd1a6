//! What was not seen: stretches in which a thread seems to run only because no record says otherwise.
//!
//! A wait is recorded when it ends, so a thread without records may be running, or its record was lost.
//! Whoever runs leaves traces: samples, system calls, messages, being put off the CPU. A long stretch
//! without any is no proof of running when samples were taken, or when events were lost in it.

use crate::EventGraph;
use crate::columns::OPEN;
use pg_event::{Catalog, Ns, ThreadId};
use std::ops::Range;

/// Shortest stretch without a trace that is doubted, ns. (At 99 samples per second: 50 of them.)
pub(crate) const LEAST: Ns = 500_000_000;

impl EventGraph {
    /// The parts of `span` in which nothing tells whether the thread ran: no trace of it for half a second
    /// and more, though samples were taken or events were lost. Not counted as running anywhere.
    pub fn unseen(&self, thread: ThreadId, span: Range<Ns>) -> impl Iterator<Item = (Ns, Ns)> + '_ {
        let from = self.unseen.partition_point(|u| (u.0, u.2) <= (thread, span.start));
        self.unseen[from..]
            .iter()
            .take_while(move |u| u.0 == thread && u.1 < span.end)
            .map(move |u| (u.1.max(span.start), u.2.min(span.end)))
    }

    /// When the thread is first known to be on the CPU after `time` and before `end`.
    fn trace_after(&self, thread: ThreadId, time: Ns, end: Ns) -> Option<Ns> {
        let span = time.saturating_add(1)..end;
        let sample = self.samples_of(thread, span.clone()).first().map(|s| s.time);
        let call = self.syscalls_of(thread, span.clone()).first().map(|s| s.time);
        let message = self.ipc_of(thread, span.clone()).first().map(|m| m.what.first.max(time));
        let off = &self.rows(thread).put_off;
        let put_off =
            off.get(off.partition_point(|o| o.1 <= time)).map(|o| o.0.max(time)).filter(|t| *t < end);
        [sample, call, message, put_off].into_iter().flatten().min()
    }

    /// A wait that was told of while it lasted, and whose end was never recorded, lasts until the thread
    /// is next known to have run. `seen` is the last moment that a thread is named by any event.
    pub(crate) fn extend_told(&mut self, seen: &[Ns]) {
        for thread in 0..self.threads.len() {
            let id = ThreadId(thread as u32);
            let (vertices, thread_end) = (self.threads[thread].vertices.clone(), self.threads[thread].end);
            for v in vertices.clone() {
                let i = v as usize;
                if self.details[i].flags & OPEN == 0 {
                    continue;
                }
                let last = v + 1 == vertices.end;
                let end = if last { thread_end } else { self.times[i + 1].start };
                let told = self.times[i].woken;
                let named = seen.get(thread).copied().filter(|s| last && *s > told).unwrap_or(end);
                let until = self.trace_after(id, told, end).unwrap_or(end).min(named).max(told);
                if self.times[i].run <= until {
                    (self.times[i].woken, self.times[i].run) = (until, until);
                }
            }
        }
    }

    /// Fill in what was not seen. Looks at long segments only.
    pub(crate) fn find_unseen(&mut self, catalog: &Catalog) {
        let period = self.threads.iter().flat_map(|t| &t.samples).map(|s| s.weight).max();
        let least = LEAST.max(period.unwrap_or(0).saturating_mul(20));
        let mut out = Vec::new();
        for id in self.threads() {
            // The recorder takes no samples of itself.
            if catalog.thread(id).is_none_or(|t| t.own || t.tid == 0) {
                continue;
            }
            let rows = self.rows(id);
            for v in rows.vertices.clone() {
                let run = self.times[v as usize].run;
                let end = if v + 1 < rows.vertices.end { self.times[v as usize + 1].start } else { rows.end };
                if end.saturating_sub(run) >= least {
                    self.gaps(id, run, end, least, period.is_some(), &mut out);
                }
            }
        }
        self.unseen = out;
    }

    fn gaps(
        &self,
        id: ThreadId,
        run: Ns,
        end: Ns,
        least: Ns,
        sampled: bool,
        out: &mut Vec<(ThreadId, Ns, Ns)>,
    ) {
        let mut traces: Vec<(Ns, Ns)> = Vec::new();
        traces.extend(self.samples_of(id, run..end).iter().map(|s| (s.time, s.time)));
        traces.extend(self.syscalls_of(id, run..end).iter().map(|s| (s.time, s.time)));
        traces.extend(self.ipc_of(id, run..end).iter().map(|m| (m.what.first.max(run).min(m.time), m.time)));
        let off = &self.rows(id).put_off;
        let from = off.partition_point(|o| o.1 <= run);
        traces.extend(off[from..].iter().take_while(|o| o.0 < end).copied());
        traces.push((end, end));
        traces.sort_unstable();
        let mut at = run;
        for (a, b) in traces {
            if a.saturating_sub(at) >= least {
                // Nothing is known from the first loss on; with samples a silent thread did not run at all.
                let lost = self.lost.get(self.lost.partition_point(|l| l.1 <= at)).filter(|l| l.0 < a);
                match (sampled, lost) {
                    (true, _) => out.push((id, at, a)),
                    (false, Some(l)) => out.push((id, at.max(l.0), a)),
                    (false, None) => {}
                }
            }
            at = at.max(b);
        }
    }
}
