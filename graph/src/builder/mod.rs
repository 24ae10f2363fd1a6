//! From events to the event graph: one state machine per thread, fed in order of time.
//!
//! A segment of a thread ends where it blocks; being put off the CPU while runnable does not end it.
//! An event of an interval comes at its *end*, so the waker's segment at the time of a wake-up is already
//! known when the wakee's interval arrives, and edges can be made at once.

mod calls;
mod channel;
mod datagram;
mod freeze;
mod futex;
mod related;
mod split;
mod thread;
mod together;
mod wake;
mod woken;
mod work;

pub(crate) use calls::{
    CHILD, EXIT, FILE, FILE_LOCK, FUTEX, POLL, RECV, SEND, SIGWAIT, SLEEP, SPAWN, SYSV, YIELD, is as call_is,
};

pub(crate) use datagram::any_address;
pub(crate) use split::why as split_reason;

use crate::columns::EdgeRow;
use crate::facts::NO_STATUS;
use crate::violations::Units;
use crate::{
    At, BurstFact, CullCounts, EdgeKind, EventGraph, FlagAccess, HoldFact, MarkFact, SamplePoint, SignalFact,
    UnservedFact, VertexId, WorkFact,
};
use channel::{Channels, Match, Segment};
use pg_event::{Catalog, Event, IpcUse, Kind, Ns, ObjectId, StackId, Sysno, ThreadId};
use std::collections::HashMap;
use thread::{Role, ThreadState};

/// What to keep and how far to look.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Keep on-CPU samples.
    pub samples: bool,
    /// Keep system call records.
    pub syscalls: bool,
    /// Match messages and make edges of them.
    pub messages: bool,
    /// Split a turn of an event loop where it takes up the next descriptor; requests taken and answered together get
    /// weak edges.
    pub split_batches: bool,
    /// Split other segments where consecutive messages have no peer in common.
    pub split_peers: bool,
    /// Most unmatched records kept per direction of a channel.
    pub channel_depth: usize,
    /// Threads were taken out of the recording: that nobody is seen on a CPU does not tell that it was idle.
    pub partial: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            samples: true,
            syscalls: true,
            messages: true,
            split_batches: true,
            split_peers: true,
            channel_depth: 4096,
            partial: false,
        }
    }
}

/// No recording is longer, ns (about two years). What a damaged file says beyond is cut, so that sums of times
/// (and of bytes) stay in range.
const LATEST: Ns = 1 << 56;
/// No sample stands for more time, ns.
const HEAVIEST: u64 = 1 << 36;

/// A part of freezing a graph.
pub type Task<'a> = &'a mut (dyn FnMut() + Send);

/// Runs both tasks, each once, and returns when both are done.
pub type Join<'a> = &'a dyn Fn(Task<'_>, Task<'_>);

/// Builds an [`EventGraph`] from events in order of time.
///
/// ```
/// use pg_event::{Catalog, Event, Kind, OffCpu, OffState, Thread, ThreadId};
/// use pg_graph::{BuildOptions, Builder};
///
/// let catalog = Catalog { threads: vec![Thread::default()], ..Catalog::default() };
/// let mut builder = Builder::new(BuildOptions::default());
/// let wait = OffCpu::new(10, 30, OffState::Interruptible);
/// builder.events(&[Event { time: 31, thread: ThreadId(0), cpu: 0, kind: Kind::OffCpu(wait) }], &catalog);
/// let graph = builder.finish(100, &catalog);
/// assert_eq!(graph.vertex_count(), 2);
/// ```
#[derive(Debug)]
pub struct Builder {
    options: BuildOptions,
    threads: Vec<ThreadState>,
    /// How many vertices have begun. Until the graph is frozen edges name them in that order.
    numbers: u32,
    edges: Vec<EdgeRow>,
    channels: Channels,
    /// Who armed a timer object last.
    armed: HashMap<ObjectId, (Segment, Ns)>,
    /// Last write of each data flag.
    written: HashMap<ObjectId, (Segment, Ns)>,
    /// By flag and reader: the write that it has an edge from.
    flag_read: HashMap<(ObjectId, ThreadId), Ns>,
    holds: Vec<HoldFact>,
    bursts: Vec<BurstFact>,
    signals: Vec<SignalFact>,
    works: Vec<WorkFact>,
    flags: Vec<FlagAccess>,
    marks: Vec<MarkFact>,
    unserved: Vec<UnservedFact>,
    units: Units,
    execs: Vec<(ThreadId, Ns)>,
    lost: Vec<(Ns, Ns)>,
    unheard: Vec<(Ns, Ns)>,
    culled: CullCounts,
    events: u64,
    /// The highest CPU number of an event.
    last_cpu: u16,
    now: Ns,
}

impl Builder {
    /// A builder that has seen nothing yet.
    pub fn new(options: BuildOptions) -> Self {
        Self {
            channels: Channels::new(options.channel_depth),
            options,
            threads: Vec::new(),
            numbers: 0,
            edges: Vec::new(),
            armed: HashMap::new(),
            written: HashMap::new(),
            flag_read: HashMap::new(),
            holds: Vec::new(),
            bursts: Vec::new(),
            signals: Vec::new(),
            works: Vec::new(),
            flags: Vec::new(),
            marks: Vec::new(),
            unserved: Vec::new(),
            units: Units::default(),
            execs: Vec::new(),
            lost: Vec::new(),
            unheard: Vec::new(),
            culled: CullCounts::default(),
            events: 0,
            last_cpu: 0,
            now: 0,
        }
    }

    /// How many events it was given.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Take further events, none earlier than those before. `catalog` must have the rows they name;
    /// events of threads it does not have are counted in [`CullCounts::foreign`].
    pub fn events(&mut self, events: &[Event], catalog: &Catalog) {
        if self.threads.len() < catalog.threads.len() {
            self.threads.resize_with(catalog.threads.len(), ThreadState::default);
        }
        self.events += events.len() as u64;
        for e in events {
            self.now = self.now.max(e.time.min(LATEST));
            self.last_cpu = self.last_cpu.max(e.cpu);
            self.event(e, catalog);
        }
    }

    /// Freeze. `duration` is the length of the recording (the time of the last event counts if later).
    pub fn finish(self, duration: Ns, catalog: &Catalog) -> EventGraph {
        self.finish_with(duration, catalog, &|a, b| {
            a();
            b();
        })
    }

    /// Like [`Builder::finish`], its longer parts two at a time as far as `join` runs two tasks at once.
    /// This crate starts no threads.
    pub fn finish_with(self, duration: Ns, catalog: &Catalog, join: Join<'_>) -> EventGraph {
        let duration = duration.min(LATEST).max(self.now);
        freeze::freeze(self, duration, catalog, join)
    }

    /// The state of a thread, its first vertex begun; `None` when the catalogue does not have it.
    fn touch(&mut self, id: ThreadId, time: Ns, catalog: &Catalog) -> Option<&mut ThreadState> {
        let Some(t) = self.threads.get_mut(id.index()) else {
            self.culled.foreign += 1;
            return None;
        };
        if t.rows.is_empty() {
            t.begin(id, None, time, catalog);
            t.number_last(&mut self.numbers);
        }
        if t.role == Role::Unknown {
            t.role = catalog.thread(id).map_or(Role::Unknown, Role::of);
        }
        t.seen = t.seen.max(time);
        Some(t)
    }

    /// The segment that a thread is in now.
    fn current(&self, id: ThreadId) -> Segment {
        let n = self.threads.get(id.index()).map_or(0, |t| t.rows.len());
        Segment { thread: id, index: n.saturating_sub(1) as u32 }
    }

    fn event(&mut self, e: &Event, catalog: &Catalog) {
        let time = e.time.min(LATEST);
        if let Kind::Lost { since, ring, .. } = e.kind {
            // Lost user stacks take no event away.
            if ring != 1 {
                self.lost.push((since.min(time), time));
            }
            return;
        }
        if let Kind::Unheard { since } = e.kind {
            self.unheard.push((since.min(time), time));
            self.channels.resume();
            return;
        }
        if let Kind::Mark { number } = e.kind {
            self.marks.push(MarkFact { time, number });
            return;
        }
        if self.units.event(e, time) {
            return;
        }
        if let Kind::Unserved(u) = e.kind {
            self.unserved.push(UnservedFact::new(e.thread, &u, time));
            return;
        }
        // What is read from the system's state tells nothing of what the holder did.
        if let Kind::Hold(h) = e.kind {
            let (subject, object, relation) = (h.subject, h.object, h.relation);
            self.holds.push(HoldFact { time, subject, holder: e.thread, object, relation });
            // Who held it and ended before the recording did nothing in it but that.
            if catalog.thread(e.thread).is_some_and(|t| t.end == Some(0))
                && let Some(t) = self.touch(e.thread, 0, catalog)
            {
                t.exited.get_or_insert((0, NO_STATUS));
            }
            return;
        }
        // It tells what the thread did while it ran, and changes nothing about when it did.
        if let Kind::Burst(b) = e.kind {
            let start = b.start.min(time);
            let (trace, steps, how) = (b.trace, b.steps, b.how);
            self.bursts.push(BurstFact { start, end: time, thread: e.thread, trace, steps, how });
            return;
        }
        let keep = (self.options.samples, self.options.syscalls);
        let Some(t) = self.touch(e.thread, time, catalog) else { return };
        if matches!(e.kind, Kind::OffCpu(ref o) if !o.open) {
            t.on_cpu(time, e.cpu);
        }
        match e.kind {
            Kind::OffCpu(ref o) if t.off_cpu(e.thread, time, o) => self.woken(e.thread, o, catalog),
            Kind::Sample(s) if keep.0 => t.samples.push(SamplePoint {
                time,
                weight: s.weight.min(HEAVIEST),
                user_stack: s.user_stack,
                kernel_stack: s.kernel_stack,
            }),
            Kind::Syscall(s) => {
                if keep.1 {
                    t.syscalls.push(At { time, what: s });
                }
                if calls::is(s.nr, calls::ARM) && s.object.is_some() {
                    let at = self.current(e.thread);
                    self.armed.insert(s.object, (at, time));
                }
            }
            Kind::Ipc(u) => {
                let u = IpcUse { first: u.first.min(time), bytes: u.bytes.min(LATEST), ..u };
                t.ipc.push(At { time, what: u });
                if self.options.messages {
                    let at = self.current(e.thread);
                    let (edges, threads) = (&mut self.edges, &self.threads);
                    let found = |m| edges.push(message(threads, m, u.object));
                    self.channels.record(at, time, &u, catalog, found);
                }
            }
            Kind::Spawn { child } => self.spawn(e.thread, child, time, catalog),
            Kind::Exit { status } => t.exited = Some((time, status)),
            Kind::Exec => self.execs.push((e.thread, time)),
            Kind::Signal { target, signal } => {
                self.signals.push(SignalFact { time, from: e.thread, to: target, signal });
            }
            Kind::Work(w) => self.work(e.thread, time, &w, catalog),
            Kind::DataFlag { object, value, write, stack } => {
                self.flags.push(FlagAccess { time, thread: e.thread, object, value, write, stack });
                self.flag(e.thread, object, write, stack, time);
            }
            _ => {}
        }
    }

    fn spawn(&mut self, parent: ThreadId, child: ThreadId, time: Ns, catalog: &Catalog) {
        let from = self.current(parent);
        let Some(c) = self.threads.get_mut(child.index()) else {
            self.culled.foreign += 1;
            return;
        };
        // Seen before it was created: an id reused by mistake, or damage. Believe what was seen.
        if !c.rows.is_empty() {
            return;
        }
        c.begin(child, Some(time), time, catalog);
        c.number_last(&mut self.numbers);
        self.edges.push(EdgeRow {
            from: number_of(&self.threads, from),
            to: number_of(&self.threads, Segment { thread: child, index: 0 }),
            from_time: time,
            to_time: time,
            object: ObjectId::NONE,
            stack: StackId::NONE,
            syscall: Sysno::NONE,
            kind: EdgeKind::Spawn,
            weak: None,
            waking: true,
        });
    }

    fn flag(&mut self, thread: ThreadId, object: ObjectId, write: bool, stack: StackId, time: Ns) {
        let at = self.current(thread);
        if write {
            self.written.insert(object, (at, time));
            return;
        }
        let Some((from, from_time)) = self.written.get(&object).copied().filter(|w| w.0.thread != thread)
        else {
            return;
        };
        // A loop reads it a thousand times over: what it had read before is no news.
        if self.flag_read.insert((object, thread), from_time) != Some(from_time) {
            self.edges.push(EdgeRow {
                from: number_of(&self.threads, from),
                to: number_of(&self.threads, at),
                from_time: from_time.min(time),
                to_time: time,
                object,
                stack,
                syscall: Sysno::NONE,
                kind: EdgeKind::DataFlag,
                weak: None,
                waking: false,
            });
        }
    }
}

/// The vertex of a segment, by the number it has until the graph is frozen.
fn number_of(threads: &[ThreadState], s: Segment) -> VertexId {
    let row = threads.get(s.thread.index()).and_then(|t| t.rows.get(s.index as usize));
    VertexId(row.map_or(u32::MAX, |r| r.number))
}

fn message(threads: &[ThreadState], m: Match, object: ObjectId) -> EdgeRow {
    EdgeRow {
        from: number_of(threads, m.from),
        to: number_of(threads, m.to),
        from_time: m.from_time,
        to_time: m.to_time,
        object,
        stack: StackId::NONE,
        syscall: Sysno::NONE,
        kind: EdgeKind::Ipc,
        weak: None,
        waking: false,
    }
}
