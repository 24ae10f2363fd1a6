//! Call stacks of the Python interpreter (CPython 3.9 to 3.13) in the memory of a thread that waits.
//!
//! A native stack of a Python program shows the interpreter: `_PyEval_EvalFrameDefault` again and again. Which
//! functions it executes stands in the interpreter's own frames, which are read here by process_vm_readv(2):
//! the process is neither stopped nor changed. Everything read is untrusted: each object must name its
//! type, lists are followed for a bounded number of steps, and a stack in which anything is amiss is no stack.
//!
//! Only a thread that is off the CPU is read, and only what was read while it stayed off is taken: that is made sure
//! by its counts of switches here, and by the time of its wake-up where the stack is given to a wait.

mod frames;
mod layout;
mod lines;
mod locate;
mod memory;
mod mix;
mod object;
mod sampled;
mod table;

#[cfg(test)]
mod fake;

pub use frames::RawFrame;
pub use sampled::Followed;
pub(super) use table::Pythons;
pub use table::{PythonCalls, PythonStack};

use crate::clock::monotonic;
use crate::procfs::{path_of, read_bounded};
use layout::Layout;
use memory::Remote;

/// A Python function that a thread is in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Function {
    /// Qualified name; before Python 3.11 the plain one.
    pub name: String,
    /// File as the code object names it.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
}

/// The Python frames of a thread, innermost first, by the call of the interpreter's loop that executes them: since
/// Python 3.11 one call executes a function with the Python functions it calls.
type Calls = Vec<Vec<Function>>;

/// The interpreter of a process: where it is and how its data lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interpreter {
    layout: Layout,
    /// `_PyRuntime`.
    runtime: u64,
    types: Types,
}

/// Addresses of type objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Types {
    code: u64,
    text: u64,
    bytes: u64,
    frame: u64,
}

impl Interpreter {
    /// The Python frames of a thread and when they were read (`CLOCK_MONOTONIC` before and after). `None` when it is
    /// in no Python function or did not wait all the while. Can block for as long as the target's memory lock
    /// is held: see [`crate::patience`].
    fn read(&self, pid: u32, tid: u32) -> Option<(Calls, (u64, u64))> {
        let before = waiting(tid)?;
        let from = monotonic();
        let calls = frames::read(&Remote(pid), self, before.ns_tid)?;
        let to = monotonic();
        (waiting(tid)? == before).then_some((calls, (from, to)))
    }
}

/// What stays the same while a thread does not run.
#[derive(PartialEq, Eq)]
struct Waiting {
    state: u8,
    /// Its number within its namespace.
    ns_tid: u32,
    switches: [u64; 2],
}

fn waiting(tid: u32) -> Option<Waiting> {
    parse_waiting(&read_bounded(&path_of(tid, "status"), 1 << 16).ok()?)
}

/// From `/proc/TID/status`; `None` for a thread that runs, or is about to.
fn parse_waiting(status: &[u8]) -> Option<Waiting> {
    let (mut state, mut ns_tid, mut switches) = (None, None, [None; 2]);
    for line in status.split(|&b| b == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key {
            "State" => state = value.bytes().next(),
            "NSpid" => ns_tid = value.split_ascii_whitespace().next_back()?.parse().ok(),
            "voluntary_ctxt_switches" => switches[0] = value.parse().ok(),
            "nonvoluntary_ctxt_switches" => switches[1] = value.parse().ok(),
            _ => {}
        }
    }
    let state = state.filter(|s| matches!(s, b'S' | b'D' | b'T' | b't'))?;
    Some(Waiting { state, ns_tid: ns_tid?, switches: [switches[0]?, switches[1]?] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_that_wait_are_read() {
        let status = |state: &str| {
            format!(
                "Name:\tx\nState:\t{state}\nNSpid:\t812\t7\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t1\n"
            )
        };
        let w = parse_waiting(status("S (sleeping)").as_bytes()).unwrap();
        assert_eq!((w.state, w.ns_tid, w.switches), (b'S', 7, [3, 1]));
        assert!(parse_waiting(status("R (running)").as_bytes()).is_none());
        assert!(parse_waiting(b"State:\tS\n").is_none());
    }
}
