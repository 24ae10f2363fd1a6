//! The rows of the event graph's columns, as the builder fills them.

use crate::facts::{At, SamplePoint};
use crate::{EdgeKind, VertexId, Weak};
use pg_event::{IpcUse, Ns, ObjectId, OffState, StackId, SyscallUse, Sysno, ThreadId};
use std::ops::Range;
/// Times of a vertex; `end` is the next one's `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub start: Ns,
    pub woken: Ns,
    pub run: Ns,
}

pub(crate) const OPEN: u8 = 1;
pub(crate) const BEGUN_BEFORE: u8 = 2;
pub(crate) const TIMED_OUT: u8 = 4;
pub(crate) const INTERRUPTED: u8 = 8;
/// Begins where a heuristic split a segment.
pub(crate) const SPLIT: u8 = 16;
/// The segment was a turn of an event loop.
pub(crate) const BATCH: u8 = 32;

/// What a vertex knows besides its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detail {
    pub preempted: Ns,
    pub timeout: u64,
    pub thread: ThreadId,
    pub object: ObjectId,
    pub user_stack: StackId,
    pub kernel_stack: StackId,
    pub op: u32,
    pub value: u32,
    pub syscall: Sysno,
    pub state: OffState,
    pub flags: u8,
}

impl Detail {
    /// Of a vertex that leads in with no wait.
    pub fn running(thread: ThreadId, preempted: Ns, flags: u8) -> Self {
        Self {
            preempted,
            timeout: 0,
            thread,
            object: ObjectId::NONE,
            user_stack: StackId::NONE,
            kernel_stack: StackId::NONE,
            op: 0,
            value: 0,
            syscall: Sysno::NONE,
            state: OffState::Runnable,
            flags,
        }
    }
}

/// An edge as it is kept: sorted by `to`, the one that ended the leading wait first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeRow {
    pub from_time: Ns,
    pub to_time: Ns,
    pub from: VertexId,
    pub to: VertexId,
    pub object: ObjectId,
    pub stack: StackId,
    pub syscall: Sysno,
    pub kind: EdgeKind,
    pub weak: Option<Weak>,
    /// Ended the leading wait of `to`.
    pub waking: bool,
}

/// Where the vertices of a thread lie in the columns, and what else is known of it. Lists that are only
/// looked at thread by thread stay as the builder made them: copying them takes as long as filling them.
#[derive(Debug, Default)]
pub(crate) struct ThreadRows {
    pub vertices: Range<u32>,
    /// Runnable without a CPU in the middle of a segment.
    pub put_off: Vec<(Ns, Ns)>,
    /// From when on it was on which CPU; the same one until the next row.
    pub cpus: Vec<(Ns, u16)>,
    /// When it gave the CPU up by itself (sched_yield).
    pub yields: Vec<Ns>,
    pub samples: Vec<SamplePoint>,
    pub ipc: Vec<At<IpcUse>>,
    pub syscalls: Vec<At<SyscallUse>>,
    /// End of the last vertex.
    pub end: Ns,
    pub exited: Option<(Ns, u32)>,
}
