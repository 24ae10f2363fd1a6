//! Data flags: variables that a loop asks again and again whether it may go on (Argus, sections 4.3 and 5.3).
//!
//! [`Watch`] records who reads and who writes a flag, by hardware breakpoints in all threads of its process, and
//! for a flag in shared memory of all processes that map it. x86-64 has four of them for each thread. Each access
//! costs the target about nine microseconds, so [`rate`] bounds how many are recorded.

mod access;
mod at_exec;
mod breakpoints;
mod error;
pub(crate) mod find;
mod flag;
mod hit;
pub(crate) mod memory;
mod program;
mod rate;
mod spec;
mod variables;
mod watch;

pub use at_exec::AtExec;
pub use error::FlagError;
pub use find::{Ask, End, Found, FoundFlag, Ground, Limits, Stepper, find};
pub use hit::Hit;
pub use rate::Watched;
pub use spec::{FlagPlace, FlagSpec};
pub use variables::{Located, Variable, locate};
pub use watch::{SLOTS, Watch};

use std::sync::Arc;

/// A watched flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlagRow {
    /// Its address, in the process it was named for.
    pub address: u64,
    /// That process; for shared memory the inode of what is mapped, with bit 63 set.
    pub peer: u64,
    /// How many bytes are watched.
    pub len: u8,
    /// The variable; empty when not known. From a symbol table: cleaned of control characters.
    pub name: String,
}

impl FlagRow {
    /// How it is called in messages.
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            format!("0x{:x}", self.address)
        } else {
            format!("{} (0x{:x})", self.name, self.address)
        }
    }
}

/// An access to a flag.
#[derive(Clone, PartialEq, Debug)]
pub struct Touch {
    /// Who, when, where; `value` cut to the bytes of the flag.
    pub hit: Hit,
    /// A write (else a read).
    pub write: bool,
    /// Which flag.
    pub flag: Arc<FlagRow>,
}
