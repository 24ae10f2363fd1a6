//! The timeline: lanes by process, arrows of the selection, the cursor with what is under it.

use super::detail;
use super::parts::{Ui, left, nothing, rule, select, state_look, thread_name, width};
use crate::app::recording::Recording;
use crate::app::state::State;
use crate::app::time;
use crate::app::views::timeline::{Row, TimelineState};
use crate::config::Look;
use pg_event::{Ns, ProcessId, ThreadId};
use pg_graph::LaneState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Where the parts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// Times.
    pub axis: Rect,
    /// Names of processes and threads.
    pub names: Rect,
    /// Lanes.
    pub lanes: Rect,
    /// What is under the cursor.
    pub detail: Rect,
}

/// Divides the body.
pub fn layout(state: &State, body: Rect) -> Areas {
    let w = body.width;
    let most = (w / 4).clamp(10, 30);
    let r = state.recording.as_deref();
    let longest = state.timeline.rows.iter().take(2000).map(|row| name_width(r, *row)).max().unwrap_or(10);
    let names = (longest as u16 + 3).clamp(10, most);
    let detail = match body.height {
        0..10 => 1,
        10..16 => 3,
        16..30 => 5,
        _ => 7,
    };
    let lanes = body.height.saturating_sub(2 + detail);
    let axis = Rect { x: body.x + names, y: body.y + 1, width: w.saturating_sub(names), height: 1 };
    Areas {
        axis,
        names: Rect { y: body.y + 2, width: names, height: lanes, ..body },
        lanes: Rect { y: body.y + 2, height: lanes, ..axis },
        detail: Rect { y: body.y + 2 + lanes, height: detail, ..body },
    }
}

fn name_width(r: Option<&Recording>, row: Row) -> usize {
    let Some(r) = r else { return 0 };
    match row {
        Row::Process(p) => width(r.process_name(p)),
        Row::Thread(t, true) => width(r.short_thread_name(t)) + 1,
        Row::Thread(t, false) => width(r.thread_name(t)),
    }
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = &ui.state.timeline;
    let Some(r) = ui.recording() else { return };
    let a = layout(ui.state, body);
    let columns = usize::from(a.lanes.width);
    let part = if s.only.is_some() { ", related only" } else { "" };
    let title = format!("Timeline ({}{part})", time::counted(s.lanes().count(), "thread"));
    let marked = s.marked().map_or(String::new(), |(x, y)| format!("marked {}  ", ui.length(y - x)));
    let aside = format!("{marked}{} shown, {} a column", ui.length(s.shown()), ui.length(s.step(columns)));
    rule(ui, buffer, body, &title, &aside);
    axis(ui, buffer, a.axis);
    if s.rows.is_empty() {
        nothing(ui, buffer, a.lanes, "No thread was seen.");
        return;
    }
    for (i, row) in s.rows.iter().enumerate().skip(s.offset).take(usize::from(a.lanes.height)) {
        let y = a.lanes.y + (i - s.offset) as u16;
        let area = Rect { y, height: 1, ..a.names };
        match row {
            Row::Process(p) => {
                let name = left(&ui.plain(r.process_name(*p)), usize::from(area.width).saturating_sub(2));
                buffer.set_line(area.x, y, &Line::from(ui.span(Look::Title, format!(" {name}"))), area.width);
                // It has no lane: there is room for what tells it from others of its name.
                let command = command(ui, r, *p, columns);
                buffer.set_stringn(a.lanes.x, y, command, columns, ui.style(Look::Dim));
            }
            Row::Thread(t, under) => {
                lane(ui, r, buffer, (area, Rect { y, height: 1, ..a.lanes }), *t, *under);
            }
        }
    }
    arrows(ui, r, buffer, a.lanes);
    cursor(ui, buffer, &a);
    detail::under_cursor(ui, buffer, a.detail);
}

/// What stands beside the name of a process, in at most so many columns. The first one stays free: most of what was
/// there at the beginning is woken there.
fn command(ui: &Ui, r: &Recording, p: ProcessId, columns: usize) -> String {
    let text = ui.plain(&r.command_of(p, columns.saturating_sub(1)));
    if text.is_empty() { text } else { format!(" {text}") }
}

/// Is there a letter of a command line in this column of a row? Lines pass behind it.
fn is_text(ui: &Ui, r: &Recording, row: Row, column: usize, columns: usize) -> bool {
    match row {
        Row::Process(p) => (1..width(&command(ui, r, p, columns))).contains(&column),
        Row::Thread(..) => false,
    }
}

/// Times above the lanes.
fn axis(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let s = &ui.state.timeline;
    let columns = usize::from(area.width);
    if columns < 12 {
        return;
    }
    // As many ticks as there is room for their texts.
    let mut step = time::nice_step(s.shown() / (columns as u64 / 14).max(1));
    loop {
        let wide = width(&time::moment(s.to, step)) + 3;
        let room = u128::from(step) * columns as u128 / u128::from(s.shown());
        if room >= wide as u128 || step > s.shown() {
            break;
        }
        step = time::nice_step(step + 1);
    }
    let mark = s.column(s.cursor, columns);
    let mut tick = s.from.div_ceil(step).saturating_mul(step);
    let mut free = 0;
    while tick <= s.to {
        if let Some(c) = s.column(tick, columns) {
            let text = format!("{}{}", ui.g.vertical, time::moment(tick, step));
            // Half a time is worse than none: the mark of the cursor stands there.
            let under = mark.is_some_and(|m| m > c && m < c + width(&text));
            let text = if under { ui.g.vertical.to_owned() } else { text };
            if c >= free && c + width(&text) <= columns {
                buffer.set_string(area.x + c as u16, area.y, &text, ui.style(Look::Dim));
                free = c + width(&text) + 1;
            }
        }
        let Some(next) = tick.checked_add(step) else { break };
        tick = next;
    }
}

fn lane(ui: &Ui, r: &Recording, buffer: &mut Buffer, (names, lane): (Rect, Rect), t: ThreadId, under: bool) {
    let s = &ui.state.timeline;
    let selected = s.thread == Some(t);
    let name = if under { format!(" {}", r.short_thread_name(t)) } else { r.thread_name(t).to_owned() };
    let pointer = if selected { ui.g.pointer } else { " " };
    let look = if selected || r.in_focus(t) { Look::Strong } else { Look::Text };
    let room = usize::from(names.width).saturating_sub(2);
    let line = Line::from(vec![
        ui.span(Look::Key, pointer),
        ui.span(look, left(&thread_name(&ui.plain(&name), room), room) + " "),
    ]);
    buffer.set_line(names.x, names.y, &line, names.width);
    if selected {
        select(ui, buffer, names);
    }
    // Whoever is not asked about waits quietly: most threads of a machine idle most of the time.
    let quiet = !(selected || r.in_focus(t) || ui.state.diagnosis.slice().iter().any(|n| n.thread == t));
    let cells = r.graph.cells(t, s.from..s.to, usize::from(lane.width));
    for (i, c) in cells.iter().enumerate() {
        let x = lane.x + i as u16;
        let (mut glyph, mut look) = (ui.glyph(c.state), state_look(c.state));
        // A life shorter than most of a column is seen all the same.
        let state = if c.state == LaneState::Absent { lived(r, s, t, i, cells.len()) } else { c.state };
        if state != c.state {
            (glyph, look) = (ui.glyph(state), state_look(state));
        }
        if quiet && state == LaneState::Blocked {
            look = Look::Idle;
        }
        if c.lost {
            (glyph, look) = (ui.g.lost, Look::Lost);
        }
        if let Some(cell) = buffer.cell_mut((x, lane.y)) {
            cell.set_symbol(glyph).set_style(ui.style(look));
            if c.mixed && state != LaneState::Absent && !c.lost {
                cell.set_style(Style::new().add_modifier(Modifier::UNDERLINED));
            }
        }
    }
    marks(ui, buffer, lane, t);
}

/// What a thread mostly did while it existed within a column in which it mostly did not.
fn lived(r: &Recording, s: &TimelineState, t: ThreadId, column: usize, columns: usize) -> LaneState {
    let bound = |c: usize| s.from + (u128::from(s.shown()) * c as u128 / columns.max(1) as u128) as Ns;
    let (a, b) = (bound(column), bound(column + 1));
    let (Some(began), Some(ended)) = (r.graph.began(t), r.graph.ended(t)) else { return LaneState::Absent };
    if began >= b || ended <= a {
        return LaneState::Absent;
    }
    let share = r.graph.share(t, a..b);
    let seen = LaneState::ALL.into_iter().filter(|x| *x != LaneState::Absent && share.get(*x) > 0);
    seen.max_by_key(|x| share.get(*x)).unwrap_or(LaneState::Absent)
}

/// The marked span and the bookmarks of a lane.
fn marks(ui: &Ui, buffer: &mut Buffer, lane: Rect, t: ThreadId) {
    let s = &ui.state.timeline;
    let columns = usize::from(lane.width);
    if s.thread == Some(t)
        && let Some((a, b)) = s.marked()
        && a <= s.to
        && b >= s.from
    {
        let first = s.column(a.max(s.from), columns).unwrap_or(0);
        let last = s.column(b.min(s.to), columns).unwrap_or(columns - 1);
        let area = Rect { x: lane.x + first as u16, width: (last - first + 1) as u16, ..lane };
        buffer.set_style(area, ui.style(Look::Marked));
    }
    for n in ui.state.notes.notes.iter().filter(|n| n.thread == t) {
        if let Some(c) = s.column(n.time, columns)
            && let Some(cell) = buffer.cell_mut((lane.x + c as u16, lane.y))
        {
            cell.set_symbol(ui.g.bookmark).set_style(ui.style(Look::Note));
        }
    }
}

/// Wake-ups into and out of the vertex under the cursor.
fn arrows(ui: &Ui, r: &Recording, buffer: &mut Buffer, lanes: Rect) {
    const MOST: usize = 24;
    let s = &ui.state.timeline;
    let Some(v) = s.vertex(r) else { return };
    let into = r.graph.incoming(v).take(MOST);
    let out = r.graph.outgoing(v).take(MOST);
    for e in out.chain(into) {
        let e = r.graph.edge(e);
        let (from, to) = (r.graph.vertex(e.from).thread, r.graph.vertex(e.to).thread);
        arrow(ui, buffer, lanes, (from, e.from_time), (to, e.to_time), e.weak.is_some());
    }
}

/// Line on the screen of a thread's lane: `Err(true)` above what is shown, `Err(false)` below.
fn line_of(ui: &Ui, lanes: Rect, t: ThreadId) -> Option<Result<u16, bool>> {
    let s = &ui.state.timeline;
    let row = s.rows.iter().position(|r| matches!(r, Row::Thread(x, _) if *x == t))?;
    Some(if row < s.offset {
        Err(true)
    } else if row >= s.offset + usize::from(lanes.height) {
        Err(false)
    } else {
        Ok(lanes.y + (row - s.offset) as u16)
    })
}

fn arrow(ui: &Ui, buffer: &mut Buffer, lanes: Rect, from: (ThreadId, Ns), to: (ThreadId, Ns), weak: bool) {
    let s = &ui.state.timeline;
    let Some(r) = ui.recording() else { return };
    let columns = usize::from(lanes.width);
    let Some(column) = s.column(to.1, columns) else { return };
    let (Some(a), Some(b)) = (line_of(ui, lanes, from.0), line_of(ui, lanes, to.0)) else { return };
    if lanes.height == 0 {
        return;
    }
    let bottom = lanes.bottom() - 1;
    let edge = |e: bool| if e { lanes.y } else { bottom };
    let down = match (a, b) {
        (Ok(a), Ok(b)) => a < b,
        (Err(above), Ok(_)) => above,
        (Ok(_), Err(above)) => !above,
        (Err(a), Err(b)) => {
            if a == b {
                return;
            }
            a
        }
    };
    let style = ui.style(if weak { Look::WeakEdge } else { Look::Arrow });
    let x = lanes.x + column as u16;
    let (first, last) = {
        let a = a.unwrap_or_else(edge);
        let b = b.unwrap_or_else(edge);
        (a.min(b), a.max(b))
    };
    for y in first..=last {
        let symbol = if Ok(y) == b {
            if down { ui.g.down } else { ui.g.up }
        } else if Ok(y) == a {
            ui.g.origin
        } else if weak {
            if ui.g.ascii { ":" } else { "┊" }
        } else {
            ui.g.vertical
        };
        let row = s.rows.get(s.offset + usize::from(y - lanes.y));
        if row.is_some_and(|row| is_text(ui, r, *row, column, columns)) {
            continue;
        }
        if let Some(cell) = buffer.cell_mut((x, y)) {
            cell.set_symbol(symbol).set_style(style);
        }
    }
    // Where it began, when that was in another column.
    if let (Ok(y), Some(c)) = (a, s.column(from.1, columns))
        && c != column
        && let Some(cell) = buffer.cell_mut((lanes.x + c as u16, y))
    {
        cell.set_symbol(ui.g.origin).set_style(style);
    }
}

/// The cursor: its column through all lanes, its cell in its lane.
fn cursor(ui: &Ui, buffer: &mut Buffer, a: &Areas) {
    let s = &ui.state.timeline;
    let columns = usize::from(a.lanes.width);
    let (Some(c), Some(r)) = (s.column(s.cursor, columns), ui.recording()) else { return };
    let x = a.lanes.x + c as u16;
    if let Some(cell) = buffer.cell_mut((x, a.axis.y)) {
        cell.set_symbol(ui.g.down).set_style(ui.style(Look::Key));
    }
    for (i, row) in s.rows.iter().skip(s.offset).take(usize::from(a.lanes.height)).enumerate() {
        let here = matches!(row, Row::Thread(t, _) if Some(*t) == s.thread);
        if is_text(ui, r, *row, c, columns) {
            continue;
        }
        if let Some(cell) = buffer.cell_mut((x, a.lanes.y + i as u16)) {
            if here {
                cell.set_style(ui.style(Look::Cursor));
            } else if cell.symbol() == " " || cell.symbol() == ui.g.absent {
                cell.set_symbol(if ui.g.ascii { ":" } else { "┆" }).set_style(ui.style(Look::Idle));
            }
        }
    }
}

/// The shapes and what they mean.
pub fn legend(ui: &Ui) -> Line<'static> {
    let lost = ui.recording().is_some_and(|r| !r.graph.lost().is_empty());
    let mut spans = vec![Span::raw(" ")];
    for (state, name) in [
        (LaneState::Running, "running"),
        (LaneState::Runnable, "runnable"),
        (LaneState::Blocked, "blocked"),
        (LaneState::Disk, "disk"),
        (LaneState::Throttled, "throttled"),
        (LaneState::Stopped, "stopped"),
        (LaneState::Idle, "idle"),
        (LaneState::Lost, "unknown"),
    ] {
        // On a narrow screen the rarest give way; the line below names them when they are met.
        let narrow = ui.state.size.0 < 105;
        if narrow && (state == LaneState::Throttled || lost && state == LaneState::Stopped) {
            continue;
        }
        spans.push(ui.span(state_look(state), ui.glyph(state)));
        spans.push(ui.span(Look::Dim, format!(" {name}  ")));
    }
    if lost {
        spans.push(ui.span(Look::Lost, ui.g.lost));
        spans.push(ui.span(Look::Dim, " lost  "));
    }
    let mixed = ui.style(Look::Text).add_modifier(Modifier::UNDERLINED);
    spans.push(Span::styled(ui.g.running, mixed));
    spans.push(ui.span(Look::Dim, " mixed  "));
    if ui.state.size.0 >= if lost { 115 } else { 105 } {
        spans.push(ui.span(Look::Arrow, format!("{}{}", ui.g.origin, ui.g.down)));
        spans.push(ui.span(Look::Dim, " wake-up"));
    }
    Line::from(spans)
}
