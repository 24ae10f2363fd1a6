//! Units that take too long: those that the programs told of, and those that sleep.

use super::super::apart::{self, Probed};
use super::super::frames::Frames;
use super::super::layout::{At, SLOW, STARVED};
use super::super::records;
use super::super::told::{Look, Told, Unknown, Violation};
use super::Guards;
use super::python::Mixed;
use crate::procfs;
use pg_event::{SeenBy, StackId};

/// A unit without a CPU for so long is told as one that sleeps, ns.
const STARVED_FOR: u64 = 1_000_000_000;

/// The stack shows that the call which is a unit is over.
struct Over;

impl Guards {
    /// Does a unit's loop end its units with the call that they began with?
    fn is_call(&self, of_loop: usize) -> bool {
        self.plan.loops.get(of_loop).and_then(|l| l.given.as_ref()).is_some_and(|g| g.ends.is_empty())
    }

    /// How many frames lie inside the loop's; of a given unit that is one call, inside that of its function. `None`: not
    /// known.
    fn distance(&self, frames: &Frames, frame: u64, of_loop: usize) -> Result<Option<usize>, Over> {
        let inside = frames.inside(frame);
        if self.given.is_none() {
            return Ok(inside);
        }
        if !self.is_call(of_loop) {
            // The frame that it began in may be there still.
            return Ok(frames.sps.iter().position(|&sp| sp == frame));
        }
        if frames.has(frame) == Some(false) {
            return Err(Over);
        }
        Ok(inside.map(|n| n.saturating_sub(1)))
    }

    /// What the programs counted as a violation of a type was none.
    fn refute(&mut self, of_loop: usize, of: Option<usize>) {
        *self.refuted.entry((of_loop, of)).or_default() += 1;
    }

    /// The stack that a record has, or that of the place where its thread slept.
    fn stack_of(&mut self, v: &records::Violation) -> (StackId, Frames) {
        if v.copy.is_empty() {
            return self.asleep_at(v.head.tid, v.asleep);
        }
        let (frames, complete) = self.table.unwind(v.head.tgid, &v.regs, &v.copy);
        (self.table.keep(&frames, complete), Frames::of(&frames))
    }

    /// Stack pointer of the frame of a thread's loop; 0: it is not guarded.
    fn frame_of(&self, tid: u32) -> u64 {
        self.threads.get(&tid).map_or(0, |&s| self.program.mapped.frame(s))
    }

    /// `None`: it is over.
    pub(super) fn look_at(&mut self, v: &records::Violation) -> Option<Look> {
        let (user_stack, frames) = self.stack_of(v);
        let of_loop = v.head.of_loop as usize;
        let depth = self.distance(&frames, self.frame_of(v.head.tid), of_loop).ok()?;
        let python = self.python_read(v.head.tgid, &v.python);
        let Mixed { stack: user_stack, distance, python } = self.mixed(of_loop, (user_stack, depth), python);
        Some(Look {
            tid: v.head.tid,
            pid: v.head.tgid,
            number: v.number,
            time: v.head.time,
            start: v.start,
            elapsed: v.elapsed,
            halted: v.halted.min(v.elapsed),
            seen: SeenBy::from_u8(v.seen as u8),
            user_stack,
            distance,
            user: frames.addresses,
            depth,
            python,
        })
    }

    pub(super) fn violation(&mut self, v: &records::Violation) -> Option<Violation> {
        let frame = self.frame_of(v.head.tid);
        let (user_stack, frames) = self.stack_of(v);
        let kernel_stack = if v.kernel.is_empty() { StackId::NONE } else { self.table.kernel(&v.kernel) };
        // The kernel's own count also has the switches that it did not report.
        let ready = v.ready.min(v.elapsed);
        let of_loop = v.head.of_loop as usize;
        let of = self.type_of(of_loop, v.of);
        let seen = SeenBy::from_u8(v.seen as u8);
        let distance = match seen {
            // The stack is that behind its end.
            SeenBy::End if self.given.is_some() => None,
            SeenBy::End => frames.inside(frame),
            _ => self.distance(&frames, frame, of_loop).inspect_err(|_| self.refute(of_loop, of)).ok()?,
        };
        let depth = distance;
        let python = self.python_read(v.head.tgid, &v.python);
        let Mixed { stack: user_stack, distance, python } =
            self.mixed(of_loop, (user_stack, distance), python);
        Some(Violation {
            tid: v.head.tid,
            pid: v.head.tgid,
            of_loop,
            of,
            unknown: self.why_unknown(of_loop, of, v.start),
            number: v.number,
            time: v.head.time,
            start: v.start,
            elapsed: v.elapsed,
            threshold: v.threshold,
            settles: self.settles(of_loop),
            away: v.away.min(v.elapsed).max(ready),
            ready,
            stolen: v.stolen.min(v.elapsed.saturating_sub(v.away.min(v.elapsed).max(ready))),
            halted: v.halted.min(v.elapsed - ready),
            halts: false,
            seen,
            user_stack,
            kernel_stack,
            distance,
            depth,
            python,
            user: frames.addresses,
            kernel: v.kernel.clone(),
        })
    }

    /// Why a unit that began at `start` is of no type.
    fn why_unknown(&self, of_loop: usize, of: Option<usize>, start: u64) -> Option<Unknown> {
        if of.is_some() {
            return None;
        }
        let contexts = apart::contexts(&self.plan, of_loop);
        let (on, windows) = (self.program.lights.since(), self.windows.is_some());
        Some(match self.plan.loops.get(of_loop) {
            None => Unknown::NoTypes,
            Some(l) if l.thresholds.is_empty() => Unknown::NoTypes,
            _ if contexts.is_empty() || !self.probes.are_there() => Unknown::Nothing,
            // Counted from where it must be one, which is when they were set.
            _ if windows && (on == 0 || on >= start) => Unknown::Dark,
            _ if contexts.iter().any(|c| self.probes.probed(c.0) == Probed::No) => Unknown::Resting,
            _ => Unknown::Passed,
        })
    }

    /// The stack of a thread that sleeps.
    fn asleep_at(&self, tid: u32, at: At) -> (StackId, Frames) {
        let known = self.sleeps.get(&(tid, at));
        known.map_or_else(|| (StackId::NONE, Frames::default()), |s| (s.stack, s.frames.clone()))
    }

    /// Units that sleep for too long: their threads come by nothing.
    pub(super) fn look(&mut self, now: u64, out: &mut Vec<Told>) {
        let threads: Vec<(u32, usize)> = self.threads.iter().map(|(t, s)| (*t, *s)).collect();
        for (tid, slot) in threads {
            let Some(asleep) = self.program.mapped.asleep(slot) else { continue };
            let Ok(unit) = self.program.units.get(&(slot as u32), 0) else { continue };
            let of_loop = unit.of_loop as usize;
            let of = self.type_of(of_loop, asleep.best);
            let Some(plan) = self.plan.loops.get(of_loop) else { continue };
            let threshold = of.map_or(plan.unknown, |t| self.held[of_loop][t]);
            let elapsed = now.saturating_sub(asleep.start.saturating_add(asleep.spent));
            let (nowhere, off) = (asleep.at == At::default(), now.saturating_sub(asleep.off));
            let away = asleep.away.saturating_add(off);
            let ready = asleep.ready.saturating_add(if nowhere { off } else { 0 });
            // One that only lost its CPU is met when it gets one, with its stack.
            let over = threshold != 0 && elapsed > threshold && !(nowhere && off < STARVED_FOR);
            let how = if elapsed.saturating_sub(ready).saturating_sub(asleep.stolen) > threshold {
                SLOW
            } else {
                STARVED
            };
            if !over || unit.tid != tid {
                continue;
            }
            // Woken, and without a CPU since: how long is told when it gets one. Asked once a unit, but for those that are.
            let runnable = || procfs::read_thread_stat(tid).is_some_and(|s| s.state == b'R');
            if !nowhere && off < STARVED_FOR && self.program.mapped.is_new(slot) && runnable() {
                continue;
            }
            let Some(count) = self.program.mapped.claim(slot, &asleep, how) else { continue };
            let limits = (self.plan.period, self.longest());
            if !self.program.rings.ring((of_loop, asleep.best), (now, elapsed), (count, how), limits) {
                continue;
            }
            self.program.mapped.tell(slot, elapsed);
            let (user_stack, frames) = self.asleep_at(tid, asleep.at);
            let Ok(depth) = self.distance(&frames, unit.frame, of_loop) else {
                self.refute(of_loop, of);
                continue;
            };
            let python = self.python_asleep(of_loop, (unit.tgid, tid, slot), (asleep.at, asleep.off));
            let Mixed { stack: user_stack, distance, python } =
                self.mixed(of_loop, (user_stack, depth), python);
            out.push(Told::Violation(Box::new(Violation {
                tid,
                pid: unit.tgid,
                of_loop,
                of,
                unknown: self.why_unknown(of_loop, of, asleep.start),
                number: asleep.number,
                time: now,
                start: asleep.start,
                elapsed,
                threshold,
                settles: self.settles(of_loop),
                away,
                ready,
                stolen: asleep.stolen.min(elapsed.saturating_sub(away)),
                halted: asleep.halted.saturating_add(if asleep.halts { off } else { 0 }).min(elapsed),
                halts: asleep.halts,
                seen: SeenBy::Asleep,
                user_stack,
                kernel_stack: StackId::NONE,
                distance,
                depth,
                python,
                user: frames.addresses,
                kernel: Vec::new(),
            })));
        }
    }
}
