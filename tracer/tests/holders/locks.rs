//! Locks: of files, and those of the C library.
#![allow(unsafe_code)] // The locks themselves are what is tested.

use crate::{Sleeper, alone, ask, blocked_in, gettid, me, object};
use pg_event::{Object, ObjectKind, Relation};
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
