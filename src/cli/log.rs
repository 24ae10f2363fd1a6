//! The log file: what went on, for bug reports. The screen belongs to the application.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;

/// A log longer than this is moved aside at the next start.
const MAX_BYTES: u64 = 4 << 20;

/// Where the log is: `$XDG_STATE_HOME/pg-tui/log` or `~/.local/state/pg-tui/log`.
pub fn path() -> Option<PathBuf> {
    let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = dir("XDG_STATE_HOME").or_else(|| dir("HOME").map(|h| h.join(".local/state")))?;
    Some(state.join("pg-tui/log"))
}

/// Begin to log. `PG_TUI_LOG` chooses how much (`error`, `warn`, `info`, `debug`, `trace`, or per module as
/// in `pg_tracer=debug`). Without a place to write nothing is logged: no reason to fail.
pub fn start() {
    let Some(path) = path() else { return };
    let Some(file) = open(&path) else { return };
    let filter = EnvFilter::try_from_env("PG_TUI_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A second start (in tests) keeps the first one's log.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Mutex::new(file))
        .try_init();
}

fn open(path: &std::path::Path) -> Option<File> {
    fs::create_dir_all(path.parent()?).ok()?;
    if fs::metadata(path).is_ok_and(|m| m.len() > MAX_BYTES) {
        let _ = fs::rename(path, path.with_extension("old"));
    }
    // Paths and command lines of other users get in here.
    File::options().append(true).create(true).mode(0o600).open(path).ok()
}
