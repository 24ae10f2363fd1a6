//! Over-connections (Argus, section 4.2): a turn of a server that serves several requesters without blocking in
//! between is split where it takes the next one's message, so that they are not glued together.
//!
//! That a blocking wait ends a segment is how segments are made. Here are the other two criteria: the turn of an
//! event loop (it began with a poll) is a batch of what was ready, and consecutive messages whose peers do not
//! overlap belong to different requests. Both are guesses: the way from part to part is weak and says why.

use super::{RECV, call_is};
use crate::graph::{BATCH, Detail, EdgeRow, SPLIT, Times};
use crate::{At, BuildOptions, Weak};
use pg_event::{Catalog, Direction, IpcUse, Ns, ObjectId, ObjectKind, ProcessId, ThreadId};
use std::collections::HashMap;

/// Who is at the other end of a channel: a process, or the channel itself when that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    Process(ProcessId),
    Object(ObjectId),
}

/// Which process uses which end, from all messages.
pub(super) struct Peers {
    by_object: Vec<ProcessId>,
    ends: HashMap<(ObjectKind, u64, u64), ObjectId>,
}

impl Peers {
    /// Look at all messages: by thread.
    pub fn new<'a>(messages: impl Iterator<Item = (ThreadId, &'a [At<IpcUse>])>, catalog: &Catalog) -> Self {
        let mut by_object = vec![ProcessId::NONE; catalog.objects.len()];
        for (thread, list) in messages {
            let process = catalog.thread(thread).map_or(ProcessId::NONE, |t| t.process);
            for m in list {
                if let Some(o) = by_object.get_mut(m.what.object.index()) {
                    *o = process;
                }
            }
        }
        let named = catalog.objects.iter().enumerate().filter(|(_, o)| o.kind.is_channel() && o.peer != 0);
        let ends = named.map(|(i, o)| ((o.kind, o.id, o.peer), ObjectId(i as u32))).collect();
        Self { by_object, ends }
    }

    fn of(&self, object: ObjectId, catalog: &Catalog) -> Peer {
        let other = catalog.object(object).filter(|o| o.id != o.peer).and_then(|o| {
            let end = self.ends.get(&(o.kind, o.peer, o.id))?;
            self.by_object.get(end.index()).copied().filter(|p| p.is_some())
        });
        other.map_or(Peer::Object(object), Peer::Process)
    }
}

/// Wake-ups out of calls that receive, by segment. Who takes a message from a full or a shared buffer wakes its
/// sender before the reception is over and recorded.
pub(super) struct Wakes(Vec<(u32, Ns)>);

impl Wakes {
    pub fn new(edges: &[EdgeRow]) -> Self {
        let receiving = edges.iter().filter(|e| e.waking && call_is(e.syscall, RECV));
        let mut all: Vec<_> = receiving.map(|e| (e.from.0, e.from_time)).collect();
        all.sort_unstable();
        Self(all)
    }

    /// Those of one segment, by time.
    pub fn of(&self, segment: u32) -> &[(u32, Ns)] {
        let from = self.0.partition_point(|w| w.0 < segment);
        &self.0[from..from + self.0[from..].partition_point(|w| w.0 == segment)]
    }
}

/// Where a segment on the CPU over `run..end` is split. `messages` are the thread's, by their last time; `wakes`
/// the segment's.
pub(super) fn boundaries(
    messages: &[At<IpcUse>],
    (run, end): (Ns, Ns),
    wakes: &[(u32, Ns)],
    peers: &Peers,
    catalog: &Catalog,
) -> Vec<Ns> {
    let from = messages.partition_point(|m| m.time < run);
    let to = messages.partition_point(|m| m.time <= end).max(from);
    let own = &messages[from..to];
    let receives = own.iter().filter(|m| m.what.direction == Direction::Receive).count();
    if receives < 2 {
        return Vec::new();
    }
    let mut own: Vec<(Ns, Ns, &IpcUse)> =
        // Events of a damaged file need not come in order.
        own.iter()
            .filter(|m| run <= m.time && m.time <= end)
            .map(|m| {
                let first = m.what.first.clamp(run, m.time);
                // Records of several objects may be written together: one message was over when it was.
                (first, if m.what.count == 1 { first } else { m.time }, &m.what)
            })
            .collect();
    own.sort_by_key(|m| (m.0, m.1));
    let (mut out, mut served, mut part): (Vec<Ns>, bool, Vec<Peer>) = (Vec::new(), false, Vec::new());
    let mut busy = run;
    for (first, last, what) in own {
        let peer = peers.of(what.object, catalog);
        let receives = what.direction == Direction::Receive;
        if receives && served && first > busy && !part.contains(&peer) {
            // What the reception did belongs to it.
            let woke = wakes.iter().map(|w| w.1).find(|w| busy < *w && *w <= first);
            out.push(woke.unwrap_or(first));
            part.clear();
        }
        served |= receives;
        busy = busy.max(last);
        if !part.contains(&peer) {
            part.push(peer);
        }
    }
    out
}

/// Is the criterion that splits a segment wanted, and which one is it?
pub(super) fn criterion(polled: bool, options: &BuildOptions) -> Option<u8> {
    if polled { options.split_batches.then_some(SPLIT | BATCH) } else { options.split_peers.then_some(SPLIT) }
}

/// A part that begins at `at`, and which segment it is of.
pub(super) fn part(at: Ns, thread: ThreadId, preempted: Ns, flags: u8) -> (Times, Detail) {
    (Times { start: at, woken: at, run: at }, Detail::running(thread, preempted, flags))
}

/// Why the way into a vertex with these flags is weak.
pub(crate) fn why(flags: u8) -> Option<Weak> {
    match (flags & SPLIT != 0, flags & BATCH != 0) {
        (false, _) => None,
        (true, true) => Some(Weak::Batch),
        (true, false) => Some(Weak::HeuristicSplit),
    }
}
