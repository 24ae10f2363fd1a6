//! How true the edges are: on simulated machines with batches, event loops, mutexes, conditions, channels and data flags
//! the true causes stay in the graph (recall), and edges and connections that mean no causality are weak (precision).
//! `cargo test -p pg-graph --features sim --test precision -- --show-output` prints the table.

use pg_event::ObjectKind;
use pg_graph::sim::{Asking, Figures, Script, Serves, Setup, Town};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn setup(cpus: usize) -> Setup {
    Setup { cpus, channels: vec![ObjectKind::UnixStream, ObjectKind::Pipe], ..Setup::default() }
}

/// What holds of every machine: nothing true is missing, and no edge that ends a wait is false or a strong hand-off.
fn holds(f: &Figures) -> Result<(), String> {
    for (what, a, b) in [
        ("a wait lacks the edge from who ended it", f.found, f.ended),
        ("a write of a flag lacks its edge", f.written, f.writes),
        ("an answer was cut off from its request", f.kept, f.connected),
        ("the way from a request to its answer is weak", f.kept_strong, f.connected),
        ("an edge is from somebody else", 0, f.wrong),
        ("a hand-off is strong", 0, f.hand_offs_strong),
    ] {
        if a != b {
            return Err(format!("{what}: {a} of {b}; {f:?}"));
        }
    }
    Ok(())
}

fn town(make: impl Fn(&mut Town)) -> Vec<Script> {
    let mut t = Town::default();
    make(&mut t);
    t.scripts()
}

#[test]
fn true_causes_stay_and_false_ones_are_weak() {
    let machines = [
        ("server in turn", town(|t| t.server(4, 300 * US, Serves::InTurn))),
        ("event loop", town(|t| t.server(4, 300 * US, Serves::Loop))),
        ("waits for all", town(|t| t.server(4, 300 * US, Serves::Batch))),
        ("batches in one call", town(|t| t.server(4, 300 * US, Serves::Together))),
        ("mutual exclusion", town(|t| t.mutex(5, 400 * US))),
        ("conditions", town(|t| t.conditions(200 * US))),
        ("flags, sleeping", town(|t| t.flags(500 * US, Asking::Sleep(MS)))),
        ("flags, yielding", town(|t| t.flags(500 * US, Asking::Yield(300 * US)))),
        ("flags, spinning", town(|t| t.flags(500 * US, Asking::Spin(300 * US)))),
    ];
    println!("{:<20} {}", "machine", Figures::HEAD);
    for (name, scripts) in machines {
        let f = Figures::of(setup(3), scripts, 1_500 * MS);
        println!("{name:<20} {f}");
        holds(&f).unwrap_or_else(|why| panic!("{name}: {why}"));
        match name {
            "server in turn" | "event loop" | "waits for all" | "batches in one call" => {
                assert!(f.over > 100 && f.connected > 100, "{f:?}");
                assert_eq!(f.over_strong, 0, "{name}: over-connections stay: {f:?}");
            }
            "mutual exclusion" => assert!(f.hand_offs > 100, "{f:?}"),
            "conditions" => assert!(f.ended > 100, "{f:?}"),
            _ => assert!(f.writes > 100, "{f:?}"),
        }
    }
}

/// A part of a machine.
#[derive(Clone, Copy, Debug)]
enum Part {
    Server(usize, u64, Serves),
    Mutex(usize, u64),
    Conditions(u64),
    Flags(u64, Asking),
    Stranger(u64, u64),
}

fn part() -> impl Strategy<Value = Part> {
    let serves =
        prop_oneof![Just(Serves::InTurn), Just(Serves::Loop), Just(Serves::Batch), Just(Serves::Together)];
    let asking = prop_oneof![
        (300u64..2_000).prop_map(|n| Asking::Sleep(n * US)),
        (50u64..400).prop_map(|n| Asking::Yield(n * US)),
        (50u64..400).prop_map(|n| Asking::Spin(n * US)),
    ];
    prop_oneof![
        (2usize..6, 20u64..900, serves).prop_map(|(n, w, s)| Part::Server(n, w * US, s)),
        (2usize..6, 20u64..900).prop_map(|(n, w)| Part::Mutex(n, w * US)),
        (20u64..900).prop_map(|w| Part::Conditions(w * US)),
        ((100u64..900), asking).prop_map(|(w, a)| Part::Flags(w * US, a)),
        ((100u64..3_000), (1u64..20)).prop_map(|(w, n)| Part::Stranger(w * US, n * MS)),
    ]
}

impl Part {
    fn build(self, t: &mut Town) {
        match self {
            Part::Server(n, work, serves) => t.server(n, work, serves),
            Part::Mutex(n, work) => t.mutex(n, work),
            Part::Conditions(work) => t.conditions(work),
            Part::Flags(work, asking) => t.flags(work, asking),
            Part::Stranger(work, nap) => t.stranger(work, nap),
        }
    }

    /// How many over-connections may stay strong, since the recording ends within the last turn of a server: before an
    /// event loop takes the request that woke it nothing tells that it serves another one, and of requests that are
    /// taken together those that are not answered yet may be what the answers wait for.
    fn cut_off(self) -> usize {
        match self {
            Part::Server(_, _, Serves::Loop) => 1,
            Part::Server(n, _, Serves::Batch | Serves::Together) => n * n / 4,
            _ => 0,
        }
    }
}

/// Any of these parts beside each other, on few or many CPUs, with any length of a slice.
#[test]
fn on_any_machine() {
    let total = RefCell::new((0, Figures::default()));
    let config = ProptestConfig {
        cases: ProptestConfig::default().cases / 8,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let machines = (prop::collection::vec(part(), 1..5), 1usize..5, 1u64..20);
    let run = TestRunner::new(config).run(&machines, |(parts, cpus, slice)| {
        let scripts = town(|t| parts.iter().for_each(|p| p.build(t)));
        let f = Figures::of(Setup { slice: slice * 300 * US, ..setup(cpus) }, scripts, 300 * MS);
        holds(&f).map_err(TestCaseError::fail)?;
        let cut_off: usize = parts.iter().map(|p| p.cut_off()).sum();
        prop_assert!(f.over_strong <= cut_off, "over-connections stay strong: {:?}", f);
        let mut total = total.borrow_mut();
        total.0 += 1;
        total.1 += f;
        Ok(())
    });
    let (machines, f) = *total.borrow();
    println!("{:<20} {}", "machines", Figures::HEAD);
    println!("{:<20} {f}", format!("{machines} at random"));
    run.unwrap_or_else(|e| panic!("{e}"));
    assert!(f.over > 500, "{f:?}");
}
