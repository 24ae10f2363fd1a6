//! Which control group's quota of CPU time holds a process back, and what the quota is. Of version 1 (`cpu.cfs_quota_us`)
//! and version 2 (`cpu.max`); see the kernel's documentation of both.

use super::hash::FastMap;
use super::objects::Objects;
use super::raw::{Name, RawObject};
use crate::procfs::{self, read_bounded};
use pg_event::{ObjectId, ObjectKind};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most processes remembered.
const MOST: usize = 4096;
/// Longest limit file read.
const LIMIT: usize = 256;

/// Where a hierarchy that limits CPU time is mounted.
#[derive(Debug, Default)]
struct Mounts {
    v1: Option<PathBuf>,
    v2: Option<PathBuf>,
}

fn mounts(text: &str) -> Mounts {
    let mut out = Mounts::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, at, kind, options, ..] = words[..] else { continue };
        match kind {
            "cgroup2" if out.v2.is_none() => out.v2 = Some(at.into()),
            "cgroup" if out.v1.is_none() && options.split(',').any(|o| o == "cpu") => {
                out.v1 = Some(at.into());
            }
            _ => {}
        }
    }
    out
}

/// The limit of a group, in words; `None` without one.
fn limit_v2(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok().filter(|&p| p != 0)?;
    Some(format!("cpu.max {quota} {period} = {}", percent(quota, period)))
}

fn limit_v1(quota: &str, period: &str) -> Option<String> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok().filter(|&p| p != 0)?;
    Some(format!("cpu.cfs_quota_us {quota} of {period} = {}", percent(quota, period)))
}

fn percent(quota: u64, period: u64) -> String {
    format!("{}.{} % of a CPU", quota * 100 / period, quota * 1000 / period % 10)
}

/// Finds the groups; each process is looked up once.
pub struct Quotas {
    mounts: Option<Mounts>,
    groups: FastMap<u32, ObjectId>,
}

impl Quotas {
    /// Nothing looked up yet.
    pub fn new() -> Self {
        Self { mounts: None, groups: FastMap::default() }
    }

    /// The group whose quota holds the process back; [`ObjectId::NONE`] when it cannot be read any more.
    pub fn of(&mut self, pid: u32, objects: &mut Objects) -> ObjectId {
        if let Some(&id) = self.groups.get(&pid) {
            return id;
        }
        if self.groups.len() >= MOST {
            self.groups.clear();
        }
        let id = match self.look(pid) {
            Some((inode, text)) => {
                let raw = RawObject { kind: ObjectKind::Cgroup as u8, id: inode, peer: 0 };
                objects.name(raw, &Name::Text(text.into_bytes()));
                objects.id(raw)
            }
            None => ObjectId::NONE,
        };
        self.groups.insert(pid, id);
        id
    }

    /// The groups that are remembered.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> {
        self.groups.values().copied()
    }

    /// A process executed another program or ended: its group may be another one by now.
    pub fn forget(&mut self, pid: u32) {
        self.groups.remove(&pid);
    }

    fn look(&mut self, pid: u32) -> Option<(u64, String)> {
        let mounts = self
            .mounts
            .get_or_insert_with(|| mounts(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()));
        for line in procfs::read_cgroup(pid) {
            let v2 = line.controllers.is_empty();
            let root = if v2 {
                mounts.v2.as_ref()
            } else if line.controllers.split(',').any(|c| c == "cpu") {
                mounts.v1.as_ref()
            } else {
                None
            };
            let Some(root) = root else { continue };
            // The innermost limit, as the quota found by the programs.
            let mut path = line.path.trim_start_matches('/').trim_end_matches(" (deleted)");
            loop {
                if path.split('/').any(|part| part == "..") {
                    break;
                }
                let dir = root.join(path);
                if let Some(limit) = limit_of(&dir, v2) {
                    let inode = fs::metadata(&dir).map_or(0, |m| m.ino());
                    return Some((inode, format!("{} ({limit})", dir.display())));
                }
                if path.is_empty() {
                    break;
                }
                path = path.rsplit_once('/').map_or("", |p| p.0);
            }
        }
        None
    }
}

fn limit_of(dir: &Path, v2: bool) -> Option<String> {
    let read = |name: &str| {
        read_bounded(&dir.join(name), LIMIT).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
    };
    if v2 {
        limit_v2(&read("cpu.max")?)
    } else {
        limit_v1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions() {
        assert_eq!(limit_v2("5000 100000\n").as_deref(), Some("cpu.max 5000 100000 = 5.0 % of a CPU"));
        assert_eq!(limit_v2("max 100000\n"), None);
        assert_eq!(limit_v2("1 0\n"), None);
        let v1 = limit_v1("150000\n", "100000\n");
        assert_eq!(v1.as_deref(), Some("cpu.cfs_quota_us 150000 of 100000 = 150.0 % of a CPU"));
        assert_eq!(limit_v1("-1\n", "100000\n"), None);
    }

    #[test]
    fn mount_points() {
        let m =
            mounts("cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /c cgroup rw,cpu,cpuacct 0 0\n");
        assert_eq!(m.v1.as_deref(), Some(Path::new("/c")));
        assert_eq!(m.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert!(mounts("cgroup /c cgroup rw,cpuset 0 0\nrubbish\n").v1.is_none());
    }
}
