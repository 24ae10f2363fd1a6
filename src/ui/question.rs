//! A question of the diagnosis: never a riddle. What is asked and why, the options with all that is needed
//! to choose, and what is recommended.

use super::meanwhile;
use super::parts::{Ui, left, nothing, pointer, put, rule, width, wrap};
use crate::app::state::State;
use crate::app::time;
use crate::app::views::scrolled;
use crate::clean::{clean, clean_to};
use crate::config::Look;
use pg_graph::{Choice, Question};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Where the parts lie.
struct Areas {
    head: Vec<String>,
    /// Of each option, and at last of stopping, what is told of it.
    details: Vec<Vec<String>>,
    options: Rect,
    foot: Vec<String>,
    foot_y: u16,
    around: Rect,
}

/// Lines that what happened around the options gets before options that are not selected are told in full.
const AROUND: usize = 8;

/// No more than so many lines; where that cuts any off, the last one shows it.
fn cut(ui: &Ui, mut lines: Vec<String>, most: usize, columns: usize) -> Vec<String> {
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            // Where there is no room for the sign, it stands for the end of the line.
            *last = ui.plain(&clean_to(&format!("{last} \u{2026}"), columns));
        }
    }
    lines
}

/// What is told of each option, and at last of stopping, in full.
fn details(ui: &Ui, q: &Question, columns: usize) -> Vec<Vec<String>> {
    let room = columns.saturating_sub(6);
    let of = |c| wrap(&ui.plain(&detail(ui, c, q)), room);
    let star = if q.recommended == 0 { RECOMMENDED.len() } else { 0 };
    let stop = wrap(&ui.plain(&stop_text(q)), room.saturating_sub(star));
    q.choices.iter().map(of).chain([stop]).collect()
}

fn layout(ui: &Ui, q: &Question, body: Rect) -> Areas {
    let columns = usize::from(body.width).saturating_sub(2);
    let all = usize::from(body.height).saturating_sub(1);
    let text = wrap(&clean(&q.text), columns);
    let mut head = cut(ui, text, (all / 4).max(1), columns);
    let why = wrap(&clean(&q.why), columns);
    let foot = wrap(&recommendation(q), columns);
    // Options matter most, then the recommendation, then why it is asked, then what happened around.
    let wanted = q.choices.len() * 2 + 1;
    let mut left = all.saturating_sub(head.len());
    let mut options = wanted.min(left.saturating_sub(1)).max(1);
    left -= options.min(left);
    let foot = cut(ui, foot, left.min(4), columns);
    left -= foot.len();
    // The selected one is told in full; the same room for any, so that nothing moves when another one is selected.
    let mut details = details(ui, q, usize::from(body.width));
    let longest = details.iter().map(Vec::len).max().unwrap_or(1) - 1;
    let more = if options < wanted { 0 } else { longest.min(left.saturating_sub(2)) };
    options += more;
    left -= more;
    let gap = |n: usize| i32::from(left > n + 1);
    // With nothing to choose from, the reason is what there is to read.
    let most = if q.choices.is_empty() { 12 } else { 4 };
    let why_lines = why.len().min(left.saturating_sub(2)).min(most);
    let why_gap = gap(why_lines);
    head.extend(cut(ui, why, why_lines, columns));
    left -= why_lines;
    if why_gap == 1 && left > 1 {
        head.push(String::new());
        left -= 1;
    }
    // On a large screen there is room for all of them.
    let full = details.iter().map(|d| d.len() - 1).sum::<usize>().saturating_sub(more);
    let all_told = more == longest && left >= full + AROUND;
    if all_told {
        options += full;
        left -= full;
    }
    for (i, d) in details.iter_mut().enumerate().filter(|_| !all_told) {
        let most = if i == ui.state.diagnosis.choice { 1 + more } else { 1 };
        *d = cut(ui, std::mem::take(d), most, usize::from(body.width).saturating_sub(6));
    }
    let top = body.y + 1 + head.len() as u16;
    let options = Rect { y: top, height: options as u16, ..body };
    let spare = u16::from(left > 3);
    let foot_y = options.bottom() + spare;
    let around_y = (foot_y + foot.len() as u16 + spare).min(body.bottom());
    let around = Rect { y: around_y, height: body.bottom() - around_y, ..body };
    Areas { head, details, options, foot, foot_y, around }
}

/// The lines of the options: which option each belongs to.
fn owners(details: &[Vec<String>]) -> Vec<usize> {
    let stop = details.len() - 1;
    let lines = |(i, d): (usize, &Vec<String>)| d.len() + usize::from(i < stop);
    details.iter().enumerate().flat_map(|x| std::iter::repeat_n(x.0, lines(x))).collect()
}

fn recommendation(q: &Question) -> String {
    let what = if q.recommended == 0 { "stopping here (0)".into() } else { q.recommended.to_string() };
    // Why an edge is weak stands above already.
    let told =
        |open: &(usize, &str)| q.reason[open.0 + 2..].strip_suffix(')').is_some_and(|x| q.why.contains(x));
    let again = q.reason.match_indices(" (").find(told);
    let reason = again.map_or(q.reason.as_str(), |(at, _)| &q.reason[..at]);
    format!("recommended: {what}, {}", clean(reason))
}

/// Where the options lie.
pub fn options_area(state: &State, body: Rect) -> Rect {
    state.diagnosis.question().map_or(body, |q| layout(&Ui::new(state), q, body).options)
}

/// Keeps the selected option on the screen.
pub fn prepare(state: &mut State, body: Rect) {
    let Some(n) = state.diagnosis.question().map(|q| q.choices.len()) else { return };
    state.diagnosis.choice = state.diagnosis.choice.min(n);
    let Some(q) = state.diagnosis.question() else { return };
    let a = layout(&Ui::new(state), q, body);
    let owners = owners(&a.details);
    let d = &mut state.diagnosis;
    let first = owners.iter().position(|o| *o == d.choice).unwrap_or(0);
    let last = owners.iter().rposition(|o| *o == d.choice).unwrap_or(0);
    d.choice_offset = scrolled(d.choice_offset, last, owners.len(), usize::from(a.options.height)).min(first);
}

/// The option that a line belongs to.
pub fn owner(state: &State, body: Rect, line: usize) -> Option<usize> {
    let a = layout(&Ui::new(state), state.diagnosis.question()?, body);
    owners(&a.details).get(state.diagnosis.choice_offset + line).copied()
}

/// Draws the view.
pub fn draw(ui: &Ui, buffer: &mut Buffer, body: Rect) {
    let d = &ui.state.diagnosis;
    let Some(q) = d.question() else {
        rule(ui, buffer, body, "Question", "");
        nothing(ui, buffer, body, "No question is open.");
        return;
    };
    let count = match q.about_to_come {
        0 => format!("question {}, perhaps the last", q.number),
        n => format!("question {}, about {n} to come", q.number),
    };
    let title = match q.key.kind {
        pg_graph::QuestionKind::Edge => "Which way back?",
        pg_graph::QuestionKind::Baseline => "Which one shows the normal case?",
        pg_graph::QuestionKind::DataFlag if q.choices.is_empty() => {
            "Which flag does it ask for? f finds it, if it still runs"
        }
        pg_graph::QuestionKind::DataFlag => "Which flag does it ask for?",
    };
    rule(ui, buffer, body, title, &count);
    let a = layout(ui, q, body);
    let columns = usize::from(body.width).saturating_sub(2);
    let asked =
        wrap(&clean(&q.text), columns).len().min((usize::from(body.height).saturating_sub(1) / 4).max(1));
    for (i, l) in a.head.iter().enumerate() {
        let look = if i < asked { Look::Strong } else { Look::Text };
        buffer.set_stringn(body.x + 1, body.y + 1 + i as u16, ui.plain(l), columns, ui.style(look));
    }
    let mut lines: Vec<(usize, Line)> = Vec::new();
    for (i, text) in a.details.iter().enumerate() {
        if i == q.choices.len() {
            lines.extend(stop(ui, q, d.choice == i, text).into_iter().map(|l| (i, l)));
            continue;
        }
        lines.push((i, option(ui, q, i, d.choice == i, usize::from(body.width))));
        let line = |l: &String| Line::from(vec![Span::raw("     "), ui.span(Look::Dim, l.clone())]);
        lines.extend(text.iter().map(|l| (i, line(l))));
    }
    for (y, (i, l)) in lines.iter().skip(d.choice_offset).take(usize::from(a.options.height)).enumerate() {
        put(ui, buffer, a.options, a.options.y + y as u16, l, *i == d.choice);
    }
    for (i, l) in a.foot.iter().enumerate() {
        let y = a.foot_y + i as u16;
        if y < body.bottom() {
            buffer.set_stringn(body.x + 1, y, ui.plain(l), columns, ui.style(Look::Good));
        }
    }
    around(ui, buffer, a.around, q);
}

fn option(ui: &Ui, q: &Question, i: usize, selected: bool, columns: usize) -> Line<'static> {
    let (c, recommended) = (&q.choices[i], q.recommended == i + 1);
    let (look, mark, word) = if c.strong {
        (Look::StrongEdge, ui.g.strong, "strong")
    } else {
        (Look::WeakEdge, ui.g.weak, "weak")
    };
    let at = time::at(c.time);
    let label = clean_to(&ui.plain(&c.label), columns.saturating_sub(26 + at.len()).max(12));
    // On a narrow screen the line below tells it.
    let fits = 14 + width(&label) + 2 + at.len() + 12 <= columns;
    let star = if recommended && fits { RECOMMENDED } else { "" };
    Line::from(vec![
        pointer(ui, selected),
        ui.span(Look::Key, format!("{}  ", i + 1)),
        ui.span(look, format!("{mark} {word:<6} ")),
        ui.span(Look::Strong, label),
        ui.span(Look::Dim, format!("  {at}")),
        ui.span(Look::Good, star),
    ])
}

/// What an option did, and where; less what the question says already.
fn detail(ui: &Ui, c: &Choice, q: &Question) -> String {
    let all: Vec<&str> = c.stack.iter().map(String::as_str).collect();
    let stack = crate::frames::in_line(&crate::frames::telling(&all), ui.g.from, 4);
    let again = |part: &&str| part.strip_prefix("weak: ").is_some_and(|x| q.why.contains(x));
    let parts: Vec<&str> = c.detail.split("; ").filter(|p| !again(p)).collect();
    let parts = parts.join("; ");
    let text = clean(&parts);
    if stack.is_empty() { text.into_owned() } else { format!("{text}; in {}", clean(&stack)) }
}

/// Stands behind what is recommended.
const RECOMMENDED: &str = " recommended";

fn stop_text(q: &Question) -> String {
    let stop = clean(&q.stop);
    if stop.starts_with("stop here") { stop.into_owned() } else { format!("stop here: {stop}") }
}

fn stop(ui: &Ui, q: &Question, selected: bool, text: &[String]) -> Vec<Line<'static>> {
    let star = if q.recommended == 0 { RECOMMENDED } else { "" };
    let line = |(i, l): (usize, &String)| {
        if i > 0 {
            return Line::from(format!("     {l}"));
        }
        let key = ui.span(Look::Key, "0  ");
        Line::from(vec![pointer(ui, selected), key, Span::raw(l.clone()), ui.span(Look::Good, star)])
    };
    text.iter().enumerate().map(line).collect()
}

/// Where the thread that is asked about is: all there is to go by when nothing can be chosen.
fn asking(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let Some(n) = ui.state.diagnosis.slice().last() else { return };
    let Some(r) = ui.recording() else { return };
    rule(ui, buffer, area, &format!("{} all the while", r.thread_name(n.thread)), &r.ids(n.thread));
    let columns = usize::from(area.width).saturating_sub(2);
    let mut lines = vec![r.cmdline_at(n.thread, n.start + n.duration, columns)];
    lines.extend(crate::frames::condensed(&n.stack).iter().map(|f| format!("  {}", clean_to(f, columns))));
    for (i, l) in lines.iter().take(usize::from(area.height) - 1).enumerate() {
        let look = if i == 0 { Look::Dim } else { Look::Text };
        buffer.set_stringn(area.x + 1, area.y + 1 + i as u16, ui.plain(l), columns, ui.style(look));
    }
}

/// What happened around the options, side by side where there is room.
fn around(ui: &Ui, buffer: &mut Buffer, area: Rect, q: &Question) {
    if area.height < 3 {
        return;
    }
    if q.choices.is_empty() {
        asking(ui, buffer, area);
        return;
    }
    let shown: Vec<(usize, &Choice)> = if area.width >= 100 {
        q.choices.iter().enumerate().take(3).collect()
    } else {
        let at = ui.state.diagnosis.choice;
        q.choices.get(at).map(|c| (at, c)).into_iter().collect()
    };
    let n = shown.len().max(1) as u16;
    let each = area.width / n;
    for (k, (i, c)) in shown.into_iter().enumerate() {
        let part = Rect { x: area.x + each * k as u16, width: each, ..area };
        let did = c.vertex.zip(ui.recording()).filter(|_| q.key.kind == pg_graph::QuestionKind::Edge);
        let did = did.map(|(v, r)| (r.graph.vertex(v).thread, r));
        let title = match did {
            Some((thread, r)) => format!("{}: {} meanwhile", i + 1, r.thread_name(thread)),
            None => format!("{}: events around", i + 1),
        };
        rule(ui, buffer, part, &title, "");
        let mut room = usize::from(part.height) - 1;
        let mut part = part;
        let columns = usize::from(part.width).saturating_sub(3);
        let mut write = |look: Look, text: &str, most: usize, part: &mut Rect, room: &mut usize| {
            let lines = wrap(&ui.plain(text), columns);
            let most = most.min(*room);
            for (i, l) in lines.iter().take(most).enumerate() {
                let cut = i + 1 == most && lines.len() > most;
                let l = if cut { left(&format!("{l} {}", ui.plain("\u{2026}")), columns) } else { l.clone() };
                part.y += 1;
                *room -= 1;
                buffer.set_stringn(part.x + 1, part.y, l, columns, ui.style(look));
            }
        };
        if let Some((thread, r)) = did {
            let about = r.graph.vertex(q.vertex);
            let span = if about.waited() > 0 { (about.start, about.woken) } else { (about.start, about.end) };
            for l in meanwhile::lines(ui, r, thread, span) {
                let most = if room > 4 { 2 } else { 1 };
                write(Look::Text, &l, most, &mut part, &mut room);
            }
        }
        // The moments nearest to what is asked about.
        let mid = c.nearby.partition_point(|e| e.time < c.time);
        let first = mid.saturating_sub(room / 2).min(c.nearby.len().saturating_sub(room));
        for (y, e) in c.nearby.iter().skip(first).take(room).enumerate() {
            let look = if e.time == c.time { Look::Strong } else { Look::Text };
            let at = left(&time::moment(e.time, 100_000), 11);
            let text = clean_to(&ui.plain(&e.text), usize::from(part.width).saturating_sub(15));
            let line = Line::from(vec![Span::raw(" "), ui.span(Look::Dim, at + " "), ui.span(look, text)]);
            buffer.set_line(part.x, part.y + 1 + y as u16, &line, part.width.saturating_sub(1));
        }
        if c.nearby.is_empty() {
            let line = Line::from(ui.span(Look::Dim, " none recorded"));
            buffer.set_line(part.x, part.y + 1, &line, part.width);
        }
    }
}
