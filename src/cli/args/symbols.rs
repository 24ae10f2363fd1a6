//! Where names of functions are looked for.

use crate::session::Symbols;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Names of functions that the recording does not have.
#[derive(Args, Clone, Debug, Default)]
pub struct SymbolFiles {
    /// Name functions that have no names by what this machine and this folder or file know of them (can be repeated)
    ///
    /// Programs, libraries and debug files are used whose build-ids are those that were recorded. In a folder they lie
    /// under `.build-id/`, or have the path or name that was recorded.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub symbols: Vec<PathBuf>,
}

impl SymbolFiles {
    /// As loading wants it.
    pub fn source(&self) -> Symbols {
        if self.symbols.is_empty() { Symbols::default() } else { Symbols::Look(self.symbols.clone()) }
    }
}
