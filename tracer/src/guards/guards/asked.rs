//! Threads come under guard: stacks that the programs do not know are judged, and what is found holds for all threads of
//! the image.

use super::super::frames::{Frames, Sleep};
use super::super::layout::{At, Boundary, LEFT, LOOPS, THREADS, Unit};
use super::super::plan::{Guarded, Spot, Stacked};
use super::super::records::Head;
use super::super::shapes;
use super::super::told::{Ended, Told};
use super::{Guards, MAX_SLEEPS};
use crate::stacks::{Regs, UserFrame};
use pg_event::Sysno;

/// `BPF_NOEXIST`.
const NEW: u64 = 1;

impl Guards {
    /// A stack that the programs did not know, of a process with this image: is it a boundary wait?
    pub(super) fn asked(
        &mut self,
        (head, image): (Head, u64),
        turn: bool,
        regs: &Regs,
        syscall: i64,
        copy: &[u8],
    ) -> Option<Told> {
        let (frames, complete) = self.table.unwind(head.tgid, regs, copy);
        let delta = self.table.drain();
        self.catalog.apply(delta);
        let at = At { ip: regs.ip, sp: regs.sp };
        let mut stacked = Stacked {
            tid: head.tid,
            pid: head.tgid,
            syscall: (!turn).then_some(Sysno(syscall as u16)),
            frames: frames.iter().map(|f| self.spot(f)).collect(),
        };
        if let Some(leaf) = stacked.frames.first_mut() {
            leaf.address = leaf.address.wrapping_sub(1);
        }
        let found = if self.given.is_some() { None } else { (self.judge)(&stacked) };
        if !turn {
            if self.sleeps.len() >= MAX_SLEEPS {
                self.sleeps.clear();
            }
            let stack = self.table.keep(&frames, complete);
            self.sleeps.insert((head.tid, at), Sleep { stack, frames: Frames::of(&frames) });
        }
        let Guarded { of, frame: depth, turn: own, left } =
            found.filter(|g| g.of < self.plan.loops.len().min(LOOPS))?;
        let known = shapes::of(of, regs, &frames, copy, (depth, own)).into_iter().flatten();
        for (ip, mut shape) in known.take(if left { 1 } else { 2 }).filter(|_| image != 0) {
            if left {
                shape.of_loop |= LEFT;
            }
            let (key, gone) = self.shapes.add(image, ip, &shape);
            for key in gone {
                let _ = self.program.shapes.remove(&key);
            }
            let _ = self.program.shapes.insert(key, shape, 0);
        }
        let frame = stacked.frames.get(depth)?.sp;
        let call = if turn { At::default() } else { at };
        let wait = Boundary { call, turn: stacked.frames.get(own)?.sp };
        if let Ok(slot) = self.program.slots.get(&head.tid, 0) {
            // Of a thread that has come to another loop the programs see that at its next wait there.
            let unit = self.program.units.get(&slot, 0).ok()?;
            if unit.of_loop as usize != of {
                return None;
            }
            if !left {
                self.program.mapped.wait_at(slot as usize, wait, frame);
            }
            // It sleeps there since then: that unit was over by then, and the next begins when it wakes, or at its next boundary.
            let over =
                (!turn).then(|| self.program.mapped.end_asleep(slot as usize, head.time, at, left))??;
            return Some(Told::Ended(Ended {
                tid: head.tid,
                pid: head.tgid,
                of_loop: of,
                number: over.number,
                violated: true,
                start: over.start,
                end: over.off,
                elapsed: over.off.saturating_sub(over.start.saturating_add(over.spent)),
                of: self.type_of(of, over.best),
            }));
        }
        if left {
            return None;
        }
        let Ok(slot) = self.program.spare.pop(0) else {
            let crowded = format!("more than {THREADS} threads: those that came later are not guarded");
            if !self.notes.contains(&crowded) {
                self.notes.push(crowded);
            }
            return None;
        };
        let mut unit = Unit::new(head.tid, head.tgid, of as u32, frame, slot);
        unit.waits[0] = wait;
        if !turn {
            // It goes to sleep: the first unit begins when it wakes.
            unit.off = head.time;
        }
        let set = self.program.units.set(slot, unit, 0);
        if set.and_then(|()| self.program.slots.insert(head.tid, slot, NEW)).is_err() {
            // The programs were first: they know the same by now.
            let _ = self.program.spare.push(slot, 0);
            return None;
        }
        self.threads.insert(head.tid, slot as usize);
        self.follow_python(of, head.tgid, head.tid);
        Some(Told::Guarded { tid: head.tid, pid: head.tgid, of_loop: of })
    }

    /// A thread is gone. Its place is free again; the programs have seen to that where units are given.
    pub(super) fn forget(&mut self, tid: u32) {
        let _ = self.program.pythons.remove(&tid);
        let Some(slot) = self.threads.remove(&tid).filter(|_| self.given.is_none()) else { return };
        // It may have got its place when it was gone already.
        if self.program.slots.get(&tid, 0).is_ok_and(|s| s as usize == slot) {
            let _ = self.program.slots.remove(&tid);
        }
        let _ = self.program.spare.push(slot as u32, 0);
    }

    fn spot(&self, f: &UserFrame) -> Spot {
        let frame = self.catalog.frames.get(f.frame.index());
        let module = frame.and_then(|f| self.catalog.modules.get(f.module.index()));
        let module = module.map_or_else(String::new, |m| {
            if m.build_id.is_empty() { m.short().to_owned() } else { m.build_id.clone() }
        });
        Spot { module, address: frame.map_or(0, |f| f.address), sp: f.regs.sp().unwrap_or(0) }
    }
}
