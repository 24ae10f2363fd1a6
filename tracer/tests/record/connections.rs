//! Pipes, sockets and event counters: which end is which, and what had been asked over one before.

use crate::{allowed, both_ways, joined, options, recorded, recorded_by};
use pg_event::{Context, Kind, ObjectKind, OffState};
use pg_tracer::Level;
#[test]
fn both_ends_of_a_pipe_are_one_object() {
    if !allowed("both_ends_of_a_pipe_are_one_object") {
        return;
    }
    recorded("pipe", &options(Level::Messages), |r| {
        let w = r.wait("self", "read");
        let o = r.object(w.object);
        assert_eq!((o.kind, o.id), (ObjectKind::Pipe, r.fact("inode")));
        assert_eq!(w.waker, r.thread("other"));
        assert_eq!(w.waker_object, w.object);
        assert!(w.waker_syscall.is_any(&["write"]));
        assert_eq!(w.waker_context, Context::Task);
        assert_eq!(w.state, OffState::Interruptible);
        let stack = r.shown(w.user_stack);
        assert!(stack.contains("read") && stack.contains("pipe"), "{stack}");
        let kernel = r.shown(w.kernel_stack);
        assert!(kernel.contains("pipe_read"), "{kernel}");
        assert!(r.shown(w.waker_stack).contains("pipe"), "{}", r.shown(w.waker_stack));
    });
}

#[test]
fn unix_sockets_know_their_peer() {
    if !allowed("unix_sockets_know_their_peer") {
        return;
    }
    recorded("unix", &options(Level::Messages), |r| {
        let w = r.wait("self", "recvfrom");
        let (mine, theirs) = (r.object(w.object), r.object(w.waker_object));
        assert_eq!((mine.kind, mine.id, mine.peer), (ObjectKind::UnixStream, r.fact("a"), r.fact("b")));
        assert!(mine.is_other_end_of(theirs), "{theirs:?}");
        assert_eq!(w.waker, r.thread("other"));
    });
}

#[test]
fn tcp_over_the_loopback_names_ports_and_bytes() {
    if !allowed("tcp_over_the_loopback_names_ports_and_bytes") {
        return;
    }
    for options in both_ways(Level::Messages) {
        recorded("tcp", &options, |r| {
            let w = r.wait("self", "recvfrom");
            let (mine, theirs) = (r.object(w.object), r.object(w.waker_object));
            assert_eq!(
                (mine.kind, mine.id & 0xffff, mine.peer & 0xffff),
                (ObjectKind::Tcp, r.fact("a"), r.fact("b"))
            );
            assert!(mine.is_other_end_of(theirs), "{theirs:?}");
            // The packet is delivered by a soft interrupt inside the sender's own call.
            assert_eq!((w.waker, w.waker_context), (r.thread("other"), Context::NetRx));
            assert!(w.waker_syscall.is_any(&["sendto"]), "{:?}", w.waker_syscall);
            let uses = |fact: &str| -> Vec<_> {
                let thread = r.thread(fact);
                r.events
                    .iter()
                    .filter(|e| e.thread == thread)
                    .filter_map(|e| if let Kind::Ipc(u) = e.kind { Some(u) } else { None })
                    .collect()
            };
            let sent = uses("other")
                .into_iter()
                .find(|u| u.direction == pg_event::Direction::Send)
                .expect("nothing sent");
            let got = uses("self")
                .into_iter()
                .find(|u| u.direction == pg_event::Direction::Receive)
                .expect("nothing got");
            assert_eq!((sent.bytes, got.bytes, sent.count, got.count), (5, 5, 1, 1));
            assert_eq!(sent.position, got.position, "the same byte has the same position at both ends");
            assert_eq!((sent.object, got.object), (w.waker_object, w.object));
        });
    }
}

#[test]
fn an_eventfd_is_the_same_for_all() {
    if !allowed("an_eventfd_is_the_same_for_all") {
        return;
    }
    recorded("eventfd", &options(Level::Messages), |r| {
        let w = r.wait("self", "read");
        assert_eq!(r.object(w.object).kind, ObjectKind::EventFd);
        assert_eq!((w.waker, w.waker_object), (r.thread("other"), w.object));
    });
}

#[test]
fn what_had_been_asked_over_a_connection_before_is_known() {
    if !allowed("what_had_been_asked_over_a_connection_before_is_known") {
        return;
    }
    recorded_by(
        || joined("asked"),
        |r| {
            let (_, w) = *r.waits("self", "poll").last().expect("the wait is missing");
            let members = &r.object(w.object).members;
            let since = |name: &str| {
                let end = |o: &&pg_event::ObjectId| r.object(**o).id & 0xffff == r.fact(name);
                r.object(*members.iter().find(end).expect("a member")).unanswered
            };
            assert_eq!(since("told"), 0);
            // It was asked, and the program waited, a tenth of a second before.
            assert!((80_000_000..10_000_000_000).contains(&since("asks")), "{}", since("asks"));
        },
    );
}
