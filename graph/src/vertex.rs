//! Vertices: execution segments of one thread.

use crate::Weak;
use pg_event::{Ns, OPEN_FLAGS, ObjectId, OffState, StackId, Sysno, ThreadId};
use serde::{Deserialize, Serialize};

/// Index of a vertex in an [`crate::EventGraph`]. Vertices of one thread are neighbours, in order of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VertexId(pub u32);

impl VertexId {
    /// Index into the columns.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An execution segment: it leads in with the wait that ended it up here, then runs until the thread
/// blocks again. `start ..= woken` blocked, `woken ..= run` runnable, `run ..= end` running
/// (with `preempted` ns of it put off the CPU). The first vertex of a thread has no wait: `start == woken`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Vertex {
    /// Its thread.
    pub thread: ThreadId,
    /// Switch-out into the leading wait, or the thread's first moment.
    pub start: Ns,
    /// End of the leading wait: made runnable. For an open wait the end of the recording.
    pub woken: Ns,
    /// On the CPU after it.
    pub run: Ns,
    /// Blocks again (or ended, or the recording did).
    pub end: Ns,
    /// Time in `run..end` spent runnable without a CPU, ns.
    pub preempted: Ns,
    /// Time in `run..end` of which nothing was seen, ns: see [`crate::EventGraph::unseen`].
    pub unseen: Ns,
    /// State during the leading wait; [`OffState::Runnable`] when there was none.
    pub state: OffState,
    /// The leading wait had not ended when the recording did.
    pub open: bool,
    /// The leading wait had begun before the recording did.
    pub begun_before: bool,
    /// The leading wait ended by its own time-out.
    pub timed_out: bool,
    /// The leading wait was ended by a signal (killed, interrupted), not by what it waited for.
    pub interrupted: bool,
    /// It begins without a wait, where a heuristic split a segment: why the way from the part before is weak.
    pub split: Option<Weak>,
    /// System call of the leading wait.
    pub syscall: Sysno,
    /// As in [`pg_event::OffCpu::op`].
    pub op: u32,
    /// As in [`pg_event::OffCpu::value`].
    pub value: u32,
    /// As in [`pg_event::OffCpu::timeout`].
    pub timeout: u64,
    /// What the leading wait was for.
    pub object: ObjectId,
    /// User stack in the leading wait.
    pub user_stack: StackId,
    /// Kernel stack in the leading wait.
    pub kernel_stack: StackId,
}

impl Vertex {
    /// Length of the leading wait, ns (blocked only).
    pub fn waited(&self) -> Ns {
        self.woken.saturating_sub(self.start)
    }

    /// With which flags it opens a file (open(2), openat(2)), where that was recorded.
    pub fn open_flags(&self) -> Option<u32> {
        let told = self.syscall.is_any(&["open", "openat"]) && self.op & OPEN_FLAGS != 0;
        told.then_some(self.op & !OPEN_FLAGS)
    }

    /// From made runnable to on the CPU, ns.
    pub fn queued(&self) -> Ns {
        self.run.saturating_sub(self.woken)
    }

    /// On the CPU, ns.
    pub fn ran(&self) -> Ns {
        self.end.saturating_sub(self.run).saturating_sub(self.preempted + self.unseen)
    }

    /// Whole length, ns.
    pub fn duration(&self) -> Ns {
        self.end.saturating_sub(self.start)
    }
}

/// The three abnormal states of the paper (Argus, algorithm 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockType {
    /// Busy on the CPU.
    LongRunning,
    /// Sleeps or yields again and again, asking whether it may go on.
    RepeatedYield,
    /// One long blocking wait (time-outs that only renew it do not count as its end).
    LongWait,
}

impl BlockType {
    /// Name as in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::LongRunning => "long-running",
            Self::RepeatedYield => "repeated-yield",
            Self::LongWait => "long-wait",
        }
    }

    /// Name as a person reads it.
    pub fn words(self) -> &'static str {
        match self {
            Self::LongRunning => "long running",
            Self::RepeatedYield => "repeated yield",
            Self::LongWait => "long wait",
        }
    }
}
