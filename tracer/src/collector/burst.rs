//! Adaptive detail: threads of the focus that wait shortly again and again in the same system call (a retry or
//! yield loop) get the level `syscalls` for a moment, so that the recording shows what they retry. So do threads
//! that sleep longer between tries (`pace.rs`), threads that never wait but are found on the CPU in the same call, or
//! at the same few instructions, all the time, and children that fail again and again (`tries.rs`).
//!
//! Without I/O: told of intervals and of the time, it says when a burst begins and ends.

use super::hash::FastMap;
use super::on_cpu::{OnCpu, Place, Turns};
use super::pace::Paces;
use super::toll::{self, Toll};
use super::tries::Tries;

const MS: u64 = 1_000_000;
/// Length of a burst, ns; a loop that turns slowly has a longer one, for a few turns.
pub const BURST_NS: u64 = 200 * MS;
/// ... but at most this.
const LONGEST_NS: u64 = 500 * MS;
/// ... and this many turns.
const TURNS: u64 = 4;
/// From the beginning of a burst to that of the next: at most a tenth of the time is spent in one.
pub const PERIOD_NS: u64 = 2_000 * MS;
/// A thread has its turn again after this.
const AGAIN_NS: u64 = 10_000 * MS;
/// Over this span waits are counted.
const SPAN_NS: u64 = 2_000 * MS;
/// So many of them within the span make a loop.
const MANY: u32 = 10;
/// Longer waits are no retries.
const SHORT_NS: u64 = 150 * MS;
/// Calls to sleep between tries in (x86-64): poll, select, nanosleep, epoll_wait (of a program that is all callbacks),
/// clock_nanosleep, pselect6, ppoll, epoll_pwait, epoll_pwait2.
const SLEEPS: &[u16] = &[7, 23, 35, 230, 232, 270, 271, 281, 441];
/// Threads in one burst, at most (`BURSTING` of `bpf/state.h`).
pub const AT_ONCE: usize = 8;
/// Threads looked at.
const MOST: usize = 4096;

#[derive(Default)]
struct Seen {
    call: u16,
    count: u32,
    since: u64,
    /// Of the latest interval.
    last: u64,
    loops: bool,
    burst: Option<u64>,
    on_cpu: OnCpu,
}

impl Seen {
    /// It loops, as was seen just now: is that news?
    fn found(&mut self, once: bool, now: u64) -> bool {
        let news = !self.loops && self.burst.is_none_or(|at| !once && now.saturating_sub(at) > AGAIN_NS);
        self.loops |= news;
        news
    }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begin a burst of these threads (tids).
    Begin(Vec<u32>),
    /// Begin a burst of the children of this process.
    BeginChildren(u32),
    /// End it.
    End,
}

/// Chooses threads and moments. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Default)]
pub struct Bursts {
    seen: FastMap<u32, Seen>,
    found: bool,
    /// The burst before was of such loops: those that sleep longer have the next one.
    after_found: bool,
    running: Option<(u64, Vec<u32>)>,
    next: u64,
    tries: Tries,
    paces: Paces,
    /// A thread has one burst only.
    once: bool,
    /// What bursts may cost those who have none.
    toll: Option<Toll>,
    /// How long the next burst of what was found is to be, once that is affordable.
    wanted: u64,
    /// Bursts so far.
    pub count: u64,
    /// How long those took that ended, and when the one under way began; ns.
    took: u64,
    began: u64,
}

impl Bursts {
    /// `once`: each thread has one burst only. For a recording of the whole machine: some thread always polls,
    /// and while programs are on system calls, every one of the machine takes longer.
    pub fn new(once: bool) -> Self {
        Self { once, ..Self::default() }
    }

    /// ... which also wait until what they cost is allowed.
    pub fn with_toll(self, toll: Toll) -> Self {
        Self { toll: Some(toll), ..self }
    }

    /// A thread of the focus came back from an interval off the CPU in a call. `given_up`: nobody woke it
    /// from there (a time-out, `sched_yield`).
    pub fn interval(&mut self, tid: u32, call: u16, given_up: bool, start: u64, end: u64) {
        let short = end.saturating_sub(start) <= SHORT_NS;
        // Where everything is recorded, many a daemon wakes up once a second.
        if given_up && !short && !self.once && SLEEPS.contains(&call) {
            self.paces.slept(tid, call, (start, end));
        }
        if !given_up || !short {
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
        s.last = end;
        if s.count >= MANY {
            self.found |= s.found(self.once, end);
        }
    }

    /// A thread of the focus is in a call since `start` that waits for so long at most.
    pub fn waits(&mut self, tid: u32, call: u16, start: u64, timeout: u64) {
        if !self.once && SLEEPS.contains(&call) {
            self.paces.sleeps(tid, call, (start, timeout));
        }
    }

    /// A thread of the focus was on the CPU.
    pub fn sample(&mut self, tid: u32, place: Place, now: u64) {
        if self.seen.len() >= MOST && !self.seen.contains_key(&tid) {
            self.seen.clear();
        }
        let s = self.seen.entry(tid).or_default();
        // A thread that makes no calls has none to be recorded: that it makes none is all there is to see, and
        // not worth the price where everything is recorded.
        match s.on_cpu.take(place, now, !self.once) {
            Some(Turns::Loops) => self.found |= s.found(self.once, now),
            // Where everything is recorded, some thread always works.
            Some(Turns::May) if !self.once => self.found |= s.found(true, now),
            _ => {}
        }
    }

    /// A child of a process of the focus ended, which lived from `lived.0` to `lived.1`. `line` stands for its command
    /// line.
    pub fn child_ended(&mut self, parent: u32, line: u64, lived: (u64, u64), failed: bool) {
        // Where everything is recorded, some supervisor always restarts something.
        if !self.once {
            self.tries.ended(parent, line, lived, failed);
        }
    }

    /// What is to be done now. `passed`: so many system calls of everybody passed the programs of bursts so far, of
    /// whatever thread.
    pub fn step(&mut self, now: u64, passed: u64) -> Option<Step> {
        let dear = self.toll.as_mut().is_some_and(|t| t.step(now, passed));
        if let Some((until, _)) = self.running {
            if now >= until {
                return self.end(now);
            }
            return if dear { self.cut(now) } else { None };
        }
        if now < self.next || self.toll.as_ref().is_some_and(|t| t.affords(now, self.wanted) > now) {
            return None;
        }
        if let Some(due) = self.tries.next(now).filter(|d| d.at <= now) {
            self.tries.begun(due, now);
            let own = self.begin(vec![due.parent], now, due.length);
            return Some(if due.children { Step::BeginChildren(due.parent) } else { own });
        }
        // Where many a daemon sleeps for a moment, one of them is always due: they take turns with loops.
        let loops = self.found && !self.after_found;
        if let Some(due) = self.paces.next(now).filter(|d| d.at <= now && !loops) {
            self.after_found = false;
            self.paces.begun(due, now);
            return Some(self.begin(vec![due.tid], now, due.length));
        }
        if !self.found {
            return None;
        }
        let mut chosen: Vec<(u32, u32)> =
            self.seen.iter().filter(|(_, s)| s.loops).map(|(&tid, s)| (s.count, tid)).collect();
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        (self.found, self.after_found) = (chosen.len() > AT_ONCE, true);
        chosen.truncate(AT_ONCE);
        let tids: Vec<u32> = chosen.into_iter().map(|(_, tid)| tid).collect();
        let mut length = BURST_NS;
        for tid in &tids {
            let Some(s) = self.seen.get_mut(tid) else { continue };
            let turn = s.last.saturating_sub(s.since) / u64::from(s.count.max(1));
            length = length.max((turn * TURNS).min(LONGEST_NS));
            (s.loops, s.burst) = (false, Some(now));
        }
        Some(self.begin(tids, now, length))
    }

    fn begin(&mut self, tids: Vec<u32>, now: u64, length: u64) -> Step {
        if let Some(toll) = &mut self.toll {
            toll.begin(now);
        }
        self.wanted = length;
        self.running = Some((now + length, tids.clone()));
        self.next = now + PERIOD_NS.max(10 * length);
        (self.count, self.began) = (self.count + 1, now);
        Step::Begin(tids)
    }

    /// When [`Self::step`] has something to do: the burst under way is to end, or one is expected.
    pub fn due(&self, now: u64) -> Option<u64> {
        if let Some((until, _)) = self.running {
            return Some(if self.toll.is_some() { until.min(now + toll::LOOK) } else { until });
        }
        let expected = [self.tries.next(now).map(|d| d.at), self.paces.next(now).map(|d| d.at)];
        expected.into_iter().flatten().min().map(|at| at.max(self.next))
    }

    /// Is one under way?
    pub fn running(&self) -> bool {
        self.running.is_some()
    }

    /// End the burst under way, if there is one.
    pub fn end(&mut self, now: u64) -> Option<Step> {
        if let Some(toll) = &mut self.toll {
            toll.end(now);
        }
        self.running.take().map(|_| {
            self.took += now.saturating_sub(self.began);
            Step::End
        })
    }

    /// What was recorded in addition, for whoever reads the recording; nothing without a burst.
    pub fn note(&self) -> Option<String> {
        let times = match self.count {
            0 => return None,
            1 => "once".to_owned(),
            n => format!("in {n} short spans"),
        };
        let ms = (self.took + MS / 2) / MS;
        let long = if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", (ms + 500) / 1000) };
        Some(format!(
            "{times}, for {long} in all, the single system calls of threads that seemed to try the same thing again and \
             again were recorded as well, to show what they tried and how it ended"
        ))
    }

    /// End it since it costs too much: its threads have another one later.
    fn cut(&mut self, now: u64) -> Option<Step> {
        for tid in self.running.iter().flat_map(|(_, tids)| tids) {
            if let Some(s) = self.seen.get_mut(tid) {
                (s.loops, s.burst) = (true, None);
                self.found = true;
            }
        }
        self.end(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::on_cpu::SAMPLES;
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
        assert_eq!(b.step(now, 0), Some(Step::Begin(vec![7])));
        assert_eq!(b.step(now + BURST_NS - 1, 0), None);
        assert_eq!(b.step(now + BURST_NS, 0), Some(Step::End));
        // Another one waits for its turn, the same one longer.
        let now = retries(&mut b, 7, now + BURST_NS, 20);
        assert_eq!(b.step(now + PERIOD_NS, 0), None);
        retries(&mut b, 8, now, 20);
        assert_eq!(b.step(now, 0), None);
        assert_eq!(b.step(now + PERIOD_NS, 0), Some(Step::Begin(vec![8])));
        assert!(
            b.note().is_some_and(|n| n.starts_with("in 2 short spans, for 200 ms in all, ")),
            "one goes on"
        );
        let end = now + PERIOD_NS + 400 * MS;
        assert_eq!((b.end(end), b.end(end), b.count), (Some(Step::End), None, 2));
        assert!(b.note().is_some_and(|n| n.contains("for 600 ms in all")), "{:?}", b.note());
        assert_eq!(Bursts::default().note(), None);
    }

    /// Daemons that sleep a second or so are always due; a loop that turns fast has its burst all the same, and so have they.
    #[test]
    fn daemons_that_sleep_longer_do_not_keep_a_loop_from_its_burst() {
        let mut b = Bursts::default();
        let (mut now, mut begun) = (0, Vec::new());
        for i in 1..=200u64 {
            b.interval(7, 35, true, now, now + 99 * MS);
            now += 100 * MS;
            if i % 5 == 0 {
                (20..24).for_each(|tid| b.interval(tid, 230, true, now - 495 * MS, now));
            }
            if let Some(Step::Begin(tids)) = b.step(now, 0) {
                begun.extend(tids);
            }
        }
        assert!(begun.contains(&7) && begun.iter().any(|t| *t >= 20), "{begun:?}");
    }

    #[test]
    fn one_that_costs_too_much_ends_early_and_is_made_up_for() {
        let mut b = Bursts::new(true).with_toll(Toll::new(1, 0));
        let now = retries(&mut b, 7, 0, 20);
        assert_eq!(b.step(now, 0), Some(Step::Begin(vec![7])));
        assert_eq!(b.due(now), Some(now + toll::LOOK), "it is looked at");
        assert_eq!(b.step(now + 10 * MS, 4_000), None);
        assert_eq!(b.step(now + 20 * MS, 10_000), Some(Step::End));
        // It would have been 100,000 calls; 5,000 a second are allowed.
        assert_eq!(b.step(now + PERIOD_NS, 10_000), None);
        assert_eq!(b.step(now + 15_000 * MS, 10_000), Some(Step::Begin(vec![7])));
        assert_eq!(b.step(now + 15_100 * MS, 60_000), None);
        assert_eq!(b.step(now + 15_200 * MS, 110_000), Some(Step::End));
        let now = retries(&mut b, 7, now + 40_000 * MS, 20);
        assert_eq!(b.step(now, 110_000), None, "once is once");
    }

    #[test]
    fn once_is_once() {
        for (once, again) in [(false, Some(Step::Begin(vec![7]))), (true, None)] {
            let mut b = Bursts::new(once);
            let now = retries(&mut b, 7, 0, 20);
            assert_eq!(b.step(now, 0), Some(Step::Begin(vec![7])));
            assert_eq!(b.step(now + BURST_NS, 0), Some(Step::End));
            let now = retries(&mut b, 7, now + 2 * AGAIN_NS, 20);
            assert_eq!(b.step(now, 0), again);
        }
    }

    #[test]
    fn who_polls_without_waiting_or_turns_in_place_is_found() {
        let spin = |place: &dyn Fn(u64) -> Place| {
            let mut b = Bursts::default();
            for i in 0..u64::from(SAMPLES) {
                b.sample(7, place(i), i * 10 * MS);
            }
            b.step(10_000 * MS, 0)
        };
        let begun = Some(Step::Begin(vec![7]));
        let far = |i: u64| Place::User(0x1000 + i % 20 * 0x1_0000);
        assert_eq!(
            spin(&|i| if i % 2 == 0 { Place::Call(7) } else { far(i) }),
            begun,
            "poll without a time-out"
        );
        assert_eq!(spin(&|i| Place::User(0x1000 + i % 5)), begun, "a loop of a few instructions");
        assert_eq!(spin(&|i| Place::User(0x1000 + i % 2 * 0x10_0000)), begun, "one that calls a function");
        assert_eq!(
            spin(&|i| if i == 9 { Place::Kernel } else { Place::User(0x1000) }),
            begun,
            "an interrupt"
        );
        assert_eq!(spin(&far), None, "it computes");
        assert_eq!(
            spin(&|i| Place::Call([7, 288][(i % 2) as usize])),
            begun,
            "poll, then accept, which fails"
        );
        assert_eq!(spin(&|i| if i % 2 == 0 { Place::Call(16) } else { far(i) }), None, "it controls devices");
        let mut b = Bursts::default();
        for i in 0..1000 {
            b.sample(7, Place::User(0x1000), i * 200 * MS);
        }
        assert_eq!(b.step(u64::MAX, 0), None, "it is seldom on the CPU");
    }

    #[test]
    fn who_writes_all_the_time_has_one_burst_as_that_may_fail() {
        for (once, first) in [(false, Some(Step::Begin(vec![7]))), (true, None)] {
            let mut b = Bursts::new(once);
            for i in 0..u64::from(SAMPLES) {
                let place = if i % 2 == 0 { Place::Call(1) } else { Place::User(0x1000 + i % 20 * 0x1_0000) };
                b.sample(7, place, i * 10 * MS);
            }
            assert_eq!(b.step(10_000 * MS, 0), first);
            b.end(10_000 * MS);
            for i in 0..u64::from(SAMPLES) {
                b.sample(7, Place::Call(1), 30_000 * MS + i * 10 * MS);
            }
            assert_eq!(b.step(40_000 * MS, 0), None, "it works");
        }
    }

    #[test]
    fn a_slow_loop_gets_a_longer_burst() {
        let mut b = Bursts::default();
        for i in 0..15 {
            b.interval(7, 230, true, i * 100 * MS, (i + 1) * 100 * MS);
        }
        assert_eq!(b.step(1500 * MS, 0), Some(Step::Begin(vec![7])));
        assert_eq!(b.due(0), Some(1500 * MS + 4 * 100 * MS));
    }

    #[test]
    fn who_sleeps_a_second_between_tries_gets_a_burst_when_the_next_sleep_ends() {
        let second = 1000 * MS;
        for once in [false, true] {
            let mut b = Bursts::new(once);
            for i in 0..3 {
                b.interval(7, 230, true, 5 * second + i * (second + MS), 6 * second + i * (second + MS));
            }
            let now = 8 * second + 3 * MS;
            assert_eq!(b.step(now, 0), None);
            let at = 9 * second + 3 * MS - 150 * MS;
            assert_eq!(b.due(now), (!once).then_some(at), "not where everything is recorded");
            assert_eq!(b.step(at, 0), (!once).then_some(Step::Begin(vec![7])));
            assert_eq!(b.step(at + 302 * MS, 0), (!once).then_some(Step::End));
            // The next one is known to last longer.
            let mut b = Bursts::new(once);
            b.interval(7, 230, true, 5 * second, 6 * second);
            b.waits(7, 230, 6 * second + MS, 3 * second);
            let at = 9 * second + MS - 150 * MS;
            assert_eq!(b.due(7 * second), (!once).then_some(at));
        }
    }

    #[test]
    fn who_is_woken_or_waits_long_does_not_loop() {
        let mut b = Bursts::default();
        for i in 0..100 {
            b.interval(7, 35, false, i * 10 * MS, (i + 1) * 10 * MS);
            b.interval(8, 232, true, i * 200 * MS, (i + 1) * 200 * MS);
            b.interval(9, i as u16, true, i * 10 * MS, (i + 1) * 10 * MS);
        }
        assert_eq!(b.step(u64::MAX, 0), None);
    }

    #[test]
    fn the_children_of_a_loop_get_a_burst_when_one_is_expected() {
        let second = 1000 * MS;
        for once in [false, true] {
            let mut b = Bursts::new(once);
            for i in 0..3 {
                b.child_ended(7, 1, (5 * second + i * second, 5 * second + i * second + 2 * MS), true);
            }
            let now = 7 * second + 10 * MS;
            assert_eq!(b.step(now, 0), None);
            let at = 8 * second - 150 * MS;
            assert_eq!(b.due(now), (!once).then_some(at));
            assert_eq!(b.step(at, 0), (!once).then_some(Step::BeginChildren(7)));
            assert_eq!(b.step(at + 304 * MS, 0), (!once).then_some(Step::End));
        }
    }
}
