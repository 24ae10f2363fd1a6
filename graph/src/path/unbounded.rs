//! The unbounded path: from the end back to the causes, wherever they lie.

use super::{Interval, Link, LinkKind, State, Step, Timeline};
use pg_event::Ns;

type Path<T> = Vec<Step<<T as Timeline>::Worker, <T as Timeline>::Tag>>;

/// A link that was followed at the end of a wait.
struct Jump<W> {
    taken: usize,
    worker: W,
    start: Ns,
    end: Ns,
    kind: LinkKind,
}

/// The unbounded critical path of a worker over its whole time: at the end of each wait, and where a
/// worker begins, it goes on with whoever caused that, also when it lies before the wait. What the
/// waiting worker did in between is not on it.
pub fn unbounded<T: Timeline>(timeline: &T, worker: T::Worker) -> Path<T> {
    let Some(life) = timeline.span(worker) else { return Vec::new() };
    let begin = life.start;
    let mut back: Path<T> = Vec::new();
    let mut jumps: Vec<Jump<T::Worker>> = Vec::new();
    let mut given_up: Vec<(T::Worker, Ns)> = Vec::new();
    let mut standing: Vec<T::Worker> = Vec::new();
    let mut at = (worker, life.end);
    while at.1 > begin {
        let (w, time) = at;
        let before = timeline.before(w, time).filter(|i| i.end >= time);
        let open = |x: &(T::Worker, Ns)| !given_up.contains(x);
        let link = timeline.entering(w, time).filter(|l| {
            l.from.1 <= time && open(&(w, time)) && !(l.from.1 == time && standing.contains(&l.from.0))
        });
        let wait = before.as_ref().filter(|i| i.state.is_wait() && i.end == time);
        let follow = link.filter(|_| before.is_none() || wait.is_some());
        if let Some(l) = follow {
            if let Some(i) = wait {
                jumps.push(Jump { taken: back.len(), worker: w, start: i.start, end: time, kind: l.kind });
            }
            if l.from.1 == time {
                standing.push(w);
            } else {
                standing.clear();
            }
            back.push(Step::Link(cut(l, begin)));
            at = l.from;
            continue;
        }
        standing.clear();
        if let Some(i) = before {
            let interval =
                Interval { start: i.start.max(begin), end: time, state: i.state, tag: Some(i.tag) };
            back.push(Step::Interval { worker: w, interval });
            at = (w, i.start);
            continue;
        }
        // Nothing behind this place: the last jump led nowhere.
        let Some(j) = jumps.pop() else {
            fill::<T>(&mut back, w, begin, time);
            at = (w, begin);
            continue;
        };
        back.truncate(j.taken);
        let (start, place) = (j.start.max(begin), time.clamp(j.start.max(begin), j.end));
        let (from, to) = ((j.worker, place), (j.worker, j.end));
        back.push(Step::Link(Link { from, to, kind: j.kind, edge: None }));
        fill::<T>(&mut back, j.worker, start, place);
        given_up.push((j.worker, j.end));
        at = (j.worker, j.start);
    }
    // It begins where the worker does.
    if let Some((w, time)) = back.last().map(Step::from).filter(|f| f.0 != worker) {
        let link = Link { from: (worker, time), to: (w, time), kind: LinkKind::Default, edge: None };
        back.push(Step::Link(link));
    }
    back.reverse();
    back
}

fn cut<W: Copy>(mut l: Link<W>, begin: Ns) -> Link<W> {
    l.from.1 = l.from.1.max(begin);
    l
}

fn fill<T: Timeline>(back: &mut Path<T>, worker: T::Worker, start: Ns, end: Ns) {
    if start < end {
        let interval = Interval { start, end, state: State::Unknown, tag: None };
        back.push(Step::Interval { worker, interval });
    }
}
