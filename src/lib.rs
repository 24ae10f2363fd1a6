//! The application: command line, session files, terminal interface.

pub mod demo;
