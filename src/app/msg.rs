//! What can happen ([`Msg`]) and what can be asked of the outside ([`Effect`]): both are closed sets.

use super::jobs::{Done, Job};
use super::recording::Recording;
use crossterm::event::Event;
use std::sync::Arc;

/// Something happened.
#[derive(Debug)]
pub enum Msg {
    /// A key, the mouse, a paste, another size.
    Input(Event),
    /// A signal.
    Signal(Signal),
    /// The session file is being read.
    Load(Load),
    /// A background job ended, or has something to say.
    Job(Done),
}

/// A signal that was sent to this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// End, by this signal (terminate, hangup, interrupt).
    End(i32),
    /// Stop (as by Ctrl-Z in a shell).
    Stop,
    /// Go on after a stop.
    Continue,
}

/// How loading goes.
#[derive(Debug)]
pub enum Load {
    /// This share of the work is done, 0 to 1.
    Progress {
        /// What is being done.
        what: &'static str,
        /// 0 to 1.
        share: f64,
    },
    /// It is all there.
    Ready(Arc<Recording>),
    /// It cannot be read: a sentence.
    Failed(String),
}

/// Something to be done outside of the state.
#[derive(Debug)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Leave because of this signal.
    Die(i32),
    /// Give the terminal back and stop until continued.
    Suspend,
    /// Take the terminal again (after being continued) and draw everything.
    TakeTerminal,
    /// Draw everything.
    Redraw,
    /// Run a job in the background.
    Run(Job),
    /// Send a text to the terminal's clipboard.
    Osc52(String),
}
