//! Who was waited for and did nothing about it, and who waited for what never came.

use super::{Ranked, Writer};
use crate::class::{
    WaitClass, class, is_schedulers_own, joins, on_condition, only_timers, opens_fifo, private_futex,
    tells_of_barrier,
};
use crate::diagnose::{
    DATA_FLAG, GRAB, SliceNode, WORKERS, left_alone, main_thread, relation_words, waits_for_lock,
};
use crate::words::{clean, moment, short_label, span, who};
use crate::{HoldFact, Vertex};
use pg_event::{Coverage, Direction, Ns, Object, ObjectId, ObjectKind, Relation, ThreadId};

/// Said instead of that nobody was found, where nobody was looked for.
pub(super) const NOT_LOOKED_UP: &str = "who could end that is not known: the recorder did not come to look it up (record again while it hangs, for longer or while the machine has less to do)";

/// Was the step found since it listens on the socket that the one before waits to be connected to?
pub(super) fn listens(n: &SliceNode) -> bool {
    n.why_weak.as_ref().is_some_and(|w| w.contains(relation_words(Relation::Listens)))
}

/// Is it a step to one of the workers of a pool that have nothing to do?
fn rests_in_pool(n: &SliceNode) -> bool {
    n.why_weak.as_deref().is_some_and(|w| w.ends_with(WORKERS))
}

/// The function of PostgreSQL in which a statement sleeps.
const SLEEPING_SESSION: &str = "pg_sleep";

impl Writer<'_> {
    /// How one of those that have the memory mapped in which `n` waits for a word stands to the others, who do not wait there.
    fn has_it(&self, n: &SliceNode) -> String {
        let within = n.start..(n.start + n.duration).saturating_add(1);
        let writes = |h: &HoldFact| h.relation == Relation::Writes && Some(h.object) == n.object;
        let mut all: Vec<_> =
            self.g.holds(n.thread, within.clone()).filter(writes).map(|h| h.holder).collect();
        all.sort_unstable();
        all.dedup();
        let fellows = !self.g.sharers(n.thread, within).is_empty();
        match (all.len(), fellows) {
            (0 | 1, true) => "is the only process not waiting there itself that has".to_owned(),
            (0 | 1, false) => "is the only other process that has".to_owned(),
            (n, true) => format!("is one of {n} processes not waiting there themselves that have"),
            (n, false) => format!("is one of {n} other processes that have"),
        }
    }

    pub(super) fn why_idle(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let Some(w) = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i)) else {
            return format!("{full} {} with nothing to do", self.waited(n));
        };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let from = self.called_from(n).filter(|f| !f.starts_with("0x"));
        let from = from.map_or_else(String::new, |f| format!(", called from {}", clean(&f, 60)));
        if rests_in_pool(n) {
            return format!("{full} {}, for work, as it seems", self.waited(n));
        }
        if self.is_missing(n, w) {
            let barrier =
                w.object_label(self.c).map_or_else(String::new, |o| format!(" ({})", short_label(&o)));
            return format!(
                "{full} did not come to the barrier{barrier} at which {} waited {}: it waited{call} for {}{from}",
                who(self.c, w.thread),
                self.patience(w),
                span(n.spent)
            );
        }
        // Who has the memory mapped need not have what is in it.
        let maps = n.why_weak.as_ref().is_some_and(|w| w.contains(relation_words(Relation::Writes)));
        if maps && let Some(o) = w.object.and_then(|o| self.c.object(o)).filter(|o| o.is_shared_futex()) {
            let barrier = tells_of_barrier(&self.g.vertex(w.vertex), self.c);
            let what = if barrier { "did not come to the barrier" } else { "did not let it go on" };
            return format!(
                "{full} {} mapped what {} waited {} for ({}) and {what}: it waited{call} for {}{from}",
                self.has_it(w),
                who(self.c, w.thread),
                self.patience(w),
                short_label(&o.label()),
                span(n.spent)
            );
        }
        if joins(&self.g.vertex(w.vertex), self.c) {
            return format!(
                "{full} did not end, which {} waited for {}: it waited{call} for {}{from}",
                who(self.c, w.thread),
                self.patience(w),
                span(n.spent)
            );
        }
        if class(&self.g.vertex(w.vertex), self.c) == WaitClass::Lock {
            let lock = w.object_label(self.c).map_or_else(|| "the lock".into(), |o| short_label(&o));
            let how =
                if self.shares_lock(n, w) { format!(" {}", super::parts::SHARED) } else { String::new() };
            return format!(
                "{full} has {lock}{how} and did not release it: it waited{call} for {}{from}, while {} waited {}",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        let on = w.object_label(self.c).map_or_else(String::new, |o| format!(" over {}", short_label(&o)));
        if listens(n) {
            if self.waits_to_accept(n, w) {
                return format!(
                    "{full} listens there and waited for connections{call} all that time, but the one{on} never came about: packets between the two are lost (a firewall rule that drops them, or a queue that is full); {} waited {}",
                    who(self.c, w.thread),
                    self.patience(w)
                );
            }
            return format!(
                "{full} listens there and did not accept the connection{on}: it waited{call} for {}, while {} waited {}",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        if let Some(s) = self.o.nodes[..r.node].iter().rev().find_map(|of| self.kept_open(full, n, of)) {
            return s;
        }
        if class(&self.g.vertex(w.vertex), self.c) == WaitClass::Room {
            return format!(
                "{full} has the other end and did not read what came{on}: it was idle for {}{call}{from}, while {} waited {} for room to write",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        let asked = match self.asked_for(w) {
            Some(what) => match self.took(n, w) {
                Some((read, of)) if read < of => {
                    format!("was sent the request ({what}), read only {read} B of the last {of} B")
                }
                Some(_) => format!("was sent the request ({what}), read it"),
                None => format!("was sent the request ({what})"),
            },
            None => "was waited for".to_owned(),
        };
        if let Some(lock) = self.without_session(n) {
            let waited = span(n.spent);
            let by = self.let_go_by(n).map_or_else(String::new, |by| format!("{by}, and "));
            return format!(
                "{full} {asked} and waited {waited}{call}{from} for a lock of the server; {by}{lock}"
            );
        }
        if self.asked_before(n, w) {
            return format!(
                "{full} was idle{call}{from} for {} while {} waited {}{on}: what that had asked before the recording began it may have handed on to another one; a recording from the beginning tells",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        // A statement that sleeps waits in the event loop of its session.
        if n.stack.iter().any(|f| f.starts_with(SLEEPING_SESSION)) {
            return format!(
                "{full} {asked} and slept {}{call}{from}, while {} waited {}",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        let put_off = self.put_off(w);
        let answered = match self.answered(n, w) {
            _ if class(&self.g.vertex(w.vertex), self.c) == WaitClass::Child => "did not end".to_owned(),
            a if put_off > 1 => {
                let late = a.filter(|a| a.by_timer().is_empty());
                let late = late.map_or_else(String::new, |a| format!(", until {}", moment(a.at)));
                format!(
                    "answered{on} {put_off} times, each time when a time-out of its own had passed, and was asked again{late}"
                )
            }
            Some(a) => format!("answered{on} only at {}{}", moment(a.at), a.by_timer()),
            None => format!("never answered{on}"),
        };
        format!(
            "{full} {asked} and {answered}: it was idle for {}{call}{from}, while {} waited {}",
            span(n.spent),
            who(self.c, w.thread),
            self.patience(w)
        )
    }

    /// What the process of a step received, in bytes, of what the one before sent last over what that waits for, and how much
    /// that was.
    fn took(&self, n: &SliceNode, w: &SliceNode) -> Option<(u64, u64)> {
        const BEFORE: Ns = 1_000_000_000;
        let own = w.object.and_then(|o| self.c.object(o))?;
        let process = self.c.thread(n.thread).map(|t| t.process)?;
        let within = w.start.saturating_sub(BEFORE)..w.start + w.duration;
        let sent = self.g.ipc_of(w.thread, within.clone());
        let sent =
            sent.iter().rfind(|m| Some(m.what.object) == w.object && m.what.direction == Direction::Send)?;
        let from = sent.what.first;
        let theirs = |o: ObjectId| self.c.object(o).is_some_and(|o| o.is_other_end_of(own));
        let received = |t: ThreadId| {
            let all = self.g.ipc_of(t, from..within.end);
            let all = all.iter().filter(|m| m.what.direction == Direction::Receive && theirs(m.what.object));
            all.map(|m| m.what.bytes).sum::<u64>()
        };
        let read: u64 = self.g.threads_of(process).map(received).sum();
        (read > 0).then_some((read, sent.what.bytes))
    }

    /// Did the step before ask before the recording, and does this one wait for whatever comes? What became of the request was
    /// not recorded then.
    pub(super) fn asked_before(&self, n: &SliceNode, before: &SliceNode) -> bool {
        let v = self.g.vertex(before.vertex);
        let begun = crate::class::from_before(self.g, &v);
        begun
            && class(&v, self.c) == WaitClass::Channel
            && class(&self.g.vertex(n.vertex), self.c) == WaitClass::EventLoop
            && !listens(n)
            && self.asked_for(before).is_none()
            && self.answered(n, before).is_none()
    }

    /// Does the step wait for connections to the very socket that `client` wants to connect to? One that is established would
    /// end that wait.
    fn waits_to_accept(&self, n: &SliceNode, client: &SliceNode) -> bool {
        const LOOKED_AT: usize = 4096;
        let sockets = |n: &SliceNode| -> Vec<&Object> {
            let own = n.object.and_then(|o| self.c.object(o));
            let members = own.into_iter().flat_map(|o| crate::class::members(self.c, o));
            members.chain(own).filter(|o| o.kind == ObjectKind::Tcp).collect()
        };
        let (wanted, port) = (sockets(client), |endpoint: u64| endpoint & 0xffff);
        let any_address = |o: &Object| (o.id >> 16) as u32 == 0;
        let there = |o: &&Object, w: &&Object| {
            o.peer == 0 && (w.peer == o.id || any_address(o) && port(w.peer) == port(o.id))
        };
        // Over one that it wrote to it was connected.
        let before = self.g.ipc_of(client.thread, 0..client.start + client.duration).iter();
        let wrote = before.rev().take(LOOKED_AT).any(|m| {
            let o = self.c.object(m.what.object);
            o.is_some_and(|o| wanted.iter().any(|w| w.kind == o.kind && (w.id, w.peer) == (o.id, o.peer)))
        });
        !wrote && sockets(n).iter().any(|o| wanted.iter().any(|w| there(o, w)))
    }

    pub(super) fn why_input(&self, n: &SliceNode, full: &str, next: Option<&SliceNode>) -> String {
        let last = self.last_of(n);
        let v = self.g.vertex(last);
        let came = !(v.open || v.timed_out || v.interrupted) && self.g.waking(last).is_some();
        let typed = if came { format!("came only at {}", moment(v.woken)) } else { "never came".into() };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" (in {s})"));
        let at_window = n.object.and_then(|o| self.c.object(o)).is_none_or(|o| o.kind != ObjectKind::Tty);
        if at_window {
            let display =
                n.object_label(self.c).map_or_else(String::new, |o| format!(" ({})", short_label(&o)));
            let alone = n.why_weak.as_deref() == Some(GRAB);
            let alone =
                if alone { "; meanwhile the server serves nobody else, as it has grabbed it" } else { "" };
            return format!(
                "{full} waited {} for input at its window{call}, which {typed}: its display server{display} had no event for it, as nobody used the window{alone}",
                span(n.spent)
            );
        }
        let terminal = n.object_label(self.c).map_or_else(String::new, |o| format!(" {}", short_label(&o)));
        let other =
            next.map_or_else(String::new, |x| format!("; its other end is with {}", who(self.c, x.thread)));
        format!(
            "{full} waited {} for input at the terminal{terminal}{call}, which {typed}{other}",
            span(n.spent)
        )
    }

    pub(super) fn why_unanswered(&self, n: &SliceNode, full: &str, next: Option<&SliceNode>) -> String {
        if let Some((x, a)) = next.and_then(|x| Some((x, self.answered(x, n)?))) {
            let asked = self.asked_for(n).map_or_else(String::new, |a| format!(" (it had sent {a})"));
            let whom = self.full(x.thread, x.start + x.duration);
            let (waited, late) = (self.waited(n), moment(a.at));
            return format!("{full} {waited}{asked}; the answer came from {whom} at {late}{}", a.by_timer());
        }
        let last = self.g.vertex(self.last_of(n));
        let by = self.let_go_by(n);
        let how = if n.waits_on.as_deref() == Some(DATA_FLAG) {
            "no write of the flag was recorded meanwhile"
        } else if last.open && self.g.lost_within(&(last.start..last.woken)) {
            "its end was not recorded (events were lost)"
        } else if last.open {
            "it had not ended when the recording did"
        } else if last.interrupted {
            "a signal ended it"
        } else if last.timed_out {
            "its own time-out ended it"
        } else if let Some(by) = &by {
            by
        } else {
            "no wake-up was recorded"
        };
        let whom = match next {
            Some(x) if rests_in_pool(x) => {
                let why = x.why_weak.as_deref().unwrap_or_default();
                let from = self.called_from(x).filter(|f| !f.starts_with("0x"));
                let from = from.map_or_else(String::new, |f| format!(" ({})", clean(&f, 60)));
                let lost = if x.start > n.start {
                    let tid = self.c.thread(x.thread).map_or(0, |t| t.tid);
                    format!("the last to work was thread {tid}, until {}", moment(x.start))
                } else {
                    "what it waits for was lost, or never given to them".to_owned()
                };
                format!("{why}{from}: {lost}")
            }
            Some(x) => {
                let call = x.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
                let did = if class(&self.g.vertex(x.vertex), self.c).idle() {
                    format!("was idle{call}")
                } else {
                    format!("itself {}", self.waited(x))
                };
                let whom = self.full(x.thread, x.start + x.duration);
                if listens(x) && self.waits_to_accept(x, n) {
                    format!("the connection never came about, though {whom} listens there and waits for some")
                } else if listens(x) {
                    format!("{whom}, which listens there, did not accept the connection: it {did}")
                } else {
                    format!("no answer came from {whom}, which {did}")
                }
            }
            None if self.not_looked_up(n) => NOT_LOOKED_UP.into(),
            None if only_timers(&last, self.c) => {
                "only its timers could wake it, and none expired (it_value in /proc/PID/fdinfo tells when they do)".into()
            }
            None if opens_fifo(&last, self.c) => {
                format!("nobody has opened the other end of this FIFO{}", other_end(&last))
            }
            None if is_schedulers_own(&last, self.c) => {
                "no goroutine was ready for this thread of Go's scheduler: what they all wait for is not seen in it"
                    .into()
            }
            None => match self.readers_had_it(n) {
                Some(readers) => format!("{readers}; nobody ever woke it"),
                None if left_alone(self.g, self.c, &self.g.vertex(n.vertex), n.start + n.duration) => {
                    let alone = "only threads of its process can, and it is the only one".to_owned();
                    format!("nobody is left to wake it: {}", self.left_by_fork(n).unwrap_or(alone))
                }
                None if self.only_joined(n) => {
                    "nobody is left to wake it: only threads of its process can, and those wait for it to end"
                        .into()
                }
                None if self.in_flight(n, &last) => {
                    "no process was found that has its writing end open: that may be on its way in a message that nobody received (SCM_RIGHTS)".into()
                }
                None if last.syscall.is_any(&["close"]) && n.waits_on.as_deref() == Some("tcp") => {
                    "the other end did not take what had been sent: by SO_LINGER close waits for that".into()
                }
                None => match self
                    .nobody_maps(n)
                    .or_else(|| self.only_waiters_write(n))
                    .or_else(|| self.has_its_other_end(n, &last))
                    .or_else(|| self.came_too_early(n, &last))
                    .or_else(|| self.without_session(n))
                    .or_else(|| self.its_waker_ended(n))
                {
                    Some(known) => known,
                    None => self.none_of_its_own(n).unwrap_or_else(|| {
                        "nobody ever answered or woke it, and no thread was found that could".into()
                    }),
                },
            },
        };
        let asked = self.asked_for(n).map_or_else(String::new, |a| format!(" (it had sent {a})"));
        let times = self.each(n).filter(|_| last.timed_out);
        let times = times.map_or_else(String::new, |each| format!(", {} each", span(each)));
        format!("{full} {}{times}{asked}; {how}, and {whom}", self.waited(n))
    }

    /// Was it not looked up who holds what a step waits for, so that to know nobody says nothing?
    pub(super) fn not_looked_up(&self, n: &SliceNode) -> bool {
        let known =
            self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1)).next().is_some();
        !known && self.c.thread(n.thread).is_some_and(|t| Coverage::says_not_looked_up(self.notes, t.tid))
    }

    /// Who let a step go on that waited for a lock of a server, and came to be only at the end of that.
    fn let_go_by(&self, n: &SliceNode) -> Option<String> {
        let e = self.g.edge(self.g.waking(self.last_of(n)).filter(|_| waits_for_lock(n))?);
        let by = self.g.vertex(e.from).thread;
        let came = self.c.thread(by).map(|t| t.start).filter(|at| *at > n.start)?;
        let at = moment(e.from_time);
        Some(format!("{}, there since {}, let it go on at {at}", who(self.c, by), moment(came)))
    }

    /// A step that waits for any signal, whose last child ended before it began to: it missed that one, as it seems.
    fn came_too_early(&self, n: &SliceNode, last: &Vertex) -> Option<String> {
        let own =
            self.c.process_id_of(n.thread).filter(|_| last.syscall.is_any(&["pause", "rt_sigsuspend"]))?;
        let children = || self.c.processes.iter().filter(|p| p.parent == own);
        let child = children().filter(|p| p.end.is_some()).max_by_key(|p| p.end)?;
        let end = child.end.filter(|e| *e <= n.start)?;
        let lives = children().any(|p| p.end.is_none_or(|e| e > n.start));
        (!lives).then(|| {
            format!(
                "the signal of the end of its last child, {} (pid {}), came before the wait did, at {}",
                clean(&child.name, 40),
                child.pid,
                moment(end)
            )
        })
    }

    /// Of a process that is a copy of another one which has more threads: these were not copied, but what they had locked is
    /// (fork(2)).
    fn left_by_fork(&self, n: &SliceNode) -> Option<String> {
        let own = self.c.process_of(n.thread)?;
        let parent = self.c.process(own.parent)?;
        // Who executed a program later has a command line of its own.
        let copy = own.cmdlines.len() == 1 || own.start == 0;
        let same = !own.exe.is_empty() && (&own.exe, own.cmdline()) == (&parent.exe, parent.cmdline());
        let there = |t: &ThreadId| {
            let ended = self.g.exited(*t).is_some_and(|x| x.0 <= own.start);
            !ended && self.c.thread(*t).is_some_and(|t| t.start <= own.start)
        };
        let threads = self.g.threads_of(own.parent).filter(there).count();
        let main = main_thread(self.g, self.c, own.parent).filter(|_| copy && same && threads > 1)?;
        let from = who(self.c, main);
        Some(format!("fork copied what it waits for from {from}, but not the other threads of that"))
    }

    /// Does a step read from a pipe that has not come to its end though nobody has the other end? All of those who have can be
    /// seen, but not descriptors that were sent and not received (unix(7)).
    fn in_flight(&self, n: &SliceNode, last: &Vertex) -> bool {
        const LOOKED_UP: Ns = 2_000_000_000;
        let pipe = self.c.object(last.object).is_some_and(|o| o.kind == ObjectKind::Pipe);
        let mut holds = self.g.holds(n.thread, n.start..(n.start + n.duration).saturating_add(1));
        pipe && last.syscall.is_any(&["read", "readv"])
            && n.duration >= LOOKED_UP
            && (last.open || last.interrupted)
            && holds.next().is_none()
    }

    /// Does a step wait for a futex that only threads of its process can wake, while all of these wait for its thread to end?
    fn only_joined(&self, n: &SliceNode) -> bool {
        let end = n.start + n.duration;
        let (Some(own), Some(row)) = (self.c.process_id_of(n.thread), self.c.thread(n.thread)) else {
            return false;
        };
        let behind = |t: ThreadId| {
            let v = self.g.vertex_at(t, end.saturating_sub(1)).map(|v| self.g.vertex(v));
            v.is_some_and(|v| {
                joins(&v, self.c) && v.value == row.ns_tid && v.start <= n.start + n.duration / 2
            })
        };
        let left = |t: &ThreadId| *t != n.thread && self.g.exited(*t).is_none_or(|x| x.0 >= end);
        private_futex(&self.g.vertex(n.vertex), self.c) && self.g.threads_of(own).filter(left).all(behind)
    }

    /// `3 readers have the lock; the C library counts them and does not record who`, when a step wanted to write.
    fn readers_had_it(&self, n: &SliceNode) -> Option<String> {
        // What lies beside a condition is no count of readers.
        if on_condition(&self.g.vertex(n.vertex), self.c) {
            return None;
        }
        let (_, readers) = self.g.readers(n.thread, n.start..n.start + n.duration + 1)?;
        let (some, them) = match readers {
            1 => ("1 reader has".into(), "it"),
            _ => (format!("{readers} readers have"), "them"),
        };
        let alone = left_alone(self.g, self.c, &self.g.vertex(n.vertex), n.start + n.duration);
        let whose = match self.c.process_id_of(n.thread).filter(|_| alone) {
            None => "",
            Some(p) if self.g.threads_of(p).nth(1).is_some() => {
                ": it itself, or a thread that has ended, as no other is there"
            }
            Some(_) => ": it itself, as there is no other thread (deadlock)",
        };
        Some(format!("{some} the lock (the C library counts {them} and does not record who){whose}"))
    }
}

/// For what a FIFO is to be opened by another one, by how `v` opens it.
fn other_end(v: &Vertex) -> &'static str {
    match v.open_flags().map(|f| f & 3) {
        Some(0) => ", for writing",
        Some(1) => ", for reading",
        _ => "",
    }
}
