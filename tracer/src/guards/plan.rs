//! What is guarded, and how.

use crate::given::AtCall;
use crate::stacks::Binary;
use pg_event::{Ns, Sysno};
use std::path::PathBuf;

/// A frame of a fresh stack, for [`Judge`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spot {
    /// Build-id of the module, or its file name where it has none.
    pub module: String,
    /// Address as the module's file counts: of the last byte of the call that it made, in the leaf of the instruction
    /// that it waits in or that it just returned from.
    pub address: u64,
    /// Stack pointer of the frame, 0 when it is not known.
    pub sp: u64,
}

/// A fresh stack of a thread that waits, or whose wait call returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stacked {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The system call; `None` when a call that may be the loop's own wait just returned.
    pub syscall: Option<Sysno>,
    /// The leaf first.
    pub frames: Vec<Spot>,
}

/// A wait that is the boundary of a unit, or outside of its loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarded {
    /// Index in [`Plan::loops`].
    pub of: usize,
    /// Which of the frames is the loop's.
    pub frame: usize,
    /// Which made the call that a probe in [`GuardedLoop::turns`] stands behind.
    pub turn: usize,
    /// It is a wait of the loop's function outside of the loop: no unit is under way before the next boundary.
    pub left: bool,
}

/// Is this wait the boundary of a unit of one of the loops?
pub type Judge = Box<dyn FnMut(&Stacked) -> Option<Guarded> + Send>;

/// A loop whose turns are units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GuardedLoop {
    /// How long units of each type may take, ns; 0 is no limit. The types are numbered by their places here.
    pub thresholds: Vec<Ns>,
    /// Types of which the first is meant where a unit has come by as much of both, though its threshold is the greater.
    pub first: Vec<(usize, usize)>,
    /// What units of the types were seen to come by while all of it was probed, where that is known: not every one comes by
    /// all that its type has.
    pub seen: Vec<SeenUnits>,
    /// How long a unit may take that came by no context of any type, ns; 0 is no limit.
    pub unknown: Ns,
    /// Places in files behind calls of the loop's own wait, which may return without having waited.
    pub turns: Vec<(PathBuf, u64)>,
    /// The name of its function when that is one of Python: such functions stand in the stacks of its violations.
    pub python: Option<String>,
    /// Where its units begin and end when a person said so; then no waits are their boundaries.
    pub given: Option<GivenUnit>,
}

/// Units that came by the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeenUnits {
    /// Their type, as in [`GuardedLoop::thresholds`].
    pub of: usize,
    /// How many.
    pub units: u64,
    /// By what of [`Plan::contexts`].
    pub contexts: Vec<usize>,
}

/// Units that begin and end at places.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GivenUnit {
    /// Where they begin.
    pub begins: Vec<GivenProbe>,
    /// Where they end. None: with the call of the function that they begin with.
    pub ends: Vec<GivenProbe>,
}

/// A place where a unit begins or ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GivenProbe {
    /// File of its module, as this process can open it.
    pub file: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// It is the first instruction of a function.
    pub entry: bool,
    /// It is one of a system call: what has to be so there.
    pub call: Option<AtCall>,
    /// Only when the descriptor in the register of first arguments is of this kind (bits 12 to 15 of its inode's mode); 0
    /// for any.
    pub kind: u8,
    /// Where in the file the counter is that says whether somebody listens, 0 for none.
    pub semaphore: u64,
    /// Processes that are not guarded execute the file, too: the probe is set in those that are.
    pub shared: bool,
}

/// A function that tells types from each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardedFunction {
    /// File of its module, as this process can open it.
    pub file: PathBuf,
    /// Where in the file its first instruction is. The probe is set in every process that has the file.
    pub offset: u64,
}

/// What is guarded.
#[derive(Default)]
pub struct Plan {
    /// The loops.
    pub loops: Vec<GuardedLoop>,
    /// The functions.
    pub functions: Vec<GuardedFunction>,
    /// Contexts that tell types: loop, function (indices), depth in bytes below the loop's frame, types.
    pub contexts: Vec<(usize, usize, u32, Vec<usize>)>,
    /// Files of the functions and turns, kept open: they are named by that.
    pub binaries: Vec<Binary>,
    /// What the probes at functions may take of the time that units have a CPU, 0 for no limit: those that are come by most
    /// are taken out.
    pub share: f64,
    /// What all probes may take of the time that guarded threads have a CPU, 0 for no limit: where they cost more, they are set
    /// for a while from time to time. Not while learning, and not where units are given.
    pub budget: f64,
    /// Tell every unit with its contexts, and do not look for violations.
    pub learning: bool,
    /// While learning, tell every call of a function with its stack, too: slow, to compare with what guards know of it.
    pub stacks: bool,
    /// Samples a second on each CPU, to see units that run long without coming by a guard.
    pub hz: u32,
    /// Tell a unit of each loop in so long that took no longer than it may, ns: to compare slow ones with. 0 for none.
    pub sparse: Ns,
    /// At most one violation of a loop in so long is told with its stack, ns; all are counted.
    pub period: Ns,
}
