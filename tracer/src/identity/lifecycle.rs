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
        if let Some(old) = self.find(child_tid)
            && early.is_none()
        {
            if self.read_before(old, child_tgid, now) {
                self.announce(old, parent_tid, child_tid == child_tgid, now);
                return old;
            }
            self.end_thread(old, now);
        }
        let parent_tgid = if child_tid == child_tgid { 0 } else { child_tgid };
        let parent = self.thread(parent_tid, parent_tgid, now);
        let blank = (Thread::default(), Process::default());
        let from = self.row(parent).unwrap_or(&blank.0);
        let from_process = self.process(from.process).unwrap_or(&blank.1);
        let (kernel, parent_name) = (from.kernel, from.name.clone());
        let nested = from_process.ns_pid != from_process.pid;
        let ns_tid =
            if nested { read_status(child_tid).and_then(|s| s.ns_pids.last().copied()) } else { None };
        let ns_tid = ns_tid.unwrap_or(child_tid);
        let born = Some(self.boot_time(now));
        let met_in = early.and_then(|t| self.owner(t));
        let process = if child_tid == child_tgid {
            let row = Process {
                pid: child_tgid,
                ns_pid: ns_tid,
                parent: from.process,
                name: from_process.name.clone(),
                exe: from_process.exe.clone(),
                cmdlines: from_process
                    .cmdlines
                    .last()
                    .map(|c| Cmdline { time: now, text: c.text.clone() })
                    .into_iter()
                    .collect(),
                cgroup: from_process.cgroup.clone(),
                container: from_process.container.clone(),
                uid: from_process.uid,
                start: now,
                kernel,
                own: child_tgid == self.own_pid,
                ..Process::default()
            };
            if let Some(id) = met_in {
                self.change_process(id, |p| *p = row);
                if let Some(slot) = self.processes.get_mut(id.index()) {
                    slot.born = born;
                }
                id
            } else {
                if let Some(&old) = self.by_pid.get(&child_tgid) {
                    self.end_process(old, now);
                }
                self.add_process(row, born, false)
            }
        } else {
            // That of one met early has this number, and lives.
            met_in.unwrap_or_else(|| self.process_for(child_tgid, now))
        };
        let own = self.process(process).is_some_and(|p| p.own);
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
            ..Thread::default()
        };
        let id = match early {
            Some(t) => {
                self.change_thread(t, |old| *old = row);
                t
            }
            None => self.add_thread(row, born),
        };
        if let Some(slot) = self.threads.get_mut(id.index()) {
            (slot.born, slot.announced) = (born, true);
        }
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

    /// Is a thread of this number the one that is told of now, found in `/proc` before its fork event was read?
    fn read_before(&self, id: ThreadId, tgid: u32, now: Ns) -> bool {
        let Some(slot) = self.threads.get(id.index()) else { return false };
        let same_process = self.process(slot.row.process).is_some_and(|p| p.pid == tgid);
        let recent = slot.born.is_some_and(|b| b.abs_diff(self.boot_time(now)) <= super::SAME_START_NS);
        same_process && recent && !slot.announced && slot.row.end.is_none()
    }

    /// Take over what a fork event tells of a thread that was found in `/proc` before.
    fn announce(&mut self, id: ThreadId, parent_tid: u32, is_leader: bool, now: Ns) {
        if let Some(slot) = self.threads.get_mut(id.index()) {
            slot.announced = true;
        }
        // `/proc` tells it in ticks of 10 ms, rounded down: before what came before it.
        self.change_thread(id, |t| t.start = now);
        let Some(process) = self.owner(id).filter(|_| is_leader) else { return };
        self.change_process(process, |p| p.start = now);
        if let Some(parent) = self.find(parent_tid)
            && let Some(owner) = self.owner(parent)
        {
            self.change_process(process, |p| p.parent = owner);
            self.inherit_focus(process, parent);
        }
    }

    /// A thread without name or birth that was met, through a record of another ring, before its fork event
    /// was read: the same thread, if its process fits.
    fn met_early(&self, tid: u32, tgid: u32, forked: Ns) -> Option<ThreadId> {
        let id = self.find(tid)?;
        let slot = self.threads.get(id.index())?;
        let process = self.process(slot.row.process)?;
        let unknown = slot.born.is_none() && !slot.announced && slot.row.name.is_empty();
        (unknown && slot.row.end.is_none() && slot.row.start >= forked && process.pid == tgid).then_some(id)
    }

    /// A command that waited to be started executes: what its process was before was ours.
    pub fn begins(&mut self, pid: u32, now: Ns) {
        let thread = self.thread(pid, pid, now);
        let Some(process) = self.owner(thread) else { return };
        self.change_process(process, |p| p.start = now);
        self.change_thread(thread, |t| t.start = now);
    }

    /// The process replaced its program. `tid` is the thread that did it, by the number it had before
    /// when that is known: one that was not the leader takes over the leader's number. `argv` is separated
    /// by NULs and may be cut off or empty (then `/proc` is asked), like `exe`.
    pub fn exec(&mut self, tid: u32, tgid: u32, comm: &[u8], argv: &[u8], exe: &[u8], now: Ns) {
        // Only the one that executes survives an exec; all that is known may be that its leader ended before.
        let found = self.thread(tid, tgid, now);
        let mut id = self.or_survivor(found);
        if self.row(id).is_some_and(|t| t.end.is_some()) {
            // Whoever executes lives: it is another one with this number.
            id = self.discover(tid, tgid, now);
        }
        let Some((old_tid, process)) = self.row(id).map(|t| (t.tid, t.process)) else { return };
        if old_tid != tgid {
            if let Some(leader) = self.find(tgid) {
                self.end_thread(leader, now);
            }
            self.renumber(id, old_tid, tgid);
        }
        if !comm.is_empty() {
            self.set_name(id, comm);
        }
        // All that /proc knows, while the process lives; what the event brought is then known to be right
        // also when it is gone by now.
        if let Some(slot) = self.processes.get_mut(process.index()) {
            slot.read = false;
        }
        let text = join_argv(argv);
        let exe = lossy(exe.split(|&b| b == 0).next().unwrap_or(exe), MAX_PATH);
        let (ask_exe, ask_cmdline) = (exe.is_empty(), text.is_empty());
        self.change_process(process, |p| {
            // The old leader of a taken-over process was killed; the process was not.
            (p.exit_status, p.end) = (None, None);
            if !ask_exe {
                p.exe = exe;
            }
            if !ask_cmdline {
                push_cmdline(p, text, now);
            }
        });
        self.read_after_exec(process, ask_exe, ask_cmdline, now);
        self.judge_process(process);
        self.judge_thread(id);
    }

    /// A thread takes over the number of its process's leader.
    fn renumber(&mut self, id: ThreadId, from: u32, to: u32) {
        if self.find(from) == Some(id) {
            self.by_tid.remove(&from);
        }
        self.by_tid.insert(to, id);
        self.forget(from);
        self.forget(to);
        let Some(owner) = self.owner(id).and_then(|p| self.processes.get(p.index())) else { return };
        let (ns_pid, born) = (owner.row.ns_pid, owner.born);
        self.change_thread(id, |t| (t.tid, t.ns_tid) = (to, ns_pid));
        // The kernel gives it the leader's start time along with its number.
        if let Some(slot) = self.threads.get_mut(id.index()) {
            slot.born = born;
        }
    }

    fn read_after_exec(&mut self, process: ProcessId, ask_exe: bool, ask_cmdline: bool, now: Ns) {
        let Some((pid, known_as)) = self.process(process).map(|p| (p.pid, p.ns_pid)) else { return };
        let Some(status) = read_status(pid) else {
            // It is gone by now, like most that are started in quick succession: nothing of it can be read. Rather no
            // program than the one before.
            if ask_exe {
                self.change_process(process, |p| p.exe.clear());
            }
            self.was_read(process);
            return;
        };
        let ns_pid = status.ns_pids.last().copied().unwrap_or(known_as);
        self.change_process(process, |p| (p.uid, p.ns_pid) = (status.uid, ns_pid));
        if let Some(leader) = self.find(pid)
            && self.row(leader).is_some_and(|t| t.ns_tid != ns_pid)
        {
            self.change_thread(leader, |t| t.ns_tid = ns_pid);
        }
        self.read_cgroups(process);
        if ask_exe {
            // Rather none than the one of the program before.
            let exe = crate::procfs::read_exe(pid).unwrap_or_default();
            self.change_process(process, |p| p.exe = exe);
        }
        if ask_cmdline {
            self.read_cmdline(process, now);
        }
        self.was_read(process);
    }

    /// Its details are known, as far as they can be.
    fn was_read(&mut self, process: ProcessId) {
        if let Some(slot) = self.processes.get_mut(process.index()) {
            slot.read = true;
        }
    }

    /// A thread changed its name.
    pub fn rename(&mut self, tid: u32, comm: &[u8]) {
        let Some(id) = self.find(tid) else { return };
        self.set_name(id, comm);
        let Some(process) = self.owner(id) else { return };
        if self.process(process).is_some_and(|p| p.pid == tid) {
            self.judge_process(process);
        }
        self.judge_thread(id);
    }

    /// A thread ended, with a status as of wait(2). Its process ends with its last thread.
    pub fn exit(&mut self, tid: u32, status: u32, now: Ns) {
        let Some(id) = self.find(tid) else { return };
        self.end_thread(id, now);
        let Some(process) = self.owner(id) else { return };
        self.change_process(process, |p| {
            // The process's status is the leader's or that of exit_group(2), which every thread then carries.
            if p.pid == tid || status != 0 {
                p.exit_status = Some(status);
            }
        });
    }

    /// Note that a thread is no more; twice is no harm.
    pub(super) fn end_thread(&mut self, id: ThreadId, now: Ns) {
        let Some(row) = self.row(id).filter(|t| t.end.is_none() && t.tid != 0) else { return };
        let (process, tid) = (row.process, row.tid);
        self.forget(tid);
        self.change_thread(id, |t| t.end = Some(now));
        self.ended_threads.push_back(id);
        let Some(slot) = self.processes.get_mut(process.index()) else { return };
        slot.members.retain(|&m| m != id);
        if slot.members.is_empty() {
            self.note_end(process, now);
        }
    }

    /// Note that a process and all its threads are no more.
    pub(super) fn end_process(&mut self, id: ProcessId, now: Ns) {
        for thread in self.members(id) {
            self.end_thread(thread, now);
        }
        self.note_end(id, now);
    }

    fn note_end(&mut self, id: ProcessId, now: Ns) {
        let Some(slot) = self.processes.get_mut(id.index()).filter(|p| p.row.end.is_none()) else { return };
        if !std::mem::replace(&mut slot.queued, true) {
            self.ended_processes.push_back(id);
        }
        self.change_process(id, |p| p.end = Some(now));
    }
}
