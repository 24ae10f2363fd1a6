//! Recordings that begin in the middle of a hang: which threads of its own process, or of the server that it asked, a
//! thread waits for.

use crate::draw::Drawing;
use crate::draw::middle::{client_and_server, epoll, tcp, waits, way};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, ThreadId, endpoint_v4};
use pg_graph::report::Report;
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

/// No other client's thread is there to compare with: the first one that was made after the client, and that is in the middle
/// of something, serves it.
#[test]
fn the_thread_of_the_only_client_is_the_first_made_after_it() {
    for functions in [1, 4] {
        let (mut d, _, server) =
            client_and_server("poll", |d, _| d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, ""));
        let own = ["result (app)", "total (app)", "do_get (app)", "serve (app)"];
        let stack = d.stack(&[&["futex_wait (libc.so.6)"], &own[..functions]].concat());
        for i in 0..2 {
            let t = d.thread(server, "app", 0.0);
            let word = d.object(ObjectKind::Futex, 0x10 + i * 64, 1001, "");
            d.wait(t, 0.0, 5.0, "futex").on(word).stack(stack).op(128, 0).before().open();
        }
        let r = d.diagnose("^client$");
        let expected: &[u32] = if functions > 1 { &[1000, 1002, 1003] } else { &[1000, 1001] };
        assert_eq!(way(&r), expected, "{r:#?}");
    }
}
