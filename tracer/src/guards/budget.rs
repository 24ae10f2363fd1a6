//! How long probes may be set: a state machine without I/O or a clock.
//!
//! Probes may cost a share of the time that guarded threads have a CPU. What they may cost is saved up, and spent in windows
//! in which all of them are set; where they cost less than that, they stay set. A window costs what the probes take in it and
//! what setting them and taking them out takes, both as they were measured in the windows before.

/// What a probe takes of a program that is busy with other things, in terms of what it takes in a short loop: caches and
/// predictions suffer. [`Spent::probed`] counts hits at the price of such a loop (`calibrate.rs`), so without this a
/// budget of 1 % would let the program lose more. A round figure, not measured by itself: with probes PostgreSQL did
/// 0.889 of its transactions and with `--no-probes` 0.959 (pgbench, 8 clients on two CPUs, 45 us of CPU for each), so
/// they took about 3 us of each, where the probe at the boundary of each takes 1.07 in a loop. If it is too great, probes
/// are set for less of the time than they might be.
const BUSY: f64 = 2.5;
/// Setting probes and taking them out costs the guarded threads as well: page faults, and waits while their code changes.
const DISTURBANCE: f64 = 2.0;
/// Of what a window costs, setting probes and taking them out is to be one part in so many at most.
const PARTS: f64 = 4.0;
/// The shortest window and the longest that is made so long only to be worth its price, ns.
const SHORTEST: u64 = 50_000_000;
const LONGEST: u64 = 1_000_000_000;
/// A unit that may take too long is met again within this, ns: samples.
const MET_AGAIN: u64 = 30_000_000;
/// Before so much CPU time of guarded threads with probes, nothing is known of what these cost, ns.
const KNOWN: u64 = 20_000_000;
/// The latest window counts for this much of what is known.
const LATEST: f64 = 0.5;
/// Without a suspicion there is a window when so many windows' price is saved: the rest is for suspicions.
const WORTH: f64 = 2.0;
/// What is not spent is kept up to so many windows' price.
const KEPT: f64 = 3.0;

/// What happened since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// ns of CPU time that guarded threads had.
    pub cpu: u64,
    /// Of that, with all probes set.
    pub lit: u64,
    /// ns that probes took, each as in a short loop.
    pub probed: u64,
    /// A unit was met that may take too long while probes were not set.
    pub suspected: bool,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Set the probes.
    Light,
    /// Take them out.
    Darken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Set, since, and until then at least.
    Lit {
        until: u64,
    },
    Dark,
    /// It was said what to do, and not yet that it is done.
    Turning,
}

/// The account.
pub struct Budget {
    /// Of the CPU time of guarded threads, what probes may take.
    share: f64,
    /// The longest that a unit may take, ns.
    limit: u64,
    /// What may be spent, ns; below 0 it was.
    saved: f64,
    /// What probes take of CPU time while they are set.
    rate: Option<f64>,
    /// What setting them once and taking them out takes, ns.
    flip: f64,
    /// Of that, what setting them took the last time.
    opening: f64,
    /// CPUs that guarded threads have, on average.
    busy: f64,
    /// CPU time with probes, and what these took, in the present window.
    window: (u64, u64),
    state: State,
    last: u64,
    /// The first window is over.
    learnt: bool,
}

impl Budget {
    /// Probes that are set at `now` (ns) may take `share` of the CPU time. A unit may take `limit` ns at most.
    pub fn new(share: f64, limit: u64, now: u64) -> Self {
        let state = State::Lit { until: now + SHORTEST };
        let (saved, rate, flip, busy, window) = (0.0, None, 0.0, 0.0, (0, 0));
        Self { share, limit, saved, rate, flip, busy, window, state, last: now, learnt: false, opening: 0.0 }
    }

    /// The longest that a unit may take is another now.
    pub fn limit(&mut self, ns: u64) {
        self.limit = ns;
    }

    /// What is to be done, after what happened since the last look.
    pub fn look(&mut self, now: u64, spent: Spent) -> Option<Turn> {
        let since = now.saturating_sub(self.last) as f64;
        self.last = now;
        if since > 0.0 {
            // Of the last second or so.
            let weight = (since / 1e9).min(1.0);
            self.busy += (spent.cpu as f64 / since - self.busy) * weight;
        }
        self.saved += self.share * spent.cpu as f64 - BUSY * spent.probed as f64;
        self.saved = self.saved.min(KEPT * self.price());
        self.window.0 += spent.lit;
        self.window.1 += spent.probed;
        let next = match self.state {
            State::Lit { until } if self.saved < self.reserve() && now >= until && self.window.0 >= KNOWN => {
                Turn::Darken
            }
            State::Dark if self.saved >= if spent.suspected { 0.0 } else { WORTH * self.price() } => {
                Turn::Light
            }
            _ => return None,
        };
        if next == Turn::Darken {
            self.learn();
        }
        self.state = State::Turning;
        Some(next)
    }

    /// That was done, at the cost of so many ns of CPU time of ours; probes are set since `now`, or not at all.
    pub fn turned(&mut self, lit: bool, now: u64, took: u64) {
        let took = took as f64 * DISTURBANCE;
        self.saved -= took;
        if lit {
            self.opening = took;
            self.window = (0, 0);
            self.state = State::Lit { until: now + self.length() };
        } else {
            self.flip = self.opening + took;
            self.state = State::Dark;
            // What the first window took is how the cost was learnt: the first suspicion need not wait for it.
            if !std::mem::replace(&mut self.learnt, true) {
                self.saved = self.saved.max(0.0);
            }
        }
    }

    /// How long a window is to be, ns: one in which a unit that takes too long is seen to, and that is worth its price.
    pub fn length(&self) -> u64 {
        let each = self.rate.unwrap_or(0.0) * self.busy;
        let worth = if each > 0.0 { (PARTS - 1.0) * self.flip / each } else { 0.0 };
        let seen = self.limit.saturating_add(self.limit / 4).saturating_add(MET_AGAIN);
        (worth.min(LONGEST as f64) as u64).max(seen).max(SHORTEST)
    }

    /// What a window costs, ns.
    fn price(&self) -> f64 {
        self.flip + self.length() as f64 * self.busy * self.rate.unwrap_or(self.share)
    }

    /// What is left for suspicions: a window, once it is known that there are to be any.
    fn reserve(&self) -> f64 {
        if self.rate.is_some() { self.price() } else { 0.0 }
    }

    fn learn(&mut self) {
        let (lit, probed) = self.window;
        let now = BUSY * probed as f64 / lit.max(1) as f64;
        self.rate = Some(self.rate.map_or(now, |before| before + (now - before) * LATEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const STEP: u64 = 10 * MS;

    /// A program that has `cpus`, of which probes take `rate` while they are set.
    struct Program {
        budget: Budget,
        now: u64,
        lit: bool,
        cpus: f64,
        rate: f64,
        /// One turn takes so long, ns of our CPU time.
        turn: u64,
        suspect: bool,
        /// CPU time, of it lit, and what probes took of it with all that comes of them, ns.
        cpu: f64,
        seen: f64,
        cost: f64,
        windows: u32,
        shortest: u64,
        since: u64,
    }

    impl Program {
        fn new(share: f64, limit: u64, cpus: f64, rate: f64, turn: u64) -> Self {
            let budget = Budget::new(share, limit, 0);
            let (now, lit, suspect, windows, since) = (0, true, false, 1, 0);
            let (cpu, seen, cost, shortest) = (0.0, 0.0, 0.0, u64::MAX);
            Self { budget, now, lit, cpus, rate, turn, suspect, cpu, seen, cost, windows, shortest, since }
        }

        fn run(&mut self, ns: u64) {
            let end = self.now + ns;
            while self.now < end {
                self.now += STEP;
                let cpu = self.cpus * STEP as f64;
                let lit = if self.lit { cpu } else { 0.0 };
                let probed = lit * self.rate / BUSY;
                (self.cpu, self.seen, self.cost) =
                    (self.cpu + cpu, self.seen + lit, self.cost + lit * self.rate);
                let suspected = self.suspect && !self.lit;
                let spent = Spent { cpu: cpu as u64, lit: lit as u64, probed: probed as u64, suspected };
                if let Some(turn) = self.budget.look(self.now, spent) {
                    self.cost += self.turn as f64 * DISTURBANCE;
                    self.lit = turn == Turn::Light;
                    if self.lit {
                        (self.windows, self.since) = (self.windows + 1, self.now);
                    } else {
                        self.shortest = self.shortest.min(self.now - self.since);
                    }
                    self.budget.turned(self.lit, self.now, self.turn);
                }
            }
        }

        fn share(&self) -> f64 {
            self.cost / self.cpu
        }
    }

    #[test]
    fn probes_that_cost_little_stay() {
        let mut p = Program::new(0.01, MS, 1.5, 0.008, MS);
        p.run(60_000 * MS);
        assert!(p.lit && p.windows == 1, "{} windows", p.windows);
        // As they do where nothing runs.
        let mut p = Program::new(0.01, MS, 0.0, 0.0, MS);
        p.run(60_000 * MS);
        assert!(p.lit && p.windows == 1, "{} windows", p.windows);
    }

    #[test]
    fn what_they_take_is_what_they_may() {
        for share in [0.001, 0.01, 0.05] {
            for (rate, cpus) in [(0.08, 1.0), (0.25, 0.3), (0.6, 8.0)] {
                for suspect in [false, true] {
                    let mut p = Program::new(share, MS, cpus, rate, 2 * MS);
                    p.suspect = suspect;
                    p.run(3_000_000 * MS);
                    let took = p.share();
                    let what =
                        format!("{share} of {rate} on {cpus}, {suspect}: {took}, {} windows", p.windows);
                    // All of it is made use of, in windows that cost more than to set and take out probes.
                    assert!((share * 0.8..share * 1.1).contains(&took), "{what}");
                    assert!(p.windows > 5, "{what}");
                    let turns = f64::from(p.windows) * 2.0 * p.turn as f64 * DISTURBANCE;
                    assert!(turns <= p.cost * 0.5, "{what}: {turns} of {}", p.cost);
                    assert!(p.shortest >= SHORTEST, "{what}: {}", p.shortest);
                }
            }
        }
    }

    #[test]
    fn nothing_may_be_spent() {
        let mut p = Program::new(0.0, MS, 1.0, 0.1, MS);
        p.run(60_000 * MS);
        assert!(!p.lit && p.windows == 1, "{} windows", p.windows);
    }

    #[test]
    fn a_suspicion_is_looked_into_at_once_where_something_is_saved() {
        let mut p = Program::new(0.01, MS, 1.0, 0.1, MS);
        p.run(20_000 * MS);
        // A window after another leaves something for a suspicion.
        while p.lit || p.windows < 5 {
            p.run(STEP);
        }
        assert!(p.budget.saved >= 0.0, "{}", p.budget.saved);
        let windows = p.windows;
        p.run(STEP);
        assert_eq!((p.lit, p.windows), (false, windows), "there is no reason to");
        p.suspect = true;
        p.run(STEP);
        assert_eq!((p.lit, p.windows), (true, windows + 1));
        // One after another: what was spent in advance is saved first.
        while p.lit || p.budget.saved >= 0.0 {
            p.run(STEP);
        }
        let windows = p.windows;
        p.run(STEP);
        assert_eq!((p.lit, p.windows), (false, windows), "{}", p.budget.saved);
    }

    #[test]
    fn a_window_is_long_enough_for_a_unit_that_takes_too_long() {
        for limit in [0, MS, 20 * MS, 700 * MS, 5_000 * MS] {
            let mut p = Program::new(0.01, limit, 1.0, 0.1, MS);
            p.run(2_000_000 * MS);
            assert!(p.windows > 2, "{limit}");
            let first = p.budget.length();
            assert!(first >= limit + limit / 4 + MET_AGAIN, "{limit}: {first}");
            assert!((0.008..0.0125).contains(&p.share()), "{limit}: {}", p.share());
        }
    }

    #[test]
    fn what_changes_is_noticed() {
        let mut p = Program::new(0.01, MS, 1.0, 0.2, MS);
        p.run(60_000 * MS);
        assert!(p.windows > 5);
        // Its units become long: probes cost next to nothing and stay.
        p.rate = 0.001;
        p.run(60_000 * MS);
        let windows = p.windows;
        p.run(60_000 * MS);
        assert!(p.lit && p.windows == windows);
        // And short again.
        p.rate = 0.2;
        let (cpu, cost) = (p.cpu, p.cost);
        p.run(60_000 * MS);
        assert!(p.windows > windows + 5);
        assert!((p.cost - cost) / (p.cpu - cpu) < 0.02, "{}", (p.cost - cost) / (p.cpu - cpu));
    }

    #[test]
    fn nothing_is_said_before_the_last_thing_is_done() {
        let mut b = Budget::new(0.01, MS, 0);
        let spent = Spent { cpu: STEP, lit: STEP, probed: STEP / 10, suspected: false };
        let mut now = 0;
        let mut look = |b: &mut Budget, spent| {
            now += STEP;
            b.look(now, spent)
        };
        let first = (0..10).find_map(|_| look(&mut b, spent));
        assert_eq!(first, Some(Turn::Darken));
        let dark = Spent { cpu: 100 * STEP, suspected: true, ..Spent::default() };
        assert!((0..10).all(|_| look(&mut b, dark).is_none()));
        b.turned(false, 0, MS);
        assert_eq!(look(&mut b, dark), Some(Turn::Light));
        assert_eq!(look(&mut b, dark), None);
    }
}
