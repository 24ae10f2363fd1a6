//! What only the kernel's socket monitoring tells (sock_diag(7)): which connections wait to be accepted on a
//! unix socket (`UDIAG_SHOW_ICONS`), and which two are connected (`UDIAG_SHOW_PEER`).
#![allow(unsafe_code)] // Netlink sockets cannot be had from std.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// Kernel: include/uapi/linux/{netlink,sock_diag,unix_diag}.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const UDIAG_SHOW_ICONS: u32 = 8;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
/// State of a listening unix socket (`TCP_LISTEN`).
const LISTEN: u32 = 10;
/// Size of a netlink header, and of `unix_diag_msg`.
const HEADER: usize = 16;
const UNIX_DIAG_MSG: usize = 16;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Inodes of the listening sockets on which `client` waits to be accepted; empty when that cannot be
/// asked (no `unix_diag` in the kernel).
pub fn listeners_of_pending(client: u64) -> Vec<u64> {
    dump(1 << LISTEN, UDIAG_SHOW_ICONS).map(|messages| pending_on(&messages, client)).unwrap_or_default()
}

/// Inodes of connected sockets, each with that of its other end.
pub fn pairs() -> Vec<(u64, u64)> {
    dump(u32::MAX, UDIAG_SHOW_PEER).map(|messages| pairs_of(&messages)).unwrap_or_default()
}

/// What the kernel shows of all unix sockets in these states.
fn dump(states: u32, show: u32) -> Option<Vec<Vec<u8>>> {
    // SAFETY: the descriptor is owned from here on; all buffers are as long as stated.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG);
        if fd < 0 {
            return None;
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let limit = libc::timeval { tv_sec: 0, tv_usec: 200_000 };
        let size = size_of::<libc::timeval>() as libc::socklen_t;
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const limit).cast(),
            size,
        );
        let mut request = Vec::with_capacity(HEADER + 24);
        request.extend(40u32.to_ne_bytes());
        request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
        request.extend([0; 8]); // sequence, port
        request.extend([libc::AF_UNIX as u8, 0, 0, 0]);
        request.extend(states.to_ne_bytes());
        request.extend(0u32.to_ne_bytes()); // any inode
        request.extend(show.to_ne_bytes());
        request.extend([0xff; 8]); // any cookie
        let sent = libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0);
        if sent != request.len() as isize {
            return None;
        }
        let mut out = Vec::new();
        let mut buffer = vec![0u8; 1 << 16];
        // A dump has an end; the bound is for a kernel that does not tell.
        for _ in 0..4096 {
            let got = libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0);
            let got = usize::try_from(got).ok().filter(|&n| n > 0)?;
            let part = buffer.get(..got)?.to_vec();
            let last = messages(&part).any(|(kind, _)| matches!(kind, NLMSG_DONE | NLMSG_ERROR));
            out.push(part);
            if last {
                return Some(out);
            }
        }
        None
    }
}

/// The netlink messages of a datagram: type and payload.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = word(bytes, 0)? as usize;
        let kind = half(bytes, 4)?;
        let payload = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

/// The attributes after a `unix_diag_msg`: type and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = half(bytes, 0)? as usize;
        let kind = half(bytes, 2)?;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Inode and attributes of each socket told of.
fn sockets(datagrams: &[Vec<u8>]) -> impl Iterator<Item = (u64, &[u8])> {
    let told = datagrams.iter().flat_map(|d| messages(d)).filter(|(kind, _)| *kind == SOCK_DIAG_BY_FAMILY);
    told.filter_map(|(_, payload)| {
        Some((u64::from(word(payload, 4)?), payload.get(UNIX_DIAG_MSG..).unwrap_or(&[])))
    })
}

fn pairs_of(datagrams: &[Vec<u8>]) -> Vec<(u64, u64)> {
    let peer = |(inode, rest)| {
        let (_, value) = attributes(rest).find(|(kind, _)| *kind == UNIX_DIAG_PEER)?;
        Some((inode, u64::from(word(value, 0).filter(|&n| n != 0)?)))
    };
    sockets(datagrams).filter_map(peer).collect()
}

fn pending_on(datagrams: &[Vec<u8>], client: u64) -> Vec<u64> {
    let waits = |rest| {
        attributes(rest)
            .filter(|(kind, _)| *kind == UNIX_DIAG_ICONS)
            .flat_map(|(_, value)| value.chunks_exact(4))
            .any(|four| word(four, 0).is_some_and(|n| u64::from(n) == client))
    };
    sockets(datagrams).filter(|(_, rest)| client != 0 && waits(rest)).map(|(inode, _)| inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_connection_not_accepted_is_listed() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
        let inode = |fd: i32| {
            let link = crate::procfs::read_fd_link(std::process::id(), fd as u32);
            let Some(crate::procfs::FdLink::Socket(n)) = link else { panic!("no socket: {link:?}") };
            n
        };
        let name = format!("pg-tui-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).expect("address");
        let listener = UnixListener::bind_addr(&address).expect("bind");
        let client = UnixStream::connect_addr(&address).expect("connect");
        if dump(u32::MAX, 0).is_none() {
            eprintln!("skipped: this kernel has no unix_diag");
            return;
        }
        let (client_inode, listener_inode) = (inode(client.as_raw_fd()), inode(listener.as_raw_fd()));
        assert_eq!(listeners_of_pending(client_inode), [listener_inode]);
        let accepted = listener.accept().expect("accept");
        assert!(listeners_of_pending(client_inode).is_empty());
        let accepted = inode(accepted.0.as_raw_fd());
        assert!(pairs().contains(&(client_inode, accepted)) && pairs().contains(&(accepted, client_inode)));
    }

    proptest! {
        #[test]
        fn takes_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300), client in 0u64..300) {
            let all = [bytes];
            pending_on(&all, client);
            pairs_of(&all);
        }
    }
}
