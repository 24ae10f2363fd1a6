//! Over-connections: requests of several peers that are taken together and answered together.

use crate::draw::{Drawing, ns, slice};
use pg_event::{Catalog, Direction, ObjectKind, ThreadId};
use pg_graph::{BuildOptions, EdgeId, EventGraph, VertexId, Weak};

const SEND: Direction = Direction::Send;
const RECEIVE: Direction = Direction::Receive;

/// A server and its clients, each with a connection of its own.
struct Shop {
    d: Drawing,
    server: ThreadId,
    clients: Vec<(ThreadId, pg_event::ObjectId, pg_event::ObjectId)>,
}

impl Shop {
    fn new(clients: &[&str]) -> Self {
        let mut d = Drawing::new(6.0);
        let server = d.process("srv", "srv", None, 0.0);
        let client = |(i, name): (usize, &&str)| {
            let t = d.process(name, name, None, 0.0);
            let (a, b) = (10 + i as u64, 20 + i as u64);
            let mine = d.object(ObjectKind::UnixStream, a, b, "");
            (t, mine, d.object(ObjectKind::UnixStream, b, a, ""))
        };
        let clients = clients.iter().enumerate().map(client).collect();
        Self { d, server, clients }
    }

    fn asks(&mut self, client: usize, at: f64) {
        let (t, mine, _) = self.clients[client];
        self.d.message(t, mine, SEND, at, 5);
    }

    fn takes(&mut self, client: usize, at: f64) {
        self.d.message(self.server, self.clients[client].2, RECEIVE, at, 5);
    }

    /// The client has waited for it since `since`.
    fn answers(&mut self, client: usize, since: f64, at: f64) {
        let (t, mine, theirs) = self.clients[client];
        self.d.message(self.server, theirs, SEND, at, 5);
        self.d.wait(t, since, at, "recvfrom").on(mine).by(self.server, "sendto", theirs);
        self.d.message(t, mine, RECEIVE, at + 0.000_01, 5);
    }
}

/// The edge into a vertex from a thread.
fn from(g: &EventGraph, v: VertexId, t: ThreadId) -> EdgeId {
    g.incoming(v).find(|e| g.vertex(g.edge(*e).from).thread == t).expect("an edge from it")
}

/// The edge out of a vertex to a thread.
fn to(g: &EventGraph, v: VertexId, t: ThreadId) -> EdgeId {
    g.outgoing(v).find(|e| g.vertex(g.edge(*e).to).thread == t).expect("an edge to it")
}

/// `one` wakes the server, the request of `two` is there then; both are taken, then both answered.
fn two_at_once() -> Shop {
    let mut s = Shop::new(&["one", "two"]);
    s.asks(0, 2.0);
    s.asks(1, 2.1);
    let (one, mine, _) = s.clients[0];
    s.d.wait(s.server, 0.1, 2.0, "recvmmsg").on(s.clients[0].2).by(one, "sendto", mine);
    s.takes(0, 2.2);
    s.takes(1, 2.2);
    s.answers(0, 2.01, 3.0);
    s.answers(1, 2.11, 3.1);
    s.d.wait(s.server, 3.2, 6.0, "recvmmsg").on(s.clients[0].2).open();
    for i in 0..2 {
        s.d.wait(s.clients[i].0, 3.5, 6.0, "pause").open();
    }
    s
}

fn built(s: Shop, split_batches: bool) -> (EventGraph, Catalog) {
    s.d.build_with(BuildOptions { split_batches, ..BuildOptions::default() })
}

#[test]
fn a_request_is_a_weak_cause_of_anothers_answer() {
    let s = two_at_once();
    let (server, one, two) = (s.server, s.clients[0].0, s.clients[1].0);
    let (g, c) = built(s, true);
    let v = g.vertex_at(server, ns(2.5)).unwrap();
    assert_eq!(g.vertex(v).split, None);
    for asks in [one, two] {
        let request = from(&g, v, asks);
        assert_eq!(g.edge(request).weak, Some(Weak::Together));
        for answered in [one, two] {
            let way = g.way(request, to(&g, v, answered), &c);
            let expected = (asks != answered).then_some(Weak::Together);
            assert_eq!(way, expected, "{asks:?} {answered:?}");
        }
    }
    assert!(Weak::Together.words().contains("together"));
}

#[test]
fn the_criterion_is_optional() {
    let s = two_at_once();
    let server = s.server;
    let (g, c) = built(s, false);
    let v = g.vertex_at(server, ns(2.5)).unwrap();
    for into in g.incoming(v) {
        assert_eq!(g.edge(into).weak, None);
        assert!(g.outgoing(v).all(|out| g.way(into, out, &c).is_none()));
    }
}

/// What one says is told to all, also to itself: the others had asked nothing.
#[test]
fn a_broadcast_stays_strong() {
    let mut s = Shop::new(&["one", "two", "three"]);
    s.asks(0, 2.0);
    let (one, mine, theirs) = s.clients[0];
    s.d.wait(s.server, 0.1, 2.0, "epoll_wait").on(theirs).by(one, "sendto", mine);
    s.takes(0, 2.2);
    for i in 0..3 {
        s.answers(i, 1.0 + f64::from(i as u8), 3.0 + f64::from(i as u8) * 0.1);
    }
    s.d.wait(s.server, 3.5, 6.0, "epoll_wait").on(theirs).open();
    let server = s.server;
    let (g, _) = built(s, true);
    let v = g.vertex_at(server, ns(2.5)).unwrap();
    assert_eq!(g.outgoing(v).len(), 3);
    assert_eq!(g.edge(from(&g, v, one)).weak, None);
}

/// A server that asks another one before it answers: that answer is no request.
#[test]
fn the_answer_of_a_server_behind_stays_strong() {
    let mut s = Shop::new(&["one", "two", "behind"]);
    let (behind, its, ours) = s.clients[2];
    for i in 0..2 {
        s.asks(i, 0.5);
        s.takes(i, 0.6);
    }
    s.d.message(s.server, ours, SEND, 0.7, 5);
    s.d.wait(behind, 0.1, 0.7, "recvfrom").on(its).by(s.server, "sendto", ours);
    s.d.wait(s.server, 0.8, 2.0, "recvfrom").on(ours).by(behind, "sendto", its);
    s.d.message(behind, its, SEND, 2.0, 5);
    s.takes(2, 2.01);
    s.answers(0, 0.55, 3.0);
    s.answers(1, 0.55, 3.1);
    s.d.wait(s.server, 3.2, 6.0, "epoll_wait").on(ours).open();
    let server = s.server;
    let (g, _) = built(s, true);
    let v = g.vertex_at(server, ns(2.5)).unwrap();
    assert_eq!(g.outgoing(v).len(), 2);
    assert_eq!(g.edge(from(&g, v, behind)).weak, None);
}

/// Who waits for such a server is told that the way on to another client is weak.
#[test]
fn the_way_on_to_another_client_says_that_it_is_weak() {
    let mut s = Shop::new(&["one", "two"]);
    s.asks(0, 0.1);
    s.takes(0, 0.2);
    // The server waits for the second one before it answers the first one.
    let (two, its, ours) = s.clients[1];
    s.d.wait(s.server, 0.3, 5.0, "recvfrom").on(ours).by(two, "sendto", its);
    let busy = s.d.stack(&["think (two)"]);
    s.d.runs(two, 0.1, 5.0, busy);
    s.asks(1, 5.0);
    s.takes(1, 5.01);
    s.answers(0, 0.11, 5.1);
    s.answers(1, 5.02, 5.11);
    s.d.wait(s.server, 5.2, 6.0, "recvfrom").on(ours).open();
    for i in 0..2 {
        s.d.wait(s.clients[i].0, 5.3, 6.0, "pause").open();
    }
    let r = s.d.diagnose("^one$");
    let way: Vec<_> = r.slice.iter().map(|n| (n.cmdline.as_str(), n.why_weak.as_deref())).collect();
    assert_eq!(way.first().map(|w| w.0), Some("one"), "{way:?}");
    let (server, last) = (&way[1], way.last().unwrap());
    assert_eq!((server.0, server.1), ("srv", None), "{way:?}");
    assert_eq!((last.0, last.1), ("two", Some(Weak::Together.words())), "{way:?}");
}

/// The owner of a clipboard lets a server answer somebody who pastes; that one asks for more before the server waits again.
#[test]
fn what_was_asked_after_the_answer_did_not_bring_it() {
    let mut s = Shop::new(&["paste", "owner"]);
    s.asks(0, 1.0);
    let (paste, mine, _) = s.clients[0];
    s.d.wait(s.server, 0.1, 1.0, "recvmmsg").on(s.clients[0].2).by(paste, "sendto", mine);
    s.takes(0, 1.001);
    let (owner, own, theirs) = s.clients[1];
    s.d.message(s.server, theirs, SEND, 1.002, 5);
    let disk = s.d.object(ObjectKind::File, 77, 0, "/srv/log");
    s.d.wait(owner, 0.5, 4.0, "fsync").on(disk);
    s.asks(1, 4.001);
    s.d.wait(s.server, 1.003, 4.001, "recvmmsg").on(theirs).by(owner, "sendto", own);
    s.takes(1, 4.002);
    s.answers(1, 4.0015, 4.003);
    s.answers(0, 1.0005, 4.004);
    s.asks(0, 4.005);
    s.takes(0, 4.006);
    s.answers(0, 4.0055, 4.007);
    // The owner goes on asking all the time.
    s.asks(1, 4.0065);
    s.takes(1, 4.0075);
    s.answers(1, 4.0068, 4.008);
    s.d.wait(s.server, 4.01, 6.0, "recvmmsg").on(theirs).open();
    for t in [paste, owner] {
        s.d.wait(t, 4.02, 6.0, "pause").open();
    }
    let r = s.d.diagnose("paste");
    // That the owner did it is a guess; what was asked later is none.
    assert_eq!(r.questions.iter().map(|q| q.options).collect::<Vec<_>>(), [1]);
    assert_eq!(slice(&r), ["srv", "owner"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("owner"), "{:?}", r.root_causes[0].why);
}
