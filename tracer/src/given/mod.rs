//! Where units begin and end when a person says so: functions, static probes (USDT), system calls. What is typed is
//! read (`spec`), and looked for in the binaries of the processes (`find`, `calls`); `guards` sets the probes.

mod calls;
mod error;
mod find;
mod spec;

pub use error::GivenError;
pub use find::{Found, find, program_first};
pub use spec::{FdKind, GivenPoint, SpecError};
