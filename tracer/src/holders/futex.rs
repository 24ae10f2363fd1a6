//! Who owns what a futex word belongs to, as far as the C library writes that down beside it.

use super::{Holders, LongWait, Who};
use crate::procfs;
use pg_event::{Object, ObjectKind, Relation};

/// Kernel: `FUTEX_TID_MASK`, the owner in the word of a priority-inheriting or robust mutex.
const TID_MASK: u32 = 0x3fff_ffff;
/// `PTHREAD_RWLOCK_WRLOCKED` in `__readers` of glibc's rwlock: a writer has it or is about to.
const WRITE_LOCKED: u32 = 2;
/// `PTHREAD_RWLOCK_WRPHASE`: writers have it, or had it last. The readers are counted above three bits
/// (`PTHREAD_RWLOCK_READER_SHIFT`).
const WRITE_PHASE: u32 = 1;
const READER_SHIFT: u32 = 3;
/// Most readers that are believed.
const MAX_READERS: u32 = 1 << 16;
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

/// glibc's `pthread_rwlock_t` (readers, writers, two futex words, two of padding, the writer that has it): how many
/// readers have it while a writer waits.
fn rwlock_readers(words: [u32; 7]) -> Option<u32> {
    let [readers, writers, _, _, pad, more_pad, writer] = words;
    let count = readers >> READER_SHIFT;
    let waits = readers & WRITE_LOCKED != 0 || (1..MAX_READERS).contains(&writers);
    let fits = readers & WRITE_PHASE == 0 && waits && (pad, more_pad, writer) == (0, 0, 0);
    (fits && (1..=MAX_READERS).contains(&count)).then_some(count)
}

impl Holders {
    /// How many readers have the read-write lock of the C library that a thread waits to write; 0 when it waits for
    /// something else, or that cannot be read. Who they are is written nowhere.
    pub fn readers(&mut self, wait: &LongWait) -> u32 {
        let Some(object) = wait.object.filter(|o| o.kind == ObjectKind::Futex && !o.is_shared_futex()) else {
            return 0;
        };
        let Some(words) = self.around(wait.tid, object.id) else { return 0 };
        // Waiters sleep on its third or fourth word.
        [2, 3].into_iter().find_map(|before| rwlock_readers(words.take::<7>(-before)?)).unwrap_or(0)
    }

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
        let Some(words) = self.around(wait.tid, address) else { return Vec::new() };
        let own = words.take::<1>(0).map_or(0, |[w]| w);
        let by_word = matches!(wait.op & 0x7f, 6 | 13) && own & TID_MASK != 0;
        let owner = if by_word {
            Owner::Thread(own & TID_MASK)
        } else {
            words.take(0).map_or(Owner::Unknown, mutex_owner)
        };
        if let Owner::Thread(tid) = owner
            && let Some(found) = self.owner_called(wait, (tid, shared), address)
        {
            return vec![(found, Relation::Owns)];
        }
        // glibc's rwlock: waiters sleep on `__wrphase_futex` (its third word) or `__writers_futex` (its
        // fourth); `__cur_writer` is its seventh.
        for before in [2, 3] {
            if let Some(words) = words.take::<7>(-before)
                && words[0] & WRITE_LOCKED != 0
                && words[6] != 0
                && words[4] == 0
                && let Some(found) = thread_called(wait, words[6], shared)
            {
                return vec![(found, Relation::Owns)];
            }
        }
        // pthread_join(3): the word is the number of the thread waited for until the kernel clears it.
        if own > 2
            && let Some(found) = thread_called(wait, own, false)
        {
            return vec![(found, Relation::Owns)];
        }
        if !shared {
            return self.missing_at(wait, address, &words);
        }
        self.sharers(wait, address, &words)
    }

    /// Who has the number that a lock at `address` has as its owner's: also the waiter itself, and who has ended.
    fn owner_called(&mut self, wait: &LongWait, (number, shared): (u32, bool), address: u64) -> Option<Who> {
        if let Some(found) = thread_called(wait, number, shared) {
            return Some(found);
        }
        let numbers = procfs::read_status(wait.tid)?.ns_pids;
        if numbers.last() == Some(&number) && (!shared || numbers.len() <= 1) {
            return self.keeps_waiting(wait, number, address).then_some(Who::Thread(wait.tid, wait.tgid));
        }
        // Within another namespace, and of a lock that came by fork(2), the number means somebody else.
        if numbers.len() > 1 || procfs::read_thread_stat(number).is_some() {
            return None;
        }
        Some(if shared { Who::Ended(number) } else { Who::EndedThread(number, wait.tgid) })
    }

    /// Does the thread, which the lock names as its owner, still wait for it? One that has got it meanwhile is rightly named.
    fn keeps_waiting(&mut self, wait: &LongWait, number: u32, address: u64) -> bool {
        let waits = |s: &mut Self| {
            let call = s.blocked_call(wait.tid);
            call.is_some_and(|(nr, args)| nr == u64::from(wait.syscall.0) && args[0] == address)
        };
        let owner = |s: &mut Self| s.around(wait.tid, address).and_then(|w| w.take(0)).map(mutex_owner);
        waits(self) && owner(self) == Some(Owner::Thread(number)) && waits(self)
    }

    /// The words around one of a process, read at once: each read is handed to another thread, which costs more than
    /// the words do.
    fn around(&mut self, tid: u32, address: u64) -> Option<Around> {
        // Nothing may be mapped before its page.
        let in_page = (address % PAGE / 4) as usize;
        for before in [BEFORE, BEFORE.min(in_page)] {
            let Some(start) = address.checked_sub(before as u64 * 4) else { continue };
            let bytes = self.bytes(tid, start, (before + AFTER) * 4)?;
            let words: Vec<u32> =
                bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
            if words.len() > before {
                return Some(Around { words, before });
            }
        }
        None
    }
}

/// Smallest page there is, bytes.
const PAGE: u64 = 4096;
/// Words looked at before a futex word, and from it on.
const BEFORE: usize = 3;
const AFTER: usize = 17;

/// Words around a futex word, as far as they could be read.
pub(super) struct Around {
    words: Vec<u32>,
    /// How many of them lie before it.
    before: usize,
}

impl Around {
    /// Consecutive words, the first at this distance from the futex word.
    pub(super) fn take<const N: usize>(&self, from: isize) -> Option<[u32; N]> {
        let at = self.before.checked_add_signed(from)?;
        self.words.get(at..at.checked_add(N)?)?.try_into().ok()
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
    fn words_around_one_are_read_at_once() {
        let mut holders = Holders::new();
        let words: Box<[u32; 24]> = Box::new(std::array::from_fn(|i| i as u32 + 1));
        let address = words.as_ptr() as u64 + 12;
        let around = holders.around(std::process::id(), address).expect("own memory");
        assert_eq!(around.take::<5>(0), Some([4, 5, 6, 7, 8]));
        assert_eq!(around.take::<2>(-3), Some([1, 2]));
        assert_eq!(around.take::<1>(-4), None);
        assert_eq!(around.take::<1>(AFTER as isize), None, "no more were asked for");
        assert!(holders.around(std::process::id(), 16).is_none(), "nothing is mapped there");
    }

    #[test]
    fn a_word_at_the_beginning_of_a_mapping_has_none_before() {
        let page = 4096;
        let map = memmap2::MmapMut::map_anon(4 * page).expect("memory");
        let start = map.as_ptr() as u64;
        let mut holders = Holders::new();
        let around = holders.around(std::process::id(), start).expect("own memory");
        assert_eq!(around.take::<5>(0), Some([0; 5]));
        let around = holders.around(std::process::id(), start + 4).expect("own memory");
        assert_eq!(around.take::<5>(-1), Some([0; 5]));
    }

    #[test]
    fn readers_of_a_lock_are_counted() {
        // As glibc 2.36 has it while a writer waits for two readers.
        assert_eq!(rwlock_readers([2 << 3 | 2, 0, 1, 0, 0, 0, 0]), Some(2));
        assert_eq!(rwlock_readers([3 << 3, 1, 0, 1, 0, 0, 0]), Some(3), "a second writer counts itself");
        for none in [
            [2 << 3 | 3, 0, 1, 0, 0, 0, 77],
            [2 << 3, 0, 0, 0, 0, 0, 0],
            [2, 0, 1, 0, 0, 0, 0],
            [2 << 3 | 2, 0, 1, 0, 9, 0, 0],
            [u32::MAX - 1, 0, 1, 0, 0, 0, 0],
        ] {
            assert_eq!(rwlock_readers(none), None, "{none:?}");
        }
    }

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
