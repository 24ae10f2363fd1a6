//! The one function that changes the state.

use super::command::{Cmd, Context};
use super::jobs::{Done, Job};
use super::layer::Layer;
use super::msg::{Effect, Load, Msg, Signal};
use super::run_command::run_command;
use super::state::{Phase, State, View};
use super::views::notes::NotesState;
use super::{mouse, nothing_here, place};
use crate::config::{Key, Look, Lookup};
use crossterm::event::{Event, KeyEventKind};
use pg_graph::VictimOptions;

/// Takes a message in.
pub fn update(state: &mut State, msg: Msg) {
    // What changes nothing must not take back what a message before it changed.
    let before = std::mem::replace(&mut state.dirty, true);
    match msg {
        Msg::Input(Event::Key(k)) if k.kind != KeyEventKind::Release => key(state, Key::from(k)),
        Msg::Input(Event::Mouse(m)) => {
            if !mouse::mouse(state, m) {
                state.dirty = before;
            }
        }
        Msg::Input(Event::Resize(w, h)) => state.size = (w, h),
        Msg::Input(Event::Paste(text)) => {
            if let Some(line) = state.layers.last_mut().and_then(Layer::line) {
                line.insert(&text);
                super::run_command::typed(state);
            }
        }
        Msg::Input(_) => state.dirty = before,
        Msg::Signal(Signal::End(n)) => state.ask(Effect::Die(n)),
        Msg::Signal(Signal::Stop) => state.ask(Effect::Suspend),
        Msg::Signal(Signal::Continue) => state.ask(Effect::TakeTerminal),
        Msg::Load(load) => loaded(state, load),
        Msg::Job(done) => job_done(state, done),
    }
}

/// Brings what is derived from state and screen size up to date. Before every frame.
pub fn prepare(state: &mut State) {
    crate::ui::prepare(state);
}

fn key(state: &mut State, key: Key) {
    state.message = None;
    let context = state.context();
    state.pending.push(key);
    match state.config.keymap.lookup(context, &state.pending) {
        Lookup::Prefix => {}
        Lookup::Command(cmd) => {
            state.pending.clear();
            run_command(state, cmd);
        }
        Lookup::Nothing => {
            let pressed = std::mem::take(&mut state.pending);
            if context == Context::Text
                && let crossterm::event::KeyCode::Char(c) = key.code
                && key.mods.is_empty()
                && let Some(line) = state.layers.last_mut().and_then(Layer::line)
            {
                line.insert(c.encode_utf8(&mut [0; 4]));
                super::run_command::typed(state);
            } else if context != Context::Text && key != Key::plain(crossterm::event::KeyCode::Esc) {
                nothing_here::tell(state, context, &pressed);
            }
        }
    }
}

/// Starts a job.
pub(super) fn run_job(state: &mut State, job: Job) {
    let words = job.words();
    if !state.busy.contains(&words) {
        state.busy.push(words);
    }
    state.ask(Effect::Run(job));
}

fn finished(state: &mut State, words: &str) {
    state.busy.retain(|w| *w != words);
}

/// What counts as a victim, as set in the list of victims.
pub(super) fn victim_options(state: &State) -> VictimOptions {
    VictimOptions { everyone: state.victims.everyone, ..VictimOptions::default() }
}

fn loaded(state: &mut State, load: Load) {
    match load {
        Load::Progress { what, share } => state.phase = Phase::Loading(what, share.clamp(0.0, 1.0)),
        Load::Failed(why) => {
            finished(state, "loading");
            state.say(Look::Error, why.clone());
            state.phase = Phase::Failed(crate::clean::clean_lines(&why));
        }
        Load::Ready(r) => {
            finished(state, "loading");
            state.phase = Phase::Ready;
            state.timeline.open(&r);
            state.threads.open(&r);
            state.notes.set(r.notes());
            state.violations.open(&r);
            if !r.name.is_empty() {
                state.file.clone_from(&r.name);
            }
            for lost in super::lost::sentences(&r) {
                state.say(Look::Lost, lost);
            }
            for remark in r.remarks() {
                state.say(Look::Warning, remark.clone());
            }
            let from = crate::wall::date_time(r.header.start_wall);
            let from = if from.is_empty() { from } else { format!(" from {from} on") };
            let told = format!(
                "events: {}, vertices: {}, edges: {}, in {}{from}",
                super::time::count(r.events),
                super::time::count(r.graph.vertex_count() as u64),
                super::time::count(r.graph.edge_count() as u64),
                super::time::length(r.graph.duration())
            );
            state.say(Look::Dim, told);
            // The status line counts the remarks; the last line shows a newcomer the keys.
            state.message = None;
            state.recording = Some(r.clone());
            let options = victim_options(state);
            run_job(state, Job::Victims(r.clone(), options));
            run_job(state, Job::Index(r));
        }
    }
}

fn job_done(state: &mut State, done: Done) {
    match done {
        Done::Victims(rows, total) => {
            finished(state, "looking for victims");
            let first = !state.victims.known && state.timeline.cursor == 0;
            state.victims.set(rows, total);
            if let Some(v) = state.victims.current().filter(|_| first) {
                // The timeline opens where it hurts most.
                (state.timeline.thread, state.timeline.cursor) = (Some(v.thread), v.start + v.duration / 2);
            }
            // Not of whoever has gone elsewhere meanwhile.
            if std::mem::take(&mut state.victims.then_diagnose) && state.context() == Context::Victims {
                run_command(state, Cmd::Diagnose);
            }
        }
        Done::Index(index) => {
            finished(state, "listing names");
            state.search.index = Some(index);
            super::run_command::search(state);
        }
        Done::Hits(generation, hits, total) => {
            finished(state, "searching");
            for layer in &mut state.layers {
                if let Layer::Search(s) = layer
                    && s.generation == generation
                {
                    (s.hits, s.total, s.busy) = (hits, total, false);
                    s.selected = 0;
                    break;
                }
            }
        }
        Done::Places(what, vertices) => {
            finished(state, "looking for places");
            place::found(state, what, vertices);
        }
        Done::Diagnosis(outcome) => {
            finished(state, "diagnosing");
            place::diagnosed(state, *outcome);
        }
        Done::VictimAt(victim) => {
            finished(state, "looking at the vertex");
            match victim {
                Some(v) => place::diagnose(state, *v, None),
                None => {
                    state.say(Look::Warning, "nothing waits, runs or yields here for long enough to ask why");
                }
            }
        }
        Done::Path(thread, span, parts) => {
            finished(state, "computing the critical path");
            state.path.set(thread, span, parts);
            state.go(View::Path);
        }
        Done::Events(id, events, all) => {
            finished(state, "reading events");
            if let Some(r) = state.recording.clone() {
                state.vertex.add_events(&r, id, &events, all);
            }
        }
        Done::Flag(result) => {
            finished(state, "following the thread");
            match result {
                Ok(lines) => state.layers.push(Layer::Flag(lines, 0)),
                Err(e) => state.say(Look::Warning, e),
            }
        }
        Done::Steps(result) => {
            finished(state, "reading the trace");
            finished(state, "following the thread step by step");
            match result {
                Ok(shown) => {
                    let here = state.place();
                    state.history.leave(here);
                    state.steps.open(*shown);
                    state.view = View::Steps;
                }
                Err(e) => state.say(Look::Warning, e),
            }
        }
        Done::Compared(both) => {
            finished(state, "comparing the units");
            state.units.open(both.0, both.1);
            state.go(View::Units);
        }
        Done::RuleKept(result) => {
            finished(state, "saving what was decided");
            if let Err(e) = result {
                state.say(Look::Error, format!("what was decided is not kept: {e}"));
            }
        }
        Done::Copied(what, result) => {
            finished(state, "copying");
            match result {
                Ok(Some(tool)) => {
                    state.say(
                        Look::Good,
                        format!("copied: {what}; the terminal was asked, and {tool} has it"),
                    );
                }
                Ok(None) => {
                    state.say(
                        Look::Good,
                        format!("copied: {what}; the terminal was asked to keep it (OSC 52)"),
                    );
                }
                Err(e) => state.say(Look::Warning, format!("{what}: the terminal was asked to keep it; {e}")),
            }
        }
        Done::Exported(result) => {
            finished(state, "exporting");
            match result {
                Ok(paths) => {
                    let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
                    state.say(Look::Good, format!("written: {}", names.join(", ")));
                }
                Err(e) => state.say(Look::Error, format!("the report could not be written: {e}")),
            }
        }
        Done::DecisionsKept(result) => {
            finished(state, "saving decisions");
            match result {
                Ok((d, others)) => {
                    state.diagnosis.saved = d;
                    if let Some(o) = others {
                        let n = super::time::counted(o.decisions.len(), "answer");
                        let text =
                            format!("another pg-tui kept {n} for this one meanwhile; yours replaced them");
                        state.say(Look::Warning, text);
                    }
                }
                Err(e) => state.say(Look::Error, format!("decisions are not kept: {e}")),
            }
        }
        Done::NoteKept(result) => {
            finished(state, "saving the note");
            match result {
                Ok(notes) => NotesState::set(&mut state.notes, notes),
                Err(e) => state.say(Look::Error, format!("the note is not kept: {e}")),
            }
        }
        Done::Died(what, why) => {
            finished(state, what);
            state.diagnosis.running = false;
            state.say(Look::Error, format!("{what} failed; this is a mistake in pg-tui: {why}"));
            if what == "loading" {
                state.phase = Phase::Failed(format!("a mistake in pg-tui: {why}"));
            }
        }
    }
}

/// A command from somewhere else than a key (a click).
pub(super) fn command(state: &mut State, cmd: Cmd) {
    run_command(state, cmd);
}
