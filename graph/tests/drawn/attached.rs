//! Recordings that begin in the middle of the hang and end before it does: whoever waits had begun before, and goes on.

use crate::draw::Drawing;
use crate::draw::middle::{client_and_server, epoll, tcp, unix, unix_at, waits, way};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, SHARED_FUTEX, ThreadId, endpoint_v4};
use pg_graph::report::Report;
use pg_graph::{Selection, VictimOptions, select, victims};

/// A program waits for its child, which writes into a full pipe that the program has the other end of.
fn full_pipe() -> (Drawing, ThreadId, ThreadId) {
    let mut d = Drawing::new(5.0);
    let program = d.process("program", "program", None, 0.0);
    let child = d.process("lister", "lister", Some(program), 0.0);
    let (ended, pipe) = (d.object(ObjectKind::Child, 1001, 0, ""), d.object(ObjectKind::Pipe, 7, 0, ""));
    d.wait(program, 0.0, 5.0, "wait4").on(ended).before().open();
    d.wait(child, 0.0, 5.0, "write").on(pipe).before().open();
    d.hold(child, program, ended, Relation::ChildOf, 0.7);
    d.hold(program, child, pipe, Relation::Reads, 0.7);
    (d, program, child)
}

#[test]
fn who_waits_for_a_child_all_the_time_hangs_when_it_is_meant() {
    let (d, program, child) = full_pipe();
    let (g, c) = d.build();
    let listed = |everyone| {
        let options = VictimOptions { everyone, ..VictimOptions::default() };
        victims(&g, &c, &options).into_iter().map(|v| v.thread).collect::<Vec<_>>()
    };
    assert_eq!(listed(false), [program, child], "of the focus");
    assert_eq!(listed(true), [child], "of everybody: a shell with its command is like that, too");
    let r = full_pipe().0.diagnose("^program$");
    assert_eq!((r.victim.tid, r.circle.len()), (1000, 2), "{r:#?}");
    assert_eq!(r.victim.cut(), ", begun before the recording and not over at its end");
}

/// A main thread that waits, by time-outs of its own, on a pair of sockets of its own process; `others`: what else runs
/// there, besides idle workers. What it is to be told was asked before the recording.
fn own_pair(lookups: usize, idle: usize) -> (Drawing, Vec<ThreadId>, ThreadId) {
    let mut d = Drawing::new(5.0);
    let main = d.process("fetch", "fetch", None, 0.0);
    let names = d.process("names", "names", None, 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let pair = d.set(&[a, b]);
    let mut looking = Vec::new();
    for i in 0..lookups {
        let t = d.thread(main, "fetch", 0.0);
        let udp = d.object(ObjectKind::Udp, 100 + i as u64, 53, "");
        d.wait(t, 0.0, 1.4, "poll").on(udp).before().times_out();
        d.message(t, udp, Direction::Send, 1.401, 30);
        d.wait(t, 1.402, 5.0, "poll").on(udp).open();
        d.hold(names, t, udp, Relation::Peer, 2.0);
        looking.push(t);
    }
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let work = d.stack(&["pthread_cond_wait (libc.so.6)", "next_job (fetch)"]);
    for _ in 0..idle {
        let t = d.thread(main, "pool", 0.0);
        d.wait(t, 0.0, 5.0, "futex").on(word).stack(work).op(128 | 9, 0).before().open();
    }
    let mut t = 0.0;
    while t + 0.25 < 5.0 {
        d.wait(main, t, t + 0.25, "poll").on(pair).times_out();
        t += 0.2502;
    }
    d.wait(main, t, 5.0, "poll").on(pair).open();
    d.hold(main, main, a, Relation::Peer, 1.0);
    d.hold(main, main, b, Relation::Peer, 1.0);
    let any = d.set(&[]);
    d.wait(names, 0.0, 5.0, "pselect6").on(any).before().open();
    (d, looking, names)
}

#[test]
fn who_waits_for_its_own_process_waits_for_the_other_thread_of_that() {
    for idle in [0, 3] {
        let (d, looking, _) = own_pair(1, idle);
        let r = d.diagnose("^fetch$");
        let tids: Vec<_> = r.slice.iter().map(|n| (n.process.as_str(), n.tid)).collect();
        assert_eq!(looking.len(), 1);
        assert_eq!(tids.get(1).map(|t| t.0), Some("fetch"), "{idle} {r:#?}");
        assert_eq!(tids.get(2).map(|t| t.0), Some("names"), "{idle} idle: {tids:?}");
        assert!(r.questions.is_empty(), "{r:#?}");
    }
}

#[test]
fn of_several_threads_at_work_none_is_picked() {
    let (d, ..) = own_pair(2, 0);
    let r = d.diagnose("^fetch$");
    assert!(r.slice.iter().all(|n| n.process == "fetch"), "{r:#?}");
    let (d, ..) = own_pair(0, 2);
    let r = d.diagnose("^fetch$");
    assert_eq!(r.slice.len(), 1, "idle workers are no cause: {r:#?}");
}

#[test]
fn an_event_loop_without_work_has_handed_it_on() {
    let (mut d, _, server) = client_and_server("epoll_wait", |d, _| epoll(d, &[]));
    let worker = d.thread(server, "worker", 0.0);
    let idle = d.thread(server, "worker", 0.0);
    let job = d.process("log", "log", None, 0.0);
    let (pipe, word) = (d.object(ObjectKind::Pipe, 9, 9, ""), d.object(ObjectKind::Futex, 0x10, 1, ""));
    waits(&mut d, worker, "write", pipe);
    d.hold(job, worker, pipe, Relation::Reads, 0.7);
    let parked = d.stack(&["sem_wait (libc.so.6)", "next_job (server)"]);
    d.wait(idle, 0.0, 5.0, "futex").on(word).stack(parked).op(128 | 9, 0).before().open();
    d.wait(job, 0.0, 5.0, "clock_nanosleep").before().open();
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1001, 1002, 1004], "{r:#?}");
    assert_eq!(r.root_causes[0].pid, Some(1004));
}

/// What a thread that waits for its start is parked by is no lock.
#[test]
fn a_parked_thread_is_not_kept_from_its_work() {
    let (mut d, _, server) = client_and_server("epoll_wait", |d, _| epoll(d, &[]));
    let helper = d.thread(server, "helper", 0.0);
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let parked =
        d.stack(&["__new_sem_wait_slow64 (libc.so.6)", "uv_sem_wait (server)", "helper_main (server)"]);
    d.wait(helper, 0.0, 5.0, "futex").on(word).stack(parked).op(128 | 9, 0).before().open();
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1001], "{r:#?}");
}

/// Threads that wait for locks of Python's: for those of the program, or in its library for work.
fn locks(at: [&str; 2]) -> Report {
    let (mut d, _, server) =
        client_and_server("poll", |d, _| d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, ""));
    for (i, at) in at.into_iter().enumerate() {
        let t = d.thread(server, "python3", 0.0);
        let word = d.object(ObjectKind::Futex, 0x10 + i as u64 * 64, 1001, "");
        let stack = d.stack(&["sem_wait (libc.so.6)", "pythread_acquire_lock (python3.11)", at]);
        d.wait(t, 0.0, 5.0, "futex").on(word).stack(stack).op(128 | 9, 0).before().open();
    }
    d.diagnose("^client$")
}

#[test]
fn threads_that_lock_each_other_out_are_found_behind_a_loop_that_accepts() {
    let r = locks(["book (app.py:7)", "count (app.py:12)"]);
    assert_eq!((way(&r)[..3].to_vec(), r.circle.len()), (vec![1000, 1001, 1002], 2), "{r:#?}");
    let r = locks(["get (python3.11/queue.py:171)", "_worker (python3.11/concurrent/futures/thread.py:81)"]);
    assert_eq!(way(&r), [1000, 1001], "workers without work: {r:#?}");
}

#[test]
fn a_thread_that_reads_from_its_child_is_at_work() {
    let (mut d, _, server) = client_and_server("ppoll", |d, _| {
        let listens = d.object(ObjectKind::UnixStream, 77, 0, "/run/s");
        let told = d.object(ObjectKind::EventFd, 1, 0, "");
        d.set(&[listens, told])
    });
    let reader = d.thread(server, "app.rb:3", 0.0);
    let child = d.process("xz", "xz", Some(server), 0.0);
    let pipe = d.object(ObjectKind::Pipe, 9, 9, "");
    waits(&mut d, reader, "poll", pipe);
    d.hold(child, reader, pipe, Relation::Writes, 0.7);
    let stack = d.stack(&["lzma_code (xz)"]);
    d.runs(child, 0.0, 5.0, stack);
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1001, 1002, 1003], "{r:#?}");
}

#[test]
fn who_watches_the_connection_serves_it_and_not_who_joins_that() {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let listener = d.thread(server, "listener", 0.0);
    let (own, other) = tcp(&mut d, 40_000, 389);
    waits(&mut d, client, "poll", own);
    d.hold(server, client, own, Relation::Peer, 0.7);
    let (set, word) = (epoll(&mut d, &[other]), d.object(ObjectKind::Futex, 0x99, 1001, ""));
    waits(&mut d, listener, "epoll_wait", set);
    d.wait(server, 0.0, 5.0, "futex").on(word).op(265, 1002).before().open();
    d.hold(listener, server, word, Relation::Owns, 0.7);
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1002], "{r:#?}");
}

#[test]
fn another_client_brings_a_server_nothing() {
    let (mut d, _, server) = client_and_server("epoll_wait", |d, _| epoll(d, &[]));
    let another = d.process("another", "another", None, 0.0);
    let reader = d.thread(server, "reader", 0.0);
    let (own, other) = tcp(&mut d, 40_002, 80);
    waits(&mut d, another, "poll", own);
    d.hold(another, server, other, Relation::Peer, 0.7);
    let file = d.object(ObjectKind::File, 3, 0, "/srv/big");
    d.wait(reader, 0.0, 5.0, "pread64").on(file).state(OffState::Uninterruptible).before().open();
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1001, 1003], "{r:#?}");
}

#[test]
fn who_connected_to_a_bus_may_have_been_asked_over_it() {
    for (told, asked) in [(false, false), (true, true)] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let bus = d.process("bus", "bus", None, 0.0);
        let agent = d.process("agent", "agent", None, 0.0);
        let ((own, other), (asks, serves)) = (unix(&mut d, 4711), unix(&mut d, 4801));
        waits(&mut d, client, "recvmsg", own);
        d.hold(bus, client, own, Relation::Peer, 0.7);
        let both = epoll(&mut d, &[other, serves]);
        waits(&mut d, bus, "epoll_wait", both);
        let on = if told {
            let counter = d.object(ObjectKind::EventFd, 1, 0, "");
            d.set(&[counter, asks])
        } else {
            asks
        };
        waits(&mut d, agent, "poll", on);
        d.hold(agent, bus, serves, Relation::Peer, 0.7);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1002), asked, "{r:#?}");
    }
}

/// A session has a lock and waits for its client. It would see by a pipe that its parent ended, as the other session does.
#[test]
fn a_pipe_that_several_watch_beside_tells_only_that_who_writes_lives() {
    let mut d = Drawing::new(5.0);
    let waiter = d.process("waiter", "waiter", None, 0.0);
    let parent = d.process("server", "server", None, 0.0);
    let session = d.process("server", "server: session", Some(parent), 0.0);
    let other = d.process("server", "server: writer", Some(parent), 0.0);
    let client = d.process("client", "client", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 5, 1, "/srv/lock");
    waits(&mut d, waiter, "flock", lock);
    d.hold(session, waiter, lock, Relation::Owns, 0.7);
    let (alive, listens) =
        (d.object(ObjectKind::Pipe, 9, 9, ""), d.object(ObjectKind::UnixStream, 3, 0, "/run/db.sock"));
    waits(&mut d, parent, "pselect6", listens);
    let (asks, serves) = unix(&mut d, 4711);
    let sets = [d.set(&[alive, serves]), d.set(&[alive])];
    for (t, set) in [session, other].into_iter().zip(sets) {
        waits(&mut d, t, "epoll_wait", set);
        d.hold(parent, t, alive, Relation::Writes, 0.7);
    }
    d.hold(client, session, serves, Relation::Peer, 0.7);
    waits(&mut d, client, "clock_nanosleep", ObjectId::NONE);
    let _ = asks;
    let r = d.diagnose("^waiter$");
    assert_eq!(way(&r), [1000, 1002, 1004], "{r:#?}");
    assert!(r.questions.is_empty(), "{r:#?}");
}

/// Sessions of a server have a lock in memory that they share; another one writes to a slow disk.
#[test]
fn who_does_something_of_those_that_share_the_memory_has_the_lock() {
    for stranger in [false, true] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let parent = d.process("server", "server", None, 0.0);
        let session = d.process("server", "server: session", Some(parent), 0.0);
        let writer = d.process("server", "server: writer", if stranger { None } else { Some(parent) }, 0.0);
        let idle = d.process("server", "server: idle", Some(parent), 0.0);
        let (own, _) = unix(&mut d, 4711);
        waits(&mut d, client, "recvfrom", own);
        d.hold(session, client, own, Relation::Peer, 0.7);
        let word = d.object(ObjectKind::Futex, 0x3138, SHARED_FUTEX | 0x77, "/dev/zero");
        let stack = d.stack(&["sem_wait (libc.so.6)", "PGSemaphoreLock (server)", "LWLockAcquire (server)"]);
        d.wait(session, 0.0, 5.0, "futex").on(word).stack(stack).op(265, 0).before().open();
        let file = d.object(ObjectKind::File, 3, 0, "/srv/log");
        d.wait(writer, 0.0, 5.0, "pwrite64").on(file).state(OffState::Uninterruptible).before().open();
        let none = epoll(&mut d, &[]);
        waits(&mut d, idle, "epoll_wait", none);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1003), !stranger, "{r:#?}");
        assert!(!way(&r).contains(&1004), "{r:#?}");
    }
}

/// The thread of a server that serves a client sleeps between calls that fail, or only sleeps.
#[test]
fn who_tries_in_vain_is_found_behind_a_loop_that_accepts() {
    for fails in [true, false] {
        let (mut d, _, server) =
            client_and_server("poll", |d, _| d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, ""));
        let worker = d.thread(server, "worker", 0.0);
        let file = d.object(ObjectKind::FileLock, 5, 1, "/srv/a.db");
        let stack = d.stack(&["nanosleep (libc.so.6)", "busy_handler (libsqlite3.so)"]);
        for i in 0..49 {
            let at = f64::from(i) * 0.1;
            d.wait(worker, at, at + 0.099, "clock_nanosleep").stack(stack).times_out();
            let result = if fails { -11 } else { 0 };
            d.call(worker, at + 0.099_5, "fcntl", file, result);
        }
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1002), fails, "{r:#?}");
    }
}

/// A thread of a server asked another server before the recording, and looks for the answer ten times a second.
#[test]
fn who_polls_since_the_beginning_may_have_asked_before() {
    for late in [false, true] {
        let (mut d, _, server) =
            client_and_server("poll", |d, _| d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, ""));
        let worker = d.thread(server, "worker", 0.0);
        let back = d.process("back", "back", None, 0.0);
        let ((asks, _), (other, _)) = (tcp(&mut d, 40_004, 5432), tcp(&mut d, 40_006, 5433));
        for i in 0..50 {
            let at = f64::from(i) * 0.1;
            let on = if late && i == 0 { other } else { asks };
            d.wait(worker, at, at + 0.099_9, "poll").on(on).times_out();
        }
        d.hold(back, worker, asks, Relation::Peer, 0.7);
        d.wait(back, 0.0, 5.0, "futex").state(OffState::Stopped).before().open();
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1003), !late, "{r:#?}");
    }
}

/// A worker reads by an epoll instance what its child writes; who looks after the workers listens, too, and sleeps.
#[test]
fn a_worker_whose_event_loop_has_only_pipes_of_its_child_is_at_work() {
    for of_child in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let parent = d.process("httpd", "httpd", None, 0.0);
        let worker = d.process("httpd", "httpd", Some(parent), 0.0);
        let script = d.process("script", "script", of_child.then_some(worker), 0.0);
        let (own, _) = tcp(&mut d, 40_000, 80);
        waits(&mut d, client, "recvfrom", own);
        for t in [parent, worker] {
            d.hold(t, client, own, Relation::Listens, 0.7);
        }
        let none = d.object(ObjectKind::Unknown, 0, 0, "");
        for i in 0..5 {
            let at = f64::from(i);
            d.wait(parent, at, at + 0.999, "clock_nanosleep").on(none).times_out();
        }
        let pipe = d.object(ObjectKind::Pipe, 9, 9, "");
        let set = epoll(&mut d, &[pipe]);
        waits(&mut d, worker, "epoll_wait", set);
        d.hold(script, worker, pipe, Relation::Writes, 0.7);
        waits(&mut d, script, "clock_nanosleep", ObjectId::NONE);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1003), of_child, "{r:#?}");
    }
}

/// A server runs a program and reads what that writes; the program has the listening socket, too.
#[test]
fn who_inherited_an_end_is_found_by_who_waits_for_it() {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let child = d.process("convert", "convert", Some(server), 0.0);
    let (own, _) = tcp(&mut d, 40_000, 80);
    waits(&mut d, client, "recvfrom", own);
    for t in [server, child] {
        d.hold(t, client, own, Relation::Listens, 0.7);
    }
    let pipe = d.object(ObjectKind::Pipe, 9, 9, "");
    waits(&mut d, server, "read", pipe);
    d.hold(child, server, pipe, Relation::Writes, 0.7);
    let stack = d.stack(&["blur (convert)"]);
    d.runs(child, 0.0, 5.0, stack);
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1001, 1002], "{r:#?}");
}

/// A program asks a server again and again, which answers each time: it sleeps by its own will.
#[test]
fn who_is_answered_does_not_sleep_for_the_other_end() {
    for answers in [false, true] {
        let mut d = Drawing::new(5.0);
        let worker = d.process("worker", "worker", None, 0.0);
        let server = d.process("server", "server", None, 0.0);
        let (own, other) = tcp(&mut d, 40_000, 6379);
        let none = epoll(&mut d, &[other]);
        waits(&mut d, server, "epoll_wait", none);
        for i in 0..49 {
            let at = f64::from(i) * 0.1;
            d.wait(worker, at, at + 0.098, "clock_nanosleep").times_out();
            d.message(worker, own, Direction::Send, at + 0.098_5, 60);
            if answers {
                d.message(worker, own, Direction::Receive, at + 0.099, 5);
            }
        }
        d.hold(server, worker, own, Relation::Peer, 0.7);
        let r = d.diagnose("^worker$");
        assert_eq!(r.root_causes[0].pid == Some(1000), answers, "{r:#?}");
    }
}

#[test]
fn who_made_a_connection_waits_for_an_answer_over_it() {
    for by_unix in [false, true] {
        let (mut d, _, server) =
            client_and_server("poll", |d, _| d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, ""));
        let back = d.process("back", "back", None, 0.0);
        let worker = d.thread(server, "worker", 0.0);
        let kept = d.thread(server, "worker", 0.0);
        let ((asks, _), (_, serves)) = if by_unix {
            (unix(&mut d, 4711), unix(&mut d, 4801))
        } else {
            (tcp(&mut d, 40_004, 5432), tcp(&mut d, 40_006, 80))
        };
        waits(&mut d, kept, "recvfrom", serves);
        waits(&mut d, worker, "recvfrom", asks);
        d.hold(back, worker, asks, Relation::Peer, 0.7);
        let stack = d.stack(&["query (back)"]);
        d.runs(back, 0.0, 5.0, stack);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).last(), Some(&1002), "{by_unix} {r:#?}");
        assert!(way(&r).contains(&1003) && !way(&r).contains(&1004), "{by_unix} {r:#?}");
    }
}

#[test]
fn the_end_of_the_recording_cuts_no_loop() {
    // Of equal sleeps, and of a last one that lasts longer than the one before.
    for (each, last) in [(0.5, 4.9), (0.2, 4.4)] {
        let mut d = Drawing::new(5.0);
        let daemon = d.process("daemon", "daemon", None, 0.0);
        let stop = d.process("stop", "stop", None, 0.0);
        let mut t = 0.1;
        while t + each < last {
            d.wait(stop, t, t + each, "pselect6").times_out();
            d.asks_for(stop, t + each + 0.0005, 1000, 0);
            t += each + 0.001;
        }
        d.wait(stop, t, 5.0, "pselect6").open();
        let stack = d.stack(&["last_job (daemon)"]);
        d.runs(daemon, 0.0, 5.0, stack);
        let r = d.diagnose("^stop$");
        assert_eq!(way(&r), [1001, 1000], "{each}: {r:#?}");
    }
}

#[test]
fn pages_that_a_server_brings_are_followed_though_the_last_did_not_come() {
    let mut d = Drawing::new(5.0);
    let reader = d.process("reader", "reader", None, 0.0);
    let serves = d.process("fs", "fs", None, 0.0);
    let fault =
        d.stack(&["io_schedule ([kernel])", "folio_wait_bit_common ([kernel])", "exc_page_fault ([kernel])"]);
    let fuse = d.object(ObjectKind::CharDevice, 9, 0, "/dev/fuse");
    let mut t = 0.1;
    while t + 0.08 < 5.0 {
        let w = d.wait(reader, t, t + 0.08, "read").in_no_call().in_kernel(fault);
        w.state(OffState::Uninterruptible).by(serves, "writev", fuse);
        d.wait(serves, t + 0.0001, t + 0.0799, "clock_nanosleep").times_out();
        t += 0.0802;
    }
    let w = d.wait(reader, t, 5.0, "read").in_no_call().in_kernel(fault);
    w.state(OffState::Uninterruptible).open();
    let r = d.diagnose("^reader$");
    assert_eq!(way(&r), [1000, 1001], "{r:#?}");
}

#[test]
fn a_server_of_files_that_reads_requests_has_nothing_to_do() {
    let (mut d, _, server) =
        client_and_server("read", |d, _| d.object(ObjectKind::CharDevice, 9, 0, "/dev/fuse"));
    let asks = d.thread(server, "asks", 0.0);
    let back = d.process("back", "back", None, 0.0);
    let (own, _) = tcp(&mut d, 40_002, 22);
    waits(&mut d, asks, "read", own);
    d.hold(back, asks, own, Relation::Peer, 0.7);
    d.wait(back, 0.0, 5.0, "read").state(OffState::Stopped).before().open();
    let r = d.diagnose("^client$");
    assert_eq!((way(&r), r.root_causes[0].pid), (vec![1000, 1001, 1002, 1003], Some(1003)), "{r:#?}");
}

#[test]
fn who_names_a_fifo_was_to_open_it() {
    for (line, found) in [("sh -c gzip < /srv/out", true), ("sh -c gzip < /srv/outer", false)] {
        let mut d = Drawing::new(5.0);
        let script = d.process("bash", "bash -c tar -cf /srv/out", None, 0.0);
        let tar = d.process("tar", "tar -cf /srv/out data", Some(script), 0.0);
        let reader = d.process("sh", line, Some(script), 0.0);
        let out = d.object(ObjectKind::File, 4, 0, "/srv/out");
        let kernel = d.stack(&["wait_for_partner ([kernel])", "fifo_open ([kernel])"]);
        d.wait(tar, 0.0, 5.0, "creat").on(out).in_kernel(kernel).before().open();
        d.wait(reader, 0.0, 5.0, "clock_nanosleep").before().open();
        let r = d.diagnose("^tar ");
        assert_eq!(way(&r).get(1) == Some(&1002), found, "{r:#?}");
    }
}

/// What a wait is for may have been looked up before the span of it that matters.
#[test]
fn what_was_found_out_earlier_of_the_same_wait_holds() {
    let mut d = Drawing::new(5.0);
    let reads = d.process("reads", "reads", None, 0.0);
    let writes = d.process("writes", "writes", None, 0.0);
    let demux = d.thread(writes, "writes", 0.0);
    let (pipe, word) = (d.object(ObjectKind::Pipe, 7, 7, ""), d.object(ObjectKind::Futex, 0x99, 1001, ""));
    d.wait(reads, 1.4, 5.0, "read").on(pipe).open();
    d.hold(writes, reads, pipe, Relation::Writes, 2.1);
    d.wait(writes, 0.0, 5.0, "futex").on(word).op(265, 1002).before().open();
    d.hold(demux, writes, word, Relation::Owns, 0.9);
    let stack = d.stack(&["unpack (writes)"]);
    d.runs(demux, 0.0, 5.0, stack);
    let r = d.diagnose("^reads$");
    assert_eq!(way(&r), [1000, 1001, 1002], "{r:#?}");
}

#[test]
fn a_main_loop_that_only_its_own_threads_tell_waits_for_the_one_with_a_connection() {
    let mut d = Drawing::new(5.0);
    let main = d.process("call", "call", None, 0.0);
    let (files, bus) = (d.thread(main, "gmain", 0.0), d.thread(main, "gdbus", 0.0));
    let daemon = d.process("bus", "bus", None, 0.0);
    let told: Vec<_> = (0..3).map(|i| d.object(ObjectKind::EventFd, i, 0, "")).collect();
    let own = d.object(ObjectKind::UnixStream, 1, 2, "/run/bus");
    let both = d.set(&[told[2], own]);
    waits(&mut d, main, "poll", told[0]);
    waits(&mut d, files, "poll", told[1]);
    waits(&mut d, bus, "poll", both);
    d.hold(daemon, bus, own, Relation::Peer, 0.7);
    d.wait(daemon, 0.0, 5.0, "read").state(OffState::Stopped).before().open();
    let r = d.diagnose("^call$");
    assert_eq!(way(&r), [1000, 1002, 1003], "{r:#?}");
}

#[test]
fn an_event_loop_with_a_connection_that_it_made_hangs_when_it_is_named() {
    let asks = |by_unix: bool, made: bool| {
        let mut d = Drawing::new(5.0);
        let t = d.process("dig", "dig", None, 0.0);
        let ends = if by_unix { unix(&mut d, 4711) } else { tcp(&mut d, 40_000, 53) };
        let set = epoll(&mut d, &[if made { ends.0 } else { ends.1 }]);
        waits(&mut d, t, "epoll_wait", set);
        let (g, c) = d.build();
        let s = Selection { pid: Some(1000), ..Selection::default() };
        assert!(victims(&g, &c, &VictimOptions::default()).is_empty(), "nobody complains");
        select(&g, &c, &s, &VictimOptions::default()).is_ok()
    };
    assert!(asks(false, true) && !asks(false, false));
    assert!(asks(true, true) && !asks(true, false));
}

/// A connection that is not accepted: who looks after the workers listens, too, and looks every second.
#[test]
fn workers_accept_and_not_who_looks_after_them() {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let parent = d.process("httpd", "httpd", None, 0.0);
    let worker = d.process("httpd", "httpd worker", Some(parent), 0.0);
    let script = d.process("script", "script", Some(worker), 0.0);
    let (own, _) = tcp(&mut d, 40_000, 80);
    waits(&mut d, client, "poll", own);
    let mut t = 0.1;
    while t + 1.0 < 5.0 {
        d.wait(parent, t, t + 1.0, "pselect6").times_out();
        t += 1.001;
    }
    d.wait(parent, t, 5.0, "pselect6").open();
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    waits(&mut d, worker, "read", pipe);
    d.hold(script, worker, pipe, Relation::Writes, 0.7);
    let stack = d.stack(&["stock (script)"]);
    d.runs(script, 0.0, 5.0, stack);
    for t in [parent, worker] {
        d.hold(t, client, own, Relation::Listens, 0.7);
    }
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1002, 1003], "{r:#?}");
}

/// A proxy passes on to one client what a server sends it bit by bit, and another client waits for the same server: what the
/// proxy sends to who connected to it is no request.
#[test]
fn a_proxy_does_not_wait_for_the_client_that_it_serves() {
    let mut d = Drawing::new(5.0);
    let (client, proxy) = (d.process("client", "client", None, 0.0), d.process("proxy", "proxy", None, 0.0));
    let (server, other) = (d.process("server", "server", None, 0.0), d.process("other", "other", None, 0.0));
    let (own, _) = tcp(&mut d, 40_000, 80);
    let (to_other, from_other) = tcp(&mut d, 40_001, 80);
    let (to_server, at_server) = tcp(&mut d, 40_002, 8080);
    let all = epoll(&mut d, &[from_other, to_server]);
    let disk = d.object(ObjectKind::File, 3, 0, "/slow/big");
    waits(&mut d, client, "poll", own);
    d.hold(proxy, client, own, Relation::Peer, 0.7);
    d.wait(proxy, 0.0, 1.0, "epoll_wait").on(all).before().by(server, "sendfile", at_server);
    d.message(proxy, to_server, Direction::Receive, 1.001, 65_536);
    d.message(proxy, from_other, Direction::Send, 1.002, 65_536);
    d.wait(proxy, 1.003, 5.0, "epoll_wait").on(all).open();
    d.hold(server, proxy, to_server, Relation::Peer, 2.0);
    d.hold(other, proxy, from_other, Relation::Peer, 2.0);
    d.wait(server, 0.0, 0.999, "sendfile")
        .on(disk)
        .state(OffState::Uninterruptible)
        .before()
        .by_kernel(other);
    d.message(server, at_server, Direction::Send, 0.9995, 65_536);
    d.wait(server, 1.001, 5.0, "sendfile").on(disk).state(OffState::Uninterruptible).open();
    d.wait(other, 0.0, 1.0025, "poll").on(to_other).before().by(proxy, "write", from_other);
    d.message(other, to_other, Direction::Receive, 1.0026, 65_536);
    d.wait(other, 1.003, 5.0, "poll").on(to_other).open();
    let r = d.diagnose("^client$");
    assert_eq!(way(&r)[..3], [1000, 1001, 1002], "{r:#?}");
}

/// A program starts another one, watches its event loop for the end of that and does not read what it writes.
#[test]
fn who_is_named_and_leaves_a_writer_waiting_is_the_victim() {
    let mut d = Drawing::new(9.0);
    let program = d.process("program", "program", None, 0.0);
    let helper = d.thread(program, "helper", 0.0);
    let lister = d.process("lister", "lister", Some(program), 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let counter = d.object(ObjectKind::EventFd, 3, 0, "");
    let (all, word) = (epoll(&mut d, &[a, counter]), d.object(ObjectKind::Futex, 0x10, 1, ""));
    d.message(lister, b, Direction::Send, 0.4, 196_608);
    let parked =
        d.stack(&["__new_sem_wait_slow64 (libc.so.6)", "uv_sem_wait (program)", "helper_main (program)"]);
    d.wait(helper, 0.1, 9.0, "futex").on(word).stack(parked).op(128 | 9, 0).open();
    d.wait(program, 0.3, 9.0, "epoll_wait").on(all).open();
    d.wait(lister, 0.5, 9.0, "write").on(b).open();
    d.hold(lister, program, a, Relation::Peer, 1.5);
    d.hold(program, lister, b, Relation::Peer, 1.5);
    let r = d.diagnose("^program$");
    assert_eq!(r.victim.tid, 1000);
    assert_eq!(way(&r), [1000, 1002], "{r:#?}");
    assert!(r.root_causes[0].why.contains("nobody reads the other end"), "{}", r.root_causes[0].why);
}

/// A client waits for a display server that reads from another one alone (or from all), which waits at its window.
#[test]
fn who_has_grabbed_the_display_server_keeps_all_others_waiting() {
    for grabbed in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let server = d.process("X", "X :0", None, 0.0);
        let manager = d.process("wm", "wm", None, 0.0);
        let another = d.process("term", "term", None, 0.0);
        let sleep = d.process("sleep", "sleep", Some(another), 0.0);
        let name = "@/tmp/.X11-unix/X0";
        let [own, served, others] = [10, 20, 30].map(|inode| unix_at(&mut d, inode, name));
        let listens = d.object(ObjectKind::UnixStream, 3, 0, name);
        let reply = d.stack(&["poll (libc.so.6)", "xcb_connect_to_fd (libxcb.so)"]);
        d.wait(client, 0.0, 5.0, "poll").on(own.0).stack(reply).before().open();
        d.hold(server, client, own.0, Relation::Peer, 0.7);
        let watched =
            if grabbed { vec![listens, served.1] } else { vec![listens, own.1, served.1, others.1] };
        let set = epoll(&mut d, &watched);
        waits(&mut d, server, "epoll_wait", set);
        d.hold(manager, server, served.1, Relation::Peer, 0.7);
        if !grabbed {
            d.hold(client, server, own.1, Relation::Peer, 0.7);
            d.hold(another, server, others.1, Relation::Peer, 0.7);
        }
        let event = d.stack(&["poll (libc.so.6)", "xcb_wait_for_event (libxcb.so)"]);
        d.wait(manager, 0.0, 5.0, "poll").on(served.0).stack(event).before().open();
        let tty = d.object(ObjectKind::Tty, 5, 1, "/dev/ptmx");
        let both = d.set(&[tty, others.0]);
        waits(&mut d, another, "select", both);
        d.hold(sleep, another, tty, Relation::Peer, 0.7);
        waits(&mut d, sleep, "clock_nanosleep", ObjectId::NONE);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r) == [1000, 1001, 1002], grabbed, "{r:#?}");
        assert_eq!(r.root_causes[0].why.contains("it has grabbed it"), grabbed, "{r:#?}");
    }
}

/// A thread waits for its timer in a library, and that library's other thread for what the first one may write.
#[test]
fn a_thread_that_its_own_process_is_to_tell_something_closes_no_circle() {
    for outside in [false, true] {
        let mut d = Drawing::new(5.0);
        let writer = d.process("writer", "writer", None, 0.0);
        let main = d.process("reader", "reader", None, 0.0);
        let notifier = d.thread(main, "reader", 0.0);
        let other = d.process("other", "other", None, 0.0);
        let (tty, told) =
            (d.object(ObjectKind::Tty, 7, 8, "/dev/pts/3"), d.object(ObjectKind::Pipe, 9, 9, ""));
        waits(&mut d, writer, "write", tty);
        d.hold(main, writer, tty, Relation::Peer, 0.7);
        let word = d.object(ObjectKind::Futex, 0x10, 1001, "");
        d.wait(main, 0.0, 5.0, "futex").on(word).op(128, 0).before().open();
        waits(&mut d, notifier, "pselect6", told);
        d.hold(if outside { other } else { main }, notifier, told, Relation::Writes, 0.7);
        waits(&mut d, other, "clock_nanosleep", ObjectId::NONE);
        let r = d.diagnose("^writer$");
        assert!(r.circle.is_empty(), "{r:#?}");
        assert_eq!(way(&r).contains(&1002), outside, "{r:#?}");
        let paused = r.root_causes.iter().any(|c| c.why.contains("paused there (Ctrl-S)"));
        assert_eq!(paused, !outside, "{r:#?}");
    }
}

/// A server with one place for a client: its listener looks again and again whether that is free.
#[test]
fn a_listener_that_looks_again_and_again_waits_for_its_own_threads() {
    for works in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let server = d.process("proxy", "proxy", None, 0.0);
        let worker = d.thread(server, "proxy", 0.0);
        let back = d.process("back", "back", None, 0.0);
        let (own, _) = tcp(&mut d, 40_000, 80);
        waits(&mut d, client, "poll", own);
        d.hold(server, client, own, Relation::Listens, 0.7);
        let stack = d.stack(&["clock_nanosleep (libc.so.6)", "usleep (libc.so.6)", "main (proxy)"]);
        for i in 0..500 {
            let at = f64::from(i) * 0.01;
            d.wait(server, at, at + 0.009_9, "clock_nanosleep").stack(stack).times_out();
        }
        let (asks, _) = tcp(&mut d, 40_004, 8080);
        if works {
            waits(&mut d, worker, "recvfrom", asks);
            d.hold(back, worker, asks, Relation::Peer, 0.7);
        } else {
            let word = d.object(ObjectKind::Futex, 0x10, 1, "");
            let parked = d.stack(&["pthread_cond_wait (libc.so.6)", "next_job (proxy)"]);
            d.wait(worker, 0.0, 5.0, "futex").on(word).stack(parked).op(128 | 9, 0).before().open();
        }
        d.wait(back, 0.0, 5.0, "futex").state(OffState::Stopped).before().open();
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1003), works, "{r:#?}");
        assert_eq!(r.root_causes[0].pid == Some(1003), works, "{r:#?}");
    }
}

/// Who has the lock was looked up in the first wait for it; after that it waited a moment at a time.
#[test]
fn who_had_the_lock_in_a_wait_for_the_same_just_before_has_it() {
    for same in [true, false] {
        let mut d = Drawing::new(5.0);
        let reader = d.process("reader", "reader", None, 0.0);
        let cache = d.process("cache", "cache", None, 0.0);
        let lease = d.object(ObjectKind::FileLock, 5, 1, "/srv/a");
        let other = d.object(ObjectKind::FileLock, 6, 1, "/srv/b");
        let timer = d.kernel("ksoftirqd/0");
        d.wait(reader, 0.0, 1.1, "openat").on(if same { lease } else { other }).before().by_kernel(timer);
        d.hold(cache, reader, if same { lease } else { other }, Relation::Owns, 0.7);
        for i in 0..390 {
            let at = 1.101 + f64::from(i) * 0.01;
            d.wait(reader, at, at + 0.009_9, "openat").on(lease).times_out();
        }
        waits(&mut d, cache, "clock_nanosleep", ObjectId::NONE);
        let r = d.diagnose("^reader$");
        assert_eq!(way(&r).contains(&1001), same, "{r:#?}");
    }
}

/// A session wants a page that nobody else has pinned; another one is idle in a transaction.
#[test]
fn who_may_have_pinned_a_page_is_a_session_in_a_transaction() {
    let mut d = Drawing::new(5.0);
    let server = d.process("postgres", "postgres -D d", None, 0.0);
    let client = d.process("client", "client", None, 0.0);
    let vacuum = d.process("postgres", "postgres: ann shop [local] VACUUM", Some(server), 0.0);
    let cursor = d.process("postgres", "postgres: ann shop [local] idle in transaction", Some(server), 0.0);
    let (_, serves) = unix(&mut d, 4711);
    let (set, other) = (epoll(&mut d, &[]), d.set(&[serves]));
    let stack =
        d.stack(&["WaitLatch (postgres)", "ProcWaitForSignal (postgres)", "LockBufferForCleanup (postgres)"]);
    d.wait(vacuum, 0.0, 5.0, "epoll_wait").on(set).stack(stack).before().open();
    waits(&mut d, cursor, "epoll_wait", other);
    d.hold(client, cursor, serves, Relation::Peer, 0.7);
    waits(&mut d, client, "clock_nanosleep", ObjectId::NONE);
    let asker = d.process("asker", "asker", None, 0.0);
    let (own, _) = unix(&mut d, 4801);
    waits(&mut d, asker, "poll", own);
    d.hold(vacuum, asker, own, Relation::Peer, 0.7);
    let r = d.diagnose("^asker$");
    assert_eq!(way(&r), [1004, 1002, 1003, 1001], "{r:#?}");
}

/// A server that waits for whatever comes may have handed on what it was asked before the recording, as a bus or a broker does.
#[test]
fn what_became_of_a_request_from_before_the_recording_is_said_not_to_be_known() {
    for before in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let bus = d.process("bus", "bus", None, 0.0);
        let (own, other) = unix(&mut d, 4711);
        let set = epoll(&mut d, &[other]);
        if before {
            waits(&mut d, client, "recvmsg", own);
        } else {
            d.message(client, own, Direction::Send, 0.1, 40);
            d.wait(client, 0.101, 5.0, "recvmsg").on(own).open();
        }
        d.hold(bus, client, own, Relation::Peer, 0.9);
        waits(&mut d, bus, "epoll_wait", set);
        let r = d.diagnose("^client$");
        let first = &r.root_causes[0];
        assert_eq!(first.pid, Some(1001), "{r:#?}");
        assert_eq!(first.why.contains("a recording from the beginning tells"), before, "{}", first.why);
        assert_eq!(first.confidence < 0.35, before, "{r:#?}");
    }
}

/// Two long sleeps of which the recording has parts: between tries, with longer and longer pauses, or by the program's will.
#[test]
fn a_few_long_sleeps_may_be_pauses_between_tries_that_were_not_seen() {
    for cut in [true, false] {
        let mut d = Drawing::new(5.0);
        let job = d.process("job", "job", None, 0.0);
        if cut {
            d.wait(job, 0.0, 1.3, "clock_nanosleep").before().times_out();
            d.wait(job, 1.301, 5.0, "clock_nanosleep").open();
        } else {
            d.wait(job, 0.1, 1.3, "clock_nanosleep").times_out();
            d.wait(job, 1.301, 4.9, "clock_nanosleep").times_out();
        }
        let r = d.diagnose("^job$");
        let first = &r.root_causes[0];
        assert_eq!(first.why.contains("whether it tries something in between"), cut, "{}", first.why);
        assert_eq!(first.confidence < 0.6, cut, "{r:#?}");
    }
}

/// A wait of the chosen process that lasted as long as the recording comes before one that was over after a while.
#[test]
fn who_waits_all_the_time_comes_before_who_waited_at_first() {
    let mut d = Drawing::new(5.0);
    let job = d.process("job", "job", None, 0.0);
    let writer = d.thread(job, "writer", 0.0);
    let reader = d.process("reader", "reader", None, 0.0);
    let fifo = d.object(ObjectKind::Fifo, 7, 7, "/ev");
    let word = d.object(ObjectKind::Futex, 0x100, 1, "");
    let lock = d.stack(&["sem_clockwait (libc.so.6)", "_enter_buffered_busy (python3)"]);
    d.wait(job, 0.0, 5.0, "futex").on(word).op(393, 0).stack(lock).before().open();
    d.wait(writer, 0.0, 1.4, "write").on(fifo).before().by(reader, "read", fifo);
    d.wait(writer, 1.41, 5.0, "clock_nanosleep").open();
    let r = d.diagnose("^job$");
    assert_eq!((r.victim.tid, r.victim.duration_ns), (1000, crate::draw::ns(5.0)), "{r:#?}");
}
