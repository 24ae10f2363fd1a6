//! Locks: of files, and those of the C library.
#![allow(unsafe_code)] // The locks themselves are what is tested.

use crate::{Sleeper, alone, ask, ask_failed, blocked_in, gettid, me, object};
use pg_event::{Object, ObjectKind, Relation, SHARED_FUTEX};
use pg_tracer::holders::Holders;
use pg_tracer::procfs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

fn lock_object(path: &std::path::Path) -> Object {
    let stat = std::fs::metadata(path).expect("stat");
    object(ObjectKind::FileLock, stat.ino(), stat.dev(), path.to_str().expect("path"))
}

#[test]
fn flock_with_a_waiter() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("lock");
    std::fs::write(&path, "").expect("write");
    let lock = lock_object(&path);
    let listed = |blocked| {
        procfs::read_locks()
            .into_iter()
            .find(|l| l.inode == lock.id && l.blocked == blocked)
            .and_then(|l| l.pid)
    };
    let mut owner = Command::new("flock");
    let owner = Sleeper::of(owner.arg("--no-fork").arg(&path).args(["sleep", "1000"]));
    while listed(false).is_none() {
        std::thread::yield_now();
    }
    let mut waiter = Command::new("flock");
    let waiter = Sleeper::of(waiter.arg("--no-fork").arg(&path).arg("true"));
    while listed(true) != Some(waiter.pid()) {
        std::thread::yield_now();
    }
    assert_eq!(ask(waiter.pid(), waiter.pid(), "flock", &lock), [(owner.pid(), Relation::Owns)]);
    // A name that got lost is found by the descriptor.
    let mut holders = Holders::new();
    let flock = pg_event::syscall_number("flock").expect("a call");
    assert_eq!(holders.path_of_file(waiter.pid(), flock).as_deref(), path.to_str());
    assert_eq!(holders.path_of_file(owner.pid(), flock), None, "it is in another call");
}

#[test]
fn flock_whose_taker_is_gone() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("lock");
    std::fs::write(&path, "").expect("write");
    let lock = lock_object(&path);
    // flock(1) takes the lock on the shell's descriptor and ends; sleep inherits it.
    let script = format!("exec 9>{}; flock 9; exec sleep 1000", path.display());
    let holder = Sleeper::of(Command::new("sh").args(["-c", &script]));
    while procfs::read_stat(holder.pid()).expect("stat").comm != b"sleep" {
        std::thread::yield_now();
    }
    assert_eq!(ask(me(), me(), "flock", &lock), [(holder.pid(), Relation::Shares)]);
}

#[test]
fn flock_whose_taker_lives_and_has_closed_it() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("lock");
    std::fs::write(&path, "").expect("write");
    let lock = lock_object(&path);
    let file = std::fs::File::options().write(true).open(&path).expect("open");
    // SAFETY: flock(2) on a descriptor that is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    assert_eq!(ask(1, 1, "flock", &lock), [(me(), Relation::Owns)], "as long as it has it");
    // A child has it as its input; this process, which took the lock, closes it.
    let child = Sleeper::of(Command::new("sleep").arg("1000").stdin(file));
    assert_eq!(ask(1, 1, "flock", &lock), [(child.pid(), Relation::Shares)]);
}

#[test]
fn record_locks_of_processes_and_of_descriptions() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    for (name, command) in [("posix", libc::F_SETLK), ("ofd", libc::F_OFD_SETLK)] {
        let path = dir.path().join(name);
        let file = std::fs::File::create(&path).expect("create");
        // SAFETY: an all-zero flock is valid: the whole file, no pid.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = libc::F_WRLCK as i16;
        // SAFETY: a valid descriptor and flock.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const range) }, 0);
        let other = Sleeper::of(Command::new("sleep").arg("1000"));
        let found = ask(other.pid(), other.pid(), "fcntl", &lock_object(&path));
        assert_eq!(found, [(me(), Relation::Owns)], "{name}");
        drop(file);
        assert_eq!(ask(other.pid(), other.pid(), "fcntl", &lock_object(&path)), [], "{name}");
    }
}

static mut MUTEX: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
static mut RWLOCK: libc::pthread_rwlock_t = libc::PTHREAD_RWLOCK_INITIALIZER;

#[test]
fn mutexes_and_joins_of_the_c_library() {
    let _alone = alone();
    if cfg!(not(all(target_env = "gnu", target_arch = "x86_64"))) {
        eprintln!("skipped: glibc's mutexes are what is read");
        return;
    }
    let (tid_in, tids) = std::sync::mpsc::channel();
    let (go_in, go) = std::sync::mpsc::channel::<()>();
    let mine = tid_in.clone();
    // SAFETY (all of them): statics initialised as the C library wants, locked and unlocked by one thread.
    let owner = std::thread::spawn(move || unsafe {
        libc::pthread_mutex_lock(&raw mut MUTEX);
        libc::pthread_rwlock_wrlock(&raw mut RWLOCK);
        mine.send(gettid()).expect("send");
        let _ = go.recv();
        libc::pthread_rwlock_unlock(&raw mut RWLOCK);
        libc::pthread_mutex_unlock(&raw mut MUTEX);
    });
    let owner_tid = tids.recv().expect("tid");
    let waiter = |wait: fn()| {
        let mine = tid_in.clone();
        let thread = std::thread::spawn(move || {
            mine.send(gettid()).expect("send");
            wait();
        });
        (tids.recv().expect("tid"), thread)
    };
    let (mutex_tid, mutex_waiter) = waiter(|| unsafe {
        libc::pthread_mutex_lock(&raw mut MUTEX);
        libc::pthread_mutex_unlock(&raw mut MUTEX);
    });
    let (read_tid, reader) = waiter(|| unsafe {
        libc::pthread_rwlock_rdlock(&raw mut RWLOCK);
        libc::pthread_rwlock_unlock(&raw mut RWLOCK);
    });
    let (write_tid, writer) = waiter(|| unsafe {
        libc::pthread_rwlock_wrlock(&raw mut RWLOCK);
        libc::pthread_rwlock_unlock(&raw mut RWLOCK);
    });
    let mine = tid_in.clone();
    let joiner = std::thread::spawn(move || {
        mine.send(gettid()).expect("send");
        owner.join().expect("join");
    });
    let join_tid = tids.recv().expect("tid");
    for tid in [mutex_tid, read_tid, write_tid, join_tid] {
        let word = blocked_in(tid, "futex");
        let futex = object(ObjectKind::Futex, word, me().into(), "");
        assert_eq!(ask(tid, me(), "futex", &futex), [(owner_tid, Relation::Owns)]);
    }
    // Waiting for what nobody owns: a channel.
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    let mine = tid_in.clone();
    std::thread::spawn(move || {
        mine.send(gettid()).expect("send");
        let _ = silence.recv();
    });
    let idle = tids.recv().expect("tid");
    let futex = object(ObjectKind::Futex, blocked_in(idle, "futex"), me().into(), "");
    assert_eq!(ask(idle, me(), "futex", &futex), []);
    go_in.send(()).expect("send");
    for thread in [mutex_waiter, reader, writer, joiner] {
        thread.join().expect("join");
    }
}

static mut OWN: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
static mut LEFT: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;

/// Mutexes whose owner is not another thread that lives: the waiter itself, a thread that has ended, a process that has.
#[test]
fn owners_that_are_the_waiter_or_no_more() {
    let _alone = alone();
    if cfg!(not(all(target_env = "gnu", target_arch = "x86_64"))) {
        eprintln!("skipped: glibc's mutexes are what is read");
        return;
    }
    let (tid_in, tids) = std::sync::mpsc::channel();
    let of = |word: u64| object(ObjectKind::Futex, word, u64::from(me()), "");
    // A process of its own, since the lock is never given back.
    let child = |run: fn()| {
        // SAFETY: the child does nothing but lock and end.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            run();
            // SAFETY: _exit has no preconditions.
            unsafe { libc::_exit(0) };
        }
        pid as u32
    };
    // SAFETY (all of them): statics initialised as the C library wants.
    let itself = child(|| unsafe {
        libc::pthread_mutex_lock(&raw mut OWN);
        libc::pthread_mutex_lock(&raw mut OWN);
    });
    let word = blocked_in(itself, "futex");
    let own = object(ObjectKind::Futex, word, u64::from(itself), "");
    assert_eq!(ask(itself, itself, "futex", &own), [(itself, Relation::Owns)]);
    // SAFETY: a child of this process that was not waited for.
    unsafe { libc::kill(itself as i32, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(itself as i32, std::ptr::null_mut(), 0) };

    let mine = tid_in.clone();
    let gone = std::thread::spawn(move || {
        mine.send(gettid()).expect("send");
        // SAFETY: a static initialised as the C library wants.
        unsafe { libc::pthread_mutex_lock(&raw mut LEFT) };
    });
    let gone_tid = tids.recv().expect("tid");
    gone.join().expect("join");
    let waiter = std::thread::spawn(move || {
        tid_in.send(gettid()).expect("send");
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_lock(&raw mut LEFT) };
    });
    let waiter_tid = tids.recv().expect("tid");
    let word = blocked_in(waiter_tid, "futex");
    while procfs::read_stat(gone_tid).is_some() {
        std::thread::yield_now();
    }
    assert_eq!(ask(waiter_tid, me(), "futex", &of(word)), [(gone_tid, Relation::Owns)]);
    // SAFETY: the C library lets any thread unlock a plain mutex.
    unsafe { libc::pthread_mutex_unlock(&raw mut LEFT) };
    waiter.join().expect("join");
}

/// A word of shared memory that names nobody, as of a semaphore: the one other process that has the memory may write to it.
#[test]
fn who_has_the_memory_of_a_word_mapped() {
    let _alone = alone();
    let file = tempfile::tempfile().expect("tempfile");
    file.set_len(4096).expect("set_len");
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a mapping of its own.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, shared, file.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the children do nothing but wait until they are killed.
    let child = |wait: &dyn Fn()| match unsafe { libc::fork() } {
        0 => {
            // SAFETY: of this process alone; whatever fails above, it does not outlive the test.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            loop {
                wait();
            }
        }
        pid => pid as u32,
    };
    let waiter = child(&|| unsafe {
        let none = std::ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_futex, map, libc::FUTEX_WAIT, 0, none);
    });
    let other = child(&|| unsafe {
        libc::pause();
    });
    let word = blocked_in(waiter, "futex");
    assert_eq!(word, map as u64);
    let futex = object(ObjectKind::Futex, 0, SHARED_FUTEX | 5, "");
    // This process has it, too.
    let mut either = ask(waiter, waiter, "futex", &futex);
    either.sort_unstable_by_key(|h| h.0);
    let mut expected = [(me(), Relation::Writes), (other, Relation::Writes)];
    expected.sort_unstable_by_key(|h| h.0);
    assert_eq!(either, expected);
    // SAFETY: mapped above, and not used any more.
    unsafe { libc::munmap(map, 4096) };
    assert_eq!(ask(waiter, waiter, "futex", &futex), [(other, Relation::Writes)]);
    for pid in [other, waiter] {
        // SAFETY: children of this process that were not waited for.
        unsafe {
            libc::kill(pid as i32, libc::SIGKILL);
            libc::waitpid(pid as i32, std::ptr::null_mut(), 0);
        }
        let left = [(other, Relation::Writes)];
        assert!(pid == waiter || ask(waiter, waiter, "futex", &futex) != left, "it has ended");
    }
}

/// A file that is there already, with a number in it, or open in one process.
#[test]
fn who_made_a_file_that_locks_others_out() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("x.lock");
    let file = object(ObjectKind::File, 0, 0, path.to_str().expect("path"));
    let exists = -i64::from(libc::EEXIST);
    let holder = Sleeper::of(Command::new("sleep").arg("1000"));
    let tried = |error| ask_failed(me(), "openat", &file, error);
    assert_eq!(tried(exists), [], "there is no such file");
    std::fs::write(&path, format!("{}\n", holder.pid())).expect("write");
    assert_eq!(tried(exists), [(holder.pid(), Relation::Owns)]);
    assert_eq!(tried(0), [], "a wait within open(2) touches no file");
    // Whoever has that number now began later than the file was written.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(1_000_000);
    std::fs::File::options().write(true).open(&path).expect("open").set_modified(old).expect("set");
    assert_eq!(tried(exists), [], "another one has its number");
    let gone = Sleeper::of(Command::new("sleep").arg("1000")).pid();
    std::fs::write(&path, gone.to_string()).expect("write");
    assert_eq!(tried(exists), [(gone, Relation::Owns)], "by its number, as one that has ended");
    std::fs::write(&path, "busy").expect("write");
    assert_eq!(tried(exists), [], "no number");
    let open = std::fs::File::open(&path).expect("open");
    let has_it = Sleeper::with(open);
    assert_eq!(tried(exists), [(has_it.pid(), Relation::Owns)], "one has it open");
}
