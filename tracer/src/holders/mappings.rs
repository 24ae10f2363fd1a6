//! Who has the same memory mapped: whoever has may write there.

use super::Holders;
use crate::flags::memory::{Area, areas};
use crate::procfs;
use pg_event::Ns;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Most processes looked at.
const MAX_PROCESSES: usize = 4000;
/// Most files that one process has mapped so and that are looked at.
const MAX_FILES: usize = 64;

/// Device and inode of what is mapped.
pub(super) type File = ((u32, u32), u64);

/// What memory is shared, as it was seen at some time.
#[derive(Default)]
pub(super) struct Mappings {
    by_file: HashMap<File, Vec<u32>>,
    /// Of somebody it could not be read.
    gaps: bool,
    /// When that was, and how long it took.
    taken: Option<(Ns, Duration)>,
}

/// Who else has a file mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Others {
    Nobody,
    /// These processes; where they are more than asked about, it is not looked whether they still have it.
    These(Vec<u32>),
    Unknown,
}

impl Mappings {
    /// The last look.
    pub fn taken(&self) -> Option<(Ns, Duration)> {
        self.taken
    }

    /// Have the next question answered by a new look.
    pub fn forget(&mut self) {
        self.taken = None;
    }
}

/// Shared memory that may be written, of what is mapped: none of a device.
pub(super) fn shared(a: &Area) -> bool {
    let device =
        a.path.starts_with("/dev/") && !["/dev/shm/", "/dev/zero"].iter().any(|d| a.path.starts_with(d));
    a.shared && a.writable && a.file.1 != 0 && !device
}

/// Memory of a loop that one other process alone has mapped, too.
pub(crate) struct Shared {
    /// That process.
    pub pid: u32,
    /// Device (major, minor) and inode of what is mapped.
    pub file: File,
    /// Its path. Untrusted.
    pub path: String,
}

impl Holders {
    /// The one process with which another one shares memory that both have mapped; `None` when there are several such, or none.
    pub(crate) fn shares_memory(&mut self, pid: u32, now: Ns, met: usize) -> Option<Shared> {
        self.open.set_time(now, met);
        let mut files: Vec<Area> = Vec::new();
        for a in self.mapped_by(pid)?.into_iter().filter(shared) {
            if files.len() < MAX_FILES && files.iter().all(|f| f.file != a.file) {
                files.push(a);
            }
        }
        let mut found: Option<Shared> = None;
        for a in files {
            match self.others_with(pid, a.file, 1) {
                Others::Nobody => {}
                // Where several have it, as the processes of a server all have, that says nothing of any of them.
                Others::These(pids) => {
                    let [pid] = pids[..] else { return None };
                    if found.as_ref().is_some_and(|f| f.pid != pid) {
                        return None;
                    }
                    let path = a.path.strip_suffix(" (deleted)").unwrap_or(&a.path).to_owned();
                    found.get_or_insert(Shared { pid, file: a.file, path });
                }
                Others::Unknown => return None,
            }
        }
        found
    }

    pub(super) fn mapped_by(&mut self, pid: u32) -> Option<Vec<Area>> {
        self.patience.run(pid, move || areas(pid).ok())?
    }

    /// Who has a file mapped besides `pid`; more than `most` are of no interest.
    pub(super) fn others_with(&mut self, pid: u32, file: File, most: usize) -> Others {
        if !self.open.is_good(self.mappings.taken) {
            self.look_at_mappings();
        }
        let all = self.mappings.by_file.get(&file).map_or(&[][..], Vec::as_slice);
        let mut others: Vec<u32> = all.iter().copied().filter(|&p| p != pid).collect();
        // It may have ended since that was seen.
        if others.len() <= most {
            others.retain(|&p| self.mapped_by(p).into_iter().flatten().any(|a| shared(&a) && a.file == file));
        }
        match others.is_empty() {
            false => Others::These(others),
            true if self.mappings.gaps => Others::Unknown,
            true => Others::Nobody,
        }
    }

    fn look_at_mappings(&mut self) {
        let began = Instant::now();
        let pids: Vec<u32> = self.open.processes().iter().filter(|s| !s.kernel).map(|s| s.pid).collect();
        self.mappings.by_file.clear();
        self.mappings.gaps = pids.len() > MAX_PROCESSES;
        for pid in pids.into_iter().take(MAX_PROCESSES) {
            let Some(mapped) = self.mapped_by(pid) else {
                // The first process may be guarded even from root, and shares no memory with programs.
                let lives = || procfs::read_stat(pid).is_some_and(|s| !s.has_ended());
                self.mappings.gaps |= pid != 1 && lives();
                continue;
            };
            for a in mapped.into_iter().filter(shared) {
                let by = self.mappings.by_file.entry(a.file).or_default();
                if by.last() != Some(&pid) {
                    by.push(pid);
                }
            }
        }
        // Who was born since the processes were looked at is not among them.
        let at = self.open.counted().unwrap_or_default();
        self.mappings.taken = Some((at, began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(path: &str, inode: u64) -> Area {
        let file = ((0, 26), inode);
        Area { start: 0, end: 4096, writable: true, shared: true, offset: 0, file, path: path.into() }
    }

    #[test]
    fn what_counts_as_shared_memory() {
        for path in ["/dev/shm/ring", "/dev/zero (deleted)", "/var/lib/ring", "/memfd:ring (deleted)"] {
            assert!(shared(&area(path, 7)), "{path}");
        }
        assert!(!shared(&area("/dev/dri/card0", 7)), "a device");
        assert!(!shared(&area("", 0)) && !shared(&Area { writable: false, ..area("/dev/shm/ring", 7) }));
        assert!(!shared(&Area { shared: false, ..area("/dev/shm/ring", 7) }));
    }

    /// What was seen may be over, and what could not be read is not known.
    #[test]
    fn who_had_it_mapped_and_has_not_any_more_is_nobody() {
        let (mut holders, file) = (Holders::new(), ((0, 26), u64::MAX));
        holders.open.set_time(1, 0);
        holders.mappings.taken = Some((1, Duration::ZERO));
        let own = std::process::id();
        holders.mappings.by_file.insert(file, vec![own]);
        assert_eq!(holders.others_with(1, file, 2), Others::Nobody, "it is not mapped there");
        holders.mappings.gaps = true;
        assert_eq!(holders.others_with(1, file, 2), Others::Unknown);
        holders.mappings.by_file.insert(file, vec![1, 2, 3, own]);
        assert_eq!(
            holders.others_with(1, file, 2),
            Others::These(vec![2, 3, own]),
            "so many are not looked at"
        );
    }
}
