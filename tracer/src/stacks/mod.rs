//! Call stacks: unwinding of copied user stacks, kernel stacks, and the names of their frames.
//!
//! The collector hands over registers and a copy of the stack ([`StackTable::user`]) or the addresses of
//! a kernel stack ([`StackTable::kernel`]) and gets an id. Unwinding uses the tables of the binaries
//! (`.eh_frame`, `.debug_frame`), no frame pointers, and works on the copy alone. Names come later
//! ([`StackTable::symbolize_some`]), from a thread of their own, since reading debug information takes
//! its time and its input is untrusted.
//!
//! Symbols come, for each module, from its separate debug file (by build-id below `/usr/lib/debug`, by
//! `.gnu_debuglink`, both also in the root of its container; from debuginfod's cache, and through the
//! program `debuginfod-find` when the user set `DEBUGINFOD_URLS`), then from the file itself: DWARF, the
//! symbol table, the dynamic symbols, and those compressed in `.gnu_debugdata`. A name is given only within
//! its symbol's size. Not unwound: 32-bit programs.
//!
//! Known limit: where code has no unwind rows (just-in-time compilers, the linker's `_init`), the frame
//! pointer is followed, and in a function's first or last instructions one caller can be missed.

mod binaries;
mod cfi;
mod debugfile;
mod elf;
mod image;
mod maps;
mod mini;
mod module;
mod named;
mod naming;
mod offline;
mod perfmap;
mod python;
mod regs;
mod room;
mod space;
mod stapsdt;
mod symbol;
mod table;
mod text;
mod unwind;

pub use binaries::{Binary, CodePlace};
pub(crate) use image::Image;
pub(crate) use module::open_plain;
pub use named::Named;
pub use offline::symbolize_catalog;
pub use python::{Followed, PythonCalls, PythonStack, RawFrame};
pub(crate) use regs::PT_REGS;
pub use regs::{FrameRegs, Regs};
pub use stapsdt::{Usdt, parse as parse_usdt};
pub use table::{Coverage, StackTable, UserFrame};

/// The separate debug file for a build-id (hexadecimal), below the recorder's own `/usr/lib/debug`.
pub(crate) fn debug_file(build_id: &str) -> Option<std::path::PathBuf> {
    debugfile::by_build_id(&debugfile::directories(None), build_id)
}

/// A symbol's name as its source writes it, cleaned.
pub(crate) fn readable(symbol: &[u8]) -> String {
    text::demangle(symbol)
}
