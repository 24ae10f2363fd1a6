//! What a thread waits for, told from the call it is in: its arguments name descriptors, addresses, children.

use crate::holders::{Holders, epoll_members, ipc_namespace, parse_call};
use crate::procfs::{self, FdLink};
use pg_event::{Ns, Object, ObjectId, ObjectKind, SysV, Sysno};

/// Most members of a set looked up: who polls hundreds of descriptors waits for work.
const MEMBERS: usize = 64;

/// What is waited for.
pub struct Waited {
    /// It, or the set.
    pub object: Object,
    /// Members of a set, as far as they are known and at most [`MEMBERS`].
    pub members: Vec<Object>,
    /// It is a FIFO that is opened, and nobody has the other end.
    pub opens: bool,
}

impl Waited {
    fn one(object: Object) -> Self {
        Self { object, members: Vec::new(), opens: false }
    }
}

/// Number and arguments of `/proc/TID/syscall`; `None` when it is in no call, or that may not be read.
pub fn call(text: &[u8]) -> Option<(Sysno, [u64; 6])> {
    let (number, args) = parse_call(text)?;
    Some((Sysno(u16::try_from(number).ok()?), args))
}

fn object(kind: ObjectKind, id: u64, name: String) -> Object {
    Object { name, ..Object::new(kind, id, 0) }
}

const ON_FD: &[&str] = &[
    "read",
    "readv",
    "pread64",
    "preadv",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "ioctl",
    "fsync",
    "fdatasync",
    "splice",
    "sendfile",
    "mq_timedsend",
    "mq_timedreceive",
];

/// Calls that open a file, and which argument is its path; the one before is the folder it starts from, if any.
const PATHS: &[(&str, usize)] = &[("open", 0), ("openat", 1), ("openat2", 1)];

/// The FIFO that is opened and of which nobody has opened the other end (fifo(7)): the kernel waits in a function of
/// its own for that.
fn opened_fifo(holders: &mut Holders, tid: u32, folder: Option<i32>, path: u64) -> Option<Waited> {
    const WAITS_IN: &str = "wait_for_partner";
    if procfs::read_wchan(tid) != WAITS_IN {
        return None;
    }
    let path = holders.text(tid, path, procfs::MAX_PATH).unwrap_or_default();
    let mut name = procfs::lossy(&path, procfs::MAX_PATH);
    if !name.is_empty() && !name.starts_with('/') {
        let from = match folder {
            Some(fd) if fd != libc::AT_FDCWD => format!("fd/{fd}"),
            _ => "cwd".to_owned(),
        };
        if let Ok(from) = std::fs::read_link(procfs::path_of(tid, &from)) {
            name = from.join(name).to_string_lossy().into_owned();
        }
    }
    Some(Waited { opens: true, ..Waited::one(object(ObjectKind::Fifo, 0, name)) })
}

/// What a call with these arguments waits for.
pub fn waited_for(
    holders: &mut Holders,
    now: Ns,
    (tid, tgid): (u32, u32),
    nr: Sysno,
    args: [u64; 6],
) -> Option<Waited> {
    if nr.is_any(&["futex"]) {
        let word = object(ObjectKind::Futex, args[0], String::new());
        return Some(Waited::one(Object { peer: u64::from(tgid), ..word }));
    }
    if nr.is_any(&["wait4", "waitid"]) {
        let given = if nr.is_any(&["waitid"]) { (args[0] == 1).then_some(args[1]) } else { Some(args[0]) };
        let pid = given.map_or(0, |p| (p as i32).max(0));
        return Some(Waited::one(object(ObjectKind::Child, pid as u64, String::new())));
    }
    if nr.is_any(&["semop", "semtimedop", "msgsnd", "msgrcv"]) {
        let messages = nr.is_any(&["msgsnd", "msgrcv"]);
        let set = object(ObjectKind::SysvIpc, u64::from(args[0] as u32), String::new());
        let peer = SysV { messages, namespace: ipc_namespace(tid)? }.peer();
        return Some(Waited::one(Object { peer, ..set }));
    }
    if let Some(at) = PATHS.iter().find(|p| nr.is_any(&[p.0])).map(|p| p.1) {
        return opened_fifo(holders, tid, at.checked_sub(1).map(|i| args[i] as i32), args[at]);
    }
    let fd = args[0] as u32;
    let epoll = nr.is_any(&["epoll_wait", "epoll_pwait", "epoll_pwait2"]);
    let set = if epoll { Some(epoll_members(tid, fd)) } else { holders.polled(tid, nr, args) };
    if let Some(fds) = set {
        let mut of = |fd: &u32| descriptor(holders, now, (tid, tgid), *fd, false);
        let members: Vec<Object> = fds.iter().take(MEMBERS).filter_map(&mut of).collect();
        let all = vec![ObjectId::NONE; fds.len()];
        let object = Object { members: all, ..object(ObjectKind::Set, 0, String::new()) };
        return Some(Waited { object, members, opens: false });
    }
    let locks = nr.is_any(&["flock"]) || (nr.is_any(&["fcntl"]) && matches!(args[1], 7 | 38));
    if !locks && !nr.is_any(ON_FD) {
        return None;
    }
    let queue = nr.is_any(&["mq_timedsend", "mq_timedreceive"]);
    let found = descriptor(holders, now, (tid, tgid), fd, locks)?;
    let kind = if queue { ObjectKind::SysvIpc } else { found.kind };
    Some(Waited::one(Object { kind, ..found }))
}

/// What a descriptor of a thread leads to.
fn descriptor(
    holders: &mut Holders,
    now: Ns,
    (tid, tgid): (u32, u32),
    fd: u32,
    locks: bool,
) -> Option<Object> {
    Some(match procfs::read_fd_link(tid, fd)? {
        FdLink::Pipe(inode) => object(ObjectKind::Pipe, inode, String::new()),
        FdLink::Socket(inode) => holders.socket_object(tgid, inode, now),
        FdLink::Anon(name) => object(ObjectKind::Anon, u64::from(fd), name),
        FdLink::Path(path) => {
            let inode = procfs::read_fdinfo(tid, fd).and_then(|i| i.inode).unwrap_or(0);
            let tty = path.starts_with("/dev/pts/") || path.starts_with("/dev/tty") || path == "/dev/ptmx";
            let fifo = || {
                let at = procfs::read_wchan(tid);
                ["pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write"].contains(&at.as_str())
            };
            let kind = match () {
                () if locks => ObjectKind::FileLock,
                () if tty => ObjectKind::Tty,
                () if fifo() => ObjectKind::Fifo,
                () => ObjectKind::File,
            };
            object(kind, inode, path)
        }
    })
}
