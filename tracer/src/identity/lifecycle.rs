//! What happens to threads: fork, exec, a new name, exit.

use super::{Identity, push_cmdline};
use crate::procfs::{MAX_PATH, join_argv, lossy, read_status};
use pg_event::{Cmdline, Ns, Process, ProcessId, Thread, ThreadId};

impl Identity {
    /// A thread made another thread (`child_tgid` is its own process) or a process. What a child takes
    /// over from its parent needs no look at `/proc`.
    pub fn fork(
        &mut self,
        parent_tid: u32,
        child_tid: u32,
        child_tgid: u32,
        comm: &[u8],
        now: Ns,
    ) -> ThreadId {
        let early = self.met_early(child_tid, child_tgid, now);
        if let Some(&old) = self.by_tid.get(&child_tid)
            && early.is_none()
        {
            // A thread found in `/proc` before its fork event was read is that same thread.
            let slot = &self.threads[old.index()];
            let same_process = self.processes[slot.row.process.index()].row.pid == child_tgid;
            let recent = slot.born.is_some_and(|b| b.abs_diff(self.boot_time(now)) <= super::SAME_START_NS);
            if same_process && recent && !slot.announced && slot.row.end.is_none() {
                self.threads[old.index()].announced = true;
                // `/proc` tells it in ticks of 10 ms, rounded down: before what came before it.
                self.touch_thread(old).start = now;
                let slot = &self.threads[old.index()];
                let (process, is_new) = (slot.row.process, child_tid == child_tgid);
                if is_new {
                    self.touch_process(process).start = now;
                }
                if is_new && let Some(parent) = self.find(parent_tid) {
                    self.touch_process(process).parent = self.threads[parent.index()].row.process;
                    self.inherit_focus(process, parent);
                }
                return old;
            }
            self.end_thread(old, now);
        }
        let parent_tgid = if child_tid == child_tgid { 0 } else { child_tgid };
        let parent = self.thread(parent_tid, parent_tgid, now);
        let parent_row = &self.threads[parent.index()].row;
        let parent_process = parent_row.process;
        let (kernel, parent_name) = (parent_row.kernel, parent_row.name.clone());
        let nested = {
            let p = &self.processes[parent_process.index()].row;
            p.ns_pid != p.pid
        };
        let ns_tid =
            if nested { read_status(child_tid).and_then(|s| s.ns_pids.last().copied()) } else { None };
        let ns_tid = ns_tid.unwrap_or(child_tid);
        let born = Some(self.boot_time(now));
        let process = if child_tid == child_tgid {
            if early.is_none()
                && let Some(&old) = self.by_pid.get(&child_tgid)
            {
                self.end_process(old, now);
            }
            let from = &self.processes[parent_process.index()].row;
            let row = Process {
                pid: child_tgid,
                ns_pid: ns_tid,
                parent: parent_process,
                name: from.name.clone(),
                exe: from.exe.clone(),
                cmdlines: from
                    .cmdlines
                    .last()
                    .map(|c| Cmdline { time: now, text: c.text.clone() })
                    .into_iter()
                    .collect(),
                cgroup: from.cgroup.clone(),
                container: from.container.clone(),
                uid: from.uid,
                start: now,
                kernel,
                own: child_tgid == self.own_pid,
                ..Process::default()
            };
            match early {
                Some(t) => {
                    let id = self.threads[t.index()].row.process;
                    *self.touch_process(id) = row;
                    self.processes[id.index()].born = born;
                    id
                }
                None => self.add_process(row, born, false),
            }
        } else {
            self.process_for(child_tgid, now)
        };
        let own = self.processes[process.index()].row.own;
        let row = Thread {
            tid: child_tid,
            ns_tid,
            process,
            name: parent_name,
            start: now,
            end: None,
            kernel,
            own,
            focus: false,
        };
        let id = match early {
            Some(t) => {
                let old = self.threads[t.index()].row.process;
                self.processes[old.index()].rows -= 1;
                self.processes[process.index()].rows += 1;
                *self.touch_thread(t) = row;
                self.threads[t.index()].born = born;
                t
            }
            None => self.add_thread(row, born),
        };
        self.threads[id.index()].announced = true;
        if !comm.is_empty() {
            self.set_name(id, comm);
        }
        if child_tid == child_tgid {
            self.inherit_focus(process, parent);
            self.judge_process(process);
        }
        self.judge_thread(id);
        id
    }

    /// A thread without name or birth that was met, through a record of another ring, before its fork event
    /// was read: the same thread, if its process fits.
    fn met_early(&self, tid: u32, tgid: u32, forked: Ns) -> Option<ThreadId> {
        let id = self.find(tid)?;
        let slot = &self.threads[id.index()];
        let process = &self.processes[slot.row.process.index()].row;
        let unknown = slot.born.is_none() && !slot.announced && slot.row.name.is_empty();
        (unknown && slot.row.end.is_none() && slot.row.start >= forked && process.pid == tgid).then_some(id)
    }

    /// The process replaced its program. `tid` is the thread that did it, by the number it had before
    /// when that is known: one that was not the leader takes over the leader's number. `argv` is separated
    /// by NULs and may be cut off or empty (then `/proc` is asked), like `exe`.
    pub fn exec(&mut self, tid: u32, tgid: u32, comm: &[u8], argv: &[u8], exe: &[u8], now: Ns) {
        let id = self.who_executes(tid, tgid, now);
        let process = self.threads[id.index()].row.process;
        let old_tid = self.threads[id.index()].row.tid;
        if old_tid != tgid {
            if let Some(&leader) = self.by_tid.get(&tgid) {
                self.end_thread(leader, now);
            }
            self.by_tid.remove(&old_tid);
            self.by_tid.insert(tgid, id);
            self.forget(old_tid);
            self.forget(tgid);
            let slot = &self.processes[process.index()];
            let (ns_pid, born) = (slot.row.ns_pid, slot.born);
            let row = self.touch_thread(id);
            row.tid = tgid;
            row.ns_tid = ns_pid;
            // The kernel gives it the leader's start time along with its number.
            self.threads[id.index()].born = born;
        }
        if !comm.is_empty() {
            self.set_name(id, comm);
        }
        // All that /proc knows, while the process lives; what the event brought is then known to be right
        // also when it is gone by now.
        self.processes[process.index()].read = false;
        let text = join_argv(argv);
        let exe = lossy(exe.split(|&b| b == 0).next().unwrap_or(exe), MAX_PATH);
        let (ask_exe, ask_cmdline) = (exe.is_empty(), text.is_empty());
        let row = self.touch_process(process);
        // The old leader of a taken-over process was killed; the process was not.
        row.exit_status = None;
        row.end = None;
        if !ask_exe {
            row.exe = exe;
        }
        if !ask_cmdline {
            push_cmdline(row, text, now);
        }
        self.read_after_exec(process, ask_exe, ask_cmdline, now);
        self.judge_process(process);
        self.judge_thread(id);
    }

    /// The thread that executes a program, also when all that is known is that its leader ended before.
    fn who_executes(&mut self, tid: u32, tgid: u32, now: Ns) -> ThreadId {
        let id = self.thread(tid, tgid, now);
        let row = &self.threads[id.index()].row;
        if row.end.is_none() {
            return id;
        }
        // Only the one that executes survives an exec.
        self.processes[row.process.index()].members.first().copied().unwrap_or(id)
    }

    fn read_after_exec(&mut self, process: ProcessId, ask_exe: bool, ask_cmdline: bool, now: Ns) {
        let pid = self.processes[process.index()].row.pid;
        if let Some(status) = read_status(pid) {
            let row = self.touch_process(process);
            row.uid = status.uid;
            row.ns_pid = status.ns_pids.last().copied().unwrap_or(row.ns_pid);
            let ns_tid = row.ns_pid;
            if let Some(&leader) = self.by_tid.get(&pid)
                && self.threads[leader.index()].row.ns_tid != ns_tid
            {
                self.touch_thread(leader).ns_tid = ns_tid;
            }
        }
        self.read_cgroups(process);
        if ask_exe {
            // Rather none than the one of the program before.
            self.touch_process(process).exe = crate::procfs::read_exe(pid).unwrap_or_default();
        }
        if ask_cmdline {
            self.read_cmdline(process, now);
        }
        self.processes[process.index()].read = true;
    }

    /// A thread changed its name.
    pub fn rename(&mut self, tid: u32, comm: &[u8]) {
        if let Some(&id) = self.by_tid.get(&tid) {
            self.set_name(id, comm);
            let process = self.threads[id.index()].row.process;
            if self.processes[process.index()].row.pid == tid {
                self.judge_process(process);
            }
            self.judge_thread(id);
        }
    }

    /// A thread ended, with a status as of wait(2). Its process ends with its last thread.
    pub fn exit(&mut self, tid: u32, status: u32, now: Ns) {
        let Some(&id) = self.by_tid.get(&tid) else { return };
        let process = self.threads[id.index()].row.process;
        self.end_thread(id, now);
        let row = self.touch_process(process);
        // The process's status is the leader's or that of exit_group(2), which every thread then carries.
        if row.pid == tid || status != 0 {
            row.exit_status = Some(status);
        }
    }

    /// Note that a thread is no more; twice is no harm.
    pub(super) fn end_thread(&mut self, id: ThreadId, now: Ns) {
        let row = &self.threads[id.index()].row;
        if row.end.is_some() || row.tid == 0 {
            return;
        }
        let (process, tid) = (row.process, row.tid);
        self.forget(tid);
        self.touch_thread(id).end = Some(now);
        self.ended_threads.push_back(id);
        let slot = &mut self.processes[process.index()];
        slot.members.retain(|&m| m != id);
        if slot.members.is_empty() && slot.row.end.is_none() {
            self.touch_process(process).end = Some(now);
            self.ended_processes.push_back(process);
        }
    }

    /// Note that a process and all its threads are no more.
    pub(super) fn end_process(&mut self, id: ProcessId, now: Ns) {
        for thread in std::mem::take(&mut self.processes[id.index()].members) {
            self.end_thread(thread, now);
        }
        if self.processes[id.index()].row.end.is_none() {
            self.touch_process(id).end = Some(now);
            self.ended_processes.push_back(id);
        }
    }
}
