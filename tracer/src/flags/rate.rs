//! How much of a flag can be watched at a bearable cost. Every access to a watched address costs the target about
//! nine microseconds; a loop that does nothing but ask makes millions of them. So a flag that is touched too often is
//! watched for writes only, and one that is written too often not at all; for a moment each second all is
//! watched again, so that who asks stays known.

/// What is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Watched {
    /// Nothing.
    Nothing,
    /// Writes.
    Writes,
    /// Reads and writes.
    All,
}

/// So many accesses in a row may be recorded.
const BURST: f64 = 300.0;
/// And so many a second in the long run: about 1 % of the time of one CPU, with what is done at each access.
const PER_SECOND: f64 = 500.0;
/// In a moment in which all is watched again, so many.
const TRIAL: f64 = 50.0;
/// These moments come this often, ns.
const AGAIN: u64 = 1_000_000_000;

/// Decides what is watched of one flag. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Clone, Debug)]
pub struct Rate {
    watched: Watched,
    /// How many accesses more would be too many.
    room: f64,
    /// When `room` was reckoned.
    at: u64,
    /// When less was watched last.
    since: u64,
    /// Since when not all was watched, the first time.
    limited: Option<u64>,
    /// The least that was watched.
    least: Watched,
}

impl Rate {
    /// Everything is watched from now on.
    pub fn new(now: u64) -> Self {
        Self { watched: Watched::All, room: BURST, at: now, since: now, limited: None, least: Watched::All }
    }

    /// What is watched.
    pub fn watched(&self) -> Watched {
        self.watched
    }

    /// Since when not every access was recorded, and the least that was watched.
    pub fn limited(&self) -> Option<(u64, Watched)> {
        self.limited.map(|t| (t, self.least))
    }

    fn refill(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at) as f64 / 1e9;
        self.room = (self.room + passed * PER_SECOND).min(BURST);
        self.at = self.at.max(now);
    }

    /// An access was recorded. Returns what is to be watched from now on, when that changes.
    pub fn hit(&mut self, now: u64) -> Option<Watched> {
        self.refill(now);
        self.room -= 1.0;
        if self.room > 0.0 || self.watched == Watched::Nothing {
            return None;
        }
        self.watched = if self.watched == Watched::All { Watched::Writes } else { Watched::Nothing };
        self.least = self.least.min(self.watched);
        self.limited.get_or_insert(now);
        self.since = now;
        // What is still on its way must not count against the writes.
        self.room = BURST;
        Some(self.watched)
    }

    /// Time passed. Returns what is to be watched from now on, when that changes.
    pub fn tick(&mut self, now: u64) -> Option<Watched> {
        if self.watched == Watched::All || now.saturating_sub(self.since) < AGAIN {
            return None;
        }
        self.refill(now);
        self.watched = if self.watched == Watched::Nothing { Watched::Writes } else { Watched::All };
        self.since = now;
        self.room = TRIAL;
        self.at = now;
        Some(self.watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_napping_reader_is_recorded_in_full() {
        let mut r = Rate::new(0);
        for i in 0..60_000u64 {
            assert_eq!(r.hit(i * 2 * MS), None, "500 a second");
            assert_eq!(r.tick(i * 2 * MS), None, "nothing to change");
        }
        assert_eq!(r.limited(), None);
    }

    #[test]
    fn a_spinning_reader_costs_little() {
        let mut r = Rate::new(0);
        let (mut now, mut recorded, mut times_all) = (0u64, 0u32, 0);
        while now < 20_000 * MS {
            if r.tick(now) == Some(Watched::All) {
                times_all += 1;
            }
            if r.watched() == Watched::All {
                r.hit(now);
                recorded += 1;
                now += 9_000;
            } else {
                now += MS;
            }
        }
        assert!((300..2000).contains(&recorded), "{recorded}");
        assert!((18..=20).contains(&times_all), "once a second: {times_all}");
        assert_eq!(r.limited().map(|l| l.1), Some(Watched::Writes));
    }

    #[test]
    fn a_counter_is_let_alone() {
        let mut r = Rate::new(0);
        let mut changes = Vec::new();
        for i in 0..3000 {
            changes.extend(r.hit(i * 9_000));
        }
        assert_eq!(changes, [Watched::Writes, Watched::Nothing]);
        assert_eq!(r.tick(1500 * MS), Some(Watched::Writes));
        assert_eq!(r.tick(1600 * MS), None, "not all at once");
        assert_eq!(r.tick(2500 * MS), Some(Watched::All));
    }
}
