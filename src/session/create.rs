//! Creating a session file with care: it may hold anybody's command lines, and it is made as root.

use super::error::SessionError;
use super::format::MAGIC;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// A recording that is at `path` already is kept as `path.old`, as perf does; an older one of that name goes.
/// Returns where it is now. Anything else at `path` is left for [`create`] to refuse.
///
/// # Errors
/// What has the other name is no recording, or the file cannot be renamed.
pub fn keep_old(path: &Path) -> Result<Option<PathBuf>, SessionError> {
    let old = {
        let mut name = path.as_os_str().to_owned();
        name.push(".old");
        PathBuf::from(name)
    };
    let recording = |p: &Path| {
        let mut head = Vec::new();
        // Not what a link points to: the link would be renamed, and a new file made in its place.
        let file = fs::symlink_metadata(p)?.is_file();
        if file {
            File::open(p)?.take(8).read_to_end(&mut head)?;
        }
        Ok::<_, io::Error>(head == MAGIC)
    };
    if !recording(path).unwrap_or(false) {
        return Ok(None);
    }
    let failed =
        |source| SessionError::Io { path: old.clone(), action: "keep the older recording there", source };
    match recording(&old) {
        Ok(true) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Ok(false) => {
            let what = "it is there already and no pg-tui recording; it is left alone";
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, what)));
        }
        Err(e) => return Err(failed(e)),
    }
    fs::rename(path, &old).map_err(failed)?;
    Ok(Some(old))
}

/// Open `path` for a new recording, mode 0600, locked, owned by the user who called sudo. Returns the
/// file and whether it is a regular one.
pub(super) fn create(path: &Path) -> io::Result<(File, bool)> {
    if let Ok(meta) = fs::metadata(path) {
        let kind = meta.file_type();
        if kind.is_fifo() {
            return Ok((open_fifo(path)?, false));
        }
        if kind.is_char_device() {
            return Ok((File::options().write(true).open(path)?, false));
        }
        if !kind.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is there already and no file: name a file to write",
            ));
        }
        let mut head = Vec::new();
        File::open(path)?.take(8).read_to_end(&mut head)?;
        if !head.is_empty() && head != MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is there already and no pg-tui recording; it is left alone",
            ));
        }
        // A new inode: whoever has the old recording open keeps it whole.
        fs::remove_file(path)?;
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)?;
    give_to_caller(&file)?;
    file.try_lock()
        .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another process writes to it"))?;
    Ok((file, true))
}

/// Opening a FIFO that nobody reads waits for a reader, and nothing ends that: not Ctrl-C either, which the recorder
/// takes for the end of its recording.
fn open_fifo(path: &Path) -> io::Result<File> {
    let first = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(|e| match e
        .raw_os_error()
    {
        Some(libc::ENXIO) => io::Error::other("nobody reads this FIFO: start its reader first"),
        _ => e,
    })?;
    // While it is open the other one does not wait, and later ones wait for the reader as they should.
    let again = File::options().write(true).open(format!("/proc/self/fd/{}", first.as_raw_fd()))?;
    drop(first);
    Ok(again)
}

/// User and group who called sudo.
pub fn caller() -> Option<(u32, u32)> {
    let id = |name| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}

/// Under sudo, a file belongs to the user who called.
///
/// # Errors
/// The system's refusal, other than that this is not root.
pub fn give_to_caller(file: &File) -> io::Result<()> {
    let Some((uid, gid)) = caller() else { return Ok(()) };
    match fchown(file, Some(uid), Some(gid)) {
        // Not root: the variables are left over from something else.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}
