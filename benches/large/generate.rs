//! A session of the wanted size: requests that hop between the threads of many processes, by futex and by
//! unix sockets, and one pair of threads whose usual exchange takes two seconds once.

use pg_event::{
    CatalogDelta, Context, Coverage, Direction, Event, Frame, FrameId, IpcUse, Item, Kind, Module, ModuleId,
    Object, ObjectId, ObjectKind, OffCpu, OffState, Process, ProcessId, Sample, Stack, StackId, SyscallUse,
    Sysno, Thread, ThreadId, syscall_number,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What to generate.
#[derive(Clone, Copy)]
pub struct Size {
    pub hops: u64,
    pub threads: u32,
}

/// The size the project is held to: about 19 M events, 2.75 M vertices and 3.6 M edges of 679 threads.
pub const FULL: Size = Size { hops: 2_745_000, threads: 679 };

const PER_PROCESS: u32 = 7;
const REQUESTS: u64 = 32;
const STACKS: u32 = 400;
const HANG: u64 = 2_000_000_000;
const ASKER: u32 = 0;
const ANSWERER: u32 = 1;

/// A small random generator (SplitMix64): the same session every time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

struct Names {
    recv: Sysno,
    send: Sysno,
    futex: Sysno,
    some: [Sysno; 4],
}

struct World<F: FnMut(Item)> {
    out: F,
    batch: Vec<Event>,
    /// Events not yet due, by time.
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
    held: std::collections::HashMap<u64, Event>,
    number: u64,
    random: Random,
    names: Names,
    blocked_since: Vec<u64>,
    unread: Vec<u32>,
    threads: u32,
}

/// Two sockets for each thread, one towards its neighbour and one from the thread before.
fn end_towards(t: u32) -> ObjectId {
    ObjectId(2 * t)
}

fn end_from(t: u32) -> ObjectId {
    ObjectId(2 * t + 1)
}

/// Generates the session and hands it over piece by piece.
pub fn generate(size: Size, out: impl FnMut(Item)) {
    let call = |name| syscall_number(name).unwrap_or(Sysno::NONE);
    let n = size.threads as usize;
    let mut world = World {
        out,
        batch: Vec::with_capacity(1 << 16),
        waiting: BinaryHeap::new(),
        held: std::collections::HashMap::new(),
        number: 0,
        random: Random(7),
        names: Names {
            recv: call("recvfrom"),
            send: call("sendto"),
            futex: call("futex"),
            some: [call("openat"), call("read"), call("fstat"), call("close")],
        },
        blocked_since: vec![0; n],
        unread: vec![0; n],
        threads: size.threads,
    };
    (world.out)(Item::Catalog(catalog(size)));
    world.run(size.hops);
}

fn catalog(size: Size) -> CatalogDelta {
    let mut d = CatalogDelta::default();
    for t in 0..size.threads {
        let (p, nth) = (t / PER_PROCESS, t % PER_PROCESS);
        if nth == 0 {
            let name = if p == 0 { "shop".to_string() } else { format!("service-{p}") };
            let cmdline = pg_event::Cmdline { time: 0, text: format!("{name} --serve") };
            let process = Process {
                pid: 1000 + p * 100,
                focus: p == 0,
                cmdlines: vec![cmdline],
                name,
                ..Process::default()
            };
            d.processes.push((ProcessId(p), process));
        }
        let name = if nth == 0 { "main".into() } else { format!("worker-{nth}") };
        let thread = Thread {
            tid: 1000 + p * 100 + nth,
            process: ProcessId(p),
            focus: p == 0,
            name,
            ..Thread::default()
        };
        d.threads.push((ThreadId(t), thread));
        let socket = |id: u64, peer: u64| Object {
            name: format!("/run/service-{t}.sock"),
            ..Object::new(ObjectKind::UnixStream, id, peer)
        };
        let (a, b) = (100_000 + 2 * u64::from(t), 100_001 + 2 * u64::from(t));
        d.objects.push((end_towards(t), socket(a, b)));
        d.objects.push((end_from(t), socket(b, a)));
    }
    let futex = Object::new(ObjectKind::Futex, 0x5581_0000, 1);
    d.objects.push((ObjectId(2 * size.threads), futex));
    d.modules.push((ModuleId(0), Module { path: "/usr/bin/service".into(), ..Module::default() }));
    for f in 0..STACKS * 4 {
        let function = format!("function_{f}");
        d.frames.push((FrameId(f), Frame { module: ModuleId(0), function, ..Frame::default() }));
    }
    for s in 0..STACKS {
        let frames = (0..12).map(|k| FrameId((s * 7 + k * 131) % (STACKS * 4))).collect();
        d.stacks.push((StackId(s), Stack { frames, ..Stack::default() }));
    }
    d
}

impl<F: FnMut(Item)> World<F> {
    fn run(&mut self, hops: u64) {
        // Requests by the time of their next hop; each is on a thread.
        let mut requests: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let first = ANSWERER + 1;
        for r in 0..REQUESTS {
            requests.push(Reverse((1000 + r * 3000, first + r as u32)));
        }
        let mut idle: Vec<u32> = (first + REQUESTS as u32..self.threads).collect();
        let (mut next_question, mut now, mut hung) = (2_000_000, 0, false);
        for hop in 0..hops {
            let Some(Reverse((time, waker))) = requests.pop() else { break };
            now = time;
            if now >= next_question {
                let slow = !hung && hop > hops / 2;
                hung |= slow;
                next_question = self.question(next_question, if slow { HANG } else { 1_000_000 }) + 9_000_000;
            }
            self.release(now);
            let at = self.random.next(idle.len() as u64) as usize;
            let wakee = std::mem::replace(&mut idle[at], waker);
            let run = 30_000 + self.random.next(140_000);
            self.hop(now, waker, wakee, run);
            requests.push(Reverse((now + run, wakee)));
        }
        let end = now + 1_000_000 + HANG;
        self.release(u64::MAX);
        let batch = std::mem::take(&mut self.batch);
        (self.out)(Item::Events(batch));
        (self.out)(Item::End { duration: end, coverage: Coverage::default() });
    }

    fn stack(&mut self) -> StackId {
        StackId(self.random.next(u64::from(STACKS)) as u32)
    }

    fn put(&mut self, time: u64, thread: u32, kind: Kind) {
        self.number += 1;
        self.held
            .insert(self.number, Event { time, thread: ThreadId(thread), cpu: (thread % 2) as u16, kind });
        self.waiting.push(Reverse((time, self.number)));
    }

    /// Hands over what is due.
    fn release(&mut self, now: u64) {
        while self.waiting.peek().is_some_and(|Reverse((time, _))| *time <= now) {
            let Some(Reverse((_, number))) = self.waiting.pop() else { return };
            self.batch.extend(self.held.remove(&number));
            if self.batch.len() == 1 << 16 {
                let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(1 << 16));
                (self.out)(Item::Events(batch));
            }
        }
    }

    /// One thread wakes another one, which runs for a while.
    fn hop(&mut self, now: u64, waker: u32, wakee: u32, run: u64) {
        let by_message = wakee == (waker + 1) % self.threads;
        self.wake(now, waker, wakee, by_message);
        let began = now + 20_000;
        for k in 0..5 + u64::from(self.random.next(4) == 0) {
            let nr = self.names.some[k as usize % 4];
            let time = began + 1_000 + k * 1_500;
            let use_ =
                SyscallUse { start: time - 900, nr, result: 3, count: 1, op: 0, object: ObjectId::NONE };
            self.put(time, wakee, Kind::Syscall(use_));
        }
        // What the neighbour left in the socket is read now.
        let from = (wakee + self.threads - 1) % self.threads;
        let bytes = std::mem::take(&mut self.unread[wakee as usize]);
        if bytes > 0 {
            self.message(began + 9_000, wakee, end_from(from), Direction::Receive, u64::from(bytes));
        }
        if self.random.next(100) < 36 {
            let next = (wakee + 1) % self.threads;
            self.message(began + 9_500, wakee, end_towards(wakee), Direction::Send, 100);
            self.unread[next as usize] += 100;
        }
        if self.random.next(100) < 2 {
            let user_stack = self.stack();
            let sample = Sample { weight: 10_000_000, user_stack, kernel_stack: StackId::NONE };
            self.put(now + run - 1_000, wakee, Kind::Sample(sample));
        }
        self.blocked_since[waker as usize] = now + 10_000;
    }

    fn wake(&mut self, now: u64, waker: u32, wakee: u32, by_message: bool) {
        let mut o = OffCpu::new(self.blocked_since[wakee as usize], now, OffState::Interruptible);
        let futex = ObjectId(2 * self.threads);
        let (call, waker_call, object, waker_object) = if by_message {
            (self.names.recv, self.names.send, end_from(waker), end_towards(waker))
        } else {
            (self.names.futex, self.names.futex, futex, futex)
        };
        o.syscall = call;
        o.object = object;
        o.waker = ThreadId(waker);
        o.waker_context = Context::Task;
        o.waker_syscall = waker_call;
        o.waker_object = waker_object;
        o.user_stack = self.stack();
        if now.saturating_sub(o.start) > 1_000_000 {
            o.kernel_stack = StackId::NONE;
        }
        self.put(now + 20_000, wakee, Kind::OffCpu(o));
    }

    fn message(&mut self, time: u64, thread: u32, object: ObjectId, direction: Direction, bytes: u64) {
        let u = IpcUse { object, direction, count: 1, bytes, first: time, position: 0 };
        self.put(time, thread, Kind::Ipc(u));
    }

    /// A question of the focus, and its answer after the answerer ran for so long.
    fn question(&mut self, now: u64, run: u64) -> u64 {
        self.message(now, ASKER, end_towards(ASKER), Direction::Send, 10);
        self.wake(now, ASKER, ANSWERER, true);
        self.message(now + 25_000, ANSWERER, end_from(ASKER), Direction::Receive, 10);
        self.blocked_since[ASKER as usize] = now + 5_000;
        let mut at = now + 10_000_000;
        while at < now + run {
            let sample = Sample { weight: 10_000_000, user_stack: StackId(1), kernel_stack: StackId::NONE };
            self.put(at, ANSWERER, Kind::Sample(sample));
            at += 10_000_000;
        }
        let answered = now + run;
        self.message(answered, ANSWERER, end_from(ASKER), Direction::Send, 10);
        let mut o = OffCpu::new(now + 5_000, answered, OffState::Interruptible);
        o.syscall = self.names.recv;
        o.object = end_towards(ASKER);
        o.waker = ThreadId(ANSWERER);
        o.waker_context = Context::Task;
        o.waker_syscall = self.names.send;
        o.waker_object = end_from(ASKER);
        o.user_stack = StackId(2);
        self.put(answered + 20_000, ASKER, Kind::OffCpu(o));
        self.message(answered + 25_000, ASKER, end_towards(ASKER), Direction::Receive, 10);
        self.blocked_since[ANSWERER as usize] = answered + 10_000;
        answered
    }
}
