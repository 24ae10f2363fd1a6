//! `pg-tui redact`.

use super::args::Redact;
use super::exit::{Failure, Outcome};
use std::io::Write;

/// Run it.
pub fn run(_args: &Redact, _out: &mut dyn Write) -> Outcome {
    Err(Failure::Other("redaction has not landed yet".into()))
}
