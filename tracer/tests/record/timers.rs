//! Timers that one thread arms and another one waits for, on the default level.

#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{between, fact, inode};
use crate::{allowed, options, recorded};
use pg_event::{Context, ObjectKind};
use pg_tracer::Level;

const IN_50_MS: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub fn timerfd() {
    // SAFETY: the descriptor is open until the process ends; the structures are valid.
    unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        fact("inode", inode(fd));
        between(
            || {
                let mut n = 0u64;
                assert_eq!(libc::read(fd, (&raw mut n).cast(), 8), 8);
            },
            move || {
                let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let when = libc::itimerspec { it_interval: never, it_value: IN_50_MS };
                assert_eq!(libc::timerfd_settime(fd, 0, &raw const when, std::ptr::null_mut()), 0);
                std::thread::sleep(std::time::Duration::from_millis(100));
            },
        );
    }
}

/// Every thread has the signal blocked; one arms the timer, the other one waits for its signal.
pub fn itimer() {
    // SAFETY: signal sets and timer values are plain data, filled in before use.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // The thread that runs the tests has it blocked, the harness's main one not: it would take the signal.
        libc::signal(libc::SIGALRM, libc::SIG_IGN);
        let usec = |n| libc::timeval { tv_sec: 0, tv_usec: n };
        let when = libc::itimerval { it_interval: usec(0), it_value: usec(50_000) };
        between(
            || {
                let limit = libc::timespec { tv_sec: 1, tv_nsec: 0 };
                libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit);
            },
            move || {
                let setitimer = libc::SYS_setitimer;
                assert_eq!(libc::syscall(setitimer, libc::ITIMER_REAL, &raw const when, 0), 0);
                std::thread::sleep(std::time::Duration::from_millis(100));
            },
        );
    }
}

#[test]
fn a_timerfd_knows_who_armed_it() {
    if !allowed("a_timerfd_knows_who_armed_it") {
        return;
    }
    recorded("timerfd", &options(Level::Messages), |r| {
        let w = r.wait("self", "read");
        assert_eq!((r.object(w.object).kind, w.waker_context), (ObjectKind::TimerFd, Context::Timer));
        let armed = r.calls("other");
        let armed = armed.iter().find(|c| c.nr.is_any(&["timerfd_settime"])).expect("the arming is missing");
        assert_eq!(armed.object, w.object);
        assert!(armed.start >= w.start && armed.start < w.woken);
    });
}

#[test]
fn an_interval_timer_knows_who_armed_it() {
    if !allowed("an_interval_timer_knows_who_armed_it") {
        return;
    }
    recorded("itimer", &options(Level::Messages), |r| {
        let armed = r.calls("other");
        let armed = armed.iter().find(|c| c.nr.is_any(&["setitimer"])).expect("the arming is missing");
        assert_eq!(r.object(armed.object).kind, ObjectKind::Timer);
        let w = r.wait("self", "rt_sigtimedwait");
        assert_eq!(w.waker_context, Context::Timer);
        assert_eq!(w.object, armed.object, "{w:?}");
    });
}
