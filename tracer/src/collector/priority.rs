//! Keeps the recorder's own threads from starving beside a target that takes all there is.
#![allow(unsafe_code)] // setpriority(2) has no safe wrapper.

/// Raise the priority of the calling thread to the highest of the ordinary ones (nice -20): a recorder that
/// does not get the CPU loses events. Each thread between the rings and the file should call it. Does
/// nothing without the right to.
pub fn raise_priority() {
    // SAFETY: setpriority takes numbers only; 0 is the calling thread.
    let failed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } != 0;
    if failed {
        tracing::debug!("priority not raised: {}", std::io::Error::last_os_error());
    }
}

/// Put the calling thread behind everything ordinary (nice 5), whatever the thread that started it has: what
/// it does can wait.
pub fn lower_priority() {
    // SAFETY: as above. Lowering is always allowed.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
}
