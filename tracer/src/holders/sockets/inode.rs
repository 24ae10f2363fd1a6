//! A socket of which only the inode is known, as an object.

use super::{Holders, SocketTables};
use crate::procfs::{InetSocket, UnixSocket};
use pg_event::{Ns, Object, ObjectKind};

/// Marks an identity that is not an IPv4 address and port: the addresses are in the name.
const NAMED: u64 = 1 << 63;

fn of_inet(kind: ObjectKind, s: &InetSocket) -> Object {
    let open = s.remote.port() != 0;
    let name = if open { format!("{}->{}", s.local, s.remote) } else { s.local.to_string() };
    Object { name, ..Object::new(kind, NAMED, if open { NAMED } else { 0 }) }
}

fn of_unix(tables: &mut SocketTables, pid: u32, inode: u64) -> Option<Object> {
    let find = |rows: &[UnixSocket], inode: u64| rows.iter().find(|s| s.inode == inode).cloned();
    let own = find(tables.unix(pid), inode)?;
    let peer = tables.unix_peer(pid, inode);
    // Who connects has no name; what it connected to has.
    let nameless = own.path.is_empty();
    let name = match peer {
        Some(peer) if nameless => find(tables.unix(pid), peer).map(|s| s.path).unwrap_or_default(),
        _ => own.path,
    };
    let connected = nameless && !name.is_empty();
    let kind =
        if own.kind == libc::SOCK_DGRAM as u16 { ObjectKind::UnixDatagram } else { ObjectKind::UnixStream };
    Some(Object { name, connected, ..Object::new(kind, inode, peer.unwrap_or(0)) })
}

impl Holders {
    /// The socket with this inode, of a process. `now` is the time of the recording.
    pub(crate) fn socket_object(&mut self, pid: u32, inode: u64, now: Ns) -> Object {
        self.sockets.set_time(now);
        if let Some(o) = of_unix(&mut self.sockets, pid, inode) {
            return o;
        }
        for (udp, kind) in [(false, ObjectKind::Tcp), (true, ObjectKind::Udp)] {
            if let Some(s) = self.sockets.inet(pid, udp).iter().find(|s| s.inode == inode) {
                return of_inet(kind, s);
            }
        }
        Object::new(ObjectKind::Socket, inode, 0)
    }
}
