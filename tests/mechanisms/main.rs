//! One small real program for each mechanism by which a thread waits: recorded, and compared with what it says of
//! itself. `README.md` is the table of mechanisms and their tests.
//!
//! All programs run side by side in one recording (a second one has those that keep a CPU busy). A kernel that does
//! not report every switch can hide a wait: then the program concerned is recorded again, by itself.

#[path = "../common/mod.rs"]
mod common;

mod channels;
mod cpu;
mod futexes;
mod kernel;
mod matrix;
mod owners;
mod processes;
mod servers;
mod sets;
mod splits;
mod truth;
mod wait;
mod yields;
