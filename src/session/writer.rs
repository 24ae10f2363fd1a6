//! Writes a session file while it is recorded: append-only, to its final name, a chunk at least every
//! second, so that a recorder that is killed leaves a file that opens.

use super::Header;
use super::error::SessionError;
use super::format::{self, CHUNK_ROWS, ChunkKind, MAGIC, MAJOR, MINOR, PREFIX_LEN};
use super::index::{Index, IndexEntry};
use super::pending::{Pending, split};
use super::rows::Encoder;
use pg_event::{CatalogDelta, Coverage, Frame, FrameId, Item, ModuleKind, Ns, Trace, TraceId};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// At the latest after this time what was delivered is in the file: a recorder that is killed loses no more.
const FLUSH_AFTER: Duration = Duration::from_millis(800);
/// ... while the file is one that will be written anew at its end, and small chunks thus cost nothing.
const FLUSH_SOON_AFTER: Duration = Duration::from_millis(300);
/// Rows of a catalogue chunk are split so that its MessagePack stays below this.
const CATALOG_RAW: usize = 2 << 20;

/// The last chunk of a recording.
#[derive(Debug, Default, Serialize, serde::Deserialize)]
#[serde(default)]
pub(super) struct End {
    pub(super) duration: Ns,
    pub(super) coverage: Coverage,
}

/// Writes one session file.
pub struct Writer {
    file: File,
    path: PathBuf,
    /// Where the next chunk goes: all before it is whole.
    at: u64,
    encoder: Encoder,
    packer: zstd::bulk::Compressor<'static>,
    /// For names and the like: few bytes, worth more work.
    thorough: zstd::bulk::Compressor<'static>,
    catalog: Pending,
    flushed: Instant,
    index: Index,
    end: Option<End>,
    events: u64,
    latest: Ns,
    left_out: u64,
    /// Seekable and shrinkable? Not so for `/dev/null` or a pipe.
    regular: bool,
    broken: bool,
    /// Nobody waits: only full chunks are written.
    leisure: bool,
}

impl Writer {
    /// Create the file, readable by its owner only, and write the header. An older recording of that name
    /// is replaced; any other file is not. Under sudo the file belongs to the user who called.
    ///
    /// # Errors
    /// The system's refusal, or another kind of file is there.
    pub fn create(path: &Path, header: &Header) -> Result<Self, SessionError> {
        let io = |action| move |source| SessionError::Io { path: path.to_owned(), action, source };
        let (file, regular) = super::create::create(path).map_err(io("create it"))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
            at: 0,
            encoder: Encoder::default(),
            packer: zstd::bulk::Compressor::new(1).map_err(io("set up compression"))?,
            thorough: zstd::bulk::Compressor::new(3).map_err(io("set up compression"))?,
            catalog: Pending::default(),
            flushed: Instant::now(),
            index: Index::default(),
            end: None,
            events: 0,
            latest: 0,
            left_out: 0,
            regular,
            broken: false,
            leisure: false,
        };
        let mut prefix = [0; PREFIX_LEN];
        prefix[..8].copy_from_slice(&MAGIC);
        prefix[8..10].copy_from_slice(&MAJOR.to_le_bytes());
        prefix[10..12].copy_from_slice(&MINOR.to_le_bytes());
        writer.put(&prefix)?;
        writer.message(ChunkKind::Header, header)?;
        Ok(writer)
    }

    /// Write full chunks only, and press names hard: for a recording that is in a file already.
    pub(crate) fn at_leisure(mut self) -> Self {
        self.leisure = true;
        if let Ok(packer) = zstd::bulk::Compressor::new(3) {
            self.packer = packer;
        }
        if let Ok(packer) = zstd::bulk::Compressor::new(19) {
            self.thorough = packer;
        }
        self
    }

    /// Take over what a source delivers.
    ///
    /// # Errors
    /// It cannot be written: the disk is full, for one. What is in the file stays whole.
    pub fn item(&mut self, item: &Item) -> Result<(), SessionError> {
        match item {
            Item::Catalog(d) => self.catalog.merge(d),
            Item::Events(events) => {
                for event in events {
                    if self.encoder.rows() >= CHUNK_ROWS {
                        self.flush()?;
                    }
                    self.left_out += u64::from(!self.encoder.push(event));
                }
            }
            Item::End { duration, coverage } => {
                self.end = Some(End { duration: *duration, coverage: coverage.clone() });
            }
        }
        self.tick()
    }

    /// Write out what waits, if it is time. To be called now and then when nothing is delivered.
    ///
    /// # Errors
    /// As [`Writer::item`].
    pub fn tick(&mut self) -> Result<(), SessionError> {
        let wait = if self.at <= super::compact::MAX_BYTES { FLUSH_SOON_AFTER } else { FLUSH_AFTER };
        let due = !self.leisure && self.flushed.elapsed() >= wait;
        if self.encoder.rows() >= CHUNK_ROWS || due { self.flush() } else { Ok(()) }
    }

    /// Write out what waits.
    ///
    /// # Errors
    /// As [`Writer::item`].
    pub fn flush(&mut self) -> Result<(), SessionError> {
        self.flushed = Instant::now();
        // The catalogue first: its rows come before the events that name them.
        let delta = self.catalog.take();
        if !delta.is_empty() {
            self.write_catalog(delta)?;
        }
        if self.encoder.rows() == 0 {
            return Ok(());
        }
        let p = self.encoder.finish();
        let at = self.at;
        self.chunk(ChunkKind::Events, &p.raw, p.rows, p.first, p.last)?;
        self.index.chunks.push(IndexEntry::new(at, &p.threads));
        self.events += u64::from(p.rows);
        self.latest = self.latest.max(p.last);
        Ok(())
    }

    fn write_catalog(&mut self, mut delta: CatalogDelta) -> Result<(), SessionError> {
        let frames = std::mem::take(&mut delta.frames);
        self.write_frames(&frames)?;
        self.write_traces(&std::mem::take(&mut delta.traces))?;
        // Readers of format 1.0 do not know these: a chunk that they pass over has nothing else in it.
        let (python, others): (Vec<_>, Vec<_>) =
            delta.modules.drain(..).partition(|(_, m)| m.kind == ModuleKind::Python);
        delta.modules = others;
        let python = CatalogDelta { modules: python, ..CatalogDelta::default() };
        for delta in [python, delta] {
            self.write_rows(delta)?;
        }
        Ok(())
    }

    fn write_rows(&mut self, delta: CatalogDelta) -> Result<(), SessionError> {
        if delta.is_empty() {
            return Ok(());
        }
        let raw = rmp_serde::to_vec_named(&delta).map_err(|e| self.unencodable(&e))?;
        if raw.len() > CATALOG_RAW {
            if let Some((a, b)) = split(delta) {
                self.write_rows(a)?;
                return self.write_rows(b);
            }
            if raw.len() > format::MAX_RAW as usize {
                // A single row of that size is no name of anything.
                self.left_out += 1;
                return Ok(());
            }
        }
        self.chunk(ChunkKind::Catalog, &raw, 0, self.latest, self.latest)
    }

    fn write_frames(&mut self, frames: &[(FrameId, Frame)]) -> Result<(), SessionError> {
        if frames.is_empty() {
            return Ok(());
        }
        let raw = super::frames::encode(frames);
        if raw.len() > CATALOG_RAW && frames.len() > 1 {
            let (a, b) = frames.split_at(frames.len() / 2);
            self.write_frames(a)?;
            return self.write_frames(b);
        }
        if raw.len() > format::MAX_RAW as usize {
            self.left_out += 1;
            return Ok(());
        }
        self.chunk(ChunkKind::Frames, &raw, 0, self.latest, self.latest)
    }

    /// One chunk each: they are few, and long.
    fn write_traces(&mut self, traces: &[(TraceId, Trace)]) -> Result<(), SessionError> {
        for trace in traces.chunks(1) {
            let raw = super::traces::encode(trace);
            if raw.len() > format::MAX_RAW as usize {
                self.left_out += 1;
                continue;
            }
            self.chunk(ChunkKind::Traces, &raw, 0, self.latest, self.latest)?;
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Events written so far.
    pub fn events(&self) -> u64 {
        self.events + self.encoder.rows() as u64
    }

    /// Write the end, the index and the footer. A source that did not send [`Item::End`] leaves a file
    /// that says it was cut off.
    ///
    /// # Errors
    /// As [`Writer::item`].
    pub fn finish(mut self) -> Result<u64, SessionError> {
        if self.broken {
            // Disk full: what is there is whole; room may have come back for the end.
            self.encoder = Encoder::default();
            self.catalog = Pending::default();
        } else {
            self.flush()?;
        }
        if let Some(mut end) = self.end.take() {
            if self.left_out > 0 {
                end.coverage.notes.push(format!("{} rows could not be written", self.left_out));
            }
            let raw = rmp_serde::to_vec_named(&end).map_err(|e| self.unencodable(&e))?;
            self.chunk(ChunkKind::End, &raw, 0, end.duration, end.duration)?;
        }
        let at = self.at;
        let index = std::mem::take(&mut self.index);
        let raw = rmp_serde::to_vec_named(&index).map_err(|e| self.unencodable(&e))?;
        // An index of weeks may be too long: a reader then scans, which takes longer and finds the same.
        if raw.len() <= format::MAX_RAW as usize {
            self.chunk(ChunkKind::Index, &raw, 0, 0, 0)?;
            self.chunk(ChunkKind::Footer, &at.to_le_bytes(), 0, 0, 0)?;
        }
        Ok(self.at)
    }

    fn message<T: Serialize>(&mut self, kind: ChunkKind, value: &T) -> Result<(), SessionError> {
        let raw = rmp_serde::to_vec_named(value).map_err(|e| self.unencodable(&e))?;
        self.chunk(kind, &raw, 0, 0, 0)
    }

    fn unencodable(&self, e: &rmp_serde::encode::Error) -> SessionError {
        SessionError::Io {
            path: self.path.clone(),
            action: "encode a chunk",
            source: std::io::Error::other(e.to_string()),
        }
    }

    fn chunk(
        &mut self,
        kind: ChunkKind,
        raw: &[u8],
        rows: u32,
        first: Ns,
        last: Ns,
    ) -> Result<(), SessionError> {
        let packer = match kind {
            ChunkKind::Footer => None,
            ChunkKind::Events => Some(&mut self.packer),
            _ => Some(&mut self.thorough),
        };
        let bytes = format::chunk(kind, raw, rows, first, last, packer).map_err(|source| {
            SessionError::Io { path: self.path.clone(), action: "compress a chunk", source }
        })?;
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                self.broken = true;
                if self.regular {
                    // Take back the part of a chunk; if that fails, a reader ignores it.
                    let _ = self.file.set_len(self.at);
                    let _ = std::io::Seek::seek(&mut self.file, std::io::SeekFrom::Start(self.at));
                }
                Err(SessionError::Io { path: self.path.clone(), action: "write to it", source })
            }
        }
    }
}
