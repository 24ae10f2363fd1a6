//! Widgets: they read the state and draw it. Nothing here changes anything but what [`prepare`] derives
//! from state and screen size (scroll offsets).

pub mod detail;
mod help;
mod histogram;
mod layers;
mod lists;
pub mod live;
mod meanwhile;
pub(crate) mod parts;
mod question;
mod slice;
mod status;
mod steps;
mod threads;
mod timeline;
mod units;
mod verdict;
mod victims;
mod violations;

pub use parts::state_look;
pub use timeline::Areas as TimelineAreas;

use crate::app::state::{Phase, State, View};
use crate::app::views::scrolled;
use parts::Ui;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::Line;

/// Fewest columns that hold a view.
pub const MIN_WIDTH: u16 = 40;
/// Fewest rows that hold a view.
pub const MIN_HEIGHT: u16 = 10;

/// Draws a frame.
pub fn draw(frame: &mut Frame, state: &State) {
    let area = frame.area();
    let ui = Ui::new(state);
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        too_small(frame.buffer_mut(), area);
        return;
    }
    let whole = ui.style(crate::config::Look::Text);
    frame.buffer_mut().set_style(area, whole);
    status::status(&ui, frame.buffer_mut(), Rect { height: 1, ..area });
    let body = body(area);
    match &state.phase {
        Phase::Loading(what, share) => status::loading(&ui, frame.buffer_mut(), body, what, *share),
        Phase::Failed(why) => status::failed(&ui, frame.buffer_mut(), body, why),
        Phase::Ready => view(&ui, frame, body),
    }
    for layer in &state.layers {
        layers::draw(&ui, frame, body, layer);
    }
    if !state.pending.is_empty() {
        help::which_key(&ui, frame.buffer_mut(), body);
    }
    let last = Rect { y: area.bottom() - 1, height: 1, ..area };
    status::hints(&ui, frame.buffer_mut(), last);
    readable(frame.buffer_mut());
    if ui.style(crate::config::Look::Selected).add_modifier.contains(Modifier::REVERSED) {
        even(frame.buffer_mut());
    }
    harmless(frame.buffer_mut(), ui.g.ascii);
}

/// Text in the terminal's own colour on a background of ours (the selected line) gets a colour that can be
/// read on it: the terminal may be a light one although the theme is for dark ones, or the other way round.
fn readable(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        // The grey ramp of 256 colours, from nearly black to nearly white.
        if cell.fg == Color::Reset
            && let Color::Indexed(grey @ 232..=255) = cell.bg
        {
            cell.fg = Color::Indexed(if grey < 244 { 255 } else { 232 });
        }
    }
}

/// Where selection is told by exchanging the two colours, every colour of a selected line would become a patch of
/// background: such cells have the terminal's own colours. Shapes still tell what colours told.
fn even(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.modifier.contains(Modifier::REVERSED) {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
            cell.modifier.remove(Modifier::DIM);
        }
    }
}

fn view(ui: &Ui, frame: &mut Frame, body: Rect) {
    match ui.state.view {
        View::Victims => victims::draw(ui, frame.buffer_mut(), body),
        View::Threads => threads::draw(ui, frame, body),
        View::Timeline => timeline::draw(ui, frame.buffer_mut(), body),
        View::Slice => slice::draw(ui, frame.buffer_mut(), body),
        View::Vertex => lists::vertex(ui, frame.buffer_mut(), body),
        View::Question => question::draw(ui, frame.buffer_mut(), body),
        View::Verdict => verdict::draw(ui, frame.buffer_mut(), body),
        View::Path => lists::path(ui, frame.buffer_mut(), body),
        View::Notes => lists::notes(ui, frame.buffer_mut(), body),
        View::Steps => steps::draw(ui, frame.buffer_mut(), body),
        View::Violations => violations::draw(ui, frame.buffer_mut(), body),
        View::Units => units::draw(ui, frame.buffer_mut(), body),
        View::Log => lists::log(ui, frame.buffer_mut(), body),
    }
}

/// What lies between the status line and the hints.
fn body(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area }
}

/// What a click on the first or last line of the screen asks for.
pub fn command_at(state: &State, x: u16, y: u16) -> Option<crate::app::command::Cmd> {
    status::command_at(&Ui::new(state), screen(state), x, y)
}

fn screen(state: &State) -> Rect {
    Rect::new(0, 0, state.size.0, state.size.1)
}

fn too_small(buffer: &mut Buffer, area: Rect) {
    let narrow = area.width < MIN_WIDTH;
    let low = area.height < MIN_HEIGHT;
    let what = match (narrow, low) {
        (true, true) => "too small",
        (true, false) => "too narrow",
        _ => "too low",
    };
    let text = format!("{what}: {}x{}, needs {MIN_WIDTH}x{MIN_HEIGHT}", area.width, area.height);
    let words: Vec<&str> = text.split(' ').collect();
    let mut lines: Vec<String> = Vec::new();
    for w in words {
        match lines.last_mut() {
            Some(l) if l.len() + 1 + w.len() <= usize::from(area.width) => {
                l.push(' ');
                l.push_str(w);
            }
            _ => lines.push(w.to_owned()),
        }
    }
    for (y, line) in lines.iter().enumerate().take(usize::from(area.height)) {
        buffer.set_line(area.x, area.y + y as u16, &Line::from(line.as_str()), area.width);
    }
}

/// The last door before the terminal: whatever a view forgot to clean does no harm.
/// Where only ASCII can be shown, nothing else is.
fn harmless(buffer: &mut Buffer, ascii: bool) {
    for cell in &mut buffer.content {
        if ascii && !cell.symbol().is_ascii() {
            cell.set_symbol(if cell.symbol() == "…" { "~" } else { "?" });
        }
        let symbol = cell.symbol();
        if symbol.len() > 1 || symbol.as_bytes().first().is_some_and(|b| *b < b' ' || *b == 0x7f) {
            let clean = crate::clean::clean(symbol);
            if clean != symbol {
                let clean = clean.into_owned();
                cell.set_symbol(&clean);
            }
        }
    }
}

/// Brings scroll offsets up to date with selections and the size of the screen.
pub fn prepare(state: &mut State) {
    let body = body(screen(state));
    let height = usize::from(body.height);
    match state.view {
        View::Victims => {
            let rows = usize::from(victims::layout(state, body).rows.height);
            let at = state.victims.selected_row().unwrap_or(0);
            state.victims.offset = scrolled(state.victims.offset, at, state.victims.rows.len(), rows);
        }
        View::Timeline => {
            let rows = usize::from(timeline_area(state).lanes.height);
            state.timeline.scroll(rows);
        }
        View::Vertex => {
            let rows = usize::from(lists::vertex_areas(body).0.height);
            state.vertex.scroll(rows);
        }
        View::Steps => {
            let rows = usize::from(steps::layout(body).0.height);
            let s = &mut state.steps;
            s.offset = scrolled(s.offset, s.row, s.rows.len(), rows);
        }
        View::Violations => {
            let rows = usize::from(violations::layout(state, body).rows.height);
            let at = state.violations.selected_row().unwrap_or(0);
            let s = &mut state.violations;
            s.offset = scrolled(s.offset, at, s.rows.len(), rows);
        }
        View::Units => {
            let rows = usize::from(units::layout(state, body).0.height);
            let s = &mut state.units;
            let parts = s.shown.as_ref().map_or(0, |x| x.1.parts.len());
            s.offset = scrolled(s.offset, s.row, parts, rows);
        }
        View::Path => {
            let p = &mut state.path;
            p.offset = scrolled(p.offset, p.row, p.parts.len(), height.saturating_sub(lists::PATH_HEAD));
        }
        View::Notes => {
            let at = state.notes.selected_row().unwrap_or(0);
            state.notes.offset =
                scrolled(state.notes.offset, at, state.notes.notes.len(), height.saturating_sub(1));
        }
        View::Slice => slice::prepare(state, body),
        View::Question => question::prepare(state, body),
        View::Verdict => {
            let lines = verdict::lines(&Ui::new(state), body.width).len();
            let most = lines.saturating_sub(height.saturating_sub(1));
            state.diagnosis.verdict_offset = state.diagnosis.verdict_offset.min(most);
        }
        View::Log => {
            let lines = lists::log_lines(&Ui::new(state), body.width).len();
            let most = lines.saturating_sub(height.saturating_sub(1));
            state.log_offset = state.log_offset.min(most);
        }
        View::Threads => {}
    }
    layers::prepare(state, body);
}

/// Brings scroll offsets of what lies over a view up to date.
pub fn prepare_layers(state: &mut State) {
    layers::prepare(state, body(screen(state)));
}

/// Columns that a text takes.
pub fn columns_of(text: &str) -> usize {
    parts::width(text)
}

/// Where the parts of the timeline lie.
pub fn timeline_area(state: &State) -> TimelineAreas {
    timeline::layout(state, body(screen(state)))
}

/// Columns of the timeline's lanes.
pub fn timeline_columns(state: &State) -> usize {
    usize::from(timeline_area(state).lanes.width)
}

/// Where the lines of a view with a list lie, and which line is the first shown.
pub fn view_list(state: &State) -> Option<(Rect, usize)> {
    let body = body(screen(state));
    let below = |n: u16| Rect { y: body.y + n, height: body.height.saturating_sub(n), ..body };
    Some(match state.view {
        View::Victims => (victims::layout(state, body).rows, state.victims.offset),
        View::Violations => (violations::layout(state, body).rows, state.violations.offset),
        View::Vertex => (lists::vertex_areas(body).0, state.vertex.offset),
        View::Path => (below(lists::PATH_HEAD as u16), state.path.offset),
        View::Steps => (steps::layout(body).0, state.steps.offset),
        View::Notes => (below(1), state.notes.offset),
        View::Slice => (slice::rows_area(state, body), 0),
        View::Question => (question::options_area(state, body), 0),
        _ => return None,
    })
}

/// Which step or option a line of the slice or of a question belongs to, lines counted from the first shown.
pub fn line_owner(state: &State, line: usize) -> Option<usize> {
    match state.view {
        View::Slice => slice::owner(state, body(screen(state)), line),
        View::Question => question::owner(state, body(screen(state)), line),
        _ => None,
    }
}

/// Where the lines of the list of the topmost layer lie, and which line is the first shown.
pub fn layer_list(state: &State) -> Option<(Rect, usize)> {
    layers::list(state, body(screen(state)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Style;

    #[test]
    fn a_reversed_line_has_one_colour() {
        let mut b = Buffer::with_lines(["ab"]);
        let at = |x| Rect::new(x, 0, 1, 1);
        let red = Style::new().fg(Color::Red);
        b.set_style(at(0), red.add_modifier(Modifier::REVERSED | Modifier::DIM | Modifier::BOLD));
        b.set_style(at(1), red);
        even(&mut b);
        let got: Vec<_> = b.content.iter().map(|c| (c.fg, c.modifier)).collect();
        let reversed = Modifier::REVERSED | Modifier::BOLD;
        assert_eq!(got, [(Color::Reset, reversed), (Color::Red, Modifier::empty())]);
    }

    #[test]
    fn a_selected_line_is_readable_on_any_terminal() {
        let mut b = Buffer::with_lines(["abcd"]);
        let at = |x| Rect::new(x, 0, 1, 1);
        b.set_style(at(0), Style::new().bg(Color::Indexed(237)));
        b.set_style(at(1), Style::new().bg(Color::Indexed(254)));
        b.set_style(at(2), Style::new().bg(Color::Indexed(237)).fg(Color::Red));
        readable(&mut b);
        let colours: Vec<_> = b.content.iter().map(|c| c.fg).collect();
        assert_eq!(colours, [Color::Indexed(255), Color::Indexed(232), Color::Red, Color::Reset]);
    }
}
