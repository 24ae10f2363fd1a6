//! Reads the memory of other processes without stopping them.
#![allow(unsafe_code)] // process_vm_readv(2) has no safe wrapper in std.

/// Reads up to `buffer.len()` bytes at `address` of the process of `tid`; how many could be read: fewer, or none, when
/// they are not all there or it is not permitted. Can block for as long as the target's memory lock is held: see
/// [`crate::patience`].
pub(crate) fn read(tid: u32, address: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` names the whole of `buffer`, which is valid for writes; the kernel checks `remote`.
    let n =
        unsafe { libc::process_vm_readv(tid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}
