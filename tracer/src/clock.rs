//! The clocks that the records and `/proc` count by.
#![allow(unsafe_code)] // clock_gettime(2), clock_getres(2) and sysconf(3) have no safe wrapper in std.

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to; a clock that does not exist leaves it zero.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// `CLOCK_MONOTONIC`, ns: the clock of `bpf_ktime_get_ns`.
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What to add to the monotonic clock for real time, ns.
pub fn realtime_offset() -> u64 {
    read(libc::CLOCK_REALTIME).saturating_sub(monotonic())
}

/// What to add to the monotonic clock for `CLOCK_BOOTTIME`, by which `/proc` tells when a process began, ns.
pub fn boot_offset() -> u64 {
    let monotonic = monotonic();
    read(libc::CLOCK_BOOTTIME).saturating_sub(monotonic)
}

/// Length of a tick of the scheduler (1/HZ), ns.
pub fn jiffy() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut t) };
    (t.tv_nsec as u64).max(1)
}

/// Length of a clock tick of `/proc` (1/`USER_HZ`), ns.
pub fn tick() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(ticks).unwrap_or(100).max(1)
}
