//! What each command does.

use super::command::{Cmd, Context};
use super::jobs::Job;
use super::layer::{Help, Layer, NoteBox, Palette, SearchBox};
use super::msg::Effect;
use super::state::{State, View};
use super::time::now;
use super::update::{run_job, victim_options};
use super::views::Move;
use super::{moves, place, text, view_command, violation_command};
use crate::app::input::Line;
use crate::app::recording::Recording;
use crate::config::Look;
use crate::session::{DecisionLog, Note};
use pg_event::{Ns, ThreadId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Runs a command in the view or layer on top.
pub fn run_command(state: &mut State, cmd: Cmd) {
    if state.layers.last().is_some_and(|l| l.context() == Context::Text) {
        text_command(state, cmd);
        return;
    }
    if let Some(by) = moves::of(cmd) {
        moves::up_down(state, by);
        return;
    }
    match cmd {
        Cmd::Left => moves::left_right(state, -1),
        Cmd::Right => moves::left_right(state, 1),
        Cmd::GoVictims => state.go(View::Victims),
        Cmd::GoThreads => state.go(View::Threads),
        Cmd::GoTimeline => view_command::go_timeline(state),
        Cmd::GoSlice => go_diagnosis(state, View::Slice),
        Cmd::GoQuestion => go_diagnosis(state, View::Question),
        Cmd::GoVerdict => go_diagnosis(state, View::Verdict),
        Cmd::GoNotes => state.go(View::Notes),
        Cmd::GoSteps => go_steps(state),
        Cmd::GoViolations => state.go(View::Violations),
        Cmd::GoLog => {
            state.log_offset = usize::MAX;
            state.go(View::Log);
        }
        Cmd::Back | Cmd::Forward => match state.travel(cmd == Cmd::Back) {
            Some(p) => place::restore(state, p),
            None => state.say_only(
                Look::Dim,
                if cmd == Cmd::Back { "nothing before this" } else { "nothing after this" },
            ),
        },
        Cmd::Help => {
            let context = state.view.context();
            state.layers.push(Layer::Help(Help::new(context)));
        }
        Cmd::Palette => {
            let span = |r: &Arc<Recording>| (r.header.start_wall, r.graph.duration());
            let span = state.recording.as_ref().map_or((0, 0), span);
            let palette = Palette::new(state.view.context(), &state.config.keymap, span);
            state.layers.push(Layer::Palette(palette));
        }
        Cmd::Search => {
            // Whoever reads the help looks for something there.
            if let Some(Layer::Help(h)) = state.layers.last_mut() {
                h.typing = true;
                return;
            }
            state.layers.push(Layer::Search(SearchBox {
                line: Line::default(),
                generation: 0,
                hits: Vec::new(),
                total: 0,
                selected: 0,
                busy: true,
            }));
            search(state);
        }
        Cmd::NextFound => place::show_found(state, 1),
        Cmd::PreviousFound => place::show_found(state, -1),
        Cmd::Undo => undo(state),
        Cmd::CopyVerdict => {
            let copied = text::markdown(state);
            place::copy(state, copied);
        }
        Cmd::Bookmark => bookmark(state),
        Cmd::Note => note(state),
        Cmd::NextTheme => next_theme(state),
        Cmd::Redraw => state.ask(Effect::Redraw),
        Cmd::Suspend => state.ask(Effect::Suspend),
        Cmd::Write => view_command::write(state),
        Cmd::Quit => state.ask(Effect::Quit),
        Cmd::Cancel => cancel(state),
        _ => view_command::run(state, cmd),
    }
}

fn go_diagnosis(state: &mut State, view: View) {
    let there = match view {
        View::Question => state.diagnosis.question().is_some(),
        View::Verdict => state.diagnosis.verdict().is_some(),
        _ => state.diagnosis.outcome.is_some(),
    };
    if there {
        state.go(view);
    } else if state.diagnosis.outcome.is_none() {
        state.say_only(Look::Warning, "no diagnosis yet: select a victim and press enter");
    } else if view == View::Verdict {
        state.go(View::Question);
        state.say_only(Look::Warning, "the verdict comes after this question");
    } else {
        state.go(View::Verdict);
        state.say_only(Look::Dim, "no question is open: this is the verdict");
    }
}

/// The first burst, or the one after that shown.
fn go_steps(state: &mut State) {
    let Some(r) = state.recording.clone() else { return };
    let mut bursts = r.graph.bursts().to_vec();
    bursts.sort_by_key(|b| b.start);
    let shown = state.steps.shown.as_ref().filter(|s| !s.now);
    let at = shown.and_then(|s| bursts.iter().position(|b| (b.thread, b.start) == (s.thread, s.span.0)));
    let next = match at {
        Some(n) if state.view == View::Steps => (n + 1) % bursts.len(),
        at => at.unwrap_or(0),
    };
    match bursts.get(next) {
        Some(b) => run_job(state, Job::Steps(r, *b)),
        None if state.steps.shown.is_some() => state.go(View::Steps),
        None => state.say_only(Look::Dim, "nobody was followed in this recording: record --steps does"),
    }
}

/// Deletes the selected note.
pub fn delete_note(state: &mut State) {
    let Some(n) = state.notes.current().cloned() else { return };
    keep(state, Note { deleted: true, ..n });
    if !state.notes.deleted.is_empty() {
        state.say_only(Look::Dim, "deleted; u brings it back");
    }
}

/// Takes back the last answer; where notes are shown, brings back the last one that was deleted.
fn undo(state: &mut State) {
    if state.view == View::Notes {
        match state.notes.deleted.pop() {
            Some(n) => {
                state.notes.selected = Some(n.id);
                keep(state, n);
            }
            None => state.say_only(Look::Dim, "no note was deleted since this was opened"),
        }
        return;
    }
    let (Some(decisions), Some(victim)) = (state.diagnosis.undone(), state.diagnosis.victim().cloned())
    else {
        state.say_only(Look::Dim, "there is no answer to take back");
        return;
    };
    place::go_on(state, victim, decisions, false);
}

/// Closes what is on top, or clears a mark, or goes back.
fn cancel(state: &mut State) {
    if state.layers.pop().is_some() {
        return;
    }
    if state.view == View::Timeline && state.timeline.mark.take().is_some() {
        return;
    }
    match state.view {
        View::Question if state.diagnosis.question().is_some() => {
            // Not left for it: else the way back would lead here again, and round and round.
            state.view = View::Slice;
            let told = if state.diagnosis.give_up_branch() {
                "the answer stays as it was"
            } else {
                "the question waits: enter comes back to it"
            };
            state.say_only(Look::Dim, told);
        }
        View::Victims if std::mem::take(&mut state.victims.then_diagnose) => {
            state.say_only(Look::Dim, "the worst victim is selected only");
        }
        View::Victims => state.say_only(Look::Dim, "q quits"),
        _ => match state.travel(true) {
            Some(p) => place::restore(state, p),
            None => state.view = View::Victims,
        },
    }
}

pub(super) fn next_theme(state: &mut State) {
    let c = &mut state.config;
    let at = c.themes.iter().position(|t| t.name == c.theme.name).unwrap_or(0);
    if let Some(next) = c.themes.get((at + 1) % c.themes.len().max(1)) {
        c.theme = next.clone();
        let name = next.name.clone();
        state.say_only(Look::Dim, format!("theme {name}; `theme = \"{name}\"` in config.toml keeps it"));
    }
}

/// The moment that is selected in this view.
fn here(state: &State) -> Option<(ThreadId, Ns)> {
    use super::views::vertex::About;
    let r = state.recording.as_ref()?;
    match state.view {
        View::Victims => state.victims.current().map(|v| (v.thread, v.start)),
        View::Threads => state.threads.thread(r).map(|t| (t, state.timeline.cursor)),
        View::Timeline => state.timeline.thread.map(|t| (t, state.timeline.cursor)),
        View::Slice => state.diagnosis.slice().get(state.diagnosis.step).map(|n| (n.thread, n.start)),
        View::Path => state.path.parts.get(state.path.row).map(|n| (n.thread, n.start)),
        View::Vertex => {
            let v = r.graph.vertex(state.vertex.vertex?);
            Some(match state.vertex.about() {
                Some(About::Moment(t, at)) => (t, at),
                Some(About::Edge(e, _)) => (v.thread, r.graph.edge(e).to_time),
                _ => (v.thread, v.start),
            })
        }
        View::Question | View::Verdict => state.diagnosis.victim().map(|v| (v.thread, v.start)),
        View::Notes => state.notes.current().map(|n| (n.thread, n.time)),
        View::Steps => state.steps.shown.as_ref().filter(|s| !s.now).map(|s| (s.thread, s.span.0)),
        View::Violations | View::Units => violation_command::selected(state).map(|v| (v.thread, v.start)),
        View::Log => None,
    }
}

fn keep(state: &mut State, note: Note) {
    let Some(r) = state.recording.clone() else { return };
    if r.session().is_none() {
        state.say(Look::Warning, "this recording has no file to keep notes in");
        return;
    }
    if note.deleted {
        state.notes.deleted.extend(state.notes.notes.iter().find(|n| n.id == note.id).cloned());
    }
    run_job(state, Job::KeepNote(r, note));
}

fn bookmark(state: &mut State) {
    let Some((thread, time)) = here(state) else {
        state.say_only(Look::Dim, "nothing is selected to set a bookmark on");
        return;
    };
    let old = state.notes.notes.iter().find(|n| n.thread == thread && n.time == time).cloned();
    let at = super::time::at(time);
    match old {
        Some(n) if n.bookmark && n.text.is_empty() => {
            keep(state, Note { deleted: true, ..n });
            state.say_only(Look::Dim, format!("bookmark at {at} cleared"));
        }
        Some(n) => keep(state, Note { bookmark: !n.bookmark, ..n }),
        None => {
            keep(state, Note { time, thread, bookmark: true, written: now(), ..Note::default() });
            state.say_only(Look::Note, format!("bookmark at {at}; ' lists all, M writes a note on it"));
        }
    }
}

fn note(state: &mut State) {
    let Some((thread, time)) = here(state) else {
        state.say_only(Look::Dim, "nothing is selected to write a note on");
        return;
    };
    let old = state.notes.notes.iter().find(|n| n.thread == thread && n.time == time);
    let text = old.map_or("", |n| n.text.as_str());
    let layer = NoteBox {
        line: Line::new(text),
        thread,
        time,
        id: old.map(|n| n.id),
        bookmark: old.is_some_and(|n| n.bookmark),
    };
    state.layers.push(Layer::Note(layer));
}

/// Commands of a layer in which text is typed.
fn text_command(state: &mut State, cmd: Cmd) {
    let Some(layer) = state.layers.last_mut() else { return };
    match cmd {
        Cmd::CloseText => match layer {
            Layer::Help(h) => *h = Help::new(h.context),
            _ => {
                state.layers.pop();
            }
        },
        Cmd::Accept => accept(state),
        Cmd::NextRow | Cmd::PreviousRow => {
            let by = Move::By(if cmd == Cmd::NextRow { 1 } else { -1 });
            match layer {
                Layer::Palette(p) => p.go(by),
                Layer::Search(s) => s.selected = by.from(s.selected, s.hits.len(), 1),
                Layer::Help(h) => h.offset = by.from(h.offset, usize::MAX, 1).min(10_000),
                Layer::Note(_) | Layer::Guard(_) | Layer::WhyNot(_) | Layer::Flag(..) => {}
            }
        }
        Cmd::EraseChar | Cmd::EraseWord | Cmd::EraseAll => {
            if let Some(line) = layer.line() {
                match cmd {
                    Cmd::EraseChar => line.erase(),
                    Cmd::EraseWord => line.erase_word(),
                    _ => line.clear(),
                }
            }
            typed(state);
        }
        _ => {}
    }
}

/// The text of the layer on top changed.
pub fn typed(state: &mut State) {
    match state.layers.last_mut() {
        Some(Layer::Palette(p)) => p.filter(&state.config.keymap),
        Some(Layer::Search(_)) => search(state),
        Some(Layer::Help(h)) => h.offset = 0,
        _ => {}
    }
}

/// Sends off the query of an open search.
pub fn search(state: &mut State) {
    let Some(index) = state.search.index.clone() else { return };
    let Some(Layer::Search(s)) = state.layers.last_mut() else { return };
    let newest = state.search.newest.clone();
    let generation = newest.fetch_add(1, Ordering::Relaxed) + 1;
    s.generation = generation;
    s.busy = true;
    let query = s.line.text().to_owned();
    run_job(state, Job::Find { index, query, generation, newest });
}

fn accept(state: &mut State) {
    match state.layers.pop() {
        Some(Layer::Palette(p)) => {
            if let Some(time) = p.time {
                place::at_time(state, time);
                return;
            }
            let Some(cmd) = p.rows.get(p.selected).copied().filter(|_| p.sure) else {
                // What was typed is not run by chance.
                let typed = p.line.text().trim();
                let told = match typed.split_whitespace().next() {
                    Some("goto") => p.goto_help(),
                    _ if p.rows.is_empty() => format!("no command is called \"{typed}\""),
                    _ => format!(
                        "no command is called \"{typed}\"; down chooses one of those that do something like it"
                    ),
                };
                state.say_only(Look::Warning, told);
                state.layers.push(Layer::Palette(p));
                return;
            };
            if !cmd.row().applies(p.context)
                && let Some(home) = cmd.home()
            {
                match home {
                    View::Slice | View::Verdict => go_diagnosis(state, home),
                    view => state.go(view),
                }
                if state.view != home {
                    return;
                }
            }
            run_command(state, cmd);
        }
        Some(Layer::Search(s)) => place::target(state, &s),
        Some(Layer::Note(n)) => {
            let empty = n.line.text().trim().is_empty();
            if empty && n.id.is_none() {
                return;
            }
            let note = Note {
                id: n.id.unwrap_or(0),
                time: n.time,
                thread: n.thread,
                text: n.line.text().trim().to_owned(),
                bookmark: n.bookmark,
                deleted: empty && !n.bookmark,
                written: now(),
            };
            keep(state, note);
        }
        Some(Layer::Guard(g)) => violation_command::accept(state, g),
        Some(Layer::Help(h)) => state.layers.push(Layer::Help(Help { typing: false, ..h })),
        Some(other) => state.layers.push(other),
        None => {}
    }
}

/// The decisions of the diagnosis as the session keeps them.
pub fn decision_log(state: &State) -> Option<DecisionLog> {
    let o = state.diagnosis.outcome.as_ref()?;
    Some(DecisionLog { thread: o.victim.thread, start: o.victim.start, decisions: o.decisions.clone() })
}

/// Looks for victims afresh.
pub fn find_victims(state: &mut State) {
    let Some(r) = state.recording.clone() else { return };
    let options = victim_options(state);
    state.victims.known = false;
    run_job(state, Job::Victims(r, options));
}
