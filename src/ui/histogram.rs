//! How long the units of a type took: bars over a logarithmic axis of time, with the threshold and one unit marked.

use super::parts::{Ui, width};
use crate::config::Look;
use pg_event::{Ns, UnitTypeRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// One in so many units may take less than the axis begins with.
const FEW: u128 = 200;

/// What is drawn.
pub struct Distribution<'a> {
    /// What was learnt of the type.
    pub learnt: &'a UnitTypeRow,
    /// How long its units may take, ns.
    pub threshold: Ns,
    /// How long the unit looked at took, ns.
    pub unit: Ns,
}

/// A logarithmic axis of `columns` from `low` to `high`.
struct Axis {
    low: f64,
    high: f64,
    columns: usize,
}

impl Axis {
    fn column(&self, ns: Ns) -> usize {
        let share = ((ns.max(1) as f64).ln() - self.low) / (self.high - self.low);
        ((share * self.columns as f64) as usize).min(self.columns - 1)
    }
}

impl Distribution<'_> {
    fn axis(&self, columns: usize) -> Axis {
        let steps = &self.learnt.histogram;
        let total: u128 = steps.iter().map(|s| u128::from(s.2)).sum();
        // A few units that took next to nothing would leave little room for the others: they stand at the edge.
        let mut before = 0;
        let first = steps.iter().find(|s| {
            before += u128::from(s.2);
            before * FEW > total
        });
        let marks = [self.threshold.max(1), self.unit.max(1)];
        let low = first.map(|s| s.0).into_iter().chain(marks).min().unwrap_or(1).max(1);
        let high = steps.iter().map(|s| s.1).chain(marks).max().unwrap_or(1);
        // A little room on both sides, so that marks at the ends are seen as such.
        let (low, high) = ((low as f64).ln() - 0.1, (high as f64).ln() + 0.1);
        Axis { low, high, columns }
    }

    /// Units by column. A step that is wider than a column is spread over those that it covers.
    fn counts(&self, axis: &Axis) -> Vec<f64> {
        let mut out = vec![0.0; axis.columns];
        for &(least, greatest, n) in &self.learnt.histogram {
            let (a, b) = (axis.column(least), axis.column(greatest.max(least)));
            let share = n as f64 / (b - a + 1) as f64;
            out[a..=b].iter_mut().for_each(|c| *c += share);
        }
        out
    }

    /// Draws it: bars, then a line with the marks. The height of a bar grows with the logarithm of its count.
    pub fn draw(&self, ui: &Ui, buffer: &mut Buffer, area: Rect) {
        let columns = usize::from(area.width.saturating_sub(2));
        if columns < 10 || area.height < 2 {
            return;
        }
        let axis = self.axis(columns);
        let counts = self.counts(&axis);
        let bars = usize::from(area.height) - 1;
        let most = counts.iter().copied().fold(0.0, f64::max);
        let scale = (1.0 + most).ln().max(f64::MIN_POSITIVE);
        let (may, took) = (axis.column(self.threshold), axis.column(self.unit));
        let level = |n: f64| {
            if n <= 0.0 { 0 } else { (((1.0 + n).ln() / scale) * (bars * 8) as f64).ceil() as usize }
        };
        for row in 0..bars {
            let below = (bars - 1 - row) * 8;
            let cell = |(c, n): (usize, &f64)| {
                let above = level(*n).saturating_sub(below).min(8);
                match (above, c == may) {
                    (0, true) => ui.span(Look::Warning, ui.g.vertical),
                    (0, false) => Span::raw(" "),
                    // Beyond the threshold units took too long while it was learnt, too.
                    (n, _) if c > may => ui.span(Look::Victim, ui.g.spark[n - 1]),
                    (n, _) => ui.span(Look::Running, ui.g.spark[n - 1]),
                }
            };
            let spans: Vec<Span> = counts.iter().enumerate().map(cell).collect();
            buffer.set_line(area.x + 1, area.y + row as u16, &Line::from(spans), area.width - 2);
        }
        let line = |c: usize| match c {
            c if c == took => ui.span(Look::Victim, ui.g.up),
            c if c == may => ui.span(Look::Warning, ui.g.vertical),
            _ => ui.span(Look::Border, ui.g.border.horizontal_top),
        };
        let y = area.bottom() - 1;
        buffer.set_line(
            area.x + 1,
            y,
            &Line::from((0..columns).map(line).collect::<Vec<_>>()),
            area.width - 2,
        );
        // The ends of the axis, where no mark is in the way.
        let ends = [axis.low, axis.high].map(|e| ui.length(e.exp() as Ns));
        for (text, from) in [(&ends[0], 1), (&ends[1], columns.saturating_sub(width(&ends[1]) + 1))] {
            let text = format!(" {text} ");
            let over = from..from + width(&text);
            if !over.contains(&took) && !over.contains(&may) && over.end <= columns {
                buffer.set_string(area.x + 1 + from as u16, y, text, ui.style(Look::Dim));
            }
        }
    }

    /// What the marks mean, and the figures of the type.
    pub fn legend(&self, ui: &Ui) -> Line<'static> {
        let l = self.learnt;
        let rule = if l.rule.is_empty() || l.threshold != self.threshold {
            String::new()
        } else {
            format!(" ({})", crate::clean::clean_to(&ui.plain(&l.rule), 24))
        };
        let learnt = if l.units == 0 {
            String::new()
        } else {
            format!("   {} units, mean {}", crate::app::time::count(l.units), ui.length(l.mean))
        };
        Line::from(vec![
            Span::raw(" "),
            ui.span(Look::Victim, format!("{} took {}", ui.g.up, ui.length(self.unit))),
            Span::raw("  "),
            ui.span(Look::Warning, format!("{} may take {}{rule}", ui.g.vertical, ui.length(self.threshold))),
            ui.span(Look::Dim, learnt),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_few_that_took_nothing_do_not_stretch_the_axis() {
        let steps = |n| vec![(0, 0, n), (1_000_000, 1_100_000, 1_000), (2_000_000, 2_100_000, 1_000)];
        let left = |n| {
            let learnt = UnitTypeRow { histogram: steps(n), ..UnitTypeRow::default() };
            let d = Distribution { learnt: &learnt, threshold: 3_000_000, unit: 9_000_000 };
            let counts = d.counts(&d.axis(100));
            (counts[0], counts.iter().rposition(|c| *c > 0.0).unwrap())
        };
        let (few, many) = (left(10), left(100));
        assert!(few.0 >= 10.0 && few.1 < 50, "{few:?}");
        assert!(many.1 > 80, "where they are many they are told: {many:?}");
    }

    proptest! {
        /// No unit is lost between the columns, whatever a damaged file says.
        #[test]
        fn bars_hold_all_units(
            histogram in prop::collection::vec((any::<u64>(), any::<u64>(), 0..1_000_000u64), 0..20),
            (threshold, unit, columns) in (any::<u64>(), any::<u64>(), 1usize..300),
        ) {
            let learnt = UnitTypeRow { histogram, ..UnitTypeRow::default() };
            let d = Distribution { learnt: &learnt, threshold, unit };
            let axis = d.axis(columns);
            let total: f64 = d.counts(&axis).iter().sum();
            let whole: f64 = learnt.histogram.iter().map(|s| s.2 as f64).sum();
            prop_assert!((total - whole).abs() <= 1e-6 * whole.max(1.0));
            prop_assert!(axis.column(threshold) < columns && axis.column(unit) < columns);
        }
    }
}
