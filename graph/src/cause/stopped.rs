//! The sentences of a thread that was stopped, and of a tracer that keeps one stopped.

use super::{Ranked, Writer};
use crate::EventGraph;
use crate::diagnose::{SliceNode, calls_terminal};
use crate::facts::SignalFact;
use crate::words::{moment, short_label, span, who};
use pg_event::{Catalog, Ns, Process, ThreadId};

/// The name of a signal that stops.
fn stop_name(signal: u8) -> Option<&'static str> {
    const STOPS: [(u8, &str); 4] = [(19, "SIGSTOP"), (20, "SIGTSTP"), (21, "SIGTTIN"), (22, "SIGTTOU")];
    STOPS.iter().find(|x| x.0 == signal).map(|x| x.1)
}

/// The last signal that stopped the process of a thread which was stopped from `start` on, if it was recorded.
fn stop_signal<'g>(g: &'g EventGraph, c: &Catalog, thread: ThreadId, start: Ns) -> Option<&'g SignalFact> {
    let process = |t| c.process_id_of(t);
    let stops = |s: &&SignalFact| stop_name(s.signal).is_some() && s.time <= start.saturating_add(1_000_000);
    g.signals().iter().rev().filter(stops).find(|s| process(s.to) == process(thread))
}

/// What stopped a thread from `start` on, in words: `by SIGSTOP of bash (pid 12)`.
pub(crate) fn stopped_by(g: &EventGraph, c: &Catalog, thread: ThreadId, start: Ns) -> Option<String> {
    let sent = stop_signal(g, c, thread, start)?;
    Some(format!("by {} of {}", stop_name(sent.signal)?, who(c, sent.from)))
}

impl Writer<'_> {
    /// Stopped by a signal: whose, when, and what became of it.
    pub(super) fn why_stopped(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let v = self.g.vertex(n.vertex);
        if v.state == pg_event::OffState::Frozen {
            return self.why_in_freezer(r, n, full);
        }
        let process = |t| self.c.process_id_of(t);
        let sent = stop_signal(self.g, self.c, r.thread, v.start);
        let by = sent.map_or_else(String::new, |s| {
            let name = stop_name(s.signal).unwrap_or("");
            // Who limits it stops and continues it again and again.
            let same =
                |x: &&SignalFact| x.signal == s.signal && x.from == s.from && process(x.to) == process(s.to);
            let within = |x: &&SignalFact| x.time <= n.start.saturating_add(n.duration);
            let all: Vec<_> = self.g.signals().iter().filter(same).filter(within).collect();
            match (all.first(), all.last(), all.len()) {
                (Some(a), Some(b), times @ 2..) => format!(
                    " ({name} sent {times} times by {}, from {} to {})",
                    who(self.c, s.from),
                    moment(a.time),
                    moment(b.time)
                ),
                _ => format!(" ({name} sent by {} at {})", who(self.c, s.from), moment(s.time)),
            }
        });
        // The kernel sends these two to whoever uses a terminal from the background, in its own name, and to its group.
        let terminal = sent.filter(|s| s.signal >= 21).map(|s| {
            let (name, does) =
                if s.signal == 21 { ("SIGTTIN", "read from") } else { ("SIGTTOU", "wrote to") };
            let whom = if process(s.from) == process(s.to) {
                "it".into()
            } else {
                format!("{} of its process group", who(self.c, s.from))
            };
            let remedy = if self.under_timeout(s.from) {
                "`timeout` puts what it runs there, but not with `--foreground`"
            } else {
                "`fg` in the shell continues it"
            };
            format!(
                " by its terminal ({name} at {}): {whom} {does} it from the background; {remedy}",
                moment(s.time)
            )
        });
        let in_call = || {
            let reads = v.syscall.is_any(&["read", "readv"]);
            let (name, does) = if reads { ("SIGTTIN", "read from") } else { ("SIGTTIN or SIGTTOU", "used") };
            let means = format!("stopped both since they are in the background ({name})");
            match self.c.object(v.object).map(|o| short_label(&o.label())) {
                Some(o) => format!(
                    " while it {does} {o}, as was its parent: the terminal {means}; `fg` in the shell continues them"
                ),
                None => format!(
                    " while it read, as was its parent: if that was from its terminal, this {means}, and `fg` in the shell continues them"
                ),
            }
        };
        let with_parent = r.node.checked_sub(1).is_some_and(|i| self.o.nodes[i].state == "stopped");
        let unseen = with_parent && sent.is_none() && v.begun_before && calls_terminal(&v, self.c);
        let by = if unseen { in_call() } else { by };
        let end = if v.open && terminal.is_none() && !unseen { " and nobody continued it" } else { "" };
        format!("{full} was stopped for {}{}{end}", span(n.spent), terminal.unwrap_or(by))
    }

    /// Is its process what `timeout` runs, or a child of that? It is then in a process group of its own.
    fn under_timeout(&self, thread: ThreadId) -> bool {
        let parent = |p: &Process| self.c.process(p.parent);
        let own = self.c.process_of(thread);
        std::iter::successors(own.and_then(parent), |p| parent(p)).take(2).any(|p| p.name == "timeout")
    }

    /// It keeps another one stopped as its tracer.
    pub(super) fn why_tracer(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let traced = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
        let of = traced.map_or_else(String::new, |t| {
            format!(
                " to {} and kept it stopped (ptrace) for {}",
                self.full(t.thread, t.start + t.duration),
                span(t.spent)
            )
        });
        format!("{full} is attached as a tracer (debugger){of}; it {} itself meanwhile", self.waited(n))
    }
}
