//! Appends to a session file without rewriting it. Several pg-tui may have one file open: each append first takes over what
//! the others appended since, and a file that took the place of the one that was opened is left alone.

#![allow(unsafe_code)] // Mapping a file: see `Appending::others`.

use super::appended::Appended;
use super::error::SessionError;
use super::format::{self, ChunkKind, FRAME_LEN, Frame};
use super::reader::{Chunk, next_marker};
use super::{DecisionLog, GuardRule, Note};
use memmap2::Mmap;
use pg_event::FrameId;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is appended.
pub(super) enum Extra<'a> {
    Note(&'a Note),
    Decisions(&'a DecisionLog),
    GuardRule(&'a GuardRule),
    Frames(&'a [(FrameId, pg_event::Frame)]),
}

/// Which file it is, whatever it is called: device and inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self(meta.dev(), meta.ino())
    }
}

/// Where the whole part of a file ends, and where its index is.
#[derive(Clone, Copy, Default)]
pub(super) struct Whole {
    pub(super) end: u64,
    pub(super) index: Option<u64>,
}

/// A session file that nobody else writes to meanwhile.
pub(super) struct Appending<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> Appending<'a> {
    /// Open the file `id`, expected at `path`, and lock it.
    ///
    /// # Errors
    /// Another pg-tui writes to it, another file is there by now, or the system refuses.
    pub(super) fn open(path: &'a Path, id: Option<FileId>) -> Result<Self, SessionError> {
        let io = |action| move |source| SessionError::Io { path: path.to_owned(), action, source };
        let file = File::options().read(true).write(true).open(path).map_err(io("open it for writing"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(SessionError::Busy { path: path.to_owned() });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(io("lock it")(source)),
        }
        let meta = file.metadata().map_err(io("look at it"))?;
        if id != Some(FileId::of(&meta)) {
            return Err(SessionError::Replaced { path: path.to_owned() });
        }
        Ok(Self { file, path })
    }

    /// What others appended behind `whole` goes into `appended`; where the whole part ends now.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn others(&self, whole: Whole, appended: &mut Appended) -> Result<Whole, SessionError> {
        let io = |action| move |source| SessionError::Io { path: self.path.to_owned(), action, source };
        let len = self.file.metadata().map_err(io("look at it"))?.len();
        if len <= whole.end {
            return Ok(whole);
        }
        // SAFETY: as in `Session::open`; the lock keeps other pg-tui from cutting off what is not whole.
        let map = unsafe { Mmap::map(&self.file) }.map_err(io("map it"))?;
        let mut now = whole;
        let mut at = usize::try_from(whole.end).unwrap_or(usize::MAX);
        while at < map.len() {
            let Ok(frame) = Frame::read(&map, at) else {
                at = next_marker(&map, at + 1);
                continue;
            };
            match ChunkKind::from_u8(frame.kind) {
                Some(ChunkKind::Index) => now.index = Some(at as u64),
                // Names of the recording itself, which was not closed when it was opened.
                Some(ChunkKind::Frames) if now.index.is_none() => {}
                // One that cannot be read is told when the file is opened.
                Some(kind) => _ = appended.chunk(kind, &map, &Chunk { at, frame }),
                None => {}
            }
            at += FRAME_LEN + frame.stored as usize;
            now.end = at as u64;
        }
        Ok(now)
    }

    /// Append behind `whole`; what is torn there (an append or the last chunk of a recorder that was killed) is cut off.
    /// Where the whole part ends then.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn put(&mut self, whole: Whole, extra: &Extra<'_>) -> Result<u64, SessionError> {
        let path = self.path;
        let io = |action| move |source| SessionError::Io { path: path.to_owned(), action, source };
        let (kind, rows, encoded) = match extra {
            Extra::Note(n) => (ChunkKind::Note, 0, rmp_serde::to_vec_named(n)),
            Extra::Decisions(d) => (ChunkKind::Decisions, 0, rmp_serde::to_vec_named(d)),
            Extra::GuardRule(r) => (ChunkKind::GuardRule, 0, rmp_serde::to_vec_named(r)),
            Extra::Frames(f) => (ChunkKind::Frames, f.len() as u32, Ok(super::frames::encode(f))),
        };
        let raw = encoded.map_err(|e| io("encode a note")(std::io::Error::other(e.to_string())))?;
        let mut bytes = format::chunk(kind, &raw, rows, 0, 0, None).map_err(io("encode a note"))?;
        if let Some(index) = whole.index {
            let footer = format::chunk(ChunkKind::Footer, &index.to_le_bytes(), 0, 0, 0, None)
                .map_err(io("encode a footer"))?;
            bytes.extend_from_slice(&footer);
        }
        if self.file.metadata().map_err(io("look at it"))?.len() > whole.end {
            self.file.set_len(whole.end).map_err(io("cut off a torn append"))?;
        }
        self.file.seek(SeekFrom::Start(whole.end)).map_err(io("seek in it"))?;
        self.file.write_all(&bytes).map_err(io("write to it"))?;
        Ok(whole.end + bytes.len() as u64)
    }
}
