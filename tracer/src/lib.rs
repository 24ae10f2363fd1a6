//! Collector.

pub mod command;
pub mod focus;
pub mod identity;
pub mod patience;
pub mod procfs;
pub mod stacks;
