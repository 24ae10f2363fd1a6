//! Victims: what hung.

use super::Move;
use pg_graph::{Victim, VertexId};

/// Order of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// Most suspicious first.
    #[default]
    Rank,
    /// In order of time.
    Time,
    /// Longest first.
    Length,
    /// By thread.
    Thread,
}

impl Sort {
    /// The next order.
    pub fn next(self) -> Self {
        match self {
            Self::Rank => Self::Time,
            Self::Time => Self::Length,
            Self::Length => Self::Thread,
            Self::Thread => Self::Rank,
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Time => "time",
            Self::Length => "length",
            Self::Thread => "thread",
        }
    }
}

/// The list of victims.
#[derive(Debug, Default)]
pub struct VictimsState {
    /// The victims in the order shown.
    pub rows: Vec<Victim>,
    /// They have been looked for.
    pub known: bool,
    /// The selected one, by its vertex.
    pub selected: Option<VertexId>,
    /// First one shown.
    pub offset: usize,
    /// Order.
    pub sort: Sort,
    /// Of everybody, not only of the focus.
    pub everyone: bool,
}

impl VictimsState {
    /// Takes over what was found; the selection stays on its vertex.
    pub fn set(&mut self, rows: Vec<Victim>) {
        self.rows = rows;
        self.known = true;
        self.order();
        if self.selected_row().is_none() {
            self.selected = self.rows.first().map(|v| v.vertex);
        }
    }

    /// The selected victim.
    pub fn current(&self) -> Option<&Victim> {
        self.rows.get(self.selected_row()?)
    }

    /// Row of the selected victim.
    pub fn selected_row(&self) -> Option<usize> {
        self.rows.iter().position(|v| Some(v.vertex) == self.selected)
    }

    /// Moves the selection.
    pub fn go(&mut self, by: Move, page: usize) {
        let row = by.from(self.selected_row().unwrap_or(0), self.rows.len(), page);
        self.selected = self.rows.get(row).map(|v| v.vertex);
    }

    /// Changes the order.
    pub fn next_order(&mut self) {
        self.sort = self.sort.next();
        self.order();
    }

    fn order(&mut self) {
        match self.sort {
            Sort::Rank => self.rows.sort_by(|a, b| b.score.total_cmp(&a.score)),
            Sort::Time => self.rows.sort_by_key(|v| v.start),
            Sort::Length => self.rows.sort_by_key(|v| std::cmp::Reverse(v.duration)),
            Sort::Thread => self.rows.sort_by_key(|v| (v.thread, v.start)),
        }
    }
}
