//! The units that a guard recorded, joined; and of a unit who handed it on.

use super::{HandOver, Transactions, WorkUnit};
use crate::EventGraph;
use crate::words::{moment, short_who, span};
use pg_event::{Catalog, Ns, ThreadId};
use std::collections::HashMap;

/// Most units that are joined.
const MOST_UNITS: usize = 1 << 22;

/// The units of a guard's recording.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recorded {
    /// They, by type and loop, and how work went from one to another.
    pub joined: Transactions,
    /// Names of the functions of the loops, by number. Untrusted.
    pub loops: Vec<String>,
    /// There were more units than are looked at.
    pub cut_short: bool,
}

/// Who handed on a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOn {
    /// The unit that handed it on.
    pub by: WorkUnit,
    /// When, and how long it waited.
    pub hand_over: HandOver,
}

impl EventGraph {
    /// The units that a guard recorded, joined when they are asked for first.
    pub fn recorded(&self, catalog: &Catalog) -> &Recorded {
        self.recorded.get_or_init(|| Box::new(join(self, catalog)))
    }

    /// Who handed on the unit in which a thread is at a moment, as far as a guard recorded units.
    pub fn handed_on(&self, catalog: &Catalog, thread: ThreadId, time: Ns) -> Option<HandedOn> {
        if self.units().is_empty() {
            return None;
        }
        let t = &self.recorded(catalog).joined;
        let hand_over = *t.into_unit(t.unit_at(thread, time)?).next()?;
        Some(HandedOn { by: t.units[hand_over.from], hand_over })
    }
}

fn join(graph: &EventGraph, catalog: &Catalog) -> Recorded {
    let mut out = Recorded { cut_short: graph.units().len() > MOST_UNITS, ..Recorded::default() };
    let mut loops: HashMap<(String, u64), u32> = HashMap::new();
    let mut units: Vec<WorkUnit> = Vec::new();
    for u in graph.units().iter().take(MOST_UNITS) {
        // What is known of the loop is in the row of the type; of unknown types each thread's own is taken.
        let row = catalog.unit_type(u.unit_type);
        let key =
            row.map_or_else(|| (String::new(), u64::from(u.thread.0)), |r| (r.module.clone(), r.offset));
        let of_loop = *loops.entry(key).or_insert_with(|| {
            out.loops.push(row.map_or_else(|| "unknown loop".into(), |r| r.function.clone()));
            out.loops.len() as u32 - 1
        });
        units.push(WorkUnit { thread: u.thread, of_loop, kind: u.unit_type.0, start: u.start, end: u.end });
    }
    out.joined = Transactions::new(graph, catalog, units, &[]);
    out
}

impl HandedOn {
    /// In words: by whom, how long it waited then, what for, and when it was handed on.
    pub fn words(&self, catalog: &Catalog) -> String {
        let h = &self.hand_over;
        let why = match (h.busy, h.runnable) {
            (0, 0) => String::new(),
            // This thread had others to finish.
            (busy, runnable) if busy >= runnable => format!(" ({} in other units)", span(busy)),
            (_, runnable) => format!(" ({} without a CPU)", span(runnable)),
        };
        let perhaps = if h.is_strong() { "" } else { "perhaps " };
        format!(
            "{perhaps}handed on by {} {} before it was taken{why}, at {}",
            short_who(catalog, self.by.thread),
            span(h.queued()),
            moment(h.time)
        )
    }
}
