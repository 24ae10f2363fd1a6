//! Finding processes, threads, functions and files by fuzzy matching, on a thread of its own.

use super::recording::Recording;
use super::views::threads::Node;
use crate::clean::clean_to;
use fuzzy_matcher::FuzzyMatcher;
use fuzzy_matcher::skim::SkimMatcherV2;
use pg_event::{FrameId, ObjectId, ObjectKind, ProcessId, StackId, ThreadId};
use pg_graph::VertexId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process.
    Process(ProcessId),
    /// A thread.
    Thread(ThreadId),
    /// A function, with all places in it.
    Function(Vec<FrameId>),
    /// A file, socket or another named thing.
    Object(ObjectId),
}

/// One thing that can be found.
#[derive(Clone, Debug)]
pub struct Item {
    /// What is matched and shown, clean.
    pub text: String,
    /// What is shown beside it.
    pub detail: String,
    /// What it is.
    pub target: Target,
    /// It is neither of the focus nor of anybody whom the focus has to do with.
    pub far: bool,
}

/// Everything that can be found in a recording.
#[derive(Debug, Default)]
pub struct Index {
    items: Vec<Item>,
}

/// Something found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The text.
    pub text: String,
    /// What is shown beside it.
    pub detail: String,
    /// Which characters matched.
    pub matched: Vec<usize>,
    /// What it is.
    pub target: Target,
    /// It is neither of the focus nor of anybody whom the focus has to do with.
    pub far: bool,
}

/// What a search found, and which of it is shown.
#[derive(Clone, Debug)]
pub struct Found {
    /// What was looked for.
    pub what: String,
    /// Where it is.
    pub places: Places,
    /// Which one is shown.
    pub at: usize,
}

/// Where something that was searched for is.
#[derive(Clone, Debug)]
pub enum Places {
    /// Vertices in a function or on an object, the longest there first.
    Vertices(Vec<VertexId>),
    /// Processes and threads, the best hit first.
    Nodes(Vec<(Node, String)>),
}

impl Places {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Vertices(v) => v.len(),
            Self::Nodes(n) => n.len(),
        }
    }
}

/// What searching needs between two queries.
#[derive(Debug, Default)]
pub struct SearchState {
    /// What there is; none until it has been listed.
    pub index: Option<Arc<Index>>,
    /// Number of the newest query.
    pub newest: Arc<AtomicU64>,
}

/// Most hits that are shown.
const MAX_HITS: usize = 200;
/// Of the best hit's score, in percent, what others must have: where one has the word, those that have its letters here and
/// there are none.
const NEARLY_AS_GOOD: i64 = 70;

impl Target {
    /// The node of the tree of threads that it is.
    pub fn node(&self) -> Option<Node> {
        match self {
            Self::Process(p) => Some(Node::Process(*p)),
            Self::Thread(t) => Some(Node::Thread(*t)),
            Self::Function(_) | Self::Object(_) => None,
        }
    }

    /// Among things of one name people mean the one that does something.
    fn rank(&self) -> u8 {
        match self {
            Self::Process(_) => 0,
            Self::Thread(_) => 1,
            Self::Function(_) | Self::Object(_) => 2,
        }
    }

    /// What kind of thing it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
            Self::Thread(_) => "thread",
            Self::Function(_) => "function",
            Self::Object(_) => "object",
        }
    }
}

impl Index {
    /// Lists what there is.
    pub fn new(r: &Recording) -> Self {
        let near = Near::of(r);
        let mut items = Vec::new();
        for g in r.groups() {
            let Some(&first) = g.threads.first() else { continue };
            items.push(Item {
                text: r.process_name(g.process).to_owned(),
                detail: format!("{}  {}", r.ids(first), r.cmdline(first, 120)),
                target: Target::Process(g.process),
                far: !g.threads.iter().any(|t| near.thread(*t)),
            });
            if g.threads.len() > 1 {
                for &t in &g.threads {
                    items.push(Item {
                        text: r.thread_name(t).to_owned(),
                        detail: r.ids(t),
                        target: Target::Thread(t),
                        far: !near.thread(t),
                    });
                }
            }
        }
        let mut functions: HashMap<(&str, &str), Vec<FrameId>> = HashMap::new();
        for (i, f) in r.catalog.frames.iter().enumerate() {
            let module = r.catalog.modules.get(f.module.index()).map_or("[unknown]", |m| m.short());
            for name in f.names().filter(|n| !n.is_empty()) {
                functions.entry((name, module)).or_default().push(FrameId(i as u32));
            }
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_unstable_by_key(|(k, _)| *k);
        items.extend(functions.into_iter().map(|((name, module), frames)| Item {
            text: clean_to(name, 200),
            detail: clean_to(module, 60),
            far: !frames.iter().any(|f| near.frame(*f)),
            target: Target::Function(frames),
        }));
        let mut seen: HashMap<_, usize> = HashMap::new();
        for (i, o) in r.catalog.objects.iter().enumerate() {
            let named = !o.name.is_empty() || matches!(o.kind, ObjectKind::Tcp | ObjectKind::Udp);
            if !named || o.kind == ObjectKind::Set {
                continue;
            }
            let id = ObjectId(i as u32);
            let far = !near.object(id);
            // Several rows can be of one thing.
            let at = *seen.entry((o.kind, o.label())).or_insert(items.len());
            match items.get_mut(at) {
                Some(item) => item.far &= far,
                None => items.push(Item {
                    text: r.object(id),
                    detail: kind_word(o.kind).into(),
                    target: Target::Object(id),
                    far,
                }),
            }
        }
        Self { items }
    }

    /// How many things can be found.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Is there nothing to find?
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What fits a query: what is called so, then what the focus has to do with, of each the best first; and how many fit in all. `stop` is asked now and then: a newer query
    /// makes this one worthless.
    pub fn find(&self, query: &str, stop: &dyn Fn() -> bool) -> (Vec<Hit>, usize) {
        let query = query.trim();
        let matcher = SkimMatcherV2::default().smart_case();
        let mut scored: Vec<(Group, u8, i64, usize, i64)> = Vec::new();
        let mut best = 0;
        for (i, item) in self.items.iter().enumerate() {
            if i % 1024 == 0 && stop() {
                return (Vec::new(), 0);
            }
            if query.is_empty() {
                scored.push((Group::of(item, false), 0, 0, i, 0));
                continue;
            }
            // Command lines and ids count too, but less than names.
            let name = matcher.fuzzy_match(&item.text, query);
            let aside = matches!(item.target, Target::Process(_) | Target::Thread(_))
                .then(|| matcher.fuzzy_match(&item.detail, query))
                .flatten();
            if let Some(s) = name.map(|s| s * 2).max(aside) {
                // Among equals people mean the thing that does something.
                let kind = match item.target {
                    Target::Process(_) => 6,
                    Target::Thread(_) => 4,
                    Target::Function(_) | Target::Object(_) => 0,
                };
                let fit = name.max(aside).unwrap_or(0);
                best = best.max(fit);
                let called = has_word(&item.text, query);
                let rank = if called { item.target.rank() } else { u8::MAX };
                scored.push((Group::of(item, called), rank, -(s + kind), i, fit));
            }
        }
        scored.retain(|s| s.1 < u8::MAX || s.4 * 100 >= best * NEARLY_AS_GOOD);
        let total = scored.len();
        scored.sort_unstable();
        scored.truncate(MAX_HITS);
        let hits = scored
            .into_iter()
            .map(|(_, _, _, i, _)| {
                let item = &self.items[i];
                let matched = if query.is_empty() {
                    None
                } else {
                    matcher.fuzzy_indices(&item.text, query).map(|(_, m)| m)
                };
                Hit {
                    text: item.text.clone(),
                    detail: item.detail.clone(),
                    matched: matched.unwrap_or_default(),
                    target: item.target.clone(),
                    far: item.far,
                }
            })
            .collect();
        (hits, total)
    }
}

/// What is shown before what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// It is called as was typed, and of the focus.
    Called,
    /// A process or thread that is called so, of whatever. Not functions: too many share a name.
    CalledElsewhere,
    /// Of the focus.
    Near,
    /// Of anything else.
    Far,
}

impl Group {
    fn of(item: &Item, called: bool) -> Self {
        match (called, item.far) {
            (true, false) => Self::Called,
            (true, true) if item.target.node().is_some() => Self::CalledElsewhere,
            (_, false) => Self::Near,
            (_, true) => Self::Far,
        }
    }
}

/// Is this a part of a name, of a path or of a thread's, and not only a piece of one? Small letters stand for large ones,
/// too.
fn has_word(name: &str, word: &str) -> bool {
    let small = !word.contains(char::is_uppercase);
    let same = |w: &str| w == word || small && w.to_lowercase() == word;
    name.split(['/', ':', ' ', '(', '<', '@']).any(same)
}

/// What the focus has to do with: its threads, those that made them go on or that they made go on, with the others of
/// their processes, and where any of them waited or was seen. `None` without a focus: then everything is asked for.
struct Near(Option<Neighbours>);

#[derive(Default)]
struct Neighbours {
    threads: HashSet<ThreadId>,
    frames: HashSet<FrameId>,
    objects: HashSet<ObjectId>,
}

impl Near {
    fn of(r: &Recording) -> Self {
        if !r.has_focus() {
            return Self(None);
        }
        let mut near = Neighbours::default();
        let focus: Vec<ThreadId> = r.graph.threads().filter(|t| r.in_focus(*t)).collect();
        near.threads.extend(&focus);
        for v in focus.iter().flat_map(|t| r.graph.vertices_in(*t, 0..u64::MAX)) {
            let before = r.graph.incoming(v).map(|e| r.graph.edge(e).from);
            let after = r.graph.outgoing(v).map(|e| r.graph.edge(e).to);
            near.threads.extend(before.chain(after).map(|v| r.graph.vertex(v).thread));
        }
        let process = |t: &ThreadId| r.catalog.thread(*t).map(|t| t.process).filter(|p| p.is_some());
        let processes: HashSet<ProcessId> = near.threads.iter().filter_map(process).collect();
        near.threads.extend(r.graph.threads().filter(|t| process(t).is_some_and(|p| processes.contains(&p))));
        let (mut stacks, mut objects) = (HashSet::new(), HashSet::new());
        for &t in &near.threads {
            for v in r.graph.vertices_in(t, 0..u64::MAX) {
                let v = r.graph.vertex(v);
                stacks.extend([v.user_stack, v.kernel_stack]);
                objects.insert(v.object);
            }
            let samples = r.graph.samples_of(t, 0..u64::MAX);
            stacks.extend(samples.iter().flat_map(|s| [s.user_stack, s.kernel_stack]));
        }
        let stacks = stacks.into_iter().filter_map(|s| r.catalog.stack(s));
        near.frames = stacks.flat_map(|s| s.frames.iter().copied()).collect();
        let members = objects.iter().filter_map(|o| r.catalog.object(*o)).flat_map(|o| &o.members);
        near.objects = members.chain(&objects).copied().collect();
        Self(Some(near))
    }

    fn thread(&self, t: ThreadId) -> bool {
        self.0.as_ref().is_none_or(|n| n.threads.contains(&t))
    }

    fn frame(&self, f: FrameId) -> bool {
        self.0.as_ref().is_none_or(|n| n.frames.contains(&f))
    }

    fn object(&self, o: ObjectId) -> bool {
        self.0.as_ref().is_none_or(|n| n.objects.contains(&o))
    }
}

/// The vertices that wait in a function or on an object, or were seen on the CPU in the function: the longest there
/// first, at most `most`.
pub fn vertices(r: &Recording, target: &Target, most: usize) -> Vec<VertexId> {
    let mut ran = HashMap::new();
    let wanted: Box<dyn Fn(&pg_graph::Vertex) -> bool> = match target {
        Target::Function(frames) => {
            let frames: HashSet<FrameId> = frames.iter().copied().collect();
            let stacks: HashSet<StackId> = (0u32..)
                .map(StackId)
                .zip(&r.catalog.stacks)
                .filter(|(_, s)| s.frames.iter().any(|f| frames.contains(f)))
                .map(|(id, _)| id)
                .collect();
            ran = seen_on_cpu(r, &stacks);
            Box::new(move |v| stacks.contains(&v.user_stack) || stacks.contains(&v.kernel_stack))
        }
        Target::Object(o) => {
            let Some(like) = r.catalog.object(*o) else { return Vec::new() };
            let label = like.label();
            let same: HashSet<ObjectId> = (0u32..)
                .map(ObjectId)
                .zip(&r.catalog.objects)
                .filter(|(_, x)| x.kind == like.kind && x.label() == label)
                .map(|(id, _)| id)
                .collect();
            let sets: HashSet<ObjectId> = (0u32..)
                .map(ObjectId)
                .zip(&r.catalog.objects)
                .filter(|(_, x)| x.members.iter().any(|m| same.contains(m)))
                .map(|(id, _)| id)
                .collect();
            Box::new(move |v| same.contains(&v.object) || sets.contains(&v.object))
        }
        Target::Process(_) | Target::Thread(_) => return Vec::new(),
    };
    let mut out: Vec<(std::cmp::Reverse<u64>, VertexId)> = r
        .graph
        .vertices()
        .filter_map(|id| {
            let v = r.graph.vertex(id);
            let waited = wanted(&v).then(|| v.waited());
            let there = waited.max(ran.get(&id).copied())?;
            Some((std::cmp::Reverse(there), id))
        })
        .collect();
    out.sort_unstable();
    out.truncate(most);
    out.into_iter().map(|(_, v)| v).collect()
}

/// How long each vertex was on the CPU with one of these stacks, as samples tell.
fn seen_on_cpu(r: &Recording, stacks: &HashSet<StackId>) -> HashMap<VertexId, u64> {
    let mut out = HashMap::new();
    for t in r.graph.threads() {
        let samples = r.graph.samples_of(t, 0..u64::MAX);
        for s in samples.iter().filter(|s| stacks.contains(&s.user_stack) || stacks.contains(&s.kernel_stack))
        {
            if let Some(v) = r.graph.vertex_at(t, s.time) {
                let time: &mut u64 = out.entry(v).or_default();
                *time = time.saturating_add(s.weight);
            }
        }
    }
    out
}

fn kind_word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::File => "file",
        ObjectKind::FileLock => "file lock",
        ObjectKind::Fifo => "FIFO",
        ObjectKind::UnixStream | ObjectKind::UnixDatagram => "unix socket",
        ObjectKind::Tcp | ObjectKind::Udp | ObjectKind::Socket => "socket",
        ObjectKind::Tty => "terminal",
        ObjectKind::CharDevice | ObjectKind::BlockDevice => "device",
        _ => "object",
    }
}

#[cfg(test)]
mod tests;
