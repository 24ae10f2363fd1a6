//! fanotify(7): who makes, removes or renames files in some folders.
#![allow(unsafe_code)] // fanotify_init(2), fanotify_mark(2) and name_to_handle_at(2) have no safe wrapper in std.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file came to a folder.
const COMES: u64 = libc::FAN_CREATE | libc::FAN_MOVED_TO;
/// ... or left it.
const GOES: u64 = libc::FAN_DELETE | libc::FAN_MOVED_FROM;
/// Longest handle of a file (linux/exportfs.h: `MAX_HANDLE_SZ`), bytes.
const MAX_HANDLE: usize = 128;
/// name_to_handle_at(2): a handle that only tells files apart will do (Linux 6.5).
const HANDLE_FID: libc::c_int = 0x200;
/// Length of `struct fanotify_event_metadata`.
const HEAD: usize = 24;
/// Where in an information record the file system's number, the handle's length and type, and its bytes are.
const FSID: usize = 4;
const LENGTH: usize = 12;
const HANDLE: usize = 20;

/// A folder: the number of its file system, and the type and bytes of its handle.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Folder(Vec<u8>);

/// A name appeared in a folder, or went from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Number of the thread that did it, in the namespace of whoever asks.
    pub tid: u32,
    pub folder: Folder,
    pub name: Vec<u8>,
    /// It appeared.
    pub made: bool,
}

/// Folders that are watched. None is after this is dropped, or its process has ended.
pub struct Group(File);

impl Group {
    /// Nothing watched yet.
    ///
    /// # Errors
    /// EPERM without `CAP_SYS_ADMIN`, EINVAL before Linux 5.9, ENOSYS where the kernel has no fanotify.
    pub fn new() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME
            | libc::FAN_REPORT_TID;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Watch a folder. May block for as long as its file system likes.
    ///
    /// # Errors
    /// The kernel's: no such folder, a file system that has no handles.
    pub fn watch(&self, path: &Path) -> io::Result<Folder> {
        let folder = folder(path)?;
        self.mark(libc::FAN_MARK_ADD, path)?;
        Ok(folder)
    }

    /// Do not watch it any more.
    pub fn leave(&self, path: &Path) {
        let _ = self.mark(libc::FAN_MARK_REMOVE, path);
    }

    fn mark(&self, how: libc::c_uint, path: &Path) -> io::Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let what = COMES | GOES | libc::FAN_ONDIR;
        // SAFETY: `name` ends with a NUL and outlives the call.
        let done = unsafe {
            libc::fanotify_mark(
                self.0.as_raw_fd(),
                how | libc::FAN_MARK_ONLYDIR,
                what,
                libc::AT_FDCWD,
                name.as_ptr(),
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// What happened since the last time, oldest first. Never blocks.
    pub fn changes(&self, out: &mut Vec<Change>) {
        let mut room = [0u8; 8192];
        while let Ok(n) = (&self.0).read(&mut room)
            && n > 0
        {
            parse(&room[..n], out);
        }
    }
}

/// Sleep until one of these can be read, or has no other end any more.
pub fn poll(of: [RawFd; 2]) {
    let mut fds = of.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: `fds` has as many entries as are told.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
}

impl AsRawFd for Group {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn folder(path: &Path) -> io::Result<Folder> {
    #[repr(C)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        data: [u8; MAX_HANDLE],
    }
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut mount = 0;
    let mut take = |flags: libc::c_int| {
        let mut h = Handle { bytes: MAX_HANDLE as libc::c_uint, kind: 0, data: [0; MAX_HANDLE] };
        // SAFETY: `h` is a `struct file_handle` with room for as many bytes as it says; `name` ends with a NUL.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                name.as_ptr(),
                &raw mut h,
                &raw mut mount,
                flags | libc::AT_SYMLINK_FOLLOW,
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(h) }
    };
    let h = take(HANDLE_FID).or_else(|_| take(0))?;
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `about` has room for what is written; `name` ends with a NUL.
    if unsafe { libc::statfs(name.as_ptr(), about.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroes and what the kernel wrote are both a valid `statfs`; the number is eight bytes of it.
    let number: [u8; 8] = unsafe {
        about.as_ptr().cast::<u8>().add(offset_of!(libc::statfs, f_fsid)).cast::<[u8; 8]>().read_unaligned()
    };
    let mut key = number.to_vec();
    key.extend(h.kind.to_ne_bytes());
    key.extend(&h.data[..(h.bytes as usize).min(MAX_HANDLE)]);
    Ok(Folder(key))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// What was read from a group: records of a head each (`struct fanotify_event_metadata`) and of what follows it.
fn parse(mut bytes: &[u8], out: &mut Vec<Change>) {
    while let Some(length) = word(bytes, 0).map(|n| n as usize)
        && length >= HEAD
        && let Some((record, rest)) = bytes.split_at_checked(length)
    {
        bytes = rest;
        let mask = u64::from_ne_bytes(record[8..16].try_into().unwrap_or_default());
        let tid = word(record, 20).filter(|t| *t != 0 && i32::try_from(*t).is_ok());
        let Some((tid, (folder, name))) = tid.zip(named(&record[HEAD..])) else { continue };
        // What one thread did to one name may be told as one, in no order.
        for (_, made) in [(COMES, true), (GOES, false)].into_iter().filter(|(kinds, _)| mask & kinds != 0) {
            out.push(Change { tid, folder: folder.clone(), name: name.clone(), made });
        }
    }
}

/// The folder and the name in it, of the information records of an event.
fn named(mut info: &[u8]) -> Option<(Folder, Vec<u8>)> {
    while info.len() >= HANDLE {
        let length = usize::from(u16::from_ne_bytes([info[2], info[3]]));
        if length < HANDLE {
            return None;
        }
        let (record, rest) = info.split_at_checked(length)?;
        info = rest;
        if record[0] != libc::FAN_EVENT_INFO_TYPE_DFID_NAME {
            continue;
        }
        let bytes = word(record, LENGTH)? as usize;
        let handle = record.get(HANDLE..HANDLE.checked_add(bytes)?)?;
        let name = record[HANDLE + bytes..].split(|b| *b == 0).next().filter(|n| !n.is_empty())?;
        let mut key = record[FSID..FSID + 8].to_vec();
        key.extend(&record[LENGTH + 4..HANDLE]);
        key.extend(handle);
        return Some((Folder(key), name.to_vec()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_and_removes_is_told() {
        let Ok(group) = Group::new() else {
            eprintln!("skipped: no right to watch folders (CAP_SYS_ADMIN)");
            return;
        };
        let dir = tempfile::tempdir().expect("a folder");
        let Ok(folder) = group.watch(dir.path()) else {
            eprintln!("skipped: this file system has no handles");
            return;
        };
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("lock")).expect("made");
        std::fs::write(at("a"), "").expect("written");
        std::fs::rename(at("a"), at("b")).expect("renamed");
        let other = std::process::Command::new("rmdir").arg(at("lock")).spawn().expect("rmdir");
        let pid = other.id();
        other.wait_with_output().expect("waited for");
        let mut all = Vec::new();
        group.changes(&mut all);
        // SAFETY: gettid has no preconditions.
        let own = unsafe { libc::gettid() } as u32;
        let told: Vec<_> = all.iter().map(|c| (c.tid, c.name.as_slice(), c.made)).collect();
        let expected: [(u32, &[u8], bool); 5] = [
            (own, b"lock", true),
            (own, b"a", true),
            (own, b"a", false),
            (own, b"b", true),
            (pid, b"lock", false),
        ];
        assert_eq!(told, expected);
        assert!(all.iter().all(|c| c.folder == folder));
        group.leave(dir.path());
        std::fs::write(at("c"), "").expect("written");
        all.clear();
        group.changes(&mut all);
        assert_eq!(all, []);
    }

    proptest::proptest! {
        /// Whatever the kernel of tomorrow writes.
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), length in 0u8..80, info in 0u8..64) {
            let mut bytes = bytes;
            for (at, value) in [(0, length), (1, 0), (2, 0), (3, 0), (HEAD, libc::FAN_EVENT_INFO_TYPE_DFID_NAME), (HEAD + 2, info), (HEAD + 3, 0)] {
                if let Some(b) = bytes.get_mut(at) { *b = value; }
            }
            let mut out = Vec::new();
            parse(&bytes, &mut out);
            proptest::prop_assert!(out.len() <= 2 * bytes.len() / HEAD);
        }
    }
}
