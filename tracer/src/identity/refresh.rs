//! Looking at living processes again: command lines they rewrote, and ends that were missed.

use super::Identity;
use crate::procfs;
use pg_event::{Ns, ProcessId};

/// A round over all processes begins at most this often.
const ROUND_NS: Ns = 1_000_000_000;
/// Most processes looked at in one call (about 20 us each).
const PER_CALL: usize = 64;

impl Identity {
    /// Read again the command lines of some living processes (a PostgreSQL server shows there what it does,
    /// `... SELECT waiting`), those of the focus in every round. Cheap enough to be called ten times a
    /// second: every call looks at no more than 64 processes, and rounds are a second apart.
    pub fn refresh(&mut self, now: Ns) {
        if self.cursor == 0 {
            if self.last_refresh.is_some_and(|t| now < t.saturating_add(ROUND_NS)) {
                return;
            }
            self.last_refresh = Some(now);
        }
        let mut looked = 0;
        while self.cursor < self.processes.len() && looked < PER_CALL {
            let id = ProcessId(self.cursor as u32);
            self.cursor += 1;
            let row = &self.processes[id.index()].row;
            if row.end.is_none() && !row.kernel && row.pid != 0 && !row.own {
                looked += 1;
                self.look_again(id, now);
            }
        }
        if self.cursor >= self.processes.len() {
            self.cursor = 0;
        }
    }

    fn look_again(&mut self, id: ProcessId, now: Ns) {
        let pid = self.processes[id.index()].row.pid;
        // A number that /proc does not know, or knows for a later process: its exit was missed.
        let same = procfs::read_stat(pid).is_some_and(|s| {
            self.processes[id.index()]
                .born
                .is_none_or(|b| s.start_ticks.saturating_mul(self.tick).abs_diff(b) <= super::SAME_START_NS)
        });
        if !same {
            // Exit events may still be under way: only what ended a while ago was missed.
            let slot = &mut self.processes[id.index()];
            if slot.gone {
                self.end_process(id, now);
            } else {
                slot.gone = true;
            }
            return;
        }
        if self.processes[id.index()].read {
            self.read_cmdline(id, now);
        } else {
            self.read_details(id, now);
            self.judge_process(id);
        }
    }
}
