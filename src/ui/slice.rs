//! The slice: the way back from the victim, a step a row, with edges between them.

use super::parts::{Ui, left, nothing, pointer, put, right, rule, thread_name, width, wrap};
use crate::app::state::State;
use crate::app::time;
use crate::app::views::scrolled;
use crate::clean::{clean, clean_to};
use crate::config::Look;
use pg_graph::SliceNode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Where the steps lie.
pub fn rows_area(state: &State, body: Rect) -> Rect {
    let foot = foot_height(body, state.diagnosis.slice().len() * lines_each(state, body));
    Rect { y: body.y + 2, height: body.height.saturating_sub(2 + foot), ..body }
}

/// Lines a step takes: the edge before it, itself, and where there is room for those of all steps its command line.
fn lines_each(state: &State, body: Rect) -> usize {
    let steps = state.diagnosis.slice().len();
    let roomy = usize::from(body.height) >= 2 + steps * 3 + usize::from(least_foot(body)) + 4;
    if roomy { 3 } else { 2 }
}

/// Fewest lines below the steps.
fn least_foot(body: Rect) -> u16 {
    match body.height {
        0..9 => 0,
        9..16 => 3,
        16..30 => 6,
        _ => 12,
    }
}

/// Lines below the steps: what they leave free, so that what is told of a step stands near it.
fn foot_height(body: Rect, rows: usize) -> u16 {
    let least = least_foot(body);
    if least == 0 {
        return 0;
    }
    let free = usize::from(body.height).saturating_sub(2 + rows);
    least.max(free as u16)
}

/// Keeps the selected step on the screen.
pub fn prepare(state: &mut State, body: Rect) {
    let height = usize::from(rows_area(state, body).height);
    let each = lines_each(state, body);
    let d = &mut state.diagnosis;
    let len = d.slice().len();
    d.step = d.step.min(len.saturating_sub(1));
    // The offset counts lines; the edge above a step belongs to it.
    let top = (d.step * each).saturating_sub(1);
    d.offset = scrolled(d.offset, d.step * each, len * each, height).min(top);
}

/// The step that a line belongs to.
pub fn owner(state: &State, body: Rect, line: usize) -> Option<usize> {
    let at = (state.diagnosis.offset + line + 1) / lines_each(state, body);
    (at < state.diagnosis.slice().len()).then_some(at)
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let d = &ui.state.diagnosis;
    let (Some(o), Some(r)) = (&d.outcome, ui.recording()) else {
        rule(ui, buffer, body, "Slice", "");
        let text = if d.running {
            "following the wait backwards…"
        } else {
            "No diagnosis yet: select a victim (V) and press enter."
        };
        nothing(ui, buffer, body, text);
        return;
    };
    let v = &o.victim;
    let done =
        if o.question.is_some() { "a question is open: enter" } else { "done: enter shows the verdict" };
    rule(ui, buffer, body, &format!("Slice: from {} backwards", r.thread_name(v.thread)), done);
    head(ui, buffer, Rect { y: body.y + 1, height: 1, ..body });
    let area = rows_area(ui.state, body);
    let columns = usize::from(area.width);
    let commands = lines_each(ui.state, body) > 2;
    let all = o.slice.iter().enumerate().flat_map(|(i, n)| {
        let edge = (i > 0).then_some((i, n, Part::Edge));
        let command = commands.then_some((i, n, Part::Command));
        edge.into_iter().chain([(i, n, Part::Step)]).chain(command)
    });
    for (line, (i, n, part)) in all.skip(d.offset).take(usize::from(area.height)).enumerate() {
        let selected = i == d.step && part == Part::Step;
        let text = match part {
            Part::Edge => edge(ui, n, columns),
            Part::Step => step(ui, i, n, area.width, selected),
            Part::Command => command(ui, i, n, columns),
        };
        put(ui, buffer, area, area.y + line as u16, &text, selected);
    }
    foot(ui, buffer, Rect { y: area.bottom(), height: body.bottom() - area.bottom(), ..body }, commands);
}

/// A line of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Edge,
    Step,
    Command,
}

/// Names alone do not tell several programs of one interpreter apart.
fn command(ui: &Ui, i: usize, n: &SliceNode, columns: usize) -> Line<'static> {
    let Some(r) = ui.recording() else { return Line::default() };
    let line = r.cmdline_at(n.thread, n.start + n.duration, columns);
    let last = i + 1 == ui.state.diagnosis.slice().len();
    Line::from(vec![
        Span::raw("   "),
        ui.span(Look::Border, format!("{}  ", if last { " " } else { ui.g.line })),
        ui.span(Look::Dim, clean_to(&ui.plain(&line), columns.saturating_sub(7))),
    ])
}

fn head(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let d = &ui.state.diagnosis;
    let Some(o) = &d.outcome else { return };
    let sure = o.report.root_causes.first().map(|c| c.confidence.clamp(0.0, 1.0));
    // Who takes what is recommended has not answered.
    let taken = o.decisions.iter().filter(|d| d.by == pg_graph::By::Policy).count();
    let answers = match (o.decisions.len() - taken, taken) {
        (own, 0) => format!("{} given", time::counted(own, "answer")),
        (0, taken) => format!("{} taken", time::counted(taken, "recommendation")),
        (own, taken) => format!("{} given, {taken} as recommended", time::counted(own + taken, "answer")),
    };
    let mut spans = vec![
        Span::raw(" "),
        ui.span(Look::Victim, o.victim.words()),
        Span::raw(format!(" {}", ui.length(o.victim.duration))),
    ];
    if let Some(sure) = sure {
        let full = (sure * 10.0).round() as usize;
        if area.width < 70 {
            let answers = time::counted(o.decisions.len(), "answer");
            spans.push(Span::raw(format!(", {:.0} % sure, {answers}", sure * 100.0)));
        } else {
            spans.push(Span::raw(format!(", {answers}")));
            spans.push(ui.span(Look::Dim, "   sure "));
            spans.push(ui.span(Look::Good, ui.g.full.repeat(full)));
            spans.push(ui.span(Look::Idle, ui.g.empty.repeat(10 - full)));
            spans.push(Span::raw(format!(" {:.0} %", sure * 100.0)));
        }
    } else {
        spans.push(Span::raw(format!(", {answers}")));
    }
    if area.width >= 70 && cause(ui).is_some() {
        spans.push(Span::raw("   "));
        spans.push(ui.span(Look::Cause, format!("{} root cause", ui.g.cause)));
    }
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
}

/// What a step did, in a few words.
pub fn doing(ui: &Ui, n: &SliceNode) -> String {
    let object =
        n.object.map_or_else(String::new, |o| ui.recording().map_or_else(String::new, |r| r.object(o)));
    match n.state {
        "running" => {
            n.function.as_ref().map_or_else(|| "on the CPU".into(), |f| format!("on the CPU in {}", clean(f)))
        }
        "runnable" => "waits for a CPU".into(),
        "exited" => "has ended".into(),
        "not-created" => "does not exist yet".into(),
        _ => {
            let call = n.syscall.as_deref().or(n.waits_on.as_deref()).unwrap_or("an unknown wait");
            crate::frames::call_on(Some(call), Some(&object))
        }
    }
}

/// The step that the verdict names.
fn cause(ui: &Ui) -> Option<usize> {
    crate::app::views::diagnosis::cause_step(ui.state.diagnosis.verdict()?)
}

fn step(ui: &Ui, i: usize, n: &SliceNode, area_width: u16, selected: bool) -> Line<'static> {
    let total = usize::from(area_width);
    let Some(r) = ui.recording() else { return Line::default() };
    let name = r.thread_name_at(n.thread, n.start + n.duration);
    let names = (total / 4).clamp(10, 30);
    let d = &ui.state.diagnosis;
    // The step that the verdict names, wherever it stands on the way.
    let cause = cause(ui) == Some(i);
    let in_circle = d.outcome.as_ref().is_some_and(|o| o.report.circle.contains(&i));
    let before = d.slice().iter().take(i).position(|b| b.thread == n.thread);
    let look = match i {
        _ if cause => Look::Cause,
        0 => Look::Victim,
        _ => Look::Strong,
    };
    // Shapes tell it where colours do not.
    let mark = match (cause, in_circle) {
        (true, _) => ui.g.cause,
        (false, true) => ui.g.circle,
        (false, false) => " ",
    };
    let mut spans = vec![
        pointer(ui, selected),
        ui.span(Look::Dim, right(&i.to_string(), 2)),
        ui.span(Look::Cause, mark),
        Span::raw(" "),
        ui.span(look, left(&thread_name(&ui.plain(&name), names), names) + " "),
        ui.state_mark(n.state),
    ];
    let mut used = 2 + 4 + names + 2;
    if total >= 70 {
        spans.push(Span::raw(format!(" {}", left(n.state, 9))));
        used += 10;
    }
    spans.push(Span::raw(right(&ui.length(n.spent), 9) + "  "));
    used += 11;
    let rest = total.saturating_sub(used);
    // Whose functions have no names is told below, where there is room.
    let all: Vec<&str> = n.stack.iter().map(String::as_str).collect();
    let named = crate::frames::telling(&all).iter().any(|f| !f.starts_with("0x"));
    let stack = if before.is_some() || !named { String::new() } else { stack(ui, n) };
    let room = if stack.is_empty() || rest < 40 { rest } else { rest / 2 };
    let text = before.map_or_else(|| doing(ui, n), |b| format!("step {b} again: a circle"));
    spans.push(Span::raw(left(&ui.plain(&text), room)));
    if room < rest {
        spans.push(ui.span(Look::Dim, format!("  {}", clean_to(&ui.plain(&stack), rest - room - 2))));
    }
    Line::from(spans)
}

/// The telling part of a step's stack, leaf first.
fn stack(ui: &Ui, n: &SliceNode) -> String {
    let all: Vec<&str> = n.stack.iter().map(String::as_str).collect();
    clean(&crate::frames::in_line(&crate::frames::telling(&all), ui.g.from, 6)).into_owned()
}

fn edge(ui: &Ui, n: &SliceNode, columns: usize) -> Line<'static> {
    let kind = n.edge.map_or("", pg_graph::EdgeKind::name);
    let (look, mark, words) = match &n.why_weak {
        None => (Look::StrongEdge, ui.g.strong, "strong".to_owned()),
        Some(why) => (Look::WeakEdge, ui.g.weak, format!("weak: {}", short_reason(&clean(why)))),
    };
    let text = format!("{} {kind}  ", ui.g.caused_by);
    let room = columns.saturating_sub(6 + width(&text) + 4);
    Line::from(vec![
        Span::raw("   "),
        ui.span(Look::Border, format!("{}  ", ui.g.line)),
        ui.span(look, text),
        ui.span(look, format!("{mark} ")),
        ui.span(Look::Dim, clean_to(&ui.plain(&words), room)),
    ])
}

/// What tells this edge from others of its kind comes first, since the end may be cut off.
fn short_reason(why: &str) -> String {
    match why.strip_prefix(pg_graph::Weak::FromState.words()).map(|rest| rest.trim_start_matches(": ")) {
        Some(rest) if !rest.is_empty() => format!("{rest} (no wake-up was recorded)"),
        _ => why.to_owned(),
    }
}

/// The selected step: whole stack, why, and its command line where the steps do not show theirs.
fn foot(ui: &Ui, buffer: &mut Buffer, area: Rect, commands: bool) {
    let d = &ui.state.diagnosis;
    let (Some(n), Some(r)) = (d.slice().get(d.step), ui.recording()) else { return };
    if area.height < 2 {
        return;
    }
    rule(ui, buffer, area, &r.thread_name_at(n.thread, n.start + n.duration), &r.ids(n.thread));
    let columns = usize::from(area.width).saturating_sub(2);
    let mut lines = Vec::new();
    let waits = if n.waits > 1 { format!(" in {} waits", n.waits) } else { String::new() };
    let from = crate::app::time::at(n.start);
    let to = crate::app::time::at(n.start + n.duration);
    let clock = r.clock(n.start);
    let spent = ui.plain(&time::part(n.spent, n.duration));
    lines.push(format!("{from}{clock} to {to}: {} {spent}{waits}, {}", n.state, doing(ui, n)));
    if !commands {
        lines.push(r.cmdline_at(n.thread, n.start + n.duration, columns));
    }
    if let Some(why) = &n.why_weak {
        lines.extend(wrap(&format!("weak edge: {}", clean(why)), columns));
    }
    let frames = crate::frames::condensed(&n.stack);
    let telling = stack(ui, n);
    // Where the stack itself has no room, its telling part has.
    if !telling.is_empty() && lines.len() + frames.len() >= usize::from(area.height) {
        lines.insert(1, clean_to(&format!("in {telling}"), columns));
    }
    lines.extend(frames.iter().map(|f| format!("  {}", clean_to(f, columns.saturating_sub(2)))));
    lines.retain(|l| !l.is_empty());
    for (i, l) in lines.iter().take(usize::from(area.height) - 1).enumerate() {
        let look = if i == 0 { Look::Text } else { Look::Dim };
        let cut = clean_to(l, columns);
        buffer.set_stringn(area.x + 1, area.y + 1 + i as u16, ui.plain(&cut), columns, ui.style(look));
    }
}
