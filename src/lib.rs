//! The application: command line, session files, terminal interface.

pub mod app;
pub mod clean;
pub mod cli;
pub mod config;
pub mod demo;
#[cfg(test)]
#[path = "../graph/tests/drawn/draw/mod.rs"]
mod draw;
pub mod flight;
pub mod found_flag;
pub mod frames;
pub mod guard;
#[cfg(test)]
mod hostile_tests;
pub mod redact;
pub mod session;
pub mod steps;
pub mod ui;
pub mod unit_rule;
pub mod units;
pub mod wall;
