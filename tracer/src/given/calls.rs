//! Places of a system call in a binary: where its number is loaded and the kernel called next.

use super::find::Found;
use crate::stacks::Binary;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use pg_event::Sysno;

/// Most bytes of one function that are looked at, and most places.
const MAX_FUNCTION: u64 = 1 << 20;
const MAX_PLACES: usize = 64;
/// A function of so many bytes at most does nothing but the call: its begin stands for that of the call.
const WRAPPER: u64 = 512;

/// All places of a call: behind it, or for `ends` where it is made.
pub fn places(number: usize, binary: &Binary, call: Sysno, ends: bool) -> Vec<Found> {
    let mut out: Vec<Found> = Vec::new();
    for function in binary.bounds() {
        let Some(offset) = binary.offset(function.start) else { continue };
        let len = function.end.saturating_sub(function.start).min(MAX_FUNCTION);
        let code = binary.bytes(offset, len as usize);
        if !code.windows(2).any(|w| w == [0x0f, 0x05]) {
            continue;
        }
        for site in sites(&code, function.start, call) {
            let wrapper = function.end - function.start <= WRAPPER;
            let (address, entry) = match (ends, wrapper) {
                (true, true) => (function.start, true),
                (true, false) => (site.load, false),
                (false, _) => (site.behind, false),
            };
            let Some(offset) = binary.offset(address) else { continue };
            if out.len() < MAX_PLACES && !out.iter().any(|f| f.offset == offset) {
                let name = format!("syscall:{}", call.name().unwrap_or_default());
                out.push(Found { binary: number, address, offset, semaphore: 0, entry, result: !ends, name });
            }
        }
    }
    out
}

/// Where the number is loaded, and what follows the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Site {
    load: u64,
    behind: u64,
}

/// Of the code of one function.
fn sites(code: &[u8], start: u64, call: Sysno) -> Vec<Site> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut out = Vec::new();
    // What is in the register, and where it was loaded.
    let mut loaded: Option<(u64, u64)> = None;
    while decoder.can_decode() {
        let i = decoder.decode();
        if i.is_invalid() {
            break;
        }
        if i.code() == Code::Syscall {
            if let Some((_, load)) = loaded.filter(|l| l.0 == u64::from(call.0)) {
                out.push(Site { load, behind: i.next_ip() });
            }
            loaded = None;
        } else if let Some(value) = load(&i) {
            loaded = Some((value, i.ip()));
        } else if i.flow_control() != FlowControl::Next || sets(&i) {
            loaded = None;
        }
    }
    out
}

fn is_number(r: Register) -> bool {
    r.full_register() == Register::RAX
}

/// What it loads into the register of the number.
fn load(i: &Instruction) -> Option<u64> {
    let first = i.op_count() > 0 && i.op0_kind() == OpKind::Register && is_number(i.op0_register());
    match i.mnemonic() {
        Mnemonic::Mov if first && matches!(i.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64) => {
            Some(i.immediate(1) & 0xffff_ffff)
        }
        // xor eax, eax: read(2).
        Mnemonic::Xor if first && i.op1_kind() == OpKind::Register && is_number(i.op1_register()) => Some(0),
        _ => None,
    }
}

fn sets(i: &Instruction) -> bool {
    let first = i.op_count() > 0 && i.op0_kind() == OpKind::Register && is_number(i.op0_register());
    first && !matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::syscall_number;

    #[test]
    fn numbers_that_are_loaded_before_the_call() {
        // mov eax, 7; mov rdi, rsi; syscall; ret
        let poll = [0xb8, 7, 0, 0, 0, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0xc3];
        assert_eq!(sites(&poll, 0x100, Sysno(7)), [Site { load: 0x100, behind: 0x10a }]);
        assert_eq!(sites(&poll, 0x100, Sysno(0)), []);
        // xor eax, eax; syscall
        assert_eq!(sites(&[0x31, 0xc0, 0x0f, 0x05], 0, Sysno(0)), [Site { load: 0, behind: 4 }]);
        // mov eax, 7; mov eax, edi; syscall: any number. mov eax, 7; jmp +0; syscall: come by another way, too.
        assert_eq!(sites(&[0xb8, 7, 0, 0, 0, 0x89, 0xf8, 0x0f, 0x05], 0, Sysno(7)), []);
        assert_eq!(sites(&[0xb8, 7, 0, 0, 0, 0xeb, 0, 0x0f, 0x05], 0, Sysno(7)), []);
    }

    #[test]
    fn of_the_c_library() {
        let own = Binary::of_process(std::process::id());
        let libc = own.iter().find(|b| b.path.contains("/libc.so")).unwrap();
        for name in ["poll", "read", "epoll_wait", "recvfrom", "futex"] {
            let call = syscall_number(name).unwrap();
            let (behind, made) = (places(0, libc, call, false), places(0, libc, call, true));
            assert!(!behind.is_empty() && !made.is_empty(), "{name}");
            assert!(behind.iter().all(|f| f.result && !f.entry));
            // Behind `syscall`.
            assert!(behind.iter().all(|f| libc.bytes(f.offset - 2, 2) == [0x0f, 0x05]), "{name}");
        }
    }
}
