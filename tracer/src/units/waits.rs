//! Which waits begin a unit when they end.

use pg_event::{Catalog, ObjectId, ObjectKind, OffCpu};

/// What a thread waits for between two units (PerfGuard, table 2, for Linux).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wait {
    /// An event from outside of the process: a descriptor that can be read, a connection, a signal, a child's end.
    Input,
    /// Another thread's signal: a futex (condition variable, semaphore), an eventfd or a semaphore.
    Signal,
}

impl Wait {
    /// What a wait is for; `None` when it is no wait for an event (a file, a time, room to write, a lock on a file) or
    /// none at all.
    pub fn of(wait: &OffCpu, catalog: &Catalog) -> Option<Self> {
        if !wait.blocked() || wait.syscall.is_none() {
            return None;
        }
        let kind = |o: ObjectId| catalog.objects.get(o.index()).map(|o| o.kind);
        let object = kind(wait.object);
        let call = |names: &[&str]| wait.syscall.is_any(names);
        if call(&["epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter", "accept", "accept4"]) {
            return Some(Self::Input);
        }
        // Without descriptors these only wait for a time to pass.
        if call(&["poll", "ppoll", "select", "pselect6"]) {
            return (wait.object.is_some() || wait.value > 0).then_some(Self::Input);
        }
        if call(&["recvfrom", "recvmsg", "recvmmsg", "rt_sigtimedwait", "rt_sigsuspend", "pause"])
            || call(&["wait4", "waitid", "msgrcv", "mq_timedreceive"])
        {
            return Some(Self::Input);
        }
        if call(&["read", "readv", "preadv", "preadv2"]) {
            return match object? {
                ObjectKind::EventFd => Some(Self::Signal),
                ObjectKind::File | ObjectKind::BlockDevice => None,
                _ => Some(Self::Input),
            };
        }
        call(&["futex", "futex_wait", "futex_waitv", "semop", "semtimedop"]).then_some(Self::Signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{Object, OffState, syscall_number};

    #[test]
    fn kinds_of_waits() {
        let object = |kind| Object { kind, id: 1, peer: 0, name: String::new(), members: Vec::new() };
        let objects = [ObjectKind::EventFd, ObjectKind::File, ObjectKind::Tcp].map(object).into();
        let catalog = Catalog { objects, ..Catalog::default() };
        let of = |name: &str, object: u32, state| {
            let syscall = syscall_number(name).unwrap();
            let wait = OffCpu { syscall, object: ObjectId(object), ..OffCpu::new(1, 2, state) };
            Wait::of(&wait, &catalog)
        };
        let asleep = OffState::Interruptible;
        assert_eq!(of("epoll_wait", 9, asleep), Some(Wait::Input));
        assert_eq!(of("read", 0, asleep), Some(Wait::Signal));
        assert_eq!(of("read", 1, asleep), None);
        assert_eq!(of("read", 2, asleep), Some(Wait::Input));
        assert_eq!(of("select", u32::MAX, asleep), None);
        assert_eq!(of("futex", 9, asleep), Some(Wait::Signal));
        assert_eq!(of("fsync", 1, asleep), None);
        assert_eq!(of("epoll_wait", 9, OffState::Runnable), None);
    }
}
