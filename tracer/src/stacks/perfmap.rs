//! Names of just-in-time compiled code: `/tmp/perf-PID.map`, lines `START SIZE NAME` in hexadecimal
//! (tools/perf/Documentation/jit-interface.txt of the kernel). Written by the process: untrusted.

use super::text::clean;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Largest file read; what follows is not seen.
const MAX_BYTES: u64 = 256 << 20;
/// Most names kept.
const MAX_NAMES: usize = 4 << 20;

/// Names of code by address.
#[derive(Default, Debug)]
pub(super) struct PerfMap {
    /// Sorted by start, disjoint.
    entries: Vec<(u64, u64, Box<str>)>,
    /// Path as the process knows it.
    pub path: String,
    /// Size and time of modification when read: unchanged means no need to read again.
    pub stamp: (u64, i64, i64),
    /// The file, which can still be read when the process has ended.
    pub file: Option<File>,
}

impl PerfMap {
    /// Parse the text of a perf-map. Where entries overlap, the later line wins: code memory is reused.
    pub fn parse(text: &[u8]) -> Self {
        let mut lines: Vec<(u64, u64, usize, &[u8])> = Vec::new();
        for line in text.split(|&b| b == b'\n') {
            if lines.len() >= MAX_NAMES {
                break;
            }
            let Some((start, size, name)) = split(line) else { continue };
            if let Some(end) = start.checked_add(size).filter(|&end| end > start) {
                lines.push((start, end, lines.len(), name));
            }
        }
        lines.sort_by_key(|&(start, _, order, _)| (start, order));
        let mut entries: Vec<(u64, u64, usize, &[u8])> = Vec::with_capacity(lines.len());
        for line in lines {
            // Remove or cut what this line overlaps, unless that was written later.
            let mut covered = false;
            while let Some(last) = entries.last_mut() {
                if last.1 <= line.0 {
                    break;
                }
                if last.2 > line.2 {
                    covered = true;
                    break;
                }
                if last.0 < line.0 {
                    last.1 = line.0;
                    break;
                }
                entries.pop();
            }
            if !covered {
                entries.push(line);
            }
        }
        let entries = entries.into_iter().map(|(s, e, _, n)| (s, e, clean(n).into_boxed_str())).collect();
        Self { entries, ..Self::default() }
    }

    /// Name of the code at an address and the offset within it.
    pub fn name(&self, address: u64) -> Option<(&str, u64)> {
        let i = self.entries.partition_point(|e| e.0 <= address).checked_sub(1)?;
        let (start, end, name) = self.entries.get(i)?;
        (address < *end).then_some((name, address - start))
    }

    /// Read the perf-map of a process, through its own root directory and under the pid it knows itself by; of
    /// one that has ended, the file it had. `None` when there is none, it is not a plain file of the process's own
    /// user (or root), or it is as `old` had it.
    pub fn read(pid: u32, ended: bool, old: Option<&Self>) -> Option<Self> {
        let (path, mut file) =
            if ended { (old?.path.clone(), old?.file.as_ref()?.try_clone().ok()?) } else { Self::open(pid)? };
        let meta = file.metadata().ok()?;
        let stamp = (meta.size(), meta.mtime(), meta.mtime_nsec());
        if old.is_some_and(|o| o.stamp == stamp) {
            return None;
        }
        file.rewind().ok()?;
        let mut text = Vec::new();
        (&file).take(MAX_BYTES).read_to_end(&mut text).ok()?;
        Some(Self { path, stamp, file: Some(file), ..Self::parse(&text) })
    }

    fn open(pid: u32) -> Option<(String, File)> {
        let ns_pid = ns_pid(pid).unwrap_or(pid);
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let path = format!("/tmp/perf-{ns_pid}.map");
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(format!("/proc/{pid}/root{path}"))
            .ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || (meta.uid() != owner && meta.uid() != 0) {
            return None;
        }
        Some((path, file))
    }
}

fn split(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.splitn(3, |&b| b == b' ');
    let hex = |w: &[u8]| {
        let s = std::str::from_utf8(w).ok()?;
        u64::from_str_radix(s.trim_start_matches("0x"), 16).ok()
    };
    let start = hex(parts.next()?)?;
    let size = hex(parts.next()?)?;
    let name = parts.next()?.trim_ascii();
    (!name.is_empty()).then_some((start, size, name))
}

/// The pid that a process has in its innermost namespace.
fn ns_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_gaps() {
        let m = PerfMap::parse(b"1000 10 a::b c\n0x2000 20 d\nbad\n3000 0 empty\n4000 zz x\n5000 8\n");
        assert_eq!(m.name(0x1004), Some(("a::b c", 4)));
        assert_eq!(m.name(0x1010), None);
        assert_eq!(m.name(0x201f), Some(("d", 0x1f)));
        assert_eq!(m.name(0x3000), None);
        assert_eq!(m.name(0xfff), None);
    }

    #[test]
    fn later_lines_win() {
        let m = PerfMap::parse(b"1000 100 old\n1040 10 new\n1000 20 newest\n");
        assert_eq!(m.name(0x1000).unwrap().0, "newest");
        assert_eq!(m.name(0x1045).unwrap().0, "new");
    }

    proptest! {
        #[test]
        fn any_text(text in proptest::collection::vec(any::<u8>(), 0..300), at in any::<u64>()) {
            PerfMap::parse(&text).name(at);
        }

        /// Whatever the lines, every answer is a line that covers the address.
        #[test]
        fn answers_cover(lines in proptest::collection::vec((0u64..64, 1u64..16), 0..12), at in 0u64..80) {
            let text: Vec<String> =
                lines.iter().enumerate().map(|(i, (s, n))| format!("{s:x} {n:x} f{i}")).collect();
            let m = PerfMap::parse(text.join("\n").as_bytes());
            if let Some((name, _)) = m.name(at) {
                let i: usize = name[1..].parse().unwrap();
                prop_assert!(lines[i].0 <= at && at < lines[i].0 + lines[i].1);
            }
            // The last line is nowhere hidden.
            if let Some((i, (s, n))) = lines.iter().enumerate().next_back()
                && (*s..*s + *n).contains(&at)
            {
                let want = format!("f{i}");
                prop_assert_eq!(m.name(at).map(|x| x.0), Some(want.as_str()));
            }
        }
    }
}
