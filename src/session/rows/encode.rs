//! From events to columns.

use super::guess::{Positions, Switches};
use super::number::{Front, Quickly, Threads, Wait, Waker};
use super::{
    BURST, COLUMNS, COMMON, DATA_FLAG, EXEC, EXIT, GROUPS, HOLD, IPC, LOST, MARK, OFF_CPU, SAMPLE, SIGNAL,
    SPAWN, SYSCALL, UNHEARD, UNIT, UNSERVED, VIOLATION, WORK,
};
use crate::session::column::Out;
use pg_event::{Event, Kind, Ns, OffCpu, OffState};
use std::collections::HashMap;

/// Makes payloads: takes events one after the other and keeps them as columns until a chunk is due. Its
/// buffers serve for the next chunk.
pub(in crate::session) struct Encoder {
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
pub(in crate::session) struct Payload {
    pub(in crate::session) raw: Vec<u8>,
    pub(in crate::session) rows: u32,
    /// Earliest and latest time.
    pub(in crate::session) first: Ns,
    pub(in crate::session) last: Ns,
    /// The threads in it, sorted.
    pub(in crate::session) threads: Vec<u32>,
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
    pub(in crate::session) fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Take an event. `false`: a kind without a group of its own (none today) is left out.
    pub(in crate::session) fn push(&mut self, e: &Event) -> bool {
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
    pub(in crate::session) fn finish(&mut self) -> Payload {
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
                c[8].u(v.stolen);
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
