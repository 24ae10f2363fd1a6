//! Copies of user stacks, unwound.

use super::super::raw::{F_SEEDED, StackCopy};
use super::Pipeline;
use crate::stacks::Regs;
use pg_event::StackId;

/// `__USER32_CS` (kernel: `arch/x86/include/asm/segment.h`): the code segment of 32-bit programs.
const USER32_CS: u64 = 0x23;
/// Its place in `struct pt_regs`.
const CS: usize = 17;

impl Pipeline {
    pub(super) fn unwind(&mut self, s: &StackCopy, data: &[u8]) -> StackId {
        let regs = Regs::from(s.regs);
        if s.regs[CS] == USER32_CS {
            // Its stack has words of another size: better no caller than a wrong one.
            return self.stacks.leaf(s.tgid, &regs);
        }
        self.stacks.user(s.tgid, &regs, data)
    }

    pub(super) fn user_stack(&mut self, s: &StackCopy) {
        // Of a thread that is about to end no memory is left to copy: what was seen there before is still true.
        if s.flags & F_SEEDED == 0 && s.data.is_empty() && self.user.get(s.key) != StackId::NONE {
            return;
        }
        let id = if s.flags & F_SEEDED != 0 {
            let copy = super::super::memory::stack(s.tid, s.regs[19]);
            self.unwind(s, &copy)
        } else {
            self.unwind(s, &s.data)
        };
        if self.user.get(s.key) != id {
            self.changes += 1;
        }
        self.user.insert(s.key, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::focus::Focus;
    use crate::identity::Identity;

    /// The place of a wait is told again as its thread ends, when no memory is left to copy.
    #[test]
    fn a_stack_is_kept_when_its_thread_ends() {
        let mut p = Pipeline::new(0, Identity::new(0, &Focus::default(), 1), 99);
        let copy = |data: Vec<u8>| StackCopy {
            flags: 0,
            cpu: 0,
            tid: 7,
            tgid: 7,
            time: 1,
            key: 9,
            kernel_stack: 0,
            regs: [0x1000; 21],
            data,
        };
        p.user_stack(&copy(vec![1; 64]));
        let (id, changes) = (p.user.get(9), p.changes);
        assert_ne!(id, StackId::NONE);
        p.user.insert(9, StackId(id.0 + 1));
        p.user_stack(&copy(Vec::new()));
        assert_eq!((p.user.get(9), p.changes), (StackId(id.0 + 1), changes));
        // Another place of a thread that ends is better than none.
        p.user_stack(&StackCopy { key: 10, ..copy(Vec::new()) });
        assert_ne!(p.user.get(10), StackId::NONE);
    }
}
