//! Messages: which sender's segment a receiver got its bytes from.
//!
//! A channel is one direction of a connection: bytes `(position - bytes, position]` as sent are matched
//! with the same range as received. Records of both sides cover several calls and come in the order of
//! their *last* call, so a reception can come before the record of what was sent, and the other way round.

use super::datagram::Datagrams;
use pg_event::{Catalog, Direction, IpcUse, Ns, Object, ObjectId, ObjectKind, ThreadId};
use std::collections::{HashMap, VecDeque};

/// A segment of a thread: index of its vertex within the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub thread: ThreadId,
    pub index: u32,
}

/// Sent or received bytes that wait for the other side's record.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    from: u64,
    to: u64,
    first: Ns,
    last: Ns,
    at: Segment,
}

/// A message found: from the sender's segment to the receiver's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Match {
    pub from: Segment,
    pub from_time: Ns,
    pub to: Segment,
    pub to_time: Ns,
}

#[derive(Debug, Default)]
struct Channel {
    sent: VecDeque<Bytes>,
    received: VecDeque<Bytes>,
    /// Bytes (datagrams: messages) counted here when the records have no position.
    sent_so_far: u64,
    received_so_far: u64,
    /// The latest sending known of, also from wake-ups.
    last: Option<(Segment, Ns)>,
}

const NONE: u32 = u32::MAX;

/// All channels, found by the objects that are their ends.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_key: HashMap<(ObjectKind, u64, u64), u32>,
    /// By object: the channel it sends into and the one it receives from.
    of_object: Vec<(u32, u32)>,
    all: Vec<Channel>,
    datagrams: Datagrams,
    depth: usize,
}

/// Keys of the directions out of and into an end.
fn keys(o: &Object) -> Option<[(ObjectKind, u64, u64); 2]> {
    let k = o.kind;
    Some(match k {
        ObjectKind::Pipe | ObjectKind::Fifo | ObjectKind::EventFd => [(k, o.id, o.id); 2],
        // The two sides of a pseudo-terminal name each other like sockets do.
        ObjectKind::UnixStream | ObjectKind::Tcp | ObjectKind::Tty if o.peer != 0 => {
            [(k, o.id, o.peer), (k, o.peer, o.id)]
        }
        // Datagrams between two known ends keep their order; of others only where they arrive is known.
        ObjectKind::Udp | ObjectKind::UnixDatagram if o.peer != 0 => [(k, o.id, o.peer), (k, o.peer, o.id)],
        ObjectKind::Udp | ObjectKind::UnixDatagram => [(k, 0, o.id), (k, o.id, 0)],
        _ => return None,
    })
}

fn is_datagram(k: ObjectKind) -> bool {
    matches!(k, ObjectKind::Udp | ObjectKind::UnixDatagram)
}

impl Channels {
    pub fn new(depth: usize) -> Self {
        Self { depth: depth.max(1), ..Self::default() }
    }

    fn ends(&mut self, id: ObjectId, catalog: &Catalog) -> Option<(u32, u32)> {
        let object = catalog.object(id)?;
        if self.of_object.len() <= id.index() {
            self.of_object.resize(catalog.objects.len(), (NONE, NONE));
        }
        let known = self.of_object[id.index()];
        if known.0 != NONE {
            return Some(known);
        }
        let [out, into] = keys(object)?;
        let ends = (self.number(out), self.number(into));
        self.of_object[id.index()] = ends;
        Some(ends)
    }

    fn number(&mut self, key: (ObjectKind, u64, u64)) -> u32 {
        let next = self.by_key.len() as u32;
        let n = *self.by_key.entry(key).or_insert(next);
        if n == next {
            self.all.push(Channel::default());
        }
        n
    }

    /// Messages were not recorded for a while: what had been sent before and was not received yet may have been.
    /// Bytes are counted anew, except where the records say which they are.
    pub fn resume(&mut self) {
        for (_, &n) in self.by_key.iter().filter(|(k, _)| k.0 != ObjectKind::Tcp) {
            let c = &mut self.all[n as usize];
            (c.sent_so_far, c.received_so_far) = (0, 0);
            c.received.clear();
            c.sent.clear();
        }
        self.datagrams.resume();
    }

    /// A datagram was sent to an address: whoever waits there, without saying from whom, may get it.
    fn arrives(&mut self, object: ObjectId, at: Segment, time: Ns, catalog: &Catalog) {
        let Some(o) = catalog.object(object).filter(|o| is_datagram(o.kind) && o.peer != 0) else { return };
        // A UDP socket that takes what is sent to any address of the machine has a port only.
        let any = (o.kind == ObjectKind::Udp).then_some(o.peer & 0xffff);
        for id in [Some(o.peer), any].into_iter().flatten() {
            let n = self.number((o.kind, id, 0));
            let c = &mut self.all[n as usize];
            if c.last.is_none_or(|l| l.1 <= time) {
                c.last = Some((at, time));
            }
        }
    }

    /// A wake-up showed that `at` sent through `object` at `time`.
    pub fn note_send(&mut self, object: ObjectId, at: Segment, time: Ns, catalog: &Catalog) {
        self.arrives(object, at, time, catalog);
        if let Some((out, _)) = self.ends(object, catalog) {
            let c = &mut self.all[out as usize];
            if c.last.is_none_or(|l| l.1 <= time) {
                c.last = Some((at, time));
            }
        }
    }

    /// The latest known sender of what arrives at `object`, no later than `time`.
    pub fn sender_to(&mut self, object: ObjectId, time: Ns, catalog: &Catalog) -> Option<(Segment, Ns)> {
        let (_, into) = self.ends(object, catalog)?;
        let c = &self.all[into as usize];
        let sent = c.sent.iter().rev().find(|b| b.first <= time);
        let sent = sent.map(|b| (b.at, if b.last <= time { b.last } else { b.first }));
        let last = c.last.filter(|l| l.1 <= time);
        match (sent, last) {
            (Some(a), Some(b)) => Some(if a.1 >= b.1 { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// A record of messages; `found` gets every message it completes.
    pub fn record(
        &mut self,
        at: Segment,
        time: Ns,
        u: &IpcUse,
        catalog: &Catalog,
        mut found: impl FnMut(Match),
    ) {
        let Some((out, into)) = self.ends(u.object, catalog) else { return };
        let Some(kind) = catalog.object(u.object).map(|o| o.kind) else { return };
        let depth = self.depth;
        let sends = u.direction == Direction::Send;
        if sends {
            self.arrives(u.object, at, time, catalog);
        }
        if let Some(o) = catalog.object(u.object).filter(|o| is_datagram(o.kind)) {
            self.datagrams.record(at, time, u, o, depth, found);
            return;
        }
        let c = &mut self.all[if sends { out } else { into } as usize];
        // Messages that keep their boundaries are counted one by one, streams by bytes.
        let counted = kind == ObjectKind::EventFd;
        let amount = if counted { u64::from(u.count) } else { u.bytes };
        let so_far = if sends { &mut c.sent_so_far } else { &mut c.received_so_far };
        *so_far = so_far.saturating_add(amount);
        let end = if u.position != 0 && !counted { u.position } else { *so_far };
        let first = u.first.min(time);
        let mut b = Bytes { from: end.saturating_sub(amount), to: end, first, last: time, at };
        if sends {
            c.last = Some((at, time));
            c.received.retain(|r| {
                if r.to <= b.from || r.from >= b.to || b.first > r.last || r.at == b.at {
                    return true;
                }
                found(link(&b, r));
                r.to > b.to
            });
            push(&mut c.sent, b, depth);
        } else {
            if kind == ObjectKind::EventFd {
                // One read takes all that was added since the last.
                for s in c.sent.drain(..).filter(|s| s.first <= b.last && s.at != b.at) {
                    found(link(&s, &b));
                }
                return;
            }
            let mut covered = b.from;
            for s in c.sent.iter().filter(|s| s.to > b.from && s.from < b.to && s.first <= b.last) {
                covered = covered.max(s.to);
                if s.at != b.at {
                    found(link(s, &b));
                }
            }
            while c.sent.front().is_some_and(|s| s.to <= b.to) {
                c.sent.pop_front();
            }
            if covered < b.to {
                b.from = covered;
                push(&mut c.received, b, depth);
            }
        }
    }
}

fn push(queue: &mut VecDeque<Bytes>, b: Bytes, depth: usize) {
    if queue.len() >= depth {
        queue.pop_front();
    }
    queue.push_back(b);
}

/// The edge of a message: left no later than it arrived, as late as can be said.
fn link(s: &Bytes, r: &Bytes) -> Match {
    let from_time = if s.last <= r.last { s.last } else { s.first };
    let to_time = if r.first >= from_time { r.first } else { r.last };
    Match { from: s.at, from_time: from_time.min(to_time), to: r.at, to_time }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let objects = vec![Object::new(ObjectKind::Tcp, 1, 2), Object::new(ObjectKind::Tcp, 2, 1)];
        Catalog { objects, ..Catalog::default() }
    }

    /// Records as (thread, sends, first, last, bytes, position), in the order they come.
    fn matches(records: &[(u32, bool, Ns, Ns, u64, u64)]) -> Vec<(u32, Ns, u32, Ns)> {
        let (catalog, mut channels, mut out) = (catalog(), Channels::new(8), Vec::new());
        for (thread, sends, first, last, bytes, position) in records.iter().copied() {
            let at = Segment { thread: ThreadId(thread), index: 0 };
            let u = IpcUse {
                object: ObjectId(u32::from(!sends)),
                direction: if sends { Direction::Send } else { Direction::Receive },
                count: 1,
                bytes,
                first,
                position,
            };
            let found = |m: Match| out.push((m.from.thread.0, m.from_time, m.to.thread.0, m.to_time));
            channels.record(at, last, &u, &catalog, found);
        }
        out
    }

    #[test]
    fn a_reception_is_matched_with_all_who_sent_its_bytes() {
        let got = matches(&[(1, true, 1, 1, 10, 10), (2, true, 2, 2, 10, 20), (3, false, 5, 5, 20, 20)]);
        assert_eq!(got, [(1, 1, 3, 5), (2, 2, 3, 5)]);
    }

    #[test]
    fn parts_of_a_message_have_the_same_sender() {
        let got = matches(&[(1, true, 1, 1, 10, 10), (3, false, 2, 2, 4, 4), (4, false, 3, 3, 6, 10)]);
        assert_eq!(got, [(1, 1, 3, 2), (1, 1, 4, 3)]);
    }

    #[test]
    fn a_senders_record_may_come_after_the_reception() {
        // Two sendings in one record: the first had left when the receiver read at 4.
        let got = matches(&[(3, false, 4, 4, 5, 5), (1, true, 2, 9, 10, 10), (4, false, 12, 12, 5, 10)]);
        assert_eq!(got, [(1, 2, 3, 4), (1, 9, 4, 12)]);
    }

    #[test]
    fn who_sent_last_to_a_socket_that_takes_from_anybody() {
        let end = |id, peer| Object::new(ObjectKind::Udp, id, peer);
        let there = pg_event::endpoint_v4(0x7f00_0001, 20);
        let objects = vec![end(10, there), end(20, 0)];
        let catalog = Catalog { objects, ..Catalog::default() };
        let mut channels = Channels::new(8);
        let at = Segment { thread: ThreadId(1), index: 0 };
        channels.note_send(ObjectId(0), at, 3, &catalog);
        assert_eq!(channels.sender_to(ObjectId(1), 9, &catalog), Some((at, 3)));
        assert_eq!(channels.sender_to(ObjectId(1), 2, &catalog), None);
    }

    #[test]
    fn after_a_pause_bytes_are_counted_anew_where_records_have_no_position() {
        let end = |id, peer| Object::new(ObjectKind::UnixStream, id, peer);
        let catalog = Catalog { objects: vec![end(1, 2), end(2, 1)], ..Catalog::default() };
        for pause in [false, true] {
            let (mut channels, mut out) = (Channels::new(8), Vec::new());
            let mut pass = |thread, object, time, bytes, channels: &mut Channels| {
                let at = Segment { thread: ThreadId(thread), index: 0 };
                let direction = if object == 0 { Direction::Send } else { Direction::Receive };
                let u =
                    IpcUse { object: ObjectId(object), direction, count: 1, bytes, first: time, position: 0 };
                channels.record(at, time, &u, &catalog, |m| out.push((m.from.thread.0, m.to.thread.0)));
            };
            // What 1 sent was received while nothing was recorded.
            pass(1, 0, 1, 10, &mut channels);
            if pause {
                channels.resume();
            }
            pass(2, 0, 5, 10, &mut channels);
            pass(3, 1, 6, 10, &mut channels);
            assert_eq!(out, [(if pause { 2 } else { 1 }, 3)]);
        }
    }

    #[test]
    fn nothing_is_received_before_it_was_sent() {
        assert_eq!(matches(&[(3, false, 4, 4, 5, 5), (1, true, 6, 6, 5, 5)]), []);
    }

    #[test]
    fn without_positions_bytes_are_counted() {
        let got = matches(&[
            (1, true, 1, 1, 10, 0),
            (3, false, 2, 2, 10, 0),
            (2, true, 3, 3, 7, 0),
            (3, false, 4, 4, 7, 0),
        ]);
        assert_eq!(got, [(1, 1, 3, 2), (2, 3, 3, 4)]);
    }
}
