//! Where in a function a probe goes. The kernel emulates a few instructions (pushes, jumps, calls, instructions that do
//! nothing); through any other it steps, which takes 10 us and more on some virtual machines instead of 0.7. So the
//! probe stands at the first such instruction that is come by exactly once a call.

use crate::stacks::open_plain;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes looked at for jumps back into what lies before the probe.
const FUNCTION: usize = 4096;
/// Bytes behind the entry within which a probe still stands at it.
const REACH: u64 = 192;

/// Where a probe goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Bytes behind the entry.
    pub skip: u32,
    /// How many bytes lower than at the entry the stack pointer is there.
    pub lower: u32,
    /// The kernel has to step through the instruction.
    pub stepped: bool,
}

impl Point {
    /// The entry itself.
    pub const ENTRY: Self = Self { skip: 0, lower: 0, stepped: true };

    /// For the code at `offset` in a file: a function's, or what follows a call.
    pub fn find(file: &Path, offset: u64) -> Self {
        let mut code = [0; FUNCTION];
        let read = open_plain(file).and_then(|f| f.read_at(&mut code, offset).ok());
        read.map_or(Self::ENTRY, |n| Self::of(&code[..n]))
    }

    /// For this code.
    pub fn of(code: &[u8]) -> Self {
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let (mut all, mut lower) = (Vec::new(), 0);
        let mut found = None;
        while decoder.can_decode() {
            let i = decoder.decode();
            if i.is_invalid() {
                break;
            }
            if found.is_none() && i.ip() < REACH {
                if is_emulated(&i, code) {
                    found = Some(Self { skip: i.ip() as u32, lower, stepped: false });
                } else if i.flow_control() != FlowControl::Next || !moved(&i, &mut lower) {
                    return Self::ENTRY;
                }
            }
            all.push(i);
        }
        let Some(point) = found else { return Self::ENTRY };
        // Jumped to in between: it may be come by twice a call, or by another way.
        let between = |i: &Instruction| {
            i.op0_kind() == OpKind::NearBranch64 && (1..=u64::from(point.skip)).contains(&i.near_branch64())
        };
        if all.iter().any(between) { Self::ENTRY } else { point }
    }
}

/// `uprobes.c` of the kernel for x86: without a prefix that changes what they do.
fn is_emulated(i: &Instruction, code: &[u8]) -> bool {
    let first = code.get(i.ip() as usize).copied().unwrap_or(0);
    let plain = |least: u8, most: u8| (least..=most).contains(&first);
    match i.code() {
        Code::Push_r64 => plain(0x50, 0x57) || first == 0x41,
        Code::Nopd if i.len() == 1 => true,
        Code::Call_rel32_64 | Code::Jmp_rel32_64 => plain(0xe8, 0xe9),
        Code::Jmp_rel8_64 => first == 0xeb,
        _ => i.is_jcc_short_or_near() && (plain(0x70, 0x7f) || first == 0x0f),
    }
}

/// Follow the stack pointer; `false` when it is not known behind this instruction.
fn moved(i: &Instruction, lower: &mut u32) -> bool {
    let by = i.stack_pointer_increment();
    if by != 0 {
        *lower = lower.wrapping_sub(by as u32);
        return true;
    }
    if i.op_count() == 0 || i.op0_kind() != OpKind::Register || i.op0_register() != Register::RSP {
        return true;
    }
    match i.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Test => true,
        Mnemonic::Sub if is_immediate(i) => {
            *lower = lower.wrapping_add(i.immediate(1) as u32);
            true
        }
        Mnemonic::Add if is_immediate(i) => {
            *lower = lower.wrapping_sub(i.immediate(1) as u32);
            true
        }
        _ => false,
    }
}

fn is_immediate(i: &Instruction) -> bool {
    !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(skip: u32, lower: u32) -> Point {
        Point { skip, lower, stepped: false }
    }

    #[test]
    fn probes_stand_where_the_kernel_need_not_step() {
        // push rbx; ret
        assert_eq!(Point::of(&[0x53, 0xc3]), at(0, 0));
        // endbr64; push r12
        assert_eq!(Point::of(&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54, 0xc3]), at(4, 0));
        // sub rsp, 0x18; mov eax, edi; test eax, eax; je +1; nop; ret
        let code = [0x48, 0x83, 0xec, 0x18, 0x89, 0xf8, 0x85, 0xc0, 0x74, 0x01, 0x90, 0xc3];
        assert_eq!(Point::of(&code), at(8, 0x18));
        // mov eax, 0; (again:) add eax, 1; jne again; ret: the jump leads to before itself.
        let code = [0xb8, 0, 0, 0, 0, 0x83, 0xc0, 0x01, 0x75, 0xfb, 0xc3];
        assert_eq!(Point::of(&code), Point::ENTRY);
        // A loop back to the very entry: of the first turn and of the others.
        // push rbx; (again:) dec edi; jne again; pop rbx; ret
        assert_eq!(Point::of(&[0x53, 0xff, 0xcf, 0x75, 0xfc, 0x5b, 0xc3]), at(0, 0));
        // mov rax, rdi; ret: nothing that is emulated.
        assert_eq!(Point::of(&[0x48, 0x89, 0xf8, 0xc3]), Point::ENTRY);
        // and rsp, -16; push rbp: the stack pointer is not known.
        assert_eq!(Point::of(&[0x48, 0x83, 0xe4, 0xf0, 0x55, 0xc3]), Point::ENTRY);
        assert_eq!(Point::of(&[]), Point::ENTRY);
    }
}
