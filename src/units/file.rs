//! Files of profiles (`.pgprof`): read with care, replaced at once or not at all.

use crate::session::give_to_caller;
use pg_graph::units::{DecodeError, EncodeError, MAX_BYTES, MAX_FRAMES, Profile};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another pg-tui is waited for that writes a profile to the same folder.
const PATIENCE: Duration = Duration::from_secs(5);

/// What can be wrong with a file of a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be read as one.
    #[error("{}: {source}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Why.
        source: DecodeError,
    },
    /// It cannot be written as one.
    #[error("{}: {source}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Why.
        source: EncodeError,
    },
}

impl ProfileError {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.into(), action, source }
    }

    /// There is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Reads a profile.
///
/// # Errors
/// The file cannot be read, or is no profile.
pub fn read(path: &Path) -> Result<Profile, ProfileError> {
    let failed = || ProfileError::io(path, "read it");
    // A FIFO would keep us until somebody writes.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed())?;
    if !file.metadata().map_err(failed())?.is_file() {
        return Err(failed()(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed())?;
    Profile::decode(&bytes).map_err(|source| ProfileError::Decode { path: path.into(), source })
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// The contents of the file now.
    pub profile: Profile,
    /// Frames that call paths were cut to, since there were too many different ones.
    pub cut_to: Option<usize>,
}

/// Changes the profile at `path`: `change` gets what is there (nothing, if there is no file) and gives what is to be.
/// The file is replaced when the new one is whole and on the disk; whatever goes wrong, the old one stays. Two that
/// change it at a time do so one after the other.
///
/// # Errors
/// What is there is no profile, or the new one cannot be written.
pub fn update(path: &Path, change: impl FnOnce(Option<Profile>) -> Profile) -> Result<Written, ProfileError> {
    // Of a link, the file that it leads to is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let lock = File::open(folder).map_err(ProfileError::io(folder, "open the folder"))?;
    let begin = Instant::now();
    while let Err(e) = lock.try_lock() {
        if begin.elapsed() > PATIENCE {
            return Err(ProfileError::io(folder, "have the folder alone")(e.into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let old = match read(path) {
        Ok(p) => Some(p),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e),
    };
    let (profile, bytes, cut_to) =
        fit(change(old)).map_err(|source| ProfileError::Encode { path: path.clone(), source })?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let written = replace(&beside, path, &bytes);
    if written.is_err() {
        // It need not be there.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(ProfileError::io(path, "write it"))?;
    // The name, too: what cannot be synced (on some network file systems) is no failure.
    let _ = lock.sync_all();
    Ok(Written { profile, cut_to })
}

fn replace(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(beside)?;
    match fs::metadata(path) {
        Ok(old) => {
            file.set_permissions(old.permissions())?;
            keep_owner(&file, &old)?;
        }
        Err(_) => give_to_caller(&file)?,
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}

/// The new file is whose the old one was, as far as we may.
fn keep_owner(file: &File, old: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    match fchown(file, Some(old.uid()), Some(old.gid())) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// The bytes of a profile; with call paths cut as short as it takes.
fn fit(profile: Profile) -> Result<(Profile, Vec<u8>, Option<usize>), EncodeError> {
    let mut refused = match profile.encode() {
        Ok(bytes) => return Ok((profile, bytes, None)),
        Err(e) => e,
    };
    let mut frames = MAX_FRAMES / 2;
    while frames >= 2 && matches!(refused, EncodeError::TooMany { .. }) {
        let cut = profile.cut_to(frames);
        match cut.encode() {
            Ok(bytes) => return Ok((cut, bytes, Some(frames))),
            Err(e) => refused = e,
        }
        // First by halves, then frame by frame, since each loses types.
        frames = if frames > 16 { frames / 2 } else { frames - 1 };
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_graph::units::{CallPath, Function, FunctionId, LoopKey, PathSet, Unit};
    use std::collections::BTreeSet;

    fn learnt(leaves: std::ops::Range<u32>) -> Profile {
        let functions: Vec<Function> =
            (0..leaves.end).map(|i| Function { module: "m".into(), name: format!("f{i}") }).collect();
        let unit = |i| Unit {
            duration: 5,
            paths: PathSet::new([CallPath::new([FunctionId(0), FunctionId(i)])]),
            contexts: BTreeSet::new(),
        };
        let key = LoopKey { build_id: "ab".into(), offset: 7, given: None };
        let units: Vec<Unit> = leaves.map(unit).collect();
        Profile::new([], &functions, units.iter().map(|u| (key.clone(), u)))
    }

    fn merged(with: Profile) -> impl FnOnce(Option<Profile>) -> Profile {
        move |old| old.map_or(with.clone(), |o| o.merge(&with))
    }

    #[test]
    fn what_is_learnt_is_added() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.pgprof");
        assert!(read(&path).unwrap_err().is_not_found());
        update(&path, merged(learnt(0..3))).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let link = dir.path().join("link.pgprof");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let written = update(&link, merged(learnt(2..5))).unwrap();
        assert_eq!((written.profile.units(), written.cut_to), (6, None));
        assert_eq!(read(&path).unwrap(), learnt(0..3).merge(&learnt(2..5)));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing stays beside");
    }

    #[test]
    fn what_is_no_profile_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.pgprof");
        for bytes in [&b"my thesis"[..], b"", b"PGPROF\x09\x00", b"PGPROF\x01\x00\xc1"] {
            fs::write(&path, bytes).unwrap();
            let refused = update(&path, merged(learnt(0..3))).unwrap_err();
            assert!(matches!(refused, ProfileError::Decode { .. }), "{refused}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        let refused = read(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("no regular file"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn writing_that_fails_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let refused = update(&dir.path().join("none").join("app.pgprof"), merged(learnt(0..3))).unwrap_err();
        assert!(refused.is_not_found() && refused.to_string().contains("open the folder"), "{refused}");
        let path = dir.path().join("app.pgprof");
        update(&path, merged(learnt(0..3))).unwrap();
        // Where the new file is to be written, something is in the way.
        let beside = dir.path().join(format!(".app.pgprof.{}.tmp", std::process::id()));
        fs::create_dir(&beside).unwrap();
        let refused = update(&path, merged(learnt(0..9))).unwrap_err();
        assert!(refused.to_string().contains("cannot write it"), "{refused}");
        assert_eq!(read(&path).unwrap(), learnt(0..3));
    }

    #[test]
    fn too_many_call_trees_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let written = update(&dir.path().join("a"), merged(learnt(1..20_000))).unwrap_err();
        // Each tree differs in its second frame: nothing is left that could be cut.
        assert!(matches!(written, ProfileError::Encode { .. }));
        let deep = |n: u32| {
            let path = PathSet::new([CallPath::new([FunctionId(0), FunctionId(1), FunctionId(n)])]);
            Unit { duration: 5, paths: path, contexts: BTreeSet::new() }
        };
        let functions: Vec<Function> =
            (0..20_000).map(|i| Function { module: "m".into(), name: format!("f{i}") }).collect();
        let units: Vec<Unit> = (2..20_000).map(deep).collect();
        let p = Profile::new([], &functions, units.iter().map(|u| (LoopKey::default(), u)));
        let written = update(&dir.path().join("a"), merged(p)).unwrap();
        assert_eq!((written.cut_to, written.profile.units()), (Some(2), 19_998));
        assert_eq!(read(&dir.path().join("a")).unwrap(), written.profile);
    }
}
