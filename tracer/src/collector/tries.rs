//! Children that fail again and again: `until mkdir lock; do sleep 1; done` in a shell. What they ask for shows in
//! the call of theirs that fails, so the next one of them is to have a burst, from just before it is expected. Or
//! children that end well again and again and take most of the time, `while [ -e lock ]; do sleep 1; done`: what is
//! looked at between them shows in the calls of their parent, so that has a burst around the end of the next one.
//!
//! Without I/O: told of children that ended, it says for whom and when.

use super::hash::FastMap;

const MS: u64 = 1_000_000;
/// So many equal children that failed make a loop.
const MANY: u32 = 2;
/// ... and so many that ended well.
const MANY_SAME: u32 = 3;
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

/// Equal children of one process that ended alike. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Default)]
struct Loop {
    count: u32,
    failed: bool,
    /// When the latest began, and how long it lived.
    start: u64,
    life: u64,
    /// From the beginning of one to that of the next.
    turn: u64,
    bursts: u32,
    /// When the latest burst began.
    burst: Option<u64>,
    /// A child was recorded from its beginning, or what its parent did after it: once is enough.
    done: bool,
}

impl Loop {
    /// May the next burst bring something?
    fn wanted(&self) -> bool {
        let many = if self.failed { MANY } else { MANY_SAME };
        // Of children that end well those are of interest that let time pass.
        let pauses = self.failed || self.life > self.turn / 2;
        self.count >= many && self.turn > 0 && pauses && !self.done && self.bursts < BURSTS
    }

    /// What is to be recorded comes one turn after this, or several.
    fn moment(&self) -> u64 {
        self.start + if self.failed { 0 } else { self.life }
    }
}

/// A burst that is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Process whose children it is for, or itself.
    pub parent: u32,
    /// For its children, not for itself.
    pub children: bool,
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
    /// A child of `parent` ended that lived from `start` to `end`. `line` stands for its command line.
    pub fn ended(&mut self, parent: u32, line: u64, (start, end): (u64, u64), failed: bool) {
        if self.loops.len() >= MOST && !self.loops.contains_key(&(parent, line)) {
            self.loops.clear();
        }
        let l = self.loops.entry((parent, line)).or_default();
        if l.failed != failed {
            *l = Loop { failed, ..Loop::default() };
        }
        l.done |=
            l.burst.is_some_and(|b| if failed { b <= start } else { b <= end && end <= b + LONGEST_NS });
        l.count += 1;
        l.turn = start.saturating_sub(l.start);
        (l.start, l.life) = (start, end.saturating_sub(start));
    }

    /// The next burst, as it looks at `now`.
    pub fn next(&self, now: u64) -> Option<Due> {
        let due = |(&(parent, line), l): (&(u32, u64), &Loop)| {
            if !l.wanted() || now.saturating_sub(l.start) > l.turn.saturating_mul(OVER) {
                return None;
            }
            let due = |at, length| Some(Due { parent, children: l.failed, at, length, line });
            if l.turn < FAST_NS {
                return due(now, LONGEST_NS);
            }
            let early = (l.turn / 4).min(EARLY_NS);
            let lasts = if l.failed { l.life } else { l.turn.saturating_sub(l.life) };
            let length = (early + 2 * lasts + LATE_NS).min(LONGEST_NS);
            // The first one that is still to come, its early part included.
            let last = l.moment();
            let turns = (now + early).saturating_sub(last) / l.turn;
            let at = (last + l.turn * (turns + 1)).saturating_sub(early);
            let begun = (last + l.turn * turns).saturating_sub(early);
            due(if turns > 0 && now < begun + early { begun } else { at }, length)
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
            t.ended(7, line, (from + i * turn, from + i * turn + 3 * MS), true);
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
            t.ended(7, i, (i * 50 * MS, i * 50 * MS + MS), true);
        }
        assert_eq!(t.next(1_001 * MS), None, "another command line each time");
    }

    /// Children that sleep for a second, one turn a second and 10 ms. When the last one ended.
    fn sleeps(t: &mut Tries, from: u64, n: u64) -> u64 {
        for i in 0..n {
            let start = from + i * 1_010 * MS;
            t.ended(7, 1, (start, start + 1_000 * MS), false);
        }
        from + n * 1_010 * MS - 10 * MS
    }

    #[test]
    fn who_looks_between_pauses_is_looked_at_then() {
        let mut t = Tries::default();
        let last = sleeps(&mut t, 10_000 * MS, 2);
        assert_eq!(t.next(last + MS), None, "two are none");
        let last = sleeps(&mut t, last + 10 * MS, 3);
        let next = last + 1_010 * MS;
        let due = t.next(last + 20 * MS).unwrap();
        assert_eq!((due.parent, due.children, due.at, due.length), (7, false, next - 150 * MS, 320 * MS));
        t.begun(due, due.at);
        assert!(t.next(due.at + MS).is_some(), "should it have been missed");
        sleeps(&mut t, last + 10 * MS, 1);
        assert_eq!(t.next(next + 20 * MS), None, "what came after one was recorded");
    }

    #[test]
    fn children_that_work_are_no_pauses_and_a_failure_is_another_loop() {
        let mut t = Tries::default();
        for i in 0..20 {
            t.ended(7, 1, (i * 1_000 * MS, i * 1_000 * MS + 100 * MS), false);
        }
        assert_eq!(t.next(19_200 * MS), None, "a job each second");
        let mut t = Tries::default();
        let last = sleeps(&mut t, 10_000 * MS, 5);
        t.ended(7, 1, (last + 10 * MS, last + 20 * MS), true);
        assert_eq!(t.next(last + 30 * MS), None);
    }
}
