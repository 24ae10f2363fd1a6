//! The sentence of a root cause: the main fact first, as a support engineer puts it into a ticket.

use super::{Ranked, Writer};
use crate::EdgeKind;
use crate::builder::{RECV, call_is};
use crate::diagnose::{FindingKind, SliceNode, executes};
use crate::disks::{disk_use, wrote_back};
use crate::profile::Profile;
use crate::starved::starved;
use crate::words::{clean, cmdline_at, moment, percent, short_who, span, who};
use crate::yields::{ASKS, YieldLoop, yield_loop};
use pg_event::ThreadId;
use std::fmt::Write;

/// Most words of a sentence for a ticket.
const WORDS: usize = 60;
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
                format!(
                    "{full} slept {} in {}{f}, {how}{unseen}",
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
}
