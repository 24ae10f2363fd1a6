//! Opens a session file and finds its chunks. Payloads are checked and unpacked when they are looked at.

#![allow(unsafe_code)] // Mapping a file: see `Session::open`.

use super::Header;
use super::append::{FileId, Whole};
use super::appended::Appended;
use super::error::{SessionError, Warning};
use super::format::{ChunkKind, FRAME_LEN, Frame, MAGIC, MAJOR, MARKER, MAX_FILE, MINOR, PREFIX_LEN};
use super::index::Index;
use super::rows::Decoder;
use super::writer::End;
use memmap2::Mmap;
use pg_event::{Coverage, Event, Ns, ThreadId};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How many warnings are kept; a file of garbage would bring millions.
pub(super) const MAX_WARNINGS: usize = 100;
/// How many unpacked chunks [`Session::events_in`] keeps.
const KEPT: usize = 4;

/// A chunk of the recording: where it is and what its frame says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) at: usize,
    pub(super) frame: Frame,
}

/// What stands in the place of chunks that cannot be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Before the how-manieth of [`Inner::chunks`].
    pub(super) before: usize,
    pub(super) since: Ns,
    pub(super) until: Ns,
}

/// The bytes of a file.
pub(super) enum Map {
    File(Mmap),
    Memory(Vec<u8>),
}

impl Map {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::File(m) => m,
            Self::Memory(v) => v,
        }
    }
}

pub(super) struct Inner {
    pub(super) path: PathBuf,
    pub(super) map: Map,
    pub(super) header: Header,
    /// Header, catalogue, event and end chunks, in the order of the file.
    pub(super) chunks: Vec<Chunk>,
    pub(super) gaps: Vec<Gap>,
    /// For each event chunk by its offset: the threads in it.
    threads: BTreeMap<u64, Vec<ThreadId>>,
    pub(super) end: Option<(Ns, Coverage)>,
    /// Which file it is; `None` for one in memory.
    pub(super) id: Option<FileId>,
    pub(super) whole: Mutex<Whole>,
    kept: Mutex<VecDeque<Kept>>,
}

type Kept = (usize, Arc<Vec<Event>>);

impl Inner {
    pub(super) fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// Events of a chunk.
    pub(super) fn decode(
        &self,
        chunk: &Chunk,
        decoder: &mut Decoder,
        out: &mut Vec<Event>,
    ) -> Result<u32, String> {
        let payload = chunk.frame.payload(self.bytes(), chunk.at)?;
        decoder.decode(&payload, chunk.frame.rows, out)
    }

    /// A chunk that is MessagePack.
    pub(super) fn message<T: DeserializeOwned>(&self, chunk: &Chunk) -> Result<T, String> {
        message(self.bytes(), chunk)
    }
}

pub(super) fn damage(chunk: &Chunk, reason: &str) -> Warning {
    let events = chunk.frame.kind == ChunkKind::Events as u8;
    let name = ChunkKind::from_u8(chunk.frame.kind).map_or("unknown", ChunkKind::name);
    Warning {
        offset: chunk.at as u64,
        reason: format!("{name} chunk: {reason}"),
        lost: events.then_some((chunk.frame.first, chunk.frame.last)),
        events: if events { u64::from(chunk.frame.rows) } else { 0 },
        hides: true,
    }
}

pub(super) fn message<T: DeserializeOwned>(file: &[u8], chunk: &Chunk) -> Result<T, String> {
    let payload = chunk.frame.payload(file, chunk.at)?;
    rmp_serde::from_slice(&payload).map_err(|e| format!("its MessagePack cannot be read: {e}"))
}

/// An open session file. Cheap to clone; clones share what was read.
#[derive(Clone)]
pub struct Session {
    pub(super) inner: Arc<Inner>,
    warnings: Vec<Warning>,
    pub(super) appended: Appended,
}

impl Session {
    /// Open a session file. Damage that leaves something to read gives [`Session::warnings`].
    ///
    /// # Errors
    /// It cannot be read, is no recording ([`SessionError::NotASession`]), too new ([`SessionError::Newer`]), or nothing of it
    /// can be used ([`SessionError::Damaged`]).
    pub fn open(path: &Path) -> Result<Self, SessionError> {
        let io = |action| move |source| SessionError::Io { path: path.to_owned(), action, source };
        // A pipe that nobody writes to would be waited for.
        let file =
            File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(io("open it"))?;
        let meta = file.metadata().map_err(io("look at it"))?;
        let damaged = |offset, reason: &str| SessionError::Damaged {
            path: path.to_owned(),
            offset,
            reason: reason.into(),
        };
        if !meta.is_file() {
            let found = if meta.is_dir() { "a folder" } else { "not a regular file" };
            return Err(SessionError::NotASession { path: path.to_owned(), found: found.into() });
        }
        if meta.len() == 0 {
            return Err(damaged(0, "the file is empty"));
        }
        if meta.len() > MAX_FILE {
            return Err(damaged(MAX_FILE, "the file is larger than a recording can be"));
        }
        // SAFETY: a mapping is sound as long as nobody shortens the file or writes into it. A recorder
        // only appends; replacing a recording makes a new file; an append cuts off only bytes that no
        // chunk of ours covers. Somebody else's truncation ends the process with SIGBUS, which is what
        // every program that maps its input does.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map it"))?;
        Self::from_map(path, Map::File(map), Some(FileId::of(&meta)))
    }

    /// Open a session that is in memory: nothing can be appended to it.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SessionError> {
        Self::from_map(Path::new("(memory)"), Map::Memory(bytes.to_vec()), None)
    }

    fn from_map(path: &Path, source: Map, id: Option<FileId>) -> Result<Self, SessionError> {
        let map = source.bytes();
        let mut warnings = Vec::new();
        prefix(path, map, &mut warnings)?;
        let scan = Scan::run(map, &mut warnings);
        let mut header = None;
        let mut end = None;
        let mut appended = Appended::default();
        let mut chunks = Vec::new();
        let mut unknown = 0;
        let mut gaps = scan.gaps;
        let mut next_gap = 0;
        for (i, chunk) in scan.chunks.into_iter().enumerate() {
            while let Some(gap) = gaps.get_mut(next_gap).filter(|g| g.before <= i) {
                gap.before = chunks.len();
                next_gap += 1;
            }
            let bad = |reason: String, warnings: &mut Vec<Warning>| {
                let name = ChunkKind::from_u8(chunk.frame.kind).map_or("unknown", ChunkKind::name);
                warn(warnings, chunk.at, format!("{name} chunk: {reason}"));
            };
            match ChunkKind::from_u8(chunk.frame.kind) {
                Some(ChunkKind::Header) => match message::<Header>(map, &chunk) {
                    Ok(h) => _ = header.get_or_insert(h),
                    Err(e) => bad(e, &mut warnings),
                },
                Some(ChunkKind::End) => match message::<End>(map, &chunk) {
                    Ok(e) => end = Some((e.duration, e.coverage)),
                    Err(e) => bad(e, &mut warnings),
                },
                Some(kind @ (ChunkKind::Note | ChunkKind::Decisions | ChunkKind::GuardRule)) => {
                    if let Err(e) = appended.chunk(kind, map, &chunk) {
                        bad(e, &mut warnings);
                    }
                }
                Some(ChunkKind::Catalog | ChunkKind::Frames | ChunkKind::Traces | ChunkKind::Events) => {
                    // Names that were found since.
                    if end.is_some() && chunk.frame.kind == ChunkKind::Frames as u8 {
                        appended.named += u64::from(chunk.frame.rows);
                    }
                    chunks.push(chunk);
                }
                Some(ChunkKind::Index | ChunkKind::Footer) => {}
                None => unknown += 1,
            }
        }
        if header.is_none() && chunks.is_empty() && end.is_none() {
            let first = warnings.first();
            return Err(SessionError::Damaged {
                path: path.to_owned(),
                offset: first.map_or(PREFIX_LEN as u64, |w| w.offset),
                reason: first.map_or_else(|| "nothing follows the version".to_owned(), |w| w.reason.clone()),
            });
        }
        if header.is_none() {
            warn(
                &mut warnings,
                PREFIX_LEN,
                "the header is missing: host, kernel and options are not known".into(),
            );
        }
        if unknown > 0 {
            warn(
                &mut warnings,
                PREFIX_LEN,
                format!("{unknown} chunks are of kinds that a newer pg-tui brought; they are left out"),
            );
        }
        if end.is_none() {
            warn(
                &mut warnings,
                scan.whole as usize,
                "the recording was not closed (still running, killed, or cut off): it is shown up to here"
                    .into(),
            );
        }
        let inner = Inner {
            path: path.to_owned(),
            header: header.unwrap_or_default(),
            chunks,
            gaps,
            threads: scan.threads,
            end,
            id,
            whole: Mutex::new(Whole { end: scan.whole, index: scan.index }),
            kept: Mutex::new(VecDeque::new()),
            map: source,
        };
        Ok(Self { inner: Arc::new(inner), warnings, appended })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What the recording says about itself.
    pub fn header(&self) -> &Header {
        &self.inner.header
    }

    /// What is wrong with the file, as far as opening it showed. Damage inside chunks shows when they are
    /// decoded: see [`super::Items::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Was the recording closed (else it is still running, was killed or cut off)?
    pub fn is_closed(&self) -> bool {
        self.inner.end.is_some()
    }

    /// Number of events by the chunks' frames.
    pub fn len_events(&self) -> u64 {
        self.event_chunks().map(|c| u64::from(c.frame.rows)).sum()
    }

    /// Bytes at the end of a recording that was not closed which are no whole part of it.
    pub fn cut_off(&self) -> u64 {
        let whole = self.inner.whole.lock().unwrap_or_else(PoisonError::into_inner).end;
        if self.is_closed() { 0 } else { self.len_bytes().saturating_sub(whole) }
    }

    /// Length of the file, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.inner.bytes().len() as u64
    }

    /// Length of the recording, ns; of one that was cut off, the time of its last event.
    pub fn duration(&self) -> Ns {
        match &self.inner.end {
            Some((d, _)) => *d,
            None => self.event_chunks().map(|c| c.frame.last).max().unwrap_or(0),
        }
    }

    fn event_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.inner.chunks.iter().filter(|c| c.frame.kind == ChunkKind::Events as u8)
    }

    /// All events within `range` (by [`Event::time`]), of one thread if given. Decodes only the chunks
    /// that may hold some; one that is damaged holds none.
    pub fn events_in(&self, range: Range<Ns>, thread: Option<ThreadId>) -> Vec<Event> {
        let mut out = Vec::new();
        for chunk in self.event_chunks() {
            let frame = &chunk.frame;
            let elsewhere = frame.last < range.start || frame.first >= range.end;
            let absent = thread.is_some_and(|t| {
                self.inner.threads.get(&(chunk.at as u64)).is_some_and(|ids| ids.binary_search(&t).is_err())
            });
            if !elsewhere && !absent {
                let events = self.chunk_events(chunk);
                let wanted = |e: &&Event| range.contains(&e.time) && thread.is_none_or(|t| e.thread == t);
                out.extend(events.iter().filter(wanted));
            }
        }
        out
    }

    fn chunk_events(&self, chunk: &Chunk) -> Arc<Vec<Event>> {
        let kept = || self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, events)) = kept().iter().find(|(at, _)| *at == chunk.at) {
            return events.clone();
        }
        let mut events = Vec::new();
        if self.inner.decode(chunk, &mut Decoder::default(), &mut events).is_err() {
            events.clear();
        }
        let events = Arc::new(events);
        let mut kept = kept();
        kept.truncate(KEPT - 1);
        kept.push_front((chunk.at, events.clone()));
        events
    }
}

/// Check magic and version.
fn prefix(path: &Path, file: &[u8], warnings: &mut Vec<Warning>) -> Result<(), SessionError> {
    let magic = file.get(..8).unwrap_or(file);
    if magic != MAGIC {
        let shown: String =
            magic.iter().map(|b| if b.is_ascii_graphic() { *b as char } else { '.' }).collect();
        let found = match magic {
            m if m.starts_with(b"PGPROF") => {
                "it is a profile: pg-tui profile show tells what is in it".into()
            }
            _ => format!("\"{shown}\" at byte 0"),
        };
        return Err(SessionError::NotASession { path: path.to_owned(), found });
    }
    let Some(&[a, b, c, d]) = file.get(8..12) else {
        return Err(SessionError::Damaged {
            path: path.to_owned(),
            offset: file.len() as u64,
            reason: "the file ends within the version".into(),
        });
    };
    let (major, minor) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    if major > MAJOR {
        return Err(SessionError::Newer { path: path.to_owned(), major, minor });
    }
    if major == 0 {
        return Err(SessionError::Damaged {
            path: path.to_owned(),
            offset: 8,
            reason: "format 0 does not exist".into(),
        });
    }
    if minor > MINOR {
        warn(
            warnings,
            10,
            format!(
                "written in format {major}.{minor}, this pg-tui knows {MAJOR}.{MINOR}: what is new in it is left out"
            ),
        );
    }
    Ok(())
}

fn warn(warnings: &mut Vec<Warning>, at: usize, reason: String) {
    if warnings.len() < MAX_WARNINGS {
        warnings.push(Warning { offset: at as u64, reason, lost: None, events: 0, hides: false });
    }
}

/// What a walk over the frames finds.
#[derive(Default)]
struct Scan {
    chunks: Vec<Chunk>,
    gaps: Vec<Gap>,
    threads: BTreeMap<u64, Vec<ThreadId>>,
    whole: u64,
    index: Option<u64>,
}

impl Scan {
    fn run(file: &[u8], warnings: &mut Vec<Warning>) -> Self {
        let mut scan = Self::default();
        let mut at = PREFIX_LEN;
        let mut last = 0;
        let mut torn: Option<(usize, String)> = None;
        scan.whole = at.min(file.len()) as u64;
        while at < file.len() {
            match Frame::read(file, at) {
                Ok(frame) => {
                    if let Some((from, reason)) = torn.take() {
                        scan.gap(from, at, reason, last, frame.first.max(last), warnings);
                    }
                    let chunk = Chunk { at, frame };
                    match ChunkKind::from_u8(frame.kind) {
                        Some(ChunkKind::Index) => scan.take_index(file, &chunk, warnings),
                        Some(ChunkKind::Events) => last = last.max(frame.last),
                        _ => {}
                    }
                    scan.chunks.push(chunk);
                    at += FRAME_LEN + frame.stored as usize;
                    scan.whole = at as u64;
                }
                Err(reason) => {
                    if torn.is_none() {
                        torn = Some((at, reason));
                    }
                    // Go on at the next place that could be a chunk.
                    at = next_marker(file, at + 1);
                }
            }
        }
        if let Some((from, reason)) = torn {
            let closed = scan.chunks.iter().any(|c| c.frame.kind == ChunkKind::End as u8);
            let what =
                if closed { "what was appended last is not whole" } else { "the last chunk is not whole" };
            warn(warnings, from, format!("{what} and is left out: {reason}"));
        }
        scan
    }

    fn gap(
        &mut self,
        from: usize,
        to: usize,
        reason: String,
        since: Ns,
        until: Ns,
        warnings: &mut Vec<Warning>,
    ) {
        if warnings.len() < MAX_WARNINGS {
            let lost = (until > since).then_some((since, until));
            let reason = format!("{reason}; {} bytes are skipped", to - from);
            warnings.push(Warning { offset: from as u64, reason, lost, events: 0, hides: true });
        }
        self.gaps.push(Gap { before: self.chunks.len(), since, until });
    }

    fn take_index(&mut self, file: &[u8], chunk: &Chunk, warnings: &mut Vec<Warning>) {
        match message::<Index>(file, chunk) {
            Ok(index) => {
                self.index = Some(chunk.at as u64);
                self.threads =
                    index.chunks.iter().filter_map(|e| Some((e.offset, e.thread_ids()?))).collect();
            }
            Err(e) => warn(warnings, chunk.at, format!("index chunk: {e}; every chunk is looked at instead")),
        }
    }
}

pub(super) fn next_marker(file: &[u8], from: usize) -> usize {
    let rest = file.get(from..).unwrap_or_default();
    rest.windows(MARKER.len()).position(|w| w == MARKER).map_or(file.len(), |i| from + i)
}
