//! The other end of a socket on the same machine, or who should have accepted the connection.

mod diag;
mod inode;
mod tables;

pub(super) use tables::SocketTables;

use super::candidates::others_first;
use super::{Holders, LongWait, Who};
use crate::procfs::{FdLink, InetSocket, MAX_PATH, TCP_LISTEN, lossy};
use pg_event::{Object, ObjectKind, Relation};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// TCP states (kernel: `include/net/tcp_states.h`) of a connection that nobody has accepted or closed yet.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const CLOSE_WAIT: u8 = 8;
const NEW_SYN_RECEIVED: u8 = 12;
/// Most other network namespaces searched.
const MAX_NAMESPACES: usize = 64;

/// Own and peer's address of a TCP or UDP object.
fn ends(object: &Object) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let v4 = |key: u64| {
        (key >> 63 == 0)
            .then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::from((key >> 16) as u32)), (key & 0xffff) as u16))
    };
    // An IPv6 key is a hash; the addresses are in the name.
    let mut named = object.name.split("->").map(|s| s.trim().parse::<SocketAddr>().ok().map(canonical));
    let local_name = named.next().flatten();
    let remote_name = named.next().flatten();
    let local = v4(object.id).or(local_name)?;
    let remote = if object.peer == 0 { None } else { v4(object.peer).or(remote_name) };
    Some((local, remote))
}

/// An IPv4 address in IPv6 clothes is that IPv4 address.
pub(super) fn canonical(a: SocketAddr) -> SocketAddr {
    SocketAddr::new(a.ip().to_canonical(), a.port())
}

/// Is an address this machine's, as far as the sockets of the namespace show?
fn is_local(ip: IpAddr, sockets: &[InetSocket]) -> bool {
    ip.is_loopback() || sockets.iter().any(|s| s.local.ip() == ip)
}

/// The sockets that a packet to `to` is for: bound to exactly that address, else to any.
fn bound_to(sockets: &[InetSocket], to: SocketAddr, fits: impl Fn(&InetSocket) -> bool) -> Vec<u64> {
    let of = |exact: bool| -> Vec<u64> {
        sockets
            .iter()
            .filter(|s| s.local.port() == to.port() && s.inode != 0 && fits(s))
            .filter(|s| if exact { s.local.ip() == to.ip() } else { s.local.ip().is_unspecified() })
            .map(|s| s.inode)
            .collect()
    };
    let exact = of(true);
    if exact.is_empty() { of(false) } else { exact }
}

impl Holders {
    fn owners(&mut self, inodes: &[u64], own: u32) -> Vec<u32> {
        let mut pids = Vec::new();
        for inode in inodes.iter().filter(|&&i| i != 0) {
            pids.extend(self.open.of(&FdLink::Socket(*inode)).into_iter().map(|o| o.pid));
        }
        others_first(pids, own)
    }

    fn named(&mut self, inodes: &[u64], own: u32, relation: Relation) -> Vec<(Who, Relation)> {
        self.owners(inodes, own).into_iter().map(|p| (Who::Process(p), relation)).collect()
    }

    pub(super) fn tcp_peer(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let Some((local, Some(remote))) = ends(object) else { return Vec::new() };
        let reversed = |s: &&InetSocket| s.local == remote && s.remote == local;
        let tables = self.sockets.inet(wait.tgid, false);
        let other = tables.iter().find(reversed).copied();
        let own_state = tables.iter().find(|s| s.local == local && s.remote == remote).map(|s| s.state);
        let listeners = bound_to(tables, remote, |s| s.state == TCP_LISTEN);
        let here = is_local(remote.ip(), tables);
        match other {
            Some(s) if s.inode != 0 => self.named(&[s.inode], wait.tgid, Relation::Peer),
            // There, but nobody's: not accepted yet, unless it was closed.
            Some(s) if matches!(s.state, ESTABLISHED | SYN_RECEIVED | CLOSE_WAIT | NEW_SYN_RECEIVED) => {
                self.named(&listeners, wait.tgid, Relation::Listens)
            }
            Some(_) => Vec::new(),
            // The listener's queue is full: it does not even answer.
            None if own_state == Some(SYN_SENT) && here => {
                self.named(&listeners, wait.tgid, Relation::Listens)
            }
            None => {
                let others = self.sockets.others(wait.tgid, self.open.processes());
                for pid in others.into_iter().take(MAX_NAMESPACES) {
                    let tables = self.sockets.inet(pid, false);
                    if let Some(s) = tables.iter().find(reversed).copied() {
                        let listeners = bound_to(tables, remote, |s| s.state == TCP_LISTEN);
                        return if s.inode == 0 {
                            self.named(&listeners, wait.tgid, Relation::Listens)
                        } else {
                            self.named(&[s.inode], wait.tgid, Relation::Peer)
                        };
                    }
                }
                Vec::new()
            }
        }
    }

    pub(super) fn udp_peer(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let Some((local, Some(remote))) = ends(object) else { return Vec::new() };
        let tables = self.sockets.inet(wait.tgid, true);
        if !is_local(remote.ip(), tables) {
            return Vec::new();
        }
        // Somebody connected to somebody else does not get this packet.
        let inodes = bound_to(tables, remote, |s| s.remote.port() == 0 || s.remote == local);
        self.named(&inodes, wait.tgid, Relation::Peer)
    }

    pub(super) fn unix_peer(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        if object.peer != 0 {
            return self.named(&[object.peer], wait.tgid, Relation::Peer);
        }
        if wait.syscall.is_any(&["accept", "accept4"]) {
            return Vec::new();
        }
        // Connected but not accepted: the kernel lists the client's socket as pending on the listener's.
        let mut listeners: Vec<u64> = Vec::new();
        if object.kind == ObjectKind::UnixStream && tables::in_own_namespace(wait.tgid) {
            listeners.extend(diag::listeners_of_pending(object.id));
            // It may have been accepted since the wait began: then it has a peer.
            if listeners.is_empty()
                && object.id != 0
                && let Some((_, peer)) = diag::pairs().into_iter().find(|p| p.0 == object.id)
            {
                return self.named(&[peer], wait.tgid, Relation::Peer);
            }
        }
        let name = if wait.syscall.is_any(&["connect", "sendto"]) {
            self.unix_destination(wait).unwrap_or_default()
        } else {
            object.name.clone()
        };
        let wants_listener = object.kind == ObjectKind::UnixStream;
        if listeners.is_empty() && !name.is_empty() {
            listeners.extend(
                self.sockets
                    .unix(wait.tgid)
                    .iter()
                    .filter(|s| s.path == name && s.inode != object.id && s.listening == wants_listener)
                    .map(|s| s.inode),
            );
        }
        if listeners.contains(&object.id) {
            return Vec::new();
        }
        let relation = if wants_listener { Relation::Listens } else { Relation::Peer };
        self.named(&listeners, wait.tgid, relation)
    }

    /// The address a thread is blocked connecting or sending to: the listener's queue is full.
    fn unix_destination(&mut self, wait: &LongWait) -> Option<String> {
        let (number, args) = self.blocked_call(wait.tid)?;
        if number != u64::from(wait.syscall.0) {
            return None;
        }
        let (at, len) =
            if wait.syscall.is_any(&["sendto"]) { (args[4], args[5]) } else { (args[1], args[2]) };
        let bytes = self.bytes(wait.tid, at, usize::try_from(len).ok()?.min(110))?;
        unix_address(&bytes)
    }
}

/// The text of a `sockaddr_un` as `/proc/net/unix` writes it.
fn unix_address(bytes: &[u8]) -> Option<String> {
    let (family, path) = bytes.split_at_checked(2)?;
    if u16::from_ne_bytes(family.try_into().ok()?) != libc::AF_UNIX as u16 {
        return None;
    }
    match path.split_first()? {
        (0, []) => None,
        // In an abstract name NULs count; the kernel prints them as `@`.
        (0, name) => {
            let shown: Vec<u8> = name.iter().map(|&b| if b == 0 { b'@' } else { b }).collect();
            Some(format!("@{}", lossy(&shown, MAX_PATH)))
        }
        _ => Some(lossy(path.split(|&b| b == 0).next()?, MAX_PATH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: ObjectKind, id: u64, peer: u64, name: &str) -> Object {
        Object { name: name.into(), ..Object::new(kind, id, peer) }
    }

    #[test]
    fn addresses_of_objects() {
        let a = |s: &str| s.parse::<SocketAddr>().expect("an address");
        let v4 = object(
            ObjectKind::Tcp,
            pg_event::endpoint_v4(0x7f00_0001, 80),
            pg_event::endpoint_v4(0x0a00_0001, 4711),
            "",
        );
        assert_eq!(ends(&v4), Some((a("127.0.0.1:80"), Some(a("10.0.0.1:4711")))));
        let v6 = object(ObjectKind::Tcp, 1 << 63 | 0x50, 1 << 63 | 0x51, "[::1]:80->[fe80::1]:81");
        assert_eq!(ends(&v6), Some((a("[::1]:80"), Some(a("[fe80::1]:81")))));
        assert_eq!(ends(&object(ObjectKind::Tcp, 1 << 63 | 0x50, 0, "nonsense")), None);
        let alone = object(ObjectKind::Udp, pg_event::endpoint_v4(0, 53), 0, "");
        assert_eq!(ends(&alone), Some((a("0.0.0.0:53"), None)));
    }

    #[test]
    fn the_exact_address_wins_over_any() {
        let s = |local: &str, inode| InetSocket {
            local: local.parse().expect("an address"),
            remote: "0.0.0.0:0".parse().expect("an address"),
            state: TCP_LISTEN,
            inode,
        };
        let table = [s("0.0.0.0:80", 1), s("127.0.0.1:80", 2), s("[::]:81", 3), s("0.0.0.0:80", 0)];
        let to = |a: &str| bound_to(&table, a.parse().expect("an address"), |_| true);
        assert_eq!(to("127.0.0.1:80"), [2]);
        assert_eq!(to("127.0.0.2:80"), [1]);
        assert_eq!(to("127.0.0.2:81"), [3]);
        assert!(to("127.0.0.1:82").is_empty());
    }

    #[test]
    fn unix_addresses_as_the_kernel_prints_them() {
        assert_eq!(unix_address(b"\x01\0/run/x\0junk").as_deref(), Some("/run/x"));
        assert_eq!(unix_address(b"\x01\0\0a\0b").as_deref(), Some("@a@b"));
        assert_eq!(unix_address(b"\x02\0/run/x"), None);
        assert_eq!(unix_address(b"\x01"), None);
        assert_eq!(unix_address(b"\x01\0"), None);
    }
}
