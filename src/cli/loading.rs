//! Loads a recording for a command, with a progress line when it takes a while.

use super::exit::Failure;
use crate::clean::clean;
use crate::session::{self, Loaded, Progress, Session, Symbols};
use pg_graph::BuildOptions;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// Load `path` and build its graph as asked; warnings go to standard error.
pub fn load(path: &Path, options: BuildOptions) -> Result<Loaded, Failure> {
    load_with(path, options, &Symbols::default())
}

/// As [`load`], with names of functions from there.
pub fn load_with(path: &Path, options: BuildOptions, symbols: &Symbols) -> Result<Loaded, Failure> {
    let terminal = std::io::stderr().is_terminal();
    let begin = Instant::now();
    let mut shown: Option<Instant> = None;
    let loaded = session::load_session(Session::open(path)?, options, symbols, |p: Progress| {
        let due = shown.map_or(begin.elapsed() > Duration::from_millis(400), |s| {
            s.elapsed() > Duration::from_millis(100)
        });
        if terminal && due {
            shown = Some(Instant::now());
            let share = 100 * p.bytes / p.bytes_total.max(1);
            let _ = write!(std::io::stderr(), "\rloading {share:3} %  {:.1} M events", p.events as f64 / 1e6);
        }
        ControlFlow::Continue(())
    });
    if shown.is_some() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let loaded = loaded?;
    for w in &loaded.warnings {
        tracing::warn!("{}: {w}", path.display());
        say!("pg-tui: {}: {}", clean(&path.display().to_string()), clean(&w.to_string()));
    }
    Ok(loaded)
}
