//! Identity: who every thread and process of a recording is, even after it is gone.
//!
//! Thread ids of the kernel are reused; a [`ThreadId`] is not. A row is made at the first sight of a
//! thread (from `/proc` at the start, from a fork event, or from any other event that names it) and only
//! ever learns more. Nothing here waits for a target: see [`crate::patience`].

mod cgroup;
mod focus;
#[cfg(test)]
mod leaving_tests;
mod lifecycle;
mod refresh;
mod rows;
mod scheduling;
mod seed;
#[cfg(test)]
mod tests;

pub use cgroup::{container_of, main_cgroup};

use crate::clock;
use crate::collector::hash::FastMap;
use crate::focus::Focus;
use crate::patience::Patience;
use crate::procfs::{self, MAX_NAME, lossy};
use pg_event::{CatalogDelta, Cmdline, Forgotten, Ns, Process, ProcessId, Thread, ThreadId};
use rows::Rows;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// How long one read of a command line may take before it is given up.
const READ_LIMIT: Duration = Duration::from_millis(250);
/// Two starts closer than this are one start: `/proc` counts in ticks of 10 ms, and a fork event comes
/// some time after the kernel noted the start.
const SAME_START_NS: u64 = 200_000_000;
/// A thread that ended this long ago and is seen again may be another one with the same number.
const GRACE_NS: Ns = 100_000_000;

/// How many that ended are remembered.
#[derive(Clone, Copy)]
struct Room {
    /// Records of other rings may name them, and whoever was woken by one of them may get a CPU only later.
    threads: usize,
    /// Their command lines are what takes memory.
    processes: usize,
}

const ROOM: Room = Room { threads: 8 << 10, processes: 8 << 10 };

struct ThreadSlot {
    row: Thread,
    /// When it began, on `CLOCK_BOOTTIME`; `None` if not known.
    born: Option<u64>,
    /// Its fork event has been seen.
    announced: bool,
    /// When it was last read how it is scheduled.
    scheduling_read: Option<Ns>,
    /// How long it had a CPU since that was last considered, ns, by samples.
    ran: Ns,
    dirty: bool,
}

struct ProcessSlot {
    row: Process,
    /// When it began, on `CLOCK_BOOTTIME`; `None` if not known.
    born: Option<u64>,
    /// Threads known not to have ended.
    members: Vec<ThreadId>,
    /// Rows of its threads that have not left.
    rows: u32,
    /// Its details have been read since it began or last executed a program.
    read: bool,
    /// Something happened to one of its threads since the last look.
    active: bool,
    /// The last look did not find it any more.
    gone: bool,
    /// The last look found fewer threads than are known.
    crowded: bool,
    /// Is among those that ended.
    queued: bool,
    dirty: bool,
}

/// A thread that was asked for lately and lives. Whatever makes the answer another one forgets it.
#[derive(Clone, Copy)]
struct Lately {
    tid: u32,
    tgid: u32,
    id: ThreadId,
}

/// Nobody: Linux has no thread of this number.
const NOBODY: Lately = Lately { tid: u32::MAX, tgid: u32::MAX, id: ThreadId::NONE };
/// How many are remembered: those whose numbers end alike share a place.
const LATELY: usize = 1024;

/// All threads and processes of a recording that live or ended lately. Those that ended longer ago have been given
/// out, and leave.
pub struct Identity {
    focus: Focus,
    /// Processes for which the focus waits.
    reached: HashSet<ProcessId>,
    own_pid: u32,
    /// `CLOCK_MONOTONIC` at the start of the recording.
    clock_start: u64,
    /// What to add to `CLOCK_MONOTONIC` for `CLOCK_BOOTTIME` (time spent suspended).
    boot_offset: u64,
    /// Nanoseconds of a tick in `/proc`.
    tick: u64,
    threads: Rows<ThreadSlot>,
    processes: Rows<ProcessSlot>,
    by_tid: FastMap<u32, ThreadId>,
    /// Since the last refresh; their processes are known to be active.
    lately: Vec<Lately>,
    by_pid: FastMap<u32, ProcessId>,
    dirty_threads: Vec<ThreadId>,
    dirty_processes: Vec<ProcessId>,
    /// Who ended, the first first.
    ended_threads: VecDeque<ThreadId>,
    ended_processes: VecDeque<ProcessId>,
    room: Room,
    patience: Patience,
    /// Some process held up reading others: read each alone.
    one_by_one: bool,
    /// Processes that the round of refreshing still has to look at, the next one last.
    round: Vec<ProcessId>,
    /// When the last round of refreshing began.
    last_refresh: Option<Ns>,
    /// Rounds of refreshing so far.
    rounds: u64,
}

impl Identity {
    /// Nobody known yet. `clock_start_ns` is `CLOCK_MONOTONIC` at the start of the recording, whose own
    /// time counts from there; `own_pid` is the recorder's process.
    pub fn new(clock_start_ns: u64, focus: &Focus, own_pid: u32) -> Self {
        Self {
            focus: focus.clone(),
            reached: HashSet::new(),
            own_pid,
            clock_start: clock_start_ns,
            boot_offset: clock::boot_offset(),
            tick: clock::tick(),
            threads: Rows::default(),
            processes: Rows::default(),
            by_tid: FastMap::default(),
            lately: vec![NOBODY; LATELY],
            by_pid: FastMap::default(),
            dirty_threads: Vec::new(),
            dirty_processes: Vec::new(),
            ended_threads: VecDeque::new(),
            ended_processes: VecDeque::new(),
            room: ROOM,
            patience: Patience::new(READ_LIMIT),
            one_by_one: false,
            round: Vec::new(),
            last_refresh: None,
            rounds: 0,
        }
    }

    /// The thread that has the number `tid` at `now`: looked up, or made. `tgid` is its process, 0 if not
    /// known. What `/proc` tells is read when the thread is new and alive.
    #[inline]
    pub fn thread(&mut self, tid: u32, tgid: u32, now: Ns) -> ThreadId {
        let seen = self.lately[tid as usize % LATELY];
        if seen.tid == tid && (tgid == 0 || tgid == seen.tgid) {
            return seen.id;
        }
        self.look_up(tid, tgid, now)
    }

    fn look_up(&mut self, tid: u32, tgid: u32, now: Ns) -> ThreadId {
        if let Some(id) = self.find(tid) {
            if self.is_still(id, tid, tgid, now) {
                return id;
            }
            self.end_thread(id, now);
        }
        self.discover(tid, tgid, now)
    }

    /// Is the thread last known by the number `tid` who that number means at `now`? Then its process is active.
    fn is_still(&mut self, id: ThreadId, tid: u32, tgid: u32, now: Ns) -> bool {
        let Some(slot) = self.threads.get(id.index()) else { return false };
        let (process, end) = (slot.row.process, slot.row.end);
        let Some(owner) = self.processes.get(process.index()).filter(|p| tgid == 0 || p.row.pid == tgid)
        else {
            return false;
        };
        let pid = owner.row.pid;
        let overdue = end.is_some_and(|end| now > end.saturating_add(GRACE_NS));
        if overdue && self.is_another(slot, tid) {
            return false;
        }
        if let Some(owner) = self.processes.get_mut(process.index()) {
            owner.active = true;
        }
        if end.is_none() {
            self.lately[tid as usize % LATELY] = Lately { tid, tgid: pid, id };
        }
        true
    }

    /// The thread that has the number `tid` now, if any is known.
    pub fn find(&self, tid: u32) -> Option<ThreadId> {
        self.by_tid.get(&tid).copied()
    }

    /// The row of a thread.
    pub fn row(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(id.index()).map(|t| &t.row)
    }

    /// The row of a thread's process.
    pub fn process_of(&self, id: ThreadId) -> Option<&Process> {
        Some(&self.processes.get(self.row(id)?.process.index())?.row)
    }

    /// The row of a process.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(id.index()).map(|p| &p.row)
    }

    /// The thread that stands for a process: its leader, or another one alive when the leader has ended.
    pub fn leader(&mut self, pid: u32, now: Ns) -> ThreadId {
        // Whoever asks read the number in /proc, where that of a thread leads to its process as well.
        let of_thread = self.find(pid).and_then(|t| self.process_of(t)).map(|p| p.pid).filter(|&p| p != pid);
        let pid = match of_thread {
            Some(owner) if procfs::read_status(pid).is_some_and(|s| s.tgid == owner) => owner,
            _ => pid,
        };
        let leader = self.thread(pid, pid, now);
        self.or_survivor(leader)
    }

    /// The thread that stood for a process that is no more. One that ended before anybody saw it gets a row that says
    /// no more than that.
    pub fn ended(&mut self, pid: u32) -> ThreadId {
        if let Some(id) = self.find(pid) {
            return id;
        }
        let process = self.add_process(Process { pid, ns_pid: pid, ..Process::default() }, None, true);
        let row = Thread { tid: pid, ns_tid: pid, process, ..Thread::default() };
        let id = self.add_thread(row, None);
        self.end_thread(id, 0);
        id
    }

    /// A thread that is no more, of a process that is. `None` when its number was last known as that of another process's.
    pub fn ended_thread(&mut self, tid: u32, tgid: u32, now: Ns) -> Option<ThreadId> {
        let of = self.thread(tgid, tgid, now);
        let process = self.row(of)?.process;
        if let Some(id) = self.find(tid) {
            return self.row(id).filter(|t| t.process == process).map(|_| id);
        }
        let row = Thread { tid, ns_tid: tid, process, ..Thread::default() };
        let id = self.add_thread(row, None);
        self.end_thread(id, 0);
        Some(id)
    }

    /// This thread, or another one of its process that lives when it has ended.
    fn or_survivor(&self, id: ThreadId) -> ThreadId {
        let Some(row) = self.row(id).filter(|t| t.end.is_some()) else { return id };
        self.processes.get(row.process.index()).and_then(|p| p.members.first()).copied().unwrap_or(id)
    }

    /// A thread's process.
    fn owner(&self, id: ThreadId) -> Option<ProcessId> {
        Some(self.row(id)?.process)
    }

    /// Threads of a process known not to have ended.
    fn members(&self, id: ProcessId) -> Vec<ThreadId> {
        self.processes.get(id.index()).map(|p| p.members.clone()).unwrap_or_default()
    }

    /// The threads of the process of a thread, as far as they are known not to have ended.
    pub fn threads_with(&self, id: ThreadId) -> Vec<ThreadId> {
        self.owner(id).map(|p| self.members(p)).unwrap_or_default()
    }

    /// Threads and processes that are new or changed since the last call.
    pub fn drain(&mut self) -> CatalogDelta {
        let mut out = CatalogDelta::default();
        for id in std::mem::take(&mut self.dirty_processes) {
            let Some(slot) = self.processes.get_mut(id.index()) else { continue };
            slot.dirty = false;
            out.processes.push((id, slot.row.clone()));
        }
        for id in std::mem::take(&mut self.dirty_threads) {
            let Some(slot) = self.threads.get_mut(id.index()) else { continue };
            slot.dirty = false;
            out.threads.push((id, slot.row.clone()));
        }
        out.processes.sort_unstable_by_key(|(id, _)| *id);
        out.threads.sort_unstable_by_key(|(id, _)| *id);
        // All that is known of them has been given out now.
        out.forgotten = self.let_go();
        out
    }

    /// Let those leave that ended before many others did.
    fn let_go(&mut self) -> Forgotten {
        let mut out = Forgotten::default();
        while self.ended_threads.len() > self.room.threads {
            let Some(id) = self.ended_threads.pop_front() else { break };
            let Some(slot) = self.threads.get(id.index()).filter(|t| t.row.end.is_some() && !t.dirty) else {
                continue;
            };
            let (tid, process) = (slot.row.tid, slot.row.process);
            self.threads.remove(id.index());
            if let Some(owner) = self.processes.get_mut(process.index()) {
                owner.rows = owner.rows.saturating_sub(1);
            }
            if self.by_tid.get(&tid) == Some(&id) {
                self.by_tid.remove(&tid);
                self.forget(tid);
            }
            out.threads.push(id);
        }
        for _ in self.room.processes..self.ended_processes.len() {
            let Some(id) = self.ended_processes.pop_front() else { break };
            let Some(slot) = self.processes.get_mut(id.index()) else { continue };
            if slot.row.end.is_none() {
                // It was found to live on.
                slot.queued = false;
                continue;
            }
            if slot.rows > 0 || slot.dirty {
                // Its threads leave first.
                self.ended_processes.push_back(id);
                continue;
            }
            let pid = slot.row.pid;
            self.processes.remove(id.index());
            if self.by_pid.get(&pid) == Some(&id) {
                self.by_pid.remove(&pid);
            }
            out.processes.push(id);
        }
        out
    }

    /// Sentences about what could not be known, for [`pg_event::Coverage::notes`].
    pub fn notes(&self) -> Vec<String> {
        let mut out = Vec::new();
        if !procfs::in_initial_pid_namespace() {
            out.push(
                "pg-tui ran inside a container (its own pid namespace): the kernel's thread numbers are not \
                 those of its /proc, and most names and command lines are missing; record on the host"
                    .into(),
            );
        }
        if self.patience.stuck() > 0 {
            out.push(format!(
                "{} processes could not be read: their memory or control group was locked all along",
                self.patience.stuck()
            ));
        }
        out
    }

    /// How many threads and processes are known, those that ended lately too.
    pub fn counts(&self) -> (usize, usize) {
        (self.threads.len(), self.processes.len())
    }

    /// Forget whom this number meant.
    fn forget(&mut self, tid: u32) {
        self.lately[tid as usize % LATELY] = NOBODY;
    }

    /// Change the row of a thread that has not left, and give it out again.
    fn change_thread(&mut self, id: ThreadId, change: impl FnOnce(&mut Thread)) {
        let Some(slot) = self.threads.get_mut(id.index()) else { return };
        change(&mut slot.row);
        if !std::mem::replace(&mut slot.dirty, true) {
            self.dirty_threads.push(id);
        }
    }

    /// Change the row of a process that has not left, and give it out again.
    fn change_process(&mut self, id: ProcessId, change: impl FnOnce(&mut Process)) {
        let Some(slot) = self.processes.get_mut(id.index()) else { return };
        change(&mut slot.row);
        if !std::mem::replace(&mut slot.dirty, true) {
            self.dirty_processes.push(id);
        }
    }

    fn add_thread(&mut self, row: Thread, born: Option<u64>) -> ThreadId {
        let id = ThreadId(self.threads.next());
        self.by_tid.insert(row.tid, id);
        self.forget(row.tid);
        if let Some(owner) = self.processes.get_mut(row.process.index()) {
            owner.members.push(id);
            owner.rows += 1;
            if owner.row.end.is_some() {
                // Its end was taken for certain too early: a thread of it lives.
                self.change_process(row.process, |p| (p.end, p.exit_status) = (None, None));
            }
        }
        self.threads.push(ThreadSlot {
            row,
            born,
            announced: false,
            scheduling_read: None,
            ran: 0,
            dirty: true,
        });
        self.dirty_threads.push(id);
        id
    }

    fn add_process(&mut self, row: Process, born: Option<u64>, read: bool) -> ProcessId {
        let id = ProcessId(self.processes.next());
        self.by_pid.insert(row.pid, id);
        self.processes.push(ProcessSlot {
            row,
            born,
            members: Vec::new(),
            rows: 0,
            read,
            active: true,
            gone: false,
            crowded: false,
            queued: false,
            dirty: true,
        });
        self.dirty_processes.push(id);
        id
    }

    /// Set a thread's name, and its process's when it is the main thread.
    fn set_name(&mut self, id: ThreadId, comm: &[u8]) {
        let end = comm.iter().position(|&b| b == 0).unwrap_or(comm.len());
        let name = lossy(&comm[..end], MAX_NAME);
        let Some(row) = self.row(id) else { return };
        let (tid, process) = (row.tid, row.process);
        if row.name != name {
            self.change_thread(id, |t| t.name.clone_from(&name));
        }
        if self.process(process).is_some_and(|p| p.pid == tid && p.name != name) {
            self.change_process(process, |p| p.name = name);
        }
    }

    /// `CLOCK_BOOTTIME` at `now` of the recording.
    fn boot_time(&self, now: Ns) -> u64 {
        self.clock_start.saturating_add(now).saturating_add(self.boot_offset)
    }

    /// Time of the recording for a start in `/proc`; 0 when it began before the recording.
    fn since_start(&self, boot_ns: u64) -> Ns {
        boot_ns.saturating_sub(self.clock_start.saturating_add(self.boot_offset))
    }

    /// How long before the recording something in `/proc` started; 0 when it did later.
    fn until_start(&self, boot_ns: u64) -> Ns {
        self.clock_start.saturating_add(self.boot_offset).saturating_sub(boot_ns)
    }

    /// Does `/proc` now show another thread under this number than the one known?
    fn is_another(&self, known: &ThreadSlot, tid: u32) -> bool {
        let Some(born) = known.born else { return false };
        procfs::read_thread_stat(tid)
            .is_some_and(|s| s.start_ticks.saturating_mul(self.tick).abs_diff(born) > SAME_START_NS)
    }
}

/// Append a command line; one that only continues a cut-off predecessor replaces it.
fn push_cmdline(process: &mut Process, text: String, time: Ns) {
    /// More rewritings than this are forgotten, the oldest but the first one first.
    const MAX_CMDLINES: usize = 128;
    /// A collector's copy shorter than this was not cut off.
    const MAYBE_CUT: usize = 120;
    match process.cmdlines.last_mut() {
        Some(last) if last.text == text => return,
        Some(last) if last.text.len() >= MAYBE_CUT && text.starts_with(last.text.as_str()) => {
            last.text = text;
            return;
        }
        _ => {}
    }
    if process.cmdlines.len() >= MAX_CMDLINES {
        process.cmdlines.remove(1);
    }
    process.cmdlines.push(Cmdline { time, text });
}
