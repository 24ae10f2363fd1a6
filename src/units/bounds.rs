//! Which waits of a recording are between two units.

use pg_event::{Catalog, ModuleId, StackId, Sysno};
use pg_tracer::units::{BoundaryPath, EventLoop, LoopAt, is_boundary};
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
}

/// The loops of a recording, and which waits are between their units.
pub struct Bounds<'a> {
    catalog: &'a Catalog,
    loops: Vec<Loop>,
    known: HashMap<(StackId, Sysno), Option<usize>>,
    /// System calls in which nothing but a wait between units is done.
    calls: HashSet<Sysno>,
}

/// Calls that wait for events of several descriptors, or for a connection: a program makes them to get its next piece
/// of work. (A `read` may be of the piece that it works on.)
const PURE: [&str; 9] =
    ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "accept", "accept4"];

impl<'a> Bounds<'a> {
    /// Of the event loops that threads were found to turn. A loop that several turn is one; those that no wait recurs in
    /// once a turn are left out.
    pub fn new<'l>(catalog: &'a Catalog, found: impl IntoIterator<Item = &'l EventLoop>) -> Self {
        let mut loops: BTreeMap<LoopAt, Loop> = BTreeMap::new();
        for l in found.into_iter().filter(|l| !l.boundary.is_empty()) {
            let of = loops.entry(l.at).or_insert_with(|| Loop {
                at: l.at,
                name: l.name.clone(),
                boundary: Vec::new(),
            });
            for b in &l.boundary {
                match of.boundary.iter_mut().find(|k| k.syscall == b.syscall && k.own().eq(b.own())) {
                    Some(known) => known.waits += b.waits,
                    None => of.boundary.push(b.clone()),
                }
            }
        }
        let loops: Vec<Loop> = loops.into_values().collect();
        let calls = loops.iter().flat_map(|l| &l.boundary).map(|b| b.syscall);
        let calls = calls.filter(|c| c.is_any(&PURE)).collect();
        Self { catalog, loops, known: HashMap::new(), calls }
    }

    /// The loops.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The loop whose next unit a thread with this stack waits for, in this system call.
    pub fn of_wait(&mut self, stack: StackId, syscall: Sysno) -> Option<usize> {
        if let Some(known) = self.known.get(&(stack, syscall)) {
            return *known;
        }
        let frames = self.frames(stack);
        let found = self.loops.iter().position(|l| is_boundary(&frames, syscall, &l.boundary).is_some());
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

    /// Whether nothing is done in this system call but to wait for a next unit.
    pub fn only_waits(&self, syscall: Sysno) -> bool {
        self.calls.contains(&syscall)
    }

    /// Module and place of each frame as [`BoundaryPath`] has them, the innermost first.
    fn frames(&self, stack: StackId) -> Vec<(ModuleId, u64)> {
        let behind = |(depth, f): (usize, &pg_event::Frame)| {
            (f.module, if depth == 0 { f.address.saturating_sub(1) } else { f.address })
        };
        self.catalog.frames_of(stack).enumerate().map(behind).collect()
    }
}
