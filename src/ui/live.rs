//! Waits as they are: a thread a line.

use super::parts::{Ui, left, nothing, pointer, put, right, rule, share_out, thread_name, width};
use crate::app::command::{COMMANDS, Context};
use crate::app::live::{LiveState, since, waits, word};
use crate::app::state::State;
use crate::clean::clean_to;
use crate::config::Look;
use pg_tracer::live::{Doing, LONG, Row};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Lines below the list that tell more of the selected thread.
const DETAIL: u16 = 4;

fn detail_height(height: u16) -> u16 {
    if height >= 16 { DETAIL } else { 0 }
}

/// Where the lines of the list lie on a screen of this size.
pub fn rows_area(size: (u16, u16)) -> Rect {
    let height = size.1.saturating_sub(3 + detail_height(size.1));
    Rect { x: 0, y: 2.min(size.1), width: size.0, height }
}

fn look(d: Doing) -> Look {
    match d {
        Doing::Runs => Look::Running,
        Doing::Disk => Look::Disk,
        Doing::Stopped => Look::Stopped,
        Doing::Waits => Look::Blocked,
        Doing::Ended => Look::Idle,
    }
}

fn mark(ui: &Ui, d: Doing) -> Span<'static> {
    let glyph = match d {
        Doing::Runs => ui.g.running,
        Doing::Disk => ui.g.disk,
        Doing::Stopped => ui.g.stopped,
        Doing::Waits => ui.g.blocked,
        Doing::Ended => ui.g.idle,
    };
    ui.span(look(d), glyph)
}

/// Draws the screen.
pub fn draw(frame: &mut Frame, state: &State, live: &LiveState) {
    let area = frame.area();
    let ui = Ui::new(state);
    if area.width < super::MIN_WIDTH || area.height < super::MIN_HEIGHT {
        super::too_small(frame.buffer_mut(), area);
        return;
    }
    let buffer = frame.buffer_mut();
    buffer.set_style(area, ui.style(Look::Text));
    let paused = if live.paused { "paused" } else { "as it is now" };
    let title = if live.everybody { "Threads" } else { "Threads that run, or wait for somebody" };
    let aside = format!("{} of {}, {paused}", live.rows.len(), live.threads);
    rule(&ui, buffer, Rect { height: 1, ..area }, title, &aside);
    let wide = area.width >= 72;
    let columns = usize::from(area.width).saturating_sub(2);
    let w = if wide {
        let flexible = share_out(columns - 23, &[(24, 14), (40, 16), (40, 12)]);
        [flexible[0], 10, 11, flexible[1], flexible[2]]
    } else {
        let flexible = share_out(columns - 12, &[(1, 10), (1, 10)]);
        [flexible[0], 1, 10, flexible[1], 0]
    };
    let heads = ["  thread", "state", "for", "waits for", "who could end it"];
    let mut head = vec![Span::raw("  ")];
    for (i, (name, n)) in heads.iter().zip(w).enumerate() {
        let text = match i {
            2 => right(name, n - 2) + "  ",
            _ if n < 3 => " ".repeat(n),
            _ => left(name, n),
        };
        head.push(ui.span(Look::Dim, text));
    }
    buffer.set_line(0, 1, &Line::from(head), area.width);
    let rows = rows_area((area.width, area.height));
    if live.rows.is_empty() {
        nothing(&ui, buffer, rows, "Nobody runs, and nobody waits for anybody. Press a for all threads.");
    }
    for (i, r) in live.rows.iter().enumerate().skip(live.offset).take(usize::from(rows.height)) {
        let selected = Some(r.tid) == live.selected;
        put(&ui, buffer, rows, rows.y + (i - live.offset) as u16, &line(&ui, r, w, wide, selected), selected);
    }
    let below = Rect { y: rows.bottom(), height: detail_height(area.height), ..area };
    detail(&ui, buffer, below, live);
    hints(&ui, buffer, Rect { y: area.bottom() - 1, height: 1, ..area });
    super::harmless(frame.buffer_mut(), ui.g.ascii);
}

fn named(r: &Row) -> String {
    if r.tid == r.pid {
        format!("{}:{}", r.process, r.pid)
    } else if r.thread == r.process {
        format!("{}/{}", r.process, r.tid)
    } else {
        format!("{}/{}:{}", r.process, r.thread, r.tid)
    }
}

fn line(ui: &Ui, r: &Row, w: [usize; 5], wide: bool, selected: bool) -> Line<'static> {
    let (what, who) = waits(r);
    let text = |t: &str, n: usize| if n == 0 { String::new() } else { left(&ui.plain(t), n - 1) + " " };
    let name = thread_name(&ui.plain(&named(r)), w[0].saturating_sub(3));
    let mut spans = vec![pointer(ui, selected), mark(ui, r.doing), Span::raw(" ")];
    spans.push(ui.span(Look::Strong, left(&name, w[0].saturating_sub(2))));
    spans.push(Span::raw(if wide { text(word(r.doing), w[1]) } else { " ".repeat(w[1]) }));
    spans.push(ui.span(look(r.doing), right(&ui.plain(&since(r)), w[2] - 2) + "  "));
    spans.push(Span::raw(text(&what, w[3])));
    spans.push(ui.span(Look::Cause, text(&who, w[4])));
    Line::from(spans)
}

fn detail(ui: &Ui, buffer: &mut Buffer, area: Rect, live: &LiveState) {
    let Some(r) = live.current().filter(|_| area.height >= DETAIL) else { return };
    rule(ui, buffer, area, &named(r), &format!("pid {} tid {}", r.pid, r.tid));
    let (what, who) = waits(r);
    let known = if r.call.is_empty() && r.doing == Doing::Waits {
        "not readable: this needs root".to_owned()
    } else if what.is_empty() {
        "-".into()
    } else {
        what
    };
    let who = match r.doing {
        _ if !who.is_empty() => who,
        Doing::Waits | Doing::Disk | Doing::Stopped if r.since >= LONG => "nobody found".to_owned(),
        Doing::Waits | Doing::Disk | Doing::Stopped => "looked for once it is long".to_owned(),
        Doing::Runs | Doing::Ended => "-".to_owned(),
    };
    let lines =
        [("state", format!("{} {}", word(r.doing), since(r))), ("waits for", known), ("held by", who)];
    for (i, (name, text)) in lines.iter().enumerate() {
        let columns = usize::from(area.width).saturating_sub(14);
        let line = Line::from(vec![
            ui.span(Look::Dim, format!("  {name:<10} ")),
            Span::raw(clean_to(&ui.plain(text), columns)),
        ]);
        buffer.set_line(area.x, area.y + 1 + i as u16, &line, area.width);
    }
}

fn hints(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let mut spans = Vec::new();
    let mut used = 0;
    let own = COMMANDS.iter().filter(|c| c.contexts.contains(&Context::Live) || c.name == "quit");
    for c in own {
        let Some(key) = ui.state.config.keymap.keys_for(Context::Live, c.cmd).into_iter().next() else {
            continue;
        };
        used += width(&key) + width(c.hint) + 3;
        if used > usize::from(area.width) {
            break;
        }
        spans.push(Span::raw(" "));
        spans.push(ui.span(Look::Key, key));
        spans.push(Span::raw(format!(" {} ", c.hint)));
    }
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
}
