//! A machine of some CPUs that runs scripts and records what a tracer would, and also who really ended
//! which wait.

mod acts;

use super::draw::call;
use super::script::{Act, Script};
use acts::polled;
use pg_event::{
    Catalog, Context, Event, Kind, Ns, Object, ObjectId, ObjectKind, OffCpu, OffState, Process, ProcessId,
    Sample, StackId, Thread, ThreadId,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What every act but computing costs.
pub const COST: Ns = 500;

/// How the machine is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many CPUs.
    pub cpus: usize,
    /// How long a thread may use a CPU while others wait for one.
    pub slice: Ns,
    /// On-CPU samples this far apart; 0 for none.
    pub sample_every: Ns,
    /// Record messages.
    pub messages: bool,
    /// Bytes that a channel holds.
    pub capacity: u64,
    /// Kinds of the channels, in turn.
    pub channels: Vec<ObjectKind>,
    /// Record accesses to data flags, as with watchpoints on all of them.
    pub flags: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cpus: 2,
            slice: 4_000_000,
            sample_every: 0,
            messages: true,
            capacity: 65536,
            channels: vec![ObjectKind::Pipe, ObjectKind::Tcp, ObjectKind::UnixStream],
            flags: true,
        }
    }
}

/// A wait as it really was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrueWait {
    /// Who waited.
    pub thread: ThreadId,
    /// From when.
    pub start: Ns,
    /// Until when.
    pub woken: Ns,
    /// Who ended it; `None` for time itself.
    pub by: Option<ThreadId>,
    /// It waited for a mutex.
    pub lock: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    NotBegun,
    Ready,
    OnCpu(usize),
    Waits,
    Ended,
}

#[derive(Debug)]
struct Task {
    script: Script,
    next: usize,
    round: u32,
    mode: Mode,
    /// CPU time until `effect` happens.
    left: Ns,
    effect: Option<Act>,
    yields: u32,
    /// Channels of what was taken by [`Act::TakeAll`] and not answered yet.
    taken: VecDeque<usize>,
    /// Its interval off the CPU, while it is off.
    off: OffCpu,
    lock: bool,
}

#[derive(Debug, Default)]
struct Mutex {
    owner: Option<usize>,
    waiters: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Condition {
    signals: u32,
    waiters: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Channel {
    bytes: u64,
    sent: u64,
    received: u64,
    readers: VecDeque<usize>,
    writers: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Cpu {
    task: Option<usize>,
    since: Ns,
    slice_end: Ns,
    /// Number of the planned end that counts.
    plan: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Cpu(usize, u64),
    Timer(usize),
    Sample,
}

/// The machine while it runs.
#[derive(Debug)]
pub struct Machine {
    setup: Setup,
    now: Ns,
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    ready: VecDeque<usize>,
    mutexes: Vec<Mutex>,
    conditions: Vec<Condition>,
    channels: Vec<Channel>,
    due: BinaryHeap<Reverse<(Ns, u64, Due)>>,
    plans: u64,
    joiners: Vec<Vec<usize>>,
    catalog: Catalog,
    first_channel: usize,
    first_flag: usize,
    /// What is polled together, and the first of their objects.
    polls: Vec<(usize, usize)>,
    first_poll: usize,
    flags: Vec<u64>,
    /// Waits as they ended.
    pub truth: Vec<TrueWait>,
    /// Keep [`Machine::truth`] (needs memory).
    pub keep_truth: bool,
    out: Vec<Event>,
}

impl Machine {
    /// A machine with these threads. Numbers that scripts use are created as needed; thread `i` of the
    /// recording is script `i`.
    pub fn new(setup: Setup, scripts: Vec<Script>) -> Self {
        let most = |f: &dyn Fn(&Act) -> Option<usize>| {
            scripts.iter().flat_map(|s| &s.acts).filter_map(f).map(|n| n + 1).max().unwrap_or(0)
        };
        let mutexes = most(&|a| if let Act::Lock(n) | Act::Unlock(n) = a { Some(*n) } else { None });
        let conditions = most(&|a| if let Act::Wait(n) | Act::Signal(n) = a { Some(*n) } else { None });
        let channels = most(&|a| match a {
            Act::Send(n, _) | Act::Receive(n) | Act::Take(n, _) => Some(*n),
            Act::Poll(first, count) | Act::TakeAll(first, count) => polled(*first, *count).last(),
            _ => None,
        });
        let mut polls: Vec<(usize, usize)> = Vec::new();
        for a in scripts.iter().flat_map(|s| &s.acts) {
            if let Act::Poll(first, count) = a
                && !polls.contains(&(*first, *count))
            {
                polls.push((*first, *count));
            }
        }
        let flags = most(&|a| if let Act::Set(n, _) | Act::Ask(n, ..) = a { Some(*n) } else { None });
        let mut catalog = Catalog::default();
        for (i, s) in scripts.iter().enumerate() {
            catalog.threads.push(Thread {
                tid: 1000 + i as u32,
                ns_tid: 1000 + i as u32,
                process: ProcessId(i as u32),
                name: format!("t{i}"),
                start: u64::from(s.spawned),
                focus: true,
                ..Thread::default()
            });
            let pid = 1000 + i as u32;
            catalog.processes.push(Process { pid, name: format!("t{i}"), focus: true, ..Process::default() });
        }
        let mut object = |kind, id, peer| {
            catalog.objects.push(Object::new(kind, id, peer));
        };
        for i in 0..mutexes + conditions {
            object(ObjectKind::Futex, 0x1000 + i as u64 * 8, 1);
        }
        let first_channel = mutexes + conditions;
        for i in 0..channels {
            let kind =
                setup.channels.get(i % setup.channels.len().max(1)).copied().unwrap_or(ObjectKind::Pipe);
            let id = 0x10_0000 + i as u64 * 2;
            let peer = if kind == ObjectKind::Pipe { id } else { id + 1 };
            object(kind, id, peer);
            object(kind, peer, id);
        }
        let first_flag = first_channel + channels * 2;
        for i in 0..flags {
            object(ObjectKind::Memory, 0x20_0000 + i as u64 * 8, 1);
        }
        let first_poll = first_flag + flags;
        for (i, (first, count)) in polls.iter().enumerate() {
            let members =
                polled(*first, *count).map(|n| ObjectId((first_channel + n * 2 + 1) as u32)).collect();
            let id = 0x30_0000 + i as u64;
            let set = Object { members, ..Object::new(ObjectKind::Set, id, 0) };
            catalog.objects.push(set);
        }
        let task = |s: Script| Task {
            next: 0,
            round: 0,
            mode: if s.spawned { Mode::NotBegun } else { Mode::Ready },
            script: s,
            left: 0,
            effect: None,
            yields: 0,
            taken: VecDeque::new(),
            off: OffCpu::new(0, 0, OffState::Runnable),
            lock: false,
        };
        let joiners = scripts.iter().map(|_| Vec::new()).collect();
        let tasks: Vec<Task> = scripts.into_iter().map(task).collect();
        let ready = (0..tasks.len()).filter(|t| tasks[*t].mode == Mode::Ready).collect();
        let mut m = Self {
            cpus: (0..setup.cpus.max(1)).map(|_| Cpu::default()).collect(),
            now: 0,
            tasks,
            ready,
            mutexes: (0..mutexes).map(|_| Mutex::default()).collect(),
            conditions: (0..conditions).map(|_| Condition::default()).collect(),
            channels: (0..channels).map(|_| Channel::default()).collect(),
            due: BinaryHeap::new(),
            plans: 0,
            joiners,
            catalog,
            first_channel,
            first_flag,
            polls,
            first_poll,
            flags: vec![0; flags],
            truth: Vec::new(),
            keep_truth: true,
            out: Vec::new(),
            setup,
        };
        if m.setup.sample_every > 0 {
            m.later(m.setup.sample_every, Due::Sample);
        }
        m
    }

    /// What the events name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The catalogue, to give names and processes to threads.
    pub fn catalog_mut(&mut self) -> &mut Catalog {
        &mut self.catalog
    }

    /// Now, ns.
    pub fn now(&self) -> Ns {
        self.now
    }

    fn later(&mut self, at: Ns, what: Due) {
        self.plans += 1;
        self.due.push(Reverse((at, self.plans, what)));
    }

    fn emit(&mut self, thread: usize, kind: Kind) {
        self.out.push(Event { time: self.now, thread: ThreadId(thread as u32), cpu: 0, kind });
    }

    /// Run until `until`, handing over events by time in batches. False when nothing can happen any more.
    pub fn run(&mut self, until: Ns, mut sink: impl FnMut(&[Event], &Catalog)) -> bool {
        self.fill();
        while let Some(Reverse((at, _, _))) = self.due.peek() {
            if *at > until {
                self.now = until;
                sink(&self.out, &self.catalog);
                self.out.clear();
                return true;
            }
            let Some(Reverse((at, _, what))) = self.due.pop() else { break };
            self.now = at;
            match what {
                Due::Cpu(c, plan) if self.cpus[c].plan == plan => self.due_cpu(c),
                Due::Cpu(..) => {}
                Due::Timer(t) => self.wake(t, None),
                Due::Sample => {
                    self.sample();
                    // Samples alone keep nothing going.
                    if !self.due.is_empty() {
                        self.later(at + self.setup.sample_every, Due::Sample);
                    }
                }
            }
            self.fill();
            if self.out.len() >= 1 << 16 {
                sink(&self.out, &self.catalog);
                self.out.clear();
            }
        }
        self.now = self.now.max(until);
        sink(&self.out, &self.catalog);
        self.out.clear();
        false
    }

    /// End the recording: intervals that have not ended are handed over as open ones.
    pub fn end(&mut self, mut sink: impl FnMut(&[Event], &Catalog)) {
        for t in 0..self.tasks.len() {
            if matches!(self.tasks[t].mode, Mode::Ready | Mode::Waits) {
                let mut off = self.tasks[t].off;
                off.open = true;
                if self.tasks[t].mode == Mode::Waits {
                    off.woken = 0;
                }
                self.emit(t, Kind::OffCpu(off));
            }
        }
        sink(&self.out, &self.catalog);
        self.out.clear();
    }

    fn sample(&mut self) {
        let weight = self.setup.sample_every;
        for c in 0..self.cpus.len() {
            if let Some(t) = self.cpus[c].task {
                let s = Sample { weight, user_stack: StackId::NONE, kernel_stack: StackId::NONE };
                self.emit(t, Kind::Sample(s));
            }
        }
    }

    /// Give free CPUs to ready threads.
    fn fill(&mut self) {
        while !self.ready.is_empty() {
            let Some(c) = self.cpus.iter().position(|c| c.task.is_none()) else { return };
            let Some(t) = self.ready.pop_front() else { return };
            let off = self.tasks[t].off;
            if off.start < self.now || off.blocked() {
                self.emit(t, Kind::OffCpu(off));
            }
            self.tasks[t].mode = Mode::OnCpu(c);
            self.cpus[c] = Cpu {
                task: Some(t),
                since: self.now,
                slice_end: self.now + self.setup.slice,
                plan: self.cpus[c].plan,
            };
            self.go_on(c);
        }
    }

    /// The thread on a CPU used what was planned.
    fn due_cpu(&mut self, c: usize) {
        let Some(t) = self.cpus[c].task else { return };
        let used = self.now - self.cpus[c].since;
        self.cpus[c].since = self.now;
        self.tasks[t].left = self.tasks[t].left.saturating_sub(used);
        if self.tasks[t].left == 0 && self.tasks[t].effect.is_some() {
            self.effect(c, t);
            if self.cpus[c].task != Some(t) {
                return;
            }
        }
        if self.now >= self.cpus[c].slice_end {
            if !self.ready.is_empty() {
                self.put_off(c, t);
                return;
            }
            self.cpus[c].slice_end = self.now + self.setup.slice;
        }
        self.go_on(c);
    }

    fn put_off(&mut self, c: usize, t: usize) {
        self.leave(c, t, OffCpu::new(self.now, self.now, OffState::Runnable));
        self.tasks[t].mode = Mode::Ready;
        self.ready.push_back(t);
    }

    fn leave(&mut self, c: usize, t: usize, off: OffCpu) {
        self.tasks[t].off = off;
        self.tasks[t].mode = Mode::Waits;
        self.cpus[c].task = None;
        self.cpus[c].plan = 0;
    }

    /// Plan what the thread on a CPU does next.
    fn go_on(&mut self, c: usize) {
        let Some(t) = self.cpus[c].task else { return };
        let task = &mut self.tasks[t];
        if task.left == 0 {
            if task.next == task.script.acts.len() {
                task.round += 1;
                task.next = 0;
                let over = task.script.rounds != 0 && task.round >= task.script.rounds;
                if over || task.script.acts.is_empty() {
                    self.exit(c, t);
                    return;
                }
            }
            match task.script.acts[task.next] {
                Act::Compute(n) => task.left = n.max(1),
                other => {
                    task.left = COST;
                    task.effect = Some(other);
                }
            }
            task.next += 1;
        }
        let until = (self.now + self.tasks[t].left).min(self.cpus[c].slice_end.max(self.now + 1));
        self.later(until, Due::Cpu(c, self.plans + 1));
        self.cpus[c].plan = self.plans;
    }

    fn exit(&mut self, c: usize, t: usize) {
        self.emit(t, Kind::Exit { status: 0 });
        for j in std::mem::take(&mut self.joiners[t]) {
            self.tasks[j].off.waker_syscall = call("exit_group");
            self.wake(j, Some(t));
        }
        self.tasks[t].mode = Mode::Ended;
        self.cpus[c].task = None;
        self.cpus[c].plan = 0;
    }

    fn wake(&mut self, t: usize, by: Option<usize>) {
        let task = &mut self.tasks[t];
        if task.mode != Mode::Waits {
            return;
        }
        task.mode = Mode::Ready;
        task.off.woken = self.now;
        if let Some(w) = by {
            task.off.waker = ThreadId(w as u32);
            task.off.waker_context = Context::Task;
        } else {
            task.off.waker_context = Context::Timer;
        }
        if self.keep_truth {
            self.truth.push(TrueWait {
                thread: ThreadId(t as u32),
                start: task.off.start,
                woken: self.now,
                by: by.map(|b| ThreadId(b as u32)),
                lock: task.lock,
            });
        }
        self.ready.push_back(t);
    }
}
