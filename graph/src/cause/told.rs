//! Who was told to end and lives on.

use super::{Ranked, Writer};
use crate::diagnose::{SHORTLY, SliceNode, TOLD, told};
use crate::words::{moment, who};

impl Writer<'_> {
    /// `; supervisord (pid 7) had told it to end by SIGTERM at 0.15 s`, where that is why the way came to it.
    pub(super) fn lives_on(&self, r: &Ranked) -> String {
        let way = self.o.nodes.get(..=r.node).unwrap_or_default();
        let [.., before, n] = way else { return String::new() };
        let process = |n: &SliceNode| self.c.process_id_of(n.thread);
        let Some((by, whom)) =
            process(before).zip(process(n)).filter(|_| n.why_weak.as_deref() == Some(TOLD))
        else {
            return String::new();
        };
        let within = (before.start.saturating_sub(SHORTLY), n.start + n.duration);
        let Some(s) = told(self.g, self.c, by, whom, within) else { return String::new() };
        let signal = match s.signal {
            3 => "SIGQUIT".into(),
            9 => "SIGKILL".into(),
            15 => "SIGTERM".into(),
            n => format!("signal {n}"),
        };
        format!("; {} had told it to end by {signal} at {}", who(self.c, s.from), moment(s.time))
    }
}
