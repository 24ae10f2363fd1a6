//! Loading a session file into a [`Recording`].

use super::recording::{CUT_OFF, Recording};
use super::time;
use crate::session::{self, Loaded, Progress, Session, Symbols};
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
    let unread = unread(&loaded);
    let mut recording = Recording::new(
        path.to_owned(),
        loaded.header,
        loaded.catalog,
        loaded.graph,
        loaded.coverage,
        warnings,
        Some(loaded.session),
    );
    if let Some((read, words)) = unread {
        (recording.events, recording.unread) = (read, Some(words));
    }
    Ok(recording)
}

/// How many events could be read where not all of the file could, and that in words.
fn unread(loaded: &Loaded) -> Option<(u64, String)> {
    let hidden = || loaded.warnings.iter().filter(|w| w.hides);
    let lost: u64 = hidden().map(|w| w.events).sum();
    // Each place that cannot be read stands among the events as one of its own.
    let read =
        loaded.graph.event_count().saturating_sub(hidden().filter(|w| w.lost.is_some()).count() as u64);
    let (cut, bytes) = (loaded.session.cut_off(), loaded.session.len_bytes());
    let words = if lost > 0 {
        let all = time::count(read.saturating_add(lost));
        format!("only {} of {all} events could be read: the file is damaged", time::count(read))
    } else if cut > 0 {
        format!(
            "only {} of {bytes} bytes of the file could be read, with {} events: it is {CUT_OFF}",
            bytes.saturating_sub(cut),
            time::count(read)
        )
    } else if hidden().next().is_some() {
        format!("only {} events could be read: a part of the file is damaged", time::count(read))
    } else {
        return None;
    };
    Some((read, words))
}
