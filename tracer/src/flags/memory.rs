//! What a process has mapped, and words of its memory.

use super::FlagError;
use crate::procfs::{path_of, read_bounded, shown_by};

/// Most bytes read of `/proc/PID/maps`.
const MAX_MAPS: usize = 32 << 20;

/// One mapping of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// May be written.
    pub writable: bool,
    /// Shared with whoever else maps the same.
    pub shared: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// Device (major, minor) and inode of the file; inode 0: memory without a file.
    pub file: ((u32, u32), u64),
    /// The file's path, or a name like `[heap]`. Untrusted.
    pub path: String,
}

impl Area {
    /// Does the address lie in it?
    pub fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

fn area(line: &str) -> Option<Area> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |t: &str| u64::from_str_radix(t, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let rights = words.next()?.as_bytes();
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (hex(major)? as u32, hex(minor)? as u32);
    let inode = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or_default().trim_start();
    (start < end).then(|| Area {
        start,
        end,
        writable: rights.get(1) == Some(&b'w'),
        shared: rights.get(3) == Some(&b's'),
        offset,
        file: (device, inode),
        path: path.to_owned(),
    })
}

/// What a process has mapped, by address.
///
/// # Errors
/// It is gone, or may not be looked at.
pub fn areas(pid: u32) -> Result<Vec<Area>, FlagError> {
    let text = read_bounded(&path_of(shown_by(pid), "maps"), MAX_MAPS)
        .map_err(|e| FlagError::of_process(pid, &e))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(area).collect())
}

/// A word of up to eight bytes of a process's memory, without stopping it.
pub fn word(pid: u32, address: u64, len: u8) -> Option<u64> {
    let mut bytes = [0u8; 8];
    let len = usize::from(len.min(8));
    let mut read = |who: u32| crate::memory::read(who, address, &mut bytes[..len]) == len;
    (read(pid) || Some(shown_by(pid)).filter(|&other| other != pid).is_some_and(read))
        .then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let a = area("7f0000001000-7f0000003000 rw-s 00002000 00:01 1047                     /dev/shm/a b")
            .unwrap();
        assert_eq!((a.start, a.end, a.offset), (0x7f00_0000_1000, 0x7f00_0000_3000, 0x2000));
        assert!(a.writable && a.shared && a.file == ((0, 1), 1047) && a.path == "/dev/shm/a b");
        assert!(a.has(0x7f00_0000_2fff) && !a.has(a.end));
        let b = area("55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 0 ").unwrap();
        assert!(!b.writable && !b.shared && b.path.is_empty());
        for junk in ["", "x", "2-1 r--p 0 0:0 0", "1-2 rw-p zz 0:0 0"] {
            assert_eq!(area(junk), None, "{junk}");
        }
    }

    #[test]
    fn words_of_this_process() {
        let value = Box::new(0x1122_3344_5566_7788u64);
        let (pid, at) = (std::process::id(), &raw const *value as u64);
        assert_eq!(word(pid, at, 8), Some(*value));
        assert_eq!(word(pid, at, 2), Some(0x7788));
        assert_eq!(word(pid, 8, 4), None);
        assert!(areas(pid).unwrap().iter().any(|a| a.has(at) && a.writable));
        assert!(areas(u32::MAX - 1).is_err());
    }
}
