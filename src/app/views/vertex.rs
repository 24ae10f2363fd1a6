//! One vertex: what it waited for, who ended the wait, what it did then.

use super::scrolled;
use crate::app::recording::Recording;
use crate::app::signal_name::signal_name;
use crate::app::time;
use crate::clean::clean_to;
use crate::config::Look;
use pg_event::{Context, Direction, Event, Kind, LoopTurn, Ns, ThreadId, UnitTypeId};
use pg_graph::{BurstFact, EdgeId, LaneState, NO_STATUS, SamplePoint, VertexId};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A line of the view.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// How it is shown.
    pub look: Look,
    /// What is written, clean.
    pub text: String,
    /// What it is about.
    pub about: About,
}

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum About {
    /// The head of a section.
    Head,
    /// Just text.
    Text,
    /// An edge, and the vertex at its other end.
    Edge(EdgeId, VertexId),
    /// What the thread executed in a burst.
    Burst(BurstFact),
    /// Something at a moment of a thread.
    Moment(ThreadId, Ns),
}

/// The vertex shown.
#[derive(Debug, Default)]
pub struct VertexState {
    /// Which one.
    pub vertex: Option<VertexId>,
    /// Its lines.
    pub rows: Vec<Row>,
    /// Selected line.
    pub row: usize,
    /// First line shown.
    pub offset: usize,
}

/// Most lines of one sort.
const MANY: usize = 400;

impl VertexState {
    /// Shows another vertex. Its events come later, by [`VertexState::add_events`].
    pub fn open(&mut self, r: &Recording, id: VertexId) {
        self.vertex = Some(id);
        self.offset = 0;
        self.rows = rows(r, id);
        self.row = self.rows.iter().position(|x| x.about != About::Head).unwrap_or(0);
    }

    /// The events of the vertex have been read.
    pub fn add_events(&mut self, r: &Recording, id: VertexId, events: &[Event], all: bool) {
        if self.vertex != Some(id) {
            return;
        }
        self.rows.push(head(format!(
            "events ({}{})",
            events.len(),
            if all { "" } else { ", the first ones" }
        )));
        if events.is_empty() {
            self.rows.push(text(Look::Dim, "  none recorded"));
        }
        let start = r.graph.vertex(id).start;
        for e in events {
            let at = time::length(e.time.saturating_sub(start));
            self.rows.push(Row {
                look: Look::Text,
                text: format!("  +{at:<9} {}", event(r, e)),
                about: About::Moment(e.thread, e.time),
            });
        }
    }

    /// Moves the selection; heads are passed over.
    pub fn go(&mut self, by: super::Move, page: usize) {
        let to = by.from(self.row, self.rows.len(), page);
        let down = to >= self.row;
        let selectable = |i: &usize| self.rows.get(*i).is_some_and(|r| r.about != About::Head);
        let found = if down {
            (to..self.rows.len()).find(selectable).or_else(|| (0..to).rev().find(selectable))
        } else {
            (0..=to).rev().find(selectable).or_else(|| (to..self.rows.len()).find(selectable))
        };
        self.row = found.unwrap_or(0);
    }

    /// Keeps the selected line on the screen, with the head before it.
    pub fn scroll(&mut self, height: usize) {
        self.offset = scrolled(self.offset, self.row, self.rows.len(), height);
        if self.offset > 0
            && self.offset == self.row
            && height > 1
            && self.rows.get(self.offset - 1).is_some_and(|r| r.about == About::Head)
        {
            self.offset -= 1;
        }
    }

    /// What the selected line is about.
    pub fn about(&self) -> Option<About> {
        self.rows.get(self.row).map(|r| r.about)
    }
}

fn head(text: String) -> Row {
    Row { look: Look::Title, text, about: About::Head }
}

fn text(look: Look, text: impl Into<String>) -> Row {
    Row { look, text: text.into(), about: About::Text }
}

fn rows(r: &Recording, id: VertexId) -> Vec<Row> {
    let v = r.graph.vertex(id);
    let mut out = vec![head("what happened".into())];
    let moment = |look, at: Ns, words: String| Row {
        look,
        text: format!("  {:<11} {words}", time::moment(at, 1_000)),
        about: About::Moment(v.thread, at),
    };
    if v.waited() > 0 {
        let since = if v.begun_before { ", since before the recording" } else { "" };
        let look = crate::ui::state_look(LaneState::of_wait(v.state));
        let words = format!("waits {} for {}{since}", time::length(v.waited()), r.wait(&v));
        out.push(moment(look, v.start, words));
        let how = if v.open {
            "still waiting when the recording ended"
        } else if v.timed_out {
            "its own time-out ended the wait"
        } else if v.interrupted {
            "a signal ended the wait"
        } else {
            "made runnable"
        };
        out.push(moment(Look::Runnable, v.woken, how.into()));
        if v.timeout != 0 && v.timeout != u64::MAX {
            out.push(text(Look::Dim, format!("              time-out {}", time::length(v.timeout))));
        }
    }
    if v.queued() > 0 {
        out.push(moment(Look::Runnable, v.woken, format!("waits {} for a CPU", time::length(v.queued()))));
    }
    if v.ran() > 0 {
        let off = if v.preempted > 0 {
            // Not of the time that it ran: that comes beside it.
            format!(", and was put off the CPU for {} meanwhile", time::length(v.preempted))
        } else {
            String::new()
        };
        let words = format!("runs {}{off}", time::length(v.ran()));
        out.push(moment(Look::Running, v.run, words));
        out.extend(unit(r, v.thread, v.run).map(|words| text(Look::Dim, format!("              {words}"))));
    }
    if let Some((at, status)) =
        r.graph.exited(v.thread).filter(|(at, status)| *at == v.end && *status != NO_STATUS)
    {
        out.push(moment(Look::Text, at, format!("ends, {}", exit_words(status))));
    }
    bursts(r, &v, &mut out);
    edges(r, id, &mut out);
    stacks(r, &v, &mut out);
    profile(r, &v, &mut out);
    out
}

/// When the thread was followed instruction by instruction.
fn bursts(r: &Recording, v: &pg_graph::Vertex, out: &mut Vec<Row>) {
    let all: Vec<BurstFact> =
        r.graph.bursts_of(v.thread, v.start..v.end.saturating_add(1)).copied().collect();
    if all.is_empty() {
        return;
    }
    out.push(head("followed instruction by instruction: enter shows it".into()));
    out.extend(all.into_iter().take(MANY).map(|b| {
        let told = crate::steps::print::summary(u64::from(b.steps), (b.start, b.end), b.how);
        let text = format!("  {:<11} {told}", time::moment(b.start, 1_000));
        Row { look: Look::Running, text, about: About::Burst(b) }
    }));
}

/// Exit status of wait(2) in words.
fn exit_words(status: u32) -> String {
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, code) => format!("exit code {code}"),
        (signal, _) => format!("by {}", signal_name(signal)),
    }
}

fn edges(r: &Recording, id: VertexId, out: &mut Vec<Row>) {
    let line = |e: EdgeId, other: VertexId, arrow: &str| {
        let edge = r.graph.edge(e);
        let (look, how) = match edge.weak {
            None => (Look::StrongEdge, "strong".to_owned()),
            Some(w) => (Look::WeakEdge, format!("weak: {}", w.words())),
        };
        let object = r.object(edge.object);
        let who = r.thread_name(r.graph.vertex(other).thread);
        let at = time::moment(edge.to_time, 1_000);
        let what = crate::frames::call_on(Some(edge.kind.name()), Some(&object));
        let text = format!("  {at} {arrow} {who}  {what}  {how}");
        Row { look, text, about: About::Edge(e, other) }
    };
    let incoming = r.graph.incoming(id);
    if incoming.len() > 0 {
        out.push(head(format!("made to go on by ({})", incoming.len())));
        out.extend(incoming.take(MANY).map(|e| line(e, r.graph.edge(e).from, "from")));
    }
    let outgoing = r.graph.outgoing(id);
    if outgoing.len() > 0 {
        out.push(head(format!("made go on ({})", outgoing.len())));
        out.extend(outgoing.take(MANY).map(|e| line(e, r.graph.edge(e).to, "to")));
    }
    let v = r.graph.vertex(id);
    let holds: Vec<_> = r.graph.holds(v.thread, v.start..v.woken.saturating_add(1)).take(MANY).collect();
    if !holds.is_empty() {
        out.push(head(format!("who holds what it waits for ({})", holds.len())));
        out.extend(holds.iter().map(|h| Row {
            look: Look::WeakEdge,
            text: format!(
                "  {} {} {} {}",
                time::moment(h.time, 1_000),
                r.thread_name(h.holder),
                relation(h.relation),
                r.object(h.object)
            ),
            about: About::Moment(h.holder, h.time),
        }));
    }
    let did = r
        .graph
        .changed_files()
        .iter()
        .filter(|h| h.holder == v.thread && (v.start..=v.end).contains(&h.time));
    let did: Vec<_> = did.take(MANY).collect();
    if !did.is_empty() {
        out.push(head(format!("files that others waited for ({})", did.len())));
        out.extend(did.iter().map(|h| Row {
            look: Look::WeakEdge,
            text: format!(
                "  {} {} {}, asked for by {}",
                time::moment(h.time, 1_000),
                relation(h.relation),
                r.object(h.object),
                r.thread_name(h.subject)
            ),
            about: About::Moment(h.subject, h.time),
        }));
    }
}

fn relation(relation: pg_event::Relation) -> &'static str {
    use pg_event::Relation as R;
    match relation {
        R::Reads => "reads from",
        R::Writes => "writes to",
        R::Peer => "has the other end of",
        R::Listens => "listens on",
        R::Owns => "owns",
        R::ChildOf => "is the child waited for:",
        R::Traces => "traces it",
        R::Serves => "serves",
        R::Shares => "has the inherited or shared descriptor of",
        R::Reader => "waits for a reader of",
        R::Missing => "has not come to",
        R::Maps => "has mapped",
        R::Makes => "made",
        R::Removes => "removed",
    }
}

fn stacks(r: &Recording, v: &pg_graph::Vertex, out: &mut Vec<Row>) {
    for (name, stack) in [("kernel stack", v.kernel_stack), ("user stack", v.user_stack)] {
        let frames = r.frames(stack);
        if frames.is_empty() {
            continue;
        }
        let cut = if r.truncated(stack) { ", not to its end" } else { "" };
        out.push(head(format!("{name} while it waited{cut}")));
        out.extend(frames.into_iter().take(MANY).map(|f| text(Look::Text, format!("  {f}"))));
    }
}

/// Functions on the CPU: share by themselves and with what they call.
fn profile(r: &Recording, v: &pg_graph::Vertex, out: &mut Vec<Row>) {
    let samples = r.graph.samples_of(v.thread, v.run..v.end.saturating_add(1));
    if samples.is_empty() {
        return;
    }
    // By itself, with what it calls, and how far from the innermost function it was, added up.
    let mut by_function: HashMap<String, (u64, u64, u64)> = HashMap::new();
    let mut whole = 0;
    for s in samples.iter().take(20_000) {
        whole += s.weight;
        let frames = r.frames(s.kernel_stack).into_iter().chain(r.frames(s.user_stack));
        let mut seen = Vec::new();
        for (depth, f) in frames.enumerate() {
            if seen.contains(&f) {
                continue;
            }
            let entry = by_function.entry(f.clone()).or_default();
            entry.0 += if depth == 0 { s.weight } else { 0 };
            entry.1 += s.weight;
            entry.2 = entry.2.saturating_add(s.weight.saturating_mul(depth as u64));
            seen.push(f);
        }
    }
    let mut all: Vec<_> = by_function.into_iter().collect();
    // Functions that were there all the time come in the order of the stack, the innermost first.
    let depth = |(own, total, depths): (u64, u64, u64)| (total, own, Reverse(depths / total.max(1)));
    all.sort_by(|a, b| depth(b.1).cmp(&depth(a.1)).then_with(|| a.0.cmp(&b.0)));
    out.push(head(format!("on the CPU ({} samples): with callees, itself", samples.len())));
    out.extend(loops(r, samples, whole));
    out.extend(all.into_iter().take(30).map(|(f, (own, total, _))| {
        text(
            Look::Text,
            format!("  {:>6} {:>6}  {f}", time::percent(total, whole), time::percent(own, whole)),
        )
    }));
}

/// What the small loops do that it was in for a tenth of the time and more, as their code tells.
fn loops(r: &Recording, samples: &[SamplePoint], whole: u64) -> Vec<Row> {
    let mut by_turn: HashMap<&LoopTurn, u64> = HashMap::new();
    for s in samples.iter().take(20_000).filter(|s| s.kernel_stack.is_none()) {
        *by_turn.entry(r.catalog.turn_of(s.user_stack).0).or_default() += s.weight;
    }
    let mut all: Vec<_> = by_turn.into_iter().filter(|x| x.1.saturating_mul(10) >= whole).collect();
    all.sort_by_key(|x| Reverse(x.1));
    let words = |(turn, weight): (&LoopTurn, u64)| {
        let what = match turn {
            LoopTurn::Unknown => return None,
            LoopTurn::Works => "computes: each turn goes on from the last".into(),
            LoopTurn::Endless => "no instruction leads out of".into(),
            LoopTurn::Asks(of) if of.is_empty() => "asks what only another thread changes".into(),
            LoopTurn::Asks(of) => {
                format!("asks {}, which only another thread changes", clean_to(&of.join(", "), 120))
            }
        };
        Some(text(Look::Text, format!("  {:>6}  in a loop that {what}", time::percent(weight, whole))))
    };
    all.into_iter().filter_map(words).collect()
}

/// The unit of work that a thread is in, if a guard recorded units, and who handed it on.
fn unit(r: &Recording, thread: ThreadId, time: Ns) -> Option<String> {
    if r.graph.units().is_empty() {
        return None;
    }
    let joined = &r.graph.recorded(&r.catalog).joined;
    let u = joined.units[joined.unit_at(thread, time)?];
    let by = r.graph.handed_on(&r.catalog, thread, time);
    let by = by.map_or_else(String::new, |h| format!(", {}", h.words(&r.catalog)));
    Some(format!("in a unit of {}{by}", r.unit_type(UnitTypeId(u.kind))))
}

/// An event in words.
pub fn event(r: &Recording, e: &Event) -> String {
    let on = |o: pg_event::ObjectId| {
        let name = r.object(o);
        if name.is_empty() { name } else { format!(" {name}") }
    };
    match e.kind {
        Kind::OffCpu(o) => {
            let length = time::length(e.time.saturating_sub(o.start));
            let call = o.syscall.name().map_or_else(String::new, |n| format!(" in {n}"));
            let by = match (o.waker.some(), o.waker_context) {
                (Some(w), Context::Task) => format!(", woken by {}", r.thread_name(w)),
                (Some(w), Context::NetRx) => format!(", woken by a packet (CPU of {})", r.thread_name(w)),
                (_, Context::Timer) => ", woken by a timer".into(),
                (Some(_), _) => ", woken by an interrupt".into(),
                (None, _) => String::new(),
            };
            if o.blocked() {
                format!("off the CPU {length}{call}{}{by}", on(o.object))
            } else {
                format!("without a CPU {length}")
            }
        }
        Kind::Ipc(u) => {
            let way = if u.direction == Direction::Send { "sends" } else { "receives" };
            let times = if u.count > 1 { format!(" in {} calls", u.count) } else { String::new() };
            format!("{way} {} B{times}{}", u.bytes, on(u.object))
        }
        Kind::Syscall(s) => {
            let name = s.nr.name().unwrap_or_default();
            let times = if s.count > 1 { format!(" {} times", s.count) } else { String::new() };
            format!("{name}{times} = {}{}", s.result, on(s.object))
        }
        Kind::Sample(s) => {
            let stack = if s.user_stack.is_some() { s.user_stack } else { s.kernel_stack };
            format!("on the CPU in {}", r.stack_line(stack, "\u{2190}", 3))
        }
        Kind::Spawn { child } => format!("creates {}", r.thread_name(child)),
        Kind::Exec => "executes another program".into(),
        Kind::Exit { status } => format!("ends, {}", exit_words(status)),
        Kind::Signal { target, signal } => {
            format!("sends {} to {}", signal_name(u32::from(signal)), r.thread_name(target))
        }
        Kind::Hold(h) => {
            format!("{}{}, which {} waits for", relation(h.relation), on(h.object), r.thread_name(h.subject))
        }
        Kind::Work(w) => {
            let by = if w.requester.is_some() { r.thread_name(w.requester) } else { "a timer or interrupt" };
            format!("executes{}, asked for by {by}", on(w.object))
        }
        Kind::DataFlag { object, value, write, .. } => {
            format!("{} data flag{}: {value}", if write { "writes" } else { "reads" }, on(object))
        }
        Kind::Burst(b) => {
            let told = crate::steps::print::summary(u64::from(b.steps), (b.start, e.time), b.how);
            format!("followed: {told}")
        }
        Kind::UnitBoundary { begin, .. } => if begin { "a unit begins" } else { "a unit ends" }.into(),
        Kind::Violation(v) => {
            let (elapsed, threshold) = (time::length(v.elapsed), time::length(v.threshold));
            format!(
                "its unit ({}) takes too long: {elapsed} by now, allowed are {threshold}",
                r.unit_type(v.unit_type)
            )
        }
        Kind::Unserved(u) => {
            let length = time::length(u.until.saturating_sub(u.since));
            let listens = r.catalog.object(u.object).is_some_and(|o| o.peer == 0);
            if listens {
                let many = time::counted(u.bytes as usize, "connection");
                format!("has {many} waiting{}, not accepted for {length}", on(u.object))
            } else {
                format!("has {} B waiting{}, not received for {length}", u.bytes, on(u.object))
            }
        }
        Kind::Unheard { .. } => "messages were not recorded until here".into(),
        Kind::Mark { number } => format!("mark {number}"),
        Kind::Lost { count, .. } => format!("{count} events lost"),
        _ => "an event of a newer pg-tui".into(),
    }
}
