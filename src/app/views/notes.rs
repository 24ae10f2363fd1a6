//! Bookmarks and notes.

use crate::session::Note;

/// All of them.
#[derive(Debug, Default)]
pub struct NotesState {
    /// In order of time.
    pub notes: Vec<Note>,
    /// The selected one, by its identity.
    pub selected: Option<u32>,
    /// First one shown.
    pub offset: usize,
    /// Those that were deleted, the last one last.
    pub deleted: Vec<Note>,
}

impl NotesState {
    /// Row of the selected note.
    pub fn selected_row(&self) -> Option<usize> {
        self.notes.iter().position(|n| Some(n.id) == self.selected)
    }

    /// The selected note.
    pub fn current(&self) -> Option<&Note> {
        self.notes.get(self.selected_row()?)
    }

    /// Takes over what the session holds; the selection stays where it is or moves to a neighbour.
    pub fn set(&mut self, notes: Vec<Note>) {
        let row = self.selected_row().unwrap_or(0);
        self.notes = notes;
        if self.selected_row().is_none() {
            let row = row.min(self.notes.len().saturating_sub(1));
            self.selected = self.notes.get(row).map(|n| n.id);
        }
    }
}
