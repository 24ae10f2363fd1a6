//! Waits as they are: a thread a line.

use super::parts::{Ui, left, nothing, pointer, put, right, rule, share_out, thread_name, width, wrap};
use crate::app::command::{COMMANDS, Cmd, Context};
use crate::app::layer::Layer;
use crate::app::live::{LiveState, circle, since, waits, word};
use crate::app::state::State;
use crate::clean::{clean, clean_to};
use crate::config::Look;
use pg_tracer::live::{Doing, LONG, Row};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

/// Lines below the list that tell more of the selected thread: at least these, and on a tall screen more.
const DETAIL: u16 = 4;
const MUCH: u16 = 10;

fn detail_height(height: u16) -> u16 {
    match height {
        0..16 => 0,
        16..30 => DETAIL + 2,
        _ => MUCH,
    }
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

/// The shapes of the states.
pub fn legend(ui: &Ui) -> Line<'static> {
    let all = [Doing::Runs, Doing::Waits, Doing::Disk, Doing::Stopped, Doing::Ended];
    let part = |d: Doing| [Span::raw(" "), mark(ui, d), ui.span(Look::Dim, format!(" {}  ", word(d)))];
    Line::from(all.into_iter().flat_map(part).collect::<Vec<_>>())
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
    let title = if live.is_filtered() {
        format!("Threads with \"{}\"", ui.plain(live.filter.text().trim()))
    } else if live.everybody {
        "Threads".to_owned()
    } else {
        "Threads that run, or wait for somebody".to_owned()
    };
    let aside = format!("{} of {}, {paused}", live.rows.len(), live.threads);
    rule(&ui, buffer, Rect { height: 1, ..area }, &title, &aside);
    let wide = area.width >= 72;
    let columns = usize::from(area.width).saturating_sub(2);
    let w = if wide {
        let flexible = share_out(columns - 23, &[(24, 18), (34, 20), (46, 12)]);
        [flexible[0], 9, 12, flexible[1], flexible[2]]
    } else {
        let flexible = share_out(columns - 12, &[(1, 10), (1, 10)]);
        [flexible[0], 1, 10, flexible[1], 0]
    };
    let heads = ["   thread", "state", "for", "waits for", "who could end it"];
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
        let none = if live.is_filtered() {
            "No thread has this in its name, id, command line, state or wait. Esc shows all again."
        } else {
            "Nobody runs, and nobody waits for anybody. Press a for all threads."
        };
        nothing(&ui, buffer, rows, none);
    }
    for (i, r) in live.rows.iter().enumerate().skip(live.offset).take(usize::from(rows.height)) {
        let selected = Some(r.tid) == live.selected;
        put(
            &ui,
            buffer,
            rows,
            rows.y + (i - live.offset) as u16,
            &line(&ui, (r, live.all()), w, wide, selected),
            selected,
        );
    }
    let below = Rect { y: rows.bottom(), height: detail_height(area.height), ..area };
    detail(&ui, buffer, below, live);
    let body = Rect { y: area.y + 1, height: area.height - 2, ..area };
    for layer in &state.layers {
        super::layers::draw(&ui, frame, body, layer);
    }
    let mut last = Rect { y: area.bottom() - 1, height: 1, ..area };
    if live.typing {
        // What is typed has the place of the first hints, or a bit more.
        let room = (area.width / 2).max(area.width.saturating_sub(60));
        super::layers::typing(&ui, frame, Rect { width: room, ..last }, live.filter.text(), "/");
        last = Rect { x: room, width: area.width - room, ..last };
    }
    let buffer = frame.buffer_mut();
    hints(&ui, buffer, last, live);
    if ui.style(Look::Selected).add_modifier.contains(Modifier::REVERSED) {
        super::even(frame.buffer_mut());
    }
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

fn line(ui: &Ui, (r, all): (&Row, &[Row]), w: [usize; 5], wide: bool, selected: bool) -> Line<'static> {
    let (what, who) = waits(r, all);
    let text = |t: &str, n: usize| if n == 0 { String::new() } else { left(&ui.plain(t), n - 1) + " " };
    let name = thread_name(&ui.plain(&named(r)), w[0].saturating_sub(4));
    let circle = if r.circle.contains(&r.tid) { ui.g.circle } else { " " };
    let mut spans =
        vec![pointer(ui, selected), mark(ui, r.doing), ui.span(Look::Cause, circle), Span::raw(" ")];
    spans.push(ui.span(Look::Strong, left(&name, w[0].saturating_sub(3))));
    spans.push(Span::raw(if wide { text(word(r.doing), w[1]) } else { " ".repeat(w[1]) }));
    spans.push(ui.span(look(r.doing), right(&ui.plain(&since(r)), w[2] - 2) + "  "));
    spans.push(Span::raw(text(&what, w[3])));
    spans.push(ui.span(Look::Cause, text(&who, w[4])));
    Line::from(spans)
}

fn detail(ui: &Ui, buffer: &mut Buffer, area: Rect, live: &LiveState) {
    let Some(r) = live.current().filter(|_| area.height >= DETAIL) else { return };
    rule(ui, buffer, area, &named(r), &format!("pid {} tid {}", r.pid, r.tid));
    let (what, who) = waits(r, live.all());
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
    let columns = usize::from(area.width).saturating_sub(14);
    let mut facts = vec![("command", clean_to(&r.cmdline, columns))];
    facts.push(("state", format!("{} {}", word(r.doing), since(r))));
    facts.push(("waits for", known));
    facts.push(("held by", who));
    facts.push(("circle", circle(r, live.all())));
    facts.push(("polls", r.members.iter().map(|m| clean(m)).collect::<Vec<_>>().join(", ")));
    facts.retain(|f| !f.1.is_empty());
    // The last one may be long, and has what is left.
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (i, (name, text)) in facts.iter().enumerate() {
        let after = facts.len() - i - 1;
        let room = usize::from(area.height - 1).saturating_sub(lines.len() + after).max(1);
        let mut parts = wrap(&ui.plain(text), columns);
        if parts.len() > room {
            parts.truncate(room - 1);
            let done: usize = parts.iter().map(|p| p.chars().count() + 1).sum();
            parts.push(clean_to(&ui.plain(text).chars().skip(done).collect::<String>(), columns));
        }
        lines.extend(parts.into_iter().enumerate().map(|(k, p)| (if k == 0 { *name } else { "" }, p)));
    }
    for (i, (name, text)) in lines.into_iter().take(usize::from(area.height) - 1).enumerate() {
        let line = Line::from(vec![ui.span(Look::Dim, format!("  {name:<10} ")), Span::raw(text)]);
        buffer.set_line(area.x, area.y + 1 + i as u16, &line, area.width);
    }
}

fn hints(ui: &Ui, buffer: &mut Buffer, area: Rect, live: &LiveState) {
    if let Some(m) = &ui.state.message {
        let text = clean_to(&ui.plain(&m.text), usize::from(area.width).saturating_sub(1));
        buffer.set_line(area.x, area.y, &Line::from(vec![Span::raw(" "), ui.span(m.look, text)]), area.width);
        return;
    }
    let mut spans = Vec::new();
    let mut used = 0;
    let context = ui.state.layers.last().map_or_else(|| live.context(), Layer::context);
    let own = COMMANDS.iter().filter(|c| {
        let asked = context != Context::Text && matches!(c.cmd, Cmd::Help | Cmd::Quit);
        if context == Context::Help { c.cmd == Cmd::Cancel } else { c.contexts.contains(&context) || asked }
    });
    for c in own {
        if c.hint.is_empty() && c.cmd != Cmd::Cancel {
            continue;
        }
        let hint = match c.cmd {
            Cmd::Cancel => "close",
            Cmd::Accept => "keep",
            Cmd::CloseText => "all again",
            _ => c.hint,
        };
        let Some(key) = ui.state.config.keymap.keys_for(context, c.cmd).into_iter().next() else {
            continue;
        };
        used += width(&key) + width(hint) + 3;
        if used > usize::from(area.width) {
            break;
        }
        spans.push(Span::raw(" "));
        spans.push(ui.span(Look::Key, key));
        spans.push(Span::raw(format!(" {hint} ")));
    }
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
}
