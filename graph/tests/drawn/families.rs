//! Servers of several processes, and what their other clients and parents have to do with who waits: mostly nothing.

use crate::draw::middle::tcp;
use crate::draw::{Drawing, what};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, ThreadId};
use pg_graph::report::Report;

fn tells(d: &mut Drawing, who: ThreadId, own: ObjectId, whom: ThreadId, its: ObjectId, at: f64) {
    d.message(who, own, Direction::Send, at, 10);
    d.message(whom, its, Direction::Receive, at + 0.000_1, 10);
}

/// What let a server turn when all was well.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Turn {
    Request,
    Left,
    Started,
}

/// A client waits for a server that has nothing to do.
fn idle_server(turn: Turn) -> Report {
    let mut d = Drawing::new(10.0);
    let server = d.process("server", "server", None, 0.0);
    let shell = d.process("sh", "sh job", None, 0.0);
    let other = d.process("other", "other", None, 0.0);
    let client = d.process("client", "client", None, 0.0);
    let ((near, far), (theirs, its), (third, its3)) =
        (tcp(&mut d, 40_000, 80), tcp(&mut d, 40_001, 80), tcp(&mut d, 40_002, 80));
    let stack = d.stack(&["turn (server)", "main (server)"]);
    let set = d.object(ObjectKind::Epoll, 5, 0, "");
    match turn {
        Turn::Request => {
            tells(&mut d, other, theirs, server, its, 0.399_9);
            d.wait(server, 0.0, 0.4, "epoll_wait").on(set).stack(stack).by(other, "sendto", theirs);
            tells(&mut d, server, its, other, theirs, 0.400_5);
        }
        Turn::Started => {
            let asker = d.process("asker", "asker", Some(shell), 0.39);
            d.spawn(shell, asker, 0.39);
            tells(&mut d, asker, third, server, its3, 0.399_9);
            d.wait(server, 0.0, 0.4, "epoll_wait").on(set).stack(stack).by(asker, "sendto", third);
            tells(&mut d, server, its, other, theirs, 0.400_5);
            d.exit(asker, 0.45);
        }
        Turn::Left => {}
    }
    d.message(client, near, Direction::Send, 0.999_9, 10);
    d.wait(server, 0.41, 1.0, "epoll_wait").on(set).stack(stack).by(client, "sendto", near);
    d.message(server, far, Direction::Receive, 1.000_1, 10);
    d.wait(client, 1.001, 8.0, "recvfrom").on(near).interrupted();
    d.hold(server, client, near, Relation::Peer, 2.0);
    if turn == Turn::Left {
        d.wait(server, 1.002, 8.1, "epoll_wait").on(set).stack(stack).by(client, "exit_group", near);
        d.wait(server, 8.11, 8.12, "epoll_wait").on(set).stack(stack).by(other, "exit_group", theirs);
        d.exit(other, 8.12);
    } else {
        d.wait(server, 1.002, 10.0, "epoll_wait").on(set).stack(stack).open();
    }
    let end = if turn == Turn::Left { 8.11 } else { 10.0 };
    d.wait(other, 0.41, end, "recvfrom").on(theirs).interrupted();
    d.wait(shell, 0.5, 10.0, "clock_nanosleep").open();
    d.diagnose("^client")
}

/// That another client asked it for something of its own, left, or was started then brings this one nothing.
#[test]
fn other_clients_of_an_idle_server_are_not_who_is_missing() {
    for turn in [Turn::Request, Turn::Left, Turn::Started] {
        let r = idle_server(turn);
        assert_eq!(r.root_causes[0].process.as_deref(), Some("server"), "{turn:?} {r:#?}");
    }
}

/// A server's worker writes to a pipe that nobody reads: its parent has the reading end as well, to start another reader with it.
/// Whoever is stopped comes first.
#[test]
fn the_reader_of_a_pipe_is_no_parent_that_keeps_its_end() {
    for stopped in [false, true] {
        let mut d = Drawing::new(5.0);
        let main = d.process("httpd", "httpd", None, 0.0);
        let worker = d.process("httpd", "httpd worker", Some(main), 0.0);
        let reader = d.process("rotate", "rotate", Some(main), 0.0);
        let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
        let socket = d.object(ObjectKind::Tcp, 80, 0, "");
        d.wait(worker, 0.0, 5.0, "write").on(pipe).before().open();
        d.hold(main, worker, pipe, Relation::Reads, 0.7);
        d.hold(reader, worker, pipe, Relation::Reads, 0.7);
        if stopped {
            d.wait(main, 0.0, 5.0, "write").on(socket).before().open();
            d.wait(reader, 0.0, 5.0, "read").on(pipe).before().state(OffState::Stopped).open();
        } else {
            let stack = d.stack(&["pause (httpd)"]);
            d.naps(main, 0.0, 5.0, 1.0, stack);
            d.wait(reader, 0.0, 5.0, "clock_nanosleep").before().open();
        }
        let r = d.diagnose("^httpd worker");
        assert_eq!(r.root_causes[0].process.as_deref(), Some("rotate"), "{stopped} {r:#?}");
    }
}

/// A process waits for its child; by a pipe that it watched before, its parent tells it that it lives.
#[test]
fn who_waits_for_a_child_waits_for_nobody_else() {
    let mut d = Drawing::new(6.0);
    let main = d.process("db", "db", None, 0.0);
    let archiver = d.process("db", "db: archiver", Some(main), 0.0);
    let command = d.process("upload", "upload", Some(archiver), 0.4);
    let (death, child) = (d.object(ObjectKind::Pipe, 3, 3, ""), d.object(ObjectKind::Child, 1002, 0, ""));
    d.wait(archiver, 0.5, 6.0, "wait4").on(child).open();
    d.hold(main, archiver, death, Relation::Writes, 1.0);
    d.hold(command, archiver, child, Relation::ChildOf, 1.2);
    d.wait(main, 0.0, 6.0, "recvfrom").before().open();
    d.wait(command, 0.5, 6.0, "clock_nanosleep").open();
    let r = d.diagnose("^db: archiver");
    assert!(r.questions.is_empty(), "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("upload"), "{r:#?}");
}

/// A worker lets a request wait by a timer of its own; its parent, at the other end of a pair of sockets, waits for signals.
#[test]
fn a_parent_that_waits_for_signals_owes_its_worker_nothing() {
    let mut d = Drawing::new(6.0);
    let main = d.process("httpd", "httpd: master", None, 0.0);
    let worker = d.process("httpd", "httpd: worker", Some(main), 0.0);
    let client = d.process("client", "client", None, 0.0);
    let (near, far) = tcp(&mut d, 40_000, 80);
    let pair = d.object(ObjectKind::UnixStream, 8, 9, "");
    let set = d.object(ObjectKind::Epoll, 5, 0, "");
    d.message(client, near, Direction::Send, 0.499, 10);
    d.wait(worker, 0.0, 0.5, "epoll_wait").on(set).before().by(client, "sendto", near);
    d.message(worker, far, Direction::Receive, 0.500_1, 10);
    d.wait(client, 0.501, 6.0, "poll").on(near).open();
    d.wait(worker, 0.502, 6.0, "epoll_wait").on(set).open();
    d.wait(main, 0.0, 6.0, "rt_sigsuspend").before().open();
    d.hold(worker, client, near, Relation::Peer, 1.2);
    d.hold(main, worker, pair, Relation::Peer, 1.2);
    let r = d.diagnose("^client");
    assert_eq!(r.root_causes[0].cmdline.as_deref(), Some("httpd: worker"), "{r:#?}");
}

/// A script asks until a server is there; that makes a process for each, which turns it away, since another of its kind waits for
/// a command. Nobody is named where two are at work.
#[test]
fn who_keeps_a_server_from_taking_anybody_is_at_work_there() {
    for two in [false, true] {
        let mut d = Drawing::new(7.0);
        let shell = d.process("sh", "sh wait-for-db", None, 0.0);
        let main = d.process("db", "db", None, 0.0);
        let startup = d.process("db", "db: startup", Some(main), 0.0);
        let fetch = d.process("fetch", "fetch segment", Some(startup), 0.0);
        let any = d.object(ObjectKind::Child, 0, 0, "");
        d.wait(main, 0.0, 7.0, "poll").before().open();
        d.wait(startup, 0.0, 7.0, "wait4").on(any).before().open();
        d.wait(fetch, 0.0, 7.0, "clock_nanosleep").before().open();
        if two {
            let busy = d.process("db", "db: checkpointer", Some(main), 0.0);
            let stack = d.stack(&["sync (db)"]);
            d.runs(busy, 0.0, 7.0, stack);
        }
        for i in 0..12u32 {
            let at = 0.5 + 0.5 * f64::from(i);
            let (a, b) = tcp(&mut d, 40_000 + i as u16, 5432);
            let born = |d: &mut Drawing, name: &str, of: ThreadId, from: f64, to: f64, code: u32| {
                let t = d.process(name, name, Some(of), from);
                let p = d.catalog.threads[t.index()].process;
                let row = &mut d.catalog.processes[p.index()];
                (row.end, row.exit_status) = (Some(crate::draw::ns(to)), Some(code << 8));
                d.spawn(of, t, from);
                d.exit(t, to);
                t
            };
            let ask = born(&mut d, "isready", shell, at, at + 0.004, 1);
            let backend = born(&mut d, "db", main, at + 0.001, at + 0.003, 1);
            tells(&mut d, ask, a, backend, b, at + 0.001_5);
            tells(&mut d, backend, b, ask, a, at + 0.002);
            d.wait(shell, at + 0.000_1, at + 0.004_1, "wait4").on(any).by(ask, "exit_group", ObjectId::NONE);
            let nap = born(&mut d, "sleep", shell, at + 0.005, at + 0.495, 0);
            d.wait(nap, at + 0.006, at + 0.494, "clock_nanosleep").times_out();
            d.wait(shell, at + 0.005_1, at + 0.495_1, "wait4").on(any).by(nap, "exit_group", ObjectId::NONE);
        }
        let r = d.diagnose("^sh wait-for-db");
        let first = &r.root_causes[0];
        assert_eq!(first.process.as_deref() == Some("fetch"), !two, "{} {r:#?}", what(first));
    }
}

/// A program that limits its rate sends something between its sleeps: it asks nobody whether it may go on.
#[test]
fn who_sends_between_its_sleeps_goes_on() {
    let mut d = Drawing::new(8.0);
    let copy = d.process("copy", "copy --limit 10", None, 0.0);
    let peer = d.process("copy", "copy --receive", Some(copy), 0.0);
    let (near, far) = tcp(&mut d, 40_000, 873);
    for i in 0..40 {
        let at = 0.2 * f64::from(i);
        tells(&mut d, copy, near, peer, far, at + 0.001);
        d.wait(copy, at + 0.002, at + 0.2, "pselect6").times_out();
        d.wait(peer, at + 0.002, at + 0.200_9, "recvfrom").on(far).by(copy, "sendto", near);
    }
    let r = d.diagnose("^copy --limit");
    let why = &r.root_causes[0].why;
    assert!(why.contains("it goes on all the time, and sleeps of its own accord"), "{why}");
}

/// A bus is asked for a service, and starts it by a helper; the service ends without a word, and the bus waits on. A helper
/// alone is no program, and of two none is known to be the one.
#[test]
fn a_service_that_was_started_for_a_request_and_ended() {
    for (executes, two) in [(true, false), (false, false), (true, true)] {
        let mut d = Drawing::new(12.0);
        let client = d.process("send", "send ping", None, 0.9);
        let bus = d.process("bus", "bus", None, 0.0);
        let helper = d.process("bus", "bus", Some(bus), 1.01);
        let mut started = vec![d.process("service", "service --short", Some(helper), 1.02)];
        if two {
            started.push(d.process("other", "other", Some(bus), 1.03));
        }
        let (ours, theirs) = crate::draw::middle::unix(&mut d, 1);
        let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
        d.spawn(bus, helper, 1.01);
        d.spawn(helper, started[0], 1.02);
        d.message(client, ours, Direction::Send, 0.99, 80);
        d.message(bus, theirs, Direction::Receive, 1.0, 80);
        d.wait(client, 1.0, 11.0, "poll").on(ours).times_out();
        d.wait(bus, 1.05, 11.5, "epoll_wait").on(epoll).open();
        for t in started.into_iter().chain([helper]) {
            d.wait(t, 1.05, 6.0, "clock_nanosleep").times_out();
            d.exit(t, 6.0);
            let row = &mut d.catalog.processes[t.index()];
            (row.end, row.exit_status) = (Some(crate::draw::ns(6.0)), Some(0));
            if executes && t != helper {
                row.cmdlines.insert(0, pg_event::Cmdline { time: row.start, text: "bus".into() });
            }
        }
        d.hold(bus, client, ours, Relation::Peer, 2.0);
        let r = d.diagnose("^send");
        let why = &r.root_causes[0].why;
        let says =
            "which bus (pid 1001) started at 1.020 s when it was asked, ended at 6.000 s (exit code 0)";
        assert_eq!(why.contains(says), executes && !two, "{why}");
        assert!(r.root_causes.iter().any(|c| c.process.as_deref() == Some("bus")), "{r:#?}");
    }
}

/// A thread takes results from a queue that a worker of its process fills, until that ends; another thread sleeps.
#[test]
fn a_worker_that_ended() {
    for ends in [true, false] {
        let mut d = Drawing::new(12.0);
        let main = d.process("batch", "batch", None, 0.0);
        let worker = d.thread(main, "worker", 0.1);
        let keep = d.thread(main, "keep", 0.1);
        let queue = d.object(ObjectKind::EventFd, 2, 0, "");
        for n in 1..4 {
            let (from, to) = (f64::from(n) * 0.5 - 0.3, f64::from(n) * 0.5);
            d.wait(main, from, to, "ppoll").on(queue).by(worker, "write", queue);
        }
        if ends {
            d.exit(worker, 1.8);
        } else {
            d.wait(worker, 1.8, 11.5, "clock_nanosleep").open();
        }
        d.wait(keep, 0.2, 11.5, "clock_nanosleep").open();
        d.wait(main, 1.7, 11.5, "ppoll").on(queue).open();
        let r = d.diagnose("^batch");
        let why = &r.root_causes[0].why;
        assert_eq!(
            why.contains("thread 1001 of it, which woke it the last time, ended at 1.800 s"),
            ends,
            "{why}"
        );
    }
}

/// A child holds a lock that a thread of its parent wants, and reads from a FIFO that nobody but its parent has open, whose main
/// thread accepts clients: `writer`: another thread of that waits for a device with what it is to write.
#[test]
fn a_parent_that_only_has_a_fifo_open_writes_nothing() {
    for writer in [false, true] {
        let mut d = Drawing::new(9.0);
        let server = d.process("server", "server", None, 0.0);
        let handler = d.thread(server, "handler", 0.0);
        let child = d.process("child", "child", Some(server), 0.0);
        let listens = d.object(ObjectKind::Tcp, 80, 0, "");
        let lock = d.object(ObjectKind::FileLock, 7, 0, "/run/lock");
        let fifo = d.object(ObjectKind::Pipe, 9, 9, "/run/disk.fifo");
        let file = d.object(ObjectKind::File, 5, 0, "/mnt/tape");
        if writer {
            d.wait(server, 0.3, 9.0, "read").state(OffState::Uninterruptible).on(file).open();
        } else {
            d.wait(server, 0.3, 9.0, "accept4").on(listens).open();
        }
        d.wait(child, 0.5, 9.0, "read").on(fifo).open();
        d.wait(handler, 1.0, 9.0, "flock").on(lock).open();
        d.hold(child, handler, lock, Relation::Owns, 1.6);
        d.hold(server, child, fifo, Relation::Writes, 1.6);
        let r = d.diagnose("^server");
        let who = r.root_causes[0].tid;
        assert_eq!(who, Some(if writer { 1000 } else { 1002 }), "{r:#?}");
        let only = r.root_causes[0].why.contains("which waits for it itself, has the writing end open");
        assert_eq!(only, !writer, "{}", r.root_causes[0].why);
    }
}
