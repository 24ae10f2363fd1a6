//! Events: what happened, to which thread, when.

use crate::{Burst, CatalogDelta, Ns, ObjectId, StackId, Sysno, ThreadId, UnitTypeId, Unserved, Violation};
use serde::{Deserialize, Serialize};

/// One event. A recording's events come sorted by `time`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// When it was recorded; for an interval, its end.
    pub time: Ns,
    /// Whose event it is.
    pub thread: ThreadId,
    /// On which CPU it was recorded.
    pub cpu: u16,
    /// What happened.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// The thread was off the CPU and got it back at `time` (or, if `open`, the recording ended).
    OffCpu(OffCpu),
    /// Messages of one execution segment over one object, added up; `time` is the last one's.
    Ipc(IpcUse),
    /// A system call, or equal ones added up; `time` is the (last) return. Only on the level that has it.
    Syscall(SyscallUse),
    /// The thread was on the CPU at `time` (cpu-clock sample).
    Sample(Sample),
    /// The thread created another one (or a process, whose first thread it is).
    Spawn {
        /// The new thread.
        child: ThreadId,
    },
    /// The process replaced its program; the catalogue has the new command line.
    Exec,
    /// The thread ended.
    Exit {
        /// Exit status as of wait(2).
        status: u32,
    },
    /// The thread sent a signal.
    Signal {
        /// To this thread (or its process).
        target: ThreadId,
        /// Signal number.
        signal: u8,
    },
    /// A fact read from the system's state at `time`: the thread holds, or is the other end of, an object.
    Hold(Hold),
    /// The thread, a kernel worker, was at `time` doing what somebody had asked for: whom it wakes then goes on
    /// since that was asked for.
    Work(Work),
    /// A fact read from the system's state: what came for the thread over a connection was not received.
    Unserved(Unserved),
    /// The thread read or wrote a data flag (hardware watchpoint).
    DataFlag {
        /// The flag.
        object: ObjectId,
        /// Its value after the access.
        value: u64,
        /// A write (else a read).
        write: bool,
        /// Where.
        stack: StackId,
    },
    /// The thread was followed instruction by instruction; `time` is the end of that.
    Burst(Burst),
    /// A unit of work begins or ends on this thread.
    UnitBoundary {
        /// Its type, as far as that is known: mostly at its end.
        unit_type: UnitTypeId,
        /// Begins (else ends).
        begin: bool,
    },
    /// A unit of work took longer than it may.
    Violation(Violation),
    /// A mark set by the user.
    Mark {
        /// Number of the mark; the session's notes hold its text.
        number: u32,
    },
    /// Messages between `since` and `time` were not recorded, since there were too many of them: waits and wakings
    /// were. Who sends to whom shows in the recording before and after.
    Unheard {
        /// From when on.
        since: Ns,
    },
    /// Events were lost between `since` and `time`.
    Lost {
        /// Earliest time from which events may be missing.
        since: Ns,
        /// How many.
        count: u64,
        /// Ring or buffer that overflowed (0 events, 1 stacks, 2 samples).
        ring: u8,
    },
}

/// State of a thread while it was off the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum OffState {
    /// Put off the CPU while it could run on (preempted, or it yielded).
    Runnable = 0,
    /// Interruptible sleep (S).
    Interruptible = 1,
    /// Uninterruptible sleep (D), also killable.
    Uninterruptible = 2,
    /// Stopped by a signal (T).
    Stopped = 3,
    /// Stopped by its tracer (t).
    Traced = 4,
    /// Frozen cgroup.
    Frozen = 5,
    /// A kernel thread's idle wait (I): never a cause nor a victim.
    Idle = 6,
    /// Exited: the last interval of a thread.
    Dead = 7,
    /// Kept off the CPU, though it could run, since a control group it is in had used up its quota of CPU
    /// time. `OffCpu::object` is that group; `OffCpu::woken` is when it was allowed to run again.
    Throttled = 8,
}

impl OffState {
    /// All of them, in numeric order.
    pub const ALL: [Self; 9] = [
        Self::Runnable,
        Self::Interruptible,
        Self::Uninterruptible,
        Self::Stopped,
        Self::Traced,
        Self::Frozen,
        Self::Idle,
        Self::Dead,
        Self::Throttled,
    ];

    /// By number; unknown numbers are [`OffState::Dead`].
    pub fn from_u8(n: u8) -> Self {
        Self::ALL.get(usize::from(n)).copied().unwrap_or(Self::Dead)
    }
}

/// In what context something ran.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Context {
    /// Nobody known.
    None = 0,
    /// A thread itself, in a system call or kernel thread function.
    Task = 1,
    /// A softirq that delivers network packets. On loopback it runs inside the sender's system call:
    /// `OffCpu::waker_syscall` tells; otherwise the thread is only the interrupted one.
    NetRx = 2,
    /// Another softirq (block completion, RCU, tasklet, ...): the thread is only the interrupted one.
    SoftIrq = 3,
    /// A hard interrupt: the thread is only the interrupted one.
    HardIrq = 4,
    /// A timer that expired (high-resolution timer or timer wheel).
    Timer = 5,
}

impl Context {
    /// By number; unknown numbers are [`Context::None`].
    pub fn from_u8(n: u8) -> Self {
        [Self::None, Self::Task, Self::NetRx, Self::SoftIrq, Self::HardIrq, Self::Timer]
            .get(n as usize)
            .copied()
            .unwrap_or(Self::None)
    }
}

/// [`OffCpu::op`] of a wait to write to a terminal whose output was found to be paused (Ctrl-S, `tcflow(3)`): the
/// kernel's `tty_struct.flow.stopped`.
pub const TTY_PAUSED: u32 = 1;

/// In [`OffCpu::op`] of who opens a file: the other bits are the flags with which it does. Earlier recordings have none.
pub const OPEN_FLAGS: u32 = 1 << 31;

/// One interval off the CPU, `start..Event::time`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OffCpu {
    /// When the thread left the CPU.
    pub start: Ns,
    /// When it was made runnable; equal to `start` if it always was, the interval's end if that was not reported, 0 if
    /// it never was (open wait).
    pub woken: Ns,
    /// Its state meanwhile.
    pub state: OffState,
    /// The wait had not ended when this was written: at the recording's end, or when it became long (so
    /// that a recording cut off has it). A later interval with the same `start` replaces it.
    pub open: bool,
    /// The wait had begun before the recording did: `start` is only the recording's beginning.
    pub begun_before: bool,
    /// The system call it blocked in; [`Sysno::NONE`] for a page fault, an interrupt, a kernel thread.
    pub syscall: Sysno,
    /// Futex operation, flock or fcntl command, wait options, signal: by system call; of a write to a terminal
    /// [`TTY_PAUSED`] when its output was found to be paused; of open(2) and openat(2) the flags and [`OPEN_FLAGS`].
    pub op: u32,
    /// Futex value waited on, number of descriptors polled, ...: by system call.
    pub value: u32,
    /// Time-out given to the system call in ns; `u64::MAX` = none, 0 = unknown or not applicable.
    pub timeout: u64,
    /// What it waited on.
    pub object: ObjectId,
    /// Who was on the CPU when it was made runnable; see `waker_context` for what that means.
    pub waker: ThreadId,
    /// Context of the waker.
    pub waker_context: Context,
    /// System call the waker was in, if any.
    pub waker_syscall: Sysno,
    /// Object of the waker's system call.
    pub waker_object: ObjectId,
    /// User stack at the switch-out.
    pub user_stack: StackId,
    /// Kernel stack during the wait (waits above the threshold only).
    pub kernel_stack: StackId,
    /// User stack of the waker, when taken.
    pub waker_stack: StackId,
}

impl OffCpu {
    /// An interval with nothing known but its times and state: a start for builders and tests.
    pub fn new(start: Ns, woken: Ns, state: OffState) -> Self {
        Self {
            start,
            woken,
            state,
            open: false,
            begun_before: false,
            syscall: Sysno::NONE,
            op: 0,
            value: 0,
            timeout: 0,
            object: ObjectId::NONE,
            waker: ThreadId::NONE,
            waker_context: Context::None,
            waker_syscall: Sysno::NONE,
            waker_object: ObjectId::NONE,
            user_stack: StackId::NONE,
            kernel_stack: StackId::NONE,
            waker_stack: StackId::NONE,
        }
    }

    /// Did it block (as opposed to being put off while runnable)? A quota that is used up blocks, too.
    pub fn blocked(&self) -> bool {
        !matches!(self.state, OffState::Runnable)
    }
}

/// Which way messages went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Direction {
    /// Sent, written.
    Send = 0,
    /// Received, read.
    Receive = 1,
}

/// Messages over one object within one execution segment; or requests to a disk that were completed, whichever
/// way their bytes went.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IpcUse {
    /// The sender's or receiver's end.
    pub object: ObjectId,
    /// Which way.
    pub direction: Direction,
    /// How many calls.
    pub count: u32,
    /// Bytes in all.
    pub bytes: u64,
    /// When the first one was (`Event::time` is the last).
    pub first: Ns,
    /// Position in the byte stream after the last byte (TCP: sequence number, unwrapped by the reader;
    /// others: bytes counted since the recording began). 0 = unknown.
    pub position: u64,
}

/// One system call, or consecutive equal ones added up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SyscallUse {
    /// When the (first) call began.
    pub start: Ns,
    /// Which.
    pub nr: Sysno,
    /// Return value of the last one (negative errno on failure).
    pub result: i64,
    /// How many.
    pub count: u32,
    /// As in [`OffCpu::op`]; of kill(2) with signal 0: the process that is asked about, by its number in the caller's
    /// pid namespace.
    pub op: u32,
    /// What it was about.
    pub object: ObjectId,
}

/// One on-CPU sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// How much time it stands for, ns.
    pub weight: u64,
    /// User stack.
    pub user_stack: StackId,
    /// Kernel stack, when it was in the kernel.
    pub kernel_stack: StackId,
}

/// How a thread is tied to an object it holds, or to what another one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Relation {
    /// Has the reading end of a pipe or FIFO open.
    Reads = 0,
    /// Has the writing end of a pipe or FIFO open.
    Writes = 1,
    /// Has the other end of a socket or terminal open.
    Peer = 2,
    /// Listens on the socket (a connection not yet accepted).
    Listens = 3,
    /// Owns the lock (file lock, mutex).
    Owns = 4,
    /// Is the child waited for (object kind Child), or its only candidates.
    ChildOf = 5,
    /// Traces the thread: `Hold::subject` is the traced one.
    Traces = 6,
    /// Serves the file system or device (FUSE daemon).
    Serves = 7,
    /// One of the readers that have a read-write lock of the C library, which counts them and does not write down who
    /// they are: `Event::thread` is the waiter itself, and there are as many such events as readers.
    Reader = 8,
    /// Has the lock (flock(2), which belongs to the open file) by a descriptor of an open file that another process
    /// locked and has no more: it inherited the descriptor, or a child locked it.
    Shares = 9,
    /// Has not come to the barrier at which as many others of its process sleep as came.
    Missing = 10,
    /// Is of the only other process that has mapped what a loop, of which nothing else tells what it asks for, may ask for, or
    /// what a wait is on: shared memory. `Event::thread` is the waiter itself where no other process has that mapped.
    Maps = 11,
    /// Made the file that a loop asks for, or renamed another one to that, at the event's time.
    Makes = 12,
    /// Removed it, or renamed it to something else.
    Removes = 13,
}

impl Relation {
    /// Has the lock that is waited for, in whatever way.
    pub fn has_lock(self) -> bool {
        matches!(self, Self::Owns | Self::Shares)
    }

    /// By number.
    pub fn from_u8(n: u8) -> Option<Self> {
        [
            Self::Reads,
            Self::Writes,
            Self::Peer,
            Self::Listens,
            Self::Owns,
            Self::ChildOf,
            Self::Traces,
            Self::Serves,
            Self::Reader,
            Self::Shares,
            Self::Missing,
            Self::Maps,
            Self::Makes,
            Self::Removes,
        ]
        .get(n as usize)
        .copied()
    }
}

/// `Event::thread` is tied to `object`; found because `subject` waited for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hold {
    /// The object (as the subject's wait names it), [`ObjectId::NONE`] for a tracer.
    pub object: ObjectId,
    /// Who waits.
    pub subject: ThreadId,
    /// How the thread is tied to it.
    pub relation: Relation,
}

/// What a kernel worker does, and for whom.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// The function it executes (object kind Work).
    pub object: ObjectId,
    /// Who asked for it; [`ThreadId::NONE`] when a timer or an interrupt did, or when that was not seen.
    pub requester: ThreadId,
    /// When it was asked for; 0 when that was not seen.
    pub queued: Ns,
}

/// What was lost, by ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Events that did not fit into the event ring.
    pub events: u64,
    /// Stack copies that did not fit.
    pub stacks: u64,
    /// Samples that did not fit.
    pub samples: u64,
    /// Time within which any of that happened, ns.
    pub ns: u64,
}

/// What the recording did not see.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Coverage {
    /// Lost in the collector.
    pub loss: Loss,
    /// User stacks unwound to the outermost frame.
    pub stacks_complete: u64,
    /// User stacks taken.
    pub stacks_total: u64,
    /// Frames with a function name.
    pub symbols_resolved: u64,
    /// Frames in all.
    pub symbols_total: u64,
    /// Frames that were still to be looked up when that was ended early: a reader may do so.
    pub unnamed: u64,
    /// Sentences about anything else that is missing.
    pub notes: Vec<String>,
}

impl Coverage {
    /// How the sentence begins that tells of names that a recorder did not look up any more.
    pub const LEFT_UNNAMED: &str = "the recorder looked up the names of functions and";
    /// How the sentence begins that tells of long waits for which nobody was looked for.
    const NOT_LOOKED_UP: &str = "not looked up any more: who holds what threads wait for";

    /// The sentence about so many long waits of which it was not found out who could end them, of threads with these numbers (or
    /// more, when they are fewer than the waits). `None` when there are no such waits.
    pub fn not_looked_up(waits: usize, threads: &[u32]) -> Option<String> {
        if waits == 0 {
            return None;
        }
        let list: Vec<String> = threads.iter().map(u32::to_string).collect();
        let more = if threads.len() < waits { " and others" } else { "" };
        Some(format!(
            "{}, {waits} of their long waits (threads {}{more})",
            Self::NOT_LOOKED_UP,
            list.join(", ")
        ))
    }

    /// Do these sentences say that who holds what the thread of this number waits for was not looked up, or may not have been?
    pub fn says_not_looked_up(notes: &[String], tid: u32) -> bool {
        let mut said = notes.iter().filter_map(|n| n.strip_prefix(Self::NOT_LOOKED_UP));
        said.any(|rest| match rest.rsplit_once("(threads ") {
            Some((_, list)) => {
                list.contains(" and others")
                    || list.split(|c: char| !c.is_ascii_digit()).any(|n| n.parse() == Ok(tid))
            }
            // A recorder that did not say whose.
            None => true,
        })
    }

    /// So many frames got a name since: what it told of that is over.
    pub fn named(&mut self, frames: u64) {
        self.symbols_resolved = self.symbols_resolved.saturating_add(frames);
        self.unnamed = self.unnamed.saturating_sub(frames);
        if frames > 0 {
            self.notes.retain(|n| !n.starts_with(Self::LEFT_UNNAMED));
        }
    }
}

/// What a source of events delivers: live, replayed or imported.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "they are few: events come in batches")]
pub enum Item {
    /// New or changed catalogue rows. They come before the events that name them.
    Catalog(CatalogDelta),
    /// Events, sorted by time, none earlier than those delivered before.
    Events(Vec<Event>),
    /// The recording ended at this time; what it did not see.
    End {
        /// Length of the recording.
        duration: Ns,
        /// What is missing.
        coverage: Coverage,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_holders_were_not_looked_up_is_known_by_the_sentence() {
        assert_eq!(Coverage::not_looked_up(0, &[]), None);
        let says = |note: &str, tid| Coverage::says_not_looked_up(&["another".into(), note.into()], tid);
        let two = Coverage::not_looked_up(2, &[7, 42]).expect("a sentence");
        assert_eq!([7, 42, 4, 2].map(|t| says(&two, t)), [true, true, false, false], "{two}");
        let more = Coverage::not_looked_up(3, &[7, 42]).expect("a sentence");
        assert!(says(&more, 4), "it may be one of the others: {more}");
        let older = "not looked up any more: who holds what threads wait for, 3 of their long waits";
        assert!(says(older, 4) && !says("another", 4));
    }
}
