//! What only the kernel's socket monitoring tells (sock_diag(7)): which connections wait to be accepted on a
//! unix socket (`UDIAG_SHOW_ICONS`), and which two are connected (`UDIAG_SHOW_PEER`).

use crate::sockdiag::{
    self, LISTEN, UDIAG_SHOW_ICONS, UDIAG_SHOW_PEER, UNIX_DIAG_ICONS, UNIX_DIAG_PEER, attributes,
    unix_sockets, word,
};

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
    sockdiag::Socket::open()?.dump(&sockdiag::unix_request(states, show))
}

fn pairs_of(datagrams: &[Vec<u8>]) -> Vec<(u64, u64)> {
    let peer = |(inode, _, rest)| {
        let (_, value) = attributes(rest).find(|(kind, _)| *kind == UNIX_DIAG_PEER)?;
        Some((inode, u64::from(word(value, 0).filter(|&n| n != 0)?)))
    };
    unix_sockets(datagrams).filter_map(peer).collect()
}

fn pending_on(datagrams: &[Vec<u8>], client: u64) -> Vec<u64> {
    let waits = |rest| {
        attributes(rest)
            .filter(|(kind, _)| *kind == UNIX_DIAG_ICONS)
            .flat_map(|(_, value)| value.chunks_exact(4))
            .any(|four| word(four, 0).is_some_and(|n| u64::from(n) == client))
    };
    unix_sockets(datagrams).filter(|(.., rest)| client != 0 && waits(rest)).map(|(inode, ..)| inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsRawFd;

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
