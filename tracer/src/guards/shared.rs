//! Maps that user space and the programs both have in memory.
#![allow(unsafe_code)] // Memory that the kernel's programs write, read and written as atomics.

use crate::error::Error;
use memmap2::{MmapOptions, MmapRaw};
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// An array of `T`, mapped (`BPF_F_MMAPABLE`).
pub struct Shared<T> {
    map: MmapRaw,
    len: usize,
    of: PhantomData<T>,
}

impl<T> Shared<T> {
    /// The map `fd` of `len` elements.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn of(fd: RawFd, len: usize) -> Result<Self, Error> {
        let bytes = (len * size_of::<T>()).next_multiple_of(4096);
        let map = MmapOptions::new().len(bytes).map_raw(fd);
        let map = map.map_err(|e| Error::Failed(format!("cannot map what the guards count: {e}")))?;
        Ok(Self { map, len, of: PhantomData })
    }

    /// The word at byte `at` of element `i`.
    pub fn u32(&self, i: usize, at: usize) -> &AtomicU32 {
        assert!(i < self.len && at + 4 <= size_of::<T>() && at.is_multiple_of(4));
        // SAFETY: within the mapping and aligned, by the assertion; both sides access it by single instructions.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(i * size_of::<T>() + at).cast()) }
    }

    /// As [`Self::u32`], of elements whose size is a multiple of 8.
    pub fn u64(&self, i: usize, at: usize) -> &AtomicU64 {
        const { assert!(size_of::<T>().is_multiple_of(8)) }
        assert!(i < self.len && at + 8 <= size_of::<T>() && at.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(i * size_of::<T>() + at).cast()) }
    }
}
