//! A process that its control group allows a tenth of a CPU.

#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{fact, tid};
use crate::{allowed, options, recorded};
use pg_event::{Kind, ObjectKind, OffState};
use pg_tracer::Level;
use std::fs;
use std::path::PathBuf;

/// The program goes on until its group was held back for so long, ms.
const ENOUGH: u64 = 400;

/// Make a group with a quota of 10 ms in 100 ms: of version 1, else of version 2.
fn limited_group() -> Option<PathBuf> {
    let name = format!("pg-quota-{}", std::process::id());
    let v1 = PathBuf::from("/sys/fs/cgroup/cpu").join(&name);
    if fs::create_dir(&v1).is_ok() {
        fs::write(v1.join("cpu.cfs_period_us"), "100000").ok()?;
        fs::write(v1.join("cpu.cfs_quota_us"), "10000").ok()?;
        return Some(v1);
    }
    let root = PathBuf::from("/sys/fs/cgroup");
    let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
    let v2 = root.join(&name);
    fs::create_dir(&v2).ok()?;
    if fs::write(v2.join("cpu.max"), "10000 100000").is_err() {
        let _ = fs::remove_dir(&v2);
        return None;
    }
    Some(v2)
}

pub fn spin() {
    fact("self", tid());
    let Some(group) = limited_group() else {
        fact("none", 1);
        return;
    };
    fact("group", group.display());
    let procs = "cgroup.procs";
    fs::write(group.join(procs), std::process::id().to_string()).unwrap();
    // Until the group itself says that it was held back for long, however little of a CPU there is.
    let held_back = || {
        let stat = fs::read_to_string(group.join("cpu.stat")).unwrap();
        let ms = |name: &str, unit: u64| {
            let value = stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
            value.map(|v| v / unit)
        };
        // Of version 2, of version 1.
        ms("throttled_usec ", 1_000).or_else(|| ms("throttled_time ", 1_000_000)).unwrap_or(u64::MAX)
    };
    let mut n = 0u64;
    while held_back() < ENOUGH {
        for _ in 0..100_000 {
            n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(7));
        }
    }
    fs::write(group.parent().unwrap().join(procs), std::process::id().to_string()).unwrap();
    fs::remove_dir(&group).unwrap();
}

#[test]
fn a_quota_that_is_used_up_is_a_state_of_its_own() {
    let test = "a_quota_that_is_used_up_is_a_state_of_its_own";
    if !allowed(test) {
        return;
    }
    recorded("quota", &options(Level::Waits), |r| {
        if r.facts.contains_key("none") {
            println!("skipped: {test}: no control group with a CPU quota can be made here");
            return;
        }
        let thread = r.thread("self");
        let held: Vec<_> = r
            .events
            .iter()
            .filter(|e| e.thread == thread)
            .filter_map(|e| match e.kind {
                Kind::OffCpu(o) if o.state == OffState::Throttled => Some((e.time - o.start, o)),
                _ => None,
            })
            .collect();
        let total: u64 = held.iter().map(|h| h.0).sum();
        // The group is held back as soon as it has used its share, the thread when it is to go on.
        assert!(
            total > ENOUGH * 1_000_000 / 2,
            "held back for {} ms in {} intervals",
            total / 1_000_000,
            held.len()
        );
        let group = r.object(held[0].1.object);
        assert_eq!(group.kind, ObjectKind::Cgroup);
        assert!(group.name.starts_with(&r.facts["group"]) && group.name.contains("10.0 %"), "{group:?}");
    });
}
