//! Who used a disk while somebody waited for it.

use crate::EventGraph;
use pg_event::{Catalog, Ns, ObjectId, ObjectKind, ThreadId};
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

/// The use of the disk that `thread` itself used within `span`; none when it used none, or that is not known.
pub(crate) fn disk_use(g: &EventGraph, c: &Catalog, thread: ThreadId, span: (Ns, Ns)) -> Option<DiskUse> {
    let is_disk = |o: ObjectId| c.object(o).is_some_and(|o| o.kind == ObjectKind::BlockDevice);
    // A record is of its last request; requests completed after the wait had begun count.
    let uses = |t| g.ipc_of(t, span.0..span.1.saturating_add(1)).iter().map(|u| u.what);
    let mut own: HashMap<ObjectId, u64> = HashMap::new();
    for u in uses(thread).filter(|u| is_disk(u.object)) {
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
