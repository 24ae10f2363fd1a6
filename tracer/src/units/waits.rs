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
        if call(&["epoll_wait", "epoll_pwait", "epoll_pwait2", "accept", "accept4"])
            || call(&["io_getevents", "io_pgetevents"])
        {
            return Some(Self::Input);
        }
        // Requests in flight; which, is known of few.
        if call(&["io_uring_enter"]) {
            return (!only_files(wait.object, catalog)).then_some(Self::Input);
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

/// Is it nothing but files and disks, which always answer?
fn only_files(object: ObjectId, catalog: &Catalog) -> bool {
    let file = |kind: ObjectKind| matches!(kind, ObjectKind::File | ObjectKind::BlockDevice);
    let of = |o: ObjectId| catalog.objects.get(o.index());
    of(object).is_some_and(|o| match o.kind {
        ObjectKind::Set => {
            !o.members.is_empty() && o.members.iter().all(|m| of(*m).is_some_and(|m| file(m.kind)))
        }
        kind => file(kind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{Object, OffState, syscall_number};

    /// Every wait of table 2 of the paper, as Linux has it, whatever is known of what it waits for.
    #[test]
    fn all_waits_for_events() {
        use Wait::{Input, Signal};
        let kinds = [ObjectKind::EventFd, ObjectKind::Tcp, ObjectKind::Set];
        let object = |kind| Object::new(kind, 1, 0);
        let catalog = Catalog { objects: kinds.map(object).into(), ..Catalog::default() };
        let (event, socket, set, none) = (ObjectId(0), ObjectId(1), ObjectId(2), ObjectId::NONE);
        for (names, object, wait) in [
            (&["epoll_wait", "epoll_pwait", "epoll_pwait2", "accept", "accept4"][..], none, Input),
            (&["io_uring_enter", "io_getevents", "io_pgetevents"], none, Input),
            (&["poll", "ppoll", "select", "pselect6"], set, Input),
            (&["recvfrom", "recvmsg", "recvmmsg", "msgrcv", "mq_timedreceive"], none, Input),
            (&["rt_sigtimedwait", "rt_sigsuspend", "pause", "wait4", "waitid"], none, Input),
            (&["read", "readv", "preadv", "preadv2"], socket, Input),
            (&["read", "readv"], event, Signal),
            (&["futex", "futex_wait", "futex_waitv", "semop", "semtimedop"], none, Signal),
        ] {
            for name in names {
                let syscall = syscall_number(name).unwrap_or_else(|| panic!("{name} has no number"));
                let off = OffCpu::new(1, 2, OffState::Interruptible);
                let off = OffCpu { syscall, object, ..off };
                assert_eq!(Wait::of(&off, &catalog), Some(wait), "{name}");
            }
        }
    }

    #[test]
    fn kinds_of_waits() {
        let object = |kind| Object::new(kind, 1, 0);
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
        assert_eq!(of("io_uring_enter", 2, asleep), Some(Wait::Input));
        assert_eq!(of("io_uring_enter", 1, asleep), None);
        assert_eq!(of("epoll_wait", 9, OffState::Runnable), None);
    }
}
