//! How true the edges are: on simulated machines with batches, mutexes, conditions, channels and data flags the
//! true causes stay in the graph (recall), and edges that mean no causality are weak (precision).

use pg_event::{ObjectKind, ThreadId};
use pg_graph::sim::{Act, Asking, Recording, Script, Setup};
use pg_graph::{EdgeKind, EventGraph, Weak};
use std::collections::HashMap;

const MS: u64 = 1_000_000;

struct Counts {
    name: &'static str,
    /// Waits that somebody ended, and how many have the edge from him.
    ended: usize,
    found: usize,
    /// Hand-offs of a mutex, and how many of their edges are weak.
    hand_offs: usize,
    weak: usize,
    /// Edges that end a wait and come from somebody else than who ended it.
    false_edges: usize,
    /// Writes of a flag that let somebody go on, and how many have an edge.
    flags: usize,
    flag_edges: usize,
    parts: usize,
}

fn count(name: &'static str, scripts: Vec<Script>) -> Counts {
    let flag_writers: Vec<ThreadId> = (0..scripts.len() as u32)
        .map(ThreadId)
        .filter(|t| scripts[t.index()].acts.iter().any(|a| matches!(a, Act::Set(..))))
        .collect();
    let setup =
        Setup { cpus: 3, channels: vec![ObjectKind::UnixStream, ObjectKind::Pipe], ..Setup::default() };
    let (r, truth) = Recording::of(setup, scripts, 1_500 * MS);
    let g: EventGraph = r.graph();
    let by_wait: HashMap<(ThreadId, u64), _> = truth.iter().map(|w| ((w.thread, w.start), w)).collect();
    let mut c = Counts {
        name,
        ended: 0,
        found: 0,
        hand_offs: 0,
        weak: 0,
        false_edges: 0,
        flags: 0,
        flag_edges: 0,
        parts: g.vertices().filter(|v| g.vertex(*v).split.is_some()).count(),
    };
    for id in g.vertices() {
        let v = g.vertex(id);
        let Some(w) = by_wait.get(&(v.thread, v.start)).filter(|_| v.waited() > 0 && !v.open) else {
            continue;
        };
        let edge = g.waking(id).map(|e| g.edge(e));
        let from = edge.map(|e| g.vertex(e.from).thread);
        if let Some(by) = w.by {
            c.ended += 1;
            c.found += usize::from(from == Some(by));
            c.hand_offs += usize::from(w.lock);
            c.weak += usize::from(w.lock && edge.is_some_and(|e| e.weak == Some(Weak::MutexHandOff)));
        }
        c.false_edges += usize::from(from.is_some() && from != w.by);
    }
    for t in flag_writers {
        // A write that somebody waited for is read by another thread before the next one.
        let writes: Vec<_> = g.flags_of(t, 0..u64::MAX).filter(|f| f.write).copied().collect();
        for (i, w) in writes.iter().enumerate() {
            let until = writes.get(i + 1).map_or(r.duration, |n| n.time);
            let read = g.flag_accesses().iter().any(|f| {
                !f.write && f.object == w.object && f.thread != t && w.time < f.time && f.time < until
            });
            if read {
                c.flags += 1;
                let from = g.vertex_at(t, w.time).unwrap();
                let has = g.outgoing(from).any(|e| {
                    let e = g.edge(e);
                    e.kind == EdgeKind::DataFlag && e.object == w.object
                });
                c.flag_edges += usize::from(has);
            }
        }
    }
    c
}

fn machines() -> Vec<(&'static str, Vec<Script>)> {
    let us = 1_000;
    let server = |clients: usize| {
        let mut turn = Vec::new();
        let mut out = Vec::new();
        for i in 0..clients {
            turn.extend([Act::Receive(2 * i), Act::Compute(300 * us), Act::Send(2 * i + 1, 8)]);
            let nap = Act::Sleep((2 + i as u64) * MS);
            out.push(Script::forever([Act::Send(2 * i, 8), Act::Receive(2 * i + 1), nap]));
        }
        out.push(Script::forever(turn));
        out
    };
    let locks = (0..5).map(|i| {
        Script::forever([
            Act::Lock(0),
            Act::Compute((400 + i * 90) * us),
            Act::Unlock(0),
            Act::Sleep(i * 300 * us + 1),
        ])
    });
    let conditions = vec![
        Script::forever([Act::Wait(0), Act::Compute(200 * us), Act::Signal(1)]),
        Script::forever([Act::Signal(0), Act::Wait(1), Act::Sleep(3 * MS)]),
        Script::forever([Act::Compute(5 * MS), Act::Sleep(MS)]),
    ];
    let flags = vec![
        Script::forever([
            Act::Ask(0, 1, Asking::Sleep(MS)),
            Act::Compute(500 * us),
            Act::Set(1, 1),
            Act::Ask(0, 0, Asking::Sleep(MS)),
            Act::Set(1, 0),
        ]),
        Script::forever([
            Act::Compute(4 * MS),
            Act::Set(0, 1),
            Act::Ask(1, 1, Asking::Yield(300 * us)),
            Act::Set(0, 0),
            Act::Ask(1, 0, Asking::Spin(300 * us)),
        ]),
    ];
    vec![
        ("batches", server(4)),
        ("mutual exclusion", locks.collect()),
        ("conditions", conditions),
        ("data flags", flags),
    ]
}

#[test]
fn true_causes_stay_and_false_ones_are_weak() {
    println!(
        "{:<18} {:>7} {:>8} {:>9} {:>8} {:>7} {:>7} {:>6}",
        "machine", "waits", "recall", "hand-offs", "weak", "false", "flags", "parts"
    );
    let share = |a: usize, b: usize| {
        if b == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * a as f64 / b as f64) }
    };
    for (name, scripts) in machines() {
        let c = count(name, scripts);
        println!(
            "{:<18} {:>7} {:>8} {:>9} {:>8} {:>7} {:>7} {:>6}",
            c.name,
            c.ended,
            share(c.found, c.ended),
            c.hand_offs,
            share(c.weak, c.hand_offs),
            c.false_edges,
            share(c.flag_edges, c.flags),
            c.parts
        );
        assert_eq!(c.found, c.ended, "{name}: a true cause is missing");
        assert_eq!(c.weak, c.hand_offs, "{name}: a hand-off is strong");
        assert_eq!(c.false_edges, 0, "{name}");
        assert_eq!(c.flag_edges, c.flags, "{name}: a flag's edge is missing");
        match name {
            "batches" => assert!(c.parts > 20, "turns are split: {}", c.parts),
            "data flags" => assert!(c.flags > 50, "{}", c.flags),
            "mutual exclusion" => assert!(c.hand_offs > 100, "{}", c.hand_offs),
            _ => assert!(c.ended > 100, "{}", c.ended),
        }
    }
}
