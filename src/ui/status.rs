//! The status line, the hints, and what is shown while loading.

use super::parts::{Ui, width, wrap};
use crate::app::command::{COMMANDS, Cmd, Command, Context};
use crate::app::layer::Layer;
use crate::app::state::{Phase, View};
use crate::app::time;
use crate::app::violation_command;
use crate::clean::clean_to;
use crate::config::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use std::ops::Range;

/// The first line: what is looked at, and what is missing of it.
pub fn status(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let s = ui.state;
    let columns = usize::from(area.width);
    let lost = ui.recording().map_or(0, |r| r.coverage.loss.events);
    // On a narrow screen what was lost matters more than how the file is called.
    let name = columns / if lost > 0 && columns < 60 { 5 } else { 3 };
    let mut spans = vec![ui.span(Look::Status, format!(" {}", ui.plain(&clean_to(&s.file, name))))];
    let mut aside: Vec<Span> = Vec::new();
    if let Some(r) = ui.recording() {
        let remarks = r.remarks().count();
        // What there is to remark matters more than where it was recorded.
        if columns >= if remarks > 0 { 100 } else { 70 } && !r.header.host.is_empty() {
            spans.push(ui.span(Look::Dim, "  host "));
            spans.push(Span::raw(ui.plain(&clean_to(&r.header.host, 20))));
        }
        spans.push(Span::raw(format!("  {}", ui.length(r.graph.duration()))));
        if columns >= 60 {
            let n = r.events;
            let events = if n == 1 { "event" } else { "events" };
            spans.push(Span::raw(format!("  {} {events}", time::count(n))));
        }
        let lost = r.coverage.loss;
        let total = lost.events + lost.stacks + lost.samples;
        if total > 0 || r.unread.is_some() {
            let what = if total > 0 { format!("lost {}", time::count(total)) } else { "cut off".into() };
            spans.push(Span::raw("  "));
            spans.push(ui.span(Look::Lost, format!(" {} {what} ", ui.g.lost)));
        } else {
            spans.push(ui.span(Look::Dim, "  lost 0"));
        }
        if remarks > 0 {
            let many = time::counted(remarks, "remark");
            // What is wrong with the file is more than a remark.
            let (look, text) = match (r.warnings.is_empty(), columns) {
                (true, 0..60) => (Look::Dim, String::new()),
                (true, _) => (Look::Dim, format!(" {many} (g l)")),
                (false, 0..60) => (Look::Warning, " g l! ".into()),
                (false, _) => (Look::Warning, format!(" {many} (g l) ")),
            };
            spans.push(Span::raw(" "));
            spans.push(ui.span(look, text));
        }
        let used: usize = spans.iter().map(Span::width).sum();
        let room = columns.saturating_sub(used + 20);
        if columns >= 70 && room >= 8.min(width(&r.header.focus)) && !r.header.focus.is_empty() {
            aside.push(ui.span(Look::Dim, "focus: "));
            aside.push(Span::raw(ui.plain(&clean_to(&r.header.focus, room.min(60)))));
            aside.push(Span::raw("  "));
        }
    }
    if let Some(busy) = s.busy.last().filter(|_| s.phase == Phase::Ready) {
        aside.insert(0, ui.span(Look::Warning, format!("{}{} ", busy, ui.g.more)));
    }
    aside.push(ui.span(Look::Key, HELP));
    aside.push(ui.span(Look::Dim, help_words(area.width)));
    let aside = Line::from(aside);
    let at = area.width.saturating_sub(aside.width() as u16);
    buffer.set_line(area.x, area.y, &Line::from(spans), at.saturating_sub(1));
    buffer.set_line(area.x + at, area.y, &aside, area.width - at);
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
