//! Who serves a file: the daemon of a FUSE file system.

use super::{Holders, LongWait, Who, mounts};
use crate::procfs;
use pg_event::{Object, Relation};
use std::os::unix::ffi::OsStrExt;

impl Holders {
    /// The daemon behind a file on FUSE. The file itself is never touched: that would hang as well.
    pub(super) fn file_server(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let mounts = mounts::of_process(wait.tid);
        let mount = if object.peer == 0 {
            // Known by the path given to the system call only.
            let mut path = object.name.as_bytes().to_vec();
            if !path.starts_with(b"/") {
                let Ok(here) = std::fs::read_link(procfs::path_of(wait.tid, "cwd")) else {
                    return Vec::new();
                };
                let mut full = here.as_os_str().as_bytes().to_vec();
                full.push(b'/');
                full.append(&mut path);
                path = full;
            }
            mounts::of_path(&mounts, &path)
        } else {
            let dev = object.peer as u32;
            let device = (dev >> 8 & 0xfff, (dev & 0xff) | (dev >> 12 & !0xff));
            mounts.iter().find(|m| m.device == device)
        };
        let Some(mount) = mount.filter(|m| m.is_fuse()) else { return Vec::new() };
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
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|&p| p != wait.tgid);
        pids.into_iter().map(|p| (Who::Process(p), Relation::Serves)).collect()
    }
}
