//! Functions of Python in the stacks of violations.
//!
//! Of a thread that has the CPU the programs read the interpreter's frames with its stack: only then it stands still. One
//! that sleeps is read here.

use super::super::layout::At;
use super::Guards;
use crate::stacks::{PythonCalls, PythonStack, RawFrame};
use pg_event::StackId;

/// The stack of a violation.
pub(super) struct Mixed {
    pub stack: StackId,
    /// How many of its frames lie inside the loop's.
    pub distance: Option<usize>,
    /// The functions of Python in it, and that of the loop.
    pub python: Option<(PythonCalls, String)>,
}

impl Guards {
    /// The name of a loop's function, if it is one of Python.
    fn python_of(&self, of_loop: usize) -> Option<&String> {
        self.plan.loops.get(of_loop)?.python.as_ref()
    }

    /// A thread came under guard: the programs are to read its frames of Python, if its loop is one.
    pub(super) fn follow_python(&mut self, of_loop: usize, pid: u32, tid: u32) {
        if self.python_of(of_loop).is_some()
            && !self.plan.learning
            && let Some(followed) = self.table.follow_python(pid, tid)
        {
            // A map that is full forgets those it has not seen for longest.
            let _ = self.program.pythons.insert(tid, followed.words(pid), 0);
        }
    }

    /// What the programs read of a thread.
    pub(super) fn python_read(&mut self, pid: u32, frames: &[RawFrame]) -> Option<PythonStack> {
        if frames.is_empty() { None } else { self.table.python_sampled(pid, frames) }
    }

    /// What is read now of a thread that sleeps at a place since `off`, if it still does.
    pub(super) fn python_asleep(
        &mut self,
        of_loop: usize,
        (pid, tid, slot): (u32, u32, usize),
        (at, off): (At, u64),
    ) -> Option<PythonStack> {
        self.python_of(of_loop)?;
        let python = self.table.python(pid, tid)?;
        // It did not run while it was read; nor before, if it is the sleep that its stack is of.
        (self.program.mapped.sleep(slot) == (at, off) && python.read.0 >= off).then_some(python)
    }

    /// A stack with these functions; `distance`: how many of its frames lie inside the loop's.
    pub(super) fn mixed(
        &mut self,
        of_loop: usize,
        (stack, distance): (StackId, Option<usize>),
        python: Option<PythonStack>,
    ) -> Mixed {
        let (Some(python), Some(own)) =
            (python.filter(|_| stack != StackId::NONE), self.python_of(of_loop).cloned())
        else {
            return Mixed { stack, distance, python: None };
        };
        let (stack, distance) = self.table.with_python_inside(stack, &python, distance, &own);
        Mixed { stack, distance, python: Some((PythonCalls::from(&python), own)) }
    }
}
