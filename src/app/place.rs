//! Going somewhere: to a vertex, a moment, a thread, a diagnosis.

use super::jobs::Job;
use super::layer::{Layer, SearchBox};
use super::msg::Effect;
use super::search::{Found, Places};
use super::state::{Place, State, View};
use super::update::run_job;
use super::views::diagnosis::Outcome;
use super::views::threads::Node;
use crate::config::Look;
use crate::session::DecisionLog;
use pg_event::{Ns, ThreadId};
use pg_graph::{Decision, VertexId, Victim};

/// Shows a vertex.
pub fn open_vertex(state: &mut State, id: VertexId) {
    let Some(r) = state.recording.clone() else { return };
    if id.index() >= r.graph.vertex_count() {
        return;
    }
    if state.view == View::Vertex && state.vertex.vertex != Some(id) {
        let here = state.place();
        state.history.leave(here);
    }
    state.go(View::Vertex);
    if state.vertex.vertex != Some(id) || state.vertex.rows.is_empty() {
        show_vertex(state, id);
    }
}

fn show_vertex(state: &mut State, id: VertexId) {
    let Some(r) = state.recording.clone() else { return };
    state.vertex.open(&r, id);
    run_job(state, Job::Events(r, id));
}

/// Shows a span of a thread in the timeline, with the cursor in it.
pub fn see(state: &mut State, thread: ThreadId, span: (Ns, Ns), cursor: Ns) {
    let Some(r) = state.recording.clone() else { return };
    let end = r.graph.duration();
    if state.view == View::Timeline {
        let here = state.place();
        state.history.leave(here);
    }
    state.go(View::Timeline);
    let t = &mut state.timeline;
    if t.only.as_ref().is_some_and(|o| !o.contains(&thread)) {
        t.only = None;
        t.list(&r);
    }
    t.thread = Some(thread);
    t.cursor = cursor.min(end);
    t.fit(span, end);
}

/// Moves the timeline's cursor to a moment of a thread without changing the zoom more than needed.
pub fn jump(state: &mut State, thread: ThreadId, time: Ns) {
    let here = state.place();
    state.history.leave(here);
    point(state, thread, time);
}

/// The same within the place where one is.
pub fn point(state: &mut State, thread: ThreadId, time: Ns) {
    let Some(r) = state.recording.clone() else { return };
    let t = &mut state.timeline;
    if t.only.as_ref().is_some_and(|o| !o.contains(&thread)) {
        t.only = None;
        t.list(&r);
    }
    t.thread = Some(thread);
    t.cursor = time.min(r.graph.duration());
    t.reveal(r.graph.duration());
}

/// Shows a moment in the timeline, on the thread that is selected there.
pub fn at_time(state: &mut State, time: Ns) {
    let Some(r) = state.recording.clone() else { return };
    let end = r.graph.duration();
    if time > end {
        let all = super::time::length(end);
        let from = crate::wall::time_of_day(r.header.start_wall, 0);
        let from = if from.is_empty() { from } else { format!(", from {from} on") };
        state.say_only(Look::Dim, format!("the recording is {all} long{from}: this is its end"));
    }
    let Some(t) = state.timeline.thread else {
        state.go(View::Timeline);
        return;
    };
    state.go(View::Timeline);
    jump(state, t, time);
}

/// Begins the diagnosis of a victim, with the answers that the session holds, or with these.
pub fn diagnose(state: &mut State, victim: Victim, decisions: Option<Vec<Decision>>) {
    let Some(r) = state.recording.clone() else { return };
    let stored = r.session().and_then(|s| {
        s.decisions().iter().rev().find(|l| l.thread == victim.thread && l.start == victim.start).cloned()
    });
    state.diagnosis.saved = stored.as_ref().map(|l| l.decisions.clone()).unwrap_or_default();
    let decisions = decisions.unwrap_or_else(|| state.diagnosis.saved.clone());
    state.diagnosis.kept = decisions.len();
    if !decisions.is_empty() && stored.is_some() {
        state.say(
            Look::Dim,
            format!(
                "{} kept in the session taken; u takes the last one back",
                super::time::counted(decisions.len(), "answer")
            ),
        );
    }
    go_on(state, victim, decisions, false);
}

/// Goes on with a diagnosis with these answers.
pub fn go_on(state: &mut State, victim: Victim, decisions: Vec<Decision>, to_the_end: bool) {
    let Some(recording) = state.recording.clone() else { return };
    state.diagnosis.running = true;
    state.diagnosis.before = None;
    // Those that were taken back are not kept any more.
    state.diagnosis.kept = state.diagnosis.kept.min(decisions.len());
    run_job(state, Job::Diagnose { recording, victim: Box::new(victim), decisions, to_the_end });
}

/// A diagnosis got further: show its question, or its verdict. Answers are kept at once.
pub fn diagnosed(state: &mut State, outcome: Outcome) {
    let log = DecisionLog {
        thread: outcome.victim.thread,
        start: outcome.victim.start,
        decisions: outcome.decisions.clone(),
    };
    let asks = outcome.question.is_some();
    state.diagnosis.set(outcome);
    if !asks {
        state.diagnosis.before = None;
    }
    // The answer that a branch leaves out stays in the file until there is another one.
    if log.decisions != state.diagnosis.saved && state.diagnosis.before.is_none() {
        keep_decisions(state, log);
    }
    if state.timeline.only.is_some()
        && let Some(r) = state.recording.clone()
    {
        state.timeline.only = Some(state.diagnosis.threads());
        state.timeline.list(&r);
    }
    state.go(if asks { View::Question } else { View::Verdict });
}

/// Keeps the answers so far in the session file.
pub fn keep_decisions(state: &mut State, log: DecisionLog) {
    let Some(r) = state.recording.clone() else { return };
    if r.session().is_some() {
        run_job(state, Job::KeepDecisions(r, log));
    }
}

/// Goes where the selected hit of a search leads; the other processes and threads that it found are the next ones.
pub fn target(state: &mut State, search: &SearchBox) {
    let Some(r) = state.recording.clone() else { return };
    let Some(hit) = search.hits.get(search.selected) else { return };
    let Some(node) = hit.target.node() else {
        run_job(state, Job::Places(r, hit.target.clone(), hit.text.clone()));
        return;
    };
    let nodes = search.hits.iter().filter_map(|h| Some((h.target.node()?, h.text.clone())));
    let nodes: Vec<_> = nodes.collect();
    let at = nodes.iter().position(|n| n.0 == node).unwrap_or(0);
    let what = search.line.text().trim().to_owned();
    state.found = Some(Found { what, places: Places::Nodes(nodes), at });
    match node {
        Node::Process(_) => {
            state.go(View::Threads);
            state.threads.select(node);
        }
        Node::Thread(t) => lane_of(state, t),
    }
}

/// Shows a thread in the timeline, at the moment and in the span shown there.
fn lane_of(state: &mut State, t: ThreadId) {
    let (from, to) = (state.timeline.from, state.timeline.to);
    state.go(View::Timeline);
    jump(state, t, state.timeline.cursor);
    (state.timeline.from, state.timeline.to) = (from, to);
}

/// Shows a process or a thread where one is: in the timeline or in the tree.
fn show_node(state: &mut State, node: Node) {
    if state.view != View::Timeline {
        state.go(View::Threads);
        state.threads.select(node);
        return;
    }
    let Some(r) = state.recording.clone() else { return };
    let thread = match node {
        Node::Thread(t) => Some(t),
        Node::Process(p) => {
            r.groups().iter().find(|g| g.process == p).and_then(|g| g.threads.first()).copied()
        }
    };
    if let Some(t) = thread {
        lane_of(state, t);
    }
}

/// Vertices were found: show the first one.
pub fn found(state: &mut State, what: String, vertices: Vec<VertexId>) {
    if vertices.is_empty() {
        state.say(Look::Warning, format!("no thread waited or was seen on the CPU in {what}"));
        return;
    }
    state.found = Some(Found { what, places: Places::Vertices(vertices), at: 0 });
    show_found(state, 0);
}

/// Shows the next or the previous of what was found.
pub fn show_found(state: &mut State, by: isize) {
    let Some(f) = &mut state.found else {
        state.say(Look::Dim, "nothing was searched for yet; / searches");
        return;
    };
    let total = f.places.count();
    f.at = (f.at as isize + by).rem_euclid((total as isize).max(1)) as usize;
    let (at, what) = (f.at, f.what.clone());
    match &f.places {
        Places::Vertices(v) => {
            let Some(v) = v.get(at).copied() else { return };
            open_vertex(state, v);
            state.say(Look::Dim, format!("{} of {total} in or on {what}, the longest there first", at + 1));
        }
        Places::Nodes(n) => {
            let Some((node, name)) = n.get(at).cloned() else { return };
            show_node(state, node);
            let like = if what.is_empty() { String::new() } else { format!(" found by \"{what}\"") };
            state.say_only(Look::Dim, format!("{name}: {} of {total}{like}", at + 1));
        }
    }
}

/// Goes to a place of the history.
pub fn restore(state: &mut State, place: Place) {
    state.layers.clear();
    state.view = place.view;
    if let Some((from, to, cursor, thread)) = place.timeline {
        let t = &mut state.timeline;
        (t.from, t.to, t.cursor, t.thread) = (from, to, cursor, thread);
    }
    match (place.view, place.vertex) {
        (View::Vertex, Some(v)) if state.vertex.vertex != Some(v) => show_vertex(state, v),
        (View::Victims, _) => state.victims.selected = place.victim.or(state.victims.selected),
        (View::Slice, _) => state.diagnosis.step = place.row,
        (View::Question, _) => state.diagnosis.choice = place.row,
        (View::Path, _) => state.path.row = place.row,
        (View::Violations, _) => state.violations.selected = place.row,
        (View::Units, _) => state.units.row = place.row,
        _ => {}
    }
}

/// Copies a text.
pub fn copy(state: &mut State, text: String) {
    if text.is_empty() {
        state.say(Look::Warning, "there is nothing to copy here");
        return;
    }
    state.ask(Effect::Osc52(text.clone()));
    let what = match (state.layers.last(), state.view) {
        (Some(Layer::WhyNot(_)), _) => "why not the others",
        (Some(Layer::Flag(..)), _) => "the flag",
        (_, View::Question) => "the verdict so far",
        (_, view) => view.context().name(),
    };
    let what = format!("{what}, {}", super::time::counted(text.lines().count(), "line"));
    let tool = state.config.clipboard.clone();
    run_job(state, Job::Copy(text, tool, what));
}
