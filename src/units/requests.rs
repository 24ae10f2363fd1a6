//! Loops of requests within the units of loops that take connections: where their threads wait for the next request of a
//! connection is between two units, too.

use super::bounds::Bounds;
use super::cut::Cutter;
use super::replies::{Place, Replies};
use pg_event::{Catalog, Event, FrameId, Item, Kind, ModuleId, ModuleKind, Ns, StackId, ThreadId};
use pg_tracer::units::{BoundaryPath, LoopAt, Places, RequestLoop, Turning, Wait};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Adds these waits to the loops that they are in, where a loop of the machine code is around them within those.
/// `turning`: what proves which of several it is.
pub(super) fn add(
    bounds: &mut Bounds,
    items: impl Iterator<Item = Item>,
    (catalog, wanted, lost): (&Catalog, &BTreeSet<ThreadId>, &[Range<Ns>]),
    (places, turning): (&mut Places, &Turning),
) {
    if bounds.loops().is_empty() {
        return;
    }
    let mut cutter = Cutter::new(bounds, lost, catalog);
    let mut replies = Replies::default();
    for item in items {
        let Item::Events(events) = item else { continue };
        for e in &events {
            let wanted = wanted.contains(&e.thread);
            cutter.event(e, wanted);
            tell(&mut replies, catalog, e, wanted, &cutter);
        }
    }
    drop(cutter);
    let found: BTreeMap<Place, u64> = replies
        .end()
        .into_iter()
        .filter(|(_, came)| came.is_for_requests())
        .map(|(p, c)| (p, c.next))
        .collect();
    let stacks = found.keys().map(|p| p.1).collect();
    let turned = turning.turned_before(&stacks);
    for ((of, stack, syscall), waits) in found {
        let at = bounds.loops()[of].at;
        let turned = turned.get(&stack);
        if let Some((frames, request)) = way(catalog, places, at, stack, turned) {
            let request = Some(request);
            bounds.add_request(of, BoundaryPath { frames, syscall, wait: Wait::Input, waits, request });
        }
    }
}

/// Tells replies of an event, after a cutter was told.
pub(super) fn tell(replies: &mut Replies, catalog: &Catalog, e: &Event, wanted: bool, cutter: &Cutter) {
    if wanted || matches!(e.kind, Kind::Unheard { .. }) {
        replies.event(catalog, e, |thread, before| cutter.within(thread, before));
    }
}

/// The frames of a stack from an event loop's function inwards, and the loop of requests on the way. None where there is
/// no loop within the event loop.
fn way(
    catalog: &Catalog,
    places: &mut Places,
    at: LoopAt,
    stack: StackId,
    turned: Option<&HashMap<LoopAt, usize>>,
) -> Option<(Vec<(ModuleId, u64)>, RequestLoop)> {
    // Stacks that the kernel takes have no functions of Python.
    if catalog.modules.get(at.module.index())?.kind != ModuleKind::Elf {
        return None;
    }
    let ids: &[FrameId] = &catalog.stack(stack)?.frames;
    let frames = super::bounds::frames(catalog, stack);
    let around: Vec<Vec<LoopAt>> =
        ids.iter().map(|&id| places.loops_around(catalog, id).unwrap_or_default()).collect();
    let outer = around.iter().rposition(|loops| loops.contains(&at))?;
    // The loops inside of it, by frames from it inwards; of one frame outer ones first.
    let inside = (0..=outer).rev().flat_map(|i| {
        let within = around[i].iter().position(|l| i == outer && *l == at).unwrap_or(around[i].len());
        around[i][..within].iter().rev().map(move |l| (i, *l))
    });
    let inside: Vec<(usize, LoopAt)> = inside.collect();
    let times = |of: &LoopAt| turned.and_then(|t| t.get(of)).copied().unwrap_or(0);
    // Of equals the outermost.
    let proven = inside.iter().rev().max_by_key(|l| times(&l.1)).filter(|l| times(&l.1) > 0);
    let (here, _) = *proven.or(inside.first())?;
    let way: Vec<(ModuleId, u64)> = frames[..=outer].iter().rev().copied().collect();
    let depth = outer - here;
    let module = way[depth].0;
    let before = way[..depth].iter().filter(|f| f.0 == module).count();
    // Where a request has come the stack ends with the loop's frame: what is inside of that is not seen there.
    let seen = module == at.module || way[depth..].iter().all(|f| f.0 != at.module);
    let turn = proven.filter(|_| seen).map(|_| before);
    Some((way, RequestLoop { module, turn }))
}
