//! Who made a file that is there already, by which programs lock out others of their kind (dot-locks): its number, as
//! such files have it, or who has it open.

use super::candidates::others;
use super::ipc::Last;
use super::{Holders, LongWait, Who};
use crate::procfs;
use pg_event::{Object, Relation};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// Longest file that is read: a number, with spaces around.
const LONGEST: u64 = 32;
/// Largest number of a process (kernel: `PID_MAX_LIMIT`).
const MAX_PID: u32 = 1 << 22;

/// The number that all of a file is, if it is the number of a process.
fn number(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?.trim_matches(['\0', ' ', '\t', '\r', '\n']);
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|pid| digits && (1..=MAX_PID).contains(pid))
}

/// The number in a small plain file, and when that was written, in seconds of the clock of the day.
fn read(path: &std::path::Path) -> Option<(u32, i64)> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let about = file.metadata().ok().filter(|m| m.is_file() && m.len() <= LONGEST)?;
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    Some((number(&text)?, about.mtime()))
}

impl Holders {
    /// Who made the file that a thread tries to make again and again, in vain. By patience, since it lies where the thread
    /// looks.
    pub(super) fn file_makers(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let Some(path) = path_seen_by(wait.tid, &object.name) else { return Vec::new() };
        let told = self.patience.run(wait.tid, move || read(&path)).flatten();
        let levels = procfs::read_status(wait.tid).map_or(0, |s| s.ns_pids.len());
        if let Some((pid, at)) = told.filter(|x| levels == 1 && x.0 != wait.tgid) {
            let who = match procfs::read_stat(pid).filter(|s| !s.has_ended()) {
                Some(s) if (Last { pid, at }).is(&s) => Who::Process(pid),
                // Another one has its number by now, and its row.
                Some(_) => return Vec::new(),
                None => Who::Ended(pid),
            };
            return vec![(who, Relation::Owns)];
        }
        if !object.name.starts_with('/') {
            return Vec::new();
        }
        let open = self.open.with_path(|p| p == object.name).into_iter().map(|o| o.pid).collect();
        let mut all = others(open, wait);
        let (Some(one), None) = (all.next(), all.next()) else { return Vec::new() };
        vec![(Who::Process(one), Relation::Owns)]
    }
}

/// A path as a thread names it, from its root or its folder.
pub(crate) fn path_seen_by(tid: u32, name: &str) -> Option<PathBuf> {
    let (from, rest) = match name.strip_prefix('/') {
        Some(rest) => ("root", rest),
        None => ("cwd", name),
    };
    let mut path = procfs::path_of(tid, from);
    path.push(OsStr::from_bytes(rest.trim_start_matches('/').as_bytes()));
    (!rest.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_nothing_else() {
        assert_eq!(number(b"  4711\n"), Some(4711));
        for none in [&b""[..], b"0", b"4711 host", b"-3", b"+3", b"4194305", b"99999999999", b"\xff"] {
            assert_eq!(number(none), None, "{none:?}");
        }
    }

    #[test]
    fn only_small_plain_files_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("lock"), "77\n").expect("written");
        assert_eq!(read(&at("lock")).map(|x| x.0), Some(77));
        std::os::unix::fs::symlink(at("lock"), at("link")).expect("a link");
        std::fs::write(at("long"), format!("{:>40}", 77)).expect("written");
        for none in ["link", "long", "none", "."] {
            assert_eq!(read(&at(none)), None, "{none}");
        }
        assert_eq!(path_seen_by(7, "/run/x.lock"), Some("/proc/7/root/run/x.lock".into()));
        assert_eq!(path_seen_by(7, "x.lock"), Some("/proc/7/cwd/x.lock".into()));
        assert_eq!(path_seen_by(7, "/"), None);
    }
}
