//! Variables of a running process by name, and names for its addresses: from the symbol tables of its program and
//! libraries, or of their separate debug files.

use super::memory::{Area, areas};
use super::{FlagError, FlagPlace, FlagSpec};
use crate::procfs::{path_of, shown_by};
use crate::stacks::{debug_file, open_plain, readable};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind, elf};
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Longest symbol table read, entries.
const MAX_SYMBOLS: usize = 4_000_000;
/// Most variables of one size.
const MAX_POINTERS: usize = 100_000;
/// Files looked through.
const MAX_FILES: usize = 2000;

/// A binary that a process has mapped.
pub struct Binary {
    /// Its path, as the process sees it.
    pub path: String,
    /// What to add to an address of its file for one of the process.
    pub bias: u64,
    /// Its memory, in addresses of the process.
    extent: (u64, u64),
    file: PathBuf,
    build_id: Vec<u8>,
}

/// A variable found in a symbol table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name, demangled.
    pub name: String,
    /// Address in the process.
    pub address: u64,
    /// Bytes; 0 when not known.
    pub size: u64,
    /// Each thread has its own.
    pub thread_local: bool,
}

fn open(path: &Path) -> Option<ReadCache<File>> {
    Some(ReadCache::new(open_plain(path)?))
}

impl Binary {
    fn of(pid: u32, all: &[&Area]) -> Option<Self> {
        let first = all.first()?;
        let map = path_of(pid, &format!("map_files/{:x}-{:x}", first.start, first.end));
        let root = path_of(pid, &format!("root{}", first.path));
        let file = [map, root].into_iter().find(|p| open_plain(p).is_some())?;
        let cache = open(&file)?;
        let header = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let loads: Vec<(u64, u64, u64)> = header
            .program_headers(endian, &cache)
            .ok()?
            .iter()
            .filter(|p| p.p_type(endian) == elf::PT_LOAD)
            .map(|p| (p.p_offset(endian), p.p_vaddr(endian), p.p_memsz(endian)))
            .collect();
        let page = |n: u64| n & !0xfff;
        let bias = all.iter().find_map(|a| {
            let l = loads.iter().find(|l| page(l.0) == a.offset)?;
            Some(a.start.wrapping_sub(page(l.1)))
        })?;
        let low = loads.iter().map(|l| l.1).min()?;
        let high = loads.iter().map(|l| l.1.saturating_add(l.2)).max()?;
        let parsed = object::File::parse(&cache).ok()?;
        let build_id = parsed.build_id().ok().flatten().unwrap_or_default().to_vec();
        Some(Self {
            path: first.path.clone(),
            bias,
            extent: (bias.wrapping_add(low), bias.wrapping_add(high)),
            file,
            build_id,
        })
    }

    /// Is the address within its memory?
    pub fn has(&self, address: u64) -> bool {
        (self.extent.0..self.extent.1).contains(&address)
    }

    /// Its files with symbols: its own and the separate debug file.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut id = String::new();
        for b in &self.build_id {
            // Writing to a string does not fail.
            let _ = write!(id, "{b:02x}");
        }
        std::iter::once(self.file.clone()).chain(debug_file(&id)).collect()
    }

    /// Its variables of so many bytes.
    pub fn variables(&self, size: u64) -> Vec<Variable> {
        let mut out = Vec::new();
        self.each(|v| {
            if v.size == size && !v.thread_local && out.len() < MAX_POINTERS {
                out.push(v);
            }
        });
        out
    }

    /// Its variables.
    fn each(&self, mut take: impl FnMut(Variable)) {
        for path in self.files() {
            let Some(cache) = open(&path) else { continue };
            let Ok(file) = object::File::parse(&cache) else { continue };
            for s in file.symbols().chain(file.dynamic_symbols()).take(MAX_SYMBOLS) {
                let thread_local = s.kind() == SymbolKind::Tls;
                if !s.is_definition() || !(thread_local || s.kind() == SymbolKind::Data) {
                    continue;
                }
                let Ok(name) = s.name_bytes() else { continue };
                take(Variable {
                    name: readable(name),
                    address: s.address().wrapping_add(self.bias),
                    size: s.size(),
                    thread_local,
                });
            }
        }
    }
}

/// The binaries of a process, its program first.
///
/// # Errors
/// It is gone, or may not be looked at.
pub fn binaries(pid: u32) -> Result<Vec<Binary>, FlagError> {
    let all = areas(pid)?;
    let pid = shown_by(pid);
    let mut seen = Vec::new();
    let mut out = Vec::new();
    for a in &all {
        if a.file.1 == 0 || !a.path.starts_with('/') || seen.contains(&a.file) || seen.len() >= MAX_FILES {
            continue;
        }
        seen.push(a.file);
        let of_file: Vec<&Area> = all.iter().filter(|b| b.file == a.file).collect();
        out.extend(Binary::of(pid, &of_file));
    }
    let exe = std::fs::read_link(path_of(pid, "exe")).unwrap_or_default();
    out.sort_by_key(|b| Path::new(&b.path) != exe);
    Ok(out)
}

/// `done` for a variable `done.0`, as compilers name the statics of functions.
fn without_number(name: &str) -> Option<&str> {
    let (head, tail) = name.rsplit_once('.')?;
    (!tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit())).then_some(head)
}

/// A flag in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// Its address.
    pub address: u64,
    /// How many bytes are watched: 1, 2, 4 or 8.
    pub len: u8,
    /// Its name; empty for an address that no variable covers.
    pub name: String,
}

/// Where a flag is in a process.
///
/// # Errors
/// See [`FlagError`].
pub fn locate(pid: u32, spec: &FlagSpec) -> Result<Located, FlagError> {
    let (address, size, name) = match &spec.place {
        FlagPlace::Address(address) => {
            let named = name_of(pid, *address);
            let left = named.as_ref().map_or(0, |(v, offset)| v.size.saturating_sub(*offset));
            (*address, left, named.map(|(v, offset)| show(&v.name, offset)).unwrap_or_default())
        }
        FlagPlace::Symbol(name, offset) => {
            let v = find(pid, name)?;
            (v.address.wrapping_add(*offset), v.size.saturating_sub(*offset), show(&v.name, *offset))
        }
    };
    let areas = areas(pid)?;
    if !areas.iter().any(|a| a.has(address)) {
        return Err(FlagError::NotMapped { pid, address });
    }
    let len = match spec.len {
        Some(len) if address % u64::from(len) != 0 => return Err(FlagError::Unaligned { address, len }),
        Some(len) => len,
        // As much of the variable as the processor can watch at once; of an unknown one, a whole word.
        None => {
            let most = if size == 0 { 4 } else { size.min(8) };
            [8u8, 4, 2, 1]
                .into_iter()
                .find(|l| u64::from(*l) <= most && address % u64::from(*l) == 0)
                .unwrap_or(1)
        }
    };
    Ok(Located { address, len, name })
}

fn show(name: &str, offset: u64) -> String {
    if offset == 0 { name.to_owned() } else { format!("{name}+0x{offset:x}") }
}

fn find(pid: u32, name: &str) -> Result<Variable, FlagError> {
    for b in binaries(pid)? {
        let (mut exact, mut near): (Vec<Variable>, Vec<Variable>) = (Vec::new(), Vec::new());
        b.each(|v| {
            let into = if v.name == name {
                &mut exact
            } else if without_number(&v.name) == Some(name) {
                &mut near
            } else {
                return;
            };
            if !into.iter().any(|o| o.address == v.address) {
                into.push(v);
            }
        });
        let mut found = if exact.is_empty() { near } else { exact };
        if found.len() > 1 {
            let places: Vec<String> = found.iter().take(8).map(|v| format!("0x{:x}", v.address)).collect();
            return Err(FlagError::Ambiguous { pid, name: name.to_owned(), places: places.join(", ") });
        }
        if let Some(v) = found.pop() {
            return if v.thread_local { Err(FlagError::ThreadLocal(name.to_owned())) } else { Ok(v) };
        }
    }
    Err(FlagError::NoSymbol { pid, name: name.to_owned() })
}

/// The variable that covers an address, and how far into it that is.
pub fn name_of(pid: u32, address: u64) -> Option<(Variable, u64)> {
    let binaries = binaries(pid).ok()?;
    let b = binaries.iter().find(|b| b.has(address))?;
    let mut best: Option<(Variable, u64)> = None;
    b.each(|v| {
        let offset = address.wrapping_sub(v.address);
        // The smallest that covers it: a member of a larger one has its own name at times.
        if !v.thread_local && offset < v.size.max(1) && best.as_ref().is_none_or(|o| v.size < o.0.size) {
            best = Some((v, offset));
        }
    });
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    static FLAG: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(7);
    const NAME: &str = "pg_tracer::flags::variables::tests::FLAG";

    #[test]
    fn a_variable_of_this_process() {
        let pid = std::process::id();
        assert_eq!(FLAG.load(std::sync::atomic::Ordering::Relaxed), 7);
        let at = &raw const FLAG as u64;
        let want = Located { address: at, len: 4, name: NAME.into() };
        assert_eq!(locate(pid, &NAME.parse().unwrap()), Ok(want.clone()));
        assert_eq!(locate(pid, &format!("0x{at:x}").parse().unwrap()), Ok(want));
        let second = locate(pid, &format!("{NAME}+2").parse().unwrap()).unwrap();
        assert_eq!((second.address, second.len, second.name), (at + 2, 2, format!("{NAME}+0x2")));
        let wrong = locate(pid, &format!("{NAME}+2:4").parse().unwrap());
        assert!(matches!(wrong, Err(FlagError::Unaligned { .. })), "{wrong:?}");
    }

    #[test]
    fn what_is_not_there() {
        let pid = std::process::id();
        let none = locate(pid, &"pg_no_such_variable".parse().unwrap()).unwrap_err();
        assert!(none.to_string().contains("pg_no_such_variable"), "{none}");
        assert!(matches!(locate(pid, &"0x10".parse().unwrap()), Err(FlagError::NotMapped { .. })));
        assert!(matches!(binaries(u32::MAX - 1), Err(FlagError::NoSuchProcess(_))));
    }

    #[test]
    fn statics_of_functions() {
        assert_eq!(without_number("done.0"), Some("done"));
        assert_eq!(without_number("done"), None);
        assert_eq!(without_number("a.b"), None);
    }
}
