//! What the standard library lacks.
// Calls into the C library: poll, flock and ptrace have no safe counterpart in std.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Waits until one of the descriptors is readable and returns its index.
#[inline(never)]
pub fn wait_readable(fds: &[i32]) -> usize {
    let mut set: Vec<_> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the pointer and the length belong to `set`, which outlives the call.
    let n = unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, -1) };
    assert!(n > 0, "poll: {}", std::io::Error::last_os_error());
    set.iter().position(|p| p.revents != 0).expect("poll said so")
}

/// Takes the exclusive lock of a file; it lives as long as the file is open.
#[inline(never)]
pub fn flock(file: &File) {
    // SAFETY: the descriptor is open during the call.
    let done = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(done, 0, "flock: {}", std::io::Error::last_os_error());
}

/// Attaches to a process and waits until it has stopped.
pub fn attach(pid: i32) {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_ATTACH uses no pointer; waitpid may be given none for the status.
    let (attached, stopped) = unsafe {
        (
            libc::ptrace(libc::PTRACE_ATTACH, pid, none, none),
            libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL),
        )
    };
    assert!(attached == 0 && stopped == pid, "ptrace {pid}: {}", std::io::Error::last_os_error());
}

/// Lets a traced process go on.
pub fn detach(pid: i32) {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_DETACH uses no pointer with signal 0.
    let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, none, none) };
    assert_eq!(done, 0, "ptrace {pid}: {}", std::io::Error::last_os_error());
}
