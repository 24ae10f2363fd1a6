#![allow(unsafe_code)] // geteuid and memfd_create have no safe form in the libraries at hand
//! The files that have the symbols of a module, as blazesym can read them without harm.

use super::Job;
use crate::stacks::debugfile::{self, Debuginfod};
use crate::stacks::elf::Elf;
use crate::stacks::mini;
use crate::stacks::module::{Source, open_plain, open_same};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest binary whose debug information is read.
const MAX_DWARF: u64 = 4 << 30;
/// Largest binary of another user that is copied before it is read.
const MAX_COPY: u64 = 512 << 20;

/// A file to be given to blazesym.
pub(in crate::stacks) struct SymbolFile {
    pub(super) path: PathBuf,
    /// Its length.
    pub(super) bytes: u64,
    /// Keeps `/proc/self/fd/N` valid.
    pub(super) _file: Option<File>,
    /// Its debug information is to be read.
    pub(super) dwarf: bool,
}

impl SymbolFile {
    /// What to give blazesym for an open file. It maps files, and the owner of a mapped file can truncate
    /// it, which would end this process by SIGBUS: files of other users are copied first.
    pub fn of(file: &File, path: Option<PathBuf>, dwarf: bool) -> Option<Self> {
        let meta = file.metadata().ok()?;
        let dwarf = dwarf && meta.len() <= MAX_DWARF;
        if !trusted(meta.uid()) {
            // From the beginning, whatever was read before.
            let mut again = open_plain(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
            return Self::copy(&mut again, meta.len(), dwarf);
        }
        if let Some(path) = path {
            return Some(Self { path, bytes: meta.len(), _file: None, dwarf });
        }
        let kept = file.try_clone().ok()?;
        let path = format!("/proc/self/fd/{}", kept.as_raw_fd()).into();
        Some(Self { path, bytes: meta.len(), _file: Some(kept), dwarf })
    }

    /// The symbols compressed in a stripped file.
    pub fn mini(elf: &Elf, file: &File) -> Option<Self> {
        if elf.has_symtab {
            return None;
        }
        let bytes = mini::read(elf, file)?;
        Self::copy(bytes.as_slice(), bytes.len() as u64, false)
    }

    /// A file in memory with these bytes.
    pub fn copy(from: impl Read, len: u64, dwarf: bool) -> Option<Self> {
        if len > MAX_COPY {
            return None;
        }
        // SAFETY: the name is a valid C string; the descriptor is owned from here on.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"pg-tui-symbols".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return None;
            }
            File::from_raw_fd(fd)
        };
        let bytes = std::io::copy(&mut from.take(len), &mut file).ok()?;
        file.flush().ok()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Some(Self { path, bytes, _file: Some(file), dwarf })
    }
}

/// Users whose files are not truncated in mid-read to harm this process: root, its own, and the one who
/// started it by sudo.
fn trusted(uid: u32) -> bool {
    // SAFETY: geteuid has no preconditions.
    let me = unsafe { libc::geteuid() };
    let sudo = || std::env::var("SUDO_UID").ok()?.parse::<u32>().ok();
    uid == 0 || uid == me || sudo() == Some(uid)
}

/// The files with a module's symbols: its separate debug file, then itself.
pub(super) fn files(job: &Job, elf: &Elf, debuginfod: &Debuginfod) -> Vec<SymbolFile> {
    let dirs = debugfile::directories(job.root.as_deref());
    let root = job.root.as_deref().unwrap_or(Path::new("/"));
    let mut out = Vec::new();
    if !elf.has_dwarf {
        let debug = debugfile::by_build_id(&dirs, &elf.build_id)
            .or_else(|| debugfile::by_link(&dirs, root, &job.path, elf.debug_link.as_ref()?))
            .or_else(|| debuginfod.find(&elf.build_id));
        out.extend(debug.and_then(|path| SymbolFile::of(&open_plain(&path)?, Some(path), true)));
    }
    match &*job.source {
        Source::Path { path, dev, inode } => {
            if let Some(f) = open_same(path, *dev, *inode) {
                out.extend(SymbolFile::of(&f, Some(path.clone()), elf.has_dwarf));
                out.extend(SymbolFile::mini(elf, &f));
            }
        }
        Source::Open(f) => {
            out.extend(SymbolFile::of(f, None, elf.has_dwarf));
            out.extend(SymbolFile::mini(elf, f));
        }
        Source::Image(bytes) => {
            out.extend(SymbolFile::copy(bytes.as_slice(), bytes.len() as u64, elf.has_dwarf));
        }
        Source::None => {}
    }
    out
}
