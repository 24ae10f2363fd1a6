//! Connections over which something had been asked when the recording began: what was sent over them last is younger than
//! what came last. Messages tell that of all times after.
//!
//! Kernel: `struct tcp_info` (`include/uapi/linux/tcp.h`), by sock_diag(7). Its times are as coarse as the kernel's clock
//! tick; what was sent in the tick in which the last thing came is not told from an answer that came at once.

use crate::netns;
use crate::procfs;
use crate::sockdiag::{
    INET_DIAG_INFO, Socket, attributes, endpoint, local, remote, tcp_request, tcp_sockets, word,
};
use pg_event::Ns;
use std::collections::HashMap;
use std::path::PathBuf;

/// `TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1;
/// Most network namespaces that are asked.
const MAX_SPACES: usize = 256;
/// Most connections kept.
const MAX_CONNECTIONS: usize = 1 << 16;
/// Bytes that came and were not read, in `inet_diag_msg`.
const UNREAD: usize = 56;
/// In `struct tcp_info`: for how many ms nothing was sent and nothing came, and how many segments with data came and went.
const LAST_SENT: usize = 44;
const LAST_CAME: usize = 52;
const SEGMENTS_CAME: usize = 152;
const SEGMENTS_SENT: usize = 156;

/// Since when what was sent had no answer, ns, by the keys of a TCP connection's own end and of its other one.
pub type Unanswered = HashMap<(u64, u64), Ns>;

/// All such connections now, of the network namespaces of these processes.
pub fn connections(processes: &[u32]) -> Unanswered {
    let mut out = Unanswered::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for pid in std::iter::once(std::process::id()).chain(processes.iter().copied()) {
        let Ok(space) = std::fs::read_link(procfs::path_of(pid, "ns/net")) else { continue };
        if seen.contains(&space) || seen.len() == MAX_SPACES {
            continue;
        }
        let socket = netns::open(pid, &space);
        seen.push(space);
        let Some(mut socket) = socket else { continue };
        for family in [libc::AF_INET, libc::AF_INET6] {
            // What was refused or broken off leaves a socket of no use.
            let Some(all) = socket.dump(&tcp_request(family, 1 << ESTABLISHED)) else { break };
            let found = tcp_sockets(&all).filter_map(|(message, attrs)| unanswered(message, attrs));
            let room = MAX_CONNECTIONS.saturating_sub(out.len());
            out.extend(found.take(room));
        }
    }
    out
}

fn unanswered(message: &[u8], attrs: &[u8]) -> Option<((u64, u64), Ns)> {
    let (_, info) = attributes(attrs).find(|(kind, _)| *kind == INET_DIAG_INFO)?;
    let field = |at| word(info, at);
    let (sent, came) = (field(LAST_SENT)?, field(LAST_CAME)?);
    let asked = field(SEGMENTS_SENT)? > 0 && (field(SEGMENTS_CAME)? == 0 || sent < came);
    let unread = word(message, UNREAD)? > 0;
    let ends = (endpoint(local(message)?), endpoint(remote(message)?));
    (asked && !unread).then(|| (ends, u64::from(sent).max(1) * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn what_was_sent_is_unanswered_until_something_comes() {
        if Socket::open().and_then(|mut s| s.dump(&tcp_request(libc::AF_INET, 2))).is_none() {
            eprintln!("skipped: this kernel has no tcp_diag");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let mut server = listener.accept().expect("accept").0;
        let key = |s: &TcpStream| {
            (endpoint(s.local_addr().expect("local")), endpoint(s.peer_addr().expect("peer")))
        };
        let now = |s: &TcpStream| connections(&[]).get(&key(s)).copied();
        // Longer than any tick.
        let pass = || std::thread::sleep(Duration::from_millis(30));
        assert_eq!((now(&client), now(&server)), (None, None), "nothing was sent");
        client.write_all(b"GET").expect("write");
        pass();
        let since = now(&client).expect("asked");
        assert!(since >= 20_000_000, "{since}");
        assert_eq!(now(&server), None, "it has a request that it did not read");
        server.read_exact(&mut [0; 3]).expect("read");
        assert_eq!(now(&server), None, "it was asked");
        server.write_all(b"OK").expect("write");
        pass();
        assert_eq!(now(&client), None, "the answer is there, not read yet");
        client.read_exact(&mut [0; 2]).expect("read");
        assert_eq!(now(&client), None);
        assert!(now(&server).is_some(), "it said something last");
    }
}
