//! A server that answers by a time-out of its own, and is asked again: one wait for what it does not have yet.

use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, ThreadId};
use pg_graph::report::Report;
use pg_graph::{Selection, VictimOptions, select};

/// A consumer that asks a queue for an answer, which puts it off each second; the worker has what it waits for.
struct Queue {
    d: Drawing,
    server: ThreadId,
    consumer: ThreadId,
    worker: ThreadId,
    epoll: ObjectId,
    /// The consumer's end and the server's, the worker's and the server's.
    ends: [ObjectId; 4],
}

impl Queue {
    fn new() -> Self {
        let mut d = Drawing::new(13.0);
        let server = d.process("queued", "queued", None, 0.0);
        let consumer = d.process("consumer", "consumer wait", None, 0.0);
        let worker = d.process("worker", "worker work", None, 0.0);
        let ends = [(1001, 80), (80, 1001), (1002, 80), (80, 1002)];
        let ends = ends.map(|(id, peer)| d.object(ObjectKind::UnixStream, id, peer, "/run/queue"));
        let listens = d.object(ObjectKind::UnixStream, 80, 0, "/run/queue");
        let epoll = d.set(&[listens, ends[1], ends[3]]);
        for end in [ends[0], ends[2]] {
            d.catalog.objects[end.index()].connected = true;
        }
        Self { d, server, consumer, worker, epoll, ends }
    }

    /// One turn that ends at `at`: with `asks` the consumer had asked a second before.
    fn turn(&mut self, at: f64, asks: bool) {
        let [own, far, ..] = self.ends;
        if asks {
            self.d.message(self.consumer, own, Direction::Send, at - 0.999, 40);
        }
        self.d.wait(self.server, at - 0.990, at - 0.001, "epoll_wait").on(self.epoll).times_out();
        self.d.message(self.server, far, Direction::Send, at - 0.0005, 10);
        self.d.wait(self.consumer, at - 0.998, at, "recvfrom").on(own).by(self.server, "write", far);
        self.d.message(self.consumer, own, Direction::Receive, at + 0.0001, 10);
        if asks {
            self.d.message(self.server, far, Direction::Receive, at + 0.0015, 40);
        }
    }

    /// The turns of the server, and what it has of the consumer.
    fn turns(&mut self, asks: bool) {
        for n in 2..13 {
            self.turn(f64::from(n), asks);
        }
        self.d.hold(self.server, self.consumer, self.ends[0], Relation::Peer, 1.5);
    }

    /// A client of the server computes.
    fn computes(&mut self, client: ThreadId, far: ObjectId) {
        let sums = self.d.stack(&["add_up (worker)", "main (worker)"]);
        self.d.hold(client, self.server, far, Relation::Peer, 1.5);
        self.d.runs(client, 0.5, 13.0, sums);
    }

    /// Another client, and the server's end of its connection.
    fn another(&mut self, name: &str, id: u64) -> (ThreadId, ObjectId) {
        let t = self.d.process(name, name, None, 0.0);
        (t, self.d.object(ObjectKind::UnixStream, 80, id, "/run/queue"))
    }

    fn diagnose(mut self, asks: bool) -> Report {
        self.turns(asks);
        self.computes(self.worker, self.ends[3]);
        self.d.diagnose("^consumer")
    }
}

/// It is one wait, and whoever has taken what is to come is its cause.
#[test]
fn who_is_put_off_and_asks_again_waits_on() {
    let r = Queue::new().diagnose(true);
    assert!(r.victim.duration_ns > 10_000_000_000, "{:?}", r.victim);
    assert_eq!(slice(&r), ["queued", "worker work"], "{r:#?}");
    assert!(r.root_causes[0].why.contains("add_up"), "{r:#?}");
}

/// What comes each second unasked is what it waited for each time.
#[test]
fn who_hears_something_each_second_waits_for_a_second() {
    let r = Queue::new().diagnose(false);
    assert!(r.victim.duration_ns < 1_100_000_000, "{:?}", r.victim);
}

/// Who only sleeps has nothing of what is asked for; and of two that are at work nobody can tell which has.
#[test]
fn no_client_is_blamed_that_may_have_nothing_to_do_with_it() {
    for sleeps in [true, false] {
        let mut q = Queue::new();
        q.turns(true);
        let (other, far) = q.another("cron", 1003);
        if sleeps {
            q.d.hold(other, q.server, far, Relation::Peer, 1.5);
            q.d.wait(other, 0.5, 13.0, "clock_nanosleep").before().open();
        } else {
            q.computes(other, far);
            q.computes(q.worker, q.ends[3]);
        }
        let r = q.d.diagnose("^consumer");
        assert_eq!(slice(&r), ["queued"], "{sleeps}: {r:#?}");
        let why = &r.root_causes[0].why;
        assert!(why.contains(" times, each time when a time-out of its own had passed"), "{why}");
    }
}

/// A server that ticks answers who asked in between by the next tick: to ask it for something else then is no wait that goes on.
#[test]
fn the_ticks_of_a_server_put_nobody_off() {
    let mut q = Queue::new();
    let [own, far, ..] = q.ends;
    for n in 0..15 {
        let at = 2.0 + 0.7 * f64::from(n);
        q.d.message(q.consumer, own, Direction::Send, at - 0.601, 40);
        q.d.wait(q.server, at - 0.69, at - 0.001, "epoll_wait").on(q.epoll).times_out();
        q.d.message(q.server, far, Direction::Send, at - 0.0005, 10);
        // It computes with what it got, and asks for the next.
        q.d.wait(q.consumer, at - 0.6, at, "recvfrom").on(own).by(q.server, "write", far);
        q.d.message(q.consumer, own, Direction::Receive, at + 0.0001, 10);
    }
    let r = q.d.diagnose("^consumer");
    assert!(r.victim.duration_ns < 2_000_000_000, "{:?}", r.victim);
}

/// A worker that asks an empty queue again and again hangs less than who waits for an answer half as long.
#[test]
fn who_polls_a_queue_is_no_victim_before_who_waits_for_an_answer() {
    let mut q = Queue::new();
    q.turns(true);
    let (client, server) =
        (q.d.process("client", "client get", None, 0.0), q.d.process("shop", "shop", None, 0.0));
    let (own, far) = (q.d.object(ObjectKind::Pipe, 7, 7, ""), q.d.object(ObjectKind::Pipe, 8, 8, ""));
    q.d.message(client, far, Direction::Send, 3.0, 9);
    q.d.wait(client, 3.1, 9.0, "read").on(own).by(server, "write", own);
    q.d.wait(client, 9.1, 13.0, "pause").open();
    for idle in [server, q.worker] {
        q.d.wait(idle, 0.1, 8.9, "pause").by(q.server, "kill", ObjectId::NONE);
        q.d.wait(idle, 9.1, 13.0, "pause").open();
    }
    let (g, c) = q.d.build();
    let found = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(found.thread, client, "{found:?}");
}

/// A server waits for more from an idle client until its own time-out, closes the connection, which the client's kernel
/// acknowledges, and waits once more: that packet is nothing the client did.
#[test]
fn a_packet_is_not_of_who_slept_all_the_time() {
    let mut d = Drawing::new(12.0);
    let web = d.process("web", "web", None, 0.0);
    let idle = d.process("idle", "idle", None, 0.0);
    let ask = d.process("ask", "ask", None, 0.0);
    let ends = [(1001, 80), (80, 1001), (1002, 80), (80, 1002)];
    let [a, to_idle, b, to_ask] = ends.map(|(id, peer)| d.object(ObjectKind::Tcp, id, peer, ""));
    d.message(idle, a, Direction::Send, 0.1, 73);
    d.message(web, to_idle, Direction::Receive, 0.11, 73);
    d.message(web, to_idle, Direction::Send, 0.12, 205);
    d.message(ask, b, Direction::Send, 1.0, 80);
    d.wait(idle, 0.13, 12.0, "clock_nanosleep").open();
    d.wait(web, 0.12, 9.12, "poll").on(to_idle).times_out();
    d.wait(web, 9.1201, 9.16, "poll").on(to_idle).packet();
    d.wait(web, 9.1601, 11.12, "poll").on(to_idle).times_out();
    d.wait(ask, 1.0001, 11.121, "poll").on(b).by(web, "writev", to_ask);
    d.hold(idle, web, to_idle, Relation::Peer, 1.5);
    let r = d.diagnose("^ask$");
    assert_eq!(slice(&r), ["web", "idle"], "{r:#?}");
    assert!(r.root_causes[0].why.starts_with("idle (pid 1001) slept 10.1 s"), "{}", r.root_causes[0].why);
}

/// A server answers by its own time-out (`WAIT` of redis); a replica of it was stopped meanwhile. Of two it is not known which one
/// it waited for.
#[test]
fn a_peer_that_stands_still_is_what_an_idle_server_may_wait_for() {
    for replicas in [1, 2] {
        let mut d = Drawing::new(12.0);
        let store = d.process("store", "store", None, 0.0);
        let ask = d.process("ask", "ask", None, 0.0);
        let [own, far] = [(1001, 80), (80, 1001)].map(|(id, peer)| d.object(ObjectKind::Tcp, id, peer, ""));
        let mut watched = vec![far];
        for n in 0..replicas {
            let replica = d.process("replica", "replica", None, 0.0);
            let end = d.object(ObjectKind::Tcp, 80, 2000 + n, "");
            watched.push(end);
            d.wait(replica, 1.0, 12.0, "epoll_wait").state(OffState::Stopped).open();
            d.hold(replica, store, end, Relation::Peer, 0.7);
        }
        let epoll = d.object(ObjectKind::Epoll, 5, 0, "");
        d.catalog.objects[epoll.index()].members = watched;
        d.message(ask, own, Direction::Send, 1.1, 13);
        d.message(store, far, Direction::Receive, 1.101, 13);
        let mut at = 1.102;
        while at < 9.9 {
            d.wait(store, at, at + 0.1, "epoll_wait").on(epoll).times_out();
            at += 0.1002;
        }
        d.wait(ask, 1.102, at, "recvfrom").on(own).by(store, "write", far);
        let r = d.diagnose("^ask$");
        let told = r.root_causes[0].why.starts_with("replica (pid 1002) was stopped");
        assert_eq!(told, replicas == 1, "{r:#?}");
        assert!(r.questions.is_empty());
    }
}
