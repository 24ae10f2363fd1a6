//! Turns records into events: names threads, objects and stacks by ids, and puts the events in order.

mod beside;
mod holds;
mod intervals;
mod leaves;
mod recent;
mod room;
mod silent;
mod user_stacks;

use super::asked_files::AskedFiles;
use super::burst::Bursts;
use super::hash::{FastMap, FastSet};
use super::objects::Objects;
use super::on_cpu::Place;
use super::order::{Order, STEP_NS, WINDOW_NS};
use super::python::Python;
use super::quota::Quotas;
use super::raw::{self, Off, RawObject, Record, StackCopy};
use super::retries::Retries;
use super::stepped::Stepped;
use crate::holders::Holders;
use crate::identity::Identity;
use crate::stacks::StackTable;
use crate::unserved::Tracker;
use holds::Left;
use leaves::Leaves;
use pg_event::{
    CatalogDelta, Direction, Event, IpcUse, Item, Kind, Ns, ObjectId, ObjectKind, OffCpu, OffState, Sample,
    StackId, SyscallUse, Sysno, ThreadId, Work,
};
use recent::Recent;
use silent::Silent;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most long waits kept for looking up who holds what they wait for.
const MAX_LONG: usize = 4096;

/// A wait that has become long.
#[derive(Clone, Copy, Debug)]
struct Long {
    thread: ThreadId,
    tid: u32,
    tgid: u32,
    off: OffCpu,
    /// Nobody was asked for yet.
    first: bool,
    /// Of a call that fails again and again: its error, negative. Of a wait 0.
    error: i64,
}

/// The last interval of a thread, as it came and as it was translated: records refer to it.
#[derive(Clone, Copy)]
struct Last {
    raw: Off,
    thread: ThreadId,
    off: OffCpu,
    /// [`Pipeline::changes`] when it was translated.
    changes: u64,
    /// When the thread's last interval ended (`CLOCK_MONOTONIC`).
    heard: u64,
    /// It waits since, and that it does was reported.
    reported: bool,
    /// [`Silent`] has it among those that are active.
    listed: bool,
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
    silent: Silent,
    /// Since when threads wait that have waited long, by their number, and where: their stacks are remembered until
    /// the wait ends, however many others come meanwhile.
    open: FastMap<u32, (u64, StackId)>,
    /// Counts what can change how a thread or a stack is named.
    changes: u64,
    leaves: Leaves,
    /// Waits that have become long and whose holders were not looked up yet.
    long: VecDeque<Long>,
    /// Those for which nobody was found, to be asked for once more from a time on.
    later: VecDeque<(Ns, Long)>,
    /// Those that cannot be looked up any more.
    left: Left,
    pub holders: Holders,
    pub python: Python,
    quotas: Quotas,
    retries: Retries,
    pub(super) asked: AskedFiles,
    /// Looks for threads that deserve a burst, when there are to be bursts.
    pub bursts: Option<Bursts>,
    /// Follows connections of the focus that are not served, when there is a focus.
    pub queues: Option<Tracker>,
    /// When a unix datagram was received last (`CLOCK_MONOTONIC`), 0 for never.
    pub datagram: u64,
    /// To whom threads sent a UDP datagram last, by their numbers.
    asked_udp: FastMap<u32, ObjectId>,
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
    /// Waits told to be like the last one of their thread, which is not known.
    pub dangling: u64,
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
            silent: Silent::default(),
            open: FastMap::default(),
            changes: 0,
            leaves: Leaves::default(),
            long: VecDeque::new(),
            later: VecDeque::new(),
            left: Left::default(),
            holders: Holders::new(),
            python: Python::default(),
            quotas: Quotas::new(),
            retries: Retries::default(),
            asked: AskedFiles::default(),
            bursts: None,
            queues: None,
            datagram: 0,
            asked_udp: FastMap::default(),
            unnamed: 0,
            stepped: Stepped::default(),
            given: 0,
            events: 0,
            damaged: 0,
            dangling: 0,
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
        // Processes with a thread more since identity was told last.
        let mut grown: FastSet<u32> = FastSet::default();
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
                    } else {
                        grown.insert(child_tgid);
                    }
                }
                Record::Exec { tgid, .. } => self.stacks.exec(tgid),
                Record::Exit { tid, tgid, .. } => {
                    // Most programs have one thread, and need not be looked at to know that it was the last.
                    let several = |t| self.identity.threads_with(t).len() > 1;
                    let others = grown.contains(&tgid) || self.identity.find(tgid).is_some_and(several);
                    self.stacks.exit(tgid, tid == tgid, others);
                }
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
        self.take(record);
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Off(r) => self.off(&r),
            Record::Again(r) => self.again(&r),
            Record::Run(r) => self.run(&r),
            Record::Name { object, name } => self.objects.name(object, &name),
            Record::Set { kind, id, more, mut members } => {
                // Of an epoll instance the muted descriptors are left out: what is missing must not look like them.
                if more > 0 && kind == ObjectKind::Epoll as u8 {
                    members.push(RawObject { kind: ObjectKind::Unknown as u8, id: 0, peer: 0 });
                }
                self.objects.members(RawObject { kind, id, peer: 0 }, &members);
            }
            Record::KernelStack { hash, frames } => {
                let id = self.stacks.kernel(&frames);
                self.kernel.insert(hash, id);
            }
            Record::Fork { cpu, tid, time, child, child_tgid, comm } if time <= self.end => {
                self.changes += 1;
                self.silent.begins(child, time);
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
                if self.unstarted == Some(tgid) {
                    self.unstarted = None;
                    self.identity.begins(tgid, now);
                }
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
                self.leaves.forget(tid);
                self.silent.known(tid);
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
            Record::Use(u) if u.last <= self.end => self.message(&u),
            Record::Work(w) if w.time <= self.end => self.work(&w),
            Record::Python { tid, time, whole: true, frames } => self.python.sampled(tid, time, frames),
            Record::Call(c) if c.end <= self.end => self.call(&c),
            _ => {}
        }
    }

    /// Messages over one object.
    fn message(&mut self, u: &raw::Use) {
        if u.receive && u.object.kind == ObjectKind::UnixDatagram as u8 {
            self.datagram = u.last;
        }
        if u.receive && u.object.kind == ObjectKind::Udp as u8 && u.object.peer == 0 {
            self.unnamed += u64::from(u.count);
        }
        let object = self.objects.id(u.object);
        if !u.receive && u.object.kind == ObjectKind::Udp as u8 && u.object.peer != 0 {
            self.asked_by_datagram(u.tid, object);
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
            object,
            direction: if u.receive { Direction::Receive } else { Direction::Send },
            count: u.count,
            bytes: u.bytes,
            first: self.time(u.first),
            position: u.position,
        });
        self.order.push(Event { time: now, thread, cpu: 0, kind });
    }

    /// Equal system calls in a row.
    fn call(&mut self, c: &raw::Call) {
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
        self.asks_for_file(thread, c.tid, &call);
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
            self.long.push_back(Long { thread, tid: c.tid, tgid: c.tgid, off, first: true, error: c.result });
            self.python.want_some(c.tgid, c.tid);
        }
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

    fn sample(&mut self, s: &StackCopy) {
        let time = self.time(s.time);
        let thread = self.identity.thread(s.tid, s.tgid, time);
        self.identity.note_ran(thread, self.sample_weight, time);
        let kernel_thread = s.flags & raw::F_KERNEL != 0;
        let user_stack = if kernel_thread {
            StackId::NONE
        } else if s.key != 0 {
            self.user.get(s.key) // copied before, in this call or a like one
        } else {
            self.unwind(s, &s.data)
        };
        if !kernel_thread {
            for stack in self.leaves.sample(s.tid, (s.kernel_stack == 0).then_some(user_stack)) {
                self.stacks.turns_at(stack);
            }
        }
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

    /// Threads that wait shortly again and again: who holds what they waited for last is of interest, as of a
    /// long wait.
    pub fn look_at_loops(&mut self, tids: &[u32], now: u64) {
        for tid in tids {
            self.look_at_memory(*tid, self.time(now));
            let Some(last) = self.last.get_mut(tid) else { continue };
            self.python.want_some(last.raw.tgid, *tid);
            if last.off.object.is_some() && self.long.len() < MAX_LONG {
                let (thread, tgid, off) = (last.thread, last.raw.tgid, last.off);
                self.long.push_back(Long { thread, tid: *tid, tgid, off, first: true, error: 0 });
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
}
