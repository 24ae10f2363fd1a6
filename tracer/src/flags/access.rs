//! Read or write? The processor can watch for writes, or for reads and writes; which of both it was it does not
//! say. The instruction before the place where the thread stopped tells.

use crate::stacks::Regs;
use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory,
};

/// What an instruction does to a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It reads it.
    Read,
    /// It writes it (and perhaps reads it).
    Write,
    /// It writes it under a condition: the value tells.
    Perhaps,
}

/// The value of a register of a thread; of those in `lost` and of segments it is not known.
fn register(regs: &Regs, lost: &[Register], r: Register) -> Option<u64> {
    use Register as R;
    let full = r.full_register();
    if lost.contains(&full) {
        return None;
    }
    Some(match full {
        R::RAX => regs.ax,
        R::RBX => regs.bx,
        R::RCX => regs.cx,
        R::RDX => regs.dx,
        R::RSI => regs.si,
        R::RDI => regs.di,
        R::RBP => regs.bp,
        R::RSP => regs.sp,
        R::R8 => regs.r8,
        R::R9 => regs.r9,
        R::R10 => regs.r10,
        R::R11 => regs.r11,
        R::R12 => regs.r12,
        R::R13 => regs.r13,
        R::R14 => regs.r14,
        R::R15 => regs.r15,
        R::RIP => regs.ip,
        R::DS | R::ES | R::SS | R::CS => 0,
        _ => return None,
    })
}

/// Does this memory operand cover the flag? `None`: its address is not known any more.
fn covers(m: &UsedMemory, regs: &Regs, lost: &[Register], flag: (u64, u8)) -> Option<bool> {
    let at = m.virtual_address(0, |r, _, _| register(regs, lost, r))?;
    let size = m.memory_size().size().max(1) as u64;
    Some(at < flag.0.saturating_add(u64::from(flag.1)) && flag.0 < at.saturating_add(size))
}

fn of(access: OpAccess) -> Option<Access> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Access::Read),
        OpAccess::Write | OpAccess::ReadWrite => Some(Access::Write),
        OpAccess::CondWrite | OpAccess::ReadCondWrite => Some(Access::Perhaps),
        _ => None,
    }
}

/// What the instruction that ends with the last byte of `code` did to the flag at `flag` (address, bytes). `regs` are
/// those after it, `regs.ip` the address behind it. `None` when that cannot be told.
pub fn access(code: &[u8], regs: &Regs, flag: (u64, u8)) -> Option<Access> {
    let mut info = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let mut unsure: Option<Access> = None;
    // Longest first: a shorter one is its tail, without prefixes.
    for n in (1..=code.len().min(15)).rev() {
        let bytes = &code[code.len() - n..];
        let mut decoder = Decoder::with_ip(64, bytes, regs.ip.wrapping_sub(n as u64), DecoderOptions::NONE);
        decoder.decode_out(&mut instruction);
        if instruction.code() == Code::INVALID || instruction.len() != n {
            continue;
        }
        let info = info.info(&instruction);
        let writes = |a| {
            matches!(a, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
        };
        let lost: Vec<Register> = info
            .used_registers()
            .iter()
            .filter(|u| writes(u.access()))
            .map(|u| u.register().full_register())
            .collect();
        for m in info.used_memory() {
            let Some(a) = of(m.access()) else { continue };
            match covers(m, regs, &lost, flag) {
                Some(true) => return Some(a),
                Some(false) => {}
                None => unsure = unsure.or(Some(a)),
            }
        }
    }
    unsure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `code` right before 0x1000.
    fn told(code: &[u8], regs: Regs, flag: u64) -> Option<Access> {
        let mut bytes = vec![0x90; 16];
        bytes.extend_from_slice(code);
        access(&bytes[bytes.len() - 16..], &Regs { ip: 0x1000, ..regs }, (flag, 4))
    }

    #[test]
    fn plain_moves() {
        let none = Regs::default();
        // mov eax, [rip+0x2f00]; mov dword [rip+0x2f00], 1 ends four bytes later.
        assert_eq!(told(&[0x8b, 0x05, 0, 0x2f, 0, 0], none, 0x3f00), Some(Access::Read));
        assert_eq!(told(&[0xc7, 0x05, 0, 0x2f, 0, 0, 1, 0, 0, 0], none, 0x3f00), Some(Access::Write));
        // mov [rbx+0x18], eax and cmp dword [rbx+0x18], 0
        let rbx = Regs { bx: 0x5000, ..none };
        assert_eq!(told(&[0x89, 0x43, 0x18], rbx, 0x5018), Some(Access::Write));
        assert_eq!(told(&[0x83, 0x7b, 0x18, 0], rbx, 0x5018), Some(Access::Read));
        assert_eq!(told(&[0x89, 0x43, 0x18], rbx, 0x9000), None, "another address");
    }

    #[test]
    fn the_register_of_the_address_may_be_gone() {
        // mov rax, [rax]: rax holds the value now.
        assert_eq!(told(&[0x48, 0x8b, 0x00], Regs { ax: 7, ..Regs::default() }, 0x5018), Some(Access::Read));
    }

    #[test]
    fn atomics() {
        let rdx = Regs { dx: 0x5018, ..Regs::default() };
        // lock xadd [rdx], eax; xchg [rdx], eax; lock cmpxchg [rdx], ecx
        assert_eq!(told(&[0xf0, 0x0f, 0xc1, 0x02], rdx, 0x5018), Some(Access::Write));
        assert_eq!(told(&[0x87, 0x02], rdx, 0x5018), Some(Access::Write));
        assert_eq!(told(&[0xf0, 0x0f, 0xb1, 0x0a], rdx, 0x5018), Some(Access::Perhaps));
    }

    #[test]
    fn any_bytes_are_borne() {
        for n in 0..=255u8 {
            let code: Vec<u8> =
                (0..16u8).map(|i| n.wrapping_mul(31).wrapping_add(i.wrapping_mul(n))).collect();
            let _ = access(&code, &Regs::default(), (0x1000, 8));
        }
        assert_eq!(access(&[], &Regs::default(), (0, 1)), None);
    }
}
