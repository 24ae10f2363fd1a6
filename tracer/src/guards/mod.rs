//! Guards: units of work of running threads, told from each other, timed, and held to the threshold of their type while
//! they run (PerfGuard, sections 4.4 and 4.6). The programs in the kernel (`bpf/guard.bpf.c`) do what cannot wait; this
//! module tells them which waits of which thread are boundaries of units, which contexts tell which types, and takes
//! what they send.
//!
//! | file | what |
//! |---|---|
//! | `plan` | what is guarded, and how |
//! | `point` | where in a function a probe goes |
//! | `probes` | those that are set |
//! | `hot`, `apart` | which are taken out for a while since they are called too often, and what is told apart without them |
//! | `budget`, `windows` | for how long, where they cost more than they may |
//! | `ahead` | whether messages are to be seen, since a request may be there before it is asked for |
//! | `given` | units between places that a person named |
//! | `layout` | the maps that are shared with the programs |
//! | `records` | what the programs send |
//! | `program`, `multi` | loading and attaching |
//! | `shapes` | boundary waits that are known in threads to come |
//! | `slots` | units of threads in shared memory |
//! | `calibrate` | what a probe costs |
//! | `told` | what the guards tell |
//! | `guards` | the whole: threads come and go, stacks are asked about, violations come |
//!
//! What it costs the guarded program: two look-ups in a hash a switch of any thread of the machine (about 0.1 us), and a
//! probe (0.5 to 0.7 us) for each call of a guarded function and each turn of a loop whose wait call is probed. Nothing
//! of the target is changed but the probed instructions, which the kernel restores when this process ends, however it
//! ends.

mod ahead;
mod apart;
mod budget;
mod calibrate;
mod frames;
mod given;
#[allow(clippy::module_inception)]
mod guards;
#[cfg(test)]
mod headers;
mod hot;
mod layout;
mod multi;
mod plan;
mod point;
mod probes;
mod program;
mod records;
mod rings;
mod shapes;
mod shared;
mod slots;
mod told;
mod windows;

pub use guards::Guards;
pub use plan::{
    GivenProbe, GivenUnit, Guarded, GuardedFunction, GuardedLoop, Judge, Plan, SeenUnits, Spot, Stacked,
};
pub use point::Point;
pub use told::{Counts, Ended, Look, Sight, Told, UnitTold, Unknown, Violation, Withdrawn};
