//! Recordings that begin in the middle of a hang: who has a lock that was taken before.

use crate::draw::Drawing;
use crate::draw::middle::{epoll, unix, waits, way};
use pg_event::{ObjectId, ObjectKind, OffState, Relation, SHARED_FUTEX};
/// A session has a lock and waits for its client. It would see by a pipe that its parent ended, as the other session does.
#[test]
fn a_pipe_that_several_watch_beside_tells_only_that_who_writes_lives() {
    let mut d = Drawing::new(5.0);
    let waiter = d.process("waiter", "waiter", None, 0.0);
    let parent = d.process("server", "server", None, 0.0);
    let session = d.process("server", "server: session", Some(parent), 0.0);
    let other = d.process("server", "server: writer", Some(parent), 0.0);
    let client = d.process("client", "client", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 5, 1, "/srv/lock");
    waits(&mut d, waiter, "flock", lock);
    d.hold(session, waiter, lock, Relation::Owns, 0.7);
    let (alive, listens) =
        (d.object(ObjectKind::Pipe, 9, 9, ""), d.object(ObjectKind::UnixStream, 3, 0, "/run/db.sock"));
    waits(&mut d, parent, "pselect6", listens);
    let (asks, serves) = unix(&mut d, 4711);
    let sets = [d.set(&[alive, serves]), d.set(&[alive])];
    for (t, set) in [session, other].into_iter().zip(sets) {
        waits(&mut d, t, "epoll_wait", set);
        d.hold(parent, t, alive, Relation::Writes, 0.7);
    }
    d.hold(client, session, serves, Relation::Peer, 0.7);
    waits(&mut d, client, "clock_nanosleep", ObjectId::NONE);
    let _ = asks;
    let r = d.diagnose("^waiter$");
    assert_eq!(way(&r), [1000, 1002, 1004], "{r:#?}");
    assert!(r.questions.is_empty(), "{r:#?}");
}

/// Sessions of a server have a lock in memory that they share; another one writes to a slow disk.
#[test]
fn who_does_something_of_those_that_share_the_memory_has_the_lock() {
    for stranger in [false, true] {
        let mut d = Drawing::new(5.0);
        let client = d.process("client", "client", None, 0.0);
        let parent = d.process("server", "server", None, 0.0);
        let session = d.process("server", "server: session", Some(parent), 0.0);
        let writer = d.process("server", "server: writer", if stranger { None } else { Some(parent) }, 0.0);
        let idle = d.process("server", "server: idle", Some(parent), 0.0);
        let (own, _) = unix(&mut d, 4711);
        waits(&mut d, client, "recvfrom", own);
        d.hold(session, client, own, Relation::Peer, 0.7);
        let word = d.object(ObjectKind::Futex, 0x3138, SHARED_FUTEX | 0x77, "/dev/zero");
        let stack = d.stack(&["sem_wait (libc.so.6)", "PGSemaphoreLock (server)", "LWLockAcquire (server)"]);
        d.wait(session, 0.0, 5.0, "futex").on(word).stack(stack).op(265, 0).before().open();
        let file = d.object(ObjectKind::File, 3, 0, "/srv/log");
        d.wait(writer, 0.0, 5.0, "pwrite64").on(file).state(OffState::Uninterruptible).before().open();
        let none = epoll(&mut d, &[]);
        waits(&mut d, idle, "epoll_wait", none);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r).contains(&1003), !stranger, "{r:#?}");
        assert!(!way(&r).contains(&1004), "{r:#?}");
    }
}

/// Who has the lock was looked up in the first wait for it; after that it waited a moment at a time.
#[test]
fn who_had_the_lock_in_a_wait_for_the_same_just_before_has_it() {
    for same in [true, false] {
        let mut d = Drawing::new(5.0);
        let reader = d.process("reader", "reader", None, 0.0);
        let cache = d.process("cache", "cache", None, 0.0);
        let lease = d.object(ObjectKind::FileLock, 5, 1, "/srv/a");
        let other = d.object(ObjectKind::FileLock, 6, 1, "/srv/b");
        let timer = d.kernel("ksoftirqd/0");
        d.wait(reader, 0.0, 1.1, "openat").on(if same { lease } else { other }).before().by_kernel(timer);
        d.hold(cache, reader, if same { lease } else { other }, Relation::Owns, 0.7);
        for i in 0..390 {
            let at = 1.101 + f64::from(i) * 0.01;
            d.wait(reader, at, at + 0.009_9, "openat").on(lease).times_out();
        }
        waits(&mut d, cache, "clock_nanosleep", ObjectId::NONE);
        let r = d.diagnose("^reader$");
        assert_eq!(way(&r).contains(&1001), same, "{r:#?}");
    }
}

/// A session wants a page that nobody else has pinned; another one is idle in a transaction.
#[test]
fn who_may_have_pinned_a_page_is_a_session_in_a_transaction() {
    let mut d = Drawing::new(5.0);
    let server = d.process("postgres", "postgres -D d", None, 0.0);
    let client = d.process("client", "client", None, 0.0);
    let vacuum = d.process("postgres", "postgres: ann shop [local] VACUUM", Some(server), 0.0);
    let cursor = d.process("postgres", "postgres: ann shop [local] idle in transaction", Some(server), 0.0);
    let (_, serves) = unix(&mut d, 4711);
    let (set, other) = (epoll(&mut d, &[]), d.set(&[serves]));
    let stack =
        d.stack(&["WaitLatch (postgres)", "ProcWaitForSignal (postgres)", "LockBufferForCleanup (postgres)"]);
    d.wait(vacuum, 0.0, 5.0, "epoll_wait").on(set).stack(stack).before().open();
    waits(&mut d, cursor, "epoll_wait", other);
    d.hold(client, cursor, serves, Relation::Peer, 0.7);
    waits(&mut d, client, "clock_nanosleep", ObjectId::NONE);
    let asker = d.process("asker", "asker", None, 0.0);
    let (own, _) = unix(&mut d, 4801);
    waits(&mut d, asker, "poll", own);
    d.hold(vacuum, asker, own, Relation::Peer, 0.7);
    let r = d.diagnose("^asker$");
    assert_eq!(way(&r), [1004, 1002, 1003, 1001], "{r:#?}");
}

/// A handler of a Python server wants a lock whose owner no state tells; one other thread is in one sleep all the time, or there
/// are two such, or one that has naps. The main thread accepts clients.
#[test]
fn who_sleeps_all_the_time_may_have_the_lock() {
    for (sleepers, naps, found) in [(1, false, true), (2, false, false), (1, true, false)] {
        let mut d = Drawing::new(5.0);
        let server = d.process("server", "server", None, 0.0);
        let handler = d.thread(server, "handler", 0.0);
        let listens = d.object(ObjectKind::Tcp, 80, 0, "");
        waits(&mut d, server, "accept4", listens);
        let stack = d.stack(&[
            "do_futex_wait (libc.so.6)",
            "PyThread_acquire_lock_timed (python3.11)",
            "handle (app.py:5)",
        ]);
        let lock = d.object(ObjectKind::Futex, 0x10, 1, "");
        d.wait(handler, 0.0, 5.0, "futex").on(lock).stack(stack).op(128 | 9, 0).before().open();
        for _ in 0..sleepers {
            let t = d.thread(server, "scrub", 0.0);
            if naps {
                d.naps(t, 0.0, 5.0, 0.5, stack);
            } else {
                waits(&mut d, t, "clock_nanosleep", ObjectId::NONE);
            }
        }
        let r = d.diagnose("^handler");
        assert_eq!(r.root_causes[0].tid == Some(1002), found, "{sleepers} {naps} {r:#?}");
    }
}
