//! Parts of sentences: who, what it waited for, for how long, whom that held up.

use super::Writer;
use crate::class::{WaitClass, class, joins, on_condition};
use crate::diagnose::{DATA_FLAG, STARTED, SliceNode};
use crate::kernel::{doing, is_kernel};
use crate::words::{clean, cmdline_at, moment, process_at, short_command, short_label, span, who_at};
use crate::{EdgeKind, HoldFact, VertexId};
use pg_event::{Direction, Ns, ObjectId, ObjectKind, Relation, ThreadId};

/// How a thread has a lock that another one took.
pub(super) const SHARED: &str = "by an inherited or shared descriptor";

/// One is held up at a lock or disk, and waits for it.
fn at_the(on: String) -> String {
    on.strip_prefix(" for the ").map(|rest| format!(" at the {rest}")).unwrap_or(on)
}

impl Writer<'_> {
    /// ``redis-cli (pid 7, `redis-cli -s …/r.sock get k`)``.
    pub(super) fn full(&self, thread: ThreadId, at: Ns) -> String {
        let name = who_at(self.c, thread, at);
        if is_kernel(self.c, thread) {
            let v = self.victim;
            return format!(
                "the kernel's {name}{}",
                doing(self.g, self.c, thread, v.start..v.end().saturating_add(1))
            );
        }
        let line = short_command(&cmdline_at(self.c, thread, at), self.line.get());
        let process = process_at(self.c, thread, at);
        if self.line.get() == 0 || line.is_empty() || line == process {
            return name;
        }
        match name.strip_suffix(')') {
            Some(open) => format!("{open}, `{line}`)"),
            None => name,
        }
    }

    /// "waited 13.0 s in flock on /run/x".
    pub(super) fn waited(&self, n: &SliceNode) -> String {
        if n.waits_on.as_deref() == Some(DATA_FLAG) {
            let flag = n.object_label(self.c).map_or_else(|| "a data flag".into(), |o| clean(&o, 60));
            return format!("asked {flag} again and again for {}", span(n.spent));
        }
        match n.state {
            "running" => return format!("ran {}", span(n.spent)),
            "runnable" => return format!("wanted the CPU for {}", span(n.spent)),
            "throttled" => return format!("was throttled for {}", span(n.spent)),
            "not-created" => return format!("did not exist for {}", span(n.spent)),
            "exited" => return "had ended".into(),
            // What it did came before the step that it led to: no time is left to look at.
            "unknown" if n.spent == 0 && n.duration == 0 => {
                let did = if n.edge == Some(EdgeKind::Ipc) { "sent that" } else { "did its part" };
                return format!("{did} before the wait began");
            }
            "unknown" if n.spent == 0 => return "did nothing meanwhile that was recorded".into(),
            "unknown" => return format!("was not seen for {}", span(n.spent)),
            _ => {}
        }
        let whole = self.g.vertex(n.vertex).waited();
        let times = match n.waits {
            2.. => format!(" ({} times)", n.waits),
            // Only a part of it was looked at.
            _ if whole.saturating_mul(4) > n.spent.saturating_mul(5) => format!(" ({} in all)", span(whole)),
            _ => String::new(),
        };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let verb = if n.state == "stopped" { "was stopped" } else { "waited" };
        let f = self.called_from(n).filter(|f| !f.starts_with("0x"));
        let f = f.map_or_else(String::new, |f| format!(", called from {}", clean(&f, 60)));
        // "futex on futex 0x10" says it twice.
        let mut on = self.waited_for(n);
        if let Some(call) = &n.syscall {
            on = on.replacen(&format!(" on {call} "), " on ", 1);
        }
        format!("{verb} {}{times}{call}{on}{f}", span(n.spent))
    }

    /// The same where it is said next for whom.
    pub(super) fn waited_to(&self, n: &SliceNode) -> String {
        let call = n.syscall.as_ref().filter(|_| n.waits_on.as_deref() == Some("child"));
        call.map_or_else(|| self.waited(n), |call| format!("waited {} in {call}", span(n.spent)))
    }

    /// " for the file lock /run/x", with a space in front; empty when there is nothing to say.
    pub(super) fn waited_for(&self, n: &SliceNode) -> String {
        let object = n.object_label(self.c).map(|o| short_label(&o));
        match (n.waits_on.as_deref(), object) {
            (Some("sleep" | "poll") | None, None) => String::new(),
            (Some(DATA_FLAG), Some(o)) => format!(" on the data {o}"),
            (Some("ptrace"), _) => " by its tracer".into(),
            (Some("file-lock"), _) if n.object.is_some() && self.lock_path(n).is_some() => {
                format!(" for the file lock {}", self.lock_path(n).unwrap_or_default())
            }
            (Some("file-lock"), Some(o)) => format!(" for the file lock {o}"),
            (Some("child"), label) => match (n.object.and_then(|o| self.c.object(o)), label) {
                (Some(row), Some(o)) if row.kind != ObjectKind::Child => format!(" on {o}"),
                (Some(row), Some(o)) if row.id != 0 => format!(" for {o} to end"),
                _ if self.victim.episode.pieces && n.thread == self.victim.thread => {
                    format!(" for {} children to end, one after the other", n.waits)
                }
                // A loop looks at something by another call than the one by which it waits for its children.
                _ if n.syscall != self.g.vertex(n.vertex).syscall.name().map(Into::into) => {
                    " again and again".into()
                }
                _ => " for a child to end".into(),
            },
            (Some(w @ ("disk" | "device")), Some(o)) => format!(" for the {w} ({o})"),
            (Some("file-system"), Some(o)) => format!(" for the file system ({o})"),
            (Some("page-fault"), _) if self.asks_for_page(n) => {
                " for a page of memory that a program is to bring (userfaultfd)".into()
            }
            (Some("page-fault"), _) => " for a page of memory".into(),
            (Some("write-back"), Some(o)) => format!(" for written data to reach the disk ({o})"),
            (Some("write-back"), None) => " for written data to reach the disk".into(),
            (Some("memory-reclaim"), _) => " for memory to be freed".into(),
            (_, Some(o)) => format!(" on {o}"),
            (Some(w), None) => format!(" ({w})"),
        }
    }

    /// Does the wait go through userfaultfd(2): another thread or program is told of the fault, and brings the page?
    fn asks_for_page(&self, n: &SliceNode) -> bool {
        let stack = self.g.vertex(n.vertex).kernel_stack;
        self.c.frames_of(stack).any(|f| f.function.contains("handle_userfault"))
    }

    /// A lock is known by its whole path.
    pub(super) fn lock_path(&self, n: &SliceNode) -> Option<String> {
        n.object_label(self.c).map(|o| clean(&o, 100))
    }

    /// Has the thread of `n` the lock that `of` waits for by a descriptor of an open file that another one locked?
    pub(super) fn shares_lock(&self, n: &SliceNode, of: &SliceNode) -> bool {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let lock = |o: ObjectId| of.object == Some(o) && o.is_some();
        self.g.holds.iter().any(|h| {
            h.relation == Relation::Shares && lock(h.object) && process(h.holder) == process(n.thread)
        })
    }

    /// `, for a lock that 2 readers had at 1.070 s`, of who waited to write it.
    fn kept_by_readers(&self, n: &SliceNode) -> String {
        let readers = self.g.readers(n.thread, n.start..(n.start + n.duration).saturating_add(1));
        match readers.filter(|_| !on_condition(&self.g.vertex(n.vertex), self.c)) {
            Some((at, many)) if many > 1 => {
                format!(
                    ", for a lock that {many} readers had at {}: a writer waits until none has it",
                    moment(at)
                )
            }
            _ => String::new(),
        }
    }

    /// `it has the lock of /run/l`, of who was found to have the lock of a file that `of` waits or tries for.
    fn has_lock_of(&self, n: &SliceNode, of: &SliceNode) -> Option<String> {
        let process = |t: ThreadId| self.c.process_id_of(t);
        let file = |o: ObjectId| {
            let kinds = [ObjectKind::FileLock, ObjectKind::File];
            self.c.object(o).filter(|o| kinds.contains(&o.kind) && !o.name.is_empty())
        };
        let mut holds = self.g.holds(of.thread, of.start..(of.start + of.duration).saturating_add(1));
        let found = holds.find_map(|h| {
            let has = h.relation.has_lock() && process(h.holder) == process(n.thread);
            file(h.object).filter(|_| has)
        })?;
        let had = if self.g.vertex(self.last_of(of)).open { "has" } else { "had" };
        Some(format!("it {had} the lock of {}", clean(&short_label(&found.label()), 60)))
    }

    /// Was it found that it had not come to the barrier at which `of` waited?
    pub(super) fn is_missing(&self, n: &SliceNode, of: &SliceNode) -> bool {
        let is =
            |h: HoldFact| (h.relation, h.holder, Some(h.object)) == (Relation::Missing, n.thread, of.object);
        self.g.holds(of.thread, 0..Ns::MAX).any(is)
    }

    /// Whom it blocked: the victim, and the step before if that is another one.
    pub(super) fn held_up(&self, node: usize) -> String {
        if node == 0 {
            return String::new();
        }
        // Who has ended waits for nothing.
        // A server that waits for whatever comes is named with what it started.
        let told = |i: usize| i + 1 == node && self.o.nodes[node].why_weak.as_deref() == Some(STARTED);
        let waits = |i: &usize| self.o.nodes[*i].state != "exited" && !self.ends_with_next(*i) && !told(*i);
        let Some(at) = (0..node).rev().find(waits) else { return String::new() };
        // Those that only wait for a child's end tell less than the one that has what others want.
        let at = if at == 0 { 0 } else { self.eldest(at) };
        let v = &self.o.nodes[0];
        let shown = self.over_what(at);
        let before = shown.as_ref().unwrap_or(&self.o.nodes[at]);
        let last = self.full(v.thread, v.start + v.duration);
        let time = self.hung();
        let tried = self.tried_by(before);
        if at == 0 || v.thread == before.thread {
            if let Some(tried) = tried {
                return format!("; this held up {last} for {time}{tried}");
            }
            let mut on = self.waited_for(before);
            let call = before.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
            // "in futex on futex 0x10" says it twice.
            if let Some(call) = &before.syscall {
                on = on.replacen(&format!(" on {call} "), " on ", 1);
            }
            let how = if self.shares_lock(&self.o.nodes[node], before) {
                format!(", which it had {SHARED}")
            } else {
                self.kept_by_readers(before)
            };
            let asks = self.asks_variable(before);
            return format!("; this held up {last}{asks} for {time}{call}{}{how}", at_the(on));
        }
        let then = before.start + before.duration;
        // Of two that are called alike the name tells nothing.
        let called = |n: &SliceNode| process_at(self.c, n.thread, n.start + n.duration);
        let process = |n: &SliceNode| self.c.process_id_of(n.thread);
        let alike = |n: &&SliceNode| process(n) != process(before) && called(n) == called(before);
        let alike = [v, &self.o.nodes[node]].iter().any(alike);
        let via = if alike { self.full(before.thread, then) } else { who_at(self.c, before.thread, then) };
        if before.state == "not-created" {
            return format!("; {via} could only be created after that, and {last} waited {time} in the end");
        }
        let tells = !matches!(before.waits_on.as_deref(), Some("ptrace" | "child"));
        let on = match tried {
            Some(tried) => tried,
            // Nobody let it go on then.
            None if tells => {
                let over = before.waits <= 2 && self.g.vertex(before.vertex).timed_out;
                let over = if over { ", until a time-out of its own" } else { "" };
                format!("{}{over}", at_the(self.waited_for(before)))
            }
            // What it has to do with the step before would be said nowhere.
            None => {
                let of = at.checked_sub(1).map(|i| &self.o.nodes[i]);
                let end =
                    of.and_then(|n| self.kept_open_asleep(before, n).or_else(|| self.has_lock_of(before, n)));
                end.map_or_else(String::new, |e| e.replacen("it ", ", which ", 1))
            }
        };
        // What has no name of its own is said here, or nowhere.
        let nameless = ["memory-reclaim", "write-back", "page-fault"];
        let waits_on = v.waits_on.as_deref();
        let told =
            waits_on.is_some_and(|w| nameless.contains(&w) || w == "child" && self.victim.episode.pieces);
        let waiting = if told { format!(", waiting{},", self.waited_for(v)) } else { String::new() };
        let opens = self.opens_fifo(at).unwrap_or_default();
        format!("; this held up {via}{on}, and in the end {last}{waiting} for {time}{opens}")
    }

    /// `; on the way there cat (pid 7) waited to open the FIFO /run/answer`, of a step before `node` that opened a FIFO: who
    /// waits behind it is told by what it did and not by that.
    fn opens_fifo(&self, node: usize) -> Option<String> {
        let opens = |n: &&SliceNode| {
            let call = n.syscall.as_deref().is_some_and(|s| s.starts_with("open"));
            n.state == "blocked" && call && n.waits_on.as_deref() == Some("pipe")
        };
        let n = self.o.nodes.get(1..node)?.iter().find(opens)?;
        let o = self.c.object(n.object?).filter(|o| !o.name.is_empty())?;
        let who = who_at(self.c, n.thread, n.start + n.duration);
        Some(format!("; on the way there {who} waited to open the FIFO {}", clean(&short_label(&o.name), 60)))
    }

    /// `7.99 s`, for how long the victim hung; where its waits are visibly less than that, also how long they were, as the first
    /// step of the way says.
    fn hung(&self) -> String {
        let v = &self.o.nodes[0];
        let all = self.victim.duration;
        let waited = if v.state == "blocked" { v.spent } else { all };
        if waited.saturating_mul(25) >= all.saturating_mul(24) {
            return span(all);
        }
        format!("{} ({} of it in waits)", span(all), span(waited))
    }

    /// Is it a thread that the next one took with it, as that ended their process? Nobody waits for such a thread.
    fn ends_with_next(&self, at: usize) -> bool {
        let process = |n: &SliceNode| self.c.process_id_of(n.thread);
        let n = &self.o.nodes[at];
        let next = self.o.nodes.get(at + 1).filter(|x| x.edge == Some(EdgeKind::Exit));
        next.is_some_and(|x| process(x) == process(n)) && !joins(&self.g.vertex(n.vertex), self.c)
    }

    /// The step with the object that the next one was found to have an end of, where it is shown with another one: who watches
    /// many connections does not wait for the next one at that of who asked.
    fn over_what(&self, at: usize) -> Option<SliceNode> {
        let n = &self.o.nodes[at];
        let next = self.o.nodes.get(at + 1).filter(|x| x.edge == Some(EdgeKind::Holder))?;
        let process = |t: ThreadId| self.c.process_id_of(t);
        let channel = |o: ObjectId| self.c.object(o).is_some_and(|o| o.kind.is_channel());
        let shown = n.object.filter(|o| channel(*o))?;
        let holds = || self.g.holds(n.thread, n.start..n.start + n.duration + 1);
        let by_next = || holds().filter(|h| process(h.holder) == process(next.thread));
        let other = by_next().map(|h| h.object).find(|o| channel(*o))?;
        let told = by_next().any(|h| h.object == shown);
        (!told).then(|| SliceNode { object: Some(other), ..n.clone() })
    }

    /// Says what a blocked write means.
    pub(super) fn full_pipe(&self, n: &SliceNode) -> String {
        let v = self.g.vertex(n.vertex);
        if n.state == "blocked" && class(&v, self.c) == WaitClass::Room {
            let kind = self.c.object(v.object).map_or(ObjectKind::Unknown, |o| o.kind);
            if v.syscall.is_any(&["connect"]) {
                return self.full_queue(n, kind);
            }
            let what = match kind {
                ObjectKind::Pipe | ObjectKind::Fifo => "the pipe is full: nobody reads it",
                ObjectKind::Tty => "nobody reads the other end, or output is paused there (Ctrl-S)",
                _ => "its buffer is full: nobody reads the other end",
            };
            return format!(" ({what})");
        }
        String::new()
    }

    /// Says what a connection that is not made means. That a host far away has no room is not known.
    fn full_queue(&self, n: &SliceNode, kind: ObjectKind) -> String {
        let mut holds = self.g.holds(n.thread, n.start..n.start + n.duration + 1);
        let here = kind == ObjectKind::UnixStream || holds.any(|h| h.relation == Relation::Listens);
        let full = "the queue of connections that wait to be accepted there is full";
        let what = if here { full } else { "its request for a connection was not answered" };
        format!(" ({what})")
    }

    /// What `waiter` sent over what it waits for since shortly before the wait: "2 messages, 70 B, the last
    /// at 6.744 s".
    pub(super) fn asked_for(&self, waiter: &SliceNode) -> Option<String> {
        const BEFORE: Ns = 1_000_000_000;
        let object = waiter.object?;
        let within = waiter.start.saturating_sub(BEFORE)..waiter.start + waiter.duration;
        let sent = self.g.ipc_of(waiter.thread, within);
        let sent = sent.iter().filter(|m| m.what.object == object && m.what.direction == Direction::Send);
        let (mut count, mut bytes, mut last) = (0u64, 0u64, 0);
        for m in sent {
            count += u64::from(m.what.count.max(1));
            bytes += m.what.bytes;
            last = m.time;
        }
        match count {
            0 => None,
            1 => Some(format!("{bytes} B at {}", moment(last))),
            n => Some(format!("{n} messages, {bytes} B, the last at {}", moment(last))),
        }
    }

    /// "5.00 s x 2" for waits that their own time-out ended, "9.00 s (2 times)" where one was longer than the other, else the
    /// whole length.
    pub(super) fn patience(&self, n: &SliceNode) -> String {
        let v = self.g.vertex(n.vertex);
        match (v.timed_out, n.waits, self.each(n)) {
            (true, 2.., Some(each)) => format!("{} x {}", span(each), n.waits),
            (true, 2.., None) => format!("{} ({} times)", span(n.spent), n.waits),
            _ => span(n.spent),
        }
    }

    /// How long each of several waits lasted, ns, where they were about as long as each other.
    pub(super) fn each(&self, n: &SliceNode) -> Option<Ns> {
        let one = self.g.vertex(n.vertex).waited();
        let all = one.saturating_mul(n.waits as u64);
        (n.waits > 1 && all.abs_diff(n.spent) <= n.spent / 5).then_some(one)
    }

    pub(super) fn last_of(&self, n: &SliceNode) -> VertexId {
        let end = n.start + n.duration;
        self.g
            .vertices_in(n.thread, n.start..end)
            .rfind(|v| self.g.vertex(*v).woken <= end.saturating_add(1) && self.g.vertex(*v).waited() > 0)
            .unwrap_or(n.vertex)
    }
}
