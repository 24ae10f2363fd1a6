//! `petgraph` algorithms on the event graph.

use petgraph::Direction;
use petgraph::algo::{has_path_connecting, is_cyclic_directed, toposort};
use petgraph::visit::{
    Bfs, Dfs, EdgeCount, EdgeRef, IntoEdgeReferences, IntoEdges, IntoEdgesDirected, IntoNeighborsDirected,
    NodeCount, Reversed,
};
use pg_graph::sim::draw;
use pg_graph::{EdgeKind, EventGraph, VertexId};

fn shop() -> (pg_graph::sim::Recording, EventGraph) {
    let r = draw(
        "A ==......==
         B ===...====
         C ==========
         D ====..====
         B wakes A 8 cond
         C wakes B 6 pipe",
    )
    .expect("a drawing");
    let g = r.graph();
    (r, g)
}

fn last(g: &EventGraph, r: &pg_graph::sim::Recording, name: &str) -> VertexId {
    g.vertices_of(r.thread(name)).last().unwrap()
}

#[test]
fn causes_are_reached_backwards_and_strangers_are_not() {
    let (r, g) = shop();
    let (a, c, d) = (last(&g, &r, "A"), last(&g, &r, "C"), last(&g, &r, "D"));
    assert!(has_path_connecting(&g, c, a, None));
    assert!(!has_path_connecting(&g, d, a, None));
    assert!(!has_path_connecting(&g, a, c, None));
    let mut back = Dfs::new(Reversed(&g), a);
    let mut seen = 0;
    while back.next(Reversed(&g)).is_some() {
        seen += 1;
    }
    // Both of A, both of B, C.
    assert_eq!(seen, 5);
    let mut forward = Bfs::new(&g, c);
    let mut seen = Vec::new();
    while let Some(v) = forward.next(&g) {
        seen.push(g.vertex(v).thread);
    }
    assert_eq!(seen, [r.thread("C"), r.thread("B"), r.thread("A")]);
}

#[test]
fn time_gives_an_order() {
    let (_, g) = shop();
    assert!(!is_cyclic_directed(&g));
    let order = toposort(&g, None).expect("no circle");
    assert_eq!(order.len(), g.node_count());
    let place = |v: VertexId| order.iter().position(|x| *x == v).unwrap();
    for e in g.edge_references() {
        assert!(place(e.source()) < place(e.target()));
    }
}

#[test]
fn all_views_of_the_edges_agree() {
    let (_, g) = shop();
    let all: Vec<_> = g.edge_references().collect();
    assert_eq!(all.len(), EdgeCount::edge_count(&&g));
    assert_eq!(all.iter().filter(|e| *e.weight() == EdgeKind::ProgramOrder).count(), 3);
    for v in g.vertices() {
        let out: Vec<VertexId> = IntoEdges::edges(&g, v).map(|e| e.target()).collect();
        assert_eq!(out, g.neighbors_directed(v, Direction::Outgoing).collect::<Vec<_>>());
        let into: Vec<VertexId> = g.edges_directed(v, Direction::Incoming).map(|e| e.source()).collect();
        assert_eq!(into, g.neighbors_directed(v, Direction::Incoming).collect::<Vec<_>>());
        for t in out {
            assert!(all.iter().any(|e| e.source() == v && e.target() == t));
            assert!(g.neighbors_directed(t, Direction::Incoming).any(|x| x == v));
        }
    }
}
