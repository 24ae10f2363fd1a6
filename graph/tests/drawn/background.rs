//! Who is stopped by its terminal, and whom a cause is said to have held up.

use crate::draw::Drawing;
use crate::draw::middle::{epoll, tcp, unix, waits, way};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation};

/// A build in the background asked something at its terminal, before the recording began: its whole group is stopped.
#[test]
fn who_reads_its_terminal_from_the_background_stops_its_group() {
    for kind in [Some(ObjectKind::Tty), None, Some(ObjectKind::Pipe)] {
        let mut d = Drawing::new(5.0);
        let make = d.process("make", "make all", None, 0.0);
        let ask = d.process("ask", "ask", Some(make), 0.0);
        let child = d.object(ObjectKind::Child, 0, 0, "");
        let terminal = kind.map_or(ObjectId::NONE, |k| d.object(k, 7, 8, "/dev/pts/3"));
        d.wait(make, 0.0, 5.0, "wait4").on(child).state(OffState::Stopped).before().open();
        d.wait(ask, 0.0, 5.0, "read").on(terminal).state(OffState::Stopped).before().open();
        let r = d.diagnose("^make ");
        let c = &r.root_causes[0];
        if kind == Some(ObjectKind::Pipe) {
            assert!(c.why.contains("nobody continued it") && c.tid == Some(1000), "{r:#?}");
            continue;
        }
        assert_eq!((way(&r), c.tid), (vec![1000, 1001], Some(1001)), "{r:#?}");
        assert!(c.why.contains("SIGTTIN"), "{}", c.why);
        assert_eq!(c.why.contains("while it read from /dev/pts/3"), kind.is_some(), "{}", c.why);
        assert_eq!(c.why.contains("if that was from its terminal"), kind.is_none(), "{}", c.why);
    }
}

/// A server watches the connections of the one who asked and of the one who keeps it from answering.
#[test]
fn one_is_held_up_over_the_connection_with_the_cause() {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let back = d.process("back", "back", None, 0.0);
    let (own, other) = tcp(&mut d, 40_000, 80);
    let (pipe, watched) = (d.object(ObjectKind::Pipe, 9, 9, ""), other);
    waits(&mut d, client, "recvfrom", own);
    d.hold(server, client, own, Relation::Peer, 0.7);
    let set = d.set(&[watched, pipe]);
    waits(&mut d, server, "poll", set);
    d.hold(back, server, pipe, Relation::Writes, 0.7);
    d.wait(back, 0.0, 5.0, "read").state(OffState::Stopped).before().open();
    let r = d.diagnose("^client$");
    let why = &r.root_causes[0].why;
    assert!(why.contains("this held up server (pid 1001) on pipe:[9]"), "{why}");
}

/// The end of a process takes its other threads with it: it is not those that it held up.
#[test]
fn threads_that_end_with_their_process_are_not_held_up() {
    let mut d = Drawing::new(9.0);
    let git = d.process("git", "git commit", None, 0.0);
    let shell = d.process("sh", "sh -c vim", Some(git), 0.1);
    let vim = d.process("vim", "vim", Some(shell), 0.1);
    let timer = d.thread(vim, "vim", 0.1);
    let terminal = d.object(ObjectKind::Tty, 7, 8, "/dev/pts/3");
    let child = |d: &mut Drawing, pid| d.object(ObjectKind::Child, pid, 0, "");
    let (of_git, of_shell) = (child(&mut d, 1001), child(&mut d, 1002));
    d.wait(vim, 0.3, 8.0, "select").on(terminal).open();
    d.wait(timer, 0.2, 8.5, "rt_sigtimedwait").by(vim, "exit_group", ObjectId::NONE);
    d.exit(vim, 8.5);
    d.exit(timer, 8.51);
    d.wait(shell, 0.2, 8.51, "wait4").on(of_shell).by(timer, "exit", ObjectId::NONE);
    d.exit(shell, 8.52);
    d.wait(git, 0.2, 8.52, "wait4").on(of_git).by(shell, "exit_group", ObjectId::NONE);
    let r = d.diagnose("^git ");
    let why = &r.root_causes[0].why;
    assert_eq!(way(&r), [1000, 1001, 1002], "{r:#?}");
    assert!(why.contains("this held up sh (pid 1001)"), "{why}");
}

/// Whoever computes after an answer that it had asked for does not do that for the one that answered.
#[test]
fn an_answer_is_no_request() {
    for asked in [true, false] {
        let mut d = Drawing::new(9.0);
        let manager = d.process("manager", "manager", None, 0.0);
        let sim = d.process("sim", "sim deck", None, 0.0);
        let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
        let compute = d.stack(&["compute (sim)", "main (sim)"]);
        if asked {
            d.message(sim, a, Direction::Send, 0.4, 10);
            d.message(manager, b, Direction::Receive, 0.45, 10);
        }
        d.message(manager, b, Direction::Send, 0.9, 10);
        d.wait(sim, 0.5, 0.9, "read").on(a).by(manager, "write", b);
        d.message(sim, a, Direction::Receive, 0.91, 10);
        d.runs(sim, 0.9, 8.5, compute);
        let r = d.diagnose("^sim ");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("since manager (pid 1000) answered it at 0.900 s"), asked, "{why}");
        assert_eq!(why.contains("for manager (pid 1000) since 0.900 s"), !asked, "{why}");
    }
}

/// The first thread of a server waits for nothing, for ever; another one listens to a program that does the work, besides
/// to much else. Nothing tells how the work was handed on.
#[test]
fn the_threads_of_a_server_whose_first_one_is_parked_are_looked_at() {
    for below in [true, false] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let server = d.process("server", "server", None, 0.0);
        let poller = d.thread(server, "poller", 0.0);
        let setup = d.process("setup", "setup", Some(server), 0.0);
        let job = d.process("job", "job", if below { Some(setup) } else { None }, 0.0);
        let (own, _) = tcp(&mut d, 40_000, 80);
        let (pipe, timer) = (d.object(ObjectKind::Pipe, 9, 9, ""), d.object(ObjectKind::TimerFd, 6, 0, ""));
        let listens = d.object(ObjectKind::Tcp, 80, 0, "");
        waits(&mut d, client, "recvfrom", own);
        d.hold(server, client, own, Relation::Peer, 0.7);
        d.wait(server, 0.0, 5.0, "pselect6").before().open();
        let e = epoll(&mut d, &[pipe, timer, listens]);
        waits(&mut d, poller, "epoll_wait", e);
        waits(&mut d, setup, "pause", ObjectId::NONE);
        d.hold(job, poller, pipe, Relation::Writes, 0.7);
        d.wait(job, 0.0, 5.0, "clock_nanosleep").before().open();
        let r = d.diagnose("^client$");
        assert_eq!(way(&r) == [1000, 1001, 1002, 1004], below, "{r:#?}");
        assert_eq!(r.root_causes[0].pid == Some(1004), below, "{r:#?}");
    }
}

/// Two pauses that grow: what was tried between them was not recorded, but what it did after them.
#[test]
fn what_a_thread_did_after_its_pauses_is_told() {
    for seen in [true, false] {
        let mut d = Drawing::new(20.0);
        let lock = d.process("lock", "lock box", None, 0.0);
        d.wait(lock, 0.5, 5.5, "clock_nanosleep").times_out();
        d.wait(lock, 5.501, 15.502, "clock_nanosleep").times_out();
        if seen {
            d.call(lock, 15.5021, "link", ObjectId::NONE, 0);
            d.call(lock, 15.5022, "unlink", ObjectId::NONE, 0);
        }
        d.exit(lock, 15.503);
        let r = d.diagnose("^lock ");
        let why = &r.root_causes[0].why;
        assert!(why.contains("5.00 s and 10.0 s"), "{why}");
        assert_eq!(why.contains("after the last it called link and unlink, with success"), seen, "{why}");
    }
}

/// The same in a recording of all of it: the kernel tells each process of the group, in the name of the one that read.
#[test]
fn a_group_that_its_terminal_stops_is_stopped_by_who_read() {
    for (runs, remedy) in [("make", "`fg` in the shell"), ("timeout", "`timeout` puts what it runs there")] {
        let mut d = Drawing::new(9.0);
        let shell = d.process("bash", "bash", None, 0.0);
        let make = d.process(runs, &format!("{runs} all"), Some(shell), 0.1);
        let ask = d.process("ask", "ask", Some(make), 0.2);
        let child = d.object(ObjectKind::Child, 0, 0, "");
        let typed = d.object(ObjectKind::Tty, 7, 8, "/dev/pts/3");
        d.wait(shell, 0.3, 7.99, "pselect6").on(typed).timer();
        d.signal(ask, ask, 21, 0.5);
        d.signal(ask, make, 21, 0.5);
        d.wait(make, 0.5001, 8.0, "wait4").on(child).state(OffState::Stopped).by(
            shell,
            "kill",
            ObjectId::NONE,
        );
        d.wait(ask, 0.5001, 8.0, "read").state(OffState::Stopped).by(shell, "kill", ObjectId::NONE);
        let r = d.diagnose(&format!("^{runs} "));
        let first = &r.root_causes[0];
        let next = r.root_causes.iter().find(|c| c.tid == Some(1001)).unwrap();
        assert_eq!((way(&r)[..2].to_vec(), first.tid), (vec![1001, 1002], Some(1002)), "{r:#?}");
        assert!(first.why.contains("by its terminal (SIGTTIN at 0.500 s): it read from it"), "{}", first.why);
        assert!(first.why.contains(remedy), "{}", first.why);
        assert!(next.why.contains("ask (pid 1002) of its process group read from it"), "{}", next.why);
    }
}

/// A session waits on its latch; another process of the server serves a client that is stopped.
#[test]
fn the_session_whose_client_is_stopped_is_whom_the_others_wait_for() {
    for stopped in [true, false] {
        let mut d = Drawing::new(5.0);
        let main = d.process("db", "db", None, 0.0);
        let client = d.process("client", "client", None, 0.0);
        let session = d.process("db", "db: session", Some(main), 0.0);
        let sender = d.process("db", "db: sender", Some(main), 0.0);
        let standby = d.process("standby", "standby", None, 0.0);
        let ((a, _), (_, y)) = (unix(&mut d, 10), unix(&mut d, 20));
        let (death, signals) =
            (d.object(ObjectKind::Pipe, 3, 3, ""), d.object(ObjectKind::SignalFd, 4, 0, ""));
        waits(&mut d, client, "poll", a);
        d.hold(session, client, a, Relation::Peer, 0.7);
        let latch = d.set(&[death, signals]);
        waits(&mut d, session, "epoll_wait", latch);
        d.hold(main, session, death, Relation::Writes, 0.7);
        let e = epoll(&mut d, &[death, signals, y]);
        waits(&mut d, sender, "epoll_wait", e);
        d.hold(standby, sender, y, Relation::Peer, 0.7);
        let w = d.wait(standby, 0.0, 5.0, "pselect6").before();
        if stopped { w.state(OffState::Stopped) } else { w }.open();
        let r = d.diagnose("^client$");
        assert_eq!(way(&r) == [1001, 1002, 1003, 1004], stopped, "{r:#?}");
        assert_eq!(r.root_causes[0].pid == Some(1004), stopped, "{r:#?}");
    }
}

/// A session looks every second whether what it asked the server for is done; another process of that server runs a command
/// for it, and the others have nothing to do. Where two are at work it is not known which.
#[test]
fn a_session_that_looks_waits_for_the_one_process_of_the_server_at_work() {
    for two in [false, true] {
        let mut d = Drawing::new(6.0);
        let main = d.process("db", "db", None, 0.0);
        let client = d.process("client", "client", None, 0.0);
        let session = d.process("db", "db: session", Some(main), 0.0);
        let archiver = d.process("db", "db: archiver", Some(main), 0.0);
        let writer = d.process("db", "db: writer", Some(main), 0.0);
        let (a, _) = unix(&mut d, 10);
        let (death, signals) =
            (d.object(ObjectKind::Pipe, 3, 3, ""), d.object(ObjectKind::SignalFd, 4, 0, ""));
        let latch = d.set(&[death, signals]);
        let any = d.object(ObjectKind::Child, 0, 0, "");
        d.wait(client, 0.0, 6.0, "poll").on(a).before().open();
        d.wait(session, 0.0, 0.5, "epoll_wait").on(latch).before().times_out();
        d.hold(session, client, a, Relation::Peer, 1.2);
        for i in 0..5 {
            let at = 0.51 + f64::from(i);
            d.wait(session, at, at + 0.999, "epoll_wait").on(latch).times_out();
        }
        d.wait(session, 5.51, 6.0, "epoll_wait").on(latch).open();
        d.hold(main, session, death, Relation::Writes, 1.2);
        d.wait(writer, 0.0, 6.0, "epoll_wait").on(latch).before().open();
        let command = d.process("upload", "upload segment", Some(archiver), 0.0);
        d.wait(archiver, 0.0, 6.0, "wait4").on(any).before().open();
        d.wait(command, 0.0, 6.0, "clock_nanosleep").before().open();
        if two {
            let busy = d.process("db", "db: checkpointer", Some(main), 0.0);
            let stack = d.stack(&["sync (db)", "main (db)"]);
            d.runs(busy, 0.0, 6.0, stack);
        }
        let r = d.diagnose("^client$");
        let names: Vec<_> = r.slice.iter().map(|n| n.cmdline.as_str()).collect();
        let followed = names == ["client", "db: session", "db: archiver", "upload segment"];
        assert_eq!(followed, !two, "{names:?} {r:#?}");
    }
}
