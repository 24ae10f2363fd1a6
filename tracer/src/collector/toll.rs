//! What bursts may cost the whole machine. While one is under way, every system call of every thread passes the
//! recorder's programs, which takes some 0.4 us each. Where a few daemons retry beside busy servers, a burst waits until
//! it can be afforded, and ends early when more calls pass than was thought. Without I/O.

const SECOND: f64 = 1e9;
/// System calls a second that each CPU may be charged with: a fifth of a percent of its time.
const PER_CPU: f64 = 5_000.0;
/// More CPUs than these do not allow for more.
const MAX_CPUS: u32 = 16;
/// What may be spent at the beginning, seconds' worth.
const FIRST: f64 = 1.0;
/// What is not used is kept for so long, seconds.
const KEPT: f64 = 60.0;
/// How many passed a second is believed half as much after so long, ns: the work may be over.
const BELIEVED: f64 = 5e9;
/// How often the count is looked at, ns.
pub const LOOK: u64 = 10_000_000;

/// Counts and allows. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Debug)]
pub struct Toll {
    /// Allowed, a second.
    allowed: f64,
    credit: f64,
    /// Until when the credit is counted.
    told: u64,
    /// How many had passed by then.
    passed: u64,
    /// How many passed a second, and when that was seen.
    rate: (f64, u64),
    /// Since when a burst is under way, and how many had passed by then.
    burst: Option<(u64, u64)>,
}

impl Toll {
    pub fn new(cpus: u32, now: u64) -> Self {
        let allowed = PER_CPU * f64::from(cpus.clamp(1, MAX_CPUS));
        Self { allowed, credit: allowed * FIRST, told: now, passed: 0, rate: (0.0, now), burst: None }
    }

    /// When a burst of this length can be afforded, by what passed in the last one.
    pub fn affords(&self, now: u64, length: u64) -> u64 {
        let age = now.saturating_sub(self.rate.1) as f64;
        let wanted = self.rate.0 * 0.5f64.powf(age / BELIEVED) * length as f64 / SECOND;
        let missing = wanted.min(self.allowed * KEPT) - self.credit;
        self.told + (missing.max(0.0) / self.allowed * SECOND) as u64
    }

    pub fn begin(&mut self, now: u64) {
        self.burst = Some((now, self.passed));
    }

    /// So many passed in all. Whether a burst that is under way has to end.
    pub fn step(&mut self, now: u64, passed: u64) -> bool {
        let new = passed.saturating_sub(self.passed) as f64;
        let earned = now.saturating_sub(self.told) as f64 / SECOND * self.allowed;
        let most = self.allowed * KEPT;
        self.credit = (self.credit + earned - new).clamp(-most, most);
        (self.told, self.passed) = (now, passed);
        self.burst.is_some() && self.credit < 0.0
    }

    pub fn end(&mut self, now: u64) {
        let Some((since, before)) = self.burst.take() else { return };
        let length = now.saturating_sub(since);
        if length > 0 {
            self.rate = ((self.passed - before) as f64 * SECOND / length as f64, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A burst of 400 ms while `rate` calls a second pass: how long it may last, ms.
    fn burst(toll: &mut Toll, now: u64, rate: u64) -> u64 {
        let before = toll.passed;
        toll.begin(now);
        for ms in (10..=400).step_by(10) {
            if toll.step(now + ms * MS, before + rate * ms / 1000) {
                toll.end(now + ms * MS);
                return ms;
            }
        }
        toll.end(now + 400 * MS);
        400
    }

    #[test]
    fn where_little_passes_bursts_are_as_ever() {
        let mut toll = Toll::new(2, 0);
        let mut now = 0;
        for _ in 0..50 {
            assert!(toll.affords(now, 400 * MS) <= now + 2_000 * MS);
            now += 2_000 * MS;
            toll.step(now, toll.passed);
            assert_eq!(burst(&mut toll, now, 40_000), 400);
            now += 400 * MS;
        }
    }

    #[test]
    fn beside_busy_servers_one_ends_early_and_the_next_waits() {
        let mut toll = Toll::new(2, 0);
        let length = burst(&mut toll, 0, 500_000);
        assert_eq!(length, 30, "10,000 calls at the beginning");
        let at = toll.affords(30 * MS, 400 * MS);
        // 200,000 of them, at 10,000 a second; but the servers may be idle by then.
        assert!((19_000 * MS..21_000 * MS).contains(&at), "{at}");
        toll.step(at, toll.passed);
        assert!(toll.affords(at, 400 * MS) <= at);
        assert_eq!(burst(&mut toll, at, 500_000), 400);
    }

    #[test]
    fn what_passed_is_forgotten() {
        let mut toll = Toll::new(1, 0);
        burst(&mut toll, 0, 2_000_000);
        let all = toll.affords(10 * MS, 400 * MS);
        toll.step(20_000 * MS, toll.passed);
        assert!(toll.affords(20_000 * MS, 400 * MS) < all / 2 + 20_000 * MS);
        // It never waits for more than is kept.
        let mut toll = Toll::new(1, 0);
        burst(&mut toll, 0, u64::from(u32::MAX));
        assert!(toll.affords(10 * MS, 400 * MS) < u64::MAX);
        toll.step(500_000 * MS, toll.passed);
        assert!(toll.affords(500_000 * MS, 400 * MS) <= 500_000 * MS);
    }
}
