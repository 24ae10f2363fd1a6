//! Retry loops made of children: a process (a shell, most often) that runs a program, sees it fail, waits for a
//! moment and runs it again. The repeated yield of the paper (section 2.2), in which the question is put by a child
//! and the answer is its exit status. Or nothing fails: the shell sleeps by a child, and looks itself whether it may go
//! on, or the child's success says that it may not (`looks.rs`).

use crate::diagnose::main_thread;
use crate::refused::{self, Evidence};
use crate::{EdgeKind, EventGraph, looks};
use pg_event::{Catalog, Ns, Process, ProcessId, ThreadId};
use std::collections::HashMap;

/// Least tries in vain.
const LEAST: usize = 3;
/// Least turns where nothing fails.
const LEAST_SAME: usize = 4;
/// Most other children between two tries.
const BETWEEN: usize = 8;

/// Equal children one after another, which all failed, or between which there are pauses; the same things done in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retries {
    /// The thread that started them.
    pub thread: ThreadId,
    /// When the first one began, ns.
    pub start: Ns,
    /// When the last child of the loop ended: one that failed, one that was run in between, or the one that
    /// succeeded.
    pub end: Ns,
    /// The processes that were equal, by time.
    pub tries: Vec<ProcessId>,
    /// They failed. Else they succeeded each time, and that did not end the loop.
    pub failing: bool,
    /// They only slept: the pauses of the loop are all that is seen of it.
    pub pauses: bool,
    /// CPU time of the children and of the thread, ns; known where nothing failed.
    pub(crate) worked: Ns,
    /// The process that was run last between two tries: a sleep, most often.
    pub between: Option<ProcessId>,
}

/// A child of one process.
struct Kid<'a> {
    id: ProcessId,
    row: &'a Process,
}

impl Kid<'_> {
    fn failed(&self) -> bool {
        self.row.exit_status.is_some_and(|s| s != 0)
    }

    /// What it was run as, all arguments included: to look at one file after another is work.
    fn line(&self) -> &str {
        let line = self.row.cmdline();
        if line.is_empty() { &self.row.name } else { line }
    }
}

/// A loop under construction: places among the children of one process.
#[derive(Default)]
struct Run {
    tries: Vec<usize>,
    /// What was run between the first two tries.
    between: Option<(usize, usize)>,
    failing: bool,
}

impl Run {
    fn new(failed: bool, at: usize) -> Self {
        Self { tries: vec![at], between: None, failing: failed }
    }

    fn counts(&self) -> bool {
        self.tries.len() >= if self.failing { LEAST } else { LEAST_SAME }
    }
}

impl EventGraph {
    /// The retry loops of a thread, by time.
    pub fn retries_of(&self, thread: ThreadId) -> &[Retries] {
        let all = &self.retries;
        let from = all.partition_point(|r| r.thread < thread);
        let to = all.partition_point(|r| r.thread <= thread);
        &all[from..to]
    }
}

/// All retry loops of a recording, by thread and time.
pub(crate) fn find(g: &EventGraph, c: &Catalog) -> Vec<Retries> {
    let mut kids: HashMap<ProcessId, Vec<Kid<'_>>> = HashMap::new();
    for (i, row) in c.processes.iter().enumerate() {
        if row.parent.is_some() && row.start > 0 && !row.own && !row.kernel {
            kids.entry(row.parent).or_default().push(Kid { id: ProcessId(i as u32), row });
        }
    }
    let mut out = Vec::new();
    for (parent, mut kids) in kids {
        if kids.len() < LEAST {
            continue;
        }
        kids.sort_by_key(|k| (k.row.start, k.id));
        let mut found: Vec<Retries> =
            runs(&kids).iter().filter_map(|r| retries(g, c, parent, &kids, r)).collect();
        // Of loops that are one (two programs fail in each turn) the one that lasted longest, and what asks before
        // what lets time pass.
        found.sort_by_key(|r| (!r.failing, r.pauses, std::cmp::Reverse(r.end - r.start), r.start));
        let mut kept: Vec<Retries> = Vec::new();
        for r in found {
            if kept.iter().all(|k| r.end <= k.start || k.end <= r.start) {
                kept.push(r);
            }
        }
        out.extend(kept);
    }
    out.sort_by_key(|r| (r.thread, r.start));
    out
}

/// Runs of equal failures, or of equal successes, with the same in between.
fn runs(kids: &[Kid<'_>]) -> Vec<Run> {
    let mut open: HashMap<&str, Run> = HashMap::new();
    let mut out = Vec::new();
    let names = |(a, b): (usize, usize)| kids[a..b].iter().map(|k| k.row.name.as_str());
    let lines = |(a, b): (usize, usize)| kids[a..b].iter().map(Kid::line);
    for (i, k) in kids.iter().enumerate() {
        // How one ends that has not ended yet is not known.
        if k.row.exit_status.is_none() {
            continue;
        }
        let failed = k.failed();
        let Some(run) = open.get_mut(k.line()) else {
            open.insert(k.line(), Run::new(failed, i));
            continue;
        };
        let gap = (run.tries.last().map_or(i, |l| l + 1), i);
        // Where nothing fails, to do the same with one thing after another is work.
        let alike = |b| if failed { names(b).eq(names(gap)) } else { lines(b).eq(lines(gap)) };
        // Who was started while the last one still ran (workers of a server) is no new try.
        let last = run.tries.last().map(|l| &kids[*l]);
        if last.is_some_and(|l| l.row.end.is_none_or(|end| end > k.row.start)) {
            continue;
        }
        let same = gap.1 - gap.0 <= BETWEEN && run.between.is_none_or(alike);
        if failed == run.failing && same {
            run.between = run.between.or(Some(gap));
            run.tries.push(i);
            continue;
        }
        // It went on, or is another loop.
        out.push(std::mem::replace(run, Run::new(failed, i)));
    }
    out.extend(open.into_values());
    out.retain(Run::counts);
    out
}

/// The loop that a run is, if its parent did nothing else meanwhile.
fn retries(g: &EventGraph, c: &Catalog, parent: ProcessId, kids: &[Kid<'_>], run: &Run) -> Option<Retries> {
    let (first, last) = (*run.tries.first()?, *run.tries.last()?);
    let thread = starter(g, c, parent, kids[first].id)?;
    let between = run.between.unwrap_or((last, last));
    // After the last failure: what is run in between, and the try that was none in vain.
    let mut turn = kids[between.0..between.1].iter().map(|k| k.row.name.as_str());
    let mut end = last;
    for (i, k) in kids.iter().enumerate().skip(last + 1) {
        match turn.next() {
            Some(name) if name == k.row.name => end = i,
            None if k.line() == kids[last].line() => {
                end = i;
                break;
            }
            _ => break,
        }
    }
    let ends = kids[first..=end].iter().map(|k| k.row.end.unwrap_or(g.duration));
    let (start, end) = (kids[first].row.start, ends.max()?);
    let ran: Ns = g
        .vertices_in(thread, start..end)
        .map(|v| g.vertex(v))
        .map(|v| v.end.min(end).saturating_sub(v.run.max(start)))
        .sum();
    let length = end.saturating_sub(start);
    let between = &kids[between.0..between.1];
    let (mut pauses, mut worked) = (false, 0);
    if !run.failing {
        let slept = |k: &Kid<'_>| looks::only_slept(g, c, k.id);
        pauses = looks::only_slept(g, c, kids[last].id);
        // Without a pause it is work, however often it is done.
        if !pauses && !between.iter().any(slept) && looks::slept(g, c, thread, (start, end)) * 2 < length {
            return None;
        }
        let of_kid =
            |k: &Kid<'_>| g.threads_of(k.id).flat_map(|t| g.vertices_of(t)).map(|v| g.vertex(v).ran());
        worked = ran + kids[first..=last].iter().flat_map(of_kid).sum::<Ns>();
    }
    (ran * 4 <= length).then(|| Retries {
        thread,
        start,
        end,
        tries: run.tries.iter().map(|i| kids[*i].id).collect(),
        failing: run.failing,
        pauses,
        worked,
        between: between.last().map(|k| k.id),
    })
}

/// The thread that started a child; the main one when that was not recorded.
fn starter(g: &EventGraph, c: &Catalog, parent: ProcessId, child: ProcessId) -> Option<ThreadId> {
    let main = main_thread(g, c, child);
    let first = main.and_then(|t| g.vertices_of(t).next());
    let spawn = first.and_then(|v| g.incoming(v).map(|e| g.edge(e)).find(|e| e.kind == EdgeKind::Spawn));
    spawn
        .map(|e| g.vertex(e.from).thread)
        .filter(|t| c.thread(*t).is_some_and(|t| t.process == parent))
        .or_else(|| main_thread(g, c, parent))
}

impl Retries {
    /// How much of the loop these children lived, ns.
    pub(crate) fn tried(&self, c: &Catalog) -> Ns {
        let of = |p: &ProcessId| c.process(*p).map(|p| p.end.unwrap_or(self.end).saturating_sub(p.start));
        self.tries.iter().filter_map(of).sum()
    }

    /// The main threads of these children, by time.
    pub(crate) fn children<'a>(
        &'a self,
        g: &'a EventGraph,
        c: &'a Catalog,
    ) -> impl DoubleEndedIterator<Item = ThreadId> + 'a {
        self.tries.iter().filter_map(|p| main_thread(g, c, *p))
    }

    /// Why the children failed: of their recorded calls that failed, the one that is about what the command line
    /// names, else one that failed since another one has what it wanted.
    pub(crate) fn evidence(&self, g: &EventGraph, c: &Catalog) -> Option<Evidence> {
        refused::most_telling(g, c, self.children(g, c).rev(), (0, Ns::MAX))
    }
}
