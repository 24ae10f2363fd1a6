//! Units of work that took too long, and two of them side by side.

use super::Move;
use crate::app::recording::Recording;
use crate::unit_rule::UnitRule;
use pg_event::{Ns, UnitTypeId};
use pg_graph::{Comparison, ViolationFact};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Order of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// Most excess first.
    #[default]
    Excess,
    /// In order of time.
    Time,
    /// By type, each type's most excess first.
    Type,
    /// Those first that waited longest before they were taken.
    Queued,
}

impl Sort {
    /// The next one; whether they were queued is not known in every recording.
    fn next(self, queued: bool) -> Self {
        match self {
            Self::Excess => Self::Time,
            Self::Time => Self::Type,
            Self::Type if queued => Self::Queued,
            Self::Type | Self::Queued => Self::Excess,
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Excess => "excess",
            Self::Time => "time",
            Self::Type => "type",
            Self::Queued => "time queued",
        }
    }
}

/// The list of violations.
#[derive(Debug, Default)]
pub struct ViolationsState {
    /// In the order shown: the number of each in the recording, from 0, and itself.
    pub rows: Vec<(usize, ViolationFact)>,
    /// Of each by its number, how long it waited from when it was handed on until it was taken; `None` where that is not
    /// known.
    pub queued: Vec<Option<Ns>>,
    /// Number of the selected one.
    pub selected: usize,
    /// First line shown.
    pub offset: usize,
    /// Order.
    pub sort: Sort,
    /// What was decided about the guards of types.
    pub rules: HashMap<UnitTypeId, UnitRule>,
}

impl ViolationsState {
    /// Takes over those of a recording.
    pub fn open(&mut self, r: &Recording) {
        self.rows = r.graph.violations().iter().copied().enumerate().collect();
        let handed_on = |v: &ViolationFact| r.graph.handed_on(&r.catalog, v.thread, v.time);
        self.queued =
            r.graph.violations().iter().map(|v| handed_on(v).map(|h| h.hand_over.queued())).collect();
        self.rules = r.guard_rules();
        self.order(r);
        self.selected = self.rows.first().map_or(0, |r| r.0);
    }

    /// Line of the selected one.
    pub fn selected_row(&self) -> Option<usize> {
        self.rows.iter().position(|r| r.0 == self.selected)
    }

    /// The selected one.
    pub fn current(&self) -> Option<&ViolationFact> {
        self.rows.get(self.selected_row()?).map(|r| &r.1)
    }

    /// Moves the selection.
    pub fn go(&mut self, by: Move, page: usize) {
        let row = by.from(self.selected_row().unwrap_or(0), self.rows.len(), page);
        self.selected = self.rows.get(row).map_or(0, |r| r.0);
    }

    /// Changes the order.
    pub fn next_order(&mut self, r: &Recording) {
        self.sort = self.sort.next(self.knows_queued());
        self.order(r);
    }

    /// How long one waited before it was taken, by its number.
    pub fn queued(&self, number: usize) -> Option<Ns> {
        self.queued.get(number).copied().flatten()
    }

    /// Is that known of any?
    pub fn knows_queued(&self) -> bool {
        self.queued.iter().any(Option::is_some)
    }

    fn order(&mut self, r: &Recording) {
        let excess = |v: &ViolationFact| Reverse((v.excess() * 1000.0) as u64);
        match self.sort {
            Sort::Excess => self.rows.sort_by_key(|(n, v)| (excess(v), *n)),
            Sort::Time => self.rows.sort_by_key(|r| r.0),
            Sort::Queued => {
                let queued = &self.queued;
                self.rows.sort_by_key(|(n, v)| (Reverse(queued.get(*n).copied().flatten()), excess(v), *n));
            }
            Sort::Type => self.rows.sort_by_cached_key(|(n, v)| (r.unit_type(v.unit_type), excess(v), *n)),
        }
    }

    /// Would the unit still count as too slow, by what was decided about its type since?
    pub fn counts(&self, r: &Recording, v: &ViolationFact) -> bool {
        let Some(rule) = self.rules.get(&v.unit_type) else { return true };
        let row = r.catalog.unit_type(v.unit_type);
        match rule {
            UnitRule::Silence => false,
            rule @ UnitRule::Limit(_) => {
                row.and_then(|t| rule.threshold(t)).is_none_or(|most| v.duration() > most)
            }
        }
    }
}

/// Two units side by side.
#[derive(Debug, Default)]
pub struct UnitsState {
    /// The slow one, and how it compares with the normal one of its type.
    pub shown: Option<(ViolationFact, Comparison)>,
    /// Selected part.
    pub row: usize,
    /// First line shown.
    pub offset: usize,
}

impl UnitsState {
    /// Shows another one.
    pub fn open(&mut self, v: ViolationFact, c: Comparison) {
        *self = Self { shown: Some((v, c)), ..Self::default() };
    }

    /// Moves the selection.
    pub fn go(&mut self, by: Move, page: usize) {
        let parts = self.shown.as_ref().map_or(0, |s| s.1.parts.len());
        self.row = by.from(self.row, parts, page);
    }
}
