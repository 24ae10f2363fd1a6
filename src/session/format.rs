//! The outer format: magic, version, and the frame around each chunk.
//!
//! ```text
//! magic (8) major u16 minor u16 reserved u32     16 bytes
//! chunk*                                         see `Frame`
//! ```
//! All numbers are little-endian. The first chunk is the header; the last one of a closed file is a
//! footer of fixed size that names the place of the index, so that a reader need not scan.

use pg_event::Ns;

/// What a `.pgs` file begins with: not text, and broken by any transfer that changes line ends.
pub const MAGIC: [u8; 8] = *b"\x89PGS\r\n\x1a\n";
/// A reader refuses a file with a greater major version.
pub const MAJOR: u16 = 1;
/// A reader opens a file with a greater minor version and says so: what it does not know is left out.
/// 1: modules of Python code, in catalogue chunks of their own. 2: spans in which messages were not recorded.
/// 3: locks that are held by a shared descriptor. 4: types of units of work, units that took too long, and what
/// was decided about their guards. 5: how much of their time the host of the machine had.
pub const MINOR: u16 = 5;
/// Length of magic and version.
pub const PREFIX_LEN: usize = 16;
/// Length of a chunk's frame.
pub const FRAME_LEN: usize = 44;
/// Rows of a full event chunk.
pub const CHUNK_ROWS: usize = 1 << 16;
/// What each chunk begins with, to find the next one after damage.
pub const MARKER: [u8; 4] = *b"PgsC";

/// Greatest length of a chunk before compression. A full event chunk of the worst case needs 10 MiB.
pub const MAX_RAW: u32 = 16 << 20;
/// Greatest number of rows in an event chunk.
pub const MAX_ROWS: u32 = 1 << 16;
/// Largest file that is opened.
pub const MAX_FILE: u64 = 1 << 40;

/// What a chunk holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ChunkKind {
    /// [`super::Header`], MessagePack.
    Header = 1,
    /// [`pg_event::CatalogDelta`], MessagePack.
    Catalog = 2,
    /// Events, columns.
    Events = 3,
    /// Duration and coverage, MessagePack.
    End = 4,
    /// Which chunks there are and which threads they hold, MessagePack.
    Index = 5,
    /// Offset of the index, 8 bytes.
    Footer = 6,
    /// [`super::Note`], MessagePack.
    Note = 7,
    /// [`super::DecisionLog`], MessagePack.
    Decisions = 8,
    /// Catalogue rows of frames, columns.
    Frames = 9,
    /// Catalogue rows of traces, columns.
    Traces = 10,
    /// [`super::GuardRule`], MessagePack.
    GuardRule = 11,
}

impl ChunkKind {
    /// By number; `None` for one that a newer version brought.
    pub fn from_u8(n: u8) -> Option<Self> {
        [
            Self::Header,
            Self::Catalog,
            Self::Events,
            Self::End,
            Self::Index,
            Self::Footer,
            Self::Note,
            Self::Decisions,
            Self::Frames,
            Self::Traces,
            Self::GuardRule,
        ]
        .into_iter()
        .find(|k| *k as u8 == n)
    }

    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Catalog => "catalogue",
            Self::Events => "events",
            Self::End => "end",
            Self::Index => "index",
            Self::Footer => "footer",
            Self::Note => "note",
            Self::Decisions => "decisions",
            Self::Frames => "frames",
            Self::Traces => "traces",
            Self::GuardRule => "guard rule",
        }
    }
}

/// What stands before each chunk's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Number of the [`ChunkKind`].
    pub kind: u8,
    /// Is the payload compressed with zstd (else stored)?
    pub zstd: bool,
    /// Bytes of the payload as stored.
    pub stored: u32,
    /// Bytes of the payload before compression.
    pub raw: u32,
    /// Rows (events).
    pub rows: u32,
    /// Earliest time in it.
    pub first: Ns,
    /// Latest time in it.
    pub last: Ns,
    /// CRC-32 of the stored payload.
    pub crc: u32,
}

impl Frame {
    /// As it stands in the file.
    pub fn to_bytes(self) -> [u8; FRAME_LEN] {
        let mut out = [0; FRAME_LEN];
        let mut at = 0;
        let mut put = |b: &[u8]| {
            out[at..at + b.len()].copy_from_slice(b);
            at += b.len();
        };
        put(&MARKER);
        put(&[self.kind, u8::from(self.zstd), 0, 0]);
        put(&self.stored.to_le_bytes());
        put(&self.raw.to_le_bytes());
        put(&self.rows.to_le_bytes());
        put(&self.first.to_le_bytes());
        put(&self.last.to_le_bytes());
        put(&self.crc.to_le_bytes());
        let own = crc32fast::hash(&out[..FRAME_LEN - 4]);
        out[FRAME_LEN - 4..].copy_from_slice(&own.to_le_bytes());
        out
    }

    /// Read the frame at `at`, and check every length in it against the file and the limits.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(file: &[u8], at: usize) -> Result<Self, String> {
        let Some(b) = at.checked_add(FRAME_LEN).and_then(|end| file.get(at..end)) else {
            return Err(format!(
                "a chunk's frame needs {FRAME_LEN} bytes, {} are left",
                file.len() - at.min(file.len())
            ));
        };
        if b[..4] != MARKER {
            return Err("no chunk begins here".into());
        }
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        if crc32fast::hash(&b[..FRAME_LEN - 4]) != u32_at(FRAME_LEN - 4) {
            return Err("the check sum of the chunk's frame is wrong".into());
        }
        let frame = Self {
            kind: b[4],
            zstd: b[5] & 1 == 1,
            stored: u32_at(8),
            raw: u32_at(12),
            rows: u32_at(16),
            first: u64_at(20),
            last: u64_at(28),
            crc: u32_at(36),
        };
        let left = file.len() - at - FRAME_LEN;
        if frame.stored as usize > left {
            return Err(format!("the chunk claims {} bytes, {left} are left in the file", frame.stored));
        }
        if frame.raw > MAX_RAW {
            return Err(format!(
                "the chunk claims {} bytes unpacked, at most {MAX_RAW} are allowed",
                frame.raw
            ));
        }
        if frame.rows > MAX_ROWS {
            return Err(format!("the chunk claims {} rows, at most {MAX_ROWS} are allowed", frame.rows));
        }
        if !frame.zstd && frame.stored != frame.raw {
            return Err(format!("the chunk claims {} bytes stored as {}", frame.raw, frame.stored));
        }
        Ok(frame)
    }

    /// The payload of the frame at `at`, checked and unpacked.
    ///
    /// # Errors
    /// It is cut off, its check sum is wrong, or it cannot be unpacked to the length that the frame claims.
    pub fn payload<'a>(&self, file: &'a [u8], at: usize) -> Result<std::borrow::Cow<'a, [u8]>, String> {
        let start = at + FRAME_LEN;
        let stored = file.get(start..start + self.stored as usize).ok_or("the chunk is cut off")?;
        if crc32fast::hash(stored) != self.crc {
            return Err("the check sum is wrong".into());
        }
        if !self.zstd {
            return Ok(stored.into());
        }
        let raw = zstd::bulk::decompress(stored, self.raw as usize)
            .map_err(|e| format!("cannot be unpacked: {e}"))?;
        if raw.len() != self.raw as usize {
            return Err(format!("unpacks to {} bytes instead of {}", raw.len(), self.raw));
        }
        Ok(raw.into())
    }
}

/// Frame and payload of a chunk, ready to be written.
pub fn chunk(
    kind: ChunkKind,
    raw: &[u8],
    rows: u32,
    first: Ns,
    last: Ns,
    packer: Option<&mut zstd::bulk::Compressor<'_>>,
) -> std::io::Result<Vec<u8>> {
    if raw.len() > MAX_RAW as usize {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "chunk too large"));
    }
    let mut packed = match packer {
        Some(p) => Some(p.compress(raw)?),
        None => None,
    };
    if packed.as_ref().is_some_and(|p| p.len() >= raw.len()) {
        packed = None;
    }
    let stored = packed.as_deref().unwrap_or(raw);
    let frame = Frame {
        kind: kind as u8,
        zstd: packed.is_some(),
        stored: stored.len() as u32,
        raw: raw.len() as u32,
        rows,
        first,
        last,
        crc: crc32fast::hash(stored),
    };
    let mut out = Vec::with_capacity(FRAME_LEN + stored.len());
    out.extend_from_slice(&frame.to_bytes());
    out.extend_from_slice(stored);
    Ok(out)
}
