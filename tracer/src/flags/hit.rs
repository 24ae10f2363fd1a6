//! An access to a flag as the BPF program reports it (`struct hit` in `bpf/flags.bpf.c`).

use crate::stacks::{PT_REGS, Regs};

/// Bytes before the instruction pointer.
const CODE: usize = 16;
/// Size of `struct hit`.
const HEAD: usize = 232;
const IN_KERNEL: u8 = 1;

/// An access.
#[derive(Clone, PartialEq, Debug)]
pub struct Hit {
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// The watched address, in the process that touched it.
    pub address: u64,
    /// What was there afterwards.
    pub value: u64,
    /// Names the stack, which is sent once.
    pub key: u64,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Where.
    pub cpu: u16,
    /// The kernel did it, for the thread.
    pub in_kernel: bool,
    /// Registers in user mode.
    pub regs: Regs,
    /// What lies before `regs.ip`.
    pub code: [u8; CODE],
    /// From the stack pointer upwards; empty when it was sent before.
    pub stack: Vec<u8>,
}

impl Hit {
    /// Read a record; `None` when it is damaged.
    pub fn parse(b: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        let mut r = [0; PT_REGS];
        for (i, r) in r.iter_mut().enumerate() {
            *r = u64_at(48 + i * 8)?;
        }
        let width = u32::from(*b.get(43)?).min(8);
        let mask = 1u64.checked_shl(width * 8).map_or(u64::MAX, |m| m - 1);
        Some(Self {
            time: u64_at(0)?,
            address: u64_at(8)?,
            value: u64_at(16)? & mask,
            key: u64_at(24)?,
            tid: u32_at(32)?,
            tgid: u32_at(36)?,
            cpu: u16::from_le_bytes(b.get(40..42)?.try_into().ok()?),
            in_kernel: b.get(42)? & IN_KERNEL != 0,
            regs: r.into(),
            code: b.get(216..216 + CODE)?.try_into().ok()?,
            stack: b.get(HEAD..HEAD.checked_add(u32_at(44)? as usize)?)?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_the_program_puts_them() {
        let source = include_str!("../../bpf/flags.bpf.c");
        assert!(source.contains(&format!("sizeof(struct hit) == {HEAD}")));
        let mut b = vec![0; HEAD + 8];
        b[0..8].copy_from_slice(&9u64.to_le_bytes());
        b[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        b[32..36].copy_from_slice(&77u32.to_le_bytes());
        b[43] = 2;
        b[44..48].copy_from_slice(&8u32.to_le_bytes());
        b[48 + 16 * 8..][..8].copy_from_slice(&0x1000u64.to_le_bytes());
        b[48 + 19 * 8..][..8].copy_from_slice(&0x2000u64.to_le_bytes());
        let h = Hit::parse(&b).unwrap();
        assert_eq!((h.time, h.tid, h.value, h.stack.len()), (9, 77, 0xffff, 8));
        assert_eq!((h.regs.ip, h.regs.sp, h.in_kernel), (0x1000, 0x2000, false));
        b.truncate(HEAD + 7);
        assert_eq!(Hit::parse(&b), None);
    }

    proptest! {
        #[test]
        fn any_bytes(b in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Hit::parse(&b);
        }
    }
}
