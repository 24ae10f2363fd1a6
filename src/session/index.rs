//! The index: which chunk holds which times and threads. It only saves work: without it (the recorder was
//! killed) it is made anew from the chunks' frames.

use super::column::{Col, Out};
use pg_event::ThreadId;
use serde::{Deserialize, Serialize};

/// As stored.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Index {
    pub(super) chunks: Vec<IndexEntry>,
}

/// About one event chunk.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct IndexEntry {
    /// Where its frame is.
    pub(super) offset: u64,
    /// The threads in it: sorted, delta-coded.
    #[serde(with = "bytes")]
    pub(super) threads: Vec<u8>,
}

impl IndexEntry {
    /// `threads` are sorted.
    pub(super) fn new(offset: u64, threads: &[u32]) -> Self {
        let mut out = Out::default();
        let mut last = 0;
        for &id in threads {
            out.u(u64::from(id - last));
            last = id;
        }
        Self { offset, threads: out.bytes().to_vec() }
    }

    /// The sorted ids, `None` when they make no sense.
    pub(super) fn thread_ids(&self) -> Option<Vec<ThreadId>> {
        let mut col = Col::new(&self.threads);
        let mut ids = Vec::new();
        let mut last = 0u32;
        while !col.is_empty() {
            last = last.checked_add(col.u32())?;
            ids.push(ThreadId(last));
        }
        (!col.is_bad()).then_some(ids)
    }
}

/// A byte string instead of a list of numbers.
mod bytes {
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(v: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(v)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        struct Visit;
        impl de::Visitor<'_> for Visit {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, v: &[u8]) -> Result<Self::Value, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E: de::Error>(self, v: Vec<u8>) -> Result<Self::Value, E> {
                Ok(v)
            }
        }
        d.deserialize_byte_buf(Visit)
    }
}
