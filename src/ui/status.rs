//! The status line, the hints, and what is shown while loading.

use super::parts::{Ui, width, wrap};
use crate::app::command::{COMMANDS, Cmd, Command, Context};
use crate::app::layer::Layer;
use crate::app::lost;
use crate::app::recording::Recording;
use crate::app::state::{Phase, View};
use crate::app::time;
use crate::app::violation_command;
use crate::clean::clean_to;
use crate::config::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use std::ops::Range;

/// A part of the first line: shown whole, or not at all.
struct Part {
    /// Which are kept where there is no room for all: those with the least.
    rank: u8,
    spans: Vec<Span<'static>>,
    /// What stands for it on a narrow screen.
    short: Option<Span<'static>>,
}

impl Part {
    fn new(rank: u8, spans: Vec<Span<'static>>) -> Self {
        Self { rank, spans, short: None }
    }

    fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }
}

fn total(parts: &[Part]) -> usize {
    parts.iter().map(Part::width).sum()
}

/// Leaves out what there are no columns for, the least important first.
fn keep_fitting(parts: &mut Vec<Part>, columns: usize) {
    while total(parts) > columns {
        let Some((at, last)) = parts.iter_mut().enumerate().max_by_key(|(_, p)| p.rank) else { return };
        match last.short.take() {
            Some(short) => last.spans = vec![Span::raw(" "), short],
            None => {
                parts.remove(at);
            }
        }
    }
}

/// Columns that the file's name gives way down to.
const LEAST_NAME: usize = 8;

/// The first line: what is looked at, and what is missing of it.
pub fn status(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let s = ui.state;
    let columns = usize::from(area.width);
    let help = vec![ui.span(Look::Key, HELP), ui.span(Look::Dim, help_words(area.width))];
    // A blank before the help.
    let room = columns.saturating_sub(help.iter().map(Span::width).sum::<usize>() + 1);
    let mut parts = Vec::new();
    if let Some(r) = ui.recording() {
        parts = about(ui, r, columns);
    }
    let busy = s.busy.last().filter(|_| s.phase == Phase::Ready);
    // What goes on stands on the right.
    let busy = busy.map(|b| ui.span(Look::Warning, format!("{b}{} ", ui.g.more)));
    parts.extend(busy.map(|b| Part::new(2, vec![b])));
    keep_fitting(&mut parts, room.saturating_sub(LEAST_NAME.min(width(&s.file)) + 1));
    // On a narrow screen what was lost matters more than how the file is called.
    let lost = ui.recording().map_or(0, |r| r.coverage.loss.events);
    let most = columns / if lost > 0 && columns < 60 { 5 } else { 3 };
    let name = clean_to(&s.file, most.min(room.saturating_sub(total(&parts) + 1)));
    let mut aside: Vec<Span> = Vec::new();
    if let Some(at) = parts.iter().position(|p| p.rank == 2) {
        aside.extend(parts.remove(at).spans);
    }
    let mut spans = vec![ui.span(Look::Status, format!(" {}", ui.plain(&name)))];
    spans.extend(parts.into_iter().flat_map(|p| p.spans));
    if let Some(r) = ui.recording() {
        let used: usize = spans.iter().chain(&aside).map(Span::width).sum();
        let room = room.saturating_sub(used + 12);
        if columns >= 70 && room >= 8.min(width(&r.header.focus)) && !r.header.focus.is_empty() {
            aside.push(ui.span(Look::Dim, "focus: "));
            aside.push(Span::raw(ui.plain(&clean_to(&r.header.focus, room.min(60)))));
            aside.push(Span::raw("  "));
        }
    }
    aside.extend(help);
    let aside = Line::from(aside);
    let at = area.width.saturating_sub(aside.width() as u16);
    buffer.set_line(area.x, area.y, &Line::from(spans), at.saturating_sub(1));
    buffer.set_line(area.x + at, area.y, &aside, area.width - at);
}

/// What is told of a recording.
fn about(ui: &Ui, r: &Recording, columns: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let remarks = r.remarks().count();
    // What there is to remark matters more than where it was recorded.
    if columns >= if remarks > 0 { 100 } else { 70 } && !r.header.host.is_empty() {
        let host = Span::raw(ui.plain(&clean_to(&r.header.host, 20)));
        parts.push(Part::new(8, vec![ui.span(Look::Dim, "  host "), host]));
    }
    parts.push(Part::new(4, vec![Span::raw(format!("  {}", ui.length(r.graph.duration())))]));
    if columns >= 60 {
        let n = r.events;
        let events = if n == 1 { "event" } else { "events" };
        parts.push(Part::new(7, vec![Span::raw(format!("  {} {events}", time::count(n)))]));
    }
    let loss = r.coverage.loss;
    let total = loss.events.saturating_add(loss.stacks).saturating_add(loss.samples);
    if total > 0 || r.unread.is_some() {
        let what = match lost::kinds(r).as_slice() {
            [] => r.unread_word().into(),
            [only] if columns >= 100 => format!("lost {only}"),
            _ => format!("lost {}", time::count(total)),
        };
        let what = ui.span(Look::Lost, format!(" {} {what} ", ui.g.lost));
        parts.push(Part::new(1, vec![Span::raw("  "), what]));
    } else {
        parts.push(Part::new(6, vec![ui.span(Look::Dim, "  lost 0")]));
    }
    if remarks > 0 {
        let many = time::counted(remarks, "remark");
        // What is wrong with the file is more than a remark.
        let (rank, look, text, short) = match (r.warnings.is_empty(), columns) {
            (true, 0..60) => (5, Look::Dim, String::new(), None),
            (true, _) => (5, Look::Dim, format!(" {many} (g l)"), None),
            (false, 0..60) => (3, Look::Warning, " g l! ".into(), None),
            (false, _) => (3, Look::Warning, format!(" {many} (g l) "), Some(" g l! ")),
        };
        let mut part = Part::new(rank, vec![Span::raw(" "), ui.span(look, text)]);
        part.short = short.map(|t| ui.span(look, t));
        parts.push(part);
    }
    parts
}

/// A hint of the last line, and where it stands.
struct Hint {
    key: String,
    words: &'static str,
    /// What a click on it does; none where the key is one of several.
    cmd: Option<Cmd>,
    /// Columns it takes, with the blanks around it.
    columns: Range<usize>,
}

/// What a click on a place of the screen's first or last line asks for.
pub fn command_at(ui: &Ui, area: Rect, x: u16, y: u16) -> Option<Cmd> {
    let x = usize::from(x);
    if y == area.y {
        return (x + width(help_words(area.width)) + width(HELP) >= usize::from(area.width))
            .then_some(Cmd::Help);
    }
    let s = ui.state;
    if y + 1 != area.bottom() || s.message.is_some() {
        return None;
    }
    if s.phase != Phase::Ready && s.layers.is_empty() {
        return None;
    }
    shown(ui, area.width).into_iter().find(|h| h.columns.contains(&x)).and_then(|h| h.cmd)
}

/// The way to the help, at the end of the first line.
const HELP: &str = "[?]";

fn help_words(columns: u16) -> &'static str {
    if columns >= 60 { " help " } else { " " }
}

/// The last line: what was just said, or the keys that make sense here.
pub fn hints(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let s = ui.state;
    if let Some(m) = &s.message {
        let columns = usize::from(area.width);
        let text = ui.plain(&m.text);
        let mut spans = vec![Span::raw(" ")];
        // What is cut off stands in the log, if it is worth keeping.
        let kept = s.log.last().is_some_and(|l| l.text == m.text);
        let log = s.config.keymap.keys_for(Context::Global, Cmd::GoLog).into_iter().next();
        match log.map(|key| format!(" {key} all")) {
            Some(rest) if kept && width(&text) + 1 > columns && columns > 3 * width(&rest) => {
                spans.push(ui.span(m.look, ui.plain(&clean_to(&text, columns - 1 - width(&rest)))));
                spans.push(ui.span(Look::Key, rest));
            }
            _ => spans.push(ui.span(m.look, text)),
        }
        buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
        return;
    }
    if s.phase != Phase::Ready && s.layers.is_empty() {
        let line = Line::from(vec![Span::raw(" "), ui.span(Look::Key, "q"), Span::raw(" quit")]);
        buffer.set_line(area.x, area.y, &line, area.width);
        return;
    }
    let mut spans = Vec::new();
    for h in shown(ui, area.width) {
        spans.push(Span::raw(" "));
        spans.push(ui.span(Look::Key, h.key));
        spans.push(Span::raw(format!(" {} ", h.words)));
    }
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
}

/// The keys that make sense here and fit into a line, and where they stand.
fn shown(ui: &Ui, columns: u16) -> Vec<Hint> {
    let s = ui.state;
    let context = s.context();
    let mut shown: Vec<(String, &'static str, Option<Cmd>)> = Vec::new();
    if context == Context::Question
        && let Some(q) = s.diagnosis.question()
    {
        let n = q.choices.len().min(9);
        if n > 0 {
            shown.push((if n > 1 { format!("1-{n}") } else { "1".into() }, "choose", None));
        }
    }
    let cancel = match context {
        Context::Help => Some("close"),
        Context::Question => Some("later"),
        _ => None,
    };
    // esc closes everything everywhere; the key that opened the help closes just that.
    let keys = s.config.keymap.keys_for(context, Cmd::Cancel);
    let esc = keys.iter().find(|k| *k == "esc").or(keys.first()).cloned();
    if let (Some(word), Some(key)) = (cancel, esc) {
        shown.push((key, word, Some(Cmd::Cancel)));
    }
    let done = s.view == View::Slice && s.diagnosis.verdict().is_some();
    // First what one does in this view, then where one can go, then the rest.
    let own: Vec<&Command> = COMMANDS.iter().filter(|c| c.contexts.contains(&context)).collect();
    let global =
        COMMANDS.iter().filter(|c| context != Context::Text && c.contexts.contains(&Context::Global));
    let key = |c: &Command| s.config.keymap.keys_for(context, c.cmd).into_iter().next().unwrap_or_default();
    // Among all threads of a machine those of the diagnosis are hard to find.
    let first =
        |c: &Command| key(c) == "enter" || c.cmd == Cmd::OnlyRelated && !s.diagnosis.slice().is_empty();
    let mut ranked: Vec<(usize, &Command)> = own.iter().map(|c| (usize::from(!first(c)), *c)).collect();
    ranked.sort_by_key(|r| r.0);
    let most = match context {
        // What can be done with a question and its answers is found in no other view.
        Context::Question | Context::Slice | Context::Verdict => usize::MAX,
        // What is said of a limit, too.
        Context::Violations => 4,
        Context::Notes => 3,
        _ => 2,
    };
    for (i, r) in ranked.iter_mut().enumerate() {
        // The first few go before the ways to other views.
        r.0 = if i < most { 0 } else { 2 };
    }
    ranked.extend(global.map(|c| (1, c)));
    ranked.sort_by_key(|r| r.0);
    let mut seen = Vec::new();
    for (_, c) in ranked {
        if c.hint.is_empty() || seen.contains(&c.cmd) || not_now(ui, c.cmd) {
            continue;
        }
        seen.push(c.cmd);
        let key = key(c);
        if !key.is_empty() {
            // What going on leads to when nothing is left to ask.
            let writes = matches!(s.layers.last(), Some(Layer::Note(_) | Layer::Guard(_) | Layer::Help(_)));
            let hint = match c.cmd {
                Cmd::Resume if done => "verdict",
                // There is no list to choose from.
                Cmd::Accept if writes => "keep",
                _ => c.hint,
            };
            shown.push((key, hint, Some(c.cmd)));
        }
    }
    let mut out: Vec<Hint> = Vec::new();
    let mut at = 0;
    for (key, words, cmd) in shown {
        // A blank before, between and after; the last one may be cut off.
        let end = at + width(&key) + width(words) + 3;
        if end > usize::from(columns) + 1 {
            continue;
        }
        out.push(Hint { key, words, cmd, columns: at..end });
        at = end;
    }
    out
}

/// Is there nothing for this command to do?
fn not_now(ui: &Ui, cmd: Cmd) -> bool {
    let s = ui.state;
    let layer = !s.layers.is_empty();
    match cmd {
        Cmd::GoVictims => layer || s.view == View::Victims,
        Cmd::GoViolations => {
            let none = s.recording.as_ref().is_none_or(|r| r.graph.violations().is_empty());
            layer || none || s.view == View::Violations
        }
        Cmd::GoThreads => layer || s.view == View::Threads,
        Cmd::GoTimeline => layer || s.view == View::Timeline,
        Cmd::Help => matches!(s.layers.last(), Some(Layer::Help(_) | Layer::WhyNot(_) | Layer::Flag(..))),
        Cmd::Quit => layer,
        Cmd::Undo if s.view == View::Notes => layer || s.notes.deleted.is_empty(),
        Cmd::OpenVertex | Cmd::See | Cmd::DeleteNote if s.view == View::Notes => s.notes.notes.is_empty(),
        Cmd::Undo => {
            let here = matches!(s.view, View::Question | View::Slice | View::Verdict);
            layer || !here || s.diagnosis.undone().is_none()
        }
        Cmd::CopyVerdict => !matches!(
            s.view,
            View::Verdict | View::Slice | View::Path | View::Vertex | View::Steps | View::Units
        ),
        Cmd::FinishByPolicy => s.diagnosis.question().is_none(),
        // A list without rows offers nothing that is done with one.
        Cmd::Diagnose | Cmd::SortVictims => s.victims.rows.is_empty(),
        Cmd::CriticalPath | Cmd::See if s.view == View::Victims => s.victims.rows.is_empty(),
        Cmd::See if s.view == View::Violations => s.violations.rows.is_empty(),
        Cmd::CompareUnits | Cmd::SortViolations => s.violations.rows.is_empty(),
        Cmd::DiagnoseUnit | Cmd::AdjustGuard | Cmd::SilenceGuard => violation_command::selected(s).is_none(),
        Cmd::DiagnoseTransaction | Cmd::SeeHander => !violation_command::is_handed_on(s),
        _ => false,
    }
}

/// While the file is read.
pub fn loading(ui: &Ui, buffer: &mut Buffer, area: Rect, what: &str, share: f64) {
    let columns = usize::from(area.width).saturating_sub(8).min(60);
    let done = ((columns as f64) * share).round() as usize;
    let y = area.y + area.height / 3;
    let x = area.x + (area.width - columns as u16) / 2;
    // What comes after the reading takes as long as it takes.
    let text = if share < 1.0 { format!("{what} {:.0} %", share * 100.0) } else { format!("{what}…") };
    buffer.set_stringn(x, y, ui.plain(&text), columns, ui.style(Look::Text));
    if y + 1 < area.bottom() {
        let bar = Line::from(vec![
            ui.span(Look::Running, ui.g.full.repeat(done)),
            ui.span(Look::Idle, ui.g.empty.repeat(columns - done)),
        ]);
        buffer.set_line(x, y + 1, &bar, columns as u16);
    }
}

/// When the file cannot be read.
pub fn failed(ui: &Ui, buffer: &mut Buffer, area: Rect, why: &str) {
    let columns = usize::from(area.width).saturating_sub(4);
    let mut y = area.y + 1;
    buffer.set_string(area.x + 2, y, "This recording cannot be opened.", ui.style(Look::Error));
    for line in wrap(&ui.plain(why), columns) {
        y += 1;
        if y + 1 >= area.bottom() {
            break;
        }
        buffer.set_string(area.x + 2, y, line, ui.style(Look::Text));
    }
}
