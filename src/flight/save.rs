//! Writes what a window holds to a session file.

use super::excerpt::Excerpt;
use super::window::{Snapshot, Window};
use crate::session::{Header, Note, Session, SessionError, Writer};
use pg_event::{CatalogDelta, Coverage, Event, Item, Kind, Loss, Ns, ThreadId};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// How the note of a file that the flight recorder kept begins.
pub const KEPT: &str = "kept by the flight recorder";

/// A file that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Events in it.
    pub events: u64,
    /// Time that it spans, ns.
    pub span: Ns,
}

/// Write what the window holds now to `path`, on a thread of its own: recording goes on meanwhile. `header` is
/// that of the whole recording; `why` is noted at `when`, on `thread`.
pub fn save(
    window: &Window,
    path: &Path,
    header: &Header,
    why: &str,
    when: Ns,
    thread: ThreadId,
) -> std::io::Result<JoinHandle<Result<Saved, SessionError>>> {
    let snapshot = window.snapshot();
    let (path, header) = (path.to_owned(), header.clone());
    let note = Note { id: 1, time: when, thread, text: why.to_owned(), bookmark: true, ..Note::default() };
    std::thread::Builder::new().name("pg-save".into()).spawn(move || {
        let was_there = std::fs::symlink_metadata(&path).is_ok();
        let saved = write(snapshot, &path, header, note);
        // A part of it on a full disk would keep the next one from being written, and --keep does not count it.
        if saved.is_err() && !was_there {
            let _ = std::fs::remove_file(&path);
        }
        saved
    })
}

/// Where to look for what the file was written for, as `pg-tui diagnose` is asked.
fn place(rows: &CatalogDelta, note: &Note) -> String {
    let thread = rows.threads.iter().find(|(id, _)| *id == note.thread).map(|(_, t)| t.tid);
    let Some(tid) = thread.filter(|tid| *tid != 0) else { return String::new() };
    format!(" (--tid {tid} --at {:.3})", note.time as f64 / 1e9)
}

pub(super) fn write(
    s: Snapshot,
    path: &Path,
    mut header: Header,
    mut note: Note,
) -> Result<Saved, SessionError> {
    let base = s.from;
    header.start_wall += base;
    header.clock_start += base;
    let mut excerpt = Excerpt::new(base);
    // What is alive belongs to it, whether it did anything or not.
    for (id, t) in s.catalog.threads() {
        if t.tid != 0 && t.end.is_none_or(|e| e >= base) {
            excerpt.thread(id);
        }
    }
    let mut loss = Loss::default();
    let mut visit = |events: &mut [Event]| {
        for e in events {
            if let Kind::Lost { count, ring, since } = e.kind {
                match ring {
                    1 => loss.stacks += count,
                    2 => loss.samples += count,
                    _ => loss.events += count,
                }
                loss.ns += e.time.saturating_sub(since.max(base));
            }
            excerpt.event(e);
        }
    };
    // Twice: rows come before the events that name them, and only the events tell which rows.
    let mut open = s.open;
    for e in &mut open {
        e.time = base;
    }
    visit(&mut open);
    for chunk in &s.chunks {
        visit(&mut chunk.events());
    }
    let mut rest = s.rest;
    visit(&mut rest);
    note.time = excerpt.time(note.time);
    note.thread = excerpt.thread(note.thread);
    let rows = excerpt.catalog(&s.catalog);
    let (stacks, frames) = (&rows.stacks, &rows.frames);
    let coverage = Coverage {
        loss,
        stacks_total: stacks.iter().filter(|s| !s.1.kernel).count() as u64,
        stacks_complete: stacks.iter().filter(|s| !s.1.kernel && !s.1.truncated).count() as u64,
        symbols_total: frames.len() as u64,
        symbols_resolved: frames.iter().filter(|f| !f.1.function.is_empty()).count() as u64,
        unnamed: 0,
        notes: vec![format!("{KEPT}: {}{}", note.text, place(&rows, &note))],
    };
    let mut writer = Writer::create(path, &header)?.at_leisure();
    writer.item(&Item::Catalog(rows))?;
    writer.item(&Item::Events(open))?;
    for chunk in &s.chunks {
        let mut events = chunk.events();
        for e in &mut events {
            excerpt.event(e);
        }
        writer.item(&Item::Events(events))?;
    }
    writer.item(&Item::Events(rest))?;
    let span = s.to.saturating_sub(base);
    writer.item(&Item::End { duration: span, coverage })?;
    let events = writer.events();
    writer.finish()?;
    let mut session = Session::open(path)?;
    session.append_note(note)?;
    Ok(Saved { path: path.to_owned(), bytes: session.len_bytes(), events, span })
}
