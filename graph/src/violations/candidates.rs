//! Slow units as victims.

use super::compare::{PartKey, parts};
use super::{Side, ViolationFact};
use crate::diagnose::{Activity, Group, activity};
use crate::victim::{COMPLAINT, bare, tell};
use crate::{Episode, EventGraph, Victim};
use pg_event::{Catalog, Ns, ThreadId, UnitTypeId};
use std::collections::HashMap;

/// A guard says that it is unusual.
const WEIGHT: f64 = 1.0;

/// Adds the slow units of the threads that are `wanted` to candidates; what else was found of a thread within its slow
/// unit is part of that.
pub(crate) fn add(
    graph: &EventGraph,
    catalog: &Catalog,
    out: &mut Vec<(Victim, f64)>,
    wanted: impl Fn(ThreadId) -> bool,
) {
    let slow: Vec<Victim> = graph
        .violations()
        .iter()
        .filter(|v| wanted(v.thread))
        .filter_map(|v| victim(graph, catalog, v))
        .collect();
    if slow.is_empty() {
        return;
    }
    let mut spans: Vec<(ThreadId, Ns, Ns)> = slow.iter().map(|s| (s.thread, s.start, s.end())).collect();
    spans.sort_unstable();
    // Units of a thread follow each other: only the last one that began before can hold it.
    let within = |v: &Victim| {
        let after = spans.partition_point(|s| (s.0, s.1) <= (v.thread, v.start));
        after.checked_sub(1).is_some_and(|i| spans[i].0 == v.thread && v.end() <= spans[i].2)
    };
    out.retain(|(v, _)| !within(v));
    // What the guard told comes before what may as well be idle, however long that is.
    let idle = out.iter().filter(|(_, w)| *w < COMPLAINT).map(|(v, _)| v.score).fold(0.0, f64::max);
    out.extend(slow.into_iter().map(|v| (Victim { score: v.score + idle, ..v }, WEIGHT)));
}

/// A slow unit as the victim to diagnose; `None` when nothing was recorded of its thread meanwhile.
pub fn violation_victim(graph: &EventGraph, catalog: &Catalog, v: &ViolationFact) -> Option<Victim> {
    let mut victim = victim(graph, catalog, v)?;
    tell(graph, catalog, &mut victim);
    Some(victim)
}

fn victim(graph: &EventGraph, catalog: &Catalog, v: &ViolationFact) -> Option<Victim> {
    let mut victim = span_victim(
        graph,
        catalog,
        v.thread,
        (v.start, v.until),
        v.unit_type.some().filter(|t| catalog.unit_type(*t).is_some()),
    )?;
    victim.violation = Some(*v);
    Some(victim)
}

/// A span of a thread as a victim that nothing was told of yet, with the waits that it spent most on; beyond what a normal
/// unit of this type spends on them.
pub(super) fn span_victim(
    graph: &EventGraph,
    catalog: &Catalog,
    thread: ThreadId,
    (start, end): (Ns, Ns),
    unit_type: Option<UnitTypeId>,
) -> Option<Victim> {
    let mut within = graph.vertices_in(thread, start..end.max(start + 1));
    let first = within.next()?;
    let act = activity(graph, catalog, thread, &[(start, end)]);
    let mut e = Episode {
        thread,
        first,
        last: within.next_back().unwrap_or(first),
        start,
        end,
        blocked: 0,
        ran: act.running,
        waits: 0,
        longest: 0,
        key: None,
        tries: 0,
        pieces: false,
    };
    if let Some(group) = excess_group(graph, catalog, unit_type, &act)
        && let Some(clip) = group.longest()
    {
        (e.key, e.last, e.blocked, e.waits, e.longest) =
            (Some(group.key), clip.last, group.blocked, group.waits, clip.blocked);
    }
    Some(bare(&e, WEIGHT))
}

/// The group of waits that the slow unit spent most on beyond what a normal one does; `None` when that is the CPU.
/// Where no normal one was recorded, the most.
fn excess_group<'a>(
    graph: &EventGraph,
    catalog: &Catalog,
    unit_type: Option<UnitTypeId>,
    act: &'a Activity,
) -> Option<&'a Group> {
    let mut normal: HashMap<PartKey, Ns> = HashMap::new();
    if let Some(n) = unit_type.and_then(|t| graph.normal_unit(t)) {
        let usual = activity(graph, catalog, n.unit.thread, &[(n.unit.start, n.unit.end)]);
        normal.extend(parts(graph, catalog, &usual).into_iter().map(|(k, s)| (k, s.time)));
    }
    let more =
        |(key, side): &(PartKey, Side)| side.time.saturating_sub(normal.get(key).copied().unwrap_or(0));
    let (waits, cpu): (Vec<_>, Vec<_>) =
        parts(graph, catalog, act).into_iter().partition(|(_, side)| side.vertex.is_some());
    // Of equals the first, which is the longest.
    let best = waits.iter().rev().max_by_key(|p| more(p))?;
    let on_cpu: Ns = cpu.iter().filter(|(key, _)| key.is_demand()).map(more).sum();
    let longest = |g: &&Group| g.longest().map(|c| c.last) == best.1.vertex;
    act.groups.iter().find(longest).filter(|_| more(best) > on_cpu)
}
