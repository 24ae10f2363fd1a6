//! bpf(2) itself, for what aya has no call for.
#![allow(unsafe_code)] // The call has no safe wrapper.

use aya_obj::generated::{bpf_attr, bpf_cmd};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Make a call that opens a descriptor.
///
/// # Errors
/// The kernel's.
pub fn open(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a whole block of the size given; what it points to lives in the callers.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<bpf_attr>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A block in which nothing is set.
pub fn empty() -> bpf_attr {
    // SAFETY: a union of plain numbers; the kernel wants what is not used to be zero.
    unsafe { std::mem::zeroed() }
}
