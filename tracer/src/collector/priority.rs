//! Keeps the recorder's own threads from starving beside a target that takes all there is, and the target from waiting for them.
#![allow(unsafe_code)] // setpriority(2) has no safe wrapper.

/// The highest of the ordinary priorities: whoever has the CPU beside it gets nothing for as long as it runs.
const FIRST: i32 = -20;
/// Three quarters of a CPU beside one other thread, which waits for a few ms then.
const PREFERRED: i32 = -5;
/// Behind everything ordinary.
const LAST: i32 = 5;

/// Raise the priority of the calling thread to the highest of the ordinary ones: who reads the rings and does not get the CPU
/// loses events. For what is done within a few ms. Does nothing without the right to.
pub fn raise_priority() {
    set(FIRST);
}

/// Have the calling thread run before most, without keeping the CPU from them for long: what it does between the rings and the
/// file may wait a little, and takes up to hundreds of ms at a time. Does nothing without the right to.
pub fn prefer() {
    set(PREFERRED);
}

/// Put the calling thread behind everything ordinary, whatever the thread that started it has: what it does can wait.
pub fn lower_priority() {
    set(LAST);
}

fn set(nice: i32) {
    // SAFETY: setpriority takes numbers only; 0 is the calling thread.
    let failed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0;
    if failed {
        tracing::debug!("priority not set: {}", std::io::Error::last_os_error());
    }
}
