//! The last while of a recording, in memory.

use super::rows::Rows;
use crate::session::parse;
use pg_event::{Event, Item, Kind, Ns, ObjectId, SeenBy, ThreadId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Rows after which a chunk is packed.
const CHUNK_ROWS: usize = 1 << 15;
/// ... or this much time, ns: the window ends as sharply as that.
const CHUNK_SPAN: Ns = 1_000_000_000;
/// A window given as a time takes at most this much memory all the same.
const MAX_BYTES: usize = 1 << 30;
/// A window given as a size reaches back this far at most, ns.
const MAX_SPAN: Ns = 24 * 3600 * 1_000_000_000;

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Not more than this much time, ns.
    pub span: Ns,
    /// Not more than this many bytes of packed events.
    pub bytes: usize,
}

impl Limit {
    /// From `60s`, `5m` (minutes), `500MB`, `500M`, `1G`.
    ///
    /// # Errors
    /// What is expected, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let wrong = || "a time or a size is expected, such as 60s, 5m or 500MB".to_owned();
        let n: f64 = number.parse().map_err(|_| wrong())?;
        let time = |s: f64| Self { span: (n * s * 1e9) as Ns, bytes: MAX_BYTES };
        let size = |b: f64| Self { span: MAX_SPAN, bytes: (n * b) as usize };
        // A capital alone is a size, as dd(1) and others have it.
        let unit = match unit.trim() {
            "M" => "mb".to_owned(),
            other => other.to_ascii_lowercase(),
        };
        let limit = match unit.as_str() {
            "s" | "sec" => time(1.0),
            "m" | "min" => time(60.0),
            "h" => time(3600.0),
            "k" | "kb" | "kib" => size(1024.0),
            "mb" | "mib" => size(1024.0 * 1024.0),
            "g" | "gb" | "gib" => size(1024.0 * 1024.0 * 1024.0),
            _ => return Err(wrong()),
        };
        let fits =
            (1_000_000_000..=MAX_SPAN).contains(&limit.span) && (1 << 20..=16 << 30).contains(&limit.bytes);
        if fits { Ok(limit) } else { Err("from 1s to 24h, or from 1MB to 16GB".into()) }
    }
}

/// Packed events.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) first: Ns,
    pub(super) last: Ns,
    pub(super) rows: u32,
    raw: usize,
    packed: Vec<u8>,
}

impl Chunk {
    fn pack(events: &[Event]) -> Option<Self> {
        let (raw, rows) = parse::encode(events);
        let packed = zstd::bulk::compress(&raw, 1).ok()?;
        Some(Self { first: events.first()?.time, last: events.last()?.time, rows, raw: raw.len(), packed })
    }

    pub(super) fn events(&self) -> Vec<Event> {
        // It was packed by this process: what cannot be unpacked is not there.
        zstd::bulk::decompress(&self.packed, self.raw)
            .ok()
            .and_then(|raw| parse::events(&raw, self.rows).ok())
            .unwrap_or_default()
    }
}

/// A wait that goes on, and who was found to hold what it waits for.
#[derive(Clone, Debug)]
struct Open {
    wait: Event,
    holds: Vec<Event>,
}

/// What is kept at a moment.
pub(super) struct Snapshot {
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// Events of no chunk yet.
    pub(super) rest: Vec<Event>,
    /// Waits that go on, and their holders, as they were reported last.
    pub(super) open: Vec<Event>,
    pub(super) catalog: Rows,
    /// From when on all is there.
    pub(super) from: Ns,
    /// Up to when.
    pub(super) to: Ns,
}

/// The last while of a recording.
pub struct Window {
    limit: Limit,
    chunks: VecDeque<Arc<Chunk>>,
    bytes: usize,
    rest: Vec<Event>,
    open: HashMap<ThreadId, Open>,
    /// Connections that are not served, as they were told of last.
    unserved: HashMap<ObjectId, Event>,
    /// Units that took too long and whose thread has slept ever since.
    violations: HashMap<ThreadId, Event>,
    catalog: Rows,
    latest: Ns,
    /// Up to when chunks were forgotten.
    forgotten: Ns,
    /// Events that came.
    events: u64,
}

impl Window {
    /// An empty one.
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            chunks: VecDeque::new(),
            bytes: 0,
            rest: Vec::new(),
            open: HashMap::new(),
            unserved: HashMap::new(),
            violations: HashMap::new(),
            catalog: Rows::default(),
            latest: 0,
            forgotten: 0,
            events: 0,
        }
    }

    /// Take over what a source delivers.
    pub fn item(&mut self, item: Item) {
        match item {
            Item::Catalog(d) => self.catalog.apply(d, self.latest),
            Item::Events(events) => {
                for e in &events {
                    self.follow(e);
                }
                self.latest = events.last().map_or(self.latest, |e| self.latest.max(e.time));
                self.events += events.len() as u64;
                self.rest.extend(events);
                let old =
                    self.rest.first().is_some_and(|e| self.latest - e.time.min(self.latest) >= CHUNK_SPAN);
                if old || self.rest.len() >= CHUNK_ROWS {
                    self.pack();
                }
            }
            Item::End { .. } => {}
        }
    }

    /// Keep track of waits that go on.
    fn follow(&mut self, e: &Event) {
        match e.kind {
            Kind::OffCpu(o) if o.open => match self.open.get_mut(&e.thread) {
                Some(open) if matches!(open.wait.kind, Kind::OffCpu(w) if w.start == o.start) => {
                    open.wait = *e;
                }
                _ => {
                    self.open.insert(e.thread, Open { wait: *e, holds: Vec::new() });
                }
            },
            Kind::Hold(h) => {
                const MOST: usize = 64;
                if let Some(open) = self.open.get_mut(&h.subject)
                    && open.holds.len() < MOST
                {
                    open.holds.push(*e);
                }
            }
            Kind::Unserved(u) => {
                const MOST: usize = 4096;
                if !u.open {
                    self.unserved.remove(&u.object);
                } else if self.unserved.len() < MOST {
                    self.unserved.insert(u.object, *e);
                }
            }
            Kind::Violation(v) if matches!(v.at, SeenBy::Look | SeenBy::Withdrawn) => {}
            Kind::Violation(_) => {
                const MOST: usize = 4096;
                if self.violations.len() < MOST {
                    self.violations.insert(e.thread, *e);
                }
            }
            Kind::OffCpu(_) | Kind::Exit { .. } => {
                self.open.remove(&e.thread);
                self.violations.remove(&e.thread);
            }
            Kind::UnitBoundary { .. } => {
                self.violations.remove(&e.thread);
            }
            _ => {}
        }
    }

    /// What goes on, however long ago it began, in order of time.
    fn going_on(&self) -> Vec<Event> {
        let waits = self.open.values().flat_map(|o| std::iter::once(&o.wait).chain(&o.holds));
        let mut all: Vec<Event> =
            waits.chain(self.unserved.values()).chain(self.violations.values()).copied().collect();
        all.sort_by_key(|e| (e.time, e.thread));
        all
    }

    fn pack(&mut self) {
        for part in self.rest.chunks(CHUNK_ROWS) {
            if let Some(chunk) = Chunk::pack(part) {
                self.bytes += chunk.packed.len();
                self.chunks.push_back(Arc::new(chunk));
            }
        }
        self.rest.clear();
        let from = self.latest.saturating_sub(self.limit.span);
        while let Some(oldest) = self.chunks.front()
            && (oldest.last < from || self.bytes > self.limit.bytes)
        {
            self.bytes -= oldest.packed.len();
            self.forgotten = oldest.last;
            self.chunks.pop_front();
        }
        // Before anything was dropped from the window all its rows are needed.
        let from = self.chunks.front().map_or(self.latest, |c| c.first);
        if self.forgotten > 0 && self.catalog.is_due(from) {
            let used = self.going_on();
            self.catalog.let_go(from, &used);
        }
    }

    /// What is kept now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let first = self.chunks.front().map(|c| c.first).or(self.rest.first().map(|e| e.time));
        // A recording that is younger than its window begins at its own beginning.
        let from = if self.forgotten == 0 { 0 } else { first.unwrap_or(self.latest) };
        Snapshot {
            chunks: self.chunks.iter().cloned().collect(),
            rest: self.rest.clone(),
            open: self.going_on().into_iter().filter(|e| e.time < from).collect(),
            catalog: self.catalog.clone(),
            from,
            to: self.latest,
        }
    }

    /// Waits that go on: the thread, since when, and the wait as it was reported.
    pub fn open_waits(&self) -> impl Iterator<Item = (ThreadId, &pg_event::OffCpu)> {
        self.open.values().filter_map(|o| match &o.wait.kind {
            Kind::OffCpu(w) => Some((o.wait.thread, w)),
            _ => None,
        })
    }

    /// Everything that events refer to.
    pub fn catalog(&self) -> &Rows {
        &self.catalog
    }

    /// Time of the latest event.
    pub fn latest(&self) -> Ns {
        self.latest
    }

    /// Bytes of packed events.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Events that came so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Time that is kept, ns.
    pub fn span(&self) -> Ns {
        let first = self.chunks.front().map(|c| c.first).or(self.rest.first().map(|e| e.time));
        self.latest.saturating_sub(first.unwrap_or(self.latest))
    }
}
