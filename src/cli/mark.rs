//! `pg-tui mark`.

use super::args::Mark;
use super::exit::{Failure, Outcome};
use crate::clean::clean;
use crate::flight;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Mark, out: &mut dyn Write) -> Outcome {
    let answer = flight::mark(&args.words.join(" ")).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => Failure::NotPermitted(format!("{e}\nrun it with sudo")),
        ErrorKind::NotFound => Failure::Usage(format!("{e}; start one with: pg-tui record --flight 60s")),
        _ => Failure::Other(format!("the flight recorder does not answer: {e}")),
    })?;
    if let Some(why) = answer.strip_prefix("error: ") {
        return Err(Failure::Other(why.to_owned()));
    }
    writeln!(out, "{}", clean(&answer))?;
    Ok(ExitCode::SUCCESS)
}
