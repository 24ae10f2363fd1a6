//! TCP sockets of the focus. To find them the kernel goes through its table of all connections, which takes milliseconds
//! where that is large, however few there are. So those that were found once are asked about one by one.

use super::{Ends, Owner, Pending, Reading};
use crate::clock::thread_cpu;
use crate::sockdiag::{
    ESTABLISHED, INET_DIAG_INFO, LISTEN, SYN_SENT, Socket, TcpSocket, attributes, endpoint, half, local,
    remote, tcp_request, tcp_sockets, word,
};
use pg_event::{Display, ObjectKind};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Offset of `tcpi_bytes_received` in `struct tcp_info` (kernel: `include/uapi/linux/tcp.h`).
const BYTES_RECEIVED: usize = 128;
/// What a question about one socket takes until it was measured, ns.
const ONE: u64 = 10_000;
/// States of sockets that are looked for: also of those that are to be connected, so that they are known by then, and of
/// those whose peer has closed (`TCP_CLOSE_WAIT`), so that they are not looked for.
const SOUGHT: u32 = 1 << ESTABLISHED | 1 << LISTEN | 1 << SYN_SENT | 1 << 8;

pub(super) const FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];

/// The TCP sockets of the focus in one network namespace.
pub(super) struct Tcp {
    pub(super) versions: [Version; 2],
}

/// Those of one version of IP.
pub(super) struct Version {
    family: i32,
    connections: HashMap<u64, TcpSocket>,
    listeners: HashSet<u64>,
    /// What it took last to ask for all, and about one, ns of CPU time.
    all_took: u64,
    pub one_took: u64,
    /// How often all were asked for.
    #[cfg(test)]
    pub asked_for_all: u32,
}

impl Default for Tcp {
    fn default() -> Self {
        let of = |family| Version {
            family,
            connections: HashMap::new(),
            listeners: HashSet::new(),
            all_took: 0,
            one_took: ONE,
            #[cfg(test)]
            asked_for_all: 0,
        };
        Self { versions: FAMILIES.map(of) }
    }
}

impl Tcp {
    /// Is this a socket of this namespace that was found?
    pub fn has(&self, inode: u64) -> bool {
        self.versions.iter().any(|v| v.connections.contains_key(&inode) || v.listeners.contains(&inode))
    }

    /// Others are no sockets of the focus any more.
    pub fn retain(&mut self, owners: &HashMap<u64, Owner>) {
        for v in &mut self.versions {
            v.connections.retain(|inode, _| owners.contains_key(inode));
            v.listeners.retain(|inode| owners.contains_key(inode));
        }
    }

    /// Where something waits. `seek`: sockets of this version are missing. A kernel without tcp_diag has an error for an
    /// answer, and nothing waits.
    pub fn look(
        &mut self,
        socket: &mut Socket,
        seek: [bool; 2],
        owners: &HashMap<u64, Owner>,
        pending: &mut Pending,
        out: &mut Vec<Reading>,
    ) {
        for (v, seek) in self.versions.iter_mut().zip(seek) {
            if let Some(all) = v.ask(socket, seek, owners) {
                readings(&all, owners, pending, out);
            }
        }
    }
}

impl Version {
    fn ask(&mut self, socket: &mut Socket, seek: bool, owners: &HashMap<u64, Owner>) -> Option<Vec<Vec<u8>>> {
        if !seek {
            if self.connections.is_empty() && self.listeners.is_empty() {
                return None;
            }
            if self.one_took.saturating_mul(self.connections.len() as u64) <= self.all_took {
                let all = self.ask_each(socket)?;
                // Which connections wait to be accepted is in the table of all only.
                if !own(&all, owners).any(|(_, m, _)| listens(m) && word(m, 56) != Some(0)) {
                    return Some(all);
                }
            }
        }
        let began = thread_cpu();
        let all = socket.dump(&tcp_request(self.family, SOUGHT))?;
        self.all_took = thread_cpu().saturating_sub(began);
        #[cfg(test)]
        {
            self.asked_for_all += 1;
        }
        (self.connections, self.listeners) = Default::default();
        for (inode, message, _) in own(&all, owners) {
            if listens(message) {
                self.listeners.insert(inode);
            } else if let Some(s) = TcpSocket::of(message) {
                self.connections.insert(inode, s);
            }
        }
        Some(all)
    }

    /// Those that are known. Sockets that listen are in a table of their own, and few.
    fn ask_each(&mut self, socket: &mut Socket) -> Option<Vec<Vec<u8>>> {
        let began = thread_cpu();
        let known: Vec<TcpSocket> = self.connections.values().copied().collect();
        let mut all = socket.each(&known)?;
        if let Some(took) = thread_cpu().saturating_sub(began).checked_div(known.len() as u64) {
            self.one_took = took;
        }
        // One that is closed may be connected anew: it is looked for.
        let there = inodes(&all);
        self.connections.retain(|inode, _| there.contains(inode));
        if !self.listeners.is_empty() {
            let listen = socket.dump(&tcp_request(self.family, 1 << LISTEN))?;
            let there = inodes(&listen);
            self.listeners.retain(|inode| there.contains(inode));
            all.extend(listen);
        }
        Some(all)
    }
}

fn inodes(all: &[Vec<u8>]) -> HashSet<u64> {
    tcp_sockets(all).filter_map(|(m, _)| word(m, 68)).map(u64::from).collect()
}

fn state(message: &[u8]) -> u32 {
    message.get(1).copied().map_or(0, u32::from)
}

fn listens(message: &[u8]) -> bool {
    state(message) == LISTEN
}

/// Those of the focus, with their inodes.
fn own<'a>(
    all: &'a [Vec<u8>],
    owners: &'a HashMap<u64, Owner>,
) -> impl Iterator<Item = (u64, &'a [u8], &'a [u8])> {
    tcp_sockets(all).filter_map(|(m, attrs)| {
        let inode = u64::from(word(m, 68)?);
        owners.contains_key(&inode).then_some((inode, m, attrs))
    })
}

fn readings(all: &[Vec<u8>], owners: &HashMap<u64, Owner>, pending: &mut Pending, out: &mut Vec<Reading>) {
    out.extend(own(all, owners).filter_map(|(_, message, attrs)| tcp(message, attrs, owners)));
    if own(all, owners).any(|(_, m, _)| listens(m)) {
        // Who is connected and was not accepted yet has no inode; its cookie is at 44, its own port at 4.
        let mut waiting: HashMap<u16, HashSet<u64>> = HashMap::new();
        for (m, _) in tcp_sockets(all).filter(|(m, _)| state(m) == ESTABLISHED && word(m, 68) == Some(0)) {
            if let (Some(port), Some(a), Some(b)) = (half(m, 4), word(m, 44), word(m, 48)) {
                waiting.entry(port).or_default().insert(u64::from(b) << 32 | u64::from(a));
            }
        }
        let mut groups: HashMap<&[u8], usize> = HashMap::new();
        for place in tcp_sockets(all).filter(|(m, _)| listens(m)).filter_map(|(m, _)| place(m)) {
            *groups.entry(place).or_default() += 1;
        }
        out.extend(own(all, owners).filter(|(_, m, _)| listens(m)).filter_map(|(_, m, _)| {
            let together = place(m).and_then(|p| groups.get(p)).copied().unwrap_or(1);
            listener(m, (&waiting, together), owners, pending)
        }));
    }
}

/// `inet_diag_msg`: receive queue at 56, inode at 68.
fn tcp(message: &[u8], attrs: &[u8], owners: &HashMap<u64, Owner>) -> Option<Reading> {
    let inode = u64::from(word(message, 68)?);
    let Owner { pid, new } = *owners.get(&inode)?;
    let waiting = u64::from(word(message, 56)?);
    if waiting == 0 || state(message) != ESTABLISHED {
        return None;
    }
    let (local, remote) = (local(message)?, remote(message)?);
    let received = attributes(attrs).find(|(kind, _)| *kind == INET_DIAG_INFO);
    let received = received.and_then(|(_, info)| {
        let b: [u8; 8] = info.get(BYTES_RECEIVED..BYTES_RECEIVED + 8)?.try_into().ok()?;
        Some(u64::from_ne_bytes(b))
    });
    let (id, peer) = (endpoint(local), endpoint(remote));
    let name = if id >> 63 == 1 || peer >> 63 == 1 { format!("{local}->{remote}") } else { String::new() };
    let ends = Ends { kind: ObjectKind::Tcp, id, peer, name, display: x_over_tcp(remote) };
    Some(Reading { inode, pid, new, waiting, taken: received.map(|n| n.saturating_sub(waiting)), ends })
}

/// Where a socket listens: its port and address, which several may share (`SO_REUSEPORT`).
fn place(message: &[u8]) -> Option<&[u8]> {
    // The peer's port lies between them, and is 0.
    message.get(4..24)
}

/// A socket that listens: the receive queue counts connections. `waiting`: those not accepted, by port, and how many
/// sockets listen at the same place. The kernel tells how many wait at each of these but not which, so that one of them
/// is accepted counts for all: the name says that there are others.
fn listener(
    message: &[u8],
    (waiting, together): (&HashMap<u16, HashSet<u64>>, usize),
    owners: &HashMap<u64, Owner>,
    pending: &mut Pending,
) -> Option<Reading> {
    let inode = u64::from(word(message, 68)?);
    let Owner { pid, new } = *owners.get(&inode)?;
    let taken = pending.now(inode, waiting.get(&half(message, 4)?).cloned().unwrap_or_default());
    let n = u64::from(word(message, 56)?);
    let local = local(message)?;
    let id = endpoint(local);
    let name = match together {
        0 | 1 if id >> 63 == 1 => local.to_string(),
        0 | 1 => String::new(),
        n => format!("{local} (one of {n} sockets that listen there)"),
    };
    let ends = Ends { kind: ObjectKind::Tcp, id, peer: 0, name, display: Display::None };
    (n > 0).then_some(Reading { inode, pid, new, waiting: n, taken: Some(taken), ends })
}

/// X servers listen on TCP, too: display N on port 6000 + N (ssh forwards from 6010 on).
fn x_over_tcp(remote: SocketAddr) -> Display {
    if (6000..6064).contains(&remote.port()) { Display::X11 } else { Display::None }
}
