//! `pg-tui open`: the interactive session on a recording.

use super::args::{Open, Screen};
use super::exit::{Failure, Outcome};
use crate::app::{self, RunError};
use crate::session::{Session, Symbols};
use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Open) -> Outcome {
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
