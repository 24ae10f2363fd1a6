//! How well function and stack depth tell calling contexts (PerfGuard, section 7.3): `cargo run --example contexts --
//! PROFILE SECONDS PID...`. Each call of a function of the profile in a unit is looked at with its whole stack, unwound. A
//! call is told when all calls of that function at that depth that were seen came by the same way from the loop.

use pg_event::{Catalog, FrameId};
use pg_graph::units::{Function, FunctionId, Limit, Place, TypeOptions};
use pg_tracer::guards::Told;
use pg_tracer::procfs::family;
use pg_tracer::units::Places;
use pg_tui::clean::clean;
use pg_tui::guard::{Ask, Guarding};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

/// Functions probed at most.
const MAX_FUNCTIONS: usize = 500;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: contexts PROFILE SECONDS PID...";
    let file = args.next().ok_or(usage)?;
    let seconds: f64 = args.next().ok_or(usage)?.parse()?;
    let pids: Vec<u32> = args.map(|a| a.parse()).collect::<Result<_, _>>()?;
    let pids = family(&pids);
    let profile = pg_tui::units::read(Path::new(&file))?;
    let ask = Ask { profile: &profile, file: &file, pids: &pids, limit: Limit::Auto, probes: true };
    let placed: Vec<(Function, Place)> = profile.placed_functions().take(MAX_FUNCTIONS).collect();
    let numbered = placed.iter().zip(0..).map(|((_, place), i)| (FunctionId(i), place));
    let mut guarding = Guarding::learning(&ask, numbered)?;
    guarding.plan.stacks = true;
    let functions = guarding.functions.clone();
    let name = |f: usize| functions.get(f).and_then(|f| placed.get(f.0 as usize)).map(|p| &p.0);
    // Those that guards would be set at.
    let mut guarded: BTreeSet<&Function> = BTreeSet::new();
    for key in profile.loops() {
        let Some(of) = profile.types(key, TypeOptions::default()) else { continue };
        let all = pg_tui::guard::functions_of(&of);
        guarded.extend(all.into_iter().filter_map(|f| profile.functions().get(f.0 as usize)));
    }
    let mut guards = guarding.start(&pids)?;
    let (mut seen, mut places) = (Seen::default(), Places::default());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        for told in guards.poll(Duration::from_millis(5)) {
            match told {
                Told::Call { function, depth, path: Some(path), .. } => {
                    let of = |f: &FrameId| place(guards.catalog(), &mut places, *f);
                    let way: Way = path.iter().map(of).collect();
                    let call = way.get(1).map_or(0, |f| f.2 & 0xfff) as u32;
                    let triple = (function, depth << 12 | call);
                    let functions: Way = way.iter().map(|f| (f.0, f.1, 0)).collect();
                    *seen.with_call.entry(triple).or_default().entry(functions.clone()).or_default() += 1;
                    let pair = (function, depth);
                    *seen.by_calls.entry(pair).or_default().entry(way).or_default() += 1;
                    *seen.calls.entry(pair).or_default().entry(functions).or_default() += 1;
                }
                Told::Call { .. } => seen.cut += 1,
                Told::Unit(_) => seen.units += 1,
                _ => {}
            }
        }
    }
    for n in guards.notes() {
        println!("note: {}", clean(&n));
    }
    println!(
        "{} units, {} functions probed; {} calls whose stack did not reach the loop",
        seen.units,
        functions.len(),
        seen.cut
    );
    let at_guards = |f| name(f).is_some_and(|n| guarded.contains(n));
    for (calls, how) in [
        (&seen.calls, "functions on the way"),
        (&seen.by_calls, "calls on the way"),
        (&seen.with_call, "with the place of the call"),
    ] {
        Seen::tell(calls, &format!("{how}, all functions of the profile"), |_| true);
        Seen::tell(calls, &format!("{how}, functions that guards are set at"), at_guards);
    }
    seen.worst(|f| name(f).map_or_else(String::new, |n| format!("{} ({})", n.name, n.module)));
    Ok(())
}

/// A frame by its module, where its function begins, and the place of its call.
fn place(catalog: &Catalog, places: &mut Places, id: FrameId) -> (u32, u64, u64) {
    let Some(f) = catalog.frames.get(id.index()) else { return (u32::MAX, 0, 0) };
    // Of a function that is not found its calls stand for it.
    (f.module.0, places.entry(catalog, id).unwrap_or(f.address), f.address)
}

/// Frames from the function to the loop's.
type Way = Vec<(u32, u64, u64)>;
/// By function and depth, each way by which it was called.
type Calls = BTreeMap<(usize, u32), BTreeMap<Way, u64>>;

#[derive(Default)]
struct Seen {
    units: u64,
    cut: u64,
    /// Ways as functions: what the paper calls a calling context.
    calls: Calls,
    /// As functions, of each pair and the place of the call.
    with_call: Calls,
    /// Ways as calls: two calls in one function are two.
    by_calls: Calls,
}

impl Seen {
    fn tell(calls: &Calls, what: &str, wanted: impl Fn(usize) -> bool) {
        let of: Vec<_> = calls.iter().filter(|((f, _), _)| wanted(*f)).collect();
        let functions: BTreeSet<usize> = of.iter().map(|((f, _), _)| *f).collect();
        let sum = |ways: &BTreeMap<Way, u64>| ways.values().sum::<u64>();
        let all: u64 = of.iter().map(|(_, w)| sum(w)).sum();
        let told: u64 = of.iter().filter(|(_, w)| w.len() == 1).map(|(_, w)| sum(w)).sum();
        // The commonest way of each is what a guess would be.
        let guessed: u64 = of.iter().filter_map(|(_, w)| w.values().max()).sum();
        let pairs = of.iter().filter(|(_, w)| w.len() == 1).count();
        let mut ways: BTreeMap<usize, BTreeSet<&Way>> = BTreeMap::new();
        for ((f, _), w) in &of {
            ways.entry(*f).or_default().extend(w.keys());
        }
        // Without the depth.
        let bare: u64 = of.iter().filter(|((f, _), _)| ways[f].len() == 1).map(|(_, w)| sum(w)).sum();
        let share = |n: u64| 100.0 * n as f64 / all.max(1) as f64;
        println!(
            "{what}: {} come by, {} calling contexts, {all} calls; function and depth tell {:.2} % of the calls \
             ({pairs} of {} pairs); the commonest context of each pair is right for {:.2} %; the function alone tells {:.2} %",
            functions.len(),
            ways.values().map(BTreeSet::len).sum::<usize>(),
            share(told),
            of.len(),
            share(guessed),
            share(bare),
        );
    }

    /// Where most calls are not told.
    fn worst(&self, name: impl Fn(usize) -> String) {
        let mut all: Vec<_> = self.calls.iter().filter(|(_, w)| w.len() > 1).collect();
        all.sort_by_key(|(_, w)| std::cmp::Reverse(w.values().sum::<u64>()));
        for ((f, depth), ways) in all.into_iter().take(12) {
            println!(
                "  {} at depth {depth}: {} calls by {} ways",
                clean(&name(*f)),
                ways.values().sum::<u64>(),
                ways.len()
            );
        }
    }
}
