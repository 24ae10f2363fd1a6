//! What was recorded besides vertices and edges: samples, who held what, signals, marks.

use pg_event::{Ns, ObjectId, Relation, StackId, ThreadId};
/// Wake-ups that made no edge, by reason (Argus, section 4.1: scheduler maintenance is culled).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CullCounts {
    /// By or of a thread that keeps the scheduler going (migration, ksoftirqd, RCU, idle).
    pub maintenance: u64,
    /// From a hard or soft interrupt whose origin is not known: the interrupted thread is no cause.
    pub interrupt: u64,
    /// By the wakee's own time-out or sleep.
    pub timer: u64,
    /// By the recorder itself.
    pub own: u64,
    /// Waits that ended without a recorded waker.
    pub unknown: u64,
    /// Events that named a thread the catalogue does not have.
    pub foreign: u64,
}

/// One on-CPU sample of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplePoint {
    /// When.
    pub time: Ns,
    /// How much time it stands for, ns.
    pub weight: u64,
    /// User stack.
    pub user_stack: StackId,
    /// Kernel stack, when it was in the kernel.
    pub kernel_stack: StackId,
}

/// A fact about who was tied to the object that `subject` waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldFact {
    /// When it was read from the system's state.
    pub time: Ns,
    /// Who waited.
    pub subject: ThreadId,
    /// Who holds it, or has the other end.
    pub holder: ThreadId,
    /// The object as the subject's wait names it.
    pub object: ObjectId,
    /// How the holder is tied to it.
    pub relation: Relation,
}

/// What a kernel worker was doing when it woke somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkFact {
    /// When.
    pub time: Ns,
    /// The worker.
    pub worker: ThreadId,
    /// The function it executed.
    pub object: ObjectId,
    /// Who had asked for it, [`ThreadId::NONE`] for a timer, an interrupt or somebody not seen.
    pub requester: ThreadId,
    /// When it was asked for, 0 when that was not seen.
    pub queued: Ns,
}

/// Something with the time at which it was recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct At<T> {
    /// When (of things added up: the last one).
    pub time: Ns,
    /// What.
    pub what: T,
}

/// A signal that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalFact {
    /// When.
    pub time: Ns,
    /// By whom.
    pub from: ThreadId,
    /// To whom.
    pub to: ThreadId,
    /// Signal number.
    pub signal: u8,
}

/// A mark set by the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkFact {
    /// When.
    pub time: Ns,
    /// Its number.
    pub number: u32,
}

/// The status of a thread whose end nobody saw.
pub const NO_STATUS: u32 = u32::MAX;
