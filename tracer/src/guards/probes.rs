//! The probes that are set, and which of them are taken out again since they are come by too often.

use super::layout::{FUNCTIONS, SKIP, STEPPED};
use super::multi::{Link, Probe, Program};
use super::plan::Plan;
use super::point::Point;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What probes may cost beyond their share before some are taken out: less is chance.
const TOLERANCE: f64 = 1.3;

/// What probes may take between two looks in any case, ns: a thousandth of one CPU.
const HARMLESS: f64 = 500_000.0;

/// To which share of their cost probes are brought down with one look at most.
const AT_ONCE: f64 = 0.125;

/// Number in the plan, file, probe.
type Place = (usize, PathBuf, Probe);

/// Probes of a plan.
#[derive(Default)]
pub struct Probes {
    programs: Option<Arc<[Program; 2]>>,
    /// At the entries of functions that are guarded at present.
    entries: Vec<Place>,
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
        let mut returns = Vec::new();
        for (i, l) in plan.loops.iter().enumerate() {
            for (file, offset) in &l.turns {
                let at = Point::find(file, *offset);
                returns.push((i, file.clone(), probe(i | (at.skip as usize) << SKIP, *offset, at)));
            }
        }
        let functions = plan.functions.iter().enumerate().take(FUNCTIONS);
        let entry = |(i, f): (usize, &super::GuardedFunction)| {
            (i, f.file.clone(), probe(i, f.offset, Point::find(&f.file, f.offset)))
        };
        let (programs, entries) = (Some(Arc::clone(programs)), functions.map(entry).collect());
        let mut all = Self { programs, entries, returns, ..Self::default() };
        all.links = all.unset().set(notes);
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
    /// look. `calls` and `busy` (ns) count from the beginning; a probe costs `hit` ns, or `step` where the kernel has to
    /// step. Returns how many were taken out.
    pub fn shed(
        &mut self,
        (calls, busy): (Vec<u64>, u64),
        (hit, step): (u64, u64),
        share: f64,
        notes: &mut Vec<String>,
    ) -> usize {
        let (before, busy_before) = std::mem::replace(&mut self.last, (calls, busy));
        let cost = |(number, _, probe): &Place| {
            let since = before.get(*number).copied().unwrap_or(0);
            let each = if probe.cookie & STEPPED != 0 { step } else { hit };
            self.last.0.get(*number).map_or(0, |n| n.saturating_sub(since)) * each
        };
        let costs: Vec<u64> = self.entries.iter().map(cost).collect();
        // Before the first long unit has ended nothing is known of the units' time: some hits harm nobody.
        let may = ((busy.saturating_sub(busy_before)) as f64 * share).max(HARMLESS);
        let Some(kept) = affordable(&costs, may) else { return 0 };
        let taken = self.entries.len() - kept.len();
        let mut at = 0;
        self.entries.retain(|_| {
            at += 1;
            kept.binary_search(&(at - 1)).is_ok()
        });
        // The new ones first: no function is without in between.
        if let Some([_, on_context]) = self.programs.as_deref() {
            self.links[0] = attach(on_context, &self.entries, notes);
        }
        taken
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

/// Which of these are kept, the cheapest first, when they may cost so much together; `None` when all are. What a unit has
/// taken that has not ended is not known yet, and one that calls a function a million times would take all others along: so
/// they come down to [`AT_ONCE`] of what they cost at most, and further with the next look.
fn affordable(costs: &[u64], may: f64) -> Option<Vec<usize>> {
    let all: u64 = costs.iter().sum();
    if all as f64 <= may * TOLERANCE {
        return None;
    }
    let may = may.max(all as f64 * AT_ONCE);
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|&i| (costs[i], i));
    let mut sum = 0;
    order.retain(|&i| {
        sum += costs[i];
        sum as f64 <= may
    });
    order.sort_unstable();
    Some(order)
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
    use super::*;

    #[test]
    fn what_is_come_by_most_is_taken_out() {
        // All of them cost 1110, of which 1000 and a little more may be.
        assert_eq!(affordable(&[10, 1000, 0, 100], 1000.0), None);
        assert_eq!(affordable(&[10, 1000, 0, 100], 800.0), Some(vec![0, 2, 3]));
        // A unit that has not ended yet: what it comes by most goes, not all the others.
        assert_eq!(affordable(&[10, 1000, 0, 100], 0.0), Some(vec![0, 2, 3]));
        assert_eq!(affordable(&[10, 0, 100], 0.0), Some(vec![0, 1]));
        // Nothing was done: nothing is known.
        assert_eq!(affordable(&[0, 0], 0.0), None);
        assert_eq!(affordable(&[0, 5], 0.0), Some(vec![0]));
    }
}
