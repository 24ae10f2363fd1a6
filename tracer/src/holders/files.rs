//! Who lets a file be opened and read: the daemon of a FUSE file system, who is asked for permission (fanotify), who
//! has a lease on it; and who brings pages that a program asked to be told of (userfaultfd).

use super::candidates::{others, others_first};
use super::{Holders, LongWait, Who, mounts};
use crate::procfs;
use pg_event::{Object, Relation};
use std::os::unix::ffi::OsStrExt;

impl Holders {
    /// Who could let a call on a file go on.
    pub(super) fn file_holders(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let within = procfs::read_wchan(wait.tid);
        if within.starts_with("fanotify_") {
            return self.who_permits(wait);
        }
        if within.contains("break_lease") {
            return self.lease_owners(wait, object);
        }
        self.file_server(wait, object)
    }

    /// Programs that are asked before files are opened or read: scanners for viruses. Which of several is asked is not
    /// to be seen.
    fn who_permits(&mut self, wait: &LongWait) -> Vec<(Who, Relation)> {
        let groups = self.open.anonymous("fanotify");
        let asked = groups.into_iter().filter(|o| o.info().is_some_and(|i| i.permits));
        others(asked.map(|o| o.pid).collect(), wait).map(|p| (Who::Process(p), Relation::Serves)).collect()
    }

    /// Other processes that bring the pages of this one's memory, which it asked for by userfaultfd(2).
    pub(super) fn page_bringers(&mut self, wait: &LongWait) -> Vec<(Who, Relation)> {
        if !procfs::read_wchan(wait.tid).contains("userfault") {
            return Vec::new();
        }
        let served = self.open.anonymous("userfaultfd").into_iter().map(|o| o.pid);
        others(served.collect(), wait).map(|p| (Who::Process(p), Relation::Serves)).collect()
    }

    /// The mount that a file lies on, as far as it is known. The file itself is never touched: that may hang as well.
    pub(super) fn mount_of(wait: &LongWait, object: &Object) -> Option<mounts::Mount> {
        let mut mounts = mounts::of_process(wait.tid);
        let found = if object.peer == 0 {
            // Known by the path given to the system call only.
            let mut path = object.name.as_bytes().to_vec();
            if !path.starts_with(b"/") {
                let here = std::fs::read_link(procfs::path_of(wait.tid, "cwd")).ok()?;
                let mut full = here.as_os_str().as_bytes().to_vec();
                full.push(b'/');
                full.append(&mut path);
                path = full;
            }
            let found = mounts::of_path(&mounts, &path)?;
            mounts.iter().position(|m| std::ptr::eq(m, found))?
        } else {
            let device = device_of(object);
            mounts.iter().position(|m| m.device == device)?
        };
        Some(mounts.swap_remove(found))
    }

    /// The daemon behind a file on FUSE.
    fn file_server(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let mount = Self::mount_of(wait, object);
        let Some(mount) = mount.filter(mounts::Mount::is_fuse) else { return Vec::new() };
        let minor = mount.device.1;
        let daemons = self.open.with_path(|p| p == "/dev/fuse");
        let connections: Vec<_> =
            daemons.iter().map(|o| (o.pid, o.info().and_then(|i| i.fuse_connection))).collect();
        // Newer kernels say which connection a descriptor is for; else only a lone daemon is certain.
        let mut pids: Vec<u32> =
            connections.iter().filter(|(_, c)| *c == Some(minor)).map(|(p, _)| *p).collect();
        if pids.is_empty() && connections.iter().all(|(_, c)| c.is_none()) {
            pids = connections.iter().map(|(p, _)| *p).collect();
            pids.sort_unstable();
            pids.dedup();
            if pids.len() > 1 {
                return Vec::new();
            }
        }
        others_first(pids, wait.tgid).into_iter().map(|p| (Who::Process(p), Relation::Serves)).collect()
    }
}

/// Major and minor number of the device that a file lies on.
pub(super) fn device_of(file: &Object) -> (u32, u32) {
    let dev = file.peer as u32;
    (dev >> 8 & 0xfff, (dev & 0xff) | (dev >> 12 & !0xff))
}
