//! The bounded critical path of a span: what made these 300 ms.

use pg_event::{Ns, ThreadId};
use pg_graph::SliceNode;

/// The path shown, if one was asked for.
#[derive(Debug, Default)]
pub struct PathState {
    /// Whose time was asked about.
    pub thread: Option<ThreadId>,
    /// The span asked about.
    pub span: (Ns, Ns),
    /// The parts, in order of time.
    pub parts: Vec<SliceNode>,
    /// The selected part.
    pub row: usize,
    /// First part shown.
    pub offset: usize,
}

impl PathState {
    /// Shows another path. `parts` come backwards from its end, as they were found.
    pub fn set(&mut self, thread: ThreadId, span: (Ns, Ns), mut parts: Vec<SliceNode>) {
        parts.reverse();
        // The part that took longest is what one asked for.
        let longest = (0..parts.len()).max_by_key(|i| parts[*i].spent).unwrap_or(0);
        *self = Self { thread: Some(thread), span, parts, row: longest, offset: 0 };
    }
}
