//! A slow unit and a normal one of its type, side by side: what each waited for and how long, what each did on the CPU,
//! and where the selected wait was.

use super::parts::{Ui, left, nothing, pointer, put, right, rule};
use super::violations::excess;
use crate::app::recording::Recording;
use crate::app::state::State;
use crate::app::time;
use crate::clean::clean_to;
use crate::config::Look;
use pg_event::Ns;
use pg_graph::{Comparison, Part, Profile, Side, ViolationFact};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Lines above the list: rule, the two units, heads.
const HEAD: u16 = 4;
/// Functions of a profile that are listed at most.
const FUNCTIONS: usize = 8;

/// Where the list of parts lies, and what is below it.
pub fn layout(state: &State, body: Rect) -> (Rect, Rect) {
    let parts = state.units.shown.as_ref().map_or(0, |s| s.1.parts.len()).min(1000) as u16;
    let room = body.height.saturating_sub(HEAD);
    let rows = if room < 10 { room } else { parts.clamp(2, room / 2) };
    let rows = Rect { y: body.y + HEAD, height: rows, ..body };
    let rest = Rect { y: rows.bottom(), height: body.bottom().saturating_sub(rows.bottom()), ..body };
    (rows, rest)
}

/// Widths of: part, slow, normal, more. 0: left out.
fn columns(width: usize) -> [usize; 4] {
    let sides = if width >= 72 { 18 } else { 10 };
    let more = if width >= 72 { 11 } else { 0 };
    [width.saturating_sub(2 + 2 * sides + more), sides, sides, more]
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let (Some((v, c)), Some(r)) = (&ui.state.units.shown, ui.recording()) else {
        rule(ui, buffer, body, "Units side by side", "");
        nothing(
            ui,
            buffer,
            body,
            "No unit is chosen: v lists those that took too long, c compares one of them.",
        );
        return;
    };
    rule(ui, buffer, body, &format!("Units of {} side by side", r.unit_type(v.unit_type)), &excess(v));
    let (rows, rest) = layout(ui.state, body);
    heads(ui, r, buffer, body, v, c);
    let s = &ui.state.units;
    let w = columns(usize::from(body.width));
    let most = c.parts.iter().map(Part::more).max().unwrap_or(0);
    for (i, part) in c.parts.iter().enumerate().skip(s.offset).take(usize::from(rows.height)) {
        let selected = i == s.row;
        put(
            ui,
            buffer,
            rows,
            rows.y + (i - s.offset) as u16,
            &line(ui, r, (part, most), w, selected),
            selected,
        );
    }
    below(ui, r, buffer, rest, c);
}

fn heads(ui: &Ui, r: &Recording, buffer: &mut Buffer, body: Rect, v: &ViolationFact, c: &Comparison) {
    let more = if v.ended { "" } else { " and went on" };
    let by = r.graph.handed_on(&r.catalog, v.thread, v.time);
    let by = by.map_or_else(String::new, |h| format!(", {}", h.words(&r.catalog)));
    let slow = format!(
        "  slow    {} at {}: {}{more}, may take {}{by}",
        r.thread_name(v.thread),
        time::at(v.start),
        ui.length(v.duration()),
        ui.length(v.threshold)
    );
    let normal = c.with.map_or_else(
        || "  normal  none of this type was recorded: nothing to compare with".to_owned(),
        |n| {
            format!(
                "  normal  {} at {}: {}, nearest to the median of {}",
                r.thread_name(n.unit.thread),
                time::at(n.unit.start),
                ui.length(n.unit.duration()),
                n.of
            )
        },
    );
    let columns = usize::from(body.width);
    for (y, text, look) in [(1, slow, Look::Victim), (2, normal, Look::Good)] {
        buffer.set_string(body.x, body.y + y, clean_to(&ui.plain(&text), columns), ui.style(look));
    }
    let w = self::columns(columns);
    let mut head = vec![Span::raw("  ")];
    for (i, (name, n)) in ["where the time went", "slow", "normal", "more"].iter().zip(w).enumerate() {
        if n > 0 {
            head.push(ui.span(Look::Dim, if i > 0 { right(name, n - 1) + " " } else { left(name, n) }));
        }
    }
    buffer.set_line(body.x, body.y + 3, &Line::from(head), body.width);
}

fn line(ui: &Ui, r: &Recording, (p, most): (&Part, Ns), w: [usize; 4], selected: bool) -> Line<'static> {
    let object = if p.slow.object.is_some() { p.slow.object } else { p.normal.object };
    let what = match p.what {
        "running" => "on the CPU".to_owned(),
        "runnable" => "without a CPU".into(),
        "unseen" => "not seen".into(),
        what => {
            let of = if p.function.is_empty() { String::new() } else { format!(" in {}", p.function) };
            let object = r.object(object);
            let on = if object.is_empty() { String::new() } else { format!("  {object}") };
            format!("{what}{of}{on}")
        }
    };
    let mark = match p.what {
        "running" | "runnable" => ui.state_mark(p.what),
        "unseen" => ui.span(Look::Idle, ui.g.unknown),
        "disk" => ui.span(Look::Disk, ui.g.disk),
        _ => ui.state_mark("blocked"),
    };
    let side = |s: &Side| match (s.time, s.count) {
        (0, _) => "-".to_owned(),
        (ns, n) if n > 1 && w[3] > 0 => format!("{} in {n}", ui.length(ns)),
        (ns, _) => ui.length(ns),
    };
    let more = p.more();
    // What explains a tenth of the difference.
    let look = if more > 0 && more * 10 >= most { Look::Victim } else { Look::Text };
    let mut spans = vec![
        pointer(ui, selected),
        mark,
        Span::raw(left(&clean_to(&ui.plain(&format!(" {what}")), w[0] - 2), w[0] - 1)),
        ui.span(look, right(&side(&p.slow), w[1] - 1) + " "),
        Span::raw(right(&side(&p.normal), w[2] - 1) + " "),
    ];
    if w[3] > 0 {
        let text = if more > 0 { format!("+{}", ui.length(more)) } else { String::new() };
        spans.push(ui.span(look, right(&text, w[3] - 1)));
    }
    Line::from(spans)
}

/// The stacks of the selected wait, and what both did on the CPU.
fn below(ui: &Ui, r: &Recording, buffer: &mut Buffer, area: Rect, c: &Comparison) {
    if area.height < 4 {
        return;
    }
    let half = area.width / 2;
    let (a, b) =
        (Rect { width: half - 1, ..area }, Rect { x: area.x + half, width: area.width - half, ..area });
    let Some(part) = c.parts.get(ui.state.units.row) else { return };
    let on_cpu = part.slow.stack.is_none() && part.normal.stack.is_none();
    for (area, title, side, profile) in
        [(a, "slow", &part.slow, &c.slow), (b, "normal", &part.normal, &c.normal)]
    {
        let stacks = if on_cpu { 0 } else { area.height / 2 };
        if stacks >= 2 {
            let stack = Rect { height: stacks, ..area };
            rule(ui, buffer, stack, &format!("{title}: waited in"), "");
            let frames = if side.stack.is_some() { r.frames(side.stack) } else { Vec::new() };
            list(ui, buffer, stack, &frames, "not at all");
        }
        let cpu = Rect { y: area.y + stacks, height: area.height - stacks, ..area };
        rule(ui, buffer, cpu, &format!("{title}: on the CPU"), &time::counted(profile.samples, "sample"));
        list(ui, buffer, cpu, &functions(profile), "no sample met it there");
    }
}

/// Functions by the share of the time on the CPU that went to them and what they called.
fn functions(p: &Profile) -> Vec<String> {
    p.functions.iter().take(FUNCTIONS).map(|(f, share)| format!("{:>3.0} %  {f}", share * 100.0)).collect()
}

fn list(ui: &Ui, buffer: &mut Buffer, area: Rect, lines: &[String], none: &str) {
    let room = usize::from(area.width).saturating_sub(2);
    let height = usize::from(area.height).saturating_sub(1);
    if lines.is_empty() && height > 0 {
        buffer.set_string(area.x + 2, area.y + 1, clean_to(none, room), ui.style(Look::Dim));
    }
    for (i, text) in lines.iter().take(height).enumerate() {
        let text = clean_to(&ui.plain(text), room);
        buffer.set_string(area.x + 2, area.y + 1 + i as u16, text, ui.style(Look::Text));
    }
}
