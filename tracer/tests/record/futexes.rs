//! Futex words that two processes have mapped at different addresses.

#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{fact, pause, tid};
use crate::until::recorded_until;
use crate::{Recording, allowed, options};
use pg_event::{ObjectKind, Relation};
use pg_tracer::{Level, Options};

/// What both processes map.
#[repr(C)]
struct Shared {
    mutex: libc::pthread_mutex_t,
    semaphore: libc::sem_t,
}

/// A new mapping of `fd`.
unsafe fn map(fd: i32) -> *mut Shared {
    // SAFETY: a new mapping at an address of the kernel's choice; the file is that long.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 4096)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// A mutex that another process holds until its owner was seen, then a semaphore that it posts.
pub fn shared_mutex() {
    // SAFETY: plain calls of the C library on memory that is mapped for it; the forked child calls nothing that
    // is not safe after a fork.
    unsafe {
        let fd = libc::memfd_create(c"pg-shared".as_ptr(), 0);
        assert_eq!(libc::ftruncate(fd, 8192), 0);
        let mine = map(fd);
        let theirs = map(fd);
        assert_ne!(mine, theirs);
        let mut attr = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attr);
        libc::pthread_mutexattr_setpshared(&raw mut attr, libc::PTHREAD_PROCESS_SHARED);
        assert_eq!(libc::pthread_mutex_init(&raw mut (*mine).mutex, &raw const attr), 0);
        assert_eq!(libc::sem_init(&raw mut (*mine).semaphore, 1, 0), 0);
        let mut ready = [0; 2];
        assert_eq!(libc::pipe(ready.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::munmap(mine.cast(), 4096);
            libc::pthread_mutex_lock(&raw mut (*theirs).mutex);
            libc::write(ready[1], c"x".as_ptr().cast(), 1);
            // Its standard input is that of the other one.
            while libc::read(0, [0u8; 1].as_mut_ptr().cast(), 1) > 0 {}
            libc::pthread_mutex_unlock(&raw mut (*theirs).mutex);
            libc::usleep(60_000);
            libc::sem_post(&raw mut (*theirs).semaphore);
            libc::usleep(100_000);
            libc::_exit(0);
        }
        libc::munmap(theirs.cast(), 4096);
        fact("self", tid());
        fact("child", child);
        libc::read(ready[0], [0u8; 1].as_mut_ptr().cast(), 1);
        assert_eq!(libc::pthread_mutex_lock(&raw mut (*mine).mutex), 0);
        assert_eq!(libc::sem_wait(&raw mut (*mine).semaphore), 0);
        pause();
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

#[test]
fn a_word_mapped_by_two_processes_is_one_object() {
    if !allowed("a_word_mapped_by_two_processes_is_one_object") {
        return;
    }
    let options = Options { long_wait_ns: 50_000_000, ..options(Level::Messages) };
    let owned = |r: &Recording| {
        let of = |fact: &str| r.facts.get(fact).and_then(|tid| r.thread_of(tid.parse().ok()?));
        let child = of("child");
        of("self").is_some() && r.holds("self").iter().any(|(t, _)| Some(*t) == child)
    };
    recorded_until("shared-mutex", &options, owned, |r| {
        let waits = r.waits("self", "futex");
        let child = r.thread("child");
        let of = |offset: u64| {
            waits
                .iter()
                .map(|(_, w)| w)
                .filter(|w| !w.open)
                .find(|w| r.object(w.object).is_shared_futex() && r.object(w.object).id == offset)
                .unwrap_or_else(|| panic!("no wait at {offset}: {waits:?}"))
        };
        // By offset in the file: the mapping begins at its second page.
        let mutex = of(4096 + std::mem::offset_of!(Shared, mutex) as u64);
        let semaphore = of(4096 + std::mem::offset_of!(Shared, semaphore) as u64);
        for w in [mutex, semaphore] {
            assert_eq!((w.waker, w.waker_object), (child, w.object), "{w:?}");
            let o = r.object(w.object);
            assert_eq!(o.kind, ObjectKind::Futex);
            assert!(o.name.contains("pg-shared"), "{o:?}");
        }
        let owner = r.holds("self").into_iter().find(|(_, h)| h.object == mutex.object);
        let (who, hold) = owner.expect("the owner of the mutex was not looked up");
        assert_eq!((who, hold.relation), (child, Relation::Owns));
    });
}
