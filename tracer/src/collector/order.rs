//! Puts events in order of time. Records of several CPUs come nearly sorted; messages added up over a
//! segment come when the segment ends, or some hundred milliseconds late when there are very many.

use pg_event::{Event, Ns};

/// Events younger than this wait for others that may still come before them.
pub const WINDOW_NS: Ns = 400_000_000;
/// Events are given out this often, so that each is sorted only a few times.
pub const STEP_NS: Ns = 100_000_000;

/// Holds events back until nothing earlier can come.
#[derive(Default)]
pub struct Order {
    held: Vec<Event>,
    /// Time of the latest event given out.
    last: Ns,
    /// Events that came too late and were moved to the time of what was out already.
    pub late: u64,
}

impl Order {
    /// Take an event.
    pub fn push(&mut self, event: Event) {
        self.held.push(event);
    }

    /// Give out everything up to `horizon`, sorted by time; equal times keep their order.
    pub fn release(&mut self, horizon: Ns) -> Vec<Event> {
        for e in &mut self.held {
            if e.time < self.last {
                e.time = self.last;
                self.late += 1;
            }
        }
        // Nearly sorted: the stable merge sort is linear on long runs.
        self.held.sort_by_key(|e| e.time);
        let n = self.held.partition_point(|e| e.time <= horizon);
        let out: Vec<Event> = self.held.drain(..n).collect();
        if let Some(e) = out.last() {
            self.last = e.time;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{Kind, ThreadId};

    fn at(time: Ns) -> Event {
        Event { time, thread: ThreadId(0), cpu: 0, kind: Kind::Exec }
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
        assert_eq!((o.late, o.held.len()), (1, 0));
    }
}
