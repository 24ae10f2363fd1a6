//! Threads of the kernel on the way back. They act for others: for what a worker did itself (it ran, it waited for
//! a device or a lock) it is a step like any thread; while it had nothing to do, whoever gave it the work is
//! meant, or the device that the wait was for.

use super::activity::{Group, Spans, merged, total};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::node::Entry;
use super::walk::{Walk, group_spans};
use crate::EdgeKind;
use crate::class::{WaitClass, class};
use crate::kernel::{idles, is_kernel};
use crate::waits::{WaitsOn, wait_kind};
use crate::words::span;
use pg_event::{Ns, OffState, ThreadId};

/// Workers that hand work on to one another, at most.
const HANDS: usize = 8;

impl Walk<'_> {
    /// Look past those of the candidates that are threads of the kernel without a part in the wait. `None`: there
    /// is nobody but a device.
    pub(super) fn past_workers(
        &mut self,
        thread: ThreadId,
        group: &Group,
        candidates: Vec<Candidate>,
        mut silent: Spans,
    ) -> Option<(Vec<Candidate>, Spans)> {
        let (mut left, mut passed): (Vec<Candidate>, Ns) = (Vec::new(), 0);
        for c in candidates {
            let (time, spans) = (c.time, c.spans.clone());
            if let Some(c) = self.past_worker(c) {
                match left.iter_mut().find(|x| x.thread == c.thread) {
                    Some(x) => {
                        x.spans.extend(c.spans);
                        x.time += c.time;
                    }
                    None => left.push(c),
                }
            } else {
                passed += time;
                silent.extend(spans);
            }
        }
        let silent = merged(silent);
        let woken = left.iter().map(|c| c.time).max().unwrap_or(0);
        // A wait for the disk that an interrupt ended: its own request was done.
        let v = self.representative(group);
        let done = v.state == OffState::Uninterruptible && !v.open;
        let nobody = woken < total(&silent) && (done || passed > 0 || is_kernel(self.c, thread));
        if nobody && self.by_device(thread, group) {
            return None;
        }
        Some((left, silent))
    }

    /// The candidate; who gave it the work, if it had none for most of the time; nobody.
    fn past_worker(&mut self, mut c: Candidate) -> Option<Candidate> {
        let mut seen = Vec::new();
        while is_kernel(self.c, c.thread) && c.waking {
            let act = self.meanwhile(&c);
            let mut idle: Spans = Vec::new();
            for g in &act.groups {
                if idles(&self.representative(g), self.c) {
                    idle.extend(group_spans(g));
                }
            }
            let idle = merged(idle);
            let did = act.total.saturating_sub(total(&idle));
            if did >= total(&idle) {
                c.spans = without(&merged(c.spans), &idle);
                return Some(c);
            }
            let why = format!(
                "a thread of the kernel that acts for others: it had nothing to do for {} of {}",
                span(total(&idle)),
                span(act.total)
            );
            self.out.rejected.push((c.thread, why));
            seen.push(c.thread);
            let vertex = c.vertex?;
            let giver = self.g.incoming(vertex).map(|id| (id, self.g.edge(id))).find(|(_, e)| {
                let from = self.g.vertex(e.from).thread;
                e.kind != EdgeKind::ProgramOrder && self.counts(from) && !seen.contains(&from)
            });
            let (id, e) = giver?;
            let from = self.g.vertex(e.from).thread;
            if seen.len() > HANDS || self.path.iter().any(|p| p.0 == from) {
                return None;
            }
            // Until it asked for the work.
            let until = e.from_time;
            c.spans.retain_mut(|s| {
                s.1 = s.1.min(until);
                s.0 < s.1
            });
            let why_weak = e.weak.map(|w| w.words().to_owned());
            c = Candidate {
                thread: from,
                time: total(&c.merged()),
                entry: Entry { edge: Some(EdgeKind::Work), id: Some(id), why_weak, ..Entry::default() },
                weak: e.weak,
                vertex: Some(e.from),
                at: e.from_time,
                kind: EdgeKind::Work,
                ..c
            };
            // It asked before the wait began: what took so long was not its doing.
            if c.time == 0 {
                return None;
            }
        }
        Some(c)
    }

    /// Nobody ended the wait but interrupts and idle threads of the kernel. If it was for a device, that is the
    /// cause, in the step of the program that waited for it.
    fn by_device(&mut self, thread: ThreadId, group: &Group) -> bool {
        let v = self.representative(group);
        let device = class(&v, self.c) == WaitClass::Disk
            || matches!(wait_kind(&v, self.c), Some(WaitsOn::Disk | WaitsOn::PageFault));
        let user = self.out.nodes.iter().rposition(|n| !is_kernel(self.c, n.thread));
        let (true, Some(node)) = (device, user) else { return false };
        // Who has a file system's answers in hand is another matter.
        let (a, b) = group.extent();
        let served = self.g.holds(thread, a..b.saturating_add(1)).next().is_some();
        if served {
            return false;
        }
        let n = &self.out.nodes[node];
        let (thread, spans) = (n.thread, vec![(n.start, n.start + n.duration)]);
        self.out.findings.push(Finding { thread, node, kind: FindingKind::Device, spans });
        true
    }
}

/// `spans` without `out`, both disjoint and in order.
fn without(spans: &Spans, out: &Spans) -> Spans {
    let mut left = Vec::new();
    for &(a, b) in spans {
        let mut from = a;
        for &(x, y) in out.iter().filter(|o| o.1 > a && o.0 < b) {
            if x > from {
                left.push((from, x));
            }
            from = from.max(y);
        }
        if from < b {
            left.push((from, b));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_taken_out_of_spans() {
        let all = vec![(0, 10), (20, 30)];
        assert_eq!(without(&all, &vec![(2, 4), (8, 22)]), [(0, 2), (4, 8), (22, 30)]);
        assert_eq!(without(&all, &vec![(0, 30)]), []);
        assert_eq!(without(&all, &vec![]), all);
    }
}
