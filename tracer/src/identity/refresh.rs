//! Looking at living processes again: command lines they rewrote, and ends that were missed.

use super::Identity;
use crate::procfs::{self, CgroupLine, Status};
use pg_event::{Ns, ProcessId};
use std::io;

/// A round over all processes begins at most this often.
const ROUND_NS: Ns = 1_000_000_000;
/// Most processes looked at in one call (about 10 us each).
const PER_CALL: usize = 40;
/// What is younger is known from its parent's row, or was read when it executed its program: most that are
/// so young do not live until the next round.
const NEW_NS: Ns = 1_000_000_000;
/// The control groups of a process are read again in every round while it is younger than this ...
const YOUNG_NS: Ns = 3_000_000_000;
/// ... and in one round of so many later. In so many rounds also a process that did nothing is looked at,
/// and whether it still is the one that it was.
const SLOW_ROUNDS: u64 = 8;

/// A process to be read again.
#[derive(Clone, Copy)]
struct Due {
    id: ProcessId,
    pid: u32,
    /// Its control groups too.
    groups: bool,
    /// It was never read: its user, namespace and program too.
    details: bool,
}

/// What was read of it.
struct Again {
    cmdline: io::Result<Vec<u8>>,
    groups: Vec<CgroupLine>,
    status: Option<Status>,
    exe: Option<String>,
}

impl Due {
    fn read(self) -> Again {
        Again {
            cmdline: procfs::read_cmdline(self.pid),
            groups: if self.groups { procfs::read_cgroup(self.pid) } else { Vec::new() },
            status: self.details.then(|| procfs::read_status(self.pid)).flatten(),
            exe: self.details.then(|| procfs::read_exe(self.pid)).flatten(),
        }
    }
}

impl Identity {
    /// Read again the command lines of living processes (a PostgreSQL server shows there what it does,
    /// `... SELECT waiting`), where anything happened since. Cheap enough to be called four times a second:
    /// every call looks at no more than 40 processes, and rounds are at least a second apart.
    pub fn refresh(&mut self, now: Ns) {
        if self.round.is_empty() {
            if self.last_refresh.is_some_and(|t| now < t.saturating_add(ROUND_NS)) {
                return;
            }
            self.last_refresh = Some(now);
            self.rounds += 1;
            let alive = self.processes.iter().filter(|(_, p)| p.row.end.is_none());
            self.round = alive.map(|(id, _)| ProcessId(id)).collect();
            self.round.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut due = Vec::new();
        let mut looked = 0;
        self.lately.fill(super::NOBODY);
        while looked < PER_CALL {
            let Some(id) = self.round.pop() else { break };
            let Some(slot) = self.processes.get(id.index()) else { continue };
            let row = &slot.row;
            let wanted =
                slot.active || slot.gone || slot.crowded || self.is_turn(id) || is_young(row.start, now);
            let new = row.start > 0 && now.saturating_sub(row.start) < NEW_NS;
            if wanted && !new && row.end.is_none() && !row.kernel && row.pid != 0 && !row.own {
                looked += 1;
                due.extend(self.look_again(id, now));
            }
        }
        self.read_all_again(due, now);
    }

    fn is_turn(&self, id: ProcessId) -> bool {
        (self.rounds + u64::from(id.0)).is_multiple_of(SLOW_ROUNDS)
    }

    /// Look whether a process still is the one that it was, if that may not be so. Tells what of it is to
    /// be read again.
    fn look_again(&mut self, id: ProcessId, now: Ns) -> Option<Due> {
        let slot = self.processes.get_mut(id.index())?;
        slot.active = false;
        let pid = slot.row.pid;
        let doubtful = slot.gone || slot.crowded;
        let turn = self.is_turn(id);
        if (doubtful || turn) && !self.is_there(id, pid, now) {
            return None;
        }
        let slot = self.processes.get(id.index())?;
        // Processes are put into their group as they begin (docker, systemd-run), seldom later.
        let groups = turn || !slot.read || is_young(slot.row.start, now);
        Some(Due { id, pid, groups, details: !slot.read })
    }

    /// Read again what these processes show. Handing each to the thread that may get stuck costs more than
    /// reading it does: it gets all of them at once, unless that went wrong before.
    fn read_all_again(&mut self, due: Vec<Due>, now: Ns) {
        if due.is_empty() {
            return;
        }
        if !self.one_by_one {
            let all = due.clone();
            let all = self.patience.run(0, move || all.into_iter().map(Due::read).collect::<Vec<_>>());
            if let Some(all) = all {
                for (due, again) in due.into_iter().zip(all) {
                    self.take_again(due, again, now);
                }
                return;
            }
            self.one_by_one = true;
        }
        for due in due {
            if let Some(again) = self.patience.run(due.pid, move || due.read()) {
                self.take_again(due, again, now);
            }
        }
    }

    fn take_again(&mut self, due: Due, again: Again, now: Ns) {
        let id = due.id;
        let Some(slot) = self.processes.get_mut(id.index()) else { return };
        // Gone, it seems, when there is none: the next round looks closely.
        slot.gone |= again.cmdline.is_err();
        if due.details {
            slot.read = true;
            if let Some(status) = again.status {
                self.take_status(id, &status);
            }
            if let Some(exe) = again.exe {
                self.take_exe(id, exe);
            }
        }
        if let Ok(bytes) = again.cmdline {
            self.take_cmdline(id, &bytes, now);
        }
        self.take_cgroups(id, &again.groups);
        if due.details {
            self.judge_process(id);
        }
    }

    /// Is a process there? Notes its end in the second look that does not find it.
    fn is_there(&mut self, id: ProcessId, pid: u32, now: Ns) -> bool {
        // A number that /proc does not know, or knows for a later process: its exit was missed.
        let Some(slot) = self.processes.get_mut(id.index()) else { return false };
        let stat = procfs::read_stat(pid).filter(|s| {
            let start = s.start_ticks.saturating_mul(self.tick);
            slot.born.is_none_or(|b| start.abs_diff(b) <= super::SAME_START_NS)
        });
        // Exit events may still be under way: only what ended a while ago was missed.
        let gone_before = std::mem::replace(&mut slot.gone, stat.is_none());
        let Some(stat) = stat else {
            if gone_before {
                self.end_process(id, now);
            }
            return false;
        };
        if slot.members.len() > stat.threads as usize {
            self.end_missing_threads(id, pid, now);
        } else {
            slot.crowded = false;
        }
        true
    }

    /// More threads are known of a process than it has: some exit was missed, or is still under way. In
    /// the second round that finds it so, those that are gone are noted as ended.
    fn end_missing_threads(&mut self, id: ProcessId, pid: u32, now: Ns) {
        let Some(slot) = self.processes.get_mut(id.index()) else { return };
        if !std::mem::replace(&mut slot.crowded, true) {
            return;
        }
        slot.crowded = false;
        let there = procfs::threads_of(pid);
        if there.is_empty() {
            return;
        }
        for thread in self.members(id) {
            if self.row(thread).is_some_and(|t| there.binary_search(&t.tid).is_err()) {
                self.end_thread(thread, now);
            }
        }
    }
}

/// Did a process begin during the recording, and not long ago?
fn is_young(start: Ns, now: Ns) -> bool {
    start > 0 && now.saturating_sub(start) < YOUNG_NS
}
