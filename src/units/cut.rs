//! Cuts the time of threads into units, by the waits between them.
//!
//! A unit begins when a thread gets the CPU back after a wait between two units, and ends when it begins the next of
//! them (the paper's section 3). Waiting within it counts, for a lock or for the CPU alike. What is left out, and
//! counted ([`Left`]):
//! - what a recording begins or ends in, and what a thread does before its first such wait and after its last;
//! - a unit in which something was lost: events (of any thread), the end of a wait, the stack of one that may have been
//!   between two units, or a switch that the kernel did not report. The last is seen by another thread that got the CPU on which this one was said to run. It may have been
//!   the wait between two units: these would be one giant one;
//! - a unit in which the loop turned without waiting, as far as that shows: a sample in the call that waits, between
//!   signs of work. Where system calls were recorded, such turns are units of their own;
//! - a unit that ends in the wait of another loop, or with the thread's program, or that took no time.
//!
//! A thread that serves one client ends when it has: another one than its program's first ends its last unit by that.
//!
//! A worker waits for a signal, and then, when whoever signalled has the mutex still, for that, too, by the same call.
//! Such a wait belongs to the one before, as does one for the mutex just before the wait for the signal.
//!
//! A cutter that knows which steps from stack to stack prove a turn ([`Cutter::at_turns`]) cuts there as well: in the
//! middle between the two, when nothing tells more.

use super::bounds::Bounds;
use pg_event::{
    Catalog, Direction, Event, Kind, Ns, ObjectId, ObjectKind, OffCpu, OffState, StackId, Sysno, ThreadId,
};
use pg_tracer::units::Turning;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Stacks of one unit that are kept, of each kind.
const MAX_STACKS: usize = 4096;
/// Switch-out and switch-in have one time each; reading the clock twice takes less than this.
const SLACK: Ns = 1_000;
/// From the end of a wait for a signal to the wait for its mutex, and from there to a wait for a signal, takes less.
const RETAKEN: Ns = 20_000;
/// What glibc writes into the word of a mutex that others wait for, and then waits with (lowlevellock.h).
const CONTENDED: u32 = 2;
/// FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME are no part of the operation.
const OPERATION: u32 = 127;
/// FUTEX_WAIT: what waits for a mutex; condition variables use FUTEX_WAIT_BITSET.
const FUTEX_WAIT: u32 = 0;

/// Something that a unit did, known without a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Did {
    /// A system call.
    Call(Sysno),
    /// A message, to or from something of this kind.
    Message(bool, ObjectKind),
}

/// A unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Whose.
    pub thread: ThreadId,
    /// Which of the loops.
    pub of: usize,
    /// From when on.
    pub begin: Ns,
    /// Until when.
    pub end: Ns,
    /// Different stacks in which it blocked in a system call: units of one kind do so at the same places.
    pub waits: BTreeSet<StackId>,
    /// Stacks that it was seen with by chance, and how often: when it was sampled, or lost the CPU.
    pub samples: BTreeMap<StackId, u32>,
    /// What it did; nothing where the recording does not have that.
    pub did: BTreeSet<Did>,
}

/// Units that were left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// Begun before the recording, ended after it, or with the thread's program.
    pub edges: u64,
    /// Something was lost within them.
    pub lost: u64,
    /// Several turns, without a wait between them.
    pub turned: u64,
    /// Ended in the wait of another loop.
    pub other: u64,
    /// Took no time: one wait followed the other.
    pub empty: u64,
}

struct Open {
    cut: Cut,
    lost: bool,
    turns: Turns,
    after: After,
    /// The latest stack in it, and until when the thread had it.
    last: Option<(StackId, Ns)>,
}

/// What a unit began after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// A wait for an event.
    Event,
    /// One for a mutex, on the way to or from the wait for an event.
    Mutex,
    /// A turn without a wait.
    Turn,
}

/// Signs of several turns in one unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// Nothing was seen.
    Quiet,
    /// Work was seen.
    Worked,
    /// Then the call that waits.
    Asked,
    /// Then work again.
    Several,
}

#[derive(Default)]
struct Thread {
    unit: Option<Open>,
    /// Begin of a wait that was told before it ended.
    waits_since: Option<Ns>,
    /// Where it runs, and since when another thread does so there.
    cpu: Option<u16>,
    displaced: Option<Ns>,
    /// It was seen between two units before.
    begun: bool,
}

/// Cuts threads into units, event by event.
pub struct Cutter<'a, 'b> {
    bounds: &'b mut Bounds<'a>,
    catalog: &'b Catalog,
    /// When events were lost, in order.
    lost: &'b [Range<Ns>],
    threads: HashMap<ThreadId, Thread>,
    runs: HashMap<u16, ThreadId>,
    left: Left,
    turning: Option<&'b Turning>,
    waited: BTreeSet<(ThreadId, usize)>,
}

impl<'a, 'b> Cutter<'a, 'b> {
    /// `lost`: when events were lost, in order of time.
    pub fn new(bounds: &'b mut Bounds<'a>, lost: &'b [Range<Ns>], catalog: &'b Catalog) -> Self {
        let (threads, runs, left) = (HashMap::new(), HashMap::new(), Left::default());
        let waited = BTreeSet::new();
        Self { bounds, catalog, lost, threads, runs, left, turning: None, waited }
    }

    /// Cuts also where a loop is proven to have turned without a wait.
    pub fn at_turns(self, turning: &'b Turning) -> Self {
        Self { turning: Some(turning), ..self }
    }

    /// An event, in order of time, of any thread of the machine; whether it is of a thread whose units are wanted.
    /// Returns a unit that ended.
    pub fn event(&mut self, e: &Event, wanted: bool) -> Option<Cut> {
        if let Kind::OffCpu(w) = &e.kind
            && !w.open
        {
            self.comes(e, w);
        }
        if !wanted {
            return None;
        }
        match &e.kind {
            Kind::OffCpu(w) => self.wait(e, w),
            Kind::Sample(s) => self.seen(e.thread, s.user_stack, true, e.time..e.time),
            Kind::Syscall(s) if self.bounds.only_waits(s.nr) => self.turn(e.thread, s.start, e.time),
            Kind::Syscall(s) => {
                self.did(e.thread, Did::Call(s.nr));
                None
            }
            Kind::Ipc(m) => {
                let sends = m.direction == Direction::Send;
                self.did(e.thread, Did::Message(sends, self.kind_of(m.object)));
                None
            }
            Kind::Exec => {
                self.forget(e.thread);
                None
            }
            Kind::Exit { .. } => self.exits(e.thread, e.time),
            _ => None,
        }
    }

    /// The recording has ended. Returns how many units were left out.
    pub fn end(mut self) -> Left {
        self.left.edges += self.threads.values().filter(|t| t.unit.is_some()).count() as u64;
        self.left
    }

    /// Who was seen to wait for the next unit of which loop so far: also those that got none.
    pub fn waited(&self) -> impl Iterator<Item = (ThreadId, usize)> + '_ {
        self.waited.iter().copied()
    }

    /// The loop whose unit a thread is in since before this.
    pub fn within(&self, thread: ThreadId, before: Ns) -> Option<usize> {
        let unit = self.threads.get(&thread)?.unit.as_ref()?;
        (unit.cut.begin < before).then_some(unit.cut.of)
    }

    /// A thread got a CPU: who was there before must have left it.
    fn comes(&mut self, e: &Event, w: &OffCpu) {
        if let Some(before) = self.runs.insert(e.cpu, e.thread).filter(|b| *b != e.thread)
            && let Some(t) = self.threads.get_mut(&before)
            && t.cpu == Some(e.cpu)
        {
            t.displaced.get_or_insert(e.time);
        }
        if w.state == OffState::Dead {
            self.forget(e.thread);
            return;
        }
        let t = self.threads.entry(e.thread).or_default();
        if t.displaced.take().is_some_and(|d| d.saturating_add(SLACK) < w.start)
            && let Some(unit) = &mut t.unit
        {
            unit.lost = true;
        }
        t.cpu = Some(e.cpu);
    }

    fn wait(&mut self, e: &Event, w: &OffCpu) -> Option<Cut> {
        let of = if w.blocked() { self.bounds.of_wait(w.user_stack, w.syscall) } else { None };
        let t = self.threads.entry(e.thread).or_default();
        let before = std::mem::replace(&mut t.waits_since, w.open.then_some(w.start));
        let unknown = of.is_none() && w.blocked() && self.bounds.may_wait(w.user_stack, w.syscall);
        if (unknown || before.is_some_and(|since| since != w.start))
            && let Some(unit) = &mut t.unit
        {
            unit.lost = true;
        }
        let Some(of) = of else {
            if before == Some(w.start) {
                // It was told already.
                if let Some(last) = t.unit.as_mut().and_then(|u| u.last.as_mut()) {
                    last.1 = e.time;
                }
                return None;
            }
            return self.seen(e.thread, w.user_stack, !w.blocked() || w.syscall.is_none(), w.start..e.time);
        };
        self.waited.insert((e.thread, of));
        let mutex = w.op & OPERATION == FUTEX_WAIT && w.value == CONTENDED && w.syscall.is_any(&["futex"]);
        let mut ended = t.unit.take();
        if !t.begun {
            // What it did before is no whole unit, and was not taken for one.
            t.begun = true;
            self.left.edges += u64::from(!w.begun_before);
        }
        let mut after = if mutex { After::Mutex } else { After::Event };
        if let Some(u) = &ended
            && u.is_nothing(w.start)
        {
            match (u.after, mutex) {
                // The mutex is retaken: the work has not begun.
                (After::Event, true) => (ended, after) = (None, After::Event),
                // It was taken to look whether there is work, and there was none; or that was seen before.
                (After::Mutex, false) | (After::Turn, _) => ended = None,
                _ => {}
            }
        }
        if !w.open {
            t.unit = Some(Open::new(e.thread, of, e.time, after));
        }
        ended.and_then(|u| self.ends(u, of, w.start))
    }

    /// A wait call returned at `time`, whether it waited or not.
    fn turn(&mut self, thread: ThreadId, start: Ns, time: Ns) -> Option<Cut> {
        let unit = self.threads.get_mut(&thread)?.unit.as_mut()?;
        let of = unit.cut.of;
        if unit.cut.begin >= start {
            // The wait itself was told: the unit begins a moment later, when the call returns.
            unit.cut.begin = unit.cut.begin.max(time);
            return None;
        }
        let ended = std::mem::replace(unit, Open::new(thread, of, time, After::Event));
        self.ends(ended, of, start)
    }

    fn ends(&mut self, mut unit: Open, of: usize, end: Ns) -> Option<Cut> {
        let begin = unit.cut.begin;
        let i = self.lost.partition_point(|l| l.end < begin);
        let lost = unit.lost || self.lost[i..].iter().any(|l| l.start <= end);
        let count = match unit.turns {
            _ if lost => &mut self.left.lost,
            _ if unit.cut.of != of => &mut self.left.other,
            Turns::Several => &mut self.left.turned,
            _ if end <= begin => &mut self.left.empty,
            _ => {
                unit.cut.end = end;
                return Some(unit.cut);
            }
        };
        *count += 1;
        None
    }

    /// A stack of a thread, within a unit or on the way from or to its wait; the thread had it in this time. Returns a
    /// unit that ended by a turn.
    fn seen(&mut self, thread: ThreadId, stack: StackId, by_chance: bool, when: Range<Ns>) -> Option<Cut> {
        let unit = self.threads.get_mut(&thread).and_then(|t| t.unit.as_mut())?;
        if stack.is_none() {
            return None;
        }
        let of = unit.cut.of;
        let asks = self.bounds.waits(stack, of);
        let mut ended = None;
        if let Some(turning) = self.turning.filter(|_| !self.bounds.waits_for_interpreter(stack)) {
            let at = self.bounds.loops()[of].at;
            let turned = match unit.last {
                // It asks for its next piece of work, and may not have to wait for it.
                Some(_) if asks => Some(when.start),
                Some((last, until)) if turning.turned(thread, last, stack, at) => {
                    Some(until + when.start.saturating_sub(until) / 2)
                }
                _ => None,
            };
            if let Some(time) = turned {
                ended = Some(std::mem::replace(unit, Open::new(thread, of, time, After::Turn)));
            }
            if !asks {
                unit.last = Some((stack, when.end));
            }
        } else {
            unit.turns = match (unit.turns, asks) {
                (Turns::Quiet, false) => Turns::Worked,
                (Turns::Worked, true) => Turns::Asked,
                (Turns::Asked, false) => Turns::Several,
                (now, _) => now,
            };
        }
        if !asks {
            let Cut { waits, samples, .. } = &mut unit.cut;
            if by_chance && (samples.len() < MAX_STACKS || samples.contains_key(&stack)) {
                *samples.entry(stack).or_default() += 1;
            } else if !by_chance && waits.len() < MAX_STACKS {
                waits.insert(stack);
            }
        }
        let ended = ended?;
        let time = self.threads.get(&thread)?.unit.as_ref()?.cut.begin;
        self.ends(ended, of, time)
    }

    fn did(&mut self, thread: ThreadId, did: Did) {
        if let Some(unit) = self.threads.get_mut(&thread).and_then(|t| t.unit.as_mut()) {
            unit.cut.did.insert(did);
        }
    }

    /// The thread ends. Where its process does, it may have been woken for nothing else.
    fn exits(&mut self, thread: ThreadId, time: Ns) -> Option<Cut> {
        let first = self.catalog.is_first(thread);
        let own = self.threads.get_mut(&thread).filter(|_| !first);
        let unit = own.and_then(|t| t.unit.take_if(|u| u.cut.did_something()));
        // What is left without a unit to end counts as one that was left out.
        self.forget(thread);
        let unit = unit?;
        let of = unit.cut.of;
        self.ends(unit, of, time)
    }

    fn kind_of(&self, object: ObjectId) -> ObjectKind {
        self.catalog.object(object).map_or(ObjectKind::Unknown, |o| o.kind)
    }

    /// The thread ends, or another program begins in it.
    fn forget(&mut self, thread: ThreadId) {
        if let Some(t) = self.threads.remove(&thread) {
            self.left.edges += u64::from(t.unit.is_some());
        }
    }
}

impl Cut {
    fn did_something(&self) -> bool {
        !self.did.is_empty() || !self.waits.is_empty() || !self.samples.is_empty()
    }
}

impl Open {
    fn new(thread: ThreadId, of: usize, begin: Ns, after: After) -> Self {
        let (waits, samples, did) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let cut = Cut { thread, of, begin, end: begin, waits, samples, did };
        Self { cut, lost: false, turns: Turns::Quiet, after, last: None }
    }

    /// Nothing was seen of it, and it took no longer than a mutex does.
    fn is_nothing(&self, end: Ns) -> bool {
        let quiet = self.cut.waits.is_empty() && self.cut.samples.is_empty() && self.cut.did.is_empty();
        // After a turn that was seen at the call that waits, the next wait may take some time to begin.
        quiet && (self.after == After::Turn || end.saturating_sub(self.cut.begin) <= RETAKEN)
    }
}
