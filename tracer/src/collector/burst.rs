//! Adaptive detail: threads of the focus that wait shortly again and again in the same system call (a retry or
//! yield loop) get the level `syscalls` for a moment, so that the recording shows what they retry.
//!
//! Without I/O: told of intervals and of the time, it says when a burst begins and ends.

use super::hash::FastMap;

const MS: u64 = 1_000_000;
/// Length of a burst, ns.
pub const BURST_NS: u64 = 200 * MS;
/// From the beginning of a burst to that of the next: at most a tenth of the time is spent in one.
pub const PERIOD_NS: u64 = 2_000 * MS;
/// A thread has its turn again after this.
const AGAIN_NS: u64 = 10_000 * MS;
/// Over this span waits are counted.
const SPAN_NS: u64 = 500 * MS;
/// So many of them within the span make a loop.
const MANY: u32 = 10;
/// Longer waits are no retries.
const SHORT_NS: u64 = 100 * MS;
/// Threads in one burst.
const AT_ONCE: usize = 8;
/// Threads looked at.
const MOST: usize = 4096;

#[derive(Default)]
struct Seen {
    call: u16,
    count: u32,
    since: u64,
    loops: bool,
    burst: Option<u64>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begin a burst of these threads (tids).
    Begin(Vec<u32>),
    /// End it.
    End(Vec<u32>),
}

/// Chooses threads and moments. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Default)]
pub struct Bursts {
    seen: FastMap<u32, Seen>,
    found: bool,
    running: Option<(u64, Vec<u32>)>,
    next: u64,
    /// A thread has one burst only.
    once: bool,
    /// Bursts so far.
    pub count: u64,
}

impl Bursts {
    /// `once`: each thread has one burst only. For a recording of the whole machine: some thread always polls,
    /// and while programs are on system calls, every one of the machine takes longer.
    pub fn new(once: bool) -> Self {
        Self { once, ..Self::default() }
    }

    /// A thread of the focus came back from an interval off the CPU in a call. `given_up`: nobody woke it
    /// from there (a time-out, `sched_yield`).
    pub fn interval(&mut self, tid: u32, call: u16, given_up: bool, start: u64, end: u64) {
        if !given_up || end.saturating_sub(start) > SHORT_NS {
            return;
        }
        if self.seen.len() >= MOST && !self.seen.contains_key(&tid) {
            self.seen.clear();
        }
        let s = self.seen.entry(tid).or_default();
        if s.call != call || end.saturating_sub(s.since) > SPAN_NS {
            (s.call, s.count, s.since) = (call, 0, start);
        }
        s.count += 1;
        if s.count >= MANY
            && !s.loops
            && s.burst.is_none_or(|at| !self.once && end.saturating_sub(at) > AGAIN_NS)
        {
            s.loops = true;
            self.found = true;
        }
    }

    /// What is to be done now.
    pub fn step(&mut self, now: u64) -> Option<Step> {
        if let Some((until, _)) = self.running {
            return if now >= until { self.end() } else { None };
        }
        if !self.found || now < self.next {
            return None;
        }
        let mut chosen: Vec<(u32, u32)> =
            self.seen.iter().filter(|(_, s)| s.loops).map(|(&tid, s)| (s.count, tid)).collect();
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        self.found = chosen.len() > AT_ONCE;
        chosen.truncate(AT_ONCE);
        let tids: Vec<u32> = chosen.into_iter().map(|(_, tid)| tid).collect();
        for tid in &tids {
            if let Some(s) = self.seen.get_mut(tid) {
                (s.loops, s.burst) = (false, Some(now));
            }
        }
        self.running = Some((now + BURST_NS, tids.clone()));
        self.next = now + PERIOD_NS;
        self.count += 1;
        Some(Step::Begin(tids))
    }

    /// When the burst under way is to end.
    pub fn ends(&self) -> Option<u64> {
        self.running.as_ref().map(|(until, _)| *until)
    }

    /// End the burst under way, if there is one.
    pub fn end(&mut self) -> Option<Step> {
        self.running.take().map(|(_, tids)| Step::End(tids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(b: &mut Bursts, tid: u32, from: u64, n: u64) -> u64 {
        for i in 0..n {
            b.interval(tid, 35, true, from + i * 10 * MS, from + (i + 1) * 10 * MS);
        }
        from + n * 10 * MS
    }

    #[test]
    fn a_retry_loop_gets_one_burst_at_a_time() {
        let mut b = Bursts::default();
        let now = retries(&mut b, 7, 0, 20);
        assert_eq!(b.step(now), Some(Step::Begin(vec![7])));
        assert_eq!(b.step(now + BURST_NS - 1), None);
        assert_eq!(b.step(now + BURST_NS), Some(Step::End(vec![7])));
        // Another one waits for its turn, the same one longer.
        let now = retries(&mut b, 7, now + BURST_NS, 20);
        assert_eq!(b.step(now + PERIOD_NS), None);
        retries(&mut b, 8, now, 20);
        assert_eq!(b.step(now), None);
        assert_eq!(b.step(now + PERIOD_NS), Some(Step::Begin(vec![8])));
        assert_eq!((b.end(), b.end(), b.count), (Some(Step::End(vec![8])), None, 2));
    }

    #[test]
    fn once_is_once() {
        for (once, again) in [(false, Some(Step::Begin(vec![7]))), (true, None)] {
            let mut b = Bursts::new(once);
            let now = retries(&mut b, 7, 0, 20);
            assert_eq!(b.step(now), Some(Step::Begin(vec![7])));
            assert_eq!(b.step(now + BURST_NS), Some(Step::End(vec![7])));
            let now = retries(&mut b, 7, now + 2 * AGAIN_NS, 20);
            assert_eq!(b.step(now), again);
        }
    }

    #[test]
    fn who_is_woken_or_waits_long_does_not_loop() {
        let mut b = Bursts::default();
        for i in 0..100 {
            b.interval(7, 35, false, i * 10 * MS, (i + 1) * 10 * MS);
            b.interval(8, 35, true, i * 200 * MS, (i + 1) * 200 * MS);
            b.interval(9, i as u16, true, i * 10 * MS, (i + 1) * 10 * MS);
        }
        assert_eq!(b.step(u64::MAX), None);
    }
}
