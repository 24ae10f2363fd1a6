//! Python frames that were read in a sample, while their thread stood still: the functions they are of are looked
//! up a moment later, in objects that do not change.

use super::frames::{MARKS, RawFrame, calls, state};
use super::layout::{Current, Entry};
use super::memory::Remote;
use super::object::{Executes, Instruction, function};
use super::table::{Found, PythonStack};
use crate::procfs::read_status;
use crate::stacks::StackTable;
use std::time::{Duration, Instant};

/// How long a place in a code object is taken to be the same: the object may go, and another come to its place.
const SAME: Duration = Duration::from_secs(1);
/// Most places remembered.
const MAX_KNOWN: usize = 1 << 15;

/// A place in code: the object, where in it, and whether the frame is of a generator.
pub(super) type Place = (u64, Instruction, bool);
/// What is there, and since when that is known.
pub(super) type Known = (Option<Executes>, Instant);

/// Where the frames of a thread begin, and where the words of a frame are: what a sample needs to read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// The thread's state.
    pub state: u64,
    /// Within it, the place of the innermost frame ...
    pub current: u16,
    /// ... or of a structure that has it here.
    pub then: Option<u16>,
    /// Within a frame: its caller.
    pub previous: u16,
    /// Its code object.
    pub code: u16,
    /// Its instruction.
    pub instruction: u16,
    /// It has an owner, or tells whether it is an entry.
    pub marks: bool,
}

impl Followed {
    /// `struct python` of the programs (`bpf/python_frames.h`), for a thread of the process `tgid`.
    pub fn words(&self, tgid: u32) -> [u64; 3] {
        const NONE: u16 = 0xffff;
        let halves = |a: u16, b: u16| u64::from(a) | u64::from(b) << 16;
        [
            self.state,
            u64::from(tgid) | halves(self.current, self.then.unwrap_or(NONE)) << 32,
            halves(self.previous, self.code) | halves(self.instruction, self.marks.into()) << 32,
        ]
    }
}

impl StackTable {
    /// How the frames of a thread are found; `None` when it is in no Python function.
    pub fn follow_python(&mut self, pid: u32, tid: u32) -> Option<Followed> {
        let Found { interpreter, .. } = self.interpreter(pid)?;
        let read = move || {
            let ns_tid = *read_status(tid)?.ns_pids.last()?;
            state(&Remote(pid), &interpreter, ns_tid)
        };
        let state = self.pythons.patience.run(pid, read)??;
        let l = &interpreter.layout;
        let (current, then) = match l.current {
            Current::At(at) => (at, None),
            Current::Through(at, then) => (at, Some(u16::try_from(then).ok()?)),
        };
        let narrow = |offset: u64| u16::try_from(offset).ok();
        Some(Followed {
            state,
            current: narrow(current)?,
            then,
            previous: narrow(l.frame.previous)?,
            code: narrow(l.frame.code)?,
            instruction: narrow(l.frame.instruction)?,
            // They are read from `MARKS` on, eight bytes.
            marks: l.frame.entry != Entry::Each
                && l.frame.owner.is_some_and(|at| (MARKS..MARKS + 8).contains(&at)),
        })
    }

    /// The Python stack of a sample, innermost frame first. `None` when anything of it cannot be.
    pub fn python_sampled(&mut self, pid: u32, frames: &[RawFrame]) -> Option<PythonStack> {
        let Found { interpreter, module, image } = self.interpreter(pid)?;
        let now = Instant::now();
        let mut missing: Vec<Place> = Vec::new();
        // Once to see what is not known, once with all that can be known.
        for last in [false, true] {
            let known = &self.pythons.functions;
            let calls = calls(&interpreter, frames, |code, at, generator| {
                let place = (code, at, generator);
                match known.get(&(pid, place)) {
                    Some((executes, since)) if last || now.duration_since(*since) < SAME => executes.clone(),
                    _ => {
                        missing.push(place);
                        (!last).then_some(Executes::Prepares)
                    }
                }
            });
            if last || missing.is_empty() {
                return Some(PythonStack { calls: calls?, module, image, read: (0, 0) });
            }
            let places = std::mem::take(&mut missing);
            let read = move || {
                let m = Remote(pid);
                let look = |&(code, at, generator): &Place| {
                    let first = function(&m, &interpreter, code, at, generator);
                    // Twice, since its thread runs.
                    let again = function(&m, &interpreter, code, at, generator);
                    first.filter(|f| again.as_ref() == Some(f))
                };
                places.iter().map(|p| (*p, look(p))).collect::<Vec<_>>()
            };
            let found = self.pythons.patience.run(pid, read)?;
            if self.pythons.functions.len() + found.len() > MAX_KNOWN {
                self.pythons.functions.clear();
            }
            for (place, executes) in found {
                self.pythons.functions.insert((pid, place), (executes, now));
            }
        }
        None
    }
}
