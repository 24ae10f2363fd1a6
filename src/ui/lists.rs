//! Views that are plain lists: one vertex, a critical path, notes, the log.

use super::parts::{Ui, bar, left, nothing, pointer, put, right, rule, thread_name, wrap};
use super::slice::doing;
use crate::app::time;
use crate::app::views::vertex::{About, Row};
use crate::clean::clean_to;
use crate::config::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Lines above the parts of a path.
pub const PATH_HEAD: usize = 3;

/// Where the lines of a vertex lie; on a wide screen the stacks stand beside the rest.
pub fn vertex_areas(body: Rect) -> (Rect, Option<Rect>) {
    let rows = Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body };
    if body.width < 140 {
        return (rows, None);
    }
    let side = body.width * 2 / 5;
    (Rect { width: body.width - side, ..rows }, Some(Rect { x: body.right() - side, width: side, ..rows }))
}

/// Draws a vertex.
pub fn vertex(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = &ui.state.vertex;
    let (Some(id), Some(r)) = (s.vertex, ui.recording()) else {
        rule(ui, buffer, body, "Vertex", "");
        nothing(
            ui,
            buffer,
            body,
            "No vertex is chosen: enter on a cell of the timeline or a step of the slice.",
        );
        return;
    };
    let v = r.graph.vertex(id);
    let title = format!("Vertex: {} at {}", r.thread_name(v.thread), time::moment(v.start, 1_000));
    rule(ui, buffer, body, &title, &format!("{}, {}", ui.length(v.duration()), r.ids(v.thread)));
    let (area, side) = vertex_areas(body);
    for (i, row) in s.rows.iter().enumerate().skip(s.offset).take(usize::from(area.height)) {
        let selected = i == s.row;
        let columns = usize::from(area.width);
        put(
            ui,
            buffer,
            area,
            area.y + (i - s.offset) as u16,
            &vertex_line(ui, row, selected, columns),
            selected,
        );
    }
    if let Some(side) = side {
        command(ui, buffer, side, id);
    }
}

fn vertex_line(ui: &Ui, row: &Row, selected: bool, columns: usize) -> Line<'static> {
    let text = clean_to(&ui.plain(&row.text), columns.saturating_sub(3));
    match row.about {
        About::Head => Line::from(ui.span(row.look, format!(" {text}"))),
        _ => Line::from(vec![pointer(ui, selected), ui.span(row.look, text)]),
    }
}

/// Beside a vertex on a wide screen: whose it is, and what the selected line leads to.
fn command(ui: &Ui, buffer: &mut Buffer, area: Rect, id: pg_graph::VertexId) {
    let Some(r) = ui.recording() else { return };
    let v = r.graph.vertex(id);
    let columns = usize::from(area.width).saturating_sub(4);
    let mut y = area.y;
    let mut write = |look: Look, text: &str, buffer: &mut Buffer| {
        if y < area.bottom() {
            buffer.set_stringn(area.x + 2, y, ui.plain(&clean_to(text, columns)), columns, ui.style(look));
            y += 1;
        }
    };
    write(Look::Title, "whose", buffer);
    for line in super::parts::wrap(&r.cmdline_at(v.thread, v.end, 2_000), columns).iter().take(6) {
        write(Look::Text, line, buffer);
    }
    if let Some(p) = r.catalog.process_of(v.thread) {
        if !p.container.is_empty() {
            write(Look::Dim, &format!("container {}", p.container), buffer);
        }
        if !p.cgroup.is_empty() {
            write(Look::Dim, &format!("cgroup {}", p.cgroup), buffer);
        }
        if !p.exe.is_empty() {
            write(Look::Dim, &format!("program {}", p.exe), buffer);
        }
    }
    let Some(About::Edge(e, other)) = ui.state.vertex.about() else { return };
    let edge = r.graph.edge(e);
    let o = r.graph.vertex(other);
    write(Look::Text, "", buffer);
    write(Look::Title, "the other end of the selected edge", buffer);
    write(Look::Strong, r.thread_name(o.thread), buffer);
    write(Look::Dim, &r.cmdline_at(o.thread, o.end, 400), buffer);
    let how = edge.weak.map_or_else(|| "strong".to_owned(), |w| format!("weak: {}", w.words()));
    write(Look::Text, &format!("{} edge, {how}", edge.kind.name()), buffer);
    if let Some(call) = r.graph.edge_syscall(e).name() {
        write(Look::Text, &format!("in {call}"), buffer);
    }
    let took = edge.to_time.saturating_sub(edge.from_time);
    write(Look::Text, &format!("{} on its way", ui.length(took)), buffer);
    for f in r.frames(r.graph.edge_stack(e)).iter().take(30) {
        write(Look::Text, &format!("  {f}"), buffer);
    }
}

/// Draws a critical path.
pub fn path(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let p = &ui.state.path;
    let (Some(thread), Some(r)) = (p.thread, ui.recording()) else {
        rule(ui, buffer, body, "Critical path", "");
        nothing(
            ui,
            buffer,
            body,
            "Mark a span in the timeline (v, move) and press p: what made it take so long?",
        );
        return;
    };
    let whole = p.span.1.saturating_sub(p.span.0);
    let title = format!("What made these {} of {}", ui.length(whole), r.thread_name(thread));
    rule(
        ui,
        buffer,
        body,
        &title,
        &format!("critical path: {}, latest first", time::counted(p.parts.len(), "part")),
    );
    let from = time::moment(p.span.0, 1_000_000);
    let mut shares: Vec<(&str, u64)> = Vec::new();
    for n in &p.parts {
        match shares.iter_mut().find(|s| s.0 == r.thread_name(n.thread)) {
            Some(s) => s.1 += n.spent,
            None => shares.push((r.thread_name(n.thread), n.spent)),
        }
    }
    shares.sort_by_key(|s| std::cmp::Reverse(s.1));
    let most: Vec<String> =
        shares.iter().take(4).map(|(n, t)| format!("{n} {}", time::percent(*t, whole))).collect();
    let text = format!(" from {from}: {}", most.join(", "));
    buffer.set_stringn(body.x, body.y + 1, ui.plain(&text), usize::from(body.width), ui.style(Look::Text));
    let columns = usize::from(body.width);
    let names = (columns / 4).clamp(10, 30);
    let bars = if columns >= 70 { 12 } else { 0 };
    let head =
        format!("  {}   {:>9}  {:>5} {}  doing", left("thread", names), "for", "share", left("", bars));
    buffer.set_stringn(body.x, body.y + 2, head, columns, ui.style(Look::Dim));
    let area =
        Rect { y: body.y + PATH_HEAD as u16, height: body.height.saturating_sub(PATH_HEAD as u16), ..body };
    for (i, n) in p.parts.iter().enumerate().skip(p.offset).take(usize::from(area.height)) {
        let selected = i == p.row;
        let mut spans = vec![
            pointer(ui, selected),
            ui.span(Look::Strong, left(&thread_name(&ui.plain(r.thread_name(n.thread)), names), names) + " "),
            ui.state_mark(n.state),
            Span::raw(format!(
                " {}  {} ",
                right(&ui.length(n.spent), 9),
                right(&time::percent(n.spent, whole), 5)
            )),
        ];
        if bars > 0 {
            let style = ui.style(Look::Victim);
            spans.extend(bar(&[(n.spent, ui.g.full, style)], whole, bars, (ui.g.idle, ui.style(Look::Idle))));
            spans.push(Span::raw(" "));
        }
        let weak = if n.why_weak.is_some() && columns >= 60 { "  weak" } else { "" };
        let used: usize = spans.iter().map(Span::width).sum();
        let room = columns.saturating_sub(used + 1 + weak.len());
        spans.push(Span::raw(format!(" {}", clean_to(&ui.plain(&doing(ui, n)), room))));
        spans.push(ui.span(Look::WeakEdge, weak));
        put(ui, buffer, area, area.y + (i - p.offset) as u16, &Line::from(spans), selected);
    }
    if p.parts.is_empty() {
        nothing(ui, buffer, area, "Nothing is known of this span.");
    }
}

/// Draws bookmarks and notes.
pub fn notes(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = &ui.state.notes;
    rule(ui, buffer, body, &format!("Bookmarks and notes ({})", s.notes.len()), "kept in the session");
    let Some(r) = ui.recording() else { return };
    let area = Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body };
    if s.notes.is_empty() {
        nothing(
            ui,
            buffer,
            area,
            "None yet. m sets a bookmark on what is selected in any view, M writes a note on it.",
        );
        return;
    }
    let names = (usize::from(area.width) / 4).clamp(10, 30);
    for (i, n) in s.notes.iter().enumerate().skip(s.offset).take(usize::from(area.height)) {
        let selected = Some(n.id) == s.selected;
        let mark = if n.bookmark { ui.g.bookmark } else { " " };
        let mut spans = vec![
            pointer(ui, selected),
            ui.span(Look::Note, mark),
            Span::raw(format!(" {}  ", right(&time::at(n.time), 10))),
            ui.span(Look::Strong, left(&thread_name(&ui.plain(r.thread_name(n.thread)), names), names) + " "),
        ];
        let used: usize = spans.iter().map(Span::width).sum();
        spans.push(Span::raw(ui.plain(&clean_to(&n.text, usize::from(area.width).saturating_sub(used)))));
        put(ui, buffer, area, area.y + (i - s.offset) as u16, &Line::from(spans), selected);
    }
}

/// The log in lines of the screen: its longest ones are read nowhere else.
pub fn log_lines(ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for l in &ui.state.log {
        let mark = match l.look {
            Look::Error => "error: ",
            Look::Warning => "remark: ",
            Look::Lost => "lost: ",
            _ => "",
        };
        let text = format!("{mark}{}", ui.plain(&l.text));
        let room = usize::from(columns).saturating_sub(3);
        for (i, part) in wrap(&text, room).into_iter().enumerate() {
            out.push(match part.strip_prefix(mark).filter(|_| i == 0) {
                Some(rest) => {
                    Line::from(vec![Span::raw(" "), ui.span(l.look, mark), Span::raw(rest.to_owned())])
                }
                None => Line::from(vec![Span::raw("   "), Span::raw(part)]),
            });
        }
    }
    out
}

/// Draws the log.
pub fn log(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = ui.state;
    rule(ui, buffer, body, &format!("Log ({})", time::counted(s.log.len(), "line")), "");
    let area = Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body };
    let lines = log_lines(ui, body.width);
    for (i, line) in lines.iter().skip(s.log_offset).take(usize::from(area.height)).enumerate() {
        buffer.set_line(area.x, area.y + i as u16, line, area.width);
    }
}
