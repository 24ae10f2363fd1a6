#![allow(unsafe_code)] // geteuid and memfd_create have no safe form in the libraries at hand
//! Names of code addresses, by blazesym, in a thread of its own.
//!
//! A thread, because reading debug information of a large binary takes seconds that nobody else should
//! wait, because blazesym's caches cannot move between threads, and because a panic or an endless loop over
//! a hostile file must end neither the recording nor the wait for it.

use super::debugfile::{self, Debuginfod};
use super::elf::Elf;
use super::module::{Entry, Source, open_plain, open_same};
use super::text::{clean, demangle};
use crate::collector::lower_priority;
use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf as ElfSource, Kernel, Source as Place};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use pg_event::{Frame, FrameId, ModuleKind};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Addresses per answer: what a wait cannot be shorter than.
const BATCH: usize = 64;
/// While nobody waits for names, the thread rests this many times as long as it worked: reading debug
/// information must not take the CPU from what is recorded ...
const REST: u32 = 1600;
/// ... and new code waits this long; what is not named when the recording ends is named then ...
const LATER: Duration = Duration::from_secs(15);
/// ... but for the time after its start, in which everything that runs is met at once.
const EAGER: Duration = Duration::from_secs(2);
/// Farthest from its symbol that a kernel address is believed to be: kallsyms has no sizes.
const MAX_KERNEL_FUNCTION: usize = 256 << 10;
/// Farthest from a symbol without size.
const MAX_SIZELESS: usize = 64 << 10;
/// Largest binary whose debug information is read.
const MAX_DWARF: u64 = 4 << 30;
/// Largest binary of another user that is copied before it is read.
const MAX_COPY: u64 = 512 << 20;
/// Most functions inlined at one address that are kept.
const MAX_INLINED: usize = 64;

/// What is known of an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Symbol {
    pub function: String,
    pub offset: u32,
    pub file: String,
    pub line: u32,
    pub inlined: Vec<String>,
}

impl Symbol {
    pub fn into_frame(self) -> Frame {
        let Self { function, offset, file, line, inlined } = self;
        Frame { function, offset, file, line, inlined, ..Frame::default() }
    }
}

/// Addresses of one module to be named.
#[derive(Debug)]
pub(super) struct Job {
    module: u32,
    path: String,
    kernel: bool,
    elf: Option<Arc<Elf>>,
    source: Arc<Source>,
    root: Option<PathBuf>,
    addresses: Vec<(FrameId, u64)>,
}

impl Job {
    /// `None` when no file has symbols for this module.
    pub fn new(module: u32, entry: &Entry, addresses: Vec<(FrameId, u64)>) -> Option<Self> {
        let kernel = entry.row.kind == ModuleKind::Kernel;
        if !kernel && entry.elf.is_none() {
            return None;
        }
        Some(Self {
            module,
            path: entry.row.path.clone(),
            kernel,
            elf: entry.elf.clone(),
            source: entry.source.clone(),
            root: entry.root.clone(),
            addresses,
        })
    }
}

/// The name of a frame, `None` when there is none.
#[derive(Debug)]
pub(super) struct Answer {
    pub frame: FrameId,
    pub symbol: Option<Symbol>,
}

/// The thread that looks names up, started at the first question.
#[derive(Default)]
pub(super) struct Symbols {
    worker: Option<(Sender<Job>, Receiver<Vec<Answer>>)>,
    /// Gone once somebody waits.
    leisure: Option<Sender<()>>,
    hurried: bool,
    pending: usize,
    dead: bool,
    kernel_hidden: bool,
    /// As the first look showed.
    kernel_readable: Option<bool>,
}

impl Symbols {
    /// Addresses asked for and not yet answered.
    pub fn pending(&self) -> usize {
        self.pending
    }

    pub fn submit(&mut self, job: Job) {
        if job.kernel {
            let readable = || kernel_symbols_readable(Path::new("/proc/kallsyms"));
            if !*self.kernel_readable.get_or_insert_with(readable) {
                self.kernel_hidden = true;
                return;
            }
        }
        if self.worker.is_none() && !self.dead {
            let (leisure, rest) = bounded(0);
            self.worker = start(rest);
            self.leisure = (!self.hurried).then_some(leisure);
            self.dead = self.worker.is_none();
        }
        let count = job.addresses.len();
        if let Some((jobs, _)) = &self.worker
            && jobs.send(job).is_ok()
        {
            self.pending += count;
        }
    }

    /// Somebody waits for names: no more rest.
    pub fn hurry(&mut self) {
        self.hurried = true;
        self.leisure = None;
    }

    /// End the thread, with all that it read.
    pub fn forget(&mut self) {
        self.worker = None;
        self.leisure = None;
        self.hurried = false;
    }

    /// Answers, waiting for them at most this long.
    pub fn receive(&mut self, wait: Duration) -> Option<Vec<Answer>> {
        let (_, answers) = self.worker.as_ref()?;
        match answers.recv_timeout(wait) {
            Ok(a) => {
                self.pending = self.pending.saturating_sub(a.len());
                Some(a)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.worker = None;
                self.dead = true;
                self.pending = 0;
                None
            }
        }
    }

    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.kernel_hidden {
            notes.push(
                "kernel functions have no names: /proc/kallsyms shows no addresses (run as root, or set \
                 kernel.kptr_restrict=0)"
                    .to_owned(),
            );
        }
        if self.dead {
            notes.push("the thread that looks up symbols could not run; functions have no names".to_owned());
        }
        notes
    }
}

/// Without privilege the kernel writes every address as zero.
fn kernel_symbols_readable(kallsyms: &Path) -> bool {
    let Ok(file) = File::open(kallsyms) else { return false };
    // Some first symbols (of per-cpu data) are at zero on other kernels.
    BufReader::new(file)
        .lines()
        .take(100_000)
        .map_while(Result::ok)
        .any(|l| l.split(' ').next().is_some_and(|a| a.bytes().any(|b| b != b'0')))
}

/// `rest` closes when there is no time to rest any more.
fn start(rest: Receiver<()>) -> Option<(Sender<Job>, Receiver<Vec<Answer>>)> {
    let (jobs_in, jobs) = unbounded::<Job>();
    let (answers, answers_out) = unbounded();
    std::thread::Builder::new()
        .name("pg-symbols".into())
        .spawn(move || {
            lower_priority();
            let mut worker = Worker::new(Debuginfod::from_env());
            while let Ok(job) = jobs.recv() {
                if worker.started.elapsed() > EAGER {
                    // A program that has just begun is not to be disturbed.
                    let _ = rest.recv_timeout(LATER);
                }
                worker.run(job, &answers, &rest);
                for job in jobs.try_iter() {
                    worker.run(job, &answers, &rest);
                }
            }
            // Debug information read for names is hundreds of megabytes that the allocator would keep.
            drop(worker);
            #[cfg(target_env = "gnu")]
            // SAFETY: malloc_trim(3) only gives free memory back.
            unsafe {
                libc::malloc_trim(0);
            }
        })
        .ok()?;
    Some((jobs_in, answers_out))
}

/// A file to be given to blazesym.
pub(super) struct SymbolFile {
    path: PathBuf,
    /// Keeps `/proc/self/fd/N` valid.
    _file: Option<File>,
    dwarf: bool,
}

/// What the thread owns.
pub(super) struct Worker {
    symbolizer: Symbolizer,
    /// Symbol files of the modules, the best first.
    files: HashMap<u32, Vec<SymbolFile>>,
    debuginfod: Debuginfod,
    started: Instant,
}

impl Worker {
    pub fn new(debuginfod: Debuginfod) -> Self {
        Self { symbolizer: symbolizer(), files: HashMap::new(), debuginfod, started: Instant::now() }
    }

    fn run(&mut self, job: Job, answers: &Sender<Vec<Answer>>, rest: &Receiver<()>) {
        for batch in job.addresses.chunks(BATCH) {
            let began = Instant::now();
            let named = catch_unwind(AssertUnwindSafe(|| self.batch(&job, batch))).unwrap_or_else(|_| {
                // Its caches may be half made.
                self.symbolizer = symbolizer();
                self.files.insert(job.module, Vec::new());
                Vec::new()
            });
            let mut named = named.into_iter();
            let out =
                batch.iter().map(|&(frame, _)| Answer { frame, symbol: named.next().flatten() }).collect();
            if answers.send(out).is_err() {
                return;
            }
            if self.started.elapsed() > EAGER {
                // Never answered: it times out, or is closed.
                let _ = rest.recv_timeout(began.elapsed() * REST);
            }
        }
    }

    fn batch(&mut self, job: &Job, batch: &[(FrameId, u64)]) -> Vec<Option<Symbol>> {
        let addresses: Vec<u64> = batch.iter().map(|b| b.1).collect();
        if job.kernel {
            return self.kernel(&addresses);
        }
        let Some(elf) = job.elf.as_deref() else { return Vec::new() };
        if !self.files.contains_key(&job.module) {
            let files = files(job, elf, &self.debuginfod);
            self.files.insert(job.module, files);
        }
        let Some(files) = self.files.get(&job.module) else { return Vec::new() };
        look_up(&self.symbolizer, files, elf, &addresses)
    }

    /// As the thread does it, for a caller that has the time. A panic over a hostile file ends nothing.
    pub fn look_up_all(&mut self, files: &[SymbolFile], elf: &Elf, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let look = || look_up(&self.symbolizer, files, elf, addresses);
        catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| {
            self.symbolizer = symbolizer();
            vec![None; addresses.len()]
        })
    }

    fn kernel(&self, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let kernel = Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        let found = self.symbolizer.symbolize(&Place::Kernel(kernel), Input::AbsAddr(addresses));
        let Ok(found) = found else { return Vec::new() };
        let near = |s: &Symbolized| s.as_sym().filter(|s| s.offset < MAX_KERNEL_FUNCTION).map(symbol);
        found.iter().map(near).collect()
    }
}

fn symbolizer() -> Symbolizer {
    // Debug files are looked for here, container roots included; blazesym gets no directories of its own.
    Symbolizer::builder()
        .enable_demangling(false)
        .enable_auto_reload(true)
        .set_debug_dirs(Some(Vec::<PathBuf>::new()))
        .build()
}

/// Look addresses up in files, one after the other for what is still missing.
fn look_up(
    symbolizer: &Symbolizer,
    files: &[SymbolFile],
    elf: &Elf,
    addresses: &[u64],
) -> Vec<Option<Symbol>> {
    let mut out = vec![None; addresses.len()];
    for file in files {
        fill_in(symbolizer, file, elf, addresses, &mut out);
    }
    for s in &mut out {
        *s = s.take().filter(|s| !s.function.is_empty());
    }
    out
}

/// Fill in what is still missing from a file: with debug information, then from its symbol table alone,
/// which is left where debug information cannot be read.
fn fill_in(
    symbolizer: &Symbolizer,
    file: &SymbolFile,
    elf: &Elf,
    addresses: &[u64],
    out: &mut [Option<Symbol>],
) {
    for dwarf in [true, false] {
        if dwarf && !file.dwarf {
            continue;
        }
        let named = |s: &Option<Symbol>| s.as_ref().is_some_and(|s| !s.function.is_empty());
        let missing = |i: &usize| out.get(*i).is_some_and(|s| !named(s));
        let missing: Vec<usize> = (0..addresses.len()).filter(missing).collect();
        let wanted: Vec<u64> = missing.iter().filter_map(|&i| addresses.get(i).copied()).collect();
        if wanted.is_empty() {
            return;
        }
        let mut source = ElfSource::new(&file.path);
        source.debug_syms = dwarf;
        let found = symbolizer.symbolize(&Place::Elf(source), Input::VirtOffset(wanted.as_slice()));
        let Ok(found) = found else { continue };
        for ((i, address), sym) in missing.into_iter().zip(&wanted).zip(&found) {
            let Some(sym) = sym.as_sym() else { continue };
            // A symbol without size reaches to the next one, but not into another section or far away.
            if sym.size.is_none() && (sym.offset >= MAX_SIZELESS || !elf.same_code(sym.addr, *address)) {
                continue;
            }
            let Some(slot) = out.get_mut(i) else { continue };
            let new = symbol(sym);
            match slot {
                // Debug information can know the lines of a function and not its name.
                Some(lines) => (lines.function, lines.offset) = (new.function, new.offset),
                None => *slot = Some(new),
            }
        }
    }
}

fn symbol(sym: &blazesym::symbolize::Sym) -> Symbol {
    let code = sym.code_info.as_deref();
    Symbol {
        function: demangle(sym.name.as_bytes()),
        offset: u32::try_from(sym.offset).unwrap_or(u32::MAX),
        file: code.map(|c| clean(c.to_path().as_os_str().as_encoded_bytes())).unwrap_or_default(),
        line: code.and_then(|c| c.line).unwrap_or(0),
        inlined: sym.inlined.iter().rev().take(MAX_INLINED).map(|f| demangle(f.name.as_bytes())).collect(),
    }
}

/// The files with a module's symbols: its separate debug file, then itself.
fn files(job: &Job, elf: &Elf, debuginfod: &Debuginfod) -> Vec<SymbolFile> {
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
            return Some(Self { path, _file: None, dwarf });
        }
        let kept = file.try_clone().ok()?;
        let path = format!("/proc/self/fd/{}", kept.as_raw_fd()).into();
        Some(Self { path, _file: Some(kept), dwarf })
    }

    /// The symbols compressed in a stripped file.
    pub fn mini(elf: &Elf, file: &File) -> Option<Self> {
        if elf.has_symtab {
            return None;
        }
        let bytes = super::mini::read(elf, file)?;
        Self::copy(bytes.as_slice(), bytes.len() as u64, false)
    }

    /// A file in memory with these bytes.
    fn copy(from: impl Read, len: u64, dwarf: bool) -> Option<Self> {
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
        std::io::copy(&mut from.take(len), &mut file).ok()?;
        file.flush().ok()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Some(Self { path, _file: Some(file), dwarf })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn worker() -> Worker {
        Worker::new(Debuginfod { cache: None, program: None })
    }

    /// A small program with debug information and C++ names, built once.
    fn program() -> Option<&'static [u8]> {
        static BYTES: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
        let build = || {
            let dir = tempfile::tempdir().ok()?;
            let source = dir.path().join("a.cc");
            let text = "namespace n { static inline int f(int a) { return a * a; } template <class T> \
                        __attribute__((noinline)) T g(T a) { return f(a) + 1; } } int main(int c, char **) { \
                        return n::g<int>(c); }";
            std::fs::write(&source, text).ok()?;
            let exe = dir.path().join("a");
            let built = Command::new("g++").args(["-O1", "-g", "-o"]).arg(&exe).arg(&source).status().ok()?;
            built.success().then(|| std::fs::read(exe).ok())?
        };
        BYTES.get_or_init(build).as_deref()
    }

    fn addresses(elf: &Elf) -> Vec<u64> {
        let (start, end) = elf.code.iter().copied().max_by_key(|c| c.1 - c.0).unwrap_or((0x1000, 0x1200));
        (start..end.min(start + 1024)).collect()
    }

    #[test]
    fn names_lines_and_inlined() {
        let Some(bytes) = program() else {
            println!("skipped: g++ is not installed");
            return;
        };
        let elf = Elf::read(bytes).unwrap();
        let file = SymbolFile::copy(bytes, bytes.len() as u64, true).unwrap();
        let found = worker().look_up_all(&[file], &elf, &addresses(&elf));
        let g: Vec<_> = found.iter().flatten().filter(|s| s.function == "int n::g<int>(int)").collect();
        let all: std::collections::BTreeSet<_> =
            found.iter().flatten().map(|s| (&s.function, &s.inlined)).collect();
        assert!(g.iter().any(|s| s.inlined == ["n::f(int)"] || s.inlined == ["f"]), "{all:#?}");
        assert!(g.iter().all(|s| s.file.ends_with("a.cc") && s.line > 0), "{g:#?}");
        assert!(found.iter().flatten().any(|s| s.function == "main"));
    }

    #[test]
    fn hidden_kernel_symbols_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kallsyms");
        std::fs::write(&path, "0000000000000000 T a\n0000000000000000 T b\n").unwrap();
        assert!(!kernel_symbols_readable(&path));
        std::fs::write(&path, "0000000000000000 A a\nffffffff81000000 T b\n").unwrap();
        assert!(kernel_symbols_readable(&path));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 10))]

        /// Damaged files give no panic to the caller and no endless search.
        #[test]
        fn damaged_files(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40), head in any::<bool>()) {
            let Some(bytes) = program() else { return Ok(()) };
            let sound = Elf::read(bytes).unwrap();
            let addresses = addresses(&sound);
            let mut bytes = bytes.to_vec();
            for (at, byte) in damage {
                // Half of the cases: the headers only, where it hurts most.
                let len = if head { 1024 } else { bytes.len() };
                bytes[at.index(len)] = byte;
            }
            let elf = Elf::read(bytes.as_slice()).unwrap_or(sound);
            let file = SymbolFile::copy(bytes.as_slice(), bytes.len() as u64, true).unwrap();
            worker().look_up_all(&[file], &elf, &addresses);
        }
    }
}
