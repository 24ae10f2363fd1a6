//! The descriptors that a thread within poll(2), select(2) or their kin asks about, from its memory.

use super::Holders;
use pg_event::Sysno;

/// Most descriptors of one call: as many as one read of the target's memory holds.
const MOST: usize = 32;
/// Descriptors that a `fd_set` can hold (`FD_SETSIZE`).
const FD_SETSIZE: u64 = 1024;

/// Told of each descriptor of poll(2), also unasked.
const UNASKED: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// Descriptors of an array of `struct pollfd`: a descriptor (negative ones are passed over), two masks. Those of which
/// nothing but errors and hang-ups is asked only count where there are no others.
fn of_poll(bytes: &[u8]) -> Vec<u32> {
    let one = |p: &[u8]| {
        let fd = i32::from_ne_bytes(p.get(..4)?.try_into().ok()?);
        let events = i16::from_ne_bytes(p.get(4..6)?.try_into().ok()?);
        Some((u32::try_from(fd).ok()?, events & !UNASKED != 0))
    };
    let all: Vec<_> = bytes.chunks_exact(8).filter_map(one).collect();
    let any = all.iter().any(|(_, asks)| *asks);
    all.into_iter().filter(|(_, asks)| *asks || !any).map(|(fd, _)| fd).collect()
}

/// Descriptors whose bits are set, below `limit`.
fn of_bits(bytes: &[u8], limit: u64) -> Vec<u32> {
    let bit = |n: &u32| bytes.get(*n as usize / 8).is_some_and(|b| b >> (n % 8) & 1 == 1);
    (0..limit.min(FD_SETSIZE) as u32).filter(bit).collect()
}

impl Holders {
    /// The descriptors that this call of a thread asks about, [`MOST`] of an array at most; `None` when it
    /// asks about none, or its memory cannot be read.
    pub(crate) fn polled(&mut self, tid: u32, nr: Sysno, args: [u64; 6]) -> Option<Vec<u32>> {
        if nr.is_any(&["poll", "ppoll"]) {
            let many = usize::try_from(args[1]).unwrap_or(usize::MAX).min(MOST);
            return Some(of_poll(&self.bytes(tid, args[0], many * 8).filter(|_| many > 0)?));
        }
        if !nr.is_any(&["select", "pselect6"]) {
            return None;
        }
        let len = args[0].min(FD_SETSIZE).div_ceil(64) as usize * 8;
        let mut out = Vec::new();
        for set in args.get(1..4)?.iter().filter(|&&set| set != 0 && len > 0) {
            out.extend(of_bits(&self.bytes(tid, *set, len)?, args[0]));
        }
        out.sort_unstable();
        out.dedup();
        (!out.is_empty()).then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read() {
        let mut bytes = Vec::new();
        for fd in [3i32, -1, 7] {
            bytes.extend(fd.to_ne_bytes());
            bytes.extend([1, 0, 0, 0]);
        }
        bytes.extend([9, 9]);
        assert_eq!(of_poll(&bytes), [3, 7]);
        let hung_up = [1i32.to_ne_bytes(), [0x10, 0, 0, 0]].concat();
        assert_eq!(of_poll(&hung_up), [1]);
        assert_eq!(of_poll(&[hung_up, bytes].concat()), [3, 7]);
        assert_eq!(of_bits(&[0b0010_1001, 0b1], 9), [0, 3, 5, 8]);
        assert_eq!(of_bits(&[0xff], 3), [0, 1, 2]);
        assert_eq!(of_bits(&[], u64::MAX), [0u32; 0]);
    }
}
