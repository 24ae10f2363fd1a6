//! Commands that belong to a view.

use super::command::Cmd;
use super::jobs::Job;
use super::layer::Layer;
use super::run_command::{decision_log, delete_note, find_victims};
use super::state::{State, View};
use super::update::run_job;
use super::views::vertex::About;
use super::{place, text, violation_command};
use crate::config::Look;
use pg_event::trace::Flow;
use pg_event::{Ns, ThreadId};
use pg_graph::{By, VertexId};

/// Said where the cursor is before the beginning of a thread or after its end.
const NOBODY: &str = "this thread does not exist at the cursor";

/// Runs it.
pub fn run(state: &mut State, cmd: Cmd) {
    if let Some(n) = cmd.choice() {
        answer(state, n, By::User);
        return;
    }
    match cmd {
        Cmd::Diagnose => match state.victims.current().cloned() {
            Some(v) => place::diagnose(state, v, None),
            None if !state.victims.known => {
                state.victims.then_diagnose = true;
                state.say_only(
                    Look::Good,
                    "the worst victim is diagnosed as soon as it is found; esc takes that back",
                );
            }
            None => state
                .say_only(Look::Warning, "there is no victim to diagnose; a shows those outside the focus"),
        },
        Cmd::SortVictims => {
            state.victims.next_order();
            let word = state.victims.sort.word();
            state.say_only(Look::Dim, format!("ordered by {word}"));
        }
        Cmd::AllVictims => {
            state.victims.everyone = !state.victims.everyone;
            find_victims(state);
        }
        Cmd::ChooseStop => answer(state, 0, By::User),
        Cmd::ChooseRow => {
            if let Some(a) = state.diagnosis.selected_answer() {
                // The mark stands on what is recommended until it is moved.
                let recommended = state.diagnosis.question().is_some_and(|q| q.recommended == a);
                answer(state, a, if recommended { By::Policy } else { By::User });
            }
        }
        Cmd::Recommended => {
            if let Some(a) = state.diagnosis.question().map(|q| q.recommended) {
                answer(state, a, By::Policy);
            }
        }
        Cmd::FinishByPolicy => finish(state),
        Cmd::See => see(state),
        Cmd::FollowEdge => {
            let at = match state.view {
                View::Path => state.path.parts.get(state.path.row),
                _ => state.diagnosis.slice().get(state.diagnosis.step),
            };
            if let Some(v) = at.map(|n| n.vertex) {
                place::open_vertex(state, v);
            }
        }
        Cmd::Branch => branch(state),
        Cmd::Resume => {
            if state.diagnosis.question().is_some() {
                state.go(View::Question);
            } else if state.diagnosis.verdict().is_some() {
                state.go(View::Verdict);
            }
        }
        Cmd::OpenVertex => open(state),
        Cmd::Expand if state.threads.is_leaf() => state.say_only(Look::Dim, super::moves::NO_MORE),
        Cmd::Expand => {
            let tree = state.threads.tree.get_mut();
            tree.toggle_selected();
        }
        Cmd::ShowThread => {
            let Some(t) = state.recording.as_ref().and_then(|r| state.threads.thread(r)) else { return };
            state.go(View::Timeline);
            place::jump(state, t, state.timeline.cursor);
        }
        Cmd::SortThreads => {
            state.threads.next_order();
            let word = state.threads.sort.word();
            state.say_only(Look::Dim, format!("ordered by {word}"));
        }
        Cmd::DiagnoseHere => match (state.recording.clone(), vertex_here(state)) {
            (Some(r), Some(v)) => run_job(state, Job::VictimAt(r, v)),
            _ => state.say_only(Look::Dim, NOBODY),
        },
        Cmd::CriticalPath => critical_path(state),
        Cmd::FollowWaker | Cmd::FollowWakee => follow(state, cmd == Cmd::FollowWaker),
        Cmd::Export => export(state),
        Cmd::Save => match decision_log(state) {
            Some(log) if log.decisions.is_empty() => {
                state.say_only(Look::Dim, "no question came up: there is no answer to keep");
            }
            Some(log) => {
                let n = log.decisions.len();
                place::keep_decisions(state, log);
                state.say_only(
                    Look::Good,
                    format!("kept in the session file: {}", super::time::counted(n, "answer")),
                );
            }
            None => state.say_only(Look::Dim, "there is nothing to keep yet"),
        },
        Cmd::StepOn => state.steps.by(1),
        Cmd::StepBack => state.steps.by(-1),
        Cmd::NextCall | Cmd::PreviousCall => step_to(state, Flow::Call, cmd == Cmd::PreviousCall),
        Cmd::NextReturn | Cmd::PreviousReturn => step_to(state, Flow::Return, cmd == Cmd::PreviousReturn),
        Cmd::FoldSteps => state.steps.fold(),
        Cmd::FollowSteps => follow_steps(state),
        Cmd::FindFlag => find_flag(state),
        Cmd::WhyNot => state.layers.push(Layer::WhyNot(0)),
        Cmd::ShowSlice => state.go(View::Slice),
        Cmd::DiagnoseUnit
        | Cmd::DiagnoseTransaction
        | Cmd::SeeHander
        | Cmd::CompareUnits
        | Cmd::SortViolations
        | Cmd::AdjustGuard
        | Cmd::SilenceGuard => violation_command::run(state, cmd),
        Cmd::DeleteNote => delete_note(state),
        _ => timeline(state, cmd),
    }
}

fn answer(state: &mut State, answer: usize, by: By) {
    if state.diagnosis.running {
        return;
    }
    let Some(victim) = state.diagnosis.victim().cloned() else { return };
    match state.diagnosis.answered(answer, by) {
        Some(decisions) => place::go_on(state, victim, decisions, false),
        None => state.say_only(Look::Warning, format!("there is no option {answer}")),
    }
}

/// The thread that asks for a data flag: of the question, or the one that the diagnosis ended at.
fn who_asks(state: &State) -> Option<ThreadId> {
    let o = state.diagnosis.outcome.as_ref()?;
    if let Some(q) = &o.question {
        return (q.key.kind == pg_graph::QuestionKind::DataFlag).then_some(ThreadId(q.key.thread));
    }
    let cause = o.report.root_causes.first()?;
    let asks = cause.block_type == Some(pg_graph::BlockType::RepeatedYield);
    let last = o.slice.iter().rfind(|n| {
        let t = state.recording.as_ref().and_then(|r| r.catalog.thread(n.thread));
        t.map(|t| t.tid) == cause.tid
    })?;
    asks.then_some(last.thread)
}

fn step_to(state: &mut State, flow: Flow, back: bool) {
    if !state.steps.find(flow, back) {
        let what = if flow == Flow::Call { "call" } else { "return" };
        let side = if back { "before" } else { "after" };
        state.say_only(Look::Dim, format!("there is no {what} {side} this step"));
    }
}

/// Follows the thread that the view is about: it must still run.
fn follow_steps(state: &mut State) {
    let thread = match state.view {
        View::Vertex => {
            let r = state.recording.as_ref();
            r.zip(state.vertex.vertex).map(|(r, v)| r.graph.vertex(v).thread)
        }
        View::Question => state.diagnosis.question().map(|q| ThreadId(q.key.thread)),
        _ => who_asks(state).or_else(|| state.diagnosis.slice().last().map(|n| n.thread)),
    };
    if let (Some(thread), Some(r)) = (thread, state.recording.clone()) {
        run_job(state, Job::FollowSteps(r, thread));
    }
}

fn find_flag(state: &mut State) {
    match (who_asks(state), state.recording.clone()) {
        (Some(thread), Some(r)) => run_job(state, Job::FindFlag(r, thread)),
        _ => state.say_only(Look::Dim, "only a thread that asks for a data flag can be followed to it"),
    }
}

fn finish(state: &mut State) {
    if let Some(o) = state.diagnosis.outcome.as_ref().filter(|o| o.question.is_some()) {
        let (victim, decisions) = (o.victim.clone(), o.decisions.clone());
        place::go_on(state, victim, decisions, true);
    }
}

fn branch(state: &mut State) {
    let (Some(decisions), Some(victim)) = (state.diagnosis.branched(), state.diagnosis.victim().cloned())
    else {
        state.say_only(Look::Dim, "no answer led to this step: there was only one way");
        return;
    };
    let before = state.diagnosis.standing();
    place::go_on(state, victim, decisions, false);
    state.diagnosis.before = before;
}

/// The vertex that is selected.
fn vertex_here(state: &State) -> Option<VertexId> {
    let r = state.recording.as_ref()?;
    match state.view {
        View::Timeline => state.timeline.vertex(r),
        View::Vertex => state.vertex.vertex,
        View::Victims => state.victims.current().map(|v| v.vertex),
        View::Slice => state.diagnosis.slice().get(state.diagnosis.step).map(|n| n.vertex),
        _ => None,
    }
}

/// What is selected: its thread, its span, and a moment in it.
fn selected(state: &State) -> Option<(ThreadId, (Ns, Ns), Ns)> {
    let span = |start: Ns, length: Ns| (start, start.saturating_add(length));
    match state.view {
        View::Victims => {
            state.victims.current().map(|v| (v.thread, span(v.start, v.duration), v.start + v.duration / 2))
        }
        View::Slice => state
            .diagnosis
            .slice()
            .get(state.diagnosis.step)
            .map(|n| (n.thread, span(n.start, n.duration), n.start + n.duration / 2)),
        View::Path => state
            .path
            .parts
            .get(state.path.row)
            .map(|n| (n.thread, span(n.start, n.duration), n.start + n.duration / 2)),
        View::Violations | View::Units => {
            violation_command::selected(state).map(|v| (v.thread, (v.start, v.until), v.time))
        }
        View::Notes => state.notes.current().map(|n| {
            let around = 1_000_000;
            (n.thread, (n.time.saturating_sub(around), n.time.saturating_add(around)), n.time)
        }),
        View::Question => state.diagnosis.question().and_then(|q| {
            let r = state.recording.as_ref()?;
            let about = r.graph.vertex(q.vertex);
            // Both the option and what it is about.
            let choice = q.choices.get(state.diagnosis.choice);
            let thread = choice.and_then(|c| c.vertex).map_or(about.thread, |v| r.graph.vertex(v).thread);
            let at = choice.map_or(about.start, |c| c.time);
            Some((thread, (about.start.min(at), about.woken.max(at)), at))
        }),
        View::Vertex => state.recording.as_ref().and_then(|r| {
            let v = r.graph.vertex(state.vertex.vertex?);
            Some(match state.vertex.about() {
                Some(About::Moment(t, at)) => (t, (v.start, v.end), at),
                Some(About::Edge(e, other)) => {
                    let edge = r.graph.edge(e);
                    let o = r.graph.vertex(other);
                    (o.thread, (v.start.min(edge.from_time), v.end.max(edge.from_time)), edge.from_time)
                }
                _ => (v.thread, (v.start, v.end), v.start),
            })
        }),
        _ => None,
    }
}

fn see(state: &mut State) {
    if let Some((thread, span, cursor)) = selected(state) {
        place::see(state, thread, span, cursor);
    }
}

/// The timeline at what is selected, unless the cursor is in it already. The zoom stays.
pub fn go_timeline(state: &mut State) {
    let there = match state.view {
        // They are about more than what is selected.
        View::Question | View::Verdict => None,
        _ => selected(state),
    };
    state.go(View::Timeline);
    let t = &state.timeline;
    if let Some((thread, span, cursor)) = there
        && (t.thread != Some(thread) || !(span.0..=span.1).contains(&t.cursor))
    {
        place::point(state, thread, cursor);
    }
}

fn open(state: &mut State) {
    match state.view {
        View::Timeline => {
            if let Some(v) = vertex_here(state) {
                place::open_vertex(state, v);
            } else {
                state.say_only(Look::Dim, NOBODY);
            }
        }
        View::Vertex => match state.vertex.about() {
            Some(About::Edge(_, other)) => place::open_vertex(state, other),
            Some(About::Moment(..)) => see(state),
            Some(About::Burst(b)) => {
                if let Some(r) = state.recording.clone() {
                    run_job(state, Job::Steps(r, b));
                }
            }
            _ => {}
        },
        View::Units => {
            let parts = state.units.shown.as_ref().map(|s| &s.1.parts);
            match parts.and_then(|p| p.get(state.units.row)).and_then(|p| p.slow.vertex.or(p.normal.vertex)) {
                Some(v) => place::open_vertex(state, v),
                None => state.say_only(Look::Dim, "this is no wait: the slice of the diagnosis tells more"),
            }
        }
        View::Notes => {
            let at = state
                .notes
                .current()
                .and_then(|n| state.recording.as_ref()?.graph.vertex_at(n.thread, n.time));
            match at {
                Some(v) => place::open_vertex(state, v),
                None => see(state),
            }
        }
        _ => {}
    }
}

fn follow(state: &mut State, back: bool) {
    let (Some(r), Some(v)) = (state.recording.clone(), vertex_here(state)) else {
        state.say_only(Look::Dim, NOBODY);
        return;
    };
    let edge = if back { r.waking(v) } else { r.graph.outgoing(v).next() };
    let Some(edge) = edge.map(|e| r.graph.edge(e)) else {
        let why = if back { "no wake-up of this vertex was recorded" } else { "this vertex woke nobody" };
        state.say_only(Look::Warning, why);
        return;
    };
    let (to, at) = if back { (edge.from, edge.from_time) } else { (edge.to, edge.to_time) };
    if state.view == View::Timeline {
        place::jump(state, r.graph.vertex(to).thread, at);
    } else {
        place::open_vertex(state, to);
    }
}

fn critical_path(state: &mut State) {
    let Some(r) = state.recording.clone() else { return };
    let asked = match state.view {
        View::Timeline => state.timeline.thread.zip(state.timeline.marked()),
        View::Victims => state.victims.current().map(|v| (v.thread, (v.start, v.end()))),
        _ => None,
    };
    let here = vertex_here(state).filter(|v| r.graph.vertex(*v).start < r.graph.vertex(*v).end);
    match (asked, here) {
        (Some((thread, span)), _) if span.0 < span.1 => run_job(state, Job::Path(r, thread, span)),
        (None, Some(v)) => run_job(state, Job::PathOf(r, v)),
        _ => state.say_only(Look::Warning, "mark a span first: v at its begin, move, p"),
    }
}

/// Writes the report of the verdict; without one there is nothing that is not kept already.
pub fn write(state: &mut State) {
    if state.diagnosis.verdict().is_some() {
        export(state);
    } else {
        state.say_only(
            Look::Dim,
            "notes and decisions are kept in the session as they are made; with a verdict this writes its report",
        );
    }
}

fn export(state: &mut State) {
    let (Some(r), Some(report)) = (state.recording.clone(), state.diagnosis.verdict().cloned()) else {
        return;
    };
    if r.session().is_none() {
        state.say(Look::Warning, "this recording has no file to write the report beside");
        return;
    }
    let markdown = text::verdict_markdown(state);
    run_job(state, Job::Export(r, Box::new(report), markdown));
}

fn timeline(state: &mut State, cmd: Cmd) {
    let Some(r) = state.recording.clone() else { return };
    if state.view != View::Timeline {
        return;
    }
    let end = r.graph.duration();
    match cmd {
        Cmd::ZoomIn => state.timeline.zoom(true, end),
        Cmd::ZoomOut => state.timeline.zoom(false, end),
        Cmd::ZoomAll => {
            (state.timeline.from, state.timeline.to) = (0, end.max(super::views::timeline::SHORTEST));
        }
        Cmd::ZoomSelection => {
            let vertex = state.timeline.vertex(&r).map(|v| r.graph.vertex(v)).map(|v| (v.start, v.end));
            if let Some(span) = state.timeline.marked().or(vertex) {
                state.timeline.fit(span, end);
            }
        }
        Cmd::PanLeft => state.timeline.pan(-1, end),
        Cmd::PanRight => state.timeline.pan(1, end),
        Cmd::NextChange | Cmd::PreviousChange => {
            let here = state.timeline.vertex(&r);
            let to = match (here, cmd) {
                (Some(v), Cmd::NextChange) => r.graph.next(v),
                (Some(v), _) => {
                    // First to the begin of this one, then to the one before.
                    if r.graph.vertex(v).start < state.timeline.cursor {
                        Some(v)
                    } else {
                        r.graph.previous(v)
                    }
                }
                (None, Cmd::NextChange) => state.timeline.thread.and_then(|t| r.graph.vertices_of(t).next()),
                (None, _) => state.timeline.thread.and_then(|t| r.graph.vertices_of(t).next_back()),
            };
            if let Some(v) = to {
                state.timeline.cursor = r.graph.vertex(v).start;
                state.timeline.reveal(end);
            } else {
                let side = if cmd == Cmd::NextChange { "after" } else { "before" };
                state.say_only(Look::Dim, format!("this thread has no vertex {side} this"));
            }
        }
        Cmd::MarkSpan => {
            let cursor = state.timeline.cursor;
            state.timeline.mark = match state.timeline.mark {
                Some((a, None)) if a != cursor => Some((a, Some(cursor))),
                Some(_) => None,
                None => Some((cursor, None)),
            };
            let told = match state.timeline.mark {
                Some((_, None)) => "a span begins here: move, then p asks what made it, f fits it, v ends it",
                Some(_) => "span marked: p asks what made it, f fits it, esc clears it",
                None => "mark cleared",
            };
            state.say_only(Look::Dim, told);
        }
        Cmd::OnlyRelated => {
            let t = &mut state.timeline;
            if t.only.take().is_none() {
                let mut only = state.diagnosis.threads();
                if let Some(v) = t.vertex(&r) {
                    let edges = r.graph.incoming(v).map(|e| r.graph.edge(e).from);
                    let out = r.graph.outgoing(v).map(|e| r.graph.edge(e).to);
                    only.extend(edges.chain(out).map(|v| r.graph.vertex(v).thread));
                }
                only.extend(t.thread);
                t.only = Some(only);
            }
            t.list(&r);
        }
        _ => {}
    }
}
