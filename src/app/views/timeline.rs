//! The timeline: threads over time, from the whole recording down to a microsecond.

use super::scrolled;
use crate::app::recording::Recording;
use pg_event::{Ns, ProcessId, ThreadId};
use pg_graph::VertexId;
use std::collections::HashSet;

/// A line of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// The name of a process with several threads.
    Process(ProcessId),
    /// A lane. `true`: under the name of its process.
    Thread(ThreadId, bool),
}

/// What the timeline shows.
#[derive(Debug, Default)]
pub struct TimelineState {
    /// Begin of what is shown.
    pub from: Ns,
    /// End of what is shown.
    pub to: Ns,
    /// The cursor's moment.
    pub cursor: Ns,
    /// The cursor's thread.
    pub thread: Option<ThreadId>,
    /// A marked span: where it began, and its end once that is set.
    pub mark: Option<(Ns, Option<Ns>)>,
    /// Show only these threads.
    pub only: Option<HashSet<ThreadId>>,
    /// The lines, in the order shown.
    pub rows: Vec<Row>,
    /// First line shown.
    pub offset: usize,
}

/// The least that can be shown.
pub const SHORTEST: Ns = 1_000;

impl TimelineState {
    /// Shows the whole recording.
    pub fn open(&mut self, r: &Recording) {
        (self.from, self.to) = (0, r.graph.duration().max(SHORTEST));
        self.list(r);
        if self.thread.is_none() {
            let first = self.lanes().next();
            self.thread = first;
        }
    }

    /// Makes the lines.
    pub fn list(&mut self, r: &Recording) {
        self.rows.clear();
        for g in r.groups() {
            let shown: Vec<ThreadId> = g
                .threads
                .iter()
                .copied()
                .filter(|t| self.only.as_ref().is_none_or(|o| o.contains(t)))
                .collect();
            let several = g.threads.len() > 1;
            if several && !shown.is_empty() {
                self.rows.push(Row::Process(g.process));
            }
            self.rows.extend(shown.into_iter().map(|t| Row::Thread(t, several)));
        }
    }

    /// The threads of the lanes.
    pub fn lanes(&self) -> impl DoubleEndedIterator<Item = ThreadId> + '_ {
        self.rows.iter().filter_map(|r| match r {
            Row::Thread(t, _) => Some(*t),
            Row::Process(_) => None,
        })
    }

    /// Length of what is shown.
    pub fn shown(&self) -> Ns {
        self.to.saturating_sub(self.from).max(1)
    }

    /// Line of the cursor's thread.
    pub fn row(&self) -> Option<usize> {
        let t = self.thread?;
        self.rows.iter().position(|r| matches!(r, Row::Thread(x, _) if *x == t))
    }

    /// The vertex under the cursor.
    pub fn vertex(&self, r: &Recording) -> Option<VertexId> {
        r.graph.vertex_at(self.thread?, self.cursor)
    }

    /// To another lane, this many down; process names are passed over.
    pub fn lane(&mut self, by: isize) {
        let lanes: Vec<ThreadId> = self.lanes().collect();
        let at = lanes.iter().position(|t| Some(*t) == self.thread).unwrap_or(0);
        if let Some(t) = lanes.get(at.saturating_add_signed(by).min(lanes.len().saturating_sub(1))) {
            self.thread = Some(*t);
        }
    }

    /// The length of time a column covers, at least 1 ns.
    pub fn step(&self, columns: usize) -> Ns {
        (self.shown() / columns.max(1) as u64).max(1)
    }

    /// The moment in the middle of a column.
    pub fn time_at(&self, column: usize, columns: usize) -> Ns {
        let n = columns.max(1) as u128;
        let half = u128::from(self.shown()) * (2 * column as u128 + 1) / (2 * n);
        (self.from + half as Ns).min(self.to)
    }

    /// The column of a moment; none when it is not shown.
    pub fn column(&self, time: Ns, columns: usize) -> Option<usize> {
        if time < self.from || time > self.to || columns == 0 {
            return None;
        }
        let c = u128::from(time - self.from) * columns as u128 / u128::from(self.shown());
        Some((c as usize).min(columns - 1))
    }

    /// Moves the cursor by columns, and what is shown when it would leave the screen.
    pub fn move_cursor(&mut self, by: isize, columns: usize, end: Ns) {
        let step = self.step(columns) as i128;
        let to = i128::from(self.cursor) + step * by as i128;
        self.cursor = to.clamp(0, i128::from(end)) as Ns;
        self.reveal(end);
    }

    /// Brings the cursor on the screen.
    pub fn reveal(&mut self, end: Ns) {
        let shown = self.shown();
        if self.cursor < self.from || self.cursor > self.to {
            let margin = shown / 4;
            let from = if self.cursor < self.from {
                self.cursor.saturating_sub(margin)
            } else {
                self.cursor.saturating_sub(shown - margin)
            };
            self.show(from, shown, end);
        }
    }

    /// Shows `shown` ns from `from` on, within the recording.
    fn show(&mut self, from: Ns, shown: Ns, end: Ns) {
        let end = end.max(SHORTEST);
        let shown = shown.clamp(SHORTEST, end);
        self.from = from.min(end - shown);
        self.to = self.from + shown;
    }

    /// Shows half (`true`) or twice the time; the cursor stays where it is on the screen.
    pub fn zoom(&mut self, nearer: bool, end: Ns) {
        let old = self.shown();
        let new = if nearer { old / 2 } else { old.saturating_mul(2) }.clamp(SHORTEST, end.max(SHORTEST));
        let cursor = self.cursor.clamp(self.from, self.to);
        let left = u128::from(cursor - self.from) * u128::from(new) / u128::from(old);
        self.show(cursor.saturating_sub(left as Ns), new, end);
    }

    /// Fits a span with a little around it.
    pub fn fit(&mut self, span: (Ns, Ns), end: Ns) {
        let length = span.1.saturating_sub(span.0);
        let margin = (length / 8).max(SHORTEST / 2);
        self.show(span.0.saturating_sub(margin), length.saturating_add(2 * margin), end);
    }

    /// Moves what is shown by quarters of the screen; the cursor moves along.
    pub fn pan(&mut self, quarters: isize, end: Ns) {
        let by = (self.shown() / 4).max(1) as i128 * quarters as i128;
        let from = (i128::from(self.from) + by).max(0) as Ns;
        let before = self.from;
        self.show(from, self.shown(), end);
        let moved = i128::from(self.from) - i128::from(before);
        self.cursor = (i128::from(self.cursor) + moved).clamp(0, i128::from(end)) as Ns;
    }

    /// The marked span, begin first, when it has both ends; the cursor stands for an end not set yet.
    pub fn marked(&self) -> Option<(Ns, Ns)> {
        let (a, b) = self.mark?;
        let b = b.unwrap_or(self.cursor);
        (a != b).then_some((a.min(b), a.max(b)))
    }

    /// Keeps the cursor's lane among the `height` lines shown.
    pub fn scroll(&mut self, height: usize) {
        let row = self.row().unwrap_or(0);
        self.offset = scrolled(self.offset, row, self.rows.len(), height);
        // The name of its process belongs to a lane.
        if self.offset == row
            && row > 0
            && matches!(self.rows.get(row - 1), Some(Row::Process(_)))
            && height > 1
        {
            self.offset -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(from: Ns, to: Ns, cursor: Ns) -> TimelineState {
        TimelineState { from, to, cursor, ..TimelineState::default() }
    }

    #[test]
    fn zooming_keeps_the_cursor_in_place() {
        let mut t = shown(0, 1_000_000, 250_000);
        t.zoom(true, 1_000_000);
        assert_eq!((t.from, t.to), (125_000, 625_000));
        assert_eq!(t.column(t.cursor, 100), Some(25));
        t.zoom(false, 1_000_000);
        assert_eq!((t.from, t.to), (0, 1_000_000));
        for _ in 0..40 {
            t.zoom(true, 1_000_000);
        }
        assert_eq!(t.shown(), SHORTEST);
    }

    #[test]
    fn fitting_a_span_shows_it_whole() {
        let mut t = shown(0, 1_000_000_000, 0);
        t.fit((400_000, 500_000), 1_000_000_000);
        assert!(t.from < 400_000 && t.to > 500_000 && t.shown() < 200_000);
    }

    proptest! {
        #[test]
        fn any_way_through_time_stays_inside(
            end in 1u64..u64::MAX / 4,
            steps in prop::collection::vec((0u8..6, -300isize..300), 0..60),
            columns in 1usize..300,
        ) {
            let mut t = shown(0, end.max(SHORTEST), end / 3);
            for (what, n) in steps {
                match what {
                    0 => t.zoom(true, end),
                    1 => t.zoom(false, end),
                    2 => t.pan(n % 9, end),
                    3 => t.move_cursor(n, columns, end),
                    4 => t.fit((t.cursor, t.cursor.saturating_add(n.unsigned_abs() as u64)), end),
                    _ => t.reveal(end),
                }
                prop_assert!(t.from < t.to && t.to <= end.max(SHORTEST));
                prop_assert!(t.cursor <= end);
                if let Some(c) = t.column(t.cursor, columns) {
                    prop_assert!(c < columns);
                }
                for c in [0, columns - 1] {
                    let time = t.time_at(c, columns);
                    prop_assert!(t.from <= time && time <= t.to);
                }
            }
        }
    }
}
