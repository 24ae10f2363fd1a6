//! Threads that are followed instruction by instruction while they are recorded: their traces, and their stops, which
//! are of our making.

use crate::stacks::StackTable;
use crate::steps::{Followed, Taken};
use pg_event::{Burst, FrameId, Ns, OffState, Trace, TraceId};
use std::sync::Arc;

/// What is kept of them.
#[derive(Default)]
pub struct Stepped {
    /// When who was followed, once anybody may be.
    pub followed: Option<Arc<Followed>>,
    count: u32,
    new: Vec<(TraceId, Trace)>,
}

impl Stepped {
    /// Was a thread stopped by our own following it? The recording shows what the program does.
    #[inline]
    pub fn by_us(&self, tid: u32, state: OffState, start: u64, end: u64) -> bool {
        state == OffState::Traced && self.followed.as_ref().is_some_and(|f| f.within(tid, start, end))
    }

    /// A burst that began at `start` of the recording: its places become frames.
    pub fn take(&mut self, taken: &Taken, start: Ns, stacks: &mut StackTable) -> Burst {
        let frames = stacks.places(taken.pid, &taken.places);
        let mut row = taken.trace.clone();
        for i in &mut row.code {
            i.frame = frames.get(i.frame.index()).copied().unwrap_or(FrameId::NONE);
        }
        row.stack = stacks.user(taken.pid, &taken.regs, &taken.stack);
        let (trace, steps, how) = (TraceId(self.count), row.steps() as u32, row.how);
        self.count += 1;
        self.new.push((trace, row));
        Burst { start, trace, steps, how }
    }

    /// New traces since the last call.
    pub fn drain(&mut self) -> Vec<(TraceId, Trace)> {
        std::mem::take(&mut self.new)
    }
}
