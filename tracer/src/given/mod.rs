//! Where units begin and end when a person says so: functions, static probes (USDT), system calls. What is typed is
//! read (`spec`), and looked for in the binaries of the processes (`find`, `calls`), with what has to be so at a system
//! call (`rule`); `guards` sets the probes.

mod calls;
mod error;
mod find;
mod rule;
mod spec;

pub use error::GivenError;
pub use find::{Found, find, program_first};
pub use rule::{AtCall, Gave, Waiting};
pub use spec::{FdKind, GivenPoint, SpecError};
