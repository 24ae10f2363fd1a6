//! Functions that were seen in a recording within the units that a person gave the boundaries of: where probes can tell
//! their types from each other.

use super::calls::Calls;
use pg_event::{Catalog, Item, Kind, ModuleId, StackId, ThreadId};
use pg_graph::units::{Function, FunctionId, LoopKey, Place};
use pg_tracer::units::{LoopAt, Places};
use std::collections::BTreeSet;

/// Functions below the one at `key`'s place, in stacks of waits and samples of the threads that `wanted` names. Where
/// the units end elsewhere (`within` is false), all of the stacks. `items` gives the recording from its beginning.
pub fn inside(
    items: impl Iterator<Item = Item>,
    places: &mut Places,
    key: &LoopKey,
    within: bool,
    wanted: impl Fn(&Catalog, ThreadId) -> bool,
) -> Vec<(Function, Place)> {
    let (mut catalog, mut stacks) = (Catalog::default(), BTreeSet::<StackId>::new());
    for item in items {
        match item {
            Item::Catalog(delta) => {
                catalog.apply(delta);
            }
            Item::Events(events) => {
                for e in events.iter().filter(|e| wanted(&catalog, e.thread)) {
                    match &e.kind {
                        Kind::OffCpu(w) => stacks.insert(w.user_stack),
                        Kind::Sample(s) => stacks.insert(s.user_stack),
                        _ => false,
                    };
                }
            }
            Item::End { .. } => {}
        }
    }
    let named = |m: &pg_event::Module| m.build_id == key.build_id || m.short() == key.build_id;
    // The same program may be there in several files (containers).
    let modules = (0..).zip(&catalog.modules).filter(|(_, m)| named(m)).map(|(i, _)| ModuleId(i));
    let places_of: Vec<LoopAt> =
        modules.map(|module| LoopAt { module, head: key.offset, function: key.offset }).collect();
    let mut calls = Calls::new(&catalog, places);
    let mut seen: BTreeSet<FunctionId> = BTreeSet::new();
    for stack in stacks {
        if within {
            seen.extend(places_of.iter().find_map(|&of| calls.inside(stack, of)).into_iter().flatten());
        } else {
            seen.extend(calls.whole(stack));
        }
    }
    let names: BTreeSet<&Function> =
        seen.iter().filter_map(|f| calls.functions().get(f.0 as usize)).collect();
    // A call of itself within its unit tells nothing.
    let own = |p: &Place| p.build_id == key.build_id && p.entry == key.offset;
    calls.places().filter(|(f, p)| names.contains(f) && !own(p)).collect()
}
