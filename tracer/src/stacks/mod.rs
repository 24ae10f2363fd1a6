//! Call stacks: unwinding of copied user stacks, kernel stacks, and the names of their frames.
//!
//! The collector hands over registers and a copy of the stack ([`StackTable::user`]) or the addresses of
//! a kernel stack ([`StackTable::kernel`]) and gets an id. Unwinding uses the tables of the binaries
//! (`.eh_frame`, `.debug_frame`), no frame pointers, and works on the copy alone. Names come later
//! ([`StackTable::symbolize_some`]), from a thread of their own, since reading debug information takes
//! its time and its input is untrusted.

mod cfi;
mod debugfile;
mod elf;
mod maps;
mod module;
mod offline;
mod perfmap;
mod regs;
mod space;
mod symbol;
mod table;
mod text;
mod unwind;

pub use offline::symbolize_catalog;
pub use regs::{FrameRegs, Regs};
pub use table::{Coverage, StackTable, UserFrame};
