//! What a walk comes to: its steps, where it ended, and why that is a cause.

use super::activity::Spans;
use super::node::SliceNode;
use crate::report::QuestionInfo;
use crate::{Decision, Question};
use pg_event::ThreadId;
/// What a walk came to.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Outcome {
    pub nodes: Vec<SliceNode>,
    pub ask: Option<Box<Question>>,
    pub asked: Vec<QuestionInfo>,
    pub used: Vec<Decision>,
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
    /// Threads that could have been followed and were not, and why.
    pub rejected: Vec<(ThreadId, String)>,
    /// The way came back to a thread that is on it.
    pub ring: bool,
    /// In a look ahead: how often a question would have come.
    pub would_ask: usize,
}

/// Where a walk ended, and why it is a cause.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Finding {
    pub thread: ThreadId,
    /// Index of its step in the slice.
    pub node: usize,
    pub kind: FindingKind,
    /// The spans it is about.
    pub spans: Spans,
}

/// Sorts of causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FindingKind {
    /// On the CPU.
    Running,
    /// On the CPU only to give it up again: a yield loop.
    Yielding,
    /// Runs a program again and again that fails.
    Retrying,
    /// Wanted the CPU and did not have it.
    NoCpu,
    /// The same by a limit, while CPUs were idle.
    Throttled,
    /// Slept for a time it chose itself.
    Sleeping,
    /// Waits for something to do: the missing step was expected of it.
    Idle,
    /// Waits for what nobody brings.
    Unanswered,
    /// Waits for input at a terminal.
    Input,
    /// Waits for somebody who waits for it.
    Circular,
    /// All threads that could let each other go on wait.
    Closed,
    /// So many threads of a pool, all that it has, wait for results of work that waits for one of them.
    Starved(u32),
    /// Waits for a token of a jobserver while so many jobs run, of so many that may: others took tokens and have ended.
    Tokens(u32, u32),
    /// Waits for a device or file system.
    Device,
    /// Stopped by a signal.
    Stopped,
    /// Keeps another one stopped as its tracer.
    Tracer,
    /// Ended.
    Ended,
    /// Froze the file system that another one wants to write to.
    Froze,
    /// A session of a database server that idles while another one waits for a lock.
    Session,
    /// Waits for a file system to be thawed; who froze it is not known.
    Frozen,
    /// Waits for memory that its control group may not have.
    NoMemory,
    /// Waits to write to a terminal whose output somebody paused.
    Paused,
    /// The walk was told to stop here, or cannot see further.
    Here,
}
