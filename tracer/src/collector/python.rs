//! Python functions of threads: of those that wait, read while they wait, and given to the wait once it is known
//! that it went on all the while; of those that run, as their samples bring them.

use super::hash::FastMap;
use crate::stacks::{Followed, PythonStack, RawFrame, StackTable};
use pg_event::StackId;
use std::collections::VecDeque;

/// Threads read at a time ...
const AT_ONCE: usize = 8;
/// ... and in this time at most so many.
const PER_SECOND: u32 = 200;
const SECOND: u64 = 1_000_000_000;
/// Most threads that wait to be read.
const MAX_WANTED: usize = 1024;
/// Most stacks that wait for their samples.
const MAX_FRAMES: usize = 1024;
/// Most stacks kept for waits that go on.
const MAX_READ: usize = 1 << 14;
/// Bits that tell of which threads stacks are kept: almost all records are of others.
const BITS: usize = 1 << 12;

/// So long after a thread was in no Python function (or was none of a Python program), it is looked at again.
const AGAIN: u64 = SECOND;
/// Most threads of which that is remembered.
const MAX_ASKED: usize = 1 << 14;

/// A thread outside of the focus that has so many samples within [`AGAIN`] is looked at, too: causes are often there.
const BUSY: u8 = 8;

/// How often a thread is read that waits again and again, and the pause in between.
const TIMES: u8 = 8;
const PAUSE: u64 = SECOND / 5;

/// A thread to be read.
#[derive(Clone, Copy)]
struct Wanted {
    tgid: u32,
    tid: u32,
    times: u8,
}

/// Stacks of Python functions by thread.
pub struct Python {
    wanted: VecDeque<Wanted>,
    /// Those to be read once more from a time on.
    later: VecDeque<(u64, Wanted)>,
    read: FastMap<u32, PythonStack>,
    bits: [u64; BITS / 64],
    /// Beginning of the current second, and threads read in it.
    second: (u64, u32),
    /// Samples of all threads are to have them, not those of the focus alone.
    pub everybody: bool,
    /// Threads that were seen running, to be followed.
    running: VecDeque<(u32, u32)>,
    /// When a thread was looked at to be followed.
    asked: FastMap<u32, u64>,
    /// Of threads outside of the focus: the samples that came since a time.
    busy: FastMap<u32, (u64, u8)>,
    /// Whom (process, thread) the programs are to follow from now on, or no longer.
    pub changes: Vec<(u32, u32, Option<Followed>)>,
    /// By thread, of the sample that comes next of it: its time, frames. (Those of two CPUs come mixed.)
    frames: FastMap<u32, (u64, Vec<RawFrame>)>,
}

impl Default for Python {
    fn default() -> Self {
        Self {
            wanted: VecDeque::new(),
            later: VecDeque::new(),
            read: FastMap::default(),
            bits: [0; BITS / 64],
            second: (0, 0),
            everybody: false,
            running: VecDeque::new(),
            asked: FastMap::default(),
            busy: FastMap::default(),
            changes: Vec::new(),
            frames: FastMap::default(),
        }
    }
}

impl Python {
    /// A thread (`tid` of the process `tgid`) waits in a way that matters.
    pub fn want(&mut self, tgid: u32, tid: u32) {
        self.push(Wanted { tgid, tid, times: 1 });
    }

    /// A thread waits again and again: a few of its waits are of interest.
    pub fn want_some(&mut self, tgid: u32, tid: u32) {
        self.push(Wanted { tgid, tid, times: TIMES });
    }

    fn push(&mut self, w: Wanted) {
        let known = self.wanted.iter().chain(self.later.iter().map(|l| &l.1)).any(|x| x.tid == w.tid);
        if self.wanted.len() < MAX_WANTED && self.later.len() < MAX_WANTED && !known {
            self.wanted.push_back(w);
        }
    }

    /// Read a few of those that are wanted. `now` is of `CLOCK_MONOTONIC`.
    pub fn look(&mut self, stacks: &mut StackTable, now: u64) {
        if now.saturating_sub(self.second.0) >= SECOND {
            self.second = (now, 0);
        }
        for _ in 0..AT_ONCE {
            let Some((tgid, tid)) = self.running.pop_front() else { break };
            if let Some(followed) = stacks.follow_python(tgid, tid) {
                self.changes.push((tgid, tid, Some(followed)));
            }
        }
        while let Some((_, w)) = self.later.front().copied().filter(|l| l.0 <= now) {
            self.later.pop_front();
            self.wanted.push_back(w);
        }
        for _ in 0..AT_ONCE {
            if self.second.1 >= PER_SECOND {
                return;
            }
            let Some(Wanted { tgid, tid, times }) = self.wanted.pop_front() else { return };
            if let Some(stack) = stacks.python(tgid, tid) {
                self.second.1 += 1;
                self.keep(tid, stack);
            }
            if times > 1 && stacks.runs_python(tgid) {
                self.later.push_back((now + PAUSE, Wanted { tgid, tid, times: times - 1 }));
            }
        }
    }

    /// A thread has ended, or has another program.
    pub fn forget(&mut self, tgid: u32, tid: u32) {
        self.busy.remove(&tid);
        if self.asked.remove(&tid).is_some() {
            self.changes.push((tgid, tid, None));
        }
    }

    /// Frames of the sample that comes next.
    pub fn sampled(&mut self, tid: u32, time: u64, frames: Vec<RawFrame>) {
        // Of samples that were lost.
        if self.frames.len() >= MAX_FRAMES {
            self.frames.clear();
        }
        self.frames.insert(tid, (time, frames));
    }

    /// The stack of a sample of a thread (process, thread), with the Python functions that came with it.
    pub fn sample(
        &mut self,
        (tgid, tid): (u32, u32),
        time: u64,
        native: StackId,
        focus: bool,
        stacks: &mut StackTable,
    ) -> StackId {
        if let Some((at, frames)) = self.frames.remove(&tid)
            && at == time
        {
            // What it waits for between its work may be too short to be long waits, and is of interest all the same.
            if focus {
                self.want_some(tgid, tid);
            }
            let python = stacks.python_sampled(tgid, &frames);
            return python.map_or(native, |p| stacks.with_python(native, &p));
        }
        let recent = self.asked.get(&tid).is_some_and(|&t| time.saturating_sub(t) < AGAIN);
        if !recent && (focus || self.everybody || self.is_busy(tid, time)) {
            if self.asked.len() >= MAX_ASKED {
                self.asked.clear();
            }
            self.asked.insert(tid, time);
            if self.running.len() < MAX_WANTED {
                self.running.push_back((tgid, tid));
            }
        }
        native
    }

    /// Counts a sample of a thread outside of the focus.
    fn is_busy(&mut self, tid: u32, time: u64) -> bool {
        if self.busy.len() >= MAX_ASKED {
            self.busy.clear();
        }
        let (since, count) = self.busy.entry(tid).or_insert((time, 0));
        if time.saturating_sub(*since) >= AGAIN {
            (*since, *count) = (time, 0);
        }
        *count = count.saturating_add(1);
        *count >= BUSY
    }

    fn keep(&mut self, tid: u32, stack: PythonStack) {
        if self.read.len() >= MAX_READ {
            self.read.clear();
            self.bits = [0; BITS / 64];
        }
        self.read.insert(tid, stack);
        let (word, bit) = place(tid);
        self.bits[word] |= bit;
    }

    /// The stack of a thread's wait (`CLOCK_MONOTONIC`, `u64::MAX` when it goes on), with its Python functions if they were
    /// read during this very wait.
    #[inline]
    pub fn stack(
        &mut self,
        tid: u32,
        (start, end): (u64, u64),
        native: StackId,
        stacks: &mut StackTable,
    ) -> StackId {
        let (word, bit) = place(tid);
        if self.bits[word] & bit == 0 { native } else { self.given(tid, (start, end), native, stacks) }
    }

    fn given(&mut self, tid: u32, wait: (u64, u64), native: StackId, stacks: &mut StackTable) -> StackId {
        let Some(python) = self.read.get(&tid) else { return native };
        let within = wait.0 <= python.read.0 && python.read.1 <= wait.1;
        let id = if within { stacks.with_python(native, python) } else { native };
        if wait.1 != u64::MAX && wait.1 >= python.read.0 {
            // No later wait is the one in which it was read.
            self.read.remove(&tid);
            if self.read.is_empty() {
                self.bits = [0; BITS / 64];
            }
        }
        id
    }
}

fn place(tid: u32) -> (usize, u64) {
    let n = tid as usize % BITS;
    (n / 64, 1 << (n % 64))
}
