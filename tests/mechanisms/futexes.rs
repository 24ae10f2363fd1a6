//! Futex words of the C library.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, Relation};
use pg_graph::{EdgeKind, Weak};

fn futex(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("futex", ""), role, holds);
}

const HAND_OFF: Option<Weak> = Some(Weak::MutexHandOff);

#[test]
fn a_mutex() {
    futex("a_mutex", "mutex.waiter", |t| {
        let w = t.wait("mutex.waiter");
        w.on(ObjectKind::Futex).ended_by("mutex.owner", EdgeKind::Futex, HAND_OFF);
        w.held_by("mutex.owner", Relation::Owns).caused_by("mutex.owner").says("sle");
    });
}

#[test]
fn a_mutex_that_hands_on_priority() {
    futex("a_mutex_that_hands_on_priority", "pi.waiter", |t| {
        let w = t.wait("pi.waiter");
        w.on(ObjectKind::Futex).ended_by("pi.owner", EdgeKind::Futex, HAND_OFF);
        w.held_by("pi.owner", Relation::Owns).caused_by("pi.owner");
    });
}

#[test]
fn a_mutex_until_a_time() {
    futex("a_mutex_until_a_time", "timedlock.waiter", |t| {
        let w = t.wait("timedlock.waiter");
        w.on(ObjectKind::Futex).timed_out();
        w.held_by("timedlock.owner", Relation::Owns).caused_by("timedlock.owner");
    });
}

#[test]
fn a_lock_for_readers_that_a_writer_has() {
    futex("a_lock_for_readers_that_a_writer_has", "rwread.waiter", |t| {
        let w = t.wait("rwread.waiter");
        w.on(ObjectKind::Futex).ended_by("rwread.owner", EdgeKind::Futex, HAND_OFF);
        w.held_by("rwread.owner", Relation::Owns).caused_by("rwread.owner");
    });
}

#[test]
fn a_lock_for_a_writer_that_a_reader_has() {
    futex("a_lock_for_a_writer_that_a_reader_has", "rwwrite.waiter", |t| {
        let w = t.wait("rwwrite.waiter");
        // glibc counts readers: only the end of the wait tells who it was.
        w.on(ObjectKind::Futex).ended_by("rwwrite.reader", EdgeKind::Futex, HAND_OFF);
        w.held_by_nobody().caused_by("rwwrite.reader");
        let (g, waiter) = (&t.loaded.graph, t.thread("rwwrite.waiter"));
        assert_eq!(g.readers(waiter, 0..u64::MAX).map(|r| r.1), Some(1), "how many there are is told");
    });
}

#[test]
fn a_condition_that_is_signalled() {
    futex("a_condition_that_is_signalled", "condvar.waiter", |t| {
        let w = t.wait("condvar.waiter");
        w.on(ObjectKind::Futex).ended_by("condvar.signaller", EdgeKind::Futex, None);
        w.caused_by("condvar.signaller");
    });
}

#[test]
fn a_condition_that_nobody_is_left_to_signal() {
    futex("a_condition_that_nobody_is_left_to_signal", "lonely.waiter", |t| {
        let w = t.wait("lonely.waiter");
        w.on(ObjectKind::Futex).lasted().held_by_nobody();
        w.caused_by("lonely.main").says("no other thread of the process is left that could wake");
    });
}

#[test]
fn a_semaphore() {
    futex("a_semaphore", "sem.waiter", |t| {
        let w = t.wait("sem.waiter");
        w.on(ObjectKind::Futex).ended_by("sem.poster", EdgeKind::Futex, None).caused_by("sem.poster");
    });
}

#[test]
fn a_semaphore_that_has_a_name() {
    futex("a_semaphore_that_has_a_name", "named.waiter", |t| {
        let w = t.wait("named.waiter");
        w.on(ObjectKind::Futex).named("/dev/shm/sem.pg-named-");
        w.ended_by("named.poster", EdgeKind::Futex, None).caused_by("named.poster");
    });
}

#[test]
fn a_barrier() {
    futex("a_barrier", "barrier.early", |t| {
        let w = t.wait("barrier.early");
        w.on(ObjectKind::Futex).ended_by("barrier.late", EdgeKind::Futex, None).caused_by("barrier.late");
    });
}

#[test]
fn a_barrier_that_one_never_comes_to() {
    futex("a_barrier_that_one_never_comes_to", "party.first", |t| {
        let w = t.wait("party.first");
        w.on(ObjectKind::Futex).lasted().held_by("party.absent", Relation::Missing);
        w.caused_by("party.absent");
    });
}

#[test]
fn a_barrier_of_processes_that_one_never_comes_to() {
    futex("a_barrier_of_processes_that_one_never_comes_to", "crew.first", |t| {
        let w = t.wait("crew.first");
        w.on(ObjectKind::Futex).held_by("crew.absent", Relation::Missing);
        w.caused_by("crew.absent");
    });
}

#[test]
fn a_semaphore_that_one_of_three_processes_could_post() {
    futex("a_semaphore_that_one_of_three_processes_could_post", "gate.first", |t| {
        let w = t.wait("gate.first");
        w.on(ObjectKind::Futex).held_by("gate.able", Relation::Writes);
        w.caused_by("gate.able").says("not waiting there itself");
    });
}

#[test]
fn the_end_of_a_thread() {
    futex("the_end_of_a_thread", "join.waiter", |t| {
        let w = t.wait("join.waiter");
        w.on(ObjectKind::Futex).ended_by("join.ended", EdgeKind::Exit, None);
        w.held_by("join.ended", Relation::Owns).caused_by("join.ended");
    });
}
