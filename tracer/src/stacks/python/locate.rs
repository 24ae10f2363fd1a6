//! Where the interpreter is within a binary: the program itself, or the shared library.

use super::layout::{DEBUG_WORDS, Layout};
use super::memory::{Memory, Remote};
use super::{Interpreter, Types};
use crate::stacks::elf::{Bytes, Elf};

/// Part of the text of a program in which the version is looked for.
const MAX_TEXT: u64 = 16 << 20;

/// What of the interpreter a binary has, in addresses of its file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Image {
    runtime: u64,
    /// `Py_Version`, since 3.11.
    version: Option<u64>,
    /// 3.9 or 3.10, as its name or its text say.
    minor: Option<u8>,
    types: Types,
    /// Code of `_PyEval_EvalFrameDefault`, which compilers split: begin and end of each part.
    pub loops: Vec<(u64, u64)>,
}

/// Why an interpreter that was found is not read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Unread {
    /// Its memory could not be read: no right to, or it has gone.
    Memory,
    /// It is of another version, or a build without the global lock; the minor version, if it is a Python 3.
    Version(Option<u8>),
}

/// Is it worth to look for an interpreter in a file of this name?
pub(super) fn may_be_python(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.contains("python")
}

impl Image {
    /// Of a binary; `None` when it has no interpreter.
    pub fn read(elf: &Elf, src: &(impl Bytes + ?Sized), path: &str) -> Option<Self> {
        let mut image = Self::default();
        elf.symbols(src, ".dynsym", ".dynstr", &mut |name, address, size| image.symbol(name, address, size));
        if image.runtime == 0 || image.loops.is_empty() {
            return None;
        }
        // Only the full table has the parts.
        elf.symbols(src, ".symtab", ".strtab", &mut |name, address, size| {
            if name.starts_with(b"_PyEval_EvalFrameDefault.") && size > 0 {
                image.loops.push((address, address.saturating_add(size)));
            }
        });
        let Types { code, text, bytes, frame } = image.types;
        if [code, text, bytes, frame].contains(&0) {
            return None;
        }
        if image.version.is_none() {
            image.minor = minor_in_name(path).or_else(|| {
                let (offset, size) = elf.place_of(".rodata")?;
                minor_in_text(&src.at(offset, size.min(MAX_TEXT))?)
            });
        }
        Some(image)
    }

    fn symbol(&mut self, name: &[u8], address: u64, size: u64) {
        match name {
            b"_PyRuntime" => self.runtime = address,
            b"Py_Version" => self.version = Some(address),
            b"PyCode_Type" => self.types.code = address,
            b"PyUnicode_Type" => self.types.text = address,
            b"PyBytes_Type" => self.types.bytes = address,
            b"PyFrame_Type" => self.types.frame = address,
            b"_PyEval_EvalFrameDefault" if size > 0 => {
                self.loops.push((address, address.saturating_add(size)));
            }
            _ => {}
        }
    }

    /// The interpreter in a process that has the binary at `bias`. Reads memory: see [`crate::patience`].
    pub fn in_process(&self, pid: u32, bias: u64) -> Result<Interpreter, Unread> {
        self.in_memory(&Remote(pid), bias)
    }

    fn in_memory(&self, m: &impl Memory, bias: u64) -> Result<Interpreter, Unread> {
        let at = |address: u64| bias.wrapping_add(address);
        let version = match (self.version, self.minor) {
            (Some(address), _) => m.word(at(address)).ok_or(Unread::Memory)?,
            (None, Some(minor)) => 0x0300_0000 | u64::from(minor) << 16,
            (None, None) => return Err(Unread::Version(None)),
        };
        let minor = (version >> 16) as u8;
        let unknown = Unread::Version((version >> 24 == 3).then_some(minor));
        let layout = match Layout::of_version(minor) {
            _ if version >> 24 != 3 => return Err(unknown),
            Some(l) => l,
            None => {
                let words = offsets(m, at(self.runtime)).ok_or(Unread::Memory)?;
                Layout::of_offsets(&words).ok_or(unknown)?
            }
        };
        let Types { code, text, bytes, frame } = self.types;
        let types = Types { code: at(code), text: at(text), bytes: at(bytes), frame: at(frame) };
        Ok(Interpreter { layout, runtime: at(self.runtime), types })
    }
}

fn offsets(m: &impl Memory, runtime: u64) -> Option<[u64; DEBUG_WORDS]> {
    let block = m.block::<{ DEBUG_WORDS * 8 }>(runtime)?;
    let mut words = [0; DEBUG_WORDS];
    for (i, w) in words.iter_mut().enumerate() {
        *w = block.u64(i as u64 * 8)?;
    }
    Some(words)
}

/// The 9 or 10 in `libpython3.10.so.1.0`.
fn minor_in_name(path: &str) -> Option<u8> {
    let name = path.rsplit('/').next()?;
    let rest = name.split_once("python3.")?.1;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |n| &rest[..n]);
    digits.parse().ok().filter(|m| matches!(m, 9 | 10))
}

/// The same in the version as text: a string by itself, like `3.10.13`.
fn minor_in_text(text: &[u8]) -> Option<u8> {
    text.split(|&b| b == 0).find_map(|s| {
        let rest = s.strip_prefix(b"3.")?;
        let (minor, patch) = match rest {
            [b'9', b'.', patch @ ..] => (9, patch),
            [b'1', b'0', b'.', patch @ ..] => (10, patch),
            _ => return None,
        };
        let digits = patch.iter().take_while(|b| b.is_ascii_digit()).count();
        (digits > 0 && patch.len() <= digits + 1).then_some(minor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_names_and_texts() {
        let names = ["/usr/lib/libpython3.10.so.1.0", "/usr/bin/python3.9", "/opt/python3.11", "/opt/app"];
        assert_eq!(names.map(minor_in_name), [Some(10), Some(9), None, None]);
        assert_eq!(minor_in_text(b"x\x003.9.18\x00y"), Some(9));
        assert_eq!(minor_in_text(b"\x003.10.0+\x00"), Some(10));
        assert_eq!(minor_in_text(b"3.10\x003.100.1\x00http 3.9.1 is\x003.9.x\x00"), None);
    }
}
