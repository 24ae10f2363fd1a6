//! Everything of pg-tui that touches the running system: the collector with its BPF programs, who threads
//! and processes are, their stacks and symbols. Yields [`pg_event::Item`]s; knows nothing of the graph.

mod clock;
pub mod collector;
pub mod command;
mod error;
pub mod flags;
pub mod focus;
pub mod given;
pub mod guards;
pub mod holders;
pub mod identity;
pub mod live;
mod loading;
mod memory;
mod netns;
mod options;
mod patience;
pub mod procfs;
mod readable;
mod sockdiag;
pub mod stacks;
pub mod steps;
pub mod units;
mod unserved;

pub use collector::{Collector, Hurry, LiveStats, check_permission, lower_priority, raise_priority};
pub use error::Error;
pub use focus::Focus;
pub use options::{Level, Options};

/// Which start of this machine it is (`/proc/sys/kernel/random/boot_id`); empty when that cannot be read.
pub fn boot_id() -> String {
    let text = procfs::read_bounded(std::path::Path::new("/proc/sys/kernel/random/boot_id"), 64);
    text.map_or_else(|_| String::new(), |t| procfs::lossy(t.trim_ascii(), 64))
}
