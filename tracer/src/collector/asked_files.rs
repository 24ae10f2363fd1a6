//! Files that loops ask for, by the calls of theirs that were recorded, and who makes or removes them.

use super::pipeline::Pipeline;
use crate::awaited::{Awaited, Request, Told};
use crossbeam_channel::{Receiver, Sender, unbounded};
use pg_event::{Event, Hold, Kind, Object, ObjectKind, Relation, SyscallUse, ThreadId};

/// Calls that ask whether a file is there, and what it is.
const LOOKS: &[&str] =
    &["stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat"];
/// Programs are searched for so.
const EXECUTES: &[&str] = &["execve", "execveat"];
/// Where programs, their libraries, and what the kernel shows are: nobody waits for a file there.
const SYSTEM: &[&str] =
    &["/usr/", "/lib", "/bin/", "/sbin/", "/etc/ld.so", "/etc/localtime", "/proc/", "/sys/", "/dev/pts/"];

/// Who watches, once a loop asked for a file.
pub struct AskedFiles {
    watcher: Watcher,
    tell: Sender<Told>,
    told: Receiver<Told>,
    /// Of which not all records before it were taken yet.
    early: Vec<Told>,
}

enum Watcher {
    Asleep,
    Refused,
    At(Awaited),
}

impl Default for AskedFiles {
    fn default() -> Self {
        let (tell, told) = unbounded();
        Self { watcher: Watcher::Asleep, tell, told, early: Vec::new() }
    }
}

impl AskedFiles {
    /// That nobody watches, though a loop asked for a file.
    pub fn note(&self) -> Option<String> {
        matches!(self.watcher, Watcher::Refused).then(|| {
            "a loop asked for a file; who makes or removes that was not watched, which takes CAP_SYS_ADMIN (sudo) and Linux 5.9".into()
        })
    }

    fn watch(&mut self, request: Request) {
        if matches!(self.watcher, Watcher::Asleep) {
            let started = Awaited::start(self.tell.clone());
            if let Err(e) = &started {
                tracing::info!("who makes files that are waited for is not told: {e}");
            }
            self.watcher = started.map_or(Watcher::Refused, Watcher::At);
        }
        if let Watcher::At(awaited) = &self.watcher {
            awaited.watch(request);
        }
    }
}

/// Is it a call by which a loop asks whether a file is there yet, or there still? Of those that were not recorded for the sake
/// of a loop one says nothing.
fn asks(call: &SyscallUse, object: &Object) -> bool {
    let own = object.kind == ObjectKind::File
        && !object.name.is_empty()
        && !SYSTEM.iter().any(|s| object.name.starts_with(s));
    let absent = call.result == -i64::from(libc::ENOENT) && !call.nr.is_any(EXECUTES);
    let taken = call.result == -i64::from(libc::EEXIST);
    own && (absent || taken || call.result >= 0 && call.nr.is_any(LOOKS))
}

impl Pipeline {
    /// A call of a thread was recorded, whose number is `tid`: has it told who makes or removes the file that it asked for.
    pub(super) fn asks_for_file(&mut self, thread: ThreadId, tid: u32, call: &SyscallUse) {
        // Where every call of everybody is recorded, most belong to no loop.
        if self.bursts.is_none() || !self.objects.row(call.object).is_some_and(|o| asks(call, o)) {
            return;
        }
        let Some(object) = self.objects.row(call.object) else { return };
        let parent = self.identity.process_of(thread).map(|p| p.parent);
        let parent = parent.and_then(|p| self.identity.process(p)).map_or(tid, |p| p.pid);
        let path = object.name.clone();
        self.asked.watch(Request { tids: [tid, parent], path, object: call.object, subject: thread });
    }

    /// Put the events for what happened to files until `complete` (`CLOCK_MONOTONIC`): all records up to then were taken, so
    /// that whoever did it is known.
    pub fn tell_files(&mut self, complete: u64) {
        self.asked.early.extend(self.asked.told.try_iter());
        let (due, early) = self.asked.early.drain(..).partition(|t| t.time <= complete);
        self.asked.early = early;
        let due: Vec<Told> = due;
        for t in due {
            let time = self.time(t.time);
            let thread = self.identity.thread(t.tid, 0, time);
            if thread == t.subject || self.identity.row(thread).is_none_or(|t| t.own) {
                continue;
            }
            if self.identity.in_reach(t.subject) {
                self.identity.reach(thread);
            }
            let relation = if t.made { Relation::Makes } else { Relation::Removes };
            let hold = Hold { object: t.object, subject: t.subject, relation };
            self.push(Event { time, thread, cpu: 0, kind: Kind::Hold(hold) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{ObjectId, Sysno};

    #[test]
    fn loops_ask_for_files_of_their_own() {
        let call = |name: &str, result: i32| SyscallUse {
            start: 0,
            nr: pg_event::syscall_number(name).unwrap_or(Sysno(0)),
            result: result.into(),
            count: 1,
            op: 0,
            object: ObjectId(1),
        };
        let file = |name: &str| Object { name: name.into(), ..Object::new(ObjectKind::File, 1, 0) };
        let ready = file("/run/x/ready");
        assert!(asks(&call("newfstatat", -libc::ENOENT), &ready), "is it there yet");
        assert!(asks(&call("access", 0), &ready), "is it still there");
        assert!(asks(&call("mkdir", -libc::EEXIST), &ready), "the same of who wants to make it");
        assert!(asks(&call("openat", -libc::ENOENT), &file("ready")), "in its folder");
        assert!(!asks(&call("openat", 3), &ready), "opened to be used");
        assert!(!asks(&call("openat", -libc::EACCES), &ready));
        assert!(!asks(&call("execve", -libc::ENOENT), &file("/opt/bin/sleep")), "searches for a program");
        assert!(!asks(&call("newfstatat", -libc::ENOENT), &file("/usr/local/bin/sleep")));
        assert!(!asks(&call("newfstatat", -libc::ENOENT), &file("")));
    }
}
