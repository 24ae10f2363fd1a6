//! Modules: the files that code lies in, each read once however many processes map it.

use super::cfi::Cfi;
use super::elf::{Bytes, Elf};
use super::maps::{Backing, MapLine};
use super::text::clean;
use pg_event::{Module, ModuleId, ModuleKind};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Most modules: a machine on which programs are built or containers come and go has new ones all the time. Code of
/// later ones is taken to be code without a file.
const MAX_MODULES: usize = 1 << 16;
/// Most memory for unwind tables: those asked longest ago are dropped and read again at need; those that cannot be read
/// again when there are no others.
const MAX_TABLES: usize = 128 << 20;
/// How long a file is taken to be the one that it was.
const SAME: Duration = Duration::from_secs(2);
/// Most files of which that is remembered.
const MAX_RECENT: usize = 4096;
/// Most files kept open because they may be removed.
const MAX_UNSTABLE: usize = 64;
/// Largest vdso.
const MAX_VDSO: u64 = 1 << 20;

/// Where a module's bytes are.
#[derive(Debug)]
pub(super) enum Source {
    /// A file that can be opened by this path in the recorder's own root: device and inode were compared.
    Path { path: PathBuf, dev: u64, inode: u64 },
    /// A file of a container, a deleted or replaced one: kept open.
    Open(File),
    /// The image itself (vdso).
    Image(Vec<u8>),
    /// Nothing: code without a file, or one that could not be opened.
    None,
}

impl Source {
    /// `len` bytes at an offset of the file, `None` when they cannot be read.
    pub fn bytes(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        match self {
            Self::Path { path, dev, inode } => open_same(path, *dev, *inode)?.at(at, len),
            Self::Open(f) => f.at(at, len),
            Self::Image(b) => b.as_slice().at(at, len),
            Self::None => None,
        }
    }

    /// Its unwind tables; none, when it cannot be read any more.
    pub fn cfi(&self, elf: &Elf) -> Cfi {
        match self {
            Self::Path { path, dev, inode } => {
                open_same(path, *dev, *inode).map(|f| elf.cfi(&f)).unwrap_or_default()
            }
            Self::Open(f) => elf.cfi(f),
            Self::Image(b) => elf.cfi(b.as_slice()),
            Self::None => Cfi::default(),
        }
    }
}

/// One module.
#[derive(Debug)]
pub(super) struct Entry {
    /// As it stands in the catalogue.
    pub row: Module,
    /// Its id there, given when a frame first needs it.
    pub id: ModuleId,
    /// Headers, `None` when it is no ELF file of this machine.
    pub elf: Option<Arc<Elf>>,
    /// Where symbols can be read.
    pub source: Arc<Source>,
    /// Directories for its separate debug files: of the recorder, and of the container it ran in.
    pub root: Option<PathBuf>,
    /// Unwind tables, while they are in memory, and when they were asked last.
    cfi: Option<Cfi>,
    asked: u64,
    /// The file may be gone by the time it is to be opened again: what was read of it stays as long as it can.
    last_chance: bool,
}

impl Entry {
    fn read_cfi(&self) -> Cfi {
        self.elf.as_ref().map(|elf| self.source.cfi(elf)).unwrap_or_default()
    }

    /// Calls `take` with headers and bytes of the file; `None` when it cannot be read any more.
    pub fn with_bytes<T>(&self, take: impl FnOnce(&Elf, &dyn Bytes) -> Option<T>) -> Option<T> {
        let elf = self.elf.as_deref()?;
        match &*self.source {
            Source::Path { path, dev, inode } => take(elf, &open_same(path, *dev, *inode)?),
            Source::Open(f) => take(elf, f),
            Source::Image(_) | Source::None => None,
        }
    }

    fn new(row: Module, elf: Option<Elf>, source: Source, root: Option<PathBuf>) -> Self {
        Self {
            row,
            id: ModuleId::NONE,
            elf: elf.map(Arc::new),
            source: Arc::new(source),
            root,
            cfi: None,
            asked: 0,
            last_chance: false,
        }
    }
}

/// What tells one file from another: a file written anew in place differs in size or time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    File {
        dev: u64,
        inode: u64,
        size: u64,
        mtime: (i64, i64),
    },
    /// Known by name only.
    Name(String, u64),
    Vdso(String, u64),
    /// Of each process its own: many call theirs `/tmp/perf-1.map`.
    PerfMap(u32, String),
    Kernel,
    Anonymous,
    Python(String),
}

/// A mapped file as the maps of every process show it: device, inode, path. For the vdso its length.
type Shown = (u32, u32, u64, String);

/// The table of modules.
#[derive(Default, Debug)]
pub(super) struct Modules {
    /// Modules of mappings looked at a moment ago: processes that begin together map the same files.
    recent: HashMap<Shown, (u32, Instant)>,
    pub entries: Vec<Entry>,
    known: HashMap<Key, u32>,
    open: usize,
    /// Of these, such as may be removed.
    unstable: usize,
    /// Bytes of unwind tables in memory, and how often any were asked.
    tables: usize,
    asked: u64,
}

impl Modules {
    fn insert(&mut self, key: Key, make: impl FnOnce() -> Entry) -> u32 {
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        if self.is_full() && !matches!(key, Key::Anonymous | Key::Kernel) {
            return self.anonymous();
        }
        let next = self.entries.len() as u32;
        self.entries.push(make());
        self.known.insert(key, next);
        next
    }

    /// There is no room for more modules.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= MAX_MODULES
    }

    /// Unwind tables of a module, read at need.
    pub fn cfi(&mut self, module: u32) -> Option<&Cfi> {
        self.asked += 1;
        let asked = self.asked;
        let entry = self.entries.get_mut(module as usize)?;
        entry.asked = asked;
        if entry.cfi.is_none() {
            let cfi = entry.read_cfi();
            let size = cfi.size();
            self.make_room(size, MAX_TABLES);
            self.tables += size;
            self.entries.get_mut(module as usize)?.cfi = Some(cfi);
        }
        self.entries.get(module as usize)?.cfi.as_ref()
    }

    /// Drop the tables asked longest ago until `more` bytes fit into `most`, or none can be dropped.
    fn make_room(&mut self, more: usize, most: usize) {
        while self.tables + more > most {
            let loaded = self.entries.iter_mut().filter(|e| e.cfi.is_some());
            let Some(oldest) = loaded.min_by_key(|e| (e.last_chance, e.asked)) else { return };
            self.tables -= oldest.cfi.take().map_or(0, |c| c.size()).min(self.tables);
        }
    }

    fn plain(kind: ModuleKind, path: &str) -> Entry {
        let row = Module { kind, path: clean(path.as_bytes()), build_id: String::new() };
        Entry::new(row, None, Source::None, None)
    }

    /// The kernel with its modules.
    pub fn kernel(&mut self) -> u32 {
        self.insert(Key::Kernel, || {
            let mut entry = Self::plain(ModuleKind::Kernel, "");
            let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
            entry.row.build_id = super::elf::notes_build_id(&notes).unwrap_or_default();
            let release = std::fs::read("/proc/sys/kernel/osrelease").unwrap_or_default();
            entry.row.path = clean(release.trim_ascii());
            entry
        })
    }

    /// Code that nothing names.
    pub fn anonymous(&mut self) -> u32 {
        self.insert(Key::Anonymous, || Self::plain(ModuleKind::Anonymous, ""))
    }

    /// Code that a perf-map names.
    pub fn perf_map(&mut self, pid: u32, path: &str) -> u32 {
        self.insert(Key::PerfMap(pid, path.to_owned()), || Self::plain(ModuleKind::PerfMap, path))
    }

    /// A file of Python code.
    pub fn python(&mut self, path: &str) -> u32 {
        self.insert(Key::Python(path.to_owned()), || Self::plain(ModuleKind::Python, path))
    }

    /// The module of a mapping of a process.
    pub fn of_mapping(&mut self, pid: u32, m: &MapLine, now: Instant) -> u32 {
        let shown = match &m.backing {
            Backing::Anonymous => return self.anonymous(),
            Backing::Vdso => (0, 0, m.end - m.start, String::new()),
            Backing::File { deleted: true, path } => return self.file(pid, m, path, true),
            Backing::File { path, .. } => (m.major, m.minor, m.inode, path.clone()),
        };
        if let Some(&(module, seen)) = self.recent.get(&shown)
            && now.saturating_duration_since(seen) < SAME
        {
            return module;
        }
        let module = match &m.backing {
            Backing::File { path, .. } => self.file(pid, m, path, false),
            _ => self.vdso(pid, m),
        };
        if self.recent.len() >= MAX_RECENT {
            self.recent.clear();
        }
        self.recent.insert(shown, (module, now));
        module
    }

    fn file(&mut self, pid: u32, m: &MapLine, path: &str, deleted: bool) -> u32 {
        let Some(file) = open_mapped(pid, m, path, deleted) else {
            let key = Key::Name(path.to_owned(), m.inode);
            return self.insert(key, || Self::plain(ModuleKind::Elf, path));
        };
        let Ok(meta) = file.metadata() else { return self.anonymous() };
        let key = Key::File {
            dev: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
        };
        if let Some(&i) = self.known.get(&key) {
            return i;
        }
        if self.is_full() {
            return self.anonymous();
        }
        let Some(elf) = Elf::read(&file) else {
            // A mapped file that is no ELF: the memory of a just-in-time compiler (memfd), an archive.
            let anonymous = deleted || path.starts_with("/memfd:") || path.starts_with("/dev/");
            if anonymous {
                let i = self.anonymous();
                if self.known.len() < 2 * MAX_MODULES {
                    self.known.insert(key, i);
                }
                return i;
            }
            return self.insert(key, || Self::plain(ModuleKind::Elf, path));
        };
        let row =
            Module { kind: ModuleKind::Elf, path: clean(path.as_bytes()), build_id: elf.build_id.clone() };
        let by_path = !deleted && open_same(Path::new(path), meta.dev(), meta.ino()).is_some();
        let vanishes = by_path && self.unstable < MAX_UNSTABLE && may_vanish(path, meta.dev());
        self.unstable += usize::from(vanishes);
        let (source, root) = if vanishes {
            (Source::Open(file), None)
        } else if by_path {
            (Source::Path { path: path.into(), dev: meta.dev(), inode: meta.ino() }, None)
        } else {
            let root = (!deleted).then(|| PathBuf::from(format!("/proc/{pid}/root")));
            (Source::Open(file), root)
        };
        let keep = by_path || self.open < max_open();
        self.open += usize::from(vanishes || !by_path && keep);
        let i = self.insert(key, || Entry::new(row, Some(elf), source, root));
        if !keep {
            // No room to keep it open: take the tables now, and hope that it is still there for symbols.
            self.cfi(i);
            if let Some(entry) = self.entries.get_mut(i as usize) {
                let path = format!("/proc/{pid}/root{path}").into();
                entry.source = Arc::new(Source::Path { path, dev: meta.dev(), inode: meta.ino() });
                entry.last_chance = true;
            }
        }
        i
    }

    fn vdso(&mut self, pid: u32, m: &MapLine) -> u32 {
        let read = |who: &str, start: u64, end: u64| {
            let file = File::open(format!("/proc/{who}/mem")).ok()?;
            let len = end.checked_sub(start).filter(|&n| n <= MAX_VDSO)?;
            let mut buf = vec![0; len as usize];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut buf, start).ok()?;
            Some(buf)
        };
        // All 64-bit processes have the same image: when this one's cannot be read, the own one is it.
        let own = || {
            let maps = super::maps::parse(&std::fs::read("/proc/self/maps").ok()?);
            let mine = maps.into_iter().find(|m| m.backing == Backing::Vdso)?;
            (mine.end - mine.start == m.end - m.start).then(|| read("self", mine.start, mine.end))?
        };
        let Some(image) = read(&pid.to_string(), m.start, m.end).or_else(own) else {
            return self
                .insert(Key::Vdso(String::new(), m.end - m.start), || Self::plain(ModuleKind::Vdso, ""));
        };
        let elf = Elf::read(image.as_slice());
        let build_id = elf.as_ref().map(|e| e.build_id.clone()).unwrap_or_default();
        let row = Module { kind: ModuleKind::Vdso, path: "[vdso]".into(), build_id: build_id.clone() };
        self.insert(Key::Vdso(build_id, image.len() as u64), || {
            Entry::new(row, elf, Source::Image(image), None)
        })
    }
}

/// Is this no installed program, but one that a build, a test or a script made and may remove before its symbols are
/// read? Only where nobody unmounts anything: a file that is open would keep them from it.
fn may_vanish(path: &str, dev: u64) -> bool {
    const INSTALLED: [&str; 7] = ["/usr/", "/lib", "/bin/", "/sbin/", "/opt/", "/nix/", "/snap/"];
    static LASTING: OnceLock<Vec<u64>> = OnceLock::new();
    let lasting = || ["/", "/tmp"].iter().filter_map(|d| Some(std::fs::metadata(d).ok()?.dev())).collect();
    !INSTALLED.iter().any(|d| path.starts_with(d)) && LASTING.get_or_init(lasting).contains(&dev)
}

/// Most files kept open because they cannot be opened by path again: a quarter of what the process may.
fn max_open() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("Max open files"));
        let soft = line.and_then(|l| l.split_whitespace().next()?.parse::<usize>().ok());
        soft.unwrap_or(1024).min(1 << 16) / 4
    })
}

/// Open a plain file, never a device or a FIFO (opening those can block or do things).
pub(crate) fn open_plain(path: &Path) -> Option<File> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let handle = File::options().read(true).custom_flags(flags).open(path).ok()?;
    if !handle.metadata().ok()?.is_file() {
        return None;
    }
    // The same file by its handle: nobody can put another in its place in between.
    File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()
}

/// Open a path if it is this very file.
pub(super) fn open_same(path: &Path, dev: u64, inode: u64) -> Option<File> {
    let file = open_plain(path)?;
    let meta = file.metadata().ok()?;
    (meta.dev() == dev && meta.ino() == inode).then_some(file)
}

/// Open the file behind a mapping: through the mapping itself (needs privileges, works for deleted and
/// replaced files), through the root directory of the process, by its path.
pub(super) fn open_mapped(pid: u32, m: &MapLine, path: &str, deleted: bool) -> Option<File> {
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", m.start, m.end);
    if let Some(f) = open_plain(Path::new(&link)) {
        return Some(f);
    }
    if deleted {
        return None;
    }
    let dev = libc::makedev(m.major, m.minor);
    open_same(Path::new(&format!("/proc/{pid}/root{path}")), dev, m.inode)
        .or_else(|| open_same(Path::new(path), dev, m.inode))
}

/// Address of a byte of a mapping as the module's file counts; the absolute address where there is no file.
pub(super) fn file_address(entry: &Entry, m_start: u64, m_offset: u64, address: u64) -> u64 {
    let within = address.wrapping_sub(m_start);
    match (&entry.elf, entry.row.kind) {
        (Some(elf), ModuleKind::Vdso) => elf.address_of(within).unwrap_or(within),
        (Some(elf), _) => {
            let offset = within.wrapping_add(m_offset);
            elf.address_of(offset).unwrap_or(offset)
        }
        (None, ModuleKind::Elf) => within.wrapping_add(m_offset),
        (None, _) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unwind tables in memory are bounded; those asked lately stay, and what cannot be read again.
    #[test]
    fn tables_asked_longest_ago_are_dropped() {
        const MB: usize = 1 << 20;
        let mut m = Modules::default();
        for n in 0..100u32 {
            let i = m.python(&format!("/{n}"));
            let tables = Cfi::new(0, None, Some((0, vec![0; MB])), None);
            m.make_room(tables.size(), 10 * MB);
            m.tables += tables.size();
            let entry = &mut m.entries[i as usize];
            (entry.cfi, entry.last_chance) = (Some(tables), n == 3);
            entry.asked = u64::from(n);
            // This one is asked all the time.
            if i >= 7 {
                m.entries[7].asked = 1000;
            }
            assert!(m.tables <= 10 * MB);
        }
        let there = |m: &Modules| (0..100).filter(|&n| m.entries[n].cfi.is_some()).collect::<Vec<_>>();
        assert_eq!(there(&m), [3, 7, 92, 93, 94, 95, 96, 97, 98, 99]);
        // Asked again, they are read again.
        assert!(m.cfi(50).is_some());
        assert!(m.entries[50].cfi.is_some());
        // A table larger than all of them takes the place of what cannot be read again, too.
        m.make_room(10 * MB, 10 * MB);
        assert_eq!((there(&m), m.tables), (vec![], 0));
    }

    /// However many files come and go, the table stays bounded; what is in it is found again.
    #[test]
    fn modules_are_bounded() {
        let mut m = Modules::default();
        let first = m.python("/0");
        for n in 1..MAX_MODULES as u32 + 1000 {
            m.perf_map(n, "/tmp/perf-1.map");
        }
        let (kernel, none) = (m.kernel(), m.anonymous());
        assert!(m.entries.len() <= MAX_MODULES + 2 && m.known.len() == m.entries.len());
        assert_eq!((m.python("/0"), m.python("/1"), m.perf_map(7, "/tmp/perf-7.map")), (first, none, none));
        assert_eq!((m.kernel(), m.entries[kernel as usize].row.kind), (kernel, ModuleKind::Kernel));
        let own = super::super::maps::parse(&std::fs::read("/proc/self/maps").unwrap());
        let line = own.iter().find(|l| matches!(l.backing, Backing::File { .. })).expect("a file is mapped");
        assert_eq!(m.of_mapping(std::process::id(), line, Instant::now()), none);
        assert_eq!((m.open, m.unstable), (0, 0));
    }
}
