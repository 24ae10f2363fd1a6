//! For how much of the time messages are recorded where there are too many of them.
//!
//! A message costs its thread some 170 ns. As long as there are few, all are recorded. A machine that passes
//! more of them than [`PER_CPU`] a second and CPU has them recorded in windows: what its threads have to do
//! with one another shows in each window, and the programs are not attached in between. Without I/O.

const MS: u64 = 1_000_000;
const SECOND: f64 = 1e9;
/// Messages a second that each CPU may be charged with: a sixth of a percent of its time.
pub const PER_CPU: u64 = 10_000;
/// More CPUs than these do not allow for more: somebody has to write all of it down.
const MAX_CPUS: u64 = 16;
/// A window is at least so long, ns, ...
const WINDOW: u64 = 40 * MS;
/// ... and the pause before it at most.
const MAX_PAUSE: u64 = 1000 * MS;
/// While there are too many, the count is looked at so often, ns.
const LOOK: u64 = 40 * MS;
/// What is not used is kept for a later burst, for so long, seconds. A pause ends when that much is left again:
/// to attach and detach interrupts every CPU a few times, so it should be done seldom.
const KEPT: f64 = 0.5;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Record no messages for a while.
    Pause,
    /// Record them again; they were not since then.
    Resume(u64),
}

/// Counts messages and decides. All times are of `CLOCK_MONOTONIC`, ns.
#[derive(Debug)]
pub struct Duty {
    /// Allowed, a second.
    allowed: f64,
    /// Messages that may still be recorded.
    credit: f64,
    /// When it was told last, and of how many in all.
    told: (u64, u64),
    /// Since when messages are recorded, or are not.
    since: u64,
    on: bool,
    /// There were too many the last time.
    busy: bool,
    begin: u64,
    paused: u64,
    /// Most of them a second.
    most: f64,
}

impl Duty {
    pub fn new(cpus: u32, now: u64) -> Self {
        let allowed = (PER_CPU * u64::from(cpus).clamp(1, MAX_CPUS)) as f64;
        let credit = allowed * KEPT;
        let (told, since, begin) = ((now, 0), now, now);
        Self { allowed, credit, told, since, on: true, busy: false, begin, paused: 0, most: 0.0 }
    }

    /// So many messages were recorded in all.
    pub fn step(&mut self, now: u64, messages: u64) -> Option<Turn> {
        let passed = now.saturating_sub(self.told.0) as f64 / SECOND;
        let new = messages.saturating_sub(self.told.1) as f64;
        if passed <= 0.0 {
            return None;
        }
        self.told = (now, messages);
        self.credit = (self.credit + passed * self.allowed - new).min(self.allowed * KEPT);
        let length = now.saturating_sub(self.since);
        if self.on {
            self.busy = new > passed * self.allowed;
            if self.busy && length >= LOOK {
                self.most = self.most.max(new / passed);
            }
            if self.credit >= 0.0 || length < WINDOW {
                return None;
            }
            (self.on, self.since) = (false, now);
            return Some(Turn::Pause);
        }
        if length < MAX_PAUSE && self.credit < self.allowed * KEPT {
            return None;
        }
        self.credit = self.credit.max(0.0);
        let since = std::mem::replace(&mut self.since, now);
        self.paused += now.saturating_sub(since);
        self.on = true;
        Some(Turn::Resume(since))
    }

    /// What [`Self::step`] wanted was done at `now`.
    pub fn began(&mut self, now: u64) {
        self.since = self.since.max(now);
    }

    /// When the next step is due.
    pub fn due(&self) -> u64 {
        if self.on {
            return if self.busy { self.told.0 + LOOK } else { u64::MAX };
        }
        let missing = self.allowed * KEPT - self.credit;
        let enough = self.told.0 + (missing.max(0.0) / self.allowed * SECOND) as u64 + MS;
        enough.min(self.since + MAX_PAUSE)
    }

    /// Since when no messages are recorded, if they are not.
    pub fn paused(&self) -> Option<u64> {
        (!self.on).then_some(self.since)
    }

    /// A sentence about what was not recorded up to `now`, if anything was not.
    pub fn note(&self, now: u64) -> Option<String> {
        let paused = self.paused + self.paused().map_or(0, |since| now.saturating_sub(since));
        if paused == 0 {
            return None;
        }
        let all = now.saturating_sub(self.begin).max(1);
        let share = 100 * all.saturating_sub(paused) / all;
        Some(format!(
            "messages between threads that do not wait were recorded {share} % of the time, since there were up to \
             {:.0} thousand a second (--level messages records all of them)",
            (self.most / 1e3).max(1.0)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages come at `rate` a second for `seconds`, those in a pause uncounted: (share of the time in which they
    /// are recorded, recorded a second, longest pause in ms, windows).
    fn run(duty: &mut Duty, from: u64, rate: u64, seconds: u64) -> (f64, f64, u64, usize) {
        let end = from + seconds * 1000 * MS;
        let (mut now, mut on, mut recorded) = (from, duty.paused().is_none(), 0.0);
        let (mut heard, mut longest, mut windows) = (0, 0, 0);
        let first = duty.told.1 as f64;
        while now < end {
            let next = duty.due().clamp(now + MS, now + 100 * MS);
            if on {
                recorded += (next - now) as f64 * rate as f64 / SECOND;
                heard += next - now;
            }
            now = next;
            match duty.step(now, (first + recorded) as u64) {
                Some(Turn::Pause) => on = false,
                Some(Turn::Resume(since)) => {
                    on = true;
                    windows += 1;
                    longest = longest.max((now - since) / MS);
                }
                None => {}
            }
        }
        let length = (end - from) as f64;
        (heard as f64 / length, recorded * SECOND / length, longest, windows)
    }

    #[test]
    fn few_messages_are_recorded_all() {
        let mut duty = Duty::new(2, 0);
        assert!(run(&mut duty, 0, 2 * PER_CPU - 1000, 20).0 > 0.999);
        assert_eq!(duty.note(20_000 * MS), None);
    }

    #[test]
    fn of_many_as_much_is_recorded_as_is_allowed() {
        for rate in [100_000, 450_000, 2_000_000] {
            let mut duty = Duty::new(2, 0);
            let (share, a_second, pause, windows) = run(&mut duty, 0, rate, 30);
            let allowed = (2 * PER_CPU) as f64;
            assert!(a_second < allowed * 1.2 || pause >= 990, "{rate}: {a_second} a second");
            assert!(a_second > allowed * 0.7, "{rate}: {a_second} a second");
            assert!(windows >= 20 && pause <= 1010, "{rate}: {windows} windows, {pause} ms");
            assert!(share < 1.0 && duty.note(30_000 * MS).is_some());
        }
    }

    #[test]
    fn no_pause_is_longer_than_a_second() {
        let mut duty = Duty::new(1, 0);
        let (share, _, pause, _) = run(&mut duty, 0, 50_000_000, 30);
        assert!((900..=1010).contains(&pause) && share > 0.03, "{share} {pause}");
    }

    #[test]
    fn a_burst_after_silence_is_recorded() {
        let mut duty = Duty::new(2, 0);
        run(&mut duty, 0, 0, 5);
        assert_eq!(run(&mut duty, 5_000 * MS, 0, 1).3, 0);
        // A tenth of a second at double the rate, seen at once.
        assert_eq!(duty.step(6_100 * MS, 12_000), None);
    }

    #[test]
    fn when_it_becomes_quiet_all_are_recorded_again() {
        let mut duty = Duty::new(2, 0);
        run(&mut duty, 0, 500_000, 10);
        run(&mut duty, 10_000 * MS, 1000, 2);
        assert!(run(&mut duty, 12_000 * MS, 1000, 10).0 > 0.999);
    }
}
