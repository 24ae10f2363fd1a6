//! What a thread did during given spans of time: the question every step of the diagnosis asks.

use crate::episode::{WaitKey, WaitKeys};
use crate::{EventGraph, Vertex, VertexId};
use pg_event::{Catalog, Ns, ObjectId, OffState, ThreadId};

/// Spans of time, disjoint and in order.
pub(crate) type Spans = Vec<(Ns, Ns)>;

/// Sum of the lengths, ns.
pub(crate) fn total(spans: &[(Ns, Ns)]) -> Ns {
    spans.iter().map(|(a, b)| b.saturating_sub(*a)).sum()
}

/// From the begin of the first to the end of the last of ordered spans; zeros where there are none.
pub(crate) fn extent(spans: &[(Ns, Ns)]) -> (Ns, Ns) {
    (spans.first().map_or(0, |s| s.0), spans.last().map_or(0, |s| s.1))
}

/// Make disjoint and ordered.
pub(crate) fn merged(mut spans: Spans) -> Spans {
    spans.retain(|(a, b)| b > a);
    spans.sort_unstable();
    let mut out: Spans = Vec::with_capacity(spans.len());
    for (a, b) in spans {
        match out.last_mut() {
            Some(l) if a <= l.1 => l.1 = l.1.max(b),
            _ => out.push((a, b)),
        }
    }
    out
}

/// One wait (with its renewals) within a span.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Clip {
    /// First vertex of the renewals.
    pub first: VertexId,
    /// The vertex whose leading wait ended it.
    pub last: VertexId,
    /// Begin, not before the span's.
    pub start: Ns,
    /// End, not after the span's.
    pub end: Ns,
    /// When the wait really ended.
    pub full_end: Ns,
    /// Time blocked within `start..end`, ns.
    pub blocked: Ns,
    /// The wait had ended when the span did.
    pub resolved: bool,
}

/// Waits of one key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Group {
    pub key: WaitKey,
    /// Time blocked, ns.
    pub blocked: Ns,
    pub clips: Vec<Clip>,
    /// Number of single waits.
    pub waits: usize,
}

impl Group {
    /// From the begin of its first wait to the end of its last.
    pub fn extent(&self) -> (Ns, Ns) {
        (self.clips.first().map_or(0, |c| c.start), self.clips.last().map_or(0, |c| c.end))
    }

    /// Was it stopped, traced or frozen?
    pub fn halts(&self) -> bool {
        matches!(self.key.state, OffState::Stopped | OffState::Traced | OffState::Frozen)
    }

    /// The clip in which it was blocked longest.
    pub fn longest(&self) -> Option<&Clip> {
        self.clips.iter().max_by_key(|c| (c.blocked, std::cmp::Reverse(c.start)))
    }
}

/// What a thread did.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Activity {
    /// Length of the spans asked about, ns.
    pub total: Ns,
    /// On the CPU, ns.
    pub running: Ns,
    /// Wanted the CPU and did not have it, ns.
    pub runnable: Ns,
    /// Part of that in which a quota kept it off the CPU, ns.
    pub throttled: Ns,
    /// The control group whose quota it was.
    pub quota: Option<ObjectId>,
    /// Nothing was seen of it, ns.
    pub unseen: Ns,
    /// Did not exist yet, ns.
    pub unborn: Ns,
    /// Existed no more, ns.
    pub gone: Ns,
    /// Within which spans it ran or wanted to.
    pub active: Spans,
    /// Within which spans it did not exist yet.
    pub before_birth: Spans,
    /// Its waits, longest group first.
    pub groups: Vec<Group>,
}

/// What most of the time went to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mostly {
    Running,
    Runnable,
    Unborn,
    Gone,
    /// Index of the group.
    Waiting(usize),
    /// Nothing is known of it.
    Unknown,
}

impl Activity {
    /// Of its demand for the CPU: did it run, or hardly get to? On a busy machine a thread that computes is put off as
    /// well; the CPU is what is missing only when it hardly got any.
    pub fn on_cpu(&self) -> Mostly {
        let perhaps = self.running + self.unseen;
        if self.running > 0 && perhaps * 4 >= self.runnable { Mostly::Running } else { Mostly::Runnable }
    }

    /// The waits that most of the time went to, if it went to waits.
    pub fn waiting(&self) -> Option<&Group> {
        let Mostly::Waiting(i) = self.mostly() else { return None };
        self.groups.get(i)
    }

    /// The largest part.
    pub fn mostly(&self) -> Mostly {
        // Running and wanting to run are one demand for the CPU.
        let busy = self.running + self.runnable;
        let parts = [
            (busy, self.on_cpu()),
            (self.unborn, Mostly::Unborn),
            (self.gone, Mostly::Gone),
            (self.unseen, Mostly::Unknown),
            (self.groups.first().map_or(0, |g| g.blocked), Mostly::Waiting(0)),
        ];
        // Of equals the first.
        parts.iter().rev().max_by_key(|p| p.0).filter(|p| p.0 > 0).map_or(Mostly::Unknown, |p| p.1)
    }
}

/// Look at `thread` within `spans` (disjoint, in order).
pub(crate) fn activity(
    graph: &EventGraph,
    catalog: &Catalog,
    thread: ThreadId,
    spans: &[(Ns, Ns)],
) -> Activity {
    let mut out = Activity { total: total(spans), ..Activity::default() };
    let began = graph.began(thread);
    let ended = graph.ended(thread);
    let mut keys = WaitKeys::new(catalog);
    for &(a, b) in spans {
        if b <= a {
            continue;
        }
        if let Some(t) = began
            && t > a
        {
            out.unborn += t.min(b) - a;
            out.before_birth.push((a, t.min(b)));
        }
        if let Some(t) = ended
            && t < b
            && graph.exited(thread).is_some()
        {
            out.gone += b - t.max(a);
        }
        let mut renewable: Option<WaitKey> = None;
        for id in graph.vertices_in(thread, a..b) {
            let v = graph.vertex(id);
            running(&v, a, b, &mut out);
            if v.unseen > 0 {
                let unseen: Ns =
                    graph.unseen(thread, v.run.max(a)..v.end.min(b)).map(|u| u.1.saturating_sub(u.0)).sum();
                out.unseen += unseen;
                out.running = out.running.saturating_sub(unseen);
            }
            let (s, e) = (v.start.max(a), v.woken.min(b));
            if e <= s {
                continue;
            }
            // A thread without quota wants to run.
            if v.state == OffState::Throttled {
                out.runnable += e - s;
                out.throttled += e - s;
                out.active.push((s, e));
                out.quota = Some(v.object).filter(|o| o.is_some()).or(out.quota);
                continue;
            }
            let key = keys.of(&v);
            let clip = Clip {
                first: id,
                last: id,
                start: s,
                end: e,
                full_end: v.woken,
                blocked: e - s,
                resolved: v.woken <= b && !v.open,
            };
            let at = out.groups.iter().position(|g| g.key == key).unwrap_or_else(|| {
                out.groups.push(Group { key, blocked: 0, clips: Vec::new(), waits: 0 });
                out.groups.len() - 1
            });
            let group = &mut out.groups[at];
            group.blocked += e - s;
            // One wait may lie in several of the spans.
            group.waits += usize::from(group.clips.last().is_none_or(|c| c.last != id));
            match group.clips.last_mut() {
                Some(c) if renewable == Some(key) => {
                    c.last = id;
                    c.end = e;
                    c.full_end = v.woken;
                    c.blocked += e - s;
                    c.resolved = clip.resolved;
                }
                _ => group.clips.push(clip),
            }
            // Short other waits in between do not end a renewal.
            if (v.timed_out || v.interrupted) && v.ran() <= (v.waited() / 4).max(2_000_000) {
                renewable = Some(key);
            } else if renewable != Some(key) && e - s <= 5_000_000 {
                // keep what it was
            } else {
                renewable = None;
            }
        }
    }
    out.active = merged(std::mem::take(&mut out.active));
    out.groups.sort_by_key(|g| std::cmp::Reverse(g.blocked));
    out
}

fn running(v: &Vertex, a: Ns, b: Ns, out: &mut Activity) {
    let queued = v.run.min(b).saturating_sub(v.woken.max(a));
    let (s, e) = (v.run.max(a), v.end.min(b));
    let on = e.saturating_sub(s);
    let whole = v.end.saturating_sub(v.run);
    // What was put off is spread evenly over a segment that is cut.
    let off = if whole == 0 { 0 } else { (v.preempted as u128 * on as u128 / whole as u128) as Ns };
    out.runnable += queued + off;
    out.running += on.saturating_sub(off);
    if queued + on > 0 {
        let from = if queued > 0 { v.woken.max(a) } else { s };
        out.active.push((from, e.max(v.run.min(b))));
    }
}
