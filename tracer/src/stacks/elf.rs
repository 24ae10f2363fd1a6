//! Bounded reading of what unwinding needs from an ELF file (System V gABI; LSB for `.eh_frame_hdr`).
//!
//! Files are read with pread instead of being mapped: the owner of a mapped file can truncate it, and
//! the SIGBUS that follows would end a recorder that runs as root. Only headers and unwind sections are
//! read, a few hundred kilobytes of a typical library, once per file.

use super::cfi::Cfi;
use super::text::clean;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Largest section taken; the largest browsers have unwind tables of some 20 MB.
const MAX_SECTION: u64 = 128 << 20;
/// So little is just read.
const SMALL: u64 = 64 << 10;
/// Most program and section headers taken.
const MAX_HEADERS: usize = 1 << 16;
/// Most segments, sections of code and notes that are kept: they are gone through again and again, and programs have ten.
const MAX_KEPT: usize = 256;
/// A name is not looked at any further: of many that are not ended, each would lead through all names of the file.
const MAX_NAME: usize = 4 * 1024 + 1;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_W: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;

/// Where the bytes of an ELF image come from.
pub(super) trait Bytes {
    /// `len` bytes at `offset`, `None` when they are not all there.
    fn at(&self, offset: u64, len: u64) -> Option<Vec<u8>>;
    /// Length of the whole.
    fn size(&self) -> u64;
}

impl Bytes for File {
    fn at(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        // The length is checked against the size of the file before much memory is taken.
        if len > MAX_SECTION || (len > SMALL && offset.checked_add(len)? > self.size()) {
            return None;
        }
        let mut buf = vec![0; usize::try_from(len).ok()?];
        self.read_exact_at(&mut buf, offset).ok()?;
        Some(buf)
    }

    fn size(&self) -> u64 {
        self.metadata().map_or(0, |m| m.len())
    }
}

impl Bytes for [u8] {
    fn at(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.get(start..end).map(<[u8]>::to_vec)
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}

/// A PT_LOAD segment.
#[derive(Clone, Copy, Debug)]
struct Load {
    offset: u64,
    file_size: u64,
    address: u64,
    flags: u32,
}

/// A section header, as far as used.
#[derive(Clone, Debug, Default)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
}

/// What is known of an ELF file without its unwind tables.
#[derive(Debug, Default)]
pub(super) struct Elf {
    loads: Vec<Load>,
    sections: Vec<(String, Section)>,
    eh_frame_hdr_segment: Option<(u64, u64, u64)>,
    /// GNU build-id in hexadecimal, empty if none.
    pub build_id: String,
    /// Name and CRC-32 of the separate debug file (`.gnu_debuglink`).
    pub debug_link: Option<(String, u32)>,
    /// Address ranges of sections with code: a symbol without size reaches no further than its section.
    pub code: Vec<(u64, u64)>,
    /// A full symbol table is in it.
    pub has_symtab: bool,
    /// Line tables and functions in DWARF are in it.
    pub has_dwarf: bool,
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(b.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(super) fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(super) fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The name that begins at a place of a section of names.
pub(super) fn name_at(names: &[u8], at: u32) -> &[u8] {
    let from = names.get(at as usize..).unwrap_or_default();
    let name = from.get(..MAX_NAME).unwrap_or(from);
    name.split(|&b| b == 0).next().unwrap_or_default()
}

impl Elf {
    /// Read the headers. `None` when it is not a 64-bit x86 ELF file.
    pub fn read(src: &(impl Bytes + ?Sized)) -> Option<Self> {
        let h = src.at(0, 64)?;
        // ELFCLASS64, ELFDATA2LSB, EM_X86_64.
        if !h.starts_with(b"\x7fELF\x02\x01") || u16_at(&h, 18)? != 62 {
            return None;
        }
        let mut elf = Self::default();
        let table = |offset: u64, size: u16, count: usize| {
            let bytes = src.at(offset, (size as u64).checked_mul(count as u64)?)?;
            Some(bytes.chunks_exact(size.max(1) as usize).map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let (phoff, phsize, phnum) = (u64_at(&h, 32)?, u16_at(&h, 54)?, u16_at(&h, 56)? as usize);
        let mut notes = Vec::new();
        for p in table(phoff, phsize, phnum).unwrap_or_default() {
            elf.program_header(&p, &mut notes);
        }
        elf.read_sections(src, &h, &mut notes);
        for (offset, size) in notes {
            if elf.build_id.is_empty() {
                elf.build_id =
                    src.at(offset, size.min(64 << 10)).and_then(|n| build_id(&n)).unwrap_or_default();
            }
        }
        elf.debug_link = elf.section(".gnu_debuglink").and_then(|s| debug_link(&src.at(s.offset, s.size)?));
        elf.has_symtab = elf.section(".symtab").is_some();
        elf.has_dwarf = elf.section(".debug_info").is_some() || elf.section(".zdebug_info").is_some();
        Some(elf)
    }

    fn program_header(&mut self, p: &[u8], notes: &mut Vec<(u64, u64)>) -> Option<()> {
        let (kind, flags) = (u32_at(p, 0)?, u32_at(p, 4)?);
        let (offset, address, file_size) = (u64_at(p, 8)?, u64_at(p, 16)?, u64_at(p, 32)?);
        match kind {
            PT_LOAD if self.loads.len() < MAX_KEPT => {
                self.loads.push(Load { offset, file_size, address, flags });
            }
            PT_NOTE if notes.len() < MAX_KEPT => notes.push((offset, file_size)),
            PT_GNU_EH_FRAME => self.eh_frame_hdr_segment = Some((offset, address, file_size)),
            _ => {}
        }
        Some(())
    }

    fn read_sections(
        &mut self,
        src: &(impl Bytes + ?Sized),
        h: &[u8],
        notes: &mut Vec<(u64, u64)>,
    ) -> Option<()> {
        let (shoff, shsize) = (u64_at(h, 40)?, u16_at(h, 58)? as u64);
        let (mut count, mut names) = (u16_at(h, 60)? as u64, u16_at(h, 62)? as u32);
        if shsize < 64 || shoff == 0 {
            return None;
        }
        let first = src.at(shoff, shsize)?;
        if count == 0 {
            count = u64_at(&first, 32)?;
        }
        if names == 0xffff {
            names = u32_at(&first, 40)?;
        }
        if count as usize > MAX_HEADERS {
            return None;
        }
        let bytes = src.at(shoff, shsize.checked_mul(count)?)?;
        let all: Vec<Section> = bytes.chunks_exact(shsize as usize).filter_map(section).collect();
        let table = all.get(names as usize)?;
        let strings = src.at(table.offset, table.size.min(16 << 20))?;
        for s in all {
            if s.kind == SHT_NOTE && notes.len() < MAX_KEPT {
                notes.push((s.offset, s.size));
            }
            if s.flags & SHF_EXECINSTR != 0 && self.code.len() < MAX_KEPT {
                self.code.push((s.address, s.address.saturating_add(s.size)));
            }
            let name = name_at(&strings, s.name);
            // Of the many sections only these few are ever asked for.
            let wanted: [&[u8]; 17] = [
                b".rela.plt",
                b".rela.dyn",
                b".dynsym",
                b".dynstr",
                b".strtab",
                b".rodata",
                b".eh_frame",
                b".eh_frame_hdr",
                b".debug_frame",
                b".zdebug_info",
                b".debug_info",
                b".symtab",
                b".text",
                b".gnu_debuglink",
                b".gnu_debugdata",
                b".note.stapsdt",
                b".stapsdt.base",
            ];
            let first = self.sections.iter().all(|(n, _)| n.as_bytes() != name);
            if wanted.contains(&name) && first && s.kind != SHT_NOBITS {
                self.sections.push((clean(name), s));
            }
        }
        Some(())
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|(n, _)| n == name).map(|(_, s)| s)
    }

    /// Offset and length of a section in the file.
    pub fn place_of(&self, name: &str) -> Option<(u64, u64)> {
        self.section(name).filter(|s| s.kind != SHT_NOBITS).map(|s| (s.offset, s.size))
    }

    /// Where a section is in memory, as the file counts.
    pub fn address_of_section(&self, name: &str) -> Option<u64> {
        self.section(name).map(|s| s.address)
    }

    /// The functions that a table of symbols defines: name, address, size, and whether it is code that finds the
    /// function when the program starts (an indirect function).
    pub fn functions(
        &self,
        src: &(impl Bytes + ?Sized),
        table: &str,
        names: &str,
        take: &mut impl FnMut(&[u8], u64, u64, bool),
    ) -> Option<()> {
        const FUNC: u8 = 2;
        const IFUNC: u8 = 10;
        self.typed(src, table, names, &mut |kind, name, at, size| {
            if matches!(kind, FUNC | IFUNC) {
                take(name, at, size, kind == IFUNC);
            }
        })
    }

    /// The symbols that a table defines: name, address, size.
    pub fn symbols(
        &self,
        src: &(impl Bytes + ?Sized),
        table: &str,
        names: &str,
        take: &mut impl FnMut(&[u8], u64, u64),
    ) -> Option<()> {
        self.typed(src, table, names, &mut |_, name, at, size| take(name, at, size))
    }

    /// The same with their types.
    fn typed(
        &self,
        src: &(impl Bytes + ?Sized),
        table: &str,
        names: &str,
        take: &mut impl FnMut(u8, &[u8], u64, u64),
    ) -> Option<()> {
        const ENTRY: usize = 24;
        let read = |name: &str| self.place_of(name).and_then(|(offset, size)| src.at(offset, size));
        let (symbols, names) = (read(table)?, read(names)?);
        for s in symbols.chunks_exact(ENTRY) {
            let defined = u16_at(s, 6)? != 0;
            let name = name_at(&names, u32_at(s, 0)?);
            if defined && !name.is_empty() {
                take(s[4] & 15, name, u64_at(s, 8)?, u64_at(s, 16)?);
            }
        }
        Some(())
    }

    /// The variables that a table of symbols defines, but those that each thread has its own of: name, address, size.
    pub fn variables(
        &self,
        src: &(impl Bytes + ?Sized),
        table: &str,
        names: &str,
        take: &mut impl FnMut(&[u8], u64, u64),
    ) -> Option<()> {
        const OBJECT: u8 = 1;
        self.typed(src, table, names, &mut |kind, name, at, size| {
            if kind == OBJECT {
                take(name, at, size);
            }
        })
    }

    /// Virtual address of a byte of the file. Where segments share a page of the file, the executable
    /// one wins.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let covers = |l: &&Load| offset >= l.offset && offset - l.offset < l.file_size;
        let mut found = self.loads.iter().filter(covers);
        let l = found.clone().find(|l| l.flags & 1 != 0).or_else(|| found.next())?;
        l.address.checked_add(offset - l.offset)
    }

    /// Where in the file the byte of an address is, and how many bytes of its segment follow, itself counted.
    pub fn place(&self, address: u64) -> Option<(u64, u64)> {
        let l = self.segment(address)?;
        Some((l.offset.checked_add(address - l.address)?, l.file_size - (address - l.address)))
    }

    /// Can the program write at an address?
    pub fn writable(&self, address: u64) -> bool {
        self.segment(address).is_none_or(|l| l.flags & PF_W != 0)
    }

    fn segment(&self, address: u64) -> Option<&Load> {
        self.loads.iter().find(|l| address >= l.address && address - l.address < l.file_size)
    }

    /// Is the address within a section of code (or are the sections not known)?
    pub fn same_code(&self, a: u64, b: u64) -> bool {
        self.code.is_empty() || self.code.iter().any(|&(s, e)| (s..e).contains(&a) && (s..e).contains(&b))
    }

    /// Read the unwind tables.
    pub fn cfi(&self, src: &(impl Bytes + ?Sized)) -> Cfi {
        let plain = |s: &Section| Some((s.address, src.at(s.offset, s.size)?));
        let mut hdr = self.section(".eh_frame_hdr").and_then(plain);
        let mut eh = self.section(".eh_frame").and_then(plain);
        if hdr.is_none() {
            hdr = self.eh_frame_hdr_segment.and_then(|(o, a, n)| Some((a, src.at(o, n)?)));
        }
        if let (None, Some((address, bytes))) = (&eh, &hdr) {
            // No section headers: the table says where the frames begin, its segment where they end.
            eh = Cfi::eh_frame_address(*address, bytes).and_then(|a| {
                let l = self.loads.iter().find(|l| a >= l.address && a - l.address < l.file_size)?;
                let into = a - l.address;
                Some((a, src.at(l.offset.checked_add(into)?, l.file_size - into)?))
            });
        }
        let debug = self.section(".debug_frame").and_then(|s| {
            let bytes = src.at(s.offset, s.size)?;
            if s.flags & SHF_COMPRESSED != 0 { decompress(&bytes) } else { Some(bytes) }
        });
        let text = self.section(".text").map_or(0, |s| s.address);
        Cfi::new(text, hdr, eh, debug)
    }
}

fn section(s: &[u8]) -> Option<Section> {
    Some(Section {
        name: u32_at(s, 0)?,
        kind: u32_at(s, 4)?,
        flags: u64_at(s, 8)?,
        address: u64_at(s, 16)?,
        offset: u64_at(s, 24)?,
        size: u64_at(s, 32)?,
    })
}

/// A section with SHF_COMPRESSED (Elf64_Chdr).
fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    use object::read::{CompressedData, CompressionFormat};
    let format = match u32_at(bytes, 0)? {
        1 => CompressionFormat::Zlib,
        2 => CompressionFormat::Zstandard,
        _ => return None,
    };
    let uncompressed_size = u64_at(bytes, 8)?;
    if uncompressed_size > MAX_SECTION {
        return None;
    }
    let data = CompressedData { format, data: bytes.get(24..)?, uncompressed_size };
    data.decompress().ok().map(std::borrow::Cow::into_owned)
}

/// The descriptor of the NT_GNU_BUILD_ID note, in hexadecimal.
fn build_id(notes: &[u8]) -> Option<String> {
    let mut at = 0;
    loop {
        let (name, desc) = (u32_at(notes, at)? as usize, u32_at(notes, at + 4)? as usize);
        let kind = u32_at(notes, at + 8)?;
        let body = at.checked_add(12)?;
        let desc_at = body.checked_add(name.checked_next_multiple_of(4)?)?;
        let next = desc_at.checked_add(desc.checked_next_multiple_of(4)?)?;
        if kind == 3 && notes.get(body..body.checked_add(name)?) == Some(b"GNU\0".as_slice()) && desc <= 64 {
            let id = notes.get(desc_at..desc_at.checked_add(desc)?)?;
            return Some(hex(id));
        }
        at = next;
    }
}

/// Build-id of the `/sys/kernel/notes` form.
pub(super) fn notes_build_id(notes: &[u8]) -> Option<String> {
    build_id(notes)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Name and checksum of `.gnu_debuglink`. A name with a slash would lead elsewhere: refused.
fn debug_link(bytes: &[u8]) -> Option<(String, u32)> {
    let end = bytes.iter().position(|&b| b == 0)?;
    let name = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let crc = u32_at(bytes, (end + 1).checked_next_multiple_of(4)?)?;
    (!name.is_empty() && !name.contains('/') && name != "..").then(|| (name.to_owned(), crc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn own_binary() {
        let exe = own();
        let elf = Elf::read(exe.as_slice()).unwrap();
        assert!(elf.has_symtab && elf.has_dwarf);
        assert!(elf.code.len() >= 2, "{:?}", elf.code);
        let text = elf.section(".text").unwrap();
        assert_eq!(elf.address_of(text.offset), Some(text.address));
        assert!(elf.same_code(text.address, text.address + 1));
    }

    #[test]
    fn own_build_id_is_as_readelf_says() {
        let Ok(out) = std::process::Command::new("readelf").args(["-n", "/bin/sh"]).output() else {
            println!("skipped: readelf is not installed");
            return;
        };
        let out = String::from_utf8_lossy(&out.stdout);
        let want = out.lines().find_map(|l| l.trim().strip_prefix("Build ID: "));
        let elf = Elf::read(&File::open("/bin/sh").unwrap()).unwrap();
        assert_eq!(want.unwrap_or(""), elf.build_id);
    }

    #[test]
    fn names_that_are_not_ended_are_cut() {
        assert_eq!(name_at(b"\0main\0", 1), b"main");
        assert_eq!(name_at(b"main", 2), b"in");
        assert_eq!(name_at(b"main", 5), b"");
        assert_eq!(name_at(&[b'x'; 2 * MAX_NAME], 7).len(), MAX_NAME);
    }

    /// What is gone through again and again is bounded, whatever the headers say.
    #[test]
    fn of_endless_segments_and_sections_some_are_kept() {
        const MANY: u16 = 4 * MAX_KEPT as u16;
        let mut b = vec![0; 64 + usize::from(MANY) * (56 + 64)];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        let (segments, sections) = (64usize, 64 + usize::from(MANY) * 56);
        put(0, b"\x7fELF\x02\x01");
        put(18, &62u16.to_le_bytes());
        put(32, &(segments as u64).to_le_bytes());
        put(40, &(sections as u64).to_le_bytes());
        for (at, value) in [(54, 56), (56, MANY), (58, 64), (60, MANY)] {
            put(at, &value.to_le_bytes());
        }
        for i in 0..usize::from(MANY) {
            put(segments + i * 56, &PT_LOAD.to_le_bytes());
            put(sections + i * 64 + 4, &SHT_NOTE.to_le_bytes());
            put(sections + i * 64 + 8, &SHF_EXECINSTR.to_le_bytes());
        }
        let elf = Elf::read(b.as_slice()).unwrap();
        assert_eq!((elf.loads.len(), elf.code.len()), (MAX_KEPT, MAX_KEPT));
    }

    #[test]
    fn links_out_of_the_directory_are_refused() {
        assert_eq!(debug_link(b"a.debug\0\x01\0\0\0"), Some(("a.debug".into(), 1)));
        assert_eq!(debug_link(b"../a\0\0\0\0\x01\0\0\0"), None);
        assert_eq!(debug_link(b"abc"), None);
    }

    proptest! {
        #[test]
        fn any_bytes(b in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0".to_vec();
            elf.extend(b);
            if let Some(e) = Elf::read(elf.as_slice()) {
                e.cfi(elf.as_slice());
                e.address_of(100);
            }
        }

        #[test]
        fn any_notes(b in proptest::collection::vec(any::<u8>(), 0..100)) {
            build_id(&b);
            debug_link(&b);
        }
    }
}
