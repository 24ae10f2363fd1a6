//! Victims: what hung, for how long, and on what.

use super::parts::{Ui, left, nothing, pointer, put, right, rule, share_out, thread_name, width, wrap};
use crate::app::state::State;
use crate::app::text;
use crate::app::time;
use crate::app::views::scrolled;
use crate::app::views::victims::{Row, starved};
use crate::config::Look;
use pg_event::Ns;
use pg_graph::{BlockType, Victim};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Where the parts lie.
pub struct Areas {
    /// The heads of the columns.
    pub head: Rect,
    /// The list.
    pub rows: Rect,
    /// More about the selected victim.
    pub detail: Rect,
    /// When the victims were.
    pub when: Rect,
}

/// Divides the body.
pub fn layout(state: &State, body: Rect) -> Areas {
    let count = state.victims.rows.len() as u16;
    let found = |r: &Row| r.victim.unserved.is_some() || r.victim.violation.is_some();
    let found = state.victims.rows.iter().any(found);
    let cut = state.victims.rows.iter().any(|r| r.cut);
    let when = match body.height {
        0..10 => 0,
        10..20 => 2,
        _ => 1 + count.clamp(1, (body.height / 4).min(12)),
    };
    let detail = if body.height >= 16 {
        let least = 4 + u16::from(found) + u16::from(cut);
        let spare = body.height.saturating_sub(2 + when + count.max(3)).max(least);
        // All of it where the list leaves room for that.
        let needed = detail_lines(&Ui::new(state), body.width, usize::from(spare) - 1).len() as u16 + 1;
        needed.max(least)
    } else {
        0
    };
    let rows = body.height.saturating_sub(2 + detail + when);
    let head = Rect { y: body.y + 1, height: 1, ..body };
    let rows = Rect { y: body.y + 2, height: rows, ..body };
    let detail = Rect { y: rows.bottom(), height: detail, ..body };
    let when = Rect { y: detail.bottom(), height: when, ..body };
    Areas { head, rows, detail, when }
}

/// Columns of the first column where it tells types of units, too.
const TYPES: usize = 36;

/// Columns from which on a wait has room for how unusual it is beside what was waited for.
const SIGMAS: usize = 28;

/// Recordings from this length on have moments and lengths that need more room, ns.
const LONG: Ns = 600_000_000_000;

/// Widths of: what, thread, when, for, waits on, suspects. 0: left out.
/// With `types`, the first has room for what types of units are called; of `long` recordings, times have more.
/// `needed`: what thread, waits on and suspects would fill.
fn columns(width: usize, types: bool, long: bool, needed: [usize; 3]) -> [usize; 6] {
    let room = width.saturating_sub(3);
    let (when, length) = if long { (12, 12) } else { (10, 9) };
    if width >= 72 {
        let what = if types && width >= 110 { TYPES } else { 17 };
        let flexible = fill(room - what - when - length, needed);
        [what, flexible[0], when, length, flexible[1], flexible[2]]
    } else {
        let flexible = share_out(room - length, &[(4, 8), (5, 10)]);
        [0, flexible[0], 0, length, flexible[1], 0]
    }
}

/// Splits `room` among thread, waits on and suspects: nobody has more than it needs while another one lacks it.
fn fill(room: usize, needed: [usize; 3]) -> [usize; 3] {
    // The object is told in full below; who is suspected is told only here.
    let fair = share_out(room, &[(34, 14), (31, 13), (35, 14)]);
    let mut out = [0, 1, 2].map(|i| needed[i].min(fair[i]));
    // Who is suspected first, then what is waited for.
    for i in [2, 1, 0] {
        let spare = room.saturating_sub(out.iter().sum());
        out[i] += (needed[i] - out[i]).min(spare);
    }
    // What nobody needs lies between the columns.
    let spare = room.saturating_sub(out.iter().sum());
    let gap = (spare / 3).min(4);
    [out[0] + gap, out[1] + gap, out[2] + spare - 2 * gap]
}

/// Columns that the texts of thread, waits on and suspects fill, with a blank after each.
fn needed(ui: &Ui) -> [usize; 3] {
    let heads = [6, 8, 8];
    let rows = ui.state.victims.rows.iter().map(|row| {
        let more = if row.alike > 0 { 2 + row.alike.to_string().len() } else { 0 };
        let name =
            ui.recording().map_or(0, |r| width(&r.thread_name_at(row.victim.thread, row.victim.end())));
        let sigmas = if row.sigmas.is_some() { 8 } else { 0 };
        [name + more + 2 * usize::from(row.behind), width(&row.waits) + sigmas, width(&row.suspects)]
    });
    rows.fold(heads, |a, b| [0, 1, 2].map(|i| a[i].max(b[i]))).map(|n| n + 1)
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = &ui.state.victims;
    let a = layout(ui.state, body);
    let everyone = s.everyone || ui.recording().is_some_and(|r| !r.has_focus());
    let unread = ui.recording().and_then(|r| r.unread.as_deref());
    let hung =
        if unread.is_some() { "Victims: what hung, of what could be read" } else { "Victims: what hung" };
    let whose = if everyone { "of everybody" } else { "of the focus" };
    rule(
        ui,
        buffer,
        body,
        &match s.all.len() {
            _ if !s.known => hung.to_owned(),
            n if n < s.total => format!("{hung} ({n} of {}, the worst)", s.total),
            n => format!("{hung} ({n})"),
        },
        &format!("{whose}, by {}", s.sort.word()),
    );
    let types = s.rows.iter().any(|r| r.victim.violation.is_some());
    let long = ui.recording().is_some_and(|r| r.graph.duration() >= LONG);
    let w = columns(usize::from(body.width), types, long, needed(ui));
    let heads = ["what", "thread", "when", "for", "waits on", "suspects"];
    let mut head = vec![Span::raw("  ")];
    for (i, (name, n)) in heads.iter().zip(w).enumerate() {
        if n > 0 {
            let text = if matches!(i, 2 | 3) { right(name, n - 2) + "  " } else { left(name, n) };
            head.push(ui.span(Look::Dim, text));
        }
    }
    buffer.set_line(a.head.x, a.head.y, &Line::from(head), a.head.width);
    if s.rows.is_empty() {
        let text = if !s.known {
            "looking for victims…".to_owned()
        } else if let Some(unread) = unread {
            format!("{}. What hung may be in the rest; g l tells what is wrong.", text::capital(unread))
        } else if everyone {
            "Nothing waited, ran or yielded unusually long. The timeline (t) shows everything there is."
                .into()
        } else {
            "Nothing in the focus waited, ran or yielded unusually long. Press a for everybody else, or t for \
             the timeline."
                .into()
        };
        nothing(ui, buffer, Rect { height: a.rows.height + a.detail.height, ..a.rows }, &text);
        return;
    }
    for (i, row) in s.rows.iter().enumerate().skip(s.offset).take(usize::from(a.rows.height)) {
        let selected = Some(row.key()) == s.selected;
        let y = a.rows.y + (i - s.offset) as u16;
        put(ui, buffer, a.rows, y, &line(ui, row, w, selected), selected);
    }
    detail(ui, buffer, a.detail);
    when(ui, buffer, a.when);
}

fn mark(ui: &Ui, v: &Victim) -> Span<'static> {
    match v.block_type {
        BlockType::LongRunning if starved(v) => ui.span(Look::Runnable, ui.g.runnable),
        BlockType::LongRunning => ui.span(Look::Running, ui.g.running),
        BlockType::RepeatedYield => ui.span(Look::Runnable, ui.g.yielding),
        BlockType::LongWait => ui.span(Look::Blocked, ui.g.blocked),
    }
}

fn line(ui: &Ui, row: &Row, w: [usize; 6], selected: bool) -> Line<'static> {
    let v = &row.victim;
    let name = ui.recording().map_or("?".into(), |r| r.thread_name_at(v.thread, v.end()));
    let mut spans = vec![pointer(ui, selected)];
    let text = |t: &str, n: usize| if n == 0 { String::new() } else { left(&ui.plain(t), n - 1) + " " };
    if w[0] > 0 {
        spans.push(mark(ui, v));
        spans.push(Span::raw(left(&what(ui, v, w[0]), w[0] - 2) + " "));
        name_of(ui, row, &name, w[1], &mut spans);
        spans.push(Span::raw(right(&time::moment(v.start, 10_000_000), w[2] - 2) + "  "));
    } else {
        spans.push(mark(ui, v));
        spans.push(Span::raw(" "));
        name_of(ui, row, &name, w[1].saturating_sub(2), &mut spans);
    }
    // One that the recording cut off took longer than was seen.
    let least = if row.cut { ">" } else { "" };
    spans.push(ui.span(Look::Victim, right(&format!("{least}{}", ui.length(v.duration)), w[3] - 2) + "  "));
    let sigma = if ui.g.ascii { " sigma" } else { "σ" };
    let sigmas =
        row.sigmas.filter(|_| w[4] >= SIGMAS).map_or_else(String::new, |s| format!(" ({s:.1}{sigma})"));
    let waits = crate::clean::clean_to(&row.waits, w[4].saturating_sub(width(&sigmas) + 1));
    spans.push(Span::raw(text(&format!("{waits}{sigmas}"), w[4])));
    spans.push(Span::raw(text(&row.suspects, w[5])));
    Line::from(spans)
}

/// ` slow unit (type GET /)` where there is room for types, else without.
fn what(ui: &Ui, v: &Victim, columns: usize) -> String {
    let types = ui.recording().zip(v.violation).filter(|_| columns >= TYPES);
    let types = types.map_or_else(String::new, |(r, x)| format!(" ({})", r.unit_type(x.unit_type)));
    let words = if starved(v) { "no CPU" } else { v.words() };
    ui.plain(&format!(" {words}{types}"))
}

/// The name of the thread, and how many like it stand behind the line.
fn name_of(ui: &Ui, row: &Row, name: &str, columns: usize, spans: &mut Vec<Span<'static>>) {
    let more = match row.alike {
        0 => String::new(),
        n => format!(" +{n}"),
    };
    let indent = if row.behind { "  " } else { "" };
    let room = columns.saturating_sub(1 + width(&more) + indent.len());
    let name = thread_name(&ui.plain(name), room);
    let fill = columns.saturating_sub(indent.len() + width(&name) + width(&more));
    spans.push(ui.span(Look::Strong, format!("{indent}{name}")));
    spans.push(ui.span(Look::Dim, more + &" ".repeat(fill)));
}

/// Did it use the CPU all the time, be it to work or to ask again and again?
fn on_cpu(v: &Victim) -> bool {
    v.block_type == BlockType::LongRunning || (v.waits_on.is_none() && v.episode.key.is_none())
}

/// More about the selected victim: what is told, and the whole of it.
fn about(ui: &Ui) -> Vec<(&'static str, String)> {
    let (Some(row), Some(r)) = (ui.state.victims.current_row(), ui.recording()) else { return Vec::new() };
    let v = &row.victim;
    let vertex = r.graph.vertex(v.vertex);
    let stack = match &row.ran_in {
        Some(functions) => functions.join(&format!(" {} ", ui.g.from)),
        None => r.wait_line(v.vertex, ui.g.from, 8),
    };
    let waits = if on_cpu(v) {
        format!("{} of {} on the CPU", ui.length(v.episode.ran), ui.length(v.duration))
    } else {
        let single = if v.episode.waits > 1 {
            format!(", {} waits, the longest {}", v.episode.waits, ui.length(v.episode.longest))
        } else {
            String::new()
        };
        format!("{}{single}", r.wait(&vertex))
    };
    let mut lines = vec![
        ("command", r.cmdline_at(v.thread, v.start + v.duration, 400)),
        (if on_cpu(v) { "ran" } else { "waits on" }, waits),
        ("in", stack),
    ];
    let (before, open) = v.cut(&r.graph);
    if before || open {
        let cut = pg_graph::report::cut(before, open);
        lines.insert(1, ("took", format!("more than the {} seen{cut}", ui.length(v.duration))));
    }
    if let Some(x) = &v.violation {
        let (took, may) = (ui.length(x.duration()), ui.length(x.threshold));
        let text = format!("a guard: its unit ({}) took {took} and may take {may}", r.unit_type(x.unit_type));
        lines.insert(1, ("found by", text));
    }
    if let Some(u) = &v.unserved {
        lines.insert(1, ("found by", crate::clean::clean(&u.words(&r.catalog)).into_owned()));
    }
    lines
}

/// Lines that a part of it has beside the first, at most.
const BROKEN: usize = 3;

/// The same in at most so many lines: each part has one, and those that need more have what is left.
fn detail_lines(ui: &Ui, columns: u16, room: usize) -> Vec<(&'static str, String)> {
    let columns = usize::from(columns).saturating_sub(14).max(10);
    let parts = about(ui);
    let mut spare = room.saturating_sub(parts.len());
    let mut out = Vec::new();
    for (name, text) in parts {
        let text = if text.is_empty() { "unknown".to_owned() } else { ui.plain(&text) };
        let lines = wrap(&text, columns);
        let more = spare.min(lines.len() - 1).min(BROKEN);
        spare -= more;
        let rest = lines[more..].join(" ");
        let shown = lines[..more].iter().cloned().chain([crate::clean::clean_to(&rest, columns)]);
        out.extend(shown.enumerate().map(|(i, l)| (if i == 0 { name } else { "" }, l)));
    }
    out.truncate(room);
    out
}

fn detail(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let (Some(row), Some(r)) = (ui.state.victims.current_row(), ui.recording()) else { return };
    let v = &row.victim;
    if area.height < 4 {
        return;
    }
    let ids = r.ids(v.thread);
    let aside = match row.alike {
        0 => ids,
        n if ui.state.victims.is_open(row) => format!("{n} more like it below: left hides them  {ids}"),
        n => format!("{n} more like it: right shows them  {ids}"),
    };
    let title =
        format!("{}  at {}{}", r.thread_name_at(v.thread, v.end()), time::at(v.start), r.clock(v.start));
    rule(ui, buffer, area, &title, &aside);
    let lines = detail_lines(ui, area.width, usize::from(area.height) - 1);
    for (i, (name, text)) in lines.into_iter().enumerate() {
        let line = Line::from(vec![ui.span(Look::Dim, format!("  {name:<10} ")), Span::raw(text)]);
        buffer.set_line(area.x, area.y + 1 + i as u16, &line, area.width);
    }
}

/// When each victim was, over the whole recording: how much of each moment its thread was blocked (or ran),
/// with the victim's own span told apart.
fn when(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let Some(r) = ui.recording() else { return };
    if area.height < 2 {
        return;
    }
    let end = r.graph.duration();
    let span = format!("0 s{} to {}", r.clock(0), time::moment(end, 100_000_000));
    rule(ui, buffer, area, "when", &span);
    let names = (usize::from(area.width) / 4).clamp(10, 28);
    let cells = usize::from(area.width).saturating_sub(names + 3);
    let s = &ui.state.victims;
    // It may have fewer lines than the list; the selected one is always among them.
    let lines = usize::from(area.height) - 1;
    let first = scrolled(s.offset, s.selected_row().unwrap_or(0), s.rows.len(), lines);
    for (i, row) in s.rows.iter().enumerate().skip(first).take(lines) {
        let v = &row.victim;
        let selected = Some(row.key()) == s.selected;
        let mut spans = vec![pointer(ui, selected)];
        let name = ui.plain(&r.thread_name_at(v.thread, v.end()));
        spans.push(Span::raw(left(&thread_name(&name, names), names) + " "));
        for c in 0..cells {
            let at = |c: usize| (u128::from(end) * c as u128 / cells.max(1) as u128) as Ns;
            let (a, b) = (at(c), at(c + 1).max(at(c) + 1));
            let share = r.graph.share(v.thread, a..b);
            let wanted = if on_cpu(v) { share.running() } else { share.blocked() };
            let level = (u128::from(wanted) * 7).div_ceil(u128::from(b - a)).min(7) as usize;
            let own = v.start < b && v.end() > a;
            let (look, glyph) = match (own, share.total()) {
                (_, 0) => (Look::Idle, " "),
                (true, _) => (Look::Victim, ui.g.spark[level]),
                (false, _) => (Look::Idle, ui.g.spark[level.min(2)]),
            };
            spans.push(ui.span(look, glyph));
        }
        put(ui, buffer, area, area.y + 1 + (i - first) as u16, &Line::from(spans), false);
    }
}
