//! Session files (`.pgs`): what a recording leaves behind.
//!
//! A file is a sequence of chunks, each with its length and check sum, appended while the recording runs
//! (see [`format`]). Events are columns ([`rows`]), frames of stacks ([`frames`]) and traces of
//! instructions ([`traces`]) too, the rest is MessagePack
//! with named fields. What comes
//! from a file is hostile until checked: lengths are bounded by the file's size and fixed limits, and
//! damage costs the chunk it is in, not the session.

mod append;
mod appended;
mod column;
mod compact;
mod create;
mod error;
pub mod format;
mod frames;
mod header;
mod index;
mod items;
mod load;
mod memory;
mod pending;
mod reader;
mod rows;
mod traces;
mod writer;

pub use compact::compact;
pub use create::{caller, give_to_caller, keep_old};
pub use error::{SessionError, Warning};
pub use header::{DecisionLog, GuardRule, Header, Note};
pub use items::{Items, RING_FILE};
pub use load::{Loaded, Progress, Symbols, info, load, load_session};
pub use memory::buffers_are_kept;
pub use reader::Session;
pub use writer::Writer;

/// The parsers by themselves, for fuzzing and property tests.
pub mod parse {
    use pg_event::Event;

    /// Decode the payload of an event chunk that claims `rows` rows.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn events(payload: &[u8], rows: u32) -> Result<Vec<Event>, String> {
        let mut out = Vec::new();
        super::rows::Decoder::default().decode(payload, rows, &mut out)?;
        Ok(out)
    }

    /// Encode events as the payload of a chunk; how many rows it has.
    pub fn encode(events: &[Event]) -> (Vec<u8>, u32) {
        let mut encoder = super::rows::Encoder::default();
        for event in events {
            encoder.push(event);
        }
        let payload = encoder.finish();
        (payload.raw, payload.rows)
    }

    /// Decode the payload of a chunk of traces.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn traces(payload: &[u8]) -> Result<Vec<(pg_event::TraceId, pg_event::Trace)>, String> {
        super::traces::decode(payload)
    }

    /// Encode traces as the payload of a chunk.
    pub fn encode_traces(traces: &[(pg_event::TraceId, pg_event::Trace)]) -> Vec<u8> {
        super::traces::encode(traces)
    }

    /// Open a session that is in memory.
    ///
    /// # Errors
    /// See [`super::Session::from_bytes`].
    pub fn session(bytes: &[u8]) -> Result<super::Session, super::SessionError> {
        super::Session::from_bytes(bytes)
    }
}

#[cfg(test)]
mod tests;
