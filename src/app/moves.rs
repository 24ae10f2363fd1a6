//! Moving about: what the arrow keys mean in each view.

use super::command::Cmd;
use super::layer::Layer;
use super::place;
use super::state::{State, View};
use super::views::Move;
use crate::config::Look;

/// Said of a line of a tree that cannot be opened.
pub const NO_MORE: &str = "nothing is below this line";

/// The move that a command means, if it is one.
pub fn of(cmd: Cmd) -> Option<Move> {
    Some(match cmd {
        Cmd::Up => Move::By(-1),
        Cmd::Down => Move::By(1),
        Cmd::PageUp => Move::Page(-1),
        Cmd::PageDown => Move::Page(1),
        Cmd::First => Move::First,
        Cmd::Last => Move::Last,
        _ => return None,
    })
}

/// Up, down, by pages, to the ends.
pub fn up_down(state: &mut State, by: Move) {
    let page = state.body_height().saturating_sub(2).max(1);
    match state.layers.last_mut() {
        Some(Layer::Help(h)) => {
            h.offset = by.from(h.offset, usize::MAX, page).min(10_000);
            return;
        }
        Some(Layer::WhyNot(offset) | Layer::Flag(_, offset)) => {
            *offset = by.from(*offset, usize::MAX, page).min(10_000);
            return;
        }
        _ => {}
    }
    match state.view {
        View::Victims => state.victims.go(by, page),
        View::Threads => threads(state, by, page),
        View::Timeline => timeline(state, by, page),
        View::Slice => {
            let d = &mut state.diagnosis;
            d.step = by.from(d.step, d.slice().len(), page / 2);
        }
        View::Vertex => state.vertex.go(by, page),
        View::Steps => state.steps.go(by, page),
        View::Question => {
            let d = &mut state.diagnosis;
            let options = d.question().map_or(0, |q| q.choices.len() + 1);
            d.choice = by.from(d.choice, options, page);
        }
        View::Verdict => {
            let d = &mut state.diagnosis;
            d.verdict_offset = by.from(d.verdict_offset, usize::MAX, page).min(10_000);
        }
        View::Path => {
            let p = &mut state.path;
            p.row = by.from(p.row, p.parts.len(), page);
        }
        View::Violations => state.violations.go(by, page),
        View::Units => state.units.go(by, page),
        View::Notes => {
            let n = &mut state.notes;
            let row = by.from(n.selected_row().unwrap_or(0), n.notes.len(), page);
            n.selected = n.notes.get(row).map(|n| n.id);
        }
        // Where it ends depends on the screen's width: see `ui::prepare`.
        View::Log => state.log_offset = by.from(state.log_offset, usize::MAX, page).min(100_000),
    }
}

fn threads(state: &mut State, by: Move, page: usize) {
    let tree = state.threads.tree.get_mut();
    match by {
        Move::By(n) => {
            for _ in 0..n.unsigned_abs() {
                if n < 0 {
                    tree.key_up()
                } else {
                    tree.key_down()
                };
            }
        }
        Move::Page(n) => {
            for _ in 0..page {
                if n < 0 {
                    tree.key_up()
                } else {
                    tree.key_down()
                };
            }
        }
        Move::First => {
            tree.select_first();
        }
        Move::Last => {
            tree.select_last();
        }
    }
}

fn timeline(state: &mut State, by: Move, page: usize) {
    let Some(r) = &state.recording else { return };
    let end = r.graph.duration();
    let t = &mut state.timeline;
    match by {
        Move::By(n) => t.lane(n),
        Move::Page(n) => t.lane(n * page as isize),
        Move::First => {
            t.cursor = 0;
            t.reveal(end);
        }
        Move::Last => {
            t.cursor = end;
            t.reveal(end);
        }
    }
}

/// Left and right.
pub fn left_right(state: &mut State, by: isize) {
    if !state.layers.is_empty() {
        return;
    }
    match state.view {
        View::Timeline => {
            let Some(r) = &state.recording else { return };
            let end = r.graph.duration();
            let columns = crate::ui::timeline_columns(state);
            state.timeline.move_cursor(by, columns, end);
        }
        View::Threads => {
            let leaf = state.threads.is_leaf();
            let tree = state.threads.tree.get_mut();
            if by < 0 {
                tree.key_left();
            } else if leaf {
                state.say_only(Look::Dim, NO_MORE);
            } else {
                tree.key_right();
            }
        }
        View::Vertex => {
            // The vertices before and after, on the same thread.
            let (Some(r), Some(v)) = (state.recording.clone(), state.vertex.vertex) else { return };
            let to = if by < 0 { r.graph.previous(v) } else { r.graph.next(v) };
            match to {
                Some(to) => place::open_vertex(state, to),
                None if by < 0 => state.say_only(Look::Dim, "this is the first vertex of this thread"),
                None => state.say_only(Look::Dim, "this is the last vertex of this thread"),
            }
        }
        View::Question => up_down(state, Move::By(by)),
        View::Victims => {
            if !state.victims.fold(by < 0) && !state.victims.rows.is_empty() {
                state.say_only(Look::Dim, "no others like it are behind this line");
            }
        }
        _ => state.say_only(Look::Dim, "nothing lies to this side; ? shows the keys of this view"),
    }
}
