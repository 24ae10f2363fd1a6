//! Lanes: what a thread did over time, exact at any zoom.
//!
//! Every block of vertices keeps how long each state lasted until its begin, so the times of a cell are
//! the difference of two look-ups and nothing is ever sampled.

use crate::EventGraph;
use crate::columns::Times;
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
    /// Could run and was held back by a CPU quota.
    Throttled = 8,
}

/// How many states there are.
pub const LANE_STATES: usize = 9;

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
        Self::Throttled,
    ];

    /// The state of a thread that waits.
    pub fn of_wait(s: OffState) -> Self {
        match s {
            OffState::Runnable => Self::Runnable,
            OffState::Throttled => Self::Throttled,
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
    /// Time in a state. [`LaneState::Lost`] is time in which nothing was seen of the thread (see
    /// [`EventGraph::unseen`]); shorter spans with lost events count as running.
    pub fn get(&self, s: LaneState) -> Ns {
        self.ns[s as usize]
    }

    /// On a CPU.
    pub fn running(&self) -> Ns {
        self.get(LaneState::Running)
    }

    /// Without a CPU though it could run: others had it, or its quota was used up.
    pub fn runnable(&self) -> Ns {
        self.get(LaneState::Runnable) + self.get(LaneState::Throttled)
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
    /// By vertex: the state of its wait, close together.
    waits: Vec<LaneState>,
}

impl LaneIndex {
    pub fn new(g: &EventGraph) -> Self {
        let mut x = Self {
            waits: g.details.iter().map(|d| LaneState::of_wait(d.state)).collect(),
            ..Self::default()
        };
        for (i, rows) in g.threads.iter().enumerate() {
            x.first.push((x.starts.len() as u32, x.off_starts.len() as u32));
            let id = ThreadId(i as u32);
            let own = g.times_of(id);
            let waits = &x.waits[rows.vertices.start as usize..];
            let mut sum = Share::default();
            for (k, (t, wait)) in own.iter().zip(waits).enumerate() {
                if k % BLOCK == 0 {
                    x.starts.push(t.start);
                    x.sums.push(sum);
                }
                let end = own.get(k + 1).map_or(rows.end, |n| n.start);
                add(&mut sum, t, *wait, end, Ns::MAX);
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
            + self.waits.capacity()
    }
}

fn off_of(g: &EventGraph, t: ThreadId) -> &[(Ns, Ns)] {
    &g.rows(t).put_off
}

/// Add what a vertex did until `limit`.
fn add(sum: &mut Share, t: &Times, wait: LaneState, end: Ns, limit: Ns) {
    let part = |a: Ns, b: Ns| b.min(limit).saturating_sub(a);
    sum.ns[wait as usize] += part(t.start, t.woken);
    sum.ns[LaneState::Runnable as usize] += part(t.woken, t.run);
    sum.ns[LaneState::Running as usize] += part(t.run, end);
}

/// The last block that starts before `time`, looked for from `from` on in growing steps: what is asked
/// for next is mostly near.
fn block_of(starts: &[Ns], from: usize, time: Ns) -> usize {
    let (mut low, mut step) = (from, 1);
    while low + step < starts.len() && starts[low + step] < time {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(starts.len());
    low + starts[low..high].partition_point(|s| *s < time).saturating_sub(1)
}

/// Sums up one lane at growing times.
struct Cursor<'a> {
    thread: ThreadId,
    unseen: &'a [(ThreadId, Ns, Ns)],
    end: Ns,
    own: &'a [Times],
    waits: &'a [LaneState],
    starts: &'a [Ns],
    sums: &'a [Share],
    block: usize,
    /// Vertices before this one are in `sum` as a whole.
    next: usize,
    sum: Share,
    off: &'a [(Ns, Ns)],
    off_starts: &'a [Ns],
    off_sums: &'a [Ns],
    off_block: usize,
    off_next: usize,
    off_sum: Ns,
}

impl<'a> Cursor<'a> {
    fn new(g: &'a EventGraph, t: ThreadId) -> Option<Self> {
        let x = &g.lanes;
        let (a, b) = (*x.first.get(t.index())?, *x.first.get(t.index() + 1)?);
        let rows = g.rows(t);
        let (from, to) = (g.unseen.partition_point(|u| u.0 < t), g.unseen.partition_point(|u| u.0 <= t));
        Some(Self {
            thread: t,
            unseen: &g.unseen[from..to],
            end: rows.end,
            own: g.times_of(t),
            waits: &x.waits[rows.vertices.start as usize..rows.vertices.end as usize],
            starts: &x.starts[a.0 as usize..b.0 as usize],
            sums: &x.sums[a.0 as usize..b.0 as usize],
            block: 0,
            next: 0,
            sum: Share::default(),
            off: off_of(g, t),
            off_starts: &x.off_starts[a.1 as usize..b.1 as usize],
            off_sums: &x.off_sums[a.1 as usize..b.1 as usize],
            off_block: 0,
            off_next: 0,
            off_sum: 0,
        })
    }

    /// Time by state from the begin of the recording until `time`, no earlier than asked for before.
    fn until(&mut self, time: Ns) -> Share {
        let block = block_of(self.starts, self.block, time);
        if block > self.block {
            (self.block, self.next, self.sum) = (block, block * BLOCK, self.sums[block]);
        }
        let end_of = |k: usize| self.own.get(k + 1).map_or(self.end, |n| n.start);
        while let Some(t) = self.own.get(self.next).filter(|_| end_of(self.next) <= time) {
            add(&mut self.sum, t, self.waits[self.next], end_of(self.next), Ns::MAX);
            self.next += 1;
        }
        let mut sum = self.sum;
        if let Some(t) = self.own.get(self.next) {
            add(&mut sum, t, self.waits[self.next], end_of(self.next), time);
        }
        if !self.off.is_empty() {
            let block = block_of(self.off_starts, self.off_block, time);
            if block > self.off_block {
                (self.off_block, self.off_next, self.off_sum) = (block, block * BLOCK, self.off_sums[block]);
            }
            while let Some((a, b)) = self.off.get(self.off_next).filter(|o| o.1 <= time) {
                self.off_sum += b - a;
                self.off_next += 1;
            }
            let cut = self.off.get(self.off_next).map_or(0, |o| o.1.min(time).saturating_sub(o.0));
            let away = self.off_sum + cut;
            sum.ns[LaneState::Runnable as usize] += away;
            let running = &mut sum.ns[LaneState::Running as usize];
            *running = running.saturating_sub(away);
        }
        for (thread, a, b) in self.unseen.iter().take_while(|u| u.1 < time) {
            debug_assert_eq!(*thread, self.thread);
            let running = &mut sum.ns[LaneState::Running as usize];
            let away = ((*b).min(time) - a).min(*running);
            *running -= away;
            sum.ns[LaneState::Lost as usize] += away;
        }
        sum.ns[0] = time.saturating_sub(sum.total());
        sum
    }
}

impl EventGraph {
    /// How long a thread was in each state within a span.
    pub fn share(&self, t: ThreadId, span: Range<Ns>) -> Share {
        let Some(mut c) = Cursor::new(self, t) else { return Share::default() };
        let before = c.until(span.start);
        c.until(span.end.max(span.start)).minus(&before)
    }

    /// The CPU that a thread went on at last before `time`.
    pub(crate) fn cpu_at(&self, t: ThreadId, time: Ns) -> Option<u16> {
        let rows = &self.rows(t).cpus;
        rows.get(rows.partition_point(|x| x.0 <= time).checked_sub(1)?).map(|x| x.1)
    }

    /// How long a thread was on one CPU within a span.
    pub(crate) fn ran_on(&self, t: ThreadId, cpu: u16, span: Range<Ns>) -> Ns {
        let rows = &self.rows(t).cpus;
        let from = rows.partition_point(|x| x.0 <= span.start).saturating_sub(1);
        let until = |i: usize| rows.get(i + 1).map_or(span.end, |x| x.0.min(span.end));
        let within = rows.iter().enumerate().skip(from).take_while(|(_, x)| x.0 < span.end);
        let stays = within.filter(|(_, x)| x.1 == cpu);
        stays.map(|(i, x)| self.share(t, x.0.max(span.start)..until(i)).running()).sum()
    }

    /// A lane of `n` cells over a span. Where a cell is shorter than a nanosecond it shows the moment.
    pub fn cells(&self, t: ThreadId, span: Range<Ns>, n: usize) -> Vec<Cell> {
        let length = span.end.saturating_sub(span.start);
        let bound = |i: usize| span.start + (u128::from(length) * i as u128 / n.max(1) as u128) as Ns;
        if length < n as Ns {
            let moment = |i: usize| self.cell(t, bound(i)..bound(i + 1).max(bound(i) + 1));
            return (0..n).map(moment).collect();
        }
        let Some(mut c) = Cursor::new(self, t) else { return vec![Cell::default(); n] };
        let mut out = Vec::with_capacity(n);
        let mut before = c.until(span.start);
        let mut from = span.start;
        for i in 0..n {
            let to = bound(i + 1);
            let after = c.until(to);
            out.push(self.judged(&after.minus(&before), from..to));
            (before, from) = (after, to);
        }
        out
    }

    /// One cell.
    fn cell(&self, t: ThreadId, span: Range<Ns>) -> Cell {
        self.judged(&self.share(t, span.clone()), span)
    }

    fn judged(&self, share: &Share, span: Range<Ns>) -> Cell {
        let length = span.end - span.start;
        let (state, time) = share.dominant();
        Cell { state, mixed: time < length - length / 10, lost: self.lost_within(&span) }
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
                    self.ran(t, &mut parts, at, a);
                    parts.push((a.max(at), b, LaneState::Runnable));
                    at = b;
                }
                self.ran(t, &mut parts, at, x.end);
                parts
            })
            .map(move |(a, b, s)| (a.max(from), b.min(to), s))
            .filter(|(a, b, _)| a < b)
    }

    /// Running over `a..b`, cut where events were lost or nothing was seen.
    fn ran(&self, t: ThreadId, parts: &mut Vec<(Ns, Ns, LaneState)>, mut a: Ns, b: Ns) {
        let from = self.lost.partition_point(|l| l.1 <= a);
        let lost = self.lost[from..].iter().copied().take_while(|l| l.0 < b);
        let mut dark: Vec<(Ns, Ns)> = lost.chain(self.unseen(t, a..b)).collect();
        dark.sort_unstable();
        for (from, to) in dark {
            let (from, to) = (from.max(a), to.min(b));
            if to > from {
                parts.push((a, from, LaneState::Running));
                parts.push((from, to, LaneState::Lost));
                a = to;
            }
        }
        parts.push((a, b, LaneState::Running));
    }
}
