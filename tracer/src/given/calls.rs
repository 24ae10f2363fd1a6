//! Places of a system call in a binary: where its number is loaded and the kernel called next, or `syscall(2)` with it.

use super::find::Found;
use super::rule::{self, AtCall, Waiting};
use crate::stacks::Binary;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use pg_event::Sysno;

/// Most bytes of one function that are looked at, and most places.
const MAX_FUNCTION: u64 = 1 << 20;
const MAX_PLACES: usize = 64;
/// A function of so many bytes at most does nothing but the call: its begin stands for that of the call.
const WRAPPER: u64 = 512;
/// Bytes of an entry of a procedure linkage table.
const STUB: usize = 16;

/// All places of a call: behind it, or for `ends` where it is made.
pub fn places(number: usize, binary: &Binary, call: Sysno, ends: bool) -> Vec<Found> {
    let mut out: Vec<Found> = Vec::new();
    let by_name = Stubs { binary, slots: binary.slots_of(&[b"syscall"]) };
    let loads = load_of(call);
    for function in binary.bounds() {
        let Some(offset) = binary.offset(function.start) else { continue };
        let len = function.end.saturating_sub(function.start).min(MAX_FUNCTION);
        let code = binary.bytes(offset, len as usize);
        let direct = code.windows(2).any(|w| w == [0x0f, 0x05]);
        let by_function = !by_name.slots.is_empty() && code.windows(5).any(|w| w == loads);
        if !direct && !by_function {
            continue;
        }
        for site in sites(&code, function.start, call, &|i| by_name.calls(i)) {
            let wrapper = function.end.saturating_sub(function.start) <= WRAPPER;
            let waits = rule::waits(call);
            // Where arguments are asked for, they have to be there.
            let (address, entry) = match (ends, wrapper && waits.is_none() && !site.by_function) {
                (true, true) => (function.start, true),
                (true, false) => (site.made, false),
                (false, _) => (site.behind, false),
            };
            let at = AtCall {
                gave: (!ends).then(|| rule::gave(call)),
                waits: waits.filter(|_| !ends || site.arguments),
                by_function: site.by_function,
            };
            let Some(offset) = binary.offset(address) else { continue };
            if out.len() < MAX_PLACES && !out.iter().any(|f| f.offset == offset) {
                let name = format!("syscall:{}", call.name().unwrap_or_default());
                out.push(Found {
                    binary: number,
                    address,
                    offset,
                    semaphore: 0,
                    entry,
                    call: Some(at),
                    name,
                });
            }
        }
    }
    out
}

/// `mov edi, NUMBER`.
fn load_of(call: Sysno) -> [u8; 5] {
    let [a, b, c, d] = u32::from(call.0).to_le_bytes();
    [0xbf, a, b, c, d]
}

/// Who is called through a slot that the loader fills.
struct Stubs<'a> {
    binary: &'a Binary,
    slots: Vec<u64>,
}

impl Stubs<'_> {
    fn is_slot(&self, i: &Instruction) -> bool {
        i.is_ip_rel_memory_operand() && self.slots.binary_search(&i.ip_rel_memory_address()).is_ok()
    }

    /// Does an instruction call a function of the slots, by its entry of the linkage table or at once?
    fn calls(&self, i: &Instruction) -> bool {
        if self.slots.is_empty() || i.code() != Code::Call_rel32_64 {
            return !self.slots.is_empty() && i.code() == Code::Call_rm64 && self.is_slot(i);
        }
        let target = i.near_branch_target();
        let Some(offset) = self.binary.offset(target) else { return false };
        let code = self.binary.bytes(offset, STUB);
        let stub = Decoder::with_ip(64, &code, target, DecoderOptions::NONE).into_iter();
        let mut stub = stub.skip_while(|i| i.mnemonic() == Mnemonic::Endbr64);
        stub.next().is_some_and(|i| i.code() == Code::Jmp_rm64 && self.is_slot(&i))
    }
}

/// Where a call is made, and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Site {
    /// Where its number is loaded; of one of which only some uses wait, what comes before the kernel is called.
    made: u64,
    behind: u64,
    /// There the arguments that tell whether it waits are as the kernel gets them.
    arguments: bool,
    /// By `syscall(2)`, which takes the number as its first argument.
    by_function: bool,
}

/// Of the code of one function. `by_name`: is it a call of `syscall(2)`?
fn sites(code: &[u8], start: u64, call: Sysno, by_name: &dyn Fn(&Instruction) -> bool) -> Vec<Site> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut out = Vec::new();
    // What is in the register of the number, and in that of first arguments, and where that was loaded.
    let (mut number, mut first): (Option<(u64, u64)>, Option<u64>) = (None, None);
    let mut before = Instruction::default();
    let wanted = u64::from(call.0);
    while decoder.can_decode() {
        let i = decoder.decode();
        if i.is_invalid() {
            break;
        }
        let behind = i.next_ip();
        if i.code() == Code::Syscall {
            if let Some((_, load)) = number.filter(|l| l.0 == wanted) {
                let told = rule::waits(call).map(Waiting::registers);
                let arguments = told.is_some_and(|told| !writes(&mut info, &before, told));
                let made = if arguments { before.ip() } else { load };
                out.push(Site { made, behind, arguments, by_function: false });
            }
            (number, first) = (None, None);
        } else if first == Some(wanted) && by_name(&i) {
            out.push(Site { made: i.ip(), behind, arguments: true, by_function: true });
            (number, first) = (None, None);
        } else if i.flow_control() != FlowControl::Next {
            (number, first) = (None, None);
        } else {
            if let Some(value) = load(&i, Register::RAX) {
                number = Some((value, i.ip()));
            } else if sets(&i, Register::RAX) {
                number = None;
            }
            if let Some(value) = load(&i, Register::RDI) {
                first = Some(value);
            } else if writes(&mut info, &i, &[Register::RDI]) {
                first = None;
            }
        }
        before = i;
    }
    out
}

/// Does an instruction change one of these registers?
fn writes(info: &mut InstructionInfoFactory, i: &Instruction, registers: &[Register]) -> bool {
    let used = info.info(i).used_registers();
    used.iter().any(|u| {
        let reads = matches!(u.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        !reads && registers.contains(&u.register().full_register())
    })
}

/// What it loads into a register.
fn load(i: &Instruction, into: Register) -> Option<u64> {
    let first = is_first(i, into);
    match i.mnemonic() {
        Mnemonic::Mov if first && matches!(i.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64) => {
            Some(i.immediate(1) & 0xffff_ffff)
        }
        // xor eax, eax: read(2).
        Mnemonic::Xor
            if first && i.op1_kind() == OpKind::Register && i.op1_register().full_register() == into =>
        {
            Some(0)
        }
        _ => None,
    }
}

/// Is a register the first operand?
fn is_first(i: &Instruction, register: Register) -> bool {
    i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register().full_register() == register
}

fn sets(i: &Instruction, register: Register) -> bool {
    is_first(i, register) && !matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
}

#[cfg(test)]
mod tests {
    use super::super::Gave;
    use super::*;
    use pg_event::syscall_number;

    fn number(name: &str) -> Sysno {
        syscall_number(name).unwrap_or_else(|| panic!("{name} has no number"))
    }

    fn of(code: &[u8], start: u64, call: Sysno) -> Vec<Site> {
        sites(code, start, call, &|i| i.code() == Code::Call_rel32_64)
    }

    #[test]
    fn numbers_that_are_loaded_before_the_call() {
        let site = |made, behind| Site { made, behind, arguments: false, by_function: false };
        // mov eax, 7; mov rdi, rsi; syscall; ret
        let poll = [0xb8, 7, 0, 0, 0, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0xc3];
        assert_eq!(of(&poll, 0x100, Sysno(7)), [site(0x100, 0x10a)]);
        assert_eq!(of(&poll, 0x100, Sysno(0)), []);
        // xor eax, eax; syscall
        assert_eq!(of(&[0x31, 0xc0, 0x0f, 0x05], 0, Sysno(0)), [site(0, 4)]);
        // mov eax, 7; mov eax, edi; syscall: any number. mov eax, 7; jmp +0; syscall: come by another way, too.
        assert_eq!(of(&[0xb8, 7, 0, 0, 0, 0x89, 0xf8, 0x0f, 0x05], 0, Sysno(7)), []);
        assert_eq!(of(&[0xb8, 7, 0, 0, 0, 0xeb, 0, 0x0f, 0x05], 0, Sysno(7)), []);
    }

    #[test]
    fn arguments_are_asked_where_they_are() {
        let enter = number("io_uring_enter");
        let site = |made, behind, arguments| Site { made, behind, arguments, by_function: false };
        // mov r10d, ecx; mov eax, 426; syscall
        let last_is_number = [0x41, 0x89, 0xca, 0xb8, 0xaa, 1, 0, 0, 0x0f, 0x05];
        assert_eq!(of(&last_is_number, 0, enter), [site(3, 10, true)]);
        // mov eax, 426; mov edi, esi; syscall
        assert_eq!(of(&[0xb8, 0xaa, 1, 0, 0, 0x89, 0xf7, 0x0f, 0x05], 0, enter), [site(5, 9, true)]);
        // mov eax, 426; mov r10d, ecx; syscall: before the last instruction its flags are not there yet.
        assert_eq!(of(&[0xb8, 0xaa, 1, 0, 0, 0x41, 0x89, 0xca, 0x0f, 0x05], 0, enter), [site(0, 10, false)]);
    }

    #[test]
    fn calls_of_the_function_with_the_number() {
        let enter = number("io_uring_enter");
        // mov edi, 426; xor eax, eax; call +0
        let call = [0xbf, 0xaa, 1, 0, 0, 0x31, 0xc0, 0xe8, 0, 0, 0, 0];
        let site = Site { made: 0x107, behind: 0x10c, arguments: true, by_function: true };
        assert_eq!(of(&call, 0x100, enter), [site]);
        assert_eq!(sites(&call, 0x100, enter, &|_| false), []);
        // mov edi, 425. mov edi, 426; mov edi, eax. mov edi, 426; call +0; call +0: the register is anybody's then.
        assert_eq!(of(&[0xbf, 0xa9, 1, 0, 0, 0xe8, 0, 0, 0, 0], 0, enter), []);
        assert_eq!(of(&[0xbf, 0xaa, 1, 0, 0, 0x89, 0xc7, 0xe8, 0, 0, 0, 0], 0, enter), []);
        let twice = [0xbf, 0xaa, 1, 0, 0, 0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(of(&twice, 0, enter).len(), 1);
    }

    #[test]
    fn of_the_c_library() {
        let own = Binary::of_process(std::process::id());
        let libc = own.iter().find(|b| b.path.contains("/libc.so")).unwrap();
        // futex_waitv, io_getevents and io_uring_enter are none of its functions; its select is a pselect6.
        for (name, gave) in [
            ("poll", Gave::Something),
            ("ppoll", Gave::Something),
            ("pselect6", Gave::Something),
            ("epoll_wait", Gave::Something),
            ("epoll_pwait", Gave::Something),
            ("epoll_pwait2", Gave::Something),
            ("read", Gave::Something),
            ("recvfrom", Gave::Something),
            ("recvmsg", Gave::Something),
            ("recvmmsg", Gave::Something),
            ("rt_sigtimedwait", Gave::Something),
            ("accept", Gave::NoError),
            ("accept4", Gave::NoError),
            ("futex", Gave::NoError),
            ("msgrcv", Gave::NoError),
            ("mq_timedreceive", Gave::NoError),
            ("semtimedop", Gave::NoError),
            ("rt_sigsuspend", Gave::Anything),
            ("pause", Gave::Anything),
        ] {
            let (behind, made) = (places(0, libc, number(name), false), places(0, libc, number(name), true));
            assert!(!behind.is_empty() && !made.is_empty(), "{name}");
            assert!(
                behind.iter().all(|f| !f.entry && f.call.is_some_and(|c| c.gave == Some(gave))),
                "{name}"
            );
            assert!(made.iter().all(|f| f.call.is_some_and(|c| c.gave.is_none())), "{name}");
            // Behind `syscall`.
            assert!(behind.iter().all(|f| libc.bytes(f.offset - 2, 2) == [0x0f, 0x05]), "{name}");
        }
    }

    #[test]
    fn of_a_program_that_calls_the_function() {
        let dir = tempfile::tempdir().unwrap();
        let exe = dir.path().join("server");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/units/uring.c");
        for flags in [&["-O1"][..], &["-O2", "-fno-plt"]] {
            let built = std::process::Command::new("cc").args(flags).arg("-o").arg(&exe).arg(source).status();
            if !built.is_ok_and(|s| s.success()) {
                println!("skipped: no C compiler");
                return;
            }
            let mut child =
                std::process::Command::new(&exe).stdin(std::process::Stdio::piped()).spawn().unwrap();
            // Who started it may go on before it is mapped. Without io_uring it ends.
            let mut all = Vec::new();
            while !all.iter().any(|b: &Binary| b.path.ends_with("/server"))
                && child.try_wait().unwrap().is_none()
            {
                all = Binary::of_process(child.id());
            }
            let _ = (child.kill(), child.wait());
            let Some(server) = all.iter().find(|b| b.path.ends_with("/server")) else {
                println!("skipped: it has ended");
                return;
            };
            let (behind, made) = (
                places(0, server, number("io_uring_enter"), false),
                places(0, server, number("io_uring_enter"), true),
            );
            // One that waits and one that does not; which, is told when they are come by.
            let ring = |f: &Found| f.call.is_some_and(|c| c.by_function && c.waits == Some(Waiting::Ring));
            assert_eq!((behind.len(), made.len()), (2, 2), "{flags:?}");
            assert!(behind.iter().chain(&made).all(|f| ring(f) && !f.entry), "{flags:?}");
            assert!(behind.iter().zip(&made).all(|(b, m)| (5..=6).contains(&(b.offset - m.offset))));
        }
    }
}
