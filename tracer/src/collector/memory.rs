//! Reads the memory of other processes without stopping them.
#![allow(unsafe_code)] // process_vm_readv(2) has no safe wrapper.

/// How much of the stack of a thread that was blocked before the recording is read.
const STACK: usize = 64 << 10;
const PAGE: u64 = 4096;

/// Reads up to `buffer.len()` bytes at `address` of the process of `tid`; how many could be read.
fn read(tid: u32, address: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` names the whole of `buffer`, which is valid for writes; the kernel checks `remote`.
    let n =
        unsafe { libc::process_vm_readv(tid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}

/// The stack of a thread from `sp` upwards; empty when it cannot be read.
pub fn stack(tid: u32, sp: u64) -> Vec<u8> {
    let mut buffer = vec![0; STACK];
    // One iovec that runs into a hole is read up to it, but only page by page for sure.
    let mut done = read(tid, sp, &mut buffer);
    while done < STACK {
        let at = sp + done as u64;
        let len = ((PAGE - at % PAGE) as usize).min(STACK - done);
        let n = read(tid, at, &mut buffer[done..done + len]);
        if n == 0 {
            break;
        }
        done += n;
    }
    buffer.truncate(done);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_can_be_read() {
        let data: Vec<u8> = (0..200).collect();
        let got = stack(std::process::id(), data.as_ptr() as u64);
        if got.is_empty() {
            println!("skipped: process_vm_readv is not permitted here");
            return;
        }
        assert_eq!(got[..200], data[..]);
        assert!(stack(std::process::id(), 8).is_empty());
    }
}
