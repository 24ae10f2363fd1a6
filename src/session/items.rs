//! Streams a session: catalogue rows and events in the order they were recorded, as a live source would
//! deliver them. Two threads check and unpack ahead of the caller.

use super::error::Warning;
use super::format::ChunkKind;
use super::reader::{Chunk, Inner, MAX_WARNINGS, Session, damage};
use super::rows::Decoder;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pg_event::{CatalogDelta, Coverage, Event, Item, Kind, Ns, ThreadId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Ring number of a [`Kind::Lost`] that damage of the file made.
pub const RING_FILE: u8 = 255;
const WORKERS: usize = 2;
/// Chunks unpacked ahead of the caller.
const AHEAD: usize = 4;

type Decoded = Result<(Item, u32), String>;
type Job = (usize, Vec<Event>, Sender<Decoded>);

/// Iterator over the items of a session. [`Item::End`] always comes last, also for a recording that was
/// cut off. What cannot be read shows as an event [`Kind::Lost`] of ring [`RING_FILE`] and as a warning.
pub struct Items {
    inner: Arc<Inner>,
    next_job: usize,
    next_chunk: usize,
    next_gap: usize,
    jobs: Option<Sender<Job>>,
    ahead: VecDeque<Receiver<Decoded>>,
    spare: Vec<Vec<Event>>,
    warnings: Vec<Warning>,
    duration: Ns,
    last: Ns,
    lost: (u64, Ns),
    ended: bool,
}

impl Session {
    /// All items in order, unpacked on two threads of their own while the caller works on them.
    pub fn items(&self) -> Items {
        let (jobs, todo) = unbounded::<Job>();
        for _ in 0..WORKERS {
            let (inner, todo) = (self.inner.clone(), todo.clone());
            let work = move || {
                let mut decoder = Decoder::default();
                for (i, buffer, done) in todo {
                    let Some(chunk) = inner.chunks.get(i) else { continue };
                    // Nobody waits for it any more: the iterator was dropped.
                    let _ = done.send(decode(&inner, chunk, &mut decoder, buffer));
                }
            };
            if let Err(e) = std::thread::Builder::new().name("decode".into()).spawn(work) {
                tracing::warn!("no thread to unpack with: {e}");
            }
        }
        Items {
            duration: self.duration(),
            inner: self.inner.clone(),
            next_job: 0,
            next_chunk: 0,
            next_gap: 0,
            jobs: Some(jobs),
            ahead: VecDeque::new(),
            spare: Vec::new(),
            warnings: Vec::new(),
            last: 0,
            lost: (0, 0),
            ended: false,
        }
    }
}

fn decode(inner: &Inner, chunk: &Chunk, decoder: &mut Decoder, mut buffer: Vec<Event>) -> Decoded {
    if chunk.frame.kind == ChunkKind::Catalog as u8 {
        return Ok((Item::Catalog(inner.message::<CatalogDelta>(chunk)?), 0));
    }
    if chunk.frame.kind == ChunkKind::Frames as u8 {
        let frames = super::frames::decode(&chunk.frame.payload(inner.bytes(), chunk.at)?)?;
        return Ok((Item::Catalog(CatalogDelta { frames, ..CatalogDelta::default() }), 0));
    }
    if chunk.frame.kind == ChunkKind::Traces as u8 {
        let traces = super::traces::decode(&chunk.frame.payload(inner.bytes(), chunk.at)?)?;
        return Ok((Item::Catalog(CatalogDelta { traces, ..CatalogDelta::default() }), 0));
    }
    buffer.clear();
    let unknown = inner.decode(chunk, decoder, &mut buffer)?;
    Ok((Item::Events(buffer), unknown))
}

impl Items {
    /// What was found damaged so far, beside [`Session::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn warn(&mut self, w: Warning) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(w);
        }
    }

    /// Give a batch of events back once it was used: saves memory from being mapped anew for each.
    pub fn recycle(&mut self, events: Vec<Event>) {
        if self.spare.len() < AHEAD {
            self.spare.push(events);
        }
    }

    /// Share of the recording delivered so far: bytes of the file.
    pub fn bytes_done(&self) -> u64 {
        self.inner.chunks.get(self.next_chunk).map_or(self.inner.bytes().len() as u64, |c| c.at as u64)
    }

    fn lost(&mut self, since: Ns, until: Ns, count: u64) -> Item {
        // Events stay sorted by time whatever a damaged frame claims.
        let until = until.max(self.last);
        self.last = until;
        self.lost.0 = self.lost.0.saturating_add(count);
        self.lost.1 = self.lost.1.saturating_add(until.saturating_sub(since));
        let kind = Kind::Lost { since: since.min(until), count, ring: RING_FILE };
        Item::Events(vec![Event { time: until, thread: ThreadId::NONE, cpu: 0, kind }])
    }

    fn refill(&mut self) {
        while self.ahead.len() < AHEAD && self.next_job < self.inner.chunks.len() {
            let (done, result) = bounded(1);
            let buffer = self.spare.pop().unwrap_or_default();
            if let Some(jobs) = &self.jobs {
                let _ = jobs.send((self.next_job, buffer, done));
            }
            self.ahead.push_back(result);
            self.next_job += 1;
        }
    }

    fn end(&mut self) -> Item {
        self.ended = true;
        self.jobs = None;
        let mut coverage = match &self.inner.end {
            Some((_, coverage)) => coverage.clone(),
            // The reader warns of that.
            None => Coverage::default(),
        };
        coverage.loss.events = coverage.loss.events.saturating_add(self.lost.0);
        coverage.loss.ns = coverage.loss.ns.saturating_add(self.lost.1);
        for w in &self.warnings {
            coverage.notes.push(format!("session file: {w}"));
        }
        Item::End { duration: self.duration.max(self.last), coverage }
    }
}

impl Iterator for Items {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.ended {
            return None;
        }
        let gap = self.inner.gaps.get(self.next_gap).copied();
        if let Some(gap) = gap.filter(|g| g.before <= self.next_chunk) {
            self.next_gap += 1;
            return Some(self.lost(gap.since, gap.until, 0));
        }
        self.refill();
        let Some(result) = self.ahead.pop_front() else { return Some(self.end()) };
        let chunk = self.inner.chunks.get(self.next_chunk).copied();
        self.next_chunk += 1;
        let decoded = result.recv().unwrap_or_else(|_| Err("it could not be unpacked".into()));
        self.refill();
        let chunk = chunk?;
        match decoded {
            Ok((mut item, unknown)) => {
                if unknown > 0 {
                    let mut w = damage(
                        &chunk,
                        "some events are of kinds that a newer pg-tui brought; they are left out",
                    );
                    w.events = u64::from(unknown);
                    (w.lost, w.hides) = (None, false);
                    self.warn(w);
                }
                if let Item::Events(events) = &mut item {
                    self.put_in_order(&chunk, events);
                }
                Some(item)
            }
            Err(reason) => {
                let warning = damage(&chunk, &reason);
                self.warn(warning);
                if chunk.frame.kind == ChunkKind::Events as u8 {
                    return Some(self.lost(chunk.frame.first, chunk.frame.last, u64::from(chunk.frame.rows)));
                }
                Some(Item::Catalog(CatalogDelta::default()))
            }
        }
    }
}

impl Items {
    /// Those who read rely on sorted times; a hostile file cannot break that.
    fn put_in_order(&mut self, chunk: &Chunk, events: &mut [Event]) {
        let sorted = events.is_sorted_by_key(|e| e.time);
        if !sorted {
            events.sort_by_key(|e| e.time);
        }
        let late = events.iter_mut().take_while(|e| e.time < self.last).map(|e| e.time = self.last).count();
        if !sorted || late > 0 {
            let mut w = damage(chunk, "events are not in order of time; they were put in order");
            (w.lost, w.events, w.hides) = (None, 0, false);
            self.warn(w);
        }
        if let Some(e) = events.last() {
            self.last = self.last.max(e.time);
        }
    }
}
