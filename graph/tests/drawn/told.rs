//! Who told a process to end waits until that has, whatever it does meanwhile.

use crate::draw::Drawing;
use crate::draw::middle::{epoll, tcp};
use pg_event::{ObjectId, ObjectKind, Relation};
use pg_graph::report::Report;

/// How a manager waits.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Turns,
    Sleeps,
    Watches,
}

/// A client asks the manager of a service to stop that; the manager sends `signal`, and the service ignores it until `ends`.
fn stop(how: How, signal: u8, ends: Option<f64>) -> Report {
    let mut d = Drawing::new(9.0);
    let client = d.process("ctl", "ctl stop app", None, 0.0);
    let manager = d.process("manager", "manager", None, 0.0);
    let app = d.process("app", "app", Some(manager), 0.0);
    let bystander = d.process("other", "other", Some(manager), 0.0);
    let (near, far) = tcp(&mut d, 40_000, 80);
    let set = epoll(&mut d, &[far]);
    d.wait(manager, 0.0, 0.5, "epoll_wait").on(set).before().by(client, "sendto", near);
    d.wait(client, 0.501, 9.0, "recvfrom").on(near).open();
    d.hold(manager, client, near, Relation::Peer, 1.2);
    d.signal(manager, app, signal, 0.6);
    let stack = d.stack(&["turn (manager)", "main (manager)"]);
    match how {
        How::Turns => d.runs(manager, 0.6, 9.0, stack),
        How::Sleeps => d.naps(manager, 0.6, 9.0, 0.2, stack),
        How::Watches => d.wait(manager, 0.6, 9.0, "epoll_wait").on(set).open(),
    }
    let job = d.stack(&["drain (app)", "main (app)"]);
    if let Some(end) = ends {
        d.wait(app, 0.0, end, "clock_nanosleep").stack(job).before().times_out();
        let p = d.catalog.threads[app.index()].process;
        d.catalog.processes[p.index()].end = Some(crate::draw::ns(end));
        d.exit(app, end);
    } else {
        d.wait(app, 0.0, 9.0, "clock_nanosleep").stack(job).before().open();
    }
    d.wait(bystander, 0.0, 9.0, "clock_nanosleep").before().open();
    d.diagnose("^ctl")
}

#[test]
fn who_lives_on_is_what_the_one_waits_for_that_told_it_to_end() {
    for how in [How::Turns, How::Sleeps, How::Watches] {
        let r = stop(how, 15, None);
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("app"), "{how:?} {r:#?}");
        assert!(c.why.contains("had told it to end by SIGTERM at 0.600 s"), "{how:?} {}", c.why);
    }
}

/// By SIGHUP it was asked for something else, and who has ended long ago keeps nobody.
#[test]
fn who_was_asked_for_something_else_or_has_ended_is_not() {
    for (signal, ends) in [(1, None), (15, Some(2.0))] {
        for how in [How::Turns, How::Watches] {
            let r = stop(how, signal, ends);
            assert_ne!(r.root_causes[0].process.as_deref(), Some("app"), "{how:?} {r:#?}");
        }
    }
}

/// The victim itself told it, and asks between its sleeps for something that was not recorded.
#[test]
fn a_command_that_stops_a_service() {
    let mut d = Drawing::new(9.0);
    let stop = d.process("stop", "stop app", None, 0.0);
    let app = d.process("app", "app", None, 0.0);
    let shell = d.process("sh", "sh", None, 0.0);
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    let disk = d.process("slow", "slow", None, 0.0);
    d.signal(stop, app, 15, 0.5);
    let stack = d.stack(&["wait_stop (stop)"]);
    d.naps(stop, 0.5, 8.9, 0.25, stack);
    // Somebody who does not want to wait any longer interrupts it.
    d.wait(stop, 8.9, 9.0, "clock_nanosleep").stack(stack).by(shell, "kill", ObjectId::NONE);
    d.wait(app, 0.0, 9.0, "read").on(pipe).before().open();
    d.hold(disk, app, pipe, Relation::Writes, 1.0);
    d.wait(disk, 0.0, 9.0, "clock_nanosleep").before().open();
    let r = d.diagnose("^stop");
    let way: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(way, ["stop", "app", "slow"], "{r:#?}");
}

/// Whoever opens a FIFO in the end is followed to what that waited for; that it was a FIFO, and who waited to open it, is said.
#[test]
fn a_fifo_on_the_way_is_told() {
    let mut d = Drawing::new(20.0);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let fifo = d.object(ObjectKind::Fifo, 5, 5, "/run/answer");
    let script = d.process("sh", "sh job.sh", None, 0.0);
    let sleep = d.process("sleep", "sleep 13", Some(script), 0.0);
    let job = d.process("job", "job", None, 0.0);
    let cat = d.process("cat", "cat answer", Some(job), 0.5);
    d.wait(sleep, 0.1, 14.0, "clock_nanosleep").before().times_out();
    d.exit(sleep, 14.0005);
    d.wait(script, 0.1, 14.001, "wait4").on(any).before().by(sleep, "exit_group", ObjectId::NONE);
    d.wait(cat, 0.6, 14.002, "openat").on(fifo).by(script, "openat", fifo);
    d.exit(cat, 14.003);
    d.wait(job, 0.6, 14.004, "wait4").on(any).by(cat, "exit_group", ObjectId::NONE);
    let r = d.diagnose("^job");
    let why = &r.root_causes[0].why;
    assert!(
        why.contains("sleep") && why.contains("cat (pid 1003) waited to open the FIFO /run/answer"),
        "{why}"
    );
}

/// Who is waited for twice within one sleep slept once.
#[test]
fn one_sleep_that_is_looked_at_twice_is_one() {
    let mut d = Drawing::new(20.0);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let (pipe, out) = (d.object(ObjectKind::Pipe, 5, 5, ""), d.object(ObjectKind::Pipe, 6, 6, ""));
    let victim = d.process("clone", "clone", None, 0.0);
    let pack = d.process("pack", "pack", None, 0.0);
    let hook = d.process("hook", "hook", None, 0.0);
    let sleep = d.process("sleep", "sleep 14", Some(hook), 0.0);
    d.wait(sleep, 0.1, 14.1, "clock_nanosleep").times_out();
    d.exit(sleep, 14.1005);
    d.wait(hook, 0.2, 14.101, "wait4").on(any).by(sleep, "exit_group", ObjectId::NONE);
    let busy = d.stack(&["keep_alive (pack)"]);
    d.wait(pack, 1.0, 6.0, "poll").on(pipe).times_out();
    d.runs(pack, 6.0, 8.0, busy);
    d.wait(pack, 8.0, 14.102, "poll").on(pipe).by(hook, "write", pipe);
    d.hold(hook, pack, pipe, Relation::Writes, 3.0);
    d.wait(victim, 0.9, 14.11, "read").on(out).by(pack, "write", out);
    let r = d.diagnose("^clone");
    let why = &r.root_causes[0].why;
    assert!(why.contains("sleep") && !why.contains("times"), "{why}");
}
