//! New threads and processes: their first unit is under guard.

use super::{Calls, LIMIT, LONG, Server, violation, wait_for};
use object::{Object, ObjectSymbol};
use pg_tracer::guards::{Guarded, GuardedLoop, Guards, Judge, Plan, Told};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The addresses of a function as the file counts.
pub(super) fn range(server: &Server, name: &str) -> Range<u64> {
    let bytes = server.bytes();
    let file = object::File::parse(bytes.as_slice()).unwrap();
    let symbol = file.symbols().find(|s| s.name() == Ok(name)).expect(name);
    symbol.address()..symbol.address() + symbol.size()
}

/// A boundary is read(2) as `take` calls it, called by `serve`. `calls` gets the address of the former.
fn judge(server: &Server, calls: Calls) -> Judge {
    let (id, take, serve) = (server.build_id(), range(server, "take"), range(server, "serve"));
    Box::new(move |s| {
        let mut own = s.frames.iter().enumerate().filter(|(_, f)| f.module == id);
        let (turn, caller) = own.next()?;
        let (frame, of_loop) = own.next()?;
        let read = s.syscall.is_none_or(|nr| Some(nr) == pg_event::syscall_number("read"));
        if !read || !take.contains(&caller.address) || !serve.contains(&of_loop.address) {
            return None;
        }
        calls.lock().unwrap().insert(caller.address);
        Some(Guarded { of: 0, frame, turn, left: false })
    })
}

/// Guards of one loop, whose units are of the first type when `stick` is called; or what that and the wait are called by
/// is to be learnt.
fn start(server: &Server, learnt: Option<(u64, u32)>, calls: Calls) -> Guards {
    let turns = learnt.iter().map(|(call, _)| (server.exe.clone(), server.offset(call + 1)));
    let of = GuardedLoop {
        thresholds: vec![LIMIT; 2],
        unknown: LIMIT,
        turns: turns.collect(),
        ..GuardedLoop::default()
    };
    let plan = Plan {
        loops: vec![of],
        functions: vec![server.function("stick")],
        contexts: learnt.iter().map(|(_, depth)| (0, 0, *depth, vec![0])).collect(),
        learning: learnt.is_none(),
        hz: 199,
        ..Plan::default()
    };
    Guards::start(plan, judge(server, calls), &[server.child.id()]).expect("guards")
}

#[test]
fn first_units_of_new_threads_and_children_are_guarded() {
    let Some(mut server) = Server::start_with(include_str!("born.c")) else { return };
    let calls = Calls::default();
    // How deep `stick` is called, and from where read(2).
    let mut guards = start(&server, None, calls.clone());
    let mut depth = None;
    let end = Instant::now() + Duration::from_secs(5);
    while depth.is_none() && Instant::now() < end {
        server.serve("F 10");
        for told in guards.poll(Duration::from_millis(20)) {
            if let Told::Unit(u) = told {
                depth = u.contexts.first().map(|c| c.1).or(depth);
            }
        }
    }
    let depth = depth.unwrap_or_else(|| panic!("no unit was learnt: {:?}", guards.notes()));
    drop(guards);
    let call = *calls.lock().unwrap().first().expect("the call of its wait");

    let mut guards = start(&server, Some((call, depth)), Calls::default());
    // One child is judged: all others follow from that.
    server.serve("F 10");
    let judged = wait_for(&mut guards, |told| matches!(told, Told::Guarded { .. }).then_some(()));
    assert!(judged.is_some(), "{:?}", guards.notes());
    let mut asked = 0;
    for kind in ["F", "T", "f", "t"] {
        // One that hardly had a CPU on a busy machine came by nothing: another one is asked for.
        let v = loop {
            asked += 1;
            assert!(asked <= 20, "hardly any of {asked} had a CPU");
            server.ask(&format!("{kind} {LONG}"));
            let v = violation(&mut guards);
            if v.elapsed - v.ready > LIMIT / 10 {
                break v;
            }
            server.answer();
            guards.poll(Duration::from_millis(10));
        };
        guards.symbolize();
        let frames = guards.catalog().show_stack(v.user_stack);
        assert_eq!((v.number, v.of, v.threshold), (1, Some(0), LIMIT), "{kind}: {v:?} {frames:?}");
        assert_eq!(v.pid == server.child.id(), kind.eq_ignore_ascii_case("t"), "{kind}: {v:?}");
        assert!((LIMIT..LONG * 1000).contains(&v.elapsed), "{kind}: seen while it ran: {v:?}");
        let at = |name: &str| frames.iter().position(|f| f.starts_with(name));
        assert!(at("stick").is_some() && v.distance == at("serve"), "{kind}: {:?} {frames:?}", v.distance);
        server.answer();
        // One that was without a CPU for long may be told a second time.
        guards.poll(Duration::from_millis(10));
    }
    // One that ends when it has answered: its unit is over with it.
    asked += 1;
    server.ask(&format!("X {LONG}"));
    let v = violation(&mut guards);
    let ended = wait_for(&mut guards, |told| match told {
        Told::Ended(e) if e.tid == v.tid && e.violated => Some(e.elapsed),
        _ => None,
    });
    let elapsed = ended.expect("its end is told");
    assert!((LONG * 900..3 * LONG * 1000).contains(&elapsed), "{elapsed}: {v:?}");
    server.answer();
    let counts = guards.counts(0);
    assert_eq!(counts.iter().map(|c| c.violations).collect::<Vec<_>>(), [asked, 0, 0], "{counts:?}");
}
