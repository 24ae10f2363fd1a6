//! Calls that fail again and again since somebody else holds what they want: the failing call never waits, so
//! it is its failures that make the collector look up the holder.

use super::hash::FastMap;
use pg_event::{ObjectId, SyscallUse, ThreadId};

/// So many failures on one object make a retry; a lock refused is one.
const MANY: u32 = 3;
/// ... within this, ns.
const SPAN_NS: u64 = 10_000_000_000;
/// Holders of one object are looked up again for one thread after this, ns.
const AGAIN_NS: u64 = 2_000_000_000;
/// Most threads and objects remembered.
const MOST: usize = 4096;

/// Errors that say: not now, another one has it.
const TAKEN: [i32; 8] = [
    libc::EAGAIN,
    libc::EACCES,
    libc::EBUSY,
    libc::EDEADLK,
    libc::ETXTBSY,
    libc::ETIMEDOUT,
    libc::ECONNREFUSED,
    libc::EEXIST,
];
/// A file that is there already locks others out, and who wants to make it sleeps between two tries: one is all that is seen
/// where calls are recorded for a moment. A folder tells nothing of who made it.
const MAKES_FOLDER: [&str; 2] = ["mkdir", "mkdirat"];

#[derive(Default)]
struct Seen {
    failures: u32,
    since: u64,
    looked: Option<u64>,
}

/// Counts failures by thread and object.
#[derive(Default)]
pub struct Retries {
    seen: FastMap<(ThreadId, ObjectId), Seen>,
}

impl Retries {
    /// A call failed at `now` (any clock, ns): are the holders of its object to be looked up? `lock`: the object
    /// is a lock.
    pub fn failed(&mut self, thread: ThreadId, call: &SyscallUse, lock: bool, now: u64) -> bool {
        let taken = call.result.checked_neg().is_some_and(|e| TAKEN.iter().any(|&t| i64::from(t) == e));
        let exists = call.result == -i64::from(libc::EEXIST);
        if !taken || call.object.is_none() || exists && call.nr.is_any(&MAKES_FOLDER) {
            return false;
        }
        let key = (thread, call.object);
        if self.seen.len() >= MOST && !self.seen.contains_key(&key) {
            self.seen.clear();
        }
        let s = self.seen.entry(key).or_default();
        if now.saturating_sub(s.since) > SPAN_NS {
            (s.failures, s.since) = (0, now);
        }
        s.failures = s.failures.saturating_add(call.count);
        let due = (lock || exists || s.failures >= MANY)
            && s.looked.is_none_or(|at| now.saturating_sub(at) >= AGAIN_NS);
        if due {
            s.looked = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::Sysno;

    fn call(object: u32, result: i64, count: u32) -> SyscallUse {
        SyscallUse { start: 0, nr: Sysno(72), result, count, op: 6, object: ObjectId(object) }
    }

    #[test]
    fn three_failures_on_one_object_and_not_too_often() {
        let mut r = Retries::default();
        let eagain = -i64::from(libc::EAGAIN);
        assert!(!r.failed(ThreadId(1), &call(5, eagain, 2), false, 0));
        assert!(!r.failed(ThreadId(1), &call(6, eagain, 1), false, 1), "another object");
        assert!(r.failed(ThreadId(1), &call(5, eagain, 1), false, 2));
        assert!(!r.failed(ThreadId(1), &call(5, eagain, 9), false, 3), "looked up just now");
        assert!(r.failed(ThreadId(1), &call(5, eagain, 1), false, AGAIN_NS + 2));
        assert!(r.failed(ThreadId(3), &call(5, eagain, 1), true, 4), "a lock");
        let exists = -i64::from(libc::EEXIST);
        assert!(r.failed(ThreadId(4), &call(5, exists, 1), false, 5), "a file that is there already");
        let folder =
            SyscallUse { nr: pg_event::syscall_number("mkdir").expect("a call"), ..call(6, exists, 9) };
        assert!(!r.failed(ThreadId(4), &folder, false, 5));
        assert!(!r.failed(ThreadId(2), &call(5, -i64::from(libc::EINTR), 9), true, 4), "no sign of a holder");
        assert!(!r.failed(ThreadId(2), &call(u32::MAX, eagain, 9), true, 4), "of no object");
    }
}
