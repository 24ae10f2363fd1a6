//! What several tests need: the program, a small recording, the contract of the report.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

pub mod contract;
pub mod sample;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program under test, with its log in `dir`.
pub fn pg_tui(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pg-tui"));
    command.env("XDG_STATE_HOME", dir).env("NO_COLOR", "1").env_remove("PG_TUI_LOG");
    command.stdin(Stdio::null());
    command
}

/// All that a program printed.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// May this test record, and is there a C compiler? If not it says why it is skipped.
pub fn can_trace_and_compile(test: &str) -> bool {
    if let Err(e) = pg_tracer::check_permission() {
        println!("skipped: {test}: {}", e.to_string().lines().next().unwrap_or_default());
        return false;
    }
    let found =
        Command::new("gcc").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !found {
        println!("skipped: {test}: there is no gcc");
    }
    found
}
