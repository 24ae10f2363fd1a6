//! Who ended, and what it held.

use super::unanswered::NOT_LOOKED_UP;
use super::{Ranked, Writer};
use crate::EdgeKind;
use crate::class::{WaitClass, class, on_condition, on_semaphore, private_futex};
use crate::diagnose::{KILLED, STARTED, SliceNode, made_file};
use crate::facts::NO_STATUS;
use crate::words::{clean, moment, short_label, who};
use pg_event::{Ns, ProcessId};

/// A thread that ended by the end of its process did so within this, ns.
const WITH_IT: Ns = 10_000_000;

impl Writer<'_> {
    /// A holder that is gone: when, how, and what that means for what it held.
    pub(super) fn why_ended(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let process = self.c.thread(r.thread).map_or(ProcessId::NONE, |t| t.process);
        // What ended the process as a whole, before how each of its threads went.
        let row = self.c.process(process);
        // A thread that ended earlier went by itself.
        let with_it = row.is_some_and(|p| p.end.is_none_or(|e| e <= n.start.saturating_add(WITH_IT)));
        let whole = row.and_then(|p| p.exit_status).filter(|s| s & 0x7f != 0 && with_it);
        let status = whole.or_else(|| self.g.exited(r.thread).map(|x| x.1));
        let how = match status {
            Some(NO_STATUS) => "ended before the recording began".to_owned(),
            Some(s) if s & 0x7f != 0 => {
                format!("{} at {}", self.killed_by(process, s & 0x7f, n.start), moment(n.start))
            }
            Some(s) => format!("ended at {} (exit code {})", moment(n.start), s >> 8),
            None => format!("had ended at {}", moment(n.start)),
        };
        let before = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
        let lock = before.filter(|b| {
            let class = class(&self.g.vertex(b.vertex), self.c);
            class == WaitClass::Lock && n.edge == Some(EdgeKind::Holder)
        });
        let file =
            before.and_then(|b| made_file(self.g, self.c, r.thread, b.thread)).and_then(|o| self.c.object(o));
        if let Some(o) = file {
            let path = clean(&o.label(), 100);
            return format!(
                "{full} {how} and left {path} behind, with its number in it: nobody is left to remove that"
            );
        }
        if n.why_weak.as_deref() == Some(KILLED) {
            let whom = before.map_or_else(|| "others".into(), |b| who(self.c, b.thread));
            return format!("{full} {how}: what it was to do for {whom}, nobody does");
        }
        if n.why_weak.as_deref() == Some(STARTED)
            && let Some(server) = before
        {
            let by = who(self.c, server.thread);
            let began =
                row.filter(|p| p.start > 0).map_or_else(String::new, |p| format!(" at {}", moment(p.start)));
            return format!(
                "{full}, which {by} started{began} when it was asked, {how}, and {by} has not answered since"
            );
        }
        match lock {
            Some(b) => {
                let lock = b.object_label(self.c).map_or_else(|| "its lock".into(), |o| short_label(&o));
                // Threads of a process have greater numbers than that itself.
                let number = self.c.thread(r.thread).map_or(0, |t| t.tid);
                if status == Some(NO_STATUS) && row.is_some_and(|p| number < p.pid) {
                    let whom = who(self.c, b.thread);
                    return format!(
                        "{lock} is locked by thread {number}, which is none of {whom}: fork copied the lock without the thread that has it, and nobody is left to release it"
                    );
                }
                format!("{full} {how} with {lock} and never gave it back: nobody is left to release it")
            }
            None => match before.filter(|_| n.edge == Some(EdgeKind::Holder)) {
                Some(b) if private_futex(&self.g.vertex(b.vertex), self.c) => {
                    let on = b.object_label(self.c).map_or_else(|| "it".into(), |o| short_label(&o));
                    let waits = self.g.vertex(b.vertex);
                    let f = b.function.as_ref().filter(|f| !f.starts_with("0x"));
                    let f = f.map_or_else(String::new, |f| format!(" in {}", clean(f, 60)));
                    let lost = if on_semaphore(&waits, self.c) {
                        // Locks of Python are semaphores.
                        format!(" (a semaphore{f}): if it had taken it, it never gave it back")
                    } else if on_condition(&waits, self.c) {
                        format!(" (a condition{f}): a wake-up that it gave before the wait is lost")
                    } else {
                        String::new()
                    };
                    format!(
                        "{full} {how}, and no other thread of the process is left that could wake {on}{lost}"
                    )
                }
                Some(b) if self.not_looked_up(b) => format!("{full} {how}; {NOT_LOOKED_UP}"),
                Some(b) => {
                    let on = b.object_label(self.c).map_or_else(|| "it".into(), |o| short_label(&o));
                    format!("{full} {how}, and nobody else is known to have the other end of {on}")
                }
                None => format!("{full} {how}"),
            },
        }
    }
}
