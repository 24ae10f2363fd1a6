//! From `_PyRuntime` to the frames of one thread.

use super::layout::{Current, Entry, OWNED_BY_GENERATOR, TYPE};
use super::memory::Memory;
use super::object::{Executes, Instruction, function};
use super::{Calls, Interpreter};

/// Most frames of a stack that are read, the innermost.
const MAX_FRAMES: usize = 128;
/// Most interpreters of a process.
const MAX_INTERPRETERS: usize = 64;
/// Most threads of a process.
const MAX_THREADS: usize = 2048;
/// Where the bytes of a frame begin that are taken together (3.11 and later).
pub const MARKS: u64 = 64;
/// Bytes that hold all that is asked of a thread state.
const THREAD_HEAD: usize = 192;
/// Bytes that hold all that is asked of a frame object, and of a frame since 3.11.
const FRAME_HEAD: usize = 112;
const NEW_FRAME_HEAD: usize = 72;
/// Where the C library keeps a thread's number, from what pthread_self(3) gives: glibc (2.3.4 and later), musl.
const TID_IN_PTHREAD: [u64; 2] = [0x2d0, 0x30];

/// The Python functions that a thread is in, innermost first, by calls of the interpreter's loop. `None` when
/// it is in none, and when anything is not as it must be.
pub(super) fn read(m: &impl Memory, i: &Interpreter, tid: u32) -> Option<Calls> {
    let mut at = thread(m, i, tid)?.1;
    let l = i.layout.frame;
    let length = if l.entry == Entry::Each { FRAME_HEAD } else { NEW_FRAME_HEAD };
    let mut frames = Vec::new();
    let mut seen = Vec::new();
    while at != 0 && seen.len() < MAX_FRAMES {
        if seen.contains(&at) || at % 8 != 0 {
            return None;
        }
        seen.push(at);
        let head = m.part::<FRAME_HEAD>(at, length)?;
        // Before 3.11 a frame is an object.
        if l.entry == Entry::Each && head.u64(TYPE)? != i.types.frame {
            return None;
        }
        frames.push(RawFrame {
            code: head.u64(l.code)?,
            instruction: head.u64(l.instruction)?,
            marks: if l.entry == Entry::Each { 0 } else { head.u64(MARKS)? },
        });
        at = head.u64(l.previous)?;
    }
    calls(i, &frames, |code, at, generator| function(m, i, code, at, generator))
}

/// What is read of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawFrame {
    /// Its code object.
    pub code: u64,
    /// The word that has the instruction.
    pub instruction: u64,
    /// The bytes from [`MARKS`] on, where a frame has its owner and whether it is an entry.
    pub marks: u64,
}

/// Puts frames together by calls of the interpreter's loop; `name` knows the functions.
pub(super) fn calls(
    i: &Interpreter,
    frames: &[RawFrame],
    mut name: impl FnMut(u64, Instruction, bool) -> Option<Executes>,
) -> Option<Calls> {
    let l = i.layout.frame;
    let mut done: Calls = Vec::new();
    let mut open = Vec::new();
    // Frames were read that are in no call that is done.
    let mut begun = false;
    for f in frames {
        let mark = |at: u64| f.marks.to_le_bytes().get(at.checked_sub(MARKS)? as usize).copied();
        let owner = match l.owner {
            Some(at) => mark(at)?,
            None => 0,
        };
        let mut ends = false;
        if l.entry == Entry::Shim(owner) {
            ends = true;
        } else {
            let instruction = match l.entry {
                Entry::Each => Instruction::Last(f.instruction as i32),
                _ => Instruction::At(f.instruction),
            };
            if let Executes::Function(f) = name(f.code, instruction, owner == OWNED_BY_GENERATOR)? {
                open.push(f);
            }
            begun = true;
            match l.entry {
                Entry::Each => ends = true,
                Entry::Flag(at) => ends = mark(at)? != 0,
                Entry::Shim(_) => {}
            }
        }
        if ends {
            done.push(std::mem::take(&mut open));
            begun = false;
        }
    }
    if begun {
        done.push(open);
    }
    done.iter().any(|c| !c.is_empty()).then_some(done)
}

/// The state of a thread, if it is in Python functions.
pub(super) fn state(m: &impl Memory, i: &Interpreter, tid: u32) -> Option<u64> {
    thread(m, i, tid).map(|(state, _)| state)
}

/// The state of a thread, and its innermost frame.
fn thread(m: &impl Memory, i: &Interpreter, tid: u32) -> Option<(u64, u64)> {
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
                    Some(at) if head.u64(at)? == u64::from(tid) => found.push((state, frame)),
                    _ => unsure.push((head.u64(l.pthread)?, (state, frame))),
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
