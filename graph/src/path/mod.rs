//! Critical paths: what made a span of time of a thread.
//!
//! The bounded path keeps what the thread did itself and replaces each of its waits by what the threads
//! that ended it did meanwhile, recursively and never looking further back than the wait's begin
//! (F. Giraldeau and M. Dagenais, Wait analysis of distributed systems using kernel tracing, IEEE TPDS
//! 27(8), 2016, there called the active path). The unbounded path follows the causes as far back as the
//! thread itself goes. Both work on anything that is a [`Timeline`].

mod bounded;
mod of_graph;
mod unbounded;

pub use bounded::bounded;
pub use unbounded::unbounded;

use crate::EdgeId;
use pg_event::Ns;
use std::fmt::Debug;
use std::ops::Range;

/// What a worker did in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// On a CPU.
    Running,
    /// Waited; the state does not tell for what.
    Blocked,
    /// Waited for a message from outside.
    Network,
    /// Waited for time to pass.
    Timer,
    /// Could run and had no CPU.
    Preempted,
    /// Nothing is known.
    Unknown,
}

impl State {
    /// A wait, to be explained by whoever ended it. Time that has to pass explains itself.
    pub fn is_wait(self) -> bool {
        matches!(self, Self::Blocked | Self::Network)
    }

    /// Does it say what happened? (A wait does not, nor does ignorance.)
    fn explains(self) -> bool {
        !self.is_wait() && self != Self::Unknown
    }
}

/// Kind of a link between workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkKind {
    /// A wake-up or a creation.
    Default,
    /// A message.
    Network,
    /// A timer.
    Timer,
}

/// An interval of a worker.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval<T> {
    /// Begin.
    pub start: Ns,
    /// End.
    pub end: Ns,
    /// What it did.
    pub state: State,
    /// What the timeline says about it: goes onto the path with it.
    pub tag: T,
}

/// A link from one worker to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Link<W> {
    /// Where it left.
    pub from: (W, Ns),
    /// Where it entered.
    pub to: (W, Ns),
    /// Kind.
    pub kind: LinkKind,
    /// The edge of the event graph that it is; `None` for the links of other timelines and for joints,
    /// which only tie the pieces of a path together.
    pub edge: Option<EdgeId>,
}

/// One step of a path.
#[derive(Clone, PartialEq, Debug)]
pub enum Step<W, T> {
    /// What a worker did.
    Interval {
        /// Who.
        worker: W,
        /// When and what. The tag is `None` where nothing is known.
        interval: Interval<Option<T>>,
    },
    /// From worker to worker.
    Link(Link<W>),
}

impl<W: Copy, T> Step<W, T> {
    /// Where it begins.
    pub fn from(&self) -> (W, Ns) {
        match self {
            Self::Interval { worker, interval } => (*worker, interval.start),
            Self::Link(l) => l.from,
        }
    }

    /// Where it ends.
    pub fn to(&self) -> (W, Ns) {
        match self {
            Self::Interval { worker, interval } => (*worker, interval.end),
            Self::Link(l) => l.to,
        }
    }

    /// How long it takes, ns.
    pub fn duration(&self) -> Ns {
        self.to().1.saturating_sub(self.from().1)
    }
}

/// Workers, what they did when, and the links between them.
pub trait Timeline {
    /// A thread, or a CPU's interrupts.
    type Worker: Copy + Eq + Debug;
    /// What goes onto the path with an interval.
    type Tag: Clone + PartialEq + Debug;

    /// From the first to the last moment of a worker; `None` if it does not exist.
    fn span(&self, w: Self::Worker) -> Option<Range<Ns>>;

    /// The interval of a worker that lies just before `time`: it begins before and ends at or after it.
    /// Its end may be later than `time`.
    fn before(&self, w: Self::Worker, time: Ns) -> Option<Interval<Self::Tag>>;

    /// The link that enters a worker at `time`. It never left later than that.
    fn entering(&self, w: Self::Worker, time: Ns) -> Option<Link<Self::Worker>>;
}

/// Time by what a path says of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Explained {
    /// Somebody ran.
    pub running: Ns,
    /// Somebody waited for a CPU or for time to pass.
    pub other: Ns,
}

/// How much of its time a path explains by what somebody did.
pub fn explained<W: Copy, T>(path: &[Step<W, T>]) -> Explained {
    let mut sum = Explained::default();
    for s in path {
        if let Step::Interval { interval, .. } = s {
            let length = interval.end.saturating_sub(interval.start);
            if interval.state == State::Running {
                sum.running += length;
            } else if interval.state.explains() {
                sum.other += length;
            }
        }
    }
    sum
}

/// Does every step begin where the one before ended, same worker and same time?
pub fn is_chain<W: Copy + Eq, T>(path: &[Step<W, T>]) -> bool {
    path.windows(2).all(|w| w[0].to() == w[1].from()) && path.iter().all(|s| s.from().1 <= s.to().1)
}
