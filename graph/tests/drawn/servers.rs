//! Servers that wait for whatever comes: for whom, when the descriptors that they watched were not read in time, and when
//! their own time-out made them answer.

use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, ThreadId, endpoint_v4};
use pg_graph::report::Report;

/// A proxy between a client and a service. The proxy's epoll instance was read before the two connections were made.
struct Proxy {
    d: Drawing,
    master: ThreadId,
    worker: ThreadId,
    client: ThreadId,
    service: ThreadId,
    epoll: ObjectId,
    /// The client's end and the proxy's, the proxy's to the service and the service's.
    ends: [ObjectId; 4],
}

impl Proxy {
    fn new() -> Self {
        let mut d = Drawing::new(20.0);
        let master = d.process("proxy", "proxy: master", None, 0.0);
        let worker = d.process("proxy", "proxy: worker", Some(master), 0.0);
        let client = d.process("client", "client get", None, 0.9);
        let service = d.process("shop", "shop serve", None, 0.0);
        let listens = d.object(ObjectKind::Tcp, 80, 0, "");
        let channel = d.object(ObjectKind::UnixStream, 5, 6, "");
        let epoll = d.object(ObjectKind::Epoll, 7, 0, "");
        d.catalog.objects[epoll.index()].members = vec![listens, channel];
        let ends = [(1001, 80), (80, 1001), (1002, 90), (90, 1002)];
        let ends = ends.map(|(id, peer)| d.object(ObjectKind::Tcp, id, peer, ""));
        d.wait(master, 0.1, 20.0, "rt_sigsuspend").open();
        d.hold(master, worker, channel, Relation::Peer, 3.0);
        Self { d, master, worker, client, service, epoll, ends }
    }

    /// The client asks at 1 s and waits until `end`.
    fn asks(&mut self, end: f64) {
        let [own, far, ..] = self.ends;
        self.d.message(self.client, own, Direction::Send, 1.0, 90);
        self.d.wait(self.worker, 0.1, 1.001, "epoll_wait").on(self.epoll).by(self.client, "sendto", own);
        self.d.message(self.worker, far, Direction::Receive, 1.002, 90);
        self.d.wait(self.client, 1.001, end, "poll").on(own).by(self.worker, "writev", far);
    }

    /// The client asks at 1 s and waits when the recording ends.
    fn asks_in_vain(&mut self) {
        let [own, far, ..] = self.ends;
        self.d.message(self.client, own, Direction::Send, 1.0, 90);
        self.d.wait(self.worker, 0.1, 1.001, "epoll_wait").on(self.epoll).by(self.client, "sendto", own);
        self.d.message(self.worker, far, Direction::Receive, 1.002, 90);
        self.d.wait(self.client, 1.001, 20.0, "poll").on(own).open();
        self.d.hold(self.worker, self.client, own, Relation::Peer, 3.0);
    }

    /// The proxy asks the service, which computes.
    fn asks_on(&mut self) {
        let [.., to, at] = self.ends;
        self.d.message(self.worker, to, Direction::Send, 1.003, 90);
        self.d.wait(self.service, 0.1, 1.004, "poll").on(at).by(self.worker, "writev", to);
        self.d.message(self.service, at, Direction::Receive, 1.005, 90);
        let report = self.d.stack(&["add_up (shop)", "main (shop)"]);
        self.d.runs(self.service, 1.006, 15.0, report);
        self.d.wait(self.service, 15.0, 20.0, "poll").on(at).open();
    }

    fn answers(&mut self, at: f64) {
        self.d.message(self.worker, self.ends[1], Direction::Send, at, 90);
        self.d.wait(self.worker, at + 0.01, 20.0, "epoll_wait").on(self.epoll).open();
        self.d.exit(self.client, at + 0.1);
    }

    fn diagnose(self) -> Report {
        self.d.diagnose("^client ")
    }
}

/// A limit of the server's own (a rate of requests, say): it answers by a timer. Who has the other end of a channel that it
/// watched, too, was asked for nothing.
#[test]
fn a_server_that_answers_by_its_own_timer_is_the_cause() {
    let mut p = Proxy::new();
    p.asks(13.01);
    p.d.wait(p.worker, 1.01, 13.0, "epoll_wait").on(p.epoll).times_out();
    p.answers(13.005);
    let master = p.master;
    let r = p.diagnose();
    assert_eq!(slice(&r), ["proxy: worker"], "{master:?} {r:#?}");
    let why = &r.root_causes[0].why;
    assert!(why.contains("only at 13.010 s, when a time-out of its own had passed"), "{why}");
    assert!(r.questions.is_empty(), "{:?}", r.questions);
}

/// The same when the proxy waits for a service until it gives up: messages tell that it had asked it.
#[test]
fn who_was_asked_is_followed_though_the_server_gives_up() {
    let mut p = Proxy::new();
    p.asks(13.01);
    p.asks_on();
    p.d.wait(p.worker, 1.01, 13.0, "epoll_wait").on(p.epoll).times_out();
    p.answers(13.005);
    let r = p.diagnose();
    assert_eq!(slice(&r), ["proxy: worker", "shop serve"], "{r:#?}");
    assert_eq!(r.root_causes[0].function.as_deref(), Some("add_up"), "{r:#?}");
}

/// Nor does it matter that nobody gives up before the recording ends.
#[test]
fn who_was_asked_is_followed_while_the_hang_goes_on() {
    let mut p = Proxy::new();
    p.asks_in_vain();
    p.asks_on();
    p.d.wait(p.worker, 1.01, 20.0, "epoll_wait").on(p.epoll).open();
    let r = p.diagnose();
    assert_eq!(slice(&r), ["proxy: worker", "shop serve"], "{r:#?}");
}

/// A timer again and again, with other waits in between, does not make the answer another one's.
#[test]
fn who_answers_in_the_end_was_waited_for_all_the_time() {
    let mut p = Proxy::new();
    p.asks(13.01);
    let [.., to, at] = p.ends;
    p.asks_on();
    let lock = p.d.object(ObjectKind::Futex, 0x40, 1, "");
    let mut t = 1.01;
    while t < 11.5 {
        p.d.wait(p.worker, t, t + 0.9, "epoll_wait").on(p.epoll).times_out();
        p.d.wait(p.worker, t + 0.91, t + 0.99, "futex").on(lock).op(0, 2).by(p.master, "futex", lock);
        t += 1.0;
    }
    p.d.wait(p.worker, t, 13.0, "epoll_wait").on(p.epoll).by(p.service, "writev", at);
    p.d.message(p.worker, to, Direction::Receive, 13.002, 90);
    p.answers(13.005);
    let r = p.diagnose();
    assert_eq!(slice(&r), ["proxy: worker", "shop serve"], "{r:#?}");
}

/// A program whose threads wait for whatever comes is the victim when it asked somebody, also where its epoll instance was
/// not read again after the connection had been made; one that serves is not.
#[test]
fn who_asked_and_waits_for_whatever_comes_is_a_victim() {
    for asks in [true, false] {
        let mut d = Drawing::new(20.0);
        let main = d.process("dig", "dig db.shop", None, 0.9);
        let net = d.thread(main, "net", 0.9);
        let server = d.process("named", "named", None, 0.0);
        let own = d.object(ObjectKind::Pipe, 3, 3, "");
        let epoll = d.object(ObjectKind::Epoll, 7, 0, "");
        d.catalog.objects[epoll.index()].members = vec![own];
        let (to, at) = (d.object(ObjectKind::Udp, 1001, 53, ""), d.object(ObjectKind::Udp, 53, 1001, ""));
        if !asks {
            d.message(net, to, Direction::Receive, 0.95, 50);
        }
        d.message(net, to, Direction::Send, 1.0, 50);
        d.wait(main, 0.95, 12.02, "rt_sigtimedwait").by(net, "kill", ObjectId::NONE);
        d.wait(net, 1.001, 12.0, "epoll_wait").on(epoll).by_packet(server, "sendmsg", at);
        d.exit(net, 12.05);
        d.exit(main, 12.1);
        d.wait(server, 0.1, 1.001, "poll").on(at).by_packet(net, "sendmsg", to);
        d.message(server, at, Direction::Receive, 1.002, 50);
        d.wait(server, 1.003, 11.9, "poll").state(OffState::Stopped).interrupted();
        d.message(server, at, Direction::Send, 11.95, 50);
        let (g, c) = d.build();
        let pid = Some(c.processes[0].pid);
        let s = pg_graph::Selection { pid, ..pg_graph::Selection::default() };
        let v = pg_graph::select(&g, &c, &s, &pg_graph::VictimOptions::default());
        assert_eq!(v.is_ok_and(|v| v.thread == net), asks);
    }
}

/// A connection that comes while a server computes waits in its queue: it is not for whom it computes.
#[test]
fn whom_a_busy_server_works_for_is_whose_request_it_took() {
    let mut d = Drawing::new(20.0);
    let server = d.process("shop", "shop serve", None, 0.0);
    let batch = d.process("batch", "batch report", None, 0.5);
    let other = d.process("probe", "probe", None, 2.5);
    let client = d.process("client", "client get", None, 2.9);
    let mut end = |n: u64| (d.object(ObjectKind::Tcp, n, 80, ""), d.object(ObjectKind::Tcp, 80, n, ""));
    let (b, p, c) = (end(1), end(2), end(3));
    let (listens, report) = (d.object(ObjectKind::Tcp, 80, 0, ""), d.stack(&["add_up (shop)"]));
    d.message(batch, b.0, Direction::Send, 1.0, 90);
    d.wait(server, 0.1, 1.001, "poll").on(b.1).by(batch, "sendto", b.0);
    d.message(server, b.1, Direction::Receive, 1.002, 90);
    d.runs(server, 1.003, 14.0, report);
    for (t, ends, at) in [(other, p, 2.6), (client, c, 3.0)] {
        d.message(t, ends.0, Direction::Send, at, 90);
        d.wait(t, at + 0.001, 14.1, "poll").on(ends.0).by(server, "sendto", ends.1);
    }
    for ends in [b, p, c] {
        d.message(server, ends.1, Direction::Send, 14.0, 90);
    }
    d.wait(server, 14.2, 20.0, "poll").on(listens).open();
    d.wait(batch, 1.001, 14.05, "poll").on(b.0).by(server, "sendto", b.1);
    let r = d.diagnose("^client ");
    let why = &r.root_causes[0].why;
    assert!(why.contains("for batch") && !why.contains("probe"), "{why}");
}

/// Who continued a process that had been stopped is no question: that it was stopped is the cause.
#[test]
fn who_continued_a_stopped_server_is_not_asked() {
    let mut p = Proxy::new();
    let shell = p.d.process("bash", "bash", None, 0.0);
    let sleep = p.d.process("sleep", "sleep 12", Some(shell), 0.4);
    let [own, far, ..] = p.ends;
    p.d.message(p.client, own, Direction::Send, 1.0, 90);
    p.d.wait(p.client, 1.001, 13.01, "poll").on(own).by(p.worker, "writev", far);
    let (any, epoll, worker) = (p.d.object(ObjectKind::Child, 0, 0, ""), p.epoll, p.worker);
    p.d.signal(shell, worker, 19, 0.5);
    p.d.wait(worker, 0.5, 12.9, "epoll_wait").on(epoll).state(OffState::Stopped).by(
        shell,
        "kill",
        ObjectId::NONE,
    );
    p.d.message(worker, far, Direction::Receive, 12.95, 90);
    p.d.wait(sleep, 0.45, 12.8, "clock_nanosleep").times_out();
    p.d.exit(sleep, 12.8);
    p.d.wait(shell, 0.55, 12.85, "wait4").on(any).by(sleep, "exit_group", ObjectId::NONE);
    p.answers(13.005);
    let r = p.diagnose();
    assert!(r.root_causes[0].why.contains("was stopped for"), "{}", r.root_causes[0].why);
    assert!(r.questions.is_empty(), "{:?}", r.questions);
}

/// Whoever joins a thread of its own sees only that thread's hang: the client is who hung.
#[test]
fn who_joins_a_thread_is_not_preferred_to_a_client() {
    let mut d = Drawing::new(20.0);
    let main = d.process("ldapd", "ldapd", None, 0.2);
    let listener = d.thread(main, "listener", 0.2);
    let client = d.process("search", "search", None, 0.9);
    let (own, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
    let tid = d.catalog.threads[listener.index()].tid;
    let join = d.object(ObjectKind::Futex, 0x990, 1, "");
    d.wait(main, 0.3, 13.9, "futex").on(join).op(265, tid).by(listener, "exit", ObjectId::NONE);
    d.message(client, own, Direction::Send, 1.0, 30);
    d.wait(client, 1.001, 13.5, "poll").on(own).by(listener, "write", far);
    d.wait(listener, 0.3, 13.4, "write").state(OffState::Uninterruptible).timer();
    d.exit(client, 13.6);
    d.exit(listener, 13.9);
    let (g, c) = d.build();
    let all = pg_graph::victims(&g, &c, &pg_graph::VictimOptions::default());
    assert_eq!(all[0].thread, client, "{all:#?}");
}

/// A client is told to end while it waits for a proxy: that it closes its connection ends the proxy's wait, and is not what
/// the proxy waited for.
#[test]
fn who_gives_up_is_not_whom_a_proxy_waited_for() {
    for seen in [true, false] {
        gives_up(seen);
    }
}

/// `seen`: the packet by which the connection ends is known to be the client's.
fn gives_up(seen: bool) {
    let mut d = Drawing::new(20.0);
    let (client, proxy) = (d.process("page", "page", None, 0.0), d.process("proxy", "proxy", None, 0.0));
    let (store, shell) =
        (d.process("store", "store", None, 0.0), d.process("timeout", "timeout 12", None, 0.0));
    let (own, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
    let (to, at) = (d.object(ObjectKind::Tcp, 3, 4, ""), d.object(ObjectKind::Tcp, 4, 3, ""));
    let tells = d.object(ObjectKind::Pipe, 9, 9, "");
    let set = d.set(&[tells, far, to]);
    // Who answers at once: what comes first is not what takes long.
    d.message(client, own, Direction::Send, 1.0, 20);
    d.message(proxy, to, Direction::Send, 1.001, 200);
    d.wait(proxy, 1.0011, 1.003, "poll").on(set).by(store, "write", at);
    d.message(proxy, far, Direction::Receive, 1.0031, 20);
    d.message(proxy, to, Direction::Receive, 1.0032, 200);
    d.message(proxy, to, Direction::Send, 1.0033, 20);
    // What it says of the session (a ticket of TLS) is no answer.
    d.message(store, at, Direction::Send, 1.0033, 200);
    d.message(proxy, to, Direction::Receive, 1.003_500_1, 200);
    d.message(store, at, Direction::Receive, 1.0035, 20);
    let sort = d.stack(&["qsort (libc.so.6)", "sort_command (store)"]);
    d.runs(store, 1.004, 20.0, sort);
    d.signal(shell, client, 15, 13.0);
    d.wait(client, 1.0001, 13.0, "poll").on(own).by(shell, "kill", ObjectId::NONE);
    let wait = d.wait(proxy, 1.0035, 13.002, "poll").on(set);
    if seen {
        wait.by_packet(client, "close", own);
    } else {
        wait.by_packet(shell, "kill", ObjectId::NONE);
    }
    d.exit(client, 13.002);
    let r = d.diagnose("^page");
    assert_eq!(slice(&r), ["proxy", "store"]);
    assert_eq!(r.root_causes[0].block_type, Some(pg_graph::BlockType::LongRunning));
}

/// Threads of proxies watch a pipe of their own process beside their connections (it tells them to end), and who has its other
/// end is all that is known of the state. One has passed a request on to the other, that one to a store at work for others.
#[test]
fn a_pipe_that_tells_to_end_is_not_what_a_proxy_waits_for() {
    let mut d = Drawing::new(20.0);
    let (client, near, far, store) = (
        d.process("page", "page", None, 0.0),
        d.process("near", "near", None, 0.0),
        d.process("far", "far", None, 0.0),
        d.process("store", "store", None, 0.0),
    );
    let (near_main, far_main) = (d.thread(near, "near", 0.0), d.thread(far, "far", 0.0));
    let mut pair =
        |n: u64| (d.object(ObjectKind::Tcp, n, n + 1, ""), d.object(ObjectKind::Tcp, n + 1, n, ""));
    let ((a, b), (e, f), (g, h)) = (pair(1), pair(3), pair(5));
    let (tells, told) = (d.object(ObjectKind::Pipe, 91, 91, ""), d.object(ObjectKind::Pipe, 92, 92, ""));
    let (set, other) = (d.set(&[tells, b, e]), d.set(&[told, f, g]));
    let idle = d.object(ObjectKind::Pipe, 93, 93, "");
    d.message(client, a, Direction::Send, 1.0, 20);
    d.message(near, b, Direction::Receive, 1.001, 20);
    d.message(near, e, Direction::Send, 1.002, 40);
    d.message(store, h, Direction::Receive, 1.0025, 20);
    // What far took last is near's: of the two at its ends it is not near that it waits for.
    d.message(far, g, Direction::Send, 1.0024, 20);
    d.message(far, f, Direction::Receive, 1.003, 40);
    d.message(near, e, Direction::Send, 1.0031, 4);
    d.wait(client, 1.0001, 20.0, "poll").on(a).open();
    d.wait(near, 1.0032, 20.0, "poll").on(set).open();
    d.wait(far, 1.0033, 20.0, "poll").on(other).open();
    d.wait(near_main, 0.5, 20.0, "poll").on(idle).open();
    d.wait(far_main, 0.5, 20.0, "poll").on(idle).open();
    d.hold(near_main, near, tells, Relation::Writes, 2.0);
    d.hold(far_main, far, told, Relation::Writes, 2.0);
    let sort = d.stack(&["qsort (libc.so.6)", "sort_command (store)"]);
    d.runs(store, 1.003, 20.0, sort);
    let r = d.diagnose("^page");
    assert_eq!(slice(&r), ["near", "far", "store"]);
    assert_eq!(r.root_causes[0].block_type, Some(pg_graph::BlockType::LongRunning));
}

/// A server asks a helper by a signal and waits on its latch; somebody else wakes it in between, after which it goes on to wait.
#[test]
fn whom_a_server_asked_by_a_latch_is_who_let_it_go_on() {
    for asked in [true, false] {
        let mut d = Drawing::new(20.0);
        let client = d.process("client", "client get", None, 0.0);
        let server = d.process("db", "db: session", None, 0.0);
        let helper = d.process("db", "db: checkpointer", None, 0.0);
        let writer = d.process("db", "db: writer", None, 0.0);
        let (own, far) =
            (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
        let latch = d.object(ObjectKind::Epoll, 7, 0, "");
        let signals = d.object(ObjectKind::SignalFd, 8, 0, "");
        d.catalog.objects[latch.index()].members = vec![signals];
        let stack = d.stack(&["epoll_wait (libc.so.6)", "condition_sleep (db)", "begin_backup (db)"]);
        d.message(client, own, Direction::Send, 1.0, 90);
        d.wait(server, 0.1, 1.001, "epoll_wait").on(far).by(client, "sendto", own);
        d.message(server, far, Direction::Receive, 1.002, 90);
        let begun = d.wait(helper, 0.1, 1.003, "epoll_wait").on(latch);
        if asked {
            begun.by(server, "kill", ObjectId::NONE);
        } else {
            begun.timer();
        }
        let naps = d.stack(&["epoll_wait (libc.so.6)", "write_delay (db)", "checkpoint (db)"]);
        let mut t = 1.01;
        while t < 15.0 {
            d.wait(helper, t, t + 0.1, "epoll_wait").on(latch).stack(naps).times_out();
            t += 0.101;
        }
        d.wait(writer, 0.1, 14.0, "epoll_wait").on(latch).times_out();
        d.wait(server, 1.004, 14.1, "epoll_wait").on(latch).stack(stack).by(writer, "kill", ObjectId::NONE);
        d.wait(server, 14.101, t, "epoll_wait").on(latch).stack(stack).by(helper, "kill", ObjectId::NONE);
        d.message(server, far, Direction::Send, t + 0.001, 90);
        d.wait(client, 1.001, t + 0.001, "poll").on(own).by(server, "sendto", far);
        d.exit(client, t + 0.1);
        let r = d.diagnose("^client ");
        let third = r.slice.get(2).map(|s| s.cmdline.as_str());
        assert_eq!(third == Some("db: checkpointer"), asked, "{r:#?}");
    }
}

/// A name server takes datagrams of two threads and answers neither: that another one asked it, too, is no normal course of
/// its wait in which an answer came.
#[test]
fn another_clients_datagram_is_no_answer() {
    let mut d = Drawing::new(20.0);
    let server = d.process("socat", "socat udp", None, 0.0);
    let first = d.process("node", "node app.js", None, 0.0);
    let second = d.thread(first, "worker", 0.0);
    let socket = d.object(ObjectKind::Udp, 53, 0, "");
    let (a, b) = (d.object(ObjectKind::Udp, 40_001, 53, ""), d.object(ObjectKind::Udp, 40_002, 53, ""));
    let mut idle = 0.5;
    for (t, own, at) in [(second, b, 0.9), (first, a, 1.0)] {
        d.message(t, own, Direction::Send, at, 33);
        d.wait(server, idle, at + 0.001, "select").on(socket).by(t, "sendto", own);
        d.message(server, socket, Direction::Receive, at + 0.0015, 33);
        idle = at + 0.002;
        d.wait(t, at + 0.0005, 20.0, "poll").on(own).open();
        d.hold(server, t, own, Relation::Peer, 2.0);
    }
    d.wait(server, idle, 20.0, "select").on(socket).open();
    let r = d.diagnose("^worker$");
    assert_eq!(slice(&r), ["socat udp"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("socat"), "{}", r.root_causes[0].why);
}

/// A name server hands a query on over a socket that is bound to no address, and gets no answer: from a program on this
/// machine, or from another machine.
#[test]
fn whom_a_server_asked_by_a_datagram_is_told() {
    for here in [true, false] {
        let mut d = Drawing::new(8.0);
        let client = d.process("getent", "getent hosts db", None, 0.9);
        let server = d.process("named", "named", None, 0.0);
        let sink = d.process("sink", "sink", None, 0.0);
        let (from, at) = (endpoint_v4(0x7f00_0001, 40_000), endpoint_v4(0x7f00_001b, 53));
        let (unbound, next) = (endpoint_v4(0, 50_000), endpoint_v4(0x7f00_001a, 53));
        let mut udp = |id, peer| d.object(ObjectKind::Udp, id, peer, "");
        let (own, taken, listens) = (udp(from, at), udp(at, from), udp(at, 0));
        let (asks, socket) = (udp(unbound, next), udp(unbound, 0));
        let sinks = udp(next, 0);
        let (tcp, signals) = (d.object(ObjectKind::Tcp, at, 0, ""), d.object(ObjectKind::Pipe, 9, 9, ""));
        let all = d.set(&[listens, tcp, signals, socket]);
        d.message(client, own, Direction::Send, 1.0, 32);
        d.wait(server, 0.1, 1.001, "poll").on(all).by_packet(client, "sendto", own);
        d.message(server, taken, Direction::Receive, 1.002, 32);
        d.wait(client, 1.000_1, 7.0, "poll").on(own).times_out();
        d.message(server, asks, Direction::Send, 1.003, 32);
        d.wait(server, 1.004, 8.0, "poll").on(all).open();
        d.hold(server, client, own, Relation::Peer, 3.0);
        if here {
            d.wait(sink, 0.1, 1.003_5, "pselect6").on(sinks).by_packet(server, "sendto", asks);
            d.message(sink, sinks, Direction::Receive, 1.003_6, 32);
        }
        d.wait(sink, if here { 1.003_7 } else { 0.1 }, 8.0, "pselect6").on(sinks).open();
        let r = d.diagnose("^getent ");
        let last = if here { "sink" } else { "named" };
        assert_eq!(r.slice.last().map(|n| n.process.as_str()), Some(last), "{r:#?}");
        assert_eq!(r.root_causes[0].process.as_deref(), Some(last), "{r:#?}");
        assert!(r.root_causes[0].why.contains("127.0.0.26:53"), "{}", r.root_causes[0].why);
    }
}

/// A worker keeps a connection open until its own time-out, closes it, and waits a moment for the other end to do so, too: what
/// the other end did before that moment is what took the time.
#[test]
fn who_only_closes_after_a_time_out_is_looked_at_while_it_lasted() {
    let mut d = Drawing::new(12.0);
    let curl = d.process("curl", "curl", None, 0.0);
    let worker = d.process("worker", "worker", None, 0.0);
    let browser = d.process("browser", "browser", None, 0.0);
    let (kept, theirs) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
    let (mine, asked) = (d.object(ObjectKind::Tcp, 3, 4, ""), d.object(ObjectKind::Tcp, 4, 3, ""));
    let keys = d.object(ObjectKind::Tty, 5, 0, "/dev/pts/7");
    let stack = d.stack(&["poll (libc.so.6)", "wait_for_io (worker)"]);
    d.wait(worker, 0.5, 10.0, "poll").on(kept).stack(stack).times_out();
    d.wait(browser, 0.5, 10.001, "poll").on(theirs).by(worker, "shutdown", kept);
    d.wait(worker, 10.000_5, 11.0, "poll").on(kept).stack(stack).by(browser, "close", theirs);
    d.wait(browser, 10.002, 10.99, "read").on(keys).times_out();
    d.hold(browser, worker, kept, Relation::Peer, 2.0);
    d.message(curl, mine, Direction::Send, 0.9, 9);
    d.wait(curl, 1.0, 11.1, "poll").on(mine).by(worker, "write", asked);
    d.wait(browser, 11.01, 12.0, "pause").open();
    d.wait(worker, 11.2, 12.0, "epoll_wait").open();
    d.wait(curl, 11.2, 12.0, "pause").open();
    let r = d.diagnose("^curl$");
    let browser = r.slice.iter().find(|s| s.process == "browser").expect("the other end");
    assert!(browser.spent_ns > 8_000_000_000 && r.circle.is_empty(), "{r:#?}");
}

/// A helper of a proxy wakes it while it owes an answer that it waits for from a service: that is not what it waits for.
#[test]
fn who_was_not_asked_and_wakes_a_server_did_not_keep_it() {
    let mut p = Proxy::new();
    p.asks_in_vain();
    // The service hears of a program that it runs.
    let [.., to, at] = p.ends;
    p.d.message(p.worker, to, Direction::Send, 1.003, 90);
    p.d.wait(p.service, 0.1, 1.004, "poll").on(at).by(p.worker, "writev", to);
    p.d.message(p.service, at, Direction::Receive, 1.005, 90);
    let cgi = p.d.process("page.cgi", "page.cgi", Some(p.service), 1.01);
    let pipe = p.d.object(ObjectKind::Pipe, 700, 700, "");
    let watched = p.d.set(&[at, pipe]);
    p.d.wait(p.service, 1.02, 20.0, "epoll_wait").on(watched).open();
    p.d.hold(cgi, p.service, pipe, Relation::Writes, 3.0);
    p.d.hold(p.service, p.worker, to, Relation::Peer, 3.0);
    let sums = p.d.stack(&["add_up (page.cgi)", "main (page.cgi)"]);
    p.d.runs(cgi, 1.02, 20.0, sums);
    let helper = p.d.process("helper", "helper of proxy", Some(p.master), 0.0);
    let ends = [(2001, 2002), (2002, 2001)].map(|(a, b)| p.d.object(ObjectKind::UnixStream, a, b, ""));
    p.d.wait(helper, 0.1, 14.0, "select").on(ends[1]).times_out();
    p.d.message(helper, ends[1], Direction::Send, 14.0005, 20);
    p.d.wait(p.worker, 1.01, 14.001, "epoll_wait").on(p.epoll).by(helper, "write", ends[1]);
    p.d.message(p.worker, ends[0], Direction::Receive, 14.0015, 20);
    p.d.wait(p.worker, 14.002, 20.0, "epoll_wait").on(p.epoll).open();
    let r = p.diagnose();
    assert_eq!(slice(&r), ["proxy: worker", "shop serve", "page.cgi"], "{r:#?}");
}

/// A server that copies from one connection to another was found to have its client's only: it had sent the other one what
/// that asked, and waits for the answer.
#[test]
fn who_was_asked_over_one_of_two_connections_is_followed_though_it_was_not_found() {
    let mut d = Drawing::new(20.0);
    let client = d.process("ask", "ask price", None, 0.5);
    let relay = d.process("relay", "relay listen", None, 0.0);
    let program = d.process("calc", "calc price", Some(relay), 0.6);
    let (near, far) = (endpoint_v4(1, 40_000), endpoint_v4(1, 8383));
    let [own, at] = [(near, far), (far, near)].map(|(a, b)| d.object(ObjectKind::Tcp, a, b, ""));
    let [to, end] = [(71, 72), (72, 71)].map(|(a, b)| d.object(ObjectKind::UnixStream, a, b, ""));
    let both = d.set(&[to, at]);
    d.message(client, own, Direction::Send, 1.0, 3);
    d.wait(relay, 0.7, 1.001, "select").on(both).by(client, "write", own);
    d.message(relay, at, Direction::Receive, 1.0015, 3);
    d.message(relay, to, Direction::Send, 1.002, 3);
    d.message(program, end, Direction::Receive, 1.003, 3);
    d.wait(client, 1.001, 20.0, "read").on(own).open();
    d.wait(relay, 1.0025, 20.0, "select").on(both).open();
    let sums = d.stack(&["price (calc)", "main (calc)"]);
    d.runs(program, 1.004, 20.0, sums);
    d.hold(relay, client, own, Relation::Peer, 3.0);
    d.hold(client, relay, at, Relation::Peer, 3.0);
    let r = d.diagnose("^ask ");
    assert_eq!(slice(&r), ["relay listen", "calc price"], "{r:#?}");
}

/// A thread of the server's own does what was asked, and tells it by a counter. What the server writes to its log meanwhile
/// nobody answers.
#[test]
fn a_pool_of_the_servers_own_is_what_it_waited_for_though_it_writes_a_log() {
    let mut p = Proxy::new();
    p.asks_in_vain();
    let [log, end] = [(3001, 3002), (3002, 3001)].map(|(a, b)| p.d.object(ObjectKind::UnixStream, a, b, ""));
    p.d.catalog.objects[log.index()].connected = true;
    let journal = p.d.process("journal", "journal", None, 0.0);
    for at in [0.2, 1.003] {
        p.d.message(p.worker, log, Direction::Send, at, 40);
        p.d.message(journal, end, Direction::Receive, at + 0.001, 40);
    }
    p.d.wait(journal, 1.01, 20.0, "epoll_wait").on(end).open();
    let pool = p.d.thread(p.worker, "pool", 0.0);
    let counter = p.d.object(ObjectKind::EventFd, 600, 0, "");
    let sums = p.d.stack(&["add_up (proxy)", "main (proxy)"]);
    p.d.runs(pool, 1.004, 15.0, sums);
    p.d.wait(p.worker, 1.01, 15.0, "epoll_wait").on(p.epoll).by(pool, "write", counter);
    p.d.wait(p.worker, 15.01, 20.0, "epoll_wait").on(p.epoll).open();
    let r = p.diagnose();
    assert!(r.slice.iter().all(|s| s.process != "journal"), "{r:#?}");
    assert_eq!(r.root_causes[0].function.as_deref(), Some("add_up"), "{r:#?}");
}

/// A service that greets who connects is asked then: what it was asked last it owes, though it spoke first.
#[test]
fn a_service_that_greets_is_asked_like_any_other() {
    let mut p = Proxy::new();
    p.asks_in_vain();
    let [.., to, at] = p.ends;
    p.d.message(p.service, at, Direction::Send, 0.3, 10);
    p.d.message(p.worker, to, Direction::Receive, 0.301, 10);
    p.asks_on();
    p.d.wait(p.worker, 1.01, 20.0, "epoll_wait").on(p.epoll).open();
    assert_eq!(slice(&p.diagnose()), ["proxy: worker", "shop serve"]);
}

/// A server took a request and never answers it, while others come, ask and are answered: these are not what it waits for.
#[test]
fn a_server_that_answers_everybody_else_is_where_the_way_ends() {
    let mut d = Drawing::new(12.0);
    let client = d.process("ask", "ask", None, 0.0);
    let store = d.process("store", "store", None, 0.0);
    let watch = d.process("sh", "sh watch.sh", None, 0.0);
    let port = |n: u16| endpoint_v4(0x7f00_0001, n);
    let pair = |d: &mut Drawing, n: u16| {
        (
            d.object(ObjectKind::Tcp, port(n), port(6379), ""),
            d.object(ObjectKind::Tcp, port(6379), port(n), ""),
        )
    };
    let (near, far) = pair(&mut d, 40_000);
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    d.message(client, near, Direction::Send, 1.0, 33);
    d.wait(store, 0.1, 1.0, "epoll_wait").on(epoll).by(client, "sendto", far);
    d.message(store, far, Direction::Receive, 1.001, 33);
    d.wait(client, 1.002, 11.5, "recvfrom").on(near).open();
    d.hold(store, client, near, Relation::Peer, 2.0);
    let mut since = 1.003;
    for n in 0..9u16 {
        let at = 2.0 + f64::from(n);
        d.wait(watch, at - 0.98, at - 0.02, "clock_nanosleep").times_out();
        let looks = d.process("look", "look health", Some(watch), at - 0.01);
        let (own, theirs) = pair(&mut d, 40_001 + n);
        d.spawn(watch, looks, at - 0.01);
        d.message(looks, own, Direction::Send, at, 9);
        d.wait(store, since, at, "epoll_wait").on(epoll).by(looks, "sendto", theirs);
        d.message(store, theirs, Direction::Receive, at + 0.001, 9);
        d.message(store, theirs, Direction::Send, at + 0.002, 9);
        d.wait(looks, at + 0.001, at + 0.002, "recvfrom").on(own).by(store, "sendto", theirs);
        d.exit(looks, at + 0.01);
        since = at + 0.003;
    }
    d.wait(store, since, 11.5, "epoll_wait").on(epoll).open();
    let r = d.diagnose("^ask$");
    assert_eq!(slice(&r), ["store"], "{r:#?}");
    assert!(r.root_causes[0].why.contains("never answered"), "{}", r.root_causes[0].why);
}
