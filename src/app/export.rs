//! The report in files beside the session, with what people noted in it.

use super::recording::Recording;
use pg_event::Ns;
use pg_graph::report::Report;
use serde::Serialize;
use std::path::PathBuf;

/// The report, and what only the session has.
#[derive(Serialize)]
struct Exported<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Noted>,
}

/// A bookmark or note.
#[derive(Serialize)]
struct Noted {
    time_ns: Ns,
    thread: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    text: String,
    bookmark: bool,
}

fn notes(r: &Recording) -> Vec<Noted> {
    let noted = |n: crate::session::Note| Noted {
        time_ns: n.time,
        thread: r.thread_name(n.thread).to_owned(),
        tid: r.catalog.thread(n.thread).map(|t| t.tid),
        text: n.text,
        bookmark: n.bookmark,
    };
    r.notes().into_iter().map(noted).collect()
}

/// Writes the report as JSON and as Markdown. Which files these are.
///
/// # Errors
/// A sentence: a file cannot be written, or all names are taken.
pub fn write(r: &Recording, report: &Report, markdown: &str) -> Result<Vec<PathBuf>, String> {
    let exported = Exported { report, notes: notes(r) };
    let json = serde_json::to_string_pretty(&exported).map_err(|e| e.to_string())?;
    let texts = [("json", json.as_str()), ("md", markdown)];
    // What is there may have been edited: it stays, unless it is the same.
    let free = |begin: &str| {
        texts.iter().all(|(kind, text)| {
            let path = r.path.with_extension(format!("{begin}.{kind}"));
            !path.exists() || std::fs::read(&path).is_ok_and(|there| there == text.as_bytes())
        })
    };
    let names = (1..1000).map(|n| if n == 1 { "report".to_owned() } else { format!("report-{n}") });
    let Some(begin) = names.into_iter().find(|n| free(n)) else {
        return Err("there are too many reports beside the session".into());
    };
    let mut written = Vec::new();
    for (kind, text) in texts {
        let path = r.path.with_extension(format!("{begin}.{kind}"));
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}
