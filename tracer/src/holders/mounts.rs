//! Which mount a file lies on, from `/proc/PID/mountinfo` alone: asking a hanging file system would hang.

use crate::procfs::{MAX_FILE, path_of, read_bounded};

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Where it is mounted, as the process sees it.
    pub point: Vec<u8>,
    /// Type: `ext4`, `fuse.sshfs`, ...
    pub kind: String,
    /// Options of the file system itself: `rw,fd=6,pgrp=1200,...`.
    pub options: String,
}

impl Mount {
    /// Served by a process through FUSE?
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind == "fuseblk" || self.kind.starts_with("fuse.")
    }

    /// The process group of the daemon that mounts what is looked for below an automount point.
    pub fn automounter(&self) -> Option<u32> {
        let mut options = self.options.split(',').filter(|_| self.kind == "autofs");
        options.find_map(|o| o.strip_prefix("pgrp=")).and_then(|n| n.parse().ok())
    }
}

/// Undo the octal escapes of mountinfo (`\040` is a blank).
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)))
            .map(|d| d.iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0')) as u8);
        out.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    out
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&b| b == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = unescape(words.nth(1)?);
    let mut rest = words.skip_while(|w| *w != b"-");
    let kind = rest.nth(1)?;
    let options = rest.nth(1).unwrap_or_default();
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        point,
        kind: String::from_utf8_lossy(kind).into_owned(),
        options: String::from_utf8_lossy(options).into_owned(),
    })
}

/// Parse mountinfo (proc_pid_mountinfo(5)), skipping lines that make no sense.
pub fn parse(bytes: &[u8]) -> Vec<Mount> {
    bytes.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// The mounts a process sees.
pub fn of_process(pid: u32) -> Vec<Mount> {
    parse(&read_bounded(&path_of(pid, "mountinfo"), MAX_FILE).unwrap_or_default())
}

/// The mount that an absolute path lies on: the longest mount point above it, the last one mounted there.
pub fn of_path<'a>(mounts: &'a [Mount], path: &[u8]) -> Option<&'a Mount> {
    let above = |m: &&Mount| {
        let point = m.point.strip_suffix(b"/").unwrap_or(&m.point);
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    mounts.iter().filter(above).max_by_key(|m| m.point.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        30 21 0:45 / /mnt/slow\\040disk rw,nosuid shared:9 master:1 - fuse.bindfs /data rw,user_id=0\n\
        31 21 0:46 / /mnt rw - tmpfs tmpfs rw\n33 21 0:47 / /net rw - autofs m rw,fd=6,pgrp=1200,indirect\nnonsense\n32 1 0:x / /y rw - a b\n";

    #[test]
    fn the_longest_mount_point_wins() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 4);
        let kind = |p: &str| of_path(&mounts, p.as_bytes()).map(|m| m.kind.as_str());
        assert_eq!(kind("/mnt/slow disk/a"), Some("fuse.bindfs"));
        assert_eq!(kind("/mnt/slow"), Some("tmpfs"));
        assert_eq!(kind("/mntx"), Some("ext4"));
        assert!(mounts[1].is_fuse() && mounts[1].device == (0, 45) && !mounts[2].is_fuse());
        let daemons: Vec<_> = mounts.iter().map(Mount::automounter).collect();
        assert_eq!(daemons, [None, None, None, Some(1200)]);
    }

    proptest! {
        #[test]
        fn takes_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            of_path(&parse(&bytes), &bytes);
            prop_assert!(unescape(&bytes).len() <= bytes.len());
        }
    }
}
