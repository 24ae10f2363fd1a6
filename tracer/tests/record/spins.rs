//! Loops that never wait: found by where they are on the CPU.
#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{fact, tid};
use crate::{allowed, options, recorded};
use pg_tracer::Level;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Long enough for a burst on a busy machine.
const FOR: Duration = Duration::from_secs(8);

pub fn poll_nothing() {
    fact("self", tid());
    let end = Instant::now() + FOR;
    while Instant::now() < end {
        // SAFETY: no descriptors, no time-out.
        assert_eq!(unsafe { libc::poll(std::ptr::null_mut(), 0, 0) }, 0);
    }
}

pub fn turn_in_place() {
    static DONE: AtomicBool = AtomicBool::new(false);
    fact("self", tid());
    let other = std::thread::spawn(|| {
        std::thread::sleep(FOR);
        DONE.store(true, Ordering::Release);
    });
    while !DONE.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    other.join().unwrap();
}

#[test]
fn a_loop_of_polls_that_do_not_wait_gets_a_burst() {
    if !allowed("a_loop_of_polls_that_do_not_wait_gets_a_burst") {
        return;
    }
    recorded("poll-0", &options(Level::Messages), |r| {
        let polls: u32 =
            r.calls("self").iter().filter(|c| c.nr.is_any(&["poll"]) && c.result == 0).map(|c| c.count).sum();
        assert!(polls > 1000, "{polls} polls were recorded");
    });
}

#[test]
fn a_loop_without_calls_gets_a_burst() {
    if !allowed("a_loop_without_calls_gets_a_burst") {
        return;
    }
    recorded("pause", &options(Level::Messages), |r| {
        let burst = |n: &String| n.contains(" the single system calls of threads that seemed to try");
        assert!(r.notes.iter().flatten().any(burst), "{:?}", r.notes);
        // A debug build calls a function for each look at the flag, never the kernel.
        let calls: u32 = r.calls("self").iter().filter(|c| !c.nr.is_any(&["futex"])).map(|c| c.count).sum();
        assert!(calls < 10, "{calls} calls of a thread that makes none");
    });
}
