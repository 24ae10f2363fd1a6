//! Which waits of an event loop are for its next unit.
//!
//! A wait for the next unit recurs once a turn: between two of them the loop turned. Waits within a unit occur in some
//! turns, or several times in one; that they come after the other within one turn is seen, too, since the step from one
//! to the other proves no turn and the step back proves one. So of the waits that happen once a turn those of most turns
//! are taken, and of two that both do, the first of the turn: a loop waits, then works. A lock before a wait for input
//! (a loop that waits at the end of its body) does not count as such a first.
//!
//! Waits of which two never are in one turn, by the same call of the loop's function or in the same system call, are
//! alternatives.

use super::boundary::{own, runs};
use super::seen::Waited;
use super::waits::Wait;
use pg_event::{ModuleId, Sysno};
use std::collections::HashMap;

/// Most paths told apart in a loop.
const MAX_PATHS: usize = 128;
/// A share of times that counts as always: a stack or two may have been missed.
const ALWAYS: f64 = 0.9;
/// And as never.
const NEVER: f64 = 1.0 - ALWAYS;
/// Least turns with a wait that recurs, and times that a wait followed another.
const LEAST: u64 = 2;
/// An alternative occurs in at least one of this many turns with the wait that it is an alternative to.
const OFTEN: u64 = 20;
/// What turns with a wait weigh when another wait begins these turns (or it may be one of several in a turn), and when that is
/// for a signal but this for input.
const LATER: f64 = 0.1;
const BEHIND_LOCK: f64 = 0.5;

/// What tells a wait apart from others of the loop.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    /// Places of frames in the loop's module, from its function inwards.
    pub own: Vec<u64>,
    /// The modules on the way.
    pub modules: Vec<ModuleId>,
    pub syscall: Sysno,
    pub wait: Wait,
}

impl Key {
    /// Of a wait with these frames from the loop's function inwards.
    pub fn new(way: &[(ModuleId, u64)], (wait, syscall): Waited) -> Self {
        Self { own: own(way).collect(), modules: runs(way.iter()).copied().collect(), syscall, wait }
    }
}

/// How often two waits followed each other, and how often within one turn.
#[derive(Clone, Copy, Default, Debug)]
struct Pair {
    all: u64,
    together: u64,
}

/// Turns and waits of a loop, of all threads that were seen in it.
#[derive(Default, Debug)]
pub(super) struct Evidence {
    numbers: HashMap<Key, usize>,
    /// By number: how many, and in how many turns.
    counts: Vec<(u64, u64)>,
    turns: u64,
    /// By number: how often one came again in what may have been the same turn, or the next.
    doubted: Vec<u64>,
    /// By numbers of an earlier and a later wait.
    pairs: HashMap<(usize, usize), Pair>,
}

/// Where a thread is in a loop.
#[derive(Default, Debug)]
pub(super) struct Clock {
    turn: u64,
    /// How often it may have turned.
    doubts: u64,
    /// Turn and doubts when each path was taken last.
    last: Vec<Option<(u64, u64)>>,
}

impl Clock {
    /// The loop may have turned.
    pub fn doubt(&mut self) {
        self.doubts += 1;
    }
}

impl Evidence {
    /// The loop turned.
    pub fn turn(&mut self, clock: &mut Clock) {
        clock.turn += 1;
        self.turns += 1;
    }

    /// A wait in it.
    pub fn wait(&mut self, clock: &mut Clock, key: Key) {
        let next = self.counts.len();
        if next >= MAX_PATHS && !self.numbers.contains_key(&key) {
            return;
        }
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.counts.push((0, 0));
            self.doubted.push(0);
        }
        clock.last.resize(self.counts.len(), None);
        for (before, last) in clock.last.iter().enumerate() {
            let Some((turn, doubts)) = *last else { continue };
            let same = turn == clock.turn;
            if same && doubts != clock.doubts {
                self.doubted[number] += u64::from(before == number);
                continue;
            }
            let pair = self.pairs.entry((before, number)).or_default();
            pair.all += 1;
            pair.together += u64::from(same);
        }
        let count = &mut self.counts[number];
        count.0 += 1;
        count.1 += u64::from(clock.last[number].is_none_or(|last| last.0 != clock.turn));
        clock.last[number] = Some((clock.turn, clock.doubts));
    }

    fn pair(&self, before: usize, after: usize) -> Pair {
        self.pairs.get(&(before, after)).copied().unwrap_or_default()
    }

    /// Of the times a wait followed another, the share within one turn.
    fn share(&self, before: usize, after: usize) -> f64 {
        let pair = self.pair(before, after);
        pair.together as f64 / pair.all.max(1) as f64
    }

    /// Did a wait follow another several times, and not within one turn?
    fn never(&self, before: usize, after: usize) -> bool {
        self.pair(before, after).all >= LEAST && self.share(before, after) <= NEVER
    }

    /// Does it happen in several turns, and once in each?
    fn recurs(&self, number: usize) -> bool {
        let (all, turns) = self.counts[number];
        let again = self.pair(number, number).together;
        turns >= LEAST && again as f64 <= NEVER * (all - 1) as f64
    }

    /// Does one wait begin most turns in which it and the other occur?
    fn begins(&self, first: usize, second: usize) -> bool {
        let times = self.counts[first].1.min(self.counts[second].1);
        self.share(second, first) <= NEVER
            && self.pair(first, second).together as f64 >= ALWAYS * times as f64
    }

    /// The waits for the next unit.
    pub fn boundaries(&self) -> Vec<&Key> {
        let mut keys: Vec<(&Key, usize)> = self.numbers.iter().map(|(k, &n)| (k, n)).collect();
        keys.sort_by_key(|k| (std::cmp::Reverse(self.counts[k.1].0), k.0));
        keys.retain(|k| self.recurs(k.1));
        let groups = (0..keys.len()).map(|i| self.alternatives(keys[i], &keys[i + 1..]));
        let weighed = groups.map(|g| (self.weight(&g, &keys), g));
        // Of equals the first, whose main wait is the most frequent.
        let best = weighed.reduce(|best, g| if g.0 > best.0 { g } else { best });
        best.map(|(_, group)| group.into_iter().map(|g| g.0).collect()).unwrap_or_default()
    }

    /// A wait with its alternatives among those that are less frequent.
    fn alternatives<'a>(&self, main: (&'a Key, usize), keys: &[(&'a Key, usize)]) -> Vec<(&'a Key, usize)> {
        let mut group = vec![main];
        for &(key, number) in keys {
            let like =
                (key.wait, key.syscall) == (main.0.wait, main.0.syscall) || key.own[0] == main.0.own[0];
            let never = |other: &(&Key, usize)| self.never(other.1, number) && self.never(number, other.1);
            let often = self.counts[number].1 * OFTEN >= self.counts[main.1].1;
            if like && often && group.iter().all(never) {
                group.push((key, number));
            }
        }
        group
    }

    /// Is it unknown of most of its times whether it came once in a turn or several times, as an inner loop turned in between?
    fn is_doubtful(&self, number: usize) -> bool {
        self.doubted[number] * 2 > self.counts[number].0
    }

    /// The share of turns in which a wait of the group occurred, less when the turn is begun by another, or it may come several
    /// times in one.
    fn weight(&self, group: &[(&Key, usize)], keys: &[(&Key, usize)]) -> f64 {
        let turns: u64 = group.iter().map(|g| self.counts[g.1].1).sum();
        let share = (turns as f64 / self.turns.max(1) as f64).min(1.0);
        let Some(&(main, number)) = group.first() else { return 0.0 };
        let before = keys.iter().filter(|k| !group.contains(k) && self.begins(k.1, number));
        let less = before.map(|k| match (k.0.wait, main.wait) {
            (Wait::Signal, Wait::Input) => BEHIND_LOCK,
            _ => LATER,
        });
        let inner = if self.is_doubtful(number) { LATER } else { 1.0 };
        share * less.fold(inner, f64::min)
    }
}
