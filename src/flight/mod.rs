//! The flight recorder: keeps the last while of a recording in memory and writes it to a file when something
//! happens.
//!
//! [`Window`] holds events packed as they are in session files, and forgets the oldest. Identities are kept
//! apart from them, and so are waits that began before the window did: a thread that has hung for an hour is
//! the one that is looked for. [`Triggers`] watch the stream for what is worth a file.

mod control;
mod excerpt;
mod ration;
mod rows;
mod save;
mod trigger;
mod window;

pub use control::{Control, Mark, mark};
pub use ration::{Answer, Ration};
pub use rows::Rows;
pub use save::{KEPT, Saved, save};
pub use trigger::{Limits, Triggers};
pub use window::{Limit, Window};

#[cfg(test)]
mod tests;
