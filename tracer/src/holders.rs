//! Holders: who could end a long wait, read from the state of the system while the wait goes on.
//!
//! Where no wake-up was recorded, what holds the thing waited for is still to be seen in `/proc`: the other
//! end of a pipe, the owner of a lock, the tracer of a stopped thread. Nothing is stopped or attached to,
//! files are never touched through a target's file system (which may be what hangs), and one look at
//! everybody's descriptors serves all waits of the next second or more.

mod barrier;
mod candidates;
mod files;
mod futex;
mod ipc;
mod kept;
mod lock_files;
mod locks;
mod mappings;
mod memory;
mod mounts;
mod open_files;
mod polled;
mod sharers;
mod sockets;
mod terminals;

pub(crate) use ipc::ipc_namespace;
pub(crate) use lock_files::path_seen_by;
pub(crate) use memory::parse_call;

use crate::identity::Identity;
use crate::patience::Patience;
use crate::procfs::{self, FdLink};
use open_files::OpenFiles;
use pg_event::{Ns, Object, ObjectId, ObjectKind, OffState, Relation, Sysno, ThreadId};
use sockets::SocketTables;
use std::time::Duration;

/// Most holders reported for one object: a descriptor inherited by hundreds of workers says no more.
const MAX_PER_OBJECT: usize = 16;
/// Most objects of a set looked at.
const MAX_MEMBERS: usize = 64;
/// Most holders reported for one wait.
const MAX_PER_WAIT: usize = 64;
/// How long a read of a target's memory may take.
const READ_LIMIT: Duration = Duration::from_millis(250);

/// A wait that has become long, and goes on.
#[derive(Clone, Copy, Debug)]
pub struct LongWait<'a> {
    /// Who waits.
    pub thread: ThreadId,
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// The system call it waits in.
    pub syscall: Sysno,
    /// As in [`pg_event::OffCpu::op`].
    pub op: u32,
    /// How it waits.
    pub state: OffState,
    /// What it waits for; [`ObjectId::NONE`] when not known.
    pub id: ObjectId,
    /// The row of that object, if there is one.
    pub object: Option<&'a Object>,
    /// Rows of the members of a set or an epoll instance; and whom it asked by a datagram.
    pub members: &'a [(ObjectId, &'a Object)],
    /// The error by which the call failed, negative, where it does not wait but fails again and again; else 0.
    pub error: i64,
}

/// A thread tied to what another one waits for: the data of a [`pg_event::Hold`] event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Found {
    /// The thread that holds; a process that holds stands here with its leader.
    pub holder: ThreadId,
    /// What it holds, [`ObjectId::NONE`] for a tracer.
    pub object: ObjectId,
    /// How.
    pub relation: Relation,
}

/// Finds holders; keeps what it has read for a while.
pub struct Holders {
    open: OpenFiles,
    sockets: SocketTables,
    mappings: mappings::Mappings,
    barriers: barrier::Barriers,
    patience: Patience,
}

impl Default for Holders {
    fn default() -> Self {
        Self::new()
    }
}

/// Who holds, by the kernel's numbers, before identities are known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Who {
    Process(u32),
    Thread(u32, u32),
    /// A process that is no more.
    Ended(u32),
    /// A thread that is no more, of a process that is.
    EndedThread(u32, u32),
}

impl Holders {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self {
            open: OpenFiles::default(),
            sockets: SocketTables::default(),
            mappings: mappings::Mappings::default(),
            barriers: barrier::Barriers::default(),
            patience: Patience::new(READ_LIMIT),
        }
    }

    /// Whether everybody is recorded. Then it looks less often, since no one wait is more important than others.
    pub fn set_everybody(&mut self, everybody: bool) {
        self.open.set_seldom(everybody);
        self.sockets.set_seldom(everybody);
    }

    /// Have the next question answered by a new look at what everybody has open.
    pub fn look_anew(&mut self) {
        self.open.forget();
        self.mappings.forget();
    }

    /// How many reads took too long by now: what they would have told is not known.
    pub fn unread(&self) -> u64 {
        self.patience.unanswered()
    }

    /// Who could end this wait. Empty when nobody is found: that nobody can is a finding of its own, but
    /// only for kinds of which all holders are visible (see [`Self::sees_all`]). `now` is the time of the
    /// recording; identities not yet known are made.
    pub fn find(&mut self, wait: &LongWait, identity: &mut Identity, now: Ns) -> Vec<Found> {
        let mut out = Vec::new();
        if matches!(wait.state, OffState::Stopped | OffState::Traced) {
            // Whatever it waited for before, now it waits for being continued.
            if let Some(tracer) = procfs::read_status(wait.tid).map(|s| s.tracer).filter(|&t| t != 0) {
                let holder = identity.thread(tracer, 0, now);
                out.push(Found { holder, object: ObjectId::NONE, relation: Relation::Traces });
            }
            return out;
        }
        self.open.set_time(now, identity.counts().1);
        self.sockets.set_time(now);
        let kept = self.keepers(wait);
        let mut take = |found: Vec<(Who, Relation)>, object: ObjectId| {
            for (who, relation) in found.into_iter().take(MAX_PER_OBJECT) {
                let holder = match who {
                    Who::Process(pid) => identity.leader(pid, now),
                    Who::Thread(tid, tgid) => identity.thread(tid, tgid, now),
                    Who::Ended(pid) => identity.ended(pid),
                    Who::EndedThread(tid, tgid) => match identity.ended_thread(tid, tgid, now) {
                        Some(id) => id,
                        None => continue,
                    },
                };
                let found = Found { holder, object, relation };
                if out.len() < MAX_PER_WAIT && !out.contains(&found) {
                    out.push(found);
                }
            }
        };
        if !kept.is_empty() {
            take(kept, wait.id);
            return out;
        }
        for (id, member) in wait.members.iter().take(MAX_MEMBERS) {
            take(self.of_object(wait, member), *id);
        }
        match wait.object {
            Some(o) if matches!(o.kind, ObjectKind::Set | ObjectKind::Epoll) => {}
            Some(o) => take(self.of_object(wait, o), wait.id),
            None if wait.syscall.is_none() => take(self.page_bringers(wait), wait.id),
            None => {}
        }
        if wait.object.is_none()
            && let Some(child) = self.child_by_signal(wait)
        {
            take(vec![(Who::Process(child), Relation::ChildOf)], wait.id);
        }
        // A parent waits within vfork(2) until the child executes a program or exits.
        if wait.syscall.is_any(&["vfork", "clone", "clone3"])
            && wait.object.is_none()
            && let Some(child) = self.youngest_child(wait.tgid)
        {
            take(vec![(Who::Process(child), Relation::ChildOf)], wait.id);
        }
        out
    }

    /// Path of the file (or of what is locked) that a thread is within a call about, by the call's descriptor: for one of which
    /// no name came. `None` when it is in another call by now, or the first argument leads to no file.
    pub fn path_of_file(&mut self, tid: u32, call: Sysno) -> Option<String> {
        let (_, args) = self.blocked_call(tid).filter(|c| c.0 == u64::from(call.0))?;
        match procfs::read_fd_link(tid, u32::try_from(args[0]).ok()?)? {
            FdLink::Path(path) => Some(path),
            _ => None,
        }
    }

    /// Nobody was found for a wait that began at `start`: when is it worth to ask again? What is open was looked
    /// at before the wait began, and whoever it waits for may have come since.
    pub fn ask_again(&self, start: Ns, object: Option<&Object>) -> Option<Ns> {
        let mapped = object.filter(|o| o.is_shared_futex()).and_then(|_| self.mappings.taken());
        self.open.next_after(start).max(self.open.next_look(mapped, start))
    }

    /// Are all possible holders of this kind of object visible, so that finding none means there is none?
    pub fn sees_all(kind: ObjectKind) -> bool {
        matches!(
            kind,
            ObjectKind::Pipe
                | ObjectKind::Fifo
                | ObjectKind::UnixStream
                | ObjectKind::FileLock
                | ObjectKind::Child
                | ObjectKind::PidFd
        )
    }

    fn of_object(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        match object.kind {
            ObjectKind::Pipe | ObjectKind::Fifo => self.pipe_ends(wait, object),
            ObjectKind::UnixStream | ObjectKind::UnixDatagram => self.unix_peer(wait, object),
            ObjectKind::Tcp => self.tcp_peer(wait, object),
            ObjectKind::Udp => self.udp_peer(wait, object),
            ObjectKind::FileLock => self.lock_owners(wait, object),
            ObjectKind::Child => self.children(wait, object),
            ObjectKind::PidFd => {
                let pid = object.id as u32;
                let alive = procfs::read_stat(pid).is_some_and(|s| !s.has_ended());
                if alive { vec![(Who::Process(pid), Relation::ChildOf)] } else { Vec::new() }
            }
            ObjectKind::Tty => self.terminal_end(wait, object),
            ObjectKind::Futex => self.futex_owner(wait, object),
            ObjectKind::EventFd => self.eventfd_sharers(wait, object),
            ObjectKind::File if wait.error == -i64::from(libc::EEXIST) => self.file_makers(wait, object),
            ObjectKind::File => self.file_holders(wait, object),
            ObjectKind::SysvIpc => match object.sysv() {
                Some(sysv) => self.sysv_partners(wait, object, sysv),
                None => self.queue_ends(wait, object),
            },
            _ => Vec::new(),
        }
    }
}

/// The descriptors an epoll instance of a thread watches; empty when that cannot be read.
pub fn epoll_members(tid: u32, epfd: u32) -> Vec<u32> {
    procfs::read_fdinfo(tid, epfd).map(|i| i.epoll_targets).unwrap_or_default()
}

/// Where a descriptor of a thread leads, as `/proc` writes it: `pipe:[1234]`, `socket:[99]`, a path.
pub fn describe_fd(tid: u32, fd: u32) -> Option<String> {
    Some(match procfs::read_fd_link(tid, fd)? {
        FdLink::Pipe(inode) => format!("pipe:[{inode}]"),
        FdLink::Socket(inode) => format!("socket:[{inode}]"),
        FdLink::Anon(name) => format!("anon_inode:[{name}]"),
        FdLink::Path(path) => path,
    })
}
