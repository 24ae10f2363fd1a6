//! Learning by probes: which functions each unit comes by, how deep, and how long it takes. Stacks of a recording show
//! some calls of some units; probes at the functions that were seen there show them in every unit, as guards will.

use super::guarding::{Ask, Guarding, Refused};
use pg_event::Ns;
use pg_graph::units::{Context, Function, FunctionId, Profile, Unit, unit_from_hits};
use pg_tracer::Error;
use pg_tracer::guards::{Guards, Told};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long calls are counted, to leave out functions that are called too often.
const COUNTING: Duration = Duration::from_millis(300);
/// Functions probed at most.
const MAX_FUNCTIONS: usize = 500;
/// Calls of all probed functions in a second at most: at 0.8 us each 4 % of a CPU.
const MAX_CALLS: f64 = 50_000.0;
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

/// Learns for so long, or until `stop`.
///
/// # Errors
/// [`Measuring`].
pub fn measure(ask: &Ask, duration: Duration, stop: impl Fn() -> bool) -> Result<Measured, Measuring> {
    let known = (0..ask.profile.functions().len() as u32).map(FunctionId);
    let all = Guarding::learning(ask, known.take(MAX_FUNCTIONS))?;
    let candidates = all.functions.clone();
    let mut counting = Learning::start(all, ask)?;
    let begun = Instant::now();
    while begun.elapsed() < COUNTING && !stop() {
        counting.guards.poll(Duration::from_millis(10));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let kept = quiet(&counting.guards.calls(), seconds);
    drop(counting);
    let functions = kept.iter().filter_map(|&i| candidates.get(i).copied());
    let mut learning = Learning::start(Guarding::learning(ask, functions)?, ask)?;
    while begun.elapsed() < duration && !stop() {
        for told in learning.guards.poll(Duration::from_millis(20)) {
            learning.take(told);
        }
    }
    learning.flush();
    let Learning { guards, learnt, .. } = learning;
    Ok(Measured {
        profile: with_places(learnt, ask.profile),
        functions: kept.len(),
        hot: candidates.len() - kept.len(),
        hit_ns: guards.costs().0,
        notes: guards.notes(),
    })
}

/// Which functions may be probed: those that are called least, as long as all of them together are not called too often.
fn quiet(calls: &[u64], seconds: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|&i| (calls[i], i));
    let mut sum = 0.0;
    order.retain(|&i| {
        sum += calls[i] as f64 / seconds.max(1e-3);
        sum <= MAX_CALLS
    });
    order.sort_unstable();
    order
}

/// Units on their way into a profile.
struct Learning<'a> {
    guards: Guards,
    ask: &'a Ask<'a>,
    /// Functions as the plan numbers them.
    functions: Vec<FunctionId>,
    loops: Vec<(pg_graph::units::LoopKey, FunctionId)>,
    /// Functions by their ids: those of the profile, then those of the loops.
    names: Vec<Function>,
    units: Vec<(usize, Unit)>,
    learnt: Profile,
}

impl<'a> Learning<'a> {
    fn start(of: Guarding, ask: &'a Ask<'a>) -> Result<Self, Error> {
        let mut names = ask.profile.functions().to_vec();
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

/// With what the other profile says of where its functions and loops are.
fn with_places(mut learnt: Profile, from: &Profile) -> Profile {
    for (i, function) in from.functions().iter().enumerate() {
        let places = from.places(FunctionId(i as u32)).map(|p| (function.clone(), p.clone()));
        learnt.place_functions(places.collect::<Vec<_>>());
    }
    for key in from.loops() {
        if let Some(function) = from.loop_function(key) {
            learnt.place_loop(key, function.clone(), from.boundaries(key).cloned());
        }
    }
    learnt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_too_often_is_left_out() {
        assert_eq!(quiet(&[10, 900_000, 0, 20_000, 20_000], 1.0), [0, 2, 3, 4]);
        assert_eq!(quiet(&[10, 900_000, 0, 20_000, 20_000], 0.5), [0, 2, 3]);
        assert_eq!(quiet(&[], 1.0), [0; 0]);
    }
}
