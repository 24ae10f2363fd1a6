//! A child that was killed: whoever waits in vain may have waited for what that child was to do.

use super::{Ranked, Writer};
use crate::diagnose::{FindingKind, KILLED, SliceNode, main_thread, meant, sent_by};
use crate::words::{clean, ids, moment, who};
use pg_event::{Ns, Process, ProcessId};

impl Writer<'_> {
    /// `; py (pid 8), a child of py (pid 7), was killed by signal 9 at 0.15 s`, where nothing else explains a wait and
    /// a child of one on the way was killed before half of the wait was over; not by its parent, which means it.
    pub(super) fn crashed(&self, r: &Ranked, n: &SliceNode) -> String {
        if !matches!(r.kind, Some(FindingKind::Idle | FindingKind::Unanswered | FindingKind::Here)) {
            return String::new();
        }
        // It is a cause of its own then.
        if self.o.nodes.iter().any(|n| n.why_weak.as_deref() == Some(KILLED)) {
            return String::new();
        }
        let way = self.o.nodes.get(..=r.node).unwrap_or_default();
        let parents: Vec<ProcessId> =
            way.iter().filter_map(|n| self.c.thread(n.thread)).map(|t| t.process).collect();
        let until = n.start + n.duration / 2;
        let killed = |(i, p): &(usize, &Process)| {
            let signal = p.exit_status.map_or(0, |s| s & 0x7f);
            let end = p.end.filter(|e| *e > 0 && *e < until && signal != 0 && parents.contains(&p.parent));
            end.is_some_and(|end| !meant(self.g, self.c, ProcessId(*i as u32), signal, end))
        };
        let all = self.c.processes.iter().enumerate();
        let Some((i, p)) = all.filter(killed).max_by_key(|(_, p)| p.end) else { return String::new() };
        let (signal, end) = (p.exit_status.unwrap_or(0) & 0x7f, p.end.unwrap_or(0));
        let parent = main_thread(self.g, self.c, p.parent).map(|t| who(self.c, t));
        format!(
            "; {} (pid {}), a child of {}, {} at {}",
            clean(&p.name, 40),
            ids(p),
            parent.unwrap_or_else(|| "it".into()),
            self.killed_by(ProcessId(i as u32), signal, end),
            moment(end)
        )
    }

    /// `was killed by signal 9 sent by kill (pid 7)`, where it was seen who sent it.
    pub(super) fn killed_by(&self, process: ProcessId, signal: u32, end: Ns) -> String {
        let sent = sent_by(self.g, self.c, process, signal, end);
        let by = sent.map_or_else(String::new, |t| format!(" sent by {}", who(self.c, t)));
        format!("was killed by signal {signal}{by}")
    }
}
