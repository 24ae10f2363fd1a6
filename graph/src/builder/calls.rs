//! Classes of system calls: what a thread in one of them waits for, or does to others.

use pg_event::{POLLS, Sysno, syscall_number};
use std::sync::LazyLock;

pub(crate) const FUTEX: u16 = 1;
/// Hands something over: writes, sends, shuts down.
pub(crate) const SEND: u16 = 1 << 1;
/// Takes something: reads, receives, accepts.
pub(crate) const RECV: u16 = 1 << 2;
/// Waits for readiness of descriptors.
pub(crate) const POLL: u16 = 1 << 3;
pub(crate) const SLEEP: u16 = 1 << 4;
/// Sends a signal.
pub(crate) const KILL: u16 = 1 << 5;
/// Waits for a signal.
pub(crate) const SIGWAIT: u16 = 1 << 6;
/// Waits for a child.
pub(crate) const CHILD: u16 = 1 << 7;
pub(crate) const EXIT: u16 = 1 << 8;
/// Takes or releases a lock on a file.
pub(crate) const FILE_LOCK: u16 = 1 << 9;
/// Creates a thread or process (vfork waits in it).
pub(crate) const SPAWN: u16 = 1 << 10;
/// Arms a timer.
pub(crate) const ARM: u16 = 1 << 11;
/// Replaces the program.
pub(crate) const EXEC: u16 = 1 << 12;
/// Works on files: may wait for a disk.
pub(crate) const FILE: u16 = 1 << 13;
/// System V or POSIX message queues and semaphores.
pub(crate) const SYSV: u16 = 1 << 14;

/// Gives the CPU up without waiting.
pub(crate) const YIELD: u16 = 1 << 15;

const CLASSES: &[(u16, &[&str])] = &[
    (FUTEX, &["futex", "futex_wait", "futex_waitv", "futex_wake", "futex_requeue"]),
    (
        SEND,
        &[
            "write",
            "writev",
            "pwrite64",
            "pwritev",
            "pwritev2",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "sendfile",
            "splice",
            "tee",
            "vmsplice",
            "io_uring_enter",
            "shutdown",
            "close",
            "connect",
            "ioctl",
        ],
    ),
    (
        RECV,
        &[
            "read",
            "readv",
            "pread64",
            "preadv",
            "preadv2",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "accept",
            "accept4",
            "splice",
            "tee",
            "sendfile",
            "io_uring_enter",
        ],
    ),
    (POLL, &POLLS),
    (YIELD, &["sched_yield"]),
    (SLEEP, &["nanosleep", "clock_nanosleep"]),
    (KILL, &["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"]),
    (SIGWAIT, &["pause", "rt_sigsuspend", "rt_sigtimedwait"]),
    (CHILD, &["wait4", "waitid"]),
    (EXIT, &["exit", "exit_group"]),
    (FILE_LOCK, &["flock", "fcntl"]),
    (SPAWN, &["clone", "clone3", "fork", "vfork"]),
    (ARM, &["timerfd_settime", "timer_settime", "setitimer", "alarm"]),
    (EXEC, &["execve", "execveat"]),
    (
        FILE,
        &[
            "open",
            "openat",
            "openat2",
            "fsync",
            "fdatasync",
            "sync",
            "syncfs",
            "sync_file_range",
            "msync",
            "read",
            "write",
            "pread64",
            "pwrite64",
            "readv",
            "writev",
            "preadv",
            "pwritev",
            "preadv2",
            "pwritev2",
            "stat",
            "lstat",
            "fstat",
            "newfstatat",
            "statx",
            "rename",
            "renameat",
            "renameat2",
            "unlink",
            "unlinkat",
            "mkdir",
            "rmdir",
            "getdents",
            "getdents64",
            "ftruncate",
            "truncate",
            "fallocate",
            "readahead",
            "fadvise64",
            "copy_file_range",
            "sendfile",
            "splice",
            "io_submit",
        ],
    ),
    (
        SYSV,
        &["semop", "semtimedop", "msgsnd", "msgrcv", "mq_timedsend", "mq_timedreceive", "semget", "semctl"],
    ),
];

static TABLE: LazyLock<[u16; 512]> = LazyLock::new(|| {
    let mut table = [0; 512];
    for (class, names) in CLASSES {
        for name in *names {
            if let Some(cell) = syscall_number(name).and_then(|n| table.get_mut(n.0 as usize)) {
                *cell |= class;
            }
        }
    }
    table
});

/// The classes of a system call, 0 for none.
pub(crate) fn classes(nr: Sysno) -> u16 {
    TABLE.get(nr.0 as usize).copied().unwrap_or(0)
}

/// Is it of one of these classes?
pub(crate) fn is(nr: Sysno, any_of: u16) -> bool {
    classes(nr) & any_of != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_number() {
        for (_, names) in CLASSES {
            for n in *names {
                assert!(syscall_number(n).is_some(), "{n}");
            }
        }
        assert!(is(Sysno(202), FUTEX) && is(Sysno(7), POLL) && !is(Sysno::NONE, u16::MAX));
    }
}
