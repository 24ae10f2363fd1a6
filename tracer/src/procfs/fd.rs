//! Descriptors: where `/proc/PID/fd/N` leads and what `/proc/PID/fdinfo/N` says.
#![allow(unsafe_code)] // readlinkat(2) has no safe wrapper in std.

use super::{MAX_PATH, lossy, read_bounded};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where a link in `/proc/PID/fd` leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FdLink {
    /// `pipe:[inode]`.
    Pipe(u64),
    /// `socket:[inode]`.
    Socket(u64),
    /// `anon_inode:[eventpoll]` and its kin: the name within the brackets.
    Anon(String),
    /// A path (also of deleted files and FIFOs).
    Path(String),
}

/// How a descriptor was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessMode {
    /// `O_RDONLY`.
    Read,
    /// `O_WRONLY`.
    Write,
    /// `O_RDWR`.
    Both,
}

impl AccessMode {
    /// Can it be read from?
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Can it be written to?
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// What of `/proc/PID/fdinfo/N` is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FdInfo {
    /// How it was opened.
    pub mode: AccessMode,
    /// `ino`: the inode (Linux 5.14 and later).
    pub inode: Option<u64>,
    /// `tty-index` of a pseudo-terminal's master.
    pub tty_index: Option<u32>,
    /// Descriptors an epoll instance watches.
    pub epoll_targets: Vec<u32>,
    /// The process a pidfd is for.
    pub pidfd: Option<u32>,
    /// `eventfd-id`: number of an event counter, the same for all who share it.
    pub eventfd: Option<u64>,
    /// `fuse_connection`: number of the file system that a descriptor of `/dev/fuse` serves, which is the
    /// minor number of its device.
    pub fuse_connection: Option<u32>,
    /// Inodes of files on which this open file description holds a lock (`lock:` lines).
    pub locked_inodes: Vec<u64>,
    /// A fanotify group that is asked before files are opened or read.
    pub permits: bool,
}

/// Parse the target of a link in `/proc/PID/fd`.
pub fn parse_fd_link(bytes: &[u8]) -> FdLink {
    let inside = |prefix: &[u8]| bytes.strip_prefix(prefix)?.strip_suffix(b"]");
    let inode = |prefix: &[u8]| inside(prefix).and_then(|b| std::str::from_utf8(b).ok()?.parse::<u64>().ok());
    if let Some(n) = inode(b"pipe:[") {
        FdLink::Pipe(n)
    } else if let Some(n) = inode(b"socket:[") {
        FdLink::Socket(n)
    } else if let Some(name) = bytes.strip_prefix(b"anon_inode:") {
        let name = name.strip_prefix(b"[").and_then(|n| n.strip_suffix(b"]")).unwrap_or(name);
        FdLink::Anon(lossy(name, 64))
    } else {
        FdLink::Path(lossy(bytes, MAX_PATH))
    }
}

/// Parse `/proc/PID/fdinfo/N`; `None` without `flags`.
pub fn parse_fdinfo(bytes: &[u8]) -> Option<FdInfo> {
    let text = String::from_utf8_lossy(bytes);
    let mut flags = None;
    let mut out = FdInfo {
        mode: AccessMode::Read,
        inode: None,
        tty_index: None,
        epoll_targets: parse_epoll_targets(bytes),
        pidfd: None,
        eventfd: None,
        fuse_connection: None,
        locked_inodes: Vec::new(),
        permits: false,
    };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let first = value.split_ascii_whitespace().next().unwrap_or("");
        match key {
            // The kernel prints flags in octal, and the first line that names them is its own.
            "flags" if flags.is_none() => flags = u32::from_str_radix(first, 8).ok(),
            "ino" if out.inode.is_none() => out.inode = first.parse().ok(),
            "tty-index" => out.tty_index = first.parse().ok(),
            "Pid" => out.pidfd = first.parse().ok(),
            "eventfd-id" => out.eventfd = first.parse().ok(),
            "fuse_connection" => out.fuse_connection = first.parse().ok(),
            // `lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF`
            "lock" => {
                let inode = value.split_ascii_whitespace().find(|w| w.matches(':').count() == 2);
                out.locked_inodes.extend(inode.and_then(|w| w.rsplit(':').next()?.parse::<u64>().ok()));
            }
            // `fanotify ino:4f969 sdev:800013 mflags:0 mask:10000 ignored_mask:0`
            _ if key.starts_with("fanotify ") => out.permits |= asks_permission(line),
            _ => {}
        }
    }
    out.mode = match flags? & 3 {
        0 => AccessMode::Read,
        1 => AccessMode::Write,
        _ => AccessMode::Both,
    };
    Some(out)
}

/// Does a mark of a fanotify group ask before something is done (`FAN_OPEN_PERM`, `FAN_ACCESS_PERM`,
/// `FAN_OPEN_EXEC_PERM`, `FAN_PRE_ACCESS`)?
fn asks_permission(line: &str) -> bool {
    const ASKS: u64 = 0x17_0000;
    let mask = line.split_ascii_whitespace().find_map(|w| w.strip_prefix("mask:"));
    mask.and_then(|m| u64::from_str_radix(m, 16).ok()).is_some_and(|m| m & ASKS != 0)
}

/// The descriptors in the `tfd:` lines of an epoll instance's fdinfo, at most 65536.
pub fn parse_epoll_targets(bytes: &[u8]) -> Vec<u32> {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .filter_map(|l| l.strip_prefix("tfd:")?.split_ascii_whitespace().next()?.parse().ok())
        .take(1 << 16)
        .collect()
}

/// Where a descriptor of a process or thread leads; `None` when closed, gone or not permitted.
pub fn read_fd_link(pid: u32, fd: u32) -> Option<FdLink> {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    Some(parse_fd_link(link.as_os_str().as_bytes()))
}

/// All descriptors of a process or thread with where they lead, at most `limit`; empty without the right to
/// ask. One look at the folder, relative to which the links are read: by full paths it takes twice as long.
pub fn read_fd_links(pid: u32, limit: usize) -> Vec<(u32, FdLink)> {
    let Ok(folder) = std::fs::File::open(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let mut buffer = vec![0u8; MAX_PATH];
    let mut out = Vec::new();
    for fd in super::descriptors_of(pid).into_iter().take(limit) {
        if let Some(link) = link_in(&folder, fd, &mut buffer) {
            out.push((fd, parse_fd_link(link)));
        }
    }
    out
}

/// What kind of socket a descriptor leads to, in the kernel's words (`TCP`, `TCPv6`, `UNIX`, `NETLINK`, ...; some kernels
/// say `UNIX-STREAM`); `None` when that is not told.
pub fn socket_protocol(pid: u32, fd: u32) -> Option<String> {
    let path = std::ffi::CString::new(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let mut buffer = [0u8; 64];
    // SAFETY: both strings end in NUL, and as many bytes can be written as is said.
    let n = unsafe {
        let name = c"system.sockprotoname".as_ptr();
        libc::getxattr(path.as_ptr(), name, buffer.as_mut_ptr().cast(), buffer.len())
    };
    let said = buffer.get(..usize::try_from(n).ok()?)?;
    Some(String::from_utf8_lossy(said).trim_end_matches('\0').to_owned())
}

fn link_in<'a>(folder: &std::fs::File, fd: u32, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let name = std::ffi::CString::new(fd.to_string()).ok()?;
    // SAFETY: the folder is open, the name ends in NUL, and as many bytes can be written as is said.
    let n = unsafe {
        libc::readlinkat(folder.as_raw_fd(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    };
    buffer.get(..usize::try_from(n).ok()?)
}

/// What is known of a descriptor; `None` when closed, gone or not permitted.
pub fn read_fdinfo(pid: u32, fd: u32) -> Option<FdInfo> {
    parse_fdinfo(&read_bounded(&PathBuf::from(format!("/proc/{pid}/fdinfo/{fd}")), 1 << 20).ok()?)
}
