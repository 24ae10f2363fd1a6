//! Who holds what, asked of real processes: `sleep` with one end of everything in its hands.
#![allow(unsafe_code)] // Locks, terminals, tracing and mutexes of the C library are not to be had from std.

mod locks;

use pg_event::{Object, ObjectId, ObjectKind, OffState, Relation, ThreadId, endpoint_v4, syscall_number};
use pg_tracer::focus::Focus;
use pg_tracer::holders::{Found, Holders, LongWait, describe_fd, epoll_members};
use pg_tracer::identity::Identity;
use pg_tracer::procfs::{self, FdLink, read_fd_link};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: what another one forks has, until it executes its program, a copy of every
/// descriptor of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that is killed when the test is done, however it ends.
struct Sleeper(Child);

impl Sleeper {
    /// `sleep` with a descriptor as its standard input.
    fn with(fd: impl Into<OwnedFd>) -> Self {
        Self::of(Command::new("sleep").arg("1000").stdin(Stdio::from(fd.into())))
    }

    fn of(command: &mut Command) -> Self {
        Self(command.spawn().expect("spawn"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn me() -> u32 {
    std::process::id()
}

fn gettid() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

fn object(kind: ObjectKind, id: u64, peer: u64, name: &str) -> Object {
    Object { name: name.into(), ..Object::new(kind, id, peer) }
}

fn socket_inode(fd: &impl AsRawFd) -> u64 {
    match read_fd_link(me(), fd.as_raw_fd() as u32) {
        Some(FdLink::Socket(n) | FdLink::Pipe(n)) => n,
        other => panic!("neither socket nor pipe: {other:?}"),
    }
}

/// Ask on behalf of a thread; the answer as pids (or tids) and relations.
fn ask(tid: u32, tgid: u32, call: &str, object: &Object) -> Vec<(u32, Relation)> {
    ask_state(tid, tgid, call, OffState::Interruptible, Some(object), &[])
}

/// The same for a call that fails again and again.
fn ask_failed(tid: u32, call: &str, object: &Object, error: i64) -> Vec<(u32, Relation)> {
    ask_with((tid, tid), call, (OffState::Interruptible, error), Some(object), &[])
}

fn ask_state(
    tid: u32,
    tgid: u32,
    call: &str,
    state: OffState,
    object: Option<&Object>,
    members: &[(ObjectId, &Object)],
) -> Vec<(u32, Relation)> {
    ask_with((tid, tgid), call, (state, 0), object, members)
}

fn ask_with(
    (tid, tgid): (u32, u32),
    call: &str,
    (state, error): (OffState, i64),
    object: Option<&Object>,
    members: &[(ObjectId, &Object)],
) -> Vec<(u32, Relation)> {
    let mut identity = Identity::new(0, &Focus::default(), 0);
    let wait = LongWait {
        thread: ThreadId(0),
        tid,
        tgid,
        syscall: syscall_number(call).expect(call),
        op: 0,
        state,
        id: ObjectId(5),
        object,
        members,
        error,
    };
    let found = Holders::new().find(&wait, &mut identity, 1);
    let number = |f: &Found| identity.row(f.holder).expect("a known thread").tid;
    found.iter().map(|f| (number(f), f.relation)).collect()
}

/// The first argument of the call that a thread is blocked in, once it is blocked in `call`.
fn blocked_in(tid: u32, call: &str) -> u64 {
    let nr = syscall_number(call).expect(call).0;
    loop {
        let text = std::fs::read_to_string(procfs::path_of(tid, "syscall")).unwrap_or_default();
        let mut words = text.split_whitespace();
        if words.next().and_then(|w| w.parse::<u16>().ok()) == Some(nr) {
            let arg = words.next().and_then(|w| u64::from_str_radix(w.trim_start_matches("0x"), 16).ok());
            return arg.expect("an argument");
        }
        std::thread::yield_now();
    }
}

#[test]
fn pipes() {
    let _alone = alone();
    let (reader, writer) = std::io::pipe().expect("pipe");
    let pipe = object(ObjectKind::Pipe, socket_inode(&reader), socket_inode(&reader), "");
    let child = Sleeper::with(writer);
    for call in ["read", "poll", "epoll_wait"] {
        assert_eq!(ask(me(), me(), call, &pipe), [(child.pid(), Relation::Writes)], "{call}");
    }
    // The child, were it to write, waits for this process.
    for call in ["write", "ppoll"] {
        assert_eq!(ask(child.pid(), child.pid(), call, &pipe), [(me(), Relation::Reads)], "{call}");
    }
    drop(child);
    assert_eq!(ask(me(), me(), "read", &pipe), [], "nobody can write any more");
}

#[test]
fn a_pipe_whose_other_end_is_only_the_waiters_own() {
    let _alone = alone();
    let (reader, writer) = std::io::pipe().expect("pipe");
    let pipe = object(ObjectKind::Pipe, socket_inode(&reader), socket_inode(&reader), "");
    assert_eq!(ask(me(), me(), "read", &pipe), [(me(), Relation::Writes)]);
    let child = Sleeper::with(writer.try_clone().expect("clone"));
    assert_eq!(ask(me(), me(), "read", &pipe), [(child.pid(), Relation::Writes)]);
}

#[test]
fn fifos() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    // Opened for both, so that nobody waits here.
    let own = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let writer = Sleeper::with(std::fs::OpenOptions::new().write(true).open(&path).expect("open"));
    let name = path.to_str().expect("path");
    let fifo = object(ObjectKind::Fifo, own.metadata().expect("stat").ino(), 0, name);
    assert_eq!(ask(me(), me(), "read", &fifo), [(writer.pid(), Relation::Writes)]);
    assert_eq!(ask(writer.pid(), writer.pid(), "write", &fifo), [(me(), Relation::Reads)]);
}

#[test]
fn unix_sockets() {
    let _alone = alone();
    let (a, b) = UnixStream::pair().expect("pair");
    let (own, peer) = (socket_inode(&a), socket_inode(&b));
    let child = Sleeper::with(b);
    let socket = object(ObjectKind::UnixStream, own, peer, "");
    assert_eq!(ask(me(), me(), "recvfrom", &socket), [(child.pid(), Relation::Peer)]);
    let other = object(ObjectKind::UnixStream, peer, own, "");
    assert_eq!(ask(child.pid(), child.pid(), "write", &other), [(me(), Relation::Peer)]);
}

#[test]
fn a_unix_connection_not_accepted() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    let listening = socket_inode(&listener);
    let server = Sleeper::with(listener);
    let client = UnixStream::connect(&path).expect("connect");
    let own = socket_inode(&client);
    // The kernel lists what is pending; without a name, and by the name when it does not.
    for name in ["", path.to_str().expect("path")] {
        let socket = object(ObjectKind::UnixStream, own, 0, name);
        assert_eq!(ask(me(), me(), "recvfrom", &socket), [(server.pid(), Relation::Listens)], "{name}");
    }
    // The server itself waits for anybody.
    let socket = object(ObjectKind::UnixStream, listening, 0, path.to_str().expect("path"));
    assert_eq!(ask(server.pid(), server.pid(), "poll", &socket), []);
}

/// What waits for an answer began to when it had no peer yet.
#[test]
fn a_unix_connection_accepted_since_the_wait_began() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    let client = UnixStream::connect(&path).expect("connect");
    let (server_side, _) = listener.accept().expect("accept");
    let (server, listening) = (Sleeper::with(server_side), Sleeper::with(listener));
    let socket = object(ObjectKind::UnixStream, socket_inode(&client), 0, path.to_str().expect("path"));
    assert_eq!(ask(me(), me(), "poll", &socket), [(server.pid(), Relation::Peer)]);
    drop(listening);
}

#[test]
fn a_unix_connect_to_a_full_queue() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    // SAFETY: a plain system call on a valid descriptor: a queue of one.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let server = Sleeper::with(listener);
    let _first = UnixStream::connect(&path).expect("connect");
    let to = path.clone();
    let (tid_in, tid) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: gettid has no preconditions.
        tid_in.send(unsafe { libc::gettid() } as u32).expect("send");
        UnixStream::connect(to).is_ok()
    });
    let tid = tid.recv().expect("tid");
    blocked_in(tid, "connect");
    let socket = object(ObjectKind::UnixStream, 1, 0, "");
    assert_eq!(ask(tid, me(), "connect", &socket), [(server.pid(), Relation::Listens)]);
    drop(server);
    assert!(!thread.join().expect("join"), "its listener is gone");
}

fn key(a: SocketAddr) -> u64 {
    match a {
        SocketAddr::V4(a) => endpoint_v4(u32::from(*a.ip()), a.port()),
        SocketAddr::V6(a) => 1 << 63 | u64::from(a.port()),
    }
}

fn inet(kind: ObjectKind, local: SocketAddr, remote: SocketAddr) -> Object {
    let name = if local.is_ipv6() { format!("{local}->{remote}") } else { String::new() };
    object(kind, key(local), key(remote), &name)
}

#[test]
fn tcp_connections() {
    let _alone = alone();
    for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(bind) else {
            eprintln!("skipped: cannot listen on {bind}");
            continue;
        };
        let mut to = listener.local_addr().expect("address");
        if to.ip().is_unspecified() {
            to.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let client = TcpStream::connect(to).expect("connect");
        let socket = inet(ObjectKind::Tcp, client.local_addr().expect("address"), to);
        let (accepted, _) = listener.accept().expect("accept");
        let peer = Sleeper::with(accepted);
        assert_eq!(ask(me(), me(), "poll", &socket), [(peer.pid(), Relation::Peer)], "{bind}");
        let waiting = TcpStream::connect(to).expect("connect");
        let server = Sleeper::with(listener);
        let socket = inet(ObjectKind::Tcp, waiting.local_addr().expect("address"), to);
        assert_eq!(ask(me(), me(), "recvfrom", &socket), [(server.pid(), Relation::Listens)], "{bind}");
    }
}

#[test]
fn udp_peers() {
    let _alone = alone();
    for bind in ["127.0.0.1:0", "0.0.0.0:0"] {
        let server = UdpSocket::bind(bind).expect("bind");
        let to: SocketAddr = ([127, 0, 0, 1], server.local_addr().expect("address").port()).into();
        let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
        client.connect(to).expect("connect");
        let server = Sleeper::with(server);
        let socket = inet(ObjectKind::Udp, client.local_addr().expect("address"), to);
        assert_eq!(ask(me(), me(), "poll", &socket), [(server.pid(), Relation::Peer)], "{bind}");
    }
}

#[test]
fn children() {
    let _alone = alone();
    let shell = Sleeper::of(Command::new("sh").args(["-c", "sleep 1000 & sleep 1001 & wait"]));
    let kids = || {
        let mut kids: Vec<u32> = procfs::processes()
            .into_iter()
            .filter(|&p| procfs::read_stat(p).is_some_and(|s| s.ppid == shell.pid() && s.comm == b"sleep"))
            .collect();
        kids.sort_unstable();
        kids
    };
    while kids().len() < 2 {
        std::thread::yield_now();
    }
    let kids = kids();
    let any = object(ObjectKind::Child, 0, 0, "");
    let all: Vec<_> = kids.iter().map(|&k| (k, Relation::ChildOf)).collect();
    assert_eq!(ask(shell.pid(), shell.pid(), "wait4", &any), all);
    let one = object(ObjectKind::Child, kids[1].into(), 0, "");
    assert_eq!(ask(shell.pid(), shell.pid(), "wait4", &one), [(kids[1], Relation::ChildOf)]);
    let pidfd = object(ObjectKind::PidFd, kids[0].into(), 0, "");
    assert_eq!(ask(me(), me(), "poll", &pidfd), [(kids[0], Relation::ChildOf)]);
    for kid in kids {
        assert!(Command::new("kill").arg(kid.to_string()).status().expect("kill").success());
    }
    while !ask(shell.pid(), shell.pid(), "wait4", &any).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn the_tracer_of_a_stopped_thread() {
    let _alone = alone();
    let child = Sleeper::of(Command::new("sleep").arg("1000"));
    let pid = child.pid() as i32;
    let stopped = |state| ask_state(child.pid(), child.pid(), "poll", state, None, &[]);
    assert_eq!(stopped(OffState::Stopped), [], "stopped by a signal, nobody traces it");
    // SAFETY: tracing a child of this process without stopping it; the numbers are as ptrace(2) wants them.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
    if seized != 0 {
        eprintln!("skipped: ptrace: {}", std::io::Error::last_os_error());
        return;
    }
    // A tracer is a thread.
    assert_eq!(stopped(OffState::Traced), [(gettid(), Relation::Traces)]);
}

#[test]
fn pseudo_terminals() {
    let _alone = alone();
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: places for two descriptors; no name, default settings.
    let done = unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast()) };
    assert_eq!(done, 0);
    // SAFETY: both were just opened and belong to nobody else.
    let (_master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    // SAFETY: a plain system call on a valid descriptor.
    unsafe { libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC) };
    let path = describe_fd(me(), slave.as_raw_fd() as u32).expect("a path");
    let dev = std::fs::metadata(&path).expect("stat").rdev();
    let child = Sleeper::with(slave);
    let slave = object(ObjectKind::Tty, dev, dev | 1 << 63, &path);
    assert_eq!(ask(child.pid(), child.pid(), "write", &slave), [(me(), Relation::Peer)]);
    let master = object(ObjectKind::Tty, dev | 1 << 63, dev, "");
    assert_eq!(ask(me(), me(), "read", &master), [(child.pid(), Relation::Peer)]);
}

#[test]
fn event_counters_shared_with_another_process() {
    let _alone = alone();
    // SAFETY: a new descriptor, owned from here on.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let info = procfs::read_fdinfo(me(), fd.as_raw_fd() as u32).expect("fdinfo");
    let Some(number) = info.eventfd else {
        eprintln!("skipped: this kernel does not number its eventfds");
        return;
    };
    let counter = object(ObjectKind::EventFd, number, 0, "");
    assert_eq!(ask(me(), me(), "read", &counter), []);
    let child = Sleeper::with(fd.try_clone().expect("clone"));
    assert_eq!(ask(me(), me(), "read", &counter), [(child.pid(), Relation::Writes)]);
}

#[test]
fn sets_and_epoll_instances() {
    let _alone = alone();
    let (reader, writer) = std::io::pipe().expect("pipe");
    let (a, b) = UnixStream::pair().expect("pair");
    let pipe = object(ObjectKind::Pipe, socket_inode(&reader), socket_inode(&reader), "");
    let socket = object(ObjectKind::UnixStream, socket_inode(&a), socket_inode(&b), "");
    // SAFETY: a new descriptor, owned from here on, told to watch a valid one.
    let epoll = unsafe {
        let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, reader.as_raw_fd(), &raw mut event);
        epoll
    };
    let reader_fd = reader.as_raw_fd() as u32;
    assert_eq!(epoll_members(me(), epoll.as_raw_fd() as u32), [reader_fd]);
    assert_eq!(describe_fd(me(), reader_fd), Some(format!("pipe:[{}]", pipe.id)));
    assert_eq!(describe_fd(me(), 1_000_000), None);
    let (one, two) = (Sleeper::with(writer), Sleeper::with(b));
    let set = object(ObjectKind::Set, 0, 0, "");
    let members = [(ObjectId(7), &pipe), (ObjectId(8), &socket)];
    let found = ask_state(me(), me(), "poll", OffState::Interruptible, Some(&set), &members);
    assert_eq!(found, [(one.pid(), Relation::Writes), (two.pid(), Relation::Peer)]);
}

#[test]
fn one_scan_serves_many_waits() {
    let _alone = alone();
    let (reader, writer) = std::io::pipe().expect("pipe");
    let pipe = object(ObjectKind::Pipe, socket_inode(&reader), socket_inode(&reader), "");
    let mut identity = Identity::new(0, &Focus::default(), 0);
    let mut holders = Holders::new();
    let wait = LongWait {
        thread: ThreadId(0),
        tid: me(),
        tgid: me(),
        syscall: syscall_number("read").expect("read"),
        op: 0,
        state: OffState::Interruptible,
        id: ObjectId(1),
        object: Some(&pipe),
        members: &[],
        error: 0,
    };
    let mut pids = |now| {
        let found = holders.find(&wait, &mut identity, now);
        found.iter().map(|f| identity.row(f.holder).expect("known").tid).collect::<Vec<_>>()
    };
    assert_eq!(pids(1_000), [me()]);
    let child = Sleeper::with(writer);
    // The look at everybody is kept: what has gone since is noticed, what has come is not.
    assert_eq!(pids(2_000), Vec::<u32>::new());
    assert_eq!(pids(3_600_000_000_000), [child.pid()]);
}

#[test]
fn fuse_daemons() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::create_dir_all(&from).expect("mkdir");
    std::fs::create_dir_all(&to).expect("mkdir");
    std::fs::write(from.join("file"), "x").expect("write");
    let Ok(daemon) = Command::new("bindfs").arg("-f").args([&from, &to]).spawn().map(Sleeper) else {
        eprintln!("skipped: bindfs is not installed");
        return;
    };
    let mounted = || {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        text.contains(to.to_str().expect("path"))
    };
    let mut daemon = daemon;
    while !mounted() {
        if daemon.0.try_wait().expect("wait").is_some() {
            eprintln!("skipped: bindfs cannot mount here");
            return;
        }
        std::thread::yield_now();
    }
    let name = to.join("file");
    let stat = std::fs::metadata(&name).expect("stat");
    let by_device = object(ObjectKind::File, stat.ino(), stat.dev(), "");
    let by_path = object(ObjectKind::File, 99, 0, name.to_str().expect("path"));
    let elsewhere = object(ObjectKind::File, 99, 0, from.join("file").to_str().expect("path"));
    let found: Vec<_> =
        [&by_device, &by_path, &elsewhere].iter().map(|o| ask(me(), me(), "openat", o)).collect();
    assert!(Command::new("umount").arg(&to).status().expect("umount").success());
    let other_daemons = procfs::processes().into_iter().any(|p| {
        p != daemon.pid()
            && procfs::descriptors_of(p)
                .into_iter()
                .any(|fd| read_fd_link(p, fd) == Some(FdLink::Path("/dev/fuse".into())))
    });
    if other_daemons && found[0].is_empty() {
        eprintln!("skipped: other FUSE daemons run here and this kernel does not tell them apart");
        return;
    }
    assert_eq!(
        found,
        [vec![(daemon.pid(), Relation::Serves)], vec![(daemon.pid(), Relation::Serves)], vec![]]
    );
}
