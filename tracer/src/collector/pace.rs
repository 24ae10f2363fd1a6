//! Sleeps between tries: a thread sleeps a second, tries something, and sleeps as long again, or longer each time
//! (twice as long, or a second more). What it tries comes just after a sleep, so the thread is to have a burst from
//! just before the next one is expected to end.
//!
//! Without I/O: told of sleeps, it says for whom and when.

use super::hash::FastMap;

const MS: u64 = 1_000_000;
/// Nobody waits for an end that is further away, ns.
const LONGEST_TURN_NS: u64 = 120_000 * MS;
/// So many sleeps make a loop when each is longer than the one before, or all are long.
const MANY: u32 = 2;
/// ... else so many: many a daemon looks around twice a second.
const MANY_SHORT: u32 = 3;
/// Sleeps from this length on are long, ns.
const LONG_NS: u64 = 1_200 * MS;
/// A burst begins so long before the sleep is expected to end, at most, ns.
const EARLY_NS: u64 = 150 * MS;
/// ... and lasts so much longer than the thread was up the last time, twice over, ns.
const LATE_NS: u64 = 150 * MS;
/// ... but at most this, ns.
const LONGEST_NS: u64 = 500 * MS;
/// Bursts for one loop, should the sleep end at another time.
const BURSTS: u32 = 3;
/// Sleeps that vary by chance are of one loop up to this factor, as a fraction: half as long again to either side of a mean
/// is not rare.
const VARY: (u64, u64) = (7, 4);
/// Most threads remembered.
const MOST: usize = 4096;

/// The sleeps of one thread. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Default)]
struct Pace {
    call: u16,
    count: u32,
    /// Sleeps in a row that were about as long as the one before, longer or shorter.
    near: u32,
    /// How long the last three were, the latest first.
    turns: [u64; 3],
    /// When the latest ended, and how long the thread had been up before it.
    end: u64,
    gap: u64,
    bursts: u32,
    /// The latest burst.
    burst: Option<(u64, u64)>,
    /// The end of a sleep and what came after it were recorded: once is enough.
    done: bool,
}

/// Alike but for what timers are late.
fn alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= (a.max(b) / 16).max(20 * MS)
}

impl Pace {
    fn take(&mut self, call: u16, (start, end): (u64, u64)) {
        let (turn, gap) = (end.saturating_sub(start), start.saturating_sub(self.end));
        let last = self.turns[0];
        // Whoever does something for longer than it sleeps does not merely ask.
        let in_turn = self.call == call && gap <= turn / 4;
        let goes_on = in_turn && (turn >= last || alike(turn, last));
        let near = in_turn && turn.max(last) * VARY.1 <= turn.min(last) * VARY.0;
        if near {
            self.count = if goes_on { self.count } else { 0 };
        } else if !goes_on {
            let before = std::mem::take(self);
            (self.done, self.bursts) = (before.done, before.bursts);
        }
        let seen = self.burst.is_some_and(|(from, until)| from <= self.end && start <= until);
        self.done |= (goes_on || near) && seen;
        (self.call, self.count, self.near) = (call, self.count + 1, if near { self.near + 1 } else { 1 });
        self.turns = [turn, self.turns[0], self.turns[1]];
        (self.end, self.gap) = (end, if goes_on || near { gap } else { 0 });
    }

    fn enough(&self) -> bool {
        self.done || self.bursts >= BURSTS
    }

    /// The shortest and the longest of the last three short sleeps, where each is longer or shorter than the one before as
    /// it comes. `Err`: it may be so, and one more is to tell.
    fn by_chance(&self) -> Result<Option<(u64, u64)>, ()> {
        let [c, b, _] = self.turns;
        if self.near < 2 || c.max(b) >= LONG_NS || self.near == 2 && alike(c, b) {
            return Ok(None);
        }
        if self.near < MANY_SHORT {
            return Err(());
        }
        let (least, most) = (self.turns.iter().min().copied(), self.turns.iter().max().copied());
        let (least, most) = (least.unwrap_or(c), most.unwrap_or(c));
        Ok((!alike(least, most) && most < LONG_NS).then_some((least, most)))
    }

    /// How long the next sleep is going to be, ns.
    fn next_turn(&self) -> Option<u64> {
        let [c, b, a] = self.turns;
        let same = self.count > 1 && alike(c, b);
        let many = if same && c < LONG_NS { MANY_SHORT } else { MANY };
        if self.enough() || self.count < many {
            return None;
        }
        let by_factor = u64::try_from(u128::from(c) * u128::from(c) / u128::from(b.max(1))).ok()?;
        let by_step = c + c.saturating_sub(b);
        let next = if same {
            c
        } else if self.count > 2 && alike(c.saturating_sub(b), b.saturating_sub(a)) {
            by_step
        } else {
            by_factor
        };
        (next <= LONGEST_TURN_NS).then_some(next)
    }

    fn due(&self, tid: u32) -> Option<Due> {
        if let Some((least, most)) = self.by_chance().ok()? {
            return (!self.enough()).then(|| Due::within(tid, self.end + self.gap, (least, most)));
        }
        let turn = self.next_turn()?;
        Some(Due::new(tid, (self.end + self.gap, turn), self.gap))
    }

    /// The same of a sleep that has begun and is known to last so long, if it goes on with the ones before.
    fn due_of(&self, tid: u32, call: u16, (start, turn): (u64, u64)) -> Option<Due> {
        let gap = start.saturating_sub(self.end);
        let wanted = self.count > 0 && !self.enough();
        let many = if alike(turn, self.turns[0]) && turn < LONG_NS { MANY_SHORT } else { MANY };
        let goes_on = self.call == call && gap <= self.turns[0] / 4 && self.count + 1 >= many;
        (wanted && goes_on && turn <= LONGEST_TURN_NS).then(|| Due::new(tid, (start, turn), gap))
    }
}

/// A burst that is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Who is to have it.
    pub tid: u32,
    /// When.
    pub at: u64,
    /// How long.
    pub length: u64,
    /// When the sleep is expected to end: too late then.
    end: u64,
}

impl Due {
    /// Around the end of a sleep, after which the thread is up for about `up`.
    fn new(tid: u32, (start, turn): (u64, u64), up: u64) -> Self {
        let (end, early) = (start.saturating_add(turn), (turn / 4).min(EARLY_NS));
        Self { tid, at: end - early, end, length: (early + 2 * up + LATE_NS).min(LONGEST_NS) }
    }

    /// Where a sleep from `start` on is likely to end, which is about as long as others that vary by chance.
    fn within(tid: u32, start: u64, (least, most): (u64, u64)) -> Self {
        let at = start.saturating_add(least - least / 8);
        Self { tid, at, end: start.saturating_add(most), length: LONGEST_NS }
    }
}

/// Looks for such loops.
#[derive(Default)]
pub struct Paces {
    of: FastMap<u32, Pace>,
    due: FastMap<u32, Due>,
}

impl Paces {
    /// A thread slept from `slept.0` to `slept.1` in a call, and nobody woke it.
    pub fn slept(&mut self, tid: u32, call: u16, slept: (u64, u64)) {
        if self.of.len() >= MOST && !self.of.contains_key(&tid) {
            self.of.clear();
            self.due.clear();
        }
        let pace = self.of.entry(tid).or_default();
        pace.take(call, slept);
        match pace.due(tid) {
            Some(due) => self.due.insert(tid, due),
            None => self.due.remove(&tid),
        };
    }

    /// A thread sleeps from `start` on in a call, for `turn` as it asked for: better known than guessed.
    pub fn sleeps(&mut self, tid: u32, call: u16, (start, turn): (u64, u64)) {
        if let Some(due) = self.of.get(&tid).and_then(|p| p.due_of(tid, call, (start, turn))) {
            self.due.insert(tid, due);
        }
    }

    /// The next burst, as it looks at `now`.
    pub fn next(&self, now: u64) -> Option<Due> {
        self.due.values().filter(|d| now < d.end).min_by_key(|d| (d.at, d.tid)).copied()
    }

    /// That burst has begun.
    pub fn begun(&mut self, due: Due, now: u64) {
        self.due.retain(|tid, d| *tid != due.tid && now < d.end);
        if let Some(p) = self.of.get_mut(&due.tid) {
            p.bursts += 1;
            p.burst = Some((now, now + due.length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000 * MS;
    const CALL: u16 = 230;

    /// Sleeps of these lengths, 2 ms apart, from second 10 on; when the last one ended.
    fn sleeps(p: &mut Paces, lengths: &[u64]) -> u64 {
        let mut at = 10 * SECOND;
        for l in lengths {
            p.slept(7, CALL, (at, at + l));
            at += l + 2 * MS;
        }
        at - 2 * MS
    }

    fn expected(lengths: &[u64]) -> Option<u64> {
        let mut p = Paces::default();
        let end = sleeps(&mut p, lengths);
        p.next(end + MS).map(|d| d.end - end - 2 * MS)
    }

    #[test]
    fn the_end_of_the_next_sleep_is_foretold() {
        assert_eq!(expected(&[SECOND]), None, "one is none");
        assert_eq!(expected(&[SECOND, SECOND]), None, "short ones are many");
        assert_eq!(expected(&[SECOND; 3]), Some(SECOND));
        assert_eq!(expected(&[5 * SECOND, 5 * SECOND]), Some(5 * SECOND));
        assert_eq!(expected(&[SECOND, 2 * SECOND]), Some(4 * SECOND));
        assert_eq!(expected(&[SECOND, 2 * SECOND, 4 * SECOND]), Some(8 * SECOND));
        assert_eq!(expected(&[SECOND, 2 * SECOND, 3 * SECOND]), Some(4 * SECOND));
        assert_eq!(expected(&[2 * SECOND, SECOND]), None, "no longer than the one before");
        assert_eq!(expected(&[SECOND, 20 * SECOND]), None, "too far away");
    }

    #[test]
    fn a_sleep_that_is_under_way_need_not_be_guessed() {
        let asked = |lengths: &[u64], gap: u64, turn: u64| {
            let mut p = Paces::default();
            let start = sleeps(&mut p, lengths) + gap;
            p.sleeps(7, CALL, (start, turn));
            p.next(start + MS).map(|d| d.end - start)
        };
        // By chance longer or shorter each time.
        assert_eq!(asked(&[3 * SECOND, 2 * SECOND], MS, 1700 * MS), Some(1700 * MS));
        assert_eq!(asked(&[2 * SECOND], MS, 5 * SECOND), Some(5 * SECOND));
        assert_eq!(asked(&[SECOND], MS, SECOND), None, "short ones are many");
        assert_eq!(asked(&[], MS, 5 * SECOND), None, "it is the first one");
        assert_eq!(asked(&[2 * SECOND], SECOND, 5 * SECOND), None, "it worked in between");
        assert_eq!(asked(&[2 * SECOND], MS, 500 * SECOND), None, "too far away");
    }

    #[test]
    fn sleeps_that_vary_by_chance_have_a_burst_in_which_the_next_one_likely_ends() {
        let mut p = Paces::default();
        let end = sleeps(&mut p, &[900 * MS, 700 * MS]);
        assert_eq!(p.next(end), None, "one more is to tell");
        p.slept(7, CALL, (end + 2 * MS, end + 1002 * MS));
        let from = end + 1004 * MS;
        let due = p.next(from).unwrap();
        assert_eq!((due.at, due.length), (from + 700 * MS * 7 / 8, LONGEST_NS));
        assert_eq!(p.next(from + 1000 * MS), None, "too late");
        // Shorter than any before, but seen.
        p.begun(due, due.at);
        p.slept(7, CALL, (from, from + 650 * MS));
        assert!(p.next(from + 651 * MS).is_some(), "what comes after it is to be seen, too");
        p.slept(7, CALL, (from + 652 * MS, from + 1600 * MS));
        assert_eq!(p.next(from + 1601 * MS), None);
        // One far longer or shorter is of another loop.
        assert_eq!(expected(&[900 * MS, 700 * MS, 300 * MS]), None);
    }

    #[test]
    fn a_burst_is_early_and_lasts_as_long_as_the_thread_is_up() {
        let mut p = Paces::default();
        let end = sleeps(&mut p, &[5 * SECOND; 2]);
        let due = p.next(end).unwrap();
        assert_eq!((due.tid, due.at, due.length), (7, end + 5 * SECOND + 2 * MS - EARLY_NS, 304 * MS));
        assert_eq!(p.next(due.end), None, "too late");
    }

    #[test]
    fn one_end_that_was_recorded_is_enough_and_tries_to_do_so_are_few() {
        let mut p = Paces::default();
        let end = sleeps(&mut p, &[5 * SECOND; 2]);
        let due = p.next(end).unwrap();
        p.begun(due, due.at);
        assert_eq!(p.next(due.at), None);
        let next = end + 2 * MS;
        p.slept(7, CALL, (next, next + 5 * SECOND));
        assert!(p.next(next + 5 * SECOND).is_some(), "what comes after it is to be seen, too");
        let after = next + 5 * SECOND + 2 * MS;
        p.slept(7, CALL, (after, after + 5 * SECOND));
        assert_eq!(p.next(after + 5 * SECOND), None);

        let mut p = Paces::default();
        let mut at = sleeps(&mut p, &[5 * SECOND; 2]);
        for _ in 0..BURSTS {
            let due = p.next(at).unwrap();
            // It began too late.
            p.begun(due, due.end);
            p.slept(7, CALL, (at + 2 * MS, due.end - 10 * MS));
            at = due.end - 10 * MS;
        }
        assert_eq!(p.next(at), None);
    }

    #[test]
    fn who_works_in_between_or_calls_something_else_does_not_try() {
        let mut p = Paces::default();
        for i in 0..5 {
            p.slept(7, CALL, (10 * SECOND + i * 2 * SECOND, 11 * SECOND + i * 2 * SECOND));
            p.slept(8, CALL + (i % 2) as u16, (10 * SECOND + i * SECOND, 11 * SECOND + i * SECOND));
        }
        assert_eq!(p.next(20 * SECOND), None);
    }
}
