//! Catalogue rows that wait to be written: of several versions of a row the latest only.

use pg_event::CatalogDelta;
use std::collections::HashMap;
use std::hash::Hash;

/// Rows that wait.
#[derive(Default)]
pub(super) struct Pending {
    delta: CatalogDelta,
    places: [HashMap<u32, usize>; 9],
}

impl Pending {
    /// Take over rows.
    pub(super) fn merge(&mut self, from: &CatalogDelta) {
        let [threads, processes, objects, stacks, frames, modules, traces, unit_types, turns] =
            &mut self.places;
        let d = &mut self.delta;
        upsert(&mut d.threads, threads, &from.threads, |i| i.0);
        upsert(&mut d.processes, processes, &from.processes, |i| i.0);
        upsert(&mut d.objects, objects, &from.objects, |i| i.0);
        upsert(&mut d.stacks, stacks, &from.stacks, |i| i.0);
        upsert(&mut d.frames, frames, &from.frames, |i| i.0);
        upsert(&mut d.modules, modules, &from.modules, |i| i.0);
        upsert(&mut d.traces, traces, &from.traces, |i| i.0);
        upsert(&mut d.unit_types, unit_types, &from.unit_types, |i| i.0);
        upsert(&mut d.turns, turns, &from.turns, |i| i.0);
    }

    /// All that waits; nothing waits any more.
    pub(super) fn take(&mut self) -> CatalogDelta {
        self.places.iter_mut().for_each(HashMap::clear);
        std::mem::take(&mut self.delta)
    }
}

fn upsert<I: Copy + Eq + Hash, T: Clone>(
    rows: &mut Vec<(I, T)>,
    places: &mut HashMap<u32, usize>,
    from: &[(I, T)],
    number: impl Fn(I) -> u32,
) {
    for (id, row) in from {
        let place = *places.entry(number(*id)).or_insert(rows.len());
        match rows.get_mut(place) {
            Some(r) => r.1 = row.clone(),
            None => rows.push((*id, row.clone())),
        }
    }
}

fn half<T>(v: &mut Vec<T>, whole: bool) -> Vec<T> {
    let at = if whole { v.len().div_ceil(2) } else { v.len() / 2 };
    v.split_off(at)
}

/// Two halves, `None` when it is a single row.
pub(super) fn split(mut d: CatalogDelta) -> Option<(CatalogDelta, CatalogDelta)> {
    let rows = d.threads.len()
        + d.processes.len()
        + d.objects.len()
        + d.stacks.len()
        + d.frames.len()
        + d.modules.len()
        + d.traces.len()
        + d.unit_types.len()
        + d.turns.len();
    if rows < 2 {
        return None;
    }
    // Halving each table makes both parts smaller; single rows go to alternating sides.
    let second = CatalogDelta {
        threads: half(&mut d.threads, false),
        processes: half(&mut d.processes, true),
        objects: half(&mut d.objects, false),
        stacks: half(&mut d.stacks, true),
        frames: half(&mut d.frames, false),
        modules: half(&mut d.modules, true),
        traces: half(&mut d.traces, false),
        unit_types: half(&mut d.unit_types, true),
        turns: half(&mut d.turns, false),
        ..CatalogDelta::default()
    };
    if d.is_empty() || second.is_empty() {
        // One table held all rows and one of them: put the first aside.
        return None;
    }
    Some((d, second))
}
