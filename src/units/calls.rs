//! Call paths of units: what their stacks say, from the loop's function inwards.

use super::cut::Did;
use pg_event::{Catalog, FrameId, ModuleId, ModuleKind, ObjectKind, StackId};
use pg_graph::units::{Binary, CallPath, CallTree, Function, FunctionId, MAX_FRAMES, PathSet, Place};
use pg_tracer::units::{LoopAt, Places};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most units whose paths are remembered, by their stacks.
const MAX_KNOWN: usize = 1 << 16;
/// A unit that was seen by chance fewer times is not typed by that: where it was seen says more about chance. (Seen four
/// times, it spent much of its time in few places.)
const ENOUGH: u32 = 4;
/// A context counts for the type of a unit when it was seen there one in this many times.
const OFTEN: u32 = 10;
/// Names of system calls and kinds of messages that tell a unit without stacks from others, at most.
const MAX_DID: usize = 8;
/// What a function is called of which nothing is known.
const UNKNOWN: &str = "?";

/// What a frame is in.
#[derive(Clone, Copy)]
struct At {
    function: FunctionId,
    module: ModuleId,
    /// Begin of the function; `None` when that is not known.
    entry: Option<u64>,
    /// A name is all that is known: two of them may be the same function or not.
    unknown: bool,
}

/// Names functions alike in all recordings, and makes call paths of stacks.
pub struct Calls<'a> {
    catalog: &'a Catalog,
    places: &'a mut Places,
    functions: Vec<Function>,
    ids: HashMap<Function, FunctionId>,
    found: BTreeSet<(FunctionId, u64, ModuleId)>,
    frames: HashMap<FrameId, At>,
    inside: HashMap<(StackId, LoopAt), Option<Vec<FunctionId>>>,
    known: HashMap<(LoopAt, BTreeSet<StackId>), PathSet>,
}

impl<'a> Calls<'a> {
    /// Of a recording.
    pub fn new(catalog: &'a Catalog, places: &'a mut Places) -> Self {
        Self {
            catalog,
            places,
            functions: Vec::new(),
            ids: HashMap::new(),
            found: BTreeSet::new(),
            frames: HashMap::new(),
            inside: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// The functions, by [`FunctionId`].
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Where functions are that were found in binaries with a build-id.
    pub fn places(&self) -> impl Iterator<Item = (Function, Place)> + '_ {
        self.found.iter().filter_map(|&(f, entry, module)| {
            let build_id = self.catalog.modules.get(module.index())?.build_id.clone();
            let function = self.functions.get(f.0 as usize)?.clone();
            (!build_id.is_empty()).then_some((function, Place { build_id, entry }))
        })
    }

    /// The call paths of a unit of a loop that blocked with these stacks and was seen by chance with those, so often.
    /// Empty when nothing is known: of a stack that was cut off before the loop's frame nobody knows where it belongs,
    /// and of a unit that was seen by chance less than [`ENOUGH`] times not what it did.
    pub fn paths(
        &mut self,
        of: LoopAt,
        waits: BTreeSet<StackId>,
        samples: &BTreeMap<StackId, u32>,
    ) -> PathSet {
        let enough = samples.values().sum::<u32>() >= ENOUGH;
        if enough {
            let mut tree = self.tree(of, &waits);
            self.often(of, samples, &mut tree);
            return tree.paths();
        }
        // What it called is of interest all the same: probes can show it in every unit.
        for &stack in samples.keys() {
            let _ = self.inside(stack, of);
        }
        if waits.is_empty() {
            return PathSet::default();
        }
        let key = (of, waits);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let paths = self.tree(of, &key.1).paths();
        if self.known.len() < MAX_KNOWN {
            self.known.insert(key, paths.clone());
        }
        paths
    }

    /// The call tree of stacks.
    fn tree(&mut self, of: LoopAt, stacks: &BTreeSet<StackId>) -> CallTree {
        let mut tree = CallTree::new();
        for &stack in stacks {
            if let Some(functions) = self.inside(stack, of) {
                tree.add(functions);
            }
        }
        tree
    }

    /// Adds those call contexts of a unit that it was seen in again and again: one in [`OFTEN`] times and more. Where it
    /// was seen now and then says which functions take time anywhere, not what kind of unit it is.
    fn often(&mut self, of: LoopAt, samples: &BTreeMap<StackId, u32>, tree: &mut CallTree) {
        let stacks = samples.iter().filter_map(|(&s, &n)| Some((self.inside(s, of)?, n)));
        let stacks: Vec<(Vec<FunctionId>, u32)> = stacks.collect();
        let all: u32 = stacks.iter().map(|s| s.1).sum();
        let mut seen: HashMap<&[FunctionId], u32> = HashMap::new();
        for (functions, n) in &stacks {
            for depth in 1..=functions.len().min(MAX_FRAMES) {
                *seen.entry(&functions[..depth]).or_default() += n;
            }
        }
        for (functions, _) in &stacks {
            let kept = (1..=functions.len().min(MAX_FRAMES)).rev();
            let often = kept.map(|depth| &functions[..depth]).find(|c| seen[c] * OFTEN >= all);
            tree.add(often.into_iter().flatten().copied());
        }
    }

    /// What stands for the call paths of a unit of which too little was seen: the loop's function, and what is known
    /// of what it did. System calls tell more than messages, so these count only where there are none of those.
    pub fn unseen(&mut self, of: LoopAt, name: &str, did: &BTreeSet<Did>) -> PathSet {
        let calls = did.iter().filter_map(|d| match d {
            Did::Call(nr) => Some(nr.name().unwrap_or_default().into_owned()),
            Did::Message(..) => None,
        });
        let mut words: BTreeSet<String> = calls.collect();
        if words.is_empty() {
            words = did.iter().copied().filter_map(message).collect();
        }
        let more = words.len().saturating_sub(MAX_DID);
        let mut how: Vec<String> = words.into_iter().take(MAX_DID).collect();
        if more > 0 {
            how.push(format!("{more} more"));
        }
        let root = self.loop_function(of, name);
        let root = self.id(root);
        let leaf = self.id(Function::unseen(&how.join(", ")));
        PathSet::new([CallPath::new([root, leaf])])
    }

    /// The function that a loop is in.
    pub fn loop_function(&self, of: LoopAt, name: &str) -> Function {
        let module = self.catalog.modules.get(of.module.index()).map_or(UNKNOWN, |m| m.short());
        Function {
            module: module.into(),
            name: named(name).unwrap_or_else(|| format!("+{:#x}", of.function)),
        }
    }

    /// The binary that a loop is in.
    pub fn binary(&self, of: LoopAt) -> Option<Binary> {
        let module = self.catalog.modules.get(of.module.index())?;
        Some(Binary { path: module.path.clone(), build_id: module.build_id.clone() })
    }

    /// The functions on a stack from the loop's own inwards; `None` when the loop is not on it. The loop's frame is the
    /// outermost of its function.
    pub fn inside(&mut self, stack: StackId, of: LoopAt) -> Option<Vec<FunctionId>> {
        if let Some(known) = self.inside.get(&(stack, of)) {
            return known.clone();
        }
        let catalog = self.catalog;
        let frames = catalog.stacks.get(stack.index()).filter(|s| !s.kernel);
        let all: Vec<At> =
            frames.into_iter().flat_map(|s| s.frames.iter().rev()).filter_map(|&f| self.at(f)).collect();
        let own = |a: &At| a.module == of.module && a.entry == Some(of.function);
        let found = all.iter().position(own).map(|outermost| {
            let mut path: Vec<At> = all[outermost..].to_vec();
            // A run of functions that nobody can tell apart is one.
            path.dedup_by(|a, b| a.unknown && b.unknown && a.function == b.function);
            path.into_iter().map(|a| a.function).collect()
        });
        self.inside.insert((stack, of), found.clone());
        found
    }

    /// All functions on a stack.
    pub fn whole(&mut self, stack: StackId) -> Vec<FunctionId> {
        let catalog = self.catalog;
        let frames = catalog.stacks.get(stack.index()).filter(|s| !s.kernel);
        frames.into_iter().flat_map(|s| s.frames.iter()).filter_map(|&f| Some(self.at(f)?.function)).collect()
    }

    fn at(&mut self, id: FrameId) -> Option<At> {
        if let Some(known) = self.frames.get(&id) {
            return Some(*known);
        }
        let frame = self.catalog.frames.get(id.index())?;
        let module = self.catalog.modules.get(frame.module.index());
        let entry = self.places.entry(self.catalog, id);
        let elf = module.is_some_and(|m| m.kind == ModuleKind::Elf);
        let name =
            named(&frame.function).or_else(|| elf.then(|| entry.map(|e| format!("+{e:#x}"))).flatten());
        let unknown = name.is_none();
        let function = self.id(Function {
            module: module.map_or(UNKNOWN, |m| m.short()).into(),
            name: name.unwrap_or_else(|| UNKNOWN.into()),
        });
        if elf && let Some(entry) = entry {
            self.found.insert((function, entry, frame.module));
        }
        let at = At { function, module: frame.module, entry, unknown };
        self.frames.insert(id, at);
        Some(at)
    }

    fn id(&mut self, function: Function) -> FunctionId {
        let next = FunctionId(self.functions.len() as u32);
        let id = *self.ids.entry(function.clone()).or_insert(next);
        if id == next {
            self.functions.push(function);
        }
        id
    }
}

/// The name of a function; its part that the compiler moved away (`.cold`) is no function of its own.
fn named(name: &str) -> Option<String> {
    let whole = name.strip_suffix(".cold").unwrap_or(name);
    (!whole.is_empty()).then(|| whole.to_owned())
}

fn message(did: Did) -> Option<String> {
    let Did::Message(sends, kind) = did else { return None };
    let what = match kind {
        ObjectKind::Pipe | ObjectKind::Fifo => "pipe",
        ObjectKind::UnixStream | ObjectKind::UnixDatagram => "unix",
        ObjectKind::Tcp => "tcp",
        ObjectKind::Udp => "udp",
        ObjectKind::EventFd => "eventfd",
        ObjectKind::Tty => "terminal",
        ObjectKind::BlockDevice => "disk",
        _ => "other",
    };
    Some(format!("{} {what}", if sends { "sends" } else { "receives" }))
}
