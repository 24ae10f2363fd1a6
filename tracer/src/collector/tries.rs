//! Children that fail again and again: `until mkdir lock; do sleep 1; done` in a shell. What they ask for shows in
//! the call of theirs that fails, so the next one of them is to have a burst, from just before it is expected.
//!
//! Without I/O: told of children that failed, it says for whose children and when.

use super::hash::FastMap;

const MS: u64 = 1_000_000;
/// So many equal children that failed make a loop.
const MANY: u32 = 2;
/// Loops that turn faster are not waited for, ns.
const FAST_NS: u64 = 400 * MS;
/// A burst begins so long before the next child is expected, at most, ns.
const EARLY_NS: u64 = 150 * MS;
/// ... and lasts so much longer than such a child lived twice over, ns.
const LATE_NS: u64 = 150 * MS;
/// ... but at most this, ns.
const LONGEST_NS: u64 = 500 * MS;
/// Bursts for one loop, should the child come at another time.
const BURSTS: u32 = 3;
/// After so many turns without one that failed the loop is over.
const OVER: u64 = 4;
/// Most loops remembered.
const MOST: usize = 1024;

/// Equal children of one process that failed. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Default)]
struct Loop {
    count: u32,
    /// When the latest began, and how long it lived.
    start: u64,
    life: u64,
    /// From the beginning of one to that of the next.
    turn: u64,
    bursts: u32,
    /// When the latest burst began.
    burst: Option<u64>,
    /// A child was recorded from its beginning: once is enough.
    done: bool,
}

/// A burst that is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Process whose children it is for.
    pub parent: u32,
    /// When.
    pub at: u64,
    /// How long.
    pub length: u64,
    line: u64,
}

/// Looks for such loops.
#[derive(Default)]
pub struct Tries {
    loops: FastMap<(u32, u64), Loop>,
}

impl Tries {
    /// A child of `parent` failed that lived from `start` to `end`. `line` stands for its command line.
    pub fn failed(&mut self, parent: u32, line: u64, start: u64, end: u64) {
        if self.loops.len() >= MOST && !self.loops.contains_key(&(parent, line)) {
            self.loops.clear();
        }
        let l = self.loops.entry((parent, line)).or_default();
        l.done |= l.burst.is_some_and(|b| b <= start);
        l.count += 1;
        l.turn = start.saturating_sub(l.start);
        (l.start, l.life) = (start, end.saturating_sub(start));
    }

    /// The next burst, as it looks at `now`.
    pub fn next(&self, now: u64) -> Option<Due> {
        let due = |(&(parent, line), l): (&(u32, u64), &Loop)| {
            let known = l.count >= MANY && l.turn > 0 && !l.done && l.bursts < BURSTS;
            if !known || now.saturating_sub(l.start) > l.turn.saturating_mul(OVER) {
                return None;
            }
            if l.turn < FAST_NS {
                return Some(Due { parent, at: now, length: LONGEST_NS, line });
            }
            let early = (l.turn / 4).min(EARLY_NS);
            let length = (early + 2 * l.life + LATE_NS).min(LONGEST_NS);
            // The first one that is still to come, its early part included.
            let turns = (now + early).saturating_sub(l.start) / l.turn;
            let at = (l.start + l.turn * (turns + 1)).saturating_sub(early);
            let begun = (l.start + l.turn * turns).saturating_sub(early);
            let at = if turns > 0 && now < begun + early { begun } else { at };
            Some(Due { parent, at, length, line })
        };
        self.loops.iter().filter_map(due).min_by_key(|d| (d.at, d.parent))
    }

    /// That burst has begun.
    pub fn begun(&mut self, due: Due, now: u64) {
        if let Some(l) = self.loops.get_mut(&(due.parent, due.line)) {
            l.bursts += 1;
            l.burst = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Children that fail after 3 ms, one a turn.
    fn fail(t: &mut Tries, line: u64, from: u64, turn: u64, n: u64) -> u64 {
        for i in 0..n {
            t.failed(7, line, from + i * turn, from + i * turn + 3 * MS);
        }
        from + (n - 1) * turn
    }

    #[test]
    fn the_next_child_is_waited_for() {
        let mut t = Tries::default();
        let last = fail(&mut t, 1, 10_000 * MS, 5_000 * MS, 1);
        assert_eq!(t.next(last + MS), None, "one failure is none");
        let last = fail(&mut t, 1, last + 5_000 * MS, 5_000 * MS, 1);
        let next = last + 5_000 * MS;
        let due = t.next(last + 10 * MS).unwrap();
        assert_eq!((due.parent, due.at, due.length), (7, next - 150 * MS, 306 * MS));
        // Also just before it, and again when it is missed.
        assert_eq!(t.next(next - 100 * MS).unwrap().at, next - 150 * MS);
        assert_eq!(t.next(next + 10 * MS).unwrap().at, next + 4_850 * MS);
        assert_eq!(t.next(last + 21_000 * MS), None, "the loop is over");
    }

    #[test]
    fn one_child_that_was_recorded_is_enough() {
        let mut t = Tries::default();
        let last = fail(&mut t, 1, 10_000 * MS, 1_000 * MS, 3);
        let due = t.next(last + 900 * MS).unwrap();
        t.begun(due, last + 900 * MS);
        fail(&mut t, 1, last + 1_000 * MS, 1_000 * MS, 1);
        assert_eq!(t.next(last + 1_100 * MS), None);
    }

    #[test]
    fn a_child_that_does_not_come_is_not_waited_for_without_end() {
        let mut t = Tries::default();
        let mut last = fail(&mut t, 1, 10_000 * MS, 1_000 * MS, 3);
        for _ in 0..BURSTS {
            let due = t.next(last + 900 * MS).unwrap();
            // It began too late.
            t.begun(due, last + 1_001 * MS);
            last = fail(&mut t, 1, last + 1_000 * MS, 1_000 * MS, 1);
        }
        assert_eq!(t.next(last + 900 * MS), None);
    }

    #[test]
    fn fast_loops_get_theirs_at_once_and_others_are_told_apart() {
        let mut t = Tries::default();
        let last = fail(&mut t, 1, 10_000 * MS, 50 * MS, 3);
        assert_eq!(t.next(last + MS).map(|d| d.at), Some(last + MS));
        let mut t = Tries::default();
        for i in 0..20 {
            t.failed(7, i, i * 50 * MS, i * 50 * MS + MS);
        }
        assert_eq!(t.next(1_001 * MS), None, "another command line each time");
    }
}
