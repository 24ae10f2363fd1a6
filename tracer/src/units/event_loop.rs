//! The event-processing loop of a thread (PerfGuard, sections 3 and 4.1), from stacks alone.
//!
//! The paper counts the turns of every loop by instrumenting it. Here two stacks of a thread, one after the other, prove
//! a turn ([`Eyes::turned`]). So loops that are on the stack and do not turn are told from event loops: those around a
//! `fork` whose child never returns from it, or a library's loop that is left each time.
//!
//! What is proven is the innermost loop that explains what was seen, of those that the thread works in: one that only
//! repeats an interrupted call explains nothing. The event loop of a wait is the outermost of the proven loops around it
//! ("the top level event processing loops", section 4.1); a thread may have several, one after the other or, with stacks
//! of their own that begin at different functions, at a time.

use super::boundary::BoundaryPath;
use super::evidence::{Clock, Evidence, Key};
use super::eyes::{Eyes, Together, Work};
use super::interpreter::{Read, is_python, native_way};
use super::place::{LoopAt, Places};
use super::seen::{Seen, Step, ThreadSeen};
use super::turning::{Found, Turning};
use super::waits::Wait;
use pg_event::{Catalog, FrameId, ModuleId, StackId, ThreadId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Least turns and waits of an event loop: what happened once does not recur.
const LEAST: u64 = 2;
/// One in this many of a thread's waits is in each of its event loops.
const OF_WAITS: u64 = 20;

/// A call in a loop's body that leads to waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Address of the call's last byte, as the module's file counts; a line in a file of Python.
    pub address: u64,
    /// Waits for input below it.
    pub input: u64,
    /// Waits for a signal of another thread below it.
    pub signal: u64,
}

/// An event-processing loop of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventLoop {
    /// Where it is.
    pub at: LoopAt,
    /// Name of its function, as the recording has it; may be empty.
    pub name: String,
    /// Turns that stacks of this thread prove, at least; 0 where it waits at the boundary of a loop that other threads
    /// are proven to turn.
    pub turns: u64,
    /// Waits for input or a signal within it.
    pub waits: u64,
    /// All of the thread that have a stack.
    pub all: u64,
    /// By waits, most first.
    pub sites: Vec<Site>,
    /// Loops inside it that turned around waits, too.
    pub nested: Vec<LoopAt>,
    /// Loops around it that were not seen to turn.
    pub still: Vec<LoopAt>,
    /// The waits for its next unit; several are alternatives, most waits first. Empty when no wait recurs once a turn.
    /// What is one is decided from all threads that have the loop; here are those of this thread. Of a loop of Python
    /// also the way from the interpreter's call inwards, for stacks that were taken without its functions.
    pub boundary: Vec<BoundaryPath>,
}

/// The event loops of each thread that has one, most waits first.
pub(super) fn event_loops(seen: &Seen, catalog: &Catalog, places: &mut Places) -> Found {
    let mut eyes = Eyes::new(catalog, places, &seen.waited);
    let read = Read::of(catalog, seen.threads.iter().map(|(&t, s)| (t, s)));
    let with_waits = seen.threads.iter().filter(|t| !t.1.waits.is_empty());
    let given: Vec<(ThreadId, Cow<ThreadSeen>)> = with_waits
        .map(|(&t, seen)| (t, read.give(catalog, t, seen).map_or(Cow::Borrowed(seen), Cow::Owned)))
        .collect();
    let around: Vec<Around> = given.iter().map(|(_, seen)| eyes.around(seen)).collect();
    let work: Vec<Work> = given.iter().zip(&around).map(|((_, seen), a)| eyes.work(seen, a)).collect();
    let mut together = Together::default();
    for w in &work {
        together.add(w);
    }
    let told = given.iter().zip(around).zip(&work);
    let threads: Vec<(ThreadId, Thread)> =
        told.map(|(((t, seen), a), w)| (*t, eyes.thread(seen, a, w, &together))).collect();
    let mut evidence: HashMap<LoopAt, Evidence> = HashMap::new();
    let mut found: Vec<_> = threads.iter().map(|(_, t)| t.loops(&eyes, &read, &t.turns)).collect();
    for ((_, t), found) in threads.iter().zip(&found) {
        t.tell(catalog, found, &mut evidence);
    }
    let boundaries: HashMap<LoopAt, BTreeSet<&Key>> =
        evidence.iter().map(|(&at, e)| (at, e.boundaries().into_iter().collect())).collect();
    // What a thread that only waits seems to turn says nothing about others.
    let busy = threads.iter().zip(&found).filter(|((_, t), _)| t.busy);
    let shared: BTreeSet<LoopAt> = busy.flat_map(|(_, found)| found.loops.keys().copied()).collect();
    let shared: HashMap<LoopAt, &BTreeSet<&Key>> =
        boundaries.iter().filter(|b| shared.contains(b.0)).map(|(&at, keys)| (at, keys)).collect();
    for ((_, t), found) in threads.iter().zip(&mut found) {
        let known = t.known_from_others(&eyes, found, &shared);
        if !known.is_empty() {
            let turns = known.into_iter().map(|at| (at, 0)).chain(t.turns.iter().map(|(&at, &n)| (at, n)));
            *found = t.loops(&eyes, &read, &turns.collect());
        }
    }
    let mut all = BTreeMap::new();
    for ((thread, _), found) in threads.iter().zip(found) {
        let mut loops: Vec<EventLoop> =
            found.loops.into_iter().map(|(at, f)| f.into_loop(at, catalog, boundaries.get(&at))).collect();
        loops.sort_by_key(|l| (std::cmp::Reverse(l.waits), l.at));
        if !loops.is_empty() {
            all.insert(*thread, loops);
        }
    }
    let mut turning = Turning::default();
    for (thread, t) in threads.iter().filter(|t| all.contains_key(&t.0)) {
        turning.add(*thread, t.seen, &t.proven, |stack| t.around(stack));
    }
    (all, turning)
}

/// The loops around each frame of each stack, outer ones first, with the frame's number.
type Around = HashMap<StackId, Vec<(usize, LoopAt)>>;

/// The loops of a thread's stacks, and what was proven of them.
struct Thread<'a> {
    seen: &'a ThreadSeen,
    around: Around,
    /// By number of a step: the loop that turned.
    proven: Vec<Option<LoopAt>>,
    /// Loops that turned often enough, and how often.
    turns: HashMap<LoopAt, u64>,
    /// It was seen doing something else than wait.
    busy: bool,
}

/// The event loops of a thread, being put together.
#[derive(Default)]
struct Loops {
    loops: BTreeMap<LoopAt, Gathered>,
    /// By stack of a wait: its loop, and the places from its function inwards.
    ways: HashMap<StackId, (LoopAt, Vec<(ModuleId, u64)>)>,
}

impl Eyes<'_> {
    /// What a thread's stacks prove.
    fn thread<'a>(
        &mut self,
        seen: &'a ThreadSeen,
        around: Around,
        work: &Work,
        together: &Together,
    ) -> Thread<'a> {
        let waits = seen.waits.keys().filter_map(|w| around.get(&w.0)).map(Vec::as_slice);
        let works = work.works(together, waits);
        let mut known = HashMap::new();
        let mut turned = |step: &Step| {
            let from = step.from?;
            *known.entry((from, step.to)).or_insert_with(|| self.turned(from, step.to, &works))
        };
        let proven: Vec<Option<LoopAt>> = seen.steps.iter().map(|(step, _)| turned(step)).collect();
        let mut turns: HashMap<LoopAt, u64> = HashMap::new();
        for (at, (_, count)) in proven.iter().zip(&seen.steps) {
            if let Some(at) = *at {
                *turns.entry(at).or_default() += count;
            }
        }
        turns.retain(|_, n| *n >= LEAST);
        Thread { seen, around, proven, turns, busy: work.is_busy() }
    }
}

impl Thread<'_> {
    fn around(&self, stack: StackId) -> &[(usize, LoopAt)] {
        self.around.get(&stack).map(Vec::as_slice).unwrap_or_default()
    }

    /// Each wait's outermost loop of those that turned.
    fn loops(&self, eyes: &Eyes, known: &Read, turns: &HashMap<LoopAt, u64>) -> Loops {
        let mut all = Loops::default();
        for (&(stack, waited), &count) in &self.seen.waits {
            let around = self.around(stack);
            let Some(outermost) = around.iter().position(|(_, at)| turns.contains_key(at)) else { continue };
            let (depth, at) = around[outermost];
            let frames = eyes.frames(stack);
            let f = all.loops.entry(at).or_default();
            f.frame = Some(frames[depth].0);
            f.turns = turns[&at];
            f.all = self.seen.waits.values().sum();
            f.still.extend(around[..outermost].iter().map(|a| a.1));
            let nested = around[outermost + 1..].iter().map(|a| a.1);
            f.nested.extend(nested.filter(|n| *n != at && turns.contains_key(n)));
            let site = f.sites.entry(frames[depth].2).or_default();
            *(if waited.0 == Wait::Input { &mut site.0 } else { &mut site.1 }) += count;
            let way: Vec<_> = frames[depth..].iter().map(|f| (f.1, f.2)).collect();
            let key = Key::new(&way, waited);
            let ways = f.paths.entry(key).or_default();
            let given = self.seen.given.get(&(stack, waited)).map(Vec::as_slice).unwrap_or_default();
            let native = given.iter().filter_map(|&(s, n)| Some((native_way(eyes, s, &way)?, n)));
            let native: Vec<_> = native.collect();
            let read = count - native.iter().map(|n| n.1).sum::<u64>();
            // Guards see no functions of Python: the way is wanted also where all waits were read with these.
            let bare = known.bare(eyes.catalog, stack).iter().filter_map(|&s| native_way(eyes, s, &way));
            // No wait is left with that stack; where this one waits, it does.
            let bare = bare.map(|mut native| {
                native.truncate(native.len() - 1);
                (native.into_iter().chain(way.last().copied()).collect(), 0)
            });
            for (way, n) in native.into_iter().chain(bare).chain([(way.clone(), read)]) {
                *ways.entry(way).or_default() += n;
            }
            all.ways.insert(stack, (at, way));
        }
        all.loops.retain(|_, f| f.waits() >= LEAST && f.waits() * OF_WAITS >= f.all);
        all
    }

    /// Turns and waits of its loops as they came.
    fn tell(&self, catalog: &Catalog, found: &Loops, evidence: &mut HashMap<LoopAt, Evidence>) {
        let mut clocks: HashMap<LoopAt, Clock> = HashMap::new();
        let python = found.loops.keys().any(|at| is_python(catalog, at.module));
        let bare = self.seen.stacks.keys().copied().filter(|&s| python && Read::is_bare(catalog, s));
        let bare: BTreeSet<StackId> = bare.collect();
        for &number in &self.seen.order {
            let step = self.seen.steps[number as usize].0;
            if bare.contains(&step.to) {
                clocks.values_mut().for_each(Clock::doubt);
            }
            if let Some(turned) = self.proven[number as usize] {
                let around = self.around(step.to);
                let here = around.iter().position(|a| a.1 == turned).unwrap_or(around.len());
                for (i, (_, at)) in around.iter().enumerate().filter(|a| found.loops.contains_key(&a.1.1)) {
                    let clock = clocks.entry(*at).or_default();
                    if i >= here {
                        // One within the loop was left, and entered anew.
                        evidence.entry(*at).or_default().turn(clock);
                    } else if here < around.len() {
                        // What an inner loop explains, the outer may have done.
                        clock.doubt();
                    }
                }
            }
            if let (Some(waited), Some((at, way))) = (step.wait, found.ways.get(&step.to))
                && found.loops.contains_key(at)
            {
                let key = Key::new(way, waited);
                evidence.entry(*at).or_default().wait(clocks.entry(*at).or_default(), key);
            }
        }
    }

    /// Loops of other threads at whose boundary this one waits: more often than the loop that it was given there turned.
    fn known_from_others(
        &self,
        eyes: &Eyes,
        found: &Loops,
        boundaries: &HashMap<LoopAt, &BTreeSet<&Key>>,
    ) -> BTreeSet<LoopAt> {
        // By loop: waits at its boundary, and turns of the inner loops that they were given to.
        let mut tally: HashMap<LoopAt, (u64, u64)> = HashMap::new();
        for (&(stack, waited), count) in &self.seen.waits {
            let frames: Vec<(ModuleId, u64)> = eyes.frames(stack).iter().map(|f| (f.1, f.2)).collect();
            let given = found.ways.get(&stack).map(|w| w.0);
            let outer = self.around(stack).iter().take_while(|a| Some(a.1) != given);
            for (depth, at) in outer {
                let key = || Key::new(&frames[*depth..], waited);
                if boundaries.get(at).is_some_and(|keys| keys.contains(&key())) {
                    let tally = tally.entry(*at).or_default();
                    tally.0 += count;
                    tally.1 = tally.1.max(given.and_then(|g| self.turns.get(&g)).copied().unwrap_or(0));
                }
            }
        }
        tally.into_iter().filter(|(_, (waits, turns))| waits >= turns).map(|t| t.0).collect()
    }
}

/// A loop that is being put together.
#[derive(Default)]
struct Gathered {
    frame: Option<FrameId>,
    turns: u64,
    all: u64,
    /// By address: waits for input, for signals.
    sites: BTreeMap<u64, (u64, u64)>,
    nested: BTreeSet<LoopAt>,
    still: BTreeSet<LoopAt>,
    /// How often each way to a wait was taken, by what tells waits apart.
    paths: HashMap<Key, HashMap<Vec<(ModuleId, u64)>, u64>>,
}

impl Gathered {
    fn waits(&self) -> u64 {
        self.sites.values().map(|s| s.0 + s.1).sum()
    }

    /// The ways to each wait that is a boundary: the commonest of those that are compared as one.
    fn boundary(&self, keys: &BTreeSet<&Key>) -> Vec<BoundaryPath> {
        let mut paths: Vec<BoundaryPath> = Vec::new();
        for key in keys {
            let mut ways: Vec<_> = self.paths.get(*key).into_iter().flatten().collect();
            ways.sort_by_key(|w| (std::cmp::Reverse(w.1), w.0));
            for (frames, &waits) in ways {
                let path = BoundaryPath {
                    frames: frames.clone(),
                    syscall: key.syscall,
                    wait: key.wait,
                    waits,
                    request: None,
                };
                match paths.iter_mut().find(|p| p.is_like(&path)) {
                    Some(known) => known.waits += waits,
                    None => paths.push(path),
                }
            }
        }
        paths.sort_by_key(|p| std::cmp::Reverse(p.waits));
        paths
    }

    fn into_loop(self, at: LoopAt, catalog: &Catalog, boundary: Option<&BTreeSet<&Key>>) -> EventLoop {
        let frame = self.frame.and_then(|f| catalog.frames.get(f.index()));
        let site = |(&address, &(input, signal)): (&u64, &(u64, u64))| Site { address, input, signal };
        let mut sites: Vec<Site> = self.sites.iter().map(site).collect();
        sites.sort_by_key(|s| (std::cmp::Reverse(s.input + s.signal), s.address));
        EventLoop {
            at,
            name: frame.map(|f| f.function.clone()).unwrap_or_default(),
            turns: self.turns,
            waits: self.waits(),
            all: self.all,
            sites,
            boundary: boundary.map(|keys| self.boundary(keys)).unwrap_or_default(),
            nested: self.nested.into_iter().collect(),
            still: self.still.into_iter().collect(),
        }
    }
}
