//! Small programs for tests: machine code written down with labels.

use super::blocks::{Returns, Source};
use iced_x86::Instruction;
use std::collections::HashMap;
use std::ops::Range;

/// Where the code begins.
pub const CODE: u64 = 0x1000;
/// Where read-only data begins.
pub const DATA: u64 = 0x8000;
/// A function that never returns.
pub const ABORT: u64 = 0x7000;
/// One that returns at times.
pub const LOG: u64 = 0x7080;
/// One that does.
pub const OTHER: u64 = 0x7100;

/// A program.
#[derive(Default)]
pub struct Program {
    code: Vec<u8>,
    data: Vec<u8>,
    labels: HashMap<String, u64>,
    /// Where a 32-bit distance to a label goes: offset in the code, distance counted from there.
    fixups: Vec<(usize, String)>,
    parts: Vec<Range<u64>>,
    framed: Vec<Range<u64>>,
}

impl Program {
    /// Instructions, a word each: `nop`, `ret`, `ud2`, `abort` and `log` (calls of them), `call`, `NAME:`, `jmp:NAME`, `jne:NAME`,
    /// `|` (the next part begins), `|cold` (one with a frame set up).
    pub fn new(text: &str) -> Self {
        let mut p = Self::default();
        let mut begin = (CODE, false);
        for word in text.split_whitespace() {
            match word.split_once(':') {
                Some((name, "")) => drop(p.labels.insert(name.into(), p.here())),
                Some(("jmp", to)) => p.to(&[0xe9], to),
                Some(("jne", to)) => p.to(&[0x0f, 0x85], to),
                _ => match word {
                    "nop" => p.put(&[0x90]),
                    "ret" => p.put(&[0xc3]),
                    "ud2" => p.put(&[0x0f, 0x0b]),
                    "abort" => p.call(ABORT),
                    "log" => p.call(LOG),
                    "call" => p.call(OTHER),
                    "|" | "|cold" => {
                        p.end_part(begin);
                        begin = (p.here(), word == "|cold");
                    }
                    _ => panic!("{word}"),
                },
            }
        }
        p.end_part(begin);
        p.link()
    }

    fn end_part(&mut self, (start, framed): (u64, bool)) {
        self.parts.push(start..self.here());
        self.framed.extend(framed.then(|| start..self.here()));
    }

    fn here(&self) -> u64 {
        CODE + self.code.len() as u64
    }

    fn put(&mut self, bytes: &[u8]) {
        self.code.extend(bytes);
    }

    fn to(&mut self, code: &[u8], label: &str) {
        self.code.extend(code);
        self.fixups.push((self.code.len(), label.into()));
        self.code.extend([0; 4]);
    }

    fn call(&mut self, target: u64) {
        self.code.push(0xe8);
        let distance = target.wrapping_sub(self.here() + 4) as u32;
        self.code.extend(distance.to_le_bytes());
    }

    fn link(mut self) -> Self {
        for (at, label) in std::mem::take(&mut self.fixups) {
            let distance = self.labels[&label].wrapping_sub(CODE + at as u64 + 4) as u32;
            self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self
    }

    /// Functions of bytes that are written down, one behind the other.
    pub fn functions(all: &[&[u8]]) -> Self {
        let mut p = Self::raw(&all.concat(), Vec::new());
        p.parts.clear();
        let mut from = CODE;
        for f in all {
            p.parts.push(from..from + f.len() as u64);
            from += f.len() as u64;
        }
        p
    }

    /// A program of bytes that are written down, one part.
    pub fn raw(code: &[u8], data: Vec<u8>) -> Self {
        let all = CODE..CODE + code.len() as u64;
        Self { code: code.into(), data, parts: vec![all.clone()], framed: vec![all], ..Self::default() }
    }

    /// Behind its last part.
    pub fn parts_end(&self) -> u64 {
        self.parts.iter().map(|p| p.end).max().unwrap_or(0)
    }

    /// Address of a label.
    pub fn at(&self, label: &str) -> u64 {
        self.labels[label]
    }
}

impl Source for Program {
    fn bytes(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let (base, all) = if address >= DATA { (DATA, &self.data) } else { (CODE, &self.code) };
        let from = all.get(usize::try_from(address.checked_sub(base)?).ok()?..)?;
        Some(from[..from.len().min(len as usize)].to_vec())
    }

    fn part(&self, address: u64) -> Option<Range<u64>> {
        self.parts.iter().find(|p| p.contains(&address)).cloned()
    }

    fn bare(&self, address: u64) -> bool {
        !self.framed.iter().any(|p| p.contains(&address))
    }

    fn writable(&self, address: u64) -> bool {
        address < DATA
    }

    fn returns(&self, call: &Instruction) -> Returns {
        match call.near_branch_target() {
            ABORT => Returns::Never,
            LOG => Returns::Sometimes,
            _ => Returns::Always,
        }
    }
}
