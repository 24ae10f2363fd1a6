//! The event-processing loops of the threads in a recording: `cargo run --example loops -- FILE.pgs [all|stacks]`.
//! Without `all` only of the threads in focus, when the recording has any. With `stacks` also the commonest stacks of
//! waits, each frame with the loops around it.

use pg_event::{Catalog, Item, Kind, StackId, ThreadId};
use pg_tracer::units::{EventLoop, LoopAt, Places, Seen, Wait};
use pg_tui::clean::clean;
use pg_tui::session::Session;
use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: loops FILE.pgs [all|stacks]")?;
    let how = args.next().unwrap_or_default();
    let all = how == "all";
    let session = Session::open(Path::new(&file))?;
    let (mut catalog, mut seen) = (Catalog::default(), Seen::default());
    let mut waits: BTreeMap<(ThreadId, StackId, Wait), u64> = BTreeMap::new();
    for item in session.items() {
        match item {
            Item::Catalog(delta) => {
                catalog.apply(delta);
            }
            Item::Events(events) => {
                for e in events {
                    if let (Some((wait, _)), Kind::OffCpu(w)) =
                        (seen.event(&catalog, e.thread, &e.kind), &e.kind)
                    {
                        *waits.entry((e.thread, w.user_stack, wait)).or_default() += 1;
                    }
                }
            }
            Item::End { .. } => {}
        }
    }
    let focus = !all && catalog.threads.iter().any(|t| t.focus);
    let mut places = Places::default();
    if how == "stacks" {
        stacks(&catalog, &mut places, &waits);
    }
    let mut quiet: BTreeMap<String, u64> = BTreeMap::new();
    let found = seen.event_loops(&catalog, &mut places);
    // Threads that do the same are told together.
    let mut groups: BTreeMap<(String, LoopAt), (Vec<u32>, EventLoop)> = BTreeMap::new();
    for (i, t) in catalog.threads.iter().enumerate().filter(|(_, t)| !focus || t.focus) {
        let id = ThreadId(i as u32);
        if !found.contains_key(&id) {
            *quiet.entry(clean(&t.name).into()).or_default() += seen.waits(id);
        }
        for l in found.get(&id).into_iter().flatten() {
            let group = groups.entry((clean(&t.name).into(), l.at));
            group
                .and_modify(|(tids, all)| {
                    tids.push(t.tid);
                    join(all, l);
                })
                .or_insert_with(|| (vec![t.tid], l.clone()));
        }
    }
    for ((name, _), (tids, l)) in &groups {
        println!("{name}: {} threads ({} ...)", tids.len(), tids[0]);
        show(&catalog, l);
    }
    for (name, waits) in quiet.iter().filter(|q| *q.1 > 0) {
        println!("no event loop: {name}: {waits} waits");
    }
    Ok(())
}

fn join(all: &mut EventLoop, l: &EventLoop) {
    (all.turns, all.waits, all.all) = (all.turns + l.turns, all.waits + l.waits, all.all + l.all);
    for s in &l.sites {
        match all.sites.iter_mut().find(|k| k.address == s.address) {
            Some(k) => (k.input, k.signal) = (k.input + s.input, k.signal + s.signal),
            None => all.sites.push(s.clone()),
        }
    }
    for b in &l.boundary {
        match all.boundary.iter_mut().find(|k| k.is_like(b)) {
            Some(k) => k.waits += b.waits,
            None => all.boundary.push(b.clone()),
        }
    }
    for (to, from) in [(&mut all.nested, &l.nested), (&mut all.still, &l.still)] {
        to.extend(from.iter().filter(|n| !to.contains(n)).copied().collect::<Vec<_>>());
    }
}

fn stacks(catalog: &Catalog, places: &mut Places, waits: &BTreeMap<(ThreadId, StackId, Wait), u64>) {
    let thread = |t: ThreadId| catalog.threads.get(t.index());
    let mut most: Vec<_> = waits.iter().filter(|w| thread(w.0.0).is_some_and(|t| t.focus)).collect();
    most.sort_by_key(|w| std::cmp::Reverse(w.1));
    for (&(who, stack, wait), count) in most.into_iter().take(30) {
        let Some(row) = catalog.stacks.get(stack.index()) else { continue };
        let cut = if row.truncated { ", cut off" } else { "" };
        println!("{count} times {wait:?} by {}{cut}", clean(thread(who).map_or("", |t| &t.name)));
        for &id in &row.frames {
            let Some(f) = catalog.frames.get(id.index()) else { continue };
            let module = catalog.modules.get(f.module.index()).map_or("?", |m| m.short());
            let loops = match places.loops_around(catalog, id) {
                None => "unknown".to_owned(),
                Some(all) => all.iter().map(|l| format!("{:#x}", l.head)).collect::<Vec<_>>().join(" "),
            };
            println!("    {} {:#x} {}: {loops}", clean(module), f.address, clean(&f.function));
        }
    }
}

fn place(catalog: &Catalog, at: LoopAt) -> String {
    let module = catalog.modules.get(at.module.index());
    format!("{} {:#x} in {:#x}", clean(module.map_or("?", |m| m.short())), at.head, at.function)
}

fn show(catalog: &Catalog, l: &EventLoop) {
    let build = catalog.modules.get(l.at.module.index()).map_or("", |m| m.build_id.as_str());
    println!(
        "  {} at {} (build-id {:.12}): {} turns proven, {} of {} waits ({:.1} %)",
        clean(&l.name),
        place(catalog, l.at),
        clean(build),
        l.turns,
        l.waits,
        l.all,
        l.waits as f64 * 100.0 / l.all.max(1) as f64
    );
    for s in l.sites.iter().take(4) {
        println!("    call at {:#x}: {} for input, {} for signals", s.address, s.input, s.signal);
    }
    for b in &l.boundary {
        let frames = b.frames.iter().map(|&(m, at)| {
            let module = catalog.modules.get(m.index()).map_or("?", |m| m.short());
            format!("{} {at:#x}", clean(module))
        });
        let call = b.syscall.name().unwrap_or_default();
        println!(
            "    boundary: {} waits for {:?} in {call} by {}",
            b.waits,
            b.wait,
            frames.collect::<Vec<_>>().join(" > ")
        );
    }
    for n in &l.nested {
        println!("    nested: {}", place(catalog, *n));
    }
    for n in &l.still {
        println!("    around it, not seen to turn: {}", place(catalog, *n));
    }
}
