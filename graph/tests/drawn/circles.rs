//! Circular waits, waits that several could end, and which thread of a circle is the victim.

use crate::draw::{Drawing, slice, what};
use pg_event::{Direction, ObjectId, ObjectKind, Relation};
use pg_graph::report::Report;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

const PRIVATE_WAIT: u32 = 128 | 9;

/// A parent waits for its child, which waits for the parent to read: whoever started it is the victim, though
/// nobody named it.
#[test]
fn of_a_circle_the_one_that_started_it_is_the_victim() {
    let mut d = Drawing::new(20.0);
    let shell = d.process("sh", "sh run", None, 0.0);
    let python = d.process("python", "python p.py", Some(shell), 0.1);
    let find = d.process("find", "find /usr", Some(python), 0.3);
    let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
    let child = d.object(ObjectKind::Child, 1002, 0, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.spawn(shell, python, 0.1);
    d.spawn(python, find, 0.3);
    d.wait(shell, 0.2, 20.0, "wait4").on(any).open();
    d.wait(python, 0.4, 20.0, "wait4").on(child).open();
    d.wait(find, 0.5, 20.0, "write").on(pipe).open();
    d.hold(python, shell, any, Relation::ChildOf, 1.3);
    d.hold(find, python, child, Relation::ChildOf, 1.4);
    d.hold(python, find, pipe, Relation::Reads, 1.5);
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(v.thread, python, "{}", v.summary);
    let r = run_with_policy(&g, &c, v, Options::default());
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{}", r.root_causes[0].why);
    assert_eq!(r.circle, [0, 1]);
    assert_eq!((r.slice[0].tid, r.slice[1].tid), (1001, 1002));
}

/// A person names a program whose main thread waits for a child, while another of its threads computes: the
/// hang is the main thread's, the computing one is the cause.
#[test]
fn a_named_program_hangs_where_it_waits() {
    let mut d = Drawing::new(12.0);
    let main = d.process("py", "py g.py", None, 0.0);
    let io = d.thread(main, "io", 0.1);
    let burn = d.thread(main, "burn", 0.1);
    let client = d.process("client", "client", Some(main), 0.2);
    let child = d.object(ObjectKind::Child, 1003, 0, "");
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let gil = d.object(ObjectKind::Futex, 0x10, 1, "");
    let eval = d.stack(&["eval_frame (python3)", "main (python3)"]);
    let take = d.stack(&["pthread_cond_timedwait (libc.so.6)", "take_gil (python3)"]);
    d.spawn(main, client, 0.2);
    d.runs(burn, 1.005, 11.0, eval);
    let mut t = 1.0;
    while t < 11.0 {
        d.message(client, a, Direction::Send, t, 1);
        d.wait(client, t + 0.0001, t + 0.0095, "recvfrom").on(a).by(io, "sendto", b);
        d.wait(io, t + 0.001, t + 0.009, "futex")
            .on(gil)
            .stack(take)
            .op(PRIVATE_WAIT, 0)
            .by(burn, "futex", gil);
        t += 0.01;
    }
    d.exit(client, 11.1);
    d.wait(main, 0.5, 11.11, "wait4").on(child).by(client, "exit_group", ObjectId::NONE);
    d.wait(burn, 11.0, 12.0, "pause").open();
    d.wait(io, 11.0, 12.0, "recvfrom").on(b).open();
    let r = d.diagnose("^py g.py$");
    assert_eq!(r.victim.tid, 1000, "{r:#?}");
    assert_eq!(slice(&r)[0], "client");
    assert_eq!(r.root_causes[0].tid, Some(1002));
    assert_eq!(r.root_causes[0].function.as_deref(), Some("eval_frame"));
}

/// A make waits for a token in a pipe. Its jobs' ends interrupt that again and again, but who has the tokens is
/// somebody else; its own parent has the pipe open too, and only waits for it.
#[test]
fn an_interrupted_wait_is_for_what_it_waits_for() {
    let mut d = Drawing::new(24.0);
    let top = d.process("make", "make -j5", None, 0.0);
    let rogue = d.process("sleep", "sleep 24", Some(top), 0.04);
    let sub = d.process("make", "make -f sub.mk", Some(top), 0.1);
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let token = d.stack(&["pselect (libc.so.6)", "jobserver_acquire (make)", "main (make)"]);
    d.spawn(top, rogue, 0.04);
    d.spawn(top, sub, 0.1);
    let mut t = 0.2;
    for i in 0..4 {
        let job = d.process("sh", &format!("sh -c job {i}"), Some(sub), t - 0.01);
        d.spawn(sub, job, t - 0.01);
        d.wait(job, t, t + 4.99, "clock_nanosleep").times_out();
        d.exit(job, t + 4.995);
        d.wait(sub, t, t + 5.0, "pselect6").on(pipe).stack(token).by(job, "exit_group", ObjectId::NONE);
        for holder in [top, rogue] {
            d.hold(holder, sub, pipe, Relation::Writes, t + 0.7);
        }
        t += 5.02;
    }
    d.exit(sub, t);
    d.hold(sub, top, any, Relation::ChildOf, 1.0);
    d.wait(top, 0.2, t + 0.001, "wait4").on(any).by(sub, "exit_group", ObjectId::NONE);
    d.wait(rogue, 0.05, 23.9, "clock_nanosleep").times_out();
    d.exit(rogue, 23.95);
    d.wait(top, t + 0.01, 24.0, "wait4").on(any).by(rogue, "exit_group", ObjectId::NONE);
    let r = d.diagnose("^make -f sub.mk$");
    assert_eq!(r.root_causes[0].cmdline.as_deref(), Some("sleep 24"), "{r:#?}");
    assert!(r.circle.is_empty());
    assert!(what(&r.root_causes[0]).contains("pipe:[7]"), "{}", what(&r.root_causes[0]));
    let why =
        |tid: u32| r.others.iter().find(|o| o.tid == tid).map(|o| o.why_not.clone()).unwrap_or_default();
    assert!(why(1000).contains("waits for a thread on the way"), "its parent: {:?}", r.others);
    assert!(why(1003).contains("SIGCHLD") && why(1003).contains("sleep:1001 was followed"), "{:?}", r.others);
    assert!(r.questions.len() <= 1);
}

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

/// Two processes that read from each other's FIFO.
#[test]
fn two_fifos() {
    let mut d = Drawing::new(10.0);
    let (a, b) = (d.process("cat", "cat a", None, 0.0), d.process("cat", "cat b", None, 0.0));
    let (fa, fb) = (d.object(ObjectKind::Fifo, 5, 5, "/tmp/a"), d.object(ObjectKind::Fifo, 6, 6, "/tmp/b"));
    for (who, other, fifo) in [(a, b, fa), (b, a, fb)] {
        d.wait(who, 1.0, 10.0, "read").on(fifo).open();
        d.hold(other, who, fifo, Relation::Writes, 2.0);
    }
    let r = d.diagnose("^cat a$");
    let why = &r.root_causes[0].why;
    assert!(why.contains("/tmp/a") && why.contains("/tmp/b"), "{why}");
    assert_eq!(r.root_causes.len(), 2, "both ends: {r:#?}");
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

/// A parent waits for its child to end; the child's main thread waits for a thread of its own, whose pipe is full
/// and which only the parent reads: no thread of that circle idles.
#[test]
fn a_circle_through_a_thread_that_only_one_other_can_wake() {
    let mut d = Drawing::new(9.0);
    let parent = d.process("py", "py q.py", None, 0.0);
    let child = d.process("py", "py worker", Some(parent), 0.1);
    let feeder = d.thread(child, "feeder", 0.1);
    let of = d.object(ObjectKind::Child, 1001, 0, "");
    let (futex, pipe) = (d.object(ObjectKind::Futex, 0x10, 1, ""), d.object(ObjectKind::Pipe, 5, 5, ""));
    let lock = d.stack(&["__new_sem_wait_slow64 (libc.so.6)", "acquire_lock (py)"]);
    d.spawn(parent, child, 0.1);
    d.wait(parent, 0.5, 9.0, "wait4").on(of).open();
    d.wait(child, 0.5, 9.0, "futex").on(futex).op(PRIVATE_WAIT, 0).stack(lock).open();
    d.wait(feeder, 0.5, 9.0, "write").on(pipe).open();
    d.hold(child, parent, of, Relation::ChildOf, 1.5);
    d.hold(parent, feeder, pipe, Relation::Reads, 1.5);
    let r = d.diagnose("^py q.py");
    let c = &r.root_causes[0];
    assert!(c.why.starts_with("circular wait (deadlock)") && c.why.contains("pipe is full"), "{}", c.why);
    assert_eq!(r.circle.len(), 3, "{r:#?}");
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

/// FIFOs opened crosswise: who was to open which is not recorded, so all of them are shown, and it is said to be a
/// guess. Somebody who opens a FIFO elsewhere has nothing to do with it.
#[test]
fn fifos_opened_crosswise() {
    let draw = |near: &str| {
        let mut d = Drawing::new(20.0);
        let left = d.process("left", "left", None, 0.0);
        let right = d.process("right", "right", None, 0.0);
        let daemon = d.process("daemon", "daemon", None, 0.0);
        let kernel = d.stack(&["wait_for_partner ([kernel])", "fifo_open ([kernel])"]);
        let names = ["/tmp/x/ask".to_owned(), format!("{near}/answer"), "/run/d/control".to_owned()];
        for (i, (t, begin)) in [(left, 1.0), (right, 1.5), (daemon, 0.5)].into_iter().enumerate() {
            let file = d.object(ObjectKind::File, 7 + i as u64, 0, &names[i]);
            d.wait(t, begin, 20.0, "openat").on(file).in_kernel(kernel).open();
        }
        d.diagnose("^left")
    };
    let r = draw("/tmp/x");
    assert_eq!(slice(&r), ["right"]);
    assert_eq!(r.circle, [0, 1]);
    let first = &r.root_causes[0];
    assert!(first.why.starts_with("circular wait (deadlock), as it seems: right"), "{}", first.why);
    assert!(first.why.contains("and so does left") && first.why.contains("/tmp/x/ask"), "{}", first.why);
    let r = draw("/srv");
    assert_eq!(slice(&r), Vec::<String>::new());
    assert!(r.root_causes[0].why.contains("nobody has opened the other end of this FIFO"));
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

/// A server with one process asks itself over a connection that it would have to accept: it waits for itself, and not
/// for somebody who was not found. With another process or thread that could accept it is not said.
#[test]
fn a_server_that_asks_itself_waits_for_itself() {
    for (others, over) in
        [("", true), ("", false), ("process", true), ("thread", true), ("came and went", true)]
    {
        let mut d = Drawing::new(20.0);
        let php = d.process("php", "php -S 127.0.0.7:80", None, 0.0);
        let curl = d.process("curl", "curl page", None, 0.9);
        let (a, b) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
        let part = d.object(ObjectKind::Tcp, 3, 4, "127.0.0.1:5->127.0.0.7:80");
        d.message(curl, a, Direction::Send, 1.0, 80);
        d.message(php, b, Direction::Receive, 1.01, 80);
        d.message(php, part, Direction::Send, 1.05, 60);
        d.hold(php, php, part, Relation::Listens, 2.0);
        match others {
            "process" => {
                let worker = d.process("php", "php -S 127.0.0.7:80 worker", Some(php), 0.1);
                d.hold(worker, php, part, Relation::Listens, 2.0);
                d.wait(worker, 0.2, 20.0, "clock_nanosleep").times_out();
            }
            "thread" => {
                let worker = d.thread(php, "worker", 0.1);
                d.wait(worker, 0.2, 20.0, "clock_nanosleep").times_out();
            }
            "came and went" => {
                let early = d.thread(php, "early", 0.1);
                d.catalog.threads[early.index()].end = Some(crate::draw::ns(0.5));
            }
            _ => {}
        }
        if over {
            d.wait(php, 1.1, 14.1, "poll").on(part).times_out();
            d.message(php, b, Direction::Send, 14.2, 9);
            d.wait(curl, 1.05, 14.2, "poll").on(a).by(php, "sendto", b);
        } else {
            d.wait(php, 1.1, 20.0, "poll").on(part).open();
            d.hold(php, curl, a, Relation::Peer, 2.0);
            d.wait(curl, 1.05, 20.0, "poll").on(a).open();
        }
        let r = d.diagnose("^curl page$");
        let first = &r.root_causes[0];
        let itself = first.why.contains("waited for itself (");
        assert_eq!(itself, others.is_empty() || others == "came and went", "{others}: {}", first.why);
        if itself {
            assert_eq!(first.cmdline.as_deref(), Some("php -S 127.0.0.7:80"));
            assert!(first.why.contains("listens there") && first.why.contains("curl"), "{}", first.why);
            assert_eq!(first.why.contains("time-out"), over, "{}", first.why);
            let way: Vec<_> = r.slice.iter().map(|n| n.process.as_str()).collect();
            assert_eq!((way, r.circle), (vec!["curl", "php", "php"], vec![1]));
        }
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

/// Who waits for a part of a file has another part of it; who has the wanted one was not found.
#[test]
fn a_lock_of_another_part_of_the_file_is_not_the_one_it_waits_for() {
    let mut d = Drawing::new(20.0);
    let app = d.process("app", "app", None, 0.0);
    let file = d.object(ObjectKind::FileLock, 7, 1, "/data/file");
    d.wait(app, 1.0, 20.0, "fcntl").on(file).op(7, 0).open();
    d.hold(app, app, file, Relation::Owns, 2.0);
    let r = d.diagnose("^app$");
    assert!(!r.root_causes[0].why.contains("itself"), "{}", r.root_causes[0].why);
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

/// A parent polls for room to write to its filter, and takes nothing of what that writes meanwhile.
#[test]
fn who_polls_for_room_in_a_pipe_waits_for_who_is_to_read_it() {
    let mut d = Drawing::new(20.0);
    let feed = d.process("ruby", "ruby p.rb", None, 0.1);
    let filter = d.process("tr", "tr a-z A-Z", Some(feed), 0.3);
    let (to, from) = (d.object(ObjectKind::Pipe, 55, 55, ""), d.object(ObjectKind::Pipe, 56, 56, ""));
    let stop = d.object(ObjectKind::EventFd, 5, 0, "");
    let set = d.set(&[to, stop]);
    d.spawn(feed, filter, 0.3);
    d.wait(feed, 0.5, 20.0, "ppoll").on(set).open();
    d.wait(filter, 0.6, 20.0, "write").on(from).open();
    d.hold(filter, feed, to, Relation::Reads, 1.5);
    d.hold(feed, filter, from, Relation::Reads, 1.6);
    let r = d.diagnose("^ruby p.rb$");
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{}", r.root_causes[0].why);
    assert_eq!(r.circle, [0, 1]);
}
