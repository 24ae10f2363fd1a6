//! Which waits of a recording are between two units.

use pg_event::{Catalog, Frame, ModuleId, POLLS, StackId, Sysno};
use pg_tracer::units::{BoundaryPath, EventLoop, InterpreterLock, LoopAt, Wait, is_boundary};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Most stacks whose answer is remembered.
const MAX_KNOWN: usize = 1 << 20;

/// An event loop of a program, whichever of its threads turns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Where it is.
    pub at: LoopAt,
    /// Name of its function; may be empty.
    pub name: String,
    /// The waits for its next unit.
    pub boundary: Vec<BoundaryPath>,
    /// That they are is not proven: see [`Bounds::new`].
    pub likely: bool,
}

/// The loops of a recording, and which waits are between their units.
pub struct Bounds<'a> {
    catalog: &'a Catalog,
    loops: Vec<Loop>,
    known: HashMap<(StackId, Sysno), Option<usize>>,
    /// By stack: it waits for the interpreter's lock.
    locks: HashMap<StackId, bool>,
    lock: InterpreterLock,
    /// System calls in which nothing but a wait between units is done.
    calls: HashSet<Sysno>,
}

/// Does it nothing but wait for events of several descriptors, or for a connection? A program makes such a call to get its
/// next piece of work. (A `read` may be of the piece that it works on.)
fn only_waits(call: Sysno) -> bool {
    call.is_any(&POLLS) || call.is_any(&["accept", "accept4"])
}

/// The same, or it hands requests in, at once or for itself.
fn for_events(call: Sysno) -> bool {
    only_waits(call) || call.is_any(&["io_uring_enter"])
}

impl<'a> Bounds<'a> {
    /// Of the event loops that threads were found to turn, and how often they waited with which stack. A loop that
    /// several turn is one. Where no wait was proven to recur once a turn, that of most waits is taken if it is made for
    /// events of several descriptors, or for connections, and half of the loop's waits are it: who polls wants work.
    /// Loops without such a wait are left out.
    pub fn new<'l>(
        catalog: &'a Catalog,
        found: impl IntoIterator<Item = &'l EventLoop>,
        waits: &BTreeMap<(StackId, Sysno, Wait), u64>,
    ) -> Self {
        let mut loops: BTreeMap<LoopAt, Loop> = BTreeMap::new();
        let mut sites: BTreeMap<LoopAt, (HashSet<u64>, u64)> = BTreeMap::new();
        for l in found {
            let of = loops.entry(l.at).or_insert_with(|| Loop {
                at: l.at,
                name: l.name.clone(),
                boundary: Vec::new(),
                likely: false,
            });
            for b in &l.boundary {
                add(&mut of.boundary, b.clone());
            }
            let (calls, all) = sites.entry(l.at).or_default();
            calls.extend(l.sites.iter().map(|s| s.address));
            *all += l.waits;
        }
        for (at, of) in loops.iter_mut().filter(|l| l.1.boundary.is_empty()) {
            let (calls, all) = &sites[at];
            let polled = polled(catalog, *at, calls, waits);
            of.boundary.extend(polled.filter(|b| 2 * b.waits >= *all));
            of.likely = true;
        }
        loops.retain(|_, l| !l.boundary.is_empty());
        let loops: Vec<Loop> = loops.into_values().collect();
        let calls = loops.iter().flat_map(|l| &l.boundary).map(|b| b.syscall);
        let calls = calls.filter(|c| only_waits(*c)).collect();
        Self {
            catalog,
            loops,
            known: HashMap::new(),
            locks: HashMap::new(),
            lock: InterpreterLock::default(),
            calls,
        }
    }

    /// Whether a loop may turn without a trace: its wait for the next unit may return at once, or not be called as long as
    /// there is work, and a recording has that call only where `calls` are recorded, and nothing but a wait is made by it.
    pub fn turns_unseen(&self, of: usize, calls: bool) -> bool {
        let blocks = |s: Sysno| s.is_any(&["pause", "rt_sigsuspend"]);
        let mut waits = self.loops[of].boundary.iter().map(|b| b.syscall);
        waits.any(|s| !(blocks(s) || calls && only_waits(s)))
    }

    /// Where threads wait for the next request of a connection, in turns of a loop that takes those.
    pub fn add_request(&mut self, of: usize, path: BoundaryPath) {
        let all = &mut self.loops[of].boundary;
        match all.iter_mut().find(|known| known.is_like(&path)) {
            Some(known) => known.waits += path.waits,
            None => all.push(path),
        }
        self.known.clear();
    }

    /// The loops.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The loop whose next unit a thread with this stack waits for, in this system call: the outermost, since a loop in
    /// a function that many call (to wait, and repeat that) is on the stacks of those that turn their own around it. What
    /// one that takes connections knows for the next request of one, another may turn around.
    pub fn of_wait(&mut self, stack: StackId, syscall: Sysno) -> Option<usize> {
        if let Some(known) = self.known.get(&(stack, syscall)) {
            return *known;
        }
        let frames = frames(self.catalog, stack);
        let depth = |l: &Loop| {
            let (path, depth) = is_boundary(&frames, syscall, &l.boundary)?;
            Some((depth, l.boundary[path].request.is_some()))
        };
        let all = self.loops.iter().enumerate().filter_map(|(of, l)| Some((depth(l)?, Reverse(of))));
        let found = all.max().map(|(_, Reverse(of))| of);
        if self.known.len() < MAX_KNOWN {
            self.known.insert((stack, syscall), found);
        }
        found
    }

    /// Whether a thread with this stack is about to wait for a loop's next unit, or has just done so.
    pub fn waits(&mut self, stack: StackId, of: usize) -> bool {
        let calls: Vec<Sysno> = self.loops[of].boundary.iter().map(|b| b.syscall).collect();
        calls.into_iter().any(|c| self.of_wait(stack, c) == Some(of))
    }

    /// Whether a wait may be for a loop's next unit, though it is not known from where it was made: its stack was not
    /// taken, or was cut off.
    pub fn may_wait(&self, stack: StackId, syscall: Sysno) -> bool {
        let known = self.catalog.stack(stack).is_some_and(|s| !s.truncated);
        !known && self.loops.iter().flat_map(|l| &l.boundary).any(|b| b.syscall == syscall)
    }

    /// Whether a thread with this stack waits for the interpreter's lock, which says nothing of where it was.
    pub fn waits_for_interpreter(&mut self, stack: StackId) -> bool {
        if let Some(known) = self.locks.get(&stack) {
            return *known;
        }
        let waits = self.lock.waits(self.catalog, stack);
        if self.locks.len() < MAX_KNOWN {
            self.locks.insert(stack, waits);
        }
        waits
    }

    /// Whether nothing is done in this system call but to wait for a next unit.
    pub fn only_waits(&self, syscall: Sysno) -> bool {
        self.calls.contains(&syscall)
    }
}

/// Module and place of each frame as [`BoundaryPath`] has them, the innermost first.
pub(super) fn frames(catalog: &Catalog, stack: StackId) -> Vec<(ModuleId, u64)> {
    let behind = |(depth, f): (usize, &Frame)| {
        (f.module, if depth == 0 { f.address.saturating_sub(1) } else { f.address })
    };
    catalog.frames_of(stack).enumerate().map(behind).collect()
}

/// Adds a path, or its waits to those of the same one.
fn add(all: &mut Vec<BoundaryPath>, path: BoundaryPath) {
    match all.iter_mut().find(|k| k.syscall == path.syscall && k.own().eq(path.own())) {
        Some(known) => known.waits += path.waits,
        None => all.push(path),
    }
}

/// The commonest wait for events below these calls of a loop's function.
fn polled(
    catalog: &Catalog,
    at: LoopAt,
    calls: &HashSet<u64>,
    waits: &BTreeMap<(StackId, Sysno, Wait), u64>,
) -> Option<BoundaryPath> {
    let mut all = Vec::new();
    for (&(stack, syscall, wait), &count) in waits.iter().filter(|w| for_events(w.0.1)) {
        let mut frames = frames(catalog, stack);
        let of_loop = |f: &(ModuleId, u64)| f.0 == at.module && calls.contains(&f.1);
        if let Some(outermost) = frames.iter().rposition(of_loop) {
            frames.truncate(outermost + 1);
            frames.reverse();
            add(&mut all, BoundaryPath { frames, syscall, wait, waits: count, request: None });
        }
    }
    // Of equals always the same one.
    all.into_iter().max_by(|a, b| a.waits.cmp(&b.waits).then_with(|| b.frames.cmp(&a.frames)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{FrameId, Stack};
    use pg_tracer::units::Site;

    const POLL: Sysno = Sysno(7);
    const READ: Sysno = Sysno(0);
    const AT: LoopAt = LoopAt { module: ModuleId(0), head: 90, function: 80 };

    /// Stacks by the addresses of their frames, the outermost first; below 1000 they are in module 0.
    fn catalog(stacks: &[&[u64]]) -> Catalog {
        let mut catalog = Catalog::default();
        for stack in stacks {
            let first = catalog.frames.len() as u32;
            let frame = |&address: &u64| Frame {
                module: ModuleId((address >= 1000).into()),
                address,
                ..Frame::default()
            };
            catalog.frames.extend(stack.iter().rev().map(frame));
            let frames = (first..catalog.frames.len() as u32).map(FrameId).collect();
            catalog.stacks.push(Stack { frames, ..Stack::default() });
        }
        catalog
    }

    fn unproven(waits: u64) -> EventLoop {
        EventLoop {
            at: AT,
            name: "serve".into(),
            turns: 9,
            waits,
            all: waits,
            sites: vec![Site { address: 100, input: waits, signal: 0 }],
            nested: Vec::new(),
            still: Vec::new(),
            boundary: Vec::new(),
        }
    }

    #[test]
    fn the_commonest_wait_for_events_is_likely_the_boundary() {
        // Polls by 110; asks somebody by 120, below the same call of the loop; one that is in no loop.
        let catalog = catalog(&[&[50, 100, 110, 1007], &[50, 100, 120, 1007], &[50, 60, 1007]]);
        let wait = |stack, call, n| ((StackId(stack), call, Wait::Input), n);
        let waits =
            BTreeMap::from([wait(0, POLL, 60), wait(1, POLL, 40), wait(0, READ, 9), wait(2, POLL, 500)]);
        let mut bounds = Bounds::new(&catalog, &[unproven(109)], &waits);
        let l = &bounds.loops()[0];
        assert!(l.likely);
        assert_eq!(
            l.boundary.iter().map(|b| (b.own().collect(), b.waits)).collect::<Vec<_>>(),
            [(vec![100, 110], 60)]
        );
        let of: Vec<_> = (0..3).map(|s| bounds.of_wait(StackId(s), POLL)).collect();
        assert_eq!((of, bounds.of_wait(StackId(0), READ)), (vec![Some(0), None, None], None));
        assert!(bounds.only_waits(POLL) && !bounds.only_waits(READ));
        assert!(bounds.waits(StackId(0), 0) && !bounds.waits(StackId(1), 0));
        // A poll that returned at once is there where all calls are; a read may have been of anything; a pause blocks.
        assert!(bounds.turns_unseen(0, false) && !bounds.turns_unseen(0, true));
        bounds.loops[0].boundary[0].syscall = READ;
        assert!(bounds.turns_unseen(0, true));
        bounds.loops[0].boundary[0].syscall = pg_event::syscall_number("pause").unwrap();
        assert!(!bounds.turns_unseen(0, false));
        // Not where it is the lesser part of the loop's waits, or no wait for several.
        assert!(Bounds::new(&catalog, &[unproven(121)], &waits).loops().is_empty());
        let reads = BTreeMap::from([wait(0, READ, 60)]);
        assert!(Bounds::new(&catalog, &[unproven(60)], &reads).loops().is_empty());
    }

    #[test]
    fn a_wait_is_the_outermost_loops() {
        // A session waits by 110 below its loop's 100; of another thread only the loop at 110 itself was found.
        let catalog = catalog(&[&[50, 100, 110, 1007], &[50, 60, 110, 1007]]);
        let path = |frames: &[u64]| BoundaryPath {
            frames: frames.iter().map(|&f| (ModuleId(0), f)).chain([(ModuleId(1), 1007)]).collect(),
            syscall: POLL,
            wait: Wait::Input,
            waits: 3,
            request: None,
        };
        let repeats = |head| EventLoop {
            at: LoopAt { head, function: head, ..AT },
            boundary: vec![path(&[110])],
            ..unproven(9)
        };
        let session = EventLoop { boundary: vec![path(&[100, 110])], ..unproven(9) };
        // Whichever comes first in the program's file.
        for head in [AT.head - 50, AT.head + 50] {
            let mut bounds = Bounds::new(&catalog, &[session.clone(), repeats(head)], &BTreeMap::new());
            let mut of = |stack| bounds.of_wait(StackId(stack), POLL).map(|l| bounds.loops()[l].at.head);
            assert_eq!((of(0), of(1)), (Some(AT.head), Some(head)));
        }
    }

    #[test]
    fn threads_that_turn_a_loop_share_its_boundaries() {
        let catalog = catalog(&[&[50, 100, 110, 1007]]);
        let path = |frames: &[u64], waits| BoundaryPath {
            frames: frames.iter().map(|&f| (ModuleId(0), f)).collect(),
            syscall: POLL,
            wait: Wait::Input,
            waits,
            request: None,
        };
        let mut proven = unproven(60);
        proven.boundary = vec![path(&[100, 110], 3), path(&[100, 130], 2)];
        let mut again = unproven(60);
        again.boundary = vec![path(&[100, 110], 4)];
        let bounds = Bounds::new(&catalog, &[unproven(60), proven, again], &BTreeMap::new());
        let l = &bounds.loops()[0];
        assert_eq!((bounds.loops().len(), l.likely), (1, false));
        assert_eq!(l.boundary.iter().map(|b| b.waits).collect::<Vec<_>>(), [7, 2]);
    }
}
