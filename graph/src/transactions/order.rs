//! Hand-overs to busy workers, which no event shows: by the order of the queue.
//!
//! Between two loops of a process that are known to hand work over by a condition variable: a listener's unit that woke
//! no worker put something into the queue, if it does so in every unit; a worker's unit that began without a wait took
//! something out of it. Whenever a worker waits for a signal the queue is empty, which bounds what one missing event can
//! do. Spans between two such moments in which the numbers do not fit are left alone.

use super::taken::waited_before;
use super::{HandOver, How, Members, Route, WorkUnit, route};
use crate::{EdgeKind, EventGraph};
use pg_event::{Catalog, Ns, ObjectId, ThreadId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Certain hand-overs that make a route known.
const LEAST: usize = 3;
/// Of the units of a listener in which a worker was idle, so many must have woken one.
const OFTEN: f64 = 0.8;
/// Of what was put in, or taken out, between two moments with an empty queue, so much may lack the other side.
const MISSING: f64 = 0.34;
/// A worker that another was quicker than finds nothing and waits again, within this time.
const NOTHING: Ns = 50_000;
/// Units that are this many times shorter than others of their loop may be such.
const SHORT: Ns = 10;

/// Vertices of one unit of a listener that are looked at.
const MOST_VERTICES: usize = 64;

/// What happens to a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum At {
    /// Something is put in by a unit; the number of the hand-over to a worker that found nothing, if there is one.
    Put(usize, Option<usize>),
    /// A unit takes something out.
    Take(usize),
    /// A worker waits: nothing is in it.
    Empty,
}

/// Adds them.
pub(super) fn add(
    graph: &EventGraph,
    catalog: &Catalog,
    units: &[WorkUnit],
    threads: &Members,
    all: &mut Vec<HandOver>,
) {
    let mut routes: BTreeMap<Route, Vec<usize>> = BTreeMap::new();
    for (i, h) in all.iter().enumerate() {
        if let How::Woken(e) = h.how
            && h.weak.is_none()
            && graph.edge(e).kind == EdgeKind::Futex
        {
            routes.entry(route(catalog, &units[h.from], &units[h.to])).or_default().push(i);
        }
    }
    routes.retain(|r, known| known.len() >= LEAST && (r.0, r.1) != (r.2, r.3));
    if routes.is_empty() {
        return;
    }
    let mut taken: HashSet<usize> = all.iter().map(|h| h.to).collect();
    let mut gave: HashSet<usize> = all.iter().map(|h| h.from).collect();
    for (r, known) in routes {
        let own = |of: &(pg_event::ProcessId, u32)| threads.get(of).map(Vec::as_slice).unwrap_or_default();
        let queue =
            Queue { graph, units, listeners: own(&(r.0, r.1)), workers: own(&(r.2, r.3)), loops: (r.1, r.3) };
        let Some(events) = queue.events(all, &known, &taken, &gave) else { continue };
        let object = commonest(known.iter().map(|k| all[*k].object));
        for (from, to, time, instead) in matched(&events, &|u| queue.ran(u)) {
            let h = HandOver {
                from,
                to,
                time: time.min(units[to].start),
                taken: units[to].start,
                runnable: 0,
                busy: 0,
                object,
                how: How::Order,
                weak: None,
            };
            taken.insert(to);
            gave.insert(from);
            match instead {
                Some(i) => all[i] = h,
                None => all.push(h),
            }
        }
    }
}

fn commonest(objects: impl Iterator<Item = ObjectId>) -> ObjectId {
    let mut counts: HashMap<ObjectId, usize> = HashMap::new();
    for o in objects {
        *counts.entry(o).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(o, n)| (*n, std::cmp::Reverse(o.0))).map_or(ObjectId::NONE, |c| c.0)
}

/// The two loops of a route.
struct Queue<'a> {
    graph: &'a EventGraph,
    units: &'a [WorkUnit],
    listeners: &'a [ThreadId],
    workers: &'a [ThreadId],
    loops: (u32, u32),
}

impl Queue<'_> {
    fn of(&self, threads: &[ThreadId], of_loop: u32) -> Vec<usize> {
        let own = threads.iter().flat_map(|t| {
            let first = self.units.partition_point(|u| u.thread < *t);
            (first..self.units.len()).take_while(|i| self.units[*i].thread == *t)
        });
        own.filter(|i| self.units[*i].of_loop == of_loop).collect()
    }

    /// What happened to the queue, by time; `None` when the listener does not hand on in nearly every unit.
    fn events(
        &self,
        all: &[HandOver],
        known: &[usize],
        taken: &HashSet<usize>,
        gave: &HashSet<usize>,
    ) -> Option<Vec<(Ns, At)>> {
        let after = |h: &HandOver| h.time.saturating_sub(self.units[h.from].start);
        let mut offsets: Vec<Ns> = known.iter().map(|k| after(&all[*k])).collect();
        offsets.sort_unstable();
        let offset = offsets[offsets.len() / 2];
        let listens = self.of(self.listeners, self.loops.0);
        let works = self.of(self.workers, self.loops.1);
        let mut events: Vec<(Ns, At)> = Vec::new();
        let (mut idle, mut woke) = (0_usize, 0_usize);
        for i in listens {
            let u = &self.units[i];
            let put = u.start.saturating_add(offset).min(u.end);
            if gave.contains(&i) {
                woke += 1;
            } else {
                if self.workers.iter().any(|w| self.waits(*w, put)) {
                    idle += 1;
                }
                events.push((put, At::Put(i, None)));
            }
        }
        if (woke as f64) < OFTEN * (woke + idle) as f64 {
            return None;
        }
        let mut lengths: Vec<Ns> = works.iter().map(|w| self.units[*w].duration()).collect();
        lengths.sort_unstable();
        let usual = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        let found_nothing = |u: &WorkUnit| u.duration() <= NOTHING && u.duration() * SHORT <= usual;
        for k in known.iter().filter(|k| found_nothing(&self.units[all[**k].to])) {
            events.push((all[*k].time, At::Put(all[*k].from, Some(*k))));
        }
        for w in works {
            let u = &self.units[w];
            match waited_before(self.graph, self.units, w) {
                // When it began to wait, the queue was empty.
                Some(waits) => {
                    let first = waits.last().map_or(u.start, |v| self.graph.vertex(*v).start);
                    events.push((first, At::Empty));
                }
                None if !taken.contains(&w) => events.push((u.start, At::Take(w))),
                None => {}
            }
        }
        events.sort_unstable();
        Some(events)
    }

    /// How long a unit was on the CPU, ns.
    fn ran(&self, unit: usize) -> Ns {
        let u = &self.units[unit];
        let within = self.graph.vertices_in(u.thread, u.start..u.end.max(u.start + 1));
        within.take(MOST_VERTICES).map(|v| self.graph.vertex(v).ran()).sum::<Ns>().min(u.duration())
    }

    /// Does a thread wait, not within a unit?
    fn waits(&self, thread: ThreadId, time: Ns) -> bool {
        let in_unit = super::unit_before(self.units, thread, time).is_some_and(|i| self.units[i].end > time);
        let v = self.graph.vertex_at(thread, time).map(|v| self.graph.vertex(v));
        !in_unit && v.is_some_and(|v| v.start <= time && time < v.woken)
    }
}

/// Units that put something in and those that took it out: from, to, when it was put in, and instead of which hand-over.
/// `ran`: how long a unit was on the CPU.
fn matched(events: &[(Ns, At)], ran: &dyn Fn(usize) -> Ns) -> Vec<Matched> {
    let mut all = Vec::new();
    let (mut puts, mut takes): (Vec<Put>, Vec<(Ns, usize)>) = (Vec::new(), Vec::new());
    for (time, at) in events.iter().chain([&(Ns::MAX, At::Empty)]) {
        match *at {
            At::Put(unit, instead) => puts.push((*time, unit, instead)),
            At::Take(unit) => takes.push((*time, unit)),
            At::Empty => {
                in_order(&puts, &takes, ran, &mut all);
                puts.clear();
                takes.clear();
            }
        }
    }
    all
}

type Matched = (usize, usize, Ns, Option<usize>);
/// When, by which unit, and the hand-over to a worker that found nothing.
type Put = (Ns, usize, Option<usize>);

/// Of a span at whose begin and end nothing is in the queue.
fn in_order(puts: &[Put], takes: &[(Ns, usize)], ran: &dyn Fn(usize) -> Ns, all: &mut Vec<Matched>) {
    // A worker that found nothing did so for another reason, if nobody was quicker.
    let certain = puts.iter().filter(|p| p.2.is_none()).count();
    let puts: Vec<_> = puts.iter().filter(|p| p.2.is_none() || certain < takes.len()).collect();
    let (n, m) = (takes.len(), puts.len());
    if n == 0 || m == 0 || n.abs_diff(m) as f64 > MISSING * n.max(m) as f64 {
        return;
    }
    // The number of the put that brought each of what was taken.
    let up_to: Vec<f64> = if n > m {
        several(&puts.iter().map(|p| ran(p.1)).collect::<Vec<_>>(), n)
    } else {
        (1..=m).map(|i| i as f64 * n as f64 / m as f64).collect()
    };
    let mut before = None;
    for (i, &(time, to)) in takes.iter().enumerate() {
        let there = puts.partition_point(|p| p.0 <= time);
        let of = up_to.partition_point(|u| *u < i as f64 + 0.5);
        let Some(at) = there.checked_sub(1).map(|last| last.min(of)) else { continue };
        let &&(put, from, instead) = &puts[at];
        all.push((from, to, put, instead.filter(|_| before != Some(at))));
        before = Some(at);
    }
}

/// A listener that found several requests put in several in one unit: which of its units did is told by how much longer
/// than usual they ran. Returns how many of `n` were put in up to each.
fn several(ran: &[Ns], n: usize) -> Vec<f64> {
    let mut sorted = ran.to_vec();
    sorted.sort_unstable();
    let usual = sorted[(sorted.len() - 1) / 2].max(1) as f64;
    let more: Vec<f64> = ran.iter().map(|r| (*r as f64 / usual - 1.0).max(0.0)).collect();
    let all: f64 = more.iter().sum();
    let missing = (n - ran.len()) as f64;
    let share = |m: &f64| 1.0 + missing * if all > 0.0 { m / all } else { 1.0 / ran.len() as f64 };
    let mut sum = 0.0;
    let add = |m| {
        sum += share(m);
        sum
    };
    more.iter().map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_in_its_order() {
        let put = |t, u| (t, At::Put(u, None));
        let take = |t, u| (t, At::Take(u));
        let events = [put(1, 1), put(2, 2), take(3, 10), put(4, 3), take(5, 11), take(6, 12), (7, At::Empty)];
        let got = matched(&events, &|_| 1);
        assert_eq!(got, [(1, 10, 1, None), (2, 11, 2, None), (3, 12, 4, None)]);
    }

    #[test]
    fn a_span_in_which_the_numbers_do_not_fit_is_left_alone() {
        let put = |t, u| (t, At::Put(u, None));
        let take = |t, u| (t, At::Take(u));
        // Nothing is left of before when a worker waits.
        let events = [put(1, 1), (2, At::Empty), put(3, 2), take(4, 10), (5, At::Empty)];
        assert_eq!(matched(&events, &|_| 1), [(2, 10, 3, None)]);
        let events = [put(1, 1), put(2, 2), take(3, 10), (4, At::Empty), put(5, 3), take(6, 11)];
        assert_eq!(matched(&events, &|_| 1), [(3, 11, 5, None)]);
        assert_eq!(matched(&[take(1, 10), put(2, 1), take(3, 11)], &|_| 1), []);
    }

    #[test]
    fn a_listener_that_took_two_requests_at_once() {
        let put = |t, u| (t, At::Put(u, None));
        let take = |t, u| (t, At::Take(u));
        let events = [put(1, 1), put(2, 2), take(3, 10), take(4, 11), take(5, 12)];
        // Which of them, is told by how long they ran.
        let of = |ran: &dyn Fn(usize) -> Ns| -> Vec<(usize, usize)> {
            matched(&events, ran).into_iter().map(|m| (m.0, m.1)).collect()
        };
        assert_eq!(of(&|u| if u == 1 { 19 } else { 10 }), [(1, 10), (1, 11), (2, 12)]);
        assert_eq!(of(&|u| if u == 2 { 19 } else { 10 }), [(1, 10), (2, 11), (2, 12)]);
    }

    #[test]
    fn a_worker_that_found_nothing_was_outrun() {
        let events = [(1, At::Put(1, Some(5))), (2, At::Take(10)), (3, At::Empty)];
        assert_eq!(matched(&events, &|_| 1), [(1, 10, 1, Some(5))]);
        // Nobody was quicker: it stays as it is.
        assert_eq!(matched(&[(1, At::Put(1, Some(5))), (3, At::Empty)], &|_| 1), []);
    }
}
