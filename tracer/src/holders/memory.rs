//! Words of a target's memory and the arguments of its system call, read without stopping it.

use super::Holders;

/// Up to `len` bytes of a thread's memory.
fn read(tid: u32, address: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0u8; len];
    let got = crate::memory::read(tid, address, &mut out);
    out.truncate(got);
    out
}

impl Holders {
    /// Up to `len` (at most 256) bytes at an address of a thread that lives: the first of its process may have ended.
    pub(super) fn bytes(&mut self, tid: u32, address: u64, len: usize) -> Option<Vec<u8>> {
        self.patience.run(tid, move || read(tid, address, len.min(256)))
    }

    /// The bytes at an address of a thread up to the first zero, at most `most` of them; `None` when they cannot be
    /// read, or there are more.
    pub(crate) fn text(&mut self, tid: u32, address: u64, most: usize) -> Option<Vec<u8>> {
        const STEP: usize = 256;
        let mut out = Vec::new();
        while out.len() < most {
            let next = self.bytes(tid, address.checked_add(out.len() as u64)?, STEP)?;
            if let Some(end) = next.iter().position(|b| *b == 0) {
                out.extend(&next[..end]);
                return (out.len() <= most).then_some(out);
            }
            if next.len() < STEP {
                return None;
            }
            out.extend(next);
        }
        None
    }

    /// Number and arguments of the system call a thread is blocked in (`/proc/TID/syscall`).
    pub(super) fn blocked_call(&mut self, tid: u32) -> Option<(u64, [u64; 6])> {
        let path = crate::procfs::path_of(tid, "syscall");
        let bytes = self.patience.run(tid, move || crate::procfs::read_bounded(&path, 512))?.ok()?;
        parse_call(&bytes)
    }
}

/// Number and arguments in `/proc/TID/syscall`; `None` when it is in no call.
pub(crate) fn parse_call(bytes: &[u8]) -> Option<(u64, [u64; 6])> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_a_thread_is_in() {
        let text = b"42 0x3 0x7ffd1 0x6e 0x0 0x0 0xffffffffffffffff 0x7ffd0 0x7f00\n";
        assert_eq!(parse_call(text), Some((42, [3, 0x7ffd1, 0x6e, 0, 0, u64::MAX])));
        assert_eq!(parse_call(b"running\n"), None);
        assert_eq!(parse_call(b"-1 0x7ffd 0x7f\n"), None);
        assert_eq!(parse_call(b""), None);
    }

    #[test]
    fn memory_of_this_process() {
        let mut holders = Holders::new();
        let words = Box::new([1u32, 2, 3]);
        let address = words.as_ptr() as u64;
        assert_eq!(holders.bytes(std::process::id(), 8, 4), Some(Vec::new()));
        assert_eq!(holders.bytes(std::process::id(), address, 5), Some(vec![1, 0, 0, 0, 2]));
        let own = std::process::id();
        let text = std::ffi::CString::new(vec![b'x'; 600]).unwrap();
        let at = text.as_ptr() as u64;
        assert_eq!(holders.text(own, at, 4096), Some(text.as_bytes().to_vec()));
        assert_eq!(holders.text(own, at, 599), None);
        assert_eq!(holders.text(own, 8, 4096), None);
    }
}
