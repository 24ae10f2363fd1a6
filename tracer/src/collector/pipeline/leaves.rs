//! Where threads are found on the CPU: those that are at the same few places all the time are in a loop, which may ask or
//! compute. The places are looked into when functions get their names.

use crate::collector::hash::FastMap;
use pg_event::StackId;

/// Samples looked at together: at the usual 99 Hz, of a fifth of a second.
const SAMPLES: u32 = 20;
/// A loop that asks has few instructions.
const PLACES: usize = 16;
/// Most threads remembered at a time.
const MAX_THREADS: usize = 1 << 14;

/// Where a thread was found.
#[derive(Default)]
struct Found {
    samples: u32,
    at: Vec<StackId>,
}

/// The latest samples of each thread.
#[derive(Default)]
pub(super) struct Leaves {
    by_thread: FastMap<u32, Found>,
}

impl Leaves {
    /// The thread was found with this stack, or in the kernel. Returns stacks whose innermost places are those of a loop.
    pub fn sample(&mut self, tid: u32, stack: Option<StackId>) -> Vec<StackId> {
        if self.by_thread.len() >= MAX_THREADS && !self.by_thread.contains_key(&tid) {
            self.by_thread.clear();
        }
        let found = self.by_thread.entry(tid).or_default();
        let Some(stack) = stack else {
            *found = Found::default();
            return Vec::new();
        };
        found.samples += 1;
        if found.at.len() <= PLACES && !found.at.contains(&stack) {
            found.at.push(stack);
        }
        if found.samples < SAMPLES {
            return Vec::new();
        }
        let found = std::mem::take(found);
        if found.at.len() <= PLACES { found.at } else { Vec::new() }
    }

    /// The thread ended.
    pub fn forget(&mut self, tid: u32) {
        self.by_thread.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(l: &mut Leaves, stacks: impl Iterator<Item = Option<u32>>) -> Vec<StackId> {
        stacks.flat_map(|s| l.sample(7, s.map(StackId))).collect()
    }

    #[test]
    fn who_is_at_few_places_is_in_a_loop() {
        let mut l = Leaves::default();
        let loops = |n| (0..SAMPLES).map(move |i| Some(i % n));
        assert_eq!(told(&mut l, loops(3)), [StackId(0), StackId(1), StackId(2)]);
        assert_eq!(told(&mut l, loops(PLACES as u32 + 1)), []);
        // Each time anew.
        assert_eq!(told(&mut l, loops(1)), [StackId(0)]);
        // In between it was in the kernel, or somewhere else.
        assert_eq!(told(&mut l, loops(1).take(12).chain([None]).chain(loops(1).take(12))), []);
        assert_eq!(told(&mut l, loops(2).take(8)), [StackId(0), StackId(1)]);
        l.forget(7);
        assert!(l.by_thread.is_empty());
    }
}
