//! Edges: why a vertex could go on.

use crate::VertexId;
use pg_event::{Ns, ObjectId};
use serde::{Deserialize, Serialize};

/// Index of an edge in an [`crate::EventGraph`] (program order has none: it is implicit).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgeId(pub u32);

impl EdgeId {
    /// Index into the columns.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Kind of an edge, by the words of the report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum EdgeKind {
    /// The segment before, on the same thread.
    ProgramOrder,
    /// A wake-up whose means is not known.
    WakeUp,
    /// A wake-up by futex.
    Futex,
    /// A message: pipe, socket, eventfd, ...
    Ipc,
    /// A timer that somebody armed.
    Timer,
    /// Work queued and executed.
    Work,
    /// A data flag written and read.
    DataFlag,
    /// A thread or process created.
    Spawn,
    /// A thread or process ended.
    Exit,
    /// Found from the state of a resource; no wake-up was recorded.
    Holder,
}

impl EdgeKind {
    /// Name as in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProgramOrder => "program-order",
            Self::WakeUp => "wake-up",
            Self::Futex => "futex",
            Self::Ipc => "ipc",
            Self::Timer => "timer",
            Self::Work => "work",
            Self::DataFlag => "data-flag",
            Self::Spawn => "spawn",
            Self::Exit => "exit",
            Self::Holder => "holder",
        }
    }
}

/// Why an edge need not be a cause. `None` of it: the edge is strong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Weak {
    /// An unlock wakes whoever waits for the mutex; the intent may be mutual exclusion only.
    MutexHandOff,
    /// The edge crosses a boundary that a heuristic put there: consecutive messages without a common peer.
    HeuristicSplit,
    /// The waker was interrupted; what the interrupt was for is inferred.
    InterruptInferred,
    /// The waker's means does not match what the wakee waited on.
    ObjectMismatch,
    /// One turn of an event loop served several descriptors (batch).
    Batch,
    /// Requests of several were taken together and answered together (batch).
    Together,
    /// Found from state, not from an event.
    FromState,
    /// Events were lost around it.
    LostEvents,
    /// A signal ended the wait: it did not bring what was waited for.
    Signal,
}

impl Weak {
    /// The sentence fragment of `why_weak`.
    pub fn words(self) -> &'static str {
        match self {
            Self::MutexHandOff => {
                "an unlock wakes whoever waits and need not mean \"go on for me\" (mutual exclusion)"
            }
            Self::HeuristicSplit => {
                "consecutive messages have no peer in common; the segment was split between them"
            }
            Self::InterruptInferred => "the wake-up came from an interrupt; its origin is inferred",
            Self::ObjectMismatch => "the waker acted on another object than the one waited on",
            Self::Batch => "one turn of an event loop served several descriptors; it was split between them",
            Self::Together => {
                "requests of several were taken together and answered together; which of them it went on for is a guess"
            }
            Self::FromState => "no wake-up was recorded; found from the state of the resource",
            Self::LostEvents => "events were lost around it",
            Self::Signal => "a signal ended the wait, not what was waited for",
        }
    }
}

/// An edge between two points in time of two vertices.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Edge {
    /// The cause.
    pub from: VertexId,
    /// When, on the cause's side.
    pub from_time: Ns,
    /// What it made go on.
    pub to: VertexId,
    /// When it arrived there.
    pub to_time: Ns,
    /// Kind.
    pub kind: EdgeKind,
    /// Why it is weak, if it is.
    pub weak: Option<Weak>,
    /// Through what.
    pub object: ObjectId,
}
