//! The application: command line, session files, terminal interface.

pub mod clean;
pub mod cli;
pub mod demo;
pub mod session;
