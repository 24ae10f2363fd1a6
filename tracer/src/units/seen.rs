//! What is remembered of the stacks of threads, one after the other.

use super::event_loop::{EventLoop, event_loops};
use super::interpreter::InterpreterLock;
use super::place::Places;
use super::turning::Found;
use super::waits::Wait;
use pg_event::{Catalog, FrameId, Kind, Ns, StackId, Sysno, ThreadId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Most different stacks that are remembered of a thread.
const MAX_STACKS: usize = 1 << 18;
/// Most different steps from stack to stack that are remembered of a thread.
const MAX_STEPS: usize = 1 << 20;
/// Most steps whose order is remembered, of all threads.
const MAX_ORDER: usize = 1 << 22;

/// Most waits that are remembered until they have ended.
const MAX_OPEN: usize = 1 << 20;

/// A wait for an event, and the system call it was in.
pub type Waited = (Wait, Sysno);

/// A thread had one stack, then another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Step {
    /// `None` when the stack before it says nothing about it.
    pub from: Option<StackId>,
    pub to: StackId,
    /// With `to` a wait began.
    pub wait: Option<Waited>,
}

/// What was seen of one thread.
#[derive(Clone, Default)]
pub(super) struct ThreadSeen {
    /// The latest stack, by its outermost frame, of those that are whole.
    last: HashMap<FrameId, StackId>,
    /// The latest of all.
    latest: Option<StackId>,
    known: HashMap<Step, u32>,
    /// Different steps, with how often each was made.
    pub steps: Vec<(Step, u64)>,
    /// Numbers of steps as they were made.
    pub order: Vec<u32>,
    /// How often each was seen.
    pub stacks: HashMap<StackId, u64>,
    pub waits: BTreeMap<(StackId, Waited), u64>,
    /// By waits: the stacks that they were given instead of, and how often those were seen.
    pub given: BTreeMap<(StackId, Waited), Vec<(StackId, u64)>>,
    /// Stacks with which it blocked for no event (for a time, for a disk).
    pub blocked: BTreeSet<StackId>,
    /// Of these, the ones that were given another, with that.
    pub given_blocked: Vec<(StackId, StackId)>,
}

impl ThreadSeen {
    /// The same with other stacks.
    pub fn map_stacks(&self, of: impl Fn(StackId) -> StackId) -> Self {
        let mut new = Self { order: self.order.clone(), ..Self::default() };
        let step =
            |&(Step { from, to, wait }, n): &(Step, u64)| (Step { from: from.map(&of), to: of(to), wait }, n);
        new.steps = self.steps.iter().map(step).collect();
        for (&stack, n) in &self.stacks {
            *new.stacks.entry(of(stack)).or_default() += n;
        }
        for (&(stack, wait), &n) in &self.waits {
            *new.waits.entry((of(stack), wait)).or_default() += n;
            if of(stack) != stack {
                new.given.entry((of(stack), wait)).or_default().push((stack, n));
            }
        }
        new.blocked = self.blocked.iter().map(|s| of(*s)).collect();
        new.given_blocked =
            self.blocked.iter().map(|s| (*s, of(*s))).filter(|(before, after)| before != after).collect();
        new
    }

    /// Returns whether its order was remembered.
    fn step(&mut self, step: Step, ordered: bool) -> bool {
        if self.steps.len() >= MAX_STEPS && !self.known.contains_key(&step) {
            return false;
        }
        let number = *self.known.entry(step).or_insert(self.steps.len() as u32);
        match self.steps.get_mut(number as usize) {
            Some(known) => known.1 += 1,
            None => self.steps.push((step, 1)),
        }
        self.order.extend(ordered.then_some(number));
        ordered
    }
}

/// The stacks of threads, one after the other.
#[derive(Default)]
pub struct Seen {
    pub(super) threads: BTreeMap<ThreadId, ThreadSeen>,
    pub(super) waited: BTreeSet<StackId>,
    ordered: usize,
    /// Waits that had not ended when they were told.
    open: HashSet<(ThreadId, Ns)>,
    lock: InterpreterLock,
}

impl Seen {
    /// An event of a recording, in its order; those that carry no user stack are left out. Returns the wait that it
    /// tells of, if it is one for an event and was not told before.
    pub fn event(&mut self, catalog: &Catalog, thread: ThreadId, kind: &Kind) -> Option<Waited> {
        match kind {
            Kind::OffCpu(w) if !w.begun_before => {
                // A wait that had not ended is told again when it has.
                let wait = (thread, w.start);
                let told = if w.open { self.open.contains(&wait) } else { self.open.remove(&wait) };
                if told {
                    return None;
                }
                if w.open && self.open.len() < MAX_OPEN {
                    self.open.insert(wait);
                }
                if self.lock.waits(catalog, w.user_stack) {
                    return None;
                }
                let wait = Wait::of(w, catalog).map(|wait| (wait, w.syscall));
                self.stack(catalog, thread, w.user_stack, wait);
                if wait.is_none()
                    && w.blocked()
                    && w.syscall.is_some()
                    && let Some(seen) = self.threads.get_mut(&thread)
                    && seen.stacks.contains_key(&w.user_stack)
                {
                    seen.blocked.insert(w.user_stack);
                }
                wait
            }
            Kind::Sample(s) => {
                self.stack(catalog, thread, s.user_stack, None);
                None
            }
            _ => None,
        }
    }

    /// A thread had this stack: when it began to wait (then `wait` is what for), or was interrupted or sampled. Each
    /// thread's are told in order of time.
    pub fn stack(&mut self, catalog: &Catalog, thread: ThreadId, stack: StackId, wait: Option<Waited>) {
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
        let from =
            if whole(stack) && latest.is_none_or(whole) { seen.last.insert(root, stack) } else { latest };
        let ordered = seen.step(Step { from, to: stack, wait }, self.ordered < MAX_ORDER);
        self.ordered += usize::from(ordered);
    }

    /// How many waits for input or a signal, with a stack, were seen of a thread.
    pub fn waits(&self, thread: ThreadId) -> u64 {
        self.threads.get(&thread).map_or(0, |t| t.waits.values().sum())
    }

    /// The event loops of each thread that has one, most waits first.
    pub fn event_loops(&self, catalog: &Catalog, places: &mut Places) -> BTreeMap<ThreadId, Vec<EventLoop>> {
        event_loops(self, catalog, places).0
    }

    /// The same, and which steps from stack to stack prove that they turned.
    pub fn event_loops_turning(&self, catalog: &Catalog, places: &mut Places) -> Found {
        event_loops(self, catalog, places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{Frame, OffCpu, OffState, Stack, syscall_number};

    #[test]
    fn a_wait_is_told_once() {
        let stack = Stack { frames: vec![FrameId(0)], ..Stack::default() };
        let catalog = Catalog { stacks: vec![stack], frames: vec![Frame::default()], ..Catalog::default() };
        let thread = ThreadId(0);
        let wait = |start, open, begun_before| {
            let syscall = syscall_number("epoll_wait").unwrap();
            let off = OffCpu::new(start, start + 1, OffState::Interruptible);
            Kind::OffCpu(OffCpu { open, begun_before, syscall, user_stack: StackId(0), ..off })
        };
        let mut seen = Seen::default();
        let mut tell = |kind| seen.event(&catalog, thread, &kind).is_some();
        assert!(tell(wait(1, false, false)));
        // It goes on, and still, and has ended.
        assert!(tell(wait(3, true, false)) && !tell(wait(3, true, false)) && !tell(wait(3, false, false)));
        assert!(tell(wait(5, false, false)));
        // Nobody saw what came before it.
        assert!(!tell(wait(7, false, true)));
        assert_eq!(seen.waits(thread), 3);
    }
}
