//! The mouse: clicks select, a click on what is selected opens it, one on a hint does what its key does, the wheel scrolls
//! or zooms.

use super::command::Cmd;
use super::layer::Layer;
use super::moves;
use super::state::{State, View};
use super::update::command;
use super::views::timeline::Row;
use super::views::{Move, victims};
use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Takes a mouse event in; whether it meant anything.
pub fn mouse(state: &mut State, m: MouseEvent) -> bool {
    match m.kind {
        MouseEventKind::ScrollDown | MouseEventKind::ScrollUp => {
            let down = m.kind == MouseEventKind::ScrollDown;
            if state.view == View::Timeline
                && state.layers.is_empty()
                && m.modifiers.contains(KeyModifiers::CONTROL)
            {
                point(state, m.column, m.row);
                command(state, if down { Cmd::ZoomOut } else { Cmd::ZoomIn });
            } else if let Some(Layer::Palette(_) | Layer::Search(_)) = state.layers.last() {
                command(state, if down { Cmd::NextRow } else { Cmd::PreviousRow });
            } else {
                moves::up_down(state, Move::By(if down { 3 } else { -3 }));
            }
        }
        MouseEventKind::ScrollLeft => moves::left_right(state, -3),
        MouseEventKind::ScrollRight => moves::left_right(state, 3),
        MouseEventKind::Down(MouseButton::Left) => {
            let asked = crate::ui::command_at(state, m.column, m.row);
            state.message = None;
            if let Some(cmd) = asked {
                command(state, cmd);
            } else if state.layers.is_empty() {
                click(state, m.column, m.row);
            } else {
                layer_click(state, m.column, m.row);
            }
        }
        MouseEventKind::Drag(MouseButton::Left)
            if state.view == View::Timeline && state.layers.is_empty() =>
        {
            // Dragging marks a span.
            if state.timeline.mark.is_none_or(|(_, end)| end.is_some()) {
                state.timeline.mark = Some((state.timeline.cursor, None));
            }
            point(state, m.column, m.row);
        }
        MouseEventKind::Up(MouseButton::Left) if state.view == View::Timeline => {
            if let Some((a, None)) = state.timeline.mark {
                let b = state.timeline.cursor;
                state.timeline.mark = (a != b).then_some((a, Some(b)));
            }
        }
        MouseEventKind::Down(MouseButton::Right) => command(state, Cmd::Cancel),
        _ => return false,
    }
    true
}

/// Moves the timeline's cursor to a place of the screen.
fn point(state: &mut State, x: u16, y: u16) {
    let area = crate::ui::timeline_area(state);
    let columns = usize::from(area.lanes.width);
    if !area.lanes.contains(Position::new(x, y)) {
        return;
    }
    let row = state.timeline.offset + usize::from(y - area.lanes.y);
    if let Some(Row::Thread(t, _)) = state.timeline.rows.get(row) {
        state.timeline.thread = Some(*t);
    }
    state.timeline.cursor = state.timeline.time_at(usize::from(x - area.lanes.x), columns);
}

fn layer_click(state: &mut State, x: u16, y: u16) {
    let Some((area, first)) = crate::ui::layer_list(state) else { return };
    if !area.contains(Position::new(x, y)) {
        return;
    }
    let row = first + usize::from(y - area.y);
    let (selected, len) = match state.layers.last_mut() {
        Some(Layer::Palette(p)) => {
            p.sure |= row < p.rows.len();
            (&mut p.selected, p.rows.len())
        }
        Some(Layer::Search(s)) => (&mut s.selected, s.hits.len()),
        _ => return,
    };
    if row < len {
        *selected = row;
        command(state, Cmd::Accept);
    }
}

fn click(state: &mut State, x: u16, y: u16) {
    if state.view == View::Timeline {
        let area = crate::ui::timeline_area(state);
        if area.lanes.contains(Position::new(x, y)) {
            let before = (state.timeline.thread, state.timeline.cursor);
            point(state, x, y);
            if before == (state.timeline.thread, state.timeline.cursor) {
                command(state, Cmd::OpenVertex);
            }
        } else if area.names.contains(Position::new(x, y)) {
            let row = state.timeline.offset + usize::from(y - area.names.y);
            if let Some(Row::Thread(t, _)) = state.timeline.rows.get(row) {
                state.timeline.thread = Some(*t);
            }
        }
        return;
    }
    if state.view == View::Threads {
        state.threads.tree.get_mut().click_at(Position::new(x, y));
        return;
    }
    let Some((area, first)) = crate::ui::view_list(state) else { return };
    if !area.contains(Position::new(x, y)) {
        return;
    }
    let line = usize::from(y - area.y);
    let row = first + line;
    let again = match state.view {
        View::Victims => {
            let Some(v) = state.victims.rows.get(row).map(victims::Row::key) else { return };
            state.victims.selected.replace(v) == Some(v)
        }
        View::Vertex if row < state.vertex.rows.len() => std::mem::replace(&mut state.vertex.row, row) == row,
        View::Path if row < state.path.parts.len() => std::mem::replace(&mut state.path.row, row) == row,
        View::Violations => {
            let Some(n) = state.violations.rows.get(row).map(|r| r.0) else { return };
            std::mem::replace(&mut state.violations.selected, n) == n
        }
        View::Notes => {
            let Some(id) = state.notes.notes.get(row).map(|n| n.id) else { return };
            state.notes.selected.replace(id) == Some(id)
        }
        View::Question | View::Slice => {
            let Some(row) = crate::ui::line_owner(state, line) else { return };
            let selected = if state.view == View::Slice {
                &mut state.diagnosis.step
            } else {
                &mut state.diagnosis.choice
            };
            std::mem::replace(selected, row) == row
        }
        _ => return,
    };
    if again {
        let cmd = match state.view {
            View::Victims => Cmd::Diagnose,
            View::Violations => Cmd::DiagnoseUnit,
            View::Question => Cmd::ChooseRow,
            View::Slice | View::Path => Cmd::FollowEdge,
            _ => Cmd::OpenVertex,
        };
        command(state, cmd);
    }
}
