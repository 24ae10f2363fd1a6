//! Runnable without a CPU: who had the CPUs meanwhile, or did nobody?
//!
//! A thread that is kept off the CPU by the quota of its control group (CFS bandwidth) looks runnable. What tells
//! it apart is that the CPUs are idle meanwhile, again and again for long parts of a period.

use crate::EventGraph;
use crate::lane::LaneState;
use pg_event::{Catalog, Ns, ThreadId};

/// How a thread came not to have a CPU.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Starved {
    /// Runnable without a CPU, ns.
    pub queued: Ns,
    /// Single stretches of that.
    pub times: usize,
    /// CPU time of the other threads that can have had its CPU in the stretches looked at, as a share of their length (2.0: two CPUs).
    pub busy: f64,
    /// CPU time of all threads in them, likewise, and how many CPUs there are.
    pub all: f64,
    pub cpus: f64,
    /// Not everybody is in the recording: nothing is known of idle CPUs.
    pub partial: bool,
    /// The same of the very CPU on which it went on afterwards.
    pub its_own: f64,
    /// Longest single stretch, ns.
    pub longest: Ns,
    /// Other threads that ran meanwhile and their share of it, most first; where its own CPU was had by others, on that.
    pub others: Vec<(ThreadId, f64)>,
    /// What it got between two stretches, ns (median).
    pub slice: Ns,
    /// From one stretch's begin to the next one's, ns (median).
    pub period: Ns,
}

/// Longest stretches looked at.
const LOOKED_AT: usize = 128;
/// A stretch without a CPU this long is none of the scheduler's usual turns, ns.
const LONG: Ns = 8_000_000;

/// No scheduler lets a thread wait this long for its turn among equals, ns.
const LEFT_OUT: Ns = 1_000_000_000;

/// Look at `thread` within `spans`.
pub(crate) fn starved(g: &EventGraph, c: &Catalog, thread: ThreadId, spans: &[(Ns, Ns)]) -> Starved {
    let mut gaps: Vec<(Ns, Ns)> = Vec::new();
    let mut runs: Vec<(Ns, Ns)> = Vec::new();
    let mut slices: Vec<Ns> = Vec::new();
    let mut periods: Vec<Ns> = Vec::new();
    for s in spans {
        let (mut ran, mut before) = (0, None);
        for (a, b, state) in g.intervals(thread, s.0..s.1) {
            match state {
                LaneState::Runnable | LaneState::Throttled => {
                    if b - a >= LONG {
                        periods.extend(before.map(|x: Ns| a - x));
                        slices.extend(before.map(|_| ran));
                        (before, ran) = (Some(a), 0);
                    }
                    gaps.push((a, b));
                }
                LaneState::Running => {
                    ran += b - a;
                    runs.push((a, b));
                }
                // What it waited for is no part of a turn.
                _ => (ran, before) = (0, None),
            }
        }
    }
    let mut out =
        Starved { queued: gaps.iter().map(|g| g.1 - g.0).sum(), times: gaps.len(), ..Starved::default() };
    gaps.sort_unstable_by_key(|x| std::cmp::Reverse(x.1 - x.0));
    gaps.truncate(LOOKED_AT);
    out.longest = gaps.first().map_or(0, |x| x.1 - x.0);
    runs.sort_unstable_by_key(|x| std::cmp::Reverse(x.1 - x.0));
    runs.truncate(LOOKED_AT);
    let sum = |spans: &[(Ns, Ns)]| -> Ns { spans.iter().map(|x| x.1 - x.0).sum() };
    let (length, together) = (sum(&gaps), sum(&runs));
    if length == 0 {
        return out;
    }
    // A thread may be bound to a CPU that others have, while another one idles.
    let own: Vec<_> = gaps.iter().filter_map(|x| Some((*x, g.cpu_at(thread, x.1)?))).collect();
    let mut on_it: Vec<(ThreadId, f64)> = Vec::new();
    for t in g.threads().filter(|t| *t != thread && c.thread(*t).is_some_and(|t| t.tid != 0 && !t.own)) {
        let within =
            |spans: &[(Ns, Ns)]| -> Ns { spans.iter().map(|x| g.share(t, x.0..x.1).running()).sum() };
        let ran = within(&gaps);
        out.all += ran as f64 / length as f64;
        // Whoever ran beside it had another CPU.
        if ran > 0 && within(&runs) * 5 <= together * 4 {
            out.others.push((t, ran as f64 / length as f64));
            let same: Ns = own.iter().map(|(x, cpu)| g.ran_on(t, *cpu, x.0..x.1)).sum();
            on_it.extend((same > 0).then_some((t, same as f64 / length as f64)));
        }
    }
    out.its_own = on_it.iter().map(|o| o.1).sum();
    if out.taken() {
        out.others = on_it;
    }
    (out.cpus, out.partial) = (f64::from(g.cpus), g.partial);
    out.busy = out.others.iter().map(|o| o.1).sum();
    out.others.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    out.others.truncate(8);
    (out.slice, out.period) = (median(slices), median(periods));
    out
}

fn median(mut v: Vec<Ns>) -> Ns {
    v.sort_unstable();
    v.get(v.len() / 2).copied().unwrap_or(0)
}

impl Starved {
    /// Kept off the CPU by a limit: for long, again and again, while a CPU was idle and no rival had its own.
    pub fn throttled(&self) -> bool {
        let turns = self.times >= 3 && self.queued / self.times as u64 >= LONG && self.period > 0;
        let rival = self.others.first().is_some_and(|o| o.1 >= 0.8);
        turns && !self.taken() && (self.unrivalled() || self.idle() && !rival)
    }

    /// Others had its own CPU for most of the time.
    fn taken(&self) -> bool {
        self.its_own >= 0.7
    }

    /// It went without a CPU for longer at one go than any fair turns of a busy machine would let it.
    pub fn passed_over(&self, total: Ns) -> bool {
        self.longest >= LEFT_OUT && self.longest * 2 >= total
    }

    /// Did nobody else have its CPU for half of the time?
    fn unrivalled(&self) -> bool {
        !self.partial && self.busy < 0.5
    }

    /// Was a CPU idle for a good part of the time, as far as that is known?
    pub fn idle(&self) -> bool {
        !self.partial && self.all < self.cpus - 0.3
    }

    /// Could it have had a CPU, as far as that is known?
    pub fn in_vain(&self) -> bool {
        self.unrivalled() || self.idle()
    }

    /// Another thread that had the CPU for most of it.
    pub fn peer(&self) -> Option<(ThreadId, f64)> {
        self.others.first().copied().filter(|o| o.1 >= 0.5)
    }
}
