//! A server that answers by a time-out of its own, and is asked again: one wait for what it does not have yet.

use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectId, ObjectKind, Relation, ThreadId};
use pg_graph::report::Report;

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

    fn diagnose(mut self, asks: bool) -> Report {
        for n in 2..13 {
            self.turn(f64::from(n), asks);
        }
        let [own, _, _, far] = self.ends;
        self.d.hold(self.server, self.consumer, own, Relation::Peer, 1.5);
        self.d.hold(self.worker, self.server, far, Relation::Peer, 1.5);
        let sums = self.d.stack(&["add_up (worker)", "main (worker)"]);
        self.d.runs(self.worker, 0.5, 13.0, sums);
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
