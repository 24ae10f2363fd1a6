//! The whole state of an interactive session.

use super::command::Context;
pub use super::context::View;
use super::history::History;
use super::layer::Layer;
use super::msg::Effect;
use super::recording::Recording;
use super::search::{Found, SearchState};
use super::views::{
    diagnosis::DiagnosisState,
    notes::NotesState,
    path::PathState,
    steps::StepsState,
    threads::ThreadsState,
    timeline::TimelineState,
    vertex::VertexState,
    victims::{VictimKey, VictimsState},
    violations::{UnitsState, ViolationsState},
};
use crate::config::{Config, Key, Look};
use pg_event::{Ns, ThreadId};
use pg_graph::VertexId;
use std::sync::Arc;

/// How far loading got.
#[derive(Clone, PartialEq, Debug)]
pub enum Phase {
    /// At work: what, and which share of it is done.
    Loading(&'static str, f64),
    /// All there.
    Ready,
    /// The file cannot be read.
    Failed(String),
}

/// A place one can come back to: a view, and what was selected in it.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The view.
    pub view: View,
    /// Span shown, cursor and thread of the timeline.
    pub timeline: Option<(Ns, Ns, Ns, Option<ThreadId>)>,
    /// The vertex.
    pub vertex: Option<VertexId>,
    /// The selected victim.
    pub victim: Option<VictimKey>,
    /// The selected line, by what it is about.
    pub row: usize,
}

/// A line of the log.
#[derive(Clone, PartialEq, Debug)]
pub struct LogLine {
    /// How it is shown.
    pub look: Look,
    /// Clean text.
    pub text: String,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    /// Colours, shapes, keys.
    pub config: Config,
    /// Name of the file, clean.
    pub file: String,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// How far loading got.
    pub phase: Phase,
    /// The recording, when it is loaded.
    pub recording: Option<Arc<Recording>>,
    /// What fills the screen.
    pub view: View,
    /// What lies over it, the topmost last.
    pub layers: Vec<Layer>,
    /// Keys of an unfinished sequence.
    pub pending: Vec<Key>,
    /// Where one has been.
    pub history: History<Place>,
    /// Something to tell, until the next key.
    pub message: Option<LogLine>,
    /// What happened.
    pub log: Vec<LogLine>,
    /// First line of the log that is shown.
    pub log_offset: usize,
    /// What runs in the background, in words.
    pub busy: Vec<&'static str>,
    /// What a search found, and which of it is shown.
    pub found: Option<Found>,
    /// What can be searched for.
    pub search: SearchState,
    /// Victims.
    pub victims: VictimsState,
    /// Processes and threads.
    pub threads: ThreadsState,
    /// Timeline.
    pub timeline: TimelineState,
    /// Vertex.
    pub vertex: VertexState,
    /// Diagnosis: question, slice, verdict.
    pub diagnosis: DiagnosisState,
    /// Critical path.
    pub path: PathState,
    /// What a thread executed.
    pub steps: StepsState,
    /// Units that took too long.
    pub violations: ViolationsState,
    /// One of them beside a normal one.
    pub units: UnitsState,
    /// Bookmarks and notes.
    pub notes: NotesState,
    /// What the outside is asked to do; whoever runs the session takes these out.
    pub effects: Vec<Effect>,
    /// Something changed that may show.
    pub dirty: bool,
}

impl State {
    /// Before anything is loaded.
    pub fn new(config: Config, file: String, size: (u16, u16)) -> Self {
        Self {
            config,
            file,
            size,
            phase: Phase::Loading("opening", 0.0),
            recording: None,
            view: View::Victims,
            layers: Vec::new(),
            pending: Vec::new(),
            history: History::new(),
            message: None,
            log: Vec::new(),
            log_offset: 0,
            busy: Vec::new(),
            found: None,
            search: SearchState::default(),
            victims: VictimsState::default(),
            threads: ThreadsState::default(),
            timeline: TimelineState::default(),
            vertex: VertexState::default(),
            diagnosis: DiagnosisState::default(),
            path: PathState::default(),
            steps: StepsState::default(),
            violations: ViolationsState::default(),
            units: UnitsState::default(),
            notes: NotesState::default(),
            effects: Vec::new(),
            dirty: true,
        }
    }

    /// Where keys are looked up now.
    pub fn context(&self) -> Context {
        self.layers.last().map_or_else(|| self.view.context(), Layer::context)
    }

    /// Tells something, and keeps it in the log.
    pub fn say(&mut self, look: Look, text: impl Into<String>) {
        const MAX: usize = 2000;
        let text: String = crate::clean::clean_to(&text.into(), 1000);
        let line = LogLine { look, text };
        self.log.push(line.clone());
        if self.log.len() > MAX {
            self.log.remove(0);
        }
        self.message = Some(line);
    }

    /// Asks the outside for something.
    pub fn ask(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Where one is now.
    pub fn place(&self) -> Place {
        let t = &self.timeline;
        Place {
            view: self.view,
            timeline: (self.view == View::Timeline).then_some((t.from, t.to, t.cursor, t.thread)),
            vertex: self.vertex.vertex.filter(|_| self.view == View::Vertex),
            victim: self.victims.selected.filter(|_| self.view == View::Victims),
            row: match self.view {
                View::Slice => self.diagnosis.step,
                View::Question => self.diagnosis.choice,
                View::Path => self.path.row,
                View::Violations => self.violations.selected,
                View::Units => self.units.row,
                _ => 0,
            },
        }
    }

    /// Goes to another view; the one left can be come back to.
    pub fn go(&mut self, view: View) {
        let here = self.place();
        if view != self.view {
            self.history.leave(here);
            self.view = view;
        }
        self.layers.clear();
    }

    /// The place before this one, or the one after. A question that was answered since and a verdict that was taken
    /// back are no places any more.
    pub fn travel(&mut self, back: bool) -> Option<Place> {
        let here = self.place();
        let d = &self.diagnosis;
        let there = |p: &Place| match p.view {
            View::Question => d.question().is_some(),
            View::Verdict => d.verdict().is_some(),
            _ => true,
        };
        if back { self.history.back(here, there) } else { self.history.forward(here, there) }
    }

    /// Tells something that is not worth keeping.
    pub fn say_only(&mut self, look: Look, text: impl Into<String>) {
        let text = crate::clean::clean_to(&text.into(), 1000);
        self.message = Some(LogLine { look, text });
    }

    /// Lines of the body: what is between status line and hints.
    pub fn body_height(&self) -> usize {
        usize::from(self.size.1.saturating_sub(2))
    }
}
