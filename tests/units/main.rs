//! Units of work of real programs: their boundaries, what is learnt of them, and that slow ones are caught. Recorded for
//! real: needs the right to trace and a C compiler; without them it says that it is skipped.

mod boundaries;
#[path = "../common/mod.rs"]
mod common;
mod fed;
mod given;
mod guard;
mod hot;
mod keep;
mod left;
mod pool;
mod python;
mod train;
mod uring;

/// A machine has one flight recorder at a time: tests that start one take turns.
static RECORDER: std::sync::Mutex<()> = std::sync::Mutex::new(());
