//! The units of a recording, of whatever tells them, and how work went from thread to thread.
//!
//! A guard's recording has units with their types. In others the event loops of threads cut their time into units, also
//! where a loop is proven to have turned without a wait; these are told by their loop.

use super::bounds::Bounds;
use super::cut::{Cutter, Left};
use super::requests;
use super::scan::Scanned;
use crate::session::Loaded;
use pg_event::{Catalog, ThreadId, UnitTypeId};
use pg_graph::EventGraph;
use pg_graph::transactions::{Transactions, WorkUnit};
use pg_tracer::units::{LoopAt, Places};
use std::collections::{BTreeMap, BTreeSet};

/// Most units that are joined.
const MOST_UNITS: usize = 1 << 22;

/// The units of a recording.
#[derive(Debug, Default)]
pub struct Work {
    /// They, and how work went from one to another.
    pub joined: Transactions,
    /// Names of loops, by number: of the function, with its module.
    pub loops: Vec<String>,
    /// Names of types, by number. Empty where the loops are the types.
    pub types: BTreeMap<u32, String>,
    /// Units that were left out; nothing of a guard's recording.
    pub left: Left,
    /// There were more units than are looked at.
    pub cut_short: bool,
    /// Loops, by number, that may have turned without a trace: there may have been more units of them, and some that were seen
    /// may be several.
    pub turn_unseen: BTreeSet<u32>,
}

impl Work {
    /// Name of a type of units.
    pub fn name(&self, kind: u32, of_loop: u32) -> &str {
        let named = self.types.get(&kind).map(String::as_str);
        named.or_else(|| self.loops.get(of_loop as usize).map(String::as_str)).unwrap_or("?")
    }
}

/// Of a recording; `wanted` says of which threads.
pub fn work(loaded: &Loaded, wanted: impl Fn(&Catalog, ThreadId) -> bool) -> Work {
    if loaded.graph.units().is_empty() {
        cut(loaded, wanted)
    } else {
        of_guard(&loaded.graph, &loaded.catalog)
    }
}

/// The units that a guard recorded, joined.
fn of_guard(graph: &EventGraph, catalog: &Catalog) -> Work {
    let recorded = graph.recorded(catalog).clone();
    let kinds: BTreeSet<u32> = recorded.joined.units.iter().map(|u| u.kind).collect();
    let named = |kind| (kind, pg_graph::words::unit_type(catalog, UnitTypeId(kind)));
    Work {
        joined: recorded.joined,
        // What a guard counts by probes, a recording cuts at the waits that it has.
        turn_unseen: (0..recorded.loops.len() as u32).collect(),
        loops: recorded.loops,
        types: kinds.into_iter().map(named).collect(),
        cut_short: recorded.cut_short,
        ..Work::default()
    }
}

/// The units between waits of event loops.
fn cut(loaded: &Loaded, wanted: impl Fn(&Catalog, ThreadId) -> bool) -> Work {
    let scanned = Scanned::of(loaded.session.items(), &wanted);
    let catalog = &scanned.catalog;
    let mut places = Places::default();
    let (found, turning) = scanned.seen.event_loops_turning(catalog, &mut places);
    let mut bounds = Bounds::new(catalog, found.values().flatten(), &scanned.waits);
    let mut work = Work::default();
    work.loops.extend(bounds.loops().iter().map(|l| loop_name(catalog, l.at, &l.name)));
    let calls = loaded.session.header().options.iter().any(|(o, value)| o == "level" && value == "syscalls");
    work.turn_unseen =
        (0..work.loops.len()).filter(|&l| bounds.turns_unseen(l, calls)).map(|l| l as u32).collect();
    let all = (0..catalog.threads.len() as u32).map(ThreadId);
    let is_wanted: BTreeSet<ThreadId> = all.filter(|t| wanted(catalog, *t)).collect();
    let items = loaded.session.items();
    requests::add(&mut bounds, items, (catalog, &is_wanted, &scanned.lost), (&mut places, &turning));
    let mut cutter = Cutter::new(&mut bounds, &scanned.lost, catalog).at_turns(&turning);
    let mut units: Vec<WorkUnit> = Vec::new();
    for item in loaded.session.items() {
        let pg_event::Item::Events(events) = item else { continue };
        for e in &events {
            let Some(unit) = cutter.event(e, is_wanted.contains(&e.thread)) else { continue };
            work.cut_short |= units.len() >= MOST_UNITS;
            if !work.cut_short {
                let of_loop = unit.of as u32;
                let (thread, start, end) = (unit.thread, unit.begin, unit.end);
                units.push(WorkUnit { thread, of_loop, kind: of_loop, start, end });
            }
        }
    }
    let members: Vec<(ThreadId, u32)> = cutter.waited().map(|(t, of)| (t, of as u32)).collect();
    work.left = cutter.end();
    for (of, name) in work.loops.iter_mut().enumerate() {
        if let Some(threads) =
            thread_name(catalog, members.iter().filter(|m| m.1 as usize == of).map(|m| m.0))
        {
            *name = format!("{threads}: {name}");
        }
    }
    work.joined = Transactions::new(&loaded.graph, &loaded.catalog, units, &members);
    work
}

/// The name of all these threads, when they have one in common that is not their program's.
fn thread_name(catalog: &Catalog, mut threads: impl Iterator<Item = ThreadId>) -> Option<String> {
    let name = |t| catalog.thread(t).map(|t| t.name.as_str()).filter(|n| !n.is_empty());
    let first = threads.next()?;
    let common = name(first)?;
    let program = catalog.process_of(first).map_or("", |p| p.name.as_str());
    (common != program && threads.all(|t| name(t) == Some(common))).then(|| common.to_owned())
}

/// Function and module of a loop.
fn loop_name(catalog: &Catalog, at: LoopAt, function: &str) -> String {
    let module = catalog.modules.get(at.module.index()).map_or("", |m| m.short());
    if function.is_empty() { format!("{module}+{:#x}", at.head) } else { format!("{function} ({module})") }
}
