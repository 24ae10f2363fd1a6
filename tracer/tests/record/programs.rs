//! Small programs to be recorded. They run in a process of their own (this test binary again), print what
//! the recording must show as `fact NAME VALUE`, and wait for one thing at a time.
#![allow(unsafe_code)] // Waits are made with the system calls themselves.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

pub fn run(name: &str) {
    match name {
        "pipe" => pipe(),
        "unix" => unix(),
        "tcp" => tcp(),
        "flock" => flock(),
        "flock-renamed" => flock_renamed(),
        "mutex" => mutex(),
        "condvar" => condvar(),
        "poll" => poll(),
        "epoll" => epoll(),
        "clocked" => crate::clock::clocked(),
        "sleepers" => crate::long::sleepers(),
        "sleep" => sleep(),
        "wait" => wait(),
        "eventfd" => eventfd(),
        "hang" => hang(),
        "asked" => asked(),
        "busy" => busy(),
        "retry" => retry(),
        "shared-mutex" => crate::futexes::shared_mutex(),
        "timerfd" => crate::timers::timerfd(),
        "itimer" => crate::timers::itimer(),
        "posix_timer" => crate::timers::posix_timer(),
        "terminal" => crate::work::terminal(),
        "disk" => crate::disk::read(),
        "quota" => crate::quota::spin(),
        "udp-batch" => crate::datagrams::batch(),
        "udp" => crate::datagrams::udp(),
        "unix-datagram" => crate::datagrams::unix(),
        "added-later" => crate::holds::added_later(),
        "holds" => crate::holds::wait_for_all(),
        "refused" => crate::holds::refused(Duration::from_millis(100)),
        "refused-slowly" => crate::holds::refused(Duration::from_secs(1)),
        "poll-0" => crate::spins::poll_nothing(),
        "pause" => crate::spins::turn_in_place(),
        other => panic!("no program {other}"),
    }
    // What is mapped where is read from /proc when a stack comes: a recorder beside a busy machine's other
    // tests may come late.
    thread::sleep(Duration::from_millis(500));
}

pub fn fact(name: &str, value: impl std::fmt::Display) {
    println!("fact {name} {value}");
    let _ = std::io::stdout().flush();
}

pub fn tid() -> i64 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

pub fn pause() {
    thread::sleep(Duration::from_millis(40));
}

pub fn inode(fd: RawFd) -> u64 {
    // SAFETY: an all-zero stat is valid, and fstat only writes to it.
    unsafe {
        let mut s: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(fd, &raw mut s), 0);
        s.st_ino
    }
}

pub fn new_pipe() -> (File, File) {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for both; the descriptors are owned by nobody else.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(fds[0]).into(), OwnedFd::from_raw_fd(fds[1]).into())
    }
}

/// Runs `act` in another thread after a pause, while this one does `wait`.
pub fn between(wait: impl FnOnce(), act: impl FnOnce() + Send + 'static) {
    let other = thread::Builder::new().name("other".into()).spawn(move || {
        fact("other", tid());
        pause();
        act();
        pause();
    });
    fact("self", tid());
    wait();
    other.unwrap().join().unwrap();
}

fn pipe() {
    let (mut r, mut w) = new_pipe();
    fact("inode", inode(r.as_raw_fd()));
    assert_eq!(inode(r.as_raw_fd()), inode(w.as_raw_fd()));
    between(
        || r.read_exact(&mut [0]).unwrap(),
        move || {
            w.write_all(b"x").unwrap();
            pause();
        },
    );
}

fn unix() {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    fact("a", inode(a.as_raw_fd()));
    fact("b", inode(b.as_raw_fd()));
    between(
        || a.read_exact(&mut [0]).unwrap(),
        move || {
            b.write_all(b"x").unwrap();
            pause();
        },
    );
}

fn tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut b, _) = listener.accept().unwrap();
    fact("a", a.local_addr().unwrap().port());
    fact("b", b.local_addr().unwrap().port());
    between(
        || a.read_exact(&mut [0; 5]).unwrap(),
        move || {
            b.write_all(b"hello").unwrap();
            // Not closed: the end of the stream takes a position of its own.
            std::mem::forget(b);
        },
    );
}

fn flock() {
    let path = std::env::temp_dir().join(format!("pg-flock-{}", std::process::id()));
    let first = File::create(&path).unwrap();
    let second = File::open(&path).unwrap();
    fact("path", path.display());
    fact("inode", inode(first.as_raw_fd()));
    first.lock().unwrap();
    // The file stays until the recording is over: another one could get its inode, and so its name.
    between(|| second.lock().unwrap(), move || first.unlock().unwrap());
}

/// A lock is waited for, then again after its file got another name.
fn flock_renamed() {
    let old = std::env::temp_dir().join(format!("pg-flock-old-{}", std::process::id()));
    let new = std::env::temp_dir().join(format!("pg-flock-new-{}", std::process::id()));
    let first = File::create(&old).unwrap();
    let second = File::open(&old).unwrap();
    fact("path", new.display());
    let held = first.try_clone().unwrap();
    held.lock().unwrap();
    let other = thread::spawn(move || {
        pause();
        held.unlock().unwrap();
        held
    });
    second.lock().unwrap();
    second.unlock().unwrap();
    let held = other.join().unwrap();
    std::fs::rename(&old, &new).unwrap();
    held.lock().unwrap();
    between(|| second.lock().unwrap(), move || held.unlock().unwrap());
}

fn mutex() {
    let m = Arc::new(Mutex::new(()));
    let theirs = Arc::clone(&m);
    let (locked, is_locked) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        let held = theirs.lock().unwrap();
        locked.send(()).unwrap();
        fact("other", tid());
        pause();
        pause();
        drop(held);
        pause();
    });
    is_locked.recv().unwrap();
    fact("self", tid());
    drop(m.lock());
    other.join().unwrap();
}

fn condvar() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = Arc::clone(&pair);
    between(
        move || {
            let mut done = pair.0.lock().unwrap();
            while !*done {
                done = pair.1.wait(done).unwrap();
            }
        },
        move || {
            *theirs.0.lock().unwrap() = true;
            theirs.1.notify_one();
        },
    );
}

fn poll() {
    let (r, _w) = new_pipe();
    let (a, mut b) = UnixStream::pair().unwrap();
    fact("pipe", inode(r.as_raw_fd()));
    fact("a", inode(a.as_raw_fd()));
    fact("b", inode(b.as_raw_fd()));
    between(
        || {
            let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut fds = [wanted(r.as_raw_fd()), wanted(a.as_raw_fd())];
            // SAFETY: `fds` is an array of two.
            assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 2, 5000) }, 1);
        },
        move || {
            b.write_all(b"x").unwrap();
            pause();
        },
    );
}

fn epoll() {
    let (r, _w) = new_pipe();
    let (a, mut b) = UnixStream::pair().unwrap();
    fact("pipe", inode(r.as_raw_fd()));
    fact("a", inode(a.as_raw_fd()));
    // SAFETY: descriptors are open, `event` is valid.
    let ep = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    for fd in [r.as_raw_fd(), a.as_raw_fd()] {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::epoll_ctl(ep.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) }, 0);
    }
    between(
        || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: there is room for the one event asked for.
            assert_eq!(unsafe { libc::epoll_wait(ep.as_raw_fd(), &raw mut event, 1, -1) }, 1);
        },
        move || {
            b.write_all(b"x").unwrap();
            pause();
        },
    );
}

/// A lock that another process keeps is tried again and again.
fn retry() {
    let path = std::env::temp_dir().join(format!("pg-retry-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    // SAFETY: flock is plain numbers, for which all zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    let fd = file.as_raw_fd();
    // A lock of this open file: the other kind, of the process, collides with it.
    // SAFETY: `lock` is a valid flock.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) }, 0);
    fact("self", tid());
    fact("inode", inode(fd));
    let end = crate::until::told();
    while !end.is_finished() {
        // SAFETY: `lock` is a valid flock.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) }, -1);
        thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(&path).unwrap();
}

fn sleep() {
    fact("self", tid());
    thread::sleep(Duration::from_millis(60));
}

fn wait() {
    fact("self", tid());
    let mut child = std::process::Command::new("sleep").arg("0.06").spawn().unwrap();
    fact("child", child.id());
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    unsafe { libc::waitpid(child.id() as i32, &raw mut status, 0) };
    let _ = child.try_wait();
}

fn eventfd() {
    // SAFETY: the descriptor is owned by nobody else.
    let mut e: File = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) }.into();
    let mut other = e.try_clone().unwrap();
    between(|| e.read_exact(&mut [0; 8]).unwrap(), move || other.write_all(&1u64.to_ne_bytes()).unwrap());
}

/// Blocks for good; the recorder comes later and leaves earlier.
#[inline(never)]
fn hang() {
    let (mut r, _w) = new_pipe();
    fact("inode", inode(r.as_raw_fd()));
    fact("self", tid());
    let _ = r.read_exact(&mut [0]);
}

/// Waits for an answer, and watches a connection beside over which it was told something last.
fn asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect =
        || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
    let ((mut asks, _silent), (mut told, mut tells)) = (connect(), connect());
    told.write_all(b"?").unwrap();
    tells.read_exact(&mut [0]).unwrap();
    pause();
    tells.write_all(b"!").unwrap();
    told.read_exact(&mut [0]).unwrap();
    pause();
    asks.write_all(b"?").unwrap();
    fact("asks", asks.local_addr().unwrap().port());
    fact("told", told.local_addr().unwrap().port());
    fact("self", tid());
    let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [wanted(asks.as_raw_fd()), wanted(told.as_raw_fd())];
    // SAFETY: `fds` is an array of two.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
}

fn busy() {
    fact("self", tid());
    let used = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is valid for writes.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
        t.tv_sec * 1_000_000_000 + t.tv_nsec
    };
    let mut n = 0u64;
    while used() < 300_000_000 {
        n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(7));
    }
}
