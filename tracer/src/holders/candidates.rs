//! Children waited for, and the ends of pipes and event counters.

use super::open_files::Opened;
use super::{Holders, LongWait, Who};
use crate::procfs::{self, FdLink};
use pg_event::{Object, Relation};

/// Does a wait end by something being written (else by something being read)?
enum Direction {
    Input,
    Output,
    Unknown,
}

fn direction(wait: &LongWait) -> Direction {
    const OUT: [&str; 12] = [
        "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "vmsplice",
        "tee", "connect", "fsync",
    ];
    const IN: [&str; 9] =
        ["read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg", "accept"];
    if wait.syscall.is_any(&OUT) || wait.syscall.is_any(&["mq_timedsend"]) {
        Direction::Output
    } else if wait.syscall.is_any(&IN) || wait.syscall.is_any(&["mq_timedreceive"]) {
        Direction::Input
    } else {
        Direction::Unknown
    }
}

/// Only the waiter's own process holds the other end: it waits for itself. That is worth telling only
/// when there is nobody else.
pub(super) fn others_first(mut pids: Vec<u32>, own: u32) -> Vec<u32> {
    pids.sort_unstable();
    pids.dedup();
    if pids.iter().any(|&p| p != own) {
        pids.retain(|&p| p != own);
    }
    pids
}

/// Each of these processes once, without the one that waits.
pub(super) fn others(mut pids: Vec<u32>, wait: &LongWait) -> impl Iterator<Item = u32> {
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().filter(|&p| p != wait.tgid)
}

/// Who has those ends open that the waiter needs: the writing ones if it reads.
fn ends_of(wait: &LongWait, ends: &[Opened]) -> Vec<(Who, Relation)> {
    let modes: Vec<_> = ends.iter().filter_map(|e| Some((e.pid, e.mode()?))).collect();
    let readers = || modes.iter().filter(|(_, m)| m.reads()).map(|(p, _)| *p).collect::<Vec<_>>();
    let writers = || modes.iter().filter(|(_, m)| m.writes()).map(|(p, _)| *p).collect::<Vec<_>>();
    let input = match direction(wait) {
        Direction::Input => true,
        Direction::Output => false,
        // poll(2) and its kin: whoever has only the writing end waits for a reader.
        Direction::Unknown => readers().contains(&wait.tgid) || !writers().contains(&wait.tgid),
    };
    let (pids, relation) = if input { (writers(), Relation::Writes) } else { (readers(), Relation::Reads) };
    others_first(pids, wait.tgid).into_iter().map(|p| (Who::Process(p), relation)).collect()
}

impl Holders {
    pub(super) fn pipe_ends(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let ends = self.pipe_descriptors(object);
        ends_of(wait, &ends)
    }

    /// Who has the other side of a POSIX message queue open.
    pub(super) fn queue_ends(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let ends = self.named_descriptors(object);
        ends_of(wait, &ends)
    }
    /// Everybody's descriptors of a pipe, or of a FIFO: the same inode under the same last name.
    fn pipe_descriptors(&mut self, object: &Object) -> Vec<Opened> {
        let pipes = self.open.of(&FdLink::Pipe(object.id));
        if !pipes.is_empty() || object.name.is_empty() {
            return pipes;
        }
        self.named_descriptors(object)
    }

    /// Everybody's descriptors of a file that few have open: the same inode under the same last name.
    fn named_descriptors(&mut self, object: &Object) -> Vec<Opened> {
        let last = |p: &str| p.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or("").to_owned();
        let name = last(&object.name);
        let candidates = self.open.with_path(|p| last(p) == name);
        let same = |o: &Opened| o.info().is_some_and(|i| i.inode.is_none_or(|n| n == object.id));
        candidates.into_iter().take(1000).filter(same).collect()
    }

    /// Other processes that have an event counter open: within one process any thread may count.
    pub(super) fn eventfd_sharers(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let mut pids: Vec<u32> = Vec::new();
        for o in self.open.anonymous("eventfd").into_iter().take(4000) {
            if o.pid != wait.tgid
                && !pids.contains(&o.pid)
                && o.info().is_some_and(|i| i.eventfd == Some(object.id))
            {
                pids.push(o.pid);
            }
        }
        pids.into_iter().map(|p| (Who::Process(p), Relation::Writes)).collect()
    }

    /// Children of a process that have not ended.
    fn living_children(&mut self, parent: u32) -> Vec<u32> {
        let mut pids: Vec<u32> =
            self.open.processes().iter().filter(|s| s.ppid == parent).map(|s| s.pid).collect();
        // What ended since is not waited for any more.
        pids.retain(|&pid| procfs::read_stat(pid).is_some_and(|s| s.ppid == parent && !s.has_ended()));
        pids
    }

    pub(super) fn children(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let mut alive = self.living_children(wait.tgid);
        if object.id != 0 {
            // The number given is the one the waiter knows: of its own pid namespace.
            let given = object.id as u32;
            alive.retain(|&pid| {
                pid == given || procfs::read_status(pid).is_some_and(|s| s.ns_pids.contains(&given))
            });
            // A tracer waits for threads that are nobody's child to it.
            if alive.is_empty()
                && let Some(s) = procfs::read_status(given).filter(|s| s.tracer == wait.tgid)
            {
                return vec![(Who::Thread(given, s.tgid), Relation::ChildOf)];
            }
        }
        alive.into_iter().map(|p| (Who::Process(p), Relation::ChildOf)).collect()
    }

    /// The only child of a process that waits for signals, that of a child's end among them, as timeout(1), tini and
    /// the like do. Who has several children serves, and waits for none of them.
    pub(super) fn child_by_signal(&mut self, wait: &LongWait) -> Option<u32> {
        const SIGCHLD: u64 = 1 << (libc::SIGCHLD - 1);
        if wait.syscall.is_any(&["rt_sigsuspend", "pause"]) {
            let status = procfs::read_status(wait.tid)?;
            if status.blocked_signals & SIGCHLD != 0 || status.caught_signals & SIGCHLD == 0 {
                return None;
            }
        } else if wait.syscall.is_any(&["rt_sigtimedwait"]) {
            let (_, [set, ..]) = self.blocked_call(wait.tid)?;
            let set = u64::from_ne_bytes(self.bytes(wait.tid, set, 8)?.try_into().ok()?);
            if set & SIGCHLD == 0 {
                return None;
            }
        } else {
            return None;
        }
        let alive = self.living_children(wait.tgid);
        if let [only] = alive[..] { Some(only) } else { None }
    }

    pub(super) fn youngest_child(&mut self, pid: u32) -> Option<u32> {
        let children = self.open.processes().iter().filter(|s| s.ppid == pid);
        children.max_by_key(|s| s.start_ticks).map(|s| s.pid)
    }
}
