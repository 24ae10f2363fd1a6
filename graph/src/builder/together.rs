//! Over-connections that no split undoes (Argus, section 4.2): requests of several peers are taken together and answered
//! together, by one call each or by calls one after another. Every answer waits for the last request then, but which of
//! them it was made for the messages do not tell: the way in from one peer is a guess for the answer to another one.

use crate::graph::EventGraph;
use crate::{EdgeId, EdgeKind, VertexId, Weak};
use pg_event::{Catalog, Ns, ProcessId, ThreadId};
use std::collections::HashMap;

/// A message between a thread and another process.
struct Message {
    time: Ns,
    peer: ProcessId,
    /// `None`: sent.
    taken: Option<EdgeId>,
}

/// Make the edges of such requests weak.
///
/// An edge is one of them when its segment answers its sender, and another process too that had asked before: sent
/// something since it was last sent something. What a broadcast brings to those who asked nothing stays strong, as does
/// the answer of a server further back, unless that is sent to as well before the segment ends.
pub(super) fn mark(g: &mut EventGraph, catalog: &Catalog) {
    let mut weak = Vec::new();
    for t in 0..g.threads.len() as u32 {
        of_thread(g, ThreadId(t), catalog, &mut weak);
    }
    for e in weak {
        g.edges[e.index()].weak = Some(Weak::Together);
    }
}

fn of_thread(g: &EventGraph, thread: ThreadId, catalog: &Catalog, weak: &mut Vec<EdgeId>) {
    let Some(own) = catalog.process_id_of(thread) else { return };
    let process = |v: VertexId| catalog.process_id_of(g.details[v.index()].thread);
    let first = g.vertices_of(thread).find(|v| sends_several(g, *v));
    if first.is_none() {
        return;
    }
    // Who sent something since he was last sent something.
    let mut asks: HashMap<ProcessId, bool> = HashMap::new();
    let mut messages: Vec<Message> = Vec::new();
    let mut answers: Vec<(Ns, ProcessId)> = Vec::new();
    for v in g.vertices_of(thread) {
        messages.clear();
        let with = |e: &EdgeId, other: fn(&crate::Edge) -> VertexId| {
            let edge = g.edge(*e);
            let peer = process(other(&edge)).filter(|p| *p != own && p.is_some());
            peer.filter(|_| edge.kind == EdgeKind::Ipc).map(|p| (edge, p))
        };
        messages.extend(g.incoming(v).filter_map(|id| {
            let (e, peer) = with(&id, |e| e.from)?;
            Some(Message { time: e.to_time, peer, taken: Some(id) })
        }));
        messages.extend(g.outgoing(v).filter_map(|id| {
            let (e, peer) = with(&id, |e| e.to)?;
            Some(Message { time: e.from_time, peer, taken: None })
        }));
        messages.sort_by_key(|m| (m.time, m.taken.is_none()));
        answers.clear();
        for m in &messages {
            let asked = asks.insert(m.peer, m.taken.is_some());
            if m.taken.is_none() && asked == Some(true) {
                answers.push((m.time, m.peer));
            }
        }
        if answers.len() < 2 {
            continue;
        }
        for m in &messages {
            let Some(id) = m.taken.filter(|id| g.edges[id.index()].weak.is_none()) else { continue };
            let later = || answers.iter().filter(|a| a.0 >= m.time);
            if later().any(|a| a.1 == m.peer) && later().any(|a| a.1 != m.peer) {
                weak.push(id);
            }
        }
    }
}

/// May a vertex answer several?
fn sends_several(g: &EventGraph, v: VertexId) -> bool {
    g.outgoing(v).len() > 1 && g.incoming(v).len() > 0
}
