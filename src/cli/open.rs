//! `pg-tui open`: the interactive session on a recording.

use super::args::{Open, Screen};
use super::exit::{Failure, Outcome};
use crate::app::{self, RunError};
use crate::clean::clean;
use crate::session::{Session, Symbols};
use std::fmt::Write;
use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Open) -> Outcome {
    if args.file.is_dir() {
        return Err(Failure::Usage(recordings_in(&args.file)));
    }
    // A file that cannot be read is told on the plain terminal, not on a screen that closes again.
    Session::open(&args.file)?;
    if !can_show() {
        return Err(Failure::Usage(format!(
            "the screen needs a terminal; for text use: pg-tui diagnose {}",
            args.file.display()
        )));
    }
    show(&args.file, app::Options { symbols: args.symbols.source(), ..app::Options::from(&args.screen) })
}

/// Most recordings of a folder that are listed.
const MOST: usize = 20;

/// That it is a folder, and what can be opened of it, the newest first.
fn recordings_in(folder: &Path) -> String {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = all
        .map(|e| e.path())
        .filter(|p| p.is_file() && p.extension().is_some_and(|e| e == "pgs"))
        .map(|p| (p.metadata().and_then(|m| m.modified()).ok(), p))
        .collect();
    files.sort();
    files.reverse();
    let name = clean(&folder.display().to_string()).into_owned();
    if files.is_empty() {
        return format!("{name} is a folder, and no recording (.pgs) is in it");
    }
    let mut out = format!("{name} is a folder; open a recording of it:");
    for (_, path) in files.iter().take(MOST) {
        let path = path.display().to_string();
        // Writing to a string does not fail.
        let _ = write!(out, "\n  pg-tui {}", clean(&path));
    }
    if files.len() > MOST {
        let _ = write!(out, "\n  and {} older ones", files.len() - MOST);
    }
    out
}

/// Is there a terminal to show a screen on?
pub fn can_show() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

fn show(path: &Path, options: app::Options) -> Outcome {
    match app::run(path, &options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e @ (RunError::Config(_) | RunError::NoTerminal(_))) => Err(Failure::Usage(e.to_string())),
        Err(e) => Err(Failure::Other(e.to_string())),
    }
}

/// Open the screen after a recording; the exit code is the recording's. Not `named`: names that the recorder left are
/// not looked up now either.
pub fn after(path: &Path, code: ExitCode, named: bool) -> Outcome {
    let mut options = app::Options::from(&Screen::default());
    if !named {
        options.symbols = Symbols::AsRecorded;
    }
    show(path, options).map(|_| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lists_its_recordings() {
        let dir = tempfile::tempdir().unwrap();
        let said = || recordings_in(dir.path());
        assert!(said().ends_with("is a folder, and no recording (.pgs) is in it"), "{}", said());
        for name in ["a.pgs", "b.txt", "c.pgs"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert!(
            said().contains("/a.pgs") && said().contains("/c.pgs") && !said().contains("b.txt"),
            "{}",
            said()
        );
    }
}
