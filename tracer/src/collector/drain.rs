//! Empties the rings: a thread that does nothing else, so that nothing the collector looks up in between
//! makes a ring overflow.

use super::clock;
use super::priority::raise_priority;
use crate::error::Error;
use aya::maps::{MapData, RingBuf};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Pause between two looks at rings that were nearly empty.
const PAUSE: Duration = Duration::from_millis(10);
/// Records taken at a time.
const RECORDS: usize = 16_384;
/// Bytes of stack copies taken at a time.
const STACK_BYTES: usize = 4 << 20;
/// Batches waiting for the collector: with their sizes, at most about 300 MB. When it falls behind further,
/// the rings fill and the kernel counts what is lost.
const WAITING: usize = 48;

/// Records of one ring, one after the other.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Take from a ring what is there, up to a limit.
    fn fill(&mut self, ring: &mut RingBuf<MapData>, bytes: usize) {
        while self.ends.len() < RECORDS && self.bytes.len() < bytes {
            let Some(item) = ring.next() else { return };
            self.bytes.extend_from_slice(&item);
            self.ends.push(self.bytes.len());
        }
    }

    /// Each record.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(a, &b)| self.bytes.get(a..b))
    }

    /// Bytes of all records.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// What was in the rings at one look.
pub struct Batch {
    /// `CLOCK_MONOTONIC` when the look began: everything older is in this batch or was before.
    pub time: u64,
    /// Stack copies: they are to be known before the events that name them.
    pub stacks: Records,
    /// Samples.
    pub samples: Records,
    /// Events, written after the stacks they name.
    pub events: Records,
}

/// The rings.
pub struct Rings {
    /// Records of events.
    pub events: RingBuf<MapData>,
    /// Copies of user stacks.
    pub stacks: RingBuf<MapData>,
    /// On-CPU samples.
    pub samples: RingBuf<MapData>,
}

/// The draining thread.
pub struct Drain {
    /// What it read.
    pub batches: Receiver<Batch>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    /// Start draining.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(rings: Rings) -> Result<Self, Error> {
        let (sender, batches) = bounded(WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("pg-drain".into())
            .spawn(move || drain(rings, &sender, &stopped))
            .map_err(|e| Error::Failed(format!("cannot start a thread: {e}")))?;
        Ok(Self { batches, stop, thread: Some(thread) })
    }

    /// Empty the rings a last time and end; the channel closes behind the last batch.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
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

fn drain(mut rings: Rings, out: &Sender<Batch>, stop: &AtomicBool) {
    raise_priority();
    loop {
        let last = stop.load(Ordering::Acquire);
        let time = clock::monotonic();
        let mut batch = Batch {
            time,
            stacks: Records::default(),
            samples: Records::default(),
            events: Records::default(),
        };
        // Events first: the stacks they name were written before them.
        batch.events.fill(&mut rings.events, usize::MAX);
        batch.stacks.fill(&mut rings.stacks, STACK_BYTES);
        batch.samples.fill(&mut rings.samples, STACK_BYTES);
        let more = batch.events.ends.len() >= RECORDS / 4
            || batch.stacks.size() >= STACK_BYTES / 4
            || batch.samples.size() >= STACK_BYTES / 4;
        let empty = batch.events.size() + batch.stacks.size() + batch.samples.size() == 0;
        // Empty ones too: they tell how far the events are complete.
        if out.send(batch).is_err() {
            return;
        }
        if last && empty {
            return;
        }
        if !more && !last {
            thread::sleep(PAUSE);
        }
    }
}
