//! The verdict: root causes in words, with what they stand on and what was not seen.

use super::parts::{Ui, more_lines, nothing, rule, wrap};
use crate::app::text;
use crate::clean::clean_to;
use crate::config::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The text, broken into lines.
pub fn lines(ui: &Ui, columns: u16) -> Vec<(Look, String)> {
    let width = usize::from(columns).saturating_sub(4).min(110);
    let mut out = Vec::new();
    for p in text::verdict(ui.state) {
        let indent = " ".repeat(p.indent);
        if p.cut {
            out.push((
                p.look,
                format!("{indent}{}", clean_to(&ui.plain(&p.text), width - p.indent.min(width))),
            ));
            continue;
        }
        for (i, line) in
            wrap(&ui.plain(&p.text), width.saturating_sub(p.indent).max(10)).into_iter().enumerate()
        {
            let hang = if i > 0 && p.hang { "  " } else { "" };
            out.push((p.look, format!("{indent}{hang}{line}")));
        }
    }
    out
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let d = &ui.state.diagnosis;
    if d.verdict().is_none() {
        rule(ui, buffer, body, "Verdict", "");
        nothing(ui, buffer, body, "No verdict yet: select a victim (V) and press enter.");
        return;
    }
    let lines = lines(ui, body.width);
    let room = usize::from(body.height).saturating_sub(1);
    let more = lines.len().saturating_sub(d.verdict_offset + room);
    let aside = if more > 0 { format!("{} below", more_lines(more)) } else { String::new() };
    rule(ui, buffer, body, "Verdict", &aside);
    for (i, (look, l)) in lines.iter().skip(d.verdict_offset).take(room).enumerate() {
        let columns = usize::from(body.width).saturating_sub(2);
        buffer.set_stringn(body.x + 2, body.y + 1 + i as u16, l, columns, ui.style(*look));
    }
}
