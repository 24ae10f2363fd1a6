//! Events as columns: what the payload of an event chunk looks like.
//!
//! ```text
//! rows, groups; then per group: tag, columns, and per column: length, bytes
//! ```
//! Group 0 holds what every event has (tag of its kind, time, thread, CPU); each other group the fields
//! of one kind. The same few waits come again and again, so what identifies a wait (system call, object,
//! stacks, ...) and its waker is kept once per chunk and named by number: 0 = the next new one. When a
//! thread left its CPU is mostly known from who came onto it then (see `Switches`).
//! A reader skips groups and columns it does not know, so new ones need a new minor version only.

mod guess;
mod number;

use super::column::{Col, Out};
use guess::{Positions, Switches};
use number::{Front, Quickly, Threads, Wait, Waker};
use pg_event::trace::How;
use pg_event::{
    Burst, Context, Direction, Display, Event, Hold, IpcUse, Kind, Ns, ObjectId, OffCpu, OffState, Relation,
    Sample, SeenBy, StackId, SyscallUse, Sysno, ThreadId, TraceId, UnitTypeId, Unserved, Violation, Work,
};
use std::collections::HashMap;

const COMMON: usize = 0;
const OFF_CPU: usize = 1;
const IPC: usize = 2;
const SYSCALL: usize = 3;
const SAMPLE: usize = 4;
const SPAWN: usize = 5;
const EXEC: usize = 6;
const EXIT: usize = 7;
const SIGNAL: usize = 8;
const HOLD: usize = 9;
const DATA_FLAG: usize = 10;
const UNIT: usize = 11;
const MARK: usize = 12;
const LOST: usize = 13;
const WORK: usize = 14;
const UNSERVED: usize = 15;
const BURST: usize = 16;
const UNHEARD: usize = 17;
const VIOLATION: usize = 18;
const GROUPS: usize = 19;
/// Columns of each group.
const COLUMNS: [usize; GROUPS] = [4, 17, 6, 6, 3, 1, 0, 1, 2, 3, 4, 2, 1, 3, 3, 5, 4, 1, 8];
const MAX_COLUMNS: usize = 17;

/// Makes payloads: takes events one after the other and keeps them as columns until a chunk is due. Its
/// buffers serve for the next chunk.
pub(super) struct Encoder {
    common: [Out; COLUMNS[COMMON]],
    off: [Out; COLUMNS[OFF_CPU]],
    /// The other groups; those two are empty here.
    groups: [Vec<Out>; GROUPS],
    waits: HashMap<Wait, u32, Quickly>,
    wakers: HashMap<Waker, u32, Quickly>,
    front_waits: Front<Wait>,
    front_wakers: Front<Waker>,
    switches: Switches,
    positions: Positions,
    time: Ns,
    rows: u32,
    span: Option<(Ns, Ns)>,
    threads: Threads,
}

/// A chunk's payload and what there is to say about it.
pub(super) struct Payload {
    pub(super) raw: Vec<u8>,
    pub(super) rows: u32,
    /// Earliest and latest time.
    pub(super) first: Ns,
    pub(super) last: Ns,
    /// The threads in it, sorted.
    pub(super) threads: Vec<u32>,
}

impl Default for Encoder {
    fn default() -> Self {
        let wait = Wait { syscall: 0, op: 0, object: 0, user_stack: 0, kernel_stack: 0 };
        let waker = Waker { thread: 0, context: 0, syscall: 0, object: 0, stack: 0 };
        let columns = |g: usize| if matches!(g, COMMON | OFF_CPU) { 0 } else { COLUMNS[g] };
        Self {
            common: std::array::from_fn(|_| Out::default()),
            off: std::array::from_fn(|_| Out::default()),
            groups: std::array::from_fn(|g| std::iter::repeat_with(Out::default).take(columns(g)).collect()),
            waits: HashMap::default(),
            wakers: HashMap::default(),
            front_waits: Front::new(wait),
            front_wakers: Front::new(waker),
            switches: Switches::default(),
            positions: Positions::default(),
            time: 0,
            rows: 0,
            span: None,
            threads: Threads::default(),
        }
    }
}

impl Encoder {
    /// Events taken since the last payload.
    pub(super) fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Take an event. `false`: a kind without a group of its own (none today) is left out.
    pub(super) fn push(&mut self, e: &Event) -> bool {
        let tag = if let Kind::OffCpu(o) = &e.kind {
            self.off_cpu(e, o);
            OFF_CPU
        } else {
            match self.row(e) {
                Some(tag) => tag,
                None => return false,
            }
        };
        let [tags, times, threads, cpus] = &mut self.common;
        tags.byte(tag as u8);
        times.i(e.time.wrapping_sub(self.time) as i64);
        threads.id(e.thread.0);
        cpus.u(u64::from(e.cpu));
        self.time = e.time;
        self.rows += 1;
        let (first, last) = self.span.unwrap_or((e.time, e.time));
        self.span = Some((first.min(e.time), last.max(e.time)));
        self.threads.note(e.thread.0);
        true
    }

    /// The payload of what was taken; nothing is held any more.
    pub(super) fn finish(&mut self) -> Payload {
        let columns = |g: usize| -> &[Out] {
            match g {
                COMMON => &self.common,
                OFF_CPU => &self.off,
                _ => &self.groups[g],
            }
        };
        let used: Vec<usize> = (0..GROUPS)
            .filter(|&g| g == COMMON || columns(g).iter().any(|c| !c.bytes().is_empty()))
            .collect();
        let length: usize = used.iter().flat_map(|&g| columns(g)).map(|c| c.bytes().len() + 10).sum();
        let mut out = Out::with_capacity(length + 200);
        out.u(u64::from(self.rows));
        out.u(used.len() as u64);
        for g in used {
            out.u(g as u64);
            out.u(columns(g).len() as u64);
            for c in columns(g) {
                out.u(c.bytes().len() as u64);
                out.extend(c.bytes());
            }
        }
        let (first, last) = self.span.take().unwrap_or_default();
        let payload =
            Payload { raw: out.into_bytes(), rows: self.rows, first, last, threads: self.threads.take() };
        self.common.iter_mut().chain(&mut self.off).for_each(Out::clear);
        self.groups.iter_mut().flatten().for_each(Out::clear);
        self.waits.clear();
        self.wakers.clear();
        self.front_waits.clear();
        self.front_wakers.clear();
        self.switches.clear();
        self.positions = Positions::default();
        (self.time, self.rows) = (0, 0);
        payload
    }

    /// The fields of an event that is no interval; the tag of its group.
    fn row(&mut self, e: &Event) -> Option<usize> {
        let ago = |t: Ns| e.time.wrapping_sub(t);
        let tag = match e.kind {
            Kind::Ipc(i) => {
                let c = &mut self.groups[IPC];
                c[0].id(i.object.0);
                c[1].byte(i.direction as u8);
                c[2].u(u64::from(i.count));
                c[3].u(i.bytes);
                c[4].u(ago(i.first));
                let before = self.positions.replace(i.object.0, i.direction, i.position);
                c[5].i(i.position.wrapping_sub(before) as i64);
                IPC
            }
            Kind::Syscall(s) => {
                let c = &mut self.groups[SYSCALL];
                c[0].u(ago(s.start));
                c[1].u(u64::from(s.nr.0.wrapping_add(1)));
                c[2].i(s.result);
                c[3].u(u64::from(s.count));
                c[4].u(u64::from(s.op));
                c[5].id(s.object.0);
                SYSCALL
            }
            Kind::Sample(s) => {
                let c = &mut self.groups[SAMPLE];
                c[0].u(s.weight);
                c[1].id(s.user_stack.0);
                c[2].id(s.kernel_stack.0);
                SAMPLE
            }
            Kind::Spawn { child } => {
                self.groups[SPAWN][0].id(child.0);
                SPAWN
            }
            Kind::Exec => EXEC,
            Kind::Exit { status } => {
                self.groups[EXIT][0].u(u64::from(status));
                EXIT
            }
            Kind::Signal { target, signal } => {
                let c = &mut self.groups[SIGNAL];
                c[0].id(target.0);
                c[1].byte(signal);
                SIGNAL
            }
            Kind::Hold(h) => {
                let c = &mut self.groups[HOLD];
                c[0].id(h.object.0);
                c[1].id(h.subject.0);
                c[2].byte(h.relation as u8);
                HOLD
            }
            Kind::DataFlag { object, value, write, stack } => {
                let c = &mut self.groups[DATA_FLAG];
                c[0].id(object.0);
                c[1].u(value);
                c[2].byte(u8::from(write));
                c[3].id(stack.0);
                DATA_FLAG
            }
            Kind::UnitBoundary { unit_type, begin } => {
                let c = &mut self.groups[UNIT];
                c[0].id(unit_type.0);
                c[1].byte(u8::from(begin));
                UNIT
            }
            Kind::Work(w) => {
                let c = &mut self.groups[WORK];
                c[0].id(w.object.0);
                c[1].id(w.requester.0);
                c[2].u(ago(w.queued));
                WORK
            }
            Kind::Unserved(u) => {
                let c = &mut self.groups[UNSERVED];
                c[0].id(u.object.0);
                c[1].u(ago(u.since));
                c[2].u(ago(u.until));
                c[3].u(u.bytes);
                c[4].byte(u8::from(u.open) | u8::from(u.arrived) << 1 | (u.display as u8) << 2);
                UNSERVED
            }
            Kind::Burst(b) => {
                let c = &mut self.groups[BURST];
                c[0].u(ago(b.start));
                c[1].id(b.trace.0);
                c[2].u(u64::from(b.steps));
                c[3].byte(b.how as u8);
                BURST
            }
            Kind::Unheard { since } => {
                self.groups[UNHEARD][0].u(ago(since));
                UNHEARD
            }
            Kind::Violation(v) => {
                let c = &mut self.groups[VIOLATION];
                c[0].u(ago(v.start));
                c[1].u(v.elapsed);
                c[2].u(v.threshold);
                c[3].id(v.unit_type.0);
                c[4].id(v.user_stack.0);
                c[5].id(v.kernel_stack.0);
                c[6].u(u64::from(v.depth));
                c[7].byte(v.at as u8);
                VIOLATION
            }
            Kind::Mark { number } => {
                self.groups[MARK][0].u(u64::from(number));
                MARK
            }
            Kind::Lost { since, count, ring } => {
                let c = &mut self.groups[LOST];
                c[0].u(ago(since));
                c[1].u(count);
                c[2].byte(ring);
                LOST
            }
            _ => return None,
        };
        Some(tag)
    }

    fn off_cpu(&mut self, e: &Event, o: &OffCpu) {
        let time = e.time;
        let as_expected = self.switches.left(e.thread.0) == Some(o.start);
        self.switches.came(e.thread.0, e.cpu, time);
        // woken: 0 = when it left, 1 = never, 2 = in column 2.
        // 3 = in column 2, too, and the state is the one that has no number below 8.
        let woken = if o.state == OffState::Throttled {
            3
        } else if o.woken == o.start {
            0
        } else if o.woken == 0 {
            1
        } else {
            2
        };
        let c = &mut self.off;
        c[0].byte(
            o.state as u8 & 7
                | u8::from(o.open) << 3
                | u8::from(o.begun_before) << 4
                | woken << 5
                | u8::from(as_expected) << 7,
        );
        if !as_expected {
            c[1].u(time.wrapping_sub(o.start));
        }
        if woken >= 2 {
            c[2].u(time.wrapping_sub(o.woken));
        }
        c[3].u(u64::from(o.value));
        c[4].u(o.timeout.wrapping_add(1));
        let wait = Wait {
            syscall: o.syscall.0,
            op: o.op,
            object: o.object.0,
            user_stack: o.user_stack.0,
            kernel_stack: o.kernel_stack.0,
        };
        let mix = wait.user_stack ^ wait.object.rotate_left(16) ^ wait.kernel_stack.rotate_left(8);
        let (known, new) = self.front_waits.number(wait, mix, &mut self.waits);
        if new {
            c[5].u(0);
            c[7].u(u64::from(wait.syscall.wrapping_add(1)));
            c[8].u(u64::from(wait.op));
            c[9].id(wait.object);
            c[10].id(wait.user_stack);
            c[11].id(wait.kernel_stack);
        } else {
            c[5].u(u64::from(known));
        }
        let waker = Waker {
            thread: o.waker.0,
            context: o.waker_context as u8,
            syscall: o.waker_syscall.0,
            object: o.waker_object.0,
            stack: o.waker_stack.0,
        };
        let mix = waker.thread ^ waker.object.rotate_left(16) ^ waker.stack.rotate_left(8);
        let (known, new) = self.front_wakers.number(waker, mix, &mut self.wakers);
        if new {
            c[6].u(0);
            c[12].id(waker.thread);
            c[13].byte(waker.context);
            c[14].u(u64::from(waker.syscall.wrapping_add(1)));
            c[15].id(waker.object);
            c[16].id(waker.stack);
        } else {
            c[6].u(u64::from(known));
        }
    }
}

/// Reads payloads; keeps its buffers from one chunk to the next.
#[derive(Default)]
pub(super) struct Decoder {
    waits: Vec<Wait>,
    wakers: Vec<Waker>,
    switches: Switches,
}

impl Decoder {
    /// Append the events of a payload to `out`. `rows` is what the chunk's frame claims. Returns how many
    /// rows were of kinds that this version does not know. After an error `out` is as before.
    pub(super) fn decode(&mut self, payload: &[u8], rows: u32, out: &mut Vec<Event>) -> Result<u32, String> {
        let mut head = Col::new(payload);
        let n = head.u();
        if n != u64::from(rows) {
            return Err(format!("holds {n} rows instead of {rows}"));
        }
        let groups = head.u();
        let mut cols = [[Col::default(); MAX_COLUMNS]; GROUPS];

        for _ in 0..groups {
            let tag = head.u() as usize;
            let columns = head.u();
            for i in 0..columns {
                let len = head.u();
                let bytes = head.take(len);
                if head.is_bad() {
                    return Err("its columns are cut off".into());
                }
                if let Some(slot) = cols.get_mut(tag).and_then(|g| g.get_mut(i as usize)) {
                    *slot = Col::new(bytes);
                }
            }
            if head.is_bad() {
                return Err("its columns are cut off".into());
            }
        }
        let before = out.len();
        // One byte per row at least: what is reserved is bounded by what is there.
        out.reserve((rows as usize).min(payload.len()));
        self.waits.clear();
        self.wakers.clear();
        self.switches.clear();
        let mut positions = Positions::default();
        let mut time = 0u64;
        let mut unknown = 0;
        let [
            common,
            off,
            ipc,
            sys,
            sample,
            spawn,
            _,
            exit,
            signal,
            hold,
            flag,
            unit,
            mark,
            lost,
            work,
            unserved,
            burst,
            unheard,
            violation,
        ] = &mut cols;
        for _ in 0..rows {
            let tag = common[0].byte() as usize;
            time = time.wrapping_add(common[1].i() as u64);
            let thread = ThreadId(common[2].id());
            let cpu = common[3].u16();
            let kind = match tag {
                OFF_CPU => Kind::OffCpu(self.off_cpu(off, time, thread.0, cpu)),
                IPC => {
                    let object = ipc[0].id();
                    let direction = if ipc[1].flag() { Direction::Receive } else { Direction::Send };
                    let count = ipc[2].u32();
                    let bytes = ipc[3].u();
                    let first = time.wrapping_sub(ipc[4].u());
                    let position = positions.slot(object, direction);
                    *position = position.wrapping_add(ipc[5].i() as u64);
                    let position = *position;
                    Kind::Ipc(IpcUse { object: ObjectId(object), direction, count, bytes, first, position })
                }
                SYSCALL => Kind::Syscall(SyscallUse {
                    start: time.wrapping_sub(sys[0].u()),
                    nr: Sysno(sys[1].u16().wrapping_sub(1)),
                    result: sys[2].i(),
                    count: sys[3].u32(),
                    op: sys[4].u32(),
                    object: ObjectId(sys[5].id()),
                }),
                SAMPLE => Kind::Sample(Sample {
                    weight: sample[0].u(),
                    user_stack: StackId(sample[1].id()),
                    kernel_stack: StackId(sample[2].id()),
                }),
                SPAWN => Kind::Spawn { child: ThreadId(spawn[0].id()) },
                EXEC => Kind::Exec,
                EXIT => Kind::Exit { status: exit[0].u32() },
                SIGNAL => Kind::Signal { target: ThreadId(signal[0].id()), signal: signal[1].byte() },
                HOLD => {
                    let (object, subject) = (ObjectId(hold[0].id()), ThreadId(hold[1].id()));
                    let Some(relation) = Relation::from_u8(hold[2].byte()) else {
                        unknown += 1;
                        continue;
                    };
                    Kind::Hold(Hold { object, subject, relation })
                }
                DATA_FLAG => Kind::DataFlag {
                    object: ObjectId(flag[0].id()),
                    value: flag[1].u(),
                    write: flag[2].flag(),
                    stack: StackId(flag[3].id()),
                },
                UNIT => Kind::UnitBoundary { unit_type: UnitTypeId(unit[0].id()), begin: unit[1].flag() },
                UNHEARD => Kind::Unheard { since: time.wrapping_sub(unheard[0].u()) },
                MARK => Kind::Mark { number: mark[0].u32() },
                LOST => Kind::Lost {
                    since: time.wrapping_sub(lost[0].u()),
                    count: lost[1].u(),
                    ring: lost[2].byte(),
                },
                WORK => Kind::Work(Work {
                    object: ObjectId(work[0].id()),
                    requester: ThreadId(work[1].id()),
                    queued: time.wrapping_sub(work[2].u()),
                }),
                UNSERVED => {
                    let object = ObjectId(unserved[0].id());
                    let (since, until) =
                        (time.wrapping_sub(unserved[1].u()), time.wrapping_sub(unserved[2].u()));
                    let bytes = unserved[3].u();
                    let flags = unserved[4].byte();
                    let (open, arrived) = (flags & 1 != 0, flags & 2 != 0);
                    let display = Display::from_u8(flags >> 2);
                    Kind::Unserved(Unserved { object, since, until, bytes, open, arrived, display })
                }
                BURST => Kind::Burst(Burst {
                    start: time.wrapping_sub(burst[0].u()),
                    trace: TraceId(burst[1].id()),
                    steps: burst[2].u32(),
                    how: How::from_u8(burst[3].byte()),
                }),
                VIOLATION => Kind::Violation(Violation {
                    start: time.wrapping_sub(violation[0].u()),
                    elapsed: violation[1].u(),
                    threshold: violation[2].u(),
                    unit_type: UnitTypeId(violation[3].id()),
                    user_stack: StackId(violation[4].id()),
                    kernel_stack: StackId(violation[5].id()),
                    depth: violation[6].u32(),
                    at: SeenBy::from_u8(violation[7].byte()),
                }),
                COMMON => {
                    common[0].spoil();
                    break;
                }
                _ => {
                    unknown += 1;
                    continue;
                }
            };
            out.push(Event { time, thread, cpu, kind });
        }
        let bad = cols.iter().enumerate().find_map(|(g, c)| c.iter().position(Col::is_bad).map(|i| (g, i)));
        if let Some((group, column)) = bad {
            out.truncate(before);
            return Err(format!("column {column} of group {group} is too short or holds what cannot be"));
        }
        Ok(unknown)
    }

    #[inline]
    fn off_cpu(&mut self, c: &mut [Col<'_>; MAX_COLUMNS], time: Ns, thread: u32, cpu: u16) -> OffCpu {
        let flags = c[0].byte();
        let start = if flags & 0x80 == 0 {
            time.wrapping_sub(c[1].u())
        } else if let Some(left) = self.switches.left(thread) {
            left
        } else {
            c[0].spoil();
            0
        };
        self.switches.came(thread, cpu, time);
        let woken = match flags >> 5 & 3 {
            0 => start,
            1 => 0,
            _ => time.wrapping_sub(c[2].u()),
        };
        let value = c[3].u32();
        let timeout = c[4].u().wrapping_sub(1);
        let wait = match c[5].u() {
            0 => {
                let new = Wait {
                    syscall: c[7].u16().wrapping_sub(1),
                    op: c[8].u32(),
                    object: c[9].id(),
                    user_stack: c[10].id(),
                    kernel_stack: c[11].id(),
                };
                self.waits.push(new);
                Some(new)
            }
            n => self.waits.get(n as usize - 1).copied(),
        };
        let waker = match c[6].u() {
            0 => {
                let new = Waker {
                    thread: c[12].id(),
                    context: c[13].byte(),
                    syscall: c[14].u16().wrapping_sub(1),
                    object: c[15].id(),
                    stack: c[16].id(),
                };
                self.wakers.push(new);
                Some(new)
            }
            n => self.wakers.get(n as usize - 1).copied(),
        };
        let state = if flags >> 5 & 3 == 3 { OffState::Throttled } else { OffState::from_u8(flags & 7) };
        let mut off = OffCpu::new(start, woken, state);
        off.open = flags & 8 != 0;
        off.begun_before = flags & 16 != 0;
        off.value = value;
        off.timeout = timeout;
        if let Some(w) = wait {
            off.syscall = Sysno(w.syscall);
            off.op = w.op;
            off.object = ObjectId(w.object);
            off.user_stack = StackId(w.user_stack);
            off.kernel_stack = StackId(w.kernel_stack);
        } else {
            c[5].spoil();
        }
        if let Some(w) = waker {
            off.waker = ThreadId(w.thread);
            off.waker_context = Context::from_u8(w.context);
            off.waker_syscall = Sysno(w.syscall);
            off.waker_object = ObjectId(w.object);
            off.waker_stack = StackId(w.stack);
        } else {
            c[6].spoil();
        }
        off
    }
}
