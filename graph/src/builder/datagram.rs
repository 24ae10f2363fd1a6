//! Datagrams: a socket's queue hands them out one by one in the order they came, whoever sent them. They may get
//! lost on the way, and what is known of their ends differs: the sender's record names the receiver where the
//! address was in the call, the receiver's names the sender where the kernel shows it.

use super::channel::{Match, Segment};
use pg_event::{Direction, IpcUse, Ns, Object, ObjectKind};
use std::collections::{HashMap, VecDeque};

/// On the loopback a datagram may be received before its sender's call returns, which is when it is recorded.
const EARLY_NS: Ns = 1_000_000;

/// Messages of one record.
#[derive(Clone, Copy, Debug)]
struct Messages {
    from: u64,
    to: u64,
    count: u32,
    /// Of a single message.
    size: Option<u64>,
    first: Ns,
    last: Ns,
    at: Segment,
}

impl Messages {
    /// May these, as sent, be those, as received?
    fn fits(&self, r: &Self, kind: ObjectKind) -> bool {
        let same =
            |a: u64, b: u64| a == 0 || b == 0 || a == b || (kind == ObjectKind::Udp && any_address(a, b));
        same(self.from, r.from)
            && same(self.to, r.to)
            && self.first <= r.last.saturating_add(EARLY_NS)
            && (self.size.is_none() || r.size.is_none() || self.size == r.size)
    }
}

/// One port, at least once at any address of the machine (address 0, see `endpoint_v4`).
pub(crate) fn any_address(a: u64, b: u64) -> bool {
    a & 0xffff == b & 0xffff && (a <= 0xffff || b <= 0xffff)
}

#[derive(Debug, Default)]
struct Queue {
    sent: VecDeque<Messages>,
    received: VecDeque<Messages>,
}

/// The queues of all sockets that take datagrams.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// By what is surely known of where messages go: the port, the inode, 0 for nothing.
    queues: HashMap<(ObjectKind, u64), Queue>,
}

impl Datagrams {
    /// Messages were not recorded for a while.
    pub fn resume(&mut self) {
        self.queues.clear();
    }

    /// A record of messages; `found` gets every message it completes.
    pub fn record(
        &mut self,
        at: Segment,
        time: Ns,
        u: &IpcUse,
        o: &Object,
        depth: usize,
        mut found: impl FnMut(Match),
    ) {
        let sends = u.direction == Direction::Send;
        let (from, to) = if sends { (o.id, o.peer) } else { (o.peer, o.id) };
        let size = (u.count == 1).then_some(u.bytes);
        let mut m = Messages { from, to, count: u.count, size, first: u.first.min(time), last: time, at };
        let key = |to: u64| (o.kind, if o.kind == ObjectKind::Udp { to & 0xffff } else { to });
        if sends {
            let queue = self.queues.entry(key(to)).or_default();
            // Whoever was faster than this record.
            while m.count > 0 {
                let Some(i) = queue.received.iter().position(|r| m.fits(r, o.kind)) else { break };
                take(&mut m, &mut queue.received, i, |s, r| found(link(s, r)));
            }
            push(&mut queue.sent, m, depth);
            return;
        }
        // First what was sent to this socket, then what was sent to nobody knows whom.
        for to in [to, 0] {
            let Some(queue) = self.queues.get_mut(&key(to)) else { continue };
            while m.count > 0 {
                let Some(i) = queue.sent.iter().position(|s| s.fits(&m, o.kind)) else { break };
                let sender = queue.sent[i].from;
                take(&mut m, &mut queue.sent, i, |r, s| found(link(s, r)));
                // What the same sender sent before is lost: its messages do not overtake one another.
                let mut before = i;
                queue.sent.retain(|s| {
                    let lost = before > 0 && s.from == sender;
                    before = before.saturating_sub(1);
                    !lost
                });
            }
        }
        push(&mut self.queues.entry(key(to)).or_default().received, m, depth);
    }
}

/// Match `m` with entry `i` of a queue: as many messages of both as the smaller one has.
fn take(
    m: &mut Messages,
    queue: &mut VecDeque<Messages>,
    i: usize,
    mut found: impl FnMut(&Messages, &Messages),
) {
    let Some(other) = queue.get_mut(i) else { return };
    if other.at != m.at {
        found(m, other);
    }
    let n = m.count.min(other.count);
    m.count -= n;
    other.count -= n;
    if other.count == 0 {
        queue.remove(i);
    }
}

fn push(queue: &mut VecDeque<Messages>, m: Messages, depth: usize) {
    if m.count == 0 {
        return;
    }
    if queue.len() >= depth {
        queue.pop_front();
    }
    queue.push_back(m);
}

/// The edge of a message: left no later than it arrived, as late as can be said.
fn link(s: &Messages, r: &Messages) -> Match {
    let from_time = if s.last <= r.last { s.last } else { s.first };
    let to_time = if r.first >= from_time { r.first } else { r.last };
    Match { from: s.at, from_time: from_time.min(to_time), to: r.at, to_time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{ObjectId, ThreadId, endpoint_v4};

    /// Records as (thread, sends, own end, other end, time, bytes); matches as (from, sent, received).
    fn matches(kind: ObjectKind, records: &[(u32, bool, u64, u64, Ns, u64)]) -> Vec<(u32, Ns, Ns)> {
        let (mut d, mut out) = (Datagrams::default(), Vec::new());
        for &(thread, sends, id, peer, time, bytes) in records {
            let direction = if sends { Direction::Send } else { Direction::Receive };
            let u = IpcUse { object: ObjectId(0), direction, count: 1, bytes, first: time, position: 0 };
            let o = Object::new(kind, id, peer);
            let at = Segment { thread: ThreadId(thread), index: 0 };
            d.record(at, time, &u, &o, 8, |m| out.push((m.from.thread.0, m.from_time, m.to_time)));
        }
        out
    }

    #[test]
    fn many_senders_to_one_receiver() {
        let named = [
            (1, true, 10, 20, 1, 5),
            (2, true, 11, 20, 2, 5),
            (1, true, 10, 20, 3, 5),
            (9, false, 20, 10, 4, 5),
            (9, false, 20, 11, 5, 5),
            (9, false, 20, 10, 6, 5),
        ];
        assert_eq!(matches(ObjectKind::UnixDatagram, &named), [(1, 1, 4), (2, 2, 5), (1, 3, 6)]);
        // Without names they come as they were sent.
        let unnamed = named.map(|(t, s, id, peer, time, n)| (t, s, id, if s { peer } else { 0 }, time, n));
        assert_eq!(matches(ObjectKind::UnixDatagram, &unnamed), [(1, 1, 4), (2, 2, 5), (1, 3, 6)]);
    }

    #[test]
    fn the_sizes_tell_which_ones_were_lost() {
        let there = endpoint_v4(0x7f00_0001, 53);
        let records = [
            (1, true, 10, there, 1, 100),
            (2, true, 11, there, 2, 200),
            (1, true, 10, there, 3, 300),
            (9, false, 53, 0, 4, 200),
            (9, false, 53, 0, 5, 300),
        ];
        assert_eq!(matches(ObjectKind::Udp, &records), [(2, 2, 4), (1, 3, 5)]);
    }

    #[test]
    fn other_addresses_are_other_sockets() {
        let (a, b) = (endpoint_v4(0x7f00_0001, 53), endpoint_v4(0x7f00_0009, 53));
        let records = [(1, true, 10, a, 1, 5), (2, true, 11, b, 2, 5), (9, false, b, 0, 3, 5)];
        assert_eq!(matches(ObjectKind::Udp, &records), [(2, 2, 3)]);
    }

    #[test]
    fn a_receiver_may_be_faster_than_its_senders_record() {
        let records = [(9, false, 20, 10, 4, 5), (1, true, 10, 20, 6, 5)];
        assert_eq!(matches(ObjectKind::UnixDatagram, &records), [(1, 4, 4)]);
        let late = [(9, false, 20, 10, 4, 5), (1, true, 10, 20, 4 + 2 * EARLY_NS, 5)];
        assert_eq!(matches(ObjectKind::UnixDatagram, &late), []);
    }
}
