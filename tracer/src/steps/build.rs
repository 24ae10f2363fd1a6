//! From steps to a trace: blocks that are executed again and again are kept once.

use super::code::shape;
use crate::flags::find::stepper::RawStep;
use pg_event::trace::{Flow, How, Instruction, Mark, MarkKind, Run};
use pg_event::{FrameId, Sysno, Trace};
use std::collections::HashMap;

/// Number of `rt_sigreturn` (x86-64).
const SIGRETURN: u64 = 15;

/// A step as it matters here.
#[derive(Clone, Copy, Debug)]
struct Step {
    ip: u64,
    code: [u8; 16],
    ax: u64,
    sp: u64,
    /// The signal that it is to be continued with.
    signal: i32,
    /// The signal whose handler begins with it.
    handles: i32,
}

/// Makes a trace of steps.
#[derive(Default)]
pub(super) struct Build {
    trace: Trace,
    places: Vec<u64>,
    known: HashMap<u64, u32>,
    blocks: HashMap<Vec<Instruction>, u32>,
    /// The block that is not at its end.
    open: Vec<Instruction>,
    /// The last step: what came of it is known at the next one.
    last: Option<Step>,
    steps: u32,
}

impl Build {
    /// The next step.
    pub(super) fn push(&mut self, raw: &RawStep) {
        self.step(Step {
            ip: raw.regs.rip,
            code: raw.code,
            ax: raw.regs.rax,
            sp: raw.regs.rsp,
            signal: raw.signal,
            handles: 0,
        });
    }

    fn step(&mut self, mut step: Step) {
        if let Some(last) = self.last.take() {
            let (_, len) = shape(&last.code, last.ip);
            // A handler begins with a frame of all registers on a stack.
            let handled = step.sp.abs_diff(last.sp) > 256 && step.ip != last.ip.wrapping_add(len as u64);
            if step.signal != 0 && last.ip == step.ip {
                // The signal came before the instruction was executed.
            } else if last.signal != 0 && handled {
                // Its handler was entered instead.
                step.handles = last.signal;
            } else {
                self.executed(last, Some(&step));
            }
        }
        self.last = Some(step);
    }

    /// A step and the one that came after it.
    fn executed(&mut self, s: Step, next: Option<&Step>) {
        let (flow, len) = shape(&s.code, s.ip);
        let places = &mut self.places;
        let frame = *self.known.entry(s.ip).or_insert_with(|| {
            places.push(s.ip);
            places.len() as u32 - 1
        });
        let n = self.steps;
        self.steps += 1;
        if let Ok(signal @ 1..) = u8::try_from(s.handles) {
            self.trace.marks.push(Mark { step: n, what: MarkKind::Signal(signal) });
        }
        let what = match flow {
            // The end of a signal's handler brings all registers back: there is no result.
            Flow::Syscall if s.ax == SIGRETURN => Some(MarkKind::Syscall(Sysno(s.ax as u16), None)),
            Flow::Syscall => Some(MarkKind::Syscall(Sysno(s.ax as u16), next.map(|n| n.ax as i64))),
            Flow::Return => Some(MarkKind::Returned(s.ax)),
            _ => None,
        };
        self.trace.marks.extend(what.map(|what| Mark { step: n, what }));
        self.open.push(Instruction::new(FrameId(frame), flow, &s.code[..len]));
        let goes_on = next.is_some_and(|n| n.ip == s.ip.wrapping_add(len as u64));
        if flow != Flow::Next || !goes_on {
            self.close();
        }
    }

    /// The open block is at its end.
    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let code = std::mem::take(&mut self.open);
        let t = &mut self.trace;
        let next = t.blocks.len() as u32;
        let block = self.blocks.get(&code).copied().unwrap_or(next);
        if block == next {
            t.blocks.push(t.code.len() as u32);
            t.code.extend(&code);
            self.blocks.insert(code, next);
        }
        match t.runs.last_mut().filter(|r| r.block == block) {
            Some(r) => r.times += 1,
            None => t.runs.push(Run { block, times: 1 }),
        }
    }

    /// The trace, and the addresses that its frames stand for.
    pub(super) fn finish(mut self) -> (Trace, Vec<u64>) {
        // The last instruction was reached; whether it was executed is not known.
        if let Some(last) = self.last.take() {
            self.executed(last, None);
            if let Some(m) = self.trace.marks.last_mut().filter(|m| m.step + 1 == self.steps)
                && matches!(m.what, MarkKind::Returned(_))
            {
                self.trace.marks.pop();
            }
        }
        self.close();
        self.trace.how = How::SingleSteps;
        (self.trace, self.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ip: u64, code: &[u8], ax: u64) -> Step {
        let mut bytes = [0x90; 16];
        bytes[..code.len()].copy_from_slice(code);
        Step { ip, code: bytes, ax, sp: 0x9000, signal: 0, handles: 0 }
    }

    /// `1: inc; jne 1` four times, then a call into the kernel, then back.
    #[test]
    fn a_loop_is_one_block() {
        let mut b = Build::default();
        for _ in 0..4 {
            b.step(step(0x10, &[0xff, 0xc0], 7));
            b.step(step(0x12, &[0x75, 0xfc], 7));
        }
        b.step(step(0x14, &[0x0f, 0x05], 24));
        b.step(step(0x16, &[0xc3], 0));
        b.step(step(0x80, &[0x90], 0));
        let (t, places) = b.finish();
        assert_eq!(places, [0x10, 0x12, 0x14, 0x16, 0x80]);
        assert_eq!(t.check(), Ok(()));
        let runs: Vec<_> = t.runs.iter().map(|r| (r.block, r.times)).collect();
        assert_eq!((runs, t.steps()), (vec![(0, 4), (1, 1), (2, 1), (3, 1)], 11));
        assert_eq!(t.block(0)[1].code(), [0x75, 0xfc]);
        let marks: Vec<_> = t.marks.iter().map(|m| (m.step, m.what)).collect();
        assert_eq!(marks, [(8, MarkKind::Syscall(Sysno(24), Some(0))), (9, MarkKind::Returned(0))]);
    }

    /// The signal comes before the second instruction, which is executed after its handler.
    #[test]
    fn a_signal_executes_nothing() {
        let mut b = Build::default();
        b.step(step(0x10, &[0x90], 0));
        b.step(step(0x11, &[0x90], 0));
        b.step(Step { signal: 10, ..step(0x11, &[0x90], 0) });
        b.step(Step { sp: 0x8000, ..step(0x500, &[0xc3], 0) });
        b.step(step(0x11, &[0x90], 0));
        let (t, places) = b.finish();
        assert_eq!(places, [0x10, 0x500, 0x11]);
        assert_eq!(t.steps(), 3, "{t:?}");
        assert_eq!(t.marks[0], Mark { step: 1, what: MarkKind::Signal(10) });
    }
}
