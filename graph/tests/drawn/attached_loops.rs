//! Recordings that begin in the middle of a hang: whom an event loop had asked.

use crate::draw::Drawing;
use crate::draw::middle::{epoll, tcp, waits, way};
use pg_event::{Direction, ObjectKind, Relation, endpoint_v4};

/// An event loop has connections with two others, who wait for something of their own each. Only one of them had been asked
/// when the recording began: whose last message was the loop's.
#[test]
fn whom_an_event_loop_had_asked_before_is_known_by_the_connection() {
    for asked in [0, 1] {
        let mut d = Drawing::new(5.0);
        let (client, proxy) =
            (d.process("client", "client", None, 0.0), d.process("proxy", "proxy", None, 0.0));
        let others = ["first", "second"].map(|name| d.process(name, name, None, 0.0));
        let (own, far) = tcp(&mut d, 40_000, 80);
        let ends = [tcp(&mut d, 40_001, 8001), tcp(&mut d, 40_002, 8002)];
        d.catalog.objects[ends[asked].0.index()].unanswered = 3_000_000_000;
        let all = epoll(&mut d, &[far, ends[0].0, ends[1].0]);
        waits(&mut d, client, "recvfrom", own);
        d.hold(proxy, client, own, Relation::Peer, 0.7);
        waits(&mut d, proxy, "epoll_wait", all);
        d.hold(client, proxy, far, Relation::Peer, 0.7);
        for (t, (near, _)) in others.into_iter().zip(ends) {
            d.hold(t, proxy, near, Relation::Peer, 0.7);
            let file = d.object(ObjectKind::File, u64::from(near.0), 45, "/mnt/state");
            waits(&mut d, t, "fsync", file);
        }
        let r = d.diagnose("^client$");
        assert_eq!(r.questions.len(), 0, "{r:#?}");
        assert_eq!(way(&r), [1000, 1001, [1002, 1003][asked]], "{r:#?}");
        let why = r.slice[2].why_weak.as_deref().unwrap_or_default();
        assert!(why.ends_with("and was asked 3.00 s before the recording began"), "{why}");
    }
}

/// The same loop asks a third one for something each second, and is told at once: that is not what the client waits for.
#[test]
fn whom_a_loop_asks_each_second_is_beside_the_one_it_had_asked_before() {
    for works in [true, false] {
        let mut d = Drawing::new(5.0);
        let (client, proxy) =
            (d.process("client", "client", None, 0.0), d.process("proxy", "proxy", None, 0.0));
        let (backend, third) =
            (d.process("backend", "backend", None, 0.0), d.process("third", "third", None, 0.0));
        let (own, far) = tcp(&mut d, 40_000, 80);
        let (to_backend, from_proxy) = tcp(&mut d, 40_001, 8001);
        d.catalog.objects[to_backend.index()].unanswered = 3_000_000_000;
        let all = epoll(&mut d, &[far, to_backend]);
        let listener = d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0001, 8002), 0, "");
        waits(&mut d, client, "recvfrom", own);
        d.hold(proxy, client, own, Relation::Peer, 0.7);
        d.hold(client, proxy, far, Relation::Peer, 0.7);
        d.hold(backend, proxy, to_backend, Relation::Peer, 0.7);
        if works {
            let file = d.object(ObjectKind::File, 44, 45, "/mnt/state");
            waits(&mut d, backend, "fsync", file);
        } else {
            waits(&mut d, backend, "recvfrom", from_proxy);
        }
        let mut since = 0.0;
        for n in 0..5u16 {
            let at = f64::from(n) + 0.5;
            let (near, end) = tcp(&mut d, 40_010 + n, 8002);
            let w = d.wait(proxy, since, at, "epoll_wait").on(all);
            if n == 0 {
                w.before().timer();
            } else {
                w.timer();
            }
            d.message(proxy, near, Direction::Send, at + 0.001, 90);
            let w = d.wait(third, since, at + 0.002, "accept4").on(listener);
            if n == 0 { w.before() } else { w }.by_packet(proxy, "connect", near);
            d.message(third, end, Direction::Receive, at + 0.003, 90);
            d.message(third, end, Direction::Send, at + 0.004, 90);
            d.wait(proxy, at + 0.002, at + 0.005, "epoll_wait").on(all).by_packet(third, "write", near);
            d.message(proxy, near, Direction::Receive, at + 0.006, 90);
            since = at + 0.007;
        }
        d.wait(proxy, since, 5.0, "epoll_wait").on(all).open();
        d.wait(third, since, 5.0, "accept4").on(listener).open();
        let r = d.diagnose("^client$");
        assert_eq!(way(&r) == [1000, 1001, 1002], works, "{r:#?}");
    }
}

/// A proxy with two event loops may ask its back end for one request at a time: that of the other loop is there, and the
/// client's waits in the first one's queue.
#[test]
fn of_several_event_loops_the_one_that_asked_is_followed() {
    for asked in [true, false] {
        let mut d = Drawing::new(5.0);
        let (client, proxy) =
            (d.process("client", "client", None, 0.0), d.process("proxy", "proxy", None, 0.0));
        let other = d.thread(proxy, "proxy", 0.0);
        let backend = d.process("backend", "backend", None, 0.0);
        let (own, far) = tcp(&mut d, 40_000, 80);
        let (to_backend, _) = tcp(&mut d, 40_001, 8080);
        d.catalog.objects[to_backend.index()].unanswered = if asked { 2_000_000_000 } else { 0 };
        let (first, second) = (epoll(&mut d, &[far]), epoll(&mut d, &[to_backend]));
        waits(&mut d, client, "poll", own);
        d.hold(proxy, client, own, Relation::Peer, 0.7);
        waits(&mut d, proxy, "epoll_wait", first);
        d.hold(client, proxy, far, Relation::Peer, 0.7);
        waits(&mut d, other, "epoll_wait", second);
        d.hold(backend, other, to_backend, Relation::Peer, 0.7);
        let sum = d.stack(&["sum (backend)", "main (backend)"]);
        d.runs(backend, 0.0, 5.0, sum);
        let r = d.diagnose("^client$");
        assert_eq!(way(&r), if asked { vec![1000, 1001, 1002, 1003] } else { vec![1000, 1001] }, "{r:#?}");
    }
}
