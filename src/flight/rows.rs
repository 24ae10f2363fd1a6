//! The catalogue of a window: rows by their ids, of which those leave that no event of the window names and no
//! later one will.

use pg_event::{
    Catalog, CatalogDelta, Event, Forgotten, Frame, FrameId, Kind, LoopTurn, Module, ModuleId, Ns, Object,
    ObjectId, Process, ProcessId, Stack, StackId, Thread, ThreadId, Trace, TraceId, UnitTypeId, UnitTypeRow,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Events may come this much later than a row was forgotten that they name, ns: they are put in order first.
const LATE: Ns = 5_000_000_000;

/// Rows by id.
#[derive(Clone, Default, Debug)]
pub struct Rows {
    threads: HashMap<ThreadId, Thread>,
    processes: HashMap<ProcessId, Process>,
    objects: HashMap<ObjectId, Object>,
    stacks: HashMap<StackId, Stack>,
    frames: HashMap<FrameId, Frame>,
    turns: HashMap<FrameId, LoopTurn>,
    modules: HashMap<ModuleId, Module>,
    traces: HashMap<TraceId, Trace>,
    unit_types: HashMap<UnitTypeId, UnitTypeRow>,
    /// Ids of frames that have come count up to here.
    frames_given: u32,
    /// What the source does not name any more since a time.
    forgotten: VecDeque<(Ns, Forgotten)>,
}

/// What events name.
#[derive(Default)]
struct Used {
    threads: HashSet<ThreadId>,
    processes: HashSet<ProcessId>,
    objects: HashSet<ObjectId>,
    stacks: HashSet<StackId>,
    frames: HashSet<FrameId>,
}

fn leave<I: Copy + Eq + Hash, T>(
    rows: &mut HashMap<I, T>,
    ids: Vec<I>,
    used: &HashSet<I>,
    kept: &mut Vec<I>,
) {
    for id in ids {
        if used.contains(&id) {
            kept.push(id);
        } else {
            rows.remove(&id);
        }
    }
}

impl Rows {
    /// Take over rows at `now`.
    pub(super) fn apply(&mut self, d: CatalogDelta, now: Ns) {
        self.threads.extend(d.threads);
        self.processes.extend(d.processes);
        self.objects.extend(d.objects);
        self.stacks.extend(d.stacks);
        for (id, frame) in d.frames {
            // A name can come later than its frame has left.
            if id.0 >= self.frames_given || self.frames.contains_key(&id) {
                self.frames_given = self.frames_given.max(id.0.saturating_add(1));
                self.frames.insert(id, frame);
            }
        }
        self.turns.extend(d.turns.into_iter().filter(|t| self.frames.contains_key(&t.0)));
        self.modules.extend(d.modules);
        self.traces.extend(d.traces);
        self.unit_types.extend(d.unit_types);
        if !d.forgotten.is_empty() {
            self.forgotten.push_back((now, d.forgotten));
        }
    }

    /// Is there anything to let go when the window begins at `from`?
    pub(super) fn is_due(&self, from: Ns) -> bool {
        self.forgotten.front().is_some_and(|(at, _)| at.saturating_add(LATE) < from)
    }

    /// The window begins at `from` now, and still has `used`, which began before.
    pub(super) fn let_go(&mut self, from: Ns, used: &[Event]) {
        let used = self.used(used);
        let mut kept = Forgotten::default();
        while self.is_due(from) {
            let Some((_, f)) = self.forgotten.pop_front() else { break };
            leave(&mut self.threads, f.threads, &used.threads, &mut kept.threads);
            leave(&mut self.processes, f.processes, &used.processes, &mut kept.processes);
            leave(&mut self.objects, f.objects, &used.objects, &mut kept.objects);
            leave(&mut self.stacks, f.stacks, &used.stacks, &mut kept.stacks);
            leave(&mut self.frames, f.frames, &used.frames, &mut kept.frames);
            self.turns.retain(|id, _| self.frames.contains_key(id));
        }
        if !kept.is_empty() {
            self.forgotten.push_back((from, kept));
        }
    }

    fn used(&self, events: &[Event]) -> Used {
        let mut used = Used::default();
        for e in events {
            used.threads.insert(e.thread);
            let stacks = match &e.kind {
                Kind::OffCpu(o) => {
                    used.threads.insert(o.waker);
                    used.objects.extend([o.object, o.waker_object]);
                    [o.user_stack, o.kernel_stack, o.waker_stack]
                }
                Kind::Hold(h) => {
                    used.threads.insert(h.subject);
                    used.objects.insert(h.object);
                    continue;
                }
                // The third stack is none.
                Kind::Violation(v) => [v.user_stack, v.kernel_stack, StackId::NONE],
                Kind::Unserved(u) => {
                    used.objects.insert(u.object);
                    continue;
                }
                _ => continue,
            };
            used.stacks.extend(stacks);
            used.frames.extend(stacks.iter().filter_map(|s| self.stack(*s)).flat_map(|s| &s.frames));
        }
        used.processes = used.threads.iter().filter_map(|t| self.thread(*t)).map(|t| t.process).collect();
        let members = used.objects.iter().filter_map(|o| self.object(*o)).flat_map(|o| o.members.clone());
        used.objects.extend(members.collect::<Vec<_>>());
        used
    }

    /// The thread, if it is there.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(&id)
    }

    /// All threads, in order.
    pub fn threads(&self) -> Vec<(ThreadId, &Thread)> {
        let mut all: Vec<_> = self.threads.iter().map(|(id, t)| (*id, t)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// All processes, in order.
    pub fn processes(&self) -> Vec<(ProcessId, &Process)> {
        let mut all: Vec<_> = self.processes.iter().map(|(id, p)| (*id, p)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// The process, if it is there.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    /// The object, if it is there.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// The stack, if it is there.
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        self.stacks.get(&id)
    }

    /// The frame, if it is there.
    pub fn frame(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get(&id)
    }

    /// What the loop around it does, if that was looked into.
    pub fn turn(&self, id: FrameId) -> Option<&LoopTurn> {
        self.turns.get(&id)
    }

    /// The module, if it is there.
    pub fn module(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(&id)
    }

    /// The trace, if it is there.
    pub fn trace(&self, id: TraceId) -> Option<&Trace> {
        self.traces.get(&id)
    }

    /// The type of units, if it is there.
    pub fn unit_type(&self, id: UnitTypeId) -> Option<&UnitTypeRow> {
        self.unit_types.get(&id)
    }

    /// How many rows there are: threads, processes, objects, stacks, frames.
    pub fn counts(&self) -> [usize; 5] {
        [self.threads.len(), self.processes.len(), self.objects.len(), self.stacks.len(), self.frames.len()]
    }

    /// A thread with its process and an object as a catalogue of their own, for sentences: there they have the
    /// number 0.
    pub(super) fn about(&self, thread: ThreadId, object: ObjectId) -> Catalog {
        let thread = self.thread(thread).cloned();
        let process = thread.as_ref().and_then(|t| self.process(t.process)).cloned();
        Catalog {
            threads: thread.map(|t| Thread { process: ProcessId(0), ..t }).into_iter().collect(),
            processes: process.map(|p| Process { parent: ProcessId::NONE, ..p }).into_iter().collect(),
            objects: self.object(object).cloned().into_iter().collect(),
            ..Catalog::default()
        }
    }
}
