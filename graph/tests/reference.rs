//! The builder, lanes and paths against slow, obvious references, on recordings of a simulated machine
//! whose every wait is known.

use petgraph::Direction;
use petgraph::visit::{EdgeRef, IntoEdgeReferences, IntoNeighborsDirected, NodeIndexable};
use pg_event::{Context, Event, Kind, Ns, OffState, ThreadId};
use pg_graph::path::{State, Step, bounded, is_chain};
use pg_graph::sim::{Act, COST, Recording, Script, Setup, TrueWait};
use pg_graph::{BuildOptions, Builder, EdgeKind, EventGraph, LaneState, VertexId, Weak};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1_000u64..3_000_000).prop_map(Act::Compute),
        1 => (0usize..3).prop_map(Act::Wait),
        2 => (0usize..3).prop_map(Act::Signal),
        2 => (0usize..4, 1u64..9000).prop_map(|(c, n)| Act::Send(c, n)),
        1 => (0usize..4).prop_map(Act::Receive),
        1 => (1_000u64..4_000_000).prop_map(Act::Sleep),
        1 => (0usize..8).prop_map(Act::Spawn),
        1 => (0usize..8).prop_map(Act::Join),
        1 => (1u32..5).prop_map(Act::Yield),
    ]
}

/// Scripts of up to eight threads; mutexes are taken and given back in pairs so that they do not last.
fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let block = prop_oneof![
        4 => prop::collection::vec(act(), 1..4),
        1 => (0usize..2, 1_000u64..2_000_000).prop_map(|(m, n)| vec![Act::Lock(m), Act::Compute(n), Act::Unlock(m)]),
    ];
    let script = (prop::collection::vec(block, 1..6), 0u32..4, prop::bool::weighted(0.3));
    prop::collection::vec(script, 2..8).prop_map(|all| {
        let mut out: Vec<Script> = all
            .into_iter()
            .map(|(blocks, rounds, spawned)| Script { acts: blocks.concat(), rounds, spawned })
            .collect();
        out[0].spawned = false;
        out
    })
}

fn recording() -> impl Strategy<Value = (Recording, Vec<TrueWait>)> {
    (scripts(), 1usize..4, 1_000_000u64..60_000_000).prop_map(|(scripts, cpus, duration)| {
        let setup =
            Setup { cpus, slice: 700_000, sample_every: 990_000, capacity: 10_000, ..Setup::default() };
        Recording::of(setup, scripts, duration)
    })
}

/// What a thread did, in order: each interval of it, straight from the events.
fn plain_lane(r: &Recording, t: ThreadId, g: &EventGraph) -> Vec<(Ns, Ns, LaneState)> {
    let (Some(mut at), Some(end)) = (g.began(t), g.ended(t)) else { return Vec::new() };
    let mut out = Vec::new();
    for e in r.events.iter().filter(|e| e.thread == t) {
        let Kind::OffCpu(o) = e.kind else { continue };
        let woken = if o.woken == 0 { e.time } else { o.woken };
        out.push((at, o.start, LaneState::Running));
        out.push((o.start, woken, LaneState::of_wait(o.state)));
        out.push((woken, e.time, LaneState::Runnable));
        at = e.time;
    }
    out.push((at, end, LaneState::Running));
    out.retain(|i| i.0 < i.1);
    join(out)
}

fn join(all: Vec<(Ns, Ns, LaneState)>) -> Vec<(Ns, Ns, LaneState)> {
    let mut out: Vec<(Ns, Ns, LaneState)> = Vec::new();
    for i in all {
        match out.last_mut() {
            Some(l) if l.1 == i.0 && l.2 == i.2 => l.1 = i.1,
            _ => out.push(i),
        }
    }
    out
}

fn state_at(lane: &[(Ns, Ns, LaneState)], time: Ns) -> Option<LaneState> {
    lane.iter().find(|i| i.0 <= time && time < i.1).map(|i| i.2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 3 / 5, failure_persistence: None, ..ProptestConfig::default() })]

    /// Vertices are exactly what lies between blocking waits, in order, without gap.
    #[test]
    fn vertices_are_the_segments((r, _) in recording()) {
        let g = r.graph();
        for t in g.threads() {
            let waits: Vec<(Ns, &Event)> = r.events.iter().filter(|e| e.thread == t).filter_map(|e| match e.kind {
                Kind::OffCpu(o) if o.state != OffState::Runnable => Some((o.start, e)),
                _ => None,
            }).collect();
            let vertices: Vec<VertexId> = g.vertices_of(t).collect();
            // Parts that a heuristic made have no wait of their own.
            let whole: Vec<VertexId> = vertices.iter().copied().filter(|v| g.vertex(*v).split.is_none()).collect();
            prop_assert_eq!(whole.len(), waits.len() + 1);
            for (v, (start, e)) in whole[1..].iter().zip(&waits) {
                let v = g.vertex(*v);
                let Kind::OffCpu(o) = e.kind else { unreachable!() };
                prop_assert_eq!(v.start, *start);
                prop_assert_eq!(v.woken, if o.woken == 0 { e.time } else { o.woken });
                prop_assert_eq!(v.run, e.time);
                prop_assert_eq!((v.syscall, v.object, v.op, v.value), (o.syscall, o.object, o.op, o.value));
                prop_assert_eq!(v.open, o.open && o.woken == 0);
            }
            for pair in vertices.windows(2) {
                prop_assert_eq!(g.vertex(pair[0]).end, g.vertex(pair[1]).start);
                prop_assert_eq!((g.next(pair[0]), g.previous(pair[1])), (Some(pair[1]), Some(pair[0])));
            }
            let lane = plain_lane(&r, t, &g);
            for v in &vertices {
                let x = g.vertex(*v);
                prop_assert!(x.start <= x.woken && x.woken <= x.run && x.run <= x.end);
                let put_off: Ns = lane.iter().filter(|i| i.2 == LaneState::Runnable)
                    .map(|i| i.1.min(x.end).saturating_sub(i.0.max(x.run))).sum();
                prop_assert_eq!(x.preempted, put_off);
                prop_assert_eq!(x.ran() + x.preempted + x.queued() + x.waited(), x.duration());
            }
        }
    }

    /// Every wait that somebody ended has its edge from the segment he was in; nothing else wakes.
    #[test]
    fn waking_edges_are_the_true_ones((r, truth) in recording()) {
        let g = r.graph();
        let mut known: BTreeMap<(ThreadId, Ns), &TrueWait> = BTreeMap::new();
        for w in &truth {
            known.insert((w.thread, w.start), w);
        }
        for v in g.vertices() {
            let x = g.vertex(v);
            let waking = g.waking(v).map(|e| g.edge(e));
            if x.start == x.woken && x.state == OffState::Runnable {
                prop_assert!(waking.is_none_or(|e| e.kind == EdgeKind::Spawn));
                continue;
            }
            let Some(w) = known.get(&(x.thread, x.start)) else {
                prop_assert!(x.open && waking.is_none());
                continue;
            };
            prop_assert_eq!(w.woken, x.woken);
            prop_assert_eq!(x.timed_out, w.by.is_none());
            let Some(by) = w.by else {
                prop_assert!(waking.is_none());
                continue;
            };
            let e = waking.expect("an edge");
            let from = g.vertex(e.from);
            prop_assert_eq!(from.thread, by);
            prop_assert!(from.run <= x.woken && x.woken <= from.end);
            prop_assert_eq!((e.from_time, e.to_time), (x.woken, x.woken));
            prop_assert_eq!(e.weak, w.lock.then_some(Weak::MutexHandOff));
        }
    }

    /// A message that was received has an edge from whoever sent those bytes.
    #[test]
    fn messages_are_matched_by_their_bytes((r, _) in recording()) {
        let g = r.graph();
        // By channel (lower of its two ids): who sent which range when.
        let key = |o: pg_event::ObjectId| { let x = &r.catalog.objects[o.index()]; x.id.min(x.peer) };
        let mut sent: BTreeMap<u64, Vec<(u64, u64, ThreadId, Ns)>> = BTreeMap::new();
        for e in &r.events {
            let Kind::Ipc(u) = e.kind else { continue };
            let range = (u.position - u.bytes, u.position);
            if u.direction == pg_event::Direction::Send {
                sent.entry(key(u.object)).or_default().push((range.0, range.1, e.thread, e.time));
                continue;
            }
            let to = g.vertex_at(e.thread, e.time).map(|v| {
                // At the moment between two vertices it is the one that runs.
                if g.vertex(v).run > e.time { g.previous(v).unwrap_or(v) } else { v }
            }).expect("a vertex");
            let sources: HashSet<ThreadId> = g.incoming(to).map(|i| g.edge(i)).filter(|x| x.kind == EdgeKind::Ipc)
                .map(|x| g.vertex(x.from).thread).collect();
            for s in sent.get(&key(u.object)).into_iter().flatten() {
                if s.0 < range.1 && range.0 < s.1 && s.2 != e.thread {
                    prop_assert!(sources.contains(&s.2), "bytes {:?} from {:?} to {:?}", range, s, e.thread);
                }
            }
        }
    }

    /// Incoming, outgoing and petgraph's views hold the same edges.
    #[test]
    fn adjacency_agrees((r, _) in recording()) {
        let g = r.graph();
        let mut seen = HashSet::new();
        for v in g.vertices() {
            for e in g.outgoing(v) {
                prop_assert_eq!(g.edge(e).from, v);
                prop_assert!(g.incoming(g.edge(e).to).any(|i| i == e));
                prop_assert!(seen.insert(e));
            }
            for e in g.incoming(v) {
                prop_assert_eq!(g.edge(e).to, v);
            }
            let out: Vec<_> = (&g).neighbors_directed(v, Direction::Outgoing).collect();
            prop_assert_eq!(out.len(), g.outgoing(v).len() + usize::from(g.next(v).is_some()));
            for o in out {
                prop_assert!((&g).neighbors_directed(o, Direction::Incoming).any(|x| x == v));
            }
        }
        prop_assert_eq!(seen.len(), g.edge_count());
        for e in (&g).edge_references() {
            prop_assert!(e.source().index() < g.node_bound() && e.target().index() < g.node_bound());
            let (a, b) = (g.vertex(e.source()), g.vertex(e.target()));
            if *e.weight() != EdgeKind::ProgramOrder {
                let x = g.edge(e.id());
                prop_assert!(x.from_time <= x.to_time);
                prop_assert!(a.start <= x.from_time && x.from_time <= a.end);
                prop_assert!(b.start <= x.to_time && x.to_time <= b.end);
            }
        }
    }

    /// Intervals, shares and cells are what the events say, at any zoom.
    #[test]
    fn lanes_are_exact((r, _) in recording(), cuts in prop::collection::vec(0u64..70_000_000, 2), n in 1usize..60) {
        let g = r.graph();
        let (a, b) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
        for t in g.threads() {
            let plain = plain_lane(&r, t, &g);
            let whole: Vec<_> = g.intervals(t, 0..Ns::MAX).collect();
            prop_assert_eq!(&join(whole), &plain);
            let inside = |a: Ns, b: Ns, s: LaneState| -> Ns {
                plain.iter().filter(|i| i.2 == s).map(|i| i.1.min(b).saturating_sub(i.0.max(a))).sum()
            };
            let share = g.share(t, a..b);
            for s in LaneState::ALL {
                if s != LaneState::Absent {
                    prop_assert_eq!(share.get(s), inside(a, b, s), "{:?}", s);
                }
            }
            let cells = g.cells(t, a..b, n);
            prop_assert_eq!(cells.len(), n);
            for (i, c) in cells.iter().enumerate() {
                let at = |i: usize| a + ((b - a) as u128 * i as u128 / n as u128) as Ns;
                let (x, y) = (at(i), at(i + 1).max(at(i) + 1));
                let absent = (y - x) - LaneState::ALL[1..].iter().map(|s| inside(x, y, *s)).sum::<Ns>();
                let most = LaneState::ALL[1..].iter().map(|s| inside(x, y, *s)).max().unwrap_or(0).max(absent);
                let own = if c.state == LaneState::Absent { absent } else { inside(x, y, c.state) };
                prop_assert_eq!(own, most);
                prop_assert_eq!(c.mixed, own < (y - x) - (y - x) / 10);
            }
        }
    }

    /// A bounded path is one chain over exactly the span; where it says that somebody ran (or slept, or
    /// had no CPU) he did, and a wait is on it only if nobody ended it.
    #[test]
    fn bounded_paths_tell_the_truth((r, truth) in recording(), cuts in prop::collection::vec(0u64..70_000_000, 2)) {
        let g = r.graph();
        let lanes: BTreeMap<ThreadId, _> = g.threads().map(|t| (t, plain_lane(&r, t, &g))).collect();
        let (a, b) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
        for t in g.threads() {
            let (Some(begin), Some(end)) = (g.began(t), g.ended(t)) else { continue };
            let (from, to) = (a.max(begin), b.min(end));
            let path = bounded(&g, t, a..b);
            if from >= to {
                prop_assert!(path.is_empty());
                continue;
            }
            prop_assert!(is_chain(&path));
            prop_assert_eq!(path.first().map(Step::from), Some((t, from)));
            prop_assert_eq!(path.last().map(Step::to), Some((t, to)));
            prop_assert_eq!(path.iter().map(Step::duration).sum::<Ns>(), to - from);
            for s in &path {
                let Step::Interval { worker, interval: i } = s else { continue };
                let middle = i.start + (i.end - i.start) / 2;
                let truly = lanes.get(worker).and_then(|l| state_at(l, middle));
                match i.state {
                    State::Running => prop_assert_eq!(truly, Some(LaneState::Running)),
                    State::Preempted => prop_assert_eq!(truly, Some(LaneState::Runnable)),
                    State::Timer => prop_assert_eq!(truly, Some(LaneState::Blocked)),
                    State::Blocked | State::Network => {
                        prop_assert_eq!(truly, Some(LaneState::Blocked));
                        let ended = truth.iter().any(|w| w.thread == *worker && w.start <= middle && middle < w.woken
                            && w.by.is_some());
                        prop_assert!(!ended, "{:?} is explained", s);
                    }
                    State::Unknown => prop_assert!(truly.is_none()),
                }
            }
        }
    }
}

/// A request goes down a chain of services, each on its own thread, and comes back: the path of the
/// requester's wait is the services' work, each as long as it was made to be.
#[test]
fn the_explanation_is_the_known_cause() {
    let work = [1_000_000u64, 7_000_000, 2_500_000, 400_000];
    let mut scripts =
        vec![Script::once([Act::Compute(50_000), Act::Send(0, 100), Act::Receive(1), Act::Compute(60_000)])];
    for (i, w) in work.iter().enumerate() {
        let (ask, answer) = (i * 2, i * 2 + 1);
        let mut acts = vec![Act::Receive(ask), Act::Compute(w / 2)];
        if i + 1 < work.len() {
            acts.extend([Act::Send(ask + 2, 100), Act::Receive(answer + 2)]);
        }
        acts.extend([Act::Compute(w - w / 2), Act::Send(answer, 100)]);
        scripts.push(Script::once(acts));
    }
    // Strangers keep busy meanwhile.
    scripts.extend((0..3).map(|_| Script::once([Act::Compute(30_000_000)])));
    let setup = Setup { cpus: scripts.len(), ..Setup::default() };
    let (r, _) = Recording::of(setup, scripts, 40_000_000);
    let g = r.graph();
    let user = r.thread("t0");
    let wait = g.vertices_of(user).map(|v| g.vertex(v)).find(|v| v.waited() > 0).expect("it waited");
    let path = bounded(&g, user, wait.start..wait.woken);
    let mut ran: BTreeMap<ThreadId, Ns> = BTreeMap::new();
    for s in &path {
        if let Step::Interval { worker, interval } = s {
            assert_eq!(interval.state, State::Running);
            *ran.entry(*worker).or_default() += interval.end - interval.start;
        }
    }
    for (i, w) in work.iter().enumerate() {
        let own = ran[&ThreadId(i as u32 + 1)];
        assert!(own >= *w && own <= w + 10 * COST, "service {i}: {own} of {w}");
    }
    assert_eq!(ran.len(), work.len(), "nobody else");
}

/// Who holds the lock is the cause, not who happens to run.
#[test]
fn a_lock_leads_to_its_holder() {
    let (r, truth) = Recording::of(
        Setup { cpus: 3, ..Setup::default() },
        vec![
            Script::once([Act::Compute(100_000), Act::Lock(0), Act::Unlock(0)]),
            Script::once([Act::Lock(0), Act::Compute(9_000_000), Act::Unlock(0)]),
            Script::once([Act::Compute(20_000_000)]),
        ],
        25_000_000,
    );
    assert_eq!(truth.iter().filter(|w| w.lock && w.by == Some(ThreadId(1))).count(), 1);
    let g = r.graph();
    let wait = g.vertices_of(ThreadId(0)).find(|v| g.vertex(*v).waited() > 0).expect("it waited");
    let e = g.edge(g.waking(wait).expect("an edge"));
    assert_eq!((e.kind, e.weak), (EdgeKind::Futex, Some(Weak::MutexHandOff)));
    let x = g.vertex(wait);
    let path = bounded(&g, ThreadId(0), x.start..x.woken);
    let others = path.iter().any(|s| matches!(s, Step::Interval { worker, .. } if *worker != ThreadId(1)));
    assert!(!others);
}

fn wild_event() -> impl Strategy<Value = Event> {
    let number = prop_oneof![0u64..100, Just(u64::MAX), any::<u64>()];
    let id = prop_oneof![0u32..6, Just(u32::MAX), any::<u32>()];
    let kind = (any::<[u8; 4]>(), number.clone(), number.clone(), id.clone(), id.clone()).prop_map(
        |([what, state, context, bits], a, b, x, y)| {
            let states = [
                OffState::Runnable,
                OffState::Interruptible,
                OffState::Uninterruptible,
                OffState::Stopped,
                OffState::Idle,
                OffState::Dead,
            ];
            match what % 9 {
                0..=3 => {
                    let mut o = pg_event::OffCpu::new(a, b, states[usize::from(state) % states.len()]);
                    o.waker = ThreadId(x);
                    o.waker_context = Context::from_u8(context % 7);
                    o.object = pg_event::ObjectId(y);
                    o.waker_object = pg_event::ObjectId(y.wrapping_add(1));
                    o.syscall = pg_event::Sysno(u16::from(state) * 3);
                    o.waker_syscall = pg_event::Sysno(u16::from(context));
                    (o.open, o.begun_before) = (bits & 1 == 1, bits & 2 == 2);
                    o.timeout = b;
                    Kind::OffCpu(o)
                }
                4 => Kind::Ipc(pg_event::IpcUse {
                    object: pg_event::ObjectId(y),
                    direction: if bits & 1 == 1 {
                        pg_event::Direction::Send
                    } else {
                        pg_event::Direction::Receive
                    },
                    count: x,
                    bytes: a,
                    first: b,
                    position: a.wrapping_mul(b),
                }),
                5 => Kind::Spawn { child: ThreadId(x) },
                6 => Kind::Exit { status: y },
                7 => Kind::Lost { since: a, count: b, ring: 0 },
                _ => Kind::DataFlag {
                    object: pg_event::ObjectId(y),
                    value: a,
                    write: bits & 1 == 1,
                    stack: pg_event::StackId(x),
                },
            }
        },
    );
    (number, id, kind).prop_map(|(time, thread, kind)| Event { time, thread: ThreadId(thread), cpu: 0, kind })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 8 / 5, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a damaged file says, the graph keeps its promises and nothing panics.
    #[test]
    fn nonsense_makes_no_nonsense(mut events in prop::collection::vec(wild_event(), 0..60), sorted in any::<bool>()) {
        if sorted {
            events.sort_by_key(|e| e.time);
        }
        let (r, _) = Recording::of(Setup::default(), vec![Script::once([Act::Send(0, 1), Act::Send(1, 1), Act::Lock(0)]); 4], 10);
        let mut b = Builder::new(BuildOptions { channel_depth: 3, ..BuildOptions::default() });
        b.events(&events, &r.catalog);
        let g = b.finish(50, &r.catalog);
        for v in g.vertices() {
            let x = g.vertex(v);
            prop_assert!(x.start <= x.woken && x.woken <= x.run && x.run <= x.end, "{:?}", x);
            prop_assert!(x.preempted <= x.end - x.run);
            let _ = pg_graph::waits_on(&x, &r.catalog);
        }
        for t in g.threads() {
            let _ = g.cells(t, 0..g.duration(), 7);
            let total: Ns = g.intervals(t, 0..Ns::MAX).map(|i| i.1 - i.0).sum();
            prop_assert_eq!(total, g.ended(t).unwrap() - g.began(t).unwrap());
            let path = bounded(&g, t, 0..g.duration());
            prop_assert!(is_chain(&path));
        }
        for e in g.edges() {
            let e = g.edge(e);
            prop_assert!(e.from_time <= e.to_time, "{:?}", e);
        }
    }
}
