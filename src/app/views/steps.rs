//! What a thread executed in a burst: a tree of calls and loops, and single steps.

use super::Move;
use crate::steps::source::Sources;
use crate::steps::{Row, Steps};
use pg_event::trace::{Flow, How};
use pg_event::{Ns, ThreadId};
use std::collections::HashSet;

/// A burst, ready to be shown.
#[derive(Debug)]
pub struct Shown {
    /// Who was followed.
    pub thread: ThreadId,
    /// From when until when.
    pub span: (Ns, Ns),
    /// How.
    pub how: How,
    /// It is not of the recording: it was made just now.
    pub now: bool,
    /// What was executed.
    pub steps: Steps,
    /// What it was compiled from, as far as it is here.
    pub source: Sources,
}

/// The burst shown, if one is.
#[derive(Debug, Default)]
pub struct StepsState {
    /// The burst.
    pub shown: Option<Shown>,
    /// The tree as it is shown.
    pub rows: Vec<Row>,
    /// Selected line of the tree.
    pub row: usize,
    /// First line of the tree shown.
    pub offset: usize,
    /// The step one is at.
    pub step: u32,
    closed: HashSet<u32>,
}

impl StepsState {
    /// Shows another one.
    pub fn open(&mut self, shown: Shown) {
        *self = Self { rows: shown.steps.rows(&HashSet::new()), shown: Some(shown), ..Self::default() };
    }

    /// Moves the selection in the tree, and with it the step.
    pub fn go(&mut self, by: Move, page: usize) {
        self.row = by.from(self.row, self.rows.len(), page);
        if let Some(r) = self.rows.get(self.row) {
            self.step = r.span.0;
        }
    }

    /// Goes to a step; the line of the tree follows.
    fn to(&mut self, step: u32) {
        let Some(s) = &self.shown else { return };
        self.step = step.min(s.steps.len().saturating_sub(1));
        if let Some(row) = s.steps.row_of(&self.rows, self.step) {
            self.row = row;
        }
    }

    /// One step on or back.
    pub fn by(&mut self, by: i32) {
        self.to(self.step.saturating_add_signed(by));
    }

    /// To the next or previous step that leads this way. `false`: there is none.
    pub fn find(&mut self, flow: Flow, back: bool) -> bool {
        let found = self.shown.as_ref().and_then(|s| s.steps.find(self.step, flow, back));
        if let Some(step) = found {
            self.to(step);
        }
        found.is_some()
    }

    /// Folds or opens the selected line; of one that cannot be, the one it belongs to.
    pub fn fold(&mut self) {
        let Some(s) = &self.shown else { return };
        let indent = self.rows.get(self.row).map_or(0, |r| r.indent);
        let foldable = |i: &usize| {
            self.rows.get(*i).is_some_and(|r| r.node.is_some() && (*i == self.row || r.indent < indent))
        };
        let Some(row) = (0..=self.row.min(self.rows.len().saturating_sub(1))).rev().find(foldable) else {
            return;
        };
        let Some(node) = self.rows[row].node else { return };
        if !self.closed.remove(&node) {
            self.closed.insert(node);
        }
        self.rows = s.steps.rows(&self.closed);
        self.row = row;
    }
}
