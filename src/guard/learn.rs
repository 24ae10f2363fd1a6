//! Learning by probes: which functions each unit comes by, how deep, and how long it takes. Stacks of a recording show
//! some calls of some units; probes at the functions that were seen there show them in every unit, as guards will.

use super::guarding::{Ask, Guarding, Refused, functions_of};
use super::kinds::{Kinds, Measured as At};
use super::unit_log::UnitLog;
use pg_event::Ns;
use pg_graph::units::{
    Function, FunctionId, LoopKey, Place, Profile, RefineOptions, SelectOptions, TypeOptions,
};
use pg_tracer::Error;
use pg_tracer::guards::{Guards, Told};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// How long calls are counted, to leave out functions that are called too often.
const COUNTING: Duration = Duration::from_millis(300);
/// Functions probed at most.
const MAX_FUNCTIONS: usize = 500;
/// What all probes together may take of the time that units take, for the seconds of learning.
const LEARNING: f64 = 0.15;
/// What they may take beside the units' own time, as a multiple, while it is looked what units there are; those that take
/// more hinder it.
const HINDERING: f64 = 3.0;
/// What those at one function may take of the units that come by it, while times are measured: what a probe takes differs
/// from hit to hit, and a unit's time is known no better than that of its probes.
const WITHIN: f64 = 0.25;
/// What probes may take of the time of counting in any case, ns: a thousandth of one CPU.
const HARMLESS: f64 = 300_000.0;
/// Share of the time in which it is looked what units there are; in the rest they are measured.
const EXPLORING: f64 = 0.35;
/// Share of the time in which it is tried whether those functions at which units are to be measured are called too often by
/// work that was not seen before: few units pass while all functions are probed.
const TRYING: f64 = 0.15;

/// Units of each kind of work that suffice to choose functions at which its time is then measured: while all functions are
/// probed, not many units pass.
const FEW: u64 = 5;

/// Call trees that are clustered to find what tells types apart.
const CLUSTERED: usize = 64;

/// What cannot be learnt.
#[derive(Debug, thiserror::Error)]
pub enum Measuring {
    /// Nothing of the profile is there.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The kernel does not want it.
    #[error(transparent)]
    Tracer(#[from] Error),
    /// The file of units cannot be written.
    #[error(transparent)]
    Units(std::io::Error),
}

/// What was learnt.
#[derive(Debug)]
pub struct Measured {
    /// Units with the contexts they came by.
    pub profile: Profile,
    /// Functions that were probed, and those left out since they are called too often.
    pub functions: usize,
    /// See [`Self::functions`].
    pub hot: usize,
    /// Those at which times were measured.
    pub telling: usize,
    /// Nanoseconds a probe takes here.
    pub hit_ns: u64,
    /// Sentences about what was not learnt.
    pub notes: Vec<String>,
}

/// Learns for so long, or until `stop`, at these functions; each unit goes into `log`, too.
///
/// First all functions are probed that are not called too often, to see what units there are. A probe takes time, though,
/// and a unit that comes by two hundred takes twice as long: so how long units take is then measured at those functions only
/// that tell their types from each other, as guards will, and that no unit calls so often that its time would be the probes';
/// after a while in which that is tried.
///
/// # Errors
/// [`Measuring`].
pub fn measure(
    ask: &Ask,
    functions: &[(Function, Place)],
    duration: Duration,
    log: Option<UnitLog>,
    stop: impl Fn() -> bool,
) -> Result<Measured, Measuring> {
    let numbered = |i: &FunctionId| (*i, &functions[i.0 as usize].1);
    let known: Vec<FunctionId> = (0..functions.len().min(MAX_FUNCTIONS) as u32).map(FunctionId).collect();
    let all = Guarding::learning(ask, known.iter().map(numbered))?;
    let candidates = all.functions.clone();
    // Hardly any unit passes in so short a time: only what would let none pass is left out by that.
    let kept = count(all, ask.pids, &stop)?.quiet(HINDERING);
    let probed: Vec<FunctionId> = kept.iter().filter_map(|&i| candidates.get(i).copied()).collect();
    let mut exploring = Guarding::learning(ask, probed.iter().map(numbered))?;
    // Work that the short while did not show may call a function a million times, and nothing else would be seen.
    exploring.plan.share = HINDERING;
    let mut seen = Learning::start(exploring, ask, functions)?;
    seen.run(duration.mul_f64(EXPLORING), &stop);
    let calls = seen.forget_hot();
    let explored = seen.guards.probed().count();
    let telling = seen.telling(functions, &calls);
    let Learning { guards, seen, .. } = seen;
    let (hit_ns, mut notes) = (guards.costs().0, guards.notes());
    drop(guards);
    let mut tried = Guarding::learning(ask, telling.iter().map(numbered))?;
    tried.plan.share = HINDERING;
    let mut tried = Learning::start(tried, ask, functions)?;
    tried.seen = seen.known_at(&telling.iter().copied().collect());
    tried.run(duration.mul_f64(TRYING), &stop);
    tried.forget_hot();
    let Learning { guards, seen, functions: telling, .. } = tried;
    drop(guards);
    let mut measuring = Guarding::learning(ask, telling.iter().map(numbered))?;
    measuring.plan.share = HINDERING;
    let mut learning = Learning::start(measuring, ask, functions)?;
    learning.log = log;
    learning.seen = seen;
    learning.run(duration.mul_f64(1.0 - EXPLORING - TRYING), &stop);
    let at: BTreeSet<FunctionId> = telling.iter().copied().collect();
    let learnt = learning.profile(Some(&at), functions);
    let Learning { guards, log, seen, names, loops, .. } = learning;
    if let Some(log) = log {
        log.end(&seen.types(Some(&at), &learnt, &names, &loops)).map_err(Measuring::Units)?;
    }
    notes.extend(guards.notes().into_iter().filter(|n| !notes.contains(n)).collect::<Vec<_>>());
    Ok(Measured {
        profile: learnt,
        // None where the kernel sets no probes.
        functions: if hit_ns == 0 { 0 } else { explored },
        telling: telling.len(),
        hot: candidates.len() - explored,
        hit_ns,
        notes,
    })
}

/// What a short while showed.
struct Counted {
    /// How often units came by each function.
    calls: Vec<u64>,
    /// Nanoseconds of all units, without those of the probes.
    busy: u64,
    /// Nanoseconds of a probe.
    hit: u64,
}

fn count(of: Guarding, pids: &[u32], stop: &dyn Fn() -> bool) -> Result<Counted, Error> {
    let mut guards = of.start(pids)?;
    let (begun, mut busy) = (Instant::now(), 0);
    while begun.elapsed() < COUNTING && !stop() {
        for told in guards.poll(Duration::from_millis(10)) {
            if let Told::Unit(u) = told {
                busy += u.end.saturating_sub(u.start).saturating_sub(u.spent);
            }
        }
    }
    Ok(Counted { calls: guards.calls(), busy, hit: guards.costs().0 })
}

impl Counted {
    /// Which functions may be probed: those that are called least, as long as the probes of all of them together take
    /// no more than this share of the units' time. What was not called may always be.
    /// Nor may a few calls be forbidden by units that are long, and of which none has ended yet: so much of the time that
    /// was counted ([`HARMLESS`]) is nothing to anybody.
    fn quiet(&self, share: f64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.calls.len()).collect();
        order.sort_by_key(|&i| (self.calls[i], i));
        let mut sum = 0;
        order.retain(|&i| {
            sum += self.calls[i] * self.hit;
            sum as f64 <= (self.busy as f64 * share).max(HARMLESS)
        });
        order.sort_unstable();
        order
    }
}

/// Units as they come.
struct Learning<'a> {
    guards: Guards,
    ask: &'a Ask<'a>,
    /// Functions as the plan numbers them.
    functions: Vec<FunctionId>,
    loops: Vec<(LoopKey, FunctionId)>,
    /// Functions by their ids: those that may be probed, then those of the loops.
    names: Vec<Function>,
    seen: Kinds,
    log: Option<UnitLog>,
    /// How the units' time is shared out; functions as the plan numbers them.
    shares: Shares,
}

/// What probes take of the units' time.
#[derive(Default)]
struct Shares {
    /// Nanoseconds of all units, without those of the probes.
    busy: u64,
    /// Of each function: how often it was come by, and the nanoseconds of the units that did.
    within: Vec<(u64, u64)>,
}

impl Shares {
    /// A unit of this time that came so often by these functions.
    fn unit(&mut self, time: Ns, contexts: &[(usize, u32, u32)]) {
        self.busy += time;
        let mut calls: HashMap<usize, u64> = HashMap::new();
        for &(f, _, n) in contexts {
            *calls.entry(f).or_default() += u64::from(n);
        }
        for (f, n) in calls {
            if let Some(of) = self.within.get_mut(f) {
                *of = (of.0 + n, of.1 + time);
            }
        }
    }

    /// Functions at which probes of `hit` ns take little ([`LEARNING`], [`WITHIN`]), of all units and of those that come by
    /// each.
    fn quiet(&self, hit: u64) -> Vec<usize> {
        let calls = self.within.iter().map(|w| w.0).collect();
        let mut quiet = Counted { calls, busy: self.busy, hit }.quiet(LEARNING);
        quiet.retain(|&f| {
            let (calls, busy) = self.within[f];
            (calls * hit) as f64 <= busy as f64 * WITHIN
        });
        quiet
    }
}

impl<'a> Learning<'a> {
    fn start(of: Guarding, ask: &'a Ask<'a>, functions: &[(Function, Place)]) -> Result<Self, Error> {
        let mut names: Vec<Function> = functions.iter().map(|f| f.0.clone()).collect();
        let mut loops = Vec::new();
        for l in &of.loops {
            loops.push((l.key.clone(), FunctionId(names.len() as u32)));
            let function = ask.profile.loop_function(&l.key).map(|f| f.function.clone());
            names.push(function.unwrap_or_default());
        }
        let functions = of.functions.clone();
        let guards = of.start(ask.pids)?;
        let shares = Shares { busy: 0, within: vec![(0, 0); functions.len()] };
        Ok(Self { guards, ask, functions, loops, names, seen: Kinds::default(), log: None, shares })
    }

    fn run(&mut self, duration: Duration, stop: &dyn Fn() -> bool) {
        let begun = Instant::now();
        while begun.elapsed() < duration && !stop() {
            for told in self.guards.poll(Duration::from_millis(20)) {
                self.take(told);
            }
        }
    }

    fn take(&mut self, told: Told) {
        let Told::Unit(u) = told else { return };
        let Some(&(_, own)) = self.loops.get(u.of_loop) else { return };
        let named = |(f, depth, _): &(usize, u32, u32)| Some((*self.functions.get(*f)?, *depth));
        let hits: Vec<(FunctionId, u32)> = u.contexts.iter().filter_map(named).collect();
        let duration: Ns = u.end.saturating_sub(u.start).saturating_sub(u.spent);
        let kind = self.seen.add(u.of_loop, own, &hits, duration);
        self.shares.unit(duration, &u.contexts);
        if let Some(log) = &mut self.log {
            log.unit(&u, duration, kind, &self.functions);
        }
    }

    /// What was learnt.
    fn profile(&self, at: At, functions: &[(Function, Place)]) -> Profile {
        let mut learnt = self.seen.profile(at, self.ask.profile, &self.names, &self.loops);
        learnt.place_functions(functions.iter().cloned());
        for key in self.ask.profile.loops() {
            if let Some(function) = self.ask.profile.loop_function(key) {
                learnt.place_loop(key, function.clone(), self.ask.profile.boundaries(key).cloned());
            }
        }
        learnt
    }

    /// Functions that some units call too often to have their times measured there tell no types, nor those that were
    /// called so often that their probes were taken out.
    /// How often each was called.
    fn forget_hot(&mut self) -> HashMap<FunctionId, u64> {
        let calls = self.functions.iter().copied().zip(self.shares.within.iter().map(|w| w.0)).collect();
        let mut quiet = self.shares.quiet(self.guards.costs().0);
        let probed: BTreeSet<usize> = self.guards.probed().collect();
        quiet.retain(|f| probed.contains(f));
        self.functions = quiet.iter().filter_map(|&i| self.functions.get(i).copied()).collect();
        let kept = self.functions.iter().copied().collect();
        self.seen = std::mem::take(&mut self.seen).known_at(&kept);
        calls
    }

    /// Functions, of those that are probed, at which the types that were seen are told from each other, and kinds of units
    /// that take other times; all when that is not known.
    fn telling(&self, functions: &[(Function, Place)], calls: &HashMap<FunctionId, u64>) -> Vec<FunctionId> {
        let profile = self.profile(None, functions);
        let number: HashMap<&Function, FunctionId> =
            self.functions.iter().map(|&f| (&self.names[f.0 as usize], f)).collect();
        let mut all: BTreeSet<FunctionId> = BTreeSet::new();
        // Units pass by meanwhile: the rarer trees join the others.
        let refine = RefineOptions { units: FEW, ..RefineOptions::default() };
        let options = TypeOptions { most: CLUSTERED, refine, ..TypeOptions::default() };
        for (key, _) in &self.loops {
            let Some(of) = profile.types(key, options) else { continue };
            let names = functions_of(&of).into_iter().filter_map(|f| profile.functions().get(f.0 as usize));
            all.extend(names.filter_map(|f| number.get(f)));
        }
        let all = self.seen.told_apart(all, calls, (FEW as usize, SelectOptions::default().most));
        if all.is_empty() { self.functions.clone() } else { all.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_few_units_call_very_often_is_left_out_where_times_are_measured() {
        let mut shares = Shares { busy: 0, within: vec![(0, 0); 3] };
        // A thousand units come once by the first; one in a hundred ten thousand times by the second, at two depths.
        for n in 0..1000 {
            let often = [(0, 16, 1), (1, 32, 6000), (1, 48, 4000)];
            shares.unit(1_000_000, if n % 100 == 0 { &often } else { &often[..1] });
        }
        assert_eq!(shares.within, [(1000, 1_000_000_000), (100_000, 10_000_000), (0, 0)]);
        // A probe of 1 us: a thousandth of the time at the first; at the second a tenth, but ten times as much as its units.
        assert_eq!(shares.quiet(1000), [0, 2]);
        assert_eq!(shares.quiet(10), [0, 1, 2]);
        // Of 200 us: a fifth of all at the first.
        assert_eq!(shares.quiet(200_000), [2]);
    }

    #[test]
    fn what_is_called_too_often_is_left_out() {
        let counted = |busy| Counted { calls: vec![10, 900_000, 0, 20_000, 20_000], busy, hit: 1000 };
        assert_eq!(counted(1_000_000_000).quiet(0.05), [0, 2, 3, 4]);
        assert_eq!(counted(500_000_000).quiet(0.05), [0, 2, 3]);
        assert_eq!(counted(0).quiet(0.05), [0, 2]);
        assert_eq!(Counted { calls: Vec::new(), busy: 9, hit: 9 }.quiet(1.0), [0; 0]);
    }
}
