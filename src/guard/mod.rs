//! Guards of running programs by a profile (PerfGuard, sections 4.4 and 4.6): which loops, functions and contexts of a
//! profile are there in the processes, what is learnt by probes, and what is told of a violation.

mod boundary;
mod given;
mod guarding;
mod kinds;
mod learn;
mod moments;
mod tell;
mod unit_log;
mod withdrawn;

pub use given::{Bounds, Located};
pub use guarding::{Ask, Guarding, Refused, Watched, changed, functions_of};
pub use learn::{Measured, Measuring, measure};
pub use moments::Moments;
pub use tell::{Over, Shown, json, metrics, over_json, over_text, seen, text};
pub use unit_log::UnitLog;
pub use withdrawn::Withdrawn;
