//! Who owns what a futex word belongs to, as far as the C library writes that down beside it.

use super::{Holders, LongWait, Who};
use crate::procfs;
use pg_event::{Object, Relation};

/// Kernel: `FUTEX_TID_MASK`, the owner in the word of a priority-inheriting or robust mutex.
const TID_MASK: u32 = 0x3fff_ffff;
/// `PTHREAD_RWLOCK_WRLOCKED` in `__readers` of glibc's rwlock: a writer has it or is about to.
const WRITE_LOCKED: u32 = 2;
/// Largest plausible value of glibc's `__nusers`: threads that use the mutex right now.
const MAX_USERS: u32 = 1 << 20;
/// Bits a mutex's `__kind` may have (type, protocol, robust, shared, elision).
const KIND_BITS: u32 = 0x3ff;

/// Most threads whose number within their namespace is read.
const MAX_THREADS: usize = 4096;

/// What a futex wait is on, judged by the words around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Thread(u32),
    Unknown,
}

/// glibc's `pthread_mutex_t`: lock, count, owner, users, kind.
fn mutex_owner(words: [u32; 5]) -> Owner {
    let [lock, _, owner, users, kind] = words;
    // 2: locked, others wait. A robust mutex has the owner in the word itself, with a flag for waiters.
    let locked = lock == 2 || (lock & TID_MASK) == owner;
    if locked && owner != 0 && owner <= TID_MASK && (1..=MAX_USERS).contains(&users) && kind & !KIND_BITS == 0
    {
        Owner::Thread(owner)
    } else {
        Owner::Unknown
    }
}

impl Holders {
    pub(super) fn futex_owner(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        // In a shared mapping the object is known by what is mapped; where the waiter has it, its call tells.
        let address = if object.is_shared_futex() {
            match self.blocked_call(wait.tid) {
                Some((number, args)) if number == u64::from(wait.syscall.0) => args[0],
                _ => return Vec::new(),
            }
        } else {
            object.id
        };
        let shared = object.is_shared_futex();
        // FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2.
        if wait.syscall.is_any(&["futex"]) && !matches!(wait.op & 0x7f, 0 | 6 | 9 | 11 | 13) {
            return Vec::new();
        }
        let mut owner = Owner::Unknown;
        if let Some([word]) = self.words::<1>(wait.tgid, address)
            && matches!(wait.op & 0x7f, 6 | 13)
            && word & TID_MASK != 0
        {
            owner = Owner::Thread(word & TID_MASK);
        }
        if owner == Owner::Unknown
            && let Some(words) = self.words::<5>(wait.tgid, address)
        {
            owner = mutex_owner(words);
        }
        if let Owner::Thread(tid) = owner
            && let Some(found) = thread_called(wait, tid, shared)
        {
            return vec![(found, Relation::Owns)];
        }
        // glibc's rwlock: waiters sleep on `__wrphase_futex` (its third word) or `__writers_futex` (its
        // fourth); `__cur_writer` is its seventh.
        for before in [2u64, 3] {
            let Some(base) = address.checked_sub(before * 4) else { continue };
            if let Some(words) = self.words::<7>(wait.tgid, base)
                && words[0] & WRITE_LOCKED != 0
                && words[6] != 0
                && words[4] == 0
                && let Some(found) = thread_called(wait, words[6], shared)
            {
                return vec![(found, Relation::Owns)];
            }
        }
        // pthread_join(3): the word is the number of the thread waited for until the kernel clears it.
        if let Some([word]) = self.words::<1>(wait.tgid, address)
            && word > 2
            && let Some(found) = thread_called(wait, word, false)
        {
            return vec![(found, Relation::Owns)];
        }
        Vec::new()
    }
}

/// The thread of the waiter's process (of any, when the word is shared) that has this number in the waiter's
/// pid namespace.
fn thread_called(wait: &LongWait, number: u32, shared: bool) -> Option<Who> {
    let levels = procfs::read_status(wait.tgid)?.ns_pids.len();
    if shared {
        return if levels <= 1 {
            let status = procfs::read_status(number)?;
            (number != wait.tid).then_some(Who::Thread(number, status.tgid))
        } else {
            procfs::processes()
                .into_iter()
                .flat_map(procfs::threads_of)
                .take(MAX_THREADS)
                .filter_map(procfs::read_status)
                .find(|s| s.ns_pids.len() == levels && s.ns_pids.last() == Some(&number))
                .map(|s| Who::Thread(s.pid, s.tgid))
        };
    }
    if levels <= 1 {
        let there = procfs::threads_of(wait.tgid).binary_search(&number).is_ok();
        return (there && number != wait.tid).then_some(Who::Thread(number, wait.tgid));
    }
    procfs::threads_of(wait.tgid)
        .into_iter()
        .take(MAX_THREADS)
        .filter(|&t| t != wait.tid)
        .find(|&t| procfs::read_status(t).is_some_and(|s| s.ns_pids.last() == Some(&number)))
        .map(|t| Who::Thread(t, wait.tgid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutexes_and_what_is_none() {
        assert_eq!(mutex_owner([2, 0, 77, 1, 0]), Owner::Thread(77));
        // Robust: the owner in the word, with FUTEX_WAITERS.
        assert_eq!(mutex_owner([0x8000_004d, 0, 77, 1, 0x10]), Owner::Thread(77));
        assert_eq!(mutex_owner([2, 0, 0, 0, 0]), Owner::Unknown);
        assert_eq!(mutex_owner([1234, 0, 77, 1, 0]), Owner::Unknown);
        assert_eq!(mutex_owner([2, 0, 77, u32::MAX, 0]), Owner::Unknown);
        assert_eq!(mutex_owner([2, 0, 77, 1, 0x8000]), Owner::Unknown);
    }
}
