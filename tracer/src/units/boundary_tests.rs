//! Which waits are told to be those for the next unit, over drawn stacks.

use super::boundary::{BoundaryPath, is_boundary};
use super::drawn::{FUTEX, POLL, Told};
use super::waits::Wait;
use pg_event::{ModuleId, Sysno, ThreadId};

/// A server whose loop waits and works, and functions that it calls.
const SERVER: &str = "main: nop start: call ret
    | serve: nop turn: next: call two: call work: call jne:turn ret
    | process: nop ask: call lock: call reply: call ret
    | session: nop read: call answer: call jne:session ret
    | wrapper: nop poll: call ret
    | retry: nop blocks: call jne:retry ret
    | once: nop single: call ret
    | library: nop libpoll: call libask: call ret
    | input: nop outer: nop again: reads: call jne:ready selects: call jmp:again
      ready: parse: call jne:outer ret";
const CALLS: [&str; 17] = [
    "start", "next", "two", "work", "ask", "lock", "reply", "read", "answer", "poll", "blocks", "single",
    "libpoll", "libask", "reads", "selects", "parse",
];

fn server() -> Told {
    let mut t = Told::new(SERVER, &CALLS);
    t.under = "start ";
    t
}

/// Boundary paths by names of calls; the wait's own call of the innermost frame is the address before it.
fn told(t: &mut Told) -> Vec<(String, Sysno, u64)> {
    let found = t.found();
    assert_eq!(found.len(), 1, "{found:?}");
    let name = |at: u64| {
        let name = t.catalog.frames.iter().find(|f| f.address == at || f.address == at + 1);
        name.map_or("?", |f| f.function.as_str())
    };
    let path = |b: &BoundaryPath| b.frames.iter().map(|f| name(f.1)).collect::<Vec<_>>().join(" ");
    found[0].boundary.iter().map(|b| (path(b), b.syscall, b.waits)).collect()
}

#[test]
fn one_call_of_the_loop_for_waiting_and_for_work() {
    // The loop calls one function, which polls and serves; in some turns a lock is waited for.
    let mut t = server();
    for _ in 0..5 {
        t.stacks(&["next ask single!", "next lock poll", "next ask single!"]);
        t.stacks(&["next lock poll?", "next reply poll"]);
    }
    assert_eq!(told(&mut t), [("next ask single".into(), POLL, 10)]);
}

#[test]
fn a_worker_waits_for_a_condition_and_inside_for_a_lock() {
    let mut t = server();
    for _ in 0..6 {
        t.stacks(&[
            "next blocks?",
            "work lock poll?",
            "work reply",
            "work lock poll?",
            "next blocks?",
            "work reply",
        ]);
    }
    assert_eq!(told(&mut t), [("next blocks".into(), FUTEX, 12)]);
    // With a lock once in every turn the wait that begins the turn is the boundary.
    let mut t = server();
    for _ in 0..6 {
        t.stacks(&["next blocks?", "work lock poll?", "work reply"]);
    }
    assert_eq!(told(&mut t), [("next blocks".into(), FUTEX, 6)]);
}

#[test]
fn a_condition_that_is_asked_again_is_one_wait() {
    // Woken for nothing, it waits again in the same function; work is seen now and then only.
    let mut t = server();
    for _ in 0..5 {
        t.stacks(&["next blocks?", "next blocks?", "next blocks?", "work reply single"]);
        t.stacks(&["next blocks?", "work lock single", "next blocks?"]);
    }
    assert_eq!(told(&mut t), [("next blocks".into(), FUTEX, 25)]);
}

#[test]
fn an_upstream_server_is_asked_by_the_same_wrapper() {
    let mut t = server();
    for i in 0..8 {
        t.stacks(&["next poll single!"]);
        // Most units ask upstream, some twice; all of them wait in the same function.
        match i % 4 {
            0 => t.stacks(&["work lock single"]),
            1 => t.stacks(&["work ask poll single!", "work ask poll single!", "work reply single"]),
            _ => t.stacks(&["work ask poll single!", "work reply single"]),
        };
    }
    assert_eq!(told(&mut t), [("next poll single".into(), POLL, 8)]);
    // Each unit asks once, and half of the waits for clients do not block.
    let mut t = server();
    for i in 0..20 {
        if i % 2 == 0 {
            t.stack("next poll single!");
        }
        t.stacks(&["work ask poll single!", "work reply single"]);
    }
    assert_eq!(told(&mut t), [("next poll single".into(), POLL, 10)]);
}

#[test]
fn listener_and_worker_have_loops_of_their_own() {
    let mut t = server();
    for _ in 0..4 {
        t.thread = ThreadId(0);
        t.stacks(&["next poll single!", "work lock single?", "work reply single"]);
        t.thread = ThreadId(1);
        t.stacks(&["read blocks?", "answer lock single", "read blocks?", "answer ask single!"]);
    }
    assert_eq!(told(&mut t), [("read blocks".into(), FUTEX, 8)]);
    t.thread = ThreadId(0);
    assert_eq!(told(&mut t), [("next poll single".into(), POLL, 4)]);
}

#[test]
fn waits_of_which_each_turn_has_one() {
    let mut t = server();
    for _ in 0..5 {
        t.stacks(&["next ask single!", "work reply single", "next lock single!", "work reply single"]);
        t.stacks(&["next lock single!", "work reply single"]);
    }
    assert_eq!(told(&mut t), [("next lock single".into(), POLL, 10), ("next ask single".into(), POLL, 5)]);
}

#[test]
fn the_loop_of_a_session_is_no_boundary_of_the_one_around() {
    // A connection begins, has some requests, ends.
    let mut t = server();
    for _ in 0..4 {
        t.stacks(&["next single!", "work read single!", "work answer single", "work read single!"]);
        t.stacks(&["work answer single", "work read single!", "work answer single"]);
    }
    assert_eq!(told(&mut t), [("next single".into(), POLL, 4)]);
}

#[test]
fn a_wait_at_the_end_of_the_body_behind_a_lock() {
    // The loop flushes, for which it waits for a lock at times, then waits for input.
    let mut t = server();
    for i in 0..20 {
        if i % 3 == 0 {
            t.stack("next lock single?");
        }
        t.stacks(&["next reply single", "work poll single!"]);
    }
    assert_eq!(told(&mut t), [("work poll single".into(), POLL, 20)]);
}

#[test]
fn a_thread_that_waits_at_anothers_boundary_has_its_loop() {
    let mut t = server();
    for _ in 0..5 {
        t.stacks(&["next blocks?", "work reply single"]);
    }
    // This one was seen doing nothing else: by itself, what repeats the wait is all that is proven.
    t.thread = ThreadId(1);
    t.stacks(&["next blocks?", "next blocks?", "next blocks?"]);
    let turn = t.program.at("turn");
    let found = t.found();
    assert_eq!((found.len(), found[0].at.head, found[0].turns, found[0].waits), (1, turn, 0, 3));
    assert_eq!(found[0].boundary.len(), 1);
}

#[test]
fn a_library_waits_for_events_and_asks_a_server_below_the_same_call() {
    // Within the program's module both are the same way (a program of GTK: `poll` for events, and for the X server).
    let mut t = server();
    for _ in 0..5 {
        t.stacks(&["next libpoll!", "next libask single!", "work single", "next libpoll!", "work reply"]);
    }
    assert_eq!(told(&mut t), [("next libpoll".into(), POLL, 10)]);
    let learnt = t.found().remove(0).boundary;
    let at = |module, name: &str| (ModuleId(module), t.program.at(name));
    assert!(
        is_boundary(&[at(1, "libask"), at(0, "next")], POLL, &learnt).is_some(),
        "places in libraries do not matter"
    );
    assert_eq!(is_boundary(&[at(0, "single"), at(1, "libask"), at(0, "next")], POLL, &learnt), None);
}

#[test]
fn what_an_inner_loop_explains_the_outer_may_have_done() {
    // The inner loop reads until there is nothing to read, and selects; what was read is parsed in the outer one.
    let mut t = server();
    for _ in 0..4 {
        t.stacks(&["reads", "selects single!", "reads single", "selects single!", "reads", "parse single"]);
        t.stacks(&["selects single!"]);
    }
    assert_eq!(told(&mut t), [("selects single".into(), POLL, 12)]);
}

#[test]
fn what_a_guard_unwinds_is_compared_with_what_was_learnt() {
    let mut t = server();
    for _ in 0..4 {
        t.stacks(&["next poll single!", "work ask poll single!", "work reply single"]);
    }
    let learnt = t.found().remove(0).boundary;
    let at = |name: &str| (ModuleId(0), t.program.at(name));
    // The innermost frame is that behind the system call.
    let behind = (ModuleId(0), t.program.at("single") - 1);
    let stack = [behind, at("poll"), at("next"), (ModuleId(3), 1)];
    assert_eq!(is_boundary(&stack, POLL, &learnt), Some((0, 2)));
    assert_eq!(is_boundary(&stack, FUTEX, &learnt), None);
    assert_eq!(is_boundary(&[behind, at("poll"), at("ask"), at("work")], POLL, &learnt), None);
    assert_eq!(learnt[0].wait, Wait::Input);
}

#[test]
fn the_loop_of_a_session_is_none_though_its_first_request_is_there_already() {
    // Nothing waits between the connection and its first request: all other reads come after the inner loop has turned.
    let mut t = server();
    for _ in 0..5 {
        t.stacks(&["next single!", "work answer single", "work read single!", "work answer single"]);
        t.stacks(&["work read single!", "work answer single", "work read single!", "work answer single"]);
    }
    assert_eq!(told(&mut t), [("next single".into(), POLL, 5)]);
}
