//! A file system that somebody froze (fsfreeze(8), a snapshot, a suspended device): writers wait until it is thawed,
//! and whoever froze it has mostly ended long since.

use super::activity::{Group, extent};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::node::{Entry, SliceNode};
use super::walk::{Flow, Walk, group_spans};
use crate::{EdgeKind, VertexId};
use pg_event::{Catalog, Ns};

/// `FIFREEZE` of ioctl(2): `_IOWR('X', 119, int)`.
const FIFREEZE: u32 = 0xc004_5877;
/// Kernel functions that freeze a file system, also for device mapper and loop devices.
const FREEZERS: [&str; 3] = ["freeze_super", "freeze_bdev", "bdev_freeze"];

impl Walk<'_> {
    /// Who froze it comes first, then who should have thawed it earlier.
    pub(super) fn frozen(&mut self, group: &Group, candidates: Vec<Candidate>) -> Flow<()> {
        let spans = group_spans(group);
        let own = self.out.nodes.len() - 1;
        let (start, end) = extent(&spans);
        let by = self.froze(self.out.nodes[own].object_label(self.c).unwrap_or_default().as_str(), start);
        let waiter = self.out.nodes[own].thread;
        match by.map(|v| (v, self.g.vertex(v))) {
            Some((id, v)) => {
                let why = "no owner is recorded; it froze the file system before and did not thaw it";
                let entry =
                    Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why.into()), ..Entry::default() };
                match self.g.exited(v.thread).filter(|x| x.0 <= start) {
                    Some(_) => {
                        let node = SliceNode::plain(v.thread, id, "exited", (start, end), end - start);
                        self.out.nodes.push(node.entered(entry));
                    }
                    None => self.visit(v.thread, spans.clone(), entry)?,
                }
                let node = self.out.nodes.iter().position(|n| n.thread == v.thread).unwrap_or(own);
                let found =
                    Finding { thread: v.thread, node, kind: FindingKind::Froze, spans: spans.clone() };
                self.out.findings.insert(0, found);
            }
            None => self.found(waiter, FindingKind::Frozen, spans.clone()),
        }
        if let Some(c) = candidates.into_iter().find(|c| !self.path.iter().any(|p| p.0 == c.thread)) {
            self.visit(c.thread, c.spans, c.entry)?;
        }
        Ok(())
    }

    /// Who froze the file system of `path` last before `time`.
    fn froze(&self, path: &str, time: Ns) -> Option<VertexId> {
        let below = |id: VertexId| {
            let v = self.g.vertex(id);
            let mount = self.c.object(v.object).map_or("", |o| o.name.as_str());
            mount.is_empty() || path.is_empty() || std::path::Path::new(path).starts_with(mount)
        };
        self.g
            .threads()
            .filter(|t| self.counts(*t))
            .flat_map(|t| self.g.vertices_in(t, 0..time.saturating_add(1)))
            .filter(|id| {
                self.g.vertex(*id).woken <= time && freezes(&self.g.vertex(*id), self.c) && below(*id)
            })
            .max_by_key(|id| self.g.vertex(*id).woken)
    }
}

fn freezes(v: &crate::Vertex, catalog: &Catalog) -> bool {
    v.syscall.is_any(&["ioctl"]) && v.op == FIFREEZE
        || catalog.frames_of(v.kernel_stack).any(|f| FREEZERS.iter().any(|k| f.function.contains(k)))
}
