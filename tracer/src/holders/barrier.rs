//! Who has not come to a barrier. A barrier counts who came and names nobody: where all of those sleep at it, the other threads of
//! the process are who it waits for.

use super::futex::Around;
use super::{Holders, LongWait, Who};
use crate::procfs;
use pg_event::{Ns, Relation};
use std::collections::HashMap;

/// Most threads that a barrier is believed to be for.
const MAX_PARTIES: u32 = 1 << 16;
/// Most threads of a process that are looked at.
const MAX_THREADS: usize = 4096;
/// `FUTEX_PRIVATE_FLAG`, which glibc has in what is shared, to take it away from what it calls the kernel with.
const SHARED: u32 = 128;
/// Of more who may be waited for than are missing so many are told.
pub(super) const FEW: usize = 8;
/// How long the answer stands for others at the same barrier.
const STANDS: Ns = 1_000_000_000;
/// Barriers whose answers are kept.
const MAX_KEPT: usize = 256;
/// `struct gomp_barrier_t` of libgomp lies on a line of the cache, its second word is slept on, and who is missing is counted
/// on the next line: at barriers within a parallel region, and behind that at its end.
const LINE: u64 = 64;
const WORD: u64 = 4;
const MISSING_AT: [isize; 2] = [15, 16];

/// What a barrier counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Count {
    /// Threads that came.
    pub here: u32,
    /// Those that did not.
    pub missing: u32,
    /// Workers that have nothing to do sleep at such a one, too, until the first thread has work again.
    pub idles: bool,
}

impl Count {
    fn of(here: u32, all: u32, idles: bool) -> Option<Self> {
        let fits = (2..=MAX_PARTIES).contains(&all) && (1..all).contains(&here);
        fits.then(|| Self { here, missing: all - here, idles })
    }
}

/// glibc's `pthread_barrier_t`: who came, in all; who was let go, which the others sleep on; how many it takes; whether it is
/// shared (0 or 128); who has left. It begins anew before half of the numbers are used up.
fn of_libc(words: [u32; 5]) -> Option<Count> {
    let [came, gone, all, shared, left] = words;
    let whole = gone.checked_rem(all) == Some(0) && left <= gone && came <= u32::MAX / 2;
    let here = came.checked_sub(gone).filter(|_| whole && matches!(shared, 0 | SHARED))?;
    Count::of(here, all, false)
}

/// What the barrier counts that several processes have mapped and on whose second word they sleep, if it is one.
pub(super) fn of_several(around: &Around) -> Option<Count> {
    let words = around.take::<5>(-1)?;
    of_libc(words).filter(|_| words[3] == SHARED)
}

/// libgomp's: how many it takes, its turn, and how many are missing.
fn of_openmp(address: u64, all: u32, missing: u32) -> Option<Count> {
    let here = all.checked_sub(missing)?;
    (address % LINE == WORD).then(|| Count::of(here, all, true)).flatten()
}

/// Answers, by process and address; empty where nobody is missing, or that is no barrier.
#[derive(Default)]
pub(super) struct Barriers(HashMap<(u32, u64), (Ns, Vec<u32>)>);

impl Holders {
    /// The threads that have not come to the barrier at which a thread waits; none where that is no barrier, or not all of those
    /// that came sleep at it.
    pub(super) fn missing_at(
        &mut self,
        wait: &LongWait,
        address: u64,
        around: &Around,
    ) -> Vec<(Who, Relation)> {
        let openmp = MISSING_AT.into_iter().filter_map(|at| {
            let ([all], [missing]) = around.take::<1>(-1).zip(around.take::<1>(at))?;
            of_openmp(address, all, missing)
        });
        let counts: Vec<Count> = around.take::<5>(-1).and_then(of_libc).into_iter().chain(openmp).collect();
        let (key, now) = ((wait.tgid, address), self.open.now());
        let kept = self.barriers.0.get(&key).filter(|k| now.saturating_sub(k.0) < STANDS);
        let missing = if let Some((_, missing)) = kept {
            missing.clone()
        } else if counts.is_empty() {
            return Vec::new();
        } else {
            // Also that there are none: each of many waiters would have all threads looked at again.
            let missing =
                counts.into_iter().find_map(|c| self.elsewhere(wait, address, c)).unwrap_or_default();
            if self.barriers.0.len() >= MAX_KEPT {
                self.barriers.0.clear();
            }
            self.barriers.0.insert(key, (now, missing.clone()));
            missing
        };
        missing.into_iter().map(|tid| (Who::Thread(tid, wait.tgid), Relation::Missing)).collect()
    }

    /// Threads of the process that do not sleep there, if as many as it says do.
    fn elsewhere(&mut self, wait: &LongWait, address: u64, count: Count) -> Option<Vec<u32>> {
        let tids = procfs::threads_of(wait.tgid);
        if tids.len() > MAX_THREADS {
            return None;
        }
        let futex = u64::from(wait.syscall.0);
        let (mut here, mut others) = (Vec::new(), Vec::new());
        for &tid in &tids {
            match self.blocked_call(tid) {
                Some((call, args)) if call == futex && args[0] == address => here.push(tid),
                call => others.push((tid, call.filter(|c| c.0 == futex).map(|c| c.1[0]))),
            }
        }
        if here.len() != count.here as usize {
            return None;
        }
        let missing = count.missing as usize;
        // Who waits for one to end that sleeps there comes after that only, if at all.
        others.retain(|&(tid, word)| !word.is_some_and(|at| self.joins(tid, at, &here)));
        // Who waits for one of the process to end does not come before that.
        if others.len() > missing {
            others.retain(|&(tid, word)| !word.is_some_and(|at| self.joins(tid, at, &tids)));
        }
        // Threads of one pool mostly have one name.
        let name = |tid: u32| procfs::read_thread_stat(tid).map(|s| s.comm);
        if others.len() > missing {
            let own = name(wait.tid);
            let alike: Vec<_> = others.iter().copied().filter(|o| name(o.0) == own).collect();
            if alike.len() >= missing {
                others = alike;
            }
        }
        let told: Vec<u32> = others.into_iter().map(|o| o.0).collect();
        (told.len() <= missing.max(FEW) && !(count.idles && told == [wait.tgid])).then_some(told)
    }

    /// Is the word that a thread sleeps on the number of another one of its process, which the kernel clears when that ends?
    fn joins(&mut self, tid: u32, address: u64, tids: &[u32]) -> bool {
        let word = self.bytes(tid, address, 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
        word.is_some_and(|w| w != tid && tids.binary_search(&w).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_and_what_is_none() {
        let count = |here, missing| Some(Count { here, missing, idles: false });
        assert_eq!(of_libc([2, 0, 3, 0, 0]), count(2, 1));
        // The second time; one has not left since the first.
        assert_eq!(of_libc([5, 3, 3, 128, 2]), count(2, 1));
        for none in [
            [3, 0, 3, 0, 0],
            [0, 0, 3, 0, 0],
            [2, 0, 3, 7, 0],
            [1, 0, 1, 0, 0],
            [1, 0, 0, 0, 0],
            [2, 0, u32::MAX, 0, 0],
            // A parked thread of Rust; words that no barrier has.
            [0, u32::MAX, 4, 0, 0],
            [3, 2, 3, 0, 0],
            [4, 3, 3, 0, 4],
        ] {
            assert_eq!(of_libc(none), None, "{none:?}");
        }
        assert_eq!(of_openmp(0x1004, 4, 1), Some(Count { here: 3, missing: 1, idles: true }));
        assert_eq!(
            (of_openmp(0x1008, 4, 1), of_openmp(0x1004, 4, 0), of_openmp(0x1004, 4, 5)),
            (None, None, None)
        );
    }
}
