//! The sentences of retry loops, of children or of sleeps with something tried in between.

use super::{Ranked, Writer};
use crate::diagnose::{Keeps, SliceNode};
use crate::looks::Look;
use crate::refused::{self, Evidence};
use crate::retries::Retries;
use crate::words::{clean, moment, short_command, short_label, short_who, span};
use crate::yields::errno;
use pg_event::{Direction, Ns, Object, ObjectId, ObjectKind, ProcessId, ThreadId, show_endpoint};

impl Writer<'_> {
    /// The loop that a step is about.
    fn tries_of(&self, r: &Ranked, n: &SliceNode) -> Option<&Retries> {
        let (start, end) = (n.start, n.start + n.duration);
        let all = self.g.retries_of(r.thread).iter();
        all.filter(|t| t.start < end && start < t.end).max_by_key(|t| t.end.min(end))
    }

    /// Does nothing tell a loop from a job that is done every now and then?
    pub(super) fn may_be_a_job(&self, r: &Ranked) -> bool {
        let tries = self.o.nodes.get(r.node).and_then(|n| self.tries_of(r, n));
        tries.is_some_and(|t| !t.failing && t.look(self.g, self.c).is_none())
    }

    /// Does a thread that slept try something in between? The victim may, also where that was not recorded.
    pub(super) fn tries_again(&self, r: &Ranked, n: &SliceNode) -> bool {
        let asks = || {
            let within = (n.start, n.start + n.duration);
            crate::looks::look(self.g, self.c, r.thread, within, &[]).is_some_and(|l| l.pid != 0)
        };
        r.node == 0 && n.waits > 3 || n.waits > 1 && (self.refused_between(r, n).is_some() || asks())
    }

    fn refused_between(&self, r: &Ranked, n: &SliceNode) -> Option<Evidence> {
        refused::between_sleeps(self.g, self.c, r.thread, (n.start, n.start + n.duration))
    }

    /// How often it slept, and what it tried or looked at in between.
    pub(super) fn why_trying(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let f = n.function.as_ref().filter(|f| !f.starts_with("0x"));
        let f = f.map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
        let asks = self.known_to_ask(r, n).unwrap_or_else(|| {
            if self.o.nodes.get(r.node + 1).is_some() {
                ": it asks again and again whether it may go on; what it asks for (a data flag, a lock) was not recorded".into()
            } else if self.may_keep_house(r, n) {
                ": it only keeps house, as it is not the first thread of its process; or it asks whether it may go on, and nobody let it: for what was not recorded".into()
            } else {
                ": it asks again and again whether it may go on, and all that time nobody let it; what it asks for (a data flag, a lock) was not recorded and must be found".into()
            }
        });
        format!(
            "{full} slept {} times for {} each in {}{f}, {} in all{asks}",
            n.waits,
            span(n.spent / n.waits.max(1) as u64),
            n.syscall.as_deref().unwrap_or("a sleep"),
            span(n.spent)
        )
    }

    /// Is it a thread beside the first one of its process that slept by turns, and is nothing known of what it does in between?
    pub(super) fn may_keep_house(&self, r: &Ranked, n: &SliceNode) -> bool {
        let first = self.c.is_first(r.thread);
        let alone = self.o.nodes.get(r.node + 1).is_none();
        r.node == 0 && n.waits > 3 && !first && alone && self.known_to_ask(r, n).is_none()
    }

    /// What a thread that slept by turns tried or looked at in between, as far as that was seen.
    fn known_to_ask(&self, r: &Ranked, n: &SliceNode) -> Option<String> {
        let within = (n.start, n.start + n.duration);
        let look = || crate::looks::look(self.g, self.c, r.thread, within, &[]);
        let asks = if let Some(e) = self.refused_between(r, n) {
            format!(", and in between {}", self.in_vain(&e))
        } else if let Some(l) =
            look().and_then(|l| self.looked(&l, r.thread, (n.start, n.start + n.duration)))
        {
            let next = self.o.nodes.get(r.node + 1);
            let whose = next.and_then(|h| Some((h, changed(h.keeps)?)));
            let whose = whose.map(|(h, did)| format!("; {} {did}", clean(&short_who(self.c, h.thread), 60)));
            format!(", and {l}{}", whose.unwrap_or_default())
        } else if let Some(whom) = self.asked_whom(r.thread, within, n.waits) {
            format!(
                ", and in between asked {whom} each time, which answered: it waits until the answer is another one"
            )
        } else if let Some(o) =
            crate::looks::reads(self.g, self.c, r.thread, within).and_then(|o| self.c.object(o))
        {
            format!(
                ", and in between opened {}: it waits until that says something else",
                short_label(&o.label())
            )
        } else {
            self.sent_between(r.thread, within, n.waits)?
        };
        Some(asks)
    }

    /// `, which tried flock of /run/lock again and again (EAGAIN)` of a step whose thread slept in between.
    pub(super) fn tried_by(&self, n: &SliceNode) -> Option<String> {
        if let Some(asked) = self.asked_for_ended(n) {
            return Some(asked);
        }
        if n.waits < 2 || !matches!(n.waits_on.as_deref(), Some("sleep" | "event-loop")) {
            return None;
        }
        let (start, end) = (n.start, n.start + n.duration);
        let Some(e) = refused::between_sleeps(self.g, self.c, n.thread, (start, end)) else {
            // The calls were not recorded, but who has what they are for.
            let mut held = self.g.holds(n.thread, start..end + 1).filter(|h| h.relation.has_lock());
            let lock = held.find(|h| h.holder != n.thread).and_then(|h| self.c.object(h.object))?;
            let label = Some(short_label(&lock.label())).filter(|l| !l.is_empty())?;
            return Some(format!(", which tried for the lock of {label} again and again"));
        };
        let (call, on) = self.tried(&e);
        Some(format!(", which tried {call}{on} again and again ({})", errno(e.error)))
    }

    /// That it asked for a process which had ended, and whose exit status nobody took.
    fn asked_for_ended(&self, n: &SliceNode) -> Option<String> {
        let within = (n.start, n.start + n.duration);
        let mut loops = self.g.retries_of(n.thread).iter();
        let of_children = loops.find(|r| r.start < within.1 && within.0 < r.end);
        let look = match of_children {
            Some(r) => r.look(self.g, self.c),
            None => crate::looks::look(self.g, self.c, n.thread, within, &[]),
        };
        let p = look?.unreaped(self.c, n.thread, within)?;
        Some(format!(
            ", which asked each time whether process {} ({}) is there: that ended {}, but its parent has not taken the exit status, so it is still there (a zombie)",
            p.pid,
            clean(&p.name, 40),
            ended(p.end?)
        ))
    }

    /// The call that failed, and on what: `flock`, ` of /run/lock`.
    fn tried(&self, e: &Evidence) -> (String, String) {
        let connects = e.connects();
        let object =
            self.c.object(e.object).map(|o| short_label(&if connects { whom(o) } else { o.label() }));
        let object = object.filter(|o| !o.is_empty());
        let word = if connects { "to" } else { "of" };
        let call = e.call.name().map_or_else(|| "a call".into(), std::borrow::Cow::into_owned);
        (call, object.map_or_else(String::new, |o| format!(" {word} {o}")))
    }

    /// `connect to tcp 127.0.0.1:80 failed each time (ECONNREFUSED: nobody listens there): it waits until ...`
    fn in_vain(&self, e: &Evidence) -> String {
        let (call, on) = self.tried(e);
        let connects = e.connects();
        if e.under_way() {
            return format!("{call}{on} {}: it waits until that succeeds", came_to_nothing(&on));
        }
        if e.of_spawn() {
            let failed = if e.seen {
                format!("{call} failed each time ({})", errno(e.error))
            } else {
                format!("{call} must have failed (bash sleeps there only then)")
            };
            return format!(
                "{failed}: no further process can be made, as its user or control group has as many as it may (RLIMIT_NPROC, pids.max), or memory is short; it waits until one ends"
            );
        }
        let means = match e.error {
            -111 if connects => ": nobody listens there".into(),
            -2 if connects => ": there is no such socket".into(),
            error => refused::limit(error).map_or_else(String::new, |l| format!(": {l}")),
        };
        let lock = self.c.object(e.object).is_some_and(|o| o.kind == ObjectKind::FileLock);
        let who = if lock { "; who has that was not recorded" } else { "" };
        format!("{call}{on} failed each time ({}{means}): it waits until that succeeds{who}", errno(e.error))
    }

    /// What it ran again and again, how that failed, and who has what it asks for.
    pub(super) fn why_retrying(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let Some(tries) = self.tries_of(r, n) else {
            return format!("{full} {}", self.waited(n));
        };
        let program = |id: ProcessId| {
            let p = self.c.process(id)?;
            let line = if p.cmdline().is_empty() { &p.name } else { p.cmdline() };
            Some(format!("`{}`", short_command(line, self.line.get().max(18))))
        };
        let last = tries.tries.last().copied();
        let failed = last.and_then(program).unwrap_or_else(|| "a program".into());
        let pause = tries.between.and_then(program);
        let pause = pause.map_or_else(String::new, |p| format!(", with {p} in between"));
        if !tries.failing {
            return self.why_looking(tries, r, &format!("{full} ran {failed}"), (n.duration, &pause));
        }
        let how = match last.and_then(|p| self.c.process(p)?.exit_status) {
            Some(s) if s & 0x7f != 0 => format!("killed by signal {}", s & 0x7f),
            Some(s) => format!("exit code {}", s >> 8),
            None => "its status was not recorded".into(),
        };
        let evidence = tries.evidence(self.g, self.c);
        let why = evidence.map_or_else(|| self.last_message(last), |e| self.refused(&e));
        let child = self.o.nodes.get(r.node + 1).filter(|c| c.state == "exited");
        let whom = match child.and_then(|_| self.o.nodes.get(r.node + 2)) {
            Some(h) => {
                let does = match h.keeps {
                    Keeps::Has => "keeps it from that",
                    Keeps::May => "may keep it from that",
                    Keeps::Served => "served it in the end",
                    Keeps::Made | Keeps::Removed => changed(h.keeps).unwrap_or_default(),
                };
                format!("{} {does}", clean(&short_who(self.c, h.thread), 60))
            }
            None if child.is_none() => "what the child waited for is told above".into(),
            None if evidence.is_some_and(|e| refused::limit(e.error).is_some()) => {
                "until then others must give some back".into()
            }
            None => "who keeps it from that was not recorded".into(),
        };
        format!(
            "{full} ran {failed} {} times in {}{pause}, and it failed each time ({how}{why}): it waits until that succeeds, and {whom}",
            tries.tries.len(),
            span(n.duration),
        )
    }

    /// What it looked at again and again, or that this was not recorded.
    fn why_looking(&self, t: &Retries, r: &Ranked, ran: &str, (length, between): (Ns, &str)) -> String {
        let (times, length) = (t.tries.len(), span(length));
        let look = t.look(self.g, self.c);
        let looked = look.and_then(|l| self.looked(&l, r.thread, (t.start, t.end)));
        let whose = self.o.nodes.get(r.node + 1).filter(|_| look.is_none_or(|l| l.pid == 0));
        let whose = whose.map(|h| {
            let did = changed(h.keeps).unwrap_or("made or opened it last");
            format!("; {} {did}", clean(&short_who(self.c, h.thread), 60))
        });
        let whose = whose.unwrap_or_default();
        match (looked, t.pauses) {
            (Some(l), true) => format!("{ran} {times} times in {length}{between}, and {l}{whose}"),
            (None, true) => format!(
                "{ran} {times} times in {length}{between}: between these pauses it looks whether it may go on, or does a small job; what it looks at was not recorded"
            ),
            (l, false) => {
                let l = l.map_or_else(String::new, |l| format!("; {l}"));
                format!(
                    "{ran} {times} times in {length}{between}, and it succeeded each time (exit code 0), which did not end the loop: it waits until that fails or says something else, or does this job every now and then{l}"
                )
            }
        }
    }

    /// `newfstatat of /run/lock succeeded each time: ...`; what `by` looked at, from `start` on.
    pub(super) fn looked(&self, l: &Look, by: ThreadId, (start, end): (Ns, Ns)) -> Option<String> {
        if l.pid != 0 {
            let known = l.process(self.c, by, start).and_then(|p| self.c.process(p));
            let zombie = l.unreaped(self.c, by, (start, end));
            if let Some((p, end)) = zombie.and_then(|p| Some((p, p.end?))) {
                let parent = self.c.process(p.parent);
                let parent = parent.map_or_else(
                    || "its parent".into(),
                    |p| format!("{} (pid {})", clean(&p.name, 40), p.pid),
                );
                return Some(format!(
                    "asked each time whether process {} ({}, by kill with signal 0) is there, which it is: it ended {}, but {parent} has not taken its exit status (it is a zombie)",
                    l.pid,
                    clean(&p.name, 40),
                    ended(end)
                ));
            }
            let name = known.map_or_else(String::new, |p| format!("{}, ", clean(&p.name, 40)));
            let who = format!("process {} ({name}by kill with signal 0)", l.pid);
            return Some(match l.result {
                0 => format!(
                    "asked each time whether {who} is there, which it is: it waits until that has ended"
                ),
                e => {
                    format!("asked each time for {who}, in vain ({}): it waits until that is there", errno(e))
                }
            });
        }
        let o = short_label(&self.c.object(l.object)?.label());
        let call = l.call.name().unwrap_or_else(|| "a call".into());
        Some(match l.result {
            0 => format!("{call} of {o} succeeded each time: it waits until that is gone or changes"),
            e => format!("{call} of {o} failed each time ({}): it waits until that is there", errno(e)),
        })
    }

    /// `; mkdir of /run/lock: EEXIST`.
    fn refused(&self, e: &Evidence) -> String {
        let call = e.call.name().unwrap_or_else(|| "a call".into());
        let label = |o: &Object| if e.connects() { whom(o) } else { o.label() };
        let object = self.c.object(e.object).map(|o| short_label(&label(o))).filter(|o| !o.is_empty());
        let word = if e.connects() { "to" } else { "of" };
        let on = object.map_or_else(String::new, |o| format!(" {word} {o}"));
        if e.under_way() {
            return format!("; {call}{on} {}", came_to_nothing(&on));
        }
        let means = refused::limit(e.error).map_or_else(String::new, |l| format!(", {l}"));
        format!("; {call}{on}: {}{means}", errno(e.error))
    }

    /// `; its last message came from postgres (pid 7) over unix:/run/s`: who let a try fail that failed by no call.
    fn last_message(&self, last: Option<ProcessId>) -> String {
        let heard = last.into_iter().flat_map(|p| self.g.threads_of(p)).filter_map(|t| {
            let mut all = self.g.ipc_of(t, 0..Ns::MAX).iter().rev();
            all.find(|m| m.what.direction == Direction::Receive).map(|m| (m.time, t, m.what.object))
        });
        let Some((_, t, object)) = heard.max() else { return String::new() };
        self.other_end(t, object).map_or_else(String::new, |w| format!("; its last message came from {w}"))
    }

    /// That a thread sent something between its sleeps, about once each time, and received nothing: it goes on all the time, and
    /// sleeps in order to be slow.
    fn sent_between(&self, thread: ThreadId, (start, end): (Ns, Ns), waits: usize) -> Option<String> {
        let all = || self.g.ipc_of(thread, start..end).iter().map(|m| m.what);
        let sent = || all().filter(|m| m.direction == Direction::Send);
        let (times, bytes): (u64, u64) =
            sent().fold((0, 0), |s, m| (s.0 + u64::from(m.count.max(1)), s.1 + m.bytes));
        let heard = all().any(|m| m.direction == Direction::Receive);
        let whom = sent().next_back().and_then(|m| self.other_end(thread, m.object));
        let whom = whom.map_or_else(String::new, |w| format!(" to {w}"));
        (!heard && times * 2 >= waits as u64).then(|| {
            format!(
                ", and in between sent {times} messages ({bytes} B){whom}: it goes on all the time, and sleeps of its own accord (a limit of its rate)",
            )
        })
    }

    /// What a thread asked somebody over a channel between its sleeps, about once each time.
    fn asked_whom(&self, thread: ThreadId, (start, end): (Ns, Ns), waits: usize) -> Option<String> {
        let object = crate::looks::asked_over(self.g, self.c, thread, (start, end), waits)?.pop()?;
        self.other_end(thread, object)
    }

    /// `redis-server (pid 7) over unix:/run/s`.
    fn other_end(&self, thread: ThreadId, object: ObjectId) -> Option<String> {
        let own = self.c.object(object).filter(|o| o.kind.is_channel())?;
        let other = |o: ObjectId| self.c.object(o).is_some_and(|o| o.is_other_end_of(own));
        let at = |t: &ThreadId| {
            let last =
                self.g.ipc_of(*t, 0..Ns::MAX).iter().rev().take(4096).find(|m| other(m.what.object))?;
            Some((last.time, *t, last.what.object))
        };
        let others = self.g.threads().filter(|t| *t != thread && self.c.thread(*t).is_some_and(|t| !t.own));
        let (_, t, theirs) = others.filter_map(|t| at(&t)).max()?;
        let p = self.c.process_of(t)?;
        let label = |o: ObjectId| self.c.object(o).map(|o| short_label(&o.label())).filter(|l| !l.is_empty());
        let over = label(object).or_else(|| label(theirs)).map_or_else(String::new, |l| format!(" over {l}"));
        Some(format!("{} (pid {}){over}", clean(&p.name, 40), p.pid))
    }
}

/// What who made or removed a file, or had a child do so, did to it.
fn changed(keeps: Keeps) -> Option<&'static str> {
    match keeps {
        Keeps::Made => Some("made it in the end"),
        Keeps::Removed => Some("removed it in the end"),
        Keeps::Has | Keeps::May | Keeps::Served => None,
    }
}

/// When a process ended; of one that was found dead only that it was.
fn ended(at: Ns) -> String {
    if at == 0 { "before the recording".into() } else { format!("at {}", moment(at)) }
}

/// To whom a connection was to be; its own end has no address that matters.
fn whom(o: &Object) -> String {
    const HASHED: u64 = 1 << 63;
    match o.kind {
        ObjectKind::Tcp if o.peer != 0 && o.peer & HASHED == 0 => format!("tcp {}", show_endpoint(o.peer)),
        ObjectKind::Tcp => o.name.rsplit_once("->").map_or_else(|| o.label(), |(_, to)| format!("tcp {to}")),
        _ => o.label(),
    }
}

/// What became of a connection that was asked for without waiting, `on` an address, and that was never used. On its own machine
/// whoever listens answers at once, and who does not is told so at once.
fn came_to_nothing(on: &str) -> &'static str {
    let loopback = [" to tcp 127.", " to tcp [::1]", " to tcp ::1"].iter().any(|a| on.starts_with(a));
    if loopback { "was refused each time, as nobody listens there" } else { "did not come about" }
}
