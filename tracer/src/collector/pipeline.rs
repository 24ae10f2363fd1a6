//! Turns records into events: names threads, objects and stacks by ids, and puts the events in order.

mod holds;
mod room;
mod user_stacks;

use super::burst::{Bursts, Place};
use super::hash::FastMap;
use super::objects::Objects;
use super::order::{Order, STEP_NS, WINDOW_NS};
use super::python::Python;
use super::quota::Quotas;
use super::raw::{
    self, Again, F_LONG, F_OPEN, F_SEEDED, F_THROTTLED, K_NONE, Off, RawObject, Record, Run, StackCopy,
};
use super::retries::Retries;
use super::stepped::Stepped;
use crate::flags::Touch;
use crate::guards;
use crate::holders::Holders;
use crate::identity::Identity;
use crate::stacks::StackTable;
use crate::steps::Taken;
use crate::unserved::Tracker;
use pg_event::{
    CatalogDelta, Context, Direction, Event, IpcUse, Item, Kind, Ns, ObjectKind, OffCpu, OffState, Sample,
    StackId, SyscallUse, Sysno, ThreadId, UnitTypeId, Violation, Work,
};

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most long waits kept for looking up who holds what they wait for.
const MAX_LONG: usize = 4096;
/// Most stack keys remembered at a time; older ones are forgotten by halves.
const MAX_KEYS: usize = 1 << 17;

/// Number of `sched_yield` (x86-64).
const SCHED_YIELD: u16 = 24;
/// Numbers of the calls that wait for a signal: `pause`, `rt_sigtimedwait`, `rt_sigsuspend`.
const WAITS_FOR_SIGNAL: [u16; 3] = [34, 128, 130];

/// A cache that forgets the older half of its entries when it is full.
struct Recent {
    /// Looked up lately, each at a place that few others share: most are found here. Key 0: nobody.
    front: Vec<(u64, StackId)>,
    new: FastMap<u64, StackId>,
    old: FastMap<u64, StackId>,
}

impl Recent {
    const FRONT: usize = 1024;

    fn new() -> Self {
        let front = vec![(0, StackId::NONE); Self::FRONT];
        Self { front, new: FastMap::default(), old: FastMap::default() }
    }

    /// Keys are mixed well by the programs, but for their lowest bit.
    fn place(key: u64) -> usize {
        (key >> 8) as usize % Self::FRONT
    }

    /// All stacks in it.
    fn ids(&self) -> impl Iterator<Item = StackId> {
        self.new.values().chain(self.old.values()).copied()
    }

    fn insert(&mut self, key: u64, id: StackId) {
        if self.new.len() >= MAX_KEYS {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, id);
        self.front[Self::place(key)] = (key, id);
    }

    #[inline]
    fn get(&mut self, key: u64) -> StackId {
        if key == 0 {
            return StackId::NONE;
        }
        let place = &mut self.front[Self::place(key)];
        if place.0 == key {
            return place.1;
        }
        let Some(&id) = self.new.get(&key).or_else(|| self.old.get(&key)) else { return StackId::NONE };
        *place = (key, id);
        id
    }
}

/// A wait that has become long.
#[derive(Clone, Copy, Debug)]
struct Long {
    thread: ThreadId,
    tid: u32,
    tgid: u32,
    off: OffCpu,
    /// Nobody was asked for yet.
    first: bool,
}

/// The last interval of a thread, as it came and as it was translated: records refer to it.
#[derive(Clone, Copy)]
struct Last {
    raw: Off,
    thread: ThreadId,
    off: OffCpu,
    /// [`Pipeline::changes`] when it was translated.
    changes: u64,
}

/// The state of the translation.
pub struct Pipeline {
    /// `CLOCK_MONOTONIC` at the recording's beginning.
    start: u64,
    /// Records after this time are not taken any more.
    end: u64,
    /// What a sample stands for, ns.
    sample_weight: u64,
    pub identity: Identity,
    pub stacks: StackTable,
    pub objects: Objects,
    order: Order,
    user: Recent,
    kernel: Recent,
    /// Stacks of accesses to data flags, by their keys.
    touched: FastMap<u64, StackId>,
    /// The command to record, while it waits to be started: that wait is the recorder's.
    pub unstarted: Option<u32>,
    /// The last interval of each thread, by its number.
    last: FastMap<u32, Last>,
    /// Since when threads wait that have waited long, by their number, and where: their stacks are remembered until
    /// the wait ends, however many others come meanwhile.
    open: FastMap<u32, (u64, StackId)>,
    /// Counts what can change how a thread or a stack is named.
    changes: u64,
    /// Waits that have become long and whose holders were not looked up yet.
    long: VecDeque<Long>,
    /// Those for which nobody was found, to be asked for once more from a time on.
    later: VecDeque<(Ns, Long)>,
    pub holders: Holders,
    pub python: Python,
    quotas: Quotas,
    retries: Retries,
    /// Looks for threads that deserve a burst, when there are to be bursts.
    pub bursts: Option<Bursts>,
    /// Follows connections of the focus that are not served, when there is a focus.
    pub queues: Option<Tracker>,
    /// When a unix datagram was received last (`CLOCK_MONOTONIC`), 0 for never.
    pub datagram: u64,
    /// UDP datagrams received from somebody whom the kernel does not show.
    pub unnamed: u64,
    /// Threads followed instruction by instruction.
    pub stepped: Stepped,
    /// When something was given out last.
    given: Ns,
    /// Events given out.
    pub events: u64,
    /// Records that could not be read.
    pub damaged: u64,
}

impl Pipeline {
    /// `start` is `CLOCK_MONOTONIC` at the recording's beginning.
    pub fn new(start: u64, identity: Identity, sample_hz: u32) -> Self {
        Self {
            start,
            end: u64::MAX,
            sample_weight: 1_000_000_000 / u64::from(sample_hz.max(1)),
            identity,
            stacks: StackTable::new(),
            objects: Objects::default(),
            order: Order::default(),
            user: Recent::new(),
            kernel: Recent::new(),
            touched: FastMap::default(),
            unstarted: None,
            last: FastMap::default(),
            open: FastMap::default(),
            changes: 0,
            long: VecDeque::new(),
            later: VecDeque::new(),
            holders: Holders::new(),
            python: Python::default(),
            quotas: Quotas::new(),
            retries: Retries::default(),
            bursts: None,
            queues: None,
            datagram: 0,
            unnamed: 0,
            stepped: Stepped::default(),
            given: 0,
            events: 0,
            damaged: 0,
        }
    }

    /// Time of the recording for a moment of `CLOCK_MONOTONIC`.
    pub fn time(&self, monotonic: u64) -> Ns {
        monotonic.saturating_sub(self.start)
    }

    /// From here on take only records up to `monotonic`, and reports of open waits.
    pub fn end_at(&mut self, monotonic: u64) {
        self.end = monotonic;
    }

    /// Put an event of the collector's own; one from after the end, while the rings are emptied, is of the
    /// end: the recording must not seem to be longer than what is known of its threads.
    pub fn push(&mut self, mut event: Event) {
        if self.end != u64::MAX {
            event.time = event.time.min(self.time(self.end));
        }
        self.order.push(event);
    }

    /// Take stack copies, and of the records about processes what they say of address spaces, in order of
    /// time: a copy is of the program that ran when it was taken. These come before [`Self::record`] is told
    /// of the events of the same look, which name the stacks.
    pub fn stacks_and_life<'a>(
        &mut self,
        stacks: impl Iterator<Item = &'a [u8]>,
        life: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut stacks = stacks.peekable();
        // Processes of threads that identity learns of only later.
        let mut made: FastMap<u32, u32> = FastMap::default();
        for record in life {
            let Some(record) = raw::parse(record) else { continue };
            let (Record::Fork { time, .. } | Record::Exec { time, .. } | Record::Exit { time, .. }) = record
            else {
                continue;
            };
            while let Some(copy) = stacks.next_if(|s| raw::stack_time(s) <= time) {
                self.record(copy);
            }
            match record {
                Record::Fork { tid, child, child_tgid, .. } => {
                    made.insert(child, child_tgid);
                    if child == child_tgid {
                        let known = || self.identity.process_of(self.identity.find(tid)?).map(|p| p.pid);
                        let parent = made.get(&tid).copied().or_else(known).unwrap_or(tid);
                        self.stacks.fork(parent, child);
                    }
                }
                Record::Exec { tgid, .. } => self.stacks.exec(tgid),
                Record::Exit { tid, tgid, .. } => self.stacks.exit(tgid, tid == tgid),
                _ => {}
            }
        }
        for copy in stacks {
            self.record(copy);
        }
    }

    /// Take a record.
    pub fn record(&mut self, bytes: &[u8]) {
        if let Some(r) = raw::parse_again(bytes) {
            self.again(&r);
            return;
        }
        if let Some(r) = raw::parse_off(bytes) {
            self.off(&r);
            return;
        }
        if let Some(r) = raw::parse_run(bytes) {
            self.run(&r);
            return;
        }
        let Some(record) = raw::parse(bytes) else {
            self.damaged += 1;
            return;
        };
        match record {
            Record::Off(r) => self.off(&r),
            Record::Again(r) => self.again(&r),
            Record::Run(r) => self.run(&r),
            Record::Name { object, name } => self.objects.name(object, &name),
            Record::Set { kind, id, members, .. } => {
                self.objects.members(RawObject { kind, id, peer: 0 }, &members);
            }
            Record::KernelStack { hash, frames } => {
                let id = self.stacks.kernel(&frames);
                self.kernel.insert(hash, id);
            }
            Record::Fork { cpu, tid, time, child, child_tgid, comm } if time <= self.end => {
                self.changes += 1;
                let now = self.time(time);
                let parent = self.identity.thread(tid, 0, now);
                let child = self.identity.fork(tid, child, child_tgid, &comm, now);
                self.order.push(Event { time: now, thread: parent, cpu, kind: Kind::Spawn { child } });
            }
            Record::Exec { cpu, tid, time, tgid, comm, argv } if time <= self.end => {
                self.changes += 1;
                let now = self.time(time);
                self.quotas.forget(tgid);
                self.python.forget(tgid, tgid);
                self.unstarted = self.unstarted.filter(|&pid| pid != tgid);
                self.identity.exec(tid, tgid, &comm, &argv, &[], now);
                let thread = self.identity.thread(tgid, tgid, now);
                self.order.push(Event { time: now, thread, cpu, kind: Kind::Exec });
            }
            Record::Exit { cpu, tid, time, tgid, status } if time <= self.end => {
                let now = self.time(time);
                let thread = self.identity.thread(tid, tgid, now);
                self.identity.exit(tid, status, now);
                if tid == tgid {
                    self.ended(thread, time, status != 0);
                }
                self.changes += 1;
                self.last.remove(&tid);
                self.open.remove(&tid);
                self.python.forget(tgid, tid);
                if tid == tgid {
                    self.quotas.forget(tgid);
                }
                self.order.push(Event { time: now, thread, cpu, kind: Kind::Exit { status } });
            }
            Record::Rename { tid, time, tgid, comm } if time <= self.end => {
                let now = self.time(time);
                self.identity.thread(tid, tgid, now);
                self.identity.rename(tid, &comm);
            }
            Record::Signal { cpu, tid, time, tgid, signal, target, target_tgid } if time <= self.end => {
                let now = self.time(time);
                let thread = self.identity.thread(tid, tgid, now);
                let target = self.identity.thread(target, target_tgid, now);
                self.order.push(Event { time: now, thread, cpu, kind: Kind::Signal { target, signal } });
            }
            Record::UserStack(s) => self.user_stack(&s),
            Record::Sample(s) if s.time <= self.end => self.sample(&s),
            Record::Use(u) if u.last <= self.end => {
                if u.receive && u.object.kind == ObjectKind::UnixDatagram as u8 {
                    self.datagram = u.last;
                }
                if u.receive && u.object.kind == ObjectKind::Udp as u8 && u.object.peer == 0 {
                    self.unnamed += u64::from(u.count);
                }
                let now = self.time(u.last);
                let thread = self.identity.thread(u.tid, u.tgid, now);
                if u.receive
                    && let Some(queues) = &mut self.queues
                    && self.identity.in_focus(thread)
                {
                    let of = (u.object.kind, u.object.id, u.object.peer);
                    queues.received(of, (u.tid, u.tgid), u.first, u.last);
                }
                let kind = Kind::Ipc(IpcUse {
                    object: self.objects.id(u.object),
                    direction: if u.receive { Direction::Receive } else { Direction::Send },
                    count: u.count,
                    bytes: u.bytes,
                    first: self.time(u.first),
                    position: u.position,
                });
                self.order.push(Event { time: now, thread, cpu: 0, kind });
            }
            Record::Work(w) if w.time <= self.end => self.work(&w),
            Record::Python { tid, time, whole: true, frames } => self.python.sampled(tid, time, frames),
            Record::Call(c) if c.end <= self.end => {
                let now = self.time(c.end);
                let thread = self.identity.thread(c.tid, c.tgid, now);
                let call = SyscallUse {
                    start: self.time(c.start),
                    nr: Sysno(c.call),
                    result: c.result,
                    count: c.count,
                    op: c.op,
                    object: self.objects.id(c.object),
                };
                self.order.push(Event { time: now, thread, cpu: 0, kind: Kind::Syscall(call) });
                if c.result < 0
                    && self.retries.failed(thread, &call, c.object.kind == ObjectKind::FileLock as u8, c.end)
                    && self.long.len() < MAX_LONG
                {
                    let off = OffCpu {
                        syscall: call.nr,
                        op: call.op,
                        object: call.object,
                        ..OffCpu::new(call.start, now, OffState::Interruptible)
                    };
                    self.long.push_back(Long { thread, tid: c.tid, tgid: c.tgid, off, first: true });
                    self.python.want_some(c.tgid, c.tid);
                }
            }
            _ => {}
        }
    }

    #[inline]
    fn off(&mut self, r: &Off) {
        let open = r.flags & (F_OPEN | F_LONG) != 0;
        if (r.time > self.end && !open) || self.unstarted == Some(r.tid) {
            return;
        }
        let time = self.time(r.time.min(self.end));
        let thread = self.identity.thread(r.tid, r.tgid, time);
        let start = self.time(r.start).min(time);
        // A wait that ended and whose waking the kernel did not report was one until it was seen to be over: who left
        // the CPU by waiting was not runnable all that time.
        let woken = match r.woken {
            0 if open => 0,
            0 => time,
            woken => self.time(woken).clamp(start, time),
        };
        let waker_known = r.woken != 0 && r.waker != 0;
        let context = Context::from_u8(r.context);
        let object =
            if r.object.kind == K_NONE && context == Context::Timer && WAITS_FOR_SIGNAL.contains(&r.call) {
                RawObject { kind: ObjectKind::Timer as u8, id: u64::from(r.tgid), peer: 0 }
            } else {
                r.object
            };
        let mut off = OffCpu {
            open,
            begun_before: r.flags & F_SEEDED != 0,
            syscall: Sysno(r.call),
            op: r.op,
            value: r.value,
            timeout: r.timeout,
            object: self.objects.id(object),
            waker: if waker_known {
                self.identity.thread(r.waker, r.waker_tgid, time)
            } else {
                ThreadId::NONE
            },
            waker_context: context,
            waker_syscall: Sysno(if waker_known { r.waker_call } else { u16::MAX }),
            waker_object: self.objects.id(r.waker_object),
            user_stack: self.user.get(r.user_stack),
            kernel_stack: self.kernel.get(r.kernel_stack),
            waker_stack: self.user.get(r.waker_stack),
            ..OffCpu::new(start, woken, state(r.state))
        };
        if off.user_stack.is_none()
            && let Some((_, stack)) = self.open.get(&r.tid).filter(|o| o.0 == r.start)
        {
            off.user_stack = *stack;
        }
        if r.flags & F_LONG != 0 {
            self.open.insert(r.tid, (r.start, off.user_stack));
            if let Some(bursts) = &mut self.bursts
                && self.identity.in_reach(thread)
            {
                bursts.waits(r.tid, r.call, r.start, r.timeout);
            }
        } else if !open {
            self.open.remove(&r.tid);
        }
        if !open {
            self.last.insert(
                r.tid,
                Last { raw: Off { flags: r.flags & !F_THROTTLED, ..*r }, thread, off, changes: self.changes },
            );
            self.interval(r.tid, (r.start, r.time), thread, &off);
        }
        if self.stepped.by_us(r.tid, off.state, r.start, r.time) {
            return;
        }
        let until = if open { u64::MAX } else { r.woken };
        off.user_stack = self.python.stack(r.tid, (r.start, until), off.user_stack, &mut self.stacks);
        if r.flags & F_LONG != 0 {
            self.python.want(r.tgid, r.tid);
            if self.long.len() < MAX_LONG {
                self.long.push_back(Long { thread, tid: r.tid, tgid: r.tgid, off, first: true });
            }
            // Should the recording be cut off, this is what remains of the wait; its end replaces it.
            let off = OffCpu { open: true, woken: 0, waker: ThreadId::NONE, ..off };
            self.order.push(Event { time, thread, cpu: r.cpu, kind: Kind::OffCpu(off) });
            return;
        }
        if r.flags & F_THROTTLED != 0 && woken < time {
            // Woken, it was not allowed to run: that is a wait of its own.
            self.order.push(Event { time: woken, thread, cpu: r.cpu, kind: Kind::OffCpu(off) });
            let held = self.held_back(r.tgid, woken, time, off.user_stack);
            self.order.push(Event { time, thread, cpu: r.cpu, kind: Kind::OffCpu(held) });
            return;
        }
        self.order.push(Event { time, thread, cpu: r.cpu, kind: Kind::OffCpu(off) });
    }

    fn work(&mut self, w: &raw::Work) {
        let time = self.time(w.time);
        let requester = match w.requester {
            0 => ThreadId::NONE,
            tid => self.identity.thread(tid, w.requester_tgid, time),
        };
        let kind = Kind::Work(Work {
            object: self.objects.id(w.object),
            requester,
            queued: if w.queued == 0 { 0 } else { self.time(w.queued) },
        });
        let thread = self.identity.thread(w.tid, w.tgid, time);
        self.order.push(Event { time, thread, cpu: w.cpu, kind });
    }

    /// Shows an interval that ended to who looks for threads that deserve a burst.
    fn interval(&mut self, tid: u32, (start, end): (u64, u64), thread: ThreadId, off: &OffCpu) {
        // Who was woken by somebody does not retry.
        let by_timer = off.waker_context == Context::Timer || off.waker.is_none();
        if by_timer
            && off.syscall.is_some()
            && let Some(bursts) = &mut self.bursts
            && self.identity.in_reach(thread)
        {
            bursts.interval(tid, off.syscall.0, true, start, end);
        }
    }

    /// Shows a process that ended to who looks for children that do so in the same way again and again.
    fn ended(&mut self, thread: ThreadId, end: u64, failed: bool) {
        if !self.identity.in_focus(thread) {
            return;
        }
        if let Some(bursts) = &mut self.bursts
            && let Some(p) = self.identity.process_of(thread)
            && let Some(parent) = self.identity.process(p.parent)
        {
            let mut line = DefaultHasher::new();
            p.cmdline().hash(&mut line);
            bursts.child_ended(parent.pid, line.finish(), (self.start + p.start, end), failed);
        }
    }

    /// An interval like the last one of its thread.
    fn again(&mut self, r: &Again) {
        let Some(last) = self.last.get_mut(&r.tid) else {
            self.damaged += u64::from(self.unstarted != Some(r.tid));
            return;
        };
        if r.rewoken.is_some() || last.changes != self.changes {
            let raw = last.raw.again(r);
            self.off(&raw);
            return;
        }
        if r.time > self.end {
            return;
        }
        let time = r.time.saturating_sub(self.start);
        let start = r.start.saturating_sub(self.start).min(time);
        // What differs from record to record is taken from each: the last one need not be kept up to date.
        last.off.start = start;
        last.off.woken = r.woken.saturating_sub(self.start).clamp(start, time);
        last.off.kernel_stack = self.kernel.get(r.kernel_stack);
        let (thread, mut off, tgid) = (last.thread, last.off, last.raw.tgid);
        off.user_stack = self.python.stack(r.tid, (r.start, r.woken), off.user_stack, &mut self.stacks);
        // Its process does something, and is to be looked at again.
        self.identity.thread(r.tid, tgid, time);
        self.interval(r.tid, (r.start, r.time), thread, &off);
        if self.stepped.by_us(r.tid, off.state, r.start, r.time) {
            return;
        }
        self.order.push(Event { time, thread, cpu: r.cpu, kind: Kind::OffCpu(off) });
    }

    fn run(&mut self, r: &Run) {
        if r.time > self.end {
            return;
        }
        let time = self.time(r.time);
        let thread = self.identity.thread(r.tid, r.tgid, time);
        let start = self.time(r.start).min(time);
        if let Some(bursts) = &mut self.bursts
            && r.call == SCHED_YIELD
            && self.identity.in_reach(thread)
        {
            bursts.interval(r.tid, r.call, true, r.start, r.time);
        }
        let user_stack = self.user.get(r.user_stack);
        let off = if r.flags & F_THROTTLED != 0 {
            self.held_back(r.tgid, start, time, user_stack)
        } else {
            OffCpu { syscall: Sysno(r.call), user_stack, ..OffCpu::new(start, start, OffState::Runnable) }
        };
        self.order.push(Event { time, thread, cpu: r.cpu, kind: Kind::OffCpu(off) });
    }

    /// An interval in which a quota kept a thread off the CPU.
    fn held_back(&mut self, tgid: u32, start: Ns, end: Ns, user_stack: StackId) -> OffCpu {
        let object = self.quotas.of(tgid, &mut self.objects);
        OffCpu { object, user_stack, ..OffCpu::new(start, end, OffState::Throttled) }
    }

    fn sample(&mut self, s: &StackCopy) {
        let time = self.time(s.time);
        let thread = self.identity.thread(s.tid, s.tgid, time);
        let kernel_thread = s.flags & raw::F_KERNEL != 0;
        let user_stack = if kernel_thread {
            StackId::NONE
        } else if s.key != 0 {
            self.user.get(s.key) // copied before, in this call or a like one
        } else {
            self.unwind(s, &s.data)
        };
        let user_stack = if kernel_thread {
            user_stack
        } else {
            let focus = self.identity.in_reach(thread);
            self.python.sample((s.tgid, s.tid), s.time, user_stack, focus, &mut self.stacks)
        };
        let sample =
            Sample { weight: self.sample_weight, user_stack, kernel_stack: self.kernel.get(s.kernel_stack) };
        if let Some(bursts) = &mut self.bursts
            && !kernel_thread
            && self.identity.in_reach(thread)
        {
            // Of a thread in user mode orig_ax is negative or the number of an interrupt.
            let [.., orig_ax, ip, _, _, _, _] = s.regs;
            let place = match (s.kernel_stack, u16::try_from(orig_ax)) {
                (0, _) => Place::User(ip),
                (_, Ok(nr)) => Place::Call(nr),
                _ => Place::Kernel,
            };
            bursts.sample(s.tid, place, s.time);
        }
        self.order.push(Event { time, thread, cpu: s.cpu, kind: Kind::Sample(sample) });
    }

    /// Take what a thread executed while it was followed.
    pub fn burst(&mut self, taken: &Taken) {
        let time = self.time(taken.span.1.min(self.end));
        let start = self.time(taken.span.0).min(time);
        let thread = self.identity.thread(taken.tid, taken.pid, time);
        self.identity.is_ours(taken.stepper, time);
        let kind = Kind::Burst(self.stepped.take(taken, start, &mut self.stacks));
        self.order.push(Event { time, thread, cpu: 0, kind });
    }

    /// Take an access to a data flag.
    pub fn touch(&mut self, t: &Touch) {
        let hit = &t.hit;
        if hit.time > self.end {
            return;
        }
        let time = self.time(hit.time);
        let thread = self.identity.thread(hit.tid, hit.tgid, time);
        let raw = RawObject { kind: ObjectKind::Memory as u8, id: t.flag.address, peer: t.flag.peer };
        let object = self.objects.called(raw, &t.flag.name);
        let stack = match self.touched.get(&hit.key) {
            Some(&id) if hit.stack.is_empty() => id,
            _ if hit.stack.is_empty() => self.stacks.leaf(hit.tgid, &hit.regs),
            _ => self.stacks.user(hit.tgid, &hit.regs, &hit.stack),
        };
        if self.touched.len() >= MAX_KEYS {
            self.touched.clear();
        }
        self.touched.insert(hit.key, stack);
        let kind = Kind::DataFlag { object, value: hit.value, write: t.write, stack };
        self.order.push(Event { time, thread, cpu: hit.cpu, kind });
    }

    /// Take a unit that ended. The beginning of one that violated is there already; of another that began too long ago
    /// to be put in its place nothing is told.
    pub fn unit(&mut self, unit: &guards::Ended, unit_type: UnitTypeId) {
        let (start, end) = (self.time(unit.start), self.time(unit.end.min(self.end)));
        if !unit.violated && end.saturating_sub(start) > WINDOW_NS / 2 {
            return;
        }
        let thread = self.identity.thread(unit.tid, unit.pid, end);
        let mut push = |time, begin| {
            self.order.push(Event { time, thread, cpu: 0, kind: Kind::UnitBoundary { unit_type, begin } });
        };
        if !unit.violated {
            push(start, true);
        }
        push(end, false);
    }

    /// Take a unit that took too long.
    pub fn violation(&mut self, v: &guards::Violation, unit_type: UnitTypeId) {
        let time = self.time(v.time.min(self.end));
        let thread = self.identity.thread(v.tid, v.pid, time);
        let none = |id: StackId, empty: bool| if empty { StackId::NONE } else { id };
        let user_stack = none(self.stacks.at(v.pid, &v.user), v.user.is_empty());
        let kernel_stack = none(self.stacks.kernel(&v.kernel), v.kernel.is_empty());
        let (mut user_stack, mut depth) = (user_stack, v.depth);
        if let Some((calls, own)) = v.python.as_ref().filter(|_| user_stack.is_some())
            && let Some(python) = self.stacks.python_read(v.pid, calls.clone())
        {
            (user_stack, depth) = self.stacks.with_python_inside(user_stack, &python, depth, own);
        }
        let violation = Violation {
            start: self.time(v.start).min(time),
            elapsed: v.elapsed,
            threshold: v.threshold,
            unit_type,
            user_stack,
            kernel_stack,
            depth: depth.map_or(0, |d| d as u32),
            at: v.seen,
        };
        let kind = Kind::UnitBoundary { unit_type, begin: true };
        self.order.push(Event { time: violation.start, thread, cpu: 0, kind });
        self.order.push(Event { time, thread, cpu: 0, kind: Kind::Violation(violation) });
    }

    /// Threads that wait shortly again and again: who holds what they waited for last is of interest, as of a
    /// long wait.
    pub fn look_at_loops(&mut self, tids: &[u32]) {
        for tid in tids {
            let Some(last) = self.last.get_mut(tid) else { continue };
            self.python.want_some(last.raw.tgid, *tid);
            if last.off.object.is_some() && self.long.len() < MAX_LONG {
                let (thread, tgid, off) = (last.thread, last.raw.tgid, last.off);
                self.long.push_back(Long { thread, tid: *tid, tgid, off, first: true });
            }
        }
    }

    /// Reads which Python functions wait. `now` is of `CLOCK_MONOTONIC`.
    pub fn look_at_python(&mut self, now: u64) {
        self.python.look(&mut self.stacks, now);
    }

    /// Is it time to give out what is known up to `now` (of `CLOCK_MONOTONIC`)? Whoever takes it is woken for it.
    pub fn is_step(&self, now: u64) -> bool {
        self.time(now) >= self.given + STEP_NS
    }

    /// Items that can go out when everything up to `now` (of `CLOCK_MONOTONIC`) has been read from the
    /// rings: catalogue rows first, then events. `all` keeps nothing back.
    pub fn release(&mut self, now: u64, all: bool) -> Vec<Item> {
        let horizon = if all { Ns::MAX } else { self.time(now).saturating_sub(WINDOW_NS) };
        let mut events = Vec::new();
        if self.is_step(now) || all {
            self.given = self.time(now);
            events = self.order.release(horizon);
        }
        self.events += events.len() as u64;
        let mut items = Vec::new();
        let delta = self.drain();
        if !delta.is_empty() {
            items.push(Item::Catalog(delta));
        }
        if !events.is_empty() {
            items.push(Item::Events(events));
        }
        items
    }

    fn drain(&mut self) -> CatalogDelta {
        let mut delta = self.identity.drain();
        let stacks = self.stacks.drain();
        delta.objects = self.objects.drain().objects;
        delta.stacks = stacks.stacks;
        delta.frames = stacks.frames;
        delta.modules = stacks.modules;
        delta.traces = self.stepped.drain();
        let gone = self.make_room();
        (delta.forgotten.stacks, delta.forgotten.frames) = (gone.stacks, gone.frames);
        delta.forgotten.objects = gone.objects;
        delta
    }
}

fn state(n: u8) -> OffState {
    use OffState::{Dead, Frozen, Idle, Interruptible, Runnable, Stopped, Traced, Uninterruptible};
    [Runnable, Interruptible, Uninterruptible, Stopped, Traced, Frozen, Idle, Dead]
        .get(usize::from(n))
        .copied()
        .unwrap_or(Uninterruptible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::focus::Focus;

    fn lost(time: Ns, count: u64) -> Event {
        let kind = Kind::Lost { since: 0, count, ring: 0 };
        Event { time, thread: ThreadId::NONE, cpu: 0, kind }
    }

    #[test]
    fn a_loss_noticed_after_the_end_is_of_the_end() {
        let identity = Identity::new(1000, &Focus::default(), 1);
        let mut p = Pipeline::new(1000, identity, 99);
        p.push(lost(3000, 1));
        p.end_at(1000 + 4000);
        // The collector looks at the counters a last time once the rings are empty.
        p.push(lost(9000, 2));
        let events: Vec<Event> = p
            .release(u64::MAX, true)
            .into_iter()
            .flat_map(|item| if let Item::Events(e) = item { e } else { Vec::new() })
            .collect();
        let seen: Vec<_> = events
            .iter()
            .map(|e| if let Kind::Lost { count, .. } = e.kind { (count, e.time) } else { (0, 0) })
            .collect();
        assert_eq!(seen, [(1, 3000), (2, 4000)]);
    }

    /// Neither that a timer woke it nor that it got the CPU was reported: the program's record comes when it leaves
    /// the CPU again.
    #[test]
    fn a_wait_whose_waking_was_not_reported_lasts_until_its_end() {
        let mut p = Pipeline::new(1000, Identity::new(1000, &Focus::default(), 1), 99);
        let none = RawObject { kind: K_NONE, id: 0, peer: 0 };
        for (time, start, woken, flags) in
            [(1500, 1100, 0, F_LONG), (9000, 1100, 0, 0), (9700, 9100, 9600, 0), (9800, 9750, 9749, 0)]
        {
            p.off(&Off {
                state: 1,
                context: 0,
                flags,
                tid: 7,
                tgid: 7,
                time,
                start,
                woken,
                waker: 0,
                waker_tgid: 0,
                call: 230,
                waker_call: u16::MAX,
                cpu: 0,
                op: 0,
                value: 0,
                fd: u32::MAX,
                timeout: 0,
                object: none,
                waker_object: none,
                user_stack: 0,
                kernel_stack: 0,
                waker_stack: 0,
            });
        }
        let items = p.release(u64::MAX, true).into_iter();
        let events = items.flat_map(|i| if let Item::Events(e) = i { e } else { Vec::new() });
        let waits: Vec<_> = events
            .filter_map(
                |e| if let Kind::OffCpu(o) = e.kind { Some((o.start, o.woken, e.time)) } else { None },
            )
            .collect();
        // One that was woken just before it left the CPU was runnable all the time.
        assert_eq!(waits, [(100, 0, 500), (100, 8000, 8000), (8100, 8600, 8700), (8750, 8750, 8800)]);
    }
}
