//! Functions of a binary by name: from its symbol tables, from the symbols compressed in it, and from its separate
//! debug file.

use super::binaries::Binary;
use super::debugfile::{self, Debuginfod};
use super::elf::{Bytes, Elf};
use super::module::open_plain;
use super::text::{clean, demangle};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Most functions of one binary.
const MAX: usize = 2_000_000;
/// Most names of one function: each new one is compared with those that are there.
const MAX_ALIASES: usize = 1_000;
/// Most bytes of the names of debug information that are looked through.
const MAX_STRINGS: u64 = 512 << 20;

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Names of it, as its source writes them.
    pub names: Vec<String>,
    /// Address of its first byte, as the file counts.
    pub address: u64,
    /// How many bytes it has; 0 when that is not known.
    pub size: u64,
    /// It is the code that chooses the function when the program starts.
    pub indirect: bool,
}

impl Binary {
    /// Its functions in order of their addresses.
    pub fn functions(&self) -> Vec<Named> {
        let mut all: BTreeMap<u64, Named> = BTreeMap::new();
        let mut count = 0;
        let mut take = |name: &[u8], address: u64, size: u64, indirect: bool| {
            // `name@@VERSION`, as some linkers write it.
            let name = name.split(|&b| b == b'@').next().unwrap_or_default();
            if count >= MAX || self.offset(address).is_none() || name.is_empty() {
                return;
            }
            count += 1;
            let new = || Named { names: Vec::new(), address, size, indirect };
            let function = all.entry(address).or_insert_with(new);
            function.size = function.size.max(size);
            let (plain, readable) = (clean(name), demangle(name));
            for name in [readable, plain] {
                if function.names.len() < MAX_ALIASES && !function.names.contains(&name) {
                    function.names.push(name);
                }
            }
        };
        let (own, file) = (self.elf(), self.opened());
        tables(own, file, &mut take);
        if let Some(packed) = super::mini::read(own, file).filter(|_| !own.has_symtab)
            && let Some(elf) = Elf::read(packed.as_slice())
        {
            tables(&elf, packed.as_slice(), &mut take);
        }
        if let Some((elf, file)) = self.debug_file() {
            tables(&elf, &file, &mut take);
        }
        all.into_values().collect()
    }

    /// Does its debug information know this name? Then a function of it without code was compiled into its callers.
    pub fn mentions(&self, name: &str) -> bool {
        let mentions = |elf: &Elf, file: &File| -> bool {
            let strings = elf.place_of(".debug_str").filter(|p| p.1 <= MAX_STRINGS);
            let Some(bytes) = strings.and_then(|(offset, size)| file.at(offset, size)) else { return false };
            bytes.split(|&b| b == 0).any(|s| s == name.as_bytes())
        };
        mentions(self.elf(), self.opened())
            || self.debug_file().is_some_and(|(elf, file)| mentions(&elf, &file))
    }

    /// Where the function begins that has the code at an address, by the unwind tables.
    pub fn begin_of(&self, address: u64) -> Option<u64> {
        Some(self.elf().cfi(self.opened()).bounds(address)?.start)
    }

    /// Begin and end of the code of each of its functions, by the unwind tables.
    pub fn bounds(&self) -> Vec<std::ops::Range<u64>> {
        self.elf().cfi(self.opened()).all_bounds().collect()
    }

    /// Does it have more than the symbols that it shares with other binaries?
    pub fn has_symbols(&self) -> bool {
        self.elf().has_symtab
            || self.elf().place_of(".gnu_debugdata").is_some()
            || self.debug_file().is_some()
    }

    fn debug_file(&self) -> Option<(Elf, File)> {
        let own = self.elf();
        let dirs = debugfile::directories(None);
        let path = debugfile::by_build_id(&dirs, &own.build_id)
            .or_else(|| debugfile::by_link(&dirs, Path::new("/"), &self.path, own.debug_link.as_ref()?))
            .or_else(|| Debuginfod::from_env().find(&own.build_id))?;
        let file = open_plain(&path)?;
        Some((Elf::read(&file)?, file))
    }
}

fn tables(elf: &Elf, src: &(impl Bytes + ?Sized), take: &mut impl FnMut(&[u8], u64, u64, bool)) {
    for (table, names) in [(".symtab", ".strtab"), (".dynsym", ".dynstr")] {
        // Without one there is nothing to take.
        let _ = elf.functions(src, table, names, take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn pg_tui_named_landmark(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }

    #[test]
    fn functions_of_this_process() {
        assert_eq!(pg_tui_named_landmark(1), 2);
        let own = Binary::of_process(std::process::id());
        let exe = std::env::current_exe().unwrap();
        let program = own.iter().find(|b| b.path == exe.to_str().unwrap()).unwrap();
        let all = program.functions();
        let found: Vec<&Named> =
            all.iter().filter(|f| f.names.iter().any(|n| n.ends_with("pg_tui_named_landmark"))).collect();
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert!(one.size > 0 && !one.indirect);
        assert_eq!(program.begin_of(one.address + 1), Some(one.address));
        let libc = own.iter().find(|b| b.path.contains("/libc.so")).unwrap();
        let libc = libc.functions();
        let is = |name: &str, indirect| {
            libc.iter().any(|f| f.indirect == indirect && f.names.iter().any(|n| n == name))
        };
        assert!(is("poll", false) && is("memcpy", true), "{}", libc.len());
    }
}
