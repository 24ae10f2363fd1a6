//! What is worth a file: waits, system calls, turns of event loops and commands that take too long, and connections
//! that are not served.

use super::rows::Rows;
use super::window::Window;
use pg_event::{Event, Kind, Ns, ObjectId, OffCpu, OffState, POLLS, Relation, Sysno, ThreadId, Unserved};
use pg_graph::UnservedFact;
use std::collections::HashMap;

/// What is too long, ns. Each one is looked for in the focus only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// A wait in which a thread does not just wait for work.
    pub wait: Option<Ns>,
    /// The time between two waits of an event loop for events.
    pub turn: Option<Ns>,
    /// The time that something waits in a connection without being received.
    pub unserved: Option<Ns>,
    /// A call with this name.
    pub calls: Vec<(Sysno, Ns)>,
    /// The life of a process that began while we looked.
    pub runtime: Option<Ns>,
}

/// Something that took too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired {
    /// In words.
    pub why: String,
    /// When it became too long.
    pub time: Ns,
    /// Of which thread.
    pub thread: ThreadId,
}

/// Calls in which a thread waits for work, time or the end of others: as long as it takes.
const IDLE: [&str; 13] = [
    "accept",
    "accept4",
    "nanosleep",
    "clock_nanosleep",
    "pause",
    "rt_sigtimedwait",
    "rt_sigsuspend",
    "wait4",
    "waitid",
    "sched_yield",
    "restart_syscall",
    "msgrcv",
    "mq_timedreceive",
];

/// Watches what comes.
pub struct Triggers {
    limits: Limits,
    /// The command that was started to be recorded, a moment before the recording began.
    command: Option<u32>,
    /// By thread that waits in a loop: since when its turn has lasted. `None`: it waits for events.
    turns: HashMap<ThreadId, Option<Ns>>,
    /// Waits and processes that were told, so that each is told once.
    told: HashMap<(u32, Ns), Ns>,
    /// Threads that wait for a lock that somebody was found to have, and when he was.
    kept_out: HashMap<ThreadId, Ns>,
}

impl Triggers {
    /// With these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, command: None, turns: HashMap::new(), told: HashMap::new(), kept_out: HashMap::new() }
    }

    /// Whose run time counts, too, though the recording began after it.
    #[must_use]
    pub fn of_command(self, command: Option<u32>) -> Self {
        Self { command, ..self }
    }

    /// Is there anything to look for?
    pub fn any(&self) -> bool {
        self.limits != Limits::default()
    }

    /// Look at what a source delivers. What has been too long and ended is found here.
    pub fn events(&mut self, events: &[Event], catalog: &Rows) -> Option<Fired> {
        if !self.any() {
            return None;
        }
        let mut fired = None;
        for e in events {
            let found = match &e.kind {
                Kind::OffCpu(o) if in_focus(catalog, e.thread) => self.wait(e.thread, e.time, o, catalog),
                Kind::Syscall(s) if in_focus(catalog, e.thread) && s.count == 1 => {
                    let took = e.time.saturating_sub(s.start);
                    self.call(s.nr, took).map(|l| {
                        (describe(catalog, e.thread, &call_name(s.nr), took, l), s.start.saturating_add(l))
                    })
                }
                Kind::Unserved(u) if in_focus(catalog, e.thread) => {
                    self.unserved(e.thread, e.time, u, catalog)
                }
                Kind::Hold(h) if self.limits.wait.is_some() && keeps_out(h.relation) => {
                    self.kept_out.insert(h.subject, e.time);
                    None
                }
                Kind::Exit { .. } => {
                    self.turns.remove(&e.thread);
                    self.kept_out.remove(&e.thread);
                    None
                }
                _ => None,
            };
            if let Some((why, time)) = found {
                fired.get_or_insert(Fired { why, time, thread: e.thread });
            }
        }
        fired
    }

    fn call(&self, call: Sysno, took: Ns) -> Option<Ns> {
        self.limits.calls.iter().find(|(nr, limit)| *nr == call && took > *limit).map(|c| c.1)
    }

    fn unserved(&mut self, thread: ThreadId, time: Ns, u: &Unserved, catalog: &Rows) -> Option<(String, Ns)> {
        let limit = self.limits.unserved?;
        let fact = UnservedFact::new(thread, u, time);
        // Threads and objects are counted alike: from the other end they do not meet.
        (fact.matters() && fact.duration() >= limit && self.tell(!u.object.0, u.since, time)).then(|| {
            let about = catalog.about(thread, u.object);
            let who = pg_graph::words::who(&about, ThreadId(0));
            let fact = UnservedFact { object: ObjectId(0), ..fact };
            let why = format!("{who}: {}, longer than {}", fact.words(&about), pg_graph::words::span(limit));
            (why, u.since.saturating_add(limit))
        })
    }

    /// What took too long, and when it did.
    fn wait(&mut self, thread: ThreadId, time: Ns, o: &OffCpu, catalog: &Rows) -> Option<(String, Ns)> {
        let took = time.saturating_sub(o.start);
        let mut found = None;
        if let Some(limit) = self.limits.turn
            && o.blocked()
            && waits_for_events(o.syscall)
        {
            if let Some(Some(begun)) = self.turns.get(&thread).copied() {
                let turn = o.start.saturating_sub(begun);
                if turn > limit && self.tell(thread.0, begun, time) {
                    let why = describe(catalog, thread, "a turn of its event loop", turn, limit);
                    found = Some((why, begun.saturating_add(limit)));
                }
            }
            self.turns.insert(thread, (!o.open).then_some(time));
        }
        if found.is_none()
            && let Some((what, limit)) = self.too_long(thread, o, took, catalog)
            && self.tell(thread.0, o.start, time)
        {
            found = Some((describe(catalog, thread, &what, took, limit), o.start.saturating_add(limit)));
        }
        found
    }

    /// Is a wait too long, and by which measure?
    fn too_long(&self, thread: ThreadId, o: &OffCpu, took: Ns, catalog: &Rows) -> Option<(String, Ns)> {
        if let Some(limit) = self.call(o.syscall, took).filter(|_| o.blocked()) {
            return Some((call_name(o.syscall), limit));
        }
        let limit = self.limits.wait.filter(|limit| took > *limit)?;
        let kept_out = self.kept_out.get(&thread).is_some_and(|&t| t >= o.start);
        let idle = waits_for_events(o.syscall)
            || o.syscall.is_any(&IDLE)
            || (!kept_out && waits_for_work(thread, o, catalog));
        let asleep = matches!(o.state, OffState::Interruptible | OffState::Idle);
        (!(asleep && idle) && o.state != OffState::Dead && o.state != OffState::Idle)
            .then(|| (call_name(o.syscall), limit))
    }

    /// Is this the first time that it is told?
    fn tell(&mut self, who: u32, since: Ns, now: Ns) -> bool {
        const MOST: usize = 4096;
        if self.told.len() > MOST {
            self.told.retain(|_, t| *t + 600_000_000_000 > now);
        }
        self.told.insert((who, since), now).is_none()
    }

    /// Look at what goes on. What is too long and has not ended is found here, as far as is known: events are under
    /// way for a while, longer on a busy machine, and what has ended meanwhile must not be taken for what goes on.
    pub fn tick(&mut self, window: &Window) -> Option<Fired> {
        if !self.any() {
            return None;
        }
        let now = window.latest();
        let catalog = window.catalog();
        let mut found: Vec<(ThreadId, Ns, Ns, String)> = Vec::new();
        for (thread, o) in window.open_waits() {
            let took = now.saturating_sub(o.start);
            if !in_focus(catalog, thread) {
                continue;
            }
            if let Some((what, limit)) = self.too_long(thread, o, took, catalog) {
                found.push((thread, o.start, limit, describe(catalog, thread, &what, took, limit)));
            }
        }
        if let Some(limit) = self.limits.turn {
            for (&thread, begun) in &self.turns {
                let Some(begun) = *begun else { continue };
                let turn = now.saturating_sub(begun);
                let alive = catalog.thread(thread).is_some_and(|t| t.end.is_none());
                if turn > limit && alive {
                    found.push((
                        thread,
                        begun,
                        limit,
                        describe(catalog, thread, "a turn of its event loop", turn, limit),
                    ));
                }
            }
        }
        if let Some(limit) = self.limits.runtime {
            for (id, p) in catalog.processes() {
                let lived = p.end.unwrap_or(now).saturating_sub(p.start);
                let young = p.start > 0 || Some(p.pid) == self.command;
                if p.focus && !p.own && young && lived > limit {
                    let threads = catalog.threads();
                    let main = threads.iter().find(|(_, t)| t.process == id && t.tid == p.pid);
                    let thread = main.map_or(ThreadId::NONE, |(id, _)| *id);
                    let what = format!("`{}`", crate::clean::clean_to(p.cmdline(), 60));
                    found.push((thread, p.start, limit, describe(catalog, thread, &what, lived, limit)));
                }
            }
        }
        for (thread, since, limit, why) in found {
            if self.tell(thread.0, since, now) {
                return Some(Fired { why, time: since.saturating_add(limit), thread });
            }
        }
        None
    }
}

/// Is it one in which an event loop waits for events?
fn waits_for_events(call: Sysno) -> bool {
    call.is_any(&POLLS) || call.is_any(&["io_uring_enter"])
}

/// Is it a futex by which threads wait for work, or for another thread's end, as far as the call tells ([`pg_graph`] asks the
/// names on the stack, which are looked up when a file is written)? The value 2 means "locked, and others wait" to most
/// mutexes. A main thread waits like this for a result, unless it sits there since before.
fn waits_for_work(thread: ThreadId, o: &OffCpu, catalog: &Rows) -> bool {
    const LOCKED: u32 = 2;
    if !o.syscall.is_any(&["futex", "futex_wait", "futex_waitv"]) || o.value == LOCKED {
        return false;
    }
    let Some(own) = catalog.thread(thread) else { return false };
    let main = catalog.process(own.process).is_some_and(|p| p.pid == own.tid);
    let ends = |tid: u32| catalog.threads().iter().any(|(_, t)| t.process == own.process && t.tid == tid);
    !main || o.begun_before || (o.value != 0 && ends(o.value))
}

fn keeps_out(relation: Relation) -> bool {
    relation.has_lock() || relation == Relation::Reader
}

fn in_focus(catalog: &Rows, thread: ThreadId) -> bool {
    catalog.thread(thread).is_some_and(|t| t.focus && !t.own && !t.kernel)
}

fn call_name(call: Sysno) -> String {
    call.name().map_or_else(|| "a wait".into(), std::borrow::Cow::into_owned)
}

fn describe(catalog: &Rows, thread: ThreadId, what: &str, took: Ns, limit: Ns) -> String {
    use pg_graph::words::{span, who};
    let who = who(&catalog.about(thread, ObjectId::NONE), ThreadId(0));
    format!("{who}: {what} took {}, more than {}", span(took), span(limit))
}
