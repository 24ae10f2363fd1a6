//! Writers that are put off since too much of what was written has not reached the disk (balance_dirty_pages). No
//! wake-up ends such a wait: who writes back, and who serves that disk, are found from what they did meanwhile.

use super::activity::{Group, Spans, activity, merged, total};
use super::node::Entry;
use super::walk::{FindingKind, Flow, Walk, group_spans};
use crate::disks::wrote_back;
use crate::kernel::idles;
use crate::waits::{WaitsOn, wait_kind};
use crate::{EdgeKind, Weak};
use pg_event::{Ns, ThreadId};

impl Walk<'_> {
    /// Goes on to who serves the disk, else to who writes back and is held up itself; else the disk is the cause.
    /// False where the wait is another one.
    pub(super) fn by_write_back(&mut self, thread: ThreadId, group: &Group) -> Flow<bool> {
        if wait_kind(&self.representative(group), self.c) != Some(WaitsOn::WriteBack) {
            return Ok(false);
        }
        let spans = group_spans(group);
        let Some(wrote) = wrote_back(self.g, self.c, thread, &spans) else {
            self.found(thread, FindingKind::Device, spans);
            return Ok(true);
        };
        let words = wrote.words(self.c);
        let said = |what: &str| Entry {
            edge: Some(EdgeKind::Holder),
            why_weak: Some(format!("{}: {words}{what}", Weak::FromState.words())),
            ..Entry::default()
        };
        if let Some((server, busy)) = wrote.server.filter(|s| self.counts(s.0)) {
            self.visit(server, within(&merged(busy), &spans), said(", and this thread is that disk"))?;
            return Ok(true);
        }
        let act = activity(self.g, self.c, wrote.by, &spans);
        let idle = act.groups.iter().filter(|g| idles(&self.representative(g), self.c));
        let idle = total(&merged(idle.flat_map(group_spans).collect()));
        if idle * 2 < act.total && self.counts(wrote.by) {
            self.visit(wrote.by, spans, said(""))?;
        } else {
            self.found(thread, FindingKind::Device, spans);
        }
        Ok(true)
    }
}

/// What two lists of spans, each disjoint and in order, have in common.
fn within(mut one: &[(Ns, Ns)], mut other: &[(Ns, Ns)]) -> Spans {
    let mut common = Spans::new();
    while let (Some(a), Some(b)) = (one.first(), other.first()) {
        common.push((a.0.max(b.0), a.1.min(b.1)));
        if a.1 < b.1 { one = &one[1..] } else { other = &other[1..] }
    }
    common.retain(|(a, b)| a < b);
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lists_of_spans_have_in_common() {
        assert_eq!(within(&[(0, 10), (20, 30)], &[(5, 22), (25, 40)]), [(5, 10), (20, 22), (25, 30)]);
        assert_eq!(within(&[(0, 10)], &[(10, 20)]), []);
        assert_eq!(within(&[(0, 10)], &[]), []);
    }
}
