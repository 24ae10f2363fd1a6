//! Figures of a diagnosis as in table 2 of Argus: how much of the graph the heuristics changed, what a person had
//! to tell, and how much shorter the way back got by it.

use crate::facts::CullCounts;
use crate::report::Report;
use crate::{EdgeKind, EventGraph, VertexId, Victim, Weak};
use pg_event::Ns;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// How many edges there are for a reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// Why weak, in words; or what the wake-ups were.
    pub why: String,
    /// How many.
    pub count: u64,
}

/// A row of table 2.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Edges of the graph; of program order only the weak ones, between the parts of a split segment.
    pub edges: u64,
    /// Wake-ups that made no edge, by reason.
    pub culled: Vec<Reason>,
    /// Weak edges, by reason.
    pub weak: Vec<Reason>,
    /// Share of all connections (edges and culled wake-ups) that were filtered out.
    pub filtered_out: f64,
    /// Share of the edges that no wake-up tells: by heuristics, from data flags, or inferred from interrupts.
    pub added: f64,
    /// Data flags that accesses were recorded of.
    pub data_flags: u64,
    /// Questions that were asked.
    pub questions: u64,
    /// Steps of the slice, as answered.
    pub interactive: u64,
    /// Vertices of the slice that always takes the most recent edge.
    pub automatic: u64,
    /// `interactive / automatic`.
    pub ratio: f64,
}

/// Most vertices of an automatic slice.
const LONGEST: usize = 100_000;

/// The figures of a report on `victim`.
pub fn stats(graph: &EventGraph, victim: &Victim, report: &Report) -> Stats {
    let CullCounts { maintenance, interrupt, timer, own, unknown, foreign } = graph.culled();
    let culled: Vec<Reason> = [
        ("scheduler maintenance", maintenance),
        ("interrupts of unknown origin", interrupt),
        ("own time-outs and sleeps", timer),
        ("by the recorder", own),
        ("no waker recorded", unknown),
        ("threads the catalogue lacks", foreign),
    ]
    .into_iter()
    .filter(|c| c.1 > 0)
    .map(|(why, count)| Reason { why: why.into(), count })
    .collect();
    let mut weak: Vec<(Weak, u64)> = Vec::new();
    let mut added = 0u64;
    for id in graph.edges() {
        let e = graph.edge(id);
        let guessed = matches!(e.weak, Some(Weak::HeuristicSplit | Weak::InterruptInferred | Weak::Batch));
        added += u64::from(guessed || matches!(e.kind, EdgeKind::DataFlag | EdgeKind::Timer));
        if let Some(w) = e.weak {
            match weak.iter_mut().find(|x| x.0 == w) {
                Some(x) => x.1 += 1,
                None => weak.push((w, 1)),
            }
        }
    }
    let split = graph.vertices().filter_map(|v| graph.vertex(v).split);
    let mut splits = 0u64;
    for w in split {
        splits += 1;
        match weak.iter_mut().find(|x| x.0 == w) {
            Some(x) => x.1 += 1,
            None => weak.push((w, 1)),
        }
    }
    weak.sort_by_key(|w| std::cmp::Reverse(w.1));
    let flags: HashSet<_> = graph.flag_accesses().iter().map(|f| f.object).collect();
    let edges = graph.edge_count() as u64;
    added += splits;
    let edges = edges + splits;
    let filtered = maintenance + interrupt + timer + own;
    let interactive = report.slice.len() as u64;
    let automatic = automatic_slice(graph, victim).len() as u64;
    Stats {
        edges,
        culled,
        weak: weak.into_iter().map(|(w, count)| Reason { why: w.words().into(), count }).collect(),
        filtered_out: share(filtered, filtered + edges),
        added: share(added, edges),
        data_flags: flags.len() as u64,
        questions: report.questions.len() as u64,
        interactive,
        automatic,
        ratio: share(interactive, automatic),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The slice without a person: from the victim backwards, always by the most recent edge in, else to the vertex
/// before, until the time at which the victim began to hang.
pub fn automatic_slice(graph: &EventGraph, victim: &Victim) -> Vec<VertexId> {
    let mut out = Vec::new();
    let mut seen = HashSet::new();
    // The moment from which a vertex is looked back from: what came later is no cause.
    let (mut at, mut time): (VertexId, Ns) = (victim.vertex, victim.end());
    while out.len() < LONGEST && seen.insert(at) {
        out.push(at);
        let v = graph.vertex(at);
        let recent = graph.incoming(at).map(|e| graph.edge(e)).filter(|e| e.to_time <= time);
        let recent = recent.max_by_key(|e| (e.to_time, e.from_time)).filter(|e| !seen.contains(&e.from));
        let Some((next, when)) =
            recent.map(|e| (e.from, e.from_time)).or_else(|| graph.previous(at).map(|p| (p, v.start)))
        else {
            break;
        };
        if when < victim.start {
            break;
        }
        (at, time) = (next, when);
    }
    out
}
