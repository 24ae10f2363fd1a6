//! Recordings that begin in the middle of a hang: who of a server works for whom, and whom it leaves waiting.

use crate::draw::Drawing;
use crate::draw::middle::{epoll, tcp, unix, waits, way};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, endpoint_v4};

/// A program has paused its reader, so it watches only a pipe of its own, and the one that it started waits for room to write.
#[test]
fn a_reader_that_is_paused_leaves_its_writer_waiting() {
    let mut d = Drawing::new(5.0);
    let program = d.process("program", "program", None, 0.0);
    let lister = d.process("lister", "lister", Some(program), 0.0);
    let b = d.object(ObjectKind::UnixStream, 2, 1, "");
    let own = d.object(ObjectKind::Pipe, 3, 3, "");
    let all = epoll(&mut d, &[own]);
    waits(&mut d, program, "epoll_wait", all);
    waits(&mut d, lister, "write", b);
    d.hold(program, lister, b, Relation::Peer, 0.7);
    let r = d.diagnose("^program$");
    assert_eq!(way(&r), [1000, 1001], "{r:#?}");
    assert!(r.root_causes[0].why.contains("nobody reads the other end"), "{}", r.root_causes[0].why);
}

/// The first thread of a server only listens to a manager, by pipes, that asks now and then whether it lives. A worker waits for
/// the back end.
#[test]
fn who_only_listens_to_a_manager_serves_nobody() {
    let mut d = Drawing::new(5.0);
    let (client, server) =
        (d.process("client", "client", None, 0.0), d.process("server", "server", None, 0.0));
    let worker = d.thread(server, "worker", 0.0);
    let manager = d.process("manager", "manager", None, 0.0);
    let backend = d.process("backend", "backend", None, 0.0);
    let (own, _) = tcp(&mut d, 40_000, 80);
    let (to_backend, _) = tcp(&mut d, 40_001, 8080);
    let (asks, tells) = (d.object(ObjectKind::Pipe, 8, 8, ""), d.object(ObjectKind::Pipe, 9, 9, ""));
    waits(&mut d, client, "poll", own);
    d.hold(server, client, own, Relation::Peer, 0.7);
    d.wait(server, 0.0, 2.0, "poll").on(asks).before().by(manager, "write", asks);
    d.wait(manager, 0.0, 2.001, "poll").on(tells).before().by(server, "write", tells);
    d.wait(server, 2.001, 5.0, "poll").on(asks).open();
    d.wait(manager, 2.002, 5.0, "poll").on(tells).open();
    d.hold(manager, server, asks, Relation::Writes, 3.0);
    d.hold(server, manager, tells, Relation::Writes, 3.0);
    waits(&mut d, worker, "poll", to_backend);
    d.hold(backend, worker, to_backend, Relation::Peer, 0.7);
    let sum = d.stack(&["sum (backend)", "main (backend)"]);
    d.runs(backend, 0.0, 5.0, sum);
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1002, 1004], "{r:#?}");
}

/// Two threads of a server wait for somebody else each; which of them serves the client is not known from the middle of a hang.
#[test]
fn which_thread_of_a_server_answers_is_asked() {
    let mut d = Drawing::new(5.0);
    let (client, server) =
        (d.process("client", "client", None, 0.0), d.process("server", "server", None, 0.0));
    let (one, other) = (d.thread(server, "one", 0.0), d.thread(server, "other", 0.0));
    let (store, names) = (d.process("store", "store", None, 0.0), d.process("names", "names", None, 0.0));
    let (own, _) = tcp(&mut d, 40_000, 80);
    let ((to_store, _), (to_names, _)) = (tcp(&mut d, 40_001, 8080), tcp(&mut d, 40_002, 53));
    let listener = d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, "");
    waits(&mut d, client, "poll", own);
    d.hold(server, client, own, Relation::Peer, 0.7);
    waits(&mut d, server, "accept4", listener);
    waits(&mut d, one, "recvfrom", to_store);
    waits(&mut d, other, "recvfrom", to_names);
    d.hold(store, one, to_store, Relation::Peer, 0.7);
    d.hold(names, other, to_names, Relation::Peer, 0.7);
    for (t, what) in [(store, "sum (store)"), (names, "look_up (names)")] {
        let stack = d.stack(&[what]);
        d.runs(t, 0.0, 5.0, stack);
    }
    let r = d.diagnose("^client$");
    assert_eq!(r.questions.len(), 1, "{r:#?}");
    assert_eq!(r.questions[0].options, 2);
}

/// A client waits for the answer of a program that has a thread for its connections: that one waits for the next message,
/// while another one does what was asked.
#[test]
fn who_works_beside_the_thread_that_carries_messages_is_followed() {
    for works in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("ask", "ask", None, 0.0);
        let service = d.process("service", "service", None, 0.0);
        let carrier = d.thread(service, "carrier", 0.0);
        let disk = d.process("slowfs", "slowfs /mnt", None, 0.0);
        let (near, far) = (
            d.object(ObjectKind::UnixStream, 1, 2, ""),
            d.object(ObjectKind::UnixStream, 2, 1, "/run/service"),
        );
        let counter = d.object(ObjectKind::EventFd, 9, 0, "");
        let set = d.set(&[far, counter]);
        let file = d.object(ObjectKind::File, 77, 45, "/mnt/state");
        d.wait(client, 0.0, 5.0, "read").on(near).before().open();
        d.wait(carrier, 0.0, 5.0, "poll").on(set).before().open();
        d.hold(service, client, near, Relation::Peer, 0.6);
        d.hold(client, carrier, far, Relation::Peer, 0.6);
        if works {
            d.wait(service, 0.0, 5.0, "write").on(file).before().open();
            d.hold(disk, service, file, Relation::Serves, 0.6);
            d.wait(disk, 0.0, 5.0, "clock_nanosleep").before().open();
        } else {
            let other = d.object(ObjectKind::EventFd, 10, 0, "");
            d.wait(service, 0.0, 5.0, "poll").on(other).before().open();
        }
        let r = d.diagnose("^ask$");
        let names: Vec<_> = r.slice.iter().map(|n| n.process.as_str()).collect();
        assert_eq!(names.contains(&"slowfs"), works, "{r:#?}");
    }
}

/// A client of a server that emulates terminals waits for what it asked of it. What a program at one of these does is not
/// what it waits for, unless the terminal is all that the server looks at for the client.
#[test]
fn a_program_at_a_servers_terminal_is_not_what_its_client_waits_for() {
    for listens in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client wait-for", None, 0.0);
        let server = d.process("server", "server", None, 0.0);
        let pane = d.process("sleep", "sleep 60", Some(server), 0.0);
        let near = d.object(ObjectKind::UnixStream, 1, 2, "/run/w");
        let far = d.object(ObjectKind::UnixStream, 2, 1, "/run/w");
        let socket = d.object(ObjectKind::UnixStream, 3, 0, if listens { "/run/w" } else { "/run/agent" });
        let master = d.object(ObjectKind::Tty, 5, 6, "/dev/pts/0 (master)");
        let tick = d.object(ObjectKind::TimerFd, 9, 0, "");
        let set = d.set(&[tick, master, far, socket]);
        d.wait(client, 0.0, 5.0, "poll").on(near).before().open();
        d.wait(server, 0.0, 5.0, "poll").on(set).before().open();
        d.wait(pane, 0.0, 5.0, "clock_nanosleep").before().open();
        d.hold(server, client, near, Relation::Peer, 0.6);
        d.hold(client, server, far, Relation::Peer, 0.6);
        d.hold(pane, server, master, Relation::Peer, 0.6);
        let r = d.diagnose("^client");
        let blamed = r.slice.iter().any(|n| n.process == "sleep");
        assert_eq!(blamed, !listens, "{r:#?}");
    }
}

/// A program waits for a daemon that mounts what it looks for. The daemon's first thread waits for signals, another one for
/// what a child writes, and that for a lock.
#[test]
fn a_daemon_whose_first_thread_waits_for_signals_works_by_others() {
    let mut d = Drawing::new(5.0);
    let ls = d.process("ls", "ls /net/proj", None, 0.0);
    let daemon = d.process("mounter", "mounter", None, 0.0);
    let (idle, mounts) = (d.thread(daemon, "alarm", 0.0), d.thread(daemon, "mounter", 0.0));
    let map = d.process("map", "sh map proj", Some(daemon), 0.0);
    let (file, pipe) = (d.object(ObjectKind::File, 0, 0, "/net/proj"), d.object(ObjectKind::Pipe, 7, 7, ""));
    let word = d.object(ObjectKind::Futex, 0x10, 1001, "");
    let work = d.stack(&["look_up (map)", "main (map)"]);
    d.wait(ls, 0.0, 5.0, "statx").on(file).state(OffState::Uninterruptible).before().open();
    d.wait(daemon, 0.0, 5.0, "rt_sigtimedwait").before().open();
    d.wait(idle, 0.0, 5.0, "futex").on(word).op(128 | 9, 0).before().open();
    d.wait(mounts, 0.0, 5.0, "poll").on(pipe).before().open();
    d.runs(map, 0.0, 5.0, work);
    d.hold(daemon, ls, file, Relation::Serves, 0.6);
    d.hold(map, mounts, pipe, Relation::Writes, 0.6);
    let r = d.diagnose("^ls");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("map"), "{r:#?}");
}

/// The main thread of a server sleeps, and leaves the work to others: the one that waits for an answer has the connection
/// in hand, not those that wait for clients. A server of one thread that sleeps is what keeps its client waiting.
#[test]
fn who_asks_for_an_answer_serves_and_not_the_main_thread_that_sleeps() {
    for threads in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let server = d.process("names", "names", None, 0.0);
        let far = d.process("ldap", "ldap", None, 0.0);
        let (own, _) = unix(&mut d, 7);
        waits(&mut d, client, "poll", own);
        d.hold(server, client, own, Relation::Peer, 0.7);
        waits(&mut d, server, "clock_nanosleep", ObjectId::NONE);
        if threads {
            let (asks, answers) = tcp(&mut d, 40_000, 389);
            let listens = d.object(ObjectKind::UnixStream, 90, 0, "/run/db.sock");
            let worker = d.thread(server, "worker", 0.0);
            let idle = d.thread(server, "worker", 0.0);
            waits(&mut d, worker, "poll", asks);
            waits(&mut d, idle, "accept4", listens);
            d.hold(far, worker, asks, Relation::Peer, 0.7);
            let stack = d.stack(&["search (ldap)", "main (ldap)"]);
            d.wait(far, 0.0, 0.1, "poll").on(answers).open();
            d.runs(far, 0.1, 5.0, stack);
        }
        let r = d.diagnose("^client$");
        let want: &[u32] = if threads { &[1000, 1003, 1002] } else { &[1000, 1001] };
        assert_eq!(way(&r), want, "{r:#?}");
    }
}

/// What a server told a client in between is no request of its own: it does not wait for the client.
#[test]
fn a_notice_to_a_client_asks_it_nothing() {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let (own, far) = unix(&mut d, 7);
    d.wait(client, 0.0, 2.0, "poll").on(own).before().by(server, "sendto", far);
    d.message(server, far, Direction::Send, 2.0, 30);
    d.message(client, own, Direction::Receive, 2.001, 30);
    d.wait(client, 2.002, 5.0, "poll").on(own).open();
    d.hold(server, client, own, Relation::Peer, 3.0);
    let set = epoll(&mut d, &[]);
    let stack = d.stack(&["epoll_wait (libc.so.6)", "archive (server)"]);
    let mut t = 0.0;
    while t < 4.9 {
        d.wait(server, t, t + 0.99, "epoll_wait").on(set).stack(stack).times_out();
        t += 1.0;
    }
    let r = d.diagnose("^client$");
    assert!(r.circle.is_empty(), "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("server"), "{r:#?}");
}

/// A proxy waits for its helper, and serves another client beside, which reads slowly: that one was asked for nothing.
#[test]
fn a_proxy_waits_for_its_helper_and_not_for_another_client() {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let proxy = d.process("proxy", "proxy", None, 0.0);
    let helper = d.process("helper", "helper", Some(proxy), 0.0);
    let slow = d.process("slow", "slow", None, 0.0);
    let (own, far) = tcp(&mut d, 40_001, 80);
    let (_, theirs) = tcp(&mut d, 40_002, 80);
    let pair = d.object(ObjectKind::UnixStream, 31, 32, "");
    let pipe = d.object(ObjectKind::Pipe, 9, 9, "");
    waits(&mut d, client, "poll", own);
    d.hold(proxy, client, own, Relation::Peer, 0.7);
    let set = epoll(&mut d, &[far, theirs, pair]);
    let mut t = 0.0;
    while t < 4.7 {
        d.wait(slow, t, t + 0.2, "clock_nanosleep").times_out();
        t += 0.202;
    }
    d.wait(slow, t, 5.0, "clock_nanosleep").open();
    waits(&mut d, proxy, "epoll_wait", set);
    for at in [0.9, 4.9] {
        d.hold(slow, proxy, theirs, Relation::Peer, at);
        d.hold(helper, proxy, pair, Relation::Peer, at);
    }
    waits(&mut d, helper, "read", pipe);
    let r = d.diagnose("^client$");
    assert_eq!(way(&r).get(2), Some(&1002), "{r:#?}");
}

/// The first thread of a server only accepts; the one that has the connection sleeps since before the recording.
#[test]
fn who_sleeps_serves_where_the_other_only_accepts() {
    let mut d = Drawing::new(5.0);
    let (client, server) =
        (d.process("client", "client", None, 0.0), d.process("server", "server", None, 0.0));
    let (worker, keeper) = (d.thread(server, "worker", 0.0), d.thread(server, "keeper", 0.0));
    let (own, _) = tcp(&mut d, 40_000, 80);
    let listener = d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0007, 80), 0, "");
    waits(&mut d, client, "recvfrom", own);
    d.hold(server, client, own, Relation::Peer, 0.7);
    waits(&mut d, server, "accept4", listener);
    d.wait(worker, 0.0, 5.0, "clock_nanosleep").before().open();
    for second in 0..5 {
        let at = f64::from(second);
        d.wait(keeper, at, at + 0.999, "clock_nanosleep").timer();
    }
    let r = d.diagnose("^client$");
    assert_eq!(way(&r), [1000, 1002], "{r:#?}");
}

/// A client polls its connections with two servers, and had asked one of them.
#[test]
fn of_two_that_are_polled_the_one_that_was_asked_is_waited_for() {
    for asked in [0, 1] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let servers = ["first", "second"].map(|name| d.process(name, name, None, 0.0));
        let ends = [tcp(&mut d, 40_001, 8001), tcp(&mut d, 40_002, 8002)];
        d.catalog.objects[ends[asked].0.index()].unanswered = 3_000_000_000;
        let both = d.set(&[ends[0].0, ends[1].0]);
        waits(&mut d, client, "poll", both);
        for (t, (near, _)) in servers.into_iter().zip(ends) {
            d.hold(t, client, near, Relation::Peer, 0.7);
            let file = d.object(ObjectKind::File, u64::from(near.0), 45, "/mnt/state");
            waits(&mut d, t, "fsync", file);
        }
        let r = d.diagnose("^client$");
        assert_eq!(r.questions.len(), 0, "{r:#?}");
        assert_eq!(way(&r), [1000, [1001, 1002][asked]], "{r:#?}");
    }
}

/// One thread of a program keeps a lock and waits for a command to end: until another thread is told of that, by a signal, it
/// waits for a condition (Ruby's `system`). A helper that waits for what it is asked is nobody to wait for.
#[test]
fn threads_that_wait_for_one_another_wait_for_the_only_child() {
    for (call, follows) in [("flock", true), ("epoll_wait", false)] {
        let mut d = Drawing::new(5.0);
        let main = d.process("ruby", "ruby job.rb", None, 0.0);
        let worker = d.thread(main, "worker", 0.0);
        let child = d.process("flock", "flock /run/l true", Some(main), 0.0);
        let counter = d.object(ObjectKind::EventFd, 2, 0, "");
        let condition = d.object(ObjectKind::Futex, 0x1000, 1, "");
        let on = if follows { d.object(ObjectKind::File, 5, 0, "/run/l") } else { epoll(&mut d, &[]) };
        waits(&mut d, main, "ppoll", counter);
        d.hold(main, main, counter, Relation::Peer, 0.7);
        let wait = d.stack(&["pthread_cond_wait (libc.so.6)", "rb_native_cond_wait (ruby)"]);
        d.wait(worker, 0.0, 5.0, "futex").on(condition).op(128 | 9, 0).stack(wait).before().open();
        waits(&mut d, child, call, on);
        let r = d.diagnose("^ruby");
        assert_eq!(way(&r), if follows { vec![1000, 1001, 1002] } else { vec![1000, 1001] }, "{r:#?}");
    }
}

/// A runtime parks its other threads on words of their own; the one that watches connections has asked before.
#[test]
fn of_a_runtime_the_thread_that_asked_is_the_victim() {
    for connects in [true, false] {
        let mut d = Drawing::new(5.0);
        let main = d.process("checker", "checker", None, 0.0);
        let monitor = d.thread(main, "checker", 0.0);
        let server = d.process("server", "server", None, 0.0);
        let (own, other) = tcp(&mut d, 40_000, 80);
        let tells = d.object(ObjectKind::Pipe, 9, 9, "");
        let e = epoll(&mut d, &[tells, if connects { own } else { other }]);
        waits(&mut d, main, "epoll_pwait", e);
        let word = d.object(ObjectKind::Futex, 0x99, 1000, "");
        d.wait(monitor, 0.0, 5.0, "futex").on(word).op(128, 0).before().open();
        d.hold(server, main, own, Relation::Peer, 0.7);
        d.wait(server, 0.0, 5.0, "clock_nanosleep").before().open();
        let r = d.diagnose("^checker$");
        assert_eq!(way(&r)[0] == 1000, connects, "{r:#?}");
        assert_eq!(r.root_causes[0].process.as_deref() == Some("server"), connects, "{r:#?}");
    }
}

/// A launcher that listens to its children besides to whoever connects, and has nothing else to do.
#[test]
fn a_launcher_waits_for_its_children() {
    // One that heard something has only waited for whatever comes.
    for (child, heard) in [(true, false), (false, false), (true, true)] {
        let mut d = Drawing::new(5.0);
        let launcher = d.process("launcher", "launcher -n 1 sim", None, 0.0);
        let sim = d.process("sim", "sim", if child { Some(launcher) } else { None }, 0.0);
        let listens = d.object(ObjectKind::Tcp, 80, 0, "");
        let pipes = [11, 12, 13].map(|i| d.object(ObjectKind::Pipe, i, i, ""));
        let set = d.set(&[listens, pipes[0], pipes[1], pipes[2]]);
        if heard {
            d.wait(launcher, 0.0, 4.99, "poll").on(set).before().by(sim, "write", pipes[0]);
            d.wait(sim, 4.995, 5.0, "read").open();
        } else {
            waits(&mut d, launcher, "poll", set);
            d.wait(sim, 0.0, 5.0, "read").state(OffState::Stopped).before().open();
        }
        d.hold(sim, launcher, pipes[0], Relation::Writes, 0.7);
        let (g, c) = d.build();
        let named = pg_graph::Selection { tid: Some(1000), ..Default::default() };
        let v = pg_graph::select(&g, &c, &named, &pg_graph::VictimOptions::default());
        assert_eq!(v.is_ok(), child && !heard, "{v:?}");
        if let Ok(v) = v {
            let r = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default());
            assert_eq!((way(&r), r.root_causes[0].pid), (vec![1000, 1001], Some(1001)), "{r:#?}");
        }
    }
}

/// A server with a thread for each connection: those that execute something wait for their lock, at no connection at all. How
/// deep they are in what their siblings wait in tells them from the server's own, and their numbers tell whose they are.
#[test]
fn a_thread_that_works_for_a_connection_is_found_by_its_siblings() {
    for client in [1003, 1005] {
        let mut d = Drawing::new(5.0);
        let server = d.process("server", "server", None, 0.0);
        let (store, rests) = (d.thread(server, "store", 0.0), d.thread(server, "rests", 0.0));
        let first = d.process("client", "client 1", None, 0.0);
        let own = d.thread(server, "own", 0.0);
        let second = d.process("client", "client 2", None, 0.0);
        let next = d.thread(server, "next", 0.0);
        let idle = d.process("other", "other", None, 0.0);
        let (port, stop) = (d.object(ObjectKind::Tcp, 80, 0, ""), d.object(ObjectKind::Pipe, 9, 9, ""));
        let listens = d.set(&[port, stop]);
        let [a, b, c] = [40_000, 40_001, 40_002].map(|p| tcp(&mut d, p, 80));
        let root = ["serve (server)", "start_thread (libc.so.6)"];
        let deeper = ["cond_wait (libc.so.6)", "lock_wait (server)", "open (server)", "execute (server)"];
        let command = [&["poll (libc.so.6)", "read_request (server)"], &root[..]].concat();
        let works = [&deeper[..], &root[..]].concat();
        let pool =
            ["cond_wait (libc.so.6)", "next_task (server)", "worker (server)", "start_thread (libc.so.6)"];
        let [command, works] = [command, works].map(|s| d.stack(&s));
        let pool = d.stack(&pool);
        let words: Vec<_> = (0..3).map(|i| d.object(ObjectKind::Futex, 0x100 + i, 1000, "")).collect();
        d.wait(server, 0.0, 5.0, "poll").on(listens).before().open();
        for (t, word, stack) in [(store, words[0], pool), (own, words[1], works), (next, words[2], works)] {
            d.wait(t, 0.0, 5.0, "futex").on(word).stack(stack).before().op(128, 0).open();
        }
        d.wait(rests, 0.0, 5.0, "poll").on(c.1).stack(command).before().open();
        for (t, end) in [(first, a.0), (second, b.0)] {
            waits(&mut d, t, "poll", end);
            d.hold(server, t, end, Relation::Peer, 0.7);
        }
        waits(&mut d, idle, "read", c.0);
        let r = d.diagnose(&format!("client {}", (client - 1001) / 2));
        assert_eq!(way(&r)[..2], [client, client + 1], "{r:#?}");
    }
}
