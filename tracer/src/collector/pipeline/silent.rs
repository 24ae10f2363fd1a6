//! Threads of which nothing has been heard for a while: only such may have begun a long wait, so only they need be
//! looked at, however many there are that wait for ever.

use super::super::hash::FastMap;
use super::Pipeline;

/// A thread that was not found in a long wait for so long, ns, runs: it is left to the passes over all.
const WINDOW: u64 = 10_000_000_000;

/// Who may begin a long wait, by number.
#[derive(Default)]
pub(super) struct Silent {
    /// Threads whose last interval ended, and of which it is not known that they wait again.
    active: Vec<u32>,
    /// Threads that began, since when (`CLOCK_MONOTONIC`), and had no interval yet.
    born: FastMap<u32, u64>,
}

impl Silent {
    pub fn begins(&mut self, tid: u32, time: u64) {
        self.born.insert(tid, time);
    }

    /// It had an interval, is in a long wait that was reported, or ended.
    pub fn known(&mut self, tid: u32) {
        if !self.born.is_empty() {
            self.born.remove(&tid);
        }
    }

    pub fn active(&mut self, tid: u32) {
        self.active.push(tid);
    }
}

impl Pipeline {
    /// Threads that may have been in one wait since `long` ns before `now` (`CLOCK_MONOTONIC`) and were not reported to be.
    pub fn silent(&mut self, now: u64, long: u64) -> Vec<u32> {
        let mut due = Vec::new();
        let last = &mut self.last;
        let mut stays = |tid: u32, heard: u64, reported: bool| {
            let since = now.saturating_sub(heard);
            let stays = !reported && since < long.saturating_add(WINDOW);
            if stays && since >= long {
                due.push(tid);
            }
            stays
        };
        self.silent.active.retain(|&tid| {
            let Some(l) = last.get_mut(&tid) else { return false };
            l.listed = stays(tid, l.heard, l.reported);
            l.listed
        });
        self.silent.born.retain(|&tid, &mut time| stays(tid, time, false));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::raw::{Again, F_KERNEL, F_LONG, Off, Record};
    use super::super::Pipeline;
    use super::super::intervals::tests::off;
    use super::WINDOW;
    use crate::focus::Focus;
    use crate::identity::Identity;

    const LONG: u64 = 500;

    fn pipeline() -> Pipeline {
        Pipeline::new(0, Identity::new(0, &Focus::default(), 1), 99)
    }

    fn of(tid: u32, (time, start, woken, flags): (u64, u64, u64, u8)) -> Off {
        Off { tid, tgid: tid, ..off((time, start, woken, flags)) }
    }

    fn again(tid: u32, time: u64) -> Again {
        Again { cpu: 0, tid, time, start: time - 20, woken: time - 10, kernel_stack: 0, rewoken: None }
    }

    /// Thread 7: waits until 1000, and then of 20 until 1400, and then for ever.
    #[test]
    fn who_was_heard_of_is_looked_at_once_it_is_silent_and_until_its_wait_is_reported() {
        let mut p = pipeline();
        p.off(&of(7, (1000, 900, 990, 0)));
        assert_eq!(p.silent(1499, LONG), [0; 0]);
        p.again(&again(7, 1400));
        assert_eq!(p.silent(1600, LONG), [0; 0], "it was heard of at 1400");
        assert_eq!(p.silent(1900, LONG), [7]);
        assert_eq!(p.silent(2150, LONG), [7], "it ran, or was not silent in the kernel's eyes");
        p.off(&of(7, (2200, 1410, 0, F_LONG)));
        assert_eq!(p.silent(2400, LONG), [0; 0]);
        // The wait ends after all, and there is another.
        p.again(&again(7, 3000));
        assert_eq!(p.silent(3499, LONG), [0; 0]);
        assert_eq!(p.silent(3500, LONG), [7]);
    }

    #[test]
    fn one_that_runs_on_is_left_to_the_passes_over_all_and_comes_back_with_its_next_interval() {
        let mut p = pipeline();
        p.off(&of(7, (1000, 900, 990, 0)));
        assert_eq!(p.silent(1000 + LONG + WINDOW - 1, LONG), [7]);
        assert_eq!(p.silent(1000 + LONG + WINDOW, LONG), [0; 0]);
        p.again(&again(7, 2 * WINDOW));
        p.again(&again(7, 2 * WINDOW + 30));
        assert_eq!(p.silent(2 * WINDOW + 600, LONG), [7], "and once");
    }

    #[test]
    fn a_new_thread_may_wait_before_it_was_heard_of() {
        let mut p = pipeline();
        let fork = |child, time| Record::Fork { cpu: 0, tid: 1, time, child, child_tgid: 1, comm: [0; 16] };
        p.take(fork(8, 1000));
        p.take(fork(9, 1000));
        p.take(Record::Exit { cpu: 0, tid: 9, time: 1100, tgid: 1, status: 0 });
        assert_eq!(p.silent(1500, LONG), [8]);
        p.off(&of(8, (1600, 1010, 0, F_LONG)));
        assert_eq!(p.silent(1700, LONG), [0; 0]);
    }

    /// Their long waits are not reported.
    #[test]
    fn the_kernels_own_threads_are_not_looked_at() {
        let mut p = pipeline();
        p.off(&of(7, (1000, 900, 990, F_KERNEL)));
        assert_eq!(p.silent(1600, LONG), [0; 0]);
    }
}
