//! The demonstration: a bundled program that hangs for real, across processes.

pub mod bundled;
pub mod hang;
