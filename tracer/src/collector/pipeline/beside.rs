//! What comes beside the rings: bursts of instructions, accesses to data flags, units as guards saw them.

use super::super::raw::RawObject;
use super::Pipeline;
use super::recent::MAX_KEYS;
use crate::flags::Touch;
use crate::guards;
use crate::stacks::PythonCalls;
use crate::steps::Taken;
use pg_event::{Event, Kind, ObjectKind, SeenBy, StackId, UnitTypeId, Violation};

impl Pipeline {
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

    /// Take a unit that ended. The beginning of one that violated is there already; another one that began too long ago to be
    /// put in its place is not told: it would seem to have taken less time, or none.
    pub fn unit(&mut self, unit: &guards::Ended, unit_type: UnitTypeId) {
        let (start, end) = (self.time(unit.start), self.time(unit.end.min(self.end)));
        let unseen = unit.start < self.start || self.order.is_past(start);
        if unit.end < self.start || (!unit.violated && unseen) {
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

    /// Take a unit that took too long. Of one that was seen before the recording began it has nothing.
    pub fn violation(&mut self, v: &guards::Violation, unit_type: UnitTypeId) {
        if v.time < self.start {
            return;
        }
        let time = self.time(v.time.min(self.end));
        let thread = self.identity.thread(v.tid, v.pid, time);
        let kernel_stack = if v.kernel.is_empty() { StackId::NONE } else { self.stacks.kernel(&v.kernel) };
        let (user_stack, depth) = self.seen_at(v.pid, &v.user, v.depth, v.python.as_ref());
        let violation = Violation {
            start: self.time(v.start).min(time),
            elapsed: v.elapsed,
            threshold: v.threshold,
            unit_type,
            user_stack,
            kernel_stack,
            depth: depth.map_or(0, |d| d as u32),
            at: v.seen,
            stolen: v.stolen,
        };
        let kind = Kind::UnitBoundary { unit_type, begin: true };
        self.order.push(Event { time: violation.start, thread, cpu: 0, kind });
        self.order.push(Event { time, thread, cpu: 0, kind: Kind::Violation(violation) });
    }

    /// Where a unit is that was told.
    pub fn look(&mut self, l: &guards::Look, unit_type: UnitTypeId) {
        if l.time < self.start {
            return;
        }
        let time = self.time(l.time.min(self.end));
        let thread = self.identity.thread(l.tid, l.pid, time);
        let (user_stack, depth) = self.seen_at(l.pid, &l.user, l.depth, l.python.as_ref());
        let look = Violation {
            start: self.time(l.start).min(time),
            elapsed: l.elapsed,
            threshold: 0,
            unit_type,
            user_stack,
            kernel_stack: StackId::NONE,
            depth: depth.map_or(0, |d| d as u32),
            at: SeenBy::Look,
            stolen: 0,
        };
        self.order.push(Event { time, thread, cpu: 0, kind: Kind::Violation(look) });
    }

    /// Take it that a unit that was told has turned out to be of another type.
    pub fn withdrawn(&mut self, w: &guards::Withdrawn, unit_type: UnitTypeId) {
        if w.time < self.start {
            return;
        }
        let time = self.time(w.time.min(self.end));
        let thread = self.identity.thread(w.tid, w.pid, time);
        let withdrawn = Violation {
            start: self.time(w.start).min(time),
            elapsed: w.elapsed,
            threshold: w.threshold,
            unit_type,
            user_stack: StackId::NONE,
            kernel_stack: StackId::NONE,
            depth: 0,
            at: SeenBy::Withdrawn,
            stolen: 0,
        };
        self.order.push(Event { time, thread, cpu: 0, kind: Kind::Violation(withdrawn) });
    }

    /// The stack of these addresses, with the functions of Python in place of the interpreter's, and how many frames of it
    /// lie inside the loop's.
    fn seen_at(
        &mut self,
        pid: u32,
        user: &[u64],
        depth: Option<usize>,
        python: Option<&(PythonCalls, String)>,
    ) -> (StackId, Option<usize>) {
        if user.is_empty() {
            return (StackId::NONE, depth);
        }
        let stack = self.stacks.at(pid, user);
        let read = python.and_then(|(calls, own)| Some((self.stacks.python_read(pid, calls.clone())?, own)));
        read.map_or((stack, depth), |(read, own)| self.stacks.with_python_inside(stack, &read, depth, own))
    }
}
