//! From `_PyRuntime` to the frames of one thread.

use super::layout::{Current, Entry, OWNED_BY_GENERATOR, TYPE};
use super::memory::{Block, Memory};
use super::object::{Executes, Instruction, function};
use super::{Function, Interpreter};

/// Most frames of a stack that are read, the innermost.
const MAX_FRAMES: usize = 128;
/// Most interpreters of a process.
const MAX_INTERPRETERS: usize = 64;
/// Most threads of a process.
const MAX_THREADS: usize = 2048;
/// Bytes that hold all that is asked of a thread state.
const THREAD_HEAD: usize = 192;
/// Bytes that hold all that is asked of a frame object, and of a frame since 3.11.
const FRAME_HEAD: usize = 112;
const NEW_FRAME_HEAD: usize = 72;
/// Where the C library keeps a thread's number, from what pthread_self(3) gives: glibc (2.3.4 and later), musl.
const TID_IN_PTHREAD: [u64; 2] = [0x2d0, 0x30];

/// The Python functions that a thread is in, innermost first, by calls of the interpreter's loop. `None` when
/// it is in none, and when anything is not as it must be.
pub(super) fn read(m: &impl Memory, i: &Interpreter, tid: u32) -> Option<super::Calls> {
    let innermost = thread(m, i, tid)?;
    let mut calls = Calls::default();
    let mut seen = Vec::new();
    let mut at = innermost;
    let length = if i.layout.frame.entry == Entry::Each { FRAME_HEAD } else { NEW_FRAME_HEAD };
    while at != 0 && seen.len() < MAX_FRAMES {
        if seen.contains(&at) || at % 8 != 0 {
            return None;
        }
        seen.push(at);
        let frame = m.part::<FRAME_HEAD>(at, length)?;
        calls.take(m, i, &frame)?;
        at = frame.u64(i.layout.frame.previous)?;
    }
    let calls = calls.finish();
    calls.iter().any(|c| !c.is_empty()).then_some(calls)
}

#[derive(Default)]
struct Calls {
    done: super::Calls,
    open: Vec<Function>,
    /// Frames were read that are in no call that is done.
    begun: bool,
}

impl Calls {
    fn take(&mut self, m: &impl Memory, i: &Interpreter, frame: &Block<FRAME_HEAD>) -> Option<()> {
        let l = i.layout.frame;
        let owner = match l.owner {
            Some(at) => frame.u8(at)?,
            None => 0,
        };
        if l.entry == Entry::Shim(owner) {
            self.close();
            return Some(());
        }
        let instruction = match l.entry {
            Entry::Each => {
                // Here a frame is an object.
                if frame.u64(TYPE)? != i.types.frame {
                    return None;
                }
                Instruction::Last(frame.i32(l.instruction)?)
            }
            _ => Instruction::At(frame.u64(l.instruction)?),
        };
        let generator = owner == OWNED_BY_GENERATOR;
        if let Executes::Function(f) = function(m, i, frame.u64(l.code)?, instruction, generator)? {
            self.open.push(f);
        }
        self.begun = true;
        match l.entry {
            Entry::Each => self.close(),
            Entry::Flag(at) if frame.u8(at)? != 0 => self.close(),
            _ => {}
        }
        Some(())
    }

    fn close(&mut self) {
        self.done.push(std::mem::take(&mut self.open));
        self.begun = false;
    }

    fn finish(mut self) -> super::Calls {
        if self.begun {
            self.close();
        }
        self.done
    }
}

/// The innermost frame of a thread.
fn thread(m: &impl Memory, i: &Interpreter, tid: u32) -> Option<u64> {
    let l = &i.layout;
    let mut found = Vec::new();
    let mut unsure = Vec::new();
    let mut interpreter = m.word(i.runtime.checked_add(l.interpreters)?)?;
    let mut interpreters = 0;
    let mut threads = 0;
    while interpreter != 0 && interpreters < MAX_INTERPRETERS {
        interpreters += 1;
        let mut state = m.word(interpreter.checked_add(l.threads)?)?;
        while state != 0 && threads < MAX_THREADS {
            threads += 1;
            let head = m.block::<THREAD_HEAD>(state)?;
            let frame = match l.current {
                Current::At(at) => head.u64(at)?,
                Current::Through(at, then) => match head.u64(at)? {
                    0 => 0,
                    place => m.word(place.checked_add(then)?)?,
                },
            };
            // A thread may have a state in more than one interpreter; it is in those that have frames.
            if frame != 0 {
                match l.native_id {
                    Some(at) if head.u64(at)? == u64::from(tid) => found.push(frame),
                    _ => unsure.push((head.u64(l.pthread)?, frame)),
                }
            }
            state = head.u64(l.next_thread)?;
        }
        interpreter = m.word(interpreter.checked_add(l.next_interpreter)?)?;
    }
    if found.is_empty() {
        // Before 3.11 only the C library tells; later, the number of a process that forked may be its parent's.
        let own = |at: u64| {
            let words = TID_IN_PTHREAD.map(|o| m.block::<4>(at.checked_add(o)?)?.i32(0));
            words.contains(&i32::try_from(tid).ok())
        };
        found.extend(unsure.iter().filter(|&&(at, _)| own(at)).map(|&(_, frame)| frame));
    }
    // Of two stacks nobody knows which is the inner one.
    if let [one] = found[..] { Some(one) } else { None }
}
