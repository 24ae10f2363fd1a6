//! Socket tables of network namespaces, kept for a while.

use super::super::open_files::{REST, SELDOM};
use super::canonical;
use crate::procfs::{self, InetSocket, Stat, UnixSocket};
use pg_event::Ns;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A table is good for at least this long, and for [`REST`] (or [`SELDOM`]) times as long as reading it took.
const FRESH_NS: Ns = 1_000_000_000;

struct Kept<T> {
    rows: Vec<T>,
    until: Ns,
    from: Ns,
}

type Tables<T> = HashMap<(PathBuf, &'static str), Kept<T>>;

/// Tables by network namespace.
#[derive(Default)]
pub struct SocketTables {
    inet: Tables<InetSocket>,
    unix: Tables<UnixSocket>,
    /// Both ends of connected unix sockets of this program's own namespace, by inode.
    pairs: Tables<(u64, u64)>,
    /// One process for each other namespace.
    others: Tables<u32>,
    now: Ns,
    seldom: bool,
}

/// The network namespace of a process, by the link that names it.
fn namespace(pid: u32) -> PathBuf {
    let link = |who: u32| std::fs::read_link(procfs::path_of(who, "ns/net"));
    link(pid).or_else(|_| link(procfs::shown_by(pid))).unwrap_or_default()
}

fn rest(took: Duration, seldom: bool) -> Ns {
    FRESH_NS.max((took * if seldom { SELDOM } else { REST }).as_nanos() as Ns)
}

fn kept<'a, T>(
    tables: &'a mut Tables<T>,
    key: (PathBuf, &'static str),
    (now, seldom): (Ns, bool),
    read: impl FnOnce() -> Vec<T>,
) -> &'a [T] {
    let fresh = tables.get(&key).is_some_and(|k| now >= k.from && now < k.until);
    if !fresh {
        let began = Instant::now();
        let rows = read();
        let until = now.saturating_add(rest(began.elapsed(), seldom));
        tables.insert(key.clone(), Kept { rows, until, from: now });
    }
    tables.get(&key).map_or(&[], |k| &k.rows)
}

impl SocketTables {
    /// The time by which the next questions decide whether a table is too old.
    pub fn set_time(&mut self, now: Ns) {
        self.now = now;
        self.inet.retain(|_, k| now < k.until);
        self.unix.retain(|_, k| now < k.until);
        self.pairs.retain(|_, k| now < k.until);
        self.others.retain(|_, k| now < k.until);
    }

    /// Whether to look seldom, since everybody is recorded.
    pub fn set_seldom(&mut self, seldom: bool) {
        self.seldom = seldom;
    }

    /// TCP (or UDP) sockets, version 4 and 6, of the namespace a process is in.
    pub fn inet(&mut self, pid: u32, udp: bool) -> &[InetSocket] {
        let (four, six) = if udp { ("udp", "udp6") } else { ("tcp", "tcp6") };
        kept(&mut self.inet, (namespace(pid), four), (self.now, self.seldom), || {
            let mut rows = procfs::read_inet(pid, four);
            rows.extend(procfs::read_inet(pid, six));
            for row in &mut rows {
                row.local = canonical(row.local);
                row.remote = canonical(row.remote);
            }
            rows
        })
    }

    /// Unix-domain sockets of the namespace a process is in.
    pub fn unix(&mut self, pid: u32) -> &[UnixSocket] {
        kept(&mut self.unix, (namespace(pid), "unix"), (self.now, self.seldom), || procfs::read_unix(pid))
    }

    /// The other end of a connected unix-domain socket of a process; `None` when there is none, or it is in
    /// another network namespace, of which the kernel does not tell.
    pub fn unix_peer(&mut self, pid: u32, inode: u64) -> Option<u64> {
        let (of, own) = (namespace(pid), namespace(std::process::id()));
        if of != own {
            return None;
        }
        let pairs = kept(&mut self.pairs, (own, "pairs"), (self.now, self.seldom), super::diag::pairs);
        pairs.iter().find(|p| p.0 == inode).map(|p| p.1)
    }

    /// One process, of `all`, for each network namespace other than that of `pid`.
    pub fn others(&mut self, pid: u32, all: &[Stat]) -> Vec<u32> {
        let own = namespace(pid);
        let read = || in_others(&own, all);
        kept(&mut self.others, (own.clone(), "others"), (self.now, self.seldom), read).to_vec()
    }
}

/// Is a process in this program's network namespace?
pub fn in_own_namespace(pid: u32) -> bool {
    namespace(pid) == namespace(std::process::id())
}

fn in_others(own: &Path, all: &[Stat]) -> Vec<u32> {
    let mut seen = vec![own.to_owned(), PathBuf::new()];
    let mut out = Vec::new();
    for stat in all.iter().filter(|s| !s.kernel) {
        let other = namespace(stat.pid);
        if !seen.contains(&other) {
            seen.push(other);
            out.push(stat.pid);
        }
    }
    out
}
