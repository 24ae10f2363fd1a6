//! Threads of the kernel: when one has nothing to do, and what it did for whom.

use crate::waits::{WaitsOn, wait_kind};
use crate::words::{clean, short_who};
use crate::{EventGraph, Vertex, WorkFact};
use pg_event::{Catalog, Ns, OffState, ThreadId};

/// Is it a thread of the kernel?
pub(crate) fn is_kernel(c: &Catalog, thread: ThreadId) -> bool {
    c.thread(thread).is_some_and(|t| t.kernel)
}

/// Did a thread of the kernel lead in to `v` with a wait for something to do? (The state of such waits does not
/// count as load on the machine; a few sleep like programs do, with nothing of a device on their stack.)
pub(crate) fn idles(v: &Vertex, c: &Catalog) -> bool {
    is_kernel(c, v.thread)
        && match v.state {
            OffState::Idle => true,
            OffState::Uninterruptible => false,
            _ => matches!(wait_kind(v, c), None | Some(WaitsOn::Work)),
        }
}

impl EventGraph {
    /// What kernel workers were seen to do for others when they woke somebody, by worker and time.
    pub fn works_of(&self, worker: ThreadId, within: std::ops::Range<Ns>) -> &[WorkFact] {
        let all = &self.works;
        let from = all.partition_point(|w| (w.worker, w.time) < (worker, within.start));
        let to = all.partition_point(|w| (w.worker, w.time) < (worker, within.end)).max(from);
        &all[from..to]
    }
}

/// What a kernel worker did within a span, and for whom: ` executing loop_workfn for dd:812`. Empty when that
/// was not seen.
pub(crate) fn doing(g: &EventGraph, c: &Catalog, worker: ThreadId, within: std::ops::Range<Ns>) -> String {
    let Some(w) = g.works_of(worker, within).last() else { return String::new() };
    let what = c.object(w.object).map(|o| clean(&o.name, 48)).filter(|n| !n.is_empty());
    let what = what.map_or_else(String::new, |n| format!(" executing {n}"));
    let whom = if w.requester.is_some() {
        format!(" for {}", clean(&short_who(c, w.requester), 60))
    } else {
        String::new()
    };
    what + &whom
}
