//! Threads that a runtime keeps for itself (to collect garbage, to compile, to tell the time): in a process whose program
//! was compiled while it ran, they are known by their stacks.

use super::activity::Group;
use super::walk::Walk;
use crate::Vertex;
use crate::class::{WaitClass, class, joins};
use pg_event::{ModuleId, ModuleKind, Ns, StackId, ThreadId};

impl Walk<'_> {
    /// Does a thread that waits like this keep house in a process in which `waiter` executes code that was compiled while it
    /// ran? No such code is on its own stack, nor anything but the libraries by which the other one waits: it can have
    /// nothing that the program's threads lock.
    pub(super) fn keeps_house(&self, group: &Group, waiter: ThreadId) -> bool {
        let v = self.representative(group);
        if self.of_jvm(&v) {
            return true;
        }
        let waits = matches!(class(&v, self.c), WaitClass::Condition | WaitClass::Lock | WaitClass::Sleep);
        let (Some((own, true)), true) = (self.modules_of(v.user_stack), waits) else { return false };
        let compiled = |m: &ModuleId| {
            let kind = self.c.modules.get(m.index()).map(|m| m.kind);
            matches!(kind, Some(ModuleKind::PerfMap | ModuleKind::Anonymous))
        };
        // Another wait of the same thread may have been seen with less of its stack.
        let (begin, end) = group.extent();
        let at = [begin, begin + (end - begin) / 2, end.saturating_sub(1)];
        let executes = |t: ThreadId| {
            let stacks = at.iter().filter_map(|at| self.g.vertex_at(t, *at));
            let mut stacks = stacks.filter_map(|id| self.modules_of(self.g.vertex(id).user_stack));
            stacks.find(|(all, _)| all.iter().any(compiled)).map(|x| x.0)
        };
        // A launcher's first thread waits for the one that executes the program.
        let program = executes(waiter).or_else(|| executes(self.joined_by(waiter, at[1])?));
        program.is_some_and(|all| own.iter().all(|m| !compiled(m) && all.contains(m)))
    }

    /// Is it a thread that the Java virtual machine has for itself and that executes code of Java's own library? Those take work
    /// from queues, and nothing that a program locks.
    fn of_jvm(&self, v: &Vertex) -> bool {
        /// As far as the kernel keeps their names.
        const OWN: [&str; 5] =
            ["Reference Handl", "Finalizer", "Common-Cleaner", "Signal Dispatch", "Notification Th"];
        let module = |f: &pg_event::Frame| self.c.modules.get(f.module.index());
        let jvm = |f: &pg_event::Frame| module(f).is_some_and(|m| m.short().starts_with("libjvm"));
        self.c.thread(v.thread).is_some_and(|t| OWN.contains(&t.name.as_str()))
            && self.c.frames_of(v.user_stack).any(jvm)
    }

    /// The thread for whose end another one of its process waits at a moment.
    fn joined_by(&self, t: ThreadId, at: Ns) -> Option<ThreadId> {
        let v = self.g.vertex_at(t, at).map(|v| self.g.vertex(v)).filter(|v| joins(v, self.c))?;
        let mut all = self.g.threads_of(self.c.process_id_of(t)?);
        all.find(|x| self.c.thread(*x).is_some_and(|x| x.ns_tid == v.value))
    }

    /// The binaries on a stack, each once, and whether that is whole.
    fn modules_of(&self, stack: StackId) -> Option<(Vec<ModuleId>, bool)> {
        let row = self.c.stack(stack).filter(|s| !s.frames.is_empty())?;
        let mut all: Vec<ModuleId> = self.c.frames_of(stack).map(|f| f.module).collect();
        all.sort_unstable();
        all.dedup();
        Some((all, !row.truncated))
    }
}
