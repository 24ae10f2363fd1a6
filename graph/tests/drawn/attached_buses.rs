//! A recording that comes late to a bus: its clients had asked before it began.

use crate::draw::bus::Bus;
use crate::draw::middle::{epoll, tcp, waits};
use crate::draw::{Drawing, slice};
use pg_event::{ObjectKind, Relation};

/// Where a service is that asks another one over the bus in the middle of what it was asked for.
const IN_A_HANDLER: [&str; 5] = [
    "poll (libc.so.6)",
    "dbus_connection_send_with_reply_and_block (libdbus-1.so.3)",
    "total (shop)",
    "dbus_connection_dispatch (libdbus-1.so.3)",
    "main (shop)",
];

/// A bus that all of these wait at since before the recording: `call`, as many that serve and ask as `serving` says, and
/// the rest idles.
fn late(clients: &[&str], serving: usize) -> Bus {
    let mut b = Bus::new(clients);
    let asks = b.d.stack(&IN_A_HANDLER);
    let own = b.d.stack(&["poll (libc.so.6)", "dbus_connection_send_with_reply_and_block (libdbus-1.so.3)"]);
    let idles = b.d.stack(&["poll (libc.so.6)", "loop_run (idler)", "main (idler)"]);
    let other = b.d.object(pg_event::ObjectKind::EventFd, 500, 0, "");
    for (n, (t, end, far)) in b.ends.clone().into_iter().enumerate() {
        let (stack, on) = match n {
            0 => (own, end),
            n if n <= serving => (asks, end),
            _ => (idles, b.d.set(&[end, other])),
        };
        b.d.catalog.objects[end.index()].connected = true;
        b.d.wait(t, 0.0, 20.0, "poll").on(on).stack(stack).before().open();
        b.d.hold(b.daemon, t, end, Relation::Peer, 1.0);
        b.d.hold(t, b.daemon, far, Relation::Peer, 1.0);
    }
    b
}

/// Two services wait for answers over the bus in the middle of what they do, and whoever else is there idles: they wait for
/// one another.
#[test]
fn services_that_had_asked_each_other_over_a_bus_are_a_circle() {
    let r = late(&["call Total", "shop serve", "bank serve", "idler serve"], 2).diagnose("^call ");
    assert_eq!(slice(&r), ["busd", "shop serve", "bank serve", "shop serve"], "{r:#?}");
    assert!(r.root_causes[0].why.contains("circular"), "{r:#?}");
}

/// Whom the only one of that kind had asked is not known.
#[test]
fn whom_a_service_had_asked_over_a_bus_is_not_known() {
    let r = late(&["call Total", "shop serve", "idler serve"], 1).diagnose("^call ");
    assert_eq!(slice(&r), ["busd", "shop serve"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("shop"), "{r:#?}");
    assert!(!r.root_causes[0].why.contains("circular"), "{r:#?}");
}

/// Somebody who idles at the bus was not necessarily asked.
#[test]
fn who_idles_at_a_bus_is_not_blamed_by_a_late_recording() {
    for others in [1, 3] {
        let clients = ["call Total", "idler one", "idler two", "idler three"];
        let r = late(&clients[..=others], 0).diagnose("^call ");
        assert_eq!(slice(&r), ["busd"], "{r:#?}");
        let why = &r.root_causes[0].why;
        assert!(why.contains("a recording from the beginning tells"), "{why}");
    }
}

/// Somebody else there works for who asked, or may: that two services ask each other then explains nothing.
#[test]
fn who_waits_for_a_lock_at_a_bus_may_have_been_asked() {
    let mut b = late(&["call Total", "shop serve", "bank serve"], 2);
    let p = b.d.process("print", "printd", None, 0.0);
    let far = b.d.object(pg_event::ObjectKind::UnixStream, 802, 801, "/run/bus");
    b.d.hold(p, b.daemon, far, Relation::Peer, 1.0);
    let lock = b.d.object(pg_event::ObjectKind::FileLock, 70, 0, "/var/lock/x");
    b.d.wait(p, 0.0, 20.0, "fcntl").on(lock).before().open();
    let r = b.diagnose("^call ");
    assert!(!r.root_causes[0].why.contains("circular"), "{r:#?}");
}

/// A broker that had been asked before the recording, with a helper that reads what it writes, a server of names that it is
/// connected with, and consumers: the one that waits for somebody else works. Which of two that do is asked.
#[test]
fn the_only_consumer_of_a_broker_that_works_may_have_the_request() {
    for workers in [1, 2] {
        let mut d = Drawing::new(5.0);
        let (client, broker) =
            (d.process("client", "client", None, 0.0), d.process("broker", "broker", None, 0.0));
        let main = d.thread(broker, "main", 0.0);
        let (own, theirs) = tcp(&mut d, 40_000, 5672);
        let mut watched = vec![theirs];
        waits(&mut d, client, "epoll_wait", own);
        d.hold(broker, client, own, Relation::Peer, 0.7);
        // Asked by one pipe, it answers by another one.
        let helper = d.process("helper", "helper", Some(broker), 0.0);
        let (asks, says) = (d.object(ObjectKind::Pipe, 8, 8, ""), d.object(ObjectKind::Pipe, 9, 9, ""));
        watched.push(says);
        waits(&mut d, helper, "read", asks);
        d.hold(main, helper, asks, Relation::Writes, 0.9);
        d.hold(helper, broker, says, Relation::Writes, 0.9);
        let names = d.process("names", "names", None, 0.0);
        let (to_names, at_names) = tcp(&mut d, 40_001, 4369);
        watched.push(to_names);
        let all = d.object(ObjectKind::Set, 6, 0, "");
        d.catalog.objects[all.index()].members = vec![at_names];
        waits(&mut d, names, "select", all);
        d.hold(names, broker, to_names, Relation::Peer, 0.9);
        for n in 0..3u16 {
            let consumer = d.process("consumer", &format!("consumer {n}"), None, 0.0);
            let (own, far) = tcp(&mut d, 40_010 + n, 5672);
            watched.push(far);
            d.hold(consumer, broker, far, Relation::Peer, 0.9);
            d.hold(broker, consumer, own, Relation::Peer, 0.9);
            if n < workers {
                let prices = d.process("prices", "prices", None, 0.0);
                let (to_prices, _) = tcp(&mut d, 40_020 + n, 80);
                waits(&mut d, consumer, "recvfrom", to_prices);
                d.hold(prices, consumer, to_prices, Relation::Peer, 0.9);
                let sum = d.stack(&["sum (prices)", "main (prices)"]);
                d.runs(prices, 0.0, 5.0, sum);
            } else {
                waits(&mut d, consumer, "recvfrom", own);
            }
        }
        let set = epoll(&mut d, &watched);
        waits(&mut d, broker, "epoll_wait", set);
        d.wait(main, 0.0, 5.0, "select").before().open();
        let r = d.diagnose("^client$");
        let steps = slice(&r);
        assert_eq!(r.questions.len(), usize::from(workers == 2), "{r:#?}");
        assert_eq!(steps.last().map(String::as_str), Some("prices"), "{r:#?}");
    }
}
