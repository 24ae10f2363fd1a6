//! Asking in another network namespace: a netlink socket belongs to the one it was opened in.
#![allow(unsafe_code)] // setns(2) has no safe wrapper in std.

use crate::procfs;
use crate::sockdiag::Socket;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A socket for questions about the network namespace of `pid`, which the link `of` names; `None` without the
/// right to enter it. Only the calling thread goes there, and comes back.
pub fn open(pid: u32, of: &Path) -> Option<Socket> {
    let own = Path::new("/proc/thread-self/ns/net");
    if std::fs::read_link(own).is_ok_and(|l| l == of) {
        return Socket::open();
    }
    let back = File::open(own).ok()?;
    let there = File::open(procfs::path_of(pid, "ns/net")).ok()?;
    enter(&there)?;
    let socket = Socket::open();
    enter(&back)?;
    socket
}

fn enter(space: &File) -> Option<()> {
    // SAFETY: takes two numbers.
    (unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } == 0).then_some(())
}
