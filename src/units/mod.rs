//! Units of work out of a recording (PerfGuard, sections 3 and 4): the event loops of threads cut their time into
//! units, and the stacks within a unit say what it called. What is learnt of many units is a
//! [`pg_graph::units::Profile`].
//!
//! A recording holds the waits of every thread with their stacks, and samples; not every call, as the paper's training
//! (by Pin) does. So a unit's call tree is what was seen of it:
//! - a unit that blocked in a system call, or was sampled a few times, has call paths from the loop's function
//!   inwards; of its samples those contexts in which it was seen again and again. Kernel frames are left out. Recursion is kept as it is, as in the paper, up to
//!   [`pg_graph::units::MAX_FRAMES`];
//! - of a stack that was cut off (the copy ended before the outermost frame) what is within the loop is taken, when the
//!   loop's frame is on it; else it says nothing;
//! - a unit of which less was seen is told by the system calls or messages in it, if these were recorded, and is
//!   marked: different work may look alike there. One sample is not taken for what the unit did: where it fell is
//!   chance, types would follow chance, and since long units are sampled rather than short ones, they would look
//!   slower than their work is.
//!
//! The time that a unit was off the CPU counts, as in the paper. How much of it was the recorder's own doing is not
//! known here.

mod bounds;
mod calls;
mod cut;
mod file;
mod inside;
mod learn;
mod replies;
mod requests;
mod scan;
#[cfg(test)]
mod tests;
mod work;

pub use cut::Left;
pub use file::{ProfileError, Written, read, update};
pub use inside::inside;
pub use learn::{Learnt, LearntLoop, Quiet, learn};
pub use work::{Work, work};
