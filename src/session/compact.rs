//! Writes a closed recording again in full chunks. While it runs, a recording is written every second, so
//! that it survives whatever comes; a short one then consists of many small chunks that repeat names.

use super::Session;
use super::error::SessionError;
use super::writer::Writer;
use pg_event::{Catalog, Item};
use std::path::{Path, PathBuf};

/// Longer recordings have full chunks anyway, and writing them again takes time.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// Fewer chunks are not worth it.
const MIN_CHUNKS: usize = 3;

/// Write the recording at `path` anew, if that pays. The old file is replaced at once when the new one is
/// whole; when anything goes wrong it stays. Returns the length of the new file.
pub fn compact(path: &Path) -> Option<u64> {
    let session = Session::open(path).ok()?;
    let small = session.len_bytes() <= MAX_BYTES && session.inner.chunks.len() >= MIN_CHUNKS;
    if !small || !session.is_closed() || !session.warnings().is_empty() {
        return None;
    }
    let mut name = path.file_name()?.to_owned();
    name.push(".tmp");
    let beside = path.with_file_name(name);
    let written = write(&session, &beside);
    let result = written.and_then(|n| {
        if n >= session.len_bytes() {
            return Err(SessionError::Stopped { path: beside.clone() });
        }
        let failed = |source| SessionError::Io { path: beside.clone(), action: "rename it", source };
        std::fs::rename(&beside, path).map_err(failed)?;
        Ok(n)
    });
    match result {
        Ok(n) => Some(n),
        Err(e) => {
            tracing::info!("the recording stays as it was written: {e}");
            remove(&beside);
            None
        }
    }
}

fn remove(path: &PathBuf) {
    // It need not be there.
    let _ = std::fs::remove_file(path);
}

fn write(session: &Session, to: &Path) -> Result<u64, SessionError> {
    let mut catalog = Catalog::default();
    let mut writer = Writer::create(to, session.header())?.at_leisure();
    for item in session.items() {
        if let Item::Catalog(d) = item {
            catalog.apply(d);
        }
    }
    writer.item(&Item::Catalog(catalog.into()))?;
    let mut items = session.items();
    for item in items.by_ref() {
        match item {
            Item::Catalog(_) => {}
            other => writer.item(&other)?,
        }
    }
    if let Some(w) = items.warnings().first() {
        return Err(SessionError::Damaged {
            path: to.to_owned(),
            offset: w.offset,
            reason: w.reason.clone(),
        });
    }
    writer.finish()
}
