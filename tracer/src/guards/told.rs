//! What the guards tell.

use super::records;
use crate::stacks::PythonCalls;
use pg_event::{FrameId, Ns, SeenBy, StackId};

/// Why the type of a unit is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// The loop has none.
    NoTypes,
    /// No function is probed that tells them from each other.
    Nothing,
    /// It began while no probes were set ([`super::Plan::budget`]).
    Dark,
    /// It had come by none of those that are probed, and others rest ([`super::Plan::share`]).
    Resting,
    /// It had come by none of them.
    Passed,
}

impl Unknown {
    /// All of them, in this order.
    pub const ALL: [Self; 5] = [Self::NoTypes, Self::Nothing, Self::Dark, Self::Resting, Self::Passed];
}

/// A unit that takes longer than its type may.
#[derive(Clone, PartialEq, Debug)]
pub struct Violation {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Which loop, an index in the plan.
    pub of_loop: usize,
    /// The type it is taken for, an index in the loop's thresholds; `None` when it came by no context of any.
    pub of: Option<usize>,
    /// Why that is not known; `None` when it is.
    pub unknown: Option<Unknown>,
    /// Which unit of the thread.
    pub number: u32,
    /// When it was seen, `CLOCK_MONOTONIC`, ns.
    pub time: Ns,
    /// When the unit began.
    pub start: Ns,
    /// How long it had run, ns, less what the guards took.
    pub elapsed: Ns,
    /// What it exceeds, ns.
    pub threshold: Ns,
    /// Until it has taken so long, ns, or ended, it may turn out to be of another type and be [`Withdrawn`]; 0: it cannot.
    pub settles: Ns,
    /// Of `elapsed`, how long its thread was off the CPU, ns.
    pub away: Ns,
    /// Of that, how long it was ready to run and had none, ns.
    pub ready: Ns,
    /// How long it had a CPU that the host of this machine, a guest, had given to others, ns; 0 where nobody counts that.
    pub stolen: Ns,
    /// Of `away`, how long it was stopped by a signal or a tracer, ns.
    pub halted: Ns,
    /// It is now.
    pub halts: bool,
    /// What saw it.
    pub seen: SeenBy,
    /// Stack of the thread at that moment, or in which it slept, in [`super::Guards::catalog`]; none when the unit had ended.
    /// Of a loop of Python with the functions of Python, where these could be read.
    pub user_stack: StackId,
    /// In the kernel.
    pub kernel_stack: StackId,
    /// The same stacks as addresses in the process and in the kernel, the leaf first.
    pub user: Box<[u64]>,
    /// See [`Self::user`].
    pub kernel: Vec<u64>,
    /// How many frames of the user stack lie inside the loop's.
    pub distance: Option<usize>,
    /// How many of [`Self::user`] do: the user stack may have functions of Python in place of the interpreter's calls.
    pub depth: Option<usize>,
    /// These functions, and that of the loop, for who makes that stack of [`Self::user`].
    pub python: Option<(PythonCalls, String)>,
}

impl Violation {
    /// With a CPU whenever it was ready, it had taken no longer than it may: others' load, not its own.
    pub fn is_starved(&self) -> bool {
        self.elapsed.saturating_sub(self.ready).saturating_sub(self.stolen) <= self.threshold
    }
}

/// A unit that was told takes no longer than it may: it has turned out to be of another type. It may take too long for that
/// one later, and is told then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Withdrawn {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Which loop.
    pub of_loop: usize,
    /// Which unit of the thread.
    pub number: u32,
    /// When that was seen, `CLOCK_MONOTONIC`, ns.
    pub time: Ns,
    /// When the unit began.
    pub start: Ns,
    /// How long it had run, ns, less what the guards took.
    pub elapsed: Ns,
    /// The type that it is taken for since then.
    pub of: Option<usize>,
    /// How long such a unit may take, ns; 0: as long as it likes.
    pub threshold: Ns,
}

/// Where a unit is that was told and goes on: there it spent the time since then, or since the last look.
#[derive(Clone, PartialEq, Debug)]
pub struct Look {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Which unit of the thread.
    pub number: u32,
    /// When it was seen, `CLOCK_MONOTONIC`, ns.
    pub time: Ns,
    /// When the unit began.
    pub start: Ns,
    /// See [`Violation::elapsed`].
    pub elapsed: Ns,
    /// See [`Violation::halted`].
    pub halted: Ns,
    /// What saw it.
    pub seen: SeenBy,
    /// Of the thread at that moment, or in which it slept until then: see [`Violation::user_stack`].
    pub user_stack: StackId,
    /// See [`Violation::distance`].
    pub distance: Option<usize>,
    /// See [`Violation::user`].
    pub user: Box<[u64]>,
    /// See [`Violation::depth`].
    pub depth: Option<usize>,
    /// See [`Violation::python`].
    pub python: Option<(PythonCalls, String)>,
}

/// A unit that ended, as it is told while learning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnitTold {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Which loop.
    pub of_loop: usize,
    /// When it began, `CLOCK_MONOTONIC`, ns.
    pub start: Ns,
    /// When it ended, ns.
    pub end: Ns,
    /// Of that time, what the guards took, ns.
    pub spent: Ns,
    /// Of that time, how long the thread had no CPU, asleep or ready, ns.
    pub away: Ns,
    /// Of `away`, how long it was ready to run, ns; 0 where the kernel does not count that.
    pub ready: Ns,
    /// Functions (indices in the plan) that it came by first in this order, how deep, in bytes below the loop's frame,
    /// and how often.
    pub contexts: Vec<(usize, u32, u32)>,
    /// How often it came by others, for which there was no room.
    pub more: u32,
}

impl From<records::Ended> for UnitTold {
    fn from(u: records::Ended) -> Self {
        Self {
            tid: u.head.tid,
            pid: u.head.tgid,
            of_loop: u.head.of_loop as usize,
            start: u.start,
            end: u.head.time,
            spent: u.spent,
            away: u.away,
            ready: u.ready.min(u.away),
            contexts: u.contexts.into_iter().map(|(f, d, n)| (f as usize, d, n)).collect(),
            more: u.more,
        }
    }
}

/// What the guards tell.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// The units of a thread are told from each other from now on.
    Guarded {
        /// The thread.
        tid: u32,
        /// Its process.
        pid: u32,
        /// Which loop it turns.
        of_loop: usize,
    },
    /// A unit ended (only while learning).
    Unit(UnitTold),
    /// A function was called in a unit (only if [`super::Plan::stacks`] asks for that).
    Call {
        /// The thread.
        tid: u32,
        /// The function, an index in the plan.
        function: usize,
        /// How deep, in bytes below the loop's frame.
        depth: u32,
        /// Frames of its stack, its own first, up to the loop's; `None` when the loop's frame was not reached.
        path: Option<Vec<FrameId>>,
    },
    /// A unit takes too long.
    Violation(Box<Violation>),
    /// Where one is that was told and goes on.
    Look(Box<Look>),
    /// One that was told takes no longer than it may.
    Withdrawn(Withdrawn),
    /// A unit ended.
    Ended(Ended),
}

/// A unit that ended: one whose violation was told, or, if [`super::Plan::sparse`] asks for that, one that took no longer than
/// it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Which loop.
    pub of_loop: usize,
    /// Which unit of the thread.
    pub number: u32,
    /// Its violation was told, be it [`Withdrawn`] since.
    pub violated: bool,
    /// When it began, `CLOCK_MONOTONIC`, ns.
    pub start: Ns,
    /// When it ended.
    pub end: Ns,
    /// How long it took, ns, less what the guards took.
    pub elapsed: Ns,
    /// The type that it turned out to be.
    pub of: Option<usize>,
}

/// What guards see of units where probes may not be set all the time ([`super::Plan::budget`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// How often probes were set; 0: nothing bounds them.
    pub windows: u64,
    /// CPU time that guarded threads had, ns.
    pub cpu: u64,
    /// Of it, with the probes set.
    pub lit: u64,
    /// In between, times from one wait that blocked to the next, each a unit or several: of which none took longer than any
    /// unit may,
    pub in_time: u64,
    /// and of which one may have.
    pub unsure: u64,
}

impl Sight {
    /// Of the CPU time, how much probes saw: 0 to 1.
    pub fn share(&self) -> f64 {
        if self.windows == 0 || self.cpu == 0 { 1.0 } else { self.lit as f64 / self.cpu as f64 }
    }
}

/// Units of one type so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// That ended.
    pub units: u64,
    /// Their nanoseconds.
    pub sum: u64,
    /// That took too long, as far as is known.
    pub violations: u64,
    /// Of these: with a CPU whenever it was ready, it would have taken no longer than it may.
    pub starved: u64,
    /// That seemed to be of this type and to take too long, and turned out to be of another one: see [`Withdrawn`].
    pub withdrawn: u64,
    /// Of `violations`: those that run and may still turn out to.
    pub unsettled: u64,
}
