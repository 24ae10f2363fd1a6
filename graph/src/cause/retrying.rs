//! The sentence of a retry loop made of children.

use super::{Ranked, Writer};
use crate::diagnose::SliceNode;
use crate::retries::Evidence;
use crate::words::{clean, short_command, short_label, short_who, span};
use crate::yields::errno;
use pg_event::ProcessId;

impl Writer<'_> {
    /// What it ran again and again, how that failed, and who has what it asks for.
    pub(super) fn why_retrying(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let (start, end) = (n.start, n.start + n.duration);
        let all = self.g.retries_of(r.thread).iter();
        let Some(tries) = all.filter(|t| t.start < end && start < t.end).max_by_key(|t| t.end.min(end))
        else {
            return format!("{full} {}", self.waited(n));
        };
        let program = |id: ProcessId| {
            let p = self.c.process(id)?;
            let line = if p.cmdline().is_empty() { &p.name } else { p.cmdline() };
            Some(format!("`{}`", short_command(line, self.line.get().max(18))))
        };
        let last = tries.failed.last().copied();
        let failed = last.and_then(program).unwrap_or_else(|| "a program".into());
        let how = match last.and_then(|p| self.c.process(p)?.exit_status) {
            Some(s) if s & 0x7f != 0 => format!("killed by signal {}", s & 0x7f),
            Some(s) => format!("exit code {}", s >> 8),
            None => "its status was not recorded".into(),
        };
        let why = tries.evidence(self.g, self.c).map_or_else(String::new, |e| self.refused(&e));
        let pause = tries.between.and_then(program);
        let pause = pause.map_or_else(String::new, |p| format!(", with {p} in between"));
        let child = self.o.nodes.get(r.node + 1).filter(|c| c.state == "exited");
        let whom = match child.and_then(|_| self.o.nodes.get(r.node + 2)) {
            Some(h) => format!("{} keeps it from that", clean(&short_who(self.c, h.thread), 60)),
            None if child.is_none() => "what the child waited for is told above".into(),
            None => "who keeps it from that was not recorded".into(),
        };
        format!(
            "{full} ran {failed} {} times in {}{pause}, and it failed each time ({how}{why}): it waits until that succeeds, and {whom}",
            tries.failed.len(),
            span(n.duration),
        )
    }

    /// `; mkdir of /run/lock: EEXIST`.
    fn refused(&self, e: &Evidence) -> String {
        let call = e.call.name().unwrap_or_else(|| "a call".into());
        let object = self.c.object(e.object).map(|o| short_label(&o.label())).filter(|o| !o.is_empty());
        let on = object.map_or_else(String::new, |o| format!(" of {o}"));
        format!("; {call}{on}: {}", errno(e.error))
    }
}
