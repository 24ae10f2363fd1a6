//! Who holds what long waits wait for, seen from a recording: one kind of object after the other.
#![allow(unsafe_code)] // The system calls themselves are what is tested.

use crate::programs::{fact, inode, new_pipe, tid};
use crate::until::{recorded_until, told};
use crate::{Recording, allowed, options};
use pg_event::{ObjectKind, Relation};
use pg_tracer::{Level, Options};
use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longer than anybody waits for holders to be looked up, s: they are ended before.
const LONG: &str = "600";

/// A process that has `fd`, and nothing else of this one, until it is ended.
fn holder(kind: &str, fd: impl Into<OwnedFd>) -> Child {
    let child = Command::new("sleep").arg(LONG).stdin(Stdio::from(fd.into())).spawn().unwrap();
    fact(&format!("{kind}-holder"), child.id());
    child
}

/// A thread that waits in `wait`.
fn waiter(kind: &'static str, wait: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        fact(kind, tid());
        wait();
    })
}

/// Reads until the other end is gone.
fn drain(mut from: impl Read + Send + 'static) -> impl FnOnce() + Send + 'static {
    move || {
        let _ = from.read(&mut [0]);
    }
}

fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: both descriptors are written; name, settings and size are left out.
    unsafe {
        assert_eq!(libc::openpty(&raw mut master, &raw mut slave, null.cast(), null.cast(), null.cast()), 0);
        for fd in [master, slave] {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// An epoll instance to which something is added after a wait told of its members: what a proxy waits for at last.
pub fn added_later() {
    // SAFETY: descriptors are open, events valid, with room for one.
    unsafe {
        let ep = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let add = |fd: i32| {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
            assert_eq!(libc::epoll_ctl(ep.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event), 0);
        };
        let wait = |timeout| {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            libc::epoll_wait(ep.as_raw_fd(), &raw mut event, 1, timeout)
        };
        let (r, _w) = new_pipe();
        add(r.as_raw_fd());
        fact("self", tid());
        assert_eq!(wait(5), 0);
        let (a, b) = UnixStream::pair().unwrap();
        fact("added", inode(a.as_raw_fd()));
        add(a.as_raw_fd());
        let mut child = holder("added", b);
        let end = told();
        let ender = thread::spawn(move || {
            end.join().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        });
        assert_eq!(wait(-1), 1);
        ender.join().unwrap();
    }
}

pub fn wait_for_all() {
    let dir = std::env::temp_dir().join(format!("pg-holds-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let mut children = Vec::new();
    let mut waiters = Vec::new();

    let (r, w) = new_pipe();
    children.push(holder("pipe", w));
    waiters.push(waiter("pipe", drain(r)));

    let fifo = dir.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let both = File::options().read(true).write(true).open(&fifo).unwrap();
    children.push(holder("fifo", File::options().write(true).open(&fifo).unwrap()));
    let r = File::open(&fifo).unwrap();
    drop(both);
    waiters.push(waiter("fifo", drain(r)));

    let (a, b) = UnixStream::pair().unwrap();
    children.push(holder("unix", b));
    waiters.push(waiter("unix", drain(a)));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    children.push(holder("tcp", listener.accept().unwrap().0));
    waiters.push(waiter("tcp", drain(a)));

    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    children.push(holder("backlog", listener));
    waiters.push(waiter("backlog", drain(a)));

    let listener = UnixListener::bind(dir.join("socket")).unwrap();
    let a = UnixStream::connect(dir.join("socket")).unwrap();
    children.push(holder("unix-backlog", listener));
    waiters.push(waiter("unix-backlog", drain(a)));

    let (master, slave) = terminal();
    children.push(holder("terminal", master));
    waiters.push(waiter("terminal", drain(File::from(slave))));

    let mut child = Command::new("sleep").arg(LONG).spawn().unwrap();
    let waited_for = child.id();
    fact("child-holder", waited_for);
    waiters.push(waiter("child", move || drop(child.wait())));

    // flock(1) takes the lock itself; the file shows when it has it.
    let (lock, held) = (dir.join("lock"), dir.join("held"));
    let script = format!("touch {} && read x", held.display());
    let mut command = Command::new("flock");
    command.arg("-o").arg(&lock).args(["sh", "-c", &script]).stdin(Stdio::piped());
    let mut locks = command.spawn().unwrap();
    fact("flock-holder", locks.id());
    while !held.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let file = File::open(&lock).unwrap();
    waiters.push(waiter("flock", move || file.lock().unwrap()));

    let (release, released) = std::sync::mpsc::channel::<()>();
    // SAFETY: the mutex and the rwlock live as long as the process; all threads use them as such.
    unsafe {
        let mutex: &'static mut libc::pthread_mutex_t = Box::leak(Box::new(std::mem::zeroed()));
        let mut attr = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attr);
        libc::pthread_mutexattr_setprotocol(&raw mut attr, libc::PTHREAD_PRIO_INHERIT);
        let pi: &'static mut libc::pthread_mutex_t = Box::leak(Box::new(std::mem::zeroed()));
        assert_eq!(libc::pthread_mutex_init(pi, &raw const attr), 0);
        let rwlock: &'static mut libc::pthread_rwlock_t = Box::leak(Box::new(std::mem::zeroed()));
        let (m, p, w) = (&raw mut *mutex as usize, &raw mut *pi as usize, &raw mut *rwlock as usize);
        let (taken, is_taken) = std::sync::mpsc::channel();
        waiters.push(thread::spawn(move || {
            libc::pthread_mutex_lock(m as *mut _);
            libc::pthread_mutex_lock(p as *mut _);
            libc::pthread_rwlock_wrlock(w as *mut _);
            fact("owner", tid());
            taken.send(()).unwrap();
            let _ = released.recv();
            libc::pthread_rwlock_unlock(w as *mut _);
            libc::pthread_mutex_unlock(p as *mut _);
            libc::pthread_mutex_unlock(m as *mut _);
        }));
        is_taken.recv().unwrap();
        waiters.push(waiter("mutex", move || assert_eq!(libc::pthread_mutex_lock(m as *mut _), 0)));
        waiters.push(waiter("pi-mutex", move || assert_eq!(libc::pthread_mutex_lock(p as *mut _), 0)));
        waiters.push(waiter("rwlock", move || assert_eq!(libc::pthread_rwlock_rdlock(w as *mut _), 0)));
    }
    told().join().unwrap();
    drop(release);
    // SAFETY: the child is this process's, and nobody has waited for its end before it is ended.
    unsafe { libc::kill(waited_for as i32, libc::SIGKILL) };
    drop(locks.stdin.take());
    for c in &mut children {
        c.kill().unwrap();
    }
    for w in waiters {
        w.join().unwrap();
    }
    children.push(locks);
    for mut c in children {
        let _ = c.wait();
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Another process has the lock; this one asks for it again and again, with a pause in between, and never waits.
pub fn refused(pause: Duration) {
    let path = std::env::temp_dir().join(format!("pg-refused-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let fd = file.as_raw_fd();
    // SAFETY: flock is plain numbers, for which all zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    let (mut locked, tells) = new_pipe();
    let (until, keep) = new_pipe();
    // SAFETY: the child calls only what is safe after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::fcntl(fd, libc::F_SETLK, &raw const lock);
            libc::write(tells.as_raw_fd(), c"x".as_ptr().cast(), 1);
            // For as long as the other one asks.
            libc::close(keep.as_raw_fd());
            libc::read(until.as_raw_fd(), [0u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    locked.read_exact(&mut [0]).unwrap();
    fact("self", tid());
    fact("child", child);
    fact("inode", inode(fd));
    let end = told();
    while !end.is_finished() {
        // SAFETY: `lock` is a valid flock.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) }, -1);
        thread::sleep(pause);
    }
    drop(keep);
    // SAFETY: the child is this process's.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    std::fs::remove_file(&path).unwrap();
}

/// What is to be seen: who holds what a thread waits for, and how.
type Held = (&'static str, &'static str, Relation);

/// Is it among what was seen of the thread?
fn check(r: &Recording, (kind, holder, relation): Held) -> Result<(), String> {
    let thread = |fact: &str| r.facts.get(fact).and_then(|tid| r.thread_of(tid.parse().ok()?));
    let (Some(_), Some(who)) = (thread(kind), thread(holder)) else {
        return Err(format!("{kind}: {holder} is not in the catalogue"));
    };
    let holds = r.holds(kind);
    if holds.iter().any(|(t, h)| *t == who && h.relation == relation) {
        return Ok(());
    }
    let name = |t| r.catalog.thread(t).map_or_else(String::new, |t| format!("{} {}", t.tid, t.name));
    let seen: Vec<_> = holds.iter().map(|(t, h)| (name(*t), h.relation)).collect();
    Err(format!("{kind}: wanted {} {relation:?}, got {seen:?}", name(who)))
}

#[test]
fn the_holder_of_each_kind_of_object_is_recorded() {
    if !allowed("the_holder_of_each_kind_of_object_is_recorded") {
        return;
    }
    let expected: [Held; 12] = [
        ("pipe", "pipe-holder", Relation::Writes),
        ("fifo", "fifo-holder", Relation::Writes),
        ("unix", "unix-holder", Relation::Peer),
        ("tcp", "tcp-holder", Relation::Peer),
        ("backlog", "backlog-holder", Relation::Listens),
        ("unix-backlog", "unix-backlog-holder", Relation::Listens),
        ("terminal", "terminal-holder", Relation::Peer),
        ("child", "child-holder", Relation::ChildOf),
        ("flock", "flock-holder", Relation::Owns),
        ("mutex", "owner", Relation::Owns),
        ("pi-mutex", "owner", Relation::Owns),
        ("rwlock", "owner", Relation::Owns),
    ];
    let wrong =
        |r: &Recording| -> Vec<String> { expected.iter().filter_map(|held| check(r, *held).err()).collect() };
    let options = Options { long_wait_ns: 100_000_000, ..options(Level::Messages) };
    recorded_until(
        "holds",
        &options,
        |r| wrong(r).is_empty(),
        |r| {
            let wrong = wrong(r);
            assert!(wrong.is_empty(), "{wrong:#?}");
        },
    );
}

#[test]
fn a_long_wait_is_for_what_was_added_to_its_epoll_instance_last() {
    if !allowed("a_long_wait_is_for_what_was_added_to_its_epoll_instance_last") {
        return;
    }
    let options = Options { long_wait_ns: 50_000_000, ..options(Level::Messages) };
    let peer: Held = ("self", "added-holder", Relation::Peer);
    recorded_until(
        "added-later",
        &options,
        |r| check(r, peer).is_ok(),
        |r| {
            let (_, hold) =
                r.holds("self").into_iter().find(|h| h.1.relation == Relation::Peer).expect("a holder");
            assert_eq!(r.object(hold.object).id, r.fact("added"));
            check(r, peer).unwrap();
        },
    );
}

#[test]
fn the_owner_of_a_lock_that_is_refused_again_and_again_is_recorded() {
    // Ten times a second, and once a second as package managers do.
    for (test, name) in [
        ("the_owner_of_a_lock_that_is_refused_again_and_again_is_recorded", "refused"),
        ("the_owner_of_a_lock_that_is_refused_once_a_second_is_recorded", "refused-slowly"),
    ] {
        if !allowed(test) {
            return;
        }
        let owner: Held = ("self", "child", Relation::Owns);
        recorded_until(
            name,
            &options(Level::Messages),
            |r| check(r, owner).is_ok(),
            |r| {
                check(r, owner).unwrap();
                let (_, hold) = r.holds("self")[0];
                let lock = r.object(hold.object);
                assert_eq!((lock.kind, lock.id), (ObjectKind::FileLock, r.fact("inode")));
                let refused =
                    r.calls("self").into_iter().find(|c| c.object == hold.object).expect("the call");
                assert!(refused.nr.is_any(&["fcntl"]), "{refused:?}");
                assert!([-i64::from(libc::EAGAIN), -i64::from(libc::EACCES)].contains(&refused.result));
            },
        );
    }
}
