//! Looking at living processes again: command lines they rewrote, and ends that were missed.

use super::Identity;
use crate::procfs;
use pg_event::{Ns, ProcessId};

/// A round over all processes begins at most this often.
const ROUND_NS: Ns = 1_000_000_000;
/// Most processes looked at in one call (about 40 us each).
const PER_CALL: usize = 16;
/// The control groups of a process are read again in every round while it is younger than this ...
const YOUNG_NS: Ns = 10_000_000_000;
/// ... and in one round of so many later. In so many rounds also a process that did nothing is looked at.
const SLOW_ROUNDS: u64 = 8;

impl Identity {
    /// Read again the command lines of living processes (a PostgreSQL server shows there what it does,
    /// `... SELECT waiting`), where anything happened since. Cheap enough to be called ten times a second:
    /// every call looks at no more than 16 processes, and rounds are at least a second apart.
    pub fn refresh(&mut self, now: Ns) {
        if self.cursor == 0 {
            if self.last_refresh.is_some_and(|t| now < t.saturating_add(ROUND_NS)) {
                return;
            }
            self.last_refresh = Some(now);
            self.rounds += 1;
        }
        let mut looked = 0;
        while self.cursor < self.processes.len() && looked < PER_CALL {
            let id = ProcessId(self.cursor as u32);
            self.cursor += 1;
            let slot = &self.processes[id.index()];
            let row = &slot.row;
            let due =
                slot.active || slot.gone || slot.crowded || self.is_turn(id) || is_young(row.start, now);
            if due && row.end.is_none() && !row.kernel && row.pid != 0 && !row.own {
                looked += 1;
                self.look_again(id, now);
            }
        }
        if self.cursor >= self.processes.len() {
            self.cursor = 0;
        }
    }

    fn is_turn(&self, id: ProcessId) -> bool {
        (self.rounds + u64::from(id.0)).is_multiple_of(SLOW_ROUNDS)
    }

    fn look_again(&mut self, id: ProcessId, now: Ns) {
        let pid = self.processes[id.index()].row.pid;
        self.processes[id.index()].active = false;
        // A number that /proc does not know, or knows for a later process: its exit was missed.
        let stat = procfs::read_stat(pid).filter(|s| {
            self.processes[id.index()]
                .born
                .is_none_or(|b| s.start_ticks.saturating_mul(self.tick).abs_diff(b) <= super::SAME_START_NS)
        });
        let Some(stat) = stat else {
            // Exit events may still be under way: only what ended a while ago was missed.
            let slot = &mut self.processes[id.index()];
            if slot.gone {
                self.end_process(id, now);
            } else {
                slot.gone = true;
            }
            return;
        };
        self.processes[id.index()].gone = false;
        if self.processes[id.index()].members.len() > stat.threads as usize {
            self.end_missing_threads(id, pid, now);
        } else {
            self.processes[id.index()].crowded = false;
        }
        let slot = &self.processes[id.index()];
        if !slot.read {
            self.read_details(id, now);
            self.judge_process(id);
            return;
        }
        // Processes are put into their group as they begin (docker, systemd-run), seldom later.
        let groups = is_young(slot.row.start, now) || self.is_turn(id);
        self.read_cmdline(id, now);
        if groups {
            self.read_cgroups(id);
        }
    }

    /// More threads are known of a process than it has: some exit was missed, or is still under way. In
    /// the second round that finds it so, those that are gone are noted as ended.
    fn end_missing_threads(&mut self, id: ProcessId, pid: u32, now: Ns) {
        let slot = &mut self.processes[id.index()];
        if !std::mem::replace(&mut slot.crowded, true) {
            return;
        }
        slot.crowded = false;
        let there = procfs::threads_of(pid);
        if there.is_empty() {
            return;
        }
        for thread in self.processes[id.index()].members.clone() {
            if there.binary_search(&self.threads[thread.index()].row.tid).is_err() {
                self.end_thread(thread, now);
            }
        }
    }
}

/// Did a process begin during the recording, and not long ago?
fn is_young(start: Ns, now: Ns) -> bool {
    start > 0 && now.saturating_sub(start) < YOUNG_NS
}
