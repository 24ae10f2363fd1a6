//! Circular waits for locks: whose they are where no owner is known, and who has no part in them.

use crate::draw::{Drawing, PRIVATE_WAIT};
use pg_event::{Direction, ObjectKind, Relation};
use pg_graph::report::Report;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};
/// Two locks whose owner no state tells, and a main thread that joins: nobody of the process is left.
#[test]
fn a_deadlock_of_locks_without_owner_names_all() {
    let mut d = Drawing::new(20.0);
    let main = d.process("py", "py two.py", None, 0.0);
    let (one, two) = (d.thread(main, "one", 0.1), d.thread(main, "two", 0.1));
    let words: Vec<_> = (0..3).map(|i| d.object(ObjectKind::Futex, 0x100 + i, 1, "")).collect();
    let lock = d.stack(&["sem_wait (libc.so.6)", "PyThread_acquire_lock_timed (python3)", "eval (python3)"]);
    d.spawn(main, one, 0.1);
    d.spawn(main, two, 0.1);
    d.wait(main, 0.2, 20.0, "futex").on(words[0]).stack(lock).op(PRIVATE_WAIT, 0).open();
    d.wait(one, 0.5, 20.0, "futex").on(words[1]).stack(lock).op(PRIVATE_WAIT, 0).open();
    d.wait(two, 0.6, 20.0, "futex").on(words[2]).stack(lock).op(PRIVATE_WAIT, 0).open();
    let r = d.diagnose("^py two.py$");
    assert_eq!(r.slice.len(), 3, "{r:#?}");
    let first: Vec<_> = r.root_causes.iter().map(|c| c.tid).collect();
    assert_eq!(first, [Some(1002), Some(1001), Some(1000)], "who closed the circle first, who joins last");
    assert_eq!(r.circle, [0, 1, 2]);
    let why = &r.root_causes[0].why;
    assert!(why.contains("deadlock") && why.contains("thread 1001") && why.contains("thread 1000"), "{why}");
    assert!(r.slice[1..].iter().all(|n| n.edge.as_deref() == Some("holder") && n.why_weak.is_some()));
}

/// Two that serve clients want each other's lock; a third thread polls for clients to come, by turns, and has no part.
#[test]
fn who_waits_for_clients_is_none_of_a_deadlock() {
    for sets in [false, true] {
        let mut d = Drawing::new(14.0);
        let main = d.process("app", "app", None, 0.0);
        let (book, count) = (d.thread(main, "book", 0.3), d.thread(main, "count", 0.5));
        let curl = d.process("curl", "curl /count", None, 0.4);
        let other = d.process("curl", "curl /book", None, 0.2);
        let port = d.object(ObjectKind::Tcp, 80, 0, "");
        let port = if sets { d.set(&[port]) } else { port };
        let conn = d.object(ObjectKind::Tcp, 1, 80, "");
        let theirs = d.object(ObjectKind::Tcp, 2, 80, "");
        let lock = d.stack(&["new_sem_wait (libc.so.6)", "take_lock (app)", "serve (app)"]);
        let (a, b) =
            (d.object(ObjectKind::Futex, 0x10, 1000, ""), d.object(ObjectKind::Futex, 0x20, 1000, ""));
        d.wait(main, 0.0, 0.3, "poll").on(port).by_packet(other, "connect", theirs);
        d.wait(main, 0.31, 0.5, "poll").on(port).by_packet(curl, "connect", conn);
        d.spawn(main, book, 0.301);
        d.spawn(main, count, 0.501);
        let mut t = 0.51;
        while t < 13.5 {
            d.wait(main, t, t + 0.5, "poll").on(port).times_out();
            t += 0.5001;
        }
        d.message(curl, conn, Direction::Send, 0.5, 80);
        d.message(other, theirs, Direction::Send, 0.3, 80);
        d.wait(book, 0.8, 13.9, "futex").on(a).stack(lock).op(128 | 9, 0).open();
        d.wait(count, 1.0, 13.9, "futex").on(b).stack(lock).op(128 | 9, 0).open();
        d.wait(curl, 0.51, 13.9, "poll").on(conn).open();
        d.wait(other, 0.31, 13.9, "poll").on(theirs).open();
        d.hold(count, curl, conn, Relation::Peer, 2.0);
        d.hold(book, other, theirs, Relation::Peer, 2.0);
        let r = d.diagnose("^curl /count");
        let c = &r.root_causes[0];
        assert!(c.why.contains("deadlock") && c.why.contains("1001") && c.why.contains("1002"), "{}", c.why);
        assert_eq!(r.circle.len(), 2, "{r:#?}");
        assert!(!r.slice.iter().any(|n| n.tid == 1000), "{r:#?}");
        assert!(r.questions.is_empty(), "{r:#?}");
    }
}

/// The same, but one thread is not stuck: it is what the others wait for.
#[test]
fn who_is_left_has_the_lock() {
    for idle in [false, true] {
        let mut d = Drawing::new(20.0);
        let main = d.process("py", "py two.py", None, 0.0);
        let (one, two) = (d.thread(main, "one", 0.1), d.thread(main, "two", 0.1));
        let words: Vec<_> = (0..2).map(|i| d.object(ObjectKind::Futex, 0x100 + i, 1, "")).collect();
        let lock = d.stack(&["sem_wait (libc.so.6)", "acquire_lock (python3)", "eval (python3)"]);
        let sock = d.object(ObjectKind::Tcp, 1, 2, "");
        let epoll = d.object(ObjectKind::Epoll, 3, 0, "");
        d.wait(one, 0.5, 20.0, "futex").on(words[0]).stack(lock).op(PRIVATE_WAIT, 0).open();
        d.message(two, sock, Direction::Send, 0.55, 10);
        if idle {
            d.wait(two, 0.6, 20.0, "epoll_wait").on(epoll).open();
        } else {
            d.wait(two, 0.6, 20.0, "recvfrom").on(sock).open();
        }
        d.wait(main, 0.4, 20.0, "pause").open();
        let (g, c) = d.build();
        let s = Selection { tid: Some(1001), ..Selection::default() };
        let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
        let r = run_with_policy(&g, &c, v, Options::default());
        if idle {
            assert!(
                !r.root_causes.iter().any(|c| c.why.contains("deadlock")),
                "an event loop may still act: {r:#?}"
            );
        } else {
            assert_eq!(r.slice.get(1).map(|n| n.tid), Some(1002), "{r:#?}");
            assert!(r.slice[1].why_weak.as_ref().unwrap().contains("only thread"), "{r:#?}");
        }
    }
}

/// Locks with time-outs, tried again: a livelock is a circle too.
#[test]
fn a_circle_broken_by_time_outs() {
    let mut d = Drawing::new(12.0);
    let main = d.process("app", "app", None, 0.0);
    let (one, two) = (d.thread(main, "one", 0.1), d.thread(main, "two", 0.1));
    let (la, lb) = (d.object(ObjectKind::Futex, 0x10, 1, ""), d.object(ObjectKind::Futex, 0x20, 1, ""));
    let lock = d.stack(&["__lll_lock_wait (libc.so.6)", "pthread_mutex_timedlock (libc.so.6)", "go (app)"]);
    for (who, other, word) in [(one, two, lb), (two, one, la)] {
        let mut t = 1.0;
        while t < 10.0 {
            d.wait(who, t, t + 1.0, "futex").on(word).stack(lock).op(128, 2).times_out();
            d.hold(other, who, word, Relation::Owns, t + 0.7);
            t += 1.0001;
        }
    }
    d.wait(main, 0.3, 12.0, "pause").open();
    let (g, c) = d.build();
    let s = Selection { tid: Some(1001), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let r = run_with_policy(&g, &c, v, Options::default());
    let why = &r.root_causes[0].why;
    assert!(why.contains("circular") && why.contains("time-out"), "{why}");
}

/// A thread that ended with a lock: its owner cannot be looked up any more, but it was seen to get it.
#[test]
fn a_lock_of_a_thread_that_ended() {
    let mut d = Drawing::new(12.0);
    let main = d.process("app", "app", None, 0.0);
    let (one, two) = (d.thread(main, "one", 0.1), d.thread(main, "two", 0.1));
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let epoll = d.object(ObjectKind::Epoll, 3, 0, "");
    let lock = d.stack(&["__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "go (app)"]);
    d.wait(two, 1.0, 2.0, "futex").on(word).stack(lock).op(128, 2).by(one, "futex", word);
    d.exit(two, 2.5);
    d.wait(one, 3.0, 12.0, "futex").on(word).stack(lock).op(128, 2).open();
    d.wait(main, 0.3, 12.0, "epoll_wait").on(epoll).open();
    let (g, c) = d.build();
    let s = Selection { tid: Some(1001), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let r = run_with_policy(&g, &c, v, Options::default());
    assert_eq!(r.slice[1].state, "exited", "{r:#?}");
    let cause = &r.root_causes[0];
    assert_eq!(cause.tid, Some(1002));
    assert!(
        cause.why.contains("ended at 2.500 s") && cause.why.contains("never gave it back"),
        "{}",
        cause.why
    );
}

/// The same when nobody saw it get the lock, and the main thread only joins the one that waits: no circle.
#[test]
fn a_join_closes_no_circle() {
    let mut d = Drawing::new(12.0);
    let main = d.process("app", "app", None, 0.0);
    let (one, two) = (d.thread(main, "one", 0.1), d.thread(main, "two", 0.1));
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let tid = d.object(ObjectKind::Futex, 0x99, 1, "");
    let lock = d.stack(&["__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "go (app)"]);
    let join = d.stack(&["__pthread_clockjoin_ex (libc.so.6)", "main (app)"]);
    d.wait(main, 0.2, 12.0, "futex").on(tid).stack(join).op(128 | 9, 1001).open();
    d.wait(two, 1.0, 2.0, "clock_nanosleep").times_out();
    d.exit(two, 2.5);
    d.wait(one, 3.0, 12.0, "futex").on(word).stack(lock).op(128, 2).open();
    let (g, c) = d.build();
    let s = Selection { tid: Some(1001), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let r = run_with_policy(&g, &c, v, Options::default());
    assert!(r.circle.is_empty() && !r.root_causes[0].why.contains("circular"), "{r:#?}");
    assert_eq!((r.slice[1].tid, r.slice[1].state.as_str()), (1002, "exited"), "{r:#?}");
}

/// Two threads want each other's monitors. The main thread joins the one that waits for them, and a worker waits
/// for work: neither is named.
#[test]
fn those_who_want_locks_are_the_circle() {
    let mut d = Drawing::new(9.0);
    let launcher = d.process("app", "app", None, 0.0);
    let main = d.thread(launcher, "main", 0.1);
    let (orders, billing) = (d.thread(launcher, "orders", 0.1), d.thread(launcher, "billing", 0.1));
    let worker = d.thread(launcher, "worker", 0.1);
    let futex: Vec<_> = (1..=5).map(|i| d.object(ObjectKind::Futex, i * 0x10, 1, "")).collect();
    let enter = d.stack(&[
        "pthread_cond_timedwait (libc.so.6)",
        "PlatformEvent::park (vm.so)",
        "ObjectMonitor::enter (vm.so)",
    ]);
    let wait = d.stack(&[
        "pthread_cond_wait (libc.so.6)",
        "PlatformEvent::park (vm.so)",
        "ObjectMonitor::wait (vm.so)",
    ]);
    // A join is no private wait; its value is the thread waited for.
    d.wait(launcher, 0.5, 9.0, "futex").on(futex[0]).op(0x109, 1001).open();
    d.hold(main, launcher, futex[0], Relation::Owns, 1.5);
    d.wait(main, 0.5, 9.0, "futex").on(futex[1]).op(PRIVATE_WAIT, 0).stack(wait).open();
    d.wait(orders, 1.0, 9.0, "futex").on(futex[2]).op(PRIVATE_WAIT, 0).stack(enter).open();
    d.wait(billing, 1.0, 9.0, "futex").on(futex[3]).op(PRIVATE_WAIT, 0).stack(enter).open();
    d.wait(worker, 0.4, 9.0, "futex").on(futex[4]).op(PRIVATE_WAIT, 0).stack(wait).open();
    let r = d.diagnose("^app");
    let named: Vec<_> = r.root_causes.iter().filter_map(|c| c.thread.as_deref()).collect();
    assert!(named.contains(&"orders") && named.contains(&"billing") && named.len() == 2, "{named:?}");
    assert!(r.slice.iter().all(|n| n.thread != "worker"), "{r:#?}");
    let c = &r.root_causes[0];
    assert!(c.why.starts_with("circular wait (deadlock)"), "{}", c.why);
    // The functions that wait are wrappers with several callers; what they wait for is told.
    assert_eq!(c.function.as_deref(), Some("ObjectMonitor::enter"), "{c:#?}");
}

/// A queue's reader waits, as an idle thread does, and who was to fill the queue has ended: no locks are spoken of.
#[test]
fn a_lost_wake_up_is_told_from_locks() {
    let mut d = Drawing::new(9.0);
    let main = d.process("app", "app", None, 0.0);
    let idle = d.thread(main, "idle", 0.1);
    let producer = d.thread(main, "producer", 0.1);
    let (q, e) = (d.object(ObjectKind::Futex, 0x10, 1, ""), d.object(ObjectKind::Futex, 0x20, 1, ""));
    let wait = d.stack(&["pthread_cond_wait (libc.so.6)", "get (app)"]);
    d.wait(main, 0.5, 9.0, "futex").on(q).op(PRIVATE_WAIT, 0).stack(wait).open();
    d.wait(idle, 0.4, 9.0, "futex").on(e).op(PRIVATE_WAIT, 0).stack(wait).open();
    d.wait(producer, 0.2, 0.9, "clock_nanosleep").times_out();
    d.exit(producer, 1.0);
    let r = d.diagnose("^app");
    let c = &r.root_causes[0];
    assert!(c.why.contains("lost wake-up") && c.why.contains("producer:1002 ended at 1.000 s"), "{}", c.why);
    assert!(!c.why.contains("each other's locks"), "{}", c.why);
    // The other thread's wait is told, and not all of it once more.
    let other = &r.root_causes[1].why;
    assert!(other.starts_with("the same, in another thread: app"), "{other}");
    assert!(other.contains("called from get, since 0.") && !other.contains("and so do"), "{other}");
}

/// A condition variable has two words, and its waiters sleep on them in turns: that a short wait on one timed out
/// does not hide who ended the one on the other.
#[test]
fn both_words_of_a_condition_are_one_wait() {
    let mut d = Drawing::new(12.0);
    let io = d.process("io", "io", None, 0.0);
    let burn = d.thread(io, "burn", 0.1);
    let client = d.process("client", "client", None, 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let words = [d.object(ObjectKind::Futex, 0x1f0, 1, ""), d.object(ObjectKind::Futex, 0x1f4, 1, "")];
    let eval = d.stack(&["eval_frame (py)"]);
    let take = d.stack(&["pthread_cond_timedwait (libc.so.6)", "take_gil (py)"]);
    d.runs(burn, 0.5, 11.5, eval);
    let mut t = 1.0;
    while t < 11.0 {
        d.wait(io, t, t + 0.006, "futex").on(words[0]).op(PRIVATE_WAIT, 0).stack(take).times_out();
        d.wait(io, t + 0.0061, t + 0.0098, "futex")
            .on(words[1])
            .op(PRIVATE_WAIT, 0)
            .stack(take)
            .by(burn, "futex", words[1]);
        t += 0.01;
    }
    d.wait(io, 11.01, 12.0, "pause").open();
    d.message(client, a, Direction::Send, 0.9, 1);
    d.message(io, b, Direction::Receive, 0.9, 1);
    d.wait(client, 1.0, 11.0, "recvfrom").on(a).by(io, "sendto", b);
    // What was found about another wait of the same thread is not about this one.
    d.hold(client, io, b, Relation::Peer, 5.0);
    let r = d.diagnose("^client$");
    let c = r.root_causes.iter().find(|c| c.thread.as_deref() == Some("burn"));
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("burn"), "{r:#?}");
    assert_eq!(c.and_then(|c| c.function.as_deref()), Some("eval_frame"));
    let step = r.slice.iter().find(|n| n.thread == "burn");
    assert_eq!(step.and_then(|n| n.edge.as_deref()), Some("futex"), "{r:#?}");
}

/// A thread waits for a futex that only its own process can wake, and is the only thread of it: that is told; of a futex
/// in shared memory it is not known.
#[test]
fn nobody_is_left_to_wake_the_only_thread() {
    for private in [true, false] {
        let mut d = Drawing::new(9.0);
        let main = d.process("app", "app", None, 0.0);
        let word = d.object(ObjectKind::Futex, 0x10, 1, "");
        let op = if private { PRIVATE_WAIT } else { 9 };
        d.wait(main, 0.5, 9.0, "futex").on(word).op(op, 2).open();
        let r = d.diagnose("^app$");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("only threads of its process can, and it is the only one"), private, "{why}");
    }
}

/// The same of a copy that fork made, by whatever way one comes to it: from who reads its output, too.
#[test]
fn a_lock_that_fork_copied_is_told_by_every_way() {
    for victim in ["^parent", "^child"] {
        let mut d = Drawing::new(9.0);
        let parent = d.process("parent", "app", None, 0.0);
        let worker = d.thread(parent, "worker", 0.1);
        let child = d.process("child", "app", Some(parent), 0.4);
        for p in &mut d.catalog.processes {
            p.exe = "/bin/app".into();
        }
        let word = d.object(ObjectKind::Futex, 0x10, 1, "");
        let output = d.object(ObjectKind::Pipe, 5, 5, "");
        let lock = d.stack(&["pthread_mutex_lock (libc.so.6)", "log_line (app)", "run_helper (app)"]);
        let work = d.stack(&["compute (app)"]);
        d.runs(worker, 0.2, 9.0, work);
        d.wait(parent, 0.5, 9.0, "read").on(output).open();
        d.hold(child, parent, output, Relation::Writes, 1.0);
        d.wait(child, 0.5, 9.0, "futex").on(word).op(PRIVATE_WAIT, 2).stack(lock).open();
        let r = d.diagnose(victim);
        let cause = &r.root_causes[0];
        assert_eq!(cause.process.as_deref(), Some("child"), "{}", cause.why);
        assert!(cause.why.contains("fork copied what it waits for from parent"), "{}", cause.why);
    }
}

/// Who waits for a result, while all others of the process are workers without work, is not one of a circle.
#[test]
fn a_result_that_workers_without_work_do_not_bring() {
    for pool in [true, false] {
        let mut d = Drawing::new(9.0);
        let main = d.process("app", "app", None, 0.0);
        let get = d.stack(&["syscall (libc.so.6)", "get_result (app)", "main (app)"]);
        let run = d.stack(&["pthread_cond_wait (libc.so.6)", "run (app)"]);
        let result = d.object(ObjectKind::Futex, 0x10, 1, "");
        d.wait(main, 0.5, 9.0, "futex").on(result).op(PRIVATE_WAIT, 1).stack(get).open();
        let words = [0x20, 0x30].map(|word| d.object(ObjectKind::Futex, word, 1, ""));
        for i in 0..2 {
            let t = d.thread(main, "worker", 0.1);
            let word = words[if pool { 0 } else { i }];
            d.wait(t, 0.4 + 0.3 * i as f64, 9.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(run).open();
        }
        let r = d.diagnose("^app$");
        let why = &r.root_causes[0].why;
        assert_eq!(r.circle.is_empty(), pool, "{r:#?}");
        let told = "2 threads of the process wait in one place for work, as it seems (run): the last to work was thread 1002, until 0.700 s";
        assert_eq!(why.starts_with("app (pid 1000) waited") && why.contains(told), pool, "{why}");
    }
}

/// A mutex that is locked twice by the same thread. Its word names the thread: what the others do does not matter.
#[test]
fn who_has_the_lock_already_waits_for_itself() {
    for owner in [0, 1] {
        let mut d = Drawing::new(20.0);
        let main = d.process("app", "app", None, 0.0);
        let threads = [main, d.thread(main, "other", 0.1)];
        let word = d.object(ObjectKind::Futex, 0x100, 1, "");
        let lock = d.stack(&["pthread_mutex_lock (libc.so.6)", "log_line (app)", "main (app)"]);
        d.wait(main, 1.0, 20.0, "futex").on(word).stack(lock).op(128, 2).open();
        d.wait(threads[1], 1.0, 20.0, "clock_nanosleep").open();
        d.hold(threads[owner], main, word, Relation::Owns, 2.0);
        let r = d.diagnose("^app$");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("waited for itself (deadlock)"), owner == 0, "{why}");
        assert_eq!(why.contains("has already"), owner == 0, "{why}");
    }
}

/// A server of a runtime that goes on living: two requests have a lock each and want the other one's, a third comes later
/// and wants one of the two. Threads that turn every now and then, or wait where they always do, have none.
fn server_with_monitors(owner_waits: bool) -> Report {
    let mut d = Drawing::new(16.0);
    let main = d.process("vm", "vm Bank", None, 0.0);
    let (ab, ba) = (d.thread(main, "req-1", 1.0), d.thread(main, "req-2", 1.0));
    let (third, idle) = (d.thread(main, "req-3", 3.0), d.thread(main, "req-0", 0.5));
    let periodic = d.thread(main, "periodic", 0.1);
    let futex: Vec<_> = (1..=6).map(|i| d.object(ObjectKind::Futex, i * 0x100, 1, "")).collect();
    let enter = d.stack(&["pthread_cond_wait (libc.so.6)", "ObjectMonitor::enter (vm.so)", "transfer (vm)"]);
    let take = d.stack(&["pthread_cond_wait (libc.so.6)", "Object::wait (vm.so)", "Queue::take (vm)"]);
    let sync = d.stack(&["pthread_cond_wait (libc.so.6)", "Object::wait (vm.so)", "Report::sync (vm)"]);
    d.wait(main, 0.2, 16.0, "epoll_wait").open();
    // It has had work before, and waits for the next.
    d.wait(idle, 0.6, 1.1, "futex").on(futex[0]).op(PRIVATE_WAIT, 0).stack(take).by(main, "futex", futex[0]);
    let place = if owner_waits { sync } else { take };
    d.wait(idle, 1.2, 16.0, "futex").on(futex[0]).op(PRIVATE_WAIT, 0).stack(place).open();
    let mut t = 0.2;
    while t < 15.0 {
        d.wait(periodic, t, t + 0.05, "futex").on(futex[1]).op(PRIVATE_WAIT, 0).stack(take).times_out();
        t += 0.051;
    }
    d.wait(ab, 1.3, 16.0, "futex").on(futex[2]).op(PRIVATE_WAIT, 0).stack(enter).open();
    d.wait(ba, 1.4, 16.0, "futex").on(futex[3]).op(PRIVATE_WAIT, 0).stack(enter).open();
    d.wait(third, 3.01, 15.0, "futex").on(futex[4]).op(PRIVATE_WAIT, 0).stack(enter).open();
    let (g, c) = d.build();
    let s = Selection { tid: Some(1003), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    run_with_policy(&g, &c, v, Options::default())
}

#[test]
fn two_that_want_each_others_locks_are_found_in_a_process_that_lives() {
    let r = server_with_monitors(false);
    let named: Vec<_> = r.root_causes.iter().filter_map(|c| c.thread.as_deref()).collect();
    // Who came when both were stuck has nothing that they wait for.
    assert!(named.contains(&"req-1") && named.contains(&"req-2") && named.len() == 2, "{named:?}");
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{}", r.root_causes[0].why);
    assert!(r.questions.is_empty(), "{:?}", r.questions);
}

/// Who waits at a place of its own may have one of the locks.
#[test]
fn who_waits_for_something_else_may_have_the_lock() {
    let r = server_with_monitors(true);
    assert!(r.root_causes.iter().all(|c| !c.why.starts_with("circular wait")), "{:#?}", r.root_causes);
}

/// Threads of a runtime that went to wait at places of their own before those that want locks were made have none of them.
#[test]
fn who_waited_before_they_were_born_has_none_of_their_locks() {
    let circle = |since: f64| {
        let mut d = Drawing::new(10.0);
        let main = d.process("vm", "vm Bank", None, 0.1);
        let (marker, refine) = (d.thread(main, "marker", 0.2), d.thread(main, "refine", 0.2));
        let (one, two) = (d.thread(main, "transfer-1", 1.5), d.thread(main, "transfer-2", 1.5));
        let futex: Vec<_> = (1..=5).map(|i| d.object(ObjectKind::Futex, i * 0x100, 1, "")).collect();
        let enter =
            d.stack(&["pthread_cond_wait (libc.so.6)", "ObjectMonitor::enter (vm.so)", "transfer (vm)"]);
        let join = d.stack(&["pthread_cond_wait (libc.so.6)", "Object::wait (vm.so)", "join (vm)"]);
        d.spawn(main, one, 1.5);
        d.spawn(main, two, 1.5);
        d.wait(main, 1.6, 10.0, "futex").on(futex[0]).op(PRIVATE_WAIT, 0).stack(join).open();
        for (i, (t, name)) in
            [(marker, "Marker::run (vm.so)"), (refine, "Refine::run (vm.so)")].iter().enumerate()
        {
            let own = d.stack(&["pthread_cond_wait (libc.so.6)", name]);
            d.wait(*t, since, 10.0, "futex").on(futex[1 + i]).op(PRIVATE_WAIT, 0).stack(own).open();
        }
        let periodic = d.thread(main, "periodic", 0.3);
        let turn = d.stack(&["pthread_cond_timedwait (libc.so.6)", "Watcher::sleep (vm.so)"]);
        let word = d.object(ObjectKind::Futex, 0x900, 1, "");
        let mut t = 0.4;
        while t < 9.9 {
            d.wait(periodic, t, t + 0.05, "futex").on(word).op(PRIVATE_WAIT, 0).stack(turn).times_out();
            t += 0.06;
        }
        d.wait(one, 1.8, 10.0, "futex").on(futex[3]).op(PRIVATE_WAIT, 0).stack(enter).open();
        d.wait(two, 1.81, 10.0, "futex").on(futex[4]).op(PRIVATE_WAIT, 0).stack(enter).open();
        let (g, c) = d.build();
        let s = Selection { tid: Some(1003), ..Selection::default() };
        let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
        run_with_policy(&g, &c, v, Options::default())
    };
    let r = circle(1.2);
    let named: Vec<_> = r.root_causes.iter().filter_map(|c| c.thread.as_deref()).collect();
    assert!(named.contains(&"transfer-1") && named.contains(&"transfer-2") && named.len() == 2, "{r:#?}");
    assert!(r.root_causes[0].why.starts_with("circular wait (deadlock)"), "{}", r.root_causes[0].why);
    assert!(r.questions.is_empty(), "{:?}", r.questions);
    assert_eq!(r.slice.len(), 2, "straight from one to the other: {:#?}", r.slice);
    // Who came to wait while they were there may have taken one: then who does something is asked first.
    let r = circle(1.7);
    assert_eq!(r.slice[1].thread, "periodic", "{:#?}", r.slice);
}

/// A pool whose tasks wait for the pool, recorded from the middle: its runtime has a thread that turns, and older ones that
/// wait for something to do.
#[test]
fn the_youngest_threads_of_a_pool_come_first_and_its_housekeeping_last() {
    let mut d = Drawing::new(5.0);
    let main = d.process("vm", "vm Pool", None, 0.0);
    let old = [d.thread(main, "vm-0", 0.0)];
    let periodic = d.thread(main, "periodic", 0.0);
    let pool = [d.thread(main, "pool-1", 0.0), d.thread(main, "pool-2", 0.0)];
    let park = d.stack(&["pthread_cond_wait (libc.so.6)", "Parker::park (vm.so)"]);
    let turn = d.stack(&["pthread_cond_timedwait (libc.so.6)", "Watcher::sleep (vm.so)"]);
    for (i, t) in old.iter().chain(&pool).chain([&main]).enumerate() {
        let word = d.object(ObjectKind::Futex, 0x100 * (i as u64 + 1), 1, "");
        d.wait(*t, 0.001, 5.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(park).before().open();
    }
    let word = d.object(ObjectKind::Futex, 0x9000, 1, "");
    let mut t = 0.01;
    while t < 4.9 {
        d.wait(periodic, t, t + 0.05, "futex").on(word).op(PRIVATE_WAIT, 0).stack(turn).times_out();
        t += 0.0501;
    }
    d.wait(periodic, t, 5.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(turn).open();
    let r = d.diagnose("^vm Pool$");
    assert_ne!(r.victim.thread, "periodic", "{r:#?}");
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("pool-2"), "{r:#?}");
    let at = |name| r.root_causes.iter().position(|c| c.thread.as_deref() == Some(name));
    assert!(at("periodic").is_none_or(|p| ["pool-1", "vm-0"].iter().all(|o| at(o) < Some(p))), "{r:#?}");
}

/// Workers of a Python program that wait for the next item have no part in a circle: what the first thread waits for was lost.
#[test]
fn workers_at_a_queue_are_none_of_a_circle() {
    let mut d = Drawing::new(12.0);
    let main = d.process("py", "py q.py", None, 0.0);
    let (one, two) = (d.thread(main, "one", 0.1), d.thread(main, "two", 0.1));
    let words: Vec<_> = (0..3).map(|i| d.object(ObjectKind::Futex, 0x100 + i, 1000, "")).collect();
    let wait = [
        "sem_wait (libc.so.6)",
        "PyThread_acquire_lock_timed (python3)",
        "Condition.wait (python3.11/threading.py:320)",
    ];
    let joins = d.stack(&[&wait[..], &["Queue.join (python3.11/queue.py:90)", "<module> (q.py:9)"]].concat());
    let gets = d.stack(&[&wait[..], &["Queue.get (python3.11/queue.py:171)", "worker (q.py:4)"]].concat());
    for (t, at, word, stack) in [(main, 0.2, 0, joins), (one, 0.5, 1, gets), (two, 0.6, 2, gets)] {
        d.wait(t, at, 12.0, "futex").on(words[word]).stack(stack).op(PRIVATE_WAIT, 0).open();
    }
    let r = d.diagnose("^py q.py$");
    assert_eq!((r.victim.tid, r.root_causes[0].tid), (1000, Some(1000)), "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(
        why.contains("2 threads of the process wait in one place for work") && !why.contains("circular"),
        "{why}"
    );
}

/// Two threads want the same lock, which none of them has; another one went to wait for a message before, and main accepts,
/// while one sleeps at times. Of two that wait for messages it is not known which has the lock.
#[test]
fn who_wants_the_same_lock_does_not_have_it() {
    for receivers in [1, 2] {
        let mut d = Drawing::new(9.0);
        let client = d.process("ask", "ask", None, 0.9);
        let main = d.process("cached", "cached", None, 0.0);
        let (near, _) = crate::draw::middle::tcp(&mut d, 40_000, 80);
        let listening = d.object(ObjectKind::Tcp, pg_event::endpoint_v4(0x7f00_0007, 80), 0, "");
        let (lock, told) =
            (d.object(ObjectKind::Futex, 0x10, 1001, ""), d.object(ObjectKind::Futex, 0x20, 1001, ""));
        let wants = d.stack(&["syscall (libc.so.6)", "lock_contended (cached)", "produce (cached)"]);
        let awaits = d.stack(&[
            "syscall (libc.so.6)",
            "<std::thread::thread::Thread>::park (cached)",
            "refill (cached)",
        ]);
        for n in 0..receivers {
            let t = d.thread(main, &format!("refiller{n}"), 0.1);
            d.wait(t, 0.5 + f64::from(n) / 10.0, 9.0, "futex").on(told).op(137, 0).stack(awaits).open();
        }
        for n in 0..2 {
            let t = d.thread(main, &format!("worker{n}"), 0.1);
            d.wait(t, 1.0 + f64::from(n) / 10.0, 9.0, "futex").on(lock).op(137, 2).stack(wants).open();
        }
        let ticker = d.thread(main, "ticker", 0.1);
        for n in 0..8 {
            let at = 0.5 + f64::from(n);
            d.wait(ticker, at, at + 0.99, "clock_nanosleep").times_out();
        }
        d.wait(main, 0.2, 9.0, "accept4").on(listening).open();
        d.wait(client, 1.2, 9.0, "recvfrom").on(near).open();
        d.hold(main, client, near, Relation::Peer, 2.2);
        let r = d.diagnose("^ask$");
        assert!(r.circle.is_empty(), "{r:#?}");
        let named = r.root_causes[0].thread.as_deref() == Some("refiller0");
        assert_eq!(named, receivers == 1, "{r:#?}");
    }
}
