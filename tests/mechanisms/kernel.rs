//! Waits inside the kernel, and for the threads of a pool.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, Relation};
use pg_graph::EdgeKind;

fn kernel(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("kernel", ""), role, holds);
}

#[test]
fn a_ring_that_reads_a_pipe() {
    kernel("a_ring_that_reads_a_pipe", "uring.reader", |t| {
        let w = t.wait("uring.reader");
        w.within("io_uring_enter").on(ObjectKind::Pipe).ended_by("uring.writer", EdgeKind::Ipc, None);
        w.held_by("uring.writer", Relation::Writes).caused_by("uring.writer");
    });
}

#[test]
fn a_ring_that_receives() {
    kernel("a_ring_that_receives", "uringsock.recv", |t| {
        let w = t.wait("uringsock.recv");
        w.within("io_uring_enter").on(ObjectKind::UnixStream).ended_by("uringsock.send", EdgeKind::Ipc, None);
        w.held_by("uringsock.send", Relation::Peer).caused_by("uringsock.send");
    });
}

#[test]
fn a_ring_that_polls() {
    kernel("a_ring_that_polls", "uringpoll.wait", |t| {
        let w = t.wait("uringpoll.wait");
        w.within("io_uring_enter").on(ObjectKind::Pipe).ended_by("uringpoll.write", EdgeKind::Ipc, None);
        w.held_by("uringpoll.write", Relation::Writes).caused_by("uringpoll.write");
    });
}

#[test]
fn a_page_that_another_thread_brings() {
    kernel("a_page_that_another_thread_brings", "fault.toucher", |t| {
        let w = t.wait("fault.toucher");
        w.called("page-fault").ended_by("fault.handler", EdgeKind::WakeUp, None).caused_by("fault.handler");
    });
}

#[test]
fn a_group_whose_memory_is_used_up() {
    kernel("a_group_whose_memory_is_used_up", "memory.short", |t| {
        let w = t.wait("memory.short");
        w.called("memory-reclaim").ended_by("memory.giver", EdgeKind::WakeUp, None);
        // Who raised the limit ended that; the limit is what it waited for.
        w.caused_by("memory.short").says("memory.limit_in_bytes").says("OOM killer is disabled");
    });
}

#[test]
fn a_pool_whose_worker_is_busy() {
    kernel("a_pool_whose_worker_is_busy", "pool.second", |t| {
        let w = t.wait("pool.second");
        w.on(ObjectKind::Futex).caused_by("pool.worker");
    });
}
