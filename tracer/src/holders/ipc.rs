//! Who acted last on a System V semaphore or queue, and who has a POSIX message queue open.
#![allow(unsafe_code)] // semctl(2) and msgctl(2) have no safe wrapper in std.

use super::{Holders, LongWait, Who};
use crate::procfs::{self, Stat};
use pg_event::{Object, Relation, SysV};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most operations of one call that are looked at.
const MAX_OPERATIONS: usize = 64;
/// Bytes of a `struct sembuf`: number, operation, flags.
const SEMBUF: usize = 6;

/// One operation of semop(2): which semaphore, and by how much.
type Operation = (u16, i16);

fn operations(bytes: &[u8]) -> impl Iterator<Item = Operation> {
    bytes.chunks_exact(SEMBUF).map(|b| (u16::from_ne_bytes([b[0], b[1]]), i16::from_ne_bytes([b[2], b[3]])))
}

/// Must a semaphore of this value change before the operation can be done?
fn is_blocked((_, by): Operation, value: i32) -> bool {
    if by == 0 { value != 0 } else { by < 0 && value < -i32::from(by) }
}

/// A value of one semaphore: `GETVAL` or `GETPID`.
fn of_semaphore(set: i32, number: u16, what: i32) -> Option<i32> {
    // SAFETY: these commands take no further argument.
    let got = unsafe { libc::semctl(set, i32::from(number), what) };
    (got >= 0).then_some(got)
}

/// A process that acted last, and when, in seconds of the clock of the day.
#[derive(Clone, Copy)]
pub(super) struct Last {
    pub(super) pid: u32,
    pub(super) at: i64,
}

impl Last {
    /// Is the process of this number, which lives, the one that acted? It is not if it began later: numbers are used
    /// again.
    pub(super) fn is(self, living: &Stat) -> bool {
        let Some(uptime) = procfs::uptime() else { return true };
        let age = uptime
            .saturating_sub(Duration::from_nanos(living.start_ticks.saturating_mul(crate::clock::tick())));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = now.saturating_sub(age).as_secs();
        // Both are told in whole seconds.
        i64::try_from(began).is_ok_and(|began| began <= self.at.saturating_add(1))
    }
}

/// When a set of semaphores was changed last.
fn changed(set: i32) -> Option<i64> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut state: libc::semid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `state` can be written, and outlives the call.
    let got = unsafe { libc::semctl(set, 0, libc::IPC_STAT, &raw mut state) };
    (got >= 0).then_some(state.sem_otime)
}

/// The processes that sent to and received from a queue last; 0 for nobody.
fn last_users(queue: i32) -> Option<(Last, Last)> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut state: libc::msqid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `state` can be written.
    let got = unsafe { libc::msgctl(queue, libc::IPC_STAT, &raw mut state) };
    let sender = Last { pid: state.msg_lspid as u32, at: state.msg_stime };
    let receiver = Last { pid: state.msg_lrpid as u32, at: state.msg_rtime };
    (got >= 0).then_some((sender, receiver))
}

/// The namespace of System V objects that a thread is in; `None` when it is gone.
pub(crate) fn ipc_namespace(tid: u32) -> Option<u32> {
    let link = std::fs::read_link(procfs::path_of(tid, "ns/ipc")).ok()?;
    link.to_str()?.strip_prefix("ipc:[")?.strip_suffix(']')?.parse().ok()
}

impl Holders {
    /// Who acted last on what a call waits for. Of a semaphore that is used up, that is who took it; nobody else gives
    /// it back. Empty for those of other containers, which cannot be asked from here.
    pub(super) fn sysv_partners(
        &mut self,
        wait: &LongWait,
        object: &Object,
        sysv: SysV,
    ) -> Vec<(Who, Relation)> {
        let Ok(id) = i32::try_from(object.id) else { return Vec::new() };
        if ipc_namespace(std::process::id()) != Some(sysv.namespace) {
            return Vec::new();
        }
        let (last, relation) = if !sysv.messages {
            let Some(last) = self.last_of_semaphores(wait, id) else { return Vec::new() };
            (last, Relation::Owns)
        } else if let Some((sender, receiver)) = last_users(id) {
            let full = wait.syscall.is_any(&["msgsnd"]);
            if full { (receiver, Relation::Reads) } else { (sender, Relation::Writes) }
        } else {
            return Vec::new();
        };
        let pid = last.pid;
        if pid == 0 || pid == wait.tgid {
            return Vec::new();
        }
        // Who sent once and has ended sends no more; who took a semaphore has it for ever.
        match procfs::read_stat(pid).filter(|s| !s.has_ended()) {
            Some(s) if last.is(&s) => vec![(Who::Process(pid), relation)],
            None if relation == Relation::Owns => vec![(Who::Ended(pid), relation)],
            _ => Vec::new(),
        }
    }

    /// The process that changed the semaphore last for which a call waits.
    fn last_of_semaphores(&mut self, wait: &LongWait, set: i32) -> Option<Last> {
        let (_, [_, at, count, ..]) = self.blocked_call(wait.tid)?;
        let count = usize::try_from(count).ok()?.min(MAX_OPERATIONS);
        // No more than 256 bytes are read at a time.
        let bytes = self.bytes(wait.tid, at, (count * SEMBUF).min(252))?;
        let blocked = operations(&bytes)
            .find(|&op| of_semaphore(set, op.0, libc::GETVAL).is_some_and(|value| is_blocked(op, value)))?;
        let last = of_semaphore(set, blocked.0, libc::GETPID)?;
        Some(Last { pid: u32::try_from(last).ok()?, at: changed(set)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_began_later_did_not_act() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let own = procfs::read_stat(std::process::id()).unwrap();
        assert!(Last { pid: own.pid, at: now }.is(&own));
        assert!(!Last { pid: own.pid, at: now - 1_000_000 }.is(&own));
    }

    #[test]
    fn what_an_operation_needs() {
        let bytes = [3, 0, 0xff, 0xff, 0, 0, 4, 1, 0, 0, 2, 0, 9];
        assert_eq!(operations(&bytes).collect::<Vec<_>>(), [(3, -1), (0x104, 0)]);
        assert!(is_blocked((0, -1), 0) && is_blocked((0, -2), 1) && is_blocked((0, 0), 1));
        assert!(!is_blocked((0, -1), 1) && !is_blocked((0, 0), 0) && !is_blocked((0, 1), 0));
    }
}
