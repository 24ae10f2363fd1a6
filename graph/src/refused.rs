//! Calls that fail since another one has what they are for, or since it is not there: what a loop of tries is about, be
//! they children that fail or calls between the sleeps of one thread.

use crate::EventGraph;
use crate::builder::{FILE_LOCK, SPAWN, call_is};
use pg_event::{
    Catalog, Direction, Frame, Ns, ObjectId, ObjectKind, SyscallUse, Sysno, ThreadId, syscall_number,
};

/// Which limit a failed call has come to.
pub(crate) fn limit(error: i64) -> Option<&'static str> {
    match -error {
        e if NO_ROOM.contains(&e) => Some("the file system is full, or the quota used up"),
        24 => Some("the process has as many files open as it may (RLIMIT_NOFILE)"),
        23 => Some("the system has as many files open as it may (fs.file-max)"),
        _ => None,
    }
}

/// The call that tells why a try failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Evidence {
    /// Who called.
    pub by: ThreadId,
    pub call: Sysno,
    /// Negative, as the kernel returns it.
    pub error: i64,
    pub object: ObjectId,
    /// The call was recorded; else where it sleeps tells.
    pub seen: bool,
}

/// EAGAIN.
const AGAIN: i64 = 11;
/// EINPROGRESS: a connection that does not wait.
const UNDER_WAY: i64 = 115;
/// Errors that say that another one has what was wanted, or that it is not there: EPERM, EAGAIN, EACCES, EBUSY,
/// EEXIST, ETXTBSY, EDEADLK, ENOTEMPTY, EADDRINUSE, ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH.
const TAKEN: [i64; 12] = [1, AGAIN, 13, 16, 17, 26, 35, 39, 98, 110, 111, 113];
/// ... and ENOENT, ENOTDIR, ENXIO of what is named.
const ABSENT: [i64; 3] = [2, 20, 6];
/// ... and EAGAIN, ENOMEM of a process that cannot be made (fork(2)).
const NO_MORE: [i64; 2] = [AGAIN, 12];
/// No room on a file system, or within a quota: ENOSPC, EDQUOT. Nobody tries that in order to see it fail.
const NO_ROOM: [i64; 2] = [28, 122];
/// As many files are open as may be: ENFILE, EMFILE.
const NO_FILES: [i64; 2] = [23, 24];
/// The C library asks the daemon that remembers names, which hardly anybody runs, before it asks for a name.
const NAME_CACHE: &str = "/nscd/socket";

impl Evidence {
    /// Is it that no further process could be made?
    pub fn of_spawn(&self) -> bool {
        call_is(self.call, SPAWN)
    }

    /// Was it to connect to somebody?
    pub fn connects(&self) -> bool {
        self.call.is_any(&["connect"])
    }

    /// A connection that was begun, and given up before anything was sent.
    pub fn under_way(&self) -> bool {
        self.error == -UNDER_WAY
    }
}

/// Of the recorded calls of these threads that failed within a span, the one that tells most of why: it is about what the
/// command line names, or failed since another one has what it wanted. Of equals the latest, of the first thread.
pub(crate) fn most_telling(
    g: &EventGraph,
    c: &Catalog,
    threads: impl Iterator<Item = ThreadId>,
    (start, end): (Ns, Ns),
) -> Option<Evidence> {
    let mut best: Option<(u32, Evidence)> = None;
    for by in threads {
        let line = c.process_of(by).map_or("", |p| p.cmdline());
        for u in g.syscalls_of(by, start..end).iter().rev() {
            let mut score = telling(c, line, &u.what);
            // One that came about brings something.
            if score > 0 && u.what.result == -UNDER_WAY && used(g, by, u.what.object, u.time) {
                score = 0;
            }
            if score > best.map_or(0, |b| b.0) {
                let u = u.what;
                best =
                    Some((score, Evidence { by, call: u.nr, error: u.result, object: u.object, seen: true }));
            }
        }
    }
    best.map(|b| b.1)
}

/// What a thread that sleeps again and again tries in between, if that never succeeds.
pub(crate) fn between_sleeps(
    g: &EventGraph,
    c: &Catalog,
    thread: ThreadId,
    within: (Ns, Ns),
) -> Option<Evidence> {
    let Some(e) = most_telling(g, c, std::iter::once(thread), within) else {
        return forks_in_vain(g, c, thread, within);
    };
    let same = |u: &&SyscallUse| u.nr == e.call && u.object == e.object;
    let all = g.syscalls_of(thread, within.0..within.1).iter().map(|u| &u.what);
    all.filter(same).all(|u| u.result < 0).then_some(e)
}

/// Does a shell sleep until it may start another process? bash does so where it starts them, longer each time, and only after
/// EAGAIN (`make_child` in its jobs.c).
fn forks_in_vain(g: &EventGraph, c: &Catalog, thread: ThreadId, within: (Ns, Ns)) -> Option<Evidence> {
    /// Frames of the sleep itself, at most.
    const NEAR: usize = 4;
    let here = |f: &Frame| {
        f.function == "make_child"
            && c.modules.get(f.module.index()).is_some_and(|m| m.short().ends_with("bash"))
    };
    let v = g.vertex_at(thread, within.0.midpoint(within.1)).map(|v| g.vertex(v))?;
    let sleeps = v.syscall.is_any(&["nanosleep", "clock_nanosleep"]);
    let call = syscall_number("clone")?;
    let found = sleeps && c.frames_of(v.user_stack).take(NEAR).any(here);
    found.then_some(Evidence { by: thread, call, error: -AGAIN, object: ObjectId::NONE, seen: false })
}

/// Was anything sent over it later?
fn used(g: &EventGraph, thread: ThreadId, object: ObjectId, from: Ns) -> bool {
    let mut after = g.ipc_of(thread, from..Ns::MAX).iter();
    after.any(|m| m.what.object == object && m.what.direction == Direction::Send)
}

/// How much a failed call tells of why its program failed; 0: nothing.
fn telling(c: &Catalog, line: &str, u: &SyscallUse) -> u32 {
    let Some(error) = u.result.checked_neg().filter(|e| (1..4096).contains(e)) else { return 0 };
    if call_is(u.nr, SPAWN) {
        return if NO_MORE.contains(&error) { 2 } else { 0 };
    }
    if NO_ROOM.contains(&error) || NO_FILES.contains(&error) {
        return 5;
    }
    let Some(o) = c.object(u.object).filter(|o| !o.name.ends_with(NAME_CACHE)) else { return 0 };
    let named = named_in(line, &o.name);
    // That a descriptor has nothing to be read is no failure of a program.
    let lock = o.kind == ObjectKind::FileLock || u.nr.is_any(&["flock"]);
    let taken = TAKEN.contains(&error) && (error != AGAIN || lock || call_is(u.nr, FILE_LOCK));
    let connect = u.nr.is_any(&["connect"]);
    match (named, taken, ABSENT.contains(&error)) {
        (true, true, _) => 4,
        (true, _, true) => 3,
        (false, true, _) if lock || connect => 2,
        (false, _, true) if connect => 2,
        (false, true, _) => 1,
        _ if connect && error == UNDER_WAY => 1,
        _ => 0,
    }
}

/// Does a command line name this file, also by the end of its path?
pub(crate) fn named_in(line: &str, name: &str) -> bool {
    !name.is_empty()
        && line.split_ascii_whitespace().skip(1).any(|w| {
            let tail = |long: &str, short: &str| {
                long.strip_suffix(short).is_some_and(|b| b.is_empty() || b.ends_with(['/', '=']))
            };
            tail(w, name) || tail(name, w)
        })
}
