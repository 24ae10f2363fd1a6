//! Units of work: the event-processing loops of a program, found from recordings of its waits and confirmed by its
//! machine code (PerfGuard, sections 3 and 4.1). Works on binaries without symbols.
//!
//! [`Seen`] is told the stacks of threads, one after the other, and says which loop each thread turns around its waits:
//! the outermost of those that must have turned between the stacks. What a function's code leads to is
//! [`Function`](crate::flow::Function)'s matter. Which of a loop's waits are for its next unit, and lie between two units,
//! its [`BoundaryPath`]s tell; [`is_boundary`] knows such a wait again by its stack, in a recording or in a running
//! process.
//!
//! Known limits: a loop in code of a just-in-time compiler is not seen. Of a Python program some waits must have been
//! recorded with the interpreter's frames (those longer than `record --long-wait`); the others are taken to be in the
//! same functions (`interpreter.rs`). Landing pads of C++ exceptions are in no loop. Fibres that begin at the same call
//! are taken for one. Of a thread that was seen doing nothing but wait the innermost loop is told, which may only
//! repeat the wait, unless other threads wait at the same boundary and are seen to do more, or wait in that loop, too,
//! and are seen to work elsewhere. Two waits that both happen once in each turn cannot be told apart for certain: the
//! first of the turn is taken, also when the other waits more often. One boundary is told of a loop, whatever threads
//! have it: of a pool in which one thread waits for the others' sockets and they for it (MariaDB's), that of most
//! turns.

mod binary;
mod body;
mod boundary;
#[cfg(test)]
mod boundary_tests;
#[cfg(test)]
mod drawn;
mod event_loop;
#[cfg(test)]
mod event_loop_tests;
mod evidence;
mod eyes;
mod interpreter;
mod place;
mod python;
mod seen;
mod turning;
mod waits;

pub use body::LoopBody;
pub use boundary::{BoundaryPath, RequestLoop, is_boundary};
pub use event_loop::{EventLoop, Site};
pub use interpreter::InterpreterLock;
pub use place::{LoopAt, Places};
pub use seen::{Seen, Waited};
pub use turning::{Found, Turning};
pub use waits::Wait;
