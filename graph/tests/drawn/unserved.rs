//! Connections that were not served: who is the victim, and what is said of it.

use crate::draw::{Drawing, ns};
use pg_event::{Display, ObjectId, ObjectKind, ThreadId};
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

/// A window's thread waits three seconds for a lock of a worker (or idles) while its events pile up; another
/// program's longer wait for a lock would come before it.
fn drawn(display: Display, wait_in: &str) -> (Drawing, [ThreadId; 3], ObjectId) {
    let mut d = Drawing::new(20.0);
    let gui = d.process("editor", "editor a.txt", None, 0.0);
    let worker = d.thread(gui, "saver", 0.0);
    let other = d.process("batch", "batch", None, 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 1, "");
    let far = d.object(ObjectKind::Futex, 0x20, 3, "");
    let x = d.object(ObjectKind::UnixStream, 5, 6, "@/tmp/.X11-unix/X0");
    let poll = d.object(ObjectKind::Epoll, 7, 0, "");
    d.wait(gui, 0.1, 5.0, "epoll_wait").on(poll).timer();
    let on = if wait_in == "epoll_wait" { poll } else { lock };
    d.wait(gui, 5.01, 8.0, wait_in).on(on).by(worker, "futex", lock);
    d.wait(gui, 8.1, 19.9, "epoll_wait").on(poll).timer();
    d.wait(worker, 0.1, 5.02, "epoll_wait").on(poll).timer();
    d.wait(worker, 8.02, 19.9, "epoll_wait").on(poll).timer();
    d.wait(other, 0.1, 4.0, "futex").on(far).timer();
    d.wait(other, 4.1, 19.9, "clock_nanosleep").timer();
    d.unserved(gui, x, (5.2, 8.0), display);
    (d, [gui, worker, other], x)
}

#[test]
fn a_window_that_does_not_answer_is_the_victim() {
    for call in ["futex", "epoll_wait"] {
        let (d, [gui, ..], x) = drawn(Display::X11, call);
        let (g, c) = d.build();
        let all = g.unserved();
        assert_eq!((all.len(), all[0].object, all[0].duration()), (1, x, ns(8.0) - ns(5.2)));
        let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
        assert_eq!(v.thread, gui, "{call}: {}", v.summary);
        // Waits of an idle loop that follow each other are one.
        let covers = v.start <= ns(5.2) && v.end() >= ns(8.0);
        assert!(covers && (call != "futex" || v.start == ns(5.01)), "{call}: {} {}", v.start, v.end());
        assert_eq!(v.unserved, Some(all[0]), "the list says by what it was found");
        let r = run_with_policy(&g, &c, v, Options::default());
        let said = r.victim.unserved.unwrap();
        assert_eq!(
            said,
            "its event queue was not served for 2.80 s from 5.200 s on: 64 B from the X server waited \
             (unix:@/tmp/.X11-unix/X0); by that it was found"
        );
    }
}

/// Of another connection: who waits for a lock is it, who idles beside it may have its reasons.
#[test]
fn another_connection_makes_nobody_guilty_who_idles() {
    let (d, [gui, ..], _) = drawn(Display::None, "futex");
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(v.thread, gui, "{}", v.summary);
    let r = run_with_policy(&g, &c, v, Options::default());
    assert!(
        r.victim
            .unserved
            .unwrap()
            .starts_with("64 B that came over a connection were not received for 2.80 s")
    );
    let (d, [_, _, other], _) = drawn(Display::None, "epoll_wait");
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(v.thread, other, "{}", v.summary);
    assert_eq!(v.unserved, None);
    assert_eq!(run_with_policy(&g, &c, v, Options::default()).victim.unserved, None);
}

/// Nobody accepts while the thread that listens waits for a lock.
#[test]
fn connections_that_nobody_accepts_are_told() {
    let mut d = Drawing::new(20.0);
    let server = d.process("srv", "srv", None, 0.0);
    let other = d.process("batch", "batch", None, 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 1, "");
    let far = d.object(ObjectKind::Futex, 0x20, 3, "");
    let listener = d.object(ObjectKind::UnixStream, 5, 0, "/run/srv");
    d.wait(server, 0.1, 5.0, "accept4").on(listener).timer();
    d.wait(server, 5.01, 8.0, "futex").on(lock).timer();
    d.wait(server, 8.1, 19.9, "accept4").on(listener).timer();
    d.wait(other, 0.1, 4.5, "futex").on(far).timer();
    d.wait(other, 4.6, 19.9, "clock_nanosleep").timer();
    d.unserved(server, listener, (5.2, 8.0), Display::None);
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!((v.thread, v.unserved), (server, Some(g.unserved()[0])), "{}", v.summary);
    let said = run_with_policy(&g, &c, v, Options::default()).victim.unserved.unwrap();
    assert_eq!(
        said,
        "64 connections to it were not accepted for 2.80 s from 5.200 s on (unix:/run/srv); by that it was found"
    );
}

/// Told while it goes on and when it ended: one fact, the last.
#[test]
fn later_words_replace_earlier_ones() {
    let mut d = Drawing::new(20.0);
    let gui = d.process("editor", "editor", None, 0.0);
    let x = d.object(ObjectKind::UnixStream, 5, 6, "");
    for until in [3.0, 4.0, 6.5] {
        d.unserved(gui, x, (2.0, until), Display::Wayland);
    }
    d.unserved(gui, x, (8.0, 9.5), Display::Wayland);
    let (g, _) = d.build();
    let spans: Vec<_> = g.unserved().iter().map(|u| (u.since, u.until)).collect();
    assert_eq!(spans, [(ns(2.0), ns(6.5)), (ns(8.0), ns(9.5))]);
}
