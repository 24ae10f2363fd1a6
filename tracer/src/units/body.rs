//! Which code of an event loop's function is the loop: a thread that waits in the rest has left it.

use super::binary::Binary;
use crate::flow::{Function, Source};
use std::path::Path;

/// A loop of machine code in its function.
#[derive(Debug)]
pub struct LoopBody {
    function: Function,
    head: u64,
}

impl LoopBody {
    /// The loop at `head` of the function that begins at `entry` (addresses as the file counts them), in the file at a path,
    /// if it has this build-id. `None` where the code does not tell for certain what is in it.
    pub fn read(path: &Path, build_id: &str, entry: u64, head: u64) -> Option<Self> {
        Self::of(&Binary::open(path, build_id)?, entry, head)
    }

    fn of(source: &impl Source, entry: u64, head: u64) -> Option<Self> {
        let function = Function::read(source, entry).ok()?;
        let whole = !function.is_open() && function.entry() == entry;
        let of = Self { function, head };
        (whole && of.turns(head) == Some(true)).then_some(of)
    }

    /// Does who is in a call that ends at this address, made by the loop's function, turn the loop? If not, that does so no
    /// more, or not yet. `None`: another function made the call, or the code does not tell.
    pub fn turns(&self, call: u64) -> Option<bool> {
        let f = &self.function;
        let known = f.contains(call) && f.reached(call);
        known.then(|| f.around(call).iter().any(|&l| f.head(l) == self.head && !f.is_merged(l)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::fake::Program;

    #[test]
    fn what_is_outside_of_the_loop_is_told() {
        // A loop of connections around one of commands; waits before it, in both, and behind all.
        let p = Program::new(
            "entry: call before: call begun: call first: jne:done call second: jmp:begun \
             done: call idle: jne:before call end: ret",
        );
        let at = |label: &str| p.at(label) - 1;
        let left = |head: &str| {
            let body = LoopBody::of(&p, p.at("entry"), p.at(head)).unwrap();
            ["before", "begun", "first", "second", "idle", "end"].map(|l| body.turns(at(l)) == Some(false))
        };
        assert_eq!(left("begun"), [true, true, false, false, true, true]);
        assert_eq!(left("before"), [true, false, false, false, false, true]);
        let body = LoopBody::of(&p, p.at("entry"), p.at("begun")).unwrap();
        assert_eq!(body.turns(p.parts_end() + 64), None, "another function's");
        // No loop begins there; another function does.
        assert!(LoopBody::of(&p, p.at("entry"), at("end")).is_none());
        assert!(LoopBody::of(&p, p.at("begun"), p.at("begun")).is_none());
    }
}
