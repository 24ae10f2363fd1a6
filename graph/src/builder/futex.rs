//! What a futex word is used for: a mutex' hand-off is a weak cause, a condition's signal a strong one.
//!
//! Known from the operation and value a thread waits with (glibc: a contended lock is 2 and waited for
//! with FUTEX_WAIT; Rust's mutex: 2 with FUTEX_WAIT_BITSET; priority inheritance: only locks) and from
//! the names on its stack, which win.

use crate::columns::Detail;
use crate::python::pythons_lock;
use pg_event::{Catalog, StackId};

const WAIT: u32 = 0;
const LOCK_PI: u32 = 6;
const WAIT_BITSET: u32 = 9;
const LOCK_PI2: u32 = 13;
/// FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME are no part of the operation.
const OPERATION: u32 = 127;

/// Use of a futex word, as a stack tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Use {
    #[default]
    NotLooked,
    Unknown,
    Lock,
    Other,
}

const LOCKS: &[&str] = &[
    "lll_lock_wait",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timed",
    "pthread_rwlock_clock",
    "mutex::futex::Mutex::lock_contended",
    "rwlock::futex::RwLock::read_contended",
    "rwlock::futex::RwLock::write_contended",
    "RawMutex::lock_slow",
    "RawRwLock::lock_",
    "pthread_spin_lock",
    "std::mutex::lock",
];

const OTHERS: &[&str] = &[
    "pthread_cond_",
    "Condvar::wait",
    "condition_variable",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "new_sem_wait",
    "pthread_join",
    "clockjoin",
    "timedjoin",
    "pthread_barrier",
    "Thread::park",
    "thread::park",
    "std::thread::Thread::join",
    "std::atomic",
    "gomp_",
    "kmp_",
];

fn by_stack(stack: StackId, catalog: &Catalog) -> Use {
    if let Some(lock) = pythons_lock(stack, catalog) {
        return if lock { Use::Lock } else { Use::Other };
    }
    // The leaf frames of the wait; further out is what the program wanted with it.
    for f in catalog.frames_of(stack).take(8) {
        for name in f.names() {
            if OTHERS.iter().any(|o| name.contains(o)) {
                return Use::Other;
            }
            if LOCKS.iter().any(|l| name.contains(l)) {
                return Use::Lock;
            }
        }
    }
    Use::Unknown
}

/// Looks at each stack once.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    by_stack: Vec<Use>,
}

impl Uses {
    /// Does the futex wait of this vertex wait for a lock?
    pub fn is_lock(&mut self, d: &Detail, catalog: &Catalog) -> bool {
        let operation = d.op & OPERATION;
        let known = if catalog.stack(d.user_stack).is_some() {
            if self.by_stack.len() <= d.user_stack.index() {
                self.by_stack.resize(catalog.stacks.len(), Use::NotLooked);
            }
            let cell = &mut self.by_stack[d.user_stack.index()];
            if *cell == Use::NotLooked {
                *cell = by_stack(d.user_stack, catalog);
            }
            *cell
        } else {
            Use::Unknown
        };
        match known {
            Use::Lock => true,
            Use::Other => false,
            _ => match operation {
                LOCK_PI | LOCK_PI2 => true,
                WAIT | WAIT_BITSET => d.value == 2,
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{Frame, FrameId, ObjectId, OffState, Stack, Sysno, ThreadId};

    fn is_lock(op: u32, value: u32, function: &str) -> bool {
        let frame = Frame { function: function.into(), ..Frame::default() };
        let stack = Stack { frames: vec![FrameId(0)], ..Stack::default() };
        let catalog = Catalog { stacks: vec![stack], frames: vec![frame], ..Catalog::default() };
        let d = Detail {
            preempted: 0,
            timeout: 0,
            thread: ThreadId(0),
            object: ObjectId::NONE,
            user_stack: StackId(0),
            kernel_stack: StackId::NONE,
            op,
            value,
            syscall: Sysno(202),
            state: OffState::Interruptible,
            flags: 0,
        };
        Uses::default().is_lock(&d, &catalog)
    }

    #[test]
    fn operation_value_and_stack() {
        // FUTEX_WAIT_PRIVATE with 2: glibc's contended lock.
        assert!(is_lock(128, 2, ""));
        // FUTEX_WAIT_BITSET_PRIVATE with 2: Rust's.
        assert!(is_lock(137, 2, ""));
        assert!(is_lock(134, 0, ""));
        assert!(!is_lock(137, 0, ""));
        assert!(!is_lock(128, 7, "__new_sem_wait_slow64"));
        // Names win: a condition's word can be 2, a lock's can be anything.
        assert!(!is_lock(137, 2, "pthread_cond_wait@@GLIBC_2.3.2"));
        assert!(is_lock(128, 1, "parking_lot::raw_mutex::RawMutex::lock_slow"));
    }
}
