//! Recordings that begin in the middle of the hang and end before it does: whoever waits had begun before, and goes on.

use crate::draw::Drawing;
use crate::draw::middle::{client_and_server, epoll, tcp, unix, unix_at, waits, way};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, endpoint_v4};

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
