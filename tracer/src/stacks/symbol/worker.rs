#![allow(unsafe_code)] // malloc_trim has no safe form in the libraries at hand
//! Looks addresses up in the files of their modules, of which it keeps a bounded part open.

use super::file::{SymbolFile, files};
use super::loops::turns;
use super::{Answer, Found, Job, REST, Symbol};
use crate::stacks::debugfile::Debuginfod;
use crate::stacks::elf::Elf;
use crate::stacks::module::Source;
use crate::stacks::text::{clean, demangle};
use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf as ElfSource, Kernel, Source as Place};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use pg_event::{FrameId, SIGNAL_RETURN};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

/// Addresses per answer: what a wait cannot be shorter than.
const BATCH: usize = 64;
/// Farthest from its symbol that a kernel address is believed to be: kallsyms has no sizes.
const MAX_KERNEL_FUNCTION: usize = 256 << 10;
/// Farthest from a symbol without size.
const MAX_SIZELESS: usize = 64 << 10;
/// Most bytes of files that are mapped at a time to find names, debug information included. What is read from them
/// takes about as much memory again.
const MAX_MAPPED: u64 = 128 << 20;
/// Most functions inlined at one address that are kept.
const MAX_INLINED: usize = 64;

/// Symbol files of a module, the best first, and what was read of them.
struct Opened {
    files: Vec<SymbolFile>,
    symbolizer: Symbolizer,
    bytes: u64,
    used: u64,
}

/// What the thread owns.
pub(in crate::stacks) struct Worker {
    /// For the kernel, and for callers with files of their own.
    symbolizer: Symbolizer,
    /// By module: those used last, as long as they are not too large together.
    opened: HashMap<u32, Opened>,
    /// Counts uses.
    clock: u64,
    /// Questions about files so large that they wait until somebody waits for the names.
    pub(super) large: Vec<Job>,
    debuginfod: Debuginfod,
}

impl Worker {
    pub fn new(debuginfod: Debuginfod) -> Self {
        Self { symbolizer: symbolizer(), opened: HashMap::new(), clock: 0, large: Vec::new(), debuginfod }
    }

    /// Bytes of files that are open now.
    fn mapped(&self) -> u64 {
        self.opened.values().map(|o| o.bytes).sum()
    }

    /// Close the files used longest ago until `more` bytes can be opened, or none is left.
    fn make_room(&mut self, more: u64) {
        let before = self.opened.len();
        while !self.opened.is_empty() && self.mapped() + more > MAX_MAPPED {
            let oldest = self.opened.iter().min_by_key(|o| o.1.used).map(|o| *o.0);
            oldest.and_then(|module| self.opened.remove(&module));
        }
        if self.opened.len() < before {
            trim();
        }
    }

    /// Open the files of a job's module, if they are not. Returns their size.
    fn open(&mut self, job: &Job, elf: &Elf) -> u64 {
        self.clock += 1;
        if let Some(o) = self.opened.get_mut(&job.module) {
            o.used = self.clock;
            return o.bytes;
        }
        let files = files(job, elf, &self.debuginfod);
        self.keep(job.module, files)
    }

    fn keep(&mut self, module: u32, files: Vec<SymbolFile>) -> u64 {
        let bytes = files.iter().map(|f| f.bytes).sum();
        self.make_room(bytes);
        self.opened.insert(module, Opened { files, symbolizer: symbolizer(), bytes, used: self.clock });
        bytes
    }

    /// Answer a question, in parts.
    pub(super) fn run(&mut self, job: Job, answers: &Sender<Vec<Answer>>, rest: &Receiver<()>) {
        if let Some(elf) = job.elf.clone().filter(|_| !job.kernel)
            && self.is_large(&job, &elf, rest)
        {
            self.large.push(job);
            return;
        }
        for batch in job.addresses.chunks(BATCH) {
            let began = Instant::now();
            let named = catch_unwind(AssertUnwindSafe(|| self.batch(&job, batch))).unwrap_or_else(|_| {
                // Its caches may be half made.
                self.symbolizer = symbolizer();
                self.opened.remove(&job.module);
                self.keep(job.module, Vec::new());
                Vec::new()
            });
            let mut named = named.into_iter();
            let out = batch
                .iter()
                .map(|&(frame, address)| Answer {
                    frame,
                    module: job.id,
                    address,
                    found: named.next().flatten(),
                })
                .collect();
            if answers.send(out).is_err() {
                return;
            }
            // Never answered: it times out, or is closed.
            let _ = rest.recv_timeout(began.elapsed() * REST);
        }
    }

    /// Is nobody waiting for the names, and are the module's files more than is to be mapped at a time?
    fn is_large(&mut self, job: &Job, elf: &Elf, rest: &Receiver<()>) -> bool {
        if !matches!(rest.try_recv(), Err(TryRecvError::Empty)) {
            return false;
        }
        if self.large.iter().any(|j| j.module == job.module) {
            return true;
        }
        let open = || self.open(job, elf);
        // Headers of a hostile file are read.
        let bytes = catch_unwind(AssertUnwindSafe(open)).unwrap_or(0);
        let large = bytes > MAX_MAPPED;
        if large {
            self.opened.remove(&job.module);
        }
        large
    }

    fn batch(&mut self, job: &Job, batch: &[(FrameId, u64)]) -> Vec<Option<Found>> {
        let addresses: Vec<u64> = batch.iter().map(|b| b.1).collect();
        if job.loops {
            let Some(elf) = job.elf.as_deref() else { return Vec::new() };
            self.open(job, elf);
            let files = self.opened.get(&job.module).map_or(&[][..], |o| &o.files);
            return turns(elf, &job.source, files, &addresses)
                .into_iter()
                .map(|t| Some(Found::Turn(t)))
                .collect();
        }
        self.names(job, &addresses).into_iter().map(|s| s.map(Found::Symbol)).collect()
    }

    fn names(&mut self, job: &Job, addresses: &[u64]) -> Vec<Option<Symbol>> {
        if job.kernel {
            return self.kernel(addresses);
        }
        let Some(elf) = job.elf.as_deref() else { return Vec::new() };
        self.open(job, elf);
        let Some(o) = self.opened.get(&job.module) else { return Vec::new() };
        let mut found = look_up(&o.symbolizer, &o.files, elf, addresses);
        for (slot, address) in found.iter_mut().zip(addresses).filter(|x| x.0.is_none()) {
            *slot = trampoline(elf, &job.source, *address);
        }
        found
    }

    /// As the thread does it, for a caller that has the time. A panic over a hostile file ends nothing.
    pub fn look_up_all(&mut self, files: &[SymbolFile], elf: &Elf, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let look = || look_up(&self.symbolizer, files, elf, addresses);
        let found = catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| vec![None; addresses.len()]);
        // These files are not asked again: what was read of them need not be kept.
        self.symbolizer = symbolizer();
        found
    }

    /// Names of addresses in the kernel that runs. A panic ends nothing.
    pub fn look_up_kernel(&mut self, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let found = catch_unwind(AssertUnwindSafe(|| self.kernel(addresses))).unwrap_or_default();
        self.symbolizer = symbolizer();
        found
    }

    fn kernel(&self, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let kernel = Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        let found = self.symbolizer.symbolize(&Place::Kernel(kernel), Input::AbsAddr(addresses));
        let Ok(found) = found else { return Vec::new() };
        let near = |s: &Symbolized| s.as_sym().filter(|s| s.offset < MAX_KERNEL_FUNCTION).map(symbol);
        found.iter().map(near).collect()
    }
}

/// The place to which the handlers of signals return, by its code, which the kernel demands: stripped C libraries have no
/// name for it, and it tells that the functions before it in a stack are a handler's.
fn trampoline(elf: &Elf, source: &Source, address: u64) -> Option<Symbol> {
    // `mov $15, %rax` (or `%eax`) and `syscall`: rt_sigreturn(2) of x86-64.
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let (at, _) = elf.place(address)?;
    let code = source.bytes(at, LONG.len() as u64)?;
    let is = code == LONG || code.starts_with(&SHORT);
    is.then(|| Symbol { function: SIGNAL_RETURN.into(), ..Symbol::default() })
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

/// Gives back to the kernel what was freed.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) only gives free memory back.
    unsafe {
        libc::malloc_trim(0);
    }
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

    /// The C library's own, which has no symbol for it where it is stripped.
    #[test]
    fn the_trampoline_of_signals_is_known_by_its_code() {
        let code = [0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0x90, 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
        let Some(bytes) = program() else { return };
        let elf = Elf::read(bytes).unwrap();
        let (start, _) = elf.code[0];
        let (at, _) = elf.place(start).unwrap();
        let mut bytes = bytes.to_vec();
        bytes[at as usize..at as usize + code.len()].copy_from_slice(&code);
        let source = Source::Image(bytes);
        let named = |n| trampoline(&elf, &source, start + n).map(|s| s.function);
        assert_eq!(named(1).as_deref(), Some(SIGNAL_RETURN));
        assert_eq!(named(11).as_deref(), Some(SIGNAL_RETURN));
        assert_eq!((named(0), named(2), named(10)), (None, None, None));
    }

    /// Files are mapped together only up to a limit; those used longest ago are closed first, and one that is
    /// larger by itself is the only one then.
    #[test]
    fn what_is_mapped_is_bounded() {
        let file = |bytes| SymbolFile { path: PathBuf::from("/nowhere"), bytes, _file: None, dwarf: false };
        let mut w = worker();
        for module in 0..1000 {
            w.clock += 1;
            w.keep(module, vec![file(MAX_MAPPED / 40), file(MAX_MAPPED / 40)]);
            assert!(w.mapped() <= MAX_MAPPED);
            // The first one is asked again and again.
            w.clock += 1;
            let clock = w.clock;
            w.opened.get_mut(&0).expect("in use").used = clock;
        }
        assert_eq!(w.opened.len(), 20);
        assert!(w.opened.contains_key(&999) && !w.opened.contains_key(&500));
        w.keep(1000, vec![file(3 * MAX_MAPPED)]);
        assert_eq!(w.opened.keys().collect::<Vec<_>>(), [&1000]);
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
