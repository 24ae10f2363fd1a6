//! The probes that are set; those that are come by too often are taken out for a while ([`Hot`]).

use super::apart::{self, Probed};
use super::hot::Hot;
use super::layout::{FUNCTIONS, SKIP, STEPPED};
use super::multi::{Link, Probe, Program};
use super::plan::Plan;
use super::point::Point;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number in the plan, file, probe.
type Place = (usize, PathBuf, Probe);

/// Probes of a plan.
#[derive(Default)]
pub struct Probes {
    programs: Option<Arc<[Program; 2]>>,
    /// At the entries of functions that are guarded at present, and of those that rest.
    entries: Vec<Place>,
    resting: Vec<Place>,
    hot: Hot,
    /// Set again with the last look: a unit that began before has passed them by.
    back: Vec<usize>,
    /// Behind loops' own wait calls.
    returns: Vec<Place>,
    /// Of either, when they are set.
    links: [Vec<Link>; 2],
    /// Calls of all functions, and nanoseconds of all units, at the last look.
    last: (Vec<u64>, u64),
}

/// Probes that are to be set.
pub struct Unset {
    programs: Option<Arc<[Program; 2]>>,
    places: [Vec<Place>; 2],
}

impl Unset {
    /// Sets them. Sentences about those that cannot be go to `notes`.
    pub fn set(&self, notes: &mut Vec<String>) -> [Vec<Link>; 2] {
        let Some([on_turn, on_context]) = self.programs.as_deref() else { return Default::default() };
        let [entries, returns] = &self.places;
        [attach(on_context, entries, notes), attach(on_turn, returns, notes)]
    }
}

impl Probes {
    /// Sets them. Sentences about those that cannot be go to `notes`.
    pub fn set(programs: &Arc<[Program; 2]>, plan: &Plan, notes: &mut Vec<String>) -> Self {
        let returns = turns(plan).into_iter().map(|(i, file, offset)| {
            let at = Point::find(file, offset);
            (i, file.clone(), probe(i | (at.skip as usize) << SKIP, offset, at))
        });
        let returns = returns.collect();
        let functions = plan.functions.iter().enumerate().take(FUNCTIONS);
        let entry = |(i, f): (usize, &super::GuardedFunction)| {
            (i, f.file.clone(), probe(i, f.offset, Point::find(&f.file, f.offset)))
        };
        let (programs, entries) = (Some(Arc::clone(programs)), functions.map(entry).collect());
        let hot = Hot::new(plan.learning, apart::told(plan));
        let mut all = Self { programs, entries, hot, returns, ..Self::default() };
        all.links = all.unset().set(notes);
        // Units that are under way have come by some of them unseen.
        if plan.share > 0.0 {
            all.back = all.functions().collect();
        }
        all
    }

    /// They, to be set again.
    pub fn unset(&self) -> Unset {
        Unset { programs: self.programs.clone(), places: [self.entries.clone(), self.returns.clone()] }
    }

    /// What holds them: they are gone when it is dropped.
    pub fn take(&mut self) -> [Vec<Link>; 2] {
        std::mem::take(&mut self.links)
    }

    /// They are set again.
    pub fn put(&mut self, links: [Vec<Link>; 2]) {
        self.links = links;
    }

    /// Takes out those that are come by most, if all of them took more than `share` of the units' time since the last
    /// look, and sets those again that have rested. `calls` and `time` (ns) count from the beginning; a probe costs `hit` ns,
    /// or `step` where the kernel has to step. Returns whether
    /// others tell types apart than before.
    pub fn shed(
        &mut self,
        now: u64,
        (calls, time): (Vec<u64>, u64),
        (hit, step): (u64, u64),
        share: f64,
        notes: &mut Vec<String>,
    ) -> bool {
        let (before, time_before) = std::mem::replace(&mut self.last, (calls, time));
        let cost = |(number, _, probe): &Place| {
            let since = before.get(*number).copied().unwrap_or(0);
            let each = if probe.cookie & STEPPED != 0 { step } else { hit };
            (*number, self.last.0.get(*number).map_or(0, |n| n.saturating_sub(since)) * each)
        };
        let costs: Vec<(usize, u64)> = self.entries.iter().map(cost).collect();
        let gone = self.hot.look(now, &costs, time.saturating_sub(time_before), share);
        let back = self.hot.rested(now);
        let was_back = !std::mem::replace(&mut self.back, back.clone()).is_empty();
        if gone.is_empty() && back.is_empty() {
            return was_back;
        }
        let (gone, entries) = take(std::mem::take(&mut self.entries), &gone);
        let (back, resting) = take(std::mem::take(&mut self.resting), &back);
        (self.entries, self.resting) = (entries, resting);
        self.entries.extend(back);
        self.resting.extend(gone);
        self.entries.sort_unstable_by_key(|e| e.0);
        // The new ones first: no function is without in between.
        if let Some([_, on_context]) = self.programs.as_deref() {
            self.links[0] = attach(on_context, &self.entries, notes);
        }
        true
    }

    /// Can any be set?
    pub fn are_there(&self) -> bool {
        self.programs.is_some()
    }

    /// Is this function probed? Not those that were called too often, which rest.
    pub fn probed(&self, number: usize) -> Probed {
        match () {
            () if self.hot.rests(number) => Probed::No,
            () if self.back.contains(&number) => Probed::Since,
            () => Probed::Yes,
        }
    }

    /// How many do.
    pub fn resting(&self) -> usize {
        self.hot.resting()
    }

    /// Numbers of the functions at which there are probes, ascending.
    pub fn functions(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|e| e.0)
    }

    /// How many functions are guarded.
    pub fn guarded(&self) -> usize {
        self.entries.len()
    }
}

/// Behind the wait calls of loops, each place once, with the first of the loops that wait there: with two probes at one place
/// each return would be told twice, and the second telling taken for a turn of its own.
fn turns(plan: &Plan) -> Vec<(usize, &PathBuf, u64)> {
    let mut known = BTreeSet::new();
    let all = plan.loops.iter().enumerate().flat_map(|(i, l)| l.turns.iter().map(move |(f, at)| (i, f, *at)));
    all.filter(|&(_, file, at)| known.insert((file, at))).collect()
}

/// Those with these numbers (ascending), and the others.
fn take(all: Vec<Place>, numbers: &[usize]) -> (Vec<Place>, Vec<Place>) {
    all.into_iter().partition(|e| numbers.binary_search(&e.0).is_ok())
}

/// The probe of what has this number and begins at an offset in a file.
fn probe(number: usize, offset: u64, at: Point) -> Probe {
    let stepped = if at.stepped { STEPPED } else { 0 };
    let cookie = number as u64 | stepped | u64::from(at.lower) << 32;
    Probe { offset: offset + u64::from(at.skip), cookie, semaphore: 0 }
}

/// One link for each file; of a file with some that the kernel refuses, the others.
fn attach(program: &Program, all: &[Place], notes: &mut Vec<String>) -> Vec<Link> {
    let mut files: BTreeMap<&Path, Vec<Probe>> = BTreeMap::new();
    for (_, file, probe) in all {
        files.entry(file).or_default().push(*probe);
    }
    let mut links = Vec::new();
    for (file, probes) in files {
        attach_some(program, file, &probes, &mut links, notes);
    }
    links
}

fn attach_some(
    program: &Program,
    file: &Path,
    probes: &[Probe],
    links: &mut Vec<Link>,
    notes: &mut Vec<String>,
) {
    match program.attach(file, probes, None) {
        Ok(link) => links.push(link),
        Err(e) if probes.len() <= 1 => {
            let at = probes.first().map_or(0, |p| p.offset);
            notes.push(format!("no probe at 0x{at:x} of {}: {e}", file.display()));
        }
        Err(_) => {
            let (a, b) = probes.split_at(probes.len() / 2);
            attach_some(program, file, a, links, notes);
            attach_some(program, file, b, links, notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::GuardedLoop;
    use super::*;

    #[test]
    fn a_wait_call_of_several_loops_has_one_probe_behind_it() {
        let file = PathBuf::from("/server");
        let of = |turns: &[u64]| GuardedLoop {
            turns: turns.iter().map(|&at| (file.clone(), at)).collect(),
            ..GuardedLoop::default()
        };
        let plan = Plan { loops: vec![of(&[7]), of(&[7, 9]), of(&[]), of(&[9, 7])], ..Plan::default() };
        assert_eq!(turns(&plan), [(0, &file, 7), (1, &file, 9)]);
    }
}
