//! Puts events in order of time. Records of several CPUs come nearly sorted; messages added up over a
//! segment come when the segment ends, or some hundred milliseconds late when there are very many.

use pg_event::{Event, Kind, Ns};
use std::collections::VecDeque;

/// Events younger than this wait for others that may still come before them.
pub const WINDOW_NS: Ns = 400_000_000;
/// Events are given out this often, so that each is sorted only a few times.
pub const STEP_NS: Ns = 100_000_000;

/// Holds events back until nothing earlier can come.
#[derive(Default)]
pub struct Order {
    /// Intervals in order of time: nearly all come that way.
    held: VecDeque<Event>,
    /// The others.
    strays: Vec<Event>,
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

    /// Give out everything up to `horizon`, sorted by time; equal times keep their order but for strays,
    /// which come last.
    pub fn release(&mut self, horizon: Ns) -> Vec<Event> {
        self.strays.sort_by_key(|e| e.time);
        let n = self.held.partition_point(|e| e.time <= horizon);
        let m = self.strays.partition_point(|e| e.time <= horizon);
        let mut out = Vec::with_capacity(n + m);
        // Whole runs of intervals at a time: they are many, strays few.
        let (front, back) = self.held.as_slices();
        let mut runs = [&front[..n.min(front.len())], &back[..n.saturating_sub(front.len())]];
        for stray in self.strays.drain(..m) {
            for run in &mut runs {
                let (before, after) = run.split_at(run.partition_point(|e| e.time <= stray.time));
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
        if let Some(e) = out.last() {
            self.last = e.time;
        }
        out
    }
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
        assert_eq!((o.late, o.held.len() + o.strays.len()), (1, 0));
    }
}
