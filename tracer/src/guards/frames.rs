//! Frames of stacks, with where each lies.

use crate::stacks::UserFrame;
use pg_event::StackId;

/// Farther than this is another stack.
const STACK_REACH: u64 = 8 << 20;

/// The stack of a wait.
pub struct Sleep {
    pub stack: StackId,
    pub frames: Frames,
}

/// Frames of a stack, the leaf first.
#[derive(Clone, Default)]
pub struct Frames {
    pub addresses: Box<[u64]>,
    /// Their stack pointers; 0 where it is not known.
    pub sps: Box<[u64]>,
}

impl Frames {
    pub fn of(frames: &[UserFrame]) -> Self {
        Self {
            addresses: frames.iter().map(|f| f.address).collect(),
            sps: frames.iter().map(|f| f.regs.sp().unwrap_or(0)).collect(),
        }
    }

    /// Whether the frame is there whose return address lies at `frame`; `None` when that is not known.
    pub fn has(&self, frame: u64) -> Option<bool> {
        let caller = frame.wrapping_add(8);
        let there = self.sps.contains(&caller);
        let beyond = self.sps.iter().any(|&sp| sp > caller && sp - caller < STACK_REACH);
        (there || beyond).then_some(there)
    }

    /// How many lie inside the one with this stack pointer.
    pub fn inside(&self, frame: u64) -> Option<usize> {
        self.sps.iter().position(|&sp| sp >= frame).filter(|_| frame != 0)
    }
}
