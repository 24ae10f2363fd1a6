//! Intervals off the CPU: from records to events.

use super::super::raw::{
    Again, F_KERNEL, F_LONG, F_OPEN, F_SEEDED, F_THROTTLED, K_NONE, Off, RawObject, Run,
};
use super::{Last, Long, Pipeline};
use pg_event::{Context, Event, Kind, Ns, ObjectKind, OffCpu, OffState, StackId, Sysno, ThreadId};

/// Number of `sched_yield` (x86-64).
const SCHED_YIELD: u16 = 24;
/// Who had no CPU for so long, ns, is likely to be scheduled behind others.
const LATE: Ns = 250_000_000;
/// Numbers of the calls that wait for a signal: `pause`, `rt_sigtimedwait`, `rt_sigsuspend`.
const WAITS_FOR_SIGNAL: [u16; 3] = [34, 128, 130];

impl Pipeline {
    /// An interval off the CPU, or a wait that goes on.
    #[inline]
    pub(super) fn off(&mut self, r: &Off) {
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
            ..OffCpu::new(start, woken, OffState::from_u8(r.state))
        };
        if off.user_stack.is_none()
            && let Some((_, stack)) = self.open.get(&r.tid).filter(|o| o.0 == r.start)
        {
            off.user_stack = *stack;
        }
        if r.flags & F_LONG != 0 {
            self.silent.known(r.tid);
            if let Some(last) = self.last.get_mut(&r.tid) {
                last.reported = true;
            }
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
            self.remember(r, thread, off);
            self.interval(r.tid, (r.start, r.time), thread, &off);
        }
        if self.stepped.by_us(r.tid, off.state, r.start, r.time) {
            return;
        }
        let until = if open { u64::MAX } else { r.woken };
        off.user_stack = self.python.stack(r.tid, (r.start, until), off.user_stack, &mut self.stacks);
        if r.flags & F_LONG != 0 {
            self.python.want(r.tgid, r.tid);
            self.ask(Long { thread, tid: r.tid, tgid: r.tgid, off, first: true, error: 0 });
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

    /// Remember an interval that ended: what comes next may refer to it.
    fn remember(&mut self, r: &Off, thread: ThreadId, off: OffCpu) {
        self.silent.known(r.tid);
        let listed = self.last.get(&r.tid).is_some_and(|l| l.listed);
        // Long waits of the kernel's own threads are not reported.
        let of_kernel = r.flags & F_KERNEL != 0;
        if !listed && !of_kernel {
            self.silent.active(r.tid);
        }
        let last = Last {
            raw: Off { flags: r.flags & !F_THROTTLED, ..*r },
            thread,
            off,
            changes: self.changes,
            heard: r.time,
            reported: false,
            listed: listed || !of_kernel,
        };
        self.last.insert(r.tid, last);
    }

    /// An interval like the last one of its thread.
    pub(super) fn again(&mut self, r: &Again) {
        // Of what comes after the end, the one that it refers to was not looked at, either.
        if r.time > self.end {
            return;
        }
        let Some(last) = self.last.get_mut(&r.tid) else {
            self.dangling += u64::from(self.unstarted != Some(r.tid));
            return;
        };
        if r.rewoken.is_some() || last.changes != self.changes {
            let raw = last.raw.again(r);
            self.off(&raw);
            return;
        }
        last.heard = r.time;
        last.reported = false;
        if !last.listed && last.raw.flags & F_KERNEL == 0 {
            last.listed = true;
            self.silent.active(r.tid);
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

    /// Off the CPU though runnable.
    pub(super) fn run(&mut self, r: &Run) {
        if r.time > self.end || self.unstarted == Some(r.tid) {
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
        if time - start >= LATE {
            self.identity.note_scheduling(thread, time);
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
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::raw::Record;
    use super::*;
    use crate::focus::Focus;
    use crate::identity::Identity;
    use pg_event::Item;

    const NONE: RawObject = RawObject { kind: K_NONE, id: 0, peer: 0 };

    /// What thread 7 waited, 1000 before the recording's zero.
    pub fn off((time, start, woken, flags): (u64, u64, u64, u8)) -> Off {
        Off {
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
            object: NONE,
            waker_object: NONE,
            user_stack: 0,
            kernel_stack: 0,
            waker_stack: 0,
        }
    }

    fn waits(items: &[Item]) -> Vec<(Ns, Ns, Ns)> {
        let events = items.iter().filter_map(|i| if let Item::Events(e) = i { Some(e) } else { None });
        let wait =
            |e: &Event| if let Kind::OffCpu(o) = e.kind { Some((o.start, o.woken, e.time)) } else { None };
        events.flatten().filter_map(wait).collect()
    }

    /// Neither that a timer woke it nor that it got the CPU was reported: the program's record comes when it leaves
    /// the CPU again.
    #[test]
    fn a_wait_whose_waking_was_not_reported_lasts_until_its_end() {
        let mut p = Pipeline::new(1000, Identity::new(1000, &Focus::default(), 1), 99);
        for wait in
            [(1500, 1100, 0, F_LONG), (9000, 1100, 0, 0), (9700, 9100, 9600, 0), (9800, 9750, 9749, 0)]
        {
            p.off(&off(wait));
        }
        let waits = waits(&p.release(u64::MAX, true));
        // One that was woken just before it left the CPU was runnable all the time.
        assert_eq!(waits, [(100, 0, 500), (100, 8000, 8000), (8100, 8600, 8700), (8750, 8750, 8800)]);
    }

    /// What the process of a command does before it executes that is the recorder's.
    #[test]
    fn a_command_begins_when_it_is_executed() {
        let mut p = Pipeline::new(1000, Identity::new(1000, &Focus::default(), 1), 99);
        p.unstarted = Some(7);
        p.off(&off((3000, 500, 2900, F_SEEDED)));
        let (comm, argv) = (*b"job\0\0\0\0\0\0\0\0\0\0\0\0\0", b"job".to_vec());
        p.take(Record::Exec { cpu: 0, tid: 7, time: 3100, tgid: 7, comm, argv });
        p.off(&off((3900, 3300, 3800, 0)));
        let items = p.release(u64::MAX, true);
        assert_eq!(waits(&items), [(2300, 2800, 2900)]);
        let rows = items.iter().filter_map(|i| if let Item::Catalog(d) = i { Some(d) } else { None });
        let starts: Vec<_> = rows
            .map(|d| (d.processes.last().map(|p| p.1.start), d.threads.last().map(|t| t.1.start)))
            .collect();
        assert_eq!(starts, [(Some(2100), Some(2100))]);
    }

    /// Programs are taken out one after the other: new threads wait again and again meanwhile.
    #[test]
    fn what_comes_after_the_end_misses_nothing() {
        let mut p = Pipeline::new(1000, Identity::new(1000, &Focus::default(), 1), 99);
        let again = |time| Again {
            cpu: 0,
            tid: 7,
            time,
            start: time - 20,
            woken: time - 10,
            kernel_stack: 0,
            rewoken: None,
        };
        p.end = 5000;
        p.off(&off((5100, 5050, 5090, 0)));
        p.again(&again(5200));
        assert_eq!((p.dangling, waits(&p.release(u64::MAX, true))), (0, vec![]));
        p.again(&again(4900));
        assert_eq!((p.dangling, p.damaged), (1, 0));
    }
}
