//! Threads that wait for the one that waits: none of them is whom it waited for, unless they close a circle with it.

use crate::draw::{Drawing, PRIVATE_WAIT};
use pg_event::{Direction, ObjectId, ObjectKind};
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

const PRIVATE_PLAIN: u32 = 128;

/// The main thread joins a worker; the worker waits for something that only the main thread could release, as where
/// `call_once` starts a thread that needs the same initialisation.
#[test]
fn a_thread_that_is_joined_waits_for_who_joins_it() {
    for time_out in [false, true] {
        let mut d = Drawing::new(9.0);
        let main = d.process("app", "app", None, 0.0);
        let worker = d.thread(main, "worker", 0.5);
        let (once, ends) =
            (d.object(ObjectKind::Futex, 0x10, 1, ""), d.object(ObjectKind::Futex, 0x90, 1, ""));
        let (init, join) = (d.stack(&["pthread_once (libc.so.6)", "load (app)"]), d.stack(&["join (app)"]));
        d.spawn(main, worker, 0.5);
        d.wait(main, 1.0, 9.0, "futex").on(ends).stack(join).op(265, 1001).open();
        let end = if time_out { 8.0 } else { 9.0 };
        let w = d.wait(worker, 1.0, end, "futex").on(once).stack(init).op(PRIVATE_PLAIN, 1);
        if time_out {
            w.times_out();
            d.wait(worker, 8.001, 9.0, "pause").open();
        } else {
            w.open();
        }
        let r = d.diagnose("^worker$");
        let why = &r.root_causes[0].why;
        assert_eq!(why.starts_with("circular wait (deadlock)"), !time_out, "{why}");
        assert_eq!(r.root_causes[0].tid, Some(1001), "{why}");
    }
}

/// A thread waits with a time-out, and then lets others go on: `unlock`, from a lock that it had meanwhile; else they
/// wait for what it has to say, and a pool is shut down.
fn gives_up(unlock: bool) -> Drawing {
    let mut d = Drawing::new(12.0);
    let main = d.process("app", "app", None, 0.0);
    let worker = d.thread(main, "worker", 0.1);
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let held = d.object(ObjectKind::Futex, 0x20, 1, "");
    let answer = d.stack(&["wait_for (app)"]);
    d.wait(main, 1.0, 8.0, "futex").on(word).stack(answer).op(PRIVATE_WAIT, 0).times_out();
    if unlock {
        let lock = d.stack(&["lock_contended (app)"]);
        d.wait(worker, 0.9, 8.1, "futex").on(held).stack(lock).op(PRIVATE_PLAIN, 2).by(main, "futex", held);
    } else {
        let pool = d.thread(main, "pool", 0.1);
        let queue = d.object(ObjectKind::Futex, 0x30, 1, "");
        let idle = d.stack(&["pthread_cond_wait (libc.so.6)", "next_job (app)"]);
        let told = |w: crate::draw::Wait, on| w.on(on).stack(idle).op(PRIVATE_WAIT, 0).by(main, "futex", on);
        told(d.wait(worker, 0.9, 8.1, "futex"), held);
        told(d.wait(pool, 0.8, 8.2, "futex"), queue);
    }
    d.wait(main, 8.3, 12.0, "pause").open();
    d
}

#[test]
fn whoever_is_let_go_afterwards_is_not_whom_it_waited_for() {
    let r = gives_up(false).diagnose("^worker$");
    let c = &r.root_causes[0];
    assert_eq!((c.tid, c.function.as_deref()), (Some(1000), Some("wait_for")), "{}", c.why);
    assert!(c.why.contains("its own time-out ended it") && r.circle.is_empty(), "{}", c.why);
}

#[test]
fn a_circle_that_a_time_out_broke() {
    let r = gives_up(true).diagnose("^worker$");
    let why = &r.root_causes[0].why;
    assert!(why.starts_with("circular wait (until a time-out)"), "{why}");
    assert!(why.contains("a time-out of app:1000 ended it at 8.000 s"), "{why}");
}

/// A server keeps a request back and answers when a timer of its own says so.
#[test]
fn an_answer_that_came_late_is_not_said_to_be_missing() {
    let mut d = Drawing::new(9.0);
    let server = d.process("server", "server", None, 0.0);
    let client = d.process("client", "client", None, 0.1);
    let (c, s) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    d.message(client, c, Direction::Send, 0.999, 20);
    d.wait(server, 0.5, 1.0, "epoll_wait").on(epoll).by(client, "sendto", c);
    d.message(server, s, Direction::Receive, 1.0005, 20);
    let mut t = 1.001;
    while t < 7.95 {
        d.wait(server, t, t + 0.1, "epoll_wait").on(epoll).times_out();
        t += 0.1001;
    }
    d.wait(client, 1.0, t + 0.0001, "recvfrom").on(c).by(server, "write", s);
    d.wait(server, t + 0.001, 9.0, "epoll_wait").on(epoll).open();
    d.wait(client, t + 0.001, 9.0, "pause").on(ObjectId::NONE).open();
    let r = d.diagnose("^client");
    let first = &r.root_causes[0];
    assert_eq!(first.process.as_deref(), Some("server"), "{}", first.why);
    assert!(first.why.contains("when a time-out of its own had passed"), "{}", first.why);
    assert!(r.root_causes.iter().all(|c| !c.why.contains("never answered")), "{r:#?}");
    assert!(r.root_causes.iter().all(|c| !c.why.contains("no wake-up")), "{r:#?}");
}

/// As `std::future` of C++ does it: a futex that is not marked private, but lies in memory of the process alone. A task
/// waits for one that only its own thread could run; the function named is the program's, not its language's.
#[test]
fn a_pool_that_waits_for_itself() {
    let mut d = Drawing::new(9.0);
    let main = d.process("app", "app", None, 0.0);
    let worker = d.thread(main, "worker", 0.1);
    let (outer, inner) =
        (d.object(ObjectKind::Futex, 0x10, 1000, ""), d.object(ObjectKind::Futex, 0x20, 1000, ""));
    let get = "std::future<int>::get() (app)";
    let (asks, task) =
        (d.stack(&[get, "ask (app)", "main (app)"]), d.stack(&[get, "task (app)", "run (app)"]));
    d.wait(main, 1.0, 9.0, "futex").on(outer).stack(asks).op(9, 1).open();
    d.wait(worker, 1.1, 9.0, "futex").on(inner).stack(task).op(9, 1).open();
    let r = d.diagnose("^app$");
    let c = &r.root_causes[0];
    assert!(c.why.contains("deadlock") && c.why.contains("called from task"), "{}", c.why);
    assert_eq!((c.tid, c.function.as_deref()), (Some(1001), Some("task")), "{}", c.why);
}

/// Two threads of a pool wait for tasks that only the pool could run, until a time-out. Others of the process had nothing to do
/// all the time, and are woken as the program ends: they are not who should have acted. Who waits alone may wait for them.
#[test]
fn who_rests_since_before_is_not_who_a_pool_waits_for() {
    for alone in [false, true] {
        let mut d = Drawing::new(9.0);
        let main = d.process("vm", "vm Pool", None, 0.0);
        let cleaner = d.thread(main, "cleaner", 0.1);
        let pool: Vec<_> =
            (1..=if alone { 1 } else { 2 }).map(|i| d.thread(main, &format!("pool-{i}"), 0.5)).collect();
        let ender = d.thread(main, "ender", 8.015);
        let word = |d: &mut Drawing, i: u64| d.object(ObjectKind::Futex, 0x100 * i, 1000, "");
        let rest = d.stack(&["pthread_cond_wait (libc.so.6)", "Cleaner::next (vm)"]);
        let get = d.stack(&[
            "pthread_cond_timedwait (libc.so.6)",
            "Task::get (vm)",
            "report (vm)",
            "Pool::run (vm)",
        ]);
        let joins = d.stack(&["pthread_cond_wait (libc.so.6)", "Task::get (vm)", "main (vm)"]);
        let (own, its) = (word(&mut d, 1), word(&mut d, 2));
        d.wait(main, 0.7, 8.01, "futex").on(own).stack(joins).op(PRIVATE_WAIT, 0).by(pool[0], "futex", own);
        d.wait(cleaner, 0.2, 8.03, "futex").on(its).stack(rest).op(PRIVATE_WAIT, 0).by(ender, "futex", its);
        for (i, t) in pool.iter().enumerate() {
            let word = word(&mut d, 3 + i as u64);
            d.wait(*t, 0.8, 8.0, "futex").on(word).stack(get).op(PRIVATE_WAIT, 0).times_out();
        }
        let (g, c) = d.build();
        let s = Selection { tid: Some(1000), ..Selection::default() };
        let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
        let r = run_with_policy(&g, &c, v, Options::default());
        let c = &r.root_causes[0];
        assert_eq!(c.why.starts_with("circular wait (until a time-out)"), !alone, "{}", c.why);
        assert_eq!(r.slice.iter().any(|n| n.thread == "cleaner"), alone, "{r:#?}");
    }
}
