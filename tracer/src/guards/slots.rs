//! The units of guarded threads as the programs see them, in memory that both have: to look at sleeping ones without a
//! system call for each.

use super::layout::{AGAIN, At, Boundary, COUNTED, NEXT_PART, SLOW, THREADS, TOLD, UNTOLD, Unit, WAITS};
use super::shared::Shared;
use crate::error::Error;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The map `units`, mapped.
pub struct Mapped(Shared<Unit>);

/// A unit that is under way while its thread has no CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asleep {
    pub start: u64,
    pub spent: u64,
    /// Off the CPU since, ns.
    pub off: u64,
    /// Off the CPU before that, within the unit, and of that ready without one, ns.
    pub away: u64,
    pub ready: u64,
    /// Of what it was on one, how long the host had it, ns.
    pub stolen: u64,
    /// Of `away`, how long it was stopped by a signal or a tracer, ns; and it is now.
    pub halted: u64,
    pub halts: bool,
    /// Where it blocks, mostly in a system call; zeros when it only has no CPU.
    pub at: At,
    pub best: u32,
    pub number: u32,
}

impl Mapped {
    /// # Errors
    /// The kernel's refusal.
    pub fn of(fd: RawFd) -> Result<Self, Error> {
        Shared::of(fd, THREADS).map(Self)
    }

    fn u32(&self, slot: usize, at: usize) -> &AtomicU32 {
        self.0.u32(slot, at)
    }

    fn word(&self, slot: usize, at: usize) -> &AtomicU64 {
        self.0.u64(slot, at)
    }

    fn u64(&self, slot: usize, at: usize) -> u64 {
        self.word(slot, at).load(Ordering::Relaxed)
    }

    /// Stack pointer of the frame of the slot's loop.
    pub fn frame(&self, slot: usize) -> u64 {
        self.u64(slot, offset_of!(Unit, frame))
    }

    /// One more boundary wait of a slot's thread; of too many the first makes room. The loop's frame may have moved.
    pub fn wait_at(&self, slot: usize, wait: Boundary, frame: u64) {
        let place = |i: usize| offset_of!(Unit, waits) + i * size_of::<Boundary>();
        let word = |i: usize, at: usize| self.word(slot, place(i) + at);
        let (ip, sp, turn) = (0, 8, offset_of!(Boundary, turn));
        let read = |i: usize, at: usize| word(i, at).load(Ordering::Relaxed);
        let known = |i: &usize| read(*i, ip) == wait.call.ip && read(*i, sp) == wait.call.sp;
        if (0..WAITS).any(|i| known(&i)) {
            return;
        }
        // One of which only the return was seen is completed.
        let same = (0..WAITS).find(|&i| read(i, ip) == 0 && read(i, turn) == wait.turn);
        let free = || (0..WAITS).find(|&i| read(i, turn) == 0);
        let i = same.or_else(free).unwrap_or(0);
        self.word(slot, offset_of!(Unit, frame)).store(frame, Ordering::Relaxed);
        self.u32(slot, offset_of!(Unit, turned)).fetch_and(!(1 << i), Ordering::Relaxed);
        word(i, turn).store(wait.turn, Ordering::Relaxed);
        word(i, sp).store(wait.call.sp, Ordering::Release);
        word(i, ip).store(wait.call.ip, Ordering::Release);
    }

    /// The unit of a slot, when its thread sleeps or waits for a CPU in the middle of it and its violation was not told, or
    /// only as one for want of a CPU.
    pub fn asleep(&self, slot: usize) -> Option<Asleep> {
        let off = self.u64(slot, offset_of!(Unit, off));
        (off != 0 && self.is_untold(slot)).then(|| self.unit(slot, off))
    }

    /// The unit of a slot ends where its thread sleeps since `off`, if it still does: that place turned out to be between
    /// units, or outside of the loop (`left`). What it was, if its violation was told.
    pub fn end_asleep(&self, slot: usize, off: u64, at: At, left: bool) -> Option<Asleep> {
        let running = self.u32(slot, offset_of!(Unit, running));
        let unit = self.unit(slot, off);
        if running.load(Ordering::Acquire) != 1
            || self.u64(slot, offset_of!(Unit, off)) != off
            || unit.at != at
        {
            return None;
        }
        // Without that none begins when it wakes.
        let since = self.word(slot, offset_of!(Unit, off));
        if left && since.compare_exchange(off, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return None;
        }
        // If it wakes now, what follows is no unit before its next wait.
        running.store(0, Ordering::Release);
        (self.u32(slot, offset_of!(Unit, told)).load(Ordering::Acquire) == TOLD).then_some(unit)
    }

    fn unit(&self, slot: usize, off: u64) -> Asleep {
        let asleep = offset_of!(Unit, asleep);
        Asleep {
            start: self.u64(slot, offset_of!(Unit, start)),
            spent: self.u64(slot, offset_of!(Unit, spent)),
            off,
            away: self.u64(slot, offset_of!(Unit, away)),
            ready: self.u64(slot, offset_of!(Unit, ready)),
            stolen: self.u64(slot, offset_of!(Unit, stolen)),
            halted: self.u64(slot, offset_of!(Unit, halted)),
            halts: self.u32(slot, offset_of!(Unit, halts)).load(Ordering::Relaxed) != 0,
            at: At { ip: self.u64(slot, asleep), sp: self.u64(slot, asleep + 8) },
            best: self.u32(slot, offset_of!(Unit, best)).load(Ordering::Relaxed),
            number: self.u32(slot, offset_of!(Unit, number)).load(Ordering::Relaxed),
        }
    }

    /// Where the thread of a slot sleeps, and since when.
    pub fn sleep(&self, slot: usize) -> (At, u64) {
        let asleep = offset_of!(Unit, asleep);
        let at = At { ip: self.u64(slot, asleep), sp: self.u64(slot, asleep + 8) };
        (at, self.u64(slot, offset_of!(Unit, off)))
    }

    /// The type, as the programs count, that the unit under way in a slot was counted for as one that takes too long, and since
    /// when it runs without what was ours, ns.
    pub fn alarmed(&self, slot: usize) -> Option<(u32, u64)> {
        let word = |at| self.u32(slot, at).load(Ordering::Acquire);
        let counted = word(offset_of!(Unit, running)) == 1 && word(offset_of!(Unit, told)) != UNTOLD;
        let since = || self.u64(slot, offset_of!(Unit, start)) + self.u64(slot, offset_of!(Unit, spent));
        counted.then(|| (word(offset_of!(Unit, counted_as)), since()))
    }

    /// The loop of a slot's thread.
    pub fn of_loop(&self, slot: usize) -> usize {
        self.u32(slot, offset_of!(Unit, of_loop)).load(Ordering::Relaxed) as usize
    }

    fn is_untold(&self, slot: usize) -> bool {
        let word = |at| self.u32(slot, at).load(Ordering::Acquire);
        let told = word(offset_of!(Unit, told)) == TOLD && word(offset_of!(Unit, slow)) == SLOW;
        word(offset_of!(Unit, running)) == 1 && !told
    }

    /// Was the unit of a slot met by nobody yet as one that takes too long?
    pub fn is_new(&self, slot: usize) -> bool {
        self.u32(slot, offset_of!(Unit, told)).load(Ordering::Acquire) == UNTOLD
    }

    /// Takes it upon itself to tell of a unit that was met asleep, as one that is [`super::layout::STARVED`] or [`SLOW`].
    /// `None` when it was told as that already, the programs were first, or it ended; else whether it is to be counted.
    pub fn claim(&self, slot: usize, asleep: &Asleep, how: u32) -> Option<bool> {
        let (told, slow) = (self.u32(slot, offset_of!(Unit, told)), self.u32(slot, offset_of!(Unit, slow)));
        let (said, before) = (told.load(Ordering::Acquire), slow.fetch_max(how, Ordering::AcqRel));
        if said == TOLD && before >= how {
            return None;
        }
        let count = said == UNTOLD;
        if count && told.compare_exchange(UNTOLD, COUNTED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return None;
        }
        if self.u32(slot, offset_of!(Unit, number)).load(Ordering::Relaxed) != asleep.number {
            slow.store(0, Ordering::Release);
            told.store(UNTOLD, Ordering::Release);
            return None;
        }
        if count {
            self.u32(slot, offset_of!(Unit, counted_as)).store(asleep.best, Ordering::Relaxed);
        }
        Some(count)
    }

    /// The claimed unit is told, after `elapsed` ns, and its end is to be.
    pub fn tell(&self, slot: usize, elapsed: u64) {
        self.word(slot, offset_of!(Unit, again)).store(elapsed.saturating_mul(AGAIN), Ordering::Release);
        let next = elapsed.saturating_add(elapsed / NEXT_PART);
        self.word(slot, offset_of!(Unit, next)).store(next, Ordering::Release);
        self.u32(slot, offset_of!(Unit, told)).store(TOLD, Ordering::Release);
    }
}
