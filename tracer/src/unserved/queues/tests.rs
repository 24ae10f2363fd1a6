//! What waits in sockets of this process, asked of the kernel.

use super::*;
use crate::sockdiag::tcp_request;
use std::io::{Read, Write};

fn own(q: &mut Queues) -> Vec<Reading> {
    q.find(&[std::process::id()]);
    q.look()
}

fn inode(fd: &impl std::os::fd::AsRawFd) -> u64 {
    match procfs::read_fd_link(std::process::id(), fd.as_raw_fd() as u32) {
        Some(FdLink::Socket(n)) => n,
        other => panic!("no socket: {other:?}"),
    }
}

/// Does the kernel answer that? If not the test is skipped.
fn answers(request: &[u8]) -> bool {
    let answer = Socket::open().and_then(|mut s| s.dump(request));
    if answer.is_none() {
        eprintln!("skipped: this kernel has no unix_diag or tcp_diag");
    }
    answer.is_some()
}

#[test]
fn what_waits_in_unix_sockets_is_seen() {
    use std::os::unix::net::{UnixListener, UnixStream};
    if !answers(&unix_request(2, 0)) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("wayland-7");
    let listener = UnixListener::bind(&path).expect("bind");
    let mut client = UnixStream::connect(&path).expect("connect");
    let mut server = listener.accept().expect("accept").0;
    let mut q = Queues::default();
    let of = |all: Vec<Reading>, n: u64| all.into_iter().find(|r| r.inode == n);
    assert_eq!(of(own(&mut q), inode(&client)), None, "nothing waits");
    server.write_all(b"event").expect("write");
    client.write_all(b"request").expect("write");
    let all = own(&mut q);
    let c = of(all.clone(), inode(&client)).expect("its events wait");
    assert_eq!((c.pid, c.waiting, c.taken), (std::process::id(), 5, None));
    let ends = Ends {
        kind: ObjectKind::UnixStream,
        id: inode(&client),
        peer: inode(&server),
        name: path.to_string_lossy().into_owned(),
        display: Display::Wayland,
    };
    assert_eq!(c.ends, ends);
    let s = of(all, inode(&server)).expect("the request waits");
    assert_eq!((s.waiting, s.ends.display), (7, Display::None), "a server is no client");
    client.read_exact(&mut [0; 5]).expect("read");
    assert_eq!(of(own(&mut q), inode(&client)), None);
}

#[test]
fn what_waits_in_tcp_sockets_is_seen_and_what_was_taken() {
    use std::net::{TcpListener, TcpStream};
    if !answers(&tcp_request(libc::AF_INET, 2)) {
        return;
    }
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(host) else {
            eprintln!("skipped: no {host}");
            continue;
        };
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let mut server = listener.accept().expect("accept").0;
        client.write_all(b"0123456789").expect("write");
        let mut q = Queues::default();
        let read = |q: &mut Queues| own(q).into_iter().find(|r| r.inode == inode(&server)).expect("it waits");
        let r = read(&mut q);
        assert_eq!((r.waiting, r.taken), (10, Some(0)));
        (&server).read_exact(&mut [0; 4]).expect("read");
        let r = read(&mut q);
        assert_eq!((r.waiting, r.taken, r.ends.kind), (6, Some(4), ObjectKind::Tcp));
        assert_eq!(r.ends.name.is_empty(), host.starts_with('1'));
        server.write_all(b"x").expect("write");
    }
}

/// Connections that nobody accepts are seen, and that one of them is accepted, also when another one comes.
#[test]
fn the_queues_of_sockets_that_listen_are_seen() {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    if !answers(&unix_request(2, 0)) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("server");
    let unix = UnixListener::bind(&path).expect("bind");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut q = Queues::default();
    let mut see = |inode: u64| own(&mut q).into_iter().find(|r| r.inode == inode);
    assert_eq!(see(inode(&unix)), None);
    assert_eq!(see(inode(&tcp)), None);
    let connect = || {
        let t = TcpStream::connect(tcp.local_addr().expect("address")).expect("connect");
        (UnixStream::connect(&path).expect("connect"), t)
    };
    let _first = (connect(), connect());
    let (u, t) = (see(inode(&unix)).expect("unix"), see(inode(&tcp)).expect("tcp"));
    assert_eq!((u.waiting, u.taken, u.ends.peer), (2, Some(0), 0));
    assert_eq!(u.ends.name, path.to_string_lossy());
    assert_eq!((t.waiting, t.taken, t.ends.peer), (2, Some(0), 0));
    let _kept = (unix.accept().expect("accept"), tcp.accept().expect("accept"));
    let _second = connect();
    let (u, t) = (see(inode(&unix)).expect("unix"), see(inode(&tcp)).expect("tcp"));
    assert_eq!((u.waiting, u.taken), (2, Some(1)), "one accepted, another one came");
    assert_eq!((t.waiting, t.taken), (2, Some(1)));
}

/// Sockets that share a port each have a queue of their own; which connections are in it is not told.
#[test]
#[allow(unsafe_code)] // SO_REUSEPORT has no safe wrapper in std.
fn one_of_several_that_listen_at_a_place_is_said_to_be_one() {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::FromRawFd;
    if !answers(&tcp_request(libc::AF_INET, 2)) {
        return;
    }
    let listen = |port: u16| {
        // SAFETY: calls with valid arguments; the descriptor is new, and the listener's alone from here on.
        unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            let (one, len) = (1i32, size_of::<i32>() as u32);
            let level = libc::SOL_SOCKET;
            libc::setsockopt(fd, level, libc::SO_REUSEPORT, (&raw const one).cast(), len);
            let mut at: libc::sockaddr_in = std::mem::zeroed();
            (at.sin_family, at.sin_port) = (libc::AF_INET as u16, port.to_be());
            at.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
            let len = size_of::<libc::sockaddr_in>() as u32;
            assert_eq!(libc::bind(fd, (&raw const at).cast(), len), 0);
            assert_eq!(libc::listen(fd, 64), 0);
            TcpListener::from_raw_fd(fd)
        }
    };
    let first = listen(0);
    let at = first.local_addr().expect("address");
    let second = listen(at.port());
    let clients: Vec<_> = (0..16).map(|_| TcpStream::connect(at).expect("connect")).collect();
    let mut q = Queues::default();
    let mut seen: Vec<Reading> =
        own(&mut q).into_iter().filter(|r| [inode(&first), inode(&second)].contains(&r.inode)).collect();
    seen.sort_by_key(|r| r.inode);
    assert_eq!(seen.iter().map(|r| r.waiting).sum::<u64>(), clients.len() as u64, "{seen:?}");
    let name = format!("{at} (one of 2 sockets that listen there)");
    assert!(seen.iter().all(|r| r.ends.name == name), "{seen:?}");
    drop(second);
    let alone = own(&mut q).into_iter().find(|r| r.inode == inode(&first)).map(|r| r.ends.name);
    assert!(alone.is_none_or(|name| name.is_empty()));
}

/// The kernel's table of all connections is gone through for sockets that are new, not at each look; what waits in those
/// that are known is seen all the same, also after one of them was closed and another one came.
#[test]
fn connections_that_are_known_are_asked_about_one_by_one() {
    use std::net::{TcpListener, TcpStream};
    if !answers(&tcp_request(libc::AF_INET, 2)) {
        return;
    }
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(host) else {
            eprintln!("skipped: no {host}");
            continue;
        };
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
            (client, listener.accept().expect("accept").0)
        };
        let (mut client, server) = connect();
        let mut q = Queues::default();
        // Tests beside this one have sockets, too.
        let find = |q: &mut Queues, of: &TcpStream| {
            q.find(&[std::process::id()]);
            q.owners.retain(|&n, _| n == inode(of) || n == inode(&listener));
            q.missing.retain(|n, _| q.owners.contains_key(n));
        };
        let at = |q: &mut Queues, n: u64| q.look().into_iter().find(|r| r.inode == n).map(|r| r.waiting);
        let asked = |q: &Queues| {
            q.ask.values().flatten().flat_map(|s| &s.tcp.versions).map(|v| v.asked_for_all).sum::<u32>()
        };
        find(&mut q, &server);
        assert_eq!((at(&mut q, inode(&server)), asked(&q)), (None, 1), "{host}");
        client.write_all(b"0123456789").expect("write");
        find(&mut q, &server);
        // However dear or cheap it is here.
        q.ask.values_mut().flatten().for_each(|s| s.tcp.versions.iter_mut().for_each(|v| v.one_took = 0));
        assert_eq!((at(&mut q, inode(&server)), asked(&q)), (Some(10), 1), "{host}");
        let old = inode(&server);
        drop((client, server));
        let (mut client, server) = connect();
        client.write_all(b"abc").expect("write");
        assert_eq!(at(&mut q, old), None, "{host}: closed");
        find(&mut q, &server);
        assert_eq!((at(&mut q, inode(&server)), asked(&q)), (Some(3), 2), "{host}: the new one");
        // The queue of who listens is to be told with its connections.
        let _waits = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        assert_eq!((at(&mut q, inode(&listener)), asked(&q)), (Some(1), 3), "{host}");
    }
}
