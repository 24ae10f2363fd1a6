//! The interactive session: one state, one update, one closed set of messages.
//!
//! **Architecture invariant:** widgets (`crate::ui`) read [`State`] and return nothing; [`update`] alone
//! changes it; what [`update`] wants of the outside (the terminal, files, long computations) it asks for as
//! an [`Effect`]. So the whole session runs in a test without a terminal.

pub mod clipboard;
pub mod command;
pub mod context;
mod copied;
mod export;
mod find_flag;
#[cfg(test)]
pub(crate) mod harness;
pub mod history;
pub mod input;
pub mod jobs;
mod late_answer;
pub mod layer;
pub mod live;
pub mod load;
pub mod lost;
mod mouse;
mod moves;
pub mod msg;
mod nothing_here;
mod place;
pub mod recording;
mod run_command;
mod runtime;
pub mod search;
mod signal_name;
mod signals;
pub mod state;
mod steps;
pub mod terminal;
#[cfg(test)]
mod tests;
pub mod text;
pub mod time;
mod unit_text;
mod update;
mod view_command;
pub mod views;
pub mod violation_command;
#[cfg(test)]
mod violation_tests;

pub use msg::{Effect, Msg};
pub use runtime::{Options, RunError, run};
pub use state::State;
pub use update::{prepare, update};
