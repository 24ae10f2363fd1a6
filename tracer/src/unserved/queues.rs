//! How much waits in the sockets of some processes, asked of the kernel: bytes in connections, connections in the queues
//! of those that listen.

mod tcp;

use crate::procfs::{self, FdLink};
use crate::sockdiag::{
    ESTABLISHED, LISTEN, Socket, UDIAG_SHOW_ICONS, UDIAG_SHOW_NAME, UDIAG_SHOW_PEER, UDIAG_SHOW_RQLEN,
    UNIX_DIAG_ICONS, UNIX_DIAG_NAME, UNIX_DIAG_PEER, UNIX_DIAG_RQLEN, attributes, unix_request, unix_sockets,
    word,
};
use pg_event::{Display, ObjectKind};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tcp::{FAMILIES, Tcp};

/// Most sockets looked after.
const MAX_SOCKETS: usize = 20_000;
/// Most descriptors of one process looked at.
const MAX_OF_ONE: usize = 20_000;
/// A TCP socket that was not found (it is not connected) is looked for again after a second, two, four, but in so long at
/// the latest.
const SEEK_AGAIN: Duration = Duration::from_secs(16);

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

/// What a socket is, as far as it matters who is asked about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unix,
    /// Of this family.
    Tcp(i32),
    /// Nothing that is looked at.
    Other,
    /// Not told.
    Unsure,
}

impl Kind {
    fn of(pid: u32, fd: u32, inode: u64) -> Self {
        let Some(protocol) = procfs::socket_protocol(pid, fd) else { return Self::Unsure };
        if procfs::read_fd_link(pid, fd) != Some(FdLink::Socket(inode)) {
            // Another one has taken its place.
            return Self::Unsure;
        }
        match protocol.as_str() {
            "TCP" => Self::Tcp(libc::AF_INET),
            "TCPv6" => Self::Tcp(libc::AF_INET6),
            p if p.starts_with("UNIX") => Self::Unix,
            _ => Self::Other,
        }
    }

    fn may_be(self, kind: Self) -> bool {
        self == kind || self == Self::Unsure
    }

    fn may_be_tcp(self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Unsure)
    }
}

/// A TCP socket that was not found yet.
struct Missing {
    kind: Kind,
    tries: u32,
    next: Instant,
}

/// A network namespace that can be asked.
struct Space {
    socket: Socket,
    tcp: Tcp,
}

/// The sockets of some processes, and who to ask about them.
#[derive(Default)]
pub struct Queues {
    /// Processes looked at.
    pids: HashSet<u32>,
    /// By inode: the first of the processes that has it open.
    owners: HashMap<u64, Owner>,
    kinds: HashMap<u64, Kind>,
    /// By network namespace, named by its link; `None` where it could not be asked when that was tried last.
    ask: HashMap<PathBuf, Option<Space>>,
    /// What unix sockets are, once somebody needed to know.
    known: HashMap<u64, Ends>,
    pending: Pending,
    missing: HashMap<u64, Missing>,
}

impl Queues {
    /// See which sockets these processes have open.
    pub fn find(&mut self, pids: &[u32]) {
        let before = std::mem::take(&mut self.owners);
        let mut spaces = HashSet::new();
        for &pid in pids {
            let shown_by = procfs::shown_by(pid);
            for (fd, link) in procfs::read_fd_links(shown_by, MAX_OF_ONE) {
                let FdLink::Socket(inode) = link else { continue };
                if self.owners.len() < MAX_SOCKETS {
                    let new = before.get(&inode).map_or_else(|| self.pids.contains(&pid), |o| o.new);
                    self.owners.entry(inode).or_insert(Owner { pid, new });
                    self.kinds.entry(inode).or_insert_with(|| Kind::of(shown_by, fd, inode));
                }
            }
            if let Ok(link) = std::fs::read_link(procfs::path_of(shown_by, "ns/net")) {
                if !self.ask.contains_key(&link) {
                    let socket = crate::netns::open(shown_by, &link);
                    self.ask.insert(link.clone(), socket.map(|socket| Space { socket, tcp: Tcp::default() }));
                }
                spaces.insert(link);
            }
        }
        self.pids = pids.iter().copied().collect();
        // One that could not be asked, or whose answer was broken off, is asked anew.
        self.ask.retain(|link, ask| spaces.contains(link) && ask.is_some());
        let owners = &self.owners;
        self.kinds.retain(|inode, _| owners.contains_key(inode));
        self.known.retain(|inode, _| owners.contains_key(inode));
        self.pending.of.retain(|inode, _| owners.contains_key(inode));
        self.missing.retain(|inode, _| owners.contains_key(inode));
        for space in self.ask.values_mut().flatten() {
            space.tcp.retain(owners);
        }
        let next = Instant::now();
        for (&inode, &kind) in self.kinds.iter().filter(|(_, k)| k.may_be_tcp()) {
            if !self.ask.values().flatten().any(|s| s.tcp.has(inode)) {
                self.missing.entry(inode).or_insert(Missing { kind, tries: 0, next });
            }
        }
    }

    /// Those in which something waits now.
    pub fn look(&mut self) -> Vec<Reading> {
        let mut out = Vec::new();
        if self.owners.is_empty() {
            return out;
        }
        let now = Instant::now();
        let unix = self.kinds.values().any(|k| k.may_be(Kind::Unix));
        let sought =
            |family| self.missing.values().any(|m| m.next <= now && m.kind.may_be(Kind::Tcp(family)));
        let seek = FAMILIES.map(sought);
        for ask in self.ask.values_mut() {
            let Some(Space { socket, tcp }) = ask else { continue };
            if unix && of_unix(socket, &self.owners, (&mut self.known, &mut self.pending), &mut out).is_none()
            {
                // A dump that was broken off leaves its rest in the socket.
                *ask = None;
                continue;
            }
            tcp.look(socket, seek, &self.owners, &mut self.pending, &mut out);
            if socket.is_broken() {
                *ask = None;
            }
        }
        self.missing.retain(|&inode, m| {
            if m.next <= now {
                m.next = now + Duration::from_secs(1 << m.tries.min(5)).min(SEEK_AGAIN);
                m.tries += 1;
            }
            !self.ask.values().flatten().any(|s| s.tcp.has(inode))
        });
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

#[cfg(test)]
mod tests;
