//! Timers that one thread arms and another one waits for, on the default level.

#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{between, fact, inode};
use crate::{Recording, allowed, options, recorded};
use pg_event::{Context, ObjectKind, SyscallUse};
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
                let stop = libc::itimerspec { it_interval: never, it_value: never };
                assert_eq!(libc::timerfd_settime(fd, 0, &raw const stop, std::ptr::null_mut()), 0);
                assert_eq!(libc::timerfd_settime(fd, 0, &raw const when, std::ptr::null_mut()), 0);
                std::thread::sleep(std::time::Duration::from_millis(100));
            },
        );
    }
}

/// Every thread has the signal blocked; one arms the timer, the other one waits for its signal.
fn signalled(arm: impl FnOnce() + Send + 'static) {
    // SAFETY: signal sets are plain data, filled in before use.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // The thread that runs the tests has it blocked, the harness's main one not: it would take the signal.
        libc::signal(libc::SIGALRM, libc::SIG_IGN);
        between(
            || {
                let limit = libc::timespec { tv_sec: 1, tv_nsec: 0 };
                libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit);
            },
            move || {
                arm();
                std::thread::sleep(std::time::Duration::from_millis(100));
            },
        );
    }
}

pub fn itimer() {
    let usec = |n| libc::timeval { tv_sec: 0, tv_usec: n };
    let set = move |n| {
        let when = libc::itimerval { it_interval: usec(0), it_value: usec(n) };
        // SAFETY: the structure is valid during the call, and no old value is asked for.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const when, 0) }, 0);
    };
    signalled(move || {
        set(0);
        set(50_000);
    });
}

pub fn posix_timer() {
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let set = move |timer, value| {
        let when = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: the structure is valid during the call, and no old value is asked for.
        assert_eq!(unsafe { libc::timer_settime(timer, 0, &raw const when, std::ptr::null_mut()) }, 0);
    };
    signalled(move || {
        let mut timer = std::ptr::null_mut();
        // SAFETY: without an event the signal is SIGALRM; there is room for the timer's number.
        let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, std::ptr::null_mut(), &raw mut timer) };
        assert_eq!(made, 0);
        set(timer, never);
        set(timer, IN_50_MS);
    });
}

#[test]
fn a_timerfd_knows_who_armed_it() {
    if !allowed("a_timerfd_knows_who_armed_it") {
        return;
    }
    recorded("timerfd", &options(Level::Messages), |r| {
        let w = r.wait("self", "read");
        assert_eq!((r.object(w.object).kind, w.waker_context), (ObjectKind::TimerFd, Context::Timer));
        let armed = once(r, "timerfd_settime");
        assert_eq!(armed.object, w.object);
        assert!(armed.start >= w.start && armed.start < w.woken);
    });
}

/// The one call by which the other thread armed a timer: those that stop it are none.
fn once(r: &Recording, call: &str) -> SyscallUse {
    let calls: Vec<_> = r.calls("other").into_iter().filter(|c| c.nr.is_any(&[call])).collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls[0]
}

fn is_signalled(r: &Recording, call: &str) {
    let armed = once(r, call);
    assert_eq!(r.object(armed.object).kind, ObjectKind::Timer);
    let w = r.wait("self", "rt_sigtimedwait");
    assert_eq!(w.waker_context, Context::Timer);
    assert_eq!(w.object, armed.object, "{w:?}");
}

#[test]
fn an_interval_timer_knows_who_armed_it() {
    if !allowed("an_interval_timer_knows_who_armed_it") {
        return;
    }
    recorded("itimer", &options(Level::Messages), |r| is_signalled(r, "setitimer"));
}

#[test]
fn a_posix_timer_knows_who_armed_it() {
    if !allowed("a_posix_timer_knows_who_armed_it") {
        return;
    }
    recorded("posix_timer", &options(Level::Messages), |r| is_signalled(r, "timer_settime"));
}
