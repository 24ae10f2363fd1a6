//! A server that hands the requests of one client on to another.

use crate::draw::bus::Bus;
use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectId, ObjectKind, Relation};

/// Two services ask each other within a call: each waits for the other until the time-out of one.
#[test]
fn services_that_ask_each_other_wait_in_a_circle() {
    let mut b = Bus::new(&["call Total", "shop serve", "bank serve"]);
    b.send(0, 1, 1.0);
    b.waits(1, 0.5, 1.003);
    // The shop asks the bank, and that one the shop.
    b.waits(2, 0.5, 1.013);
    b.send(1, 2, 1.01);
    b.waits(1, 1.011, 1.023);
    b.send(2, 1, 1.02);
    let (shop, own, _) = b.ends[1];
    b.d.wait(shop, 1.024, 13.0, "poll").on(own).times_out();
    b.d.hold(b.daemon, shop, own, Relation::Peer, 3.0);
    b.waits(0, 1.001, 13.013);
    b.send(1, 0, 13.01);
    b.waits(2, 1.021, 13.023);
    b.send(1, 2, 13.02);
    b.idle_from_then_on();
    let r = b.diagnose("^call ");
    assert_eq!(slice(&r), ["busd", "shop serve", "bank serve", "shop serve"], "{r:#?}");
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("bank"), "{r:#?}");
    assert!(c.why.contains("circular") && c.why.contains("shop"), "{}", c.why);
    assert!(c.why.contains("a time-out broke it"), "{}", c.why);
    assert_eq!(r.circle.len(), 2, "{r:#?}");
}

/// The service that was asked by way of the bus computes; the client gives up meanwhile.
#[test]
fn who_was_handed_the_request_is_found_behind_the_server() {
    let mut b = Bus::new(&["call Total", "shop serve", "idler serve"]);
    // Both were asked before, and the idler told somebody something in between.
    b.waits(2, 0.2, 0.503);
    b.send(0, 2, 0.5);
    b.waits(1, 0.2, 1.003);
    b.send(0, 1, 1.0);
    let work = b.d.stack(&["add_up (shop)", "main (shop)"]);
    let (shop, shops, _) = b.ends[1];
    b.d.runs(shop, 1.004, 16.0, work);
    let (call, own, _) = b.ends[0];
    b.d.wait(call, 1.001, 13.0, "poll").on(own).times_out();
    b.d.hold(b.daemon, call, own, Relation::Peer, 3.0);
    b.d.wait(shop, 16.0, 20.0, "poll").on(shops).open();
    let (idler, idlers, _) = b.ends[2];
    b.d.wait(idler, 0.51, 20.0, "poll").on(idlers).open();
    let r = b.diagnose("^call ");
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.function.as_deref()), (Some("shop"), Some("add_up")), "{r:#?}");
    assert_eq!(slice(&r), ["busd", "shop serve"], "{r:#?}");
}

/// A client of a display server grabs it and waits for a person; others get no answer until it is killed.
#[test]
fn whose_end_lets_a_server_answer_had_kept_it() {
    let mut b = Bus::new(&["xset q", "twm", "xterm"]);
    let script = b.d.process("bash", "bash run", None, 0.0);
    let (twm, twms, _) = b.ends[1];
    // The manager has the server, tells it something, and waits for a click.
    b.send(1, 2, 0.5);
    b.d.wait(twm, 0.51, 13.0, "poll").on(twms).interrupted();
    b.send(0, 0, 1.0);
    let (xset, own, far) = b.ends[0];
    b.d.signal(script, twm, 9, 12.999);
    b.d.exit(twm, 13.0012);
    b.d.wait(b.daemon, b.idle, 13.001, "epoll_wait").on(b.epoll).by(twm, "exit_group", twms);
    b.idle = 13.003;
    b.d.message(b.daemon, far, Direction::Send, 13.002, 32);
    b.waits(0, 1.01, 13.0021);
    b.d.hold(b.daemon, xset, own, Relation::Peer, 3.0);
    for n in 0..3 {
        let (client, _, far) = b.ends[n];
        b.d.hold(client, b.daemon, far, Relation::Peer, 3.0);
    }
    b.d.wait(xset, 13.01, 20.0, "pause").open();
    let (xterm, xterms, _) = b.ends[2];
    b.d.wait(xterm, 0.51, 20.0, "poll").on(xterms).open();
    let r = b.diagnose("^xset ");
    assert_eq!(slice(&r), ["busd", "twm"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("twm"), "{r:#?}");
    assert!(r.circle.is_empty(), "{r:#?}");
}

/// A runtime's thread parks, is woken by the one that watches all descriptors when a timer is due, and watches them itself
/// from then on: the answer that it gives is to what it saw there.
#[test]
fn who_takes_over_the_watch_of_descriptors_was_not_waiting_for_its_turn() {
    let mut d = Drawing::new(16.0);
    let client = d.process("ask", "ask", None, 0.0);
    let (worker, store) = (d.process("rt", "rt", None, 0.0), d.process("store", "store", None, 0.0));
    let watcher = d.thread(worker, "rt", 0.0);
    let end = |d: &mut Drawing, a, b| d.object(ObjectKind::Tcp, a, b, "");
    let (mine, theirs) = (end(&mut d, 1, 2), end(&mut d, 2, 1));
    let (asked, asks) = (end(&mut d, 3, 4), end(&mut d, 4, 3));
    let (listens, other) = (end(&mut d, 9, 0), end(&mut d, 8, 7));
    let all = d.set(&[theirs, asks, listens, other]);
    let parked = d.object(ObjectKind::Futex, 0xc00, 0, "");
    d.message(client, mine, Direction::Send, 1.0, 80);
    d.wait(watcher, 0.1, 1.001, "epoll_pwait").on(all).by(client, "sendto", mine);
    d.message(watcher, theirs, Direction::Receive, 1.002, 80);
    d.message(watcher, asks, Direction::Send, 1.003, 80);
    let busy = d.stack(&["look_up (store)", "main (store)"]);
    d.runs(store, 1.004, 13.0, busy);
    // The watcher's timer.
    d.wait(worker, 0.1, 10.0, "futex").on(parked).by(watcher, "futex", parked);
    d.wait(watcher, 1.005, 9.999, "epoll_pwait").on(all).times_out();
    d.wait(worker, 10.0001, 13.001, "epoll_pwait").on(all).by(store, "write", asked);
    d.message(store, asked, Direction::Send, 13.0, 40);
    d.message(worker, asks, Direction::Receive, 13.002, 40);
    d.message(worker, theirs, Direction::Send, 13.003, 40);
    d.wait(client, 1.0001, 13.003, "poll").on(mine).by(worker, "write", theirs);
    for (t, from) in [(watcher, 10.001), (worker, 13.01), (store, 13.01), (client, 13.01)] {
        d.wait(t, from, 16.0, "futex").on(parked).open();
    }
    let r = d.diagnose("ask");
    assert_eq!(slice(&r), ["rt", "store"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("store"), "{:?}", r.root_causes[0].why);
    assert!(r.root_causes[0].why.contains("12.0 s"), "{:?}", r.root_causes[0].why);
}

/// A client asks a display server for something that another client, the manager of its windows, is to do, and looks
/// again and again whether that is done. The manager is stopped.
#[test]
fn who_looks_whether_it_is_done_asked_for_it_before() {
    for stopped in [true, false] {
        let mut b = Bus::new(&["activate one", "manager", "idler"]);
        let (client, own, far) = b.ends[0];
        let (manager, managers, _) = b.ends[1];
        let script = b.d.process("bash", "bash run", None, 0.0);
        b.send(0, 1, 1.0);
        if stopped {
            b.d.wait(manager, 0.5, 13.0, "poll").on(managers).state(pg_event::OffState::Stopped).by(
                script,
                "kill",
                ObjectId::NONE,
            );
        } else {
            b.waits(1, 0.5, 1.003);
        }
        let mut t = 1.01;
        let nap = b.d.stack(&["usleep (libc.so.6)", "wait_until_active (activate)", "main (activate)"]);
        while t < 12.9 {
            b.d.message(client, own, Direction::Send, t, 20);
            let idle = std::mem::replace(&mut b.idle, t + 0.0006);
            b.d.wait(b.daemon, idle, t + 0.0002, "epoll_wait").on(b.epoll).by(client, "writev", own);
            b.d.message(b.daemon, far, Direction::Receive, t + 0.0003, 20);
            b.d.message(b.daemon, far, Direction::Send, t + 0.0005, 20);
            b.d.wait(client, t + 0.0001, t + 0.0007, "poll").on(own).by(b.daemon, "writev", far);
            b.d.wait(client, t + 0.001, t + 0.031, "clock_nanosleep").stack(nap).times_out();
            t += 0.0315;
        }
        b.d.hold(b.daemon, client, own, Relation::Peer, 3.0);
        for n in [1, 2] {
            let (t, own, _) = b.ends[n];
            b.d.wait(t, if n == 1 && stopped { 13.1 } else { 1.1 }, 20.0, "poll").on(own).open();
        }
        let r = b.diagnose("^activate ");
        let first = r.root_causes[0].process.as_deref();
        if stopped {
            assert_eq!(first, Some("manager"), "{r:#?}");
            assert!(r.root_causes[0].why.contains("stopped"), "{r:#?}");
        } else {
            assert_ne!(first, Some("manager"), "{r:#?}");
        }
    }
}

/// A thread has a helper wait for a child, and waits for the helper with a time-out; other threads of the process turn over
/// and over meanwhile, and one of them woke it before. Helpers that wait for work are none.
#[test]
fn who_was_given_work_just_before_is_waited_for() {
    for class in ["wait4", "futex"] {
        let mut d = Drawing::new(14.0);
        let client = d.process("ask", "ask", None, 0.0);
        let main = d.process("appd", "appd", None, 0.0);
        let worker = d.thread(main, "worker", 0.1);
        let vm = d.thread(main, "vm", 0.1);
        let helper = d.thread(main, "helper", 0.1);
        let child = d.process("find", "find /usr", Some(main), 0.95);
        let (near, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
        let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
        let of_child = d.object(ObjectKind::Child, 1005, 0, "");
        let futex = |d: &mut Drawing, id| d.object(ObjectKind::Futex, id, 1001, "");
        let (done, work, tick) = (futex(&mut d, 0x10), futex(&mut d, 0x20), futex(&mut d, 0x30));
        let park = d.stack(&["pthread_cond_timedwait (libc.so.6)", "park (appd)", "main (appd)"]);
        let private = 128 | 9;
        let ended = d.object(ObjectKind::Futex, 0x40, 1001, "");
        d.wait(main, 0.1, 14.0, "futex").on(ended).op(128 | 9, 1003).open();
        // So it went before: the VM's own thread woke it.
        d.wait(worker, 0.2, 0.5, "futex").on(done).op(private, 0).stack(park).by(vm, "futex", done);
        let mut t = 0.51;
        while t < 13.5 {
            d.wait(vm, t, t + 0.9, "futex").on(tick).op(private, 0).stack(park).times_out();
            t += 0.9001;
        }
        d.spawn(worker, child, 0.95);
        d.wait(child, 0.98, 14.0, "write").on(pipe).open();
        d.message(client, near, Direction::Send, 2.0, 20);
        d.wait(helper, 0.2, 0.99, "futex").on(work).op(private, 0).stack(park).by(worker, "futex", work);
        match class {
            "wait4" => d.wait(helper, 0.992, 14.0, "wait4").on(of_child).open(),
            _ => d.wait(helper, 0.992, 14.0, "futex").on(work).op(private, 0).stack(park).open(),
        }
        d.hold(child, helper, of_child, Relation::ChildOf, 2.5);
        d.hold(main, child, pipe, Relation::Reads, 2.5);
        d.wait(worker, 1.0, 13.0, "futex").on(done).op(private, 0).stack(park).times_out();
        d.wait(client, 2.001, 13.01, "recvfrom").on(near).by_packet(worker, "sendto", far);
        let r = d.diagnose("^ask$");
        let names: Vec<_> = r.slice.iter().map(|n| n.thread.as_str()).collect();
        if class == "wait4" {
            assert_eq!(names, ["ask", "worker", "helper", "find", "helper"], "{r:#?}");
            assert!(r.questions.is_empty(), "{r:#?}");
            let c = &r.root_causes[0];
            assert_eq!(c.process.as_deref(), Some("find"), "{r:#?}");
            assert!(c.why.starts_with("circular wait"), "{}", c.why);
        } else {
            assert!(!names.contains(&"find"), "{r:#?}");
        }
    }
}

/// A client asks an authority by way of a bus, which asks an agent: one thread of that one takes its messages, another one
/// reads a password at a terminal.
#[test]
fn who_was_asked_in_turn_answers_by_another_thread() {
    let mut b = Bus::new(&["check action", "authority", "agent"]);
    let (agent, agents, _) = b.ends[2];
    let (authority, own, _) = b.ends[1];
    let script = b.d.process("script", "script agent", None, 0.0);
    let reader = b.d.thread(agent, "reader", 1.02);
    let slave = b.d.object(ObjectKind::Tty, 0x8803, 1 << 63 | 0x8803, "/dev/pts/3");
    let master = b.d.object(ObjectKind::Tty, 1 << 63 | 0x8803, 0x8803, "/dev/ptmx");
    b.waits(1, 0.5, 1.003);
    b.send(0, 1, 1.0);
    let (client, clients, _) = b.ends[0];
    b.d.wait(client, 1.001, 13.0, "poll").on(clients).times_out();
    // It asks on a moment after the client began to wait, and tells the client something.
    b.waits(2, 0.5, 1.013);
    b.send(1, 2, 1.01);
    b.d.wait(authority, 1.02, 20.0, "poll").on(own).open();
    b.d.wait(agent, 1.02, 20.0, "poll").on(agents).open();
    b.d.spawn(agent, reader, 1.02);
    b.d.wait(reader, 1.03, 20.0, "read").on(slave).open();
    b.d.wait(script, 0.5, 20.0, "poll").on(master).open();
    for (t, o) in [(client, clients), (authority, own), (agent, agents)] {
        b.d.hold(b.daemon, t, o, Relation::Peer, 3.0);
    }
    b.d.hold(script, reader, slave, Relation::Peer, 3.0);
    let r = b.diagnose("^check ");
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.thread.as_deref()), (Some("agent"), Some("reader")), "{r:#?}");
    assert!(c.why.contains("input at the terminal"), "{}", c.why);
    assert_eq!(slice(&r)[..2], ["busd", "authority"], "{r:#?}");
}

/// A worker waits for work that nobody brings. When it went well a client's request had come before that: that client waits
/// for the answer now, so that it asks is no cause.
#[test]
fn why_a_client_asked_is_no_cause_of_its_wait() {
    let mut d = Drawing::new(14.0);
    let main = d.process("appd", "appd", None, 0.0);
    let worker = d.thread(main, "worker", 0.1);
    let client = d.process("ask", "ask", None, 0.0);
    let shell = d.process("sh", "sh run", None, 0.0);
    let (near, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
    let (listens, other) = (d.object(ObjectKind::Tcp, 9, 0, ""), d.object(ObjectKind::Tcp, 8, 7, ""));
    let more = d.object(ObjectKind::Tcp, 18, 17, "");
    let all = d.set(&[far, listens, other, more]);
    let work = d.object(ObjectKind::Futex, 0x20, 1000, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let park = d.stack(&["pthread_cond_timedwait (libc.so.6)", "park (appd)", "run (appd)"]);
    d.wait(shell, 0.1, 14.0, "wait4").on(any).open();
    // So it went before.
    d.message(client, near, Direction::Send, 1.0, 20);
    d.wait(main, 0.1, 1.001, "epoll_wait").on(all).by_packet(client, "sendto", near);
    d.message(main, far, Direction::Receive, 1.0015, 20);
    d.wait(worker, 0.2, 1.002, "futex").on(work).op(128 | 9, 0).stack(park).by(main, "futex", work);
    d.message(worker, far, Direction::Send, 1.003, 20);
    d.wait(client, 1.0001, 1.0035, "poll").on(near).by_packet(worker, "sendto", far);
    d.message(client, near, Direction::Receive, 1.0036, 20);
    // And now.
    d.message(client, near, Direction::Send, 2.0, 20);
    d.wait(client, 2.0001, 13.5, "poll").on(near).times_out();
    d.wait(worker, 1.01, 13.0, "futex").on(work).op(128 | 9, 0).stack(park).times_out();
    d.wait(main, 1.0021, 14.0, "epoll_wait").on(all).open();
    let r = d.diagnose("^worker$");
    assert!(r.slice.iter().all(|n| n.process == "appd"), "{r:#?}");
    assert!(r.questions.is_empty(), "{r:#?}");
}

/// A client asks a shop by a bus, the shop asks a bank by the same bus, and the bank waits for a lock. The bus turns when the
/// bank answers; whom the client waited for is the shop.
#[test]
fn a_service_that_asks_on_is_on_the_way() {
    let mut b = Bus::new(&["call Total", "shop serve", "bank serve"]);
    b.send(0, 1, 1.0);
    b.waits(1, 0.5, 1.003);
    b.send(1, 2, 1.01);
    b.waits(2, 0.5, 1.013);
    let bank = b.ends[2].0;
    b.wants_lock_of_backup(bank, 1.014);
    b.send(2, 1, 13.0);
    b.waits(1, 1.011, 13.003);
    b.send(1, 0, 13.01);
    b.waits(0, 1.001, 13.013);
    b.idle_from_then_on();
    let r = b.diagnose("^call");
    assert_eq!(slice(&r), ["busd", "shop serve", "bank serve", "backup /data"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("backup"));
}

/// The shop asks for a bank that is not there yet: who brings it waits for a lock, and the bus waits for whatever comes.
#[test]
fn a_server_that_keeps_a_request_is_passed_twice() {
    let mut b = Bus::new(&["call Total", "shop serve", "bring bank"]);
    b.send(0, 1, 1.0);
    b.waits(1, 0.5, 1.003);
    let (shop, own, far) = b.ends[1];
    b.d.message(shop, own, Direction::Send, 1.01, 100);
    let idle = std::mem::replace(&mut b.idle, 1.0125);
    b.d.wait(b.daemon, idle, 1.011, "epoll_wait").on(b.epoll).by(shop, "sendmsg", own);
    b.d.message(b.daemon, far, Direction::Receive, 1.0115, 100);
    let bring = b.ends[2].0;
    b.wants_lock_of_backup(bring, 0.9);
    b.send(2, 1, 13.0);
    b.waits(1, 1.011, 13.003);
    b.send(1, 0, 13.01);
    b.waits(0, 1.001, 13.013);
    b.idle_from_then_on();
    let r = b.diagnose("^call");
    assert_eq!(slice(&r), ["busd", "shop serve", "bring bank", "backup /data"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("backup"));
}

/// One worker tries for a lock again and again, and answers when another one, who had it, has answered somebody else.
#[test]
fn who_tries_often_before_it_answers_is_on_the_way() {
    let mut b = Bus::new(&["call Cart", "cart serve", "ask Report", "report serve"]);
    let (cart, report) = (b.ends[1].0, b.ends[3].0);
    b.send(2, 3, 0.8);
    b.waits(3, 0.5, 0.803);
    let add = b.d.stack(&["add_up (report)", "main (report)"]);
    b.d.runs(report, 0.81, 12.99, add);
    b.send(0, 1, 1.0);
    b.waits(1, 0.5, 1.003);
    let tries = b.d.stack(&["nanosleep (libc.so.6)", "session_lock (cart)", "main (cart)"]);
    b.d.naps(cart, 1.01, 13.08, 0.05, tries);
    b.send(3, 2, 13.0);
    b.waits(2, 0.801, 13.003);
    b.send(1, 0, 13.1);
    b.waits(0, 1.001, 13.103);
    for n in 0..4 {
        let (t, own, _) = b.ends[n];
        b.d.wait(t, 13.2, 20.0, "poll").on(own).open();
    }
    let r = b.diagnose("^call");
    assert_eq!(slice(&r)[..2], ["busd", "cart serve"]);
}

/// A service takes what the bus hands on to it and says nothing more. Only the time-out of the client's main thread ends that:
/// it tells the thread that watches the connection for it.
#[test]
fn who_took_a_request_and_never_replied_is_told() {
    let diagnose = |others: usize| {
        let mut b = Bus::new(&["call Status", "hole listen", "log listen"]);
        let (client, own, _) = b.ends[0];
        let main = b.d.thread(client, "main", 0.0);
        let (wake, done) =
            (b.d.object(ObjectKind::EventFd, 5, 0, ""), b.d.object(ObjectKind::EventFd, 6, 0, ""));
        let set = b.d.set(&[wake, own]);
        // Each has said who it is.
        b.send(1, 0, 0.2);
        b.send(2, 0, 0.3);
        b.send(0, 1, 1.0);
        if others > 1 {
            let (log, log_own, log_far) = b.ends[2];
            b.d.message(b.daemon, log_far, Direction::Send, 1.0022, 100);
            b.d.message(log, log_own, Direction::Receive, 1.0045, 100);
        }
        for n in [1, 2] {
            let start = if n <= others { 1.005 } else { 0.5 };
            b.waits(n, start - 0.4, if n <= others { 1.003 } else { start });
            let (t, own, _) = b.ends[n];
            b.d.wait(t, start, 20.0, "poll").on(own).open();
        }
        b.d.wait(client, 1.0005, 14.001, "poll").on(set).by(main, "write", wake);
        b.d.wait(main, 1.0, 14.0, "poll").on(done).times_out();
        b.d.message(main, wake, Direction::Send, 14.0005, 8);
        b.d.hold(b.daemon, client, own, Relation::Peer, 2.0);
        b.diagnose("^call Status$")
    };
    let r = diagnose(1);
    assert_eq!(slice(&r)[..2], ["busd", "hole listen"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("hole"), "{}", r.root_causes[0].why);
    // One of two may be meant.
    let r = diagnose(2);
    assert!(r.root_causes.iter().all(|c| c.process.as_deref() != Some("hole")), "{r:#?}");
}

/// The service that was asked waits for an answer itself, in one call through which others' requests come to it, too: it is
/// at work for who asked it first, and not only those are that nobody asked anything since.
#[test]
fn who_gets_a_request_while_it_asks_is_at_work_for_another() {
    let mut b = Bus::new(&["call Total", "shop serve", "bank serve"]);
    let (call, shop, bank) = (b.ends[0].0, b.ends[1].0, b.ends[2].0);
    let asks = b.d.stack(&["poll (libc.so.6)", "call_blocking (shop)"]);
    b.waits(1, 0.5, 1.003);
    b.send(0, 1, 1.0);
    b.waits(2, 0.5, 1.013);
    b.send(1, 2, 1.01);
    let (own, far) = (b.ends[1].1, b.ends[1].2);
    b.d.wait(shop, 1.011, 1.023, "poll").on(own).stack(asks).by(b.daemon, "sendmsg", far);
    b.send(2, 1, 1.02);
    b.d.wait(shop, 1.024, 20.0, "poll").on(own).stack(asks).open();
    b.d.wait(bank, 1.021, 20.0, "poll").on(b.ends[2].1).open();
    b.d.wait(call, 1.001, 20.0, "poll").on(b.ends[0].1).open();
    for n in 0..3 {
        b.d.hold(b.daemon, b.ends[n].0, b.ends[n].1, Relation::Peer, 3.0);
    }
    let r = b.diagnose("^call ");
    assert_eq!(slice(&r), ["busd", "shop serve", "bank serve", "shop serve"], "{r:#?}");
    assert!(r.root_causes[0].why.contains("circular"), "{r:#?}");
}

/// The owner of a selection runs a helper that wants its content, and does not look at its events meanwhile.
#[test]
fn a_client_that_leaves_its_events_unread_keeps_the_server_from_answering() {
    let mut b = Bus::new(&["editor", "paste -o", "term"]);
    let (editor, own, _) = b.ends[0];
    let (paste, pastes, pastes_far) = b.ends[1];
    let (term, terms, terms_far) = b.ends[2];
    let pipe = b.d.object(ObjectKind::Pipe, 77, 77, "");
    b.d.message(paste, pastes, Direction::Send, 0.9, 32);
    b.d.wait(b.daemon, 0.0, 0.901, "epoll_wait").on(b.epoll).by(paste, "sendmsg", pastes);
    b.d.message(b.daemon, pastes_far, Direction::Receive, 0.9015, 32);
    b.idle = 0.902;
    b.d.wait(editor, 0.8, 20.0, "read").on(pipe).open();
    b.d.wait(paste, 0.91, 20.0, "poll").on(pastes).open();
    b.d.wait(term, 0.1, 20.0, "poll").on(terms).open();
    b.d.hold(paste, editor, pipe, Relation::Writes, 2.0);
    b.d.hold(b.daemon, paste, pastes, Relation::Peer, 2.0);
    b.d.hold(term, b.daemon, terms_far, Relation::Peer, 2.0);
    b.d.unserved(editor, own, (1.0, 20.0), pg_event::Display::X11);
    let r = b.diagnose("^editor");
    assert_eq!(slice(&r), ["paste -o", "busd"], "{r:#?}");
    assert_eq!(r.circle.len(), 3, "{r:#?}");
}

/// A service whose messages one thread of it receives for all (GIO's): who took the request is another thread, whatever the
/// first one had sent before.
#[test]
fn who_receives_for_the_others_has_not_taken_a_request() {
    let mut b = Bus::new(&["call Print", "printd serve"]);
    let (call, main) = (b.ends[0].0, b.ends[1].0);
    let receiver = b.d.thread(main, "gdbus", 0.0);
    b.ends[1].0 = receiver;
    let polls = b.d.stack(&["poll (libc.so.6)", "g_main_loop_run (libglib-2.0.so.0)"]);
    // It has answered something in between.
    b.waits(1, 0.5, 1.003);
    b.send(0, 1, 1.0);
    b.waits(0, 1.001, 1.013);
    b.send(1, 0, 1.01);
    let (own, far) = (b.ends[1].1, b.ends[1].2);
    b.d.wait(receiver, 1.011, 1.023, "poll").on(own).stack(polls).by(b.daemon, "sendmsg", far);
    b.send(0, 1, 1.02);
    b.d.wait(receiver, 1.024, 20.0, "poll").on(own).stack(polls).open();
    let lock = b.d.object(ObjectKind::FileLock, 70, 0, "/var/spool/lock");
    b.d.wait(main, 1.025, 20.0, "fcntl").on(lock).open();
    let holder = b.d.process("spool", "spool run", None, 0.0);
    let zip = b.d.stack(&["deflate (libz.so.1)", "main (spool)"]);
    b.d.runs(holder, 0.0, 20.0, zip);
    b.d.hold(holder, main, lock, Relation::Owns, 3.0);
    b.d.wait(call, 1.021, 20.0, "poll").on(b.ends[0].1).open();
    for n in 0..2 {
        b.d.hold(b.daemon, b.ends[n].0, b.ends[n].1, Relation::Peer, 3.0);
    }
    let r = b.diagnose("^call ");
    assert_eq!(slice(&r), ["busd", "printd serve", "spool run"], "{r:#?}");
}

/// Who took a request that a bus handed on to it was killed before it said anything.
#[test]
fn who_was_killed_with_a_request_in_its_hands_is_the_cause() {
    let mut b = Bus::new(&["call Total", "shop serve"]);
    let (call, shop) = (b.ends[0].0, b.ends[1].0);
    b.waits(1, 0.5, 1.003);
    b.send(0, 1, 1.0);
    b.d.exit(shop, 1.5);
    let p = b.d.catalog.threads[shop.index()].process;
    let row = &mut b.d.catalog.processes[p.index()];
    (row.exit_status, row.end) = (Some(9), Some(1_500_000_000));
    b.d.wait(call, 1.001, 20.0, "poll").on(b.ends[0].1).open();
    b.d.hold(b.daemon, call, b.ends[0].1, Relation::Peer, 3.0);
    let r = b.diagnose("^call ");
    assert_eq!(slice(&r), ["busd", "shop serve"], "{r:#?}");
    assert!(r.root_causes[0].why.contains("killed by signal 9"), "{r:#?}");
}

/// In the same turn the bus told somebody else something, who failed soon after: that one had asked for it.
#[test]
fn who_fails_after_an_answer_has_died_with_no_request() {
    let mut b = Bus::new(&["call Total", "shop serve", "other", "third"]);
    let (call, shop, other) = (b.ends[0].0, b.ends[1].0, b.ends[2].0);
    b.waits(1, 0.5, 1.003);
    b.send(0, 1, 1.0);
    b.waits(2, 0.5, 1.013);
    b.send(3, 2, 1.01);
    b.d.wait(shop, 1.004, 20.0, "poll").on(b.ends[1].1).open();
    b.d.exit(other, 1.5);
    let p = b.d.catalog.threads[other.index()].process;
    let row = &mut b.d.catalog.processes[p.index()];
    (row.exit_status, row.end) = (Some(1 << 8), Some(1_500_000_000));
    b.d.wait(call, 1.001, 20.0, "poll").on(b.ends[0].1).open();
    b.d.hold(b.daemon, call, b.ends[0].1, Relation::Peer, 3.0);
    let r = b.diagnose("^call ");
    assert!(r.root_causes.iter().all(|c| c.process.as_deref() != Some("other")), "{r:#?}");
}
