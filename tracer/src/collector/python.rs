//! Python functions of threads that wait: read while they wait, given to the wait once it is known that it
//! went on all the while.

use super::hash::FastMap;
use crate::stacks::{PythonStack, StackTable};
use pg_event::StackId;
use std::collections::VecDeque;

/// Threads read at a time ...
const AT_ONCE: usize = 8;
/// ... and in this time at most so many.
const PER_SECOND: u32 = 200;
const SECOND: u64 = 1_000_000_000;
/// Most threads that wait to be read.
const MAX_WANTED: usize = 1024;
/// Most stacks kept for waits that go on.
const MAX_READ: usize = 1 << 14;
/// Bits that tell of which threads stacks are kept: almost all records are of others.
const BITS: usize = 1 << 12;

/// Stacks of Python functions by thread.
pub struct Python {
    wanted: VecDeque<(u32, u32)>,
    read: FastMap<u32, PythonStack>,
    bits: [u64; BITS / 64],
    /// Beginning of the current second, and threads read in it.
    second: (u64, u32),
}

impl Default for Python {
    fn default() -> Self {
        Self { wanted: VecDeque::new(), read: FastMap::default(), bits: [0; BITS / 64], second: (0, 0) }
    }
}

impl Python {
    /// A thread (`tid` of the process `tgid`) waits in a way that matters.
    pub fn want(&mut self, tgid: u32, tid: u32) {
        if self.wanted.len() < MAX_WANTED && !self.wanted.contains(&(tgid, tid)) {
            self.wanted.push_back((tgid, tid));
        }
    }

    /// Read a few of those that are wanted. `now` is of `CLOCK_MONOTONIC`.
    pub fn look(&mut self, stacks: &mut StackTable, now: u64) {
        if now.saturating_sub(self.second.0) >= SECOND {
            self.second = (now, 0);
        }
        for _ in 0..AT_ONCE {
            if self.second.1 >= PER_SECOND {
                return;
            }
            let Some((tgid, tid)) = self.wanted.pop_front() else { return };
            if let Some(stack) = stacks.python(tgid, tid) {
                self.second.1 += 1;
                self.keep(tid, stack);
            }
        }
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
