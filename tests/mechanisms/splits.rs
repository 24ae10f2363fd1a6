//! Servers of two clients: what is done for one is not taken for what the other one waits for.

use crate::truth::{Truth, check};
use pg_graph::{EdgeKind, Weak};

/// Of what a server did between two answers, the parts that served different clients; and every answer's edge.
fn parts(t: &Truth, name: &str, why: Option<Weak>) {
    let g = &t.loaded.graph;
    let server = t.thread(&format!("{name}.server"));
    let splits: Vec<_> = g.vertices_of(server).filter_map(|v| g.vertex(v).split).collect();
    if let Some(why) = why {
        assert!(splits.len() > 5, "{name}: {} splits", splits.len());
        assert!(splits.iter().all(|s| *s == why), "{name}: {splits:?}");
    }
    for i in 0..2 {
        let client = t.thread(&format!("{name}.client{i}"));
        let (mut answers, mut own) = (0, 0);
        for v in g.vertices_of(client) {
            let Some(e) = g.waking(v).map(|e| g.edge(e)) else { continue };
            if g.vertex(e.from).thread != server || e.kind != EdgeKind::Ipc {
                continue;
            }
            answers += 1;
            // The segment that answered: who made it go on, directly or in its own part?
            let from = g.vertex(e.from);
            let served: Vec<_> = g.incoming(e.from).map(|e| g.vertex(g.edge(e).from).thread).collect();
            let other = t.thread(&format!("{name}.client{}", 1 - i));
            own += usize::from(!served.contains(&other) || from.split.is_some());
        }
        assert!(answers > 25, "{name}: {answers} answers to client {i}");
        assert!(own * 10 >= answers * 9, "{name}: {own} of {answers} answers are the client's own");
    }
}

#[test]
fn an_event_loop_with_several_ready() {
    check("an_event_loop_with_several_ready", ("splits", ""), "loop.server", |t| {
        parts(t, "loop", Some(Weak::Batch));
    });
}

#[test]
fn requests_of_different_peers_in_turn() {
    check("requests_of_different_peers_in_turn", ("splits", ""), "turns.server", |t| {
        parts(t, "turns", None);
    });
}

#[test]
fn messages_received_in_a_batch() {
    check("messages_received_in_a_batch", ("splits", ""), "batch.server", |t| {
        // Taken and answered in one call each: both clients have their edges, to and from one segment, and the way
        // from the request of one to the answer to the other one is weak.
        let g = &t.loaded.graph;
        let server = t.thread("batch.server");
        for client in ["batch.client0", "batch.client1"].map(|c| t.thread(c)) {
            let to = |from, to| {
                let edges = g.vertices_of(to).flat_map(|v| g.incoming(v)).map(|e| g.edge(e));
                edges.filter(|e| g.vertex(e.from).thread == from && e.kind == EdgeKind::Ipc).count()
            };
            let (asked, answered) = (to(client, server), to(server, client));
            assert!(asked >= 36 && answered >= 36, "{asked} requests, {answered} answers");
        }
        // Which request an answer was made for the messages do not tell, but whose it was they do.
        let c = &t.loaded.catalog;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for v in g.vertices_of(server).filter(|v| g.outgoing(*v).len() > 1) {
            for (into, out) in g.incoming(v).flat_map(|i| g.outgoing(v).map(move |o| (i, o))) {
                let (from, to) = (g.vertex(g.edge(into).from).thread, g.vertex(g.edge(out).to).thread);
                if g.edge(into).kind == EdgeKind::Ipc && g.edge(out).kind == EdgeKind::Ipc {
                    if from == to { &mut own } else { &mut others }.push(g.way(into, out, c));
                }
            }
        }
        assert!(own.len() > 20 && others.len() > 20, "{} and {} ways", own.len(), others.len());
        assert!(!own.contains(&Some(Weak::Together)), "{own:?}");
        // Packets arrive in interrupts; who sent one may be a guess besides.
        assert!(others.contains(&Some(Weak::Together)), "{others:?}");
        // A request whose message was not matched is one of nobody.
        let weak = others.iter().filter(|w| w.is_some()).count();
        assert!(weak * 10 >= others.len() * 9, "{weak} of {} ways to others: {others:?}", others.len());
    });
}
