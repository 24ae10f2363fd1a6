//! Test vectors of format `pg-vectors/1`: reading, running, comparing.
//! Shared by the test `vectors` and the example `vectors`.

use super::kernel;
use pg_graph::path::{self, Interval, Link, LinkKind, State, Step, Timeline};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

#[derive(Deserialize, Debug)]
struct File {
    format: String,
    kind: String,
    start: Option<String>,
    #[serde(default)]
    worker: Vec<WorkerSpec>,
    #[serde(default)]
    edge: Vec<EdgeSpec>,
    host: Option<String>,
    #[serde(default)]
    event: Vec<kernel::EventSpec>,
    #[serde(default)]
    traces: Vec<String>,
    expect: Expect,
}

#[derive(Deserialize, Debug, Default)]
struct Expect {
    bounded: Option<PathSpec>,
    unbounded: Option<PathSpec>,
    graph: Option<GraphSpec>,
    #[serde(default)]
    critical_path: Vec<PathSpec>,
}

#[derive(Deserialize, Debug)]
struct PathSpec {
    status: String,
    start: Option<String>,
    algorithm: Option<String>,
    path: Option<Vec<StepSpec>>,
}

#[derive(Deserialize, Debug)]
struct GraphSpec {
    #[serde(default)]
    worker: Vec<WorkerSpec>,
    #[serde(default)]
    edge: Vec<EdgeSpec>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct WorkerSpec {
    pub id: String,
    #[serde(default)]
    pub intervals: Vec<IntervalSpec>,
    #[serde(default)]
    pub moments: Vec<u64>,
}

#[derive(Deserialize, Debug, Clone, PartialEq)]
pub struct IntervalSpec {
    pub start: u64,
    pub end: u64,
    pub state: String,
    pub label: Option<String>,
}

#[derive(Deserialize, Debug, Clone, PartialEq)]
pub struct Point {
    pub worker: String,
    pub time: u64,
}

#[derive(Deserialize, Debug, Clone, PartialEq)]
pub struct EdgeSpec {
    pub from: Point,
    pub to: Point,
    pub kind: String,
}

#[derive(Deserialize, Debug, Clone)]
struct StepSpec {
    step: String,
    worker: Option<String>,
    start: Option<u64>,
    end: Option<u64>,
    state: Option<String>,
    label: Option<String>,
    from: Option<Point>,
    to: Option<Point>,
    kind: Option<String>,
}

/// A graph of named workers.
#[derive(Debug, Default, Clone)]
pub struct Graph {
    names: Vec<String>,
    intervals: Vec<Vec<Interval<Option<String>>>>,
    moments: Vec<Vec<u64>>,
    links: HashMap<(usize, u64), Link<usize>>,
}

fn state_of(s: &str) -> Result<State, String> {
    Ok(match s {
        "running" => State::Running,
        "blocked" => State::Blocked,
        "network" => State::Network,
        "timer" => State::Timer,
        "preempted" => State::Preempted,
        "unknown" => State::Unknown,
        _ => return Err(format!("state `{s}` is not of the format")),
    })
}

fn kind_of(s: &str) -> Result<LinkKind, String> {
    Ok(match s {
        "default" => LinkKind::Default,
        "network" => LinkKind::Network,
        "timer" => LinkKind::Timer,
        _ => return Err(format!("edge kind `{s}` is not of the format")),
    })
}

fn state_word(s: State) -> &'static str {
    match s {
        State::Running => "running",
        State::Blocked => "blocked",
        State::Network => "network",
        State::Timer => "timer",
        State::Preempted => "preempted",
        State::Unknown => "unknown",
    }
}

fn kind_word(k: LinkKind) -> &'static str {
    match k {
        LinkKind::Default => "default",
        LinkKind::Network => "network",
        LinkKind::Timer => "timer",
    }
}

impl Graph {
    pub fn new(workers: &[WorkerSpec], edges: &[EdgeSpec]) -> Result<Self, String> {
        let mut g = Self::default();
        for w in workers {
            let mut own = Vec::new();
            for i in &w.intervals {
                if i.start > i.end || own.last().is_some_and(|l: &Interval<_>| l.end > i.start) {
                    return Err(format!("{}: intervals overlap or go backwards at {}", w.id, i.start));
                }
                own.push(Interval {
                    start: i.start,
                    end: i.end,
                    state: state_of(&i.state)?,
                    tag: i.label.clone(),
                });
            }
            // An interval without length is a point.
            own.retain(|i| i.start < i.end);
            g.names.push(w.id.clone());
            g.intervals.push(own);
            g.moments.push(w.moments.clone());
        }
        for e in edges {
            let (from, to) = (g.number(&e.from.worker)?, g.number(&e.to.worker)?);
            let link =
                Link { from: (from, e.from.time), to: (to, e.to.time), kind: kind_of(&e.kind)?, edge: None };
            if link.from.1 > link.to.1 {
                return Err(format!("edge from {}@{} goes back in time", e.from.worker, e.from.time));
            }
            if g.links.insert((to, e.to.time), link).is_some() {
                return Err(format!("two edges enter {}@{}", e.to.worker, e.to.time));
            }
            g.moments[from].push(e.from.time);
            g.moments[to].push(e.to.time);
        }
        Ok(g)
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        self.names.iter().position(|n| n == name).ok_or_else(|| format!("no worker `{name}`"))
    }
}

impl Timeline for Graph {
    type Worker = usize;
    type Tag = Option<String>;

    fn span(&self, w: usize) -> Option<Range<u64>> {
        let own = self.intervals.get(w)?;
        if let (Some(a), Some(b)) = (own.first(), own.last()) {
            return Some(a.start..b.end);
        }
        let moments = &self.moments[w];
        Some(*moments.iter().min()?..*moments.iter().max()?)
    }

    fn before(&self, w: usize, time: u64) -> Option<Interval<Option<String>>> {
        let own = self.intervals.get(w)?;
        let i = own.partition_point(|i| i.start < time).checked_sub(1)?;
        Some(own[i].clone())
    }

    fn entering(&self, w: usize, time: u64) -> Option<Link<usize>> {
        self.links.get(&(w, time)).copied()
    }
}

type Found = Vec<Step<usize, Option<String>>>;

/// A step in a form that can be compared and printed.
#[derive(Clone, PartialEq, Debug)]
enum Plain {
    Interval { worker: String, start: u64, end: u64, state: String, label: Option<String> },
    Edge { from: (String, u64), to: (String, u64), kind: String },
}

impl std::fmt::Display for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interval { worker, start, end, state, label } => {
                write!(f, "{worker} {start}..{end} {state}")?;
                label.as_ref().map_or(Ok(()), |l| write!(f, " ({l})"))
            }
            Self::Edge { from, to, kind } => write!(f, "{}@{} --{kind}--> {}@{}", from.0, from.1, to.0, to.1),
        }
    }
}

/// Join neighbouring equal intervals; an edge within one worker is an interval of its kind.
fn normal(steps: Vec<Plain>) -> Vec<Plain> {
    let mut out: Vec<Plain> = Vec::new();
    for s in steps {
        let s = match s {
            Plain::Edge { from, to, kind } if from.0 == to.0 => {
                Plain::Interval { worker: from.0, start: from.1, end: to.1, state: kind, label: None }
            }
            s => s,
        };
        if let (
            Some(Plain::Interval { worker: w0, end: e0, state: s0, label: l0, .. }),
            Plain::Interval { worker, start, end, state, label },
        ) = (out.last_mut(), &s)
            && (&*w0, *e0, &*s0, &*l0) == (worker, *start, state, label)
        {
            *e0 = *end;
            continue;
        }
        out.push(s);
    }
    out.retain(|s| !matches!(s, Plain::Interval { start, end, .. } if start == end));
    out
}

fn plain_found(g: &Graph, path: &Found) -> Vec<Plain> {
    let name = |w: usize| g.names[w].clone();
    let one = |s: &Step<usize, Option<String>>| match s {
        Step::Interval { worker, interval } => Plain::Interval {
            worker: name(*worker),
            start: interval.start,
            end: interval.end,
            state: state_word(interval.state).into(),
            label: interval.tag.clone().flatten(),
        },
        Step::Link(l) => Plain::Edge {
            from: (name(l.from.0), l.from.1),
            to: (name(l.to.0), l.to.1),
            kind: kind_word(l.kind).into(),
        },
    };
    path.iter().map(one).collect()
}

fn plain_expected(path: &[StepSpec]) -> Result<Vec<Plain>, String> {
    let missing = || "a step of the expected path lacks a field".to_string();
    path.iter()
        .map(|s| match s.step.as_str() {
            "interval" => Ok(Plain::Interval {
                worker: s.worker.clone().ok_or_else(missing)?,
                start: s.start.ok_or_else(missing)?,
                end: s.end.ok_or_else(missing)?,
                state: s.state.clone().ok_or_else(missing)?,
                label: s.label.clone(),
            }),
            "edge" => {
                let (f, t) = (s.from.clone().ok_or_else(missing)?, s.to.clone().ok_or_else(missing)?);
                Ok(Plain::Edge {
                    from: (f.worker, f.time),
                    to: (t.worker, t.time),
                    kind: s.kind.clone().ok_or_else(missing)?,
                })
            }
            other => Err(format!("step `{other}` is not of the format")),
        })
        .collect()
}

/// One expectation and what came of it.
#[derive(Debug)]
pub struct Outcome {
    pub what: String,
    pub status: String,
    pub result: Result<Option<String>, String>,
}

fn show(steps: &[Plain]) -> String {
    let mut s = String::new();
    for p in steps {
        let _ = writeln!(s, "      {p}");
    }
    s
}

/// Time that somebody ran on a path.
fn ran(steps: &[Plain]) -> u64 {
    let of = |p: &Plain| match p {
        Plain::Interval { start, end, state, .. } if state == "running" => end - start,
        _ => 0,
    };
    steps.iter().map(of).sum()
}

fn check_path(g: &Graph, start: &str, bounded: bool, spec: &PathSpec) -> Result<Option<String>, String> {
    let Some(expected) = &spec.path else { return Err("the file gives no path to compare with".into()) };
    let worker = g.number(start)?;
    let life = g.span(worker).ok_or("the start worker has no time")?;
    let found = if bounded { path::bounded(g, worker, life) } else { path::unbounded(g, worker) };
    if !path::is_chain(&found) {
        return Err(format!("not a chain:\n{}", show(&plain_found(g, &found))));
    }
    let expected = normal(plain_expected(expected)?);
    let found = normal(plain_found(g, &found));
    if expected == found {
        return Ok(None);
    }
    // Rule 2.5 takes the way walked last; ours may differ only where it explains more by running, and
    // never from what the source itself publishes.
    if bounded && spec.status != "published" && ran(&found) > ran(&expected) {
        return Ok(Some(format!(
            "differs, and explains {} instead of {} by running:\n{}",
            ran(&found),
            ran(&expected),
            show(&found)
        )));
    }
    Err(format!("expected\n{}    found\n{}", show(&expected), show(&found)))
}

fn check_graph(found: &(Vec<WorkerSpec>, Vec<EdgeSpec>), spec: &GraphSpec) -> Result<(), String> {
    let rows = |all: &[WorkerSpec]| -> BTreeMap<String, Vec<Plain>> {
        all.iter()
            .map(|w| {
                let plain = |i: &IntervalSpec| Plain::Interval {
                    worker: w.id.clone(),
                    start: i.start,
                    end: i.end,
                    state: i.state.clone(),
                    label: i.label.clone(),
                };
                (w.id.clone(), normal(w.intervals.iter().map(plain).collect()))
            })
            // A worker that is only named, by the last event of the record, did nothing yet.
            .filter(|(_, own)| !own.is_empty())
            .collect()
    };
    let (a, b) = (rows(&spec.worker), rows(&found.0));
    for (id, expected) in &a {
        match b.get(id) {
            None => return Err(format!("worker {id} is missing")),
            Some(f) if f != expected => {
                return Err(format!("{id}: expected\n{}    found\n{}", show(expected), show(f)));
            }
            Some(_) => {}
        }
    }
    if let Some(id) = b.keys().find(|id| !a.contains_key(*id)) {
        return Err(format!("worker {id} is too much"));
    }
    let key =
        |e: &EdgeSpec| (e.from.worker.clone(), e.from.time, e.to.worker.clone(), e.to.time, e.kind.clone());
    let mut x: Vec<_> = spec.edge.iter().map(key).collect();
    let mut y: Vec<_> = found.1.iter().map(key).collect();
    x.sort();
    y.sort();
    if x == y { Ok(()) } else { Err(format!("edges: expected {x:?}, found {y:?}")) }
}

fn read(path: &Path) -> Result<File, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let f: File = toml::from_str(&text).map_err(|e| e.to_string())?;
    if f.format != "pg-vectors/1" {
        return Err(format!("format `{}` is not pg-vectors/1", f.format));
    }
    Ok(f)
}

fn trace(f: &File) -> Result<kernel::Trace<'_>, String> {
    let host = f.host.as_deref().ok_or("a kernel trace needs `host`")?;
    Ok(kernel::Trace { host, events: &f.event })
}

/// Check one file: an outcome for each of its expectations.
pub fn check(path: &Path) -> Result<Vec<Outcome>, String> {
    let f = read(path)?;
    let mut out = Vec::new();
    let (workers, edges) = match f.kind.as_str() {
        "graph" => (f.worker.clone(), f.edge.clone()),
        "kernel-trace" => kernel::graph(&[trace(&f)?])?,
        "kernel-scenario" => {
            let folder = path.parent().unwrap_or(Path::new("."));
            let files: Vec<File> =
                f.traces.iter().map(|t| read(&folder.join(t))).collect::<Result<_, _>>()?;
            let traces: Vec<_> = files.iter().map(trace).collect::<Result<_, _>>()?;
            kernel::graph(&traces)?
        }
        other => return Err(format!("kind `{other}` is not of the format")),
    };
    let g = Graph::new(&workers, &edges)?;
    let found = (workers, edges);
    if let Some(spec) = &f.expect.graph {
        out.push(Outcome {
            what: "graph".into(),
            status: "graph".into(),
            result: check_graph(&found, spec).map(|()| None),
        });
    }
    let own = [("bounded", &f.expect.bounded), ("unbounded", &f.expect.unbounded)];
    let own = own.into_iter().filter_map(|(name, spec)| spec.as_ref().map(|s| (name.to_string(), s)));
    let listed =
        f.expect.critical_path.iter().map(|s| (s.algorithm.clone().unwrap_or_else(|| "bounded".into()), s));
    for (algorithm, spec) in own.chain(listed) {
        if spec.status == "not-published" {
            continue;
        }
        let Some(start) = spec.start.as_deref().or(f.start.as_deref()) else {
            return Err("an expected path has no `start`".into());
        };
        let result = match algorithm.as_str() {
            "bounded" => check_path(&g, start, true, spec),
            "unbounded" => check_path(&g, start, false, spec),
            other => Err(format!("algorithm `{other}` is not of the format")),
        };
        out.push(Outcome {
            what: format!("{algorithm} path of {start}"),
            status: spec.status.clone(),
            result,
        });
    }
    Ok(out)
}
