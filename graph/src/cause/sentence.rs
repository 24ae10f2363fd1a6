//! The sentence of a root cause: the main fact first, as a support engineer puts it into a ticket.

use super::server_view::without_session;
use super::{Ranked, Writer};
use crate::builder::{RECV, call_is};
use crate::class::{WaitClass, class, on_condition, owed, private_futex};
use crate::diagnose::{DATA_FLAG, FindingKind, GRAB, SliceNode, executes, relation_words, waits_for_lock};
use crate::disks::{disk_use, wrote_back};
use crate::graph::NO_STATUS;
use crate::profile::Profile;
use crate::starved::{Starved, starved};
use crate::words::{clean, cmdline_at, moment, percent, short_label, short_who, span, who};
use crate::yields::{ASKS, YieldLoop, yield_loop};
use crate::{Edge, EdgeKind};
use pg_event::{Direction, Ns, Object, ObjectId, ObjectKind, ProcessId, Relation, ThreadId};
use std::fmt::Write;

/// Most words of a sentence for a ticket.
const WORDS: usize = 60;
/// A thread that ended by the end of its process did so within this, ns.
const WITH_IT: Ns = 10_000_000;
/// Lengths of command lines tried until the sentence is short enough.
pub(super) const LINES: [usize; 4] = [48, 32, 18, 0];

/// Words of a sentence; a number and its unit are one.
fn words(s: &str) -> usize {
    let unit = |w: &str| {
        let w = w.trim_end_matches([',', ';', '.', ')', ':']);
        matches!(w, "s" | "ms" | "µs" | "ns" | "%" | "B" | "x")
    };
    s.split_whitespace().filter(|w| !unit(w)).count()
}

/// Was the step found since it listens on the socket that the one before waits to be connected to?
fn listens(n: &SliceNode) -> bool {
    n.why_weak.as_ref().is_some_and(|w| w.contains(relation_words(Relation::Listens)))
}

impl Writer<'_> {
    /// Whom the disk served meanwhile, if that was mostly another one.
    fn disk_served(&self, thread: ThreadId, n: &SliceNode) -> String {
        if n.waits_on.as_deref() == Some("write-back") {
            let wrote = wrote_back(self.g, self.c, thread, &[(n.start, n.start + n.duration)]);
            return wrote.map_or_else(String::new, |w| format!("; {}", w.words(self.c)));
        }
        let Some(u) = disk_use(self.g, self.c, thread, (n.start, n.start + n.duration)) else {
            return String::new();
        };
        if u.most.0 == thread || u.most.1 * 2 < u.bytes {
            return String::new();
        }
        let disk = self.c.object(u.disk).map_or_else(String::new, |o| clean(&o.label(), 40));
        let whom = clean(&short_who(self.c, u.most.0), 60);
        format!("; {} of what {disk} did meanwhile was for {whom}", percent(u.most.1, u.bytes))
    }

    /// One sentence, the main fact first, cut until it fits into a ticket.
    pub(super) fn why(&self, r: &Ranked, n: &SliceNode, p: &Profile) -> String {
        let mut s = String::new();
        for line in LINES {
            self.line.set(line);
            s = self.sentence(r, n, p);
            if words(&s) <= WORDS {
                break;
            }
        }
        self.line.set(LINES[0]);
        s
    }

    pub(super) fn sentence(&self, r: &Ranked, n: &SliceNode, p: &Profile) -> String {
        let end = n.start + n.duration;
        let full = self.full(r.thread, end);
        let next = self.o.nodes.get(r.node + 1).filter(|x| x.thread != r.thread);
        let whole = crate::diagnose::spans_total(&r.spans);
        let mut s = match r.kind {
            Some(FindingKind::Running) => self.why_running(r, n, p, &full),
            Some(FindingKind::Yielding) => {
                let f = p.function.as_ref().map_or_else(String::new, |f| {
                    let module = p.module.as_ref().map_or_else(String::new, |m| format!(" ({m})"));
                    format!(" in {}{module}", clean(f, 80))
                });
                let how = yield_loop(self.g, self.c, r.thread, &r.spans, p);
                let means = match (&how, next) {
                    (Some(YieldLoop::Fails { .. }), Some(h)) => {
                        format!("it waits for {}", self.full(h.thread, h.start + h.duration))
                    }
                    (_, Some(h)) if h.edge == Some(EdgeKind::Holder) => format!(
                        "it asks again and again whether it may go on, and {} may let it",
                        clean(&short_who(self.c, h.thread), 60)
                    ),
                    _ => how.as_ref().map_or(ASKS, YieldLoop::means).to_owned(),
                };
                // A tight loop names its function itself.
                let f = if matches!(how, Some(YieldLoop::Spins { .. })) { String::new() } else { f };
                let how = how.map_or_else(|| "asked again and again".into(), |y| y.words_with(self.c));
                format!("{full} {how}{f} for {}: {means}", span(whole))
            }
            Some(FindingKind::Retrying) => self.why_retrying(r, n, &full),
            Some(FindingKind::NoCpu) => format!(
                "{full} could have run but got no CPU for {} of {} ({}), and ran {} of it{}",
                span(n.spent),
                span(whole),
                percent(n.spent, whole),
                span(whole.saturating_sub(n.spent)),
                self.cpus_had(&starved(self.g, self.c, r.thread, &r.spans))
            ),
            Some(FindingKind::Throttled) => self.why_throttled(r, n, &full),
            Some(FindingKind::Sleeping) if self.tries_again(r, n) => self.why_trying(r, n, &full),
            Some(FindingKind::Sleeping) => {
                let f = n
                    .function
                    .as_ref()
                    .filter(|f| !f.starts_with("0x"))
                    .map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
                let v = self.g.vertex(n.vertex);
                let slack = 1_000_000;
                let on = v.open || v.interrupted || v.woken > n.start + n.duration + slack;
                let how = if on { "and had not finished then" } else { "as long as it had asked for" };
                let each = span(n.spent / n.waits.max(1) as u64);
                let how = match self.unlike(n) {
                    Some(lengths) => lengths,
                    None if n.waits > 1 => format!("{each} at a time ({} times)", n.waits),
                    None => how.into(),
                };
                let how = format!("{how}{}", self.called_after(n));
                let unseen = if self.may_have_tried(r, n) {
                    "; whether it tries something in between, with longer and longer pauses, was not recorded: a recording from the beginning, or a longer one, tells"
                } else {
                    ""
                };
                let reader = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
                let open = reader.and_then(|of| self.kept_open_asleep(n, of));
                let open = open.map_or_else(String::new, |o| format!("; {o}"));
                format!(
                    "{full} slept {} in {}{f}, {how}{open}{unseen}",
                    span(n.spent),
                    n.syscall.as_deref().unwrap_or("a sleep")
                )
            }
            Some(FindingKind::Idle) => self.why_idle(r, n, &full),
            Some(FindingKind::Unanswered) => self.why_unanswered(n, &full, next),
            Some(FindingKind::Input) => self.why_input(n, &full, next),
            Some(FindingKind::Circular) => match self.why_by_itself(n, &full) {
                Some(alone) => alone,
                None => return self.why_circular(r),
            },
            Some(FindingKind::Closed) => return self.why_closed(r, n, &full),
            Some(FindingKind::Device) => {
                let what = match n.waits_on.as_deref() {
                    Some("memory-reclaim") => "memory was short (of the machine or of its control group)",
                    Some("page-fault") => "the page had to be read first",
                    Some("write-back") => "too much that was written had not reached it yet",
                    _ => "the device or file system took that long",
                };
                format!("{full} {}: {what}{}", self.waited(n), self.disk_served(r.thread, n))
            }
            Some(FindingKind::Session) => {
                let has = if n.why_weak.is_some() { "may have the lock" } else { "had the lock" };
                let client =
                    next.map_or_else(|| "its client".into(), |x| self.full(x.thread, x.start + x.duration));
                // Who goes on as the other end reads had waited for room.
                let room =
                    next.and_then(|x| x.edge_id).is_some_and(|e| call_is(self.g.edge_syscall(e), RECV));
                let waited = span(n.spent);
                if room {
                    format!(
                        "{full} {has} and waited {waited} until its client {client} took more of the answer"
                    )
                } else if executes(&cmdline_at(self.c, r.thread, end)) {
                    format!(
                        "{full} {has} and waited {waited} in the middle of a statement for its client {client}: to take more of the answer, or to send more"
                    )
                } else {
                    format!(
                        "{full} {has} and was idle for {waited}: it waited for the next statement of its client {client}"
                    )
                }
            }
            Some(FindingKind::Stopped) => self.why_stopped(r, n, &full),
            Some(FindingKind::Tracer) => {
                let traced = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
                let of = traced.map_or_else(String::new, |t| {
                    format!(
                        " to {} and kept it stopped (ptrace) for {}",
                        self.full(t.thread, t.start + t.duration),
                        span(t.spent)
                    )
                });
                format!(
                    "{full} is attached as a tracer (debugger){of}; it {} itself meanwhile",
                    self.waited(n)
                )
            }
            Some(FindingKind::Ended) => self.why_ended(r, n, &full),
            Some(FindingKind::Froze) => {
                let at = moment(self.g.vertex(n.vertex).woken);
                let end = self.g.exited(r.thread).map(|x| format!(", ended at {}", moment(x.0)));
                let end = end.unwrap_or_default();
                format!("{full} froze the file system at {at}{end} and left it frozen{}", self.thawed(r.node))
            }
            Some(FindingKind::Frozen) => {
                let what = n.object_label(self.c).map_or_else(|| "it".into(), |o| clean(&o, 100));
                format!(
                    "{full} waited {} in {} to write to {what}: the file system was frozen (fsfreeze, a snapshot, a suspended device); who froze it was not recorded{}",
                    span(n.spent),
                    n.syscall.as_deref().unwrap_or("the kernel"),
                    self.thawed(r.node + 1)
                )
            }
            Some(FindingKind::NoMemory) => {
                let v = self.g.vertex(n.vertex);
                let limit = match crate::waits::memory_limit(&v, self.c) {
                    Some(crate::waits::MemoryLimit::High) => {
                        "it has more than memory.high, so whoever needs more is slowed down until some is given back or the limit is raised"
                    }
                    _ => {
                        "it has all that it may have (memory.limit_in_bytes) and its OOM killer is disabled (memory.oom_control), so whoever needs a page waits until some is given back or the limit is raised"
                    }
                };
                format!("{full} waited {} for memory of its control group: {limit}", span(n.spent))
            }
            Some(FindingKind::Paused) => self.why_paused(n, &full),
            Some(FindingKind::Here) => format!("{full} {}; the way back ends here", self.waited(n)),
            None if next.is_some() => format!("{full} {}", self.waited_to(n)),
            None => format!("{full} {}", self.waited(n)),
        };
        if r.kind.is_none()
            && let Some(x) = next
        {
            let _ = write!(s, " for {}", self.full(x.thread, x.start + x.duration));
        }
        if r.kind != Some(FindingKind::Paused) {
            s += &self.full_pipe(n);
        }
        s += &self.crashed(r, n);
        let said = matches!(r.kind, Some(FindingKind::Idle)) && r.node <= 1;
        if !said {
            s += &self.held_up(r.node);
        }
        s.push('.');
        s
    }

    /// The step before `node` that waits to write to a frozen file system.
    pub(super) fn waits_to_write(&self, node: usize) -> Option<&SliceNode> {
        let before = self.o.nodes.get(..node)?;
        before.iter().rev().find(|n| crate::waits::for_thaw(&self.g.vertex(n.vertex), self.c))
    }

    /// Who ended the wait of the step before `node` for a frozen file system, and when.
    fn thawed(&self, node: usize) -> String {
        let waiter = self.waits_to_write(node);
        let edge = waiter.and_then(|n| self.g.waking(self.last_of(n))).map(|e| self.g.edge(e));
        edge.map_or_else(String::new, |e| {
            format!("; {} thawed it at {}", who(self.c, self.g.vertex(e.from).thread), moment(e.from_time))
        })
    }

    /// Which threads had the CPUs instead.
    pub(super) fn cpus_had(&self, s: &Starved) -> String {
        let most: Vec<String> = s
            .others
            .iter()
            .filter(|o| o.1 >= 0.1)
            .take(3)
            .map(|(t, share)| format!("{} ({:.0} %)", who(self.c, *t), share * 100.0))
            .collect();
        if most.is_empty() { String::new() } else { format!("; the CPUs were taken by {}", most.join(", ")) }
    }

    pub(super) fn why_throttled(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let s = starved(self.g, self.c, r.thread, &r.spans);
        let whole = crate::diagnose::spans_total(&r.spans);
        let group = n.object_label(self.c).map_or_else(String::new, |l| format!(" of {}", clean(&l, 110)));
        let idle = if s.in_vain() { " though CPUs were idle" } else { "" };
        let turns = if s.period > 0 {
            format!(" lets it run about {} every {}", span(s.slice), span(s.period))
        } else {
            " was used up".to_owned()
        };
        format!(
            "{full} was throttled for {} of {} ({}){idle}: the CPU quota (cpu.max{group}){turns}",
            span(n.spent),
            span(whole),
            percent(n.spent, whole),
        )
    }

    pub(super) fn why_running(&self, r: &Ranked, n: &SliceNode, p: &Profile, full: &str) -> String {
        let spans = &r.spans;
        let whole = crate::diagnose::spans_total(spans);
        let mut s = format!(
            "{full} was on the CPU for {} of {} ({})",
            span(n.spent),
            span(whole),
            percent(n.spent, whole)
        );
        let off = crate::diagnose::activity(self.g, self.c, n.thread, spans).runnable;
        if off * 3 > n.spent {
            let _ = write!(s, " and queued for it for {}", span(off));
        }
        if let Some(f) = &p.function {
            let module = p.module.as_ref().map_or_else(String::new, |m| format!(" ({m})"));
            let _ = write!(s, ", {:.0} % of it in {}{module}", p.share * 100.0, clean(f, 80));
        }
        if let Some(from) = self.served(n) {
            s += &from;
        }
        // On a busy machine many had a little of it.
        if off > n.spent {
            let had = starved(self.g, self.c, r.thread, spans);
            if had.others.first().is_some_and(|o| o.1 >= 0.3) {
                s += &self.cpus_had(&had);
            }
        }
        s
    }

    /// What set the running thread to work: the message that it took last before it got busy, and whose that was.
    pub(super) fn served(&self, n: &SliceNode) -> Option<String> {
        let at = self.g.vertex_at(n.thread, n.start + n.duration / 2)?;
        let v = self.g.vertex(at);
        let own = self.g.ipc_of(n.thread, v.run..v.end.saturating_add(1));
        let took = own.iter().find(|m| m.what.direction == Direction::Receive);
        // What came while it was busy and was not taken waits in the queue.
        let row = |o: ObjectId| self.c.object(o);
        let same = |a: ObjectId, b: ObjectId| {
            a == b || row(a).zip(row(b)).is_some_and(|(a, b)| a.is_other_end_of(b))
        };
        let taken = |e: &Edge| {
            let after = self.g.ipc_of(n.thread, e.from_time..n.start + n.duration);
            after.iter().any(|m| m.what.direction == Direction::Receive && same(m.what.object, e.object))
        };
        let waking = self.g.waking(at);
        let asks = self.g.incoming(at).map(|id| (id, self.g.edge(id))).filter(|(id, e)| {
            let from = self.g.vertex(e.from).thread;
            let asked = e.kind == EdgeKind::Ipc && (waking == Some(*id) || taken(e));
            from != n.thread && (asked || took.is_some())
        });
        let e = asks.map(|x| x.1).min_by_key(|e| e.from_time);
        let Some(e) = e else {
            // Nobody is known to have sent it: a terminal, a device, another machine.
            let m = took.filter(|m| m.what.first <= n.start + n.duration / 2)?;
            let from = self.c.object(m.what.object).map(|o| short_label(&o.label()))?;
            return Some(format!(
                ", since it took {} B from {from} at {}",
                m.what.bytes,
                moment(m.what.first)
            ));
        };
        let from = self.g.vertex(e.from).thread;
        let when = moment(e.from_time);
        match self.o.nodes.iter().position(|x| x.thread == from) {
            // Whoever asked for it waits for it: said with the rest.
            Some(_) => Some(format!(", on its request at {when}")).filter(|_| e.kind == EdgeKind::Ipc),
            // What it had asked for itself is no request.
            None if owed(self.g, self.c, n.thread, e.from_time).iter().any(|o| same(*o, e.object)) => {
                Some(format!(", since {} answered it at {when}", self.full(from, e.from_time)))
            }
            None => Some(format!(", for {} since {when}", self.full(from, e.from_time))),
        }
    }

    pub(super) fn why_idle(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let Some(w) = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i)) else {
            return format!("{full} {} with nothing to do", self.waited(n));
        };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let from = self.called_from(n).filter(|f| !f.starts_with("0x"));
        let from = from.map_or_else(String::new, |f| format!(", called from {}", clean(&f, 60)));
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
            Some(what) => format!("was sent the request ({what})"),
            None => "was waited for".to_owned(),
        };
        if let Some(lock) = without_session(n) {
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
        let answered = match self.answered(n, w) {
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

    /// Did the step before ask before the recording, and does this one wait for whatever comes? What became of the request was
    /// not recorded then.
    pub(super) fn asked_before(&self, n: &SliceNode, before: &SliceNode) -> bool {
        let v = self.g.vertex(before.vertex);
        let begun = v.begun_before || crate::class::from_the_beginning(self.g, &v);
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
            None if crate::class::opens_fifo(&last, self.c) => {
                "nobody has opened the other end of this FIFO".into()
            }
            None => match self.readers_had_it(n) {
                Some(readers) => format!("{readers}; nobody ever woke it"),
                None if self.left_alone(n) => {
                    "nobody is left to wake it: only threads of its process can, and it is the only one"
                        .into()
                }
                None => match without_session(n) {
                    Some(lock) => lock,
                    None => "nobody ever answered or woke it, and no thread was found that could".into(),
                },
            },
        };
        let asked = self.asked_for(n).map_or_else(String::new, |a| format!(" (it had sent {a})"));
        let times = if last.timed_out && n.waits > 1 {
            format!(", {} each", span(self.g.vertex(n.vertex).waited()))
        } else {
            String::new()
        };
        format!("{full} {}{times}{asked}; {how}, and {whom}", self.waited(n))
    }

    /// Who let a step go on that waited for a lock of a server, and came to be only at the end of that.
    fn let_go_by(&self, n: &SliceNode) -> Option<String> {
        let e = self.g.edge(self.g.waking(self.last_of(n)).filter(|_| waits_for_lock(n))?);
        let by = self.g.vertex(e.from).thread;
        let came = self.c.thread(by).map(|t| t.start).filter(|at| *at > n.start)?;
        let at = moment(e.from_time);
        Some(format!("{}, there since {}, let it go on at {at}", who(self.c, by), moment(came)))
    }

    /// Does a step wait for a futex that only threads of its process can wake, when there are no others left?
    fn left_alone(&self, n: &SliceNode) -> bool {
        let end = n.start + n.duration;
        let Some(own) = self.c.thread(n.thread).map(|t| t.process) else { return false };
        let left = |t: &ThreadId| *t != n.thread && self.g.exited(*t).is_none_or(|x| x.0 >= end);
        private_futex(&self.g.vertex(n.vertex), self.c) && !self.g.threads_of(own).any(|t| left(&t))
    }

    /// `3 readers have the lock; the C library counts them and does not record who`, when a step wanted to write.
    pub(super) fn readers_had_it(&self, n: &SliceNode) -> Option<String> {
        let (_, readers) = self.g.readers(n.thread, n.start..n.start + n.duration + 1)?;
        let (some, them) = if readers == 1 { ("1 reader has", "it") } else { ("", "them") };
        let some = if some.is_empty() { format!("{readers} readers have") } else { some.into() };
        Some(format!("{some} the lock (the C library counts {them} and does not record who)"))
    }

    /// A holder that is gone: when, how, and what that means for what it held.
    pub(super) fn why_ended(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let process = self.c.thread(r.thread).map_or(ProcessId::NONE, |t| t.process);
        // What ended the process as a whole, before how each of its threads went.
        let row = self.c.process(process);
        // A thread that ended earlier went by itself.
        let with_it = row.is_some_and(|p| p.end.is_none_or(|e| e <= n.start.saturating_add(WITH_IT)));
        let whole = row.and_then(|p| p.exit_status).filter(|s| s & 0x7f != 0 && with_it);
        let status = whole.or_else(|| self.g.exited(r.thread).map(|x| x.1));
        let how = match status {
            Some(NO_STATUS) => "ended before the recording began".to_owned(),
            Some(s) if s & 0x7f != 0 => {
                format!("{} at {}", self.killed_by(process, s & 0x7f, n.start), moment(n.start))
            }
            Some(s) => format!("ended at {} (exit code {})", moment(n.start), s >> 8),
            None => format!("had ended at {}", moment(n.start)),
        };
        let before = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
        let lock = before.filter(|b| {
            let class = class(&self.g.vertex(b.vertex), self.c);
            class == WaitClass::Lock && n.edge == Some(EdgeKind::Holder)
        });
        match lock {
            Some(b) => {
                let lock = b.object_label(self.c).map_or_else(|| "its lock".into(), |o| short_label(&o));
                format!("{full} {how} with {lock} and never gave it back: nobody is left to release it")
            }
            None => match before.filter(|_| n.edge == Some(EdgeKind::Holder)) {
                Some(b) if private_futex(&self.g.vertex(b.vertex), self.c) => {
                    let on = b.object_label(self.c).map_or_else(|| "it".into(), |o| short_label(&o));
                    let lost = if on_condition(&self.g.vertex(b.vertex), self.c) {
                        let f = b.function.as_ref().filter(|f| !f.starts_with("0x"));
                        let f = f.map_or_else(String::new, |f| format!(" in {}", clean(f, 60)));
                        format!(" (a condition{f}): a notification that came before the wait is lost")
                    } else {
                        String::new()
                    };
                    format!(
                        "{full} {how}, and no other thread of the process is left that could wake {on}{lost}"
                    )
                }
                Some(b) => {
                    let on = b.object_label(self.c).map_or_else(|| "it".into(), |o| short_label(&o));
                    format!("{full} {how}, and nobody else is known to have the other end of {on}")
                }
                None => format!("{full} {how}"),
            },
        }
    }
}
