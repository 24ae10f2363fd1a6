//! What is under the timeline's cursor, in a few lines.

use super::parts::{Ui, fit, rule};
use super::timeline;
use crate::app::recording::Recording;
use crate::app::time;
use crate::clean::clean_to;
use crate::config::Look;
use pg_event::{Ns, StackId};
use pg_graph::{LaneState, Vertex, VertexId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Draws it into 1 to 7 lines.
pub fn under_cursor(ui: &Ui, buffer: &mut Buffer, area: Rect) {
    let s = &ui.state.timeline;
    let (Some(r), Some(t)) = (ui.recording(), s.thread) else { return };
    let columns = usize::from(area.width);
    let step = s.step(super::timeline_columns(ui.state));
    let moment = time::moment(s.cursor, step.max(1));
    let vertex = s.vertex(r);
    let mut lines = match vertex {
        Some(v) => vertex_lines(ui, r, v, s.cursor),
        None => vec![Line::from(ui.span(Look::Dim, " it does not exist at this moment"))],
    };
    if area.height <= 1 {
        let mut spans = vec![ui.span(Look::Strong, format!(" {moment} "))];
        spans.extend(lines.swap_remove(0).spans);
        buffer.set_line(area.x, area.y, &fit(ui, Line::from(spans), columns), area.width);
        return;
    }
    let title = format!("{}  at {moment}{}", r.thread_name(t), r.clock(s.cursor));
    rule(ui, buffer, area, &title, &r.ids(t));
    let notes = ui.state.notes.notes.iter().filter(|n| n.thread == t && n.time.abs_diff(s.cursor) <= step);
    for n in notes.take(1).filter(|n| !n.text.is_empty()) {
        let text = format!(" {} {}", ui.g.bookmark, ui.plain(&clean_to(&n.text, columns)));
        lines.insert(0, Line::from(ui.span(Look::Note, text)));
    }
    let room = usize::from(area.height) - 1;
    if room >= 4 {
        lines.truncate(room - 1);
        lines.resize(room - 1, Line::default());
        lines.push(timeline::legend(ui));
    }
    for (i, l) in lines.into_iter().take(room).enumerate() {
        buffer.set_line(area.x, area.y + 1 + i as u16, &fit(ui, l, columns), area.width);
    }
}

/// What a thread does at a moment of its vertex, in words.
pub fn doing(ui: &Ui, r: &Recording, id: VertexId, at: Ns) -> (LaneState, String) {
    let v = r.graph.vertex(id);
    let now =
        r.graph.intervals(v.thread, at..at.saturating_add(1)).next().map_or(LaneState::Absent, |(_, _, s)| s);
    let words = match now {
        LaneState::Lost => "nothing is known of it here".into(),
        LaneState::Running => {
            let stack = stack_of(r, &v, now, at);
            let inside = r.stack_line(stack, ui.g.from, 4);
            let inside = if stack.is_some() { format!(" in {inside}") } else { inside };
            format!("running, {} in all{inside}", ui.length(v.ran()))
        }
        LaneState::Runnable => {
            format!("runnable; {} in all without a CPU", ui.length(v.queued() + v.preempted))
        }
        LaneState::Absent => "does not exist".into(),
        LaneState::Idle => format!("idle for {}", ui.length(v.waited())),
        LaneState::Throttled => format!("throttled for {}: its CPU quota is used up", ui.length(v.waited())),
        LaneState::Stopped => format!("stopped for {}, waits for {}", ui.length(v.waited()), r.wait(&v)),
        LaneState::Blocked | LaneState::Disk => {
            let open = if v.open { ", not over at the end" } else { "" };
            format!("blocked {} in {}{open}", ui.length(v.waited()), r.wait(&v))
        }
    };
    (now, words)
}

/// The stack that tells where a vertex is at a moment: of the nearest sample while it runs, else that of its wait.
pub fn stack_of(r: &Recording, v: &Vertex, now: LaneState, at: Ns) -> StackId {
    if now != LaneState::Running {
        return v.user_stack;
    }
    let samples = r.graph.samples_of(v.thread, v.run..v.end.saturating_add(1));
    let near = samples.iter().min_by_key(|s| s.time.abs_diff(at));
    near.map_or(StackId::NONE, |s| if s.user_stack.is_some() { s.user_stack } else { s.kernel_stack })
}

/// Who ended the wait that led to a vertex; nobody asks that of one that did not wait.
pub fn woken(ui: &Ui, r: &Recording, id: VertexId) -> Option<Line<'static>> {
    let v = r.graph.vertex(id);
    if v.waited() == 0 {
        return None;
    }
    Some(match r.waking(id) {
        Some(e) => {
            let edge = r.graph.edge(e);
            let (look, how) = match edge.weak {
                None => (Look::StrongEdge, "strong".to_owned()),
                Some(w) => (Look::WeakEdge, format!("weak, {}", w.words())),
            };
            let who = r.thread_name(r.graph.vertex(edge.from).thread).to_owned();
            Line::from(vec![
                ui.span(Look::Dim, "   woken by "),
                ui.span(Look::Strong, ui.plain(&who)),
                Span::raw(format!(" ({}, ", edge.kind.name())),
                ui.span(look, ui.plain(&how)),
                Span::raw(")"),
            ])
        }
        None if v.timed_out => Line::from(ui.span(Look::Dim, "   ended by its own time-out")),
        None if v.open => Line::from(ui.span(Look::Dim, "   nobody woke it")),
        None => Line::from(ui.span(Look::Dim, "   no waker was recorded")),
    })
}

/// A vertex in lines, the most telling first.
fn vertex_lines(ui: &Ui, r: &Recording, id: VertexId, at: Ns) -> Vec<Line<'static>> {
    let v = r.graph.vertex(id);
    let (now, words) = doing(ui, r, id, at);
    let mark = ui.span(super::state_look(now), ui.glyph(now));
    let mut out = vec![Line::from(vec![Span::raw(" "), mark, Span::raw(" "), Span::raw(ui.plain(&words))])];
    // Once it runs, the wait before is over: another segment tells of that.
    if now == LaneState::Running || at >= v.run {
        return out;
    }
    if v.waited() > 0 && at < v.woken {
        let stack = r.wait_line(id, ui.g.from, 6);
        if !stack.is_empty() {
            out.push(Line::from(vec![ui.span(Look::Dim, "   in "), Span::raw(ui.plain(&stack))]));
        }
    }
    out.extend(woken(ui, r, id));
    out
}
