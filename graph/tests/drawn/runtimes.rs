//! Threads that a runtime keeps for itself are no part of a deadlock of its program.

use crate::draw::middle::{epoll, tcp};
use crate::draw::{Drawing, PRIVATE_WAIT, slice};
use pg_event::{Direction, ModuleKind, ObjectKind, Relation, ThreadId};
use pg_graph::report::Report;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

/// A launcher waits for the end of its first thread, which waits for a latch. `jit`: the program was compiled while it ran.
/// Beside it a thread of the library waits that began later, and one that wakes by itself every now and then.
fn latch(jit: bool, before: bool) -> Report {
    let mut d = Drawing::new(9.0);
    let java = d.process("java", "java App", None, 0.0);
    let first = d.thread(java, "java", 0.1);
    let program =
        d.stack(&["pthread_cond_wait (libc.so.6)", "park (libjvm.so)", "await (jit)", "run (libjvm.so)"]);
    let clean =
        d.stack(&["pthread_cond_wait (libc.so.6)", "park (libjvm.so)", "reap (jit)", "run (libjvm.so)"]);
    let house = d.stack(&["pthread_cond_wait (libc.so.6)", "sweep (libjvm.so)", "run (libjvm.so)"]);
    if jit {
        let m = d.catalog.modules.iter_mut().find(|m| m.path.ends_with("jit")).unwrap();
        m.kind = ModuleKind::Anonymous;
    }
    let mut word = 0x10;
    let mut waits = |d: &mut Drawing, t: ThreadId, stack, from: f64| {
        word += 0x40;
        let o = d.object(ObjectKind::Futex, word, 1000, "");
        let w =
            d.wait(t, if before { 0.0 } else { from }, 9.0, "futex").on(o).op(PRIVATE_WAIT, 0).stack(stack);
        if before { w.before().open() } else { w.open() }
    };
    let end = d.object(ObjectKind::Futex, 0x90_0000, 1000, "");
    let joins = d.wait(java, if before { 0.0 } else { 0.2 }, 9.0, "futex").on(end).op(9, 1001);
    if before {
        joins.before().open();
    } else {
        joins.open();
    }
    d.hold(first, java, end, Relation::Owns, 1.5);
    waits(&mut d, first, program, 1.0);
    let cleaner = d.thread(java, "cleaner", 0.3);
    waits(&mut d, cleaner, clean, 0.4);
    let sweeper = d.thread(java, "sweeper", 0.5);
    waits(&mut d, sweeper, house, 2.0);
    let ticker = d.thread(java, "ticker", 0.6);
    let tick = d.object(ObjectKind::Futex, 0x80_0000, 1000, "");
    let mut at = 0.7;
    while at + 0.3 < 9.0 {
        d.wait(ticker, at, at + 0.3, "futex").on(tick).op(PRIVATE_WAIT, 0).stack(house).times_out();
        at += 0.3002;
    }
    d.diagnose("^java")
}

#[test]
fn a_runtimes_own_threads_are_not_blamed() {
    for before in [true, false] {
        let r = latch(true, before);
        let first = &r.root_causes[0];
        assert_eq!(first.tid, Some(1001), "{before} {r:#?}");
        assert!(first.why.contains("all threads of the process wait"), "{}", first.why);
        let named = |name: &str| r.root_causes.iter().any(|c| c.thread.as_deref() == Some(name));
        assert!(!named("sweeper") && !named("ticker"), "{r:#?}");
        assert!(r.slice.iter().all(|n| n.thread != "sweeper" && n.thread != "ticker"), "{r:#?}");
    }
    // Nothing tells a program's own thread from a library's where all of it was compiled before.
    let r = latch(false, false);
    assert!(r.slice.iter().any(|n| n.thread == "sweeper" || n.thread == "ticker"), "{r:#?}");
}

/// A thread without work waits for a condition, and so does another one; the event loop of the process waits for `whom`: a
/// program that the process runs, or a server that another thread asked something.
fn looks(whom: &str) -> Report {
    let mut d = Drawing::new(9.0);
    let app = d.process("app", "app", None, 0.0);
    let (idle, turns) = (d.thread(app, "idle", 0.0), d.thread(app, "loop", 0.0));
    let parked = d.stack(&["pthread_cond_wait (libc.so.6)", "park (app)"]);
    for (t, word) in [(app, 0x10), (idle, 0x90)] {
        let o = d.object(ObjectKind::Futex, word, 1000, "");
        d.wait(t, 0.8, 9.0, "futex").on(o).op(PRIVATE_WAIT, 0).stack(parked).open();
    }
    let other = d.process("job", "job", if whom == "child" { Some(app) } else { None }, 0.0);
    let (own, theirs) = if whom == "child" {
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""))
    } else {
        tcp(&mut d, 40_000, 80)
    };
    let epoll = epoll(&mut d, &[own]);
    d.wait(turns, 0.8, 9.0, "epoll_wait").on(epoll).open();
    if whom != "nobody" {
        d.hold(other, turns, own, Relation::Peer, 2.0);
    }
    if whom == "server" {
        d.message(app, own, Direction::Send, 0.5, 10);
        d.message(other, theirs, Direction::Receive, 0.5, 10);
    }
    d.wait(other, 0.6, 9.0, "clock_nanosleep").open();
    let (g, c) = d.build();
    let main = Selection { tid: Some(1000), ..Selection::default() };
    let v = select(&g, &c, &main, &VictimOptions::default()).unwrap();
    run_with_policy(&g, &c, v, Options::default())
}

#[test]
fn who_has_no_work_waits_for_whom_the_event_loop_waits_for() {
    for (whom, found) in [("child", true), ("server", true), ("nobody", false)] {
        let r = looks(whom);
        let first = r.root_causes[0].process.as_deref();
        assert_eq!(first == Some("job"), found, "{whom} {r:#?}");
        assert_eq!(r.slice.iter().any(|n| n.thread == "loop"), found, "{whom} {r:#?}");
    }
}

/// What a thread of Go does that has no goroutine to execute: it asks for descriptors, or sleeps until one is ready.
const NET: [&str; 4] = [
    "runtime.epollwait (srv)",
    "runtime.netpoll (srv)",
    "runtime.findRunnable (srv)",
    "runtime.schedule (srv)",
];
const PARKED: [&str; 4] =
    ["runtime.futex (srv)", "runtime.stopm (srv)", "runtime.findRunnable (srv)", "runtime.schedule (srv)"];

/// A client asks a server twice. The first request is read by one thread of the server, which wakes another one to answer;
/// the second is never answered. `go`: both threads were in the scheduler of Go.
fn two_requests(go: bool) -> Report {
    let mut d = Drawing::new(10.0);
    let server = d.process("srv", "./srv 80", None, 0.0);
    let client = d.process("curl", "curl srv", None, 0.5);
    let net = d.thread(server, "net", 0.0);
    let (asks, serves) = tcp(&mut d, 4000, 80);
    let polls = epoll(&mut d, &[serves]);
    let word = d.object(ObjectKind::Futex, 0x5000, 1000, "");
    let (in_net, parked) = if go {
        (d.stack(&NET), d.stack(&PARKED))
    } else {
        (d.stack(&["loop (srv)"]), d.stack(&["work (srv)"]))
    };
    d.wait(net, 0.1, 1.0, "epoll_pwait").on(polls).stack(in_net).by(client, "sendto", asks);
    d.message(client, asks, Direction::Send, 0.99, 9);
    d.message(net, serves, Direction::Receive, 1.01, 9);
    d.wait(server, 0.1, 1.02, "futex").on(word).op(PRIVATE_WAIT, 0).stack(parked).by(net, "futex", word);
    d.message(server, serves, Direction::Send, 1.04, 9);
    d.wait(client, 1.001, 1.05, "recvfrom").on(asks).by(server, "sendto", serves);
    d.wait(net, 1.03, 2.0, "epoll_pwait").on(polls).stack(in_net).by(client, "sendto", asks);
    d.message(client, asks, Direction::Send, 1.99, 9);
    d.message(net, serves, Direction::Receive, 2.01, 9);
    d.wait(server, 1.06, 10.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(parked).open();
    d.wait(net, 2.02, 10.0, "epoll_pwait").on(polls).stack(in_net).open();
    d.wait(client, 2.03, 10.0, "recvfrom").on(asks).open();
    d.hold(net, client, asks, Relation::Peer, 3.0);
    d.diagnose("curl")
}

#[test]
fn threads_without_a_goroutine_wait_for_none_of_each_other() {
    let r = two_requests(true);
    let first = &r.root_causes[0];
    assert_eq!((first.process.as_deref(), first.thread.as_deref()), (Some("srv"), Some("net")), "{r:#?}");
    assert!(first.why.contains("never answered over tcp"), "{}", first.why);
    assert_eq!(r.slice.len(), 2, "{r:#?}");
    let asks = r.coverage.notes.iter().find(|n| n.contains("goroutine"));
    assert!(asks.is_some_and(|n| n.contains("kill -QUIT 1000`")), "{:?}", r.coverage.notes);
    // Threads with work of their own may wait for each other.
    let r = two_requests(false);
    assert_eq!(r.slice.len(), 3, "{r:#?}");
    assert!(r.coverage.notes.iter().all(|n| !n.contains("goroutine")), "{:?}", r.coverage.notes);
}

/// The last of them that looks for something to execute wakes another one when the program is told to end: they had not waited
/// for that one.
#[test]
fn whom_the_scheduler_wakes_in_the_end_did_not_wait_for_who_did_so() {
    let mut d = Drawing::new(10.0);
    let main = d.process("srv", "./srv 80", None, 0.0);
    let net = d.thread(main, "net", 0.0);
    let word = d.object(ObjectKind::Futex, 0x5000, 1000, "");
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    let polls = epoll(&mut d, &[pipe]);
    let (in_net, parked) = (d.stack(&NET), d.stack(&PARKED));
    d.wait(net, 0.1, 9.88, "epoll_pwait").on(polls).stack(in_net).interrupted();
    d.wait(main, 0.1, 9.9, "futex").on(word).op(PRIVATE_WAIT, 0).stack(parked).by(net, "futex", word);
    for t in [net, main] {
        d.exit(t, 9.95);
    }
    let r = d.diagnose("srv");
    assert_eq!(slice(&r), Vec::<String>::new(), "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(why.contains("no goroutine was ready for this thread"), "{why}");
}

/// A Go program of which all goroutines wait: its main thread looks for one that is ready, the monitor sleeps. Beside them one of
/// its threads waits in C for a lock.
#[test]
fn threads_of_gos_scheduler_come_behind_those_that_do_something() {
    let mut d = Drawing::new(10.0);
    let main = d.process("srv", "./srv 80", None, 0.0);
    let monitor = d.thread(main, "monitor", 0.0);
    let parked = d.stack(&PARKED);
    let sysmon = d.stack(&["runtime.usleep (srv)", "runtime.sysmon (srv)", "runtime.mstart1 (srv)"]);
    let word = d.object(ObjectKind::Futex, 0x5000, 1000, "");
    d.wait(main, 0.5, 10.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(parked).open();
    d.naps(monitor, 0.5, 10.0, 0.01, sysmon);
    let (g, c) = d.build();
    let all = pg_graph::victims(&g, &c, &VictimOptions::default());
    assert_eq!(all[0].thread, main, "{all:#?}");
    assert!(all.iter().all(|v| v.thread != monitor || v.score < all[0].score), "{all:#?}");
    assert!(all[0].score < 2.0, "one that hangs for itself has more: {all:#?}");
    let r = run_with_policy(&g, &c, all[0].clone(), Options::default());
    let why = &r.root_causes[0].why;
    assert!(why.contains("no goroutine was ready for this thread of Go's scheduler"), "{why}");
}

/// A thread of a pool took a request, which was not recorded: only that the client woke it when it waited for it, or, `before`
/// the recording, nothing. It waits for a monitor since; the thread that is said to have the connection, as all of the process
/// have it, waits for the one that accepts to end.
fn behind_a_pool(before: bool) -> Report {
    let mut d = Drawing::new(10.0);
    let server = d.process("java", "java App", None, 0.0);
    let client = d.process("curl", "curl app", None, if before { 0.0 } else { 0.5 });
    let (first, pool) = (d.thread(server, "java", 0.0), d.thread(server, "pool-1", 0.0));
    let owner = d.thread(server, "owner", 0.0);
    let (asks, serves) = tcp(&mut d, 4000, 80);
    let listener = d.object(ObjectKind::Tcp, 80, 0, "127.0.0.1:80");
    let (set, word) = (d.set(&[serves]), d.object(ObjectKind::Futex, 0x5000, 1000, ""));
    let end = d.object(ObjectKind::Futex, 0x90_0000, 1000, "");
    let enter = d.stack(&["futex_wait (libc.so.6)", "ObjectMonitor::enter (libjvm.so)"]);
    let from = |start| if before { 0.0 } else { start };
    d.wait(first, 0.0, 10.0, "accept").on(listener).before().open();
    d.wait(server, 0.0, 10.0, "futex").on(end).op(9, 1002).before().open();
    d.wait(owner, 0.0, 10.0, "nanosleep").before().open();
    if !before {
        d.wait(pool, 0.6, 1.0, "poll").on(set).by(client, "sendto", asks);
    }
    let waits = d.wait(pool, from(1.1), 10.0, "futex").on(word).op(PRIVATE_WAIT, 2).stack(enter);
    if before {
        waits.before().open();
    } else {
        waits.open();
    }
    let asked = d.wait(client, from(1.01), 10.0, "recvfrom").on(asks);
    if before {
        asked.before().open();
    } else {
        asked.open();
    }
    d.hold(server, client, asks, Relation::Peer, 2.0);
    d.diagnose("curl")
}

#[test]
fn who_waited_for_the_request_or_waits_for_a_lock_took_it() {
    for before in [false, true] {
        let r = behind_a_pool(before);
        assert_eq!(r.slice[1].thread, "pool-1", "{before} {r:#?}");
    }
}

/// Java sleeps by a condition with a time-out: who sleeps with a monitor waits for nobody.
#[test]
fn a_thread_of_java_that_sleeps_is_no_part_of_a_circle() {
    let mut d = Drawing::new(4.0);
    let java = d.process("java", "java App", None, 0.0);
    let [flusher, handler] = ["flusher", "handler"].map(|n| d.thread(java, n, 0.1));
    let park = ["pthread_cond_timedwait (libc.so.6)", "os::PlatformEvent::park(long) (libjvm.so)"];
    let sleep =
        d.stack(&[&park[..], &["JavaThread::sleep(long) (libjvm.so)", "JVM_Sleep (libjvm.so)"]].concat());
    let enter = d.stack(&[&park[..], &["ObjectMonitor::enter(JavaThread*) (libjvm.so)"]].concat());
    let join = d.stack(&["pthread_clockjoin_ex (libc.so.6)", "ContinueInNewThread (libjli.so)"]);
    let [a, b, c] = [0x10, 0x50, 0x90].map(|w| d.object(ObjectKind::Futex, w, 1000, ""));
    d.wait(java, 0.2, 3.9, "futex").on(c).op(0, 1001).stack(join).open();
    d.wait(flusher, 0.3, 2.8, "futex").on(a).op(PRIVATE_WAIT, 0).stack(sleep).times_out();
    d.wait(handler, 0.6, 2.81, "futex").on(b).op(PRIVATE_WAIT, 0).stack(enter).by(flusher, "futex", b);
    let r = d.diagnose("java");
    let cause = &r.root_causes[0];
    assert_eq!(cause.thread.as_deref(), Some("flusher"), "{r:#?}");
    assert!(cause.why.contains("slept") && r.circle.is_empty(), "{}", cause.why);
}

/// Of a program in Ruby one thread has a lock and waits for a command in a condition variable, another one wants the lock, and the
/// first one accepts, beside a counter of the runtime. The command waits for a lock of somebody else.
#[test]
fn who_accepts_beside_a_counter_has_no_lock_and_a_command_is_waited_for() {
    let mut d = Drawing::new(9.0);
    let client = d.process("ask", "ask", None, 0.9);
    let main = d.process("ruby", "ruby ldap.rb", None, 0.0);
    let (indexer, worker) = (d.thread(main, "indexer", 0.1), d.thread(main, "worker", 0.1));
    let command = d.process("flock", "flock db.lock true", Some(main), 0.98);
    let dump = d.process("dump", "dump", None, 0.0);
    let (near, far) = tcp(&mut d, 40_000, 80);
    let listening = d.object(ObjectKind::Tcp, pg_event::endpoint_v4(0x7f00_0007, 80), 0, "");
    let counter = d.object(ObjectKind::EventFd, 3, 0, "");
    let all = d.object(ObjectKind::Set, 4, 0, "");
    d.catalog.objects[all.index()].members = vec![listening, counter];
    let (lock, done) =
        (d.object(ObjectKind::Futex, 0x10, 1001, ""), d.object(ObjectKind::Futex, 0x20, 1001, ""));
    let file = d.object(ObjectKind::FileLock, 7, 8, "/srv/db.lock");
    let within = |d: &mut Drawing, what: &str| {
        d.stack(&["pthread_cond_wait (libc.so.6)", "rb_native_cond_wait (libruby-3.1.so)", what])
    };
    let wants = within(&mut d, "rb_mutex_synchronize (libruby-3.1.so)");
    let waits = within(&mut d, "rb_ensure (libruby-3.1.so)");
    d.spawn(indexer, command, 0.98);
    d.wait(indexer, 1.0, 9.0, "futex").on(done).op(137, 0).stack(waits).open();
    d.wait(worker, 1.2, 9.0, "futex").on(lock).op(137, 0).stack(wants).open();
    d.wait(main, 1.1, 9.0, "ppoll").on(all).open();
    d.wait(command, 1.0, 9.0, "flock").on(file).open();
    d.hold(dump, command, file, Relation::Owns, 2.0);
    d.wait(dump, 0.5, 9.0, "clock_nanosleep").open();
    d.message(client, near, Direction::Send, 1.14, 9);
    d.message(worker, far, Direction::Receive, 1.145, 9);
    d.wait(client, 1.15, 9.0, "recvfrom").on(near).open();
    d.hold(main, client, near, Relation::Peer, 2.2);
    let r = d.diagnose("^ask$");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("dump"), "{r:#?}");
    let way: Vec<_> = r.slice.iter().map(|n| n.thread.as_str()).collect();
    assert!(way.ends_with(&["indexer", "flock", "dump"]), "{way:?}");
}

/// A server in Go was asked, and asked on by way of another thread; those that it has idle since. Of two that it asked in that turn
/// none is known to be the one.
#[test]
fn whom_tasks_asked_that_any_thread_executes_is_told_by_the_process() {
    for asked in [1, 2] {
        let mut d = Drawing::new(9.0);
        let client = d.process("ask", "ask", None, 0.0);
        let gateway = d.process("gateway", "gateway", None, 0.0);
        let (took, sent) = (d.thread(gateway, "m1", 0.1), d.thread(gateway, "m2", 0.1));
        let (near, far) = tcp(&mut d, 40_000, 80);
        let parks = d.stack(&[
            "runtime.futex (gateway)",
            "runtime.stopm (gateway)",
            "runtime.findRunnable (gateway)",
        ]);
        let polls = d.stack(&["runtime.epollwait (gateway)", "runtime.findRunnable (gateway)"]);
        let word = d.object(ObjectKind::Futex, 0x10, 1001, "");
        let set = epoll(&mut d, &[far]);
        d.message(client, near, Direction::Send, 1.0, 84);
        d.message(took, far, Direction::Receive, 1.001, 84);
        for n in 0..asked {
            let backend = d.process("billing", "billing", None, 0.0);
            let (own, theirs) = tcp(&mut d, 40_001 + n, 8080);
            d.message(sent, own, Direction::Send, 1.01, 60);
            d.message(backend, theirs, Direction::Receive, 1.011, 60);
            let sums = d.stack(&["sum (billing)", "main (billing)"]);
            d.runs(backend, 1.012, 8.9, sums);
        }
        for t in [took, sent] {
            d.wait(t, 1.02, 9.0, "futex").on(word).op(128, 0).stack(parks).open();
        }
        d.wait(gateway, 0.1, 9.0, "epoll_pwait").on(set).stack(polls).open();
        d.wait(client, 1.002, 9.0, "recvfrom").on(near).open();
        d.hold(gateway, client, near, Relation::Peer, 2.0);
        let r = d.diagnose("^ask$");
        assert_eq!(r.root_causes[0].function.as_deref() == Some("sum"), asked == 1, "{r:#?}");
    }
}
