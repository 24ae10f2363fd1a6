//! Who is in the focus, and how it spreads.

use super::Identity;
use pg_event::{Ns, ProcessId, ThreadId};

impl Identity {
    /// Is a thread in the focus of the recording? The recorder itself never is.
    pub fn in_focus(&self, id: ThreadId) -> bool {
        self.threads.get(id.index()).is_some_and(|t| t.row.focus)
    }

    /// Is a thread in the focus, or in a process for which the focus waits, directly or through others?
    pub fn in_reach(&self, id: ThreadId) -> bool {
        self.in_focus(id) || self.owner(id).is_some_and(|p| self.reached.contains(&p))
    }

    /// Somebody in reach waits for a thread: so is its process. Of those that are not in the focus, some only at a time.
    pub fn reach(&mut self, id: ThreadId) {
        const MOST: usize = 32;
        let Some(process) = self.owner(id).filter(|_| !self.in_reach(id)) else { return };
        if self.reached.len() >= MOST {
            let processes = &self.processes;
            let lives = |p: &ProcessId| processes.get(p.index()).is_some_and(|p| p.row.end.is_none());
            self.reached.retain(lives);
        }
        if self.reached.len() < MOST {
            self.reached.insert(process);
        }
    }

    /// Make a process (or the process of a thread) with its descendants the focus, from now on.
    pub fn focus_on(&mut self, pid: u32) {
        if !self.focus.pids.contains(&pid) {
            self.focus.pids.push(pid);
        }
        let process = self.by_pid.get(&pid).copied().or_else(|| self.owner(self.find(pid)?));
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
        let Some(process) = self.owner(thread) else { return };
        self.change_process(process, |p| p.own = true);
        for member in self.members(process) {
            self.change_thread(member, |t| t.own = true);
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
                        && self.process(row.parent).is_some_and(|p| p.focus)
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
        if self.in_focus(parent) && !self.focus.is_everything() {
            self.mark_process(child);
        }
    }

    /// Does a process belong to the focus by itself?
    pub(super) fn judge_process(&mut self, id: ProcessId) {
        let Some(row) = self.process(id).filter(|p| !p.focus && !p.own) else { return };
        let parent_in = self.process(row.parent).is_some_and(|p| p.focus);
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
        let Some(row) = self.row(id).filter(|t| !t.focus && !t.own) else { return };
        let process = row.process;
        let by_number = self.focus.pids.contains(&row.tid);
        let by_name = self.focus.has_name(&row.name);
        if by_number {
            self.mark_process(process);
        }
        self.judge_process(process);
        if by_name || self.process(process).is_some_and(|p| p.focus) {
            self.change_thread(id, |t| t.focus = true);
        }
    }

    /// Put a process and its threads into the focus. Whoever is in it stays.
    pub(super) fn mark_process(&mut self, id: ProcessId) {
        let Some(row) = self.process(id).filter(|p| !p.own) else { return };
        if !row.focus {
            self.change_process(id, |p| p.focus = true);
        }
        for thread in self.members(id) {
            if !self.in_focus(thread) {
                self.change_thread(thread, |t| t.focus = true);
            }
        }
    }
}
