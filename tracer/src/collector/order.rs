//! Puts events in order of time. Records of several CPUs come nearly sorted; messages added up over a
//! segment come when the segment ends, or some hundred milliseconds late when there are very many.

use pg_event::{Event, Kind, Ns};
use std::collections::VecDeque;

/// Events younger than this wait for others that may still come before them.
pub const WINDOW_NS: Ns = 600_000_000;
/// Events are given out this often, so that each is sorted only a few times.
pub const STEP_NS: Ns = 250_000_000;

/// Holds events back until nothing earlier can come.
#[derive(Default)]
pub struct Order {
    /// Intervals in order of time: nearly all come that way.
    held: VecDeque<Event>,
    /// The others, since events were given out last.
    strays: Vec<Event>,
    /// Those of each step before, in order of time: sorted once, and moved once more, to where they go out.
    sorted: VecDeque<VecDeque<Event>>,
    /// Time of the latest event given out.
    last: Ns,
    /// Events that came too late and were moved to the time of what was out already.
    pub late: u64,
}

impl Order {
    /// Take an event.
    #[inline]
    pub fn push(&mut self, mut event: Event) {
        if event.time < self.last {
            event.time = self.last;
            self.late += 1;
        }
        // One sample read before the events of its ring must not make strays of all of them.
        let interval = matches!(&event.kind, Kind::OffCpu(o) if !o.open);
        if !interval || self.held.back().is_some_and(|e| e.time > event.time) {
            self.strays.push(event);
        } else {
            self.held.push_back(event);
        }
    }

    /// Is what happened then too late to be put in its place?
    pub fn is_past(&self, time: Ns) -> bool {
        time < self.last
    }

    /// What is held back.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.held.iter().chain(&self.strays).chain(self.sorted.iter().flatten())
    }

    /// Give out everything up to `horizon`, sorted by time; equal times keep their order but for strays,
    /// which come last.
    pub fn release(&mut self, horizon: Ns) -> Vec<Event> {
        if !self.strays.is_empty() {
            self.strays.sort_by_key(|e| e.time);
            self.sorted.push_back(self.strays.drain(..).collect());
        }
        let n = self.held.partition_point(|e| e.time <= horizon);
        let m: usize = self.sorted.iter().map(|s| s.partition_point(|e| e.time <= horizon)).sum();
        let mut out = Vec::with_capacity(n + m);
        // Whole runs of intervals at a time.
        let (front, back) = self.held.as_slices();
        let mut runs = [&front[..n.min(front.len())], &back[..n.saturating_sub(front.len())]];
        while let Some(stray) = earliest(&mut self.sorted, horizon) {
            for run in &mut runs {
                let (before, after) = run.split_at(up_to(run, stray.time));
                out.extend_from_slice(before);
                *run = after;
                if !after.is_empty() {
                    break;
                }
            }
            out.push(stray);
        }
        for run in runs {
            out.extend_from_slice(run);
        }
        self.held.drain(..n);
        self.sorted.retain(|s| !s.is_empty());
        if let Some(e) = out.last() {
            self.last = e.time;
        }
        out
    }
}

/// Take the earliest event up to `horizon` from sorted ones; of equal times that of the first.
fn earliest(sorted: &mut VecDeque<VecDeque<Event>>, horizon: Ns) -> Option<Event> {
    let first = |s: &VecDeque<Event>| s.front().map_or(Ns::MAX, |e| e.time);
    let of = sorted.iter_mut().filter(|s| !s.is_empty()).min_by_key(|s| first(s))?;
    if first(of) <= horizon { of.pop_front() } else { None }
}

/// How many events of a run are not later than `time`. They are few: looked for from the front, in steps that grow.
fn up_to(run: &[Event], time: Ns) -> usize {
    let mut step = 1;
    while run.get(step - 1).is_some_and(|e| e.time <= time) {
        step *= 2;
    }
    let (low, high) = (step / 2, step.min(run.len()));
    low + run.get(low..high).map_or(0, |r| r.partition_point(|e| e.time <= time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{OffCpu, OffState, ThreadId};

    fn at(time: Ns) -> Event {
        Event { time, thread: ThreadId(0), cpu: 0, kind: Kind::Exec }
    }

    #[test]
    fn intervals_and_others_are_merged() {
        let mut o = Order::default();
        let off = |time| Event { kind: Kind::OffCpu(OffCpu::new(0, 0, OffState::Runnable)), ..at(time) };
        for e in [at(50), off(10), off(30), off(20), at(15), off(40)] {
            o.push(e);
        }
        assert_eq!(o.strays.len(), 3, "only what is no interval, and the one out of order");
        assert_eq!(o.release(30).iter().map(|e| e.time).collect::<Vec<_>>(), [10, 15, 20, 30]);
        assert_eq!(o.release(Ns::MAX).iter().map(|e| e.time).collect::<Vec<_>>(), [40, 50]);
        assert_eq!(o.late, 0);
    }

    #[test]
    fn sorted_and_never_before_what_is_out() {
        let mut o = Order::default();
        for t in [30, 10, 20] {
            o.push(at(t));
        }
        assert_eq!(o.release(20).iter().map(|e| e.time).collect::<Vec<_>>(), [10, 20]);
        o.push(at(5));
        assert_eq!(o.release(100).iter().map(|e| e.time).collect::<Vec<_>>(), [20, 30]);
        assert_eq!((o.late, o.held.len() + o.strays.len() + o.sorted.len()), (1, 0));
    }

    #[test]
    fn many_steps_are_like_one_sort() {
        let mut state = 1u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let off = |time| Event { kind: Kind::OffCpu(OffCpu::new(0, 0, OffState::Runnable)), ..at(time) };
        let (mut o, mut all, mut out) = (Order::default(), Vec::new(), Vec::new());
        for step in 0..40 {
            for _ in 0..next(60) {
                let time = step * 100 + next(300);
                all.push(time);
                o.push(if next(2) == 0 { off(time) } else { at(time) });
            }
            out.extend(o.release(step * 100 + 99));
        }
        out.extend(o.release(Ns::MAX));
        all.sort_unstable();
        assert_eq!(out.iter().map(|e| e.time).collect::<Vec<_>>(), all);
        assert_eq!(o.late, 0);
    }
}
