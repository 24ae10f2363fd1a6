//! The sentence of a root cause: the main fact first, as a support engineer puts it into a ticket.

use super::{Ranked, Writer};
use crate::diagnose::{FindingKind, SliceNode};
use crate::disks::{disk_use, wrote_back};
use crate::profile::Profile;
use crate::words::{clean, percent, short_who, span};
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
        let mut s = match r.kind {
            Some(FindingKind::Running) => self.why_running(r, n, p, &full),
            Some(FindingKind::Yielding) => self.why_yielding(r, p, &full, next),
            Some(FindingKind::Retrying) => self.why_retrying(r, n, &full),
            Some(FindingKind::NoCpu) => self.why_no_cpu(r, n, &full),
            Some(FindingKind::Throttled) => self.why_throttled(r, n, &full),
            Some(FindingKind::Sleeping) if self.tries_again(r, n) => self.why_trying(r, n, &full),
            Some(FindingKind::Sleeping) => self.why_sleeping(r, n, &full),
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
            Some(FindingKind::Starved(threads)) => self.why_starved(n, &full, threads),
            Some(FindingKind::Tokens(jobs, all)) => self.why_tokens(n, &full, (jobs, all)),
            Some(FindingKind::Session) => self.why_session(r, n, &full, next),
            Some(FindingKind::Stopped) => self.why_stopped(r, n, &full),
            Some(FindingKind::Tracer) => self.why_tracer(r, n, &full),
            Some(FindingKind::Ended) => self.why_ended(r, n, &full),
            Some(FindingKind::Froze) => self.why_froze(r, n, &full),
            Some(FindingKind::Frozen) => self.why_frozen(r, n, &full),
            Some(FindingKind::NoMemory) => self.why_no_memory(n, &full),
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
        s += &self.lives_on(r);
        let said = matches!(r.kind, Some(FindingKind::Idle)) && r.node <= 1;
        if !said {
            s += &self.held_up(r.node);
        }
        s.push('.');
        s
    }

    /// Its control group may have no more memory.
    fn why_no_memory(&self, n: &SliceNode, full: &str) -> String {
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
}
