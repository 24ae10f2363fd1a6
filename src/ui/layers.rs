//! What lies over a view.

use super::help;
use super::parts::{Ui, left, more_lines, pointer, put, width, wrap};
use crate::app::layer::{Layer, Palette, SearchBox};
use crate::app::state::{State, View};
use crate::app::text;
use crate::app::views::scrolled;
use crate::clean::{clean, clean_to};
use crate::config::Look;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

/// Where a layer lies: most of a small screen, the middle of a large one, and no more of it than there is to
/// read.
fn area(ui: &Ui, body: Rect, layer: &Layer) -> Rect {
    let width = body.width.min(110);
    let most = if body.height < 30 { body.height } else { (body.height * 4 / 5).max(18) };
    let height = match layer {
        Layer::Note(_) | Layer::Guard(_) => 5.min(body.height),
        Layer::WhyNot(_) => {
            most.min(why_not_lines(ui, usize::from(width).saturating_sub(2)).len() as u16 + 2)
        }
        _ => most,
    };
    Rect { x: body.x + (body.width - width) / 2, y: body.y + (body.height - height) / 3, width, height }
}

fn inner(area: Rect) -> Rect {
    Rect {
        x: area.x + 1,
        y: area.y + 1,
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// Keeps offsets of scrolled text within it.
pub fn prepare(state: &mut State, body: Rect) {
    let Some(layer) = state.layers.last() else { return };
    let ui = Ui::new(state);
    let inside = inner(area(&ui, body, layer));
    let len = match layer {
        Layer::Help(h) => {
            // The line that is typed takes one.
            help::lines(&ui, h.context, h.find.text(), usize::from(inside.width)).len()
                + usize::from(h.is_searched())
        }
        Layer::WhyNot(_) => why_not_lines(&ui, usize::from(inside.width)).len(),
        Layer::Flag(lines, _) => flag_lines(&ui, lines, usize::from(inside.width)).len(),
        _ => return,
    };
    let most = len.saturating_sub(usize::from(inside.height));
    match state.layers.last_mut() {
        Some(Layer::Help(h)) => h.offset = h.offset.min(most),
        Some(Layer::WhyNot(offset) | Layer::Flag(_, offset)) => *offset = (*offset).min(most),
        _ => {}
    }
}

/// Where the list of the topmost layer lies, and its first line shown.
pub fn list(state: &State, body: Rect) -> Option<(Rect, usize)> {
    let layer = state.layers.last()?;
    let inside = inner(area(&Ui::new(state), body, layer));
    let rows = Rect { y: inside.y + 1, height: inside.height.saturating_sub(1), ..inside };
    let (rows, selected, len) = match layer {
        Layer::Palette(p) => (palette_areas(inside).0, p.selected, p.rows.len()),
        Layer::Search(s) => (rows, s.selected, s.hits.len()),
        _ => return None,
    };
    Some((rows, scrolled(0, selected, len, usize::from(rows.height))))
}

/// Draws a layer.
pub fn draw(ui: &Ui, frame: &mut Frame, body: Rect, layer: &Layer) {
    let area = area(ui, body, layer);
    let title = match layer {
        Layer::Help(h) => format!(" Help: {} ", h.context),
        Layer::Palette(_) => " Command ".into(),
        Layer::Search(s) if s.busy => " Find: searching ".into(),
        Layer::Search(s) => {
            // Dim is not seen on every terminal, nor explains itself.
            let (shown, all) = (s.hits.len(), s.total);
            match s.hits.iter().filter(|h| h.far).count() {
                0 => format!(" Find: {shown} of {all} shown "),
                far if far == shown => format!(" Find: {shown} of {all} shown, not of the focus "),
                far => {
                    // Whoever is called as was typed comes first, of the focus or not.
                    let last = s.hits.is_sorted_by_key(|h| h.far);
                    let (brief, long) = if last { ("last ", "the last ") } else { ("", "") };
                    match area.width {
                        0..60 => format!(" Find: {shown}, {brief}{far} not of focus "),
                        _ => format!(" Find: {shown} of {all} shown, {long}{far} not of the focus "),
                    }
                }
            }
        }
        Layer::Note(_) => " Note, kept in the session ".into(),
        Layer::Guard(_) => " How long may units of this type take? ".into(),
        Layer::WhyNot(_) => " Why not the others? ".into(),
        Layer::Flag(..) => " The flag that it asks ".into(),
    };
    let buffer = frame.buffer_mut();
    Clear.render(area, buffer);
    Block::bordered()
        .border_set(ui.g.border)
        .border_style(ui.style(Look::Border))
        .title(title)
        .title_style(ui.style(Look::Title))
        .render(area, buffer);
    let inside = inner(area);
    if inside.width == 0 || inside.height == 0 {
        return;
    }
    match layer {
        Layer::Help(h) => {
            let lines = help::lines(ui, h.context, h.find.text(), usize::from(inside.width));
            let typed = u16::from(h.is_searched());
            let below = Rect { y: inside.y + typed, height: inside.height - typed, ..inside };
            scrolled_lines(ui, buffer, below, &lines, h.offset);
            if h.typing {
                typing(ui, frame, inside, h.find.text(), "/");
            } else if h.is_searched() {
                let text = format!("/ {}", ui.plain(h.find.text()));
                buffer.set_stringn(inside.x, inside.y, text, usize::from(inside.width), ui.style(Look::Dim));
            }
        }
        Layer::WhyNot(offset) => {
            scrolled_lines(ui, buffer, inside, &why_not_lines(ui, usize::from(inside.width)), *offset);
        }
        Layer::Flag(lines, offset) => {
            scrolled_lines(ui, buffer, inside, &flag_lines(ui, lines, usize::from(inside.width)), *offset);
        }
        Layer::Palette(p) => {
            palette(ui, buffer, inside, p);
            typing(ui, frame, inside, p.line.text(), ":");
        }
        Layer::Search(s) => {
            search(ui, buffer, inside, s);
            typing(ui, frame, inside, s.line.text(), "/");
        }
        Layer::Guard(g) => {
            let name = ui.recording().map_or_else(String::new, |r| r.unit_type(g.unit_type));
            about(ui, buffer, inside, &format!("{name}: 40ms, k=5, p99.9, auto (as learnt) or silence"));
            typing(ui, frame, inside, g.line.text(), ">");
        }
        Layer::Note(n) => {
            let who = ui.recording().map_or("", |r| r.thread_name(n.thread));
            let text = format!("on {who} at {}; enter keeps it, esc does not", crate::app::time::at(n.time));
            about(ui, buffer, inside, &text);
            typing(ui, frame, inside, n.line.text(), ">");
        }
    }
}

/// What a line that is typed is about, below it.
fn about(ui: &Ui, buffer: &mut Buffer, area: Rect, text: &str) {
    if area.height > 1 {
        let columns = usize::from(area.width);
        buffer.set_stringn(area.x, area.y + 1, ui.plain(text), columns, ui.style(Look::Dim));
    }
}

/// The line being typed, with the cursor at its end.
pub fn typing(ui: &Ui, frame: &mut Frame, area: Rect, typed: &str, sign: &str) {
    let room = usize::from(area.width).saturating_sub(4);
    // The end of what is typed is what one looks at.
    let mut shown = ui.plain(typed);
    while width(&shown) > room {
        shown.remove(0);
    }
    let x = area.x + 2 + width(&shown) as u16;
    let line = Line::from(vec![ui.span(Look::Key, format!("{sign} ")), Span::raw(shown)]);
    frame.buffer_mut().set_line(area.x, area.y, &line, area.width);
    frame.set_cursor_position(Position::new(x.min(area.right() - 1), area.y));
}

fn scrolled_lines(ui: &Ui, buffer: &mut Buffer, area: Rect, lines: &[Line], offset: usize) {
    for (i, l) in lines.iter().skip(offset).take(usize::from(area.height)).enumerate() {
        buffer.set_line(area.x, area.y + i as u16, l, area.width);
    }
    let below = lines.len().saturating_sub(offset + usize::from(area.height));
    if below > 0 {
        let text = format!(" {} {} ", ui.g.down, more_lines(below));
        let x = area.right().saturating_sub(width(&text) as u16 + 1);
        buffer.set_string(x, area.bottom(), text, ui.style(Look::Dim));
    }
}

/// Columns below which a line of the palette has no room for what the command does.
const DOCS: u16 = 60;

/// Where the commands lie, and what the selected one does: below them.
fn palette_areas(area: Rect) -> (Rect, Rect) {
    let about = match (area.width < DOCS, area.height) {
        (_, 0..5) => 0,
        (true, 12..) => 4,
        _ => 2,
    };
    let height = area.height.saturating_sub(1 + about);
    let rows = Rect { y: area.y + 1, height, ..area };
    (rows, Rect { y: rows.bottom(), height: about, ..area })
}

fn palette(ui: &Ui, buffer: &mut Buffer, area: Rect, p: &Palette) {
    let (rows, about) = palette_areas(area);
    let offset = scrolled(0, p.selected, p.rows.len(), usize::from(rows.height));
    let columns = usize::from(area.width);
    let wide = area.width >= DOCS;
    for (i, cmd) in p.rows.iter().enumerate().skip(offset).take(usize::from(rows.height)) {
        let c = cmd.row();
        let selected = p.sure && i == p.selected;
        let there = if c.applies(p.context) { None } else { cmd.home() };
        let context = there.map_or(p.context, View::context);
        let keys = ui.state.config.keymap.keys_for(context, *cmd).into_iter().next().unwrap_or_default();
        let doc = match there {
            Some(home) => format!("in {}: {}", home.context(), c.doc),
            None => c.doc.to_owned(),
        };
        let look = if there.is_some() { Look::Dim } else { Look::Text };
        let mut spans = vec![
            pointer(ui, selected),
            ui.span(if there.is_some() { Look::Dim } else { Look::Strong }, left(c.name, 21)),
            ui.span(Look::Key, left(&keys, 10) + " "),
        ];
        if wide {
            spans.push(ui.span(look, clean_to(&ui.plain(&doc), columns.saturating_sub(35))));
        }
        put(ui, buffer, rows, rows.y + (i - offset) as u16, &Line::from(spans), selected);
        // What a line has no room for is told of the one that would be chosen.
        if selected && (!wide || width(&doc) > columns.saturating_sub(35)) {
            let room = columns.saturating_sub(3);
            let mut lines = wrap(&ui.plain(&doc), room);
            let most = usize::from(about.height);
            if lines.len() > most && most > 0 {
                let rest = lines.split_off(most - 1).join(" ");
                lines.push(clean_to(&rest, room));
            }
            // At the end of the box, an empty line above them where there is one.
            let first = about.bottom().saturating_sub(lines.len().min(most) as u16);
            for (n, l) in lines.iter().take(most).enumerate() {
                buffer.set_stringn(about.x + 2, first + n as u16, l, room, ui.style(Look::Dim));
            }
        }
    }
    if p.rows.is_empty() && rows.height > 0 {
        let text = match p.time {
            Some(t) => format!("enter shows the timeline at {}", crate::app::time::at(t)),
            None if p.line.text().trim().starts_with("goto") => p.goto_help(),
            None => "no command fits".to_owned(),
        };
        buffer.set_stringn(rows.x + 2, rows.y, ui.plain(&text), columns, ui.style(Look::Dim));
    }
}

fn search(ui: &Ui, buffer: &mut Buffer, area: Rect, s: &SearchBox) {
    let rows = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let offset = scrolled(0, s.selected, s.hits.len(), usize::from(rows.height));
    let columns = usize::from(area.width);
    let texts = (columns / 2).max(16);
    for (i, hit) in s.hits.iter().enumerate().skip(offset).take(usize::from(rows.height)) {
        let selected = i == s.selected;
        let mut spans = vec![pointer(ui, selected), ui.span(Look::Dim, left(hit.target.kind(), 9))];
        let mut used = 11;
        let whole = width(&hit.text) <= texts;
        for (n, c) in hit.text.chars().enumerate() {
            let w = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
            if !whole && used + w > texts + 10 {
                spans.push(ui.span(Look::Dim, ui.plain("…")));
                used += 1;
                break;
            }
            used += w;
            let plain = if hit.far { Look::Dim } else { Look::Text };
            let look = if hit.matched.contains(&n) { Look::Match } else { plain };
            spans.push(ui.span(look, ui.plain(c.encode_utf8(&mut [0; 4]))));
        }
        spans.push(Span::raw(" ".repeat((texts + 12).saturating_sub(used))));
        spans.push(ui.span(Look::Dim, clean_to(&ui.plain(&hit.detail), columns.saturating_sub(texts + 12))));
        put(ui, buffer, rows, rows.y + (i - offset) as u16, &Line::from(spans), selected);
    }
    if s.hits.is_empty() && rows.height > 0 {
        let text = if s.busy {
            "searching"
        } else {
            "nothing fits; processes, threads, functions, files and sockets are searched"
        };
        buffer.set_stringn(rows.x + 2, rows.y, text, columns.saturating_sub(2), ui.style(Look::Dim));
    }
}

/// What was found of a flag; names in it come from the target.
fn flag_lines(ui: &Ui, found: &[String], columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for line in found {
        let text = clean(line);
        let indent = text.len() - text.trim_start().len();
        let look = if indent == 0 { Look::Strong } else { Look::Text };
        let parts = wrap(&ui.plain(text.trim_start()), columns.saturating_sub(indent + 1).max(10));
        if parts.is_empty() {
            out.push(Line::default());
        }
        for l in parts {
            out.push(Line::from(ui.span(look, format!(" {}{l}", " ".repeat(indent)))));
        }
    }
    out
}

fn why_not_lines(ui: &Ui, columns: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for p in text::why_not(ui.state) {
        for l in wrap(&ui.plain(&p.text), columns.saturating_sub(p.indent + 1).max(10)) {
            out.push(Line::from(ui.span(p.look, format!(" {}{l}", " ".repeat(p.indent)))));
        }
    }
    out
}
