//! How a profile is written: eight bytes that say what it is, then MessagePack. Call paths are a tree of frames,
//! since they share most of them.

use super::places::LoopFacts;
use super::settings::{Dated, Settings};
use super::{
    Binary, Boundary, Function, Given, Limit, LoopFunction, LoopKey, LoopProfile, MAX_BUILD_ID, MAX_TEXT,
    NativeWay, Place, Profile, RequestWay,
};
use crate::units::Context;
use crate::units::histogram::{Histogram, LAST_STEP};
use crate::units::path::{CallPath, Called, FunctionId, MAX_FRAMES, PathSet};
use crate::units::stats::UnitStats;
use pg_event::Sysno;
use pg_event::bounded::{sequence, text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The newest version. It rises when an older reader would misread; what an older one can read is written as before.
pub const VERSION: u16 = 5;

/// The version without waits for the next request of a connection.
const BY_CONTEXTS: u16 = 4;

/// The version whose settings know call trees by their paths alone.
const BY_PATHS: u16 = 3;

/// The version without native ways of Python's loops.
const GIVEN: u16 = 2;

/// The version without given units, too.
const LOOPS_ONLY: u16 = 1;

/// The first six bytes; the version follows in two, the lower first.
const MAGIC: &[u8; 6] = b"PGPROF";

/// Bytes that are read at most. Reading takes about ten times as many at worst.
pub const MAX_BYTES: usize = 32 << 20;

const MAX_BINARIES: usize = 1024;
const MAX_MODULES: usize = 4096;
const MAX_FUNCTIONS: usize = 1 << 18;
const MAX_LOOPS: usize = 64;
const MAX_NODES: usize = 1 << 20;
const MAX_TREES: usize = 1 << 14;
const MAX_SETTINGS: usize = 1 << 12;
const MAX_BUILDS: usize = 1 << 12;
/// Of all functions together.
const MAX_PLACES: usize = 1 << 18;
const MAX_LOOP_FUNCTIONS: usize = 64;
const MAX_BOUNDARIES: usize = 1 << 10;
/// Of all loops together.
const MAX_REQUESTS: usize = 1 << 12;
/// Bytes of the names of modules, repeated for their functions.
const MAX_MODULE_BYTES: usize = 1 << 26;
const MAX_PATHS: usize = 1 << 14;
const MAX_CONTEXTS: usize = 1 << 14;
const MAX_STEPS: usize = LAST_STEP as usize + 1;
/// Frames of all call paths of all trees together, and contexts.
const MAX_ALL_FRAMES: usize = 1 << 24;

/// Why a profile cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// There is more of something than a reader takes.
    #[error("the profile has {have} {what}, more than {most}: cut its call paths shorter, or train on less")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        have: usize,
        /// How many may be.
        most: usize,
    },
    /// The encoder refused.
    #[error("the profile cannot be encoded: {0}")]
    Format(String),
}

/// Why bytes are no profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// More than [`MAX_BYTES`].
    #[error("a profile of {0} bytes: more than {MAX_BYTES} are not read")]
    TooLong(usize),
    /// It does not begin as one does.
    #[error(
        "no profile: it does not begin with PGPROF. `pg-tui train` writes one, with --from FILE.pgs also of a recording"
    )]
    NotAProfile,
    /// A version that this program does not know.
    #[error(
        "a profile of version {0}; this program reads versions up to {VERSION}: use a newer one, or train again"
    )]
    Version(u16),
    /// It is damaged.
    #[error("the profile is damaged: {0}; train again, or take a copy")]
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
struct Whole {
    #[serde(deserialize_with = "sequence::<MAX_BINARIES, _, _>")]
    binaries: Vec<WireBinary>,
    #[serde(deserialize_with = "sequence::<MAX_MODULES, _, _>")]
    modules: Vec<Text>,
    #[serde(deserialize_with = "sequence::<MAX_FUNCTIONS, _, _>")]
    functions: Vec<(u32, Text)>,
    #[serde(deserialize_with = "sequence::<MAX_BUILDS, _, _>")]
    builds: Vec<BuildId>,
    /// Function, build and address of its entry.
    #[serde(deserialize_with = "sequence::<MAX_PLACES, _, _>")]
    places: Vec<(u32, u32, u64)>,
    #[serde(deserialize_with = "sequence::<MAX_LOOPS, _, _>")]
    loops: Vec<WireLoop>,
    /// Of waits for the next request of a connection (since version 5).
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "sequence::<MAX_REQUESTS, _, _>"
    )]
    requests: Vec<WireRequest>,
}

#[derive(Serialize, Deserialize)]
struct WireRequest {
    /// Numbers of the loop, and of the wait among its boundaries.
    of: (u32, u32),
    module: Text,
    #[serde(deserialize_with = "sequence::<MAX_FRAMES, _, _>")]
    calls: Vec<u64>,
    turn: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct Text(#[serde(deserialize_with = "text::<MAX_TEXT, _>")] String);

#[derive(Serialize, Deserialize)]
struct BuildId(#[serde(deserialize_with = "text::<MAX_BUILD_ID, _>")] String);

#[derive(Serialize, Deserialize)]
struct WireBinary {
    path: Text,
    build_id: Text,
}

#[derive(Serialize, Deserialize)]
struct WireLoop {
    build_id: Text,
    offset: u64,
    /// Module, name and entry of the function that it is in.
    #[serde(deserialize_with = "sequence::<MAX_LOOP_FUNCTIONS, _, _>")]
    functions: Vec<(Text, Text, u64)>,
    #[serde(deserialize_with = "sequence::<MAX_BOUNDARIES, _, _>")]
    boundaries: Vec<WireBoundary>,
    /// Frames: the node that each is below (0 is above all, the first of these is 1), and its function.
    #[serde(deserialize_with = "sequence::<MAX_NODES, _, _>")]
    nodes: Vec<(u32, u32)>,
    #[serde(deserialize_with = "sequence::<MAX_TREES, _, _>")]
    trees: Vec<WireTree>,
    #[serde(deserialize_with = "sequence::<MAX_SETTINGS, _, _>")]
    settings: Vec<WireSettings>,
    /// Where its units begin and end (since version 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<(Text, Text)>,
}

#[derive(Serialize, Deserialize)]
struct WireTree {
    /// The nodes that its paths end in.
    #[serde(deserialize_with = "sequence::<MAX_PATHS, _, _>")]
    paths: Vec<u32>,
    /// The upper and the lower half.
    sum: (u64, u64),
    squares: (u64, u64),
    least: u64,
    greatest: u64,
    #[serde(deserialize_with = "sequence::<MAX_STEPS, _, _>")]
    steps: Vec<(u16, u64)>,
    contexts: Contexts,
}

#[derive(Serialize, Deserialize)]
struct WireSettings {
    #[serde(deserialize_with = "sequence::<MAX_PATHS, _, _>")]
    paths: Vec<u32>,
    name: Option<(u64, Text)>,
    limit: Option<(u64, Limit)>,
    silent: Option<(u64, bool)>,
    /// What units of the call tree came by, where others have the same paths (since version 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contexts: Option<Contexts>,
}

/// Function and depth of each.
#[derive(Serialize, Deserialize)]
struct Contexts(#[serde(deserialize_with = "sequence::<MAX_CONTEXTS, _, _>")] Vec<(u32, u32)>);

#[derive(Serialize, Deserialize)]
struct WireBoundary {
    #[serde(deserialize_with = "sequence::<MAX_FRAMES, _, _>")]
    calls: Vec<u64>,
    syscall: Sysno,
    /// Of a loop of Python: the interpreter's binary, and where the call is that waits (since version 3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    native: Option<(Text, Text, u64)>,
}

fn halves(n: u128) -> (u64, u64) {
    ((n >> 64) as u64, n as u64)
}

fn whole((upper, lower): (u64, u64)) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

fn damaged(what: impl std::fmt::Display) -> DecodeError {
    DecodeError::Damaged(what.to_string())
}

/// Of what cannot be decoded, what a person can make of it.
fn undecodable(e: &rmp_serde::decode::Error) -> DecodeError {
    use rmp_serde::decode::Error::{InvalidDataRead, InvalidMarkerRead};
    match e {
        InvalidDataRead(_) | InvalidMarkerRead(_) => {
            damaged("it ends too early, as if its end had not been copied or written")
        }
        other => damaged(other),
    }
}

impl Profile {
    /// The bytes of an `app.pgprof`. Equal profiles give equal bytes.
    ///
    /// # Errors
    /// [`EncodeError`] when it is larger than a reader takes.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let most = |what, have, most| {
            if have > most { Err(EncodeError::TooMany { what, have, most }) } else { Ok(()) }
        };
        let modules: BTreeSet<&String> = self.functions.iter().map(|f| &f.module).collect();
        let place: BTreeMap<&String, u32> = modules.iter().zip(0..).map(|(m, i)| (*m, i)).collect();
        most("binaries", self.binaries.len(), MAX_BINARIES)?;
        most("modules", modules.len(), MAX_MODULES)?;
        most("functions", self.functions.len(), MAX_FUNCTIONS)?;
        most("loops", self.loops.len(), MAX_LOOPS)?;
        let mut contexts = 0;
        let mut loops = Vec::new();
        for (key, l) in &self.loops {
            let l = write_loop(key, l);
            most("frames of call paths in one loop", l.nodes.len(), MAX_NODES)?;
            most("distinct call trees of one loop", l.trees.len(), MAX_TREES)?;
            most("settings of types", l.settings.len(), MAX_SETTINGS)?;
            most("names of one loop's function", l.functions.len(), MAX_LOOP_FUNCTIONS)?;
            most("waits between units of one loop", l.boundaries.len(), MAX_BOUNDARIES)?;
            let paths = || l.trees.iter().map(|t| &t.paths).chain(l.settings.iter().map(|n| &n.paths));
            most("call paths of one unit", paths().map(Vec::len).max().unwrap_or(0), MAX_PATHS)?;
            most(
                "contexts of one unit",
                l.trees.iter().map(|t| t.contexts.0.len()).max().unwrap_or(0),
                MAX_CONTEXTS,
            )?;
            contexts += l.trees.iter().map(|t| t.contexts.0.len()).sum::<usize>();
            loops.push(l);
        }
        let sets = self.loops.values().flat_map(|l| l.trees.keys().chain(l.settings.keys()));
        // One more for each path, as the reader counts.
        let frames: usize = sets.flat_map(|of| of.paths.paths()).map(|p| p.len() + 1).sum();
        most("frames of call paths and contexts", frames + contexts, MAX_ALL_FRAMES)?;
        let binary =
            |b: &Binary| WireBinary { path: Text(b.path.clone()), build_id: Text(b.build_id.clone()) };
        let builds: BTreeSet<&String> = self.places.iter().flatten().map(|p| &p.build_id).collect();
        let build: BTreeMap<&String, u32> = builds.iter().zip(0..).map(|(b, i)| (*b, i)).collect();
        most("builds", builds.len(), MAX_BUILDS)?;
        most("places of functions", self.places.iter().map(BTreeSet::len).sum(), MAX_PLACES)?;
        most("bytes of module names", self.functions.iter().map(|f| f.module.len()).sum(), MAX_MODULE_BYTES)?;
        let places = (0..).zip(&self.places);
        let requests = write_requests(&self.loops);
        most("waits for requests", requests.len(), MAX_REQUESTS)?;
        let whole = Whole {
            binaries: self.binaries.iter().map(binary).collect(),
            functions: self.functions.iter().map(|f| (place[&f.module], Text(f.name.clone()))).collect(),
            modules: modules.into_iter().map(|m| Text(m.clone())).collect(),
            places: places
                .flat_map(|(f, p)| p.iter().map(move |p| (f, p)))
                .map(|(f, p)| (f, build[&p.build_id], p.entry))
                .collect(),
            builds: builds.into_iter().map(|b| BuildId(b.clone())).collect(),
            loops,
            requests,
        };
        let given = self.loops.keys().any(|k| k.given.is_some());
        let native = self.loops.values().flat_map(|l| &l.facts.boundaries).any(|b| b.native.is_some());
        let by_contexts = whole.loops.iter().flat_map(|l| &l.settings).any(|s| s.contexts.is_some());
        let version = match (by_contexts, native, given) {
            _ if !whole.requests.is_empty() => VERSION,
            (true, _, _) => BY_CONTEXTS,
            (false, true, _) => BY_PATHS,
            (false, false, true) => GIVEN,
            (false, false, false) => LOOPS_ONLY,
        };
        let mut bytes = [&MAGIC[..], &version.to_le_bytes()].concat();
        bytes.extend(rmp_serde::to_vec(&whole).map_err(|e| EncodeError::Format(e.to_string()))?);
        most("bytes", bytes.len(), MAX_BYTES)?;
        Ok(bytes)
    }

    /// A profile from the bytes of an `app.pgprof`, which may come from anybody.
    ///
    /// # Errors
    /// [`DecodeError`] when they are no profile, of another version, or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_BYTES {
            return Err(DecodeError::TooLong(bytes.len()));
        }
        let rest = bytes.strip_prefix(&MAGIC[..]).ok_or(DecodeError::NotAProfile)?;
        let (version, rest) = rest.split_first_chunk::<2>().ok_or(DecodeError::NotAProfile)?;
        let version = u16::from_le_bytes(*version);
        if !(LOOPS_ONLY..=VERSION).contains(&version) {
            return Err(DecodeError::Version(version));
        }
        let mut reader = rmp_serde::Deserializer::new(rest);
        // What is written nests eight deep.
        reader.set_max_depth(32);
        let whole = Whole::deserialize(&mut reader).map_err(|e| undecodable(&e))?;
        if !reader.get_ref().is_empty() {
            return Err(damaged("something follows its end"));
        }
        let mut functions = Vec::with_capacity(whole.functions.len());
        let mut module_bytes = 0;
        for (module, name) in whole.functions {
            let module =
                whole.modules.get(module as usize).ok_or_else(|| damaged("a function of no module"))?;
            module_bytes += module.0.len();
            if module_bytes > MAX_MODULE_BYTES {
                return Err(damaged("too many functions of modules with long names"));
            }
            functions.push(Function { module: module.0.clone(), name: name.0 });
        }
        let mut places = vec![BTreeSet::new(); functions.len()];
        for (function, build, entry) in whole.places {
            let build = whole.builds.get(build as usize);
            let (Some(of), Some(build)) = (places.get_mut(function as usize), build) else {
                return Err(damaged("a place of no function, or in no binary"));
            };
            of.insert(Place { build_id: build.0.clone(), entry });
        }
        // Frames are repeated for their trees.
        let mut budget = MAX_ALL_FRAMES;
        let mut loops = BTreeMap::new();
        let mut requests = read_requests(whole.requests, &whole.loops)?;
        for (l, number) in whole.loops.into_iter().zip(0..) {
            let requests = requests.remove(&number).unwrap_or_default();
            let given = l.given.as_ref().map(|g| Given { begin: g.0.0.clone(), end: g.1.0.clone() });
            let key = LoopKey { build_id: l.build_id.0.clone(), offset: l.offset, given };
            if loops.insert(key, read_loop(l, requests, functions.len(), &mut budget)?).is_some() {
                return Err(damaged("a loop twice"));
            }
        }
        let binary = |b: WireBinary| Binary { path: b.path.0, build_id: b.build_id.0 };
        let binaries = whole.binaries.into_iter().map(binary).collect();
        Ok(Self { binaries, functions, places, loops }.in_one_form(MAX_FRAMES))
    }
}

/// By number of a loop, then of its boundary.
type Requests = BTreeMap<u32, BTreeMap<u32, RequestWay>>;

fn write_requests(loops: &BTreeMap<LoopKey, LoopProfile>) -> Vec<WireRequest> {
    let all = loops.values().zip(0..).flat_map(|(l, of)| {
        l.facts.boundaries.iter().zip(0..).map(move |(b, number)| ((of, number), b.request.as_ref()))
    });
    all.filter_map(|(of, r)| Some((of, r?)))
        .map(|(of, r)| WireRequest {
            of,
            module: Text(r.module.clone()),
            calls: r.calls.clone(),
            turn: r.turn,
        })
        .collect()
}

fn read_requests(all: Vec<WireRequest>, loops: &[WireLoop]) -> Result<Requests, DecodeError> {
    let mut read = Requests::new();
    for r in all {
        let of = loops.get(r.of.0 as usize).and_then(|l| l.boundaries.get(r.of.1 as usize));
        of.ok_or_else(|| damaged("requests of no wait"))?;
        let way = RequestWay { module: r.module.0, calls: r.calls, turn: r.turn };
        if read.entry(r.of.0).or_default().insert(r.of.1, way).is_some() {
            return Err(damaged("the requests of a wait twice"));
        }
    }
    Ok(read)
}

/// The trees with these paths, by what their units came by.
fn with_paths<'a>(
    trees: &'a BTreeMap<Called, UnitStats>,
    paths: &'a PathSet,
) -> impl Iterator<Item = &'a Called> {
    let all = trees.range(Called::from(paths.clone())..);
    all.map(|(of, _)| of).take_while(move |of| of.paths == *paths)
}

fn write_loop(key: &LoopKey, l: &LoopProfile) -> WireLoop {
    // In the order of the paths, so that the numbers follow from the contents.
    let sets = || l.trees.keys().chain(l.settings.keys());
    let paths: BTreeSet<&CallPath> = sets().flat_map(|of| of.paths.paths()).collect();
    let mut node: BTreeMap<(u32, FunctionId), u32> = BTreeMap::new();
    let mut nodes = Vec::new();
    let mut ends: BTreeMap<&CallPath, u32> = BTreeMap::new();
    for p in paths {
        let mut at = 0;
        for f in p.functions() {
            at = *node.entry((at, *f)).or_insert_with(|| {
                nodes.push((at, f.0));
                nodes.len() as u32
            });
        }
        ends.insert(p, at);
    }
    let places = |s: &PathSet| s.paths().iter().map(|p| ends[p]).collect();
    let contexts = |of: &Called| Contexts(of.contexts.iter().map(|c| (c.function.0, c.depth)).collect());
    let tree = |(of, s): (&Called, &UnitStats)| WireTree {
        paths: places(&of.paths),
        sum: halves(s.sum()),
        squares: halves(s.squares()),
        least: s.least().unwrap_or(0),
        greatest: s.greatest().unwrap_or(0),
        steps: s.histogram().counts().iter().map(|(s, n)| (*s, *n)).collect(),
        contexts: contexts(of),
    };
    // By their paths alone, where those are enough.
    let settings = |(of, s): (&Called, &Settings)| WireSettings {
        paths: places(&of.paths),
        contexts: with_paths(&l.trees, &of.paths).nth(1).map(|_| contexts(of)),
        name: s.name.as_ref().map(|d| (d.at, Text(d.what.clone()))),
        limit: s.limit.as_ref().map(|d| (d.at, d.what)),
        silent: s.silent.as_ref().map(|d| (d.at, d.what)),
    };
    let function =
        |f: &LoopFunction| (Text(f.function.module.clone()), Text(f.function.name.clone()), f.entry);
    let native = |n: &NativeWay| (Text(n.interpreter.clone()), Text(n.module.clone()), n.call);
    let boundary = |b: &Boundary| WireBoundary {
        calls: b.calls.clone(),
        syscall: b.syscall,
        native: b.native.as_ref().map(native),
    };
    WireLoop {
        build_id: Text(key.build_id.clone()),
        offset: key.offset,
        functions: l.facts.functions.iter().map(function).collect(),
        boundaries: l.facts.boundaries.iter().map(boundary).collect(),
        trees: l.trees.iter().map(tree).collect(),
        settings: l.settings.iter().map(settings).collect(),
        given: key.given.as_ref().map(|g| (Text(g.begin.clone()), Text(g.end.clone()))),
        nodes,
    }
}

fn read_loop(
    l: WireLoop,
    mut requests: BTreeMap<u32, RequestWay>,
    functions: usize,
    budget: &mut usize,
) -> Result<LoopProfile, DecodeError> {
    // How deep each node is: a node comes after the one that it is below.
    let mut depth = vec![0usize];
    for (i, &(above, function)) in l.nodes.iter().enumerate() {
        if above as usize > i || function as usize >= functions {
            return Err(damaged("a frame below none, or of no function"));
        }
        depth.push(depth[above as usize] + 1);
        if depth[i + 1] > MAX_FRAMES {
            return Err(damaged(format_args!("a call path of more than {MAX_FRAMES} frames")));
        }
    }
    let mut paths = |ends: &[u32]| -> Result<PathSet, DecodeError> {
        let mut all = Vec::with_capacity(ends.len());
        for &end in ends {
            let frames = *depth.get(end as usize).ok_or_else(|| damaged("a call path that ends nowhere"))?;
            // An empty path takes memory as well.
            *budget = budget.checked_sub(frames + 1).ok_or_else(|| damaged("too many frames in all"))?;
            let mut path = Vec::with_capacity(frames);
            let mut at = end as usize;
            while at > 0 {
                let (above, function) = l.nodes[at - 1];
                path.push(FunctionId(function));
                at = above as usize;
            }
            all.push(CallPath::new(path.into_iter().rev()));
        }
        Ok(PathSet::new(all))
    };
    let mut read = LoopProfile::default();
    let mut context_budget = MAX_ALL_FRAMES;
    let mut contexts = |Contexts(all): &Contexts| -> Result<BTreeSet<Context>, DecodeError> {
        if all.iter().any(|&(f, _)| f as usize >= functions) {
            return Err(damaged("a context of no function"));
        }
        context_budget = context_budget.checked_sub(all.len()).ok_or_else(|| damaged("too many contexts"))?;
        Ok(all.iter().map(|&(f, depth)| Context { function: FunctionId(f), depth }).collect())
    };
    for tree in &l.trees {
        let mut counts = BTreeMap::new();
        for &(step, n) in &tree.steps {
            if step > LAST_STEP || n == 0 || counts.insert(step, n).is_some() {
                return Err(damaged("a step of a histogram that is empty, twice or out of range"));
            }
        }
        let histogram = Histogram::from_counts(counts);
        let stats =
            UnitStats::from_parts(whole(tree.sum), whole(tree.squares), tree.least, tree.greatest, histogram)
                .map_err(damaged)?;
        let called = Called { paths: paths(&tree.paths)?, contexts: contexts(&tree.contexts)? };
        read.trees.entry(called).or_default().merge(&stats);
    }
    for s in l.settings {
        let settings = Settings {
            name: s.name.map(|(at, name)| Dated { at, what: name.0 }),
            limit: s.limit.map(|(at, what)| Dated { at, what }),
            silent: s.silent.map(|(at, what)| Dated { at, what }),
        };
        let paths = paths(&s.paths)?;
        let called = match s.contexts {
            Some(of) => Called { paths, contexts: contexts(&of)? },
            // There is one tree with these paths, if any.
            None => match with_paths(&read.trees, &paths).next() {
                Some(tree) => tree.clone(),
                None => continue,
            },
        };
        read.settings.entry(called).or_default().merge(settings);
    }
    let function = |(module, name, entry): (Text, Text, u64)| LoopFunction {
        function: Function { module: module.0, name: name.0 },
        entry,
    };
    let native = |(interpreter, module, call): (Text, Text, u64)| NativeWay {
        interpreter: interpreter.0,
        module: module.0,
        call,
    };
    let boundary = |(b, number): (WireBoundary, u32)| Boundary {
        calls: b.calls,
        syscall: b.syscall,
        native: b.native.map(native),
        request: requests.remove(&number),
    };
    read.facts = LoopFacts {
        functions: l.functions.into_iter().map(function).collect(),
        boundaries: l.boundaries.into_iter().zip(0..).map(boundary).collect(),
    };
    Ok(read)
}
