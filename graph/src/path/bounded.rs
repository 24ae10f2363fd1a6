//! The bounded path: every wait by what was done meanwhile for it.

use super::{Explained, Interval, Link, LinkKind, State, Step, Timeline, explained};
use pg_event::Ns;
use std::cell::Cell;
use std::ops::Range;

/// Waits within waits are explained this deep; deeper ones stay as they are.
const DEPTH: usize = 400;
/// So many other ways are tried in all where walks came to dead ends.
const WAYS: u32 = 1000;

type Path<T> = Vec<Step<<T as Timeline>::Worker, <T as Timeline>::Tag>>;

/// The bounded critical path of a worker within a span: one chain in order of time from the span's begin
/// to its end (as far as the worker existed). Waits stay on it only where nothing explains them.
///
/// Where a walk back comes to a dead end before it reaches the begin of the wait, the other ways that
/// links offered are tried, and the one that explains most of the wait by somebody's running wins. Where
/// none is better, it is the way that the published algorithm ends with.
pub fn bounded<T: Timeline>(timeline: &T, worker: T::Worker, span: Range<Ns>) -> Path<T> {
    let Some(life) = timeline.span(worker) else { return Vec::new() };
    let (from, to) = (span.start.max(life.start), span.end.min(life.end));
    let ways = Cell::new(WAYS);
    let mut back: Path<T> = Vec::new();
    let mut time = to;
    while time > from {
        let Some(i) = timeline.before(worker, time) else {
            push(&mut back, gap::<T>(worker, from, time));
            break;
        };
        let start = i.start.max(from);
        if i.end < time {
            push(&mut back, gap::<T>(worker, i.end.max(start), time));
        }
        let end = i.end.min(time);
        match i.state.is_wait().then(|| explain(timeline, worker, start, i.end, DEPTH, &ways)).flatten() {
            Some(chain) => back.extend(cut_end::<T>(chain, worker, end).into_iter().rev()),
            None => push(&mut back, interval::<T>(worker, start, end, &i)),
        }
        time = start;
    }
    back.reverse();
    back
}

/// Steps without length say nothing, unless they are links.
fn push<W: Copy, T>(path: &mut Vec<Step<W, T>>, s: Step<W, T>) {
    if s.duration() > 0 || matches!(s, Step::Link(_)) {
        path.push(s);
    }
}

fn gap<T: Timeline>(worker: T::Worker, start: Ns, end: Ns) -> Step<T::Worker, T::Tag> {
    Step::Interval { worker, interval: Interval { start, end, state: State::Unknown, tag: None } }
}

fn interval<T: Timeline>(
    worker: T::Worker,
    start: Ns,
    end: Ns,
    i: &Interval<T::Tag>,
) -> Step<T::Worker, T::Tag> {
    let interval = Interval { start, end, state: i.state, tag: Some(i.tag.clone()) };
    Step::Interval { worker, interval }
}

fn joint<T: Timeline>(from: T::Worker, to: T::Worker, time: Ns) -> Step<T::Worker, T::Tag> {
    Step::Link(Link { from: (from, time), to: (to, time), kind: LinkKind::Default, edge: None })
}

/// A chain cut at `end` and led back to `worker` there.
fn cut_end<T: Timeline>(chain: Path<T>, worker: T::Worker, end: Ns) -> Path<T> {
    if chain.last().is_none_or(|s| s.to().1 <= end) {
        return chain;
    }
    let mut out: Path<T> = Vec::new();
    for mut s in chain {
        if s.from().1 >= end && s.to().1 > end {
            break;
        }
        match &mut s {
            Step::Interval { interval, .. } => interval.end = interval.end.min(end),
            Step::Link(l) => l.to.1 = l.to.1.min(end),
        }
        out.push(s);
    }
    if let Some(last) = out.last().map(Step::to).filter(|l| l.0 != worker) {
        out.push(joint::<T>(last.0, worker, end));
    }
    out
}

/// A place where a link could have been followed instead of the worker.
struct Place<W> {
    link: Link<W>,
    /// How much had been taken before.
    taken: usize,
}

/// What one walk back took, from the end of the wait towards its begin.
struct Walk<'a, T: Timeline> {
    timeline: &'a T,
    /// The wait's begin.
    bound: Ns,
    depth: usize,
    /// Ways that may still be tried.
    ways: &'a Cell<u32>,
    /// Steps taken, the latest in time first.
    back: Path<T>,
    places: Vec<Place<T::Worker>>,
}

/// Explain the wait of `worker` over `bound..end`: a chain from the worker at `bound` to it at `end`.
/// `None` when no link enters its end.
fn explain<T: Timeline>(
    timeline: &T,
    worker: T::Worker,
    bound: Ns,
    end: Ns,
    depth: usize,
    ways: &Cell<u32>,
) -> Option<Path<T>> {
    let link = timeline.entering(worker, end)?;
    let depth = depth.checked_sub(1)?;
    let mut walk = Walk { timeline, bound, depth, ways, back: vec![Step::Link(link)], places: Vec::new() };
    let mut arrived = walk.go(link.from);
    if arrived || walk.places.is_empty() {
        return Some(finished::<T>(walk.back, worker, bound));
    }
    // A dead end. The published algorithm takes the places last remembered until it arrives or there are
    // none left; what it ends with is kept unless another way explains more.
    let mut published: Option<Path<T>> = None;
    let mut better: Option<(Explained, Path<T>)> = None;
    loop {
        let chain = finished::<T>(walk.back.clone(), worker, bound);
        let next = walk.places.pop().filter(|_| ways.get() > 0);
        if published.is_none() && (arrived || next.is_none()) {
            published = Some(chain);
        } else {
            let score = explained(&chain);
            if better.as_ref().is_none_or(|b| score > b.0) {
                better = Some((score, chain));
            }
        }
        let Some(place) = next else { break };
        ways.set(ways.get() - 1);
        walk.back.truncate(place.taken);
        walk.back.push(Step::Link(place.link));
        arrived = walk.go(place.link.from);
    }
    let published = published?;
    Some(match better {
        Some((score, chain)) if score > explained(&published) => chain,
        _ => published,
    })
}

/// A walk's steps in order of time: cut at the bound, filled and joined to the waiting worker there.
fn finished<T: Timeline>(back: Path<T>, worker: T::Worker, bound: Ns) -> Path<T> {
    let mut out: Path<T> = Vec::with_capacity(back.len() + 2);
    for mut s in back {
        match &mut s {
            Step::Interval { interval, .. } => interval.start = interval.start.max(bound),
            Step::Link(l) => {
                l.from.1 = l.from.1.max(bound);
                l.to.1 = l.to.1.max(bound);
            }
        }
        push(&mut out, s);
    }
    if let Some((first, time)) = out.last().map(Step::from) {
        if time > bound {
            push(&mut out, gap::<T>(first, bound, time));
        }
        if first != worker {
            out.push(joint::<T>(worker, first, bound));
        }
    }
    out.reverse();
    out
}

impl<T: Timeline> Walk<'_, T> {
    /// Walk back from a point until the bound. False at a dead end.
    fn go(&mut self, mut at: (T::Worker, Ns)) -> bool {
        // Links that take no time could lead round in a circle.
        let mut standing: Vec<T::Worker> = Vec::new();
        let mut since = at.1;
        while at.1 > self.bound {
            let (worker, time) = at;
            if time < since {
                standing.clear();
                since = time;
            }
            let link = self.timeline.entering(worker, time).filter(|l| l.from.1 <= time);
            if let Some(l) = link.filter(|l| l.from.1 <= self.bound) {
                self.back.push(Step::Link(l));
                return true;
            }
            let Some(i) = self.timeline.before(worker, time).filter(|i| i.end >= time) else {
                let Some(l) = link.filter(|_| !standing.contains(&worker)) else { return false };
                standing.push(worker);
                self.back.push(Step::Link(l));
                at = l.from;
                continue;
            };
            let start = i.start.max(self.bound);
            if i.state.is_wait() {
                // Only a wait that ended here can be explained by what ended it.
                let inner = if i.end == time {
                    explain(self.timeline, worker, start, time, self.depth, self.ways)
                } else {
                    None
                };
                match inner {
                    Some(chain) => self.back.extend(chain.into_iter().rev()),
                    None => push(&mut self.back, interval::<T>(worker, start, time, &i)),
                }
            } else {
                if let Some(link) = link {
                    self.places.push(Place { link, taken: self.back.len() });
                }
                push(&mut self.back, interval::<T>(worker, start, time, &i));
            }
            at = (worker, i.start);
        }
        true
    }
}
