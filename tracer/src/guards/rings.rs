//! What the programs count of violations, by type, in memory that both have: what user space sees of sleeping units is
//! counted with the rest, and backs off with it.

use super::ahead::Served;
use super::layout::{LOOPS, Loop, SLOW, TYPES, TypeCounts};
use super::shared::Shared;
use crate::error::Error;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many times the longest that was told: `FAR_BEYOND` of the programs.
const FAR_BEYOND: u64 = 4;

/// The map `loops`, mapped.
pub struct Rings(Shared<Loop>);

impl Rings {
    /// # Errors
    /// The kernel's refusal.
    pub fn of(fd: RawFd) -> Result<Self, Error> {
        Shared::of(fd, LOOPS).map(Self)
    }

    fn word(&self, of_loop: usize, rank: usize, at: usize) -> &AtomicU64 {
        self.0.u64(of_loop, offset_of!(Loop, types) + rank.min(TYPES) * size_of::<TypeCounts>() + at)
    }

    /// Sets the threshold, ns, of the type with this number in the kernel.
    pub fn limit(&self, of_loop: usize, rank: usize, ns: u64) {
        self.word(of_loop, rank, offset_of!(TypeCounts, threshold)).store(ns, Ordering::Relaxed);
    }

    /// A unit of a loop that has taken so long, ns, is told whatever it may turn out to be.
    pub fn settle(&self, of_loop: usize, ns: u64) {
        self.0.u64(of_loop, offset_of!(Loop, settles)).store(ns, Ordering::Relaxed);
    }

    /// What was counted of a loop's units and whom they serve.
    pub fn served(&self, of_loop: usize) -> Served {
        let read = |at| self.0.u64(of_loop, at).load(Ordering::Relaxed);
        let units =
            (0..=TYPES).map(|t| self.word(of_loop, t, offset_of!(TypeCounts, units)).load(Ordering::Relaxed));
        let (answered, ahead) = (read(offset_of!(Loop, answered)), read(offset_of!(Loop, ahead)));
        Served { units: units.sum(), answered, ahead }
    }

    /// Counts a violation if `count`, seen at `now` (ns) when the unit had taken `elapsed`, of the type with this number in
    /// the kernel, of a unit that is [`super::layout::STARVED`] or [`SLOW`]. Is it to be told? As `check` in `guard.bpf.c` has
    /// it: after one none for `period`, then for twice as long, up to `longest`, but for what is far worse; and none of a type
    /// that is in doubt before that is settled.
    pub fn ring(
        &self,
        (of_loop, rank): (usize, u32),
        (now, elapsed): (u64, u64),
        (count, how): (bool, u32),
        (period, longest): (u64, u64),
    ) -> bool {
        let word = |at| self.word(of_loop, rank as usize, at);
        word(offset_of!(TypeCounts, violations)).fetch_add(u64::from(count), Ordering::Relaxed);
        let read = |w: &AtomicU64| w.load(Ordering::Relaxed);
        let in_doubt = now < read(word(offset_of!(TypeCounts, doubt_until)));
        if in_doubt && elapsed <= read(self.0.u64(of_loop, offset_of!(Loop, settles))) {
            return false;
        }
        let alarm = offset_of!(TypeCounts, alarms) + if how == SLOW { 24 } else { 0 };
        let (quiet, last, worst) = (word(alarm), word(alarm + 8), word(alarm + 16));
        let until = quiet.load(Ordering::Relaxed);
        if let Some(next) = backed_off(until, last.load(Ordering::Relaxed), now, (period, longest)) {
            last.store(next, Ordering::Relaxed);
            quiet.store(now + next, Ordering::Relaxed);
            if next == period {
                worst.store(0, Ordering::Relaxed);
            }
        } else if !is_far_beyond(elapsed, worst.load(Ordering::Relaxed)) {
            return false;
        }
        worst.fetch_max(elapsed, Ordering::Relaxed);
        true
    }
}

/// A unit that took so long is told whatever is silent.
fn is_far_beyond(elapsed: u64, worst: u64) -> bool {
    elapsed / FAR_BEYOND > worst
}

/// For how long a type is silent after it was told at `now`, when it was to be silent until `until`, after `last` ns of
/// silence. `None`: it is silent.
fn backed_off(until: u64, last: u64, now: u64, (period, longest): (u64, u64)) -> Option<u64> {
    let quiet = now.checked_sub(until)?;
    let doubled = last.saturating_mul(2);
    let next = if doubled == 0 || quiet > doubled.saturating_mul(2) { period } else { doubled };
    Some(next.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_rings_on_is_told_less_and_less_often() {
        let limits = (10, 60);
        let (mut until, mut last, mut told) = (0, 0, Vec::new());
        for now in 100..1000 {
            if let Some(next) = backed_off(until, last, now, limits) {
                told.push(now);
                (until, last) = (now + next, next);
            }
        }
        assert_eq!(told[..5], [100, 110, 130, 170, 230]);
        assert!(told[4..].windows(2).all(|w| w[1] - w[0] == 60), "{told:?}");
        // After a long peace it begins anew.
        assert_eq!(backed_off(until, last, until + 241, limits), Some(10));
        assert_eq!(backed_off(until, last, until + 240, limits), Some(60));
        assert!(is_far_beyond(420, 100) && !is_far_beyond(400, 100));
    }
}
