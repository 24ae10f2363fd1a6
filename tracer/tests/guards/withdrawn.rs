//! A unit that seems to take too long, and turns out to be of another type.

use crate::{Calls, LIMIT, MS, Server, comes_to, known, violation, wait_for};
use pg_event::SeenBy;
use pg_tracer::guards::{Counts, GuardedLoop, Guards, Plan, Told, Violation, Withdrawn};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("withdrawn.c");
/// How long work may take that came by `report`.
const LONGER: u64 = 6 * LIMIT;

fn plan(server: &Server, calls: &Calls, contexts: Vec<(usize, usize, u32, Vec<usize>)>) -> Plan {
    let calls = calls.lock().unwrap();
    let turns = calls.iter().map(|c| (server.exe.clone(), server.offset(c + 1))).collect();
    let of =
        GuardedLoop { thresholds: vec![LIMIT, LONGER], unknown: LONGER, turns, ..GuardedLoop::default() };
    let functions = ["start", "report"].iter().map(|n| server.function(n)).collect();
    Plan { loops: vec![of], functions, contexts, hz: 199, period: 100 * MS, ..Plan::default() }
}

/// The program under guard; work of both types comes by `start`, one comes by `report` as well.
fn guarded() -> Option<(Server, Guards)> {
    let mut server = Server::start_with(PROGRAM)?;
    let calls = Calls::default();
    let learning = Plan { learning: true, ..plan(&server, &calls, Vec::new()) };
    let mut guards = server.guards_with(learning, calls.clone());
    known(&mut server, &mut guards);
    server.serve("r 100");
    let found = wait_for(&mut guards, |told| match told {
        Told::Unit(u) if u.contexts.len() == 2 => Some(u.contexts),
        _ => None,
    });
    drop(guards);
    let types = |function| if function == 0 { vec![0, 1] } else { vec![1] };
    let contexts = found.expect("a unit with both").into_iter().map(|c| (0, c.0, c.1, types(c.0))).collect();
    let mut guards = server.guards_with(plan(&server, &calls, contexts), calls);
    known(&mut server, &mut guards);
    Some((server, guards))
}

/// What is told up to the end of a unit that is slow, or seemed so.
fn told(guards: &mut Guards) -> (Vec<Violation>, Vec<Withdrawn>) {
    let (mut slow, mut withdrawn) = (Vec::new(), Vec::new());
    let ended = wait_for(guards, |told| {
        match told {
            Told::Violation(v) => slow.push(*v),
            Told::Withdrawn(w) => withdrawn.push(w),
            Told::Ended(e) => return Some(e),
            _ => {}
        }
        None
    });
    let ended = ended.unwrap_or_else(|| panic!("its end, after {slow:?} {withdrawn:?}"));
    assert!(ended.violated && slow.iter().all(|v| v.number == ended.number), "{ended:?} {slow:?}");
    (slow, withdrawn)
}

fn counts(guards: &Guards) -> Vec<[u64; 3]> {
    guards.counts(0).iter().map(|c: &Counts| [c.violations, c.withdrawn, c.unsettled]).collect()
}

#[test]
fn an_alarm_is_withdrawn_when_the_unit_turns_out_to_be_of_a_slower_type() {
    let Some((mut server, mut guards)) = guarded() else { return };
    let asked = Instant::now();
    server.ask("r 400000");
    // The evidence is of the moment at which it exceeded the smaller limit.
    let v = violation(&mut guards);
    assert_eq!((v.of, v.threshold, v.settles), (Some(0), LIMIT, LONGER), "{v:?}");
    assert!(!v.user.is_empty() && v.seen != SeenBy::End && v.elapsed < 400 * MS, "{v:?}");
    let counted = counts(&guards);
    // On a busy machine it may be over by the time that this is looked at.
    if asked.elapsed() < Duration::from_millis(390) {
        assert_eq!(counted, [[1, 0, 1], [0; 3], [0; 3]], "it is not settled");
    }
    server.answer();
    let (more, withdrawn) = told(&mut guards);
    let [w] = withdrawn[..] else { panic!("{withdrawn:?} {more:?}") };
    assert_eq!((w.number, w.of, w.threshold, w.start), (v.number, Some(1), LONGER, v.start));
    assert!(w.elapsed >= 390 * MS && w.elapsed <= LONGER, "{w:?}");
    server.serve("s 10");
    comes_to(&mut guards, counts, vec![[0, 1, 0], [0; 3], [0; 3]]);
    assert_eq!(guards.counts(0)[1].units, 1, "it was one of the other type");

    // What is slow by itself is told, also right behind that: the alarm did not ring, but is in doubt.
    server.serve("s 400000");
    let v = violation(&mut guards);
    assert_eq!((v.of, v.number > w.number), (Some(0), true), "{v:?}");
    server.serve("s 10");
    comes_to(&mut guards, counts, vec![[1, 1, 0], [0; 3], [0; 3]]);
}

#[test]
fn a_unit_that_exceeds_the_slower_limit_too_is_told_while_it_runs() {
    let Some((mut server, mut guards)) = guarded() else { return };
    server.comes_first();
    // 0.4 s until it is told to be of the slower type, and 1.6 s more.
    server.ask("R 400000");
    let first = violation(&mut guards);
    let mut withdrawn = 0;
    let again = wait_for(&mut guards, |told| match told {
        Told::Withdrawn(w) if w.number == first.number => {
            withdrawn += 1;
            None
        }
        // For want of a CPU it may be told first.
        Told::Violation(v) if v.of == Some(1) && !v.is_starved() => Some(*v),
        _ => None,
    });
    let again = again.expect("it is told once more");
    assert_eq!((again.number, again.threshold, withdrawn), (first.number, LONGER, 1), "{again:?}");
    assert!(!again.user.is_empty() && again.seen != SeenBy::End, "{again:?}");
    comes_to(&mut guards, counts, vec![[0; 3], [1, 0, 0], [0; 3]]);
    server.answer();
    server.serve("s 10");
    comes_to(&mut guards, counts, vec![[0; 3], [1, 0, 0], [0; 3]]);
}

/// Of a type that is in doubt a unit is told when no other may take as long, or it ends.
#[test]
fn what_is_in_doubt_is_told_when_it_is_settled() {
    let Some((mut server, mut guards)) = guarded() else { return };
    let alarms = |guards: &mut Guards| {
        let told = (0..5).flat_map(|_| guards.poll(Duration::from_millis(5)));
        told.filter_map(|t| match t {
            Told::Violation(v) => Some(*v),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    // 8 of them in 1.6 s and more: without doubt each would be told with its stack.
    // For want of a CPU one may be told before.
    let (mut evidence, begun) = (BTreeSet::new(), Instant::now());
    for _ in 0..8 {
        server.serve("r 200000");
        evidence.extend(alarms(&mut guards).iter().map(|v| v.number));
    }
    // 0.1 s later, then 0.2, 0.4 and so on after each.
    let most = (begun.elapsed().as_secs_f64() / 0.1 + 1.0).log2().ceil() as usize + 1;
    assert!((1..=most).contains(&evidence.len()), "{evidence:?} of {most}");
    server.serve("s 10");
    comes_to(&mut guards, counts, vec![[0, 8, 0], [0; 3], [0; 3]]);
    // It goes on for longer than any may: told then, with its stack.
    server.ask("s 1500000");
    let v = violation(&mut guards);
    assert_eq!((v.of, v.threshold), (Some(0), LIMIT), "{v:?}");
    assert!(v.elapsed > LIMIT && v.seen != SeenBy::End && !v.user.is_empty(), "{v:?}");
    server.answer();
    server.serve("s 10");
    comes_to(&mut guards, |g| counts(g)[0], [1, 8, 0]);
}
