//! The focus of a recording: whose stacks are rich, and who can be the victim by default.

use crate::procfs::{self, CgroupLine};
use regex::Regex;
use std::path::Path;

/// Whom a recording is about. Empty: everybody but the recorder and kernel threads.
#[derive(Clone, Debug, Default)]
pub struct Focus {
    /// Processes (or threads, which stand for their process), with their descendants.
    pub pids: Vec<u32>,
    /// Control groups, with those below them.
    pub cgroups: Vec<String>,
    /// Names of threads or processes.
    pub comms: Vec<Regex>,
    /// A command is to be started and will be the focus: until then nobody is.
    pub command: bool,
}

impl Focus {
    /// Was nothing chosen?
    pub fn is_everything(&self) -> bool {
        self.pids.is_empty() && self.cgroups.is_empty() && self.comms.is_empty() && !self.command
    }

    /// Is a name chosen?
    pub fn has_name(&self, name: &str) -> bool {
        self.comms.iter().any(|r| r.is_match(name))
    }

    /// Is one of the control groups of a process (one per hierarchy) chosen, or below one that is?
    pub fn has_cgroup(&self, lines: &[CgroupLine]) -> bool {
        self.cgroups.iter().any(|c| lines.iter().any(|l| is_below(&l.path, cgroup_path(c))))
    }
}

/// Is `path` the group `top` or below it, component by component?
fn is_below(path: &str, top: &str) -> bool {
    let top = top.trim_matches('/');
    match path.trim_start_matches('/').strip_prefix(top) {
        Some(rest) => top.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Is there a control group that people name so? Empty ones count: their processes may come later.
pub fn cgroup_exists(given: &str) -> bool {
    let wanted = cgroup_path(given);
    let mounts =
        procfs::read_bounded(Path::new("/proc/self/mountinfo"), procfs::MAX_FILE).unwrap_or_default();
    let below = wanted.trim_start_matches('/');
    // `..` would lead out of the hierarchies.
    if Path::new(below).components().any(|c| c == std::path::Component::ParentDir) {
        return false;
    }
    cgroup_mounts(&mounts).iter().any(|m| Path::new(m).join(below).is_dir())
        || procfs::processes()
            .into_iter()
            .any(|pid| procfs::read_cgroup(pid).iter().any(|l| is_below(&l.path, wanted)))
}

/// Where hierarchies of control groups are mounted, by `/proc/PID/mountinfo` (proc(5)).
fn cgroup_mounts(mountinfo: &[u8]) -> Vec<String> {
    let lines = mountinfo.split(|&b| b == b'\n').filter_map(|l| std::str::from_utf8(l).ok());
    lines
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let kind = after.split(' ').next()?;
            matches!(kind, "cgroup" | "cgroup2").then(|| before.split(' ').nth(4).map(str::to_owned))?
        })
        .collect()
}

/// Names under which version 1 hierarchies (and version 2 beside them) are mounted.
const HIERARCHIES: [&str; 16] = [
    "unified",
    "systemd",
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "blkio",
    "devices",
    "freezer",
    "pids",
    "net_cls",
    "net_prio",
    "perf_event",
    "hugetlb",
    "rdma",
    "misc",
];

/// The path within its hierarchy of a control group named as people do: `/a/b`, `a/b`, or by its folder
/// `/sys/fs/cgroup/a/b` (version 2), `/sys/fs/cgroup/memory/a/b` (version 1).
pub fn cgroup_path(given: &str) -> &str {
    let Some(rest) = given.strip_prefix("/sys/fs/cgroup") else { return given };
    if !rest.is_empty() && !rest.starts_with('/') {
        return given;
    }
    let rest = rest.trim_start_matches('/');
    let (first, below) = rest.split_once('/').unwrap_or((rest, ""));
    if first.split(',').all(|c| HIERARCHIES.contains(&c)) { below } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_prefix_goes_by_components() {
        assert!(is_below("/a/b", "/a"));
        assert!(is_below("/a", "a/"));
        assert!(!is_below("/ab", "/a"));
        assert!(is_below("/anything", "/"));
    }

    #[test]
    fn cgroup_named_by_its_folder() {
        assert_eq!(cgroup_path("/sys/fs/cgroup/memory/x/y"), "x/y");
        assert_eq!(cgroup_path("/sys/fs/cgroup/cpu,cpuacct/x"), "x");
        assert_eq!(cgroup_path("/sys/fs/cgroup/system.slice/x"), "system.slice/x");
        assert_eq!(cgroup_path("/sys/fs/cgroupx/y"), "/sys/fs/cgroupx/y");
        assert_eq!(cgroup_path("/docker/1"), "/docker/1");
    }

    #[test]
    fn groups_are_looked_for_where_they_are_mounted() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /mnt/g2 rw,relatime - cgroup2 cgroup2 rw\nnonsense\n";
        assert_eq!(cgroup_mounts(mounts), ["/sys/fs/cgroup/cpu", "/mnt/g2"]);
        assert!(cgroup_exists("/"), "every process is in a group below it");
        assert!(!cgroup_exists("/no/such/group") && !cgroup_exists("/../../../etc"));
    }

    #[test]
    fn any_hierarchy_counts() {
        let lines = vec![
            CgroupLine { controllers: String::new(), path: "/".into() },
            CgroupLine { controllers: "memory".into(), path: "/jobs/one".into() },
        ];
        let focus = Focus { cgroups: vec!["/jobs".into()], ..Focus::default() };
        assert!(focus.has_cgroup(&lines));
        assert!(!Focus { cgroups: vec!["/job".into()], ..Focus::default() }.has_cgroup(&lines));
    }
}
