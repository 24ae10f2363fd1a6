//! The event graph: vertices, edges and the facts around them in compact columns, frozen after building.

use crate::columns::{BEGUN_BEFORE, Detail, EdgeRow, INTERRUPTED, OPEN, TIMED_OUT, ThreadRows, Times};
use crate::facts::{At, CullCounts, HoldFact, MarkFact, SamplePoint, SignalFact, WorkFact};
use crate::flag::Flags;
use crate::lane::LaneIndex;
use crate::retries::Retries;
use crate::unseen;
use crate::{Edge, EdgeId, Vertex, VertexId, Weak};
use pg_event::{Catalog, IpcUse, Ns, ObjectId, OffState, ProcessId, StackId, SyscallUse, Sysno, ThreadId};
use std::collections::HashMap;
use std::ops::Range;

/// Vertices, edges and the facts around them. Frozen: made by a [`crate::Builder`], then only read.
///
/// Vertices of one thread are neighbours in order of time, so program order needs no edges of its own.
#[derive(Debug, Default)]
pub struct EventGraph {
    pub(crate) times: Vec<Times>,
    pub(crate) details: Vec<Detail>,
    pub(crate) edges: Vec<EdgeRow>,
    /// `in_start[v]..in_start[v + 1]` are the edges into `v`.
    pub(crate) in_start: Vec<u32>,
    /// `out_start[v]..out_start[v + 1]` index `out`.
    pub(crate) out_start: Vec<u32>,
    pub(crate) out: Vec<EdgeId>,
    pub(crate) threads: Vec<ThreadRows>,
    pub(crate) holds: Vec<HoldFact>,
    /// One for each reader of a lock that `subject` wanted to write; the holder says nothing.
    pub(crate) readers: Vec<HoldFact>,
    /// Who has the same memory mapped as a thread, which it may wait for there; the thread itself: no other process.
    pub(crate) mapped: Vec<HoldFact>,
    /// Who made or removed files that loops asked for, by file and time.
    pub(crate) changed: Vec<HoldFact>,
    /// By thread and start.
    pub(crate) bursts: Vec<crate::BurstFact>,
    pub(crate) signals: Vec<SignalFact>,
    /// By worker and time.
    pub(crate) works: Vec<WorkFact>,
    pub(crate) flags: Flags,
    pub(crate) marks: Vec<MarkFact>,
    /// By begin.
    pub(crate) unserved: Vec<crate::UnservedFact>,
    /// By thread and begin.
    pub(crate) units: Vec<crate::UnitFact>,
    /// By time.
    pub(crate) violations: Vec<crate::ViolationFact>,
    /// By time.
    pub(crate) withdrawn: Vec<crate::WithdrawnFact>,
    /// By thread and begin of such a unit: where it was seen.
    pub(crate) moments: HashMap<(ThreadId, Ns), Vec<crate::Moment>>,
    /// See [`EventGraph::recorded`].
    pub(crate) recorded: std::sync::OnceLock<Box<crate::transactions::Recorded>>,
    pub(crate) normal_units: HashMap<pg_event::UnitTypeId, crate::NormalUnit>,
    pub(crate) execs: Vec<(ThreadId, Ns)>,
    pub(crate) lost: Vec<(Ns, Ns)>,
    /// Spans in which messages were not recorded, disjoint and by time.
    pub(crate) unheard: Vec<(Ns, Ns)>,
    /// By thread and time: see [`EventGraph::unseen`].
    pub(crate) unseen: Vec<(ThreadId, Ns, Ns)>,
    pub(crate) duration: Ns,
    /// CPUs that events name.
    pub(crate) cpus: u32,
    /// As in [`crate::BuildOptions::partial`].
    pub(crate) partial: bool,
    pub(crate) events: u64,
    pub(crate) culled: CullCounts,
    pub(crate) lanes: LaneIndex,
    /// By thread and time.
    pub(crate) retries: Vec<Retries>,
    /// Threads that have a vertex: a long recording has tens of thousands, and is asked for each wait.
    pub(crate) by_process: HashMap<ProcessId, Vec<ThreadId>>,
}

impl EventGraph {
    /// How many vertices.
    pub fn vertex_count(&self) -> usize {
        self.times.len()
    }

    /// How many edges, program order not counted.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// How many events it was made of.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Length of the recording, ns.
    pub fn duration(&self) -> Ns {
        self.duration
    }

    /// Wake-ups that made no edge.
    pub fn culled(&self) -> CullCounts {
        self.culled
    }

    /// A vertex. An id that is not of this graph gives an empty vertex of no thread.
    pub fn vertex(&self, v: VertexId) -> Vertex {
        let (Some(t), Some(d)) = (self.times.get(v.index()), self.details.get(v.index())) else {
            return Vertex {
                thread: ThreadId::NONE,
                start: 0,
                woken: 0,
                run: 0,
                end: 0,
                preempted: 0,
                unseen: 0,
                state: OffState::Runnable,
                open: false,
                begun_before: false,
                timed_out: false,
                interrupted: false,
                split: None,
                syscall: Sysno::NONE,
                op: 0,
                value: 0,
                timeout: 0,
                object: ObjectId::NONE,
                user_stack: StackId::NONE,
                kernel_stack: StackId::NONE,
            };
        };
        let end = self.end_of(v);
        let long = end.saturating_sub(t.run) >= unseen::LEAST;
        Vertex {
            thread: d.thread,
            start: t.start,
            woken: t.woken,
            run: t.run,
            end,
            preempted: d.preempted,
            unseen: if long {
                self.unseen(d.thread, t.run..end).map(|(a, b)| b.saturating_sub(a)).sum()
            } else {
                0
            },
            state: d.state,
            open: d.flags & OPEN != 0,
            begun_before: d.flags & BEGUN_BEFORE != 0,
            timed_out: d.flags & TIMED_OUT != 0,
            interrupted: d.flags & INTERRUPTED != 0,
            split: crate::builder::split_reason(d.flags),
            syscall: d.syscall,
            op: d.op,
            value: d.value,
            timeout: d.timeout,
            object: d.object,
            user_stack: d.user_stack,
            kernel_stack: d.kernel_stack,
        }
    }

    /// End of a vertex: where the next one of its thread starts.
    fn end_of(&self, v: VertexId) -> Ns {
        let rows = self.rows(self.details[v.index()].thread);
        if v.0 + 1 < rows.vertices.end { self.times[v.index() + 1].start } else { rows.end }
    }

    pub(crate) fn rows(&self, t: ThreadId) -> &ThreadRows {
        static NOTHING: ThreadRows = ThreadRows {
            vertices: 0..0,
            put_off: Vec::new(),
            cpus: Vec::new(),
            yields: Vec::new(),
            samples: Vec::new(),
            ipc: Vec::new(),
            syscalls: Vec::new(),
            end: 0,
            exited: None,
        };
        self.threads.get(t.index()).unwrap_or(&NOTHING)
    }

    /// An edge.
    ///
    /// # Panics
    /// When the id is not of this graph.
    pub fn edge(&self, e: EdgeId) -> Edge {
        let r = &self.edges[e.index()];
        Edge {
            from: r.from,
            from_time: r.from_time,
            to: r.to,
            to_time: r.to_time,
            kind: r.kind,
            weak: r.weak,
            object: r.object,
        }
    }

    /// User stack of the waker when it woke, if it was taken.
    pub fn edge_stack(&self, e: EdgeId) -> StackId {
        self.edges.get(e.index()).map_or(StackId::NONE, |r| r.stack)
    }

    /// System call the waker was in.
    pub fn edge_syscall(&self, e: EdgeId) -> Sysno {
        self.edges.get(e.index()).map_or(Sysno::NONE, |r| r.syscall)
    }

    /// All edges.
    pub fn edges(&self) -> impl DoubleEndedIterator<Item = EdgeId> + ExactSizeIterator + use<> {
        (0..self.edges.len() as u32).map(EdgeId)
    }

    /// All vertices, thread by thread.
    pub fn vertices(&self) -> impl DoubleEndedIterator<Item = VertexId> + ExactSizeIterator + use<> {
        (0..self.times.len() as u32).map(VertexId)
    }

    /// All threads that have a vertex, by id.
    pub fn threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        let present = |(_, r): &(usize, &ThreadRows)| !r.vertices.is_empty();
        self.threads.iter().enumerate().filter(present).map(|(i, _)| ThreadId(i as u32))
    }

    /// The vertices of a thread in order of time.
    pub fn vertices_of(
        &self,
        t: ThreadId,
    ) -> impl DoubleEndedIterator<Item = VertexId> + ExactSizeIterator + use<> {
        self.rows(t).vertices.clone().map(VertexId)
    }

    /// The vertex of a thread that covers `time`; `None` before its first moment and after its end.
    /// At the very end of the thread it is the last one.
    pub fn vertex_at(&self, t: ThreadId, time: Ns) -> Option<VertexId> {
        let rows = self.rows(t);
        let own = self.times_of(t);
        if own.is_empty() || time < own[0].start || time > rows.end {
            return None;
        }
        let i = own.partition_point(|x| x.start <= time) - 1;
        Some(VertexId(rows.vertices.start + i as u32))
    }

    /// The vertices of a thread that overlap a span of time.
    pub fn vertices_in(
        &self,
        t: ThreadId,
        span: Range<Ns>,
    ) -> impl DoubleEndedIterator<Item = VertexId> + ExactSizeIterator + use<> {
        let rows = self.rows(t);
        let own = self.times_of(t);
        let first = rows.vertices.start;
        let to = own.partition_point(|x| x.start < span.end) as u32;
        let from = (own.partition_point(|x| x.start <= span.start) as u32).saturating_sub(1).min(to);
        let from = if span.start >= rows.end { to } else { from };
        (first + from..first + to).map(VertexId)
    }

    pub(crate) fn times_of(&self, t: ThreadId) -> &[Times] {
        let r = self.rows(t).vertices.clone();
        &self.times[r.start as usize..r.end as usize]
    }

    /// The vertex before, on the same thread.
    pub fn previous(&self, v: VertexId) -> Option<VertexId> {
        let d = self.details.get(v.index())?;
        (v.0 > self.rows(d.thread).vertices.start).then(|| VertexId(v.0 - 1))
    }

    /// The vertex after, on the same thread.
    pub fn next(&self, v: VertexId) -> Option<VertexId> {
        let d = self.details.get(v.index())?;
        (v.0 + 1 < self.rows(d.thread).vertices.end).then(|| VertexId(v.0 + 1))
    }

    /// Edges into a vertex: first the one that ended its leading wait, then by time.
    pub fn incoming(
        &self,
        v: VertexId,
    ) -> impl DoubleEndedIterator<Item = EdgeId> + ExactSizeIterator + use<> {
        let at = |i: usize| self.in_start.get(i).copied().unwrap_or(0);
        let (a, b) = (at(v.index()), at(v.index() + 1));
        (a..b.max(a)).map(EdgeId)
    }

    /// Edges out of a vertex, by time.
    pub fn outgoing(&self, v: VertexId) -> impl DoubleEndedIterator<Item = EdgeId> + ExactSizeIterator + '_ {
        let at = |i: usize| self.out_start.get(i).copied().unwrap_or(0) as usize;
        let (a, b) = (at(v.index()), at(v.index() + 1));
        self.out[a..b.max(a)].iter().copied()
    }

    /// How weak is the way through a vertex, in by one edge and out by another one of it? `None`: strong. Of requests
    /// that were taken and answered together ([`Weak::Together`]) each is strong for the answer to its own sender.
    ///
    /// # Panics
    /// When an id is not of this graph.
    pub fn way(&self, into: EdgeId, out: EdgeId, catalog: &Catalog) -> Option<Weak> {
        let (a, b) = (self.edge(into), self.edge(out));
        let process = |v: VertexId| catalog.process_id_of(self.details[v.index()].thread);
        let own = a.weak == Some(Weak::Together) && process(a.from) == process(b.to);
        b.weak.or(a.weak.filter(|_| !own))
    }

    /// The edge that ended the leading wait of a vertex, or created its thread.
    pub fn waking(&self, v: VertexId) -> Option<EdgeId> {
        self.incoming(v).next().filter(|e| self.edges[e.index()].waking)
    }

    /// When a thread was first seen or created; `None` for a thread without vertices.
    pub fn began(&self, t: ThreadId) -> Option<Ns> {
        self.times_of(t).first().map(|x| x.start)
    }

    /// End of the last vertex of a thread.
    pub fn ended(&self, t: ThreadId) -> Option<Ns> {
        let r = self.rows(t);
        (!r.vertices.is_empty()).then_some(r.end)
    }

    /// When and with what status (as of wait(2)) a thread exited, if it did while recorded; at 0, with [`NO_STATUS`],
    /// one that ended before and still holds something.
    pub fn exited(&self, t: ThreadId) -> Option<(Ns, u32)> {
        self.rows(t).exited
    }

    /// The on-CPU samples of a thread within a span, by time.
    pub fn samples_of(&self, t: ThreadId, span: Range<Ns>) -> &[SamplePoint] {
        within(&self.rows(t).samples, span, |s| s.time)
    }

    /// When a thread gave up the CPU by itself (sched_yield) while others wanted it, within a span, by time.
    pub fn yields_of(&self, t: ThreadId, span: Range<Ns>) -> &[Ns] {
        within(&self.rows(t).yields, span, |s| *s)
    }

    /// The messages of a thread whose last one lies within a span, by time.
    pub fn ipc_of(&self, t: ThreadId, span: Range<Ns>) -> &[At<IpcUse>] {
        within(&self.rows(t).ipc, span, |s| s.time)
    }

    /// The recorded system calls of a thread that returned within a span, by time.
    pub fn syscalls_of(&self, t: ThreadId, span: Range<Ns>) -> &[At<SyscallUse>] {
        within(&self.rows(t).syscalls, span, |s| s.time)
    }

    /// Who was found to hold, within a span, what a thread waited for. A wait that began before the span may have been
    /// looked at before it: what was found then counts where nothing was found since.
    pub fn holds(&self, subject: ThreadId, span: Range<Ns>) -> impl Iterator<Item = HoldFact> + '_ {
        let from = |time: Ns| self.holds.partition_point(|h| (h.subject, h.time) < (subject, time));
        let within =
            |i: &usize| self.holds.get(*i).is_some_and(|h| h.subject == subject && h.time < span.end);
        let from = Some(from(span.start)).filter(within).unwrap_or_else(|| {
            let v = self.vertex_at(subject, span.start).map(|v| self.vertex(v));
            let same = v.filter(|v| v.start < span.start && span.start < v.woken);
            from(same.map_or(span.start, |v| v.start))
        });
        self.holds[from..].iter().copied().take_while(move |h| h.subject == subject && h.time < span.end)
    }

    /// How many readers had the lock that a thread waited to write, as read last within a span, and when; the C library
    /// does not write down who. Nothing when it did not wait for readers, or that was not looked up.
    pub fn readers(&self, subject: ThreadId, span: Range<Ns>) -> Option<(Ns, usize)> {
        let from = self.readers.partition_point(|h| (h.subject, h.time) < (subject, span.start));
        let own = || self.readers[from..].iter().take_while(|h| h.subject == subject && h.time < span.end);
        let last = own().map(|h| h.time).max()?;
        Some((last, own().filter(|h| h.time == last).count()))
    }

    /// Who had the same memory mapped as a thread, as it was found last within a span; the thread itself stands for nobody who
    /// could write there, beside others only that wait for the same word.
    pub fn sharers(&self, subject: ThreadId, span: Range<Ns>) -> &[HoldFact] {
        let to = self.mapped.partition_point(|h| (h.subject, h.time) < (subject, span.end));
        let last = self.mapped[..to].last().filter(|h| h.subject == subject && h.time >= span.start);
        let Some(last) = last else { return &[] };
        let from = self.mapped.partition_point(|h| (h.subject, h.time) < (subject, last.time));
        &self.mapped[from..to]
    }

    /// Who made a file that a loop asked for, or removed it, within a span, by time; `object` is as the loop names it.
    pub fn changed(&self, object: ObjectId, span: Range<Ns>) -> &[HoldFact] {
        let from = self.changed.partition_point(|h| (h.object, h.time) < (object, span.start));
        let to = self.changed.partition_point(|h| (h.object, h.time) < (object, span.end));
        &self.changed[from..to.max(from)]
    }

    /// Who made files that loops asked for, or removed them, by file and time.
    pub fn changed_files(&self) -> &[HoldFact] {
        &self.changed
    }

    /// What a thread was found to hold or to be the other end of, at any time.
    pub fn held_by(&self, holder: ThreadId) -> impl Iterator<Item = HoldFact> + '_ {
        self.holds.iter().copied().filter(move |h| h.holder == holder)
    }

    /// Signals sent, by time.
    pub fn signals(&self) -> &[SignalFact] {
        &self.signals
    }

    /// Marks set by the user, by time.
    pub fn marks(&self) -> &[MarkFact] {
        &self.marks
    }

    /// Connections that their owners did not serve, by when that began.
    pub fn unserved(&self) -> &[crate::UnservedFact] {
        &self.unserved
    }

    /// When threads replaced their program, by time.
    pub fn execs(&self) -> &[(ThreadId, Ns)] {
        &self.execs
    }

    /// Spans in which events were lost, disjoint and by time.
    pub fn lost(&self) -> &[(Ns, Ns)] {
        &self.lost
    }

    /// For how long of a span messages were not recorded, ns.
    pub fn unheard_within(&self, span: &Range<Ns>) -> Ns {
        let i = self.unheard.partition_point(|l| l.1 <= span.start);
        let within = self.unheard[i..].iter().take_while(|l| l.0 < span.end);
        within.map(|l| l.1.min(span.end) - l.0.max(span.start)).sum()
    }

    /// Were events lost within a span?
    pub fn lost_within(&self, span: &Range<Ns>) -> bool {
        let i = self.lost.partition_point(|l| l.1 <= span.start);
        self.lost.get(i).is_some_and(|l| l.0 < span.end)
    }

    /// Bytes that the columns take in memory.
    pub fn memory(&self) -> usize {
        fn bytes<T>(v: &Vec<T>) -> usize {
            v.capacity() * size_of::<T>()
        }
        let own = |t: &ThreadRows| {
            bytes(&t.put_off)
                + bytes(&t.cpus)
                + bytes(&t.yields)
                + bytes(&t.samples)
                + bytes(&t.ipc)
                + bytes(&t.syscalls)
        };
        bytes(&self.times)
            + bytes(&self.details)
            + bytes(&self.edges)
            + bytes(&self.in_start)
            + bytes(&self.out_start)
            + bytes(&self.out)
            + bytes(&self.threads)
            + self.threads.iter().map(own).sum::<usize>()
            + bytes(&self.units)
            + bytes(&self.violations)
            + bytes(&self.withdrawn)
            + self.by_process.values().map(bytes).sum::<usize>()
            + self.lanes.memory()
    }

    /// The threads of a process that have a vertex.
    pub fn threads_of(&self, process: ProcessId) -> impl Iterator<Item = ThreadId> + '_ {
        self.by_process.get(&process).map_or(&[][..], Vec::as_slice).iter().copied()
    }
}

fn within<T>(all: &[T], span: Range<Ns>, time: impl Fn(&T) -> Ns) -> &[T] {
    let from = all.partition_point(|x| time(x) < span.start);
    let to = all.partition_point(|x| time(x) < span.end).max(from);
    &all[from..to]
}
