//! Connections over which something had been asked when the recording began. Messages tell that of all times after.
//!
//! - TCP: what was sent last is younger than what came last (`struct tcp_info` of `include/uapi/linux/tcp.h`, by
//!   sock_diag(7)). These times are as coarse as the kernel's clock tick; what was sent in the tick in which the last thing
//!   came is not told from an answer that came at once.
//! - Unix sockets: what was sent has not been read (`UDIAG_SHOW_RQLEN`). Since when, the kernel does not say.

use crate::netns;
use crate::procfs;
use crate::sockdiag::{
    ESTABLISHED, INET_DIAG_INFO, UDIAG_SHOW_PEER, UDIAG_SHOW_RQLEN, UNIX_DIAG_PEER, UNIX_DIAG_RQLEN,
    attributes, endpoint, local, remote, tcp_request, tcp_sockets, unix_request, unix_sockets, word,
};
use pg_event::{Ns, ObjectKind};
use std::collections::HashMap;
use std::path::PathBuf;

/// Most network namespaces that are asked.
const MAX_SPACES: usize = 256;
/// With so many connections no more namespaces are asked.
const MAX_CONNECTIONS: usize = 1 << 16;
/// Bytes that came and were not read, in `inet_diag_msg`.
const UNREAD: usize = 56;
/// In `struct tcp_info`: for how many ms nothing was sent and nothing came, and how many segments with data came and went.
const LAST_SENT: usize = 44;
const LAST_CAME: usize = 52;
const SEGMENTS_CAME: usize = 152;
const SEGMENTS_SENT: usize = 156;

/// Since when at least what was sent had no answer, ns, by what the connection is and the keys of its own end and of its
/// other one.
pub type Unanswered = HashMap<(ObjectKind, u64, u64), Ns>;

/// All such connections now, of the network namespaces of these processes.
pub fn connections(processes: &[u32]) -> Unanswered {
    let mut out = Unanswered::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for pid in std::iter::once(std::process::id()).chain(processes.iter().copied()) {
        let Ok(space) = std::fs::read_link(procfs::path_of(pid, "ns/net")) else { continue };
        if seen.contains(&space) || seen.len() == MAX_SPACES {
            continue;
        }
        // A dump that was broken off leaves its rest in its socket: one for each.
        let ask = |request: &[u8]| netns::open(pid, &space)?.dump(request);
        for family in [libc::AF_INET, libc::AF_INET6] {
            let all = ask(&tcp_request(family, 1 << ESTABLISHED)).unwrap_or_default();
            out.extend(tcp_sockets(&all).filter_map(|(message, attrs)| of_tcp(message, attrs)));
        }
        let all =
            ask(&unix_request(1 << ESTABLISHED, UDIAG_SHOW_RQLEN | UDIAG_SHOW_PEER)).unwrap_or_default();
        out.extend(unix_sockets(&all).filter_map(of_unix));
        seen.push(space);
        if out.len() >= MAX_CONNECTIONS {
            break;
        }
    }
    out
}

/// `unix_diag_rqlen`: bytes to be read at 0, bytes that the other end has not read at 4.
fn of_unix((inode, kind, attrs): (u64, i32, &[u8])) -> Option<((ObjectKind, u64, u64), Ns)> {
    let number = |which, at| {
        let (_, value) = attributes(attrs).find(|(kind, _)| *kind == which)?;
        word(value, at).filter(|&n| n > 0).map(u64::from)
    };
    number(UNIX_DIAG_RQLEN, 4)?;
    let peer = number(UNIX_DIAG_PEER, 0)?;
    (kind == libc::SOCK_STREAM).then_some(((ObjectKind::UnixStream, inode, peer), 1))
}

fn of_tcp(message: &[u8], attrs: &[u8]) -> Option<((ObjectKind, u64, u64), Ns)> {
    let (_, info) = attributes(attrs).find(|(kind, _)| *kind == INET_DIAG_INFO)?;
    let field = |at| word(info, at);
    let (sent, came) = (field(LAST_SENT)?, field(LAST_CAME)?);
    let asked = field(SEGMENTS_SENT)? > 0 && (field(SEGMENTS_CAME)? == 0 || sent < came);
    let unread = word(message, UNREAD)? > 0;
    let ends = (ObjectKind::Tcp, endpoint(local(message)?), endpoint(remote(message)?));
    (asked && !unread).then(|| (ends, u64::from(sent).max(1) * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockdiag::Socket;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
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
            let (own, other) = (s.local_addr().expect("local"), s.peer_addr().expect("peer"));
            (ObjectKind::Tcp, endpoint(own), endpoint(other))
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

    #[test]
    fn what_the_other_end_of_a_unix_socket_has_not_read_is_unanswered() {
        let (mut client, mut server) = UnixStream::pair().expect("a pair");
        let inode = |s: &UnixStream| {
            let link = procfs::read_fd_link(std::process::id(), s.as_raw_fd() as u32);
            let Some(procfs::FdLink::Socket(n)) = link else { panic!("no socket: {link:?}") };
            n
        };
        let ends = |a: &UnixStream, b: &UnixStream| (ObjectKind::UnixStream, inode(a), inode(b));
        if Socket::open().and_then(|mut s| s.dump(&unix_request(2, 0))).is_none() {
            eprintln!("skipped: this kernel has no unix_diag");
            return;
        }
        assert!(!connections(&[]).contains_key(&ends(&client, &server)));
        client.write_all(b"GET").expect("write");
        let all = connections(&[]);
        assert!(all.contains_key(&ends(&client, &server)) && !all.contains_key(&ends(&server, &client)));
        server.read_exact(&mut [0; 3]).expect("read");
        assert!(!connections(&[]).contains_key(&ends(&client, &server)), "who took it may be at work");
    }

    proptest! {
        #[test]
        fn takes_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let all = [bytes];
            tcp_sockets(&all).filter_map(|(message, attrs)| of_tcp(message, attrs)).count();
            unix_sockets(&all).filter_map(of_unix).count();
        }
    }
}
