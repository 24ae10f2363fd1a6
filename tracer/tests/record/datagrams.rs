//! Datagrams of two senders to one receiver, without connections: each names both of its ends.

#![allow(unsafe_code)] // sendmmsg has no safe counterpart in std.

use crate::programs::{fact, inode, pause, tid};
use crate::{Recording, allowed, options, recorded};
use pg_event::{Direction, IpcUse, Kind, ObjectKind};
use pg_tracer::Level;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::thread;

/// Sizes by which the senders' messages are told apart.
const SIZES: [usize; 2] = [11, 22];
const EACH: usize = 20;

/// `send(i, size)` on thread i, and `receive` here, until all has come.
fn exchange(send: impl Fn(usize, usize) + Send + Sync, mut receive: impl FnMut(&mut [u8]) -> usize) {
    fact("self", tid());
    thread::scope(|s| {
        for (i, size) in SIZES.into_iter().enumerate() {
            let send = &send;
            s.spawn(move || {
                fact(&format!("sender-{i}"), tid());
                for n in 0..EACH {
                    // The recorder learns that there are datagrams, and looks more closely.
                    thread::sleep(std::time::Duration::from_millis(if n == 5 { 1000 } else { 10 }));
                    send(i, size);
                }
                pause();
            });
        }
        for _ in 0..EACH * SIZES.len() {
            let n = receive(&mut [0; 100]);
            assert!(SIZES.contains(&n));
        }
    });
}

pub fn udp() {
    let to = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = to.local_addr().unwrap().port();
    let from = [0, 1].map(|_| UdpSocket::bind("0.0.0.0:0").unwrap());
    fact("port", port);
    for (i, s) in from.iter().enumerate() {
        fact(&format!("port-{i}"), s.local_addr().unwrap().port());
    }
    exchange(
        |i, size| assert_eq!(from[i].send_to(&vec![0; size], ("127.0.0.1", port)).unwrap(), size),
        |buffer| to.recv(buffer).unwrap(),
    );
}

pub fn unix() {
    let path = std::env::temp_dir().join(format!("pg-datagram-{}", std::process::id()));
    let to = UnixDatagram::bind(&path).unwrap();
    let from = [0, 1].map(|_| UnixDatagram::unbound().unwrap());
    fact("inode", inode(to.as_raw_fd()));
    for (i, s) in from.iter().enumerate() {
        fact(&format!("inode-{i}"), inode(s.as_raw_fd()));
    }
    exchange(
        |i, size| assert_eq!(from[i].send_to(&vec![0; size], &path).unwrap(), size),
        |buffer| to.recv(buffer).unwrap(),
    );
    std::fs::remove_file(&path).unwrap();
}

/// One call sends to two addresses in turn.
pub fn batch() {
    let to = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    fact("self", tid());
    let mut addresses = to.each_ref().map(|s| libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: s.local_addr().unwrap().port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    });
    for (i, s) in to.iter().enumerate() {
        fact(&format!("port-{i}"), s.local_addr().unwrap().port());
    }
    let mut data = [0u8; 100];
    let mut pieces: [libc::iovec; 4] =
        std::array::from_fn(|i| libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: SIZES[i % 2] });
    let mut messages: [libc::mmsghdr; 4] = std::array::from_fn(|i| {
        // SAFETY: all zero is a valid message.
        let mut m: libc::mmsghdr = unsafe { std::mem::zeroed() };
        m.msg_hdr.msg_name = (&raw mut addresses[i % 2]).cast();
        m.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        m.msg_hdr.msg_iov = &raw mut pieces[i];
        m.msg_hdr.msg_iovlen = 1;
        m
    });
    for n in 0..EACH {
        // Now and then for fewer than there are: as if the call had ended early.
        let count = if n % 5 == 4 { 3 } else { 4 };
        // SAFETY: the messages, their addresses and data outlive the call.
        let sent = unsafe { libc::sendmmsg(from.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        assert_eq!(sent, count as i32);
        thread::sleep(std::time::Duration::from_millis(10));
    }
    pause();
}

fn uses(r: &Recording, fact: &str, direction: Direction) -> Vec<IpcUse> {
    let thread = r.thread(fact);
    let of = |kind: Kind| match kind {
        Kind::Ipc(u) if u.direction == direction => Some(u),
        _ => None,
    };
    r.events.iter().filter(|e| e.thread == thread).filter_map(|e| of(e.kind)).collect()
}

/// Each sender's messages, and what was received of them, between the same two ends. `first` are those of
/// before the recorder looked closely.
fn check(r: &Recording, kind: ObjectKind, end: impl Fn(u64) -> u64, ends: [u64; 2], to: u64) {
    for (i, size) in SIZES.into_iter().enumerate() {
        let sent = uses(r, &format!("sender-{i}"), Direction::Send);
        assert_eq!(sent.len(), EACH, "one record each");
        for u in &sent {
            let o = r.object(u.object);
            assert_eq!((o.kind, end(o.id), end(o.peer), u.bytes), (kind, ends[i], to, size as u64), "{o:?}");
        }
        let received = uses(r, "self", Direction::Receive);
        let of: Vec<_> = received.iter().filter(|u| u.bytes == size as u64).collect();
        assert_eq!(of.len(), EACH);
        if kind == ObjectKind::Udp {
            // Only the sender's record names both ends (bpf/datagram.h).
            assert!(of.iter().all(|u| end(r.object(u.object).id) == to));
            continue;
        }
        let named = of.iter().filter(|u| r.object(u.object).is_other_end_of(r.object(sent[0].object)));
        assert!(named.count() >= EACH - 8, "{:?}", of.iter().map(|u| r.object(u.object)).collect::<Vec<_>>());
    }
    // A waker's object names for whom the message is, too.
    let woken = r.waits("self", "recvfrom");
    let by = woken.iter().filter(|(_, w)| w.waker_syscall.is_any(&["sendto"])).map(|(_, w)| w.waker_object);
    let to_us = by.filter_map(|o| r.catalog.object(o)).filter(|o| end(o.peer) == to);
    assert!(to_us.count() > EACH / 2, "{woken:?}");
}

#[test]
fn udp_names_both_ends_without_a_connection() {
    if !allowed("udp_names_both_ends_without_a_connection") {
        return;
    }
    recorded("udp", &options(Level::Messages), |r| {
        let ends = [r.fact("port-0"), r.fact("port-1")];
        check(r, ObjectKind::Udp, |e| e & 0xffff, ends, r.fact("port"));
    });
}

#[test]
fn each_message_of_a_batch_names_its_address() {
    if !allowed("each_message_of_a_batch_names_its_address") {
        return;
    }
    recorded("udp-batch", &options(Level::Messages), |r| {
        let sent = uses(r, "self", Direction::Send);
        assert_eq!(sent.len(), 4 * EACH - EACH / 5, "one record each");
        for u in &sent {
            let i = SIZES.iter().position(|s| *s as u64 == u.bytes).expect("a size");
            let o = r.object(u.object);
            assert_eq!((o.kind, o.peer & 0xffff), (ObjectKind::Udp, r.fact(&format!("port-{i}"))), "{o:?}");
        }
    });
}

#[test]
fn unix_datagrams_name_both_ends_without_a_connection() {
    if !allowed("unix_datagrams_name_both_ends_without_a_connection") {
        return;
    }
    recorded("unix-datagram", &options(Level::Messages), |r| {
        let ends = [r.fact("inode-0"), r.fact("inode-1")];
        check(r, ObjectKind::UnixDatagram, |e| e, ends, r.fact("inode"));
    });
}
