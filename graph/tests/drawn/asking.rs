//! Loops that ask whether they may go on: a server for the state of a job, or whether a child has ended, drawn.

use crate::draw::Drawing;
use crate::makers::{ended, names};
use pg_event::{Direction, ObjectId, ObjectKind, Relation};
use pg_graph::report::Report;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

/// A loop asks a server five times a second for the state of a job. The worker's child tells the server that the job is
/// done, and the next answer is another one; a monitor talks to the server all the time. `more`: so does another client
/// in the same turn.
fn job_asked_for(more: bool) -> Report {
    let mut d = Drawing::new(16.0);
    let order = d.process("order", "order", None, 0.0);
    let redis = d.process("redis", "redis", None, 0.0);
    let worker = d.process("worker", "worker", None, 0.0);
    let job = d.process("worker", "worker job", Some(worker), 0.9);
    let monitor = d.process("monitor", "monitor", None, 0.0);
    let other = d.process("other", "other", None, 0.0);
    let mut ends = |i: u64| {
        (d.object(ObjectKind::UnixStream, i, i + 1, ""), d.object(ObjectKind::UnixStream, i + 1, i, "/run/r"))
    };
    let (a, j, m, o) = (ends(1), ends(3), ends(5), ends(7));
    let tells = |d: &mut Drawing, who, (own, its): (ObjectId, ObjectId), at: f64| {
        d.message(who, own, Direction::Send, at, 10);
        d.message(redis, its, Direction::Receive, at + 0.000_1, 10);
        d.message(redis, its, Direction::Send, at + 0.000_2, 10);
        d.message(who, own, Direction::Receive, at + 0.000_3, 10);
    };
    for i in 0..60 {
        let at = 1.0 + 0.2 * f64::from(i);
        tells(&mut d, order, a, at);
        tells(&mut d, monitor, m, at + 0.1);
        d.wait(order, at + 0.001, at + 0.2, "clock_nanosleep").times_out();
    }
    tells(&mut d, order, a, 13.001);
    let read = d.stack(&["compress (worker)", "main (worker)"]);
    d.runs(job, 0.95, 12.87, read);
    tells(&mut d, job, j, 12.88);
    tells(&mut d, worker, j, 12.9);
    if more {
        tells(&mut d, other, o, 12.85);
    }
    d.diagnose("^order$")
}

#[test]
fn who_changed_the_answer_that_a_loop_asks_for_is_followed() {
    let r = job_asked_for(false);
    let c = &r.root_causes[0];
    assert_eq!(
        (c.cmdline.as_deref(), c.block_type.map(pg_graph::BlockType::name)),
        (Some("worker job"), Some("long-running")),
        "{c:#?}"
    );
    let weak = r.slice[1].why_weak.as_deref().unwrap();
    assert!(weak.contains("nobody else sent redis:1001 something between the last two questions"), "{weak}");
    // What the loop did is told as well.
    assert!(r.root_causes[1].why.contains("in between asked redis"), "{}", r.root_causes[1].why);
}

/// Of two that told the server something, either may have changed it.
#[test]
fn of_several_who_told_the_server_something_nobody_is_named() {
    let r = job_asked_for(true);
    assert_eq!(names(&r), ["order"]);
}

/// A supervisor turns on the CPU and asks each time, without waiting, whether its child has ended; it answers when that has.
/// `both`: its other child has ended then, too.
fn reaped(both: bool) -> Report {
    let mut d = Drawing::new(14.0);
    let supervisor = d.process("svd", "svd", None, 0.0);
    let (app, web) =
        (d.process("app", "app", Some(supervisor), 0.2), d.process("web", "web", Some(supervisor), 0.2));
    let client = d.process("ctl", "ctl stop", None, 0.9);
    let (a, b) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/s"));
    let turn = d.stack(&["poll_fds (svd)", "run_forever (svd)"]);
    d.message(client, a, Direction::Send, 1.0, 10);
    d.message(supervisor, b, Direction::Receive, 1.001, 10);
    d.runs(supervisor, 1.001, 12.0, turn);
    for i in 0..200 {
        d.call(supervisor, 1.1 + 0.05 * f64::from(i), "poll", b, 1);
        d.call(supervisor, 1.11 + 0.05 * f64::from(i), "wait4", ObjectId::NONE, 0);
    }
    let flush = d.stack(&["flush (app)", "main (app)"]);
    d.runs(app, 1.0, 11.98, flush);
    ended(&mut d, app, 11.99, 0);
    if both {
        ended(&mut d, web, 11.985, 0);
    }
    d.message(supervisor, b, Direction::Send, 12.0, 10);
    d.wait(client, 1.01, 12.001, "recvfrom").on(a).by(supervisor, "sendto", b);
    d.wait(supervisor, 12.01, 14.0, "poll").on(b).open();
    d.diagnose("^ctl")
}

#[test]
fn the_child_whose_end_a_turning_loop_waits_for_is_followed() {
    let r = reaped(false);
    assert_eq!(names(&r), ["ctl", "svd", "app"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("app"), "{:#?}", r.root_causes[0]);
    let own = r.root_causes.iter().find(|c| c.process.as_deref() == Some("svd")).unwrap();
    assert!(
        own.why.contains("asked 200 times over, without waiting, whether a child had ended"),
        "{}",
        own.why
    );
    // Of two that ended together it is not known which one it was.
    assert_eq!(names(&reaped(true)), ["ctl", "svd"]);
}

/// The same, recorded from the middle and cut off before the child ends. `busy`: the supervisor does other work in its
/// turns, too, so that it looks after the child means nothing.
fn reaping(busy: bool, children: usize) -> Report {
    let mut d = Drawing::new(6.0);
    let supervisor = d.process("svd", "svd", None, 0.0);
    let app = d.process("app", "app", Some(supervisor), 0.0);
    for _ in 1..children {
        d.process("web", "web", Some(supervisor), 0.0);
    }
    let client = d.process("ctl", "ctl stop", None, 0.0);
    let (a, b) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/s"));
    let turn = d.stack(&["run_forever (svd)"]);
    d.runs(supervisor, 0.0, 6.0, turn);
    for i in 0..50 {
        let at = 3.0 + 0.001 * f64::from(i);
        d.call(supervisor, at, "poll", b, 1);
        d.call(supervisor, at + 0.0003, "wait4", ObjectId::NONE, 0);
        if busy {
            d.call(supervisor, at + 0.0005, "read", b, 10);
        }
    }
    let flush = d.stack(&["flush (app)", "main (app)"]);
    d.runs(app, 0.0, 6.0, flush);
    d.wait(client, 0.0, 6.0, "recvfrom").on(a).before().open();
    d.hold(supervisor, client, a, Relation::Peer, 0.6);
    d.diagnose("^ctl")
}

#[test]
fn the_child_that_a_turning_loop_still_waits_for_is_followed() {
    let r = reaping(false, 1);
    assert_eq!(names(&r), ["ctl", "svd", "app"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("app"), "{:#?}", r.root_causes[0]);
    assert_eq!(names(&reaping(true, 1)), ["ctl", "svd"]);
    assert_eq!(names(&reaping(false, 2)), ["ctl", "svd"]);
}

/// Ranks of a parallel program spin for one another in memory that they share. `others`: what each of the other ranks does.
fn ranks(others: &[&str]) -> Report {
    let mut d = Drawing::new(8.0);
    let run = d.process("mpirun", "mpirun -n 3 sim", None, 0.0);
    let rank = d.process("sim", "sim", Some(run), 0.0);
    // A thread of its own that the others of its process tell when there is something to do.
    let told = d.thread(rank, "sim", 0.0);
    let counter = d.object(ObjectKind::EventFd, 8, 0, "");
    d.wait(told, 0.0, 7.85, "poll").on(counter).before().interrupted();
    d.wait(told, 7.851, 8.0, "poll").on(counter).open();
    let progress = d.stack(&["sched_yield (libc.so.6)", "opal_progress (libopen-pal.so)", "main (sim)"]);
    d.runs(rank, 0.0, 8.0, progress);
    let lock = d.object(ObjectKind::FileLock, 7, 7, "/srv/lock");
    for what in others {
        let line = if *what == "other" { "sim --check" } else { "sim" };
        let t = d.process("sim", line, Some(run), 0.0);
        match *what {
            "spins" => {
                d.runs(t, 0.0, 8.0, progress);
                let told = d.thread(t, "sim", 0.0);
                let counter = d.object(ObjectKind::EventFd, 9, 0, "");
                d.wait(told, 0.0, 8.0, "poll").on(counter).before().open();
            }
            "idles" => d.wait(t, 0.0, 8.0, "pause").before().open(),
            _ => d.wait(t, 0.0, 8.0, "flock").on(lock).before().open(),
        }
    }
    let (g, c) = d.build();
    let first = Selection { pid: Some(1001), ..Selection::default() };
    let v = select(&g, &c, &first, &VictimOptions::default()).unwrap();
    run_with_policy(&g, &c, v, Options::default())
}

#[test]
fn the_rank_that_does_not_spin_is_followed() {
    for (others, followed) in [
        (&["spins", "waits"][..], true),
        (&["waits"], true),
        (&["waits", "waits"], false),
        (&["idles"], false),
        (&["other"], false),
        (&["spins"], false),
    ] {
        let r = ranks(others);
        let to = r.slice.get(1).and_then(|n| n.syscall.as_deref());
        assert_eq!(to == Some("flock"), followed, "{others:?} {r:#?}");
        let weak = r.slice.get(1).and_then(|n| n.why_weak.clone()).unwrap_or_default();
        assert_eq!(weak.contains("started with the same command"), followed, "{weak}");
    }
}
