//! How much waits in the sockets of some processes, asked of the kernel in two or three dumps: bytes in connections,
//! connections in the queues of those that listen.

use crate::procfs::{self, FdLink};
use crate::sockdiag::{
    ESTABLISHED, INET_DIAG_INFO, LISTEN, Socket, UDIAG_SHOW_ICONS, UDIAG_SHOW_NAME, UDIAG_SHOW_PEER,
    UDIAG_SHOW_RQLEN, UNIX_DIAG_ICONS, UNIX_DIAG_NAME, UNIX_DIAG_PEER, UNIX_DIAG_RQLEN, attributes, endpoint,
    half, local, remote, tcp_request, tcp_sockets, unix_request, unix_sockets, word,
};
use pg_event::{Display, ObjectKind};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Most sockets looked after.
const MAX_SOCKETS: usize = 20_000;
/// Most descriptors of one process looked at.
const MAX_OF_ONE: usize = 20_000;
/// Offset of `tcpi_bytes_received` in `struct tcp_info` (kernel: `include/uapi/linux/tcp.h`).
const BYTES_RECEIVED: usize = 128;

/// A connection in which bytes wait.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// Inode of the socket.
    pub inode: u64,
    /// Who has it open.
    pub pid: u32,
    /// It was opened while we looked on.
    pub new: bool,
    /// Bytes that wait; of a socket that listens, connections.
    pub waiting: u64,
    /// How much was taken out since the connection began, where the kernel counts it (TCP), or since we know the
    /// socket (one that listens).
    pub taken: Option<u64>,
    /// What it is.
    pub ends: Ends,
}

/// What a connection is, as recorded events name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    pub kind: ObjectKind,
    pub id: u64,
    pub peer: u64,
    /// Empty when the ends say it all.
    pub name: String,
    /// The peer is a display server.
    pub display: Display,
}

#[derive(Clone, Copy)]
struct Owner {
    pid: u32,
    /// The process was looked at before, and did not have it.
    new: bool,
}

/// Connections in the queues of sockets that listen, from look to look.
#[derive(Default)]
struct Pending {
    /// By the inode of who listens: what names the connections, and how many are no more in the queue.
    of: HashMap<u64, (HashSet<u64>, u64)>,
}

impl Pending {
    /// These wait now. How many were accepted since the socket is known: a queue that is served can be as long as
    /// before.
    fn now(&mut self, listener: u64, waiting: HashSet<u64>) -> u64 {
        let (before, taken) = self.of.entry(listener).or_default();
        *taken += before.difference(&waiting).count() as u64;
        *before = waiting;
        *taken
    }
}

/// The sockets of some processes, and who to ask about them.
#[derive(Default)]
pub struct Queues {
    /// Processes looked at.
    pids: HashSet<u32>,
    /// By inode: the first of the processes that has it open.
    owners: HashMap<u64, Owner>,
    /// By network namespace, named by its link; `None` where it cannot be asked, for now.
    ask: HashMap<std::path::PathBuf, Option<Socket>>,
    /// What unix sockets are, once somebody needed to know.
    known: HashMap<u64, Ends>,
    pending: Pending,
    /// Which versions of TCP they use: the kernel goes through all its connections for each.
    versions: [bool; 2],
}

impl Queues {
    /// See which sockets these processes have open.
    pub fn find(&mut self, pids: &[u32]) {
        let before = std::mem::take(&mut self.owners);
        let mut spaces = HashSet::new();
        for &pid in pids {
            let shown_by = procfs::shown_by(pid);
            let links = procfs::read_fd_links(shown_by, MAX_OF_ONE);
            let sockets =
                links.into_iter().filter_map(|(_, l)| if let FdLink::Socket(n) = l { Some(n) } else { None });
            for inode in sockets {
                if self.owners.len() < MAX_SOCKETS {
                    let new = before.get(&inode).map_or_else(|| self.pids.contains(&pid), |o| o.new);
                    self.owners.entry(inode).or_insert(Owner { pid, new });
                }
            }
            if let Ok(link) = std::fs::read_link(procfs::path_of(shown_by, "ns/net")) {
                if !self.ask.contains_key(&link) {
                    self.ask.insert(link.clone(), crate::netns::open(shown_by, &link));
                }
                spaces.insert(link);
            }
        }
        self.versions = [true; 2];
        self.pids = pids.iter().copied().collect();
        // One that could not be asked, or whose answer was broken off, is asked anew.
        self.ask.retain(|link, ask| spaces.contains(link) && ask.is_some());
        let owners = &self.owners;
        self.known.retain(|inode, _| owners.contains_key(inode));
        self.pending.of.retain(|inode, _| owners.contains_key(inode));
    }

    /// Those in which something waits now.
    pub fn look(&mut self) -> Vec<Reading> {
        let mut out = Vec::new();
        if self.owners.is_empty() {
            return out;
        }
        let versions = std::mem::take(&mut self.versions);
        for ask in self.ask.values_mut() {
            let Some(socket) = ask else { continue };
            if of_unix(socket, &self.owners, (&mut self.known, &mut self.pending), &mut out).is_none() {
                // A dump that was broken off leaves its rest in the socket.
                *ask = None;
                continue;
            }
            for (i, family) in [libc::AF_INET, libc::AF_INET6].into_iter().enumerate() {
                self.versions[i] |=
                    versions[i] && of_tcp(socket, family, &self.owners, &mut self.pending, &mut out);
            }
        }
        out
    }
}

fn of_unix(
    socket: &mut Socket,
    owners: &HashMap<u64, Owner>,
    (known, pending): (&mut HashMap<u64, Ends>, &mut Pending),
    out: &mut Vec<Reading>,
) -> Option<()> {
    // What a peer that has closed left behind may be of no interest to anybody.
    let show = UDIAG_SHOW_RQLEN | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS;
    let all = socket.dump(&unix_request(1 << ESTABLISHED | 1 << LISTEN, show))?;
    let number = |attrs, which| {
        let (_, v) = attributes(attrs).find(|(kind, _)| *kind == which)?;
        word(v, 0).filter(|&n| n > 0)
    };
    // Whoever wants to be accepted, of a socket that listens; without a peer another one is closed: as with TCP.
    let found: Vec<(u64, Owner, u32, Option<u64>)> = unix_sockets(&all)
        .filter_map(|(inode, _, attrs)| {
            let pid = *owners.get(&inode)?;
            let queue = attributes(attrs).find(|(kind, _)| *kind == UNIX_DIAG_ICONS).map(|(_, v)| v);
            if number(attrs, UNIX_DIAG_PEER).is_none() {
                let clients = queue?.chunks_exact(4).filter_map(|c| word(c, 0)).map(u64::from).collect();
                let accepted = pending.now(inode, clients);
                return Some((inode, pid, number(attrs, UNIX_DIAG_RQLEN)?, Some(accepted)));
            }
            Some((inode, pid, number(attrs, UNIX_DIAG_RQLEN)?, None))
        })
        .collect();
    if found.iter().any(|(inode, ..)| !known.contains_key(inode)) {
        let all = socket.dump(&unix_request(u32::MAX, UDIAG_SHOW_NAME | UDIAG_SHOW_PEER))?;
        learn(&all, owners, known);
    }
    for (inode, pid, n, taken) in found {
        // Datagrams are counted otherwise, and come with no promise that anybody wants them.
        if let Some(ends) = known.get(&inode).filter(|e| e.kind == ObjectKind::UnixStream) {
            let waiting = u64::from(n);
            out.push(Reading { inode, pid: pid.pid, new: pid.new, waiting, taken, ends: ends.clone() });
        }
    }
    Some(())
}

/// What the sockets in `owners` are.
fn learn(datagrams: &[Vec<u8>], owners: &HashMap<u64, Owner>, known: &mut HashMap<u64, Ends>) {
    let mut names = HashMap::new();
    for (inode, _, attrs) in unix_sockets(datagrams) {
        if let Some((_, name)) = attributes(attrs).find(|(kind, _)| *kind == UNIX_DIAG_NAME) {
            names.insert(inode, show(name));
        }
    }
    for (inode, kind, attrs) in unix_sockets(datagrams) {
        if !owners.contains_key(&inode) {
            continue;
        }
        let peer = attributes(attrs).find(|(kind, _)| *kind == UNIX_DIAG_PEER);
        let peer = peer.and_then(|(_, v)| word(v, 0)).map_or(0, u64::from);
        let of_peer = names.get(&peer).cloned().unwrap_or_default();
        // Only who connected has events of the server: not the server, whose own socket has the name.
        let display = Display::of_socket(&of_peer);
        let name = names.get(&inode).filter(|n| !n.is_empty()).cloned().unwrap_or(of_peer);
        let kind = if kind == libc::SOCK_DGRAM { ObjectKind::UnixDatagram } else { ObjectKind::UnixStream };
        known.insert(inode, Ends { kind, id: inode, peer, name, display });
    }
}

/// A unix address as `/proc/net/unix` has it.
fn show(name: &[u8]) -> String {
    match name.split_first() {
        Some((0, rest)) => format!("@{}", procfs::lossy(rest, procfs::MAX_PATH)),
        _ => procfs::lossy(name.split(|&b| b == 0).next().unwrap_or(&[]), procfs::MAX_PATH),
    }
}

/// Is any of the sockets one of these? A kernel without tcp_diag has an error for an answer.
fn of_tcp(
    socket: &mut Socket,
    family: i32,
    owners: &HashMap<u64, Owner>,
    pending: &mut Pending,
    out: &mut Vec<Reading>,
) -> bool {
    let Some(all) = socket.dump(&tcp_request(family, 1 << ESTABLISHED | 1 << LISTEN)) else { return false };
    out.extend(tcp_sockets(&all).filter_map(|(message, attrs)| tcp(message, attrs, owners)));
    let listens = |m: &[u8]| m.get(1).is_some_and(|&s| u32::from(s) == LISTEN);
    let own = |m: &[u8]| word(m, 68).is_some_and(|n| owners.contains_key(&u64::from(n)));
    if tcp_sockets(&all).any(|(m, _)| listens(m) && own(m)) {
        // Who is connected and was not accepted yet has no inode; its cookie is at 44, its own port at 4.
        let mut waiting: HashMap<u16, HashSet<u64>> = HashMap::new();
        for (m, _) in tcp_sockets(&all).filter(|(m, _)| !listens(m) && word(m, 68) == Some(0)) {
            if let (Some(port), Some(a), Some(b)) = (half(m, 4), word(m, 44), word(m, 48)) {
                waiting.entry(port).or_default().insert(u64::from(b) << 32 | u64::from(a));
            }
        }
        let mut groups: HashMap<&[u8], usize> = HashMap::new();
        for place in tcp_sockets(&all).filter(|(m, _)| listens(m)).filter_map(|(m, _)| place(m)) {
            *groups.entry(place).or_default() += 1;
        }
        let mine = tcp_sockets(&all).filter(|(m, _)| listens(m));
        out.extend(mine.filter_map(|(m, _)| {
            let together = place(m).and_then(|p| groups.get(p)).copied().unwrap_or(1);
            listener(m, (&waiting, together), owners, pending)
        }));
    }
    tcp_sockets(&all).any(|(m, _)| word(m, 68).is_some_and(|n| owners.contains_key(&u64::from(n))))
}

/// `inet_diag_msg`: receive queue at 56, inode at 68.
fn tcp(message: &[u8], attrs: &[u8], owners: &HashMap<u64, Owner>) -> Option<Reading> {
    let inode = u64::from(word(message, 68)?);
    let Owner { pid, new } = *owners.get(&inode)?;
    let waiting = u64::from(word(message, 56)?);
    if waiting == 0 || u32::from(*message.get(1)?) == LISTEN {
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

#[cfg(test)]
mod tests;
