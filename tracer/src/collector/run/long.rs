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
    /// Until then, all are looked at each time: threads that waited before the recording become long.
    seeded: u64,
    /// Single threads can be looked at.
    single: bool,
}

impl LongWaits {
    /// `start`: of the recording, `CLOCK_MONOTONIC`; `long`: waits of so many ns are; `single`: the kernel may be asked for
    /// threads by the numbers that its records have.
    pub fn new(start: u64, long: u64, single: bool) -> Self {
        let seeded = start.saturating_add(long).saturating_add(2 * PERIOD);
        Self { long, next: start + PERIOD, all: start, took: 0, seeded, single }
    }

    pub fn due(&self) -> u64 {
        self.next
    }

    /// Is it all of them that are to be looked at, where `silent` single ones would have to be?
    fn all(&self, now: u64, silent: usize) -> bool {
        // Few threads: it makes no difference.
        now < self.seeded || now >= self.all || silent as u64 * ONE >= self.took.max(ONE)
    }

    fn looked(&mut self, now: u64) {
        self.next = now + PERIOD;
    }

    /// All were looked at from `now` on, until `end`.
    fn looked_at_all(&mut self, now: u64, end: u64) {
        self.took = end.saturating_sub(now);
        let rest = self.took.saturating_mul(REST);
        self.all = end + rest.max(ALL);
        self.next = now + if self.single { PERIOD } else { rest.max(PERIOD) };
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
        self.programs.pass(Pass::Long)?;
        self.long.looked_at_all(now, clock::monotonic());
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
                l.looked_at_all(now, now + each);
            }
        }
        (some, all)
    }

    #[test]
    fn all_are_looked_at_at_first_and_then_every_five_seconds() {
        let (some, all) = looks(LongWaits::new(0, LONG, true), MS, 3);
        assert_eq!((some + all, all), (79, 3 + 3), "at 250, 500, 750 ms, and 6, 11 and 16 s");
    }

    #[test]
    fn looks_at_very_many_take_half_a_percent_of_a_cpu() {
        let (_, all) = looks(LongWaits::new(0, LONG, true), 100 * MS, 3);
        assert_eq!(all, 3);
        assert_eq!(looks(LongWaits::new(0, LONG, false), 20 * MS, 3), (0, 5));
    }

    #[test]
    fn where_more_are_silent_than_not_all_are_looked_at() {
        assert_eq!(looks(LongWaits::new(0, LONG, true), MS, 200), (0, 79));
    }
}
