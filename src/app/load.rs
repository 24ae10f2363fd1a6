//! Loading a session file into a [`Recording`].

use super::recording::Recording;
use crate::session::{self, Progress, Session, Symbols};
use pg_graph::BuildOptions;
use std::ops::ControlFlow;
use std::path::Path;

/// Loads it; `progress` is told what is done, and how much of it.
///
/// # Errors
/// A sentence that names the file and what is wrong with it.
pub fn load(
    path: &Path,
    symbols: &Symbols,
    progress: &dyn Fn(&'static str, f64),
) -> Result<Recording, String> {
    let mut told = -1.0;
    let loaded = session::load_session(
        Session::open(path).map_err(|e| e.to_string())?,
        BuildOptions::default(),
        symbols,
        |p: Progress| {
            let share = p.bytes as f64 / p.bytes_total.max(1) as f64;
            // A screen has a few hundred columns: more steps than that cannot be seen.
            if p.read {
                progress("naming functions and ordering the graph", 1.0);
            } else if share - told >= 0.005 {
                told = share;
                progress("reading events and building the graph", share);
            }
            ControlFlow::Continue(())
        },
    )
    .map_err(|e| e.to_string())?;
    if !loaded.graph.violations().is_empty() {
        progress("joining units", 1.0);
        // Here, since a screen must not wait for it.
        loaded.graph.recorded(&loaded.catalog);
    }
    progress("naming threads", 1.0);
    let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
    Ok(Recording::new(
        path.to_owned(),
        loaded.header,
        loaded.catalog,
        loaded.graph,
        loaded.coverage,
        warnings,
        Some(loaded.session),
    ))
}
