//! Tiny drawn recordings: threads, what they wait on and who wakes them, in seconds.
#![allow(dead_code)] // Tests of the program draw with it, too, each with a part of it.

pub mod bus;
pub mod middle;

use pg_event::{
    Catalog, Cmdline, Context, Coverage, Direction, Display, Event, Frame, FrameId, Hold, IpcUse, Item, Kind,
    LoopTurn, Module, ModuleId, ModuleKind, Ns, Object, ObjectId, ObjectKind, OffCpu, OffState, Process,
    ProcessId, Relation, Sample, SeenBy, Stack, StackId, SyscallUse, Sysno, Thread, ThreadId, UnitTypeId,
    UnitTypeRow, Unserved, Violation, Work, syscall_number,
};
use pg_graph::report::Report;
use pg_graph::{
    BuildOptions, Builder, EventGraph, Options, Selection, VictimOptions, run_with_policy, select,
};

pub const S: f64 = 1e9;
/// A wait for a futex that only the thread's own process can wake (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG).
pub const PRIVATE_WAIT: u32 = 128 | 9;

pub fn ns(seconds: f64) -> Ns {
    (seconds * S) as Ns
}

#[derive(Default)]
pub struct Drawing {
    pub catalog: Catalog,
    events: Vec<Event>,
    end: f64,
    cpus: Vec<(ThreadId, u16)>,
}

/// A wait under construction.
pub struct Wait<'d> {
    drawing: &'d mut Drawing,
    thread: ThreadId,
    end: f64,
    off: OffCpu,
    queued: f64,
}

impl Drawing {
    pub fn new(end: f64) -> Self {
        Self { end, ..Self::default() }
    }

    /// A process with its main thread; `start` 0 means it was there before.
    pub fn process(&mut self, name: &str, cmdline: &str, parent: Option<ThreadId>, start: f64) -> ThreadId {
        let process = ProcessId(self.catalog.processes.len() as u32);
        let pid = 1000 + self.catalog.threads.len() as u32;
        let parent = parent.map_or(ProcessId::NONE, |t| self.catalog.threads[t.index()].process);
        self.catalog.processes.push(Process {
            pid,
            ns_pid: pid,
            parent,
            name: name.into(),
            exe: format!("/usr/bin/{name}"),
            cmdlines: vec![Cmdline { time: ns(start), text: cmdline.into() }],
            start: ns(start),
            focus: true,
            ..Process::default()
        });
        self.thread_of(process, pid, name, start)
    }

    /// A further thread of the same process.
    pub fn thread(&mut self, of: ThreadId, name: &str, start: f64) -> ThreadId {
        let tid = 1000 + self.catalog.threads.len() as u32;
        self.thread_of(self.catalog.threads[of.index()].process, tid, name, start)
    }

    fn thread_of(&mut self, process: ProcessId, tid: u32, name: &str, start: f64) -> ThreadId {
        let id = ThreadId(self.catalog.threads.len() as u32);
        self.catalog.threads.push(Thread {
            tid,
            ns_tid: tid,
            process,
            name: name.into(),
            start: ns(start),
            focus: true,
            ..Thread::default()
        });
        id
    }

    /// A thread of the kernel.
    pub fn kernel(&mut self, name: &str) -> ThreadId {
        let t = self.process(name, name, None, 0.0);
        self.catalog.threads[t.index()].kernel = true;
        let p = self.catalog.threads[t.index()].process;
        (self.catalog.processes[p.index()].kernel, self.catalog.processes[p.index()].focus) = (true, false);
        t
    }

    /// `worker` executes `function` at `at`, as `requester` had asked at `queued`.
    pub fn work(&mut self, worker: ThreadId, function: ObjectId, requester: ThreadId, queued: f64, at: f64) {
        let w = Work { object: function, requester, queued: ns(queued) };
        self.event(ns(at), worker, Kind::Work(w));
    }

    /// `owner` does not receive what came over `object` from `since` to `until`.
    pub fn unserved(
        &mut self,
        owner: ThreadId,
        object: ObjectId,
        (since, until): (f64, f64),
        display: Display,
    ) {
        let (since, until) = (ns(since), ns(until));
        let u = Unserved { object, since, until, bytes: 64, open: false, arrived: true, display };
        self.event(until, owner, Kind::Unserved(u));
    }

    /// A type of units that take `mean` and may take `threshold`, in seconds.
    pub fn unit_type(&mut self, name: &str, mean: f64, threshold: f64) -> UnitTypeId {
        self.catalog.unit_types.push(UnitTypeRow {
            name: name.into(),
            function: "serve".into(),
            module: "/usr/sbin/shopd".into(),
            offset: 0x4120,
            units: 1000,
            mean: ns(mean),
            sigma: ns((threshold - mean) / 4.0),
            threshold: ns(threshold),
            rule: "mean + 4 sigma".into(),
            histogram: vec![(ns(mean * 0.9), ns(mean), 600), (ns(mean), ns(mean * 1.1), 400)],
            ..UnitTypeRow::default()
        });
        UnitTypeId(self.catalog.unit_types.len() as u32 - 1)
    }

    /// What stands for units of no known type, and why it is not known.
    pub fn unknown_type(&mut self, why: &str) -> UnitTypeId {
        self.catalog.unit_types.push(UnitTypeRow { unknown: why.into(), ..UnitTypeRow::default() });
        UnitTypeId(self.catalog.unit_types.len() as u32 - 1)
    }

    /// A unit begins.
    pub fn unit_begins(&mut self, thread: ThreadId, at: f64) {
        self.event(ns(at), thread, Kind::UnitBoundary { unit_type: UnitTypeId::NONE, begin: true });
    }

    /// A unit of a type from `start` to `end`.
    pub fn unit(&mut self, thread: ThreadId, unit_type: UnitTypeId, (start, end): (f64, f64)) {
        self.unit_begins(thread, start);
        self.event(ns(end), thread, Kind::UnitBoundary { unit_type, begin: false });
    }

    /// At `seen` a unit that began at `start` takes too long; the innermost `depth` frames of `stack` are inside of
    /// its loop.
    pub fn violation(
        &mut self,
        thread: ThreadId,
        unit_type: UnitTypeId,
        (start, seen): (f64, f64),
        (stack, depth): (StackId, u32),
        at: SeenBy,
    ) {
        let threshold = self.catalog.unit_type(unit_type).map_or(ns(0.05), |t| t.threshold);
        let v = Violation {
            start: ns(start),
            elapsed: ns(seen - start),
            threshold,
            unit_type,
            user_stack: stack,
            kernel_stack: StackId::NONE,
            depth,
            at,
            stolen: 0,
        };
        self.event(ns(seen), thread, Kind::Violation(v));
    }

    pub fn object(&mut self, kind: ObjectKind, id: u64, peer: u64, name: &str) -> ObjectId {
        self.catalog.objects.push(Object { name: name.into(), ..Object::new(kind, id, peer) });
        ObjectId(self.catalog.objects.len() as u32 - 1)
    }

    pub fn set(&mut self, members: &[ObjectId]) -> ObjectId {
        let o = self.object(ObjectKind::Set, 0, 0, "");
        self.catalog.objects[o.index()].members = members.to_vec();
        o
    }

    /// Frames as `function (module)`, leaf first; as `function (file.py:line)` those of Python.
    pub fn stack(&mut self, frames: &[&str]) -> StackId {
        let mut ids = Vec::new();
        for f in frames {
            let (function, module) = f.rsplit_once(" (").unwrap();
            let module = module.trim_end_matches(')');
            let (file, line) = module.rsplit_once(':').map_or((module, 0), |(f, l)| (f, l.parse().unwrap()));
            let (kind, path) =
                (if line > 0 { ModuleKind::Python } else { ModuleKind::Elf }, format!("/usr/lib/{file}"));
            let m = self.catalog.modules.iter().position(|m| m.path == path).unwrap_or_else(|| {
                self.catalog.modules.push(Module { kind, path, ..Module::default() });
                self.catalog.modules.len() - 1
            });
            self.catalog.frames.push(Frame {
                module: ModuleId(m as u32),
                function: function.into(),
                line,
                ..Frame::default()
            });
            ids.push(FrameId(self.catalog.frames.len() as u32 - 1));
        }
        self.catalog.stacks.push(Stack { frames: ids, kernel: false, truncated: false });
        StackId(self.catalog.stacks.len() as u32 - 1)
    }

    /// The loop around the innermost place of a stack does this.
    pub fn loops(&mut self, stack: StackId, turn: LoopTurn) {
        let leaf = self.catalog.stacks[stack.index()].frames[0];
        self.catalog.frames[leaf.index()].address = 0x1000;
        self.catalog.turns.insert(leaf, turn);
    }

    pub fn event(&mut self, time: Ns, thread: ThreadId, kind: Kind) {
        let cpu = self.cpus.iter().find(|x| x.0 == thread).map_or(0, |x| x.1);
        self.events.push(Event { time, thread, cpu, kind });
    }

    /// From here on `thread` is seen on this CPU (without: on the first one).
    pub fn on_cpu(&mut self, thread: ThreadId, cpu: u16) {
        self.cpus.retain(|x| x.0 != thread);
        self.cpus.push((thread, cpu));
    }

    /// `thread` blocks from `start` to `end` in `call`.
    pub fn wait(&mut self, thread: ThreadId, start: f64, end: f64, call: &str) -> Wait<'_> {
        let mut off = OffCpu::new(ns(start), ns(end), OffState::Interruptible);
        off.syscall = syscall_number(call).unwrap();
        Wait { drawing: self, thread, end, off, queued: 0.000_001 }
    }

    /// Samples every 10 ms from `start` to `end`.
    pub fn runs(&mut self, thread: ThreadId, start: f64, end: f64, stack: StackId) {
        let mut t = ns(start);
        while t < ns(end) {
            let s = Sample { weight: 10_000_000, user_stack: stack, kernel_stack: StackId::NONE };
            self.event(t, thread, Kind::Sample(s));
            t += 10_000_000;
        }
    }

    /// `count` events were lost between `since` and `until`.
    pub fn lost(&mut self, since: f64, until: f64, count: u64) {
        self.event(ns(until), ThreadId::NONE, Kind::Lost { since: ns(since), count, ring: 0 });
    }

    /// Messages were not recorded between `since` and `until`.
    pub fn unheard(&mut self, since: f64, until: f64) {
        self.event(ns(until), ThreadId::NONE, Kind::Unheard { since: ns(since) });
    }

    /// A system call that returned `result` at `at`.
    pub fn call(&mut self, thread: ThreadId, at: f64, name: &str, object: ObjectId, result: i64) {
        let nr = syscall_number(name).unwrap();
        let u = SyscallUse { start: ns(at), nr, result, count: 1, op: 6, object };
        self.event(ns(at), thread, Kind::Syscall(u));
    }

    /// A `kill(pid, 0)` that returned `result` at `at`.
    pub fn asks_for(&mut self, thread: ThreadId, at: f64, pid: u32, result: i64) {
        let nr = syscall_number("kill").unwrap();
        let u = SyscallUse { start: ns(at), nr, result, count: 1, op: pid, object: ObjectId::NONE };
        self.event(ns(at), thread, Kind::Syscall(u));
    }

    /// An access to a data flag.
    pub fn flag(
        &mut self,
        thread: ThreadId,
        object: ObjectId,
        at: f64,
        value: u64,
        write: bool,
        stack: StackId,
    ) {
        self.event(ns(at), thread, Kind::DataFlag { object, value, write, stack });
    }

    /// `thread` could run from `start` to `end` and had no CPU.
    pub fn put_off(&mut self, thread: ThreadId, start: f64, end: f64) {
        let off = OffCpu::new(ns(start), ns(start), OffState::Runnable);
        self.event(ns(end), thread, Kind::OffCpu(off));
    }

    /// Short sleeps one after another from `start` to `end`.
    pub fn naps(&mut self, thread: ThreadId, start: f64, end: f64, each: f64, stack: StackId) {
        let mut t = start;
        while t + each <= end {
            self.wait(thread, t, t + each, "clock_nanosleep").stack(stack).times_out();
            t += each + 0.000_1;
        }
    }

    pub fn spawn(&mut self, parent: ThreadId, child: ThreadId, at: f64) {
        self.event(ns(at), parent, Kind::Spawn { child });
    }

    pub fn signal(&mut self, from: ThreadId, to: ThreadId, signal: u8, at: f64) {
        self.event(ns(at), from, Kind::Signal { target: to, signal });
    }

    pub fn exit(&mut self, thread: ThreadId, at: f64) {
        self.event(ns(at), thread, Kind::Exit { status: 0 });
    }

    pub fn message(&mut self, thread: ThreadId, object: ObjectId, direction: Direction, at: f64, bytes: u64) {
        self.message_told(thread, object, direction, (at, at), bytes);
    }

    /// One message, and when its record was written.
    pub fn message_told(
        &mut self,
        thread: ThreadId,
        object: ObjectId,
        direction: Direction,
        (at, told): (f64, f64),
        bytes: u64,
    ) {
        let m = IpcUse { object, direction, count: 1, bytes, first: ns(at), position: 0 };
        self.event(ns(told), thread, Kind::Ipc(m));
    }

    pub fn hold(
        &mut self,
        holder: ThreadId,
        subject: ThreadId,
        object: ObjectId,
        relation: Relation,
        at: f64,
    ) {
        self.event(ns(at), holder, Kind::Hold(Hold { object, subject, relation }));
    }

    /// As a recording brings it.
    pub fn items(mut self) -> Vec<Item> {
        self.events.sort_by_key(|e| e.time);
        let end = Item::End { duration: ns(self.end), coverage: Coverage::default() };
        vec![Item::Catalog(self.catalog.into()), Item::Events(self.events), end]
    }

    pub fn build(self) -> (EventGraph, Catalog) {
        self.build_with(BuildOptions::default())
    }

    pub fn build_with(mut self, options: BuildOptions) -> (EventGraph, Catalog) {
        self.events.sort_by_key(|e| e.time);
        let mut b = Builder::new(options);
        b.events(&self.events, &self.catalog);
        let g = b.finish(ns(self.end), &self.catalog);
        (g, self.catalog)
    }

    /// Diagnose the worst episode of the threads that `process` selects, by the policy.
    pub fn diagnose(self, process: &str) -> Report {
        let (g, c) = self.build();
        let s = Selection { process: Some(regex::Regex::new(process).unwrap()), ..Selection::default() };
        let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
        let r = run_with_policy(&g, &c, v, Options::default());
        for c in &r.root_causes {
            let units = ["s", "ms", "%", "B", "x"];
            let unit = |w: &&str| units.contains(&w.trim_end_matches([',', ';', '.', ')', ':']));
            let words = c.why.split_whitespace().filter(|w| !unit(w)).count();
            assert!(words <= 60, "{words} words are too many for a ticket: {}", c.why);
            assert!(c.why.ends_with('.') && !c.why.contains(". "), "one sentence: {}", c.why);
        }
        r
    }
}

impl Wait<'_> {
    pub fn on(mut self, object: ObjectId) -> Self {
        self.off.object = object;
        self
    }

    pub fn stack(mut self, stack: StackId) -> Self {
        self.off.user_stack = stack;
        self
    }

    /// The kernel's functions it waits in.
    pub fn in_kernel(mut self, stack: StackId) -> Self {
        self.off.kernel_stack = stack;
        self
    }

    /// Futex operation and expected value.
    pub fn op(mut self, op: u32, value: u32) -> Self {
        (self.off.op, self.off.value) = (op, value);
        self
    }

    /// Got a CPU only that much later.
    pub fn queued(mut self, seconds: f64) -> Self {
        self.queued = seconds;
        self
    }

    pub fn state(mut self, state: OffState) -> Self {
        self.off.state = state;
        self
    }

    pub fn before(mut self) -> Self {
        self.off.begun_before = true;
        self
    }

    /// Woken by a thread in a system call on an object.
    pub fn by(mut self, waker: ThreadId, call: &str, object: ObjectId) {
        self.off.waker = waker;
        self.off.waker_context = Context::Task;
        self.off.waker_syscall = syscall_number(call).unwrap();
        self.off.waker_object = object;
        self.done();
    }

    /// By the sender of a packet on loopback.
    pub fn by_packet(mut self, waker: ThreadId, call: &str, object: ObjectId) {
        self.off.waker = waker;
        self.off.waker_context = Context::NetRx;
        self.off.waker_syscall = syscall_number(call).unwrap();
        self.off.waker_object = object;
        self.done();
    }

    /// By a packet, beside nobody.
    pub fn packet(mut self) {
        self.off.waker_context = Context::NetRx;
        self.done();
    }

    /// In no system call: a page fault, or a thread of the kernel.
    pub fn in_no_call(mut self) -> Self {
        self.off.syscall = Sysno::NONE;
        self
    }

    /// Woken by a thread of the kernel.
    pub fn by_kernel(mut self, waker: ThreadId) {
        self.off.waker = waker;
        self.off.waker_context = Context::Task;
        self.done();
    }

    /// Woken in an interrupt of which nothing is known.
    pub fn interrupted(mut self) {
        self.off.waker_context = Context::HardIrq;
        self.done();
    }

    /// Woken by a timer of the kernel.
    pub fn timer(mut self) {
        self.off.waker_context = Context::Timer;
        self.done();
    }

    /// Ended by its own time-out.
    pub fn times_out(mut self) {
        self.off.timeout = ns(self.end) - self.off.start;
        self.off.waker_context = Context::Timer;
        self.done();
    }

    /// Told of at `at`, while it lasts.
    pub fn told(mut self, at: f64) {
        self.off.open = true;
        self.off.woken = 0;
        self.drawing.event(ns(at), self.thread, Kind::OffCpu(self.off));
    }

    /// Not ended when the recording did.
    pub fn open(mut self) {
        self.off.open = true;
        self.off.woken = 0;
        self.end = self.drawing.end;
        self.done();
    }

    fn done(self) {
        let time = if self.off.open { ns(self.end) } else { ns(self.end) + ns(self.queued) };
        self.drawing.event(time, self.thread, Kind::OffCpu(self.off));
    }
}

/// All that `check` matches root causes against.
pub fn what(c: &pg_graph::report::RootCause) -> String {
    let mut s = Vec::new();
    s.extend(c.function.clone());
    s.extend(c.module.clone());
    s.extend(c.syscall.clone());
    s.extend(c.object.clone());
    s.push(c.why.clone());
    s.extend(c.stack.clone());
    s.join(" ")
}

/// The command lines of the slice, the victim's own steps left out, neighbours of one thread once.
pub fn slice(r: &Report) -> Vec<String> {
    let mut out: Vec<(u32, String)> = Vec::new();
    for n in &r.slice {
        if n.tid != r.victim.tid && out.last().is_none_or(|o| o.0 != n.tid) {
            out.push((n.tid, n.cmdline.clone()));
        }
    }
    out.into_iter().map(|o| o.1).collect()
}
