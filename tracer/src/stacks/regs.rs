//! The general purpose registers of x86-64, by name and by DWARF number.

/// All 17 general purpose registers of a thread in user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // each field is the register of its name, without the leading `r`
pub struct Regs {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    pub ax: u64,
    pub bx: u64,
    pub cx: u64,
    pub dx: u64,
    pub si: u64,
    pub di: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
}

/// 64-bit words of the kernel's `struct pt_regs`.
pub const PT_REGS: usize = 21;

impl From<[u64; PT_REGS]> for Regs {
    /// As the kernel's `struct pt_regs` has them.
    fn from(words: [u64; PT_REGS]) -> Self {
        let [r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, _, ip, _, _, sp, _] = words;
        Self { ip, sp, bp, ax, bx, cx, dx, si, di, r8, r9, r10, r11, r12, r13, r14, r15 }
    }
}

impl From<&libc::user_regs_struct> for Regs {
    /// As ptrace(2) gives them.
    fn from(r: &libc::user_regs_struct) -> Self {
        Self {
            ip: r.rip,
            sp: r.rsp,
            bp: r.rbp,
            ax: r.rax,
            bx: r.rbx,
            cx: r.rcx,
            dx: r.rdx,
            si: r.rsi,
            di: r.rdi,
            r8: r.r8,
            r9: r.r9,
            r10: r.r10,
            r11: r.r11,
            r12: r.r12,
            r13: r.r13,
            r14: r.r14,
            r15: r.r15,
        }
    }
}

/// Number of DWARF columns kept: 16 registers and the return address.
pub(super) const COLUMNS: usize = 17;
pub(super) const RBP: usize = 6;
pub(super) const RSP: usize = 7;
/// Column of the return address: the instruction pointer of the caller.
pub(super) const RA: usize = 16;
/// Registers that a function must preserve (System V ABI for x86-64, figure 3.4).
pub(super) const CALLEE_SAVED: [usize; 6] = [3, RBP, 12, 13, 14, 15];

/// Registers of one frame; in callers some values are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameRegs {
    value: [u64; COLUMNS],
    known: u32,
}

impl FrameRegs {
    /// Value of a register by its DWARF number (System V ABI, figure 3.36: 0 rax, 1 rdx, 2 rcx, 3 rbx,
    /// 4 rsi, 5 rdi, 6 rbp, 7 rsp, 8-15 r8-r15, 16 return address), `None` when it is not known.
    pub fn get(&self, column: usize) -> Option<u64> {
        let v = *self.value.get(column)?;
        (self.known >> column & 1 == 1).then_some(v)
    }

    pub(super) fn set(&mut self, column: usize, value: Option<u64>) {
        if let (Some(slot), Some(v)) = (self.value.get_mut(column), value) {
            *slot = v;
            self.known |= 1 << column;
        }
    }

    pub(super) fn clear(&mut self, column: usize) {
        self.known &= !(1u32.checked_shl(column as u32).unwrap_or(0));
    }

    /// Instruction pointer.
    pub fn ip(&self) -> Option<u64> {
        self.get(RA)
    }

    /// Stack pointer.
    pub fn sp(&self) -> Option<u64> {
        self.get(RSP)
    }
}

impl From<&Regs> for FrameRegs {
    fn from(r: &Regs) -> Self {
        let value = [
            r.ax, r.dx, r.cx, r.bx, r.si, r.di, r.bp, r.sp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15, r.ip,
        ];
        Self { value, known: (1 << COLUMNS) - 1 }
    }
}
