//! Bursts: when threads were followed instruction by instruction (Argus, section 5.4).

use crate::EventGraph;
use pg_event::trace::How;
use pg_event::{Ns, ThreadId, TraceId};
use std::ops::Range;

/// A thread was followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BurstFact {
    /// From when.
    pub start: Ns,
    /// Until when.
    pub end: Ns,
    /// Who.
    pub thread: ThreadId,
    /// What was executed.
    pub trace: TraceId,
    /// How many instructions.
    pub steps: u32,
    /// How it was made.
    pub how: How,
}

impl EventGraph {
    /// All bursts, by thread and start.
    pub fn bursts(&self) -> &[BurstFact] {
        &self.bursts
    }

    /// Those of a thread that touch a span.
    pub fn bursts_of(&self, thread: ThreadId, span: Range<Ns>) -> impl Iterator<Item = &BurstFact> {
        let from = self.bursts.partition_point(|b| b.thread < thread);
        let own = self.bursts[from..].iter().take_while(move |b| b.thread == thread);
        own.take_while(move |b| b.start < span.end).filter(move |b| b.end >= span.start)
    }
}
