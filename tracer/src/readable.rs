//! Waiting for a descriptor.
#![allow(unsafe_code)] // poll(2) has no safe wrapper in std.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sleep until a descriptor can be read, or for so long, in steps of 1 ms.
pub fn wait_readable(fd: BorrowedFd, most: Duration) {
    let mut fd = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut fd, 1, most.as_millis() as i32) };
}
