//! What a wait was for, in the words of the report.

use crate::Vertex;
use crate::builder::{
    CHILD, EXIT, FILE, FILE_LOCK, FUTEX, POLL, RECV, SEND, SIGWAIT, SLEEP, SPAWN, SYSV, call_is,
};
use pg_event::{Catalog, Object, ObjectId, ObjectKind, OffState};

/// What a thread waits on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitsOn {
    /// A futex word: a lock, a condition, a join, ...
    Futex,
    /// A pipe or FIFO.
    Pipe,
    /// A unix-domain socket.
    Unix,
    /// A TCP connection (or a new one).
    Tcp,
    /// UDP.
    Udp,
    /// Another kind of socket.
    Socket,
    /// Several descriptors.
    Poll,
    /// Time to pass.
    Sleep,
    /// A timer descriptor.
    Timer,
    /// A disk.
    Disk,
    /// Written data to reach the disk: too much of it had not (the kernel puts off who writes more).
    WriteBack,
    /// A network or user-space file system.
    FileSystem,
    /// A lock on a file.
    FileLock,
    /// A child process.
    Child,
    /// A page of memory.
    PageFault,
    /// Memory to be freed: there was none, or a limit was reached.
    MemoryReclaim,
    /// Its tracer.
    Ptrace,
    /// To be continued after a stop signal.
    Stop,
    /// The freezer (cgroup or suspend).
    Freezer,
    /// A lock within the kernel.
    KernelLock,
    /// CPU time allowed by its control group.
    CpuQuota,
    /// A free CPU.
    RunQueue,
    /// A signal.
    Signal,
    /// An eventfd.
    EventFd,
    /// A terminal.
    Tty,
    /// A change of files (inotify, fanotify).
    Inotify,
    /// io_uring completions.
    IoUring,
    /// A semaphore or message queue (System V, POSIX).
    SysvIpc,
    /// A device.
    Device,
    /// Work (a kernel thread's idle wait).
    Work,
}

impl WaitsOn {
    /// The word of the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Futex => "futex",
            Self::Pipe => "pipe",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Socket => "socket",
            Self::Poll => "poll",
            Self::Sleep => "sleep",
            Self::Timer => "timer",
            Self::Disk => "disk",
            Self::WriteBack => "write-back",
            Self::FileSystem => "file-system",
            Self::FileLock => "file-lock",
            Self::Child => "child",
            Self::PageFault => "page-fault",
            Self::MemoryReclaim => "memory-reclaim",
            Self::Ptrace => "ptrace",
            Self::Stop => "stop",
            Self::Freezer => "freezer",
            Self::KernelLock => "kernel-lock",
            Self::CpuQuota => "cpu-quota",
            Self::RunQueue => "run-queue",
            Self::Signal => "signal",
            Self::EventFd => "eventfd",
            Self::Tty => "tty",
            Self::Inotify => "inotify",
            Self::IoUring => "io-uring",
            Self::SysvIpc => "sysv-ipc",
            Self::Device => "device",
            Self::Work => "work",
        }
    }

    fn of_object(k: ObjectKind) -> Option<Self> {
        Some(match k {
            ObjectKind::Futex => Self::Futex,
            ObjectKind::Pipe | ObjectKind::Fifo => Self::Pipe,
            ObjectKind::UnixStream | ObjectKind::UnixDatagram => Self::Unix,
            ObjectKind::Tcp => Self::Tcp,
            ObjectKind::Udp => Self::Udp,
            ObjectKind::Socket => Self::Socket,
            ObjectKind::EventFd => Self::EventFd,
            ObjectKind::TimerFd | ObjectKind::Timer => Self::Timer,
            ObjectKind::Cgroup => Self::CpuQuota,
            ObjectKind::SignalFd => Self::Signal,
            ObjectKind::Inotify => Self::Inotify,
            ObjectKind::PidFd | ObjectKind::Child => Self::Child,
            ObjectKind::IoUring => Self::IoUring,
            ObjectKind::FileLock => Self::FileLock,
            ObjectKind::Tty => Self::Tty,
            ObjectKind::CharDevice => Self::Device,
            ObjectKind::BlockDevice => Self::Disk,
            ObjectKind::SysvIpc => Self::SysvIpc,
            ObjectKind::Work => Self::Work,
            ObjectKind::Epoll | ObjectKind::Set => Self::Poll,
            ObjectKind::Unknown | ObjectKind::File | ObjectKind::Anon | ObjectKind::Memory => return None,
        })
    }
}

/// Kernel functions on a wait's stack and what they tell; the leaf frames are looked at first, so
/// what a thread finally waits in counts, not what it wanted to do.
const BY_KERNEL: &[(&str, WaitsOn)] = &[
    ("ptrace_stop", WaitsOn::Ptrace),
    ("mem_cgroup_handle_over_high", WaitsOn::MemoryReclaim),
    ("throttle_direct_reclaim", WaitsOn::MemoryReclaim),
    ("reclaim_throttle", WaitsOn::MemoryReclaim),
    ("try_to_free", WaitsOn::MemoryReclaim),
    ("mem_cgroup_oom", WaitsOn::MemoryReclaim),
    ("mem_cgroup_out_of_memory", WaitsOn::MemoryReclaim),
    ("throttle", WaitsOn::CpuQuota),
    ("refrigerator", WaitsOn::Freezer),
    ("do_freezer_trap", WaitsOn::Freezer),
    ("fanotify_", WaitsOn::FileSystem),
    ("break_lease", WaitsOn::FileLock),
    ("fuse_", WaitsOn::FileSystem),
    ("request_wait_answer", WaitsOn::FileSystem),
    ("nfs", WaitsOn::FileSystem),
    ("rpc_wait", WaitsOn::FileSystem),
    ("cifs_", WaitsOn::FileSystem),
    ("p9_", WaitsOn::FileSystem),
    ("flock_lock_inode_wait", WaitsOn::FileLock),
    ("locks_lock_inode_wait", WaitsOn::FileLock),
    ("fcntl_setlk", WaitsOn::FileLock),
    ("posix_lock_inode_wait", WaitsOn::FileLock),
    ("io_schedule", WaitsOn::Disk),
    ("blk_", WaitsOn::Disk),
    ("submit_bio_wait", WaitsOn::Disk),
    ("wait_on_page", WaitsOn::Disk),
    ("folio_wait", WaitsOn::Disk),
    ("jbd2_", WaitsOn::Disk),
    ("balance_dirty_pages", WaitsOn::WriteBack),
    ("sb_start_write", WaitsOn::FileSystem),
    ("percpu_rwsem_wait", WaitsOn::KernelLock),
    ("rwsem_down", WaitsOn::KernelLock),
    ("down_read", WaitsOn::KernelLock),
    ("down_write", WaitsOn::KernelLock),
    ("mutex_lock", WaitsOn::KernelLock),
    ("__mutex", WaitsOn::KernelLock),
    ("rt_mutex", WaitsOn::KernelLock),
    ("synchronize_rcu", WaitsOn::KernelLock),
    ("wait_rcu", WaitsOn::KernelLock),
    ("futex_", WaitsOn::Futex),
    ("do_nanosleep", WaitsOn::Sleep),
    ("pipe_", WaitsOn::Pipe),
    ("fifo_open", WaitsOn::Pipe),
    ("unix_", WaitsOn::Unix),
    ("inet_csk_accept", WaitsOn::Tcp),
    ("tcp_", WaitsOn::Tcp),
    ("inet_stream_connect", WaitsOn::Tcp),
    ("udp_", WaitsOn::Udp),
    ("do_wait", WaitsOn::Child),
    ("wait_for_vfork_done", WaitsOn::Child),
    ("do_poll", WaitsOn::Poll),
    ("do_sys_poll", WaitsOn::Poll),
    ("do_select", WaitsOn::Poll),
    ("ep_poll", WaitsOn::Poll),
    ("eventfd_read", WaitsOn::EventFd),
    ("timerfd_read", WaitsOn::Timer),
    ("signalfd", WaitsOn::Signal),
    ("inotify_read", WaitsOn::Inotify),
    ("n_tty_read", WaitsOn::Tty),
    ("n_tty_write", WaitsOn::Tty),
    ("tty_", WaitsOn::Tty),
    ("io_cqring_wait", WaitsOn::IoUring),
    ("do_semtimedop", WaitsOn::SysvIpc),
    ("do_msgrcv", WaitsOn::SysvIpc),
    ("wq_sleep", WaitsOn::SysvIpc),
    ("sigtimedwait", WaitsOn::Signal),
    ("sigsuspend", WaitsOn::Signal),
    ("sys_pause", WaitsOn::Signal),
    ("handle_mm_fault", WaitsOn::PageFault),
    ("do_user_addr_fault", WaitsOn::PageFault),
    ("exc_page_fault", WaitsOn::PageFault),
];

/// By which limit of its control group a thread waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryLimit {
    /// There is no more, and the OOM killer is disabled (version 1 only).
    Full,
    /// It has more than `memory.high`, and is slowed down (version 2).
    High,
}

/// Does the leading wait of a vertex come of a limit that the control group's memory has reached?
pub(crate) fn memory_limit(v: &Vertex, catalog: &Catalog) -> Option<MemoryLimit> {
    catalog.frames_of(v.kernel_stack).find_map(|f| match f.function.as_str() {
        f if f.contains("mem_cgroup_oom_synchronize") => Some(MemoryLimit::Full),
        f if f.contains("mem_cgroup_handle_over_high") => Some(MemoryLimit::High),
        _ => None,
    })
}

/// Does the leading wait of a vertex want to write to a frozen file system? Writers count themselves in a semaphore
/// of the file system (kernel: `sb_start_write`); only freezing makes them wait for it.
pub(crate) fn for_thaw(v: &Vertex, catalog: &Catalog) -> bool {
    const WRITERS: [&str; 9] = [
        "sb_start",
        "start_write",
        "mnt_want_write",
        "vfs_write",
        "iter_write",
        "writev",
        "fallocate",
        "page_mkwrite",
        "sendfile",
    ];
    let mut frames = catalog.frames_of(v.kernel_stack).map(|f| f.function.as_str());
    let waits = frames.by_ref().take(3).any(|f| f.contains("percpu_rwsem_wait"));
    let caller = frames.find(|f| !f.contains("percpu_down_read"));
    waits && caller.is_some_and(|f| WRITERS.iter().any(|w| f.contains(w)))
}

fn by_kernel_stack(v: &Vertex, catalog: &Catalog) -> Option<WaitsOn> {
    const RECLAIM: &[&str] = &[
        "throttle_direct_reclaim",
        "mem_cgroup_handle_over_high",
        "try_to_free_mem_cgroup_pages",
        "try_to_free_pages",
        "reclaim_throttle",
        "shrink_lruvec",
    ];
    const FAULT: &[&str] = &["handle_mm_fault", "do_user_addr_fault", "exc_page_fault"];
    let has = |parts: &[&str]| {
        catalog.frames_of(v.kernel_stack).any(|f| parts.iter().any(|p| f.function.contains(p)))
    };
    let leaf = catalog.frames_of(v.kernel_stack).find_map(|f| {
        let name = f.function.trim_start_matches("__x64_").trim_start_matches("__se_");
        BY_KERNEL.iter().find(|(part, _)| name.contains(part)).map(|k| k.1)
    })?;
    // How it waits says little when it is for memory: a disk is only the means.
    match leaf {
        WaitsOn::Disk | WaitsOn::CpuQuota | WaitsOn::KernelLock if has(RECLAIM) => {
            Some(WaitsOn::MemoryReclaim)
        }
        WaitsOn::Disk if has(&["balance_dirty_pages"]) => Some(WaitsOn::WriteBack),
        WaitsOn::Disk if has(FAULT) => Some(WaitsOn::PageFault),
        other => Some(other),
    }
}

/// What the leading wait of a vertex was for; `None` when it has none or nothing is known of it.
pub fn wait_kind(v: &Vertex, catalog: &Catalog) -> Option<WaitsOn> {
    if v.woken <= v.start {
        return (v.run > v.woken).then_some(WaitsOn::RunQueue);
    }
    match v.state {
        OffState::Runnable => return Some(WaitsOn::RunQueue),
        OffState::Stopped => return Some(WaitsOn::Stop),
        OffState::Traced => return Some(WaitsOn::Ptrace),
        OffState::Frozen => return Some(WaitsOn::Freezer),
        OffState::Throttled => return Some(WaitsOn::CpuQuota),
        OffState::Idle => return Some(WaitsOn::Work),
        OffState::Dead => return None,
        OffState::Interruptible | OffState::Uninterruptible => {}
    }
    if for_thaw(v, catalog) {
        return Some(WaitsOn::FileSystem);
    }
    let stack = by_kernel_stack(v, catalog);
    // A stack that ends in a page fault, a kernel lock, the throttle or a file system tells more than
    // the call that led there.
    if let Some(
        w @ (WaitsOn::KernelLock
        | WaitsOn::MemoryReclaim
        | WaitsOn::PageFault
        | WaitsOn::CpuQuota
        | WaitsOn::FileSystem
        | WaitsOn::Ptrace
        | WaitsOn::Freezer
        | WaitsOn::FileLock
        | WaitsOn::WriteBack
        | WaitsOn::Disk),
    ) = stack
    {
        return Some(w);
    }
    if v.syscall.is_none() {
        let kernel_thread = catalog.thread(v.thread).is_some_and(|t| t.kernel);
        return stack.or(if kernel_thread { Some(WaitsOn::Work) } else { Some(WaitsOn::PageFault) });
    }
    if call_is(v.syscall, SLEEP) {
        return Some(WaitsOn::Sleep);
    }
    if call_is(v.syscall, FUTEX) {
        return Some(WaitsOn::Futex);
    }
    if call_is(v.syscall, CHILD | SPAWN) {
        return Some(WaitsOn::Child);
    }
    if call_is(v.syscall, POLL) {
        return Some(poll_kind(v, catalog));
    }
    if let Some(w) = catalog.object(v.object).and_then(|o| WaitsOn::of_object(o.kind)) {
        return Some(w);
    }
    if call_is(v.syscall, FILE_LOCK) {
        return Some(WaitsOn::FileLock);
    }
    if call_is(v.syscall, SIGWAIT) {
        return Some(WaitsOn::Signal);
    }
    if call_is(v.syscall, SYSV) {
        return Some(WaitsOn::SysvIpc);
    }
    if call_is(v.syscall, EXIT) {
        return stack;
    }
    let uninterruptible = v.state == OffState::Uninterruptible;
    stack.or_else(|| (uninterruptible && call_is(v.syscall, FILE | SEND | RECV)).then_some(WaitsOn::Disk))
}

/// A poll of nothing is a sleep; of anything else it is a poll, also when it has one descriptor only.
fn poll_kind(v: &Vertex, catalog: &Catalog) -> WaitsOn {
    let nothing = catalog.object(v.object).map_or(v.object.is_none() && v.value == 0, |o| {
        o.kind == ObjectKind::Set && o.members.is_empty() && v.value == 0
    });
    let times_out = v.timeout != 0 && v.timeout != u64::MAX;
    // epoll instances are objects; an unread object says nothing about how many there are.
    if nothing && times_out && !v.syscall.is_any(&["epoll_wait", "epoll_pwait", "epoll_pwait2"]) {
        return WaitsOn::Sleep;
    }
    WaitsOn::Poll
}

/// What the leading wait of a vertex was for, as the report says it.
pub fn waits_on(v: &Vertex, catalog: &Catalog) -> Option<&'static str> {
    wait_kind(v, catalog).map(WaitsOn::name)
}

/// The object that matters in the leading wait: the object itself, or, when several were waited for,
/// the only member that others can act on, else the only one whose other end is known.
pub fn main_object(v: &Vertex, catalog: &Catalog) -> Option<ObjectId> {
    let o = catalog.object(v.object)?;
    if o.members.is_empty() {
        return Some(v.object);
    }
    let row = |m: &ObjectId| catalog.object(*m).map(|o| (*m, o));
    let members: Vec<(ObjectId, &Object)> = o.members.iter().filter_map(row).collect();
    if let [only] = members[..] {
        return Some(only.0);
    }
    let only = |test: &dyn Fn(&Object) -> bool| {
        let mut of = members.iter().filter(|(_, o)| test(o));
        match (of.next(), of.next()) {
            (Some(one), None) => Some(one.0),
            _ => None,
        }
    };
    // Wake-up pipes and eventfds of an event loop are its own; a connection is what it waits for.
    only(&|o| o.kind.is_channel())
        .or_else(|| only(&|o| o.kind.is_channel() && !matches!(o.kind, ObjectKind::EventFd)))
        .or_else(|| only(&|o| matches!(o.kind, ObjectKind::Tcp | ObjectKind::UnixStream) && o.peer != 0))
        .or_else(|| only(&|o| o.kind.is_channel() && catalog.has_other_end(o)))
}
