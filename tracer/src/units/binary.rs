//! A binary as a source of control flow, and who in it never returns.

use crate::flow::{Returns, Source, decode};
use crate::stacks::Image;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

/// Functions of libraries that do not return (their manual pages; `noreturn` in the headers of the C and C++ libraries).
const NORETURN: [&[u8]; 28] = [
    b"abort",
    b"exit",
    b"_exit",
    b"_Exit",
    b"quick_exit",
    b"pthread_exit",
    b"thrd_exit",
    b"longjmp",
    b"_longjmp",
    b"siglongjmp",
    b"__longjmp_chk",
    b"err",
    b"errx",
    b"verr",
    b"verrx",
    b"__stack_chk_fail",
    b"__chk_fail",
    b"__fortify_fail",
    b"__assert_fail",
    b"__assert_perror_fail",
    b"__assert",
    b"__libc_fatal",
    b"_Unwind_Resume",
    b"__cxa_throw",
    b"__cxa_rethrow",
    b"__cxa_throw_bad_array_new_length",
    b"_ZSt9terminatev",
    b"_ZSt20__throw_length_errorPKc",
];
/// Largest function that is looked through for a way back.
const MAX_BYTES: u64 = 64 << 10;
/// Most bytes looked through in a binary; after that, functions are taken to return.
const MAX_SPENT: u64 = 64 << 20;
/// How long a chain of functions that end in each other may be.
const MAX_CHAIN: usize = 6;
/// Bytes of an entry of a procedure linkage table.
const STUB: u64 = 16;

/// Calls of six bytes by a slot, and of five.
const CALL_SLOT: [u8; 2] = [0xff, 0x15];
const CALL: u8 = 0xe8;

/// A binary whose functions are looked at.
pub(super) struct Binary {
    image: Image,
    /// Slots with the addresses of functions that never return, sorted.
    slots: Vec<u64>,
    /// Functions, or slots with their addresses, that are called by the last instruction of another: there the compiler
    /// knew that they do not come back.
    last: HashSet<u64>,
    /// By address of a function: it never returns.
    known: RefCell<HashMap<u64, bool>>,
    /// Bytes looked through for that.
    spent: Cell<u64>,
}

impl Binary {
    /// The binary at a path, if it has this build-id.
    pub fn open(path: &Path, build_id: &str) -> Option<Self> {
        let image = Image::open(path, build_id)?;
        let slots = image.slots_of(&NORETURN);
        let mut last = HashSet::new();
        for (end, [a, b, rest @ ..]) in image.ends::<6>() {
            let to = end.wrapping_add_signed(i32::from_le_bytes(rest).into());
            if [a, b] == CALL_SLOT || (b == CALL && is_entry(&image, to)) {
                last.insert(to);
            }
        }
        Some(Self { image, slots, last, known: RefCell::default(), spent: Cell::new(0) })
    }

    /// Is it a jump or call by a slot of a function that never returns?
    fn by_slot(&self, i: &Instruction) -> bool {
        let slot = i.op0_kind() == OpKind::Memory && i.is_ip_rel_memory_operand();
        slot && self.slots.binary_search(&i.ip_rel_memory_address()).is_ok()
    }

    /// A function without `ret` that leaves only to such functions.
    fn is_noreturn(&self, address: u64, chain: usize) -> bool {
        if let Some(&known) = self.known.borrow().get(&address) {
            return known;
        }
        // Taken to return while it is looked at, so that circles end.
        self.known.borrow_mut().insert(address, false);
        let found = self.look(address, chain).unwrap_or(false);
        self.known.borrow_mut().insert(address, found);
        found
    }

    fn look(&self, address: u64, chain: usize) -> Option<bool> {
        let stub = decode(&self.image.bytes(address, STUB)?, address);
        let first = stub.iter().find(|i| i.mnemonic() != Mnemonic::Endbr64)?;
        if first.flow_control() == FlowControl::IndirectBranch {
            return Some(self.by_slot(first));
        }
        let part = self.image.part(address)?;
        let len = part.end.saturating_sub(part.start);
        let spent = self.spent.get().saturating_add(len);
        if part.start != address || len > MAX_BYTES || chain == 0 || spent > MAX_SPENT {
            return None;
        }
        self.spent.set(spent);
        for i in decode(&self.image.bytes(part.start, len)?, part.start) {
            let stays = match i.flow_control() {
                FlowControl::Return => false,
                FlowControl::IndirectBranch => self.by_slot(&i),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let target = i.near_branch_target();
                    part.contains(&target) || self.is_noreturn(target, chain - 1)
                }
                _ => !i.is_invalid(),
            };
            if !stays {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// A function begins there, or an entry of a procedure linkage table.
fn is_entry(image: &Image, address: u64) -> bool {
    let stub = || address.is_multiple_of(STUB) && image.bytes(address, 6).is_some_and(|b| is_stub(&b));
    image.part(address).is_some_and(|p| p.start == address) || stub()
}

/// `jmp *slot(%rip)`, with or without `endbr64` before it.
fn is_stub(code: &[u8]) -> bool {
    code.starts_with(&[0xff, 0x25]) || code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])
}

impl Source for Binary {
    fn bytes(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        self.image.bytes(address, len)
    }

    fn part(&self, address: u64) -> Option<Range<u64>> {
        self.image.part(address)
    }

    fn bare(&self, address: u64) -> bool {
        self.image.bare(address)
    }

    fn writable(&self, address: u64) -> bool {
        self.image.writable(address)
    }

    fn returns(&self, call: &Instruction) -> Returns {
        let target = call.near_branch_target();
        match call.code() {
            Code::Call_rel32_64 if self.is_noreturn(target, MAX_CHAIN) => Returns::Never,
            Code::Call_rel32_64 if self.last.contains(&target) => Returns::Sometimes,
            Code::Call_rel32_64 => Returns::Always,
            _ if self.by_slot(call) => Returns::Never,
            _ if call.is_ip_rel_memory_operand() && self.last.contains(&call.ip_rel_memory_address()) => {
                Returns::Sometimes
            }
            _ => Returns::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Function, Way};
    use object::{Object, ObjectSymbol};
    use std::process::Command;

    /// A server: a switch in a loop, an error that ends it, and who is called for that returns at times.
    const SERVER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
volatile int level;
__attribute__((noinline, noreturn)) static void die(const char *why) { puts(why); exit(3); }
__attribute__((noinline)) int serve(int fd) {
    char c; int n = 0;
    for (;;) {
        if (read(fd, &c, 1) < 0) die("read");
        switch (c) {
        case 0: n += getppid(); break;
        case 1: n -= getuid(); continue;
        case 2: n ^= geteuid(); break;
        case 3: n *= getgid(); break;
        case 4: n += getegid(); break;
        case 5: return n;
        case 6: if (level) die("six"); n++; break;
        default: n = getpid();
        }
        level = n;
    }
}
int main(void) { return serve(0); }
"#;

    fn run(program: &str, args: &[&str], file: &Path) -> bool {
        Command::new(program).args(args).arg(file).status().is_ok_and(|s| s.success())
    }

    #[test]
    fn a_stripped_server_has_its_loop() {
        let dir = tempfile::tempdir().unwrap();
        let (source, whole, bare) = (dir.path().join("s.c"), dir.path().join("s"), dir.path().join("bare"));
        std::fs::write(&source, SERVER).unwrap();
        let mut done = 0;
        for flags in [["-O2", "-fpie", "-pie"], ["-O2", "-fno-pie", "-no-pie"], ["-O1", "-fpie", "-pie"]] {
            let out = whole.to_str().unwrap();
            if !run("cc", &[&flags[..], &["-fno-inline", "-o", out]].concat(), &source) {
                println!("skipped: cc cannot compile with {flags:?}");
                continue;
            }
            let bytes = std::fs::read(&whole).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            let serve = file.symbols().find(|s| s.name() == Ok("serve")).unwrap();
            let (start, size) = (serve.address(), serve.size());
            std::fs::copy(&whole, &bare).unwrap();
            if !run("strip", &[], &bare) {
                println!("skipped: no strip");
                return;
            }
            let (with, without) = (Binary::open(&whole, "").unwrap(), Binary::open(&bare, "").unwrap());
            assert_eq!(without.part(start + 3), Some(start..start + size));
            let (a, b) = (Function::read(&with, start).unwrap(), Function::read(&without, start).unwrap());
            assert!(!a.is_open() && !b.is_open(), "{flags:?}");
            let code = decode(&without.bytes(start, size).unwrap(), start);
            let calls: Vec<u64> = code.iter().filter(|i| i.is_call_near()).map(|i| i.next_ip() - 1).collect();
            let heads = |f: &Function, at| f.around(at).into_iter().map(|l| f.head(l)).collect::<Vec<_>>();
            let inside: Vec<u64> = calls.iter().copied().filter(|&c| !b.around(c).is_empty()).collect();
            // read and six others; not die, after which nobody goes on.
            assert_eq!(inside.len(), 7, "{flags:?} {calls:x?}");
            for &call in &inside {
                assert_eq!(heads(&a, call), heads(&b, call));
                assert!(matches!(b.way(call, call), Way::Around(_)), "{flags:?} {call:x}");
            }
            done += 1;
        }
        if done == 0 {
            println!("skipped: no C compiler");
        }
    }
}
