//! Waits for input at a terminal.

use crate::draw::{Drawing, slice};
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

/// An agent asks a person by a window, and another program waits for the agent. Who waits for the reply to a request
/// of its own waits for the server.
#[test]
fn who_asks_by_a_window_waits_for_a_person() {
    for reply in [false, true] {
        let mut d = Drawing::new(20.0);
        let client = d.process("sign", "sign file", None, 0.0);
        let agent = d.process("agent", "agent", None, 0.0);
        let dialog = d.process("dialog", "dialog Allow?", Some(agent), 0.9);
        let display = d.process("displayd", "displayd :7", None, 0.0);
        let (near, far) = (
            d.object(ObjectKind::UnixStream, 1, 2, "/run/agent"),
            d.object(ObjectKind::UnixStream, 2, 1, "/run/agent"),
        );
        let window = d.object(ObjectKind::UnixStream, 3, 4, "@/tmp/.X11-unix/X7");
        let of_window = d.object(ObjectKind::UnixStream, 4, 3, "@/tmp/.X11-unix/X7");
        let (others, listens) =
            (d.object(ObjectKind::UnixStream, 6, 5, ""), d.object(ObjectKind::UnixStream, 9, 0, ""));
        let more = d.object(ObjectKind::UnixStream, 8, 7, "");
        let all = d.set(&[of_window, others, more, listens]);
        let child = d.object(ObjectKind::Child, 1002, 0, "");
        let stack = if reply {
            d.stack(&["poll (libc.so.6)", "xcb_wait_for_reply64 (libxcb.so.1)", "_XReply (libX11.so.6)"])
        } else {
            d.stack(&["poll (libc.so.6)", "_XtWaitForSomething (libXt.so.6)", "main (dialog)"])
        };
        d.spawn(agent, dialog, 0.9);
        d.message(client, near, pg_event::Direction::Send, 0.8, 10);
        d.message(dialog, window, pg_event::Direction::Send, 0.999, 40);
        d.wait(display, 0.1, 0.9995, "epoll_wait").on(all).by(dialog, "writev", window);
        d.message(display, of_window, pg_event::Direction::Receive, 0.9997, 40);
        d.wait(display, 1.0005, 20.0, "epoll_wait").on(all).open();
        d.wait(dialog, 1.001, 13.0, "poll").on(window).stack(stack).times_out();
        d.hold(display, dialog, window, Relation::Peer, 2.5);
        d.exit(dialog, 13.001);
        d.wait(agent, 0.91, 13.002, "wait4").on(child).by(dialog, "exit_group", ObjectId::NONE);
        d.wait(client, 0.801, 13.01, "read").on(near).by(agent, "write", far);
        let r = d.diagnose("^sign ");
        let c = &r.root_causes[0];
        assert_eq!(slice(&r), ["agent", "dialog Allow?", "displayd :7"], "{r:#?}");
        if reply {
            assert!(!c.why.contains("window"), "{}", c.why);
        } else {
            assert_eq!(c.process.as_deref(), Some("dialog"), "{r:#?}");
            assert!(c.why.contains("for input at its window") && c.why.contains("X7"), "{}", c.why);
            assert_eq!(r.root_causes.len(), 1, "{r:#?}");
        }
    }
}

/// A program has a thread that watches its channels; the main thread waits for what that sees, gives up, and tells it so.
/// What was watched is what brought nothing: a terminal whose program waits for input.
#[test]
fn to_have_given_up_is_no_answer() {
    for victim in ["main", "notifier"] {
        let mut d = Drawing::new(14.0);
        let expect = d.process("expect", "expect install.exp", None, 0.0);
        let notifier = d.thread(expect, "notifier", 0.0);
        let install = d.process("install", "install", Some(expect), 0.3);
        let slave = d.object(ObjectKind::Tty, 0x8803, 1 << 63 | 0x8803, "/dev/pts/3");
        let master = d.object(ObjectKind::Tty, 1 << 63 | 0x8803, 0x8803, "/dev/ptmx");
        let trigger = d.object(ObjectKind::Pipe, 55, 55, "");
        let word = d.object(ObjectKind::Futex, 0x1000, 1000, "");
        let set = d.set(&[trigger, master]);
        let stack =
            d.stack(&["pthread_cond_timedwait (libc.so.6)", "Tcl_WaitForEvent (libtcl)", "main (expect)"]);
        let watch = d.stack(&["select (libc.so.6)", "notify (libtcl)"]);
        d.spawn(expect, install, 0.3);
        d.wait(notifier, 0.31, 0.4, "pselect6").on(set).stack(watch).by(install, "write", slave);
        d.wait(expect, 0.32, 0.401, "futex").on(word).op(128 | 9, 0).stack(stack).by(notifier, "futex", word);
        d.wait(install, 0.5, 14.0, "read").on(slave).open();
        d.wait(expect, 0.5, 12.5, "futex").on(word).op(128 | 9, 0).stack(stack).times_out();
        d.wait(notifier, 0.49, 12.501, "pselect6").on(set).stack(watch).by(expect, "write", trigger);
        d.hold(install, notifier, master, Relation::Peer, 2.5);
        d.hold(expect, install, slave, Relation::Peer, 2.5);
        d.exit(expect, 12.6);
        let name = if victim == "main" { "^expect$" } else { "^notifier$" };
        let r = d.diagnose(name);
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("install"), "{victim} {r:#?}");
        assert!(c.why.contains("input at the terminal"), "{}", c.why);
        assert!(r.questions.is_empty(), "{r:#?}");
    }
}
