//! Requests that a connection has brought before the server asks for them are units of their own, and what it asks others
//! for within one is a part of it.

use super::born::range;
use super::{Calls, Server, wait_for};
use pg_tracer::guards::{Guarded, GuardedLoop, Guards, Judge, Plan, Told, UnitTold};
use std::time::{Duration, Instant};

/// Lines of each kind, and the pieces of work of a line.
const LINES: usize = 12;
const PIECES: usize = 5;

/// A boundary is a poll(2) that `serve` comes to. `calls` gets the addresses of its calls.
fn judge(server: &Server, calls: Calls) -> Judge {
    let (id, serve) = (server.build_id(), range(server, "serve"));
    let polls = ["poll", "ppoll"].map(pg_event::syscall_number);
    Box::new(move |s| {
        let (frame, own) = s.frames.iter().enumerate().find(|(_, f)| f.module == id)?;
        let mut calls = calls.lock().unwrap();
        let waits = serve.contains(&own.address) && s.syscall.is_some_and(|nr| polls.contains(&Some(nr)));
        if waits {
            calls.insert(own.address);
        }
        (waits || s.syscall.is_none() && calls.contains(&own.address)).then_some(Guarded {
            of: 0,
            frame,
            turn: frame,
            left: false,
        })
    })
}

fn start(server: &Server, calls: &Calls, learning: bool) -> Guards {
    let turns = calls.lock().unwrap().iter().map(|c| (server.exe.clone(), server.offset(c + 1))).collect();
    let plan = Plan {
        loops: vec![GuardedLoop { thresholds: vec![0], turns, ..GuardedLoop::default() }],
        functions: vec![server.function("stick")],
        learning,
        ..Plan::default()
    };
    Guards::start(plan, judge(server, calls.clone()), &[server.child.id()]).expect("guards")
}

/// Of units of so many lines of this kind, how often each came by the work.
fn units(server: &mut Server, guards: &mut Guards, kind: char) -> Vec<u32> {
    let line = format!("{kind} 100");
    // The thread is known, and all of it that was under way has ended.
    server.serve(&line);
    let judged = wait_for(guards, |told| matches!(told, Told::Guarded { .. }).then_some(()));
    assert!(judged.is_some(), "{kind}: {:?}", guards.notes());
    for _ in 0..3 {
        server.serve(&line);
        guards.poll(Duration::from_millis(50));
    }
    while !guards.poll(Duration::from_millis(50)).is_empty() {}
    let mut told: Vec<Told> = Vec::new();
    for _ in 0..LINES {
        server.serve(&line);
        told.extend(guards.poll(Duration::from_millis(20)));
    }
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        told.extend(guards.poll(Duration::from_millis(50)));
    }
    let times = |u: UnitTold| u.contexts.iter().map(|c| c.2).sum();
    told.into_iter().filter_map(|t| if let Told::Unit(u) = t { Some(times(u)) } else { None }).collect()
}

/// Until it is known where the server waits.
fn learn_calls(server: &mut Server, calls: &Calls, kind: char) {
    let mut guards = start(server, calls, true);
    let end = Instant::now() + Duration::from_secs(5);
    while calls.lock().unwrap().is_empty() && Instant::now() < end {
        server.serve(&format!("{kind} 100"));
        guards.poll(Duration::from_millis(20));
    }
}

#[test]
fn a_request_that_is_there_already_is_a_unit_and_an_answer_from_elsewhere_is_none() {
    let Some(mut server) = Server::start_with(include_str!("served.c")) else { return };
    let calls = Calls::default();
    learn_calls(&mut server, &calls, 't');
    let mut guards = start(&server, &calls, true);
    if guards.notes().iter().any(|n| n.contains("Linux 6.3")) {
        println!("skipped: {:?}", guards.notes());
        return;
    }
    // The one under way at the end waits for the next and has ended; each is one piece of work.
    for kind in ['t', 'u'] {
        let units = units(&mut server, &mut guards, kind);
        assert_eq!(units, [1; LINES * PIECES], "{kind}");
    }
    // Over a connection that it has made it asks: the answers belong to the unit. Each is told and waited for.
    let units = units(&mut server, &mut guards, 'x');
    assert_eq!(units.iter().sum::<u32>() as usize, LINES * PIECES);
    assert!(units.iter().all(|n| *n == 1), "{units:?}");
}

#[test]
fn messages_are_heard_only_as_long_as_somebody_may_look_for_the_next_request() {
    // Who waits first, and who receives first.
    for (kind, heard) in [('w', false), ('t', true)] {
        let Some(mut server) = Server::start_with(include_str!("served.c")) else { return };
        let calls = Calls::default();
        learn_calls(&mut server, &calls, kind);
        let mut guards = start(&server, &calls, false);
        if !guards.hears_messages() {
            println!("skipped: {:?}", guards.notes());
            return;
        }
        let units = |guards: &Guards| guards.counts(0).iter().map(|c| c.units).sum::<u64>();
        let end = Instant::now() + Duration::from_secs(60);
        // Enough to tell,
        while units(&guards) < 1500 && Instant::now() < end {
            for _ in 0..20 {
                server.serve(&format!("{kind} 1"));
            }
            guards.poll(Duration::from_millis(1));
        }
        // and then some looks.
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            guards.poll(Duration::from_millis(50));
        }
        let enough = units(&guards) >= 1500;
        assert_eq!((enough, guards.hears_messages()), (true, heard), "{kind}: {:?}", guards.notes());
    }
}
