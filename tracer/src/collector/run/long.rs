//! When which threads are looked at for waits that have become long.
//!
//! A pass over all threads takes 1.5 to 3.5 us for each, most of it cache misses: four a second beside 8,000 idle threads
//! took 6 % of a CPU. So a pass is over those that were heard of and then fell silent (`pipeline/silent.rs`); one
//! over all comes now and then, for whom nothing was heard of at all, since a record was lost or since it ran until now.

use super::{MS, Run};
use crate::clock;
use crate::collector::programs::Pass;
use crate::error::Error;

/// Between two looks, ns.
const PERIOD: u64 = 250 * MS;
/// At least so long between two looks at all threads, ns.
const ALL: u64 = 5000 * MS;
/// Looks at all threads rest so many times as long as they take: half a percent of a CPU.
const REST: u64 = 200;
/// What a look at a single thread takes, ns (measured: 5 to 8 us).
const ONE: u64 = 7000;

/// When to look next.
pub(super) struct LongWaits {
    /// A wait of so long is long, ns.
    long: u64,
    next: u64,
    /// When all are looked at next, and what the last time took, ns.
    all: u64,
    took: u64,
    /// Until a look at or after then, all are looked at each time: threads that waited before the recording become long. Nothing
    /// is heard of them, so whoever is missed then is not looked at before the next look at all, which may be never.
    seeded: Option<u64>,
    /// Single threads can be looked at.
    single: bool,
}

impl LongWaits {
    /// `seeded`: when all threads that waited already had been noted as waiting since then at the latest, `CLOCK_MONOTONIC`. On
    /// a loaded machine that is long after the recording's start. `long`: waits of so many ns are; `single`: the kernel may be
    /// asked for threads by the numbers that its records have.
    pub fn new(seeded: u64, long: u64, single: bool) -> Self {
        let all = Some(seeded.saturating_add(long));
        Self { long, next: seeded + PERIOD, all: seeded, took: 0, seeded: all, single }
    }

    pub fn due(&self) -> u64 {
        self.next
    }

    /// Is it all of them that are to be looked at, where `silent` single ones would have to be?
    fn all(&self, now: u64, silent: usize) -> bool {
        // Few threads: it makes no difference.
        self.seeded.is_some() || now >= self.all || silent as u64 * ONE >= self.took.max(ONE)
    }

    fn looked(&mut self, now: u64) {
        self.next = now + PERIOD;
    }

    /// All were looked at from `now` on, which took so much CPU time: where many want a CPU, to stand in the queue for one costs
    /// nobody anything.
    fn looked_at_all(&mut self, now: u64, took: u64) {
        // By when it came about, not by when it was due: it may be late.
        self.seeded = self.seeded.filter(|&long| now < long);
        self.took = took;
        let rest = took.saturating_mul(REST);
        self.all = now + took + rest.max(ALL);
        let next = now + if self.single { PERIOD } else { rest.max(PERIOD) };
        self.next = self.seeded.map_or(next, |long| next.min(long.max(now + PERIOD)));
    }
}

impl Run {
    /// Have waits that have become long reported.
    ///
    /// # Errors
    /// The kernel's refusal of a pass over all threads.
    pub(super) fn look_at_long_waits(&mut self, now: u64) -> Result<(), Error> {
        self.programs.set_realtime_offset(clock::realtime_offset());
        // Asked each time, also where it is all of them: those that ended are forgotten by it.
        let silent = self.pipeline.silent(now, self.long.long);
        if self.long.single && !self.long.all(now, silent.len()) {
            match self.programs.pass_over(Pass::Long, &silent) {
                Ok(()) => {
                    self.long.looked(now);
                    return Ok(());
                }
                Err(e) => {
                    tracing::info!("single threads cannot be looked at: {e}");
                    self.long.single = false;
                }
            }
        }
        let began = clock::thread_cpu();
        self.programs.pass(Pass::Long)?;
        self.long.looked_at_all(now, clock::thread_cpu().saturating_sub(began));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 500 * MS;

    /// The looks within 20 s, and how many of them at all threads, of which each takes `each`.
    fn looks(mut l: LongWaits, each: u64, silent: usize) -> (u32, u32) {
        let (mut some, mut all) = (0, 0);
        while l.due() < 20_000 * MS {
            let now = l.due();
            if l.single && !l.all(now, silent) {
                some += 1;
                l.looked(now);
            } else {
                all += 1;
                l.looked_at_all(now, each);
            }
        }
        (some, all)
    }

    #[test]
    fn all_are_looked_at_at_first_and_then_every_five_seconds() {
        let (some, all) = looks(LongWaits::new(0, LONG, true), MS, 3);
        assert_eq!((some + all, all), (79, 2 + 3), "at 250, 500 ms, and 5.75, 11 and 16 s");
    }

    /// Beside a target that takes all CPUs: the collector comes to look late, or as early as it may.
    #[test]
    fn who_waited_before_the_recording_is_looked_at_once_its_wait_is_long_however_late_that_is() {
        let seeded = 3000 * MS;
        for (late, single) in [0, 200, 400, 900, 2000, 4000].into_iter().flat_map(|l| [(l, true), (l, false)])
        {
            let mut l = LongWaits::new(seeded, LONG, single);
            let mut now = 0;
            while now < seeded + LONG {
                now = l.due() + late * MS;
                assert!(l.all(now, 0), "{late} ms late, at {} ms", now / MS);
                l.looked_at_all(now, 20 * MS);
            }
            assert!(now < seeded + LONG + (late + 250) * MS, "{late}: {}", now / MS);
            assert!(!l.all(l.due(), 0), "{late}: then those that fell silent will do");
        }
        // Rather a little early than woken once more.
        let mut l = LongWaits::new(seeded, LONG, true);
        l.looked_at_all(seeded + LONG - 1, MS);
        assert!(l.all(l.due(), 0));
    }

    #[test]
    fn looks_at_very_many_take_half_a_percent_of_a_cpu() {
        let (_, all) = looks(LongWaits::new(0, LONG, true), 100 * MS, 3);
        assert_eq!(all, 2);
        assert_eq!(
            looks(LongWaits::new(0, LONG, false), 20 * MS, 3),
            (0, 5 + 1),
            "one when those that waited become long"
        );
    }

    #[test]
    fn where_more_are_silent_than_not_all_are_looked_at() {
        assert_eq!(looks(LongWaits::new(0, LONG, true), MS, 200), (0, 79));
    }
}
