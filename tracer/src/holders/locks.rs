//! Who has a file locked that another one wants to lock.

use super::candidates::others;
use super::{Holders, LongWait, Who};
use crate::procfs::{self, FdInfo, FdLink, FileLock, LockKind};
use pg_event::{Object, Relation};

/// Most descriptors whose locks are read to find an owner that `/proc/locks` does not name.
const MAX_LOOKED_AT: usize = 2000;

/// Major and minor number of a device as stat(2) has it (kernel: `new_encode_dev`).
fn device(dev: u64) -> (u32, u32) {
    let dev = dev as u32;
    ((dev >> 8) & 0xfff, (dev & 0xff) | (dev >> 12 & !0xff))
}

/// The locks that keep `tgid` waiting for one on this file: those its own entry says block it, else all.
pub(super) fn blocking<'a>(locks: &'a [FileLock], tgid: u32, object: &Object) -> Vec<&'a FileLock> {
    let on_it = |l: &&FileLock| l.inode == object.id && (object.peer == 0 || l.device == device(object.peer));
    let waits = locks.iter().filter(on_it).find(|l| l.blocked && l.pid == Some(tgid));
    let held = locks.iter().filter(on_it).filter(|l| !l.blocked);
    match waits {
        Some(w) => {
            let named: Vec<_> = held.clone().filter(|l| l.number == w.number).collect();
            if named.is_empty() { held.filter(|l| l.overlaps(w)).collect() } else { named }
        }
        None => tried(held.collect(), tgid),
    }
}

/// Of the locks of a file those that can have refused one that was tried for, which is in no list: nobody refuses to share with
/// who only reads, and who has nothing yet comes to the writer first (SQLite: a reader that finds a writer waiting for another one).
fn tried(held: Vec<&FileLock>, tgid: u32) -> Vec<&FileLock> {
    let writes = |l: &&&FileLock| l.write && l.pid != Some(tgid);
    let nothing = held.iter().all(|l| l.pid != Some(tgid));
    if nothing && held.iter().any(|l| writes(&l)) {
        held.into_iter().filter(|l| l.write).collect()
    } else {
        held
    }
}

impl Holders {
    pub(super) fn lock_owners(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let locks = procfs::read_locks();
        let mut found: Vec<(u32, Relation)> = Vec::new();
        for lock in blocking(&locks, wait.tgid, object) {
            let taker = lock.pid.filter(|&p| procfs::read_stat(p).is_some_and(|s| !s.has_ended()));
            let of_file = matches!(lock.kind, LockKind::Flock | LockKind::Ofd);
            if let Some(pid) = taker.filter(|&p| !of_file || has_locked(p, object) != Some(false)) {
                found.push((pid, Relation::Owns));
                continue;
            }
            // The process that took it is gone or has closed it, with the descriptor passed on; an OFD lock names nobody.
            let shares = if lock.pid.is_some() { Relation::Shares } else { Relation::Owns };
            let with_it = self.lock_descriptors(object);
            found.extend(with_it.iter().map(|&p| (p, shares)));
            found.extend(taker.filter(|_| with_it.is_empty()).map(|p| (p, Relation::Owns)));
        }
        found.sort_unstable_by_key(|&(pid, r)| (pid, r as u8));
        found.dedup_by_key(|f| f.0);
        found.into_iter().map(|(p, relation)| (Who::Process(p), relation)).collect()
    }

    /// Who has a lease on a file (samba, NFS servers), and has to give it up before others may open it. The file is
    /// known by its path, which is not touched: whoever has a lease has it open.
    pub(super) fn lease_owners(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let leases: Vec<_> =
            procfs::read_locks().into_iter().filter(|l| l.kind == LockKind::Lease && !l.blocked).collect();
        let name = last(&object.name);
        let open = self.open.with_path(|p| !name.is_empty() && last(p) == name);
        let pids: Vec<u32> = open
            .into_iter()
            .take(MAX_LOOKED_AT)
            .filter(|o| {
                let locked = o.info().map(|i| i.locked_inodes).unwrap_or_default();
                leases.iter().any(|l| l.pid.is_none_or(|p| p == o.pid) && locked.contains(&l.inode))
            })
            .map(|o| o.pid)
            .collect();
        others(pids, wait).map(|p| (Who::Process(p), Relation::Owns)).collect()
    }

    /// Processes with a descriptor whose open file description has a lock on this file.
    fn lock_descriptors(&mut self, object: &Object) -> Vec<u32> {
        let name = last(&object.name);
        let candidates = self.open.with_path(|p| name.is_empty() || last(p) == name);
        let mut out = Vec::new();
        for o in candidates.into_iter().take(MAX_LOOKED_AT) {
            if is_locked(o.info().as_ref(), object) {
                out.push(o.pid);
            }
        }
        out
    }
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or("")
}

/// Has the open file of this descriptor a lock on the object?
fn is_locked(descriptor: Option<&FdInfo>, object: &Object) -> bool {
    descriptor.is_some_and(|i| i.locked_inodes.contains(&object.id))
}

/// Has the process a descriptor with a lock on this file? `None` when its descriptors may not be read.
fn has_locked(pid: u32, object: &Object) -> Option<bool> {
    let pid = procfs::shown_by(pid);
    let all = procfs::read_fd_links(pid, MAX_LOOKED_AT);
    if all.is_empty() || all.len() >= MAX_LOOKED_AT {
        return None;
    }
    let name = last(&object.name);
    let fits = |link: &FdLink| matches!(link, FdLink::Path(p) if last(p) == name);
    // It may know the file by another name.
    let (like, other): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, link)| fits(link));
    let other = other.into_iter().filter(|(_, link)| matches!(link, FdLink::Path(_)));
    Some(
        like.into_iter().chain(other).any(|(fd, _)| is_locked(procfs::read_fdinfo(pid, fd).as_ref(), object)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::parse_locks;
    use pg_event::ObjectKind;

    #[test]
    fn the_entry_that_blocks_is_the_one_with_its_number() {
        let text = b"1: POSIX  ADVISORY  WRITE 10 08:01:7 0 9\n\
            2: POSIX  ADVISORY  WRITE 11 08:01:7 10 19\n\
            2: -> POSIX  ADVISORY  WRITE 12 08:01:7 10 10\n\
            3: FLOCK  ADVISORY  WRITE 13 08:02:7 0 EOF\n";
        let locks = parse_locks(text);
        let object = Object::new(ObjectKind::FileLock, 7, 0x801);
        let pids = |tgid| blocking(&locks, tgid, &object).iter().filter_map(|l| l.pid).collect::<Vec<_>>();
        assert_eq!(pids(12), [11]);
        // Someone whose wait is over already, or not listed: every lock on this file, none on its namesake.
        assert_eq!(pids(99), [10, 11]);
    }

    #[test]
    fn a_reader_is_refused_by_writers() {
        let text = b"1: POSIX  ADVISORY  READ 10 08:01:7 10 20\n\
            2: POSIX  ADVISORY  READ 11 08:01:7 10 20\n\
            3: POSIX  ADVISORY  WRITE 11 08:01:7 1 2\n";
        let locks = parse_locks(text);
        let object = Object::new(ObjectKind::FileLock, 7, 0x801);
        let pids = |tgid| blocking(&locks, tgid, &object).iter().filter_map(|l| l.pid).collect::<Vec<_>>();
        assert_eq!(pids(99), [11], "who has nothing yet");
        assert_eq!(pids(11), [10, 11, 11], "the writer");
    }

    #[test]
    fn device_numbers_as_stat_has_them() {
        assert_eq!(device(0x801), (8, 1));
        // Major 259, minor 70000.
        let (major, minor) = (259u64, 70_000u64);
        let dev = (minor & 0xff) | major << 8 | (minor & !0xff) << 12;
        assert_eq!(device(dev), (259, 70_000));
    }
}
