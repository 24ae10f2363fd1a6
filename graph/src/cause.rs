//! From a finished walk to ranked root causes in words, and to the report.

mod closed;
mod cpu;
mod crashed;
mod ended;
mod freezer;
mod frozen;
mod late;
mod nobody;
mod parts;
mod paused;
mod pipe_end;
mod purpose;
mod retrying;
mod runtime_view;
mod sentence;
mod server_view;
mod shortage;
mod sleeping;
mod stands_in;
mod stopped;
mod told;
mod unanswered;
mod yielding;

use crate::diagnose::{Finding, FindingKind, Options, Outcome, SliceNode};
use crate::episode::LONG_SINGLE;
use crate::profile::{Profile, profile};
use crate::report::{FORMAT, Party, Report, RootCause, VictimInfo};
use crate::victim::{has_focus, in_view};
use crate::violations::unit_info;
use crate::words::{cmdline_at, container, container_pid, process_at};
use crate::{BlockType, EventGraph, Victim, VictimOptions};
use pg_event::{Catalog, Ns, ThreadId};
use purpose::CallersOf;
use std::cell::OnceCell;
pub(crate) use stopped::stopped_by;

/// The report of a walk.
pub(crate) fn report(g: &EventGraph, c: &Catalog, victim: &Victim, options: &Options, o: &Outcome) -> Report {
    let notes = &options.coverage.notes;
    let w = Writer { g, c, victim, o, notes, line: sentence::LINES[0].into(), callers: OnceCell::new() };
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
    let unheard = g.unheard_within(&(victim.start..victim.end()));
    if unheard * 100 >= victim.duration.max(1) {
        let share = crate::words::percent(unheard, victim.duration);
        coverage.notes.push(format!(
            "for {share} of the time in which the victim hung, messages between threads that do not wait were not \
             recorded, since there were too many (record --level messages records all)"
        ));
    }
    coverage.notes.extend(server_view::note(o));
    coverage.notes.extend(runtime_view::note(o, c));
    if o.asked.iter().any(|q| q.by == "policy") {
        coverage.notes.push("where nobody gave an answer of their own, the recommended one was taken".into());
    }
    Report {
        format: FORMAT,
        session,
        victim: victim_info(g, c, victim),
        questions: o.asked.clone(),
        slice: o.nodes.iter().map(|n| n.step(c)).collect(),
        root_causes: w.causes(options.top),
        circle: circle(o),
        others: crate::others::others(g, c, victim, o),
        also_hung: Vec::new(),
        coverage,
        stats: None,
    }
}

/// A victim for programs that read the report.
pub(crate) fn victim_info(g: &EventGraph, c: &Catalog, v: &Victim) -> VictimInfo {
    let t = c.thread(v.thread);
    let p = c.process_of(v.thread);
    let (begun_before, not_over) = v.cut(g);
    // As it was called while it hung, as in the slice: it may have executed another program since.
    let process = process_at(c, v.thread, v.end());
    let main = t.zip(p).is_some_and(|(t, p)| t.tid == p.pid && t.name == p.name);
    VictimInfo {
        pid: p.map_or(0, |p| p.pid),
        tid: t.map_or(0, |t| t.tid),
        thread: if main { process.clone() } else { t.map_or_else(String::new, |t| t.name.clone()) },
        process,
        cmdline: cmdline_at(c, v.thread, v.end()),
        start_ns: v.start,
        duration_ns: v.duration,
        container: p.and_then(container),
        container_pid: p.and_then(container_pid),
        block_type: v.block_type,
        unit: v.violation.as_ref().map(|v| unit_info(g, c, v)),
        outside_focus: !in_view(c, has_focus(c, &VictimOptions::default()), v.thread),
        begun_before,
        not_over,
        unserved: match &v.unserved {
            Some(u) => Some(format!("{}; by that it was found", u.words(c))),
            None => crate::unserved::of_victim(g, c, v).map(|u| u.words(c)),
        },
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

struct Writer<'a> {
    g: &'a EventGraph,
    c: &'a Catalog,
    victim: &'a Victim,
    o: &'a Outcome,
    /// What is known to be missing.
    notes: &'a [String],
    /// Longest command line shown.
    line: std::cell::Cell<usize>,
    /// Who calls what, once it is needed.
    callers: OnceCell<CallersOf>,
}

/// A cause before it is put into words.
struct Ranked {
    thread: ThreadId,
    node: usize,
    kind: Option<FindingKind>,
    spans: Vec<(Ns, Ns)>,
}

impl Writer<'_> {
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
            // A child that failed kept nobody waiting.
            if shares && f.node >= 2 && self.o.nodes[f.node - 1].state != "exited" {
                // Of a family whose members wait for each other's end the one comes first that has what is waited for.
                for node in [self.eldest(f.node - 1), f.node - 1] {
                    let n = &self.o.nodes[node];
                    let spans = vec![(n.start, n.start + n.duration)];
                    push(&mut out, Ranked { thread: n.thread, node, kind: None, spans });
                }
            }
        }
        // Of what is behind a guess nothing is known that is not known of the guess.
        let guess = self.o.nodes.iter().position(|n| n.doubt >= 0.5);
        if let Some(g) = guess.filter(|g| out.first().is_some_and(|r| r.node > *g))
            && let Some(at) = out.iter().position(|r| r.node == g)
        {
            out[..=at].rotate_right(1);
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

    /// The step before `node` from which on each only waits for a child to end.
    fn eldest(&self, node: usize) -> usize {
        let child = |i: usize| self.o.nodes[i].waits_on.as_deref() == Some("child");
        // Who waits for something else itself tells that.
        let children = (1..=node).rev().take_while(|i| child(*i));
        children.last().filter(|i| !child(i - 1)).unwrap_or(node)
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
            let f = self.purpose(n);
            (f.as_ref().map(|f| f.function.clone()), f.map(|f| f.module), n.stack.clone())
        };
        let process = self.c.process_of(r.thread);
        let t = self.c.thread(r.thread);
        let step = n.step(self.c);
        let name = Some(step.process).filter(|n| !n.trim().is_empty());
        // Nobody is to be blamed: the thing is.
        if r.kind == Some(FindingKind::Frozen) {
            return RootCause {
                syscall: n.syscall.clone(),
                object: Some(n.object_label(self.c).unwrap_or_else(|| "a frozen file system".into())),
                stack,
                why: self.why(r, n, &p),
                confidence: self.confidence(r),
                duration_ns: Some(n.spent),
                ..RootCause::default()
            };
        }
        // What a loop of children asks for is what the child's call was about.
        let asked = match self.o.nodes.get(r.node + 1) {
            Some(child) if r.kind == Some(FindingKind::Retrying) && child.state == "exited" => child,
            _ => n,
        };
        let object = match r.kind {
            Some(FindingKind::Froze) => self.waits_to_write(r.node).and_then(|n| n.object_label(self.c)),
            Some(FindingKind::Retrying) => asked.object_label(self.c),
            _ => n.object_label(self.c),
        };
        let name = name.or_else(|| t.map(|t| t.name.clone())).filter(|n| !n.trim().is_empty());
        // Of who had ended before it was recorded nothing is known but what it left.
        let left = || self.o.nodes.get(r.node.checked_sub(1)?)?.object_label(self.c);
        let object = object.or_else(|| if name.is_none() { left() } else { None });
        RootCause {
            rank: 0,
            pid: process.map(|p| p.pid).or(t.map(|t| t.tid)),
            tid: t.map(|t| t.tid),
            process: name,
            cmdline: Some(step.cmdline),
            thread: Some(step.thread),
            container: step.container,
            container_pid: step.container_pid,
            block_type: Some(self.block_type(r, n)),
            duration_ns: Some(n.spent),
            function,
            module,
            syscall: asked.syscall.clone(),
            object,
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
            Some(FindingKind::Yielding | FindingKind::Retrying) => BlockType::RepeatedYield,
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
            // Whether it asks or lets time pass on purpose was not seen.
            Some(FindingKind::Retrying) if self.may_be_a_job(r) => 0.45,
            // Who was to open the other end of a FIFO was not seen.
            Some(FindingKind::Closed)
                if crate::class::opens_fifo(&self.g.vertex(self.o.nodes[r.node].vertex), self.c) =>
            {
                0.65
            }
            // Whether it tries something in between was not seen.
            Some(FindingKind::Sleeping)
                if !self.tries_again(r, &self.o.nodes[r.node])
                    && self.may_have_tried(r, &self.o.nodes[r.node]) =>
            {
                0.5
            }
            // Nor whether anybody is to let it go on.
            Some(FindingKind::Sleeping) if self.may_keep_house(r, &self.o.nodes[r.node]) => 0.5,
            // Whose the lock is was not seen.
            Some(FindingKind::Circular) if self.by_handler_only(&self.o.nodes[r.node]) => 0.7,
            Some(FindingKind::Running | FindingKind::Tracer) => 0.92,
            Some(FindingKind::Sleeping | FindingKind::Circular) => 0.88,
            Some(
                FindingKind::Closed
                | FindingKind::Starved(_)
                | FindingKind::Tokens(..)
                | FindingKind::Throttled
                | FindingKind::Froze
                | FindingKind::Session
                | FindingKind::NoMemory,
            ) => 0.8,
            Some(
                FindingKind::Device
                | FindingKind::NoCpu
                | FindingKind::Stopped
                | FindingKind::Paused
                | FindingKind::Input
                | FindingKind::Yielding
                | FindingKind::Retrying,
            ) => 0.75,
            Some(FindingKind::Unanswered | FindingKind::Frozen) => 0.65,
            // What it was asked for was not seen.
            Some(FindingKind::Idle)
                if r.node > 0 && self.asked_before(&self.o.nodes[r.node], &self.o.nodes[r.node - 1]) =>
            {
                0.3
            }
            Some(FindingKind::Idle | FindingKind::Ended) => 0.5,
            None => 0.6,
            Some(FindingKind::Here) => 0.35,
        };
        let way = &self.o.nodes[..=r.node];
        let weak = way.iter().filter(|n| n.why_weak.is_some()).count();
        let least =
            way.iter().map(|n| n.spent as f64 / self.victim.duration.max(1) as f64).fold(1.0, f64::min);
        let lost = self.g.lost_within(&(self.victim.start..self.victim.end()));
        let base = base * way.iter().map(|n| 1.0 - n.doubt).product::<f64>();
        let c: f64 = base * 0.93f64.powi(weak as i32) * (0.5 + 0.5 * least) * if lost { 0.9 } else { 1.0 };
        c.clamp(0.01, 0.99)
    }
}
