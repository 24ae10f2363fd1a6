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
