//! Waits for input at a terminal.

mod draw;

use draw::{Drawing, slice};
use pg_event::{ObjectId, ObjectKind, Relation};
use pg_graph::report::Report;

/// make runs a program that asks at its terminal; a program with a second thread plays the person there.
/// `typed`: it types in the end. `busy`: it computes instead of looking.
fn asks_at_a_terminal(typed: bool, busy: bool) -> Report {
    let mut d = Drawing::new(20.0);
    let expect = d.process("expect", "expect term.exp", None, 0.0);
    let notifier = d.thread(expect, "expect", 0.0);
    let make = d.process("make", "make", Some(expect), 0.5);
    let unzip = d.process("unzip", "unzip a.zip", Some(make), 1.0);
    let slave = d.object(ObjectKind::Tty, 3, 77, "/dev/pts/0");
    let master = d.object(ObjectKind::Tty, 77, 0, "/dev/ptmx");
    let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
    let word = d.object(ObjectKind::Futex, 0x1000, 1000, "");
    let child = d.object(ObjectKind::Child, 1003, 0, "");
    let stack =
        d.stack(&["pthread_cond_timedwait (libc.so.6)", "Tcl_WaitForEvent (libtcl)", "main (expect)"]);
    let work = d.stack(&["compute (expect)", "main (expect)"]);
    // So it went before.
    d.wait(notifier, 0.1, 0.3, "pselect6").on(pipe).by(expect, "write", pipe);
    d.wait(expect, 0.31, 0.4, "futex").on(word).stack(stack).by(notifier, "futex", word);
    d.wait(notifier, 0.41, 20.0, "pselect6").on(pipe).open();
    d.spawn(expect, make, 0.5);
    d.spawn(make, unzip, 1.0);
    if busy {
        d.runs(expect, 0.6, 13.0, work);
    } else {
        d.wait(expect, 0.6, if typed { 13.0 } else { 19.0 }, "futex").on(word).stack(stack).times_out();
    }
    d.hold(unzip, make, child, Relation::ChildOf, 2.5);
    d.hold(expect, unzip, slave, Relation::Peer, 2.5);
    if typed || busy {
        d.wait(unzip, 1.1, 13.01, "read").on(slave).by(expect, "write", master);
        d.exit(unzip, 13.1);
        d.wait(make, 1.05, 13.11, "wait4").on(child).by(unzip, "exit_group", ObjectId::NONE);
        d.wait(expect, 13.05, 20.0, "futex").on(word).stack(stack).open();
    } else {
        d.wait(unzip, 1.1, 20.0, "read").on(slave).open();
        d.wait(make, 1.05, 20.0, "wait4").on(child).open();
    }
    d.diagnose("^make$")
}

#[test]
fn who_asks_at_a_terminal_waits_for_a_person() {
    for typed in [true, false] {
        let r = asks_at_a_terminal(typed, false);
        assert_eq!(slice(&r), ["unzip a.zip", "expect term.exp"], "{r:#?}");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("unzip"), "{r:#?}");
        let how = if typed { "came only at 13.0" } else { "never came" };
        assert!(c.why.contains("input at the terminal /dev/pts/0") && c.why.contains(how), "{}", c.why);
        assert!(c.why.contains("other end is with expect"), "{}", c.why);
        assert!(r.questions.is_empty() && r.circle.is_empty(), "{r:#?}");
    }
}

#[test]
fn who_is_kept_from_typing_is_followed() {
    let r = asks_at_a_terminal(true, true);
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.function.as_deref()), (Some("expect"), Some("compute")), "{r:#?}");
}
