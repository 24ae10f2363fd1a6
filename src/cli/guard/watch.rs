//! The thread that has the guards: they must be asked often, whatever else is done.

use super::unsettled::Unsettled;
use crate::guard::{Guarding, Moments, Over, Shown, Watched, Withdrawn};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pg_event::{CatalogDelta, Ns, SeenBy, UnitTypeId};
use pg_tracer::Error;
use pg_tracer::guards::{
    Counts, Ended as UnitEnded, Guards, Look, Sight, Told, Unknown, Violation, Withdrawn as TakenBack,
};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks at the guards' counts.
const COUNT: Duration = Duration::from_secs(1);
/// Longest sleep.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest time that names are waited for.
const NAMES: Duration = Duration::from_secs(30);

/// What it tells.
pub enum Out {
    /// A unit takes too long; its type in a recording. Comes at once.
    Violation(Box<Violation>, UnitTypeId),
    /// The same with names, once they are known, and that it is one.
    Shown(Box<Shown>),
    /// Where one is that was told; its type in a recording.
    Look(Box<Look>, UnitTypeId),
    /// One that was told is none; its type in a recording. Comes at once.
    TakenBack(TakenBack, UnitTypeId),
    /// The same with names.
    Withdrawn(Withdrawn),
    /// A unit ended; its type in a recording, and whether it was told as slow, not for want of a CPU.
    Unit(UnitEnded, UnitTypeId, bool),
    /// One that was told while it ran.
    Over(Over),
    /// Something to be said.
    Note(String),
}

/// Counts by loop and type, and what was seen of units.
type Counted = (Vec<Vec<Counts>>, Sight);

/// What there is when guarding ends.
pub struct Ended {
    /// The loops.
    pub loops: Vec<Watched>,
    /// The last counts.
    pub counts: Vec<Vec<Counts>>,
    /// What was seen of units.
    pub sight: Sight,
    /// For how long meanwhile the host of this machine had CPUs that it wanted, ns.
    pub stolen: Ns,
    /// Sentences about what was not guarded.
    pub notes: Vec<String>,
    /// What was told since it was asked last.
    pub told: Vec<Out>,
}

/// What it is told.
enum In {
    Add(u32),
    Limit(Arc<Vec<Watched>>),
    Stop,
}

/// The thread. The guards are gone when it is dropped.
pub struct Watch {
    orders: Sender<In>,
    told: Receiver<Out>,
    loops: Arc<Vec<Watched>>,
    counts: Arc<Mutex<Counted>>,
    /// What the host had taken when it began.
    stolen: Option<Ns>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Watch {
    /// Starts guarding.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn start(mut guarding: Guarding, pids: &[u32]) -> Result<Self, Error> {
        let loops = Arc::new(std::mem::take(&mut guarding.loops));
        let counts = Arc::new(Mutex::new(Counted::default()));
        let ((orders, taken), (tell, told)) = (unbounded(), unbounded());
        let (ready, started) = bounded(1);
        let (pids, shared, counted) = (pids.to_vec(), Arc::clone(&loops), Arc::clone(&counts));
        let thread = Builder::new()
            .name("pg-guards".into())
            .spawn(move || match guarding.start(&pids) {
                Ok(guards) => {
                    // What is guarded comes first: slow units are seen in the kernel, telling them can wait a little.
                    pg_tracer::lower_priority();
                    let _ = ready.send(Ok(()));
                    run(guards, shared, &taken, &tell, &counted)
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                    Vec::new()
                }
            })
            .map_err(|e| Error::Failed(format!("cannot start a thread: {e}")))?;
        started.recv().unwrap_or_else(|_| Err(Error::Failed("the guards' thread ended".into())))?;
        Ok(Self { orders, told, loops, counts, stolen: pg_tracer::stolen(), thread: Some(thread) })
    }

    /// What it told within this time; returns with the first.
    pub fn receive(&self, most: Duration) -> Vec<Out> {
        let first = self.told.recv_timeout(most);
        first.into_iter().chain(self.told.try_iter()).collect()
    }

    /// One more process.
    pub fn add(&self, pid: u32) {
        let _ = self.orders.send(In::Add(pid));
    }

    /// The same loops, with other limits.
    pub fn limit(&mut self, loops: Vec<Watched>) {
        self.loops = Arc::new(loops);
        let _ = self.orders.send(In::Limit(Arc::clone(&self.loops)));
    }

    /// The loops.
    pub fn loops(&self) -> &[Watched] {
        &self.loops
    }

    /// They, for another thread.
    pub fn shared(&self) -> Arc<Vec<Watched>> {
        Arc::clone(&self.loops)
    }

    /// Rows for the types, for a recording: they are numbered from 0 on, loop after loop; then for units of no known type.
    pub fn rows(&self) -> CatalogDelta {
        let rows = self.loops.iter().flat_map(|l| &l.types).cloned();
        let unknown = self.loops.iter().flat_map(|l| Unknown::ALL.map(|why| l.unknown(why)));
        let unit_types = (0..).map(UnitTypeId).zip(rows.chain(unknown)).collect();
        CatalogDelta { unit_types, ..CatalogDelta::default() }
    }

    /// The latest counts by loop and type, and what was seen of units.
    pub fn counts(&self) -> Counted {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It ended by itself.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends guarding.
    pub fn stop(mut self) -> Ended {
        let notes = self.join();
        let (counts, sight) = self.counts();
        let loops = Arc::unwrap_or_clone(std::mem::take(&mut self.loops));
        // What was told last: names of its stack may have taken a while.
        let told = self.told.try_iter().collect();
        let stolen =
            self.stolen.zip(pg_tracer::stolen()).map_or(0, |(before, now)| now.saturating_sub(before));
        Ended { loops, counts, sight, stolen, notes, told }
    }

    fn join(&mut self) -> Vec<String> {
        let _ = self.orders.send(In::Stop);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.join();
    }
}

/// What is to be told when the names of functions are known: that may take seconds, in which threads come that are to be
/// guarded, and units end.
#[derive(Default)]
struct Nameless(VecDeque<Waiting>);

enum Waiting {
    /// With how many names were looked for by then, and since when it waits.
    Shown(Box<Shown>, Box<Violation>, Moments, u64, Instant),
    Over(Box<Shown>, Ns, Moments, u64, Instant),
    Withdrawn(Withdrawn, Option<Box<Violation>>, u64, Instant),
}

impl Waiting {
    /// How many names it needs, and since when.
    fn needs(&self) -> (u64, Instant) {
        let (Self::Shown(.., wanted, since)
        | Self::Over(.., wanted, since)
        | Self::Withdrawn(.., wanted, since)) = self;
        (*wanted, *since)
    }
}

/// A unit that was told.
struct Before {
    number: u32,
    /// As it was told last.
    shown: Box<Shown>,
    /// Its type in a recording.
    unit_type: UnitTypeId,
    /// It was told as slow, not for want of a CPU.
    slow: bool,
    moments: Moments,
}

impl Nameless {
    /// Tell those whose names are known, in their order; all of them at the end.
    fn tell(&mut self, guards: &mut Guards, tell: &Sender<Out>, end: bool) {
        if self.0.is_empty() {
            return;
        }
        if end {
            guards.symbolize();
        }
        let (known, _) = guards.name_some();
        while let Some(first) = self.0.pop_front() {
            let (wanted, since) = first.needs();
            if !end && known < wanted && since.elapsed() < NAMES {
                self.0.push_front(first);
                return;
            }
            let out = match first {
                Waiting::Shown(mut shown, v, moments, ..) => {
                    shown.name(&v, guards.catalog());
                    shown.info.mostly = moments.path(guards.catalog()).as_ref().map(Into::into);
                    Out::Shown(shown)
                }
                Waiting::Withdrawn(mut w, v, ..) => {
                    if let Some(v) = v {
                        w.shown.name(&v, guards.catalog());
                    }
                    Out::Withdrawn(w)
                }
                Waiting::Over(shown, took, moments, ..) => {
                    let mostly = moments.path(guards.catalog()).as_ref().map(Into::into);
                    Out::Over(Over { shown, took, halted: moments.halted(), mostly })
                }
            };
            let _ = tell.send(out);
        }
    }
}

fn run(
    mut guards: Guards,
    mut loops: Arc<Vec<Watched>>,
    orders: &Receiver<In>,
    tell: &Sender<Out>,
    counts: &Mutex<Counted>,
) -> Vec<String> {
    let began = guards.began();
    let mut number = 0;
    // By thread, the unit of it that was told last.
    let mut before: HashMap<u32, Before> = HashMap::new();
    let mut nameless = Nameless::default();
    let mut unsettled: Unsettled<Waiting> = Unsettled::default();
    let mut counted = Instant::now();
    let many = loops.len();
    // Of each loop and type, how many were settled.
    let mut settled: Vec<Vec<u64>> = vec![Vec::new(); many];
    let mut count = |guards: &Guards, end: bool| {
        let mut all: Vec<Vec<Counts>> = (0..many).map(|l| guards.counts(l)).collect();
        for (counts, settled) in all.iter_mut().zip(&mut settled).filter(|_| !end) {
            settle(counts, settled);
        }
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = (all, guards.sight());
    };
    loop {
        for told in guards.poll(PAUSE) {
            let v = match told {
                Told::Violation(v) => v,
                Told::Look(v) => {
                    if let Some(of) = before.get_mut(&v.tid).filter(|of| of.number == v.number) {
                        of.moments.add(v.user_stack, v.distance, (v.elapsed, v.halted), v.seen);
                        if v.seen.is_fair() {
                            let _ = tell.send(Out::Look(v, of.unit_type));
                        }
                    }
                    continue;
                }
                Told::Withdrawn(w) => {
                    let unit_type = type_id(&loops, w.of_loop, w.of);
                    let last = before.remove(&w.tid).filter(|of| of.number == w.number);
                    let seen = unsettled.take((w.tid, w.number)).into_iter().next();
                    let told = seen.is_none();
                    let (shown, v) = match seen {
                        Some(Waiting::Shown(shown, v, ..)) => (Some(shown), Some(v)),
                        _ => (last.map(|of| of.shown), None),
                    };
                    if let Some((shown, watched)) = shown.zip(loops.get(w.of_loop)) {
                        let (names, now) = (guards.name_some().1, Instant::now());
                        let of = Withdrawn::of(shown, &w, watched, told);
                        nameless.0.push_back(Waiting::Withdrawn(of, v, names, now));
                    }
                    let _ = tell.send(Out::TakenBack(w, unit_type));
                    continue;
                }
                Told::Ended(e) => {
                    nameless.0.extend(unsettled.take((e.tid, e.number)));
                    let of = before.remove(&e.tid).filter(|of| e.violated && of.number == e.number);
                    let slow = of.as_ref().is_some_and(|of| of.slow);
                    if let Some(of) = of.filter(|of| of.shown.info.duration_ns.is_none()) {
                        let (names, now) = (guards.name_some().1, Instant::now());
                        nameless.0.push_back(Waiting::Over(of.shown, e.elapsed, of.moments, names, now));
                    }
                    let _ = tell.send(Out::Unit(e, type_id(&loops, e.of_loop, e.of), slow));
                    continue;
                }
                _ => continue,
            };
            let Some(watched) = loops.get(v.of_loop) else { continue };
            number += 1;
            let of = v
                .unknown
                .map_or_else(|| type_id(&loops, v.of_loop, v.of), |why| unknown_id(&loops, v.of_loop, why));
            let mut shown = Box::new(Shown::of(&v, number, watched, began));
            let last = before.remove(&v.tid).filter(|of| of.number == v.number);
            (shown.goes_on, shown.slow_before) = (last.is_some(), last.as_ref().is_some_and(|of| of.slow));
            let mut moments = last.map(|of| of.moments).unwrap_or_default();
            moments.add(v.user_stack, v.distance, (v.elapsed, v.halted), v.seen);
            let (names, now) = (guards.name_some().1, Instant::now());
            let told = Waiting::Shown(shown.clone(), v.clone(), moments.clone(), names, now);
            if v.seen == SeenBy::End || v.elapsed > v.settles {
                nameless.0.extend(unsettled.take((v.tid, v.number)));
                nameless.0.push_back(told);
            } else {
                let until = now + Duration::from_nanos(v.settles - v.elapsed);
                unsettled.add((v.tid, v.number), until, told);
            }
            let slow = shown.slow_before || !shown.starved;
            before.insert(v.tid, Before { number: v.number, shown, unit_type: of, slow, moments });
            if tell.send(Out::Violation(v, of)).is_err() {
                return guards.notes();
            }
        }
        nameless.0.extend(unsettled.due(Instant::now()));
        nameless.tell(&mut guards, tell, false);
        for order in orders.try_iter() {
            match order {
                In::Add(pid) => {
                    if let Err(e) = guards.add(pid) {
                        let _ = tell.send(Out::Note(e.to_string()));
                    }
                }
                In::Limit(new) => {
                    for (i, l) in new.iter().enumerate() {
                        guards.limit(i, &l.limits.0, l.limits.1);
                    }
                    loops = new;
                }
                In::Stop => {
                    // They take too long, as far as is known.
                    nameless.0.extend(unsettled.rest());
                    nameless.tell(&mut guards, tell, true);
                    count(&guards, true);
                    return guards.notes();
                }
            }
        }
        if counted.elapsed() >= COUNT {
            counted = Instant::now();
            count(&guards, false);
        }
    }
}

/// Leaves out of counts what may not hold, and never says fewer than it did before.
fn settle(counts: &mut [Counts], before: &mut Vec<u64>) {
    before.resize(counts.len(), 0);
    for (c, before) in counts.iter_mut().zip(before) {
        c.violations = c.violations.saturating_sub(c.unsettled).max(*before);
        *before = c.violations;
    }
}

/// The number of units of no known type in a recording.
fn unknown_id(loops: &[Watched], of_loop: usize, why: Unknown) -> UnitTypeId {
    let types: usize = loops.iter().map(|l| l.types.len()).sum();
    let which = Unknown::ALL.iter().position(|x| *x == why).unwrap_or(0);
    UnitTypeId((types + of_loop * Unknown::ALL.len() + which) as u32)
}

/// The number of a type in a recording.
fn type_id(loops: &[Watched], of_loop: usize, of: Option<usize>) -> UnitTypeId {
    let before: usize = loops.iter().take(of_loop).map(|l| l.types.len()).sum();
    of.map_or(UnitTypeId::NONE, |t| UnitTypeId((before + t) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_holds() {
        let of = |violations, unsettled| vec![Counts { violations, unsettled, ..Counts::default() }];
        let mut before = Vec::new();
        let mut said = |violations, unsettled| {
            let mut counts = of(violations, unsettled);
            settle(&mut counts, &mut before);
            counts[0].violations
        };
        // One more that may not hold, and does not; one that holds; one that was told and does not hold.
        assert_eq!([said(1, 0), said(2, 1), said(1, 0), said(2, 0), said(1, 0)], [1, 1, 1, 2, 2]);
    }
}
