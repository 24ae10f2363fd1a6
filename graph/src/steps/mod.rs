//! What a trace of instructions tells: who called whom, and which loops went round how often (Argus, section 5.4).
//!
//! Instructions are not looked at again: the trace says of each where it leads. Names and lines come from the catalogue.

mod fold;
mod walk;

use pg_event::{Catalog, FrameId, Sysno, Trace};

/// Deepest chain of calls that is told apart; what is called deeper counts for the deepest.
pub const DEEPEST: usize = 200;

/// What was executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A function that was called (or was being executed when the burst began), by its first instruction seen.
    Call {
        /// That instruction.
        frame: FrameId,
        /// Entered by a jump: no return leads back from it alone.
        jumped: bool,
        /// The signal that it is the handler of, 0 for none.
        signal: u8,
        /// What it returned, when that is known and always the same.
        returned: Option<u64>,
    },
    /// The nodes below, again and again.
    Loop {
        /// Fewest turns of those times it was gone round.
        least: u32,
        /// Most turns.
        most: u32,
    },
    /// A block of the trace.
    Code {
        /// Its number.
        block: u32,
    },
    /// A system call.
    Syscall {
        /// Which.
        nr: Sysno,
        /// Its result, when that is known and always the same.
        result: Option<i64>,
    },
}

/// A part of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it is.
    pub what: What,
    /// The number of its first step.
    pub first: u32,
    /// The first step that follows its first execution.
    pub end: u32,
    /// How many instructions it is in all.
    pub steps: u64,
    /// How often it was executed; a loop: how often it was entered.
    pub times: u64,
    /// What it consists of.
    pub children: Vec<Node>,
    /// Equal for what is executed in the same way, however often.
    shape: u64,
}

/// What a function took of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// An instruction of it.
    pub frame: FrameId,
    /// How often it was called; 0 for one that was never entered.
    pub calls: u64,
    /// Instructions of its own.
    pub own: u64,
    /// Instructions with those of the functions it called.
    pub total: u64,
}

/// A trace, understood.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Walk {
    /// The outermost functions seen, in the order of time.
    pub roots: Vec<Node>,
    /// The functions, those with the most instructions of their own first.
    pub functions: Vec<Function>,
    /// Instructions in all.
    pub steps: u64,
    /// The longest chain of calls, counted from the outermost function seen.
    pub depth: u32,
}

/// What a trace tells.
pub fn walk(trace: &Trace, catalog: &Catalog) -> Walk {
    walk::Walker::new(trace, catalog).run()
}

/// The name of a function: as the catalogue has it, else the address of an instruction of it.
pub fn function_name(catalog: &Catalog, frame: FrameId) -> String {
    catalog.frames.get(frame.index()).map_or_else(|| "?".to_owned(), |f| catalog.show_frame(f))
}
