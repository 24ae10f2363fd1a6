//! Parser of `/proc/PID/maps` (proc(5)). Its paths are the process's own choice: untrusted.

/// What backs an executable mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Backing {
    /// A file; the path as the process saw it, without " (deleted)".
    File { path: String, deleted: bool },
    /// The kernel's vdso.
    Vdso,
    /// Memory without a file: code of a just-in-time compiler.
    Anonymous,
}

/// One executable mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MapLine {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub major: u32,
    pub minor: u32,
    pub inode: u64,
    pub backing: Backing,
}

/// Most mappings taken of one process (vm.max_map_count is 65530 by default).
const MAX_MAPPINGS: usize = 1 << 17;
/// Longest path kept.
const MAX_PATH: usize = 4096;

/// Executable mappings in order of address. Lines that are not of the form are passed over.
pub(super) fn parse(text: &[u8]) -> Vec<MapLine> {
    let mut out: Vec<MapLine> =
        text.split(|&b| b == b'\n').filter_map(parse_line).take(MAX_MAPPINGS).collect();
    // The kernel writes them sorted and disjoint; make sure, since lookups search by halves.
    out.sort_by_key(|m| m.start);
    out.dedup_by(|next, prev| next.start < prev.end);
    out
}

fn parse_line(line: &[u8]) -> Option<MapLine> {
    let mut rest = line;
    let range = std::str::from_utf8(word(&mut rest)?).ok()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let perms = word(&mut rest)?;
    let offset = u64::from_str_radix(std::str::from_utf8(word(&mut rest)?).ok()?, 16).ok()?;
    let dev = std::str::from_utf8(word(&mut rest)?).ok()?;
    let (major, minor) = dev.split_once(':')?;
    let major = u32::from_str_radix(major, 16).ok()?;
    let minor = u32::from_str_radix(minor, 16).ok()?;
    let inode = std::str::from_utf8(word(&mut rest)?).ok()?.parse().ok()?;
    if perms.get(2) != Some(&b'x') || start >= end {
        return None;
    }
    let name = rest.trim_ascii_start();
    Some(MapLine { start, end, offset, major, minor, inode, backing: backing(name, inode) })
}

/// Next word separated by blanks.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let s = rest.trim_ascii_start();
    let n = s.iter().position(|&b| b == b' ').unwrap_or(s.len());
    let (w, r) = s.split_at_checked(n)?;
    *rest = r;
    (!w.is_empty()).then_some(w)
}

fn backing(name: &[u8], inode: u64) -> Backing {
    if name == b"[vdso]" {
        return Backing::Vdso;
    }
    // `/dev/zero (deleted)` and `/SYSV...` are shared anonymous memory.
    if inode == 0 || !name.starts_with(b"/") || name.starts_with(b"/dev/zero") || name.starts_with(b"/SYSV") {
        return Backing::Anonymous;
    }
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(n) => (n, true),
        None => (name, false),
    };
    let name = name.get(..MAX_PATH.min(name.len())).unwrap_or(name);
    Backing::File { path: unescape(name), deleted }
}

/// The kernel writes a newline within a path as `\012`.
fn unescape(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 1234                       /usr/bin/a b
55d0c0a01000-55d0c0a05000 r-xp 00001000 fe:00 1234                       /usr/bin/a b
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 00:05 77                         /memfd:jit (deleted)
7f0000004000-7f0000005000 r-xp 00002000 fe:00 99                         /tmp/x\\012y (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
rubbish
";

    #[test]
    fn lines_of_all_kinds() {
        let m = parse(TEXT.as_bytes());
        let file = |p: &str, deleted| Backing::File { path: p.into(), deleted };
        let want = [
            (0x55d0c0a01000, 0x1000, file("/usr/bin/a b", false)),
            (0x7f0000000000, 0, Backing::Anonymous),
            (0x7f0000002000, 0, file("/memfd:jit", true)),
            (0x7f0000004000, 0x2000, file("/tmp/x\ny", true)),
            (0x7ffd00000000, 0, Backing::Vdso),
            (0xffffffffff600000, 0, Backing::Anonymous),
        ];
        let got: Vec<_> = m.iter().map(|m| (m.start, m.offset, m.backing.clone())).collect();
        assert_eq!(got, want);
        assert_eq!((m[0].major, m[0].minor, m[0].inode), (0xfe, 0, 1234));
    }

    #[test]
    fn overlapping_lines_are_dropped() {
        let m = parse(b"2000-4000 r-xp 0 0:0 0\n1000-3000 r-xp 0 0:0 0\n4000-1000 r-xp 0 0:0 0");
        assert_eq!(m.iter().map(|m| m.start).collect::<Vec<_>>(), [0x1000]);
    }

    proptest! {
        #[test]
        fn any_bytes(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse(&text);
        }

        #[test]
        fn damaged_text(at in 0..TEXT.len(), byte in any::<u8>()) {
            let mut t = TEXT.as_bytes().to_vec();
            t[at] = byte;
            let m = parse(&t);
            prop_assert!(m.is_sorted_by(|a, b| a.end <= b.start));
        }
    }
}
