//! Signals, children, tracers, the freezer, locks on files.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, OffState, Relation};
use pg_graph::{BlockType, EdgeKind};

fn process(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("processes", ""), role, holds);
}

#[test]
fn any_signal() {
    process("any_signal", "pause.waiter", |t| {
        let w = t.wait("pause.waiter");
        w.called("signal").ended_by("pause.sender", EdgeKind::WakeUp, None).innocent();
    });
}

#[test]
fn one_signal() {
    process("one_signal", "sigwait.waiter", |t| {
        let w = t.wait("sigwait.waiter");
        w.called("signal").ended_by("sigwait.sender", EdgeKind::WakeUp, None).innocent();
    });
}

#[test]
fn a_process_stopped_by_a_signal() {
    process("a_process_stopped_by_a_signal", "stop.reader", |t| {
        t.wait("stop.stopped").state(OffState::Stopped).called("stop");
        t.wait("stop.stopped").ended_by("stop.sender", EdgeKind::WakeUp, None);
        t.wait("stop.reader").ended_by("stop.stopped", EdgeKind::Ipc, None);
        t.wait("stop.reader").caused_by("stop.stopped").says("SIGSTOP sent by stop.sender");
    });
}

#[test]
fn a_process_stopped_by_its_tracer() {
    process("a_process_stopped_by_its_tracer", "ptrace.traced", |t| {
        t.wait("ptrace.traced").state(OffState::Traced).held_by("ptrace.tracer", Relation::Traces);
        t.wait("ptrace.reader").caused_by("ptrace.tracer").passes("ptrace");
    });
}

#[test]
fn two_functions_that_sleep_at_the_same_depth() {
    process("two_functions_that_sleep_at_the_same_depth", "callers.parent", |t| {
        t.wait("callers.parent").caused_by("callers.child").says("called from tardy");
    });
}

#[test]
fn a_frozen_group() {
    process("a_frozen_group", "freeze.reader", |t| {
        t.wait("freeze.frozen").called("freezer");
        // Who wrote to the group's file is not recorded when it freezes; who thawed it is.
        t.wait("freeze.reader").caused_by("freeze.frozen").says("freeze.freezer").says("thawed");
    });
}

#[test]
fn a_group_frozen_where_it_sleeps() {
    process("a_group_frozen_where_it_sleeps", "asleep.reader", |t| {
        t.wait("asleep.frozen").state(OffState::Frozen).called("freezer");
        t.wait("asleep.reader").caused_by("asleep.frozen").says("was frozen").says("thawed");
    });
}

#[test]
fn any_child() {
    process("any_child", "wait4.parent", |t| {
        let w = t.wait("wait4.parent");
        w.on(ObjectKind::Child).ended_by("wait4.child", EdgeKind::Exit, None);
        w.held_by("wait4.child", Relation::ChildOf).caused_by("wait4.child");
    });
}

#[test]
fn one_child() {
    process("one_child", "waitid.parent", |t| {
        let w = t.wait("waitid.parent");
        w.on(ObjectKind::Child).ended_by("waitid.child", EdgeKind::Exit, None);
        w.held_by("waitid.child", Relation::ChildOf).caused_by("waitid.child");
    });
}

#[test]
fn a_child_whose_end_is_a_signal() {
    process("a_child_whose_end_is_a_signal", "sigchld.parent", |t| {
        let w = t.wait("sigchld.parent");
        w.called("signal").held_by("sigchld.child", Relation::ChildOf);
        t.caused_by("sigchld.outer", "sigchld.child");
    });
}

#[test]
fn a_child_that_has_the_parents_memory() {
    process("a_child_that_has_the_parents_memory", "vfork.parent", |t| {
        let w = t.wait("vfork.parent");
        w.held_by("vfork.child", Relation::ChildOf).caused_by("vfork.child");
    });
}

#[test]
fn a_lock_that_another_one_takes_again_and_again() {
    process("a_lock_that_another_one_takes_again_and_again", "convoy.waiter", |t| {
        t.caused_by("convoy.waiter", "convoy.owner")
            .victim(BlockType::LongWait)
            .says("held up convoy.waiter");
    });
}

#[test]
fn a_lock_of_an_open_file() {
    process("a_lock_of_an_open_file", "flock.waiter", |t| {
        let w = t.wait("flock.waiter");
        w.on(ObjectKind::FileLock).ended_by("flock.owner", EdgeKind::WakeUp, None);
        w.held_by("flock.owner", Relation::Owns).caused_by("flock.owner");
    });
}

#[test]
fn a_lock_of_a_process() {
    process("a_lock_of_a_process", "fcntl.waiter", |t| {
        let w = t.wait("fcntl.waiter");
        w.on(ObjectKind::FileLock).ended_by("fcntl.owner", EdgeKind::WakeUp, None);
        w.held_by("fcntl.owner", Relation::Owns).caused_by("fcntl.owner");
    });
}

#[test]
fn a_lock_of_a_description() {
    process("a_lock_of_a_description", "ofd.waiter", |t| {
        let w = t.wait("ofd.waiter");
        w.on(ObjectKind::FileLock).ended_by("ofd.owner", EdgeKind::WakeUp, None);
        w.held_by("ofd.owner", Relation::Owns).caused_by("ofd.owner");
    });
}

#[test]
fn a_process_whose_first_thread_has_ended() {
    process("a_process_whose_first_thread_has_ended", "headless.reader", |t| {
        let read = t.wait("headless.reader");
        read.on(ObjectKind::Pipe).held_by("headless.thread", Relation::Writes).caused_by("headless.thread");
        let lock = t.wait("headless.locker");
        lock.on(ObjectKind::FileLock).held_by("headless.thread", Relation::Owns).caused_by("headless.thread");
    });
}
