//! Objects: what a thread waits on or communicates through.

use crate::{Ns, ObjectId};
use serde::{Deserialize, Serialize};

/// What kind of thing an [`Object`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum ObjectKind {
    /// Kind could not be read.
    Unknown = 0,
    /// A futex word. `id` is the user address, `peer` the process; or, in a shared mapping, `id` is the offset
    /// in what is mapped and `peer` names that (see [`SHARED_FUTEX`]).
    Futex = 1,
    /// Anonymous pipe. `id` is the inode.
    Pipe = 2,
    /// Named FIFO. `id` is the inode; `name` its path.
    Fifo = 3,
    /// Unix-domain stream or sequenced-packet socket. `id` own inode, `peer` the peer's inode.
    UnixStream = 4,
    /// Unix-domain datagram socket.
    UnixDatagram = 5,
    /// TCP socket. `id` is the local, `peer` the remote endpoint (see [`endpoint_v4`]).
    Tcp = 6,
    /// UDP socket. `peer` is 0 when not connected.
    Udp = 7,
    /// Another socket family (netlink, packet, ...).
    Socket = 8,
    /// eventfd.
    EventFd = 9,
    /// epoll instance.
    Epoll = 10,
    /// timerfd.
    TimerFd = 11,
    /// signalfd.
    SignalFd = 12,
    /// inotify or fanotify.
    Inotify = 13,
    /// pidfd.
    PidFd = 14,
    /// io_uring instance.
    IoUring = 15,
    /// Regular file or directory. `id` is the inode, `peer` the device.
    File = 16,
    /// A lock on a file (flock, fcntl). `id` is the inode, `peer` the device.
    FileLock = 17,
    /// Terminal or pseudo-terminal.
    Tty = 18,
    /// Other character device (including /dev/fuse).
    CharDevice = 19,
    /// Block device.
    BlockDevice = 20,
    /// Child process(es) waited for. `id` is the pid given to wait4/waitid as seen by the waiter, 0 = any.
    Child = 21,
    /// Several objects waited for at once (poll, select, epoll): see [`Object::members`].
    Set = 22,
    /// System V or POSIX message queue, semaphore.
    SysvIpc = 23,
    /// Another anonymous inode.
    Anon = 24,
    /// A word of memory watched as a data flag. `id` is its address, `peer` the address space (or inode, when
    /// shared); `name` the variable, when known.
    Memory = 25,
    /// A control group whose quota of CPU time holds threads back. `id` is the inode of its directory, `name`
    /// the directory and the limit.
    Cgroup = 26,
    /// The timers of a process that send signals (setitimer, alarm, timer_settime). `id` is the process.
    Timer = 27,
    /// A function of the kernel that its workers execute for whoever queued it. `id` stands for its address,
    /// `name` is its name.
    Work = 28,
}

impl ObjectKind {
    /// All kinds, in numeric order.
    pub const ALL: [Self; 29] = [
        Self::Unknown,
        Self::Futex,
        Self::Pipe,
        Self::Fifo,
        Self::UnixStream,
        Self::UnixDatagram,
        Self::Tcp,
        Self::Udp,
        Self::Socket,
        Self::EventFd,
        Self::Epoll,
        Self::TimerFd,
        Self::SignalFd,
        Self::Inotify,
        Self::PidFd,
        Self::IoUring,
        Self::File,
        Self::FileLock,
        Self::Tty,
        Self::CharDevice,
        Self::BlockDevice,
        Self::Child,
        Self::Set,
        Self::SysvIpc,
        Self::Anon,
        Self::Memory,
        Self::Cgroup,
        Self::Timer,
        Self::Work,
    ];

    /// The kind with this number, [`Self::Unknown`] for a number nobody knows.
    pub fn from_u8(n: u8) -> Self {
        Self::ALL.get(n as usize).copied().unwrap_or(Self::Unknown)
    }

    /// Do two ends of this kind carry messages (ordered bytes or datagrams)?
    pub fn is_channel(self) -> bool {
        matches!(
            self,
            Self::Pipe
                | Self::Fifo
                | Self::UnixStream
                | Self::UnixDatagram
                | Self::Tcp
                | Self::Udp
                | Self::Tty
                | Self::EventFd
        )
    }
}

/// In the peer of a System V object: below it its namespace, and in the lowest two bits which kind it is.
const SYSV: u64 = 1 << 63;

/// A System V object: each kind counts its numbers by itself, in each namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SysV {
    /// A queue of messages, else a set of semaphores.
    pub messages: bool,
    /// Inode of its namespace, as `/proc/PID/ns/ipc` shows it.
    pub namespace: u32,
}

impl SysV {
    /// What stands in [`Object::peer`] of such an object.
    pub fn peer(self) -> u64 {
        SYSV | u64::from(self.namespace) << 2 | if self.messages { 2 } else { 1 }
    }
}

/// A thing that threads wait on or communicate through. Two ends of one channel are two objects
/// `a` and `b` with `a.id == b.peer && a.peer == b.id` (sockets), or one object (pipes).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// Identity, by kind.
    pub id: u64,
    /// Identity of the other end (equal to `id` for a pipe), 0 when there is none.
    pub peer: u64,
    /// Human name: a path, `127.0.0.1:80->127.0.0.1:4711`, a socket's address. May be empty.
    /// It comes from outside and may hold anything: clean it before it reaches a terminal.
    pub name: String,
    /// The members of a [`ObjectKind::Set`]; else empty.
    pub members: Vec<ObjectId>,
    /// The end of a unix connection that asked for it, or still does: it has no address of its own, what it connects to
    /// has (unix(7)). Never set of pairs (socketpair(2)), of ends that were bound before, in sessions of earlier versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connected: bool,
    /// Of a TCP connection, how long before the recording began this end had sent what no answer had come to by then, ns.
    /// Of a unix one, 1 when what it had sent was not even read. 0 when that was not so, or is not known (of sessions of
    /// earlier versions, and of flight recorders).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unanswered: Ns,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(n: &Ns) -> bool {
    *n == 0
}

impl Object {
    /// An object of which nothing else is known.
    pub fn new(kind: ObjectKind, id: u64, peer: u64) -> Self {
        Self { kind, id, peer, name: String::new(), members: Vec::new(), connected: false, unanswered: 0 }
    }

    /// The other end of the same channel?
    pub fn is_other_end_of(&self, other: &Self) -> bool {
        self.kind == other.kind && self.peer != 0 && self.id == other.peer && self.peer == other.id
    }

    /// A futex word in a shared mapping, which several processes may have at different addresses?
    pub fn is_shared_futex(&self) -> bool {
        self.kind == ObjectKind::Futex && self.peer & SHARED_FUTEX != 0
    }

    /// Which System V object it is; `None` for others, POSIX message queues too.
    pub fn sysv(&self) -> Option<SysV> {
        if self.kind != ObjectKind::SysvIpc || self.peer & SYSV == 0 {
            return None;
        }
        Some(SysV { messages: self.peer & 3 == 2, namespace: (self.peer >> 2) as u32 })
    }

    /// The text of the report's `object` field, as fixed by the contract:
    /// `pipe:[1234]`, `unix:/run/x`, `tcp 127.0.0.1:1->127.0.0.1:2`, a path, ...
    pub fn label(&self) -> String {
        let named = |prefix: &str| {
            if self.name.is_empty() {
                format!("{prefix}:[{}]", self.id)
            } else {
                format!("{prefix}:{}", self.name)
            }
        };
        let inet = |proto: &str| {
            if !self.name.is_empty() {
                return format!("{proto} {}", self.name);
            }
            if self.peer == 0 {
                format!("{proto} {}", show_endpoint(self.id))
            } else {
                format!("{proto} {}->{}", show_endpoint(self.id), show_endpoint(self.peer))
            }
        };
        match self.kind {
            ObjectKind::Futex if self.is_shared_futex() && !self.name.is_empty() => {
                format!("futex 0x{:x} of {}", self.id, self.name)
            }
            ObjectKind::Futex => format!("futex 0x{:x}", self.id),
            ObjectKind::Pipe => format!("pipe:[{}]", self.id),
            ObjectKind::Fifo => named("fifo"),
            ObjectKind::UnixStream | ObjectKind::UnixDatagram => named("unix"),
            ObjectKind::Tcp => inet("tcp"),
            ObjectKind::Udp => inet("udp"),
            ObjectKind::Socket => named("socket"),
            ObjectKind::EventFd => format!("eventfd:[{}]", self.id),
            ObjectKind::Epoll => format!("epoll:[{}]", self.id),
            ObjectKind::TimerFd => format!("timerfd:[{}]", self.id),
            ObjectKind::SignalFd => format!("signalfd:[{}]", self.id),
            ObjectKind::Inotify => format!("inotify:[{}]", self.id),
            ObjectKind::PidFd => format!("pidfd:[{}]", self.id),
            ObjectKind::IoUring => format!("io_uring:[{}]", self.id),
            ObjectKind::Child if self.id == 0 => "any child".into(),
            ObjectKind::Child => format!("child {}", self.id),
            ObjectKind::Set if self.members.len() == 1 => "1 descriptor".into(),
            ObjectKind::Set => format!("{} descriptors", self.members.len()),
            ObjectKind::SysvIpc => match self.sysv() {
                Some(SysV { messages: false, .. }) => format!("semaphores:[{}]", self.id),
                Some(SysV { messages: true, .. }) => format!("messages:[{}]", self.id),
                // As recorded before the kinds were told apart.
                None if self.peer == 0 => named("sysv"),
                None => named("messages"),
            },
            ObjectKind::File
            | ObjectKind::FileLock
            | ObjectKind::Tty
            | ObjectKind::CharDevice
            | ObjectKind::BlockDevice => {
                if self.name.is_empty() {
                    format!("inode {} on device {:x}", self.id, self.peer)
                } else {
                    self.name.clone()
                }
            }
            ObjectKind::Anon => named("anon"),
            ObjectKind::Memory if self.name.is_empty() => format!("flag 0x{:x}", self.id),
            ObjectKind::Memory => format!("flag {} (0x{:x})", self.name, self.id),
            ObjectKind::Cgroup => named("cgroup"),
            ObjectKind::Timer => format!("timers of process {}", self.id),
            ObjectKind::Work => named("work"),
            ObjectKind::Unknown => named("unknown"),
        }
    }
}

/// Set in the `peer` of a futex word that is known by what is mapped, not by a process.
pub const SHARED_FUTEX: u64 = 1 << 63;

/// Key of an IPv4 endpoint: address (host order) in bits 16..48, port in bits 0..16.
/// An IPv6 endpoint has bit 63 set, a hash of its address above the port, and its text in [`Object::name`].
pub const fn endpoint_v4(addr: u32, port: u16) -> u64 {
    (addr as u64) << 16 | port as u64
}

/// Text of an endpoint key: `127.0.0.1:80`, or `[v6]:80`.
pub fn show_endpoint(key: u64) -> String {
    let port = key & 0xffff;
    if key >> 63 == 1 {
        return format!("[v6]:{port}");
    }
    let [a, b, c, d] = ((key >> 16) as u32).to_be_bytes();
    format!("{a}.{b}.{c}.{d}:{port}")
}
