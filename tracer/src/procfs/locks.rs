//! File locks: `/proc/locks`, see proc_locks(5).

use super::{MAX_FILE, read_bounded};
use std::path::Path;

/// Which call made a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// flock(2): belongs to the open file description.
    Flock,
    /// fcntl(2) `F_SETLK`: belongs to the process.
    Posix,
    /// fcntl(2) `F_OFD_SETLK`: belongs to the open file description.
    Ofd,
    /// A lease or delegation.
    Lease,
}

/// One lock held, or waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileLock {
    /// Number in the list: a lock waited for has the number of the one that blocks it.
    pub number: u64,
    /// Waited for (a line with `->`), not held.
    pub blocked: bool,
    /// Which call made it.
    pub kind: LockKind,
    /// Exclusive (else shared).
    pub write: bool,
    /// Process that took it; `None` when the kernel does not tell (OFD locks have -1, a process that is
    /// not in the reader's pid namespace has 0).
    pub pid: Option<u32>,
    /// Device of the file: major and minor number.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` for the end of the file.
    pub end: u64,
}

impl FileLock {
    /// Do the byte ranges of two locks on one file overlap?
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

fn parse_line(line: &str) -> Option<FileLock> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.strip_suffix(':')?.parse().ok()?;
    let mut word = words.next()?;
    let blocked = word == "->";
    if blocked {
        word = words.next()?;
    }
    let kind = match word {
        "FLOCK" => LockKind::Flock,
        "POSIX" | "ACCESS" => LockKind::Posix,
        "OFDLCK" => LockKind::Ofd,
        "LEASE" | "DELEG" => LockKind::Lease,
        _ => return None,
    };
    let _advisory = words.next()?;
    let write = words.next()? == "WRITE";
    let pid = words.next()?.parse::<i64>().ok()?;
    let mut place = words.next()?.split(':');
    let major = u32::from_str_radix(place.next()?, 16).ok()?;
    let minor = u32::from_str_radix(place.next()?, 16).ok()?;
    let inode = place.next()?.parse().ok()?;
    let start = words.next()?.parse().ok()?;
    let end = match words.next()? {
        "EOF" => u64::MAX,
        n => n.parse().ok()?,
    };
    let pid = u32::try_from(pid).ok().filter(|&p| p != 0);
    Some(FileLock { number, blocked, kind, write, pid, device: (major, minor), inode, start, end })
}

/// Parse `/proc/locks`, skipping lines that make no sense.
pub fn parse_locks(bytes: &[u8]) -> Vec<FileLock> {
    String::from_utf8_lossy(bytes).lines().take(1 << 17).filter_map(parse_line).collect()
}

/// All file locks of the machine that the reader's pid namespace sees.
pub fn read_locks() -> Vec<FileLock> {
    parse_locks(&read_bounded(Path::new("/proc/locks"), MAX_FILE).unwrap_or_default())
}
