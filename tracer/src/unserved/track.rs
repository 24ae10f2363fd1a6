//! From readings of queues, and from what was received, to connections that were not served. Without I/O.

use super::Reading;
use super::queues::Ends;
use std::collections::HashMap;

const MS: u64 = 1_000_000;
/// Records of receptions come this late at most, ns (`USES_AGE` in `uses.h`, and what gathers those left behind).
const LATE: u64 = 400 * MS;
/// Where nobody tells what was received, a queue that is filled as it is emptied may look the same a few times in
/// a row, but not so often.
pub const BLIND_READINGS: u32 = 12;
/// Most connections of which it is remembered who received from them.
const MAX_RECEIVERS: usize = 1 << 14;

/// What was seen of the queues of the focus in which something waited, at a moment of `CLOCK_MONOTONIC`.
#[derive(Clone, PartialEq, Debug)]
pub struct Look {
    pub time: u64,
    pub readings: Vec<Reading>,
}

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The thread (number, process) that received last.
    Thread(u32, u32),
    /// A process that has it open.
    Process(u32),
}

/// A connection that was not served. Times are of `CLOCK_MONOTONIC`; as [`pg_event::Unserved`] has it.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    pub who: Who,
    pub ends: Ends,
    pub since: u64,
    pub until: u64,
    pub bytes: u64,
    pub open: bool,
    pub arrived: bool,
}

struct Queue {
    ends: Ends,
    pid: u32,
    /// Nothing was received since.
    since: u64,
    /// The latest reading, and how many there were since `since`.
    last: u64,
    readings: u32,
    waiting: u64,
    taken: Option<u64>,
    arrived: bool,
    told: bool,
}

type Key = (u8, u64, u64);

fn key(e: &Ends) -> Key {
    (e.kind as u8, e.id, e.peer)
}

/// Follows the queues.
pub struct Tracker {
    limit: u64,
    /// Receptions are recorded.
    receptions: bool,
    /// Not those before.
    unheard: u64,
    /// By inode.
    queues: HashMap<u64, Queue>,
    /// Who received last: thread, process, when.
    receivers: HashMap<Key, (u32, u32, u64)>,
    out: Vec<Told>,
}

impl Tracker {
    /// `limit`: longer than this, ns, is too long. `receptions`: [`Self::received`] is told of them all.
    pub fn new(limit: u64, receptions: bool) -> Self {
        Self {
            limit,
            receptions,
            unheard: 0,
            queues: HashMap::new(),
            receivers: HashMap::new(),
            out: Vec::new(),
        }
    }

    /// Receptions were not recorded until then, or are not from now on.
    pub fn unheard(&mut self, until: Option<u64>) {
        self.unheard = until.unwrap_or(u64::MAX);
    }

    /// Take what was seen.
    pub fn look(&mut self, look: Look) {
        let time = look.time;
        let mut before = std::mem::take(&mut self.queues);
        for r in look.readings {
            let received = self.receivers.get(&key(&r.ends)).map_or(0, |x| x.2);
            let known = before.remove(&r.inode).filter(|q| key(&q.ends) == key(&r.ends));
            // What came first was there at `time`, and received before was something else.
            let mut q = known.unwrap_or_else(|| Queue {
                ends: r.ends.clone(),
                pid: r.pid,
                since: time.max(received),
                last: time,
                readings: 0,
                waiting: r.waiting,
                taken: r.taken,
                arrived: r.new,
                told: false,
            });
            let took = r.taken.zip(q.taken).is_some_and(|(now, then)| now > then);
            if took || r.waiting < q.waiting {
                self.served(&mut q, time);
            }
            if r.waiting > q.waiting && !q.arrived {
                // What had been there alone meant nothing: it is to be told anew.
                (q.arrived, q.told) = (true, false);
            }
            (q.last, q.waiting, q.taken) = (time, r.waiting, r.taken);
            q.readings += 1;
            self.queues.insert(r.inode, q);
        }
        for (_, mut q) in before {
            // Empty, or closed.
            self.served(&mut q, time);
        }
    }

    /// Something was received from a connection (kind, own and peer's identity) by a thread (number, process).
    pub fn received(&mut self, of: Key, who: (u32, u32), first: u64, last: u64) {
        if self.receivers.len() >= MAX_RECEIVERS && !self.receivers.contains_key(&of) {
            self.receivers.clear();
        }
        let latest = self.receivers.entry(of).or_insert((who.0, who.1, last));
        if last >= latest.2 {
            *latest = (who.0, who.1, last);
        }
        if self.queues.is_empty() {
            return;
        }
        // A unix socket is known by its inode, which is also the key here.
        let inode = match self.queues.get(&of.1) {
            Some(q) if key(&q.ends) == of => of.1,
            _ => match self.queues.iter().find(|(_, q)| key(&q.ends) == of) {
                Some((&inode, _)) => inode,
                None => return,
            },
        };
        let Some(mut q) = self.queues.remove(&inode) else { return };
        if last > q.since {
            let until = first.clamp(q.since, last);
            if q.told {
                self.tell(&q, until, false);
            }
            (q.since, q.told) = (last, false);
            q.readings = u32::from(q.last > last);
        }
        self.queues.insert(inode, q);
    }

    /// Something was taken out between the latest reading and `time`.
    fn served(&mut self, q: &mut Queue, time: u64) {
        if q.told {
            self.tell(q, q.last, false);
        }
        (q.since, q.readings, q.told) = (time, 0, false);
    }

    fn tell(&mut self, q: &Queue, until: u64, open: bool) {
        let last = self.receivers.get(&key(&q.ends));
        let who = last.map_or(Who::Process(q.pid), |&(tid, tgid, _)| Who::Thread(tid, tgid));
        let (ends, since, bytes, arrived) = (q.ends.clone(), q.since, q.waiting, q.arrived);
        self.out.push(Told { who, ends, since, until, bytes, open, arrived });
    }

    /// What there is to tell, once all that was recorded up to `complete` is known.
    pub fn due(&mut self, complete: u64) -> Vec<Told> {
        let (limit, receptions, unheard) = (self.limit, self.receptions, self.unheard);
        let too_long = |q: &Queue| {
            let end = q.since.saturating_add(limit);
            let sure = if q.taken.is_some() {
                true
            } else if receptions && q.since >= unheard {
                complete >= end.saturating_add(LATE)
            } else {
                q.readings >= BLIND_READINGS
            };
            q.last >= end && sure
        };
        let found: Vec<u64> =
            self.queues.iter().filter(|(_, q)| !q.told && too_long(q)).map(|(&inode, _)| inode).collect();
        for inode in found {
            self.tell_open(inode);
        }
        std::mem::take(&mut self.out)
    }

    fn tell_open(&mut self, inode: u64) {
        if let Some(mut q) = self.queues.remove(&inode) {
            q.told = true;
            self.tell(&q, q.last, true);
            self.queues.insert(inode, q);
        }
    }

    /// Those told before that go on, as they are now.
    pub fn open(&mut self) -> Vec<Told> {
        let told: Vec<u64> = self.queues.iter().filter(|(_, q)| q.told).map(|(&inode, _)| inode).collect();
        for inode in told {
            self.tell_open(inode);
        }
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
#[path = "track_tests.rs"]
mod tests;
