//! Work that is handed to a thread by a condition variable: what it waits for the mutex is no unit of its own.

use super::born::range;
use super::{Calls, Server, wait_for};
use pg_tracer::guards::{Guarded, GuardedLoop, Guards, Judge, Plan, Told};
use std::time::{Duration, Instant};

/// Pieces of work.
const PIECES: usize = 30;

/// A boundary is a futex(2) that `serve` comes to. `calls` gets the addresses of its calls.
fn judge(server: &Server, calls: Calls) -> Judge {
    let (id, serve) = (server.build_id(), range(server, "serve"));
    Box::new(move |s| {
        let (frame, own) = s.frames.iter().enumerate().find(|(_, f)| f.module == id)?;
        let futex = s.syscall.is_none_or(|nr| Some(nr) == pg_event::syscall_number("futex"));
        if !futex || !serve.contains(&own.address) {
            return None;
        }
        if s.syscall.is_some() {
            calls.lock().unwrap().insert(own.address);
        }
        Some(Guarded { of: 0, frame, turn: frame, left: false })
    })
}

/// What it waits in, once that is known, has probes behind it.
fn start(server: &Server, calls: &Calls) -> Guards {
    let turns = calls.lock().unwrap().iter().map(|c| (server.exe.clone(), server.offset(c + 1))).collect();
    let plan = Plan {
        loops: vec![GuardedLoop { thresholds: vec![0], turns, ..GuardedLoop::default() }],
        functions: vec![server.function("stick")],
        learning: true,
        ..Plan::default()
    };
    Guards::start(plan, judge(server, calls.clone()), &[server.child.id()]).expect("guards")
}

#[test]
fn who_is_woken_and_waits_for_the_mutex_has_no_unit_yet() {
    let Some(mut server) = Server::start_with(include_str!("handed.c")) else { return };
    let calls = Calls::default();
    let mut guards = start(&server, &calls);
    let end = Instant::now() + Duration::from_secs(5);
    while calls.lock().unwrap().is_empty() && Instant::now() < end {
        server.serve("s 100");
        guards.poll(Duration::from_millis(20));
    }
    assert!(!calls.lock().unwrap().is_empty(), "{:?}", guards.notes());
    drop(guards);

    let mut guards = start(&server, &calls);
    server.serve("s 100");
    let judged = wait_for(&mut guards, |told| matches!(told, Told::Guarded { .. }).then_some(()));
    assert!(judged.is_some(), "{:?}", guards.notes());
    // Both of its waits are known by then, and that the probe is come by.
    for _ in 0..3 {
        server.serve("s 100");
        guards.poll(Duration::from_millis(20));
    }
    let mut units = Vec::new();
    for _ in 0..PIECES {
        server.serve("s 100");
        let told = guards.poll(Duration::from_millis(20));
        units.extend(told.into_iter().filter_map(|t| if let Told::Unit(u) = t { Some(u) } else { None }));
    }
    let empty = units.iter().filter(|u| u.contexts.is_empty()).count();
    // Those at the beginning and the end may be told with the pieces before or after.
    assert!(units.len() >= PIECES - 2 && empty * 10 <= units.len(), "{empty} of {}: {units:?}", units.len());
}
