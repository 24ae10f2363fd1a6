//! A part of a recording as a recording of its own: times from 0, ids from 0, and no row that no event of it
//! refers to.

use super::rows::Rows;
use pg_event::{
    CatalogDelta, Event, Frame, FrameId, Kind, ModuleId, Ns, Object, ObjectId, Process, ProcessId, Stack,
    StackId, Thread, ThreadId, Trace, TraceId, UnitTypeId,
};
use std::collections::HashMap;

/// New ids of one table, given in the order of first use.
#[derive(Default)]
struct Table {
    new: HashMap<u32, u32>,
    old: Vec<u32>,
}

impl Table {
    fn id(&mut self, old: u32) -> u32 {
        if old == u32::MAX {
            return old;
        }
        *self.new.entry(old).or_insert_with(|| {
            self.old.push(old);
            self.old.len() as u32 - 1
        })
    }
}

/// Translates events and rows.
pub(super) struct Excerpt {
    base: Ns,
    threads: Table,
    processes: Table,
    objects: Table,
    stacks: Table,
    frames: Table,
    modules: Table,
    traces: Table,
    unit_types: Table,
}

impl Excerpt {
    /// Of what came after `base`.
    pub(super) fn new(base: Ns) -> Self {
        let table = Table::default;
        Self {
            base,
            threads: table(),
            processes: table(),
            objects: table(),
            stacks: table(),
            frames: table(),
            modules: table(),
            traces: table(),
            unit_types: table(),
        }
    }

    /// A moment.
    pub(super) fn time(&self, t: Ns) -> Ns {
        t.saturating_sub(self.base)
    }

    /// A thread's new id.
    pub(super) fn thread(&mut self, id: ThreadId) -> ThreadId {
        ThreadId(self.threads.id(id.0))
    }

    fn object(&mut self, id: ObjectId) -> ObjectId {
        ObjectId(self.objects.id(id.0))
    }

    fn stack(&mut self, id: StackId) -> StackId {
        StackId(self.stacks.id(id.0))
    }

    fn unit_type(&mut self, id: UnitTypeId) -> UnitTypeId {
        UnitTypeId(self.unit_types.id(id.0))
    }

    /// An event.
    pub(super) fn event(&mut self, e: &mut Event) {
        e.time = self.time(e.time);
        e.thread = self.thread(e.thread);
        match &mut e.kind {
            Kind::OffCpu(o) => {
                o.begun_before |= o.start < self.base;
                o.start = self.time(o.start);
                // 0 says that nobody woke it.
                o.woken = if o.woken == 0 { 0 } else { self.time(o.woken).max(1) };
                o.object = self.object(o.object);
                o.waker = self.thread(o.waker);
                o.waker_object = self.object(o.waker_object);
                o.user_stack = self.stack(o.user_stack);
                o.kernel_stack = self.stack(o.kernel_stack);
                o.waker_stack = self.stack(o.waker_stack);
            }
            Kind::Ipc(i) => {
                i.first = self.time(i.first);
                i.object = self.object(i.object);
            }
            Kind::Syscall(s) => {
                s.start = self.time(s.start);
                s.object = self.object(s.object);
            }
            Kind::Sample(s) => {
                s.user_stack = self.stack(s.user_stack);
                s.kernel_stack = self.stack(s.kernel_stack);
            }
            Kind::Spawn { child } => *child = self.thread(*child),
            Kind::Signal { target, .. } => *target = self.thread(*target),
            Kind::Hold(h) => {
                h.subject = self.thread(h.subject);
                h.object = self.object(h.object);
            }
            Kind::Unserved(u) => {
                (u.since, u.until) = (self.time(u.since), self.time(u.until));
                u.object = self.object(u.object);
            }
            Kind::Work(w) => {
                w.queued = if w.queued == 0 { 0 } else { self.time(w.queued) };
                w.requester = self.thread(w.requester);
                w.object = self.object(w.object);
            }
            Kind::DataFlag { object, stack, .. } => {
                *object = self.object(*object);
                *stack = self.stack(*stack);
            }
            Kind::Burst(b) => {
                b.start = self.time(b.start);
                b.trace = TraceId(self.traces.id(b.trace.0));
            }
            Kind::UnitBoundary { unit_type, .. } => *unit_type = self.unit_type(*unit_type),
            Kind::Violation(v) => {
                v.start = self.time(v.start);
                v.unit_type = self.unit_type(v.unit_type);
                v.user_stack = self.stack(v.user_stack);
                v.kernel_stack = self.stack(v.kernel_stack);
            }
            Kind::Unheard { since } | Kind::Lost { since, .. } => *since = self.time(*since),
            _ => {}
        }
    }

    /// The rows that what was translated so far refers to.
    pub(super) fn catalog(&mut self, c: &Rows) -> CatalogDelta {
        let mut d = CatalogDelta::default();
        for i in 0..self.threads.old.len() {
            let Some(t) = c.thread(ThreadId(self.threads.old[i])) else { continue };
            let process = ProcessId(self.processes.id(t.process.0));
            let row =
                Thread { process, start: self.time(t.start), end: t.end.map(|e| self.time(e)), ..t.clone() };
            d.threads.push((ThreadId(i as u32), row));
        }
        // Parents are added behind as their children are looked at.
        let mut i = 0;
        while let Some(&old) = self.processes.old.get(i) {
            if let Some(p) = c.process(ProcessId(old)) {
                let parent = ProcessId(self.processes.id(p.parent.0));
                let mut row = Process { parent, ..p.clone() };
                row.start = self.time(p.start);
                row.age =
                    p.age.saturating_add(if row.start == 0 { self.base.saturating_sub(p.start) } else { 0 });
                row.end = p.end.map(|e| self.time(e));
                row.cmdlines.iter_mut().for_each(|l| l.time = self.time(l.time));
                d.processes.push((ProcessId(i as u32), row));
            }
            i += 1;
        }
        let mut i = 0;
        while let Some(&old) = self.objects.old.get(i) {
            if let Some(o) = c.object(ObjectId(old)) {
                let members = o.members.iter().map(|m| self.object(*m)).collect();
                d.objects.push((ObjectId(i as u32), Object { members, ..o.clone() }));
            }
            i += 1;
        }
        for i in 0..self.traces.old.len() {
            let Some(t) = c.trace(TraceId(self.traces.old[i])) else { continue };
            let mut row = Trace { stack: self.stack(t.stack), ..t.clone() };
            row.code.iter_mut().for_each(|i| i.frame = FrameId(self.frames.id(i.frame.0)));
            d.traces.push((TraceId(i as u32), row));
        }
        for i in 0..self.stacks.old.len() {
            let Some(s) = c.stack(StackId(self.stacks.old[i])) else { continue };
            let frames = s.frames.iter().map(|f| FrameId(self.frames.id(f.0))).collect();
            d.stacks.push((StackId(i as u32), Stack { frames, ..s.clone() }));
        }
        for i in 0..self.frames.old.len() {
            let Some(f) = c.frame(FrameId(self.frames.old[i])) else { continue };
            let module = ModuleId(self.modules.id(f.module.0));
            d.frames.push((FrameId(i as u32), Frame { module, ..f.clone() }));
            d.turns.extend(c.turn(FrameId(self.frames.old[i])).map(|t| (FrameId(i as u32), t.clone())));
        }
        for (i, old) in self.modules.old.iter().enumerate() {
            let Some(m) = c.module(ModuleId(*old)) else { continue };
            d.modules.push((ModuleId(i as u32), m.clone()));
        }
        for (i, old) in self.unit_types.old.iter().enumerate() {
            let Some(t) = c.unit_type(UnitTypeId(*old)) else { continue };
            d.unit_types.push((UnitTypeId(i as u32), t.clone()));
        }
        d
    }
}
