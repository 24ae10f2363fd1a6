//! Who has the same memory mapped: a semaphore, a condition or a word that is waited for in shared memory names nobody, and
//! whoever else has that memory may write to it.

use super::{Holders, LongWait, Who};
use crate::flags::memory::{Area, areas};
use pg_event::{Ns, Object, Relation};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Most processes looked at.
const MAX_PROCESSES: usize = 4000;
/// Where more have it mapped, as the processes of a server all have, that says nothing of any of them.
const MOST: usize = 1;

/// Device and inode of what is mapped.
type File = ((u32, u32), u64);

/// What memory is shared, as it was seen at some time.
#[derive(Default)]
pub(super) struct Mappings {
    by_file: HashMap<File, Vec<u32>>,
    /// When that was, and how long it took.
    taken: Option<(Ns, Duration)>,
}

impl Mappings {
    /// Have the next question answered by a new look.
    pub fn forget(&mut self) {
        self.taken = None;
    }
}

/// Shared memory that may be written, of what is mapped.
fn shared(a: &Area) -> bool {
    a.shared && a.writable && a.file.1 != 0
}

impl Holders {
    /// The other process that has the memory of a shared futex word mapped, if there is one only.
    pub(super) fn futex_sharers(
        &mut self,
        wait: &LongWait,
        object: &Object,
        address: u64,
    ) -> Vec<(Who, Relation)> {
        if !object.is_shared_futex() {
            return Vec::new();
        }
        let of = |s: &mut Self, pid: u32| s.patience.run(pid, move || areas(pid).unwrap_or_default());
        let Some(own) = of(self, wait.tgid) else { return Vec::new() };
        let Some(area) = own.into_iter().find(|a| a.has(address) && shared(a)) else { return Vec::new() };
        if !self.open.is_good(self.mappings.taken) {
            let began = Instant::now();
            let pids: Vec<u32> = self.open.processes().iter().filter(|s| !s.kernel).map(|s| s.pid).collect();
            self.mappings.by_file.clear();
            for pid in pids.into_iter().take(MAX_PROCESSES) {
                for a in of(self, pid).into_iter().flatten().filter(shared) {
                    let by = self.mappings.by_file.entry(a.file).or_default();
                    if by.last() != Some(&pid) {
                        by.push(pid);
                    }
                }
            }
            self.mappings.taken = Some((self.open.now(), began.elapsed()));
        }
        let all = self.mappings.by_file.get(&area.file).map_or(&[][..], Vec::as_slice);
        let mut others: Vec<u32> = all.iter().copied().filter(|&p| p != wait.tgid).collect();
        if others.len() > MOST {
            return Vec::new();
        }
        // It may have ended since that was seen.
        others.retain(|&p| of(self, p).into_iter().flatten().any(|a| shared(&a) && a.file == area.file));
        others.into_iter().map(|p| (Who::Process(p), Relation::Writes)).collect()
    }
}
