//! On-CPU profile of a thread's spans: which function and which call path the time went to.

use crate::EventGraph;
use crate::words::{Named, is_interpreter, is_plumbing, named};
use pg_event::{Catalog, Ns, StackId, ThreadId};
use std::collections::{HashMap, HashSet};

/// Where the samples of some spans of a thread lie.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// Number of samples.
    pub samples: usize,
    /// The function in whose callees (and itself) most time was spent, nearest to the leaf.
    pub function: Option<String>,
    /// Its module.
    pub module: Option<String>,
    /// Its share of the samples' time, 0 to 1.
    pub share: f64,
    /// The call path most often seen with it, `function (module)`, leaf first.
    pub stack: Vec<String>,
    /// Functions by inclusive share, most first: `(function (module), share)`.
    pub functions: Vec<(String, f64)>,
}

/// A function must be on this share of the stacks to be named.
const DOMINATES: f64 = 0.5;

/// What names of functions of JavaScript begin with in V8's perf-maps (Node.js: `--perf-basic-prof`).
const SCRIPT: [&str; 2] = ["JS:", "LazyCompile:"];

/// Profile of `thread` within `spans`.
pub fn profile(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, spans: &[(Ns, Ns)]) -> Profile {
    let mut by_stack: HashMap<(StackId, StackId), (u64, usize)> = HashMap::new();
    for &(a, b) in spans {
        for s in graph.samples_of(thread, a..b) {
            let e = by_stack.entry((s.user_stack, s.kernel_stack)).or_default();
            e.0 += s.weight.max(1);
            e.1 += 1;
        }
    }
    let total: u64 = by_stack.values().map(|v| v.0).sum();
    if total == 0 {
        return Profile::default();
    }
    let mut stacks: Vec<(Vec<Named>, u64)> = by_stack
        .iter()
        .map(|((user, kernel), (w, _))| {
            let mut frames = named(catalog, *kernel);
            frames.extend(named(catalog, *user));
            (frames, *w)
        })
        .collect();
    // HashMap order is not stable: the report must be.
    stacks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| path_text(&a.0).cmp(&path_text(&b.0))));
    // Inclusive weight and mean distance from the leaf of each function.
    let mut inclusive: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
    for (frames, w) in &stacks {
        let mut seen = HashSet::new();
        for (depth, f) in frames.iter().enumerate() {
            let key = (f.function.as_str(), f.module.as_str());
            if seen.insert(key) {
                let e = inclusive.entry(key).or_default();
                e.0 += w;
                e.1 += w * depth as u64;
            }
        }
    }
    let mut ranked: Vec<_> =
        inclusive.iter().map(|(k, (w, d))| (*k, *w as f64 / total as f64, *d as f64 / *w as f64)).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0)));
    let best = |ok: &dyn Fn(&(&str, &str)) -> bool| {
        ranked
            .iter()
            .filter(|(k, share, _)| *share >= DOMINATES && ok(k))
            .min_by(|a, b| a.2.total_cmp(&b.2).then(b.1.total_cmp(&a.1)).then(a.0.cmp(&b.0)))
    };
    let has_name = |k: &(&str, &str)| !k.0.starts_with("0x");
    // Where Python functions are known, the interpreter's own say nothing; those of other libraries do.
    let python: HashSet<(&str, &str)> = stacks
        .iter()
        .flat_map(|(frames, _)| frames.iter().filter(|f| f.python.is_some()))
        .map(|f| (f.function.as_str(), f.module.as_str()))
        .collect();
    let own = |k: &(&str, &str)| !is_plumbing(k.1) && (python.is_empty() || !is_interpreter(k.1));
    // What the engine does for a function of the program is that function's doing.
    let script = |k: &(&str, &str)| SCRIPT.iter().any(|prefix| k.0.starts_with(prefix));
    let chosen = best(&script)
        .or_else(|| best(&|k| has_name(k) && own(k)))
        .or_else(|| best(&|k| python.contains(k)))
        .or_else(|| best(&|k| has_name(k) && !is_plumbing(k.1)))
        .or_else(|| best(&|k| !is_plumbing(k.1)))
        .or_else(|| best(&|k| has_name(k)))
        .or_else(|| ranked.first());
    let key = chosen.map(|c| c.0);
    let shown = key.and_then(|k| {
        stacks.iter().find(|(f, _)| f.iter().any(|f| (f.function.as_str(), f.module.as_str()) == k))
    });
    Profile {
        samples: by_stack.values().map(|v| v.1).sum(),
        function: key.map(|k| k.0.to_owned()),
        module: key.map(|k| k.1.to_owned()),
        share: chosen.map_or(0.0, |c| c.1),
        stack: shown.map_or_else(Vec::new, |(f, _)| f.iter().map(ToString::to_string).collect()),
        functions: ranked.iter().take(30).map(|(k, s, _)| (format!("{} ({})", k.0, k.1), *s)).collect(),
    }
}

fn path_text(frames: &[Named]) -> String {
    frames.iter().map(|f| f.function.as_str()).collect::<Vec<_>>().join(";")
}
