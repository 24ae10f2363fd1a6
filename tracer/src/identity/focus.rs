//! Who is in the focus, and how it spreads.

use super::Identity;
use pg_event::{Ns, ProcessId, ThreadId};

impl Identity {
    /// Is a thread in the focus of the recording? The recorder itself never is.
    pub fn in_focus(&self, id: ThreadId) -> bool {
        self.threads.get(id.index()).is_some_and(|t| t.row.focus)
    }

    /// Make a process (or the process of a thread) with its descendants the focus, from now on.
    pub fn focus_on(&mut self, pid: u32) {
        if !self.focus.pids.contains(&pid) {
            self.focus.pids.push(pid);
        }
        let process = self
            .by_pid
            .get(&pid)
            .copied()
            .or_else(|| self.by_tid.get(&pid).map(|t| self.threads[t.index()].row.process));
        if let Some(process) = process {
            self.mark_process(process);
            self.spread_focus();
        }
    }

    /// Processes of the focus that run.
    pub fn focus_pids(&self) -> Vec<u32> {
        self.processes
            .iter()
            .map(|(_, p)| &p.row)
            .filter(|p| p.focus && p.end.is_none())
            .map(|p| p.pid)
            .collect()
    }

    /// A process that works for the recorder: never a cause.
    pub fn is_ours(&mut self, pid: u32, now: Ns) {
        let thread = self.thread(pid, pid, now);
        let process = self.threads[thread.index()].row.process;
        self.touch_process(process).own = true;
        for member in self.processes[process.index()].members.clone() {
            self.touch_thread(member).own = true;
        }
    }

    /// Children of what is in the focus are in it too, however deep.
    pub(super) fn spread_focus(&mut self) {
        loop {
            let mut found: Vec<ProcessId> = self
                .processes
                .iter()
                .filter(|(_, p)| {
                    let row = &p.row;
                    !row.focus
                        && !row.own
                        && row.end.is_none()
                        && self.processes.get(row.parent.index()).is_some_and(|p| p.row.focus)
                })
                .map(|(id, _)| ProcessId(id))
                .collect();
            found.sort_unstable();
            if found.is_empty() {
                return;
            }
            for id in found {
                self.mark_process(id);
            }
        }
    }

    /// A new process is in the focus if the thread that made it is.
    pub(super) fn inherit_focus(&mut self, child: ProcessId, parent: ThreadId) {
        if self.threads[parent.index()].row.focus && !self.focus.is_everything() {
            self.mark_process(child);
        }
    }

    /// Does a process belong to the focus by itself?
    pub(super) fn judge_process(&mut self, id: ProcessId) {
        let row = &self.processes[id.index()].row;
        if row.focus || row.own {
            return;
        }
        let parent_in = self.processes.get(row.parent.index()).is_some_and(|p| p.row.focus);
        let chosen = if self.focus.is_everything() {
            !row.kernel
        } else {
            parent_in || self.focus.pids.contains(&row.pid) || self.focus.has_name(&row.name)
        };
        if chosen {
            self.mark_process(id);
        }
    }

    /// Does a thread belong to the focus, by its process or by its own name or number?
    pub(super) fn judge_thread(&mut self, id: ThreadId) {
        let row = &self.threads[id.index()].row;
        if row.focus || row.own {
            return;
        }
        let process = row.process;
        let by_number = self.focus.pids.contains(&row.tid);
        let by_name = self.focus.has_name(&row.name);
        if by_number {
            self.mark_process(process);
        }
        self.judge_process(process);
        if by_name || self.processes[process.index()].row.focus {
            self.touch_thread(id).focus = true;
        }
    }

    /// Put a process and its threads into the focus. Whoever is in it stays.
    pub(super) fn mark_process(&mut self, id: ProcessId) {
        let row = &self.processes[id.index()].row;
        if row.own {
            return;
        }
        if !row.focus {
            self.touch_process(id).focus = true;
        }
        for thread in self.processes[id.index()].members.clone() {
            if !self.threads[thread.index()].row.focus {
                self.touch_thread(thread).focus = true;
            }
        }
    }
}
