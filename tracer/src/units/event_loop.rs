//! The event-processing loop of a thread (PerfGuard, sections 3 and 4.1), from stacks alone.
//!
//! The paper counts the turns of every loop by instrumenting it. Here two stacks of a thread, one after the other, prove
//! a turn: from the outermost frame inwards they go through the same calls, then differ. If the function in which they
//! differ leads from the first place to the second, nothing is proven. If it does so only by the head of a loop, that
//! loop turned. If it does not, the function was left and called again, and the same is asked of its caller, which was at
//! the same call twice. So loops that are on the stack and do not turn are told from event loops: those around a `fork`
//! whose child never returns from it, or a library's loop that is left each time.
//!
//! What is proven is the innermost loop that explains what was seen, of those that the thread works in: one that only
//! repeats an interrupted call explains nothing. The event loop of a wait is the outermost of the proven loops around it
//! ("the top level event processing loops", section 4.1); a thread may have several, one after the other or, with stacks
//! of their own that begin at different functions, at a time.

use super::function::Way;
use super::place::{LoopAt, Place, Places};
use super::waits::Wait;
use pg_event::{Catalog, Frame, FrameId, ModuleId, StackId, ThreadId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Least turns and waits of an event loop: what happened once does not recur.
const LEAST: u64 = 2;
/// A thread works in a loop when one in this many of the times it did not just wait it was there.
const WORKS: u64 = 20;
/// Most different stacks that are remembered of a thread.
const MAX_STACKS: usize = 1 << 18;
/// Most different steps from stack to stack that are remembered of a thread.
const MAX_STEPS: usize = 1 << 20;

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
    /// Turns that stacks prove, at least.
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
}

/// What was seen of one thread.
#[derive(Default)]
struct Seen1 {
    /// The latest stack, by its outermost frame, of those that are whole.
    last: HashMap<FrameId, StackId>,
    /// The latest of all.
    latest: Option<StackId>,
    steps: HashMap<(StackId, StackId), u64>,
    /// How often each was seen.
    stacks: HashMap<StackId, u64>,
    waits: BTreeMap<(StackId, Wait), u64>,
}

/// The stacks of threads, one after the other.
#[derive(Default)]
pub struct Seen {
    threads: BTreeMap<ThreadId, Seen1>,
    waited: BTreeSet<StackId>,
}

impl Seen {
    /// A thread had this stack: when it began to wait (then `wait` is what for), or was interrupted or sampled. Each
    /// thread's are told in order of time.
    pub fn stack(&mut self, catalog: &Catalog, thread: ThreadId, stack: StackId, wait: Option<Wait>) {
        let Some(row) = catalog.stacks.get(stack.index()).filter(|s| !s.kernel) else {
            return;
        };
        let Some(&root) = row.frames.last() else { return };
        let seen = self.threads.entry(thread).or_default();
        if seen.stacks.len() >= MAX_STACKS && !seen.stacks.contains_key(&stack) {
            return;
        }
        *seen.stacks.entry(stack).or_default() += 1;
        if let Some(wait) = wait {
            *seen.waits.entry((stack, wait)).or_default() += 1;
            self.waited.insert(stack);
        }
        let whole = |s: StackId| catalog.stacks.get(s.index()).is_some_and(|s| !s.truncated);
        let latest = seen.latest.replace(stack);
        let before =
            if whole(stack) && latest.is_none_or(whole) { seen.last.insert(root, stack) } else { latest };
        if let Some(before) = before
            && (seen.steps.len() < MAX_STEPS || seen.steps.contains_key(&(before, stack)))
        {
            *seen.steps.entry((before, stack)).or_default() += 1;
        }
    }

    /// How many waits for input or a signal, with a stack, were seen of a thread.
    pub fn waits(&self, thread: ThreadId) -> u64 {
        self.threads.get(&thread).map_or(0, |t| t.waits.values().sum())
    }

    /// The event loops of each thread that has one, most waits first.
    pub fn event_loops(&self, catalog: &Catalog, places: &mut Places) -> BTreeMap<ThreadId, Vec<EventLoop>> {
        let mut eyes = Eyes { catalog, places, waited: &self.waited };
        let all = self.threads.iter().map(|(&t, seen)| (t, eyes.thread(seen)));
        all.filter(|(_, loops)| !loops.is_empty()).collect()
    }
}

/// A frame, its module and where it is in that.
type At = (FrameId, ModuleId, u64);

/// What a thread was seen doing in a loop.
#[derive(Default)]
struct Tally {
    seen: u64,
    /// How often each way to a wait: the calls from the loop's function on.
    ways: HashMap<Vec<(ModuleId, u64)>, u64>,
}

/// Looks at stacks.
struct Eyes<'a> {
    catalog: &'a Catalog,
    places: &'a mut Places,
    waited: &'a BTreeSet<StackId>,
}

impl Eyes<'_> {
    /// Frames of a stack with where they are in their functions, the outermost first.
    fn frames(&self, stack: StackId) -> Vec<At> {
        let catalog = self.catalog;
        let ids = catalog.stacks.get(stack.index()).map(|s| s.frames.as_slice()).unwrap_or_default();
        let at = |(depth, &id): (usize, &FrameId)| {
            let Frame { module, address, .. } = catalog.frames.get(id.index())?;
            // A system call has been executed already when its caller waits: the address is the one behind it.
            let behind = depth == 0 && self.waited.contains(&stack);
            Some((id, *module, if behind { address.saturating_sub(1) } else { *address }))
        };
        let mut frames: Vec<_> = ids.iter().enumerate().filter_map(at).collect();
        frames.reverse();
        frames
    }

    fn cut(&self, stack: StackId) -> bool {
        self.catalog.stacks.get(stack.index()).is_some_and(|s| s.truncated)
    }

    /// Where in a stack the outermost call of another is: the same call, or one in the same function, if there is only one.
    fn meet(&mut self, of: &[At], all: &[At]) -> Option<usize> {
        let first = of.first()?;
        let only = |found: Vec<usize>| (found.len() == 1).then(|| found[0]);
        let same = (0..all.len()).filter(|&i| (all[i].1, all[i].2) == (first.1, first.2)).collect();
        only(same).or_else(|| {
            let place = self.places.of(self.catalog, first.0);
            let within =
                |&i: &usize| all[i].1 == first.1 && self.places.of(self.catalog, all[i].0).same(&place);
            only((0..all.len()).filter(within).collect())
        })
    }

    /// The frames of two stacks from the outermost function on that both have. The callers of one that is cut off are
    /// taken to be those of the other.
    fn side_by_side(&mut self, from: StackId, to: StackId) -> Option<(Vec<At>, Vec<At>)> {
        let (mut a, mut b) = (self.frames(from), self.frames(to));
        let cut = (self.cut(from), self.cut(to));
        if let Some(skip) = cut.0.then(|| self.meet(&a, &b)).flatten() {
            b.drain(..skip);
        } else if let Some(skip) = cut.1.then(|| self.meet(&b, &a)).flatten() {
            a.drain(..skip);
        } else if cut.0 || cut.1 || a.first().map(|f| (f.1, f.2)) != b.first().map(|f| (f.1, f.2)) {
            return None;
        }
        Some((a, b))
    }

    /// The innermost loop that explains a step from stack to stack, of those that the thread works in.
    fn turned(&mut self, from: StackId, to: StackId, works: &BTreeSet<LoopAt>) -> Option<LoopAt> {
        let (a, b) = self.side_by_side(from, to)?;
        let same = a.iter().zip(&b).take_while(|(a, b)| a.2 == b.2 && a.1 == b.1).count();
        if let (Some(a), Some(b)) = (a.get(same), b.get(same)) {
            let (here, there) = (self.places.of(self.catalog, a.0), self.places.of(self.catalog, b.0));
            let unknown = matches!(here, Place::Unknown) || matches!(there, Place::Unknown);
            match here.way(a.2, b.2) {
                _ if unknown => return None,
                // Another function was called, by the same call.
                _ if a.1 != b.1 || !here.same(&there) => {}
                Way::Around(id) => {
                    // That one, or one that both places are in, too.
                    let both = here.around(a.2).into_iter().skip_while(|&l| l != id);
                    let found = both.map(|l| here.at(a.1, l)).find(|l| works.contains(l));
                    if found.is_some() {
                        return found;
                    }
                }
                Way::Not => {}
                Way::On | Way::Unknown => return None,
            }
        } else if a.len() != b.len() {
            // One stack is the other's beginning: a call was begun or has ended.
            return None;
        }
        for &(id, module, address) in a[..same].iter().rev() {
            let place = self.places.of(self.catalog, id);
            match place.way(address, address) {
                Way::Around(_) => {
                    let all = place.around(address).into_iter().map(|l| place.at(module, l));
                    if let Some(found) = all.into_iter().find(|l| works.contains(l)) {
                        return Some(found);
                    }
                }
                Way::Not => {}
                Way::On | Way::Unknown => return None,
            }
        }
        None
    }

    /// The loops that the thread works in: it was seen there in other ways than the one in which it waits most. A loop
    /// that only repeats a call that was interrupted, or woke up for nothing, is none. Of a thread that was seen doing
    /// nothing but wait, every loop.
    fn works(&mut self, seen: &Seen1, around: &HashMap<StackId, Vec<(usize, LoopAt)>>) -> BTreeSet<LoopAt> {
        let waits =
            |stack: &StackId| seen.waits.range((*stack, Wait::Input)..=(*stack, Wait::Signal)).count() > 0;
        let mut tally: HashMap<LoopAt, Tally> = HashMap::new();
        let most = seen.waits.iter().max_by_key(|w| w.1).map(|(&(stack, _), _)| stack);
        let base = most.map(|m| self.frames(m)).unwrap_or_default();
        let mut all = 0;
        for (stack, &count) in &seen.stacks {
            let frames: Vec<_> = self.frames(*stack).iter().map(|f| (f.1, f.2)).collect();
            // Of a stack cut off too far to tell, nobody knows whether it is in the loop.
            let told = !self.cut(*stack) || self.meet(&self.frames(*stack), &base).is_some();
            all += if told && Some(*stack) != most { count } else { 0 };
            for (depth, at) in around.get(stack).into_iter().flatten() {
                let tally = tally.entry(*at).or_default();
                tally.seen += count;
                if waits(stack) {
                    *tally.ways.entry(frames[*depth..].to_vec()).or_default() += count;
                }
            }
        }
        let least = all.div_ceil(WORKS);
        let works = |(at, tally): (LoopAt, Tally)| {
            let most = tally.ways.values().max().copied().unwrap_or(0);
            (tally.seen - most >= least).then_some(at)
        };
        tally.into_iter().filter_map(works).collect()
    }

    /// The loops around each frame of each stack, outer ones first, with the frame's number.
    fn around(&mut self, seen: &Seen1) -> HashMap<StackId, Vec<(usize, LoopAt)>> {
        let mut all = HashMap::new();
        for &stack in seen.stacks.keys() {
            let mut loops = Vec::new();
            for (depth, (id, module, address)) in self.frames(stack).into_iter().enumerate() {
                let place = self.places.of(self.catalog, id);
                loops.extend(place.around(address).into_iter().rev().map(|l| (depth, place.at(module, l))));
            }
            all.insert(stack, loops);
        }
        all
    }

    fn thread(&mut self, seen: &Seen1) -> Vec<EventLoop> {
        if seen.waits.is_empty() {
            return Vec::new();
        }
        let around = self.around(seen);
        let works = self.works(seen, &around);
        let mut turns: HashMap<LoopAt, u64> = HashMap::new();
        for (&(from, to), count) in &seen.steps {
            if let Some(found) = self.turned(from, to, &works) {
                *turns.entry(found).or_default() += count;
            }
        }
        turns.retain(|_, n| *n >= LEAST);
        let all = seen.waits.values().sum();
        let mut found: BTreeMap<LoopAt, Found> = BTreeMap::new();
        for (&(stack, wait), &count) in &seen.waits {
            let mut still = BTreeSet::new();
            let mut outermost: Option<LoopAt> = None;
            let frames = self.frames(stack);
            for &(depth, here) in around.get(&stack).into_iter().flatten() {
                let (id, _, address) = frames[depth];
                let turned = turns.contains_key(&here);
                if let Some(outer) = outermost {
                    if turned && here != outer {
                        found.entry(outer).or_default().nested.insert(here);
                    }
                } else if turned {
                    outermost = Some(here);
                    let f = found.entry(here).or_default();
                    f.frame = Some(id);
                    f.still.append(&mut still);
                    let site = f.sites.entry(address).or_default();
                    *(if wait == Wait::Input { &mut site.0 } else { &mut site.1 }) += count;
                } else {
                    still.insert(here);
                }
            }
        }
        let mut loops: Vec<EventLoop> =
            found.into_iter().map(|(at, f)| f.into_loop(self.catalog, at, turns[&at], all)).collect();
        loops.retain(|l| l.waits >= LEAST);
        loops.sort_by_key(|l| (std::cmp::Reverse(l.waits), l.at));
        loops
    }
}

/// A loop that is being put together.
#[derive(Default)]
struct Found {
    frame: Option<FrameId>,
    /// By address: waits for input, for signals.
    sites: BTreeMap<u64, (u64, u64)>,
    nested: BTreeSet<LoopAt>,
    still: BTreeSet<LoopAt>,
}

impl Found {
    fn into_loop(self, catalog: &Catalog, at: LoopAt, turns: u64, all: u64) -> EventLoop {
        let frame = self.frame.and_then(|f| catalog.frames.get(f.index()));
        let site = |(address, (input, signal))| Site { address, input, signal };
        let mut sites: Vec<Site> = self.sites.into_iter().map(site).collect();
        sites.sort_by_key(|s| (std::cmp::Reverse(s.input + s.signal), s.address));
        EventLoop {
            at,
            name: frame.map(|f| f.function.clone()).unwrap_or_default(),
            turns,
            waits: sites.iter().map(|s| s.input + s.signal).sum(),
            all,
            sites,
            nested: self.nested.into_iter().collect(),
            still: self.still.into_iter().collect(),
        }
    }
}
