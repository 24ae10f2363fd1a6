//! Several descriptors at once, and descriptors that stand for something else than data.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, Relation};
use pg_graph::EdgeKind;

fn set(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("sets", ""), role, holds);
}

#[test]
fn poll() {
    set("poll", "poll.waiter", |t| {
        let w = t.wait("poll.waiter");
        w.on(ObjectKind::Set).ended_by("poll.writer", EdgeKind::Ipc, None).caused_by("poll.writer");
    });
}

#[test]
fn a_poll_that_also_watches_for_a_hangup() {
    set("a_poll_that_also_watches_for_a_hangup", "hangups.waiter", |t| {
        let w = t.wait("hangups.waiter");
        w.on(ObjectKind::Pipe).ended_by("hangups.writer", EdgeKind::Ipc, None);
        w.held_by("hangups.writer", Relation::Writes).caused_by("hangups.writer");
    });
}

#[test]
fn ppoll() {
    set("ppoll", "ppoll.waiter", |t| {
        let w = t.wait("ppoll.waiter");
        w.on(ObjectKind::Set).ended_by("ppoll.writer", EdgeKind::Ipc, None).caused_by("ppoll.writer");
    });
}

#[test]
fn select() {
    set("select", "select.waiter", |t| {
        let w = t.wait("select.waiter");
        w.on(ObjectKind::Set).ended_by("select.writer", EdgeKind::Ipc, None).caused_by("select.writer");
    });
}

#[test]
fn epoll() {
    set("epoll", "epoll.waiter", |t| {
        let w = t.wait("epoll.waiter");
        w.on(ObjectKind::Epoll).ended_by("epoll.writer", EdgeKind::Ipc, None).innocent();
    });
}

#[test]
fn a_timer_armed_by_another_thread() {
    set("a_timer_armed_by_another_thread", "timerfd.reader", |t| {
        let w = t.wait("timerfd.reader");
        w.on(ObjectKind::TimerFd).ended_by("timerfd.armer", EdgeKind::Timer, None);
        w.caused_by("timerfd.armer");
    });
}

#[test]
fn a_signal_by_descriptor() {
    set("a_signal_by_descriptor", "signalfd.reader", |t| {
        let w = t.wait("signalfd.reader");
        w.on(ObjectKind::SignalFd).ended_by("signalfd.sender", EdgeKind::WakeUp, None);
        w.caused_by("signalfd.sender");
    });
}

#[test]
fn a_change_in_a_folder() {
    set("a_change_in_a_folder", "inotify.reader", |t| {
        let w = t.wait("inotify.reader");
        w.on(ObjectKind::Inotify)
            .ended_by("inotify.maker", EdgeKind::WakeUp, None)
            .caused_by("inotify.maker");
    });
}

#[test]
fn a_child_by_descriptor() {
    set("a_child_by_descriptor", "pidfd.waiter", |t| {
        let w = t.wait("pidfd.waiter");
        w.ended_by("pidfd.child", EdgeKind::Exit, None);
        w.held_by("pidfd.child", Relation::ChildOf).caused_by("pidfd.child");
    });
}
