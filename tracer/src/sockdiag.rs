//! The kernel's socket monitoring, sock_diag(7): requests, and what a dump says.
#![allow(unsafe_code)] // Netlink sockets cannot be had from std.

use pg_event::endpoint_v4;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// Kernel: include/uapi/linux/{netlink,sock_diag,unix_diag,inet_diag}.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// State of a connection that can be used both ways (`TCP_ESTABLISHED`), and of a socket that listens (`TCP_LISTEN`); unix
/// sockets have them, too.
pub const ESTABLISHED: u32 = 1;
pub const SYN_SENT: u32 = 2;
pub const LISTEN: u32 = 10;
pub const UDIAG_SHOW_NAME: u32 = 1;
pub const UDIAG_SHOW_PEER: u32 = 4;
pub const UDIAG_SHOW_ICONS: u32 = 8;
pub const UDIAG_SHOW_RQLEN: u32 = 16;
pub const UNIX_DIAG_NAME: u16 = 0;
pub const UNIX_DIAG_PEER: u16 = 2;
pub const UNIX_DIAG_ICONS: u16 = 3;
pub const UNIX_DIAG_RQLEN: u16 = 4;
pub const INET_DIAG_INFO: u16 = 2;
/// Bytes of an `inet_diag_sockid`, which names one TCP socket, and where it lies in an `inet_diag_msg`.
const SOCKID: usize = 48;
const SOCKID_AT: usize = 4;
/// Most questions asked at once: the answers have to fit into what the kernel keeps for a socket.
const AT_ONCE: usize = 64;
/// Size of a netlink header, of `unix_diag_msg`, and of `inet_diag_msg`.
const HEADER: usize = 16;
const UNIX_DIAG_MSG: usize = 16;
const INET_DIAG_MSG: usize = 72;

pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Asks for all unix sockets in these states (a bit each), with these attributes (`UDIAG_SHOW_...`).
pub fn unix_request(states: u32, show: u32) -> Vec<u8> {
    let mut body = vec![libc::AF_UNIX as u8, 0, 0, 0];
    body.extend(states.to_ne_bytes());
    body.extend(0u32.to_ne_bytes()); // any inode
    body.extend(show.to_ne_bytes());
    body.extend([0xff; 8]); // any cookie
    request(&body, NLM_F_DUMP)
}

/// Asks for all TCP sockets of a family (`AF_INET`, `AF_INET6`) in these states, with their `tcp_info`.
pub fn tcp_request(family: i32, states: u32) -> Vec<u8> {
    request(&tcp_body(family, states, &[0; SOCKID]), NLM_F_DUMP)
}

/// One TCP socket as a dump named it: with its cookie, so that no other one is meant later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSocket {
    pub family: i32,
    id: [u8; SOCKID],
}

impl TcpSocket {
    /// The one that this `inet_diag_msg` is about.
    pub fn of(message: &[u8]) -> Option<Self> {
        let id = message.get(SOCKID_AT..SOCKID_AT + SOCKID)?.try_into().ok()?;
        Some(Self { family: i32::from(*message.first()?), id })
    }
}

fn tcp_body(family: i32, states: u32, id: &[u8; SOCKID]) -> Vec<u8> {
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0];
    body.extend(states.to_ne_bytes());
    body.extend(id);
    body
}

fn request(body: &[u8], flags: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + body.len());
    out.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    out.extend([0; 8]); // sequence, port
    out.extend(body);
    out
}

/// A socket to ask through. It stays in the network namespace it was opened in.
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// An answer was not received whole.
    broken: bool,
}

impl Socket {
    /// Of the calling thread's network namespace; `None` when the kernel has no sock_diag.
    pub fn open() -> Option<Self> {
        // SAFETY: the descriptor is owned from here on; the option is as long as stated.
        let fd = unsafe {
            let fd =
                libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG);
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
            fd
        };
        Some(Self { fd, buffer: vec![0; 1 << 16], broken: false })
    }

    /// All that a dump says, datagram by datagram; `None` when it was refused or not finished: after that the
    /// rest of it may still come, and the socket is of no use any more.
    pub fn dump(&mut self, request: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.send(request)?;
        let mut out = Vec::new();
        // A dump has an end; the bound is for a kernel that does not tell.
        for _ in 0..4096 {
            let part = self.receive()?;
            if messages(&part).any(|(kind, _)| kind == NLMSG_ERROR) {
                return None;
            }
            let last = messages(&part).any(|(kind, _)| kind == NLMSG_DONE);
            out.push(part);
            if last {
                return Some(out);
            }
        }
        self.broken = true;
        None
    }

    /// What the kernel says of these sockets, each of which it finds at once, where a dump goes through its whole table;
    /// nothing of one that is not there any more. `None` as with [`Self::dump`].
    pub fn each(&mut self, of: &[TcpSocket]) -> Option<Vec<Vec<u8>>> {
        let mut out = Vec::with_capacity(of.len());
        for some in of.chunks(AT_ONCE) {
            let ask: Vec<u8> =
                some.iter().flat_map(|s| request(&tcp_body(s.family, u32::MAX, &s.id), 0)).collect();
            self.send(&ask)?;
            // An answer or an error for each, in a datagram of its own.
            for _ in some {
                let part = self.receive()?;
                if !messages(&part).any(|(kind, _)| kind == NLMSG_ERROR) {
                    out.push(part);
                }
            }
        }
        Some(out)
    }

    /// The rest of an answer may still come: it is of no use any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    fn send(&self, bytes: &[u8]) -> Option<()> {
        // SAFETY: as many bytes are there as is said.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        (sent == bytes.len() as isize).then_some(())
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (fd, buffer) = (self.fd.as_raw_fd(), &mut self.buffer);
        // SAFETY: the buffer is as long as stated.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let got = usize::try_from(got).ok().filter(|&n| n > 0);
        self.broken |= got.is_none();
        Some(self.buffer.get(..got?)?.to_vec())
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

fn sockets(datagrams: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    let all = datagrams.iter().flat_map(|d| messages(d));
    all.filter(|(kind, _)| *kind == SOCK_DIAG_BY_FAMILY).map(|(_, payload)| payload)
}

/// Inode, type (`SOCK_STREAM`, ...) and attributes of each unix socket told of.
pub fn unix_sockets(datagrams: &[Vec<u8>]) -> impl Iterator<Item = (u64, i32, &[u8])> {
    sockets(datagrams).filter_map(|s| {
        Some((u64::from(word(s, 4)?), i32::from(*s.get(1)?), s.get(UNIX_DIAG_MSG..).unwrap_or(&[])))
    })
}

/// The `inet_diag_msg` and the attributes of each TCP socket told of.
pub fn tcp_sockets(datagrams: &[Vec<u8>]) -> impl Iterator<Item = (&[u8], &[u8])> {
    sockets(datagrams).filter_map(|s| s.split_at_checked(INET_DIAG_MSG))
}

/// The own address of a TCP socket, by its `inet_diag_msg`.
pub fn local(message: &[u8]) -> Option<SocketAddr> {
    end(message, 4, 8)
}

/// The peer's.
pub fn remote(message: &[u8]) -> Option<SocketAddr> {
    end(message, 6, 24)
}

/// The end whose port and address lie there. The family lies at 0.
fn end(message: &[u8], port: usize, at: usize) -> Option<SocketAddr> {
    let ip = if i32::from(*message.first()?) == libc::AF_INET6 {
        let a: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
        IpAddr::V6(Ipv6Addr::from(a))
    } else {
        let a: [u8; 4] = message.get(at..at + 4)?.try_into().ok()?;
        IpAddr::V4(Ipv4Addr::from(a))
    };
    Some(SocketAddr::new(ip, u16::from_be(half(message, port)?)))
}

/// The key of an end as the recorder's programs make it (`endpoint6` in `object.h`).
pub fn endpoint(a: SocketAddr) -> u64 {
    match a.ip().to_canonical() {
        IpAddr::V4(v4) => endpoint_v4(u32::from(v4), a.port()),
        IpAddr::V6(v6) => {
            let mix = |h: u64, v: u64| {
                let h = (h ^ v).wrapping_mul(0xff51_afd7_ed55_8ccd);
                h ^ (h >> 32)
            };
            let o = v6.octets();
            let w = |i: usize| word(&o, 4 * i).map_or(0, u64::from);
            let h = mix(mix(0x51e_d270_b9f9, w(0) << 32 | w(1)), w(2) << 32 | w(3));
            1 << 63 | ((h << 16) & !(1 << 63)) | u64::from(a.port())
        }
    }
}

/// The attributes of a socket: type and value.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = half(bytes, 0)? as usize;
        let kind = half(bytes, 2)?;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_ends_are_those_of_the_recorder() {
        let key = |a: &str| endpoint(a.parse().expect("an address"));
        assert_eq!(key("127.0.0.1:80"), endpoint_v4(0x7f00_0001, 80));
        assert_eq!(key("[::ffff:127.0.0.1]:80"), endpoint_v4(0x7f00_0001, 80));
        assert!(key("[::1]:80") >> 63 == 1 && key("[::1]:80") & 0xffff == 80);
        assert_ne!(key("[::1]:80"), key("[::2]:80"));
    }
}
