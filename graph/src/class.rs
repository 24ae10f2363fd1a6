//! Classes of waits, as far as the diagnosis treats them differently.

use crate::initialise::waits_for_initialiser;
use crate::python::{pythons_lock, waits_for_timer};
use crate::sleeps::sleeps_by_lock;
use crate::{At, EventGraph, Vertex, VertexId};
use pg_event::{Catalog, Direction, Frame, IpcUse, Ns, Object, ObjectId, ObjectKind, OffState, ThreadId};

/// What sort of wait it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitClass {
    /// It wanted to sleep for a time.
    Sleep,
    /// For a child to end.
    Child,
    /// In an event loop, for whatever comes next: many descriptors, or a listening one.
    EventLoop,
    /// For data on one channel (or a few).
    Channel,
    /// For room in a channel.
    Room,
    /// For a lock: futex, flock, fcntl, semaphore.
    Lock,
    /// For a condition: a worker without work waits like this, and so does who waits for a result.
    Condition,
    /// For a signal.
    Signal,
    /// For a device or file system.
    Disk,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by its tracer.
    Traced,
    /// For a person at a terminal.
    Terminal,
    /// Anything else.
    Other,
}

pub(crate) const POLLS: &[&str] = &["poll", "ppoll", "select", "pselect6"];
const EPOLLS: &[&str] =
    &["epoll_wait", "epoll_pwait", "epoll_pwait2", "io_getevents", "io_pgetevents", "io_uring_enter"];
const SENDS: &[&str] = &[
    "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile",
    "splice", "connect",
];
const READS: &[&str] = &["read", "readv", "splice"];
const SLEEPS: &[&str] = &["nanosleep", "clock_nanosleep"];
const LOCKS: &[&str] = &["futex", "futex_wait", "futex_waitv", "flock", "fcntl", "semop", "semtimedop"];
const FUTEXES: &[&str] = &["futex", "futex_wait", "futex_waitv"];
const SIGNALS: &[&str] = &["pause", "rt_sigsuspend", "rt_sigtimedwait"];

/// What a futex wait is for, as far as the names on its stack tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FutexUse {
    Condition,
    Lock,
    Unknown,
}

/// Does the user stack tell of a condition variable, a semaphore or a parked thread, or of a lock? Without names the call
/// does: the C library waits for conditions with a bit set (for clocks), for its mutexes without; the value 2 means "locked,
/// and others wait" to most mutexes.
fn futex_use(v: &Vertex, catalog: &Catalog) -> FutexUse {
    const COMMAND: u32 = 0x7f;
    const WAIT_BITSET: u32 = 9;
    const LOCKED: u32 = 2;
    let by_call = || {
        let clock = v.op & COMMAND == WAIT_BITSET && v.value != LOCKED && !joins(v, catalog);
        if clock { FutexUse::Condition } else { FutexUse::Unknown }
    };
    named_use(v, catalog).unwrap_or_else(by_call)
}

/// What the names on the user stack tell, if any does: what is nearest to the leaf decides, but a monitor that is entered is a
/// lock however its runtime waits.
fn named_use(v: &Vertex, catalog: &Catalog) -> Option<FutexUse> {
    /// Frames between a runtime's lock and the condition by which it waits, at most.
    const NEAR: usize = 12;
    /// Java's and C#'s monitors, the light-weight locks of PostgreSQL.
    const OWN: [&str; 4] = ["monitor::enter", "monitorenter", "monitor_enter", "lwlockacquire"];
    // Asked for every futex wait: allocates nothing.
    let functions = || catalog.frames_of(v.user_stack).flat_map(Frame::names);
    if functions().take(NEAR).any(|f| tells_of(f, &OWN)) || waits_for_initialiser(v, catalog) {
        return Some(FutexUse::Lock);
    }
    match pythons_lock(v.user_stack, catalog) {
        Some(true) => return Some(FutexUse::Lock),
        Some(false) => return Some(FutexUse::Condition),
        None => {}
    }
    functions().find_map(|f| {
        let condition =
            ["cond_wait", "cond_timedwait", "cond_clockwait", "condvar", "condition", "park", "sem_wait"];
        if tells_of(f, &condition) {
            return Some(FutexUse::Condition);
        }
        tells_of(f, &["mutex", "rwlock", "lll_lock", "lock_contended"]).then_some(FutexUse::Lock)
    })
}

/// Do the names on its stack tell that it waits for a condition? What is counted in the words beside the one that it sleeps
/// on looks like the readers of a lock then, and is none.
pub(crate) fn on_condition(v: &Vertex, catalog: &Catalog) -> bool {
    named_use(v, catalog) == Some(FutexUse::Condition)
}

/// Do the names on its stack tell that it waits for a semaphore? What was posted before the wait is not lost.
pub(crate) fn on_semaphore(v: &Vertex, catalog: &Catalog) -> bool {
    const SEMAPHORES: [&str; 3] = ["sem_wait", "sem_timedwait", "sem_clockwait"];
    let waits = |f: &str| tells_of(f, &SEMAPHORES) || tells_of(f, &["cond_", "mutex", "rwlock"]);
    let nearest = catalog.frames_of(v.user_stack).flat_map(Frame::names).find(|f| waits(f));
    v.syscall.is_any(FUTEXES) && nearest.is_some_and(|f| tells_of(f, &SEMAPHORES))
}

/// Do the names on its stack tell that it waits for a lock?
pub(crate) fn enters_lock(v: &Vertex, catalog: &Catalog) -> bool {
    v.syscall.is_any(FUTEXES) && named_use(v, catalog) == Some(FutexUse::Lock)
}

/// Is it no wait for a read-write lock of the C library, by what its stack tells? Who calls futex(2) by `syscall(3)` has locks
/// of its own.
pub(crate) fn no_read_lock(v: &Vertex, catalog: &Catalog) -> bool {
    on_condition(v, catalog) || catalog.frames_of(v.user_stack).take(2).any(|f| f.function == "syscall")
}

/// Does its stack tell that it waits at a barrier? The words around may look like those of one by chance.
pub(crate) fn tells_of_barrier(v: &Vertex, catalog: &Catalog) -> bool {
    /// Frames of the wait itself, at most.
    const NEAR: usize = 8;
    let of_openmp =
        |f: &Frame| catalog.modules.get(f.module.index()).is_some_and(|m| m.short().starts_with("libgomp"));
    let named = |f: &Frame| f.names().any(|n| tells_of(n, &["pthread_barrier", "gomp_"]));
    catalog.frames_of(v.user_stack).take(NEAR).any(|f| named(f) || of_openmp(f))
}

/// Functions of PostgreSQL on the stack of a wait for a lock of its lock manager, or for a page that nobody else has pinned.
pub(crate) const POSTGRES_LOCKS: &[&str] = &["ProcSleep", "LockAcquireExtended", "LockBufferForCleanup"];

/// Does its stack tell that a session of PostgreSQL waits for a lock of the server?
pub(crate) fn waits_for_postgres_lock(v: &Vertex, catalog: &Catalog) -> bool {
    let named = |f: &Frame| f.names().any(|n| POSTGRES_LOCKS.contains(&n.as_str()));
    catalog.frames_of(v.user_stack).any(named)
}

/// Has a function's name one of these words in it, in upper or lower case?
pub(crate) fn tells_of(function: &str, words: &[&str]) -> bool {
    let name = function.as_bytes();
    words.iter().any(|w| name.windows(w.len()).any(|part| part.eq_ignore_ascii_case(w.as_bytes())))
}

/// Can no other process wake this futex? By FUTEX_PRIVATE_FLAG (futex(2)), or since the word is in memory that is not
/// shared: such a word is named by its process. A join is left out: it is the end of a thread that wakes it.
pub(crate) fn private_futex(v: &Vertex, catalog: &Catalog) -> bool {
    const PRIVATE: u32 = 128;
    let Some(o) = catalog.object(v.object).filter(|o| o.kind == ObjectKind::Futex) else { return false };
    let own = || catalog.process_of(v.thread).is_some_and(|p| o.peer == u64::from(p.pid));
    v.op & PRIVATE != 0 || own() && !joins(v, catalog)
}

/// Does it wait for a thread of its own process to end? A join waits for the thread id to be cleared
/// (`CLONE_CHILD_CLEARTID`, clone(2)).
pub(crate) fn joins(v: &Vertex, catalog: &Catalog) -> bool {
    let Some(own) = catalog.process_id_of(v.thread) else { return false };
    v.syscall.is_any(FUTEXES) && v.value != 0 && catalog.has_thread(own, v.value)
}

/// Is it a wait for a semaphore, or for a lock made of one? Who gets that has it taken: it can be given back. By the names
/// on the stack; without such names it is not known.
pub(crate) fn takes_semaphore(v: &Vertex, catalog: &Catalog) -> bool {
    const NAMES: [&str; 4] = ["sem_wait", "sem_timedwait", "sem_clockwait", "pythread_acquire_lock"];
    const NEAR: usize = 6;
    v.syscall.is_any(FUTEXES)
        && catalog.frames_of(v.user_stack).take(NEAR).any(|f| tells_of(&f.function, &NAMES))
}

/// Is a semaphore taken as a lock? Threads without work are parked by semaphores as well: who has locks made of them calls
/// them so. Without names it is not known.
pub(crate) fn semaphore_for_lock(v: &Vertex, catalog: &Catalog) -> bool {
    const NEAR: usize = 8;
    let near = || catalog.frames_of(v.user_stack).take(NEAR).map(|f| f.function.to_ascii_lowercase());
    let caller = near().find(|f| !["sem_", "futex"].iter().any(|w| f.contains(w)));
    let nameless = caller.is_none_or(|f| f.is_empty());
    let lock = |f: String| tells_of(&f.replace("clock", ""), &["lock", "mutex", "acquire"]);
    takes_semaphore(v, catalog) && (nameless || near().any(lock))
}

/// Functions of Go's scheduler, of a thread that has no goroutine to execute.
pub(crate) const GO_IDLE: &[&str] = &["runtime.findRunnable", "runtime.findrunnable", "runtime.stopm"];

/// The same, and of threads that the scheduler keeps for itself: a goroutine's stack does not begin where a thread does.
pub(crate) const GO_OWN: &[&str] =
    &["runtime.findRunnable", "runtime.findrunnable", "runtime.stopm", "runtime.mstart1"];

/// Is it a thread of Go's scheduler, which executes no goroutine?
pub(crate) fn is_schedulers_own(v: &Vertex, catalog: &Catalog) -> bool {
    catalog.frames_of(v.user_stack).any(|f| GO_OWN.contains(&f.function.as_str()))
}

/// Is it a thread that Node.js or Erlang's runtime has for itself, with nothing to do: it waits for a debugger, for background
/// work, for the next timer of that, for a process that is ready?
pub(crate) fn of_runtimes_own(v: &Vertex, catalog: &Catalog) -> bool {
    const NODES: [&str; 3] = ["StartIoThreadMain", "PlatformWorkerThread", "DelayedTaskScheduler"];
    const ERLANGS: [&str; 3] = ["erts_schedule", "erts_sys_main_thread", "signal_dispatcher_thread_func"];
    /// Frames of the wait itself, at most: deeper it does what it was given.
    const NEAR: usize = 8;
    let own = |f: &Frame| {
        NODES.iter().any(|own| f.function.contains(own)) || ERLANGS.contains(&f.function.as_str())
    };
    catalog.frames_of(v.user_stack).take(NEAR).any(own)
}

/// Does a runtime that schedules tasks by itself have nothing to execute on this thread? Whatever becomes ready may be
/// executed on any of its threads, so none of them waits for another.
pub(crate) fn idles_in_scheduler(v: &Vertex, catalog: &Catalog) -> bool {
    catalog.frames_of(v.user_stack).any(|f| GO_IDLE.contains(&f.function.as_str()))
}

/// A futex wait of which nothing tells that it is for a lock: a barrier, a worker without work, ...
pub(crate) fn vague(v: &Vertex, catalog: &Catalog) -> bool {
    v.syscall.is_any(FUTEXES)
        && v.value != 2
        && futex_use(v, catalog) == FutexUse::Unknown
        && !joins(v, catalog)
}

/// Has its thread waited for the same since the recording began, by one time-out after the other?
fn from_the_beginning(graph: &EventGraph, v: &Vertex) -> bool {
    let mut waits = graph.vertices_of(v.thread).map(|id| graph.vertex(id));
    waits.find(|w| w.object.is_some()).is_some_and(|w| w.start == 0 && w.object == v.object)
}

/// Was it on when the recording began?
pub(crate) fn from_before(graph: &EventGraph, v: &Vertex) -> bool {
    v.begun_before || from_the_beginning(graph, v)
}

/// What a set or an epoll instance watches, as far as it is known.
pub(crate) fn members<'a>(catalog: &'a Catalog, o: &'a Object) -> impl Iterator<Item = &'a Object> {
    o.members.iter().filter_map(|m| catalog.object(*m))
}

/// A socket that only listens: it has an own end and no peer, and accepts connections.
fn only_polls_many(catalog: &Catalog, o: &Object) -> bool {
    o.members.len() >= 4 || members(catalog, o).any(|m| matches!(m.kind, ObjectKind::Epoll))
}

/// Sockets that listen: nobody but a client to come ends a wait for them. Of unix sockets alone it is not known: one whose
/// connection has not been accepted yet has no peer either. Beside one of TCP that listens, one with an address of its own
/// and without a peer does so, too: a server has both.
pub(crate) fn only_listens(catalog: &Catalog, o: &Object) -> bool {
    let listens = |o: &Object| o.kind == ObjectKind::Tcp && o.peer == 0;
    let bound =
        |o: &Object| o.kind == ObjectKind::UnixStream && o.peer == 0 && !o.connected && !o.name.is_empty();
    match o.kind {
        ObjectKind::Set => {
            members(catalog, o).any(listens) && members(catalog, o).all(|m| listens(m) || bound(m))
        }
        _ => listens(o),
    }
}

/// Does it wait for nothing but timers to expire (timerfd)?
pub(crate) fn only_timers(v: &Vertex, catalog: &Catalog) -> bool {
    let Some(o) = catalog.object(v.object) else { return false };
    let timer = |o: &Object| o.kind == ObjectKind::TimerFd;
    timer(o) || members(catalog, o).count() == o.members.len().max(1) && members(catalog, o).all(timer)
}

/// A wait for the completion of requests (io_uring) to these files. `None` when they are not known.
fn of_requests(o: &Object, catalog: &Catalog) -> Option<WaitClass> {
    let file = |o: &Object| matches!(o.kind, ObjectKind::File | ObjectKind::BlockDevice);
    match o.kind {
        ObjectKind::IoUring | ObjectKind::Unknown => None,
        ObjectKind::Set if only_polls_many(catalog, o) && !members(catalog, o).all(file) => None,
        ObjectKind::Set if members(catalog, o).all(file) => Some(WaitClass::Disk),
        // A socket that listens.
        ObjectKind::Tcp | ObjectKind::UnixStream if o.peer == 0 => None,
        _ if file(o) => Some(WaitClass::Disk),
        _ => Some(WaitClass::Channel),
    }
}

/// Does the thread wait for somebody to open the other end of a FIFO (fifo(7))?
pub(crate) fn opens_fifo(v: &Vertex, catalog: &Catalog) -> bool {
    v.syscall.is_any(&["open", "openat", "openat2", "creat"])
        && crate::waits::wait_kind(v, catalog) == Some(crate::waits::WaitsOn::Pipe)
}

/// The class of a vertex' leading wait.
pub fn class(v: &Vertex, catalog: &Catalog) -> WaitClass {
    match v.state {
        OffState::Stopped | OffState::Frozen => return WaitClass::Stopped,
        OffState::Traced => return WaitClass::Traced,
        _ => {}
    }
    let object = catalog.object(v.object);
    let kind = object.map_or(ObjectKind::Unknown, |o| o.kind);
    if v.syscall.is_any(SLEEPS) {
        return WaitClass::Sleep;
    }
    if v.syscall.is_any(&["wait4", "waitid"]) || kind == ObjectKind::Child {
        return WaitClass::Child;
    }
    if v.syscall.is_any(LOCKS) {
        if v.syscall.is_any(FUTEXES) && (waits_for_timer(v, catalog) || sleeps_by_lock(v, catalog)) {
            return WaitClass::Sleep;
        }
        return if v.syscall.is_any(FUTEXES) && futex_use(v, catalog) == FutexUse::Condition {
            WaitClass::Condition
        } else {
            WaitClass::Lock
        };
    }
    if v.syscall.is_any(SIGNALS) {
        return WaitClass::Signal;
    }
    if v.syscall.is_any(&["io_uring_enter"])
        && let Some(class) = object.and_then(|o| of_requests(o, catalog))
    {
        return class;
    }
    // A server of a file system (fuse(4)) waits for requests.
    let serves = v.syscall.is_any(READS) && object.is_some_and(|o| o.name == "/dev/fuse");
    if serves || v.syscall.is_any(EPOLLS) || v.syscall.is_any(&["accept", "accept4"]) {
        return WaitClass::EventLoop;
    }
    if v.syscall.is_any(POLLS) {
        let none = object.is_some_and(|o| o.kind == ObjectKind::Set && o.members.is_empty());
        let not_woken = v.timed_out || v.open || v.interrupted;
        if none || (object.is_none() && v.value == 0 && not_woken) {
            return WaitClass::Sleep;
        }
        return match object {
            Some(o) if only_polls_many(catalog, o) || only_listens(catalog, o) => WaitClass::EventLoop,
            Some(o) if o.kind == ObjectKind::Tty => WaitClass::Terminal,
            _ => WaitClass::Channel,
        };
    }
    if v.state == OffState::Uninterruptible {
        return WaitClass::Disk;
    }
    if kind == ObjectKind::Tty && !v.syscall.is_any(SENDS) {
        return WaitClass::Terminal;
    }
    if kind.is_channel() || kind == ObjectKind::Socket {
        return if v.syscall.is_any(SENDS) { WaitClass::Room } else { WaitClass::Channel };
    }
    // A FIFO is opened by both ends together: this is no wait for a disk.
    if opens_fifo(v, catalog) {
        return WaitClass::Channel;
    }
    if matches!(kind, ObjectKind::File | ObjectKind::BlockDevice) && v.syscall.is_some() {
        return WaitClass::Disk;
    }
    if v.syscall.is_any(&["read", "readv", "recvfrom", "recvmsg", "recvmmsg"]) {
        return WaitClass::Channel;
    }
    WaitClass::Other
}

/// Does the wait that `vertex` leads in with expect an answer: was the thread's last message over what it
/// waits for one that it sent?
pub(crate) fn asked(graph: &EventGraph, catalog: &Catalog, vertex: VertexId) -> bool {
    const LOOKED_AT: usize = 64;
    let v = graph.vertex(vertex);
    let object = catalog.object(v.object);
    let members = object.map_or(&[][..], |o| &o.members);
    let over =
        |o: ObjectId| o.is_some() && (o == v.object || members.iter().any(|m| same_socket(catalog, *m, o)));
    let before = graph.ipc_of(v.thread, 0..v.start.saturating_add(1));
    let last = before.iter().rev().take(LOOKED_AT).find(|m| over(m.what.object));
    // What an epoll instance watched just then may not have been read.
    let epoll = object.is_some_and(|o| o.kind == ObjectKind::Epoll);
    match last {
        // What a server of many says to who came to it is an answer.
        Some(m) if m.what.direction == Direction::Send && !(epoll && accepted(catalog, m.what.object)) => {
            true
        }
        // It may have asked before the recording.
        None if !epoll && from_before(graph, &v) => {
            let mut ends = members.iter().chain([&v.object]).filter(|o| connected(catalog, **o));
            ends.next().is_some() && ends.next().is_none()
        }
        _ if epoll => !owed(graph, catalog, v.thread, v.start).is_empty(),
        _ => {
            let before = |o: &ObjectId| unanswered(catalog, *o);
            let owes = |o: &ObjectId| before(o) && over(*o);
            members.iter().any(before) && owed(graph, catalog, v.thread, v.start).iter().any(owes)
        }
    }
}

/// Are these two the same end of a connection? Until a unix socket is accepted it has no peer: what is sent before is over
/// an object of its own.
fn same_socket(catalog: &Catalog, a: ObjectId, b: ObjectId) -> bool {
    let unix = |o: ObjectId| catalog.object(o).filter(|o| o.kind == ObjectKind::UnixStream && o.id != 0);
    a == b || unix(a).zip(unix(b)).is_some_and(|(a, b)| a.id == b.id && (a.peer == 0) != (b.peer == 0))
}

/// Is it the end of a connection of who asked for that? Of TCP and UDP the ports tell, of unix sockets who has no address.
pub(crate) fn connected(catalog: &Catalog, id: ObjectId) -> bool {
    let Some(o) = catalog.object(id).filter(|o| o.peer != 0) else { return false };
    match o.kind {
        ObjectKind::Tcp | ObjectKind::Udp => port(o.id) >= EPHEMERAL && port(o.peer) < EPHEMERAL,
        ObjectKind::UnixStream => o.connected,
        _ => false,
    }
}

/// Is it the end of a connection of who was asked for that? What is sent over it is an answer.
pub(crate) fn accepted(catalog: &Catalog, id: ObjectId) -> bool {
    let Some(o) = catalog.object(id).filter(|o| o.peer != 0) else { return false };
    match o.kind {
        ObjectKind::Tcp => port(o.id) < EPHEMERAL && port(o.peer) >= EPHEMERAL,
        ObjectKind::UnixStream => !o.connected && !o.name.is_empty(),
        _ => false,
    }
}

/// First port that Linux gives to who connects, unless it is told another one (`ip_local_port_range`, ip(7)).
const EPHEMERAL: u64 = 32_768;

fn port(endpoint: u64) -> u64 {
    endpoint & 0xffff
}

/// Connections over which a thread asks and has had no answer before `at`: it sent the first message and the last one. Who
/// serves a connection takes the first, which need not have been recorded.
pub(crate) fn owed(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, at: Ns) -> Vec<ObjectId> {
    let all = said_last(graph, catalog, thread, at).into_iter();
    all.filter(|(_, first)| *first).map(|(o, _)| o).collect()
}

/// The same of who is known to wait for an answer: some servers greet who has connected, and are asked then. What tells of a
/// heartbeat looks so as well, and counts for nothing where another one is owed.
pub(crate) fn owed_or_greeted(
    graph: &EventGraph,
    catalog: &Catalog,
    thread: ThreadId,
    at: Ns,
) -> Vec<ObjectId> {
    let all = said_last(graph, catalog, thread, at);
    let asked = all.iter().any(|(_, first)| *first);
    let counts = |(o, first): &(ObjectId, bool)| *first || !asked && connected(catalog, *o);
    all.into_iter().filter(counts).map(|(o, _)| o).collect()
}

/// Connections over which a thread said the last message before `at`, and whether the first one as well.
fn said_last(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, at: Ns) -> Vec<(ObjectId, bool)> {
    const LOOKED_AT: usize = 256;
    let connection = |o: ObjectId| {
        let kind = catalog.object(o).map_or(ObjectKind::Unknown, |o| o.kind);
        matches!(kind, ObjectKind::Tcp | ObjectKind::Udp | ObjectKind::UnixStream)
    };
    let sent = |m: &At<IpcUse>| m.what.direction == Direction::Send;
    let mut seen: Vec<(ObjectId, bool, bool)> = Vec::new();
    for m in graph.ipc_of(thread, 0..at.saturating_add(1)).iter().rev().take(LOOKED_AT) {
        let one = |s: &&mut (ObjectId, bool, bool)| same_socket(catalog, s.0, m.what.object);
        match seen.iter_mut().find(one) {
            Some(s) => s.2 = sent(m),
            None => seen.push((m.what.object, sent(m), sent(m))),
        }
    }
    let mut before = asked_before(graph, catalog, thread, at);
    before.retain(|o| !seen.iter().any(|s| s.0 == *o));
    seen.extend(before.into_iter().map(|o| (o, true, true)));
    seen.retain(|(o, last, _)| *last && connection(*o) && !accepted(catalog, *o));
    seen.into_iter().map(|(o, _, first)| (o, first)).collect()
}

/// Connections of what a thread has waited for since the recording began over which something had been asked before.
fn asked_before(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, at: Ns) -> Vec<ObjectId> {
    let Some(v) = graph.vertex_at(thread, at).map(|v| graph.vertex(v)) else { return Vec::new() };
    if !from_before(graph, &v) {
        return Vec::new();
    }
    let members = catalog.object(v.object).map_or(&[][..], |o| &o.members);
    members.iter().copied().chain([v.object]).filter(|o| unanswered(catalog, *o)).collect()
}

/// Had something been asked over this end of a connection when the recording began?
fn unanswered(catalog: &Catalog, id: ObjectId) -> bool {
    catalog.object(id).is_some_and(|o| o.unanswered > 0)
}

impl WaitClass {
    /// A wait that only a specific act of another one ends. Whoever waits for input from anybody (or for
    /// work, or for time to pass) waits for nobody in particular, unless it asked for an answer.
    pub(crate) fn obliges(self, asked: bool) -> bool {
        match self {
            Self::Child | Self::Room | Self::Lock | Self::Disk | Self::Stopped | Self::Traced => true,
            Self::Channel | Self::EventLoop => asked,
            _ => false,
        }
    }

    /// A wait in which a thread has nothing to do: nobody need be at fault.
    pub fn idle(self) -> bool {
        matches!(self, Self::EventLoop | Self::Terminal | Self::Signal)
    }
}
