//! Small parts that all views are made of.

use crate::app::recording::Recording;
use crate::app::state::State;
use crate::app::time;
use crate::clean::{clean, clean_to};
use crate::config::{Glyphs, Look};
use pg_event::Ns;
use pg_graph::LaneState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many lines there are that are not shown.
pub fn more_lines(n: usize) -> String {
    if n == 1 { "1 more line".into() } else { format!("{n} more lines") }
}

/// The state, and how things look.
pub struct Ui<'a> {
    /// All there is to show.
    pub state: &'a State,
    /// Shapes.
    pub g: Glyphs,
}

impl<'a> Ui<'a> {
    /// For a state.
    pub fn new(state: &'a State) -> Self {
        Self { state, g: state.config.glyphs }
    }

    /// The style of a look.
    pub fn style(&self, look: Look) -> Style {
        self.state.config.theme.style(look)
    }

    /// A piece of text.
    pub fn span(&self, look: Look, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(look))
    }

    /// The recording; views are drawn only when there is one.
    pub fn recording(&self) -> Option<&'a Recording> {
        self.state.recording.as_deref()
    }

    /// A length of time.
    pub fn length(&self, ns: Ns) -> String {
        if self.g.ascii { time::length_ascii(ns) } else { time::length(ns) }
    }

    /// Shape of a state.
    pub fn glyph(&self, s: LaneState) -> &'static str {
        match s {
            LaneState::Absent => self.g.absent,
            LaneState::Running => self.g.running,
            LaneState::Runnable => self.g.runnable,
            LaneState::Blocked => self.g.blocked,
            LaneState::Disk => self.g.disk,
            LaneState::Throttled => self.g.throttled,
            LaneState::Stopped => self.g.stopped,
            LaneState::Idle => self.g.idle,
            LaneState::Lost => self.g.unknown,
        }
    }

    /// A shape with its colour, for a state in the words of the report.
    pub fn state_mark(&self, word: &str) -> Span<'static> {
        let state = match word {
            "running" => LaneState::Running,
            "runnable" => LaneState::Runnable,
            "stopped" => LaneState::Stopped,
            "throttled" => LaneState::Throttled,
            "blocked" => LaneState::Blocked,
            _ => LaneState::Idle,
        };
        self.span(state_look(state), self.glyph(state))
    }

    /// Characters that this terminal can show: without Unicode, others are replaced.
    pub fn plain(&self, text: &str) -> String {
        if !self.g.ascii || text.is_ascii() {
            return text.to_owned();
        }
        crate::clean::ascii(text)
    }
}

/// Look of a state.
pub fn state_look(s: LaneState) -> Look {
    match s {
        // That nothing is known of a thread is no alarm: in a copy for others most of it was left out.
        LaneState::Absent | LaneState::Idle | LaneState::Lost => Look::Idle,
        LaneState::Running => Look::Running,
        LaneState::Runnable => Look::Runnable,
        LaneState::Blocked => Look::Blocked,
        LaneState::Disk => Look::Disk,
        LaneState::Stopped | LaneState::Throttled => Look::Stopped,
    }
}

/// Columns of a text.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Columns that a process keeps beside its thread's name.
const PROCESS: usize = 4;
/// From as many columns on a name that is cut keeps its end.
const BOTH_ENDS: usize = 8;

/// `process/thread` in at most `columns`: the process is cut first, since the thread tells lines apart, and then the
/// middle of the thread's name, since threads of a pool differ at its end.
pub fn thread_name(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return clean_to(name, columns);
    }
    let Some((process, thread)) = name.split_once('/') else { return without_middle(name, columns) };
    let least = width(process).min(PROCESS);
    if width(thread) + 1 + least <= columns {
        return format!("{}/{}", clean_to(process, columns - 1 - width(thread)), clean(thread));
    }
    if columns < least + 1 + BOTH_ENDS.min(width(thread)) {
        return without_middle(thread, columns);
    }
    let thread = without_middle(thread, columns - 1 - least);
    format!("{}/{thread}", clean_to(process, columns - 1 - width(&thread)))
}

/// A name in at most `columns`, with both its ends: a number behind a colon is whole.
fn without_middle(name: &str, columns: usize) -> String {
    let name = clean(name);
    if width(&name) <= columns {
        return name.into_owned();
    }
    let number = name.rsplit_once(':').map(|(_, n)| n);
    let number = number.filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let room = match number {
        Some(n) if n.len() + 3 <= columns => n.len() + 1,
        None if columns >= BOTH_ENDS => (columns - 1) / 2,
        _ => return clean_to(&name, columns),
    };
    let (mut at, mut used) = (name.len(), 0);
    // Combining characters have no width: bound their number too.
    for (i, c) in name.char_indices().rev().take(room * 4) {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        at = i;
    }
    let end = &name[at..];
    clean_to(&name, columns - width(end)) + end
}

/// Exactly `columns` wide: cut, or filled up with spaces on the right.
pub fn left(text: &str, columns: usize) -> String {
    let mut out = clean_to(text, columns);
    let used = width(&out);
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(used)));
    out
}

/// Exactly `columns` wide: cut, or filled up with spaces on the left.
pub fn right(text: &str, columns: usize) -> String {
    let out = clean_to(text, columns);
    let used = width(&out);
    " ".repeat(columns.saturating_sub(used)) + &out
}

/// A line of at most `columns`: what does not fit is cut off, and that is shown.
pub fn fit(ui: &Ui, line: Line<'static>, columns: usize) -> Line<'static> {
    if line.width() <= columns {
        return line;
    }
    let mut out = Vec::new();
    let mut room = columns;
    for span in line.spans {
        let wide = span.width();
        if wide < room {
            room -= wide;
            out.push(span);
            continue;
        }
        // More comes, or this one is too wide: the sign of it needs a column.
        let text = clean_to(&format!("{}  ", span.content), room);
        out.push(Span::styled(ui.plain(&text), span.style));
        break;
    }
    Line::from(out)
}

/// Breaks a text into lines of at most `columns`, at spaces where there are any.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    use crate::clean::{GLUE, glued};
    let columns = columns.max(1);
    let mut out = Vec::new();
    for paragraph in glued(text).split('\n') {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let mut word = word.to_owned();
            if !line.is_empty() && width(&line) + 1 + width(&word) > columns {
                out.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            while width(&line) + width(&word) > columns {
                // A word longer than a line is broken.
                let room = columns - width(&line);
                let mut head = String::new();
                let mut rest = word.chars();
                let mut used = 0;
                let mut tail = String::new();
                for c in rest.by_ref() {
                    let w = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
                    if used + w > room {
                        tail.push(c);
                        break;
                    }
                    used += w;
                    head.push(c);
                }
                tail.extend(rest);
                if head.is_empty() && line.is_empty() {
                    // A character wider than the whole line.
                    tail = tail.chars().skip(1).collect();
                }
                line.push_str(&head);
                out.push(std::mem::take(&mut line));
                word = tail;
            }
            line.push_str(&word);
        }
        out.push(line);
    }
    out.iter().map(|l: &String| l.replace(GLUE, " ")).collect()
}

/// A horizontal line with a title on the left and something on the right.
pub fn rule(ui: &Ui, buffer: &mut Buffer, area: Rect, title: &str, aside: &str) {
    if area.height == 0 || area.width < 4 {
        return;
    }
    let h = ui.g.border.horizontal_top;
    buffer.set_string(area.x, area.y, h.repeat(usize::from(area.width)), ui.style(Look::Border));
    let room = usize::from(area.width) - 2;
    let title = clean_to(&ui.plain(title), room.saturating_sub(2));
    let mut used = 0;
    if !title.is_empty() {
        let text = format!(" {title} ");
        used = width(&text) + 1;
        buffer.set_string(area.x + 1, area.y, text, ui.style(Look::Title));
    }
    if !aside.is_empty() && used + 6 < room {
        let text = format!(" {} ", clean_to(&ui.plain(aside), room - used - 3));
        let x = area.right() - 1 - width(&text) as u16;
        buffer.set_string(x, area.y, text, ui.style(Look::Dim));
    }
}

/// Draws a line; one that is selected is told by its background and by a pointer that the caller drew.
pub fn put(ui: &Ui, buffer: &mut Buffer, area: Rect, y: u16, line: &Line, selected: bool) {
    if y >= area.bottom() {
        return;
    }
    buffer.set_line(area.x, y, line, area.width);
    if selected {
        select(ui, buffer, Rect { y, height: 1, ..area });
    }
}

/// Shows an area as the selected one. Colours in it stay; what has none gets the theme's, since that of the terminal
/// need not go with the theme's background.
pub fn select(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let style = ui.style(Look::Selected);
    for at in area.intersection(*buffer.area()).positions() {
        let Some(cell) = buffer.cell_mut(at) else { continue };
        let own = cell.fg;
        // A bar has its colour in front: reversed it would not be seen.
        let bar = cell.symbol().starts_with(|c| ('\u{2580}'..='\u{259f}').contains(&c));
        if bar && style.add_modifier.contains(Modifier::REVERSED) {
            continue;
        }
        cell.set_style(style);
        if own != Color::Reset {
            cell.fg = own;
        }
    }
}

/// The first columns of a line in a list: a pointer on the selected one.
pub fn pointer(ui: &Ui, selected: bool) -> Span<'static> {
    if selected { ui.span(Look::Key, format!("{} ", ui.g.pointer)) } else { Span::raw("  ") }
}

/// Words in the middle of an area that is empty for a reason.
pub fn nothing(ui: &Ui, buffer: &mut Buffer, area: Rect, text: &str) {
    let lines = wrap(&ui.plain(text), usize::from(area.width.saturating_sub(4)));
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 3;
    for (i, l) in lines.iter().enumerate() {
        let y = top + i as u16;
        if y < area.bottom() {
            let x = area.x + area.width.saturating_sub(width(l) as u16) / 2;
            buffer.set_string(x, y, l, ui.style(Look::Dim));
        }
    }
}

/// A bar of `columns` for several shares; every share above nothing that rounds to nothing is left out.
pub fn bar(
    parts: &[(u64, &'static str, Style)],
    whole: u64,
    columns: usize,
    rest: (&'static str, Style),
) -> Vec<Span<'static>> {
    let mut out = Vec::new();
    let mut used = 0;
    let mut sum = 0u128;
    for (part, glyph, style) in parts {
        sum += u128::from(*part);
        let upto = if whole == 0 {
            0
        } else {
            ((sum * columns as u128 + u128::from(whole) / 2) / u128::from(whole)) as usize
        };
        let n = upto.min(columns).saturating_sub(used);
        if n > 0 {
            out.push(Span::styled(glyph.repeat(n), *style));
            used += n;
        }
    }
    if used < columns {
        out.push(Span::styled(rest.0.repeat(columns - used), rest.1));
    }
    out
}

/// Splits `total` columns among flexible ones by weight, none below its least unless there is no room.
pub fn share_out(total: usize, parts: &[(usize, usize)]) -> Vec<usize> {
    let weight: usize = parts.iter().map(|p| p.0).sum::<usize>().max(1);
    let mut out: Vec<usize> = parts.iter().map(|(w, least)| (total * w / weight).max(*least)).collect();
    let mut over = out.iter().sum::<usize>().saturating_sub(total);
    for n in out.iter_mut().rev() {
        let cut = over.min(*n);
        *n -= cut;
        over -= cut;
    }
    let left = total.saturating_sub(out.iter().sum());
    if let Some(last) = out.last_mut() {
        *last += left;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wrapping() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("a\n\nb", 10), ["a", "", "b"]);
        assert_eq!(wrap("slept 5.00 s, 100 % of it", 11), ["slept", "5.00 s,", "100 % of it"]);
    }

    #[test]
    fn a_name_that_is_cut_keeps_its_number() {
        assert_eq!(thread_name("bash:11047", 9), "ba…:11047");
        assert_eq!(thread_name("sleep:11121", 8), "s…:11121");
        assert_eq!(thread_name("sleep:11121", 5), "slee…");
    }

    #[test]
    fn a_name_that_is_cut_keeps_its_end_and_its_process() {
        let of = "java/ForkJoinPool.commonPool-worker-1";
        assert_eq!(thread_name(of, 18), "java/ForkJo…rker-1");
        assert_eq!(thread_name("java/ForkJoinPool.co:27164", 18), "java/ForkJo…:27164");
        assert_eq!(thread_name("NetworkManager/pool-spawner-99", 22), "Netwo…/pool-spawner-99");
        assert_eq!(thread_name("NetworkManager/pool-spawner-99", 18), "Net…/pool-s…ner-99");
        assert_eq!(thread_name(of, 10), "ForkJ…er-1", "only one of both");
        assert_eq!(thread_name(of, 5), "Fork…");
    }

    #[test]
    fn columns_are_shared_out() {
        assert_eq!(share_out(100, &[(1, 5), (3, 5)]), [25, 75]);
        assert_eq!(share_out(8, &[(1, 5), (1, 5)]), [5, 3]);
        assert_eq!(share_out(0, &[(1, 5), (1, 5)]), [0, 0]);
    }

    proptest! {
        #[test]
        fn no_name_is_too_wide(name in "[a-z日é\u{1b}\u{301}:/0-9]{0,40}", n in 0usize..40) {
            prop_assert!(width(&thread_name(&name, n)) <= n, "{}", thread_name(&name, n));
            let harmless = !thread_name(&name, n).contains('\u{1b}');
            prop_assert!(harmless);
        }

        #[test]
        fn no_line_is_too_wide(text in "[ -~日本é\n]{0,80}", n in 1usize..30) {
            for l in wrap(&text, n) {
                prop_assert!(width(&l) <= n.max(2));
            }
        }
    }
}
