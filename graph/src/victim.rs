//! Victims: suspicious vertices, worst first.

use crate::alike::Alike;
use crate::class::{
    WaitClass, asked, class, connected, is_schedulers_own, joins, of_runtimes_own, only_listens, owed, vague,
    waits_for_postgres_lock,
};
use crate::diagnose::left_alone;
use crate::episode::{Episode, episodes, in_small_pieces, times_put_off, typical};
use crate::front::{LOOKED_AT, seen_first};
use crate::looks::Purpose;
use crate::profile::profile;
use crate::python::takes_from_queue;
use crate::words::{clean, on_what, percent, short_who, unit_type};
use crate::yields::yield_loop;
use crate::{
    BlockType, EventGraph, Retries, UnservedFact, Vertex, VertexId, ViolationFact, main_object, violations,
    waits_on,
};
use crate::{refused, unserved};
use pg_event::{Catalog, Ns, ObjectId, Relation, ThreadId};

/// What counts as suspicious.
#[derive(Clone, PartialEq, Debug)]
pub struct VictimOptions {
    /// Shortest episode of interest, ns.
    pub min: Ns,
    /// Also threads outside the focus.
    pub everyone: bool,
    /// Also waits in which a thread just had nothing to do.
    pub innocents: bool,
    /// Most victims listed.
    pub limit: usize,
}

impl Default for VictimOptions {
    fn default() -> Self {
        Self { min: 200_000_000, everyone: false, innocents: false, limit: 200 }
    }
}

/// A suspicious stretch of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct Victim {
    /// Its last vertex.
    pub vertex: VertexId,
    /// Its first vertex.
    pub first: VertexId,
    /// The thread.
    pub thread: ThreadId,
    /// Which kind of hang.
    pub block_type: BlockType,
    /// Begin.
    pub start: Ns,
    /// Length, ns.
    pub duration: Ns,
    /// What it waited on, by the words of the report; `None` when it ran.
    pub waits_on: Option<String>,
    /// The object it waited for.
    pub object: Option<ObjectId>,
    /// Who woke it in the end, or was found to hold what it waited for.
    pub suspects: Vec<ThreadId>,
    /// Length in seconds, weighted by how unusual such a wait is.
    pub score: f64,
    /// One line for lists.
    pub summary: String,
    /// It was found, or ranks where it does, since this was not served meanwhile.
    pub unserved: Option<UnservedFact>,
    /// The unit of work that took too long, when it is one; it is found by that and not by its length.
    pub violation: Option<ViolationFact>,
    /// The episode; of a slow unit all of it, with the waits that it spent most on beyond what is usual.
    pub episode: Episode,
}

impl Victim {
    /// What hung, as a person reads it: `slow unit`, `long wait`, ...
    pub fn words(&self) -> &'static str {
        if self.violation.is_some() { SLOW_UNIT } else { self.block_type.words() }
    }

    /// Had it begun before the recording, and was it not over at the end of that?
    pub fn cut(&self, graph: &EventGraph) -> (bool, bool) {
        let waits = self.episode.key.is_some();
        // What ran began when the wait before it was over.
        (waits && graph.vertex(self.first).begun_before, waits && graph.vertex(self.vertex).open)
    }

    /// End, ns.
    pub fn end(&self) -> Ns {
        self.start + self.duration
    }
}

/// What a unit that took too long is called.
pub(crate) const SLOW_UNIT: &str = "slow unit";

/// Below this weight a stretch is an innocent one.
pub(crate) const INNOCENT: f64 = 0.06;

/// Weight from which a wait is one that a person would complain about: a server that waits for the next request of its
/// client is none.
pub(crate) const COMPLAINT: f64 = 0.65;

/// The suspicious episodes of the focus (of everybody when there is no focus), worst first.
pub fn victims(graph: &EventGraph, catalog: &Catalog, options: &VictimOptions) -> Vec<Victim> {
    victims_of_all(graph, catalog, options).0
}

/// The same, and how many there are with those that the limit leaves out.
pub fn victims_of_all(
    graph: &EventGraph,
    catalog: &Catalog,
    options: &VictimOptions,
) -> (Vec<Victim>, usize) {
    let focus = has_focus(catalog, options);
    let mut all = candidates(graph, catalog, options, |t| in_view(catalog, focus, t), focus);
    unserved::prefer(graph, catalog, &mut all);
    if !options.innocents {
        all.retain(|(_, weight)| *weight >= INNOCENT);
    }
    let total = all.len();
    (finish(graph, catalog, all, options.limit, false), total)
}

pub(crate) fn has_focus(catalog: &Catalog, options: &VictimOptions) -> bool {
    !options.everyone && catalog.threads.iter().any(|t| t.focus)
}

pub(crate) fn in_view(catalog: &Catalog, focus: bool, thread: ThreadId) -> bool {
    !focus || catalog.thread(thread).is_some_and(|t| t.focus)
}

/// All suspicious episodes, not told in words yet: a long recording has hundreds of thousands. `meant`: a person has
/// said who is looked at.
pub(crate) fn candidates(
    graph: &EventGraph,
    catalog: &Catalog,
    options: &VictimOptions,
    wanted: impl Fn(ThreadId) -> bool,
    meant: bool,
) -> Vec<(Victim, f64)> {
    let mut out = Vec::new();
    for thread in graph.threads() {
        let Some(t) = catalog.thread(thread) else { continue };
        if t.kernel || t.own || !wanted(thread) {
            continue;
        }
        let all = episodes(graph, catalog, thread, options.min);
        let alike = Alike::of(&all);
        for e in &all {
            let mut w = weight(graph, catalog, e, &alike);
            let mut victim = bare(e, w);
            if sits(graph, e) {
                victim.score *= if meant { SITS_IN_FOCUS } else { SITS };
                w *= if meant { 1.0 } else { SITS };
            }
            if let Some((_, most)) = turning(graph, catalog, e) {
                victim.score = victim.score.min(most as f64 / 1e9 * w);
            }
            out.push((victim, w));
        }
    }
    violations::add(graph, catalog, &mut out, wanted);
    out
}

/// Of threads without any such episode, transfers that took most of their time in short pieces.
pub(crate) fn in_pieces(
    graph: &EventGraph,
    catalog: &Catalog,
    options: &VictimOptions,
    wanted: impl Fn(ThreadId) -> bool,
) -> Vec<(Victim, f64)> {
    const WEIGHT: f64 = COMPLAINT;
    let asked = |t: &ThreadId| catalog.thread(*t).is_some_and(|t| !t.kernel && !t.own) && wanted(*t);
    let all = graph.threads().filter(asked);
    let all = all.filter_map(|t| in_small_pieces(graph, catalog, t, options.min));
    all.map(|e| (bare(&e, WEIGHT), WEIGHT)).collect()
}

pub(crate) fn finish(
    graph: &EventGraph,
    catalog: &Catalog,
    mut all: Vec<(Victim, f64)>,
    limit: usize,
    named: bool,
) -> Vec<Victim> {
    let by_score = |a: &(Victim, f64), b: &(Victim, f64)| {
        let (a, b) = (&a.0, &b.0);
        b.score.total_cmp(&a.score).then(a.start.cmp(&b.start)).then(a.thread.cmp(&b.thread))
    };
    all.sort_by(by_score);
    all.truncate(limit.max(LOOKED_AT));
    for (v, _) in &mut all {
        tell(graph, catalog, v);
    }
    seen_first(graph, catalog, &mut all, named);
    all.sort_by(by_score);
    all.into_iter().take(limit).map(|(v, _)| v).collect()
}

/// The victim that a vertex belongs to: its episode, whatever its length.
pub fn victim_of(graph: &EventGraph, catalog: &Catalog, vertex: VertexId) -> Option<Victim> {
    let v = graph.vertex(vertex);
    if v.thread.is_none() {
        return None;
    }
    let all = episodes(graph, catalog, v.thread, 0);
    let waits = v.waited() >= v.ran();
    let fits = |e: &&Episode| e.first <= vertex && vertex <= e.last && e.key.is_some() == waits;
    let e = all.iter().filter(fits).max_by_key(|e| e.duration())?;
    let mut victim = bare(e, 1.0);
    tell(graph, catalog, &mut victim);
    Some(victim)
}

/// So many waits that end by their time-out are turns.
const TURNS: usize = 5;

/// How unusual: 1 for a wait that somebody surely did not want, 0 for an idle loop.
fn weight(graph: &EventGraph, catalog: &Catalog, e: &Episode, alike: &Alike) -> f64 {
    let Some(key) = e.key else { return 0.7 };
    // Somebody said what it is to be tried for.
    if e.tries > 0 {
        let in_vain = if forks(graph, catalog, e) { 0.5 } else { 0.8 };
        return turning(graph, catalog, e).map_or(in_vain, |t| t.0);
    }
    let v = graph.vertex(typical(graph, catalog, e.first, e.last));
    let class = class(&v, catalog);
    let sleeps = matches!(class, WaitClass::Sleep | WaitClass::EventLoop) && e.waits > 1 && v.timed_out;
    let mut w = match class {
        // It waits for goroutines; which of these hang, and for what, is not seen in it.
        _ if is_schedulers_own(&v, catalog) => {
            if catalog.is_first(e.thread) {
                0.1
            } else {
                0.07
            }
        }
        _ if of_runtimes_own(&v, catalog) => 0.02,
        // It tries something between its sleeps, in vain.
        _ if sleeps && refused::between_sleeps(graph, catalog, e.thread, (e.start, e.end)).is_some() => 0.8,
        // Whoever joins a thread sees only that thread's hang.
        WaitClass::Lock if joins(&v, catalog) => 0.4,
        WaitClass::Lock if at_barrier(graph, e) => 0.6,
        WaitClass::Lock if vague(&v, catalog) && in_a_pool(graph, catalog, e) => 0.05,
        // A thread of a runtime that parks until there is work looks the same.
        WaitClass::Lock if vague(&v, catalog) && !catalog.is_first(e.thread) => 0.6,
        WaitClass::Traced | WaitClass::Stopped | WaitClass::Lock | WaitClass::Room => 0.9,
        WaitClass::Disk => 0.85,
        WaitClass::Channel if asked(graph, catalog, e.first) => 1.0,
        // It reads what the kernel tells every now and then: nothing that could come from anybody.
        WaitClass::Channel | WaitClass::Other if e.waits >= TURNS && v.object.is_none() && !v.open => 0.05,
        WaitClass::Channel => 0.6,
        // Nobody can wake it.
        WaitClass::Condition if !v.timed_out && left_alone(graph, catalog, &v, e.end) => 0.9,
        // A pool's workers wait side by side for work; one that waits alone may wait for a result.
        WaitClass::Condition if in_a_pool(graph, catalog, e) || takes_from_queue(&v, catalog) => 0.05,
        // It turns every now and then all the time, woken by nobody: what a runtime has for its housekeeping.
        WaitClass::Condition if e.waits >= TURNS && v.timed_out && !catalog.is_first(e.thread) => 0.1,
        WaitClass::Condition if never_had_work(graph, catalog, e) => 0.07,
        WaitClass::Condition => 0.4,
        // It wants to send, and nobody takes away.
        WaitClass::Other if v.syscall.is_any(&["msgsnd", "mq_timedsend"]) => 0.9,
        WaitClass::Other => 0.5,
        // Whoever waits for a child sees only the child's hang.
        WaitClass::Child => 0.12,
        // It sleeps between tries for a lock: somebody was found to have that.
        WaitClass::Sleep if kept_out(graph, e.thread, (e.start, e.end)) => 0.7,
        WaitClass::Sleep if pauses_a_loop(graph, catalog, e) => 0.02,
        // Beside the first thread of its process it may keep house: who waits for somebody is meant before it.
        WaitClass::Sleep if e.block_type() == BlockType::RepeatedYield => {
            if catalog.is_first(e.thread) {
                0.5
            } else {
                0.35
            }
        }
        WaitClass::Sleep => 0.1,
        // It listens to be told by other sessions that the lock is free.
        WaitClass::EventLoop if waits_for_postgres_lock(&v, catalog) => 0.9,
        WaitClass::EventLoop if asked(graph, catalog, e.first) => 0.3,
        // It asked, and is told by a signal that there is an answer.
        WaitClass::Signal if !owed(graph, catalog, e.thread, e.start).is_empty() => 0.3,
        WaitClass::EventLoop | WaitClass::Terminal | WaitClass::Signal => 0.04,
    };
    // A worker that waits for work asks a queue again and again as well.
    let within = (e.start, e.end);
    let put_off = || e.waits >= TURNS && times_put_off(graph, catalog, &v, within) >= TURNS;
    if alike.idles(key, e.duration()) || put_off() {
        w *= 0.3;
    }
    w
}

/// Was somebody found who has not come to the barrier that it waits at?
fn at_barrier(graph: &EventGraph, e: &Episode) -> bool {
    graph.holds(e.thread, e.start..e.end.saturating_add(1)).any(|h| h.relation == Relation::Missing)
}

/// How unusual a wait from before the recording to its end is, of all such waits: a daemon that sits there, unless nothing
/// else is found or whoever recorded meant that one.
const SITS: f64 = 0.4;
/// The same of a thread that a person has chosen: who records what hangs already means such a wait as much as one that
/// ended.
const SITS_IN_FOCUS: f64 = 0.7;

fn sits(graph: &EventGraph, e: &Episode) -> bool {
    let waits = e.key.is_some() && e.tries == 0;
    waits && graph.vertex(e.first).begun_before && graph.vertex(e.last).open
}

/// Does it wait in an event loop with connections that it made, while it accepts none? Over memory that both share it may
/// have asked what no message tells: where nothing else is to be said of whom a person means, it need not be idle.
pub(crate) fn connected_only(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let last = graph.vertex(v.vertex);
    let members = || catalog.object(last.object).map_or(&[][..], |o| &o.members).iter().copied();
    v.episode.key.is_some()
        && class(&last, catalog) == WaitClass::EventLoop
        && members().any(|m| connected(catalog, m))
        && !members().filter_map(|m| catalog.object(m)).any(|o| only_listens(catalog, o))
}

/// How unusual a loop of children is in which nothing fails, and how much of its time counts: that a job is done every
/// now and then is no hang, however long it goes on.
fn turning(graph: &EventGraph, catalog: &Catalog, e: &Episode) -> Option<(f64, Ns)> {
    const S: Ns = 1_000_000_000;
    let r = retries_in(graph, e).filter(|r| !r.failing)?;
    Some(match r.purpose(graph, catalog) {
        Purpose::Looks(_) if r.pauses => (0.4, 30 * S),
        Purpose::Looks(_) | Purpose::Unknown => (0.15, 20 * S),
        Purpose::Job => (0.07, 10 * S),
    })
}

/// Are the children of a loop copies of their parent? Those of a server may end with an error each and be no tries of it.
fn forks(graph: &EventGraph, catalog: &Catalog, e: &Episode) -> bool {
    let own = catalog.process_of(e.thread);
    let child = retries_in(graph, e).and_then(|r| catalog.process(*r.tries.last()?));
    own.zip(child)
        .is_some_and(|(p, c)| c.cmdline().is_empty() && p.name == c.name || p.cmdline() == c.cmdline())
}

/// Was another one found to have a lock that the thread tried for meanwhile?
pub(crate) fn kept_out(graph: &EventGraph, thread: ThreadId, (start, end): (Ns, Ns)) -> bool {
    graph.holds(thread, start..end).any(|h| h.relation.has_lock() && h.holder != thread)
}

/// Is it the sleep of a child by which a loop of its parent lets time pass? The loop is told instead.
fn pauses_a_loop(graph: &EventGraph, catalog: &Catalog, e: &Episode) -> bool {
    let parent = catalog.process_of(e.thread).map(|p| p.parent).filter(|p| p.is_some());
    parent.filter(|_| !graph.retries.is_empty()).is_some_and(|p| {
        let mut of = graph.threads_of(p).flat_map(|t| graph.retries_of(t));
        of.any(|r| r.start <= e.start && e.end <= r.end)
    })
}

/// The loop of children that an episode is.
fn retries_in<'a>(graph: &'a EventGraph, e: &Episode) -> Option<&'a Retries> {
    let within = |r: &&Retries| r.start < e.end && e.start < r.end;
    graph.retries_of(e.thread).iter().filter(|_| e.tries > 0).find(within)
}

/// Do other threads of its process wait for the same at the same time?
fn in_a_pool(graph: &EventGraph, catalog: &Catalog, e: &Episode) -> bool {
    let Some(t) = catalog.thread(e.thread).filter(|_| !catalog.is_first(e.thread)) else { return false };
    let v = graph.vertex(e.last);
    let (middle, object) = (e.start + e.duration() / 2, v.object);
    object.is_some()
        && graph.threads_of(t.process).any(|t| {
            t != e.thread
                && graph.vertex_at(t, middle).map(|o| graph.vertex(o)).is_some_and(|o| {
                    o.object == object && o.start <= middle && middle <= o.woken && o.syscall == v.syscall
                })
        })
}

/// Is the wait all that a thread ever did, from its birth to its end, in a process whose main thread went on meanwhile? Servers
/// start threads for work that may come.
fn never_had_work(graph: &EventGraph, catalog: &Catalog, e: &Episode) -> bool {
    const BRIEF: Ns = 50_000_000;
    let Some(t) = catalog.thread(e.thread).filter(|_| !catalog.is_first(e.thread)) else { return false };
    let born = t.start > 0 && t.start + BRIEF >= e.start && e.waits == 1;
    let last = graph.next(e.last).is_none_or(|v| graph.vertex(v).end <= e.end + BRIEF);
    let main = graph.threads_of(t.process).find(|t| catalog.is_first(*t));
    let goes_on = |main: ThreadId| {
        let half = e.duration() / 2;
        let covers = |v: &Vertex| v.woken.min(e.end).saturating_sub(v.start.max(e.start)) > half;
        let lives = graph.exited(main).is_none_or(|x| x.0 + BRIEF >= e.end);
        lives && graph.vertex_at(main, e.start + half).is_some_and(|v| !covers(&graph.vertex(v)))
    };
    born && last && main.is_some_and(goes_on)
}

/// An episode as a victim that [`tell`] has not been asked about yet.
pub(crate) fn bare(e: &Episode, weight: f64) -> Victim {
    Victim {
        vertex: e.last,
        first: e.first,
        thread: e.thread,
        block_type: e.block_type(),
        start: e.start,
        duration: e.duration(),
        waits_on: None,
        object: None,
        suspects: Vec::new(),
        score: e.duration() as f64 / 1e9 * weight,
        summary: String::new(),
        unserved: None,
        violation: None,
        episode: *e,
    }
}

/// Does it sleep again and again and try the same in between, in vain? That is no long wait, however long each sleep.
fn tries_between_sleeps(graph: &EventGraph, catalog: &Catalog, e: &Episode, v: &Vertex) -> bool {
    let within = (e.start, e.end);
    e.key.is_some()
        && e.waits > 2
        && class(v, catalog) == WaitClass::Sleep
        && (kept_out(graph, e.thread, within)
            || refused::between_sleeps(graph, catalog, e.thread, within).is_some())
}

/// Tell what it waited for and who is suspected of it.
pub(crate) fn tell(graph: &EventGraph, catalog: &Catalog, victim: &mut Victim) {
    let e = victim.episode;
    if e.key.is_none() {
        let spans = [(e.start, e.end)];
        let p = profile(graph, catalog, e.thread, &spans);
        if yield_loop(graph, catalog, e.thread, &spans, &p).is_some() {
            victim.block_type = BlockType::RepeatedYield;
        }
    }
    let v = graph.vertex(e.last);
    if tries_between_sleeps(graph, catalog, &e, &v) {
        victim.block_type = BlockType::RepeatedYield;
    }
    let block_type = victim.block_type;
    let mut on = None;
    let suspects = &mut victim.suspects;
    if e.key.is_some() {
        on = waits_on(&v, catalog).map(str::to_owned);
        victim.object = main_object(&v, catalog);
        if !v.timed_out
            && let Some(edge) = graph.waking(e.last)
        {
            suspects.push(graph.vertex(graph.edge(edge).from).thread);
        }
        for h in graph.holds(e.thread, e.start..e.end.saturating_add(1)) {
            if !suspects.contains(&h.holder) && h.holder != e.thread {
                suspects.push(h.holder);
            }
        }
    } else {
        suspects.push(e.thread);
    }
    let label = victim.object.and_then(|o| catalog.object(o)).map(|o| clean(&o.label(), 60));
    let summary = match (&on, e.key) {
        _ if e.tries > 0 && retries_in(graph, &e).is_none_or(|r| r.failing) => {
            format!("{}, {} children failed", block_type.words(), e.tries)
        }
        _ if e.tries > 0 => format!("{}, {} turns", block_type.words(), e.tries),
        (_, None) => {
            format!("{}, {} of it on the CPU", block_type.words(), percent(e.ran, e.duration()))
        }
        (Some(on), _) => format!("{} on {}", block_type.words(), on_what(Some(on), label.as_deref())),
        (None, _) => block_type.words().to_owned(),
    };
    victim.waits_on = on;
    let summary = match &victim.violation {
        Some(v) => format!("{SLOW_UNIT} ({}), {}", unit_type(catalog, v.unit_type), summary.trim_end()),
        None => summary,
    };
    victim.summary = format!("{}: {}", short_who(catalog, e.thread), summary.trim_end());
}
