//! Writers that are put off since too much of what was written has not reached the disk (balance_dirty_pages). No
//! wake-up ends such a wait: who writes back, and who serves that disk, are found from what they did meanwhile. And the
//! thread of the kernel that writes a journal: it waits until the data is written that belongs to it, whoever wrote that.

use super::activity::{Group, Spans, activity, extent, merged, total};
use super::finding::FindingKind;
use super::node::Entry;
use super::walk::{Flow, Walk, group_spans};
use crate::disks::wrote_back;
use crate::kernel::{idles, is_kernel};
use crate::waits::{WaitsOn, wait_kind};
use crate::{EdgeKind, Vertex, Weak};
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

    /// A journal that waits for data (ext4 orders them) goes on to the program whose data that is: which waits for the same
    /// requests, and goes on when they do. False where the wait is another one, or nobody is found.
    pub(super) fn by_ordered_data(&mut self, thread: ThreadId, group: &Group) -> Flow<bool> {
        let v = self.representative(group);
        if !is_kernel(self.c, thread) || !self.waits_for_pages(&v) {
            return Ok(false);
        }
        let spans = group_spans(group);
        let (from, until) = extent(&spans);
        let ends: Vec<(Ns, Ns)> = group.clips.iter().map(|c| (c.full_end, c.blocked)).collect();
        let with = |t: ThreadId| -> Ns {
            let waits = self.g.vertices_in(t, from..until.saturating_add(1)).map(|id| self.g.vertex(id));
            let waits = waits.filter(|w| !w.open && w.waited() > 0 && self.waits_for_pages(w));
            let ended: Vec<Ns> = waits.map(|w| w.woken).collect();
            let near = |at: Ns| ended.iter().any(|e| e.abs_diff(at) <= TOGETHER);
            ends.iter().filter(|(at, _)| near(*at)).map(|(_, blocked)| blocked).sum()
        };
        let others = self.g.threads().filter(|t| !is_kernel(self.c, *t) && self.counts(*t));
        let others = others.filter(|t| !self.path.iter().any(|p| p.0 == *t));
        let found = others.map(|t| (with(t), t)).max_by_key(|(time, t)| (*time, std::cmp::Reverse(*t)));
        let Some((_, writer)) = found.filter(|(time, _)| *time * 2 > group.blocked) else { return Ok(false) };
        let why = format!(
            "{}: a journal is written after the data that belongs to it, and both waited for the same data to be written",
            Weak::FromState.words()
        );
        let entry = Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why), ..Entry::default() };
        self.visit(writer, spans, entry)?;
        Ok(true)
    }

    /// Does the leading wait end when pages have been written?
    fn waits_for_pages(&self, v: &Vertex) -> bool {
        let mut near = self.c.frames_of(v.kernel_stack).take(4);
        near.any(|f| ["wait_writeback", "wait_on_page_writeback"].iter().any(|w| f.function.contains(w)))
    }
}

/// The completion of one request wakes all who wait for it within so long, ns.
const TOGETHER: Ns = 1_000_000;

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
