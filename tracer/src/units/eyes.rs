//! What two stacks of a thread, one after the other, prove.
//!
//! From the outermost frame inwards they go through the same calls, then differ. If the function in which they differ
//! leads from the first place to the second, nothing is proven. If it does so only by the head of a loop, that loop
//! turned. If it does not, the function was left and called again, and the same is asked of its caller, which was at the
//! same call twice.

use super::place::{LoopAt, Place, Places};
use super::seen::{ThreadSeen, Waited};
use super::waits::Wait;
use crate::flow::LoopId;
use crate::flow::Way;
use pg_event::{Catalog, Frame, FrameId, ModuleId, ModuleKind, StackId, Sysno};
use std::collections::{BTreeSet, HashMap};

/// A thread works in a loop when one in this many of the times it did not just wait it was there.
const WORKS: u64 = 20;

/// Before all other waits with a stack.
const FIRST: Waited = (Wait::Input, Sysno(0));

/// A frame, its module and where it is in that.
pub(super) type At = (FrameId, ModuleId, u64);

/// What a thread was seen doing in a loop.
#[derive(Default)]
struct Tally {
    seen: u64,
    /// How often each way, and whether to a wait: the calls from the loop's function to those of the C library.
    ways: HashMap<Vec<(ModuleId, u64)>, (u64, bool)>,
}

/// What a thread was seen doing.
pub(super) struct Work {
    /// By loop: how often it was seen there in other ways than the one in which it waits there most, and whether it waits
    /// there at all.
    loops: HashMap<LoopAt, (u64, bool)>,
    /// How often it was seen elsewhere than in its commonest wait.
    all: u64,
}

impl Work {
    /// It was seen doing something else than wait.
    pub fn is_busy(&self) -> bool {
        self.all > 0
    }

    /// The loops that the thread works in: it was seen there in other ways than the one in which it waits most. A loop
    /// that only repeats a call that was interrupted, or woke up for nothing, is none. Of a thread that was seen doing
    /// nothing but wait, every loop.
    ///
    /// Of one that was hardly seen at work, chance would decide. A loop in which all threads together only wait is not
    /// its own either, if there is another around each such wait. `waits`: the loops around each, outer ones first.
    pub fn works<'a>(
        &self,
        together: &Together,
        waits: impl Iterator<Item = &'a [(usize, LoopAt)]>,
    ) -> BTreeSet<LoopAt> {
        let least = self.all.div_ceil(WORKS);
        let mut works: BTreeSet<LoopAt> =
            self.loops.iter().filter(|l| l.1.0 >= least).map(|l| *l.0).collect();
        if self.all >= WORKS {
            return works;
        }
        let repeats: BTreeSet<LoopAt> =
            works.iter().copied().filter(|&at| together.only_repeats(at)).collect();
        let mut outermost = BTreeSet::new();
        for around in waits {
            let other = around.iter().position(|l| works.contains(&l.1) && !repeats.contains(&l.1));
            outermost.extend(around[..other.unwrap_or(around.len())].iter().map(|l| l.1));
        }
        works.retain(|at| !repeats.contains(at) || outermost.contains(at));
        works
    }
}

/// What all threads were seen doing in the loops that they wait in: a function that many call to wait may repeat that in a
/// loop, and who does little else cannot tell.
#[derive(Default)]
pub(super) struct Together(HashMap<LoopAt, (u64, u64)>);

impl Together {
    pub fn add(&mut self, work: &Work) {
        for (&at, &(others, _)) in work.loops.iter().filter(|l| l.1.1) {
            let of = self.0.entry(at).or_default();
            *of = (of.0 + others, of.1 + work.all);
        }
    }

    /// Enough was seen of who waits in it, and hardly anything in it but the wait.
    fn only_repeats(&self, at: LoopAt) -> bool {
        self.0.get(&at).is_some_and(|&(others, all)| all >= WORKS && others < all.div_ceil(WORKS))
    }
}

/// What a loop that may have turned says of a step.
enum Explained {
    By(LoopAt),
    /// Nothing: it only repeats a call. The callers are asked.
    Further,
    Unknown,
}

/// The innermost of a function's loops that the thread works in. A cycle with several entries that it does not work in
/// proves nothing, nor that the callers' loops turned.
fn explains(place: &Place, module: ModuleId, loops: Vec<LoopId>, works: &BTreeSet<LoopAt>) -> Explained {
    match loops.iter().map(|&l| place.at(module, l)).find(|l| works.contains(l)) {
        Some(at) => Explained::By(at),
        None if loops.iter().all(|&l| place.is_merged(l)) => Explained::Unknown,
        None => Explained::Further,
    }
}

/// Looks at stacks.
pub(super) struct Eyes<'a> {
    pub catalog: &'a Catalog,
    places: &'a mut Places,
    waited: &'a BTreeSet<StackId>,
}

impl<'a> Eyes<'a> {
    /// `waited`: the stacks of waits.
    pub fn new(catalog: &'a Catalog, places: &'a mut Places, waited: &'a BTreeSet<StackId>) -> Self {
        Self { catalog, places, waited }
    }

    /// Frames of a stack with where they are in their functions, the outermost first.
    pub fn frames(&self, stack: StackId) -> Vec<At> {
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

    /// Of the first frames of a stack: the interpreter's own functions that functions of Python called. Like those of the C
    /// library they repeat what was interrupted (PEP 475). Told by the number of the first of them and their module.
    fn own_of_interpreter(&self, frames: &[At]) -> Option<(usize, ModuleId)> {
        let kind = |m: ModuleId| self.catalog.modules.get(m.index()).map(|m| m.kind);
        let python = |f: &At| kind(f.1) == Some(ModuleKind::Python);
        let last = frames.iter().rposition(python)?;
        let interpreter = frames[..last].iter().rev().find(|f| !python(f))?;
        Some((last + 1, interpreter.1))
    }

    /// The innermost loop that explains a step from stack to stack, of those that the thread works in.
    pub fn turned(&mut self, from: StackId, to: StackId, works: &BTreeSet<LoopAt>) -> Option<LoopAt> {
        let (a, b) = self.side_by_side(from, to)?;
        let same = a.iter().zip(&b).take_while(|(a, b)| a.2 == b.2 && a.1 == b.1).count();
        let own = self.own_of_interpreter(&a[..same]);
        let is_own = |depth: usize, f: &At| own.is_some_and(|(first, m)| depth >= first && f.1 == m);
        if let (Some(a), Some(b)) = (a.get(same), b.get(same)) {
            let (here, there) = (self.places.of(self.catalog, a.0), self.places.of(self.catalog, b.0));
            let unknown = matches!(here, Place::Unknown) || matches!(there, Place::Unknown);
            match here.way(a.2, b.2) {
                _ if unknown => return None,
                // Another function was called, by the same call.
                _ if a.1 != b.1 || !here.same(&there) => {}
                Way::Around(id) => {
                    // That one, or one that both places are in, too.
                    let both = here.around(a.2).into_iter().skip_while(|&l| l != id).collect();
                    match explains(&here, a.1, both, works) {
                        Explained::Further => {}
                        Explained::By(at) => return Some(at),
                        Explained::Unknown => return None,
                    }
                }
                Way::Not => {}
                Way::On | Way::Unknown => return None,
            }
        } else if a.len() != b.len() {
            // One stack is the other's beginning: a call was begun or has ended.
            return None;
        }
        let callers = a[..same].iter().enumerate().rev().filter(|(depth, f)| !is_own(*depth, f));
        for (_, &(id, module, address)) in callers {
            let place = self.places.of(self.catalog, id);
            match place.way(address, address) {
                Way::Around(_) => match explains(&place, module, place.around(address), works) {
                    Explained::Further => {}
                    Explained::By(at) => return Some(at),
                    Explained::Unknown => return None,
                },
                Way::Not => {}
                Way::On | Way::Unknown => return None,
            }
        }
        None
    }

    /// The calls of a stack to those of the C library, which repeats what was interrupted.
    fn calls(&mut self, frames: &[At]) -> Vec<(ModuleId, u64)> {
        let mut library = |f: &At| matches!(self.places.of(self.catalog, f.0), Place::Library);
        let inner = frames.iter().rev().take_while(|&f| library(f)).count();
        frames[..frames.len() - inner].iter().map(|f| (f.1, f.2)).collect()
    }

    /// What a thread was seen doing in the loops around its stacks.
    pub fn work(&mut self, seen: &ThreadSeen, around: &HashMap<StackId, Vec<(usize, LoopAt)>>) -> Work {
        let waits =
            |stack: &StackId| seen.waits.range((*stack, FIRST)..).next().is_some_and(|w| w.0.0 == *stack);
        let mut tally: HashMap<LoopAt, Tally> = HashMap::new();
        let most = seen.waits.iter().max_by_key(|w| w.1).map(|(&(stack, _), _)| stack);
        let base = most.map(|m| self.frames(m)).unwrap_or_default();
        let waiting = self.calls(&base);
        let base_cut = most.is_some_and(|m| self.cut(m));
        let mut all = 0;
        for (stack, &count) in &seen.stacks {
            let frames = self.frames(*stack);
            let calls = self.calls(&frames);
            let cut = self.cut(*stack);
            // Of a stack cut off too far to tell, nobody knows whether it is in the loop.
            let told = !cut || self.meet(&frames, &base).is_some();
            let waits_so = calls == waiting
                || (cut && waiting.ends_with(&calls))
                || (base_cut && calls.ends_with(&waiting));
            all += if told && !waits_so { count } else { 0 };
            for (depth, at) in around.get(stack).into_iter().flatten() {
                let tally = tally.entry(*at).or_default();
                tally.seen += count;
                let way = tally.ways.entry(calls[*depth..].to_vec()).or_default();
                *way = (way.0 + count, way.1 || waits(stack));
            }
        }
        let others = |(at, tally): (LoopAt, Tally)| {
            let most = tally.ways.values().filter(|w| w.1).map(|w| w.0).max();
            (at, (tally.seen - most.unwrap_or(0), most.is_some()))
        };
        Work { loops: tally.into_iter().map(others).collect(), all }
    }

    /// The loops around each frame of each stack, outer ones first, with the frame's number.
    pub fn around(&mut self, seen: &ThreadSeen) -> HashMap<StackId, Vec<(usize, LoopAt)>> {
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
}
