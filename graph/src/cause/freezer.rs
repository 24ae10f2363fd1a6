//! The sentence of a thread in the freezer of its control group: who froze it, as far as that was recorded, and how to
//! thaw it.

use super::{Ranked, Writer};
use crate::diagnose::SliceNode;
use crate::words::{clean, moment, span, who};
use pg_event::{Ns, ThreadId};

/// Files that freeze a control group when they are written to (kernel: `Documentation/admin-guide/cgroup-v2.rst`,
/// and `cgroup-v1/freezer-subsystem.rst`).
const FILES: [&str; 2] = ["cgroup.freeze", "freezer.state"];
/// A thread that sleeps goes to the freezer within this after the write, ns.
const TAKES: Ns = 2_000_000_000;
/// Such a write is recorded after it has begun to work, by at most this, ns.
const LATE: Ns = 100_000_000;

impl Writer<'_> {
    pub(super) fn why_in_freezer(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let frozen =
            format!("{full} was frozen for {} (its control group's freezer, or suspend)", span(n.spent));
        let by = match self.froze(r.thread, n.start) {
            Some((t, at)) => {
                format!("; {} wrote to the file that freezes a group at {}", who(self.c, t), moment(at))
            }
            None => "; who froze it was not recorded".into(),
        };
        let waker = self.g.waking(self.last_of(n)).map(|e| self.g.edge(e));
        if let Some(e) = waker {
            let thawed = who(self.c, self.g.vertex(e.from).thread);
            return format!("{frozen}{by}; {thawed} thawed it at {}", moment(e.from_time));
        }
        let thaw = self.thaws(r.thread, n);
        let open = if self.g.vertex(n.vertex).open { " and nobody thawed it" } else { "" };
        format!("{frozen}{open}{by}{thaw}")
    }

    /// How a person thaws it. Version 1 has a hierarchy of its own for that, whose groups are not recorded; its threads wait in
    /// another function of the kernel (`kernel/freezer.c`).
    fn thaws(&self, thread: ThreadId, n: &SliceNode) -> String {
        let kernel = self.g.vertex(n.vertex).kernel_stack;
        let Some(p) = self.c.process_of(thread) else { return String::new() };
        if self.c.frames_of(kernel).any(|f| f.function == "__refrigerator") {
            return format!(
                "; unless the system is suspended, the line `freezer` in /proc/{}/cgroup names its group, which `echo THAWED > /sys/fs/cgroup/freezer/GROUP/freezer.state` thaws (cgroup v1)",
                p.pid
            );
        }
        // What is no path cannot be told in a command.
        let group = p.cgroup.as_str().trim_end_matches('/');
        if !group.starts_with('/') {
            return String::new();
        }
        let group = clean(group, 80);
        format!(
            "; it is in the control group {group}, which (or one above it) `echo 0 > /sys/fs/cgroup{group}/cgroup.freeze` thaws (cgroup v2)"
        )
    }

    /// Who wrote to a file that freezes control groups shortly before `since`, last of all.
    fn froze(&self, frozen: ThreadId, since: Ns) -> Option<(ThreadId, Ns)> {
        let freezes = |name: &str| FILES.iter().any(|f| name.rsplit('/').next() == Some(f));
        let file = |o| self.c.object(o).is_some_and(|o| freezes(&o.name));
        let (from, to) = (since.saturating_sub(TAKES), since.saturating_add(LATE));
        let wrote = |t: ThreadId| {
            let mut calls = self.g.syscalls_of(t, from..to).iter().rev();
            let of = calls.find(|u| {
                u.what.result > 0 && u.what.nr.is_any(&["write", "writev", "pwrite64"]) && file(u.what.object)
            });
            of.map(|u| (t, u.time))
        };
        let others = self.g.threads().filter(|t| *t != frozen);
        others.filter_map(wrote).max_by_key(|x| x.1)
    }
}
