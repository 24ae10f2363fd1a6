//! From a finished walk to ranked root causes in words, and to the report.

use crate::class::{WaitClass, class};
use crate::diagnose::{Finding, FindingKind, Options, Outcome, SliceNode};
use crate::episode::LONG_SINGLE;
use crate::profile::{Profile, profile};
use crate::report::{FORMAT, Party, Report, RootCause, VictimInfo};
use crate::words::{clean, cmdline_at, moment, named, percent, process_at, span, telling, who, who_at};
use crate::{BlockType, EventGraph, VertexId, Victim};
use pg_event::{Catalog, Direction, Ns, ObjectKind, ThreadId};
use std::fmt::Write;

/// The report of a walk.
pub(crate) fn report(g: &EventGraph, c: &Catalog, victim: &Victim, options: &Options, o: &Outcome) -> Report {
    let w = Writer { g, c, victim, o };
    let mut session = options.session.clone();
    session.duration_ns = session.duration_ns.max(g.duration());
    if session.events == 0 {
        session.events = g.event_count();
    }
    session.vertices = g.vertex_count() as u64;
    session.edges = g.edge_count() as u64;
    let mut coverage = options.coverage.clone();
    coverage.notes.extend(o.notes.iter().cloned());
    if g.lost_within(&(victim.start..victim.end())) {
        coverage.notes.push("events were lost while the victim hung: edges may be missing".into());
    }
    if o.asked.iter().any(|q| q.by == "policy") {
        coverage
            .notes
            .push("questions without an answer were answered by the policy: the recommendation".into());
    }
    Report {
        format: FORMAT,
        session,
        victim: w.victim_info(),
        questions: o.asked.clone(),
        slice: o.nodes.iter().map(|n| n.step(c)).collect(),
        root_causes: w.causes(options.top),
        coverage,
    }
}

struct Writer<'a> {
    g: &'a EventGraph,
    c: &'a Catalog,
    victim: &'a Victim,
    o: &'a Outcome,
}

/// A cause before it is put into words.
struct Ranked {
    thread: ThreadId,
    node: usize,
    kind: Option<FindingKind>,
    spans: Vec<(Ns, Ns)>,
}

impl Writer<'_> {
    fn victim_info(&self) -> VictimInfo {
        let v = self.victim;
        let t = self.c.thread(v.thread);
        let p = self.c.process_of(v.thread);
        VictimInfo {
            pid: p.map_or(0, |p| p.pid),
            tid: t.map_or(0, |t| t.tid),
            process: p.map_or_else(String::new, |p| p.name.clone()),
            cmdline: cmdline_at(self.c, v.thread, v.end()),
            thread: t.map_or_else(String::new, |t| t.name.clone()),
            start_ns: v.start,
            duration_ns: v.duration,
            block_type: v.block_type,
        }
    }

    /// Findings in order; whoever waited for a sleeper (or for one that idles) shares its blame, since it
    /// kept the others waiting meanwhile.
    fn ranked(&self) -> Vec<Ranked> {
        let mut out: Vec<Ranked> = Vec::new();
        let push = |out: &mut Vec<Ranked>, r: Ranked| {
            if !out.iter().any(|x| x.thread == r.thread) {
                out.push(r);
            }
        };
        for Finding { thread, node, kind, spans } in &self.o.findings {
            push(&mut out, Ranked { thread: *thread, node: *node, kind: Some(*kind), spans: spans.clone() });
        }
        for f in &self.o.findings {
            let shares = matches!(
                f.kind,
                FindingKind::Sleeping | FindingKind::Idle | FindingKind::Here | FindingKind::Ended
            );
            if shares && f.node >= 2 {
                let n = &self.o.nodes[f.node - 1];
                let spans = vec![(n.start, n.start + n.duration)];
                push(&mut out, Ranked { thread: n.thread, node: f.node - 1, kind: None, spans });
            }
        }
        if out.is_empty()
            && let Some(n) = self.o.nodes.last()
        {
            let spans = vec![(n.start, n.start + n.duration)];
            out.push(Ranked {
                thread: n.thread,
                node: self.o.nodes.len() - 1,
                kind: Some(FindingKind::Here),
                spans,
            });
        }
        out
    }

    fn causes(&self, top: usize) -> Vec<RootCause> {
        let mut out: Vec<RootCause> = Vec::new();
        for r in self.ranked().into_iter().take(top.max(1)) {
            let mut cause = self.cause(&r);
            cause.rank = out.len() + 1;
            if let Some(before) = out.last() {
                cause.confidence = cause.confidence.min(before.confidence * 0.7);
            }
            cause.confidence = (cause.confidence * 100.0).round() / 100.0;
            out.push(cause);
        }
        out
    }

    fn cause(&self, r: &Ranked) -> RootCause {
        let n = &self.o.nodes[r.node];
        let busy = matches!(r.kind, Some(FindingKind::Running | FindingKind::NoCpu | FindingKind::Yielding));
        let p = if busy { profile(self.g, self.c, r.thread, &r.spans) } else { Profile::default() };
        let (function, module, stack) = if busy {
            (p.function.clone(), p.module.clone(), p.stack.clone())
        } else {
            let v = self.g.vertex(n.vertex);
            let frames = named(self.c, v.user_stack);
            let f = telling(&frames);
            (f.map(|f| f.function.clone()), f.map(|f| f.module.clone()), n.stack.clone())
        };
        let process = self.c.process_of(r.thread);
        let t = self.c.thread(r.thread);
        let step = n.step(self.c);
        let name = Some(step.process).filter(|n| !n.trim().is_empty());
        RootCause {
            rank: 0,
            pid: process.map(|p| p.pid).or(t.map(|t| t.tid)),
            tid: t.map(|t| t.tid),
            process: name.or_else(|| t.map(|t| t.name.clone())),
            cmdline: Some(step.cmdline),
            thread: Some(step.thread),
            block_type: Some(self.block_type(r, n)),
            duration_ns: Some(n.spent),
            function,
            module,
            syscall: n.syscall.clone(),
            object: n.object_label(self.c),
            stack,
            why: self.why(r, n, &p),
            waits_for: self.waits_for(r),
            confidence: self.confidence(r),
        }
    }

    fn block_type(&self, r: &Ranked, n: &SliceNode) -> BlockType {
        match r.kind {
            Some(FindingKind::Running | FindingKind::NoCpu) => BlockType::LongRunning,
            Some(FindingKind::Yielding) => BlockType::RepeatedYield,
            _ if r.node == 0 => self.victim.block_type,
            _ if n.waits > 2 && n.spent / (n.waits as u64) < LONG_SINGLE => BlockType::RepeatedYield,
            _ => BlockType::LongWait,
        }
    }

    fn waits_for(&self, r: &Ranked) -> Option<Party> {
        let next = self.o.nodes.get(r.node + 1)?;
        if next.thread == r.thread {
            return None;
        }
        let p = self.c.process_of(next.thread)?;
        Some(Party { pid: Some(p.pid), process: Some(p.name.clone()) })
    }

    fn confidence(&self, r: &Ranked) -> f64 {
        let base = match r.kind {
            Some(FindingKind::Running | FindingKind::Tracer) => 0.92,
            Some(FindingKind::Sleeping | FindingKind::Circular) => 0.88,
            Some(FindingKind::Device | FindingKind::NoCpu | FindingKind::Stopped | FindingKind::Yielding) => {
                0.75
            }
            Some(FindingKind::Unanswered) => 0.65,
            Some(FindingKind::Idle | FindingKind::Ended) => 0.5,
            None => 0.6,
            Some(FindingKind::Here) => 0.35,
        };
        let way = &self.o.nodes[..=r.node];
        let weak = way.iter().filter(|n| n.why_weak.is_some()).count();
        let least =
            way.iter().map(|n| n.spent as f64 / self.victim.duration.max(1) as f64).fold(1.0, f64::min);
        let lost = self.g.lost_within(&(self.victim.start..self.victim.end()));
        let c: f64 = base * 0.93f64.powi(weak as i32) * (0.5 + 0.5 * least) * if lost { 0.9 } else { 1.0 };
        c.clamp(0.01, 0.99)
    }

    /// `redis-server (pid 7, "redis-server *:0")`.
    fn full(&self, thread: ThreadId, at: Ns) -> String {
        let name = who_at(self.c, thread, at);
        let line = clean(&cmdline_at(self.c, thread, at), 100);
        let process = process_at(self.c, thread, at);
        if line.is_empty() || line == process {
            return name;
        }
        match name.strip_suffix(')') {
            Some(open) => format!("{open}, `{line}`)"),
            None => name,
        }
    }

    /// "waited 13.0 s in flock on /run/x".
    fn waited(&self, n: &SliceNode) -> String {
        match n.state {
            "running" => return format!("ran {}", span(n.spent)),
            "runnable" => return format!("wanted the CPU for {}", span(n.spent)),
            "not-created" => return format!("did not exist for {}", span(n.spent)),
            "exited" => return "had ended".into(),
            "unknown" => return format!("was not seen for {}", span(n.spent)),
            _ => {}
        }
        let times = if n.waits > 1 { format!(" ({} times)", n.waits) } else { String::new() };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let verb = if n.state == "stopped" { "was stopped" } else { "waited" };
        let f = n.function.as_ref().filter(|f| !f.starts_with("0x"));
        let f = f.map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
        format!("{verb} {}{times}{call}{}{f}", span(n.spent), self.waited_for(n))
    }

    /// " for the file lock /run/x", with a space in front; empty when there is nothing to say.
    fn waited_for(&self, n: &SliceNode) -> String {
        let object = n.object_label(self.c).map(|o| clean(&o, 100));
        match (n.waits_on.as_deref(), object) {
            (Some("sleep" | "poll") | None, None) => String::new(),
            (Some("ptrace"), _) => " by its tracer".into(),
            (Some("file-lock"), Some(o)) => format!(" for the file lock {o}"),
            (Some("child"), Some(o))
                if n.object.and_then(|o| self.c.object(o)).is_some_and(|o| o.id != 0) =>
            {
                format!(" for {o} to end")
            }
            (Some("child"), _) => " for a child to end".into(),
            (Some(w @ ("disk" | "device")), Some(o)) => format!(" for the {w} ({o})"),
            (Some("file-system"), Some(o)) => format!(" for the file system ({o})"),
            (Some("page-fault"), _) => " for a page of memory".into(),
            (_, Some(o)) => format!(" on {o}"),
            (Some(w), None) => format!(" ({w})"),
        }
    }

    /// Whom it blocked: the step before, and the victim if that is another one.
    fn held_up(&self, node: usize) -> String {
        if node == 0 {
            return String::new();
        }
        let before = &self.o.nodes[node - 1];
        let mut s = if before.state == "not-created" {
            format!(
                "; {} could only be created after that",
                who_at(self.c, before.thread, before.start + before.duration)
            )
        } else {
            format!(
                "; because of it {} {}",
                who_at(self.c, before.thread, before.start + before.duration),
                self.waited(before)
            )
        };
        if node > 1 {
            let v = &self.o.nodes[0];
            if v.thread != before.thread {
                let _ = write!(
                    s,
                    "; in the end this held up {} for {}",
                    self.full(v.thread, v.start + v.duration),
                    span(self.victim.duration)
                );
            }
        }
        s
    }

    fn why(&self, r: &Ranked, n: &SliceNode, p: &Profile) -> String {
        let end = n.start + n.duration;
        let full = self.full(r.thread, end);
        let next = self.o.nodes.get(r.node + 1).filter(|x| x.thread != r.thread);
        let whole = crate::diagnose::spans_total(&r.spans);
        let mut s = match r.kind {
            Some(FindingKind::Running) => self.why_running(n, p, &full, &r.spans),
            Some(FindingKind::Yielding) => {
                let f = p.function.as_ref().map_or_else(String::new, |f| {
                    let module = p.module.as_ref().map_or_else(String::new, |m| format!(" ({m})"));
                    format!(" in {}{module}", clean(f, 80))
                });
                format!(
                    "{full} gave up the CPU again and again{f} for {} (sched_yield, a yield loop): it asks whether it may go on, and nobody let it; which memory it asks for was not recorded",
                    span(whole)
                )
            }
            Some(FindingKind::NoCpu) => format!(
                "{full} could have run but got no CPU for {} of {} ({}), and ran {} of it",
                span(n.spent),
                span(whole),
                percent(n.spent, whole),
                span(whole.saturating_sub(n.spent))
            ),
            Some(FindingKind::Sleeping) => {
                let f = n
                    .function
                    .as_ref()
                    .map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
                format!(
                    "{full} slept {} in {} for as long as it chose itself{f}",
                    span(n.spent),
                    n.syscall.as_deref().unwrap_or("a sleep")
                )
            }
            Some(FindingKind::Idle) => self.why_idle(r, n, &full),
            Some(FindingKind::Unanswered) => self.why_unanswered(n, &full, next),
            Some(FindingKind::Circular) => return self.why_circular(r),
            Some(FindingKind::Device) => {
                format!("{full} {}: the device or file system took that long", self.waited(n))
            }
            Some(FindingKind::Stopped) => {
                format!("{full} {} and nobody continued it", self.waited(n))
            }
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
            Some(FindingKind::Ended) => format!("{full} had ended at {}", moment(n.start)),
            Some(FindingKind::Here) => format!("{full} {}; the way back ends here", self.waited(n)),
            None => format!("{full} {}", self.waited(n)),
        };
        if r.kind.is_none()
            && let Some(x) = next
        {
            let _ = write!(s, " for {}", self.full(x.thread, x.start + x.duration));
        }
        s += &self.full_pipe(n);
        s += &self.held_up(r.node);
        s.push('.');
        s
    }

    /// Says what a blocked write means.
    fn full_pipe(&self, n: &SliceNode) -> String {
        let v = self.g.vertex(n.vertex);
        if n.state == "blocked" && class(&v, self.c) == WaitClass::Room {
            let kind = self.c.object(v.object).map_or(ObjectKind::Unknown, |o| o.kind);
            let what = match kind {
                ObjectKind::Pipe | ObjectKind::Fifo => "the pipe is full: nobody reads it",
                _ => "its buffer is full: nobody reads the other end",
            };
            return format!(" ({what})");
        }
        String::new()
    }

    fn why_running(&self, n: &SliceNode, p: &Profile, full: &str, spans: &[(Ns, Ns)]) -> String {
        let whole = crate::diagnose::spans_total(spans);
        let mut s = format!(
            "{full} was on the CPU for {} of {} ({})",
            span(n.spent),
            span(whole),
            percent(n.spent, whole)
        );
        if let Some(f) = &p.function {
            let module = p.module.as_ref().map_or_else(String::new, |m| format!(" ({m})"));
            let _ = write!(s, ", {:.0} % of it in {}{module}", p.share * 100.0, clean(f, 80));
        }
        let off = crate::diagnose::activity(self.g, self.c, n.thread, spans).runnable;
        if off * 3 > n.spent {
            let _ = write!(s, " (it had to share the CPU and got none for another {})", span(off));
        }
        if let Some(from) = self.served(n) {
            let _ = write!(s, "; it last took work from {from}");
        }
        s
    }

    /// Who sent the message that the running thread took last before it got busy, unless that is the victim.
    fn served(&self, n: &SliceNode) -> Option<String> {
        let at = self.g.vertex_at(n.thread, n.start + n.duration / 2)?;
        let v = self.g.vertex(at);
        let took = self
            .g
            .ipc_of(n.thread, v.run..v.end.saturating_add(1))
            .iter()
            .any(|m| m.what.direction == Direction::Receive);
        let e = self.g.incoming(at).map(|e| self.g.edge(e)).find(|e| {
            let from = self.g.vertex(e.from).thread;
            from != n.thread && (e.kind == crate::EdgeKind::Ipc || took)
        })?;
        let from = self.g.vertex(e.from).thread;
        let on_way = self.o.nodes.iter().any(|x| x.thread == from);
        (!on_way).then(|| format!("{} at {}", self.full(from, e.from_time), moment(e.from_time)))
    }

    fn why_idle(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let wanted = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
        let not = wanted.map_or_else(String::new, |w| {
            let on = w.object_label(self.c).map_or_else(String::new, |o| format!(" over {}", clean(&o, 100)));
            format!(" and never sent{on} what {} waited for", who(self.c, w.thread))
        });
        format!("{full} {} with nothing to do{not}", self.waited(n))
    }

    fn why_unanswered(&self, n: &SliceNode, full: &str, next: Option<&SliceNode>) -> String {
        let last = self.g.vertex(self.last_of(n));
        let how = if last.open && self.g.lost_within(&(last.start..last.woken)) {
            "its end was not recorded (events were lost)"
        } else if last.open {
            "it had not ended when the recording did"
        } else if last.interrupted {
            "a signal ended it, not what it waited for"
        } else if last.timed_out {
            "it ended by its own time-out"
        } else {
            "no wake-up was recorded"
        };
        let whom = match next {
            Some(x) => format!(
                "the answer never came: {} has the other end and {}",
                self.full(x.thread, x.start + x.duration),
                self.waited(x)
            ),
            None => "nobody ever answered or woke it, and no thread was found that could".into(),
        };
        format!("{full} {}; {how}, and {whom}", self.waited(n))
    }

    fn last_of(&self, n: &SliceNode) -> VertexId {
        let end = n.start + n.duration;
        self.g
            .vertices_in(n.thread, n.start..end)
            .rfind(|v| self.g.vertex(*v).woken <= end.saturating_add(1) && self.g.vertex(*v).waited() > 0)
            .unwrap_or(n.vertex)
    }

    fn why_circular(&self, r: &Ranked) -> String {
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
            parts.push(format!(
                "{} {}{} for {}",
                self.full(n.thread, n.start + n.duration),
                self.waited(n),
                self.full_pipe(n),
                who(self.c, next.thread)
            ));
        }
        format!("circular wait (deadlock): {}.", parts.join(", while "))
    }
}
