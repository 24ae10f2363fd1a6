//! Sentences of waits that nobody is left to end: circles, and processes all of whose threads wait.

use super::{Ranked, Writer};
use crate::class::{WaitClass, asked, class, joins, opens_fifo, tells_of_barrier};
use crate::diagnose::{FindingKind, SliceNode, keeps_itself, relation_words};
use crate::handler::handler;
use crate::initialise::waits_for_initialiser;
use crate::words::{moment, short_who, who};
use pg_event::{Ns, ObjectKind, Relation, ThreadId};

/// A sentence for a ticket has room for so many other threads.
const NAMED: usize = 3;

impl Writer<'_> {
    pub(super) fn why_closed(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let closed = self.o.findings.iter().filter(|f| f.kind == FindingKind::Closed);
        // Another candidate of the same circle need not tell it all again.
        if closed.clone().next().is_some_and(|f| f.thread != r.thread) {
            return format!(
                "the same, in another thread: {full} {}, since {}.",
                self.waited(n),
                moment(n.start)
            );
        }
        if opens_fifo(&self.g.vertex(n.vertex), self.c) {
            return self.why_fifos(r, n, full);
        }
        let others = closed.filter(|f| f.thread != r.thread).filter_map(|f| self.o.nodes.get(f.node));
        let all_others = others.clone().count();
        let named = if all_others > NAMED { NAMED - 1 } else { all_others };
        let more = all_others - named;
        let mut others: Vec<String> = others
            .take(named)
            .map(|x| {
                let tid = self.c.thread(x.thread).map_or(0, |t| t.tid);
                format!("thread {tid} (since {}{})", moment(x.start), self.waited_for(x))
            })
            .collect();
        if more > 0 {
            others.push(format!("{more} more"));
        }
        let lock = |n: &SliceNode| class(&self.g.vertex(n.vertex), self.c) == WaitClass::Lock;
        let joins = |n: &SliceNode| joins(&self.g.vertex(n.vertex), self.c);
        let at_barrier = |n: &SliceNode| tells_of_barrier(&self.g.vertex(n.vertex), self.c);
        let all = || {
            let closed = self.o.findings.iter().filter(|f| f.kind == FindingKind::Closed);
            closed.filter_map(|f| self.o.nodes.get(f.node))
        };
        let (sort, means) = if let Some(x) = all().find(|n| self.timed_out_for_good(n)) {
            let means = "nobody else of the process could wake one";
            let over = moment(x.start + x.duration);
            let end = format!("{means}; a time-out of {} ended it at {over}", short_who(self.c, x.thread));
            ("circular wait (until a time-out)", end)
        } else if all().all(|n| waits_for_initialiser(&self.g.vertex(n.vertex), self.c)) {
            (
                "circular wait (deadlock)",
                "each initialises something, and waits for what another one initialises".into(),
            )
        } else if all().any(at_barrier) && all().all(|n| at_barrier(n) || joins(n)) {
            let means = "no other thread of the process is left that could come to the barrier";
            let ended = self.ended_within(n, 0);
            let ended = ended.map(|(t, at)| format!("; {} ended at {}", short_who(self.c, t), moment(at)));
            ("a barrier to which not all come (deadlock)", format!("{means}{}", ended.unwrap_or_default()))
        } else if all().all(lock) && all().any(joins) {
            let means =
                "each waits for another one, and no other thread of the process is left to let one go on";
            ("circular wait (deadlock)", means.to_owned())
        } else if all().all(lock) {
            let means =
                "they wait for each other's locks, and no other thread of the process is left to release one";
            ("circular wait (deadlock)", means.to_owned())
        } else {
            let means = "all threads of the process wait, nobody is left to wake one".to_owned();
            match self.ended_within(n, n.start) {
                Some((t, at)) => (
                    "lost wake-up or circular wait (deadlock)",
                    format!("{means}; {} ended at {}", short_who(self.c, t), moment(at)),
                ),
                None => ("circular wait or lost wake-up (deadlock)", means),
            }
        };
        let so = if others.len() == 1 { "so does" } else { "so do" };
        format!(
            "{sort}: {full} {}, since {}, and {so} {}: {means}.",
            self.waited(n),
            moment(n.start),
            others.join(", ")
        )
    }

    /// Did a time-out end the wait? Locks of runtimes look again every now and then, and go on to wait.
    fn timed_out_for_good(&self, n: &SliceNode) -> bool {
        const SOON: Ns = 10_000_000;
        let v = self.g.vertex(self.last_of(n));
        let again = |id| {
            let x = self.g.vertex(id);
            x.start >= v.woken && x.waited() > 0 && x.object == v.object && x.user_stack == v.user_stack
        };
        v.timed_out && !self.g.vertices_in(v.thread, v.woken..v.woken.saturating_add(SOON)).any(again)
    }

    /// FIFOs opened crosswise: who was to open which is a guess, and said to be one.
    fn why_fifos(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let closed = self.o.findings.iter().filter(|f| f.kind == FindingKind::Closed);
        let others: Vec<String> = closed
            .filter(|f| f.thread != r.thread)
            .filter_map(|f| self.o.nodes.get(f.node))
            .map(|x| format!("{} since {}{}", who(self.c, x.thread), moment(x.start), self.waited_for(x)))
            .collect();
        let own = format!("{full} {} since {}", self.waited(n), moment(n.start));
        let so = if others.len() == 1 { "so does" } else { "so do" };
        format!(
            "circular wait (deadlock), as it seems: {own}, and {so} {}: nobody has opened the other ends of these FIFOs, and each may be who was to open another one.",
            others.join(", ")
        )
    }

    /// The thread of the same process that ended last since `from`, before most of the step's wait had passed.
    fn ended_within(&self, n: &SliceNode, from: Ns) -> Option<(ThreadId, Ns)> {
        let process = self.c.thread(n.thread)?.process;
        let until = n.start + n.duration / 2;
        // Java's compilers come and go as there is work.
        let compiles = |t: ThreadId| {
            self.c
                .thread(t)
                .is_some_and(|t| ["C1 Compiler", "C2 Compiler"].iter().any(|n| t.name.starts_with(n)))
        };
        let of = self.g.threads_of(process).filter(|t| *t != n.thread && !compiles(*t));
        of.filter_map(|t| self.g.exited(t).map(|x| (t, x.0)))
            .filter(|x| from <= x.1 && x.1 <= until)
            .max_by_key(|x| x.1)
    }

    /// Is a circle of one told by the handler of a signal alone, since the lock does not say whose it is?
    pub(super) fn by_handler_only(&self, n: &SliceNode) -> bool {
        let within = (n.start, n.start + n.duration);
        let alone = matches!(&self.o.nodes[..], [.., a, b] if a.thread == b.thread);
        alone
            && keeps_itself(self.g, self.c, n.thread, within).is_none()
            && handler(self.c, self.g.vertex(n.vertex).user_stack).is_some()
    }

    /// A circle of one.
    pub(super) fn why_by_itself(&self, n: &SliceNode, full: &str) -> Option<String> {
        let [.., a, b] = &self.o.nodes[..] else { return None };
        let within = (n.start, n.start + n.duration);
        let by = keeps_itself(self.g, self.c, n.thread, within).filter(|_| a.thread == b.thread);
        let handler = handler(self.c, self.g.vertex(n.vertex).user_stack);
        let Some(by) = by else {
            let h = handler.filter(|_| a.thread == b.thread)?;
            return Some(format!(
                "{full} waited for itself, as it seems (deadlock): it {}{}: that has the lock, most likely, and goes on only when the handler returns",
                self.waited(n),
                h.words()
            ));
        };
        let over = self.g.vertex(self.last_of(n)).timed_out;
        let sort = if over { "until its own time-out" } else { "deadlock" };
        let what = match by {
            Relation::Listens => " for an answer that only it could give, since it listens there itself",
            Relation::Reads => " for room in a pipe that nobody but it has open to read",
            Relation::Writes => ": nobody but it has the writing end open",
            Relation::Peer => ": nobody but it has the other end open",
            Relation::Serves => ": it serves that itself, and has no other thread to do so",
            _ if self.g.vertex(n.vertex).syscall.is_any(&["flock"]) => {
                ", for a lock that it has already, by another opening of the file"
            }
            _ => ", for a lock that it has already",
        };
        let handler = handler.filter(|_| by != Relation::Listens).map_or_else(String::new, |h| h.words());
        Some(format!("{full} waited for itself ({sort}): it {}{what}{handler}", self.waited(n)))
    }

    pub(super) fn why_circular(&self, r: &Ranked) -> String {
        const TOLD: usize = 3;
        // The circle: from the first step of the closing thread to the last one before it closed.
        let close = self.o.nodes.last().map(|n| n.thread);
        let from = self.o.nodes.iter().position(|n| Some(n.thread) == close).unwrap_or(0);
        let to = self.o.nodes.len().saturating_sub(1);
        let ring = &self.o.nodes[from..to];
        let at = ring.iter().position(|n| n.thread == r.thread).unwrap_or(0);
        let mut parts = Vec::new();
        for i in 0..ring.len() {
            let n = &ring[(at + i) % ring.len()];
            let next = &ring[(at + i + 1) % ring.len()];
            let name = if i == 0 {
                format!("{} ", self.full(n.thread, n.start + n.duration))
            } else {
                String::new()
            };
            let whom = if i + 1 == ring.len() {
                who(self.c, next.thread)
            } else {
                self.full(next.thread, next.start + next.duration)
            };
            // How the one after it was come to: it need not do anything with the end that it has.
            let by = self.o.nodes.get(from + (at + i) % ring.len() + 1).and_then(|x| x.why_weak.as_deref());
            let writes = by.is_some_and(|w| w.contains(relation_words(Relation::Writes)));
            let pipe = n.object.and_then(|o| self.c.object(o)).is_some_and(|o| o.kind == ObjectKind::Pipe);
            // Who waits for its child keeps it open without meaning to.
            let parent = class(&self.g.vertex(next.vertex), self.c) == WaitClass::Child;
            let how = if writes && pipe && parent { ", kept open by" } else { " for" };
            let waited = || format!("{}{}{how} {whom}", self.waited_to(n), self.full_pipe(n));
            let did = self.spun(n).map_or_else(waited, |s| format!("{s}, and goes on when {whom} lets it"));
            parts.push(format!("{name}{did}"));
        }
        // Another candidate of the same circle need not tell it all again.
        let first = self.o.findings.first();
        let again = first.is_some_and(|f| f.kind == FindingKind::Circular && f.thread != r.thread);
        if again && parts.len() > 1 {
            return format!("the same circular wait from its other end: {}.", parts.swap_remove(0));
        }
        let gives_up = |n: &SliceNode| n.state == "blocked" && self.g.vertex(self.last_of(n)).timed_out;
        let again = |n: &SliceNode| {
            let within = self.g.vertices_in(n.thread, n.start..n.start + n.duration);
            let key = crate::episode::wait_key(&self.g.vertex(n.vertex), self.c);
            let mut waits = within.map(|v| self.g.vertex(v));
            let mut given_up = || waits.any(|v| v.timed_out && crate::episode::wait_key(&v, self.c) == key);
            given_up() && given_up()
        };
        // Of two at the ends of one connection, who has been asked nothing may rightly wait.
        let end = |n: &SliceNode| self.c.object(n.object?);
        let ends = matches!(ring, [a, b] if end(a).zip(end(b)).is_some_and(|(a, b)| a.is_other_end_of(b)));
        let hears = |n: &SliceNode| class(&self.g.vertex(n.vertex), self.c) == WaitClass::Channel;
        let idles = |n: &SliceNode| !asked(self.g, self.c, n.vertex);
        let sort = if ends && ring.iter().all(hears) && ring.iter().any(idles) {
            "each waits to hear of the other one"
        } else if ring.iter().any(|n| gives_up(n) && again(n)) {
            "livelock: time-outs break it and it closes again"
        } else if ring.iter().any(gives_up) {
            "deadlock, until a time-out broke it"
        } else {
            "deadlock"
        };
        // The way back shows all of a long one.
        let more = parts.len().saturating_sub(TOLD + 1);
        if more > 1
            && let Some(last) = parts.pop()
        {
            parts.truncate(TOLD);
            let told = parts.join(", which ");
            return format!(
                "circular wait ({sort}): {told}, and so on over {more} more, the last of which {last}."
            );
        }
        format!("circular wait ({sort}): {}.", parts.join(", which "))
    }
}
