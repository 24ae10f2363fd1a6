//! From a finished walk to ranked root causes in words, and to the report.

use crate::class::{WaitClass, class};
use crate::diagnose::{DATA_FLAG, Finding, FindingKind, Options, Outcome, SliceNode};
use crate::episode::LONG_SINGLE;
use crate::kernel::{doing, is_kernel};
use crate::profile::{Profile, profile};
use crate::report::{FORMAT, Party, Report, RootCause, VictimInfo};
use crate::starved::starved;
use crate::words::{
    clean, cmdline_at, container, container_pid, moment, named, percent, process_at, short_command,
    short_label, span, telling, who, who_at,
};
use crate::yields::{ASKS, YieldLoop, yield_loop};
use crate::{BlockType, EventGraph, VertexId, Victim};
use pg_event::{Catalog, Direction, Ns, ObjectKind, ThreadId};
use std::fmt::Write;

/// Most words of a sentence for a ticket.
const WORDS: usize = 60;
/// Lengths of command lines tried until the sentence is short enough.
const LINES: [usize; 4] = [48, 32, 18, 0];

/// The report of a walk.
pub(crate) fn report(g: &EventGraph, c: &Catalog, victim: &Victim, options: &Options, o: &Outcome) -> Report {
    let w = Writer { g, c, victim, o, line: LINES[0].into() };
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
        circle: circle(o),
        others: crate::others::others(g, c, victim, o),
        coverage,
        stats: None,
    }
}

/// The steps that wait in a circle, if the way found one.
fn circle(o: &Outcome) -> Vec<usize> {
    let of = |kind| o.findings.iter().filter(move |f: &&Finding| f.kind == kind);
    if of(FindingKind::Circular).next().is_some() {
        // The last step is the one that closed it, shown again.
        let close = o.nodes.last().map(|n| n.thread);
        let from = o.nodes.iter().position(|n| Some(n.thread) == close).unwrap_or(0);
        return (from..o.nodes.len().saturating_sub(1)).collect();
    }
    let mut all: Vec<usize> = of(FindingKind::Closed).map(|f| f.node).collect();
    all.sort_unstable();
    all
}

/// Words of a sentence; a number and its unit are one.
fn words(s: &str) -> usize {
    let unit = |w: &str| {
        let w = w.trim_end_matches([',', ';', '.', ')', ':']);
        matches!(w, "s" | "ms" | "µs" | "ns" | "%" | "B" | "x")
    };
    s.split_whitespace().filter(|w| !unit(w)).count()
}

/// One is held up at a lock or disk, and waits for it.
fn at_the(on: String) -> String {
    on.strip_prefix(" for the ").map(|rest| format!(" at the {rest}")).unwrap_or(on)
}

struct Writer<'a> {
    g: &'a EventGraph,
    c: &'a Catalog,
    victim: &'a Victim,
    o: &'a Outcome,
    /// Longest command line shown.
    line: std::cell::Cell<usize>,
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
            container: p.and_then(container),
            container_pid: p.and_then(container_pid),
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
        let busy = matches!(
            r.kind,
            Some(FindingKind::Running | FindingKind::NoCpu | FindingKind::Throttled | FindingKind::Yielding)
        );
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
            container: step.container,
            container_pid: step.container_pid,
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
            Some(FindingKind::Running | FindingKind::NoCpu | FindingKind::Throttled) => {
                BlockType::LongRunning
            }
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
            Some(FindingKind::Closed | FindingKind::Throttled) => 0.8,
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

    /// ``redis-cli (pid 7, `redis-cli -s …/r.sock get k`)``.
    fn full(&self, thread: ThreadId, at: Ns) -> String {
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
    fn waited(&self, n: &SliceNode) -> String {
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
            "unknown" => return format!("was not seen for {}", span(n.spent)),
            _ => {}
        }
        let times = if n.waits > 1 { format!(" ({} times)", n.waits) } else { String::new() };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        let verb = if n.state == "stopped" { "was stopped" } else { "waited" };
        let f = n.function.as_ref().filter(|f| !f.starts_with("0x"));
        let f = f.map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
        // "futex on futex 0x10" says it twice.
        let mut on = self.waited_for(n);
        if let Some(call) = &n.syscall {
            on = on.replacen(&format!(" on {call} "), " on ", 1);
        }
        format!("{verb} {}{times}{call}{on}{f}", span(n.spent))
    }

    /// The same where it is said next for whom.
    fn waited_to(&self, n: &SliceNode) -> String {
        let call = n.syscall.as_ref().filter(|_| n.waits_on.as_deref() == Some("child"));
        call.map_or_else(|| self.waited(n), |call| format!("waited {} in {call}", span(n.spent)))
    }

    /// " for the file lock /run/x", with a space in front; empty when there is nothing to say.
    fn waited_for(&self, n: &SliceNode) -> String {
        let object = n.object_label(self.c).map(|o| short_label(&o));
        match (n.waits_on.as_deref(), object) {
            (Some("sleep" | "poll") | None, None) => String::new(),
            (Some(DATA_FLAG), Some(o)) => format!(" on the data {o}"),
            (Some("ptrace"), _) => " by its tracer".into(),
            (Some("file-lock"), _) if n.object.is_some() && self.lock_path(n).is_some() => {
                format!(" for the file lock {}", self.lock_path(n).unwrap_or_default())
            }
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
            (Some("memory-reclaim"), _) => " for memory to be freed".into(),
            (_, Some(o)) => format!(" on {o}"),
            (Some(w), None) => format!(" ({w})"),
        }
    }

    /// A lock is known by its whole path.
    fn lock_path(&self, n: &SliceNode) -> Option<String> {
        n.object_label(self.c).map(|o| clean(&o, 100))
    }

    /// Whom it blocked: the victim, and the step before if that is another one.
    fn held_up(&self, node: usize) -> String {
        if node == 0 {
            return String::new();
        }
        let before = &self.o.nodes[node - 1];
        let v = &self.o.nodes[0];
        let last = self.full(v.thread, v.start + v.duration);
        let time = span(self.victim.duration);
        if node == 1 || v.thread == before.thread {
            let mut on = self.waited_for(before);
            let call = before.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
            // "in futex on futex 0x10" says it twice.
            if let Some(call) = &before.syscall {
                on = on.replacen(&format!(" on {call} "), " on ", 1);
            }
            return format!("; this held up {last} for {time}{call}{}", at_the(on));
        }
        let then = before.start + before.duration;
        let via = who_at(self.c, before.thread, then);
        if before.state == "not-created" {
            return format!("; {via} could only be created after that, and {last} waited {time} in the end");
        }
        let tells = !matches!(before.waits_on.as_deref(), Some("ptrace" | "child"));
        let on = if tells { at_the(self.waited_for(before)) } else { String::new() };
        format!("; this held up {via}{on}, and in the end {last} for {time}")
    }

    /// One sentence, the main fact first, cut until it fits into a ticket.
    fn why(&self, r: &Ranked, n: &SliceNode, p: &Profile) -> String {
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

    fn sentence(&self, r: &Ranked, n: &SliceNode, p: &Profile) -> String {
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
                let how = yield_loop(self.g, self.c, r.thread, &r.spans, p);
                let means = how.as_ref().map_or(ASKS, YieldLoop::means);
                // A tight loop names its function itself.
                let f = if matches!(how, Some(YieldLoop::Spins { .. })) { String::new() } else { f };
                let how = how.map_or_else(|| "asked again and again".into(), |y| y.words());
                format!("{full} {how}{f} for {}: {means}", span(whole))
            }
            Some(FindingKind::NoCpu) => format!(
                "{full} could have run but got no CPU for {} of {} ({}), and ran {} of it{}",
                span(n.spent),
                span(whole),
                percent(n.spent, whole),
                span(whole.saturating_sub(n.spent)),
                self.cpus_had(r)
            ),
            Some(FindingKind::Throttled) => self.why_throttled(r, n, &full),
            Some(FindingKind::Sleeping) if r.node == 0 && n.waits > 3 => {
                let f = n.function.as_ref().filter(|f| !f.starts_with("0x"));
                let f = f.map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
                format!(
                    "{full} slept {} times for {} each in {}{f}, {} in all: it asks again and again whether it may go on, and all that time nobody let it; what it asks for (a data flag, a lock) was not recorded and must be found",
                    n.waits,
                    span(n.spent / n.waits as u64),
                    n.syscall.as_deref().unwrap_or("a sleep"),
                    span(n.spent)
                )
            }
            Some(FindingKind::Sleeping) => {
                let f = n
                    .function
                    .as_ref()
                    .filter(|f| !f.starts_with("0x"))
                    .map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
                format!(
                    "{full} slept {} in {}{f}, as long as it had asked for",
                    span(n.spent),
                    n.syscall.as_deref().unwrap_or("a sleep")
                )
            }
            Some(FindingKind::Idle) => self.why_idle(r, n, &full),
            Some(FindingKind::Unanswered) => self.why_unanswered(n, &full, next),
            Some(FindingKind::Circular) => return self.why_circular(r),
            Some(FindingKind::Closed) => return self.why_closed(r, n, &full),
            Some(FindingKind::Device) => {
                let what = match n.waits_on.as_deref() {
                    Some("memory-reclaim") => "memory was short (of the machine or of its control group)",
                    Some("page-fault") => "the page had to be read first",
                    _ => "the device or file system took that long",
                };
                format!("{full} {}: {what}", self.waited(n))
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
            Some(FindingKind::Here) => format!("{full} {}; the way back ends here", self.waited(n)),
            None if next.is_some() => format!("{full} {}", self.waited_to(n)),
            None => format!("{full} {}", self.waited(n)),
        };
        if r.kind.is_none()
            && let Some(x) = next
        {
            let _ = write!(s, " for {}", self.full(x.thread, x.start + x.duration));
        }
        s += &self.full_pipe(n);
        let said = matches!(r.kind, Some(FindingKind::Idle)) && r.node <= 1;
        if !said {
            s += &self.held_up(r.node);
        }
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

    /// Which threads had the CPUs instead.
    fn cpus_had(&self, r: &Ranked) -> String {
        let s = starved(self.g, self.c, r.thread, &r.spans);
        let most: Vec<String> = s
            .others
            .iter()
            .filter(|o| o.1 >= 0.1)
            .take(3)
            .map(|(t, share)| format!("{} ({:.0} %)", who(self.c, *t), share * 100.0))
            .collect();
        if most.is_empty() { String::new() } else { format!("; the CPUs were taken by {}", most.join(", ")) }
    }

    fn why_throttled(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let s = starved(self.g, self.c, r.thread, &r.spans);
        let whole = crate::diagnose::spans_total(&r.spans);
        let group = n.object_label(self.c).map_or_else(String::new, |l| format!(" of {}", clean(&l, 110)));
        let idle = if s.busy < 0.5 || s.idle() { " though CPUs were idle" } else { "" };
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

    fn why_running(&self, n: &SliceNode, p: &Profile, full: &str, spans: &[(Ns, Ns)]) -> String {
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
        s
    }

    /// What set the running thread to work: the message that it took last before it got busy, and whose that was.
    fn served(&self, n: &SliceNode) -> Option<String> {
        let at = self.g.vertex_at(n.thread, n.start + n.duration / 2)?;
        let v = self.g.vertex(at);
        let own = self.g.ipc_of(n.thread, v.run..v.end.saturating_add(1));
        let took = own.iter().find(|m| m.what.direction == Direction::Receive);
        let e = self.g.incoming(at).map(|e| self.g.edge(e)).find(|e| {
            let from = self.g.vertex(e.from).thread;
            from != n.thread && (e.kind == crate::EdgeKind::Ipc || took.is_some())
        });
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
            Some(_) => Some(format!(", on its request at {when}")).filter(|_| e.kind == crate::EdgeKind::Ipc),
            None => Some(format!(", for {} since {when}", self.full(from, e.from_time))),
        }
    }

    /// What `waiter` sent over what it waits for since shortly before the wait: "2 messages, 70 B, the last
    /// at 6.744 s".
    fn asked_for(&self, waiter: &SliceNode) -> Option<String> {
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

    /// "5.00 s x 2" for waits that their own time-out ended, else the whole length.
    fn patience(&self, n: &SliceNode) -> String {
        let v = self.g.vertex(n.vertex);
        match (v.timed_out, n.waits) {
            (true, 2..) => format!("{} x {}", span(v.waited()), n.waits),
            _ => span(n.spent),
        }
    }

    fn why_idle(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let Some(w) = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i)) else {
            return format!("{full} {} with nothing to do", self.waited(n));
        };
        let call = n.syscall.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
        if class(&self.g.vertex(w.vertex), self.c) == WaitClass::Lock {
            let lock = w.object_label(self.c).map_or_else(|| "the lock".into(), |o| short_label(&o));
            return format!(
                "{full} has {lock} and did not release it: it waited{call} for {}, while {} waited {}",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        let on = w.object_label(self.c).map_or_else(String::new, |o| format!(" over {}", short_label(&o)));
        if n.why_weak.as_ref().is_some_and(|w| w.contains("listens on the socket")) {
            return format!(
                "{full} listens there and did not accept the connection{on}: it waited{call} for {}, while {} waited {}",
                span(n.spent),
                who(self.c, w.thread),
                self.patience(w)
            );
        }
        let asked = match self.asked_for(w) {
            Some(what) => format!("was sent the request ({what})"),
            None => "was waited for".to_owned(),
        };
        format!(
            "{full} {asked} and never answered{on}: it was idle{call} for {}, while {} waited {}",
            span(n.spent),
            who(self.c, w.thread),
            self.patience(w)
        )
    }

    fn why_unanswered(&self, n: &SliceNode, full: &str, next: Option<&SliceNode>) -> String {
        let last = self.g.vertex(self.last_of(n));
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
                if x.why_weak.as_ref().is_some_and(|w| w.contains("listens on the socket")) {
                    format!("{whom}, which listens there, did not accept the connection: it {did}")
                } else {
                    format!("no answer came from {whom}, which {did}")
                }
            }
            None if crate::class::opens_fifo(&last, self.c) => {
                "nobody has opened the other end of this FIFO".into()
            }
            None => "nobody ever answered or woke it, and no thread was found that could".into(),
        };
        let asked = self.asked_for(n).map_or_else(String::new, |a| format!(" (it had sent {a})"));
        let times = if last.timed_out && n.waits > 1 {
            format!(", {} each", span(self.g.vertex(n.vertex).waited()))
        } else {
            String::new()
        };
        format!("{full} {}{times}{asked}; {how}, and {whom}", self.waited(n))
    }

    fn last_of(&self, n: &SliceNode) -> VertexId {
        let end = n.start + n.duration;
        self.g
            .vertices_in(n.thread, n.start..end)
            .rfind(|v| self.g.vertex(*v).woken <= end.saturating_add(1) && self.g.vertex(*v).waited() > 0)
            .unwrap_or(n.vertex)
    }

    /// Stopped by a signal: whose, when, and what became of it.
    fn why_stopped(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        const STOPS: [(u8, &str); 4] = [(19, "SIGSTOP"), (20, "SIGTSTP"), (21, "SIGTTIN"), (22, "SIGTTOU")];
        let v = self.g.vertex(n.vertex);
        if v.state == pg_event::OffState::Frozen {
            return format!(
                "{full} was frozen for {} (its control group's freezer, or suspend)",
                span(n.spent)
            );
        }
        let process = |t| self.c.thread(t).map(|t| t.process);
        let sent = self.g.signals().iter().rev().find(|s| {
            let stops = STOPS.iter().any(|x| x.0 == s.signal);
            stops && s.time <= v.start.saturating_add(1_000_000) && process(s.to) == process(r.thread)
        });
        let by = sent.map_or_else(String::new, |s| {
            let name = STOPS.iter().find(|x| x.0 == s.signal).map_or("", |x| x.1);
            format!(" ({name} sent by {} at {})", who(self.c, s.from), moment(s.time))
        });
        let end = if v.open { " and nobody continued it".to_owned() } else { String::new() };
        format!("{full} was stopped for {}{by}{end}", span(n.spent))
    }

    /// A holder that is gone: when, how, and what that means for what it held.
    fn why_ended(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let status = self.g.exited(r.thread).map(|x| x.1);
        let how = match status {
            Some(s) if s & 0x7f != 0 => format!("was killed by signal {} at {}", s & 0x7f, moment(n.start)),
            Some(s) => format!("ended at {} (exit code {})", moment(n.start), s >> 8),
            None => format!("had ended at {}", moment(n.start)),
        };
        let before = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
        let lock = before.filter(|b| {
            let class = class(&self.g.vertex(b.vertex), self.c);
            class == WaitClass::Lock && n.edge == Some(crate::EdgeKind::Holder)
        });
        match lock {
            Some(b) => {
                let lock = b.object_label(self.c).map_or_else(|| "its lock".into(), |o| short_label(&o));
                format!("{full} {how} with {lock} and never gave it back: nobody is left to release it")
            }
            None => match before.filter(|_| n.edge == Some(crate::EdgeKind::Holder)) {
                Some(b) => {
                    let on = b.object_label(self.c).map_or_else(|| "it".into(), |o| short_label(&o));
                    format!("{full} {how}, and nobody else is known to have the other end of {on}")
                }
                None => format!("{full} {how}"),
            },
        }
    }

    fn why_closed(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let closed = self.o.findings.iter().filter(|f| f.kind == FindingKind::Closed);
        let others: Vec<String> = closed
            .filter(|f| f.thread != r.thread)
            .filter_map(|f| self.o.nodes.get(f.node))
            .take(4)
            .map(|x| {
                let tid = self.c.thread(x.thread).map_or(0, |t| t.tid);
                format!("thread {tid} (since {}{})", moment(x.start), self.waited_for(x))
            })
            .collect();
        format!(
            "circular wait (deadlock): {full} {} since {}, and so do {}: all threads of the process wait for each other's locks, nobody is left to release one.",
            self.waited(n),
            moment(n.start),
            others.join(", ")
        )
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
            parts.push(format!("{name}{}{} for {whom}", self.waited_to(n), self.full_pipe(n)));
        }
        // Another candidate of the same circle need not tell it all again.
        let first = self.o.findings.first();
        let again = first.is_some_and(|f| f.kind == FindingKind::Circular && f.thread != r.thread);
        if again && parts.len() > 1 {
            return format!("the same circular wait from its other end: {}.", parts.swap_remove(0));
        }
        let gives_up = |n: &SliceNode| self.g.vertex(self.last_of(n)).timed_out;
        let sort = if ring.iter().any(gives_up) {
            "livelock: time-outs break it and it closes again"
        } else {
            "deadlock"
        };
        format!("circular wait ({sort}): {}.", parts.join(", which "))
    }
}
