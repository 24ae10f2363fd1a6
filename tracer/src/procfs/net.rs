//! Sockets of a network namespace: `/proc/PID/net/{tcp,tcp6,udp,udp6,unix}`, see proc_pid_net(5).

use super::{MAX_PATH, lossy, path_of, read_bounded};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of a listening TCP socket (kernel: `TCP_LISTEN` in `include/net/tcp_states.h`).
pub const TCP_LISTEN: u8 = 0x0a;
/// Most bytes read of a socket table.
const MAX_TABLE: usize = 16 << 20;
/// `__SO_ACCEPTCON` in the flags of `/proc/net/unix`: the socket listens.
const SO_ACCEPTCON: u64 = 0x0001_0000;

/// A TCP or UDP socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InetSocket {
    /// Own address.
    pub local: SocketAddr,
    /// The peer's address; unspecified with port 0 when not connected.
    pub remote: SocketAddr,
    /// State, see [`TCP_LISTEN`].
    pub state: u8,
    /// Inode of the socket; 0 when no descriptor refers to it (not yet accepted, or closed already).
    pub inode: u64,
}

/// A unix-domain socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnixSocket {
    /// It listens.
    pub listening: bool,
    /// 1 stream, 2 datagram, 5 sequenced packets.
    pub kind: u16,
    /// Inode of the socket; 0 when not yet accepted.
    pub inode: u64,
    /// Path, or `@name` of an abstract address; empty when unnamed.
    pub path: String,
}

fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Addresses are printed as the 32-bit words they are in memory: network byte order read natively.
    let word = |i: usize| Some(u32::from_str_radix(host.get(i * 8..i * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match host.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (i, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(i)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn inet_line(line: &str) -> Option<InetSocket> {
    let words: Vec<&str> = line.split_ascii_whitespace().take(12).collect();
    Some(InetSocket {
        local: address(words.get(1)?)?,
        remote: address(words.get(2)?)?,
        state: u8::from_str_radix(words.get(3)?, 16).ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Parse `/proc/net/tcp`, `tcp6`, `udp` or `udp6`, skipping lines that make no sense.
pub fn parse_inet(bytes: &[u8]) -> Vec<InetSocket> {
    String::from_utf8_lossy(bytes).lines().filter_map(inet_line).collect()
}

fn unix_line(line: &[u8]) -> Option<UnixSocket> {
    // `Num: RefCount Protocol Flags Type St Inode Path`, the path separated by one space and unescaped.
    let mut rest = line;
    let mut words = [""; 7];
    for word in &mut words {
        let begin = rest.iter().position(|b| *b != b' ')?;
        let from = rest.get(begin..)?;
        let end = from.iter().position(|b| *b == b' ').unwrap_or(from.len());
        *word = std::str::from_utf8(from.get(..end)?).ok()?;
        rest = from.get(end..)?;
    }
    let hex = |i: usize| words.get(i).and_then(|w| u64::from_str_radix(w, 16).ok());
    Some(UnixSocket {
        listening: hex(3)? & SO_ACCEPTCON != 0,
        kind: hex(4)? as u16,
        inode: words[6].parse().ok()?,
        path: lossy(rest.strip_prefix(b" ").unwrap_or(rest), MAX_PATH),
    })
}

/// Parse `/proc/net/unix`, skipping lines that make no sense.
pub fn parse_unix(bytes: &[u8]) -> Vec<UnixSocket> {
    bytes.split(|&b| b == b'\n').filter_map(unix_line).collect()
}

/// A table (`tcp`, `tcp6`, `udp`, `udp6`) of the network namespace `pid` is in.
pub fn read_inet(pid: u32, table: &str) -> Vec<InetSocket> {
    parse_inet(&read_bounded(&path_of(pid, &format!("net/{table}")), MAX_TABLE).unwrap_or_default())
}

/// The unix-domain sockets of the network namespace `pid` is in.
pub fn read_unix(pid: u32) -> Vec<UnixSocket> {
    parse_unix(&read_bounded(&path_of(pid, "net/unix"), MAX_TABLE).unwrap_or_default())
}
