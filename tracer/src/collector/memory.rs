//! The stacks of threads that were blocked before the recording.

use crate::memory::read;

/// How much of the stack of a thread that was blocked before the recording is read.
const STACK: usize = 64 << 10;
const PAGE: u64 = 4096;

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
