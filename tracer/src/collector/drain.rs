//! Empties the rings: a thread that does nothing else, so that nothing the collector looks up in between
//! makes a ring overflow. It looks as seldom as the rings allow, since every wake-up costs the target more
//! than the records that it brings.

use super::alarm::{Alarm, Bell};
use super::lanes::Lanes;
use super::priority::raise_priority;
use super::raw;
use crate::clock;
use crate::error::Error;
use aya::maps::{MapData, RingBuf};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause after a program was executed, ns, and twice as long each time after that: what a short-lived process
/// has mapped can only be read while it lives.
const SHORT: u64 = 10 * MS;
/// Longest pause between two looks, ns: wake-ups are most of what an idle recorder costs.
const LONG: u64 = 250 * MS;
/// The same where something has to be read in the memory of who is recorded, before it ends, or a focus is to be
/// followed.
const SOON: u64 = 100 * MS;
const MS: u64 = 1_000_000;
/// Records taken at a time.
const RECORDS: usize = 32_768;
/// Bytes of stack copies taken at a time.
const STACK_BYTES: usize = 4 << 20;
/// Batches waiting for the collector: with their sizes, at most about 300 MB. When it falls behind further,
/// the rings fill and the kernel counts what is lost.
const WAITING: usize = 24;
/// Memory of a batch that is kept for the next ones, bytes.
const KEEP: usize = 4 << 20;

/// Records of one ring, one after the other.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Records {
    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Records that still fit.
    fn left(&self) -> usize {
        RECORDS.saturating_sub(self.ends.len())
    }

    /// Take from a ring what is there, up to a limit of bytes.
    fn fill(&mut self, ring: &mut RingBuf<MapData>, bytes: usize) {
        while self.left() > 0 && self.bytes.len() < bytes {
            let Some(item) = ring.next() else { return };
            self.push(&item);
        }
    }

    /// Each record.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(a, &b)| self.bytes.get(a as usize..b as usize))
    }

    /// Record number `n`.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let start = if n == 0 { 0 } else { *self.ends.get(n - 1)? };
        self.bytes.get(start as usize..*self.ends.get(n)? as usize)
    }

    /// Bytes of all records.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.shrink_to(KEEP);
    }
}

/// What was in the rings at one look.
#[derive(Default)]
pub struct Batch {
    /// `CLOCK_MONOTONIC` when the look began: everything older is in this batch or was before.
    pub time: u64,
    /// Stack copies: they are to be known before the events that name them.
    pub stacks: Records,
    /// Samples.
    pub samples: Records,
    /// Events, written after the stacks they name.
    pub events: Records,
    /// Which of the events are about the life of processes.
    pub life: Vec<usize>,
}

impl Batch {
    /// Bytes of all its records.
    pub fn size(&self) -> usize {
        self.events.size() + self.stacks.size() + self.samples.size()
    }

    fn clear(&mut self) {
        self.events.clear();
        self.stacks.clear();
        self.samples.clear();
        self.life.clear();
    }
}

/// The rings.
pub struct Rings {
    /// Intervals off the CPU.
    pub lanes: Lanes,
    /// Records of other events.
    pub events: RingBuf<MapData>,
    /// Copies of user stacks.
    pub stacks: RingBuf<MapData>,
    /// On-CPU samples.
    pub samples: RingBuf<MapData>,
    /// Bytes that fit into each of the last three.
    pub room: [usize; 3],
    /// A record of the ring of events that belongs behind intervals which were not read yet.
    pub held: Option<Vec<u8>>,
}

impl Rings {
    /// Take the events up to `time` (`CLOCK_MONOTONIC`) from the lanes and the ring: intervals in order of time,
    /// what is about the life of a thread in its place among them. Returns the bytes taken from the fullest lane
    /// and from the ring, and whether there is more.
    fn take_events(&mut self, time: u64, batch: &mut Batch) -> ([usize; 2], bool) {
        let Batch { events, life, .. } = batch;
        let in_lane = self.lanes.look(time);
        let (mut in_ring, mut more) = (0, false);
        loop {
            let mut item = None;
            let record = if let Some(held) = &self.held {
                &held[..]
            } else {
                item = self.events.next();
                let Some(item) = &item else { break };
                in_ring += item.len();
                item
            };
            let after = raw::comes_after(record);
            if after > time
                || !self.lanes.up_to(after, events.left(), |r| events.push(r))
                || events.left() == 0
            {
                more = after <= time;
                if item.is_some() {
                    self.held = Some(record.to_vec());
                }
                break;
            }
            if raw::is_life(record) {
                life.push(events.ends.len());
            }
            events.push(record);
            drop(item);
            self.held = None;
        }
        more |= !self.lanes.up_to(if more { 0 } else { time }, events.left(), |r| events.push(r));
        self.lanes.release();
        ([in_lane, in_ring], more)
    }
}

/// The draining thread.
pub struct Drain {
    /// What it read.
    pub batches: Receiver<Batch>,
    used: Sender<Batch>,
    stop: Arc<AtomicBool>,
    soon: Arc<AtomicBool>,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    /// Start draining.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(rings: Rings) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::Failed(format!("cannot wait for the rings: {e}"));
        let alarm = Alarm::new().map_err(failed)?;
        alarm.hear(rings.events.as_fd()).map_err(failed)?;
        let (sender, batches) = bounded(WAITING);
        let (used, back) = bounded(2);
        let stop = Arc::new(AtomicBool::new(false));
        let soon = Arc::new(AtomicBool::new(false));
        let (stopped, sooner) = (Arc::clone(&stop), Arc::clone(&soon));
        let bell = alarm.bell();
        let thread = thread::Builder::new()
            .name("pg-drain".into())
            .spawn(move || drain(rings, &alarm, &sender, &back, (&stopped, &sooner)))
            .map_err(|e| Error::Failed(format!("cannot start a thread: {e}")))?;
        Ok(Self { batches, used, stop, soon, bell, thread: Some(thread) })
    }

    /// Give a batch back when all of it has been read: its memory serves for a later one.
    pub fn give_back(&self, mut batch: Batch) {
        batch.clear();
        // Enough of them are there already.
        let _ = self.used.try_send(batch);
    }

    /// From now on pauses are shorter.
    pub fn look_sooner(&self) {
        self.soon.store(true, Ordering::Relaxed);
    }

    /// Empty the rings a last time and end; the channel closes behind the last batch.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop();
        // A thread that waits for room in the channel goes on when its batches are taken away.
        while self.batches.recv().is_ok() {}
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Chooses the pauses: as long as the rings stay nearly empty, never longer than `longest`.
struct Pace {
    longest: u64,
    pause: u64,
    looked: u64,
}

impl Pace {
    /// The pause after a look at `now` that found so much of the room of each ring taken.
    fn next(&mut self, now: u64, taken: [usize; 4], room: [usize; 4], executed: bool) -> u64 {
        let since = now.saturating_sub(self.looked).max(MS);
        self.looked = now;
        // Twice as long at most: after silence comes a burst.
        let longest = if executed { SHORT } else { self.pause.saturating_mul(2).min(self.longest) };
        // At this rate a ring must be no fuller than an eighth at the next look.
        let fits = |(taken, room): (usize, usize)| {
            (since as u128 * room as u128 / 8).checked_div(taken as u128).unwrap_or(u128::MAX) as u64
        };
        let fits = taken.into_iter().zip(room).map(fits).min().unwrap_or(self.longest);
        self.pause = fits.min(longest).max(MS);
        self.pause
    }
}

fn drain(
    mut rings: Rings,
    alarm: &Alarm,
    out: &Sender<Batch>,
    back: &Receiver<Batch>,
    (stop, soon): (&AtomicBool, &AtomicBool),
) {
    raise_priority();
    let [events, stacks, samples] = rings.room;
    let room = [rings.lanes.room(), events, stacks, samples];
    let mut pace = Pace { longest: LONG, pause: SHORT, looked: clock::monotonic() };
    loop {
        let last = stop.load(Ordering::Acquire);
        let mut batch = back.try_recv().unwrap_or_default();
        batch.time = clock::monotonic();
        // Stacks last: those that events and samples name were written before these.
        let ([in_lane, in_ring], mut more) = rings.take_events(batch.time, &mut batch);
        batch.samples.fill(&mut rings.samples, STACK_BYTES);
        batch.stacks.fill(&mut rings.stacks, STACK_BYTES);
        let executed = batch.life.iter().any(|&n| batch.events.get(n).is_some_and(raw::is_exec));
        let taken = [in_lane, in_ring, batch.stacks.size(), batch.samples.size()];
        let time = batch.time;
        if more && let Some(last) = batch.events.ends.len().checked_sub(1).and_then(|n| batch.events.get(n)) {
            batch.time = raw::of_lane(last).map_or(0, |r| r.0);
        }
        more |= taken[2] >= STACK_BYTES || taken[3] >= STACK_BYTES;
        let empty = batch.size() == 0 && rings.held.is_none();
        // Empty ones too: they tell how far the events are complete.
        if out.send(batch).is_err() {
            return;
        }
        if last && empty {
            return;
        }
        if soon.load(Ordering::Relaxed) {
            pace.longest = SOON;
        }
        let pause = pace.next(time, taken, room, executed);
        if !more && !last {
            alarm.sleep(Duration::from_nanos(pause));
            // Called early by one exec: others may follow.
            let since = clock::monotonic().saturating_sub(time);
            thread::sleep(Duration::from_nanos(SHORT.min(pause).saturating_sub(since)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: [usize; 4] = [16 << 20, 16 << 20, 16 << 20, 8 << 20];

    fn settled(taken_per_ms: usize) -> u64 {
        let mut pace = Pace { longest: LONG, pause: SHORT, looked: 0 };
        let mut now = 0;
        for _ in 0..50 {
            let step = pace.pause;
            now += step;
            pace.next(now, [taken_per_ms * (step / MS) as usize, 0, 0, 0], ROOM, false);
        }
        pace.pause
    }

    #[test]
    fn pauses_are_long_when_little_happens_and_short_when_much_does() {
        assert_eq!(settled(0), LONG);
        assert_eq!(settled(1000), LONG);
        let busy = settled(100_000);
        assert!((15 * MS..25 * MS).contains(&busy), "an eighth of 16 MB at 100 MB/s: {busy}");
        assert_eq!(settled(100_000_000), MS);
    }

    #[test]
    fn after_an_exec_pauses_grow_from_short_again() {
        let mut pace = Pace { longest: SOON, pause: LONG, looked: 0 };
        let mut now = LONG;
        let mut pauses = Vec::new();
        for executed in [true, false, false, true, false, false, false, false] {
            pauses.push(pace.next(now, [100; 4], ROOM, executed) / SHORT);
            now += pace.pause;
        }
        assert_eq!(pauses, [1, 2, 4, 1, 2, 4, 8, 10]);
    }
}
