//! Who used a disk while somebody waited for it; who writes back what others have written.

use crate::kernel::is_kernel;
use crate::words::{clean, short_who};
use crate::{EdgeKind, EventGraph, VertexId};
use pg_event::{Catalog, Direction, Ns, ObjectId, ObjectKind, ThreadId};
use std::collections::HashMap;

/// What a disk did within a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DiskUse {
    /// The disk.
    pub disk: ObjectId,
    /// Bytes in all.
    pub bytes: u64,
    /// Who had it read or write most, and how many bytes.
    pub most: (ThreadId, u64),
}

fn is_disk(c: &Catalog, o: ObjectId) -> bool {
    c.object(o).is_some_and(|o| o.kind == ObjectKind::BlockDevice)
}

/// The use of the disk that `thread` itself used within `span`; none when it used none, or that is not known.
pub(crate) fn disk_use(g: &EventGraph, c: &Catalog, thread: ThreadId, span: (Ns, Ns)) -> Option<DiskUse> {
    // A record is of its last request; requests completed after the wait had begun count.
    let all = |t| g.ipc_of(t, span.0..span.1.saturating_add(1)).iter().map(|u| u.what);
    let uses = |t| all(t).filter(|u| u.direction == Direction::Send);
    let mut own: HashMap<ObjectId, u64> = HashMap::new();
    for u in uses(thread).filter(|u| is_disk(c, u.object)) {
        *own.entry(u.object).or_default() += u.bytes;
    }
    let disk = own.into_iter().max_by_key(|(o, bytes)| (*bytes, *o))?.0;
    let (mut bytes, mut most) = (0u64, (thread, 0u64));
    for t in (0..c.threads.len() as u32).map(ThreadId) {
        let of: u64 = uses(t).filter(|u| u.object == disk).fold(0, |sum, u| sum.saturating_add(u.bytes));
        bytes = bytes.saturating_add(of);
        if of > most.1 {
            most = (t, of);
        }
    }
    Some(DiskUse { disk, bytes, most })
}

/// What was written back to a disk while a writer was put off.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WroteBack {
    /// The thread of the kernel that wrote it back.
    pub by: ThreadId,
    /// The disk.
    pub disk: ObjectId,
    /// The thread that is the disk (of a loop device), and when it had requests of anybody to serve.
    pub server: Option<(ThreadId, Vec<(Ns, Ns)>)>,
}

impl WroteBack {
    /// `kworker/u8:4 wrote back to /dev/loop0 meanwhile`.
    pub(crate) fn words(&self, c: &Catalog) -> String {
        let disk = c.object(self.disk).map_or_else(String::new, |o| clean(&o.label(), 40));
        let by = clean(&short_who(c, self.by), 60);
        format!("{by} wrote back to {disk} meanwhile")
    }
}

/// Who wrote back what `writer` had to wait for within `spans` (kernel: `balance_dirty_pages`). No wake-up tells:
/// such a wait is a sleep, as long as the kernel thinks fit. But a writer that is put off asks a worker to write
/// back, and what that worker hands to a disk next is what the writer waits for.
pub(crate) fn wrote_back(
    g: &EventGraph,
    c: &Catalog,
    writer: ThreadId,
    spans: &[(Ns, Ns)],
) -> Option<WroteBack> {
    let (from, until) = (spans.first()?.0, spans.last()?.1);
    // What is told of a request has the time of its completion.
    let span = from..until.saturating_add(TOLD_LATE);
    let is_worker = |t: &ThreadId| is_kernel(c, *t);
    let mut asked: HashMap<ThreadId, Vec<(Ns, Ns)>> = HashMap::new();
    let own = g.vertices_in(writer, from..until.saturating_add(1));
    for e in own.flat_map(|v| g.outgoing(v)).map(|id| g.edge(id)).filter(|e| e.kind == EdgeKind::Work) {
        let v = g.vertex(e.to);
        if is_worker(&v.thread) {
            asked.entry(v.thread).or_default().push((v.run, v.end));
        }
    }
    let mut wrote: HashMap<(ThreadId, ObjectId), u64> = HashMap::new();
    let add = |wrote: &mut HashMap<(ThreadId, ObjectId), u64>, t: ThreadId, while_at_it: &[(Ns, Ns)]| {
        for u in g.ipc_of(t, span.clone()).iter().map(|u| u.what) {
            let last = while_at_it.partition_point(|s| s.0 <= u.first);
            let at_it = last.checked_sub(1).is_some_and(|i| u.first <= while_at_it[i].1);
            if at_it && u.direction == Direction::Send && is_disk(c, u.object) {
                *wrote.entry((t, u.object)).or_default() += u.bytes;
            }
        }
    };
    for (t, mut segments) in asked {
        segments.sort_unstable();
        add(&mut wrote, t, &segments);
    }
    // It had been asked before, and is at it.
    if wrote.is_empty() {
        let all = (0..c.threads.len() as u32).map(ThreadId).filter(is_worker);
        for t in all.filter(|t| g.vertices_in(*t, from..until).any(|v| writes_back(g, c, v))) {
            add(&mut wrote, t, &[(from, until)]);
        }
    }
    let (by, disk) = wrote.into_iter().max_by_key(|(key, bytes)| (*bytes, *key))?.0;
    let mut servers: HashMap<ThreadId, (u64, Vec<(Ns, Ns)>)> = HashMap::new();
    for t in (0..c.threads.len() as u32).map(ThreadId).filter(is_worker) {
        for m in g.ipc_of(t, span.clone()) {
            if m.what.object == disk && m.what.direction == Direction::Receive {
                let s = servers.entry(t).or_default();
                s.0 += m.what.bytes;
                s.1.push((m.what.first.max(from), m.time.min(until)));
            }
        }
    }
    let server = servers.into_iter().max_by_key(|(t, s)| (s.0, *t)).map(|(t, s)| (t, s.1));
    Some(WroteBack { by, disk, server })
}

/// How long a request may have taken that was made during the wait, ns.
const TOLD_LATE: Ns = 10_000_000_000;

/// Did the thread lead in to `v` with a wait within write-back?
fn writes_back(g: &EventGraph, c: &Catalog, v: VertexId) -> bool {
    c.frames_of(g.vertex(v).kernel_stack).any(|f| f.function.contains("wb_workfn"))
}
