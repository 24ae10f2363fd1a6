//! Lanes: what a thread did over time, exact at any zoom.
//!
//! Every block of vertices keeps how long each state lasted until its begin, so the times of a cell are
//! the difference of two look-ups and nothing is ever sampled.

use crate::EventGraph;
use crate::graph::Times;
use pg_event::{Ns, OffState, ThreadId};
use std::ops::Range;

/// What a thread did at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum LaneState {
    /// Did not exist (yet, or any more).
    #[default]
    Absent = 0,
    /// On a CPU.
    Running = 1,
    /// Could run and had no CPU.
    Runnable = 2,
    /// Waited, interruptibly.
    Blocked = 3,
    /// Waited uninterruptibly: a disk, the kernel.
    Disk = 4,
    /// Stopped by a signal, its tracer or the freezer.
    Stopped = 5,
    /// A kernel thread without work.
    Idle = 6,
    /// Seems to run, but events were lost.
    Lost = 7,
}

/// How many states there are.
pub const LANE_STATES: usize = 8;

impl LaneState {
    /// All states by number.
    pub const ALL: [Self; LANE_STATES] = [
        Self::Absent,
        Self::Running,
        Self::Runnable,
        Self::Blocked,
        Self::Disk,
        Self::Stopped,
        Self::Idle,
        Self::Lost,
    ];

    /// The state of a thread that waits.
    pub fn of_wait(s: OffState) -> Self {
        match s {
            OffState::Runnable => Self::Runnable,
            OffState::Interruptible => Self::Blocked,
            OffState::Uninterruptible => Self::Disk,
            OffState::Stopped | OffState::Traced | OffState::Frozen => Self::Stopped,
            OffState::Idle => Self::Idle,
            OffState::Dead => Self::Absent,
        }
    }
}

/// A cell of a lane: a span of time on the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    /// What the thread did most of the time.
    pub state: LaneState,
    /// It did something else for more than a tenth of it.
    pub mixed: bool,
    /// Events were lost within it.
    pub lost: bool,
}

/// Nanoseconds by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    ns: [Ns; LANE_STATES],
}

impl Share {
    /// Time in a state. [`LaneState::Lost`] is counted as running here.
    pub fn get(&self, s: LaneState) -> Ns {
        self.ns[s as usize]
    }

    /// On a CPU.
    pub fn running(&self) -> Ns {
        self.get(LaneState::Running)
    }

    /// Without a CPU though it could run.
    pub fn runnable(&self) -> Ns {
        self.get(LaneState::Runnable)
    }

    /// Waiting, in whatever way.
    pub fn blocked(&self) -> Ns {
        self.get(LaneState::Blocked)
            + self.get(LaneState::Disk)
            + self.get(LaneState::Stopped)
            + self.get(LaneState::Idle)
    }

    /// While it existed.
    pub fn total(&self) -> Ns {
        self.ns[1..].iter().sum()
    }

    fn minus(&self, other: &Self) -> Self {
        Self { ns: std::array::from_fn(|i| self.ns[i].saturating_sub(other.ns[i])) }
    }

    fn dominant(&self) -> (LaneState, Ns) {
        let mut best = (LaneState::Absent, 0);
        for s in LaneState::ALL {
            if self.get(s) > best.1 {
                best = (s, self.get(s));
            }
        }
        best
    }
}

const BLOCK: usize = 16;

/// Sums at the begin of every block of vertices and of runnable spans.
#[derive(Debug, Default)]
pub(crate) struct LaneIndex {
    /// By thread: where its blocks begin.
    first: Vec<(u32, u32)>,
    /// Start of the block's first vertex.
    starts: Vec<Ns>,
    /// Time by state in the vertices before, put-off time not counted.
    sums: Vec<Share>,
    off_starts: Vec<Ns>,
    off_sums: Vec<Ns>,
}

impl LaneIndex {
    pub fn new(g: &EventGraph) -> Self {
        let mut x = Self::default();
        for (i, rows) in g.threads.iter().enumerate() {
            x.first.push((x.starts.len() as u32, x.off_starts.len() as u32));
            let id = ThreadId(i as u32);
            let own = g.times_of(id);
            let mut sum = Share::default();
            for (k, t) in own.iter().enumerate() {
                if k % BLOCK == 0 {
                    x.starts.push(t.start);
                    x.sums.push(sum);
                }
                let end = own.get(k + 1).map_or(rows.end, |n| n.start);
                add(&mut sum, t, wait_state(g, rows.vertices.start as usize + k), end, Ns::MAX);
            }
            let mut sum = 0;
            for (k, (a, b)) in off_of(g, id).iter().enumerate() {
                if k % BLOCK == 0 {
                    x.off_starts.push(*a);
                    x.off_sums.push(sum);
                }
                sum += b - a;
            }
        }
        x.first.push((x.starts.len() as u32, x.off_starts.len() as u32));
        x
    }

    pub fn memory(&self) -> usize {
        self.starts.capacity() * 8
            + self.sums.capacity() * size_of::<Share>()
            + (self.off_starts.capacity() + self.off_sums.capacity()) * 8
    }
}

fn off_of(g: &EventGraph, t: ThreadId) -> &[(Ns, Ns)] {
    let r = g.rows(t).put_off.clone();
    &g.put_off[r.start as usize..r.end as usize]
}

fn wait_state(g: &EventGraph, v: usize) -> LaneState {
    LaneState::of_wait(g.details[v].state)
}

/// Add what a vertex did until `limit`.
fn add(sum: &mut Share, t: &Times, wait: LaneState, end: Ns, limit: Ns) {
    let part = |a: Ns, b: Ns| b.min(limit).saturating_sub(a);
    sum.ns[wait as usize] += part(t.start, t.woken);
    sum.ns[LaneState::Runnable as usize] += part(t.woken, t.run);
    sum.ns[LaneState::Running as usize] += part(t.run, end);
}

impl EventGraph {
    /// Time by state from the begin of the recording until `time`.
    fn until(&self, t: ThreadId, time: Ns) -> Share {
        let rows = self.rows(t);
        let own = self.times_of(t);
        let mut sum = Share::default();
        let (Some(first), Some(next)) =
            (self.lanes.first.get(t.index()), self.lanes.first.get(t.index() + 1))
        else {
            return sum;
        };
        let starts = &self.lanes.starts[first.0 as usize..next.0 as usize];
        let block = starts.partition_point(|s| *s < time).saturating_sub(1);
        if let Some(s) = self.lanes.sums.get(first.0 as usize + block).filter(|_| !starts.is_empty()) {
            sum = *s;
            for (k, x) in own.iter().enumerate().skip(block * BLOCK).take(BLOCK) {
                if x.start >= time {
                    break;
                }
                let end = own.get(k + 1).map_or(rows.end, |n| n.start);
                add(&mut sum, x, wait_state(self, rows.vertices.start as usize + k), end, time);
            }
        }
        let off = off_of(self, t);
        let starts = &self.lanes.off_starts[first.1 as usize..next.1 as usize];
        if !starts.is_empty() {
            let block = starts.partition_point(|s| *s < time).saturating_sub(1);
            let mut away = self.lanes.off_sums[first.1 as usize + block];
            for (a, b) in off.iter().skip(block * BLOCK).take(BLOCK) {
                away += (*b).min(time).saturating_sub(*a);
            }
            sum.ns[LaneState::Runnable as usize] += away;
            let running = &mut sum.ns[LaneState::Running as usize];
            *running = running.saturating_sub(away);
        }
        let existed = sum.total();
        sum.ns[0] = time.saturating_sub(existed);
        sum
    }

    /// How long a thread was in each state within a span.
    pub fn share(&self, t: ThreadId, span: Range<Ns>) -> Share {
        self.until(t, span.end.max(span.start)).minus(&self.until(t, span.start))
    }

    /// A lane of `n` cells over a span.
    pub fn cells(&self, t: ThreadId, span: Range<Ns>, n: usize) -> Vec<Cell> {
        let length = span.end.saturating_sub(span.start);
        let bound = |i: usize| span.start + (u128::from(length) * i as u128 / n.max(1) as u128) as Ns;
        let mut out = Vec::with_capacity(n);
        let mut before = self.until(t, span.start);
        for i in 0..n {
            let (a, b) = (bound(i), bound(i + 1));
            // Cells shorter than the clock's tick show the moment.
            let b = b.max(a + 1);
            let after = self.until(t, b);
            let share = after.minus(&before);
            let (state, time) = share.dominant();
            let lost = self.lost_within(&(a..b));
            out.push(Cell { state, mixed: time < (b - a) - (b - a) / 10, lost });
            before = if b == bound(i + 1) { after } else { self.until(t, bound(i + 1)) };
        }
        out
    }

    /// What a thread did within a span, as neighbouring intervals; parts of no length are left out.
    pub fn intervals(&self, t: ThreadId, span: Range<Ns>) -> impl Iterator<Item = (Ns, Ns, LaneState)> + '_ {
        let mut put_off = off_of(self, t);
        put_off = &put_off[put_off.partition_point(|p| p.1 <= span.start)..];
        let (from, to) = (span.start, span.end);
        self.vertices_in(t, span)
            .flat_map(move |v| {
                let x = self.vertex(v);
                let mut parts = vec![
                    (x.start, x.woken, LaneState::of_wait(x.state)),
                    (x.woken, x.run, LaneState::Runnable),
                ];
                let mut at = x.run;
                while let Some(&(a, b)) = put_off.first().filter(|p| p.0 < x.end && p.0 < to) {
                    put_off = &put_off[1..];
                    if b <= at {
                        continue;
                    }
                    self.ran(&mut parts, at, a);
                    parts.push((a.max(at), b, LaneState::Runnable));
                    at = b;
                }
                self.ran(&mut parts, at, x.end);
                parts
            })
            .map(move |(a, b, s)| (a.max(from), b.min(to), s))
            .filter(|(a, b, _)| a < b)
    }

    /// Running over `a..b`, cut where events were lost.
    fn ran(&self, parts: &mut Vec<(Ns, Ns, LaneState)>, mut a: Ns, b: Ns) {
        let mut i = self.lost.partition_point(|l| l.1 <= a);
        while let Some(l) = self.lost.get(i).filter(|l| l.0 < b) {
            parts.push((a, l.0.max(a), LaneState::Running));
            parts.push((l.0.max(a), l.1.min(b), LaneState::Lost));
            a = l.1.min(b);
            i += 1;
        }
        parts.push((a, b, LaneState::Running));
    }
}
