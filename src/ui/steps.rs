//! What a thread executed: the tree of calls and loops, and beside or below it the steps around the one one is at.

use super::parts::{Ui, left, nothing, put, right, rule, width};
use crate::app::time;
use crate::clean::clean_to;
use crate::config::Look;
use crate::steps::{LineKind, RowKind, grouped};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Where the lines of the tree and the single steps lie (each below its rule).
pub fn layout(body: Rect) -> (Rect, Rect) {
    let inner = Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body };
    if body.width >= 140 {
        let side = body.width / 2;
        let tree = Rect { width: body.width - side, ..inner };
        return (tree, Rect { x: tree.right(), width: side, ..inner });
    }
    let below = inner.height / 2;
    let tree = Rect { height: inner.height - below, ..inner };
    // Its own rule takes a line.
    let code = Rect { y: tree.bottom() + 1, height: below.saturating_sub(1), ..inner };
    (tree, code)
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = &ui.state.steps;
    let (Some(shown), Some(r)) = (&s.shown, ui.recording()) else {
        rule(ui, buffer, body, "Steps", "");
        nothing(ui, buffer, body, "No burst is chosen: a vertex lists those of its thread (record --steps).");
        return;
    };
    let when = if shown.now { "now, not kept".to_owned() } else { format!("at {}", time::at(shown.span.0)) };
    let title = format!("Steps: {} {when}", r.thread_name(shown.thread));
    let took = shown.span.1.saturating_sub(shown.span.0);
    let aside = format!("{} in {} {}", grouped(shown.steps.walk.steps), ui.length(took), shown.how.words());
    rule(ui, buffer, body, &title, &aside);
    let (tree, code) = layout(body);
    for (i, row) in s.rows.iter().enumerate().skip(s.offset).take(usize::from(tree.height)) {
        let selected = i == s.row;
        let line = tree_line(ui, row, shown.steps.walk.steps, usize::from(tree.width));
        put(ui, buffer, tree, tree.y + (i - s.offset) as u16, &line, selected);
    }
    let at = format!("step {} of {}", grouped(u64::from(s.step) + 1), grouped(shown.steps.walk.steps));
    let head = Rect { y: code.y.saturating_sub(1), height: 1, ..code };
    if code.y > tree.y {
        rule(ui, buffer, head, &at, shown.steps.trace.end.words());
    } else {
        rule(ui, buffer, head, &at, &aside);
    }
    around(ui, buffer, code);
}

fn tree_line(ui: &Ui, row: &crate::steps::Row, all: u64, columns: usize) -> Line<'static> {
    let (look, mark) = match (row.kind, ui.g.ascii) {
        (RowKind::Call, _) => (Look::Strong, ""),
        (RowKind::Loop, false) => (Look::WeakEdge, "↻ "),
        (RowKind::Loop, true) => (Look::WeakEdge, "@ "),
        (RowKind::Code, _) => (Look::Dim, ""),
        (RowKind::Syscall, false) => (Look::Running, "▸ "),
        (RowKind::Syscall, true) => (Look::Running, "! "),
    };
    let fold = match (row.node, row.closed) {
        (None, _) => " ",
        (Some(_), true) => "+",
        (Some(_), false) => "-",
    };
    let place = if columns >= 60 { row.place.as_str() } else { "" };
    let count = if row.kind == RowKind::Syscall { String::new() } else { time::percent(row.steps, all) };
    let tail = format!(" {}{}", left(place, width(place)), right(&count, 7));
    // Deep chains keep their end in sight.
    let most = columns / 3;
    let indent = if row.indent <= most {
        " ".repeat(row.indent)
    } else {
        format!("{}{} ", " ".repeat(most.saturating_sub(5)), row.indent)
    };
    let room = columns.saturating_sub(width(&tail) + width(&indent) + 4 + width(mark));
    let text = left(&clean_to(&ui.plain(&row.text), room), room);
    Line::from(vec![
        Span::raw(" "),
        Span::raw(indent),
        ui.span(Look::Key, format!("{fold} ")),
        ui.span(look, format!("{mark}{text}")),
        ui.span(Look::Dim, tail),
    ])
}

/// The steps around the one one is at.
fn around(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let s = &ui.state.steps;
    let Some(shown) = &s.shown else { return };
    let height = usize::from(area.height);
    if height == 0 {
        return;
    }
    let before = s.step.saturating_sub(height as u32);
    let lines = shown.steps.lines(before..s.step.saturating_add(height as u32), &shown.source);
    let here = lines.iter().position(|l| l.kind == LineKind::Step(s.step)).unwrap_or(0);
    let first = here.saturating_sub(height / 2).min(lines.len().saturating_sub(height));
    let columns = usize::from(area.width);
    for (y, l) in lines.iter().skip(first).take(height).enumerate() {
        let selected = l.kind == LineKind::Step(s.step);
        let mark = if matches!(l.kind, LineKind::Step(_)) { "→ " } else { "" };
        let note = if l.note.is_empty() { String::new() } else { ui.plain(&format!("  {mark}{}", l.note)) };
        let (look, text) = match l.kind {
            LineKind::Function => (Look::Title, format!(" {}", l.text)),
            LineKind::Source => (Look::Good, format!("  {}", l.text)),
            LineKind::Step(n) => (Look::Text, format!("  {:>6} {}", u64::from(n) + 1, l.text)),
        };
        let note = clean_to(&note, columns.saturating_sub(24).max(16));
        let room = columns.saturating_sub(width(&note) + 1);
        let line =
            Line::from(vec![ui.span(look, clean_to(&ui.plain(&text), room)), ui.span(Look::Dim, note)]);
        put(ui, buffer, area, area.y + y as u16, &line, selected);
    }
}
