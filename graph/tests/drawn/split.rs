//! Over-connections: segments that serve several requesters are split between them.

use crate::draw::{Drawing, ns};
use pg_event::{Catalog, Direction, ObjectId, ObjectKind, ThreadId};
use pg_graph::sim::{Act, Recording, Script, Setup};
use pg_graph::{BuildOptions, Builder, EventGraph, VertexId, Weak};
use proptest::prelude::*;

/// An event loop takes a request of one client, answers it, takes one of another, answers that.
fn two_clients(call: &str) -> (EventGraph, Catalog, [ThreadId; 3]) {
    let mut d = Drawing::new(4.0);
    let server = d.process("srv", "srv", None, 0.0);
    let clients = [d.process("one", "one", None, 0.0), d.process("two", "two", None, 0.0)];
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let mut ends: Vec<(ObjectId, ObjectId)> = Vec::new();
    for i in 0..2u64 {
        let mine = d.object(ObjectKind::UnixStream, 10 + i, 20 + i, "");
        ends.push((mine, d.object(ObjectKind::UnixStream, 20 + i, 10 + i, "")));
    }
    for (i, c) in clients.iter().enumerate() {
        d.message(*c, ends[i].0, Direction::Send, 0.99, 5);
        d.wait(*c, 1.0, 2.0 + i as f64 * 0.5, "recvfrom").on(ends[i].0).by(server, "sendto", ends[i].1);
        d.wait(*c, 3.5, 4.0, "pause").open();
    }
    let on = if call == "epoll_wait" { epoll } else { ends[0].1 };
    d.wait(server, 0.1, 0.99, call).on(on).by(clients[0], "sendto", ends[0].0);
    for (i, end) in ends.iter().enumerate() {
        let t = 1.5 + i as f64 * 0.51;
        d.message(server, end.1, Direction::Receive, t, 5);
        d.message(server, end.1, Direction::Send, t + 0.4899, 5);
    }
    d.wait(server, 3.0, 4.0, call).on(on).open();
    let (g, c) = d.build();
    (g, c, [server, clients[0], clients[1]])
}

#[test]
fn a_turn_is_split_by_the_descriptor_it_serves() {
    for (call, why) in [("epoll_wait", Weak::Batch), ("recvfrom", Weak::HeuristicSplit)] {
        let (g, _, [server, one, two]) = two_clients(call);
        let parts: Vec<VertexId> = g.vertices_of(server).collect();
        let splits: Vec<_> = parts.iter().filter_map(|v| g.vertex(*v).split).collect();
        assert_eq!(splits, [why], "{call}");
        let part = g.vertex_at(server, ns(2.2)).unwrap();
        let v = g.vertex(part);
        assert_eq!((v.start, v.woken, v.run, v.end), (ns(2.01), ns(2.01), ns(2.01), ns(3.0)));
        // Each part has the edge of the client that it serves, and no other.
        let from = |v| -> Vec<ThreadId> { g.incoming(v).map(|e| g.vertex(g.edge(e).from).thread).collect() };
        assert_eq!(from(g.previous(part).unwrap()), [one]);
        assert_eq!(from(part), [two]);
        let answered = |c| g.edge(g.waking(g.vertices_of(c).nth(1).unwrap()).unwrap()).from;
        assert_eq!((answered(one), answered(two)), (g.previous(part).unwrap(), part));
        assert!(!why.words().is_empty());
    }
}

/// An event loop that one client woke serves another first: his answer has nothing to do with who woke it.
#[test]
fn who_woke_an_event_loop_need_not_be_served_first() {
    let mut d = Drawing::new(4.0);
    let server = d.process("srv", "srv", None, 0.0);
    let clients = [d.process("one", "one", None, 0.0), d.process("two", "two", None, 0.0)];
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let ends: Vec<_> = (0..2u64)
        .map(|i| {
            let mine = d.object(ObjectKind::UnixStream, 10 + i, 20 + i, "");
            (mine, d.object(ObjectKind::UnixStream, 20 + i, 10 + i, ""))
        })
        .collect();
    for (i, (sent, answered)) in [(1.2, 2.0), (0.99, 2.5)].into_iter().enumerate() {
        d.message(clients[i], ends[i].0, Direction::Send, sent, 5);
        d.wait(clients[i], sent + 0.01, answered, "recvfrom").on(ends[i].0).by(server, "sendto", ends[i].1);
        d.message(server, ends[i].1, Direction::Receive, answered - 0.4, 5);
        d.message(server, ends[i].1, Direction::Send, answered - 0.001, 5);
    }
    d.wait(server, 0.1, 0.99, "epoll_wait").on(epoll).by(clients[1], "sendto", ends[1].0);
    d.wait(server, 3.0, 4.0, "epoll_wait").on(epoll).open();
    let (g, _) = d.build();
    let from = |v| -> Vec<ThreadId> { g.incoming(v).map(|e| g.vertex(g.edge(e).from).thread).collect() };
    let answers = |v| -> Vec<ThreadId> { g.outgoing(v).map(|e| g.vertex(g.edge(e).to).thread).collect() };
    let parts: Vec<_> = [1.3, 1.8, 2.2].map(|t| g.vertex_at(server, ns(t)).unwrap()).into();
    let splits: Vec<_> = parts.iter().map(|v| (g.vertex(*v).start, g.vertex(*v).split)).collect();
    assert_eq!(splits, [(ns(0.1), None), (ns(1.6), Some(Weak::Batch)), (ns(2.1), Some(Weak::Batch))]);
    let [one, two] = clients;
    assert_eq!((from(parts[0]), answers(parts[0])), (vec![two], vec![]));
    assert_eq!((from(parts[1]), answers(parts[1])), (vec![one], vec![one]));
    assert_eq!((from(parts[2]), answers(parts[2])), (vec![two], vec![two]));
}

/// Who takes a message out of a socket's buffer wakes its sender, who waits for the answer already: that wake-up comes
/// before the reception is recorded, and is no act of the part before.
#[test]
fn a_reception_begins_with_the_wake_up_of_its_sender() {
    let mut d = Drawing::new(4.0);
    let server = d.process("srv", "srv", None, 0.0);
    let clients = [d.process("one", "one", None, 0.0), d.process("two", "two", None, 0.0)];
    let ends: Vec<_> = (0..2u64)
        .map(|i| {
            let mine = d.object(ObjectKind::UnixStream, 10 + i, 20 + i, "");
            (mine, d.object(ObjectKind::UnixStream, 20 + i, 10 + i, ""))
        })
        .collect();
    d.message(clients[0], ends[0].0, Direction::Send, 0.99, 5);
    d.wait(clients[0], 1.0, 2.0, "recvfrom").on(ends[0].0).by(server, "sendto", ends[0].1);
    d.message(clients[1], ends[1].0, Direction::Send, 1.1, 5);
    d.wait(clients[1], 1.11, 2.1, "recvfrom").on(ends[1].0).by(server, "recvfrom", ends[1].1);
    d.wait(clients[1], 2.11, 3.0, "recvfrom").on(ends[1].0).by(server, "sendto", ends[1].1);
    d.wait(server, 0.1, 0.99, "recvfrom").on(ends[0].1).by(clients[0], "sendto", ends[0].0);
    // The record of the first reception is written together with that of the second.
    d.message_told(server, ends[0].1, Direction::Receive, (1.5, 2.102), 5);
    d.message(server, ends[0].1, Direction::Send, 2.0, 5);
    d.message_told(server, ends[1].1, Direction::Receive, (2.101, 2.102), 5);
    d.message(server, ends[1].1, Direction::Send, 2.999, 5);
    d.wait(server, 3.1, 4.0, "recvfrom").on(ends[0].1).open();
    let (g, _) = d.build();
    let part = g.vertex_at(server, ns(2.2)).unwrap();
    assert_eq!((g.vertex(part).start, g.vertex(part).split), (ns(2.1), Some(Weak::HeuristicSplit)));
    let woken: Vec<_> =
        g.vertices_of(clients[1]).filter_map(|v| g.waking(v)).map(|e| g.edge(e).from).collect();
    assert_eq!(woken, [part, part]);
}

/// The requests of two are taken, then both are answered: neither answer is cut off from its request.
#[test]
fn who_is_answered_later_is_not_done_with() {
    let mut d = Drawing::new(4.0);
    let server = d.process("srv", "srv", None, 0.0);
    let mut ends = Vec::new();
    for i in 0..2u64 {
        let c = d.process(["one", "two"][i as usize], "client", None, 0.0);
        let mine = d.object(ObjectKind::UnixStream, 10 + i, 20 + i, "");
        ends.push(d.object(ObjectKind::UnixStream, 20 + i, 10 + i, ""));
        d.message(c, mine, Direction::Send, 0.9, 5);
    }
    for (t, i, direction) in [
        (1.0, 0, Direction::Receive),
        (1.1, 1, Direction::Receive),
        (1.5, 0, Direction::Send),
        (1.6, 1, Direction::Send),
    ] {
        d.message(server, ends[i], direction, t, 5);
    }
    d.wait(server, 0.1, 0.99, "pause").timer();
    d.wait(server, 3.0, 4.0, "pause").open();
    let (g, _) = d.build();
    assert!(g.vertices().all(|v| g.vertex(v).split.is_none()));
}

#[test]
fn what_belongs_together_stays_together() {
    let mut d = Drawing::new(4.0);
    let (bus, a, b) =
        (d.process("bus", "bus", None, 0.0), d.process("a", "a", None, 0.0), d.process("b", "b", None, 0.0));
    let ends: Vec<_> = (0..2u64)
        .map(|i| {
            (
                d.object(ObjectKind::UnixStream, 10 + i, 20 + i, ""),
                d.object(ObjectKind::UnixStream, 20 + i, 10 + i, ""),
            )
        })
        .collect();
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    d.message(a, ends[0].0, Direction::Send, 0.9, 5);
    d.wait(bus, 0.1, 0.9, "epoll_wait").on(epoll).by(a, "sendto", ends[0].0);
    // Takes from `a`, hands on to `b`, takes the answer of `b`: one request.
    d.message(bus, ends[0].1, Direction::Receive, 1.0, 5);
    d.message(bus, ends[1].1, Direction::Send, 1.1, 5);
    d.message(b, ends[1].0, Direction::Send, 1.15, 5);
    d.message(bus, ends[1].1, Direction::Receive, 1.2, 5);
    d.wait(bus, 2.0, 4.0, "epoll_wait").on(epoll).open();
    let (g, _) = d.build();
    assert!(g.vertices().all(|v| g.vertex(v).split.is_none()));
}

fn built(r: &Recording, split: bool) -> EventGraph {
    let mut b =
        Builder::new(BuildOptions { split_batches: split, split_peers: split, ..BuildOptions::default() });
    b.events(&r.events, &r.catalog);
    b.finish(r.duration, &r.catalog)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 5, max_shrink_iters: 100, ..ProptestConfig::default() })]

    /// A split changes no time and loses no edge (but those within one segment, of which there are none): it only
    /// says more exactly where an edge begins and ends.
    #[test]
    fn splits_lose_nothing(clients in 2usize..6, work in 1u64..2_000, cpus in 1usize..4, slice in 1u64..9, polls: bool) {
        let us = 1_000;
        // A server that takes from all channels in turn, without waiting when there is something, or an event loop.
        let mut turn = if polls { vec![Act::Poll(0, clients)] } else { Vec::new() };
        let mut scripts = Vec::new();
        for i in 0..clients {
            let take = if polls { Act::Take(2 * i, 2) } else { Act::Receive(2 * i) };
            turn.extend([take, Act::Compute(work * us), Act::Send(2 * i + 1, 8)]);
            scripts.push(Script::forever([Act::Send(2 * i, 8), Act::Receive(2 * i + 1), Act::Sleep((i as u64 + 1) * 3000 * us)]));
        }
        scripts.push(Script::forever(turn));
        let setup = Setup { cpus, slice: slice * 200 * us, channels: vec![ObjectKind::UnixStream], ..Setup::default() };
        let (r, _) = Recording::of(setup, scripts, 300_000 * us);
        let (plain, split) = (built(&r, false), built(&r, true));
        prop_assert!(plain.vertices().all(|v| plain.vertex(v).split.is_none()));
        let parts = split.vertices().filter(|v| split.vertex(*v).split.is_some()).count();
        prop_assert_eq!(plain.vertex_count() + parts, split.vertex_count());
        for t in plain.threads() {
            prop_assert_eq!(plain.share(t, 0..r.duration), split.share(t, 0..r.duration));
            let ran = |g: &EventGraph| g.vertices_of(t).map(|v| g.vertex(v).ran()).sum::<u64>();
            prop_assert_eq!(ran(&plain), ran(&split));
        }
        // The same edges between the same threads at the same times, from the vertex that covers that time.
        let all = |g: &EventGraph| {
            let mut out: Vec<_> = g
                .edges()
                .map(|e| g.edge(e))
                .map(|e| (g.vertex(e.from).thread, e.from_time, g.vertex(e.to).thread, e.to_time, e.kind as u8))
                .collect();
            out.sort();
            out.dedup();
            out
        };
        let (a, b) = (all(&plain), all(&split));
        prop_assert!(a.iter().all(|e| b.contains(e)), "an edge was lost");
        for e in split.edges().map(|e| split.edge(e)) {
            let (f, t) = (split.vertex(e.from), split.vertex(e.to));
            prop_assert!(e.from_time >= f.start && e.from_time <= f.end, "{:?} {:?}", e, f);
            prop_assert!(e.to_time >= t.start && e.to_time <= t.end, "{:?} {:?}", e, t);
        }
    }
}
