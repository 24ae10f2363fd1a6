//! The sentence of a thread that waits to write to a terminal whose output is paused.

use super::Writer;
use crate::diagnose::{SliceNode, seen_paused};
use crate::words::{moment, who};
use pg_event::Relation;

impl Writer<'_> {
    pub(super) fn why_paused(&self, n: &SliceNode, full: &str) -> String {
        let waited = self.waited(n);
        if !seen_paused(&self.g.vertex(n.vertex), self.c) {
            return format!(
                "{full} {waited}: the terminal's output is paused (Ctrl-S), whoever shows it waits for output; Ctrl-Q in that terminal lets it go on"
            );
        }
        if let Some(e) = self.g.waking(self.last_of(n)).map(|e| self.g.edge(e)) {
            let woke = who(self.c, self.g.vertex(e.from).thread);
            return format!(
                "{full} {waited}: the terminal's output was paused (Ctrl-S, or a program that types it) until {woke} let it go on at {}",
                moment(e.from_time)
            );
        }
        let end = n.start + n.duration;
        let mut holds = self.g.holds(n.thread, n.start..end.saturating_add(1));
        let shows = holds.find(|h| h.relation == Relation::Peer && h.holder != n.thread);
        let shows = shows.map_or_else(String::new, |h| format!(", which {} shows,", who(self.c, h.holder)));
        format!(
            "{full} {waited}: the output of that terminal{shows} is paused (Ctrl-S, or a program that types it); Ctrl-Q there lets it go on"
        )
    }
}
