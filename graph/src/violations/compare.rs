//! Two units side by side: where the time of each went.

use super::{NormalUnit, ViolationFact};
use crate::diagnose::{Activity, Group, activity};
use crate::profile::{Profile, profile};
use crate::words::{clean, named, telling};
use crate::{EventGraph, VertexId, waits_on};
use pg_event::{Catalog, Ns, ObjectId, StackId, ThreadId};

/// Longest function name of a part, columns.
const NAME: usize = 80;

/// A part of a unit's time: waits of one kind in one function, or time on the CPU, or without one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PartKey {
    /// The words of the report: `disk`, `futex`, ...; `running`, `runnable`.
    pub(crate) what: &'static str,
    /// The program's own function that waited; empty when that is not known, or it did not wait.
    pub(crate) function: String,
}

impl PartKey {
    /// Is it on the CPU, or the wish to be?
    pub(crate) fn is_demand(&self) -> bool {
        matches!(self.what, "running" | "runnable")
    }
}

/// What one of the two units spent on a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// Time, ns.
    pub time: Ns,
    /// Single waits.
    pub count: usize,
    /// Where it waited longest.
    pub stack: StackId,
    /// On what.
    pub object: ObjectId,
    /// The vertex that led in with that wait.
    pub vertex: Option<VertexId>,
}

/// A part of both units.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The words of the report: `disk`, `futex`, ...; `running`, `runnable`, `unseen`.
    pub what: &'static str,
    /// The program's own function that waited, clean; empty when that is not known, or it did not wait.
    pub function: String,
    /// Of the slow unit.
    pub slow: Side,
    /// Of the normal one.
    pub normal: Side,
}

impl Part {
    /// How much more the slow unit spent on it, ns; 0 when it did not.
    pub fn more(&self) -> Ns {
        self.slow.time.saturating_sub(self.normal.time)
    }
}

/// Two units side by side.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The parts of both, those first that the slow one spent more on.
    pub parts: Vec<Part>,
    /// What the slow one did on the CPU.
    pub slow: Profile,
    /// What the normal one did there.
    pub normal: Profile,
    /// The normal one; `None` when none was recorded: then its sides are empty.
    pub with: Option<NormalUnit>,
}

/// The parts of a thread's time within a span.
pub(crate) fn parts(graph: &EventGraph, catalog: &Catalog, act: &Activity) -> Vec<(PartKey, Side)> {
    let mut out: Vec<(PartKey, Side)> = Vec::new();
    let plain = |what| PartKey { what, function: String::new() };
    for (what, time) in [("running", act.running), ("runnable", act.runnable), ("unseen", act.unseen)] {
        if time > 0 {
            out.push((plain(what), Side { time, ..Side::default() }));
        }
    }
    for group in &act.groups {
        let Some((key, side)) = wait(graph, catalog, group) else { continue };
        match out.iter_mut().find(|(k, _)| *k == key) {
            // The longest group of a key comes first: its stack stands for all.
            Some((_, s)) => (s.time, s.count) = (s.time + side.time, s.count + side.count),
            None => out.push((key, side)),
        }
    }
    out
}

/// A group of waits as a part.
fn wait(graph: &EventGraph, catalog: &Catalog, group: &Group) -> Option<(PartKey, Side)> {
    let clip = group.longest()?;
    let v = graph.vertex(clip.last);
    let function =
        telling(&named(catalog, v.user_stack)).map(|f| clean(&f.function, NAME)).unwrap_or_default();
    let what = waits_on(&v, catalog).unwrap_or("wait");
    let side = Side {
        time: group.blocked,
        count: group.waits,
        stack: if v.user_stack.is_some() { v.user_stack } else { v.kernel_stack },
        object: v.object,
        vertex: Some(clip.last),
    };
    Some((PartKey { what, function }, side))
}

/// A slow unit beside the normal one of its type.
pub fn compare(graph: &EventGraph, catalog: &Catalog, v: &ViolationFact) -> Comparison {
    let with = graph.normal_unit(v.unit_type).copied();
    let look = |thread: ThreadId, span: (Ns, Ns)| {
        let act = activity(graph, catalog, thread, &[span]);
        (parts(graph, catalog, &act), profile(graph, catalog, thread, &[span]))
    };
    let (slow, slow_profile) = look(v.thread, (v.start, v.until));
    let (normal, normal_profile) =
        with.map_or_else(Default::default, |n| look(n.unit.thread, (n.unit.start, n.unit.end)));
    let mut all: Vec<Part> = Vec::new();
    for (key, side) in slow {
        all.push(Part { what: key.what, function: key.function, slow: side, normal: Side::default() });
    }
    for (key, side) in normal {
        match all.iter_mut().find(|p| p.what == key.what && p.function == key.function) {
            Some(p) => p.normal = side,
            None => {
                all.push(Part {
                    what: key.what,
                    function: key.function,
                    slow: Side::default(),
                    normal: side,
                });
            }
        }
    }
    all.sort_by_key(|p| (std::cmp::Reverse(p.more()), std::cmp::Reverse(p.slow.time.max(p.normal.time))));
    Comparison { parts: all, slow: slow_profile, normal: normal_profile, with }
}
