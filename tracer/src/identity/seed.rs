//! Reading `/proc`: everybody at the start, and whoever turns up unannounced later.

use super::{Identity, cgroup, push_cmdline};
use crate::procfs::{self, CgroupLine, MAX_NAME, Stat, Status, lossy};
use pg_event::{Ns, Process, ProcessId, Thread, ThreadId};

impl Identity {
    /// Read all processes and threads there are. Those that come or go meanwhile are no error.
    pub fn seed_from_proc(&mut self) {
        self.idle(0);
        for pid in procfs::processes() {
            let Some(stat) = procfs::read_stat(pid) else { continue };
            let process = self.process_from_proc(pid, &stat, 0);
            self.threads_from_proc(process, pid, 0);
        }
        // A parent's number may be greater than its child's.
        for id in (0..self.processes.next()).map(ProcessId) {
            if self.process(id).is_some_and(|p| p.parent.is_none()) {
                self.link_parent(id);
            }
        }
        self.spread_focus();
    }

    /// The idle threads: one number, 0, on every CPU.
    pub(super) fn idle(&mut self, now: Ns) -> ThreadId {
        if let Some(id) = self.find(0) {
            return id;
        }
        let name = String::from("swapper");
        let row = Process { name: name.clone(), kernel: true, ..Process::default() };
        let process = self.add_process(row, None, true);
        self.add_thread(Thread { process, name, start: now, kernel: true, ..Thread::default() }, None)
    }

    /// Make a row for a thread that no fork event announced.
    pub(super) fn discover(&mut self, tid: u32, tgid: u32, now: Ns) -> ThreadId {
        if tid == 0 {
            return self.idle(now);
        }
        let stat = procfs::read_thread_stat(tid);
        let status = stat.as_ref().and_then(|_| procfs::read_status(tid));
        // When `/proc` names another process, the number has passed on since the event: trust the event.
        let status = status.filter(|s| tgid == 0 || s.tgid == tgid);
        let stat = stat.filter(|_| status.is_some());
        let tgid = match (tgid, &status) {
            (0, Some(s)) => s.tgid,
            (0, None) => tid,
            (given, _) => given,
        };
        let process = self.process_for(tgid, now);
        // Reading the process may have brought its main thread.
        if let Some(id) = self.find(tid)
            && self.row(id).is_some_and(|t| t.process == process && t.end.is_none())
        {
            return id;
        }
        let id = self.new_thread(process, tid, stat.as_ref(), status.as_ref(), now);
        self.judge_thread(id);
        id
    }

    /// The process with this number at `now`: known, else read, else a nameless row.
    pub(super) fn process_for(&mut self, pid: u32, now: Ns) -> ProcessId {
        if let Some(&id) = self.by_pid.get(&pid)
            && let Some(slot) = self.processes.get(id.index())
        {
            let Some(end) = slot.row.end else { return id };
            let same = match (procfs::read_stat(pid), slot.born) {
                (Some(s), Some(born)) => {
                    s.start_ticks.saturating_mul(self.tick).abs_diff(born) <= super::SAME_START_NS
                }
                (Some(_), None) => false,
                (None, _) => now <= end.saturating_add(super::GRACE_NS),
            };
            if same {
                return id;
            }
        }
        let id = match procfs::read_stat(pid) {
            Some(stat) => self.process_from_proc(pid, &stat, now),
            None => self.add_process(
                Process { pid, ns_pid: pid, own: pid == self.own_pid, start: now, ..Process::default() },
                None,
                true,
            ),
        };
        self.link_parent(id);
        self.judge_process(id);
        id
    }

    fn process_from_proc(&mut self, pid: u32, stat: &Stat, now: Ns) -> ProcessId {
        let born = stat.start_ticks.saturating_mul(self.tick);
        let row = Process {
            pid,
            ns_pid: pid,
            name: lossy(&stat.comm, MAX_NAME),
            start: self.since_start(born),
            age: self.until_start(born),
            kernel: stat.kernel,
            own: pid == self.own_pid,
            ..Process::default()
        };
        let id = self.add_process(row, Some(born), true);
        self.read_details(id, now);
        id
    }

    /// Read again what may change as a process begins: user, namespace, group, program, command line.
    pub(super) fn read_details(&mut self, id: ProcessId, now: Ns) {
        let Some(slot) = self.processes.get_mut(id.index()) else { return };
        slot.read = true;
        let (pid, kernel) = (slot.row.pid, slot.row.kernel);
        if let Some(status) = procfs::read_status(pid) {
            self.take_status(id, &status);
        }
        self.read_cgroups(id);
        if kernel {
            return;
        }
        if let Some(exe) = procfs::read_exe(pid) {
            self.take_exe(id, exe);
        }
        self.read_cmdline(id, now);
    }

    pub(super) fn take_status(&mut self, id: ProcessId, status: &Status) {
        let Some(row) = self.process(id) else { return };
        let ns_pid = status.ns_pids.last().copied().unwrap_or(row.pid);
        if (row.uid, row.ns_pid) != (status.uid, ns_pid) {
            self.change_process(id, |p| (p.uid, p.ns_pid) = (status.uid, ns_pid));
        }
    }

    pub(super) fn take_exe(&mut self, id: ProcessId, exe: String) {
        if self.process(id).is_some_and(|p| p.exe != exe) {
            self.change_process(id, |p| p.exe = exe);
        }
    }

    /// Read the control groups of a process, and whether they are the focus.
    pub(super) fn read_cgroups(&mut self, id: ProcessId) {
        let Some(pid) = self.process(id).map(|p| p.pid) else { return };
        // This takes the lock of all control groups.
        let lines = self.patience.run(pid, move || procfs::read_cgroup(pid)).unwrap_or_default();
        self.take_cgroups(id, &lines);
    }

    /// Take over the control groups of a process; none when they could not be read.
    pub(super) fn take_cgroups(&mut self, id: ProcessId, lines: &[CgroupLine]) {
        if lines.is_empty() {
            return;
        }
        let path = cgroup::main_cgroup(lines);
        if self.process(id).is_some_and(|p| p.cgroup != path) {
            // Where hierarchies differ, any of them may be the container's.
            let container = lines.iter().map(|l| cgroup::container_of(&l.path)).fold(
                cgroup::container_of(path),
                |known, other| if known.is_empty() { other } else { known },
            );
            self.change_process(id, |p| (p.cgroup, p.container) = (path.to_owned(), container));
        }
        if self.focus.has_cgroup(lines) {
            self.mark_process(id);
        }
    }

    /// Read the command line; keeps the old one when it cannot be read.
    /// Reads the command line of a thread's process once more: servers write there what each of their processes does, and a
    /// child has its parent's until then.
    pub fn read_title(&mut self, thread: ThreadId, now: Ns) {
        if let Some(process) = self.row(thread).map(|t| t.process) {
            self.read_cmdline(process, now);
        }
    }

    pub(super) fn read_cmdline(&mut self, id: ProcessId, now: Ns) {
        let Some(pid) = self.process(id).map(|p| p.pid) else { return };
        let Some(Ok(bytes)) = self.patience.run(pid, move || procfs::read_cmdline(pid)) else { return };
        self.take_cmdline(id, &bytes, now);
    }

    /// Take over a command line as `/proc` shows it.
    pub(super) fn take_cmdline(&mut self, id: ProcessId, bytes: &[u8], now: Ns) {
        let text = procfs::join_argv(bytes);
        if text.is_empty() || self.process(id).is_none_or(|p| p.cmdline() == text) {
            return;
        }
        self.change_process(id, |p| push_cmdline(p, text, now));
    }

    fn threads_from_proc(&mut self, process: ProcessId, pid: u32, now: Ns) {
        let nested = self.process(process).is_some_and(|p| p.ns_pid != pid);
        for tid in procfs::threads_of(pid) {
            let Some(stat) = procfs::read_thread_stat(tid) else { continue };
            let status = if nested { procfs::read_status(tid) } else { None };
            let id = self.new_thread(process, tid, Some(&stat), status.as_ref(), now);
            self.judge_thread(id);
            // Its parent has not asked for it yet.
            if stat.has_ended() {
                self.end_thread(id, now);
            }
        }
    }

    fn new_thread(
        &mut self,
        process: ProcessId,
        tid: u32,
        stat: Option<&Stat>,
        status: Option<&Status>,
        now: Ns,
    ) -> ThreadId {
        let blank = Process::default();
        let owner = self.process(process).unwrap_or(&blank);
        let born = stat.map(|s| s.start_ticks.saturating_mul(self.tick));
        let row = Thread {
            tid,
            ns_tid: status.and_then(|s| s.ns_pids.last().copied()).unwrap_or(if tid == owner.pid {
                owner.ns_pid
            } else {
                tid
            }),
            process,
            name: stat.map_or_else(|| owner.name.clone(), |s| lossy(&s.comm, MAX_NAME)),
            start: born.map_or(now, |b| self.since_start(b)),
            end: None,
            kernel: owner.kernel || stat.is_some_and(|s| s.kernel),
            own: owner.own,
            focus: false,
            ..Thread::default()
        };
        self.add_thread(row, born)
    }

    /// Find the parent of a process that was not seen being forked.
    fn link_parent(&mut self, id: ProcessId) {
        let Some(pid) = self.process(id).map(|p| p.pid) else { return };
        let parent = procfs::read_stat(pid).map(|s| s.ppid).and_then(|p| self.by_pid.get(&p).copied());
        if let Some(parent) = parent.filter(|&p| p != id) {
            self.change_process(id, |p| p.parent = parent);
        }
    }
}
