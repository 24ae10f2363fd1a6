//! Recordings of 5 s that begin in the middle of a hang and end in it.

use super::Drawing;
use pg_event::{ObjectId, ObjectKind, Relation, ThreadId, endpoint_v4};
use pg_graph::report::Report;

/// The threads of the slice.
pub fn way(r: &Report) -> Vec<u32> {
    r.slice.iter().map(|n| n.tid).collect()
}

/// A wait that lasts all the time.
pub fn waits(d: &mut Drawing, t: ThreadId, call: &str, on: ObjectId) {
    d.wait(t, 0.0, 5.0, call).on(on).before().open();
}

/// Both ends of a TCP connection that was made from `port`.
pub fn tcp(d: &mut Drawing, port: u16, to: u16) -> (ObjectId, ObjectId) {
    let (a, b) = (endpoint_v4(0x7f00_0001, port), endpoint_v4(0x7f00_0007, to));
    (d.object(ObjectKind::Tcp, a, b, ""), d.object(ObjectKind::Tcp, b, a, ""))
}

/// Both ends of a connection that was made to the unix socket of a server: these have inodes, and one address.
pub fn unix(d: &mut Drawing, inode: u64) -> (ObjectId, ObjectId) {
    unix_at(d, inode, "/run/db.sock")
}

pub fn unix_at(d: &mut Drawing, inode: u64, name: &str) -> (ObjectId, ObjectId) {
    let mut end = |id, peer| d.object(ObjectKind::UnixStream, id, peer, name);
    let ends = (end(inode, inode + 1), end(inode + 1, inode));
    d.catalog.objects[ends.0.index()].connected = true;
    ends
}

/// A client that waits for a server whose main thread waits in `call` on the connection and whatever else `set` gives.
pub fn client_and_server(
    call: &str,
    set: impl Fn(&mut Drawing, ObjectId) -> ObjectId,
) -> (Drawing, ThreadId, ThreadId) {
    let mut d = Drawing::new(5.0);
    let client = d.process("client", "client", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let (own, other) = tcp(&mut d, 40_000, 80);
    waits(&mut d, client, "recvfrom", own);
    d.hold(server, client, own, Relation::Peer, 0.7);
    let on = set(&mut d, other);
    waits(&mut d, server, call, on);
    (d, client, server)
}

/// An epoll instance that watches these.
pub fn epoll(d: &mut Drawing, members: &[ObjectId]) -> ObjectId {
    let e = d.object(ObjectKind::Epoll, 5, 0, "");
    d.catalog.objects[e.index()].members = members.to_vec();
    e
}
