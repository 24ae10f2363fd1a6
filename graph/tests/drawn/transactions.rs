//! Units of several threads as transactions: drawn ones, and simulated machines where who took what is known.

use crate::draw::{Drawing, ns};
use pg_event::{Direction, ObjectId, ObjectKind, ProcessId, ThreadId};
use pg_graph::sim::{Act, Recording, Script, Setup};
use pg_graph::transactions::{HandOver, How, Transactions, WorkUnit, pair_words, pairs, ways};
use pg_graph::{EventGraph, Weak};
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// What waits for a condition, and for a mutex that others wait for.
const CONDITION: (u32, u32) = (137, 0);
const MUTEX: (u32, u32) = (128, 2);

fn unit(thread: ThreadId, of_loop: u32, start: f64, end: f64) -> WorkUnit {
    WorkUnit { thread, of_loop, kind: of_loop, start: ns(start), end: ns(end) }
}

/// A server with some threads, and the word of a condition.
struct Server {
    d: Drawing,
    threads: Vec<ThreadId>,
    word: ObjectId,
}

fn server(names: &[&str]) -> Server {
    let mut d = Drawing::new(10.0);
    let main = d.process(names[0], names[0], None, 0.0);
    let others: Vec<ThreadId> = names[1..].iter().map(|n| d.thread(main, n, 0.0)).collect();
    let word = d.object(ObjectKind::Futex, 0x40, 1, "");
    Server { d, threads: std::iter::once(main).chain(others).collect(), word }
}

impl Server {
    /// A thread waits for the condition until another signals it, and has no CPU for a while then.
    fn signalled(&mut self, thread: ThreadId, from: f64, to: f64, by: ThreadId, queued: f64) {
        let w = self.d.wait(thread, from, to, "futex").on(self.word).op(CONDITION.0, CONDITION.1);
        w.queued(queued).by(by, "futex", self.word);
    }

    fn asked(&mut self, thread: ThreadId, from: f64, to: f64) {
        let o = self.d.object(ObjectKind::Tcp, 80, 0, "");
        self.d.wait(thread, from, to, "accept4").on(o).timer();
    }
}

#[test]
fn a_chain_of_three_threads() {
    let mut s = server(&["listener", "worker", "log"]);
    let [l, w, g] = s.threads[..] else { unreachable!() };
    s.asked(l, 0.1, 1.0);
    s.signalled(w, 0.1, 1.1, l, 0.0);
    s.signalled(g, 0.1, 1.5, w, 0.3);
    s.asked(l, 1.2, 9.0);
    s.signalled(w, 2.0, 9.05, l, 0.0);
    s.signalled(g, 2.5, 9.06, w, 0.0);
    let units = vec![unit(l, 0, 1.0, 1.2), unit(w, 1, 1.1, 2.0), unit(g, 2, 1.8, 2.5)];
    let (graph, catalog) = s.d.build();
    let t = Transactions::new(&graph, &catalog, units, &[]);
    let all: Vec<_> = t.transactions().collect();
    let [x] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!((x.units.as_slice(), x.strong, x.back), (&[0, 1, 2][..], true, false));
    assert_eq!((x.total(), x.queued, x.service), (ns(1.5), ns(0.3), ns(0.7)));
    let log = t.hand_overs[1];
    assert_eq!((log.runnable, log.busy, log.object), (ns(0.3), 0, ObjectId(0)));
    assert_eq!(t.unit_at(w, ns(1.5)), Some(1));
    assert_eq!(t.into_unit(2).map(|h| h.from).collect::<Vec<_>>(), [1]);
}

#[test]
fn what_was_done_just_before_a_unit_was_done_in_it() {
    let mut s = server(&["listener", "worker"]);
    let [l, w] = s.threads[..] else { unreachable!() };
    s.asked(l, 0.1, 1.0);
    s.signalled(w, 0.1, 1.1, l, 0.0);
    s.asked(l, 1.2, 9.0);
    s.signalled(w, 2.0, 9.05, l, 0.0);
    let (graph, catalog) = s.d.build();
    let from = |start| {
        let units = vec![unit(l, 0, 0.02, 0.1), unit(l, 0, start, 1.2), unit(w, 1, 1.1, 2.0)];
        Transactions::new(&graph, &catalog, units, &[]).hand_overs.iter().map(|h| h.from).collect::<Vec<_>>()
    };
    // The clock of the unit is 3 us ahead; what it did 1 ms before is another matter.
    assert_eq!(from(1.100_003), [1]);
    assert_eq!(from(1.101), []);
}

#[test]
fn the_mutex_behind_a_condition_is_no_hand_over_but_part_of_it() {
    let mut s = server(&["listener", "worker", "other"]);
    let [l, w, o] = s.threads[..] else { unreachable!() };
    s.asked(l, 0.1, 1.0);
    s.signalled(w, 0.1, 1.1, l, 0.0);
    // Taken again 10 us later; it is the other worker that unlocks it.
    let retaken = s.d.wait(w, 1.10001, 1.11, "futex").on(s.word).op(MUTEX.0, MUTEX.1);
    retaken.by(o, "futex", s.word);
    s.d.wait(o, 1.2, 5.0, "pause").open();
    s.signalled(w, 2.0, 5.0, l, 0.0);
    let units = vec![unit(l, 0, 1.0, 1.2), unit(o, 1, 0.5, 1.2), unit(w, 1, 1.11, 2.0)];
    let (graph, catalog) = s.d.build();
    let t = Transactions::new(&graph, &catalog, units, &[]);
    let of: Vec<_> = t.hand_overs.iter().map(|h| (h.from, h.to, h.time, h.taken, h.weak)).collect();
    assert_eq!(of, [(0, 1, ns(1.1), ns(1.11), None)]);
}

#[test]
fn who_unlocks_hands_on_nothing() {
    let mut s = server(&["a", "b"]);
    let [a, b] = s.threads[..] else { unreachable!() };
    s.d.wait(b, 0.1, 1.0, "futex").on(s.word).op(MUTEX.0, MUTEX.1).by(a, "futex", s.word);
    s.d.wait(a, 2.0, 3.0, "pause").open();
    let (graph, catalog) = s.d.build();
    let edge = graph.edge(graph.edges().next().expect("an edge"));
    assert_eq!(edge.weak, Some(Weak::MutexHandOff));
    let t = Transactions::new(&graph, &catalog, vec![unit(a, 0, 0.5, 1.5), unit(b, 1, 1.0, 2.0)], &[]);
    assert!(t.hand_overs.is_empty() && t.transactions().next().is_none());
}

/// Two workers wait for one word; the listener lets the first in, the first the second.
fn let_in_one_after_the_other(function: &str) -> Vec<(usize, usize)> {
    let mut s = server(&["listener", "first", "second"]);
    let [l, a, b] = s.threads[..] else { unreachable!() };
    let stack = s.d.stack(&["futex_wait (libc.so)", &format!("{function} (libc.so)"), "work (server)"]);
    s.asked(l, 0.1, 1.0);
    for (thread, until, by) in [(a, 1.1, l), (b, 1.2, a)] {
        let w = s.d.wait(thread, 0.1, until, "futex").on(s.word).op(CONDITION.0, CONDITION.1).stack(stack);
        w.by(by, "futex", s.word);
    }
    s.asked(l, 1.15, 9.0);
    s.d.wait(a, 2.0, 9.0, "futex").on(s.word).op(CONDITION.0, CONDITION.1).stack(stack).open();
    s.d.wait(b, 3.0, 9.0, "futex").on(s.word).op(CONDITION.0, CONDITION.1).stack(stack).open();
    let units = vec![unit(l, 0, 1.0, 1.15), unit(a, 1, 1.1, 2.0), unit(b, 1, 1.2, 3.0)];
    let (graph, catalog) = s.d.build();
    let t = Transactions::new(&graph, &catalog, units, &[]);
    t.hand_overs.iter().map(|h| (h.from, h.to)).collect()
}

#[test]
fn who_gives_back_a_semaphore_hands_on_nothing() {
    assert_eq!(let_in_one_after_the_other("__new_sem_wait_slow64"), [(0, 1)]);
    assert_eq!(let_in_one_after_the_other("PyThread_acquire_lock_timed"), [(0, 1)]);
    // A condition is not taken: the second was signalled by the first.
    assert_eq!(let_in_one_after_the_other("pthread_cond_wait"), [(0, 1), (1, 2)]);
}

#[test]
fn a_way_ends_where_it_comes_back() {
    let mut s = server(&["loop", "pool"]);
    let [l, p] = s.threads[..] else { unreachable!() };
    let bell = s.d.object(ObjectKind::EventFd, 7, 0, "");
    s.asked(l, 0.1, 1.0);
    s.signalled(p, 0.1, 1.1, l, 0.0);
    s.d.wait(l, 1.2, 2.0, "epoll_wait").on(bell).by(p, "write", bell);
    s.signalled(p, 2.1, 2.2, l, 0.0);
    s.asked(l, 2.3, 9.0);
    s.d.wait(p, 3.0, 9.0, "pause").open();
    let units = vec![unit(l, 0, 1.0, 1.2), unit(l, 0, 2.0, 2.3), unit(p, 1, 1.1, 2.1), unit(p, 1, 2.2, 3.0)];
    let (graph, catalog) = s.d.build();
    let t = Transactions::new(&graph, &catalog, units, &[]);
    let got: Vec<_> = t.transactions().map(|x| (x.units, x.back)).collect();
    assert_eq!(got, [(vec![0, 2, 1], true), (vec![1, 3], false)]);
    assert_eq!(ways(&t).len(), 2);
}

#[test]
fn messages_that_are_taken_without_a_wait() {
    let mut s = server(&["dispatcher", "worker"]);
    let [d, w] = s.threads[..] else { unreachable!() };
    let pipe = s.d.object(ObjectKind::Pipe, 9, 9, "");
    s.asked(d, 0.1, 1.0);
    s.d.message(d, pipe, Direction::Send, 1.05, 8);
    s.d.wait(w, 0.1, 1.05, "epoll_wait").on(pipe).by(d, "write", pipe);
    s.d.message(w, pipe, Direction::Receive, 1.06, 8);
    s.asked(d, 1.1, 1.5);
    s.d.message(d, pipe, Direction::Send, 1.55, 8);
    // Still busy with the first; then it takes the second at once.
    s.d.message(w, pipe, Direction::Receive, 2.0, 8);
    s.asked(d, 1.6, 9.0);
    s.d.wait(w, 3.0, 9.0, "epoll_wait").on(pipe).open();
    let units =
        vec![unit(d, 0, 1.0, 1.1), unit(d, 0, 1.5, 1.6), unit(w, 1, 1.05, 1.99), unit(w, 1, 1.99, 3.0)];
    let (graph, catalog) = s.d.build();
    let t = Transactions::new(&graph, &catalog, units, &[]);
    let of: Vec<_> = t.hand_overs.iter().map(|h| (h.from, h.to, h.queued(), h.busy, h.is_strong())).collect();
    assert_eq!(of, [(0, 2, 0, 0, true), (1, 3, ns(0.45), ns(0.44), true)]);
    assert!(matches!(t.hand_overs[1].how, How::Message(_)));
    assert_eq!(t.hand_overs[1].object, pipe);
}

/// A listener that is asked now and then, and workers that take what it hands on in order and each sleep over it.
fn pool(workers: usize, gaps: &[u64], service: u64, cpus: usize) -> (Recording, EventGraph) {
    let listens: Vec<Act> =
        gaps.iter().flat_map(|g| [Act::Sleep(*g), Act::Compute(20 * US), Act::Signal(0)]).collect();
    let works =
        Script::forever([Act::Wait(0), Act::Compute(100 * US), Act::Sleep(service), Act::Compute(50 * US)]);
    let mut scripts = vec![Script::forever(listens)];
    scripts.extend(vec![works; workers]);
    let (mut r, _) = Recording::of(Setup { cpus, ..Setup::default() }, scripts, 1000 * MS);
    for t in &mut r.catalog.threads {
        t.process = ProcessId(0);
    }
    let graph = r.graph();
    (r, graph)
}

/// Units as the waits tell: the listener's between sleeps; a worker's up to its next wait for the condition, or to the
/// end of its sleep when it did not have to wait. With when it was granted.
fn units_of(graph: &EventGraph, workers: usize) -> (Vec<WorkUnit>, Vec<(u64, WorkUnit)>) {
    let (mut listens, mut works) = (Vec::new(), Vec::new());
    let make =
        |t: u32, of_loop, start, end| WorkUnit { thread: ThreadId(t), of_loop, kind: of_loop, start, end };
    for t in 0..=workers as u32 {
        let mut granted = None;
        for v in graph.vertices_of(ThreadId(t)).map(|v| graph.vertex(v)) {
            let sleeps = v.syscall.is_any(&["clock_nanosleep", "nanosleep"]);
            if v.open || v.woken == v.start {
                continue;
            }
            if t == 0 {
                if v.end < graph.duration() {
                    listens.push(make(0, 0, v.run, v.end));
                }
            } else if !sleeps {
                granted = Some((v.woken, v.run));
            } else {
                // 50 us of computing follow, then it waits or takes the next.
                let end = if v.end - v.run > 60 * US { v.run + 51 * US } else { v.end };
                if let Some((grant, start)) = granted.replace((end, end)) {
                    works.push((grant, make(t, 1, start, end)));
                }
            }
        }
    }
    works.sort_by_key(|w| w.0);
    (listens, works)
}

/// How many hand-overs there really were, how many were found, and how many of those found are right; mean queueing
/// times as they were and as found.
fn figures(workers: usize, gaps: &[u64], service: u64) -> (usize, usize, usize, u64, u64) {
    let (r, graph) = pool(workers, gaps, service, 2);
    let (listens, works) = units_of(&graph, workers);
    let pairs: Vec<(WorkUnit, WorkUnit)> = listens.iter().copied().zip(works.iter().map(|w| w.1)).collect();
    let units = listens.iter().copied().chain(works.iter().map(|w| w.1)).collect();
    let t = Transactions::new(&graph, &r.catalog, units, &[]);
    let found: Vec<(WorkUnit, WorkUnit)> =
        t.hand_overs.iter().map(|h| (t.units[h.from], t.units[h.to])).collect();
    let right = found.iter().filter(|f| pairs.contains(f)).count();
    let mean = |all: Vec<u64>| all.iter().sum::<u64>() / all.len().max(1) as u64;
    let truth = mean(pairs.iter().map(|(l, w)| w.start.saturating_sub(l.end)).collect());
    (pairs.len(), found.len(), right, truth, mean(t.hand_overs.iter().map(HandOver::queued).collect()))
}

#[test]
fn when_all_workers_are_busy_that_is_said() {
    let gaps = [MS, MS, MS, MS, 30 * MS];
    let (r, graph) = pool(2, &gaps, 10 * MS, 2);
    let (listens, works) = units_of(&graph, 2);
    let units = listens.into_iter().chain(works.into_iter().map(|w| w.1)).collect();
    let t = Transactions::new(&graph, &r.catalog, units, &[]);
    let all = pairs(&t, &graph, &r.catalog);
    let p = all.iter().find(|p| p.from.1 == 0).expect("a pair");
    let words = pair_words(p);
    assert!(p.by_order > 10 && p.workers == 2, "{p:#?}");
    assert!(
        words.contains("all 2 workers were busy") && words.contains("meanwhile the workers waited (sleep)"),
        "{words}"
    );
    // A third one, which never got work, was free.
    let units = t.units.clone();
    let t = Transactions::new(&graph, &r.catalog, units, &[(ThreadId(0), 1)]);
    let all = pairs(&t, &graph, &r.catalog);
    assert!(all.iter().all(|p| p.saturated < 0.05 || p.to.1 == 0), "{all:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hand_overs_are_found_and_right(
        workers in 1..4_usize,
        gaps in proptest::collection::vec(1..12_u64, 3..9),
        service in 1..6_u64,
    ) {
        let gaps: Vec<u64> = gaps.iter().map(|g| g * MS).collect();
        let work: u64 = gaps.len() as u64 * (service * MS + 150 * US);
        // A queue that only grows never empties: nothing is known of what is in it.
        prop_assume!(work * 10 < gaps.iter().sum::<u64>() * workers as u64 * 9);
        let (truth, found, right, queued, ours) = figures(workers, &gaps, service * MS);
        prop_assume!(truth > 20);
        prop_assert!(right * 100 >= found * 95, "precision: {right} of {found}");
        prop_assert!(right * 100 >= truth * 85, "recall: {right} of {truth}");
        prop_assert!(queued.abs_diff(ours) <= queued / 5 + 200 * US, "queued {queued}, told {ours}");
    }

    #[test]
    fn any_units_are_joined_without_harm(
        spans in proptest::collection::vec((0..4_u32, 0..3_u32, 0..1000_u64, 0..50_u64), 0..60),
    ) {
        let (r, graph) = pool(3, &[2 * MS, 5 * MS], 3 * MS, 1);
        let make = |&(t, of_loop, start, long): &(u32, u32, u64, u64)| WorkUnit {
            thread: ThreadId(t), of_loop, kind: of_loop, start: start * MS, end: (start + long) * MS,
        };
        let t = Transactions::new(&graph, &r.catalog, spans.iter().map(make).collect(), &[]);
        for h in &t.hand_overs {
            prop_assert!(h.time <= h.taken && h.from != h.to);
        }
        for x in t.transactions() {
            prop_assert!(x.units.len() == x.hand_overs.len() + 1 && x.queued <= x.total());
        }
        for p in pairs(&t, &graph, &r.catalog) {
            prop_assert!(!pair_words(&p).is_empty());
        }
    }
}
