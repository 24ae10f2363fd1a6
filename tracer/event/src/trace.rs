//! Traces: the instructions that a thread executed one after the other in a burst (Argus, section 5.4).
//!
//! A trace is a row of the catalogue; the event [`crate::Kind::Burst`] says when it was and whose it is. Nothing in it
//! depends on how it was made: whoever follows a thread, by single steps or by translated code, can write the same.

use crate::{FrameId, Ns, StackId, Sysno, TraceId};

/// Most instructions of a trace: what is longer is refused when read.
pub const MAX_STEPS: u64 = 1 << 20;
/// Longest instruction of x86, bytes.
pub const MAX_CODE: usize = 15;

/// How a trace was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum How {
    /// In a way that this version does not know.
    #[default]
    Unknown = 0,
    /// By single steps (ptrace): slow, and every instruction is there.
    SingleSteps = 1,
    /// By executing translated code.
    Translation = 2,
}

impl How {
    /// By number; unknown numbers are [`How::Unknown`].
    pub fn from_u8(n: u8) -> Self {
        match n {
            1 => Self::SingleSteps,
            2 => Self::Translation,
            _ => Self::Unknown,
        }
    }

    /// In words: `in single steps`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unknown => "in an unknown way",
            Self::SingleSteps => "in single steps",
            Self::Translation => "by translated code",
        }
    }
}

/// Why a burst ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum BurstEnd {
    /// Not known.
    #[default]
    Unknown = 0,
    /// Its time was over.
    Time = 1,
    /// It had as many instructions as were asked for.
    Steps = 2,
    /// The thread slept until the time was over.
    Asleep = 3,
    /// The thread ended.
    Exited = 4,
    /// The thread came to an instruction or a system call that must not be followed.
    Unfit = 5,
    /// The thread was stopped (job control, a signal).
    Stopped = 6,
}

impl BurstEnd {
    /// By number; unknown numbers are [`BurstEnd::Unknown`].
    pub fn from_u8(n: u8) -> Self {
        [Self::Unknown, Self::Time, Self::Steps, Self::Asleep, Self::Exited, Self::Unfit, Self::Stopped]
            .get(usize::from(n))
            .copied()
            .unwrap_or_default()
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unknown => "it ended for an unknown reason",
            Self::Time => "the time asked for was over",
            Self::Steps => "as many instructions as asked for",
            Self::Asleep => "it slept until the time was over",
            Self::Exited => "the thread ended",
            Self::Unfit => "the next instruction or call must not be followed",
            Self::Stopped => "the thread was stopped",
        }
    }
}

/// A thread was followed from `start` to `Event::time`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Burst {
    /// When it began.
    pub start: Ns,
    /// What was executed.
    pub trace: TraceId,
    /// How many instructions.
    pub steps: u32,
    /// How it was made.
    pub how: How,
}

/// Where an instruction leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Flow {
    /// To the next one.
    #[default]
    Next = 0,
    /// Elsewhere, perhaps (a jump, with or without condition).
    Jump = 1,
    /// Into a function.
    Call = 2,
    /// Back to the caller.
    Return = 3,
    /// Into the kernel.
    Syscall = 4,
}

impl Flow {
    /// By number.
    pub fn from_u8(n: u8) -> Option<Self> {
        [Self::Next, Self::Jump, Self::Call, Self::Return, Self::Syscall].get(usize::from(n)).copied()
    }
}

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instruction {
    /// Where it is: module, address, function and line.
    pub frame: FrameId,
    /// Where it leads.
    pub flow: Flow,
    len: u8,
    code: [u8; MAX_CODE],
}

impl Instruction {
    /// From its bytes; more than [`MAX_CODE`] are cut off. None: they were taken out of the recording.
    pub fn new(frame: FrameId, flow: Flow, bytes: &[u8]) -> Self {
        let len = bytes.len().min(MAX_CODE);
        let mut code = [0; MAX_CODE];
        code[..len].copy_from_slice(&bytes[..len]);
        Self { frame, flow, len: len as u8, code }
    }

    /// Its bytes.
    pub fn code(&self) -> &[u8] {
        &self.code[..usize::from(self.len).min(MAX_CODE)]
    }
}

/// A block executed so many times in succession.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// Which block: its number.
    pub block: u32,
    /// How often.
    pub times: u32,
}

/// What else is known of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The number of the step.
    pub step: u32,
    /// What.
    pub what: MarkKind,
}

/// What a [`Mark`] tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// The step is this system call; its result is not known when the burst ended in it.
    Syscall(Sysno, Option<i64>),
    /// The step returns from a function with this in the result register.
    Returned(u64),
    /// Before the step a signal was delivered.
    Signal(u8),
}

/// The instructions of a burst, in the order of their execution.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// How it was made.
    pub how: How,
    /// Why it ended.
    pub end: BurstEnd,
    /// The thread's stack when it began.
    pub stack: StackId,
    /// The blocks' instructions, one block after the other.
    pub code: Vec<Instruction>,
    /// Where each block begins in `code`; it ends where the next one begins.
    pub blocks: Vec<u32>,
    /// What was executed.
    pub runs: Vec<Run>,
    /// What else is known, by step.
    pub marks: Vec<Mark>,
}

impl Trace {
    /// The instructions of a block; empty for one that does not exist.
    pub fn block(&self, n: u32) -> &[Instruction] {
        let n = n as usize;
        let Some(from) = self.blocks.get(n) else { return &[] };
        let to = self.blocks.get(n + 1).map_or(self.code.len(), |to| *to as usize);
        self.code.get(*from as usize..to).unwrap_or_default()
    }

    /// How many instructions were executed.
    pub fn steps(&self) -> u64 {
        self.runs.iter().map(|r| self.block(r.block).len() as u64 * u64::from(r.times)).sum()
    }

    /// All blocks that were executed, in order, each with the number of its first step.
    pub fn walk(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut step = 0u64;
        let all = self.runs.iter().flat_map(|r| std::iter::repeat_n(r.block, r.times as usize));
        all.map(move |block| {
            let first = step;
            step += self.block(block).len() as u64;
            (first.min(u64::from(u32::MAX)) as u32, block)
        })
    }

    /// Is it whole, and no longer than a trace may be? What is read from a file is not believed before.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        if !self.blocks.is_sorted() || self.blocks.last().is_some_and(|l| *l as usize > self.code.len()) {
            return Err("its blocks are out of order".into());
        }
        let mut steps = 0u64;
        for r in &self.runs {
            let len = self.block(r.block).len() as u64;
            if len == 0 || r.times == 0 {
                return Err("it executes a block that is not there".into());
            }
            steps = steps.saturating_add(len * u64::from(r.times));
        }
        if steps > MAX_STEPS {
            return Err(format!("it claims {steps} instructions, at most {MAX_STEPS} are allowed"));
        }
        if !self.marks.is_sorted_by_key(|m| m.step) {
            return Err("what it tells of single steps is out of order".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(runs: &[(u32, u32)]) -> Trace {
        let one = |n| Instruction::new(FrameId(n), Flow::Next, &[0x90]);
        Trace {
            code: (0..5).map(one).collect(),
            blocks: vec![0, 2],
            runs: runs.iter().map(|&(block, times)| Run { block, times }).collect(),
            ..Trace::default()
        }
    }

    #[test]
    fn blocks_in_order() {
        let t = trace(&[(0, 1), (1, 2), (0, 1)]);
        assert_eq!(t.check(), Ok(()));
        assert_eq!((t.steps(), t.block(1).len(), t.block(2).len()), (10, 3, 0));
        assert_eq!(t.walk().collect::<Vec<_>>(), [(0, 0), (2, 1), (5, 1), (8, 0)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(trace(&[(2, 1)]).check().is_err());
        assert!(trace(&[(1, 0)]).check().is_err());
        assert!(trace(&[(1, u32::MAX)]).check().is_err_and(|e| e.contains("at most")));
        let t = Trace { blocks: vec![0, 9], ..trace(&[]) };
        assert!(t.check().is_err());
        let t = Trace { blocks: vec![3, 1], ..trace(&[]) };
        assert!(t.check().is_err());
    }
}
