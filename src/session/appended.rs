//! What people add to a session once it is recorded: notes, answers, and what they decided about guards.

use super::append::{Appending, Extra};
use super::format::ChunkKind;
use super::reader::{Chunk, Session, message};
use super::{DecisionLog, GuardRule, Note, SessionError};
use pg_event::{Frame, FrameId};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Rows of a chunk of names: some hundred kB.
const FRAMES_IN_A_CHUNK: usize = 4096;

/// All of it, the latest versions.
#[derive(Clone, Default)]
pub(super) struct Appended {
    notes: BTreeMap<u32, Note>,
    decisions: Vec<DecisionLog>,
    rules: Vec<GuardRule>,
    /// Frames that got a name after the recording was closed.
    pub(super) named: u64,
}

impl Appended {
    /// Take a chunk of one of these kinds over.
    pub(super) fn chunk(&mut self, kind: ChunkKind, file: &[u8], chunk: &Chunk) -> Result<(), String> {
        match kind {
            ChunkKind::Note => {
                let n = message::<Note>(file, chunk)?;
                self.notes.insert(n.id, n);
            }
            ChunkKind::Decisions => self.keep_decisions(message(file, chunk)?),
            ChunkKind::GuardRule => self.keep_rule(message(file, chunk)?),
            ChunkKind::Frames => self.named += u64::from(chunk.frame.rows),
            _ => {}
        }
        Ok(())
    }

    fn decisions_for(&self, log: &DecisionLog) -> Option<&DecisionLog> {
        self.decisions.iter().find(|l| (l.thread, l.start) == (log.thread, log.start))
    }

    fn keep_decisions(&mut self, log: DecisionLog) {
        self.decisions.retain(|l| (l.thread, l.start) != (log.thread, log.start));
        self.decisions.push(log);
    }

    fn keep_rule(&mut self, rule: GuardRule) {
        self.rules.retain(|r| r.unit_type != rule.unit_type);
        self.rules.push(rule);
    }
}

impl Session {
    /// Notes and bookmarks that were not removed, in order of time.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.appended.notes.values().filter(|n| !n.deleted).cloned().collect();
        notes.sort_by_key(|n| (n.time, n.id));
        notes
    }

    /// Decisions kept in the session, one log per victim, the latest last.
    pub fn decisions(&self) -> &[DecisionLog] {
        &self.appended.decisions
    }

    /// What was decided about the guards of types of units, one rule per type, the latest last.
    pub fn guard_rules(&self) -> &[GuardRule] {
        &self.appended.rules
    }

    /// Keep a note. `id` 0 gets a new id; another one replaces the note of that id, unless another pg-tui changed it since it
    /// was read: then both stay. Returns the id.
    ///
    /// # Errors
    /// Another pg-tui writes to the file ([`SessionError::Busy`]), or it cannot be written to.
    pub fn append_note(&mut self, mut note: Note) -> Result<u32, SessionError> {
        let read = self.appended.notes.get(&note.id).cloned();
        self.append(|a| {
            if note.id == 0 || a.notes.get(&note.id) != read.as_ref() {
                note.id = a.notes.keys().next_back().copied().unwrap_or(0).saturating_add(1);
            }
            Extra::Note(&note)
        })?;
        let id = note.id;
        self.appended.notes.insert(id, note);
        Ok(id)
    }

    /// Remove a note.
    ///
    /// # Errors
    /// Another pg-tui writes to the file ([`SessionError::Busy`]), or it cannot be written to.
    pub fn remove_note(&mut self, id: u32) -> Result<(), SessionError> {
        match self.appended.notes.get(&id).cloned() {
            Some(note) => self.append_note(Note { deleted: true, text: String::new(), ..note }).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Keep the answers given for a victim; they replace those kept for it before. Returns answers to the same that another
    /// pg-tui kept since the file was opened, if they differ.
    ///
    /// # Errors
    /// Another pg-tui writes to the file ([`SessionError::Busy`]), or it cannot be written to.
    pub fn append_decisions(&mut self, log: DecisionLog) -> Result<Option<DecisionLog>, SessionError> {
        let read = self.appended.decisions_for(&log).cloned();
        self.append(|_| Extra::Decisions(&log))?;
        let others =
            self.appended.decisions_for(&log).filter(|l| Some(*l) != read.as_ref() && **l != log).cloned();
        self.appended.keep_decisions(log);
        Ok(others)
    }

    /// How many frames got a name after the recording was closed ([`Session::append_names`]).
    pub fn named_since(&self) -> u64 {
        self.appended.named
    }

    /// Keep frames whose functions were found after the recording was closed, so that nobody looks for them again.
    ///
    /// # Errors
    /// Another pg-tui writes to the file ([`SessionError::Busy`]), or it cannot be written to.
    pub fn append_names(&mut self, frames: &[(FrameId, Frame)]) -> Result<(), SessionError> {
        for rows in frames.chunks(FRAMES_IN_A_CHUNK) {
            self.append(|_| Extra::Frames(rows))?;
            self.appended.named += rows.len() as u64;
        }
        Ok(())
    }

    /// Keep what was decided about the guard of a type; it replaces what was kept for that type before.
    ///
    /// # Errors
    /// Another pg-tui writes to the file ([`SessionError::Busy`]), or it cannot be written to.
    pub fn append_guard_rule(&mut self, rule: GuardRule) -> Result<(), SessionError> {
        self.append(|_| Extra::GuardRule(&rule))?;
        self.appended.keep_rule(rule);
        Ok(())
    }

    /// Append what `extra` makes of all that has been appended by then, by others too.
    fn append<'a>(&mut self, extra: impl FnOnce(&Appended) -> Extra<'a>) -> Result<(), SessionError> {
        let inner = self.inner.clone();
        let mut whole = inner.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = Appending::open(&inner.path, inner.id)?;
        *whole = file.others(*whole, &mut self.appended)?;
        whole.end = file.put(*whole, &extra(&self.appended))?;
        Ok(())
    }
}
