//! The guards at work.

mod asked;
mod counts;
mod limits;
mod python;
mod slow;

use super::ahead::Ahead;
use super::calibrate;
use super::frames::Sleep;
use super::given::Given;
use super::layout::{
    At, CANDIDATES, Candidates, ContextKey, Control, FUNCTIONS, LOOPS, Loop, THREADS, TYPES, TypeCounts,
};
use super::plan::{Judge, Plan};
use super::probes::Probes;
use super::program::Program;
use super::records::Record;
use super::shapes::Shapes;
use super::told::{Ended, Sight, Told, UnitTold, Withdrawn};
use super::windows::Windows;
use crate::clock::monotonic;
use crate::error::Error;
use crate::stacks::StackTable;
use pg_event::{Catalog, Ns};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How often sleeping units are looked at, ns.
const LOOK: u64 = 10_000_000;
/// How often it is looked whether probes cost too much, ns.
const SHED: u64 = 500_000_000;
/// Records taken at a time.
const AT_ONCE: usize = 4096;
/// Stacks of sleeping threads that are remembered.
const MAX_SLEEPS: usize = 1 << 16;
/// The longest that a type which rings on and on is silent, ns.
const LONGEST: u64 = 60_000_000_000;
/// No limit.
const ENDLESS: u64 = u64::MAX;

/// The guards; dropping it leaves everything as it was.
pub struct Guards {
    program: Program,
    plan: Plan,
    judge: Judge,
    /// For each loop: its types by their thresholds, the number in the kernel first.
    ranks: Vec<Vec<usize>>,
    table: StackTable,
    catalog: Catalog,
    /// Slots of threads.
    threads: HashMap<u32, usize>,
    shapes: Shapes,
    /// Stacks of waits by thread and place.
    sleeps: HashMap<(u32, At), Sleep>,
    probes: Probes,
    /// Set when probes are not to be set all the time.
    windows: Option<Windows>,
    /// Set where messages may begin units.
    ahead: Option<Ahead>,
    /// Set when units are given.
    given: Option<Given>,
    /// Violations of given units that had ended unseen, by loop and type.
    refuted: HashMap<(usize, Option<usize>), u64>,
    /// How long units of each type may take as things are, by loop (`apart`).
    held: Vec<Vec<Ns>>,
    next_look: u64,
    next_shed: u64,
    began: u64,
    costs: calibrate::Costs,
    notes: Vec<String>,
}

impl Guards {
    /// Load everything and guard the processes `pids` and those they create.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn start(plan: Plan, judge: Judge, pids: &[u32]) -> Result<Self, Error> {
        let mut program = Program::load(plan.learning)?;
        let mut notes = std::mem::take(&mut program.notes);
        let given = plan.loops.iter().any(|l| l.given.is_some());
        let probed = given || !plan.functions.is_empty() || plan.loops.iter().any(|l| !l.turns.is_empty());
        let measured = if probed { calibrate::costs(&mut program) } else { None };
        if probed && measured.is_none() && program.probes.take().is_some() {
            notes.push("no probes at functions: Linux 6.6 or newer is needed to set many at a time".into());
        }
        if given && measured.is_none() {
            let reason = notes.pop().unwrap_or_default();
            return Err(Error::Refused { what: "probes where the units begin and end".into(), reason });
        }
        let costs = measured.unwrap_or_default();
        let mut all = Self {
            program,
            judge,
            ranks: plan.loops.iter().map(|l| ranks(&l.thresholds, &l.first)).collect(),
            held: plan.loops.iter().map(|l| l.thresholds.clone()).collect(),
            plan,
            table: StackTable::new(),
            catalog: Catalog::default(),
            threads: HashMap::new(),
            shapes: Shapes::default(),
            sleeps: HashMap::new(),
            probes: Probes::default(),
            windows: None,
            ahead: None,
            given: None,
            refuted: HashMap::new(),
            next_shed: 0,
            next_look: 0,
            began: monotonic(),
            costs,
            notes,
        };
        all.configure()?;
        for &pid in pids {
            all.add(pid)?;
        }
        all.program.attach(all.plan.hz, !given)?;
        if !given && !all.plan.learning {
            all.ahead = Some(Ahead::new(all.plan.loops.len().min(LOOPS)));
        }
        if given {
            all.set_given(pids)?;
        }
        if let Some(programs) = all.program.probes.as_ref().filter(|_| probed) {
            all.probes = Probes::set(programs, &all.plan, &mut all.notes);
            all.next_shed = monotonic() + SHED;
            (0..all.plan.loops.len().min(LOOPS)).for_each(|l| all.hold(l));
            if all.plan.budget > 0.0 && !given && !all.plan.learning {
                all.windows = Windows::new(all.plan.budget, all.longest_unit());
            }
        }
        Ok(all)
    }

    /// Units that begin and end at probes: threads get their places when they begin one.
    fn set_given(&mut self, pids: &[u32]) -> Result<(), Error> {
        let Some(programs) = &self.program.given else { return Ok(()) };
        let set = Given::set(programs, &self.plan, pids);
        if let Some(note) = set.notes.first() {
            return Err(Error::Refused { what: "the probes of the units".into(), reason: note.clone() });
        }
        self.given = Some(set);
        Ok(())
    }

    /// What the plan says, into the maps.
    fn configure(&mut self) -> Result<(), Error> {
        let failed = |e: aya::maps::MapError| Error::Failed(format!("cannot set the guards: {e}"));
        let control = Control {
            hit_ns: self.costs.hit,
            step_ns: self.costs.step,
            period_ns: self.plan.period,
            longest_ns: self.longest(),
            learning: u32::from(self.plan.learning),
            sparse_ns: self.plan.sparse,
            given: u32::from(self.plan.loops.iter().any(|l| l.given.is_some())),
            stacks: u32::from(self.plan.stacks),
            zero: 0,
        };
        self.program.control.set(0, control, 0).map_err(failed)?;
        if self.plan.loops.len() > LOOPS {
            self.notes.push(format!("of {} loops the first {LOOPS} are guarded", self.plan.loops.len()));
        }
        // The first places last: they are taken from the end, and units are learnt of in the first ones only.
        for slot in (0..THREADS).rev() {
            self.program.spare.push(slot as u32, 0).map_err(failed)?;
        }
        let limit = |ns| limit(ns, self.plan.learning);
        for (i, (of, ranks)) in self.plan.loops.iter().zip(&self.ranks).enumerate().take(LOOPS) {
            let mut types = [TypeCounts { threshold: ENDLESS, ..TypeCounts::default() }; TYPES + 1];
            for (t, &place) in types.iter_mut().zip(ranks) {
                t.threshold = limit(of.thresholds[place]);
            }
            types[TYPES].threshold = limit(of.unknown);
            let settles = self.settles(i);
            self.program
                .loops
                .set(
                    i as u32,
                    Loop { types, passed: 0, abandoned: 0, busy: 0, answered: 0, ahead: 0, settles },
                    0,
                )
                .map_err(failed)?;
        }
        for (of_loop, function, depth, types) in &self.plan.contexts {
            let Some(ranks) = self.ranks.get(*of_loop) else { continue };
            let mut shared: Vec<u8> = ranks
                .iter()
                .enumerate()
                .take(TYPES)
                .filter(|(_, t)| types.contains(t))
                .map(|(rank, _)| rank as u8)
                .collect();
            // What nearly all share tells nothing.
            if shared.is_empty() || shared.len() > CANDIDATES {
                continue;
            }
            let key =
                ContextKey { of_loop: *of_loop as u32, function: *function as u32, depth: *depth, zero: 0 };
            let count = shared.len() as u8;
            shared.resize(CANDIDATES, 0);
            let candidates = Candidates { count, types: shared.try_into().unwrap_or_default() };
            self.program.contexts.insert(key, candidates, 0).map_err(failed)?;
        }
        Ok(())
    }

    /// The longest that a unit of no known type may take, ns; 0 where all may take as long as they like.
    fn longest_unit(&self) -> u64 {
        self.plan.loops.iter().map(|l| l.unknown).max().unwrap_or(0)
    }

    /// How long units of each type of a loop may take at present, ns, as the plan counts the types; 0: as long as they like.
    pub fn held(&self, of_loop: usize) -> &[Ns] {
        self.held.get(of_loop).map_or(&[], Vec::as_slice)
    }

    /// What is seen of the units.
    pub fn sight(&self) -> Sight {
        self.windows.as_ref().map_or_else(Sight::default, |w| w.told(self.program.used()))
    }

    /// The longest that a type is silent, ns.
    fn longest(&self) -> u64 {
        LONGEST.max(self.plan.period)
    }

    /// Guard one more process. It costs nothing to name one twice.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, pid: u32) -> Result<(), Error> {
        let failed = |e| Error::Failed(format!("cannot guard process {pid}: {e}"));
        self.program.targets.insert(pid, 1, 0).map_err(failed)?;
        if let (Some(given), Some([begin, end, _])) = (&mut self.given, &self.program.given) {
            given.add([begin, end], pid);
        }
        Ok(())
    }

    /// Given units of a loop whose end was not seen: left by a jump or an exception, or begun before their end was
    /// probed.
    pub fn abandoned(&self, of_loop: usize) -> u64 {
        self.program.loops.get(&(of_loop as u32), 0).map_or(0, |l| l.abandoned)
    }

    /// Nanoseconds that probes cost here, as measured: one at a push, and one at another instruction. 0 when none is
    /// used.
    pub fn costs(&self) -> (u64, u64) {
        (self.costs.hit, self.costs.step)
    }

    /// When guarding began, `CLOCK_MONOTONIC`, ns.
    pub fn began(&self) -> Ns {
        self.began
    }

    /// Whether messages are seen at present: every one of the machine costs something then.
    pub fn hears_messages(&self) -> bool {
        self.program.hears()
    }

    /// Names of stacks told so far.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Find the names of functions told so far; may take a while.
    pub fn symbolize(&mut self) {
        let delta = self.table.symbolize();
        self.catalog.apply(delta);
    }

    /// Look for the names of functions told so far, without waiting for those that are not there yet. Of all that were ever
    /// looked for, in their order, so many are known; and all of them.
    pub fn name_some(&mut self) -> (u64, u64) {
        let delta = self.table.symbolize_some(Duration::from_nanos(1));
        self.catalog.apply(delta);
        self.table.looked_up()
    }

    /// Sentences about what could not be guarded.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.given.iter().flat_map(|g| g.notes.iter().cloned()));
        let (out, left) = (self.probes.resting(), self.probes.guarded());
        if out > 0 && !self.plan.learning {
            let functions = if out == 1 { "1 function is".into() } else { format!("{out} functions are") };
            notes.push(format!(
                "{functions} called too often to be guarded at present ({left} are): units that only these tell apart may \
                 take as long as the longest of them"
            ));
        }
        let given = self.plan.loops.iter().enumerate().filter(|(_, l)| l.given.is_some());
        let abandoned: u64 = given.map(|(i, _)| self.abandoned(i)).sum();
        if abandoned > 0 {
            notes.push(format!(
                "units that are not counted: {abandoned}; their end was not come by (left by an exception or longjmp, begun \
                 anew, or over before their end was probed)"
            ));
        }
        let lost = self.program.lost();
        if lost > 0 {
            notes.push(format!(
                "{lost} records of the guards were lost: units came faster than they were taken"
            ));
        }
        notes
    }

    /// How often units came by each function of the plan.
    pub fn calls(&self) -> Vec<u64> {
        let functions = 0..self.plan.functions.len().min(FUNCTIONS) as u32;
        functions.map(|i| self.program.calls.get(&i, 0).unwrap_or(0)).collect()
    }

    /// Functions of the plan that still have their probes, ascending: see [`Plan::share`].
    pub fn probed(&self) -> impl Iterator<Item = usize> {
        self.probes.functions()
    }

    /// Wait for what comes, `most` at the longest, and take it.
    pub fn poll(&mut self, most: Duration) -> Vec<Told> {
        self.program.wait(most.min(Duration::from_nanos(LOOK)));
        let mut out = Vec::new();
        for _ in 0..AT_ONCE {
            let Some(record) = self.program.next() else { break };
            self.take(record, &mut out);
        }
        let now = monotonic();
        if now >= self.next_shed {
            self.next_shed = now + SHED;
            if self.plan.share > 0.0 {
                self.shed();
            }
            self.listen();
        }
        if let Some(windows) = &mut self.windows {
            windows.look(now, &self.program, &mut self.probes);
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            if !self.plan.learning {
                self.look(now, &mut out);
            }
        }
        let delta = self.table.drain();
        self.catalog.apply(delta);
        out
    }

    fn take(&mut self, record: Record, out: &mut Vec<Told>) {
        match record {
            Record::Stack { head, turn, image, regs, syscall, copy } => {
                out.extend(self.asked((head, image), turn, &regs, syscall, &copy));
            }
            Record::Unit(u) => out.push(Told::Unit(UnitTold::from(*u))),
            Record::Call { tid, tgid, function, depth, frame, regs, copy } => {
                let (frames, _) = self.table.unwind(tgid, &regs, &copy);
                let inside = frames.iter().position(|f| f.regs.sp().is_some_and(|sp| sp >= frame));
                let path = inside.map(|n| frames[..=n].iter().map(|f| f.frame).collect());
                out.push(Told::Call { tid, function: function as usize, depth, path });
            }
            Record::Violation(v) => {
                let told = self.violation(&v);
                out.extend(told.map(|t| Told::Violation(Box::new(t))));
            }
            Record::Look(v) => out.extend(self.look_at(&v).map(|l| Told::Look(Box::new(l)))),
            Record::Ended { head, violated, start, elapsed, number, of } => out.push(Told::Ended(Ended {
                tid: head.tid,
                pid: head.tgid,
                of_loop: head.of_loop as usize,
                number,
                violated,
                start,
                end: head.time,
                elapsed,
                of: self.type_of(head.of_loop as usize, of),
            })),
            Record::Withdrawn { head, start, elapsed, number, of } => {
                let of_loop = head.of_loop as usize;
                let of = self.type_of(of_loop, of);
                let threshold = of.and_then(|t| self.held.get(of_loop)?.get(t).copied()).unwrap_or(0);
                let (tid, pid, time) = (head.tid, head.tgid, head.time);
                out.push(Told::Withdrawn(Withdrawn {
                    tid,
                    pid,
                    of_loop,
                    number,
                    time,
                    start,
                    elapsed,
                    of,
                    threshold,
                }));
            }
            Record::Fork { head, parent } => {
                self.table.fork(parent, head.tgid);
                if let (Some(given), Some([begin, end, _])) = (&mut self.given, &self.program.given) {
                    given.add([begin, end], head.tgid);
                }
            }
            Record::Enlisted { head, slot } => {
                self.threads.insert(head.tid, slot as usize);
                self.follow_python(head.of_loop as usize, head.tgid, head.tid);
                let (tid, pid, of_loop) = (head.tid, head.tgid, head.of_loop as usize);
                out.push(Told::Guarded { tid, pid, of_loop });
            }
            Record::Caller { head, address } => {
                if let (Some(given), Some([_, _, returned])) = (&mut self.given, &self.program.given) {
                    given.called_from(returned, head.tgid, address);
                }
            }
            Record::Exec(head) => {
                self.table.exec(head.tgid);
                if let Some(given) = &mut self.given {
                    given.forget(head.tgid);
                }
                self.forget(head.tid);
            }
            Record::Exit(head) => {
                self.table.exit(head.tgid, head.tid == head.tgid, true);
                if let Some(given) = self.given.as_mut().filter(|_| head.tid == head.tgid) {
                    given.forget(head.tgid);
                }
                self.forget(head.tid);
            }
        }
    }

    /// The type with this number in the kernel. Where there is only one, all units are of it.
    fn type_of(&self, of_loop: usize, rank: u32) -> Option<usize> {
        match self.ranks.get(of_loop)?.as_slice() {
            [one] => Some(*one),
            ranks => ranks.get(rank as usize).copied(),
        }
    }
}

/// What the programs compare with.
fn limit(ns: Ns, learning: bool) -> u64 {
    if ns == 0 || learning { ENDLESS } else { ns }
}

/// The types by their thresholds, none last; the first of a pair comes before the second though its threshold is greater.
fn ranks(thresholds: &[Ns], first: &[(usize, usize)]) -> Vec<usize> {
    let key = |t: usize| (if thresholds[t] == 0 { ENDLESS } else { thresholds[t] }, t);
    let mut rest: BTreeSet<_> = (0..thresholds.len()).map(key).collect();
    // A person may have said other thresholds since: only what has the greater one waits for nothing that waits for it.
    let known = first.iter().filter(|(a, b)| a.max(b) < &thresholds.len() && key(*a) > key(*b));
    let mut awaited: Vec<(usize, usize)> = known.copied().collect();
    let mut order = Vec::with_capacity(rest.len());
    while let Some(next) = rest.iter().find(|(_, t)| awaited.iter().all(|(_, b)| b != t)).copied() {
        rest.remove(&next);
        awaited.retain(|(a, _)| *a != next.1);
        order.push(next.1);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_go_by_their_thresholds() {
        assert_eq!(ranks(&[50, 0, 20, 50, 0], &[]), [2, 0, 3, 1, 4]);
        // The first, which has the greatest threshold, before the third and that before the others.
        assert_eq!(ranks(&[50, 10, 40, 30], &[(0, 2), (2, 1)]), [3, 0, 2, 1]);
        assert_eq!(ranks(&[0, 10, 40], &[(0, 1)]), [2, 0, 1]);
        // Since then the threshold became smaller; a loop that has become smaller.
        assert_eq!(ranks(&[50, 60], &[(1, 0)]), [1, 0]);
        assert_eq!(ranks(&[50, 60], &[(0, 1), (7, 0)]), [0, 1]);
    }
}
