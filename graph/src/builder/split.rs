//! Over-connections (Argus, section 4.2): a turn of a server that serves several requesters without blocking in
//! between is split where it takes the next one's message, so that they are not glued together.
//!
//! That a blocking wait ends a segment is how segments are made. Here are the other two criteria: the turn of an
//! event loop (it began with a poll) is a batch of what was ready, and consecutive messages whose peers do not
//! overlap belong to different requests. Both are guesses: the way from part to part is weak and says why.

use super::{RECV, call_is};
use crate::columns::{BATCH, Detail, EdgeRow, SPLIT, Times};
use crate::{At, BuildOptions, EdgeKind, Weak};
use pg_event::{Catalog, Direction, IpcUse, Ns, ObjectId, ObjectKind, ProcessId, ThreadId};
use std::collections::HashMap;

/// Who is at the other end of a channel: a process, or the channel itself when that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Peer {
    Process(ProcessId),
    Object(ObjectId),
}

/// Which process uses which end, from all messages.
pub(super) struct Peers {
    /// By object: who sends through it, and who receives.
    by_object: Vec<[ProcessId; 2]>,
    ends: HashMap<(ObjectKind, u64, u64), ObjectId>,
}

impl Peers {
    /// Look at all messages: by thread.
    pub fn new<'a>(messages: impl Iterator<Item = (ThreadId, &'a [At<IpcUse>])>, catalog: &Catalog) -> Self {
        let mut by_object = vec![[ProcessId::NONE; 2]; catalog.objects.len()];
        for (thread, list) in messages {
            let process = catalog.thread(thread).map_or(ProcessId::NONE, |t| t.process);
            for m in list {
                if let Some(o) = by_object.get_mut(m.what.object.index()) {
                    o[usize::from(m.what.direction == Direction::Receive)] = process;
                }
            }
        }
        let named = catalog.objects.iter().enumerate().filter(|(_, o)| o.kind.is_channel() && o.peer != 0);
        let ends = named.map(|(i, o)| ((o.kind, o.id, o.peer), ObjectId(i as u32))).collect();
        Self { by_object, ends }
    }

    /// Who is at the other end of what a message went through.
    fn of(&self, m: &IpcUse, catalog: &Catalog) -> Peer {
        let receives = m.direction == Direction::Receive;
        let both = |o: ObjectId| self.by_object.get(o.index());
        let other = catalog.object(m.object).and_then(|o| {
            // Both ends of a pipe are one object; of a socket the other end is another one, which does both.
            if o.id == o.peer {
                return both(m.object).map(|p| p[usize::from(!receives)]).filter(|p| p.is_some());
            }
            let end = self.ends.get(&(o.kind, o.peer, o.id))?;
            both(*end).and_then(|p| p.iter().copied().find(|p| p.is_some()))
        });
        other.map_or(Peer::Object(m.object), Peer::Process)
    }
}

/// Wake-ups that tell which messages belong together.
#[derive(Default)]
pub(super) struct Wakes {
    /// Out of calls that receive, by segment: who takes a message from a full or a shared buffer wakes its sender
    /// before the reception is over and recorded.
    receiving: Vec<(u32, Ns)>,
    /// Segments whose leading wait a message ended, and whose message.
    by: Vec<(u32, ProcessId)>,
}

impl Wakes {
    /// `segments` numbers the segments in use, with their threads.
    pub fn new(
        edges: &[EdgeRow],
        segments: impl Iterator<Item = (u32, ThreadId)>,
        numbers: u32,
        catalog: &Catalog,
    ) -> Self {
        let mut thread_of = vec![ThreadId::NONE; numbers as usize];
        for (number, thread) in segments {
            if let Some(t) = thread_of.get_mut(number as usize) {
                *t = thread;
            }
        }
        let waking = || edges.iter().filter(|e| e.waking);
        let receiving = waking().filter(|e| call_is(e.syscall, RECV)).map(|e| (e.from.0, e.from_time));
        let by = waking().filter(|e| e.kind == EdgeKind::Ipc).filter_map(|e| {
            let thread = catalog.thread(*thread_of.get(e.from.index())?)?;
            Some((e.to.0, thread.process)).filter(|p| p.1.is_some())
        });
        let (mut receiving, mut by): (Vec<_>, Vec<_>) = (receiving.collect(), by.collect());
        receiving.sort_unstable();
        by.sort_unstable();
        Self { receiving, by }
    }

    /// Those of one segment, by time.
    pub fn of(&self, segment: u32) -> &[(u32, Ns)] {
        of(&self.receiving, segment)
    }

    /// Whose message ended the leading wait of a segment.
    pub fn ender(&self, segment: u32) -> Option<ProcessId> {
        of(&self.by, segment).first().map(|b| b.1)
    }
}

fn of<T>(all: &[(u32, T)], segment: u32) -> &[(u32, T)] {
    let from = all.partition_point(|w| w.0 < segment);
    &all[from..from + all[from..].partition_point(|w| w.0 == segment)]
}

/// Where a segment on the CPU over `run..end` is split. `messages` are the thread's, by their last time; `wakes`
/// the segment's. `ender` is whose message ended the poll that it began with: when another one is served first, what
/// comes before that is a part of its own, which the message of `ender` has led to and the answer to the other has not.
pub(super) fn boundaries(
    messages: &[At<IpcUse>],
    (run, end): (Ns, Ns),
    wakes: &[(u32, Ns)],
    ender: Option<ProcessId>,
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
    let whose: Vec<Peer> = own.iter().map(|m| peers.of(m.2, catalog)).collect();
    let answered_later = answered_later(&own, &whose);
    // His message is taken later in this turn.
    let ender = ender
        .map(Peer::Process)
        .filter(|e| own.iter().zip(&whose).any(|(m, peer)| peer == e && m.2.direction == Direction::Receive));
    let (mut out, mut served, mut busy) = (Vec::new(), ender.is_some(), run);
    // Peers of this part, and the last message of each.
    let mut part: Vec<(Peer, Option<usize>)> = ender.map(|e| (e, None)).into_iter().collect();
    for (i, (first, last, what)) in own.into_iter().enumerate() {
        let peer = whose[i];
        let receives = what.direction == Direction::Receive;
        let known = part.iter().any(|p| p.0 == peer);
        // Whoever gets his answer after this is not done with.
        let done = || part.iter().all(|p| p.1.is_none_or(|last| !answered_later[last]));
        if receives && served && first > busy && !known && done() {
            // What the reception did belongs to it.
            let woke = wakes.iter().map(|w| w.1).find(|w| busy < *w && *w <= first);
            out.push(woke.unwrap_or(first));
            part.clear();
        }
        served |= receives;
        busy = busy.max(last);
        match part.iter_mut().find(|p| p.0 == peer) {
            Some(p) => p.1 = Some(i),
            None => part.push((peer, Some(i))),
        }
    }
    out
}

/// For each message: is it received, and the next one of the same peer sent to him?
fn answered_later(messages: &[(Ns, Ns, &IpcUse)], whose: &[Peer]) -> Vec<bool> {
    let mut next: HashMap<Peer, Direction> = HashMap::new();
    let mut out: Vec<bool> = Vec::with_capacity(messages.len());
    for (m, peer) in messages.iter().zip(whose).rev() {
        let then = next.insert(*peer, m.2.direction);
        out.push(m.2.direction == Direction::Receive && then == Some(Direction::Send));
    }
    out.reverse();
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
