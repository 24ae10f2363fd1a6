//! Processes that stand still: threads that wait for long for somebody who was not found, and not for work to come.

use super::{LONG, Row, idles};
use pg_tracer::live::Doing;
use std::collections::{BTreeMap, BTreeSet};

/// System calls in which servers, timers and shells wait for whatever comes next; beginnings of their names.
const IDLE: [&str; 14] = [
    "epoll_",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "accept",
    "nanosleep",
    "clock_nanosleep",
    "rt_sig",
    "pause",
    "wait",
    "io_uring",
    "io_getevents",
    "restart_syscall",
];

/// Objects that are read for whatever comes, with no one in particular to send it: devices, terminals, timers,
/// messages of the kernel, ports.
const OPEN_TO_ALL: [&str; 4] = ["/dev/", "anon_inode:", "socket:", "udp "];

/// Does it wait for whatever comes, or is not known to wait for anything else?
fn waits_for_work(r: &Row) -> bool {
    r.call.is_empty()
        || idles(r)
        || IDLE.iter().any(|call| r.call.starts_with(call))
        || OPEN_TO_ALL.iter().any(|object| r.object.starts_with(object))
}

/// Threads that look as if they hung though nobody is known to hold them up. A thread of a pool looks the same: so it is
/// only those of processes whose main thread is one of them and in which no thread is there for what may come.
pub(super) fn standing_still(all: &[Row]) -> BTreeSet<u32> {
    let mut processes: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
    for r in all {
        processes.entry(r.pid).or_default().push(r);
    }
    let alone = |r: &&&Row| r.doing == Doing::Waits && r.since >= LONG && r.holders.is_empty();
    let mut found = BTreeSet::new();
    for threads in processes.values() {
        let blocked = || threads.iter().filter(|r| r.doing == Doing::Waits);
        if blocked().all(|r| !waits_for_work(r)) && threads.iter().filter(alone).any(|r| r.tid == r.pid) {
            found.extend(threads.iter().filter(alone).map(|r| r.tid));
        }
    }
    found
}
