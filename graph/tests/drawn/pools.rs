//! A server that hands connections to a pool: who accepts them is not who answers.

use crate::draw::Drawing;
use pg_event::{Direction, ObjectId, ObjectKind, Relation, ThreadId};

/// A client waits for an answer. The server's main thread accepts other clients meanwhile; `looks_up`: its only worker
/// waits for a name server, else for work. `own_names`: the name server is the same program, and never answers.
fn served(looks_up: bool, own_names: bool) -> Drawing {
    let mut d = Drawing::new(20.0);
    let server = d.process("server", "server", None, 0.0);
    let worker = d.thread(server, "worker", 0.0);
    let client = d.process("client", "client", None, 1.0);
    let others: Vec<ThreadId> =
        (0..6).map(|i| d.process("other", &format!("other {i}"), None, 2.0)).collect();
    let listens = d.object(ObjectKind::Tcp, 80, 0, "");
    let own = d.object(ObjectKind::Tcp, 1, 80, "");
    let udp = d.object(ObjectKind::Udp, 53, 0, "");
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let lookup = d.stack(&["poll (libc.so.6)", "lookup (server)"]);
    let work = d.stack(&["pthread_cond_wait (libc.so.6)", "next_job (server)"]);
    if looks_up {
        d.message(worker, udp, Direction::Send, 1.0, 30);
        if own_names {
            d.hold(server, worker, udp, Relation::Peer, 2.0);
        }
        d.wait(worker, 1.01, 20.0, "poll").on(udp).stack(lookup).open();
    } else {
        d.wait(worker, 1.01, 20.0, "futex").on(word).stack(work).op(128 | 9, 0).open();
    }
    d.message(client, own, Direction::Send, 1.5, 100);
    d.wait(client, 1.51, 20.0, "recvfrom").on(own).open();
    d.hold(server, client, own, Relation::Peer, 2.6);
    let mut t = 1.2;
    for (i, o) in others.into_iter().enumerate() {
        let until = 2.0 + 3.0 * i as f64;
        d.wait(server, t, until, "accept4").on(listens).by_packet(o, "connect", ObjectId::NONE);
        d.wait(o, until + 0.1, 20.0, "pause").open();
        t = until + 0.001;
    }
    d.wait(server, t, 20.0, "accept4").on(listens).open();
    d
}

#[test]
fn who_works_for_the_pool_is_followed() {
    let r = served(true, false).diagnose("^client$");
    assert_eq!(r.slice.get(1).map(|n| n.tid), Some(1001), "{r:#?}");
    assert_eq!(r.root_causes[0].tid, Some(1001), "{}", r.root_causes[0].why);
    assert_eq!(r.root_causes[0].function.as_deref(), Some("lookup"));
}

#[test]
fn nobody_waits_for_itself_in_a_pool() {
    let r = served(true, true).diagnose("^client$");
    assert_eq!(r.slice.get(1).map(|n| n.tid), Some(1001), "{r:#?}");
    assert!(r.circle.is_empty() && r.root_causes[0].why.contains("never answered over udp"), "{r:#?}");
}

#[test]
fn later_clients_are_no_cause() {
    let r = served(false, false).diagnose("^client$");
    assert!(r.slice.iter().all(|n| n.process != "other"), "{r:#?}");
    let named: Vec<_> = r.root_causes.iter().filter_map(|c| c.process.as_deref()).collect();
    assert!(named.iter().all(|p| ["client", "server"].contains(p)) && !named.is_empty(), "{named:?}");
}

/// An event loop waits for a worker that computes all the time. Whoever names the program means the wait; a worker that computes
/// while the loop is let go on by somebody else is a job of its own.
#[test]
fn an_event_loop_that_waits_for_its_workers_is_what_hangs() {
    for own in [true, false] {
        let mut d = Drawing::new(12.0);
        let main = d.process("node", "node app.js", None, 0.0);
        let workers: Vec<ThreadId> = (0..2).map(|_| d.thread(main, "worker", 0.1)).collect();
        let client = d.process("client", "client", None, 0.1);
        let told = d.object(ObjectKind::EventFd, 5, 0, "");
        let poll = d.set(&[told]);
        let hash = d.stack(&["pbkdf2 (node)", "worker (node)"]);
        for (w, until) in workers.iter().zip([9.9, 9.5]) {
            d.runs(*w, 0.6, until, hash);
            d.wait(*w, until, 12.0, "pause").open();
        }
        let by = if own { workers[1] } else { client };
        d.wait(main, 0.6, 9.5, "epoll_wait").on(poll).by(by, "write", told);
        d.runs(main, 9.5, 9.51, hash);
        d.wait(main, 9.51, 12.0, "pause").open();
        d.wait(client, 0.2, 9.45, "clock_nanosleep").times_out();
        let r = d.diagnose("^node app.js$");
        let worker = r.root_causes[0].tid.is_some_and(|t| t == 1001 || t == 1002);
        assert_eq!((r.victim.tid == 1000, worker), (own, true), "{r:#?}");
    }
}

/// The threads of a Python pool wait for results of work that they gave to their own pool; `busy`: one of them computes.
fn starved(busy: bool) -> Drawing {
    let mut d = Drawing::new(9.0);
    let app = d.process("app", "app.py", None, 0.0);
    let result = |d: &mut Drawing, n: u64, t: ThreadId, beneath: &[&str]| {
        let mut stack = vec![
            "do_futex_wait (libc.so.6)",
            "PyThread_acquire_lock_timed (python3.11)",
            "Condition.wait (python3.11/threading.py:320)",
            "Future.result (python3.11/concurrent/futures/_base.py:451)",
        ];
        stack.extend(beneath);
        let stack = d.stack(&stack);
        let word = d.object(ObjectKind::Futex, 0x10 + n, 1, "");
        d.wait(t, 0.5 + 0.1 * n as f64, 9.0, "futex").on(word).stack(stack).op(128 | 9, 0).open();
    };
    for n in 1..=3 {
        let t = d.thread(app, "pool", 0.0);
        if busy && n == 2 {
            let sums = d.stack(&["sum (app.py:3)", "_worker (python3.11/concurrent/futures/thread.py:83)"]);
            d.runs(t, 0.5, 9.0, sums);
        } else {
            result(
                &mut d,
                n,
                t,
                &["table (app.py:9)", "_worker (python3.11/concurrent/futures/thread.py:83)"],
            );
        }
    }
    result(&mut d, 0, app, &["main (app.py:20)"]);
    d
}

#[test]
fn a_pool_that_waits_for_itself() {
    let r = starved(false).diagnose("^app");
    let first = &r.root_causes[0];
    assert_eq!(first.tid, Some(1003), "{r:#?}");
    assert!(first.why.contains("all 3 of its threads wait for such results"), "{}", first.why);
    assert!(first.why.contains("table"), "{}", first.why);
}

#[test]
fn a_pool_of_which_one_is_at_work_does_not_wait_for_itself() {
    let r = starved(true).diagnose("^app");
    assert!(r.root_causes.iter().all(|c| !c.why.contains("its threads wait")), "{r:#?}");
}

/// `make -j4` runs one job after another since one that had read the other tokens was killed; or those are in use, by `more` that
/// run, or by `other`, who has the pipe.
fn runs_jobs(line: &str, more: usize, other: bool) -> pg_graph::report::Report {
    let mut d = Drawing::new(9.0);
    let make = d.process("make", line, None, 0.0);
    let grab = d.process("grab", "grab", Some(make), 0.1);
    let job = d.process("sh", "sh -c sleep 5", Some(make), 0.4);
    let pipe = d.object(ObjectKind::Pipe, 9, 9, "");
    d.wait(grab, 0.11, 0.2, "clock_nanosleep").times_out();
    d.exit(grab, 0.25);
    let row = d.catalog.process_id_of(grab).unwrap();
    let row = &mut d.catalog.processes[row.index()];
    (row.end, row.exit_status) = (Some(250_000_000), Some(9));
    for n in 0..more {
        let t = d.process("cc", &format!("cc {n}"), Some(make), 0.4);
        d.wait(t, 0.45, 9.0, "clock_nanosleep").open();
    }
    if other {
        let t = d.process("keeper", "keeper", None, 0.1);
        d.wait(t, 0.2, 9.0, "clock_nanosleep").open();
        d.hold(t, make, pipe, Relation::Writes, 1.5);
    }
    d.wait(job, 0.45, 5.5, "clock_nanosleep").times_out();
    d.exit(job, 5.51);
    let stack = d.stack(&["pselect (libc.so.6)", "jobserver_acquire (make)", "main (make)"]);
    d.wait(make, 0.5, 5.51, "pselect6").on(pipe).stack(stack).by(job, "exit_group", ObjectId::NONE);
    d.diagnose("^make")
}

#[test]
fn tokens_of_a_jobserver_that_nobody_gives_back() {
    let first = |r: &pg_graph::report::Report| r.root_causes[0].process.clone();
    let r = runs_jobs("make -j4 all", 0, false);
    let why = &r.root_causes[0].why;
    assert!(why.contains("1 of 4 jobs ran: 3 tokens were taken and never given back"), "{why}");
    assert!(why.contains("grab (pid 1001), which was killed (signal 9)"), "{why}");
    for (line, more, other, named) in [
        ("make -j4 all", 3, false, "sh"),
        ("make -j1 all", 0, false, "sh"),
        ("make -j4 all", 0, true, "keeper"),
    ] {
        let r = runs_jobs(line, more, other);
        assert!(!r.root_causes[0].why.contains("tokens"), "{line} {more} {other} {r:#?}");
        if more == 0 {
            assert_eq!(first(&r).as_deref(), Some(named), "{line} {r:#?}");
        }
    }
}
