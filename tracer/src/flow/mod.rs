//! The flow of control in machine code: blocks and jump tables of a function ([`Flow`]), its natural loops ([`Loops`]),
//! what a thread must have done to get from one place to another ([`Function`]), and whether a loop computes or asks
//! ([`Turn`]). Works on binaries without symbols; knows nothing of files, which are a [`Source`]'s matter.

mod blocks;
mod callee;
#[cfg(test)]
pub(crate) mod fake;
mod function;
mod natural;
mod split;
mod step;
mod table;
mod turn;

pub(crate) use blocks::decode;
pub use blocks::{Block, Flow, FlowError, Returns, Source};
pub use function::{Function, Way};
pub use natural::{Loop, LoopId, Loops};
pub use turn::{Turn, Turns};
