//! The thread that has the guards: they must be asked often, whatever else is done.

use crate::guard::{Guarding, Shown, Watched};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pg_event::{CatalogDelta, UnitTypeId};
use pg_tracer::Error;
use pg_tracer::guards::{Counts, Ended as UnitEnded, Guards, Sight, Told, Violation};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks at the guards' counts.
const COUNT: Duration = Duration::from_secs(1);
/// Longest sleep.
const PAUSE: Duration = Duration::from_millis(10);

/// What it tells.
pub enum Out {
    /// A unit takes too long; its type in a recording, and the same with names.
    Violation(Box<Violation>, UnitTypeId, Box<Shown>),
    /// A unit ended; its type in a recording.
    Unit(UnitEnded, UnitTypeId),
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
        Ok(Self { orders, told, loops, counts, thread: Some(thread) })
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

    /// Rows for the types, for a recording: they are numbered from 0 on, loop after loop.
    pub fn rows(&self) -> CatalogDelta {
        let rows = self.loops.iter().flat_map(|l| &l.types);
        let unit_types = (0..).map(UnitTypeId).zip(rows.cloned()).collect();
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
        Ended { loops, counts, sight, notes, told }
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
    let mut before: HashMap<u32, u32> = HashMap::new();
    let mut counted = Instant::now();
    let many = loops.len();
    let count = |guards: &Guards| {
        let all = (0..many).map(|l| guards.counts(l)).collect();
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = (all, guards.sight());
    };
    loop {
        for told in guards.poll(PAUSE) {
            let v = match told {
                Told::Violation(v) => v,
                Told::Ended(e) => {
                    before.remove(&e.tid);
                    let _ = tell.send(Out::Unit(e, type_id(&loops, e.of_loop, e.of)));
                    continue;
                }
                _ => continue,
            };
            let Some(watched) = loops.get(v.of_loop) else { continue };
            guards.symbolize();
            number += 1;
            let of = type_id(&loops, v.of_loop, v.of);
            let mut shown = Shown::of(&v, number, watched, guards.catalog(), began);
            shown.goes_on = before.insert(v.tid, v.number) == Some(v.number);
            if tell.send(Out::Violation(v, of, Box::new(shown))).is_err() {
                return guards.notes();
            }
        }
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
                    count(&guards);
                    return guards.notes();
                }
            }
        }
        if counted.elapsed() >= COUNT {
            counted = Instant::now();
            count(&guards);
        }
    }
}

/// The number of a type in a recording.
fn type_id(loops: &[Watched], of_loop: usize, of: Option<usize>) -> UnitTypeId {
    let before: usize = loops.iter().take(of_loop).map(|l| l.types.len()).sum();
    of.map_or(UnitTypeId::NONE, |t| UnitTypeId((before + t) as u32))
}
