//! Property: on simulated machines with a known cause, the diagnosis finds it, whatever the mechanisms on the
//! way and whatever else runs.

use pg_event::{Coverage, ObjectKind, ThreadId};
use pg_graph::sim::{Act, Recording, Script, Setup};
use pg_graph::{BlockType, Options, Selection, VictimOptions, run_with_policy, select};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const HANG: u64 = 4_000 * MS;

/// How a thread of the chain waits for the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    Channel,
    Condition,
    Mutex,
    Join,
}

fn link() -> impl Strategy<Value = Link> {
    prop_oneof![Just(Link::Channel), Just(Link::Condition), Just(Link::Mutex), Just(Link::Join)]
}

#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Two threads that talk to each other.
    PingPong(u64),
    /// Works a little, sleeps a little.
    Periodic(u64, u64),
    /// Waits for what never comes.
    Idle,
}

fn noise() -> impl Strategy<Value = Noise> {
    prop_oneof![
        (100u64..900).prop_map(Noise::PingPong),
        ((100u64..2_000), (3u64..40)).prop_map(|(a, b)| Noise::Periodic(a, b)),
        Just(Noise::Idle),
    ]
}

/// Thread 0 is the victim, thread `links.len()` the cause.
fn scripts(links: &[Link], computes: bool, noise: &[Noise]) -> Vec<Script> {
    let n = links.len();
    let mut out = Vec::new();
    for i in 0..=n {
        let mut acts = Vec::new();
        // What the thread before waits for is taken first.
        if i > 0 && links[i - 1] == Link::Mutex {
            acts.push(Act::Lock(i - 1));
        }
        acts.push(Act::Compute(50_000));
        if i < n {
            match links[i] {
                Link::Channel => acts.push(Act::Receive(i)),
                Link::Condition => acts.push(Act::Wait(i)),
                // Let the owner be first.
                Link::Mutex => acts.extend([Act::Sleep(250 * MS), Act::Lock(i), Act::Unlock(i)]),
                Link::Join => acts.extend([Act::Spawn(i + 1), Act::Join(i + 1)]),
            }
            acts.push(Act::Compute(80_000));
        } else if computes {
            acts.push(Act::Compute(HANG));
        } else {
            acts.push(Act::Sleep(HANG));
        }
        if i > 0 {
            match links[i - 1] {
                Link::Channel => acts.push(Act::Send(i - 1, 64)),
                Link::Condition => acts.push(Act::Signal(i - 1)),
                Link::Mutex => acts.push(Act::Unlock(i - 1)),
                Link::Join => {}
            }
        }
        acts.push(Act::Compute(20_000));
        let mut s = Script::once(acts);
        s.spawned = i > 0 && links[i - 1] == Link::Join;
        out.push(s);
    }
    let mut channel = n + 1;
    let mut condition = n + 1;
    for x in noise {
        match *x {
            Noise::PingPong(us) => {
                let (a, b) = (channel, channel + 1);
                channel += 2;
                out.push(Script::forever([
                    Act::Compute(us * 1000),
                    Act::Send(a, 8),
                    Act::Receive(b),
                    Act::Sleep(MS),
                ]));
                out.push(Script::forever([Act::Receive(a), Act::Compute(us * 1000), Act::Send(b, 8)]));
            }
            Noise::Periodic(us, ms) => {
                out.push(Script::forever([Act::Compute(us * 1000), Act::Sleep(ms * MS)]));
            }
            Noise::Idle => {
                out.push(Script::forever([Act::Wait(condition)]));
                condition += 1;
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_known_cause_is_found(
        links in prop::collection::vec(link(), 1..6),
        computes in any::<bool>(),
        noise in prop::collection::vec(noise(), 0..5),
        cpus in 2usize..5,
    ) {
        let setup = Setup {
            cpus,
            sample_every: 10 * MS,
            channels: vec![ObjectKind::UnixStream, ObjectKind::Pipe],
            ..Setup::default()
        };
        let (r, _) = Recording::of(setup, scripts(&links, computes, &noise), 9_000 * MS);
        let g = r.graph();
        let s = Selection { tid: Some(1000), ..Selection::default() };
        let v = select(&g, &r.catalog, &s, &VictimOptions::default()).expect("thread 0 hangs");
        prop_assert_eq!(v.thread, ThreadId(0));
        let report = run_with_policy(&g, &r.catalog, v, Options::default());

        let cause = 1000 + links.len() as u32;
        let first = &report.root_causes[0];
        prop_assert_eq!(first.tid, Some(cause), "{:#?}", report);
        if computes {
            prop_assert_eq!(first.block_type, Some(BlockType::LongRunning));
        }
        // The way leads over every thread of the chain, in order, and over nobody else.
        let mut way: Vec<u32> = report.slice.iter().map(|n| n.tid).collect();
        way.dedup();
        let chain: Vec<u32> = (1000..=cause).collect();
        prop_assert_eq!(&way, &chain, "{:#?}", report);
        prop_assert!(report.questions.len() <= 3);
        prop_assert!(report.root_causes.windows(2).all(|w| w[0].confidence >= w[1].confidence));
        // Weak steps say why; strength is there where an edge is.
        for n in &report.slice {
            prop_assert_eq!(n.strength.is_some(), n.edge.is_some());
            prop_assert_eq!(n.strength.as_deref() == Some("weak"), n.why_weak.is_some());
        }
    }
}

/// That nobody was found is said only where somebody looked: a recorder may not have come to it.
#[test]
fn who_was_not_looked_for_is_not_said_to_be_nobody() {
    let (r, _) = Recording::of(
        Setup { channels: vec![ObjectKind::UnixStream], ..Setup::default() },
        vec![
            Script::once([Act::Compute(MS), Act::Receive(0)]),
            Script::forever([Act::Compute(MS), Act::Sleep(MS)]),
        ],
        HANG,
    );
    let g = r.graph();
    let s = Selection { tid: Some(1000), ..Selection::default() };
    let why = |left: &[u32]| {
        let v = select(&g, &r.catalog, &s, &VictimOptions::default()).expect("thread 0 hangs");
        let mut options = Options::default();
        options.coverage.notes.extend(Coverage::not_looked_up(left.len(), left));
        run_with_policy(&g, &r.catalog, v, options).root_causes[0].why.clone()
    };
    let nobody = "no thread was found that could";
    assert!(why(&[]).contains(nobody), "{}", why(&[]));
    assert!(why(&[100, 10001]).contains(nobody), "of others: {}", why(&[100, 10001]));
    let unknown = why(&[77, 1000]);
    assert!(!unknown.contains(nobody) && unknown.contains("record again"), "{unknown}");
}
