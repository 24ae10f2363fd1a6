//! A trace: the instructions a thread executed, each with the registers it had before it.

use super::stepper::{CODE, RawStep};
use crate::stacks::Regs;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Register};

/// One instruction and the registers before it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What is executed.
    pub instruction: Instruction,
    /// Before it.
    pub regs: Regs,
    /// Begin of the thread's own variables.
    pub fs: u64,
    /// `gs` segment's begin.
    pub gs: u64,
    /// How many calls deep, counted from where the trace began: negative for its callers.
    pub depth: i32,
}

impl Step {
    /// The value of a register.
    pub fn register(&self, r: Register) -> Option<u64> {
        use Register as R;
        let g = &self.regs;
        Some(match r.full_register() {
            R::RAX => g.ax,
            R::RBX => g.bx,
            R::RCX => g.cx,
            R::RDX => g.dx,
            R::RSI => g.si,
            R::RDI => g.di,
            R::RBP => g.bp,
            R::RSP => g.sp,
            R::R8 => g.r8,
            R::R9 => g.r9,
            R::R10 => g.r10,
            R::R11 => g.r11,
            R::R12 => g.r12,
            R::R13 => g.r13,
            R::R14 => g.r14,
            R::R15 => g.r15,
            R::RIP => g.ip,
            R::FS => self.fs,
            R::GS => self.gs,
            R::DS | R::ES | R::SS | R::CS => 0,
            _ => return None,
        })
    }
}

/// Instructions in the order of their execution.
#[derive(Default)]
pub struct Trace {
    /// The steps.
    pub steps: Vec<Step>,
    depth: i32,
}

impl Trace {
    /// Append a step.
    pub fn push(&mut self, raw: &RawStep) {
        let r = &raw.regs;
        let regs = Regs::from(r);
        self.add(&raw.code, regs, r.fs_base, r.gs_base);
    }

    fn add(&mut self, code: &[u8; CODE], regs: Regs, fs: u64, gs: u64) {
        let instruction = Decoder::with_ip(64, code, regs.ip, DecoderOptions::NONE).decode();
        self.steps.push(Step { instruction, regs, fs, gs, depth: self.depth });
        match instruction.flow_control() {
            _ if instruction.code() == Code::Syscall => {}
            FlowControl::Call | FlowControl::IndirectCall => self.depth += 1,
            FlowControl::Return => self.depth -= 1,
            _ => {}
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Executes pieces of code by hand: the test says which instruction comes next and what the registers are.
    #[derive(Default)]
    pub struct Hand {
        pub trace: Trace,
        pub regs: Regs,
    }

    impl Hand {
        /// An instruction at an address, with the registers as they are now.
        pub fn at(&mut self, ip: u64, code: &[u8]) -> &mut Self {
            let mut bytes = [0x90; CODE];
            bytes[..code.len()].copy_from_slice(code);
            self.trace.add(&bytes, Regs { ip, ..self.regs }, 0x7000_0000, 0);
            self
        }
    }

    #[test]
    fn calls_go_deeper() {
        let mut h = Hand::default();
        h.at(0x10, &[0xe8, 0, 0, 0, 0])
            .at(0x15, &[0xc3])
            .at(0x20, &[0x0f, 0x05])
            .at(0x22, &[0xc3])
            .at(0x30, &[0x90]);
        assert_eq!(h.trace.steps.iter().map(|s| s.depth).collect::<Vec<_>>(), [0, 1, 0, 0, -1]);
    }
}
