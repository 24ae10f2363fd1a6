//! Loops that look at something until it changes, without anything that fails: `while [ -e lock ]; do sleep 1; done`.
//! The shell looks by calls of its own; a burst has them. What tells such a loop from a job that is done every now
//! and then is what it does between its pauses.

use crate::class::{WaitClass, class};
use crate::diagnose::main_thread;
use crate::retries::Retries;
use crate::{EventGraph, VertexId};
use pg_event::{Catalog, Direction, Ns, Object, ObjectId, ObjectKind, Process, ProcessId, Sysno, ThreadId};
use std::collections::HashMap;

/// Calls by which a program asks whether a file is there, and what it is.
const LOOKS: &[&str] = &[
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "open",
    "openat",
    "openat2",
];
/// Asks whether a process is there (`kill -0`), of which [`pg_event::SyscallUse::op`] is the number.
const ASKS: &[&str] = &["kill"];
/// Folders of programs and libraries: looked at to find a program, not to ask whether to go on.
const SYSTEM: &[&str] = &["/usr/", "/lib", "/bin/", "/sbin/", "/etc/ld.so"];
/// Looked at whenever a time is written (tzset(3)).
const TIME_ZONE: &str = "/etc/localtime";
/// Nobody who waits for something looks more seldom than this, ns.
const SELDOM: Ns = 10_000_000_000;

/// What a loop asks between its pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    /// By which call.
    pub call: Sysno,
    /// What the kernel answered each time: negative errors, or 0.
    pub result: i64,
    /// What it looked at; [`ObjectId::NONE`] when that is a process.
    pub object: ObjectId,
    /// Number of the process that it asked about, as it knows it; 0 when it looked at a file.
    pub pid: u32,
    /// How often that was recorded.
    pub times: u32,
}

/// What a loop of children that do not fail is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It asks whether it may go on; what it looks at was recorded.
    Looks(Look),
    /// It hardly does anything: it may ask, or tell the time.
    Unknown,
    /// A job done every now and then.
    Job,
}

/// What a thread looked at in a span, always with the same answer. `programs`: names of what it started meanwhile,
/// which it may have searched for.
pub(crate) fn look(
    g: &EventGraph,
    c: &Catalog,
    thread: ThreadId,
    (start, end): (Ns, Ns),
    programs: &[&str],
) -> Option<Look> {
    let mut seen: HashMap<(u16, ObjectId, u32), (Look, bool)> = HashMap::new();
    for u in g.syscalls_of(thread, start..end).iter().map(|u| u.what) {
        // Of a group of processes, or all, whoever asks asks for something else.
        let asks = u.nr.is_any(ASKS) && i32::try_from(u.op).is_ok_and(|p| p > 0);
        let pid = if asks { u.op } else { 0 };
        // Whether who started it is still there is asked in order to give up, not to go on.
        if asks && comes_from(c, thread, pid) {
            continue;
        }
        if !asks && (!u.nr.is_any(LOOKS) || u.object.is_none()) {
            continue;
        }
        let result = u.result.min(0);
        let fresh = (Look { call: u.nr, result, object: u.object, pid, times: 0 }, true);
        let (l, same) = seen.entry((u.nr.0, u.object, pid)).or_insert(fresh);
        l.times = l.times.saturating_add(u.count.max(1));
        *same &= l.result == result;
    }
    let searched = |name: &str| programs.iter().any(|p| name.rsplit('/').next() == Some(p));
    seen.into_values()
        .filter(|(_, same)| *same)
        .filter_map(|(l, _)| {
            if l.pid != 0 {
                // Nobody does so for another purpose.
                return Some(((true, true, u32::MAX, std::cmp::Reverse(l.pid)), l));
            }
            let name = c
                .object(l.object)
                .map(|o| o.name.as_str())
                .filter(|n| !n.is_empty() && *n != TIME_ZONE && !searched(n))?;
            let own = !SYSTEM.iter().any(|s| name.starts_with(s));
            // What was opened was used; to ask only is to look.
            let asks = !l.call.is_any(&["open", "openat", "openat2"]);
            (asks || l.result < 0).then_some(((own, asks, l.times, std::cmp::Reverse(l.object.0)), l))
        })
        .max_by_key(|(score, _)| *score)
        .map(|(_, l)| l)
}

/// The file that a thread which sleeps again and again opens in between, as far as that was recorded: of several the one
/// that it opened last, since what it reads there decides.
pub(crate) fn reads(
    g: &EventGraph,
    c: &Catalog,
    thread: ThreadId,
    (start, end): (Ns, Ns),
) -> Option<ObjectId> {
    let mut calls = g.syscalls_of(thread, start..end).iter().rev().map(|u| u.what);
    let opened = calls.find(|u| {
        let name = c.object(u.object).map_or("", |o| o.name.as_str());
        let own = !name.is_empty() && name != TIME_ZONE && !SYSTEM.iter().any(|s| name.starts_with(s));
        u.result >= 0 && u.nr.is_any(&["open", "openat", "openat2"]) && own
    })?;
    Some(opened.object)
}

/// Over which channels a thread asked between its sleeps, about once each time, and was answered: one, or one after the other to
/// the same server.
pub(crate) fn asked_over(
    g: &EventGraph,
    c: &Catalog,
    thread: ThreadId,
    (start, end): (Ns, Ns),
    waits: usize,
) -> Option<Vec<ObjectId>> {
    /// To whom a channel leads: the objects, and how often it asked and was answered over them.
    type Server = (Vec<ObjectId>, u64, u64);
    let mut turns: Vec<Server> = Vec::new();
    let same = |a: ObjectId, b: ObjectId| {
        let of = c.object(a).zip(c.object(b));
        let server = |a: &Object, b: &Object| match a.kind {
            ObjectKind::Tcp | ObjectKind::Udp => a.peer != 0 && a.peer == b.peer,
            _ => !a.name.is_empty() && a.name == b.name,
        };
        a == b || of.is_some_and(|(a, b)| a.kind == b.kind && server(a, b))
    };
    for m in g.ipc_of(thread, start..end) {
        let of = if let Some(i) = turns.iter().position(|t| same(t.0[0], m.what.object)) {
            &mut turns[i]
        } else {
            turns.push((vec![m.what.object], 0, 0));
            turns.last_mut()?
        };
        if !of.0.contains(&m.what.object) {
            of.0.push(m.what.object);
        }
        let n = u64::from(m.what.count.max(1));
        if m.what.direction == Direction::Receive { of.2 += n } else { of.1 += n }
    }
    let least = waits as u64 / 2;
    let asked = turns.into_iter().filter(|t| t.1.min(t.2) >= least.max(2));
    asked.max_by_key(|t| t.1).map(|t| t.0)
}

/// Is a process of this number one that started the thread's process, or who started that?
fn comes_from(c: &Catalog, thread: ThreadId, pid: u32) -> bool {
    let own = c.thread(thread).map_or(ProcessId::NONE, |t| t.process);
    c.ancestors(own).filter_map(|p| c.process(p)).any(|p| p.pid == pid || p.ns_pid == pid)
}

impl Look {
    /// The process that `by` asked about, as it was at `at`. Who is in a pid namespace of its own knows others of its
    /// container by their numbers there.
    pub(crate) fn process(&self, c: &Catalog, by: ThreadId, at: Ns) -> Option<ProcessId> {
        let own = c.process_of(by).filter(|_| self.pid != 0)?;
        let inside = own.ns_pid != own.pid;
        let meant = |p: &Process| {
            if inside {
                p.ns_pid == self.pid && p.ns_pid != p.pid && p.container == own.container
            } else {
                p.pid == self.pid
            }
        };
        let there = |p: &Process| p.start <= at && p.end.is_none_or(|end| end >= at);
        let mut found = (0..c.processes.len()).map(|i| ProcessId(i as u32));
        let fits = |p: &ProcessId| c.process(*p).is_some_and(|p| meant(p) && there(p));
        let one = found.find(&fits)?;
        // Two containers without a name may have one of this number each.
        found.find(&fits).is_none().then_some(one)
    }

    /// The process of that number which ended long before the end of the loop in which `by` asked, and was found there all the
    /// same: its parent has not taken its exit status.
    pub(crate) fn unreaped<'a>(
        &self,
        c: &'a Catalog,
        by: ThreadId,
        (start, end): (Ns, Ns),
    ) -> Option<&'a Process> {
        let own = c.process_of(by).filter(|p| self.pid != 0 && self.result == 0 && p.ns_pid == p.pid)?;
        let middle = start + end.saturating_sub(start) / 2;
        let of = || c.processes.iter().filter(|p| p.pid == self.pid);
        let there = |p: &Process| p.start <= end && p.end.is_none_or(|t| t > middle);
        let last = of().filter(|_| !of().any(there)).max_by_key(|p| p.end)?;
        let parent = c.process(last.parent)?;
        (parent.pid != own.pid && parent.end.is_none_or(|t| t > middle)).then_some(last)
    }
}

/// Did a process do little else than sleep?
pub(crate) fn only_slept(g: &EventGraph, c: &Catalog, p: ProcessId) -> bool {
    let Some(row) = c.process(p) else { return false };
    let life = row.end.unwrap_or(g.duration).saturating_sub(row.start);
    let Some(main) = main_thread(g, c, p) else { return row.name == "sleep" };
    slept(g, c, main, (row.start, row.start + life)) * 5 >= life * 4
}

/// How long a thread slept, as it wanted to.
pub(crate) fn slept(g: &EventGraph, c: &Catalog, thread: ThreadId, (a, b): (Ns, Ns)) -> Ns {
    let of = |v: VertexId| {
        let v = g.vertex(v);
        let sleeps = v.waited() > 0 && class(&v, c) == WaitClass::Sleep;
        if sleeps { v.woken.min(b).saturating_sub(v.start.max(a)) } else { 0 }
    };
    g.vertices_in(thread, a..b).map(of).sum()
}

impl Retries {
    /// What the loop itself looks at.
    pub(crate) fn look(&self, g: &EventGraph, c: &Catalog) -> Option<Look> {
        let of = [self.tries.last(), self.between.as_ref()];
        let rows = of.into_iter().flatten().filter_map(|p| c.process(*p));
        let programs: Vec<&str> = rows.map(|p| p.name.as_str()).collect();
        look(g, c, self.thread, (self.start, self.end), &programs)
    }

    /// What a loop in which nothing fails is for.
    pub(crate) fn purpose(&self, g: &EventGraph, c: &Catalog) -> Purpose {
        let turn = (self.end - self.start) / self.tries.len().max(1) as u64;
        if turn >= SELDOM || self.worked * 20 > self.end - self.start {
            return Purpose::Job;
        }
        self.look(g, c).map_or(Purpose::Unknown, Purpose::Looks)
    }
}
