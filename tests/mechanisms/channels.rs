//! Pipes, FIFOs, terminals, unix sockets, counters, queues.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, Relation};
use pg_graph::EdgeKind;

fn channel(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("channels", ""), role, holds);
}

#[test]
fn an_empty_pipe() {
    channel("an_empty_pipe", "pipe.reader", |t| {
        let w = t.wait("pipe.reader");
        w.on(ObjectKind::Pipe).ended_by("pipe.writer", EdgeKind::Ipc, None);
        w.held_by("pipe.writer", Relation::Writes).caused_by("pipe.writer");
    });
}

#[test]
fn a_full_pipe() {
    channel("a_full_pipe", "pipefull.writer", |t| {
        let w = t.wait("pipefull.writer");
        w.on(ObjectKind::Pipe).ended_by("pipefull.reader", EdgeKind::Ipc, None);
        w.held_by("pipefull.reader", Relation::Reads).caused_by("pipefull.reader");
    });
}

#[test]
fn a_fifo() {
    channel("a_fifo", "fifo.reader", |t| {
        let w = t.wait("fifo.reader");
        w.on(ObjectKind::Fifo).ended_by("fifo.writer", EdgeKind::Ipc, None);
        w.held_by("fifo.writer", Relation::Writes).caused_by("fifo.writer");
    });
}

#[test]
fn a_fifo_that_nobody_has_opened_at_the_other_end() {
    channel("a_fifo_that_nobody_has_opened_at_the_other_end", "fifoopen.first", |t| {
        let w = t.wait("fifoopen.first");
        w.ended_by("fifoopen.second", EdgeKind::Ipc, None).caused_by("fifoopen.second");
    });
}

#[test]
fn fifos_opened_crosswise_by_two() {
    channel("fifos_opened_crosswise_by_two", "crossed.left", |t| {
        for (one, other) in [("crossed.left", "crossed.right"), ("crossed.right", "crossed.left")] {
            t.wait(one).called("pipe").lasted().held_by_nobody();
            let report = t.diagnose(one);
            let first = &report.root_causes[0];
            let both = [t.ids(one).1, t.ids(other).1];
            assert!(first.tid.is_some_and(|t| both.contains(&t)), "{first:?}");
            assert!(first.why.starts_with("circular wait"), "{}", first.why);
            let circle: Vec<u32> = report.circle.iter().map(|&i| report.slice[i].tid).collect();
            assert_eq!(circle, both, "{}", first.why);
        }
    });
}

#[test]
fn a_terminal() {
    channel("a_terminal", "tty.program", |t| {
        let w = t.wait("tty.program");
        w.on(ObjectKind::Tty).held_by("tty.emulator", Relation::Peer).innocent();
        // A worker of the kernel carries it; where the writer did so itself, the edge is its own.
        w.ended_for("tty.emulator");
    });
}

#[test]
fn a_unix_stream() {
    channel("a_unix_stream", "unix.reader", |t| {
        let w = t.wait("unix.reader");
        w.on(ObjectKind::UnixStream).ended_by("unix.writer", EdgeKind::Ipc, None);
        w.held_by("unix.writer", Relation::Peer).caused_by("unix.writer");
    });
}

#[test]
fn a_full_unix_stream() {
    channel("a_full_unix_stream", "unixfull.writer", |t| {
        let w = t.wait("unixfull.writer");
        w.on(ObjectKind::UnixStream).ended_by("unixfull.reader", EdgeKind::Ipc, None);
        w.held_by("unixfull.reader", Relation::Peer).caused_by("unixfull.reader");
    });
}

#[test]
fn a_unix_datagram() {
    channel("a_unix_datagram", "dgram.reader", |t| {
        let w = t.wait("dgram.reader");
        w.on(ObjectKind::UnixDatagram).ended_by("dgram.writer", EdgeKind::Ipc, None);
        w.held_by("dgram.writer", Relation::Peer).caused_by("dgram.writer");
    });
}

#[test]
fn a_unix_packet() {
    channel("a_unix_packet", "packet.reader", |t| {
        let w = t.wait("packet.reader");
        w.on(ObjectKind::UnixStream).ended_by("packet.writer", EdgeKind::Ipc, None);
        w.held_by("packet.writer", Relation::Peer).caused_by("packet.writer");
    });
}

#[test]
fn an_event_counter() {
    channel("an_event_counter", "eventfd.reader", |t| {
        let w = t.wait("eventfd.reader");
        w.on(ObjectKind::EventFd).ended_by("eventfd.writer", EdgeKind::Ipc, None);
        w.held_by("eventfd.writer", Relation::Writes).caused_by("eventfd.writer");
    });
}

#[test]
fn a_system_v_queue() {
    channel("a_system_v_queue", "sysvmsg.receiver", |t| {
        let w = t.wait("sysvmsg.receiver");
        w.called("sysv-ipc").ended_by("sysvmsg.sender", EdgeKind::Ipc, None).caused_by("sysvmsg.sender");
    });
}

#[test]
fn a_system_v_semaphore() {
    channel("a_system_v_semaphore", "sysvsem.waiter", |t| {
        let w = t.wait("sysvsem.waiter");
        w.called("sysv-ipc").ended_by("sysvsem.poster", EdgeKind::Ipc, None).caused_by("sysvsem.poster");
    });
}

#[test]
fn a_posix_queue() {
    channel("a_posix_queue", "mq.receiver", |t| {
        let w = t.wait("mq.receiver");
        w.called("sysv-ipc").ended_by("mq.sender", EdgeKind::Ipc, None).caused_by("mq.sender");
    });
}
