//! Learning by probes: which functions each unit comes by, how deep, and how long it takes. Stacks of a recording show
//! some calls of some units; probes at the functions that were seen there show them in every unit, as guards will.

use super::guarding::{Ask, Guarding, Refused};
use pg_event::Ns;
use pg_graph::units::{Context, Function, FunctionId, Place, Profile, Unit, unit_from_hits};
use pg_tracer::Error;
use pg_tracer::guards::{Guards, Told};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long calls are counted, to leave out functions that are called too often.
const COUNTING: Duration = Duration::from_millis(300);
/// Functions probed at most.
const MAX_FUNCTIONS: usize = 500;
/// What all probes together may take of the time that units take, for the seconds of learning.
const LEARNING: f64 = 0.15;
/// What probes may take of the time of counting in any case, ns: a thousandth of one CPU.
const HARMLESS: f64 = 300_000.0;
/// Units put into a profile at a time.
const BATCH: usize = 1 << 15;

/// What cannot be learnt.
#[derive(Debug, thiserror::Error)]
pub enum Measuring {
    /// Nothing of the profile is there.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The kernel does not want it.
    #[error(transparent)]
    Tracer(#[from] Error),
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
    /// Nanoseconds a probe takes here.
    pub hit_ns: u64,
    /// Sentences about what was not learnt.
    pub notes: Vec<String>,
}

/// Learns for so long, or until `stop`, at these functions.
///
/// # Errors
/// [`Measuring`].
pub fn measure(
    ask: &Ask,
    functions: &[(Function, Place)],
    duration: Duration,
    stop: impl Fn() -> bool,
) -> Result<Measured, Measuring> {
    let numbered = |i: &FunctionId| (*i, &functions[i.0 as usize].1);
    let known: Vec<FunctionId> = (0..functions.len().min(MAX_FUNCTIONS) as u32).map(FunctionId).collect();
    let all = Guarding::learning(ask, known.iter().map(numbered))?;
    let candidates = all.functions.clone();
    let begun = Instant::now();
    let kept = count(all, ask.pids, &stop)?.quiet(LEARNING);
    let probed: Vec<FunctionId> = kept.iter().filter_map(|&i| candidates.get(i).copied()).collect();
    let guarding = Guarding::learning(ask, probed.iter().map(numbered))?;
    let mut learning = Learning::start(guarding, ask, functions)?;
    while begun.elapsed() < duration && !stop() {
        for told in learning.guards.poll(Duration::from_millis(20)) {
            learning.take(told);
        }
    }
    learning.flush();
    let Learning { guards, mut learnt, .. } = learning;
    learnt.place_functions(functions.iter().cloned());
    for key in ask.profile.loops() {
        if let Some(function) = ask.profile.loop_function(key) {
            learnt.place_loop(key, function.clone(), ask.profile.boundaries(key).cloned());
        }
    }
    Ok(Measured {
        profile: learnt,
        // None where the kernel sets no probes.
        functions: if guards.costs().0 == 0 { 0 } else { kept.len() },
        hot: candidates.len() - kept.len(),
        hit_ns: guards.costs().0,
        notes: guards.notes(),
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
            if let Told::Unit { start, end, spent, .. } = told {
                busy += end.saturating_sub(start).saturating_sub(spent);
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

/// Units on their way into a profile.
struct Learning<'a> {
    guards: Guards,
    ask: &'a Ask<'a>,
    /// Functions as the plan numbers them.
    functions: Vec<FunctionId>,
    loops: Vec<(pg_graph::units::LoopKey, FunctionId)>,
    /// Functions by their ids: those that may be probed, then those of the loops.
    names: Vec<Function>,
    units: Vec<(usize, Unit)>,
    learnt: Profile,
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
        Ok(Self { guards, ask, functions, loops, names, units: Vec::new(), learnt: Profile::default() })
    }

    fn take(&mut self, told: Told) {
        let Told::Unit { of_loop, start, end, spent, contexts, .. } = told else { return };
        let Some(&(_, own)) = self.loops.get(of_loop) else { return };
        let named = |(f, depth): &(usize, u32)| Some((*self.functions.get(*f)?, *depth));
        let hits: Vec<(FunctionId, u32)> = contexts.iter().filter_map(named).collect();
        let paths = unit_from_hits(std::iter::once((own, 0)).chain(hits.iter().copied()));
        let duration: Ns = end.saturating_sub(start).saturating_sub(spent);
        let contexts: BTreeSet<Context> =
            hits.into_iter().map(|(function, depth)| Context { function, depth }).collect();
        self.units.push((of_loop, Unit { duration, paths, contexts }));
        if self.units.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let units = self.units.iter().map(|(l, u)| (self.loops[*l].0.clone(), u));
        let learnt = Profile::new(self.ask.profile.binaries().cloned(), &self.names, units);
        self.learnt = self.learnt.merge(&learnt);
        self.units.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_too_often_is_left_out() {
        let counted = |busy| Counted { calls: vec![10, 900_000, 0, 20_000, 20_000], busy, hit: 1000 };
        assert_eq!(counted(1_000_000_000).quiet(0.05), [0, 2, 3, 4]);
        assert_eq!(counted(500_000_000).quiet(0.05), [0, 2, 3]);
        assert_eq!(counted(0).quiet(0.05), [0, 2]);
        assert_eq!(Counted { calls: Vec::new(), busy: 9, hit: 9 }.quiet(1.0), [0; 0]);
    }
}
