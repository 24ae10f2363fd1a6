//! Waits, wakers and threads that come again and again, numbered within a chunk.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// What identifies a wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Wait {
    pub(super) syscall: u16,
    pub(super) op: u32,
    pub(super) object: u32,
    pub(super) user_stack: u32,
    pub(super) kernel_stack: u32,
}

/// What identifies a waker.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Waker {
    pub(super) thread: u32,
    pub(super) context: u8,
    pub(super) syscall: u16,
    pub(super) object: u32,
    pub(super) stack: u32,
}

/// A quick hash for small keys of our own making.
#[derive(Default)]
pub(super) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u8(&mut self, v: u8) {
        self.write_u64(u64::from(v));
    }
    fn write_u16(&mut self, v: u16) {
        self.write_u64(u64::from(v));
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(5) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(super) type Quickly = BuildHasherDefault<Quick>;

/// A wait or a waker with its number in the chunk, at a place that few others share: most of those that
/// come are found here, without a look into the map of all. Number 0: nobody.
pub(super) struct Front<T>(Vec<(T, u32)>);

impl<T: Copy + Eq> Front<T> {
    const SLOTS: usize = 2048;

    pub(super) fn new(nobody: T) -> Self {
        Self(vec![(nobody, 0); Self::SLOTS])
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|(_, n)| *n = 0);
    }

    /// The number of a key, and whether it is a new one.
    #[inline]
    pub(super) fn number<H: BuildHasher>(
        &mut self,
        key: T,
        mix: u32,
        all: &mut HashMap<T, u32, H>,
    ) -> (u32, bool)
    where
        T: Hash,
    {
        let slot = &mut self.0[(mix.wrapping_mul(0x9e37_79b1) >> 21) as usize];
        if slot.1 != 0 && slot.0 == key {
            return (slot.1, false);
        }
        let next = all.len() as u32 + 1;
        let number = *all.entry(key).or_insert(next);
        *slot = (key, number);
        (number, number == next)
    }
}

/// The threads of a chunk: each noted once or a few times.
pub(super) struct Threads {
    noted: Vec<u32>,
    /// Who was noted last of those that share a slot; `None` for nobody.
    slots: Vec<Option<u32>>,
}

impl Default for Threads {
    fn default() -> Self {
        Self { noted: Vec::new(), slots: vec![None; 1024] }
    }
}

impl Threads {
    #[inline]
    pub(super) fn note(&mut self, thread: u32) {
        let slot = &mut self.slots[(thread & 1023) as usize];
        if *slot != Some(thread) {
            *slot = Some(thread);
            self.noted.push(thread);
        }
    }

    pub(super) fn take(&mut self) -> Vec<u32> {
        self.slots.fill(None);
        let mut all = std::mem::take(&mut self.noted);
        all.sort_unstable();
        all.dedup();
        all
    }
}
