//! The sentences of file systems that were frozen: who did that, and who waited to write there.

use super::{Ranked, Writer};
use crate::diagnose::SliceNode;
use crate::kernel::is_kernel;
use crate::words::{clean, moment, span, who};

impl Writer<'_> {
    /// It froze the file system, and left it so.
    pub(super) fn why_froze(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let at = moment(self.g.vertex(n.vertex).woken);
        let end = self.g.exited(r.thread).map(|x| format!(", ended at {}", moment(x.0)));
        let end = end.unwrap_or_default();
        format!("{full} froze the file system at {at}{end} and left it frozen{}", self.thawed(r.node))
    }

    /// It waited to write; who froze the file system is not known.
    pub(super) fn why_frozen(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let what = n.object_label(self.c).map_or_else(|| "it".into(), |o| clean(&o, 100));
        format!(
            "{full} waited {} in {} to write to {what}: the file system was frozen (fsfreeze, a snapshot, a suspended device); who froze it was not recorded{}",
            span(n.spent),
            n.syscall.as_deref().unwrap_or("the kernel"),
            self.thawed(r.node + 1)
        )
    }

    /// The step before `node` that waits to write to a frozen file system.
    pub(super) fn waits_to_write(&self, node: usize) -> Option<&SliceNode> {
        let before = self.o.nodes.get(..node)?;
        before.iter().rev().find(|n| crate::waits::for_thaw(&self.g.vertex(n.vertex), self.c))
    }

    /// Who ended the wait of the step before `node` for a frozen file system, and when.
    fn thawed(&self, node: usize) -> String {
        let waiter = self.waits_to_write(node);
        let edge = waiter.and_then(|n| self.g.waking(self.last_of(n))).map(|e| self.g.edge(e));
        edge.map_or_else(String::new, |e| {
            let by = self.g.vertex(e.from).thread;
            // A thread of the kernel did that for who comes next on the way.
            let next = self.o.nodes.get(node + 1).map(|n| n.thread).filter(|_| is_kernel(self.c, by));
            format!("; {} thawed it at {}", who(self.c, next.unwrap_or(by)), moment(e.from_time))
        })
    }
}
