//! The visit traits of `petgraph` for the event graph, so that its algorithms run on the columns as they are.
//!
//! Program order counts as edges here: each vertex leads to the next one of its thread. Such an edge has
//! no row of its own; it is numbered after the others by the vertex it leaves.

use crate::{EdgeId, EdgeKind, EventGraph, VertexId};
use ::petgraph::visit::{
    Data, EdgeCount, EdgeIndexable, EdgeRef, GraphBase, GraphProp, IntoEdgeReferences, IntoEdges,
    IntoEdgesDirected, IntoNeighbors, IntoNeighborsDirected, IntoNodeIdentifiers, NodeCompactIndexable,
    NodeCount, NodeIndexable, VisitMap, Visitable,
};
use ::petgraph::{Directed, Direction};

/// Set of visited vertices, one bit each.
#[derive(Clone, Debug, Default)]
pub struct Visited {
    bits: Vec<u64>,
}

impl VisitMap<VertexId> for Visited {
    fn visit(&mut self, v: VertexId) -> bool {
        let first = !self.is_visited(&v);
        if let Some(word) = self.bits.get_mut(v.index() / 64) {
            *word |= 1 << (v.0 % 64);
        }
        first
    }

    fn is_visited(&self, v: &VertexId) -> bool {
        self.bits.get(v.index() / 64).is_some_and(|w| w >> (v.0 % 64) & 1 == 1)
    }

    fn unvisit(&mut self, v: VertexId) -> bool {
        let was = self.is_visited(&v);
        if let Some(word) = self.bits.get_mut(v.index() / 64) {
            *word &= !(1 << (v.0 % 64));
        }
        was
    }
}

/// An edge as `petgraph` sees it; program order included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdgeReference {
    id: EdgeId,
    from: VertexId,
    to: VertexId,
    kind: &'static EdgeKind,
}

impl EdgeRef for EdgeReference {
    type NodeId = VertexId;
    type EdgeId = EdgeId;
    type Weight = EdgeKind;

    fn source(&self) -> VertexId {
        self.from
    }

    fn target(&self) -> VertexId {
        self.to
    }

    fn weight(&self) -> &EdgeKind {
        self.kind
    }

    fn id(&self) -> EdgeId {
        self.id
    }
}

/// A kind that outlives every borrow.
fn lasting(kind: EdgeKind) -> &'static EdgeKind {
    const KINDS: [EdgeKind; 10] = [
        EdgeKind::ProgramOrder,
        EdgeKind::WakeUp,
        EdgeKind::Futex,
        EdgeKind::Ipc,
        EdgeKind::Timer,
        EdgeKind::Work,
        EdgeKind::DataFlag,
        EdgeKind::Spawn,
        EdgeKind::Exit,
        EdgeKind::Holder,
    ];
    &KINDS[kind as usize]
}

impl EventGraph {
    fn reference(&self, id: EdgeId) -> EdgeReference {
        let e = self.edge(id);
        EdgeReference { id, from: e.from, to: e.to, kind: lasting(e.kind) }
    }

    fn order(&self, from: VertexId, to: VertexId) -> EdgeReference {
        // Numbered after the edges that have rows; numbers beyond 32 bits do not occur in practice.
        let id = EdgeId((self.edge_count() as u32).wrapping_add(from.0));
        EdgeReference { id, from, to, kind: lasting(EdgeKind::ProgramOrder) }
    }
}

impl GraphBase for EventGraph {
    type NodeId = VertexId;
    type EdgeId = EdgeId;
}

impl Data for EventGraph {
    type NodeWeight = VertexId;
    type EdgeWeight = EdgeKind;
}

impl GraphProp for EventGraph {
    type EdgeType = Directed;
}

impl NodeCount for EventGraph {
    fn node_count(&self) -> usize {
        self.vertex_count()
    }
}

impl EdgeCount for EventGraph {
    fn edge_count(&self) -> usize {
        let order: usize = self.threads.iter().map(|t| t.vertices.len().saturating_sub(1)).sum();
        self.edges.len() + order
    }
}

impl NodeIndexable for EventGraph {
    fn node_bound(&self) -> usize {
        self.vertex_count()
    }

    fn to_index(&self, v: VertexId) -> usize {
        v.index()
    }

    fn from_index(&self, i: usize) -> VertexId {
        VertexId(i as u32)
    }
}

impl NodeCompactIndexable for EventGraph {}

impl EdgeIndexable for EventGraph {
    fn edge_bound(&self) -> usize {
        self.edges.len() + self.vertex_count()
    }

    fn to_index(&self, e: EdgeId) -> usize {
        e.index()
    }

    fn from_index(&self, i: usize) -> EdgeId {
        EdgeId(i as u32)
    }
}

impl Visitable for EventGraph {
    type Map = Visited;

    fn visit_map(&self) -> Visited {
        Visited { bits: vec![0; self.vertex_count().div_ceil(64)] }
    }

    fn reset_map(&self, map: &mut Visited) {
        map.bits.clear();
        map.bits.resize(self.vertex_count().div_ceil(64), 0);
    }
}

impl<'a> IntoNodeIdentifiers for &'a EventGraph {
    type NodeIdentifiers = Box<dyn Iterator<Item = VertexId> + 'a>;

    fn node_identifiers(self) -> Self::NodeIdentifiers {
        Box::new(self.vertices())
    }
}

impl<'a> IntoNeighbors for &'a EventGraph {
    type Neighbors = Box<dyn Iterator<Item = VertexId> + 'a>;

    fn neighbors(self, v: VertexId) -> Self::Neighbors {
        self.neighbors_directed(v, Direction::Outgoing)
    }
}

impl<'a> IntoNeighborsDirected for &'a EventGraph {
    type NeighborsDirected = Box<dyn Iterator<Item = VertexId> + 'a>;

    fn neighbors_directed(self, v: VertexId, d: Direction) -> Self::NeighborsDirected {
        match d {
            Direction::Outgoing => {
                Box::new(self.next(v).into_iter().chain(self.outgoing(v).map(|e| self.edges[e.index()].to)))
            }
            Direction::Incoming => Box::new(
                self.previous(v).into_iter().chain(self.incoming(v).map(|e| self.edges[e.index()].from)),
            ),
        }
    }
}

impl<'a> IntoEdgeReferences for &'a EventGraph {
    type EdgeRef = EdgeReference;
    type EdgeReferences = Box<dyn Iterator<Item = EdgeReference> + 'a>;

    fn edge_references(self) -> Self::EdgeReferences {
        let order = self.vertices().filter_map(|v| Some(self.order(v, self.next(v)?)));
        Box::new(self.edges().map(|e| self.reference(e)).chain(order))
    }
}

impl<'a> IntoEdges for &'a EventGraph {
    type Edges = Box<dyn Iterator<Item = EdgeReference> + 'a>;

    fn edges(self, v: VertexId) -> Self::Edges {
        self.edges_directed(v, Direction::Outgoing)
    }
}

impl<'a> IntoEdgesDirected for &'a EventGraph {
    type EdgesDirected = Box<dyn Iterator<Item = EdgeReference> + 'a>;

    fn edges_directed(self, v: VertexId, d: Direction) -> Self::EdgesDirected {
        match d {
            Direction::Outgoing => Box::new(
                self.next(v)
                    .map(|n| self.order(v, n))
                    .into_iter()
                    .chain(self.outgoing(v).map(|e| self.reference(e))),
            ),
            Direction::Incoming => Box::new(
                self.previous(v)
                    .map(|p| self.order(p, v))
                    .into_iter()
                    .chain(self.incoming(v).map(|e| self.reference(e))),
            ),
        }
    }
}
