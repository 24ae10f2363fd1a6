//! Units that took too long: the list, and of the selected one the distribution of its type and where it was seen.

use super::histogram::Distribution;
use super::parts::{Ui, left, nothing, pointer, put, right, rule, share_out, thread_name, width};
use crate::app::recording::Recording;
use crate::app::state::State;
use crate::app::time;
use crate::clean::clean_to;
use crate::config::Look;
use pg_event::SeenBy;
use pg_graph::ViolationFact;
use pg_graph::report::MostlyInfo;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Most lines of a distribution.
const TALLEST: u16 = 14;

/// Where the parts lie, each with its rule.
pub struct Areas {
    /// The list, without rule and heads.
    pub rows: Rect,
    /// How long units of the type took.
    distribution: Rect,
    /// Where it was seen.
    stack: Rect,
}

/// Divides the body.
pub fn layout(state: &State, body: Rect) -> Areas {
    let head = 2;
    let count = state.violations.rows.len().min(1000) as u16;
    let room = body.height.saturating_sub(head);
    let rows = if room < 12 { room.saturating_sub(2) } else { count.clamp(3, (room / 3).max(3)) };
    let rows = Rect { y: body.y + head, height: rows, ..body };
    let rest = Rect { y: rows.bottom(), height: body.bottom().saturating_sub(rows.bottom()), ..body };
    let none = Rect { height: 0, ..rest };
    if room < 12 {
        return Areas { rows, distribution: none, stack: rest };
    }
    if body.width >= 140 {
        let half = rest.width / 2;
        let stack = Rect { x: rest.x + half, width: rest.width - half, ..rest };
        let distribution = Rect { width: half, height: rest.height.min(TALLEST), ..rest };
        return Areas { rows, distribution, stack };
    }
    // Rule, bars and their line, legend.
    let distribution = Rect { height: (rest.height / 2).clamp(5, TALLEST), ..rest };
    let stack = Rect { y: distribution.bottom(), height: rest.height - distribution.height, ..rest };
    Areas { rows, distribution, stack }
}

/// Widths of: type, thread, when, queued, took, may take, excess. 0: left out.
fn columns(width: usize, queued: bool) -> [usize; 7] {
    let room = width.saturating_sub(2);
    if width >= 72 {
        let queued = if queued { 10 } else { 0 };
        // It stands below as well, of the selected one.
        let may_take = if queued > 0 && width < 100 { 0 } else { 11 };
        let flexible = share_out(room - 31 - queued - may_take, &[(3, 10), (2, 10)]);
        [flexible[0], flexible[1], 11, queued, 11, may_take, 9]
    } else {
        [room.saturating_sub(20), 0, 0, 0, 11, 0, 9]
    }
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let s = &ui.state.violations;
    let a = layout(ui.state, body);
    let withdrawn = ui.recording().map_or(0, |r| r.graph.withdrawn().len());
    let withdrawn = if withdrawn > 0 { format!("; {withdrawn} withdrawn") } else { String::new() };
    let title = format!("Violations: units that took too long ({}{withdrawn})", s.rows.len());
    rule(ui, buffer, body, &title, &format!("by {}", s.sort.word()));
    let Some(r) = ui.recording() else { return };
    if s.rows.is_empty() {
        let text = "No unit of work took too long here, or nobody looked.\nA guard looks. First learn what is usual:\n\
                    pg-tui train -p PID -o app.pgprof\nThen record what takes longer:\n\
                    pg-tui guard -p PID --profile app.pgprof";
        nothing(ui, buffer, Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body }, text);
        return;
    }
    let w = columns(usize::from(body.width), s.knows_queued());
    let mut head = vec![Span::raw("  ")];
    let heads = ["type", "thread", "when", "queued", "took", "may take", "excess"];
    for (i, (name, n)) in heads.iter().zip(w).enumerate() {
        if n > 0 {
            head.push(ui.span(Look::Dim, if i >= 2 { right(name, n - 1) + " " } else { left(name, n) }));
        }
    }
    buffer.set_line(body.x, body.y + 1, &Line::from(head), body.width);
    for (i, (n, v)) in s.rows.iter().enumerate().skip(s.offset).take(usize::from(a.rows.height)) {
        let selected = *n == s.selected;
        put(
            ui,
            buffer,
            a.rows,
            a.rows.y + (i - s.offset) as u16,
            &line(ui, r, (*n, v), w, selected),
            selected,
        );
    }
    if let Some(v) = s.current() {
        distribution(ui, r, buffer, a.distribution, v);
        seen_at(ui, r, buffer, a.stack, v);
    }
}

fn line(
    ui: &Ui,
    r: &Recording,
    (number, v): (usize, &ViolationFact),
    w: [usize; 7],
    selected: bool,
) -> Line<'static> {
    let counts = ui.state.violations.counts(r, v);
    // What was silenced since, or may take longer now, stays in sight and out of the way.
    let (look, strong) = if counts { (Look::Victim, Look::Strong) } else { (Look::Dim, Look::Dim) };
    let name = r.unit_type(v.unit_type);
    let name = name.strip_prefix("type ").unwrap_or(&name);
    let mut spans = vec![pointer(ui, selected), ui.span(strong, left(&ui.plain(name), w[0] - 1) + " ")];
    if w[1] > 0 {
        let thread = thread_name(&ui.plain(r.thread_name(v.thread)), w[1] - 1);
        spans.push(ui.span(if counts { Look::Text } else { Look::Dim }, left(&thread, w[1])));
        spans.push(ui.span(Look::Dim, right(&time::at(v.time), w[2] - 1) + " "));
    }
    if w[3] > 0 {
        let queued = ui.state.violations.queued(number).map_or_else(String::new, |ns| ui.length(ns));
        spans.push(ui.span(Look::Dim, right(&queued, w[3] - 1) + " "));
    }
    let more = if v.ended { "" } else { "+" };
    spans.push(ui.span(look, right(&format!("{}{more}", ui.length(v.duration())), w[4] - 1) + " "));
    if w[5] > 0 {
        spans.push(ui.span(Look::Dim, right(&ui.length(v.threshold), w[5] - 1) + " "));
    }
    spans.push(ui.span(look, right(&excess(v), w[6] - 1)));
    Line::from(spans)
}

/// How many times as long as it may.
pub fn excess(v: &ViolationFact) -> String {
    match v.excess() {
        _ if v.threshold == 0 => "?".into(),
        x if x < 9.995 => format!("{x:.2} x"),
        x if x < 99.95 => format!("{x:.1} x"),
        x if x < 9_999.5 => format!("{x:.0} x"),
        _ => "> 9999 x".into(),
    }
}

fn distribution(ui: &Ui, r: &Recording, buffer: &mut Buffer, area: Rect, v: &ViolationFact) {
    if area.height < 4 {
        return;
    }
    let rule_of = ui.state.violations.rules.get(&v.unit_type);
    let decided = rule_of.map_or_else(|| "both axes logarithmic".into(), |x| format!("decided here: {x}"));
    rule(ui, buffer, area, &format!("How long units of {} take", r.unit_type(v.unit_type)), &decided);
    let inner = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let Some(learnt) = r.catalog.unit_type(v.unit_type) else {
        let why = r.why_unknown(v.unit_type).map_or_else(String::new, |why| format!(": {why}"));
        nothing(ui, buffer, inner, &format!("Nothing is known of the type of this unit{why}."));
        return;
    };
    let threshold = rule_of.and_then(|x| x.threshold(learnt)).unwrap_or(v.threshold);
    if learnt.histogram.iter().all(|s| s.2 == 0) {
        let may = ui.length(threshold);
        let took = ui.length(v.duration());
        let text = format!(
            "This one took {took} and may take {may}. How long others took is not known: there was no profile to \
             learn it from."
        );
        nothing(ui, buffer, inner, &text);
        return;
    }
    let d = Distribution { learnt, threshold, unit: v.duration() };
    d.draw(ui, buffer, Rect { height: inner.height - 1, ..inner });
    buffer.set_line(inner.x, inner.bottom() - 1, &d.legend(ui), inner.width);
}

fn seen_by(v: &ViolationFact) -> &'static str {
    match v.at {
        SeenBy::Context => "as it came to a guarded function",
        SeenBy::Switch => "as it left or got a CPU",
        SeenBy::Sample => "on the CPU",
        SeenBy::Asleep => "asleep",
        SeenBy::End => "when it had ended",
        // One that was told is told by what saw that.
        SeenBy::Look => "once more",
        // Nor is what does not hold.
        SeenBy::Withdrawn => "before it turned out to be of another type",
    }
}

/// Who handed the unit on and how long it waited then, and what it did with its time, below the rule of an area. How many
/// lines that took: none of what is not known, or for which the stack would have no room.
fn said(ui: &Ui, r: &Recording, buffer: &mut Buffer, area: Rect, v: &ViolationFact) -> u16 {
    let handed_on = r.graph.handed_on(&r.catalog, v.thread, v.time).map(|h| h.words(&r.catalog));
    let spent = r.graph.spent_words(&r.catalog, v);
    let spent = (!spent.is_empty()).then(|| format!("its time: {spent}"));
    let mostly = r.graph.mostly(&r.catalog, v);
    let mostly = mostly.map(|h| format!("most of it: {}", MostlyInfo::from(&h).words()));
    let lines =
        handed_on.into_iter().chain(spent).chain(mostly).take(usize::from(area.height.saturating_sub(3)));
    let mut count = 0;
    for (y, words) in (area.y + 1..).zip(lines) {
        let words = clean_to(&ui.plain(&words), usize::from(area.width).saturating_sub(4));
        buffer.set_string(area.x + 2, y, words, ui.style(Look::Text));
        count += 1;
    }
    count
}

/// The stack at detection: how far each frame is from the loop's.
fn seen_at(ui: &Ui, r: &Recording, buffer: &mut Buffer, area: Rect, v: &ViolationFact) {
    if area.height == 0 {
        return;
    }
    let title = format!("Seen {}, {} after it began", seen_by(v), ui.length(v.elapsed));
    // Units that a person gave the bounds of are in no loop.
    let aside = match v.depth {
        0 => String::new(),
        n => {
            let frames = if n == 1 { "1 frame inside".to_owned() } else { format!("{n} frames inside") };
            let whole = format!("{frames} of the loop");
            // Blanks and lines of the rule around both.
            if width(&title) + width(&whole) + 7 <= usize::from(area.width) { whole } else { frames }
        }
    };
    rule(ui, buffer, area, &title, &aside);
    let mut frames = r.seen_at(v);
    let said = said(ui, r, buffer, area, v);
    let height = usize::from(area.height - 1 - said);
    let inner = Rect { y: area.y + 1 + said, height: height as u16, ..area };
    if frames.is_empty() {
        nothing(ui, buffer, inner, "No stack was taken.");
        return;
    }
    // Where not all of it fits, what the kernel does for it is told by its innermost function; then the innermost frames
    // of the program and the loop's own.
    if frames.len() > height {
        let mut first = true;
        frames.retain(|f| !f.kernel || std::mem::take(&mut first));
    }
    let of_loop = frames.iter().position(|f| f.distance == Some(0)).filter(|l| *l >= height && height >= 3);
    let shown: Vec<Option<usize>> = match of_loop {
        Some(l) => (0..height - 2).map(Some).chain([None, Some(l)]).collect(),
        None => (0..frames.len().min(height)).map(Some).collect(),
    };
    for (y, i) in shown.into_iter().enumerate() {
        let Some(f) = i.and_then(|i| frames.get(i)) else {
            let skipped = of_loop.map_or(0, |l| l + 2 - height);
            let text = format!("          {} {skipped} more frames", ui.g.more);
            buffer.set_string(inner.x, inner.y + y as u16, text, ui.style(Look::Dim));
            continue;
        };
        let (mark, look) = match f.distance {
            Some(0) => ("loop".to_owned(), Look::Key),
            Some(n) if n > 0 => (n.to_string(), Look::Text),
            _ => (String::new(), Look::Dim),
        };
        let room = usize::from(inner.width).saturating_sub(10);
        let line = Line::from(vec![
            ui.span(if f.distance == Some(0) { Look::Key } else { Look::Dim }, right(&mark, 7) + "  "),
            ui.span(look, clean_to(&ui.plain(&f.text), room)),
        ]);
        put(ui, buffer, inner, inner.y + y as u16, &line, false);
    }
}
