//! The binaries that a process executes, opened: for what has to find places in their files.

use super::elf::Elf;
use super::image;
use super::maps::{self, Backing};
use super::module::open_mapped;
use super::stapsdt::{self, Usdt};
use crate::procfs::{self, path_of};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Bytes of a memory map that are read.
const MAX_MAPS: usize = 64 << 20;

/// Bytes that are read at a time.
const MAX_BYTES: usize = 64 << 20;

/// A place in a file that a process executes.
pub struct CodePlace {
    /// The binary.
    pub binary: Binary,
    /// Bytes from its beginning.
    pub offset: u64,
}

impl CodePlace {
    /// What a process has at an address.
    pub fn of(pid: u32, address: u64) -> Option<Self> {
        let line = maps_of(pid).into_iter().find(|l| (l.start..l.end).contains(&address))?;
        let Backing::File { path, deleted } = &line.backing else { return None };
        let binary = Binary::open(open_mapped(pid, &line, path, *deleted)?, path)?;
        Some(Self { binary, offset: address - line.start + line.offset })
    }
}

/// A program or library that a process has mapped to execute it. Kept open: it is this file whatever becomes of its
/// name.
pub struct Binary {
    file: File,
    elf: Elf,
    /// Path as the process saw it. Untrusted.
    pub path: String,
    id: (u64, u64),
}

impl Binary {
    /// A file with the path by which a process has it; `None` when it is no ELF file of this machine's kind.
    pub fn open(file: File, path: &str) -> Option<Self> {
        let meta = file.metadata().ok()?;
        let elf = Elf::read(&file)?;
        Some(Self { file, elf, path: path.to_owned(), id: (meta.dev(), meta.ino()) })
    }

    /// Those of a process; empty when it is not there.
    pub fn of_process(pid: u32) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in maps_of(pid) {
            let Backing::File { path, deleted } = &line.backing else { continue };
            let Some(file) = open_mapped(pid, &line, path, *deleted) else { continue };
            let Ok(meta) = file.metadata() else { continue };
            if !all.iter().any(|b| b.id == (meta.dev(), meta.ino())) {
                all.extend(Self::open(file, path));
            }
        }
        all
    }

    /// What names it in profiles: its build-id, or its file name if it has none.
    pub fn key(&self) -> &str {
        let name = || self.path.rsplit('/').next().unwrap_or_default();
        if self.elf.build_id.is_empty() { name() } else { &self.elf.build_id }
    }

    /// Device and inode.
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Whether both are one file.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Where the byte at an address, as the file counts, is in the file.
    pub fn offset(&self, address: u64) -> Option<u64> {
        self.elf.place(address).map(|p| p.0)
    }

    /// Slots that the loader fills with the address of one of these functions, sorted.
    pub fn slots_of(&self, wanted: &[&[u8]]) -> Vec<u64> {
        image::slots_of(&self.elf, &self.file, wanted)
    }

    /// The static probes in it.
    pub fn usdt(&self) -> Vec<Usdt> {
        stapsdt::read(&self.elf, &self.file)
    }

    /// Bytes of the file from an offset on, as many as there are of so many.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.min(MAX_BYTES)];
        let read = self.file.read_at(&mut bytes, offset).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// Its executable sections: addresses as the file counts.
    pub fn code(&self) -> &[(u64, u64)] {
        &self.elf.code
    }

    pub(super) fn elf(&self) -> &Elf {
        &self.elf
    }

    pub(super) fn opened(&self) -> &File {
        &self.file
    }

    /// A path by which this process can open it, while `self` lives.
    pub fn file(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Whether a process that neither is among these, nor descends from one, nor executes the same program executes it, too.
    pub fn is_used_beside(&self, pids: &[u32]) -> bool {
        let pids = procfs::family(pids);
        let program = |pid: u32| std::fs::metadata(path_of(pid, "exe")).ok().map(|m| (m.dev(), m.ino()));
        let programs: Vec<_> = pids.iter().filter_map(|&p| program(p)).collect();
        let others = procfs::processes().into_iter().filter(|p| !pids.contains(p));
        let others = others.filter(|&p| program(p).is_none_or(|of| !programs.contains(&of)));
        others.into_iter().any(|pid| {
            let of_file =
                |line: &maps::MapLine| line.inode == self.id.1 && !matches!(line.backing, Backing::Vdso);
            maps_of(pid).iter().any(of_file)
        })
    }
}

fn maps_of(pid: u32) -> Vec<maps::MapLine> {
    let text = procfs::read_bounded(&path_of(pid, "maps"), MAX_MAPS);
    text.map(|t| maps::parse(&t)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn of_this_process() {
        let own = Binary::of_process(std::process::id());
        let exe = std::env::current_exe().unwrap();
        let program = own.iter().find(|b| b.path == exe.to_str().unwrap()).unwrap();
        assert!(program.key() == program.elf.build_id || program.path.ends_with(program.key()));
        // The address of a function, from the beginning of the program.
        let code = program.elf.code[0].0;
        let offset = program.offset(code).unwrap();
        assert!(std::fs::metadata(program.file()).unwrap().len() > offset);
        assert!(!program.is_used_beside(&procfs::processes()));
        assert!(own.len() > 1, "the C library, too");
        assert!(Binary::of_process(u32::MAX).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

        /// Whatever a file says of itself, looking through it comes to an end. Damaged most are the headers: of the file and
        /// its segments at the beginning, of its sections at the end.
        #[test]
        fn damaged_files(
            damage in prop::collection::vec((0..3u8, any::<prop::sample::Index>(), any::<u8>()), 0..40),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let Ok(mut bytes) = std::fs::read("/bin/true") else {
                println!("skipped: there is no /bin/true");
                return Ok(());
            };
            let (len, headers) = (bytes.len(), bytes.len().min(2048));
            for (part, at, value) in damage {
                let at = match part {
                    0 => at.index(headers),
                    1 => len - 1 - at.index(headers),
                    _ => at.index(len),
                };
                bytes[at] = value;
            }
            bytes.truncate(cut.map_or(len, |at| at.index(len)));
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let Some(binary) = Binary::open(file, "/damaged") else { return Ok(()) };
            prop_assert!(!binary.key().chars().any(char::is_control));
            for function in binary.functions() {
                prop_assert!(!function.names.iter().any(|n| n.chars().any(char::is_control)));
            }
            let _ = (binary.bounds(), binary.usdt(), binary.slots_of(&[b"abort"]), binary.mentions("main"));
            let _ = binary.code().iter().take(4).filter_map(|c| binary.begin_of(c.0)).count();
        }
    }
}
