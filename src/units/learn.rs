//! A profile of what a recording has.

use super::bounds::{Bounds, Loop};
use super::calls::Calls;
use super::cut::{Cut, Cutter, Did, Left};
use super::replies::Replies;
use super::requests;
use super::scan::Scanned;
use pg_event::{Catalog, Item, ModuleId, Ns, ThreadId};
use pg_graph::units::{
    Binary, Boundary, Function, LoopFunction, LoopKey, NativeWay, PathSet, Place, Profile, RequestWay, Unit,
};
use pg_tracer::units::{BoundaryPath, EventLoop, LoopAt, Places};
use std::collections::{BTreeMap, BTreeSet};

/// Units that are put into a profile at a time.
const BATCH: usize = 1 << 15;

/// What was learnt of a loop from a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LearntLoop {
    /// Where it is in the profile.
    pub key: LoopKey,
    /// File name of the binary that it is in.
    pub file: String,
    /// Name of its function; may be empty.
    pub name: String,
    /// Threads with units of it.
    pub threads: usize,
    /// Their units.
    pub units: u64,
    /// That its units are between these waits is likely, not proven.
    pub likely: bool,
    /// Those of them of which too little was seen to say what they called.
    pub unseen: u64,
    /// Of the waits that its units are between, those for the next request of a connection: units are requests.
    pub requests: usize,
    /// Waits in them for the next request of a connection that was answered: such a unit is a connection.
    pub next_requests: u64,
}

/// Threads of one name that no units were found in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quiet {
    /// Their name.
    pub name: String,
    /// How many they are.
    pub threads: usize,
    /// How many of them began and ended while it was recorded.
    pub brief: usize,
    /// Waits for input or a signal that were seen of them, with a stack.
    pub waits: u64,
    /// Functions of event loops that were found in them, though no wait recurs in these once a turn; of one without a name
    /// the file, and where in it.
    pub loops: BTreeSet<String>,
}

/// What was learnt from a recording, and what was not.
#[derive(Debug)]
pub struct Learnt {
    /// What was learnt.
    pub profile: Profile,
    /// File name of the program that most units are of.
    pub program: String,
    /// Functions that were seen in units, also in those of which too little was seen, and where they are.
    pub functions: Vec<(Function, Place)>,
    /// The loops, most units first.
    pub loops: Vec<LearntLoop>,
    /// Units that were left out.
    pub left: Left,
    /// Threads without units.
    pub quiet: Vec<Quiet>,
    /// Switches and events that the recording lacks, in words.
    pub notes: Vec<String>,
}

/// Learns of the threads that `wanted` names. `items` gives the recording from its beginning each time it is called;
/// `places` knows the binaries.
pub fn learn<I>(
    items: impl Fn() -> I,
    places: &mut Places,
    wanted: impl Fn(&Catalog, ThreadId) -> bool,
) -> Learnt
where
    I: Iterator<Item = Item>,
{
    let Scanned { catalog, seen, lost, notes, unheard, waits } = Scanned::of(items(), &wanted);
    let all: Vec<ThreadId> =
        (0..catalog.threads.len() as u32).map(ThreadId).filter(|t| wanted(&catalog, *t)).collect();
    let is_wanted: BTreeSet<ThreadId> = all.iter().copied().collect();
    let (found, turning) = seen.event_loops_turning(&catalog, places);
    let mut bounds = Bounds::new(&catalog, found.values().flatten(), &waits);
    requests::add(&mut bounds, items(), (&catalog, &is_wanted, &lost), (places, &turning));
    let loops: Vec<(LoopAt, String)> = bounds.loops().iter().map(|l| (l.at, l.name.clone())).collect();
    let likely: Vec<bool> = bounds.loops().iter().map(|l| l.likely).collect();
    let for_requests = |l: &Loop| l.boundary.iter().filter(|b| b.request.is_some()).count();
    let for_requests: Vec<usize> = bounds.loops().iter().map(for_requests).collect();
    let boundaries: Vec<Vec<Boundary>> = bounds.loops().iter().map(|l| boundaries(&catalog, l)).collect();
    let mut gathered = Gathered {
        calls: Calls::new(&catalog, places),
        keys: loops.iter().map(|l| key(&catalog, l.0)).collect(),
        loops,
        units: Vec::new(),
        profile: Profile::default(),
        tally: BTreeMap::new(),
        // Messages that were recorded now and then only would tell equal units apart.
        messages: !unheard,
    };
    let mut cutter = Cutter::new(&mut bounds, &lost, &catalog);
    let mut replies = Replies::default();
    for item in items() {
        if let Item::Events(events) = item {
            for e in &events {
                let wanted = is_wanted.contains(&e.thread);
                if let Some(unit) = cutter.event(e, wanted) {
                    gathered.add(unit);
                }
                requests::tell(&mut replies, &catalog, e, wanted, &cutter);
            }
        }
    }
    let left = cutter.end();
    for ((of, ..), came) in replies.end() {
        gathered.tally.entry(of).or_default().next_requests += came.next;
    }
    gathered.flush();
    let Gathered { calls, mut profile, keys, loops, tally, .. } = gathered;
    // A loop of Python is guarded where its interpreter runs.
    let interpreters = boundaries.iter().flatten().filter_map(|b| Some(&b.native.as_ref()?.interpreter));
    let interpreters: BTreeSet<&String> = interpreters.collect();
    let modules = catalog.modules.iter().filter(|m| interpreters.contains(&m.build_id));
    let binaries = modules.map(|m| Binary { path: m.path.clone(), build_id: m.build_id.clone() });
    profile = profile.merge(&Profile::new(binaries, &[], []));
    let functions: Vec<(Function, Place)> = calls.places().collect();
    profile.place_functions(functions.iter().cloned());
    for (((at, name), key), waits) in loops.iter().zip(&keys).zip(boundaries) {
        let function = LoopFunction { function: calls.loop_function(*at, name), entry: at.function };
        profile.place_loop(key, function, waits);
    }
    let most = tally.values().max_by_key(|t| t.units);
    let program = most.and_then(|t| t.threads.first()).and_then(|t| program(&catalog, *t));
    let mut learnt: Vec<LearntLoop> = Vec::new();
    let mut with_units: BTreeSet<ThreadId> = BTreeSet::new();
    for (of, t) in tally.into_iter().filter(|(_, t)| t.units > 0) {
        with_units.extend(&t.threads);
        let (key, name) = (keys[of].clone(), loops[of].1.clone());
        let threads = t.threads.len();
        let likely = likely[of];
        let file = catalog.modules.get(loops[of].0.module.index()).map_or("?", |m| m.short()).to_owned();
        learnt.push(LearntLoop {
            key,
            file,
            name,
            threads,
            units: t.units,
            likely,
            unseen: t.unseen,
            requests: for_requests[of],
            next_requests: t.next_requests,
        });
    }
    learnt.sort_by(|a, b| b.units.cmp(&a.units).then_with(|| a.key.cmp(&b.key)));
    let without = all.into_iter().filter(|t| !with_units.contains(t));
    let quiet = quiet(&catalog, without, |t| (seen.waits(t), found.get(&t).map_or(&[], Vec::as_slice)));
    let program = program.unwrap_or_else(|| "app".into());
    Learnt { profile, program, functions, loops: learnt, left, quiet, notes }
}

#[derive(Default)]
struct Tally {
    threads: BTreeSet<ThreadId>,
    units: u64,
    unseen: u64,
    next_requests: u64,
}

/// Units on their way into a profile.
struct Gathered<'a> {
    calls: Calls<'a>,
    loops: Vec<(LoopAt, String)>,
    keys: Vec<LoopKey>,
    units: Vec<(usize, Unit)>,
    profile: Profile,
    tally: BTreeMap<usize, Tally>,
    messages: bool,
}

impl Gathered<'_> {
    fn add(&mut self, unit: Cut) {
        let (at, name) = &self.loops[unit.of];
        let tally = self.tally.entry(unit.of).or_default();
        tally.threads.insert(unit.thread);
        tally.units += 1;
        let mut paths: PathSet = self.calls.paths(*at, unit.waits, &unit.samples);
        if paths.is_empty() {
            tally.unseen += 1;
            let mut did = unit.did;
            did.retain(|d| self.messages || !matches!(d, Did::Message(..)));
            paths = self.calls.unseen(*at, name, &did);
        }
        let duration: Ns = unit.end - unit.begin;
        self.units.push((unit.of, Unit { duration, paths, contexts: BTreeSet::new() }));
        if self.units.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let binaries = self.tally.keys().filter_map(|&of| self.calls.binary(self.loops[of].0));
        let binaries: Vec<Binary> = binaries.collect();
        let units = self.units.iter().map(|(of, u)| (self.keys[*of].clone(), u));
        let learnt = Profile::new(binaries, self.calls.functions(), units);
        self.profile = self.profile.merge(&learnt);
        self.units.clear();
    }
}

/// File name of a thread's program.
fn program(catalog: &Catalog, thread: ThreadId) -> Option<String> {
    let exe = catalog.process_of(thread)?.exe.rsplit('/').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    let name: String = exe.chars().filter(|&c| plain(c)).collect();
    let name = name.trim_start_matches('.');
    (!name.is_empty()).then(|| name.to_owned())
}

/// What names a loop in all recordings.
fn key(catalog: &Catalog, at: LoopAt) -> LoopKey {
    LoopKey { build_id: module_key(catalog, at.module).into(), offset: at.head, given: None }
}

/// What names a module in all recordings.
fn module_key(catalog: &Catalog, module: ModuleId) -> &str {
    let module = catalog.modules.get(module.index());
    module.map_or("", |m| if m.build_id.is_empty() { m.short() } else { &m.build_id })
}

fn boundaries(catalog: &Catalog, of: &Loop) -> Vec<Boundary> {
    let boundary = |b: &BoundaryPath| {
        let native = b.native_of(catalog, of.at).map(|(interpreter, (module, call))| NativeWay {
            interpreter: module_key(catalog, interpreter).into(),
            module: module_key(catalog, module).into(),
            call,
        });
        let request = b.request.as_ref().map(|r| RequestWay {
            module: module_key(catalog, r.module).into(),
            calls: b.of_request().collect(),
            turn: r.turn.and_then(|t| u32::try_from(t).ok()),
        });
        Boundary { calls: b.own().collect(), syscall: b.syscall, native, request }
    };
    of.boundary.iter().map(boundary).collect()
}

/// Threads without units by their names, most waits first.
fn quiet<'l>(
    catalog: &Catalog,
    threads: impl Iterator<Item = ThreadId>,
    of: impl Fn(ThreadId) -> (u64, &'l [EventLoop]),
) -> Vec<Quiet> {
    let mut all: BTreeMap<String, Quiet> = BTreeMap::new();
    for id in threads {
        let name = catalog.thread(id).map_or("", |t| t.name.as_str()).to_owned();
        let new = || Quiet { name: name.clone(), threads: 0, brief: 0, waits: 0, loops: BTreeSet::new() };
        let quiet = all.entry(name.clone()).or_insert_with(new);
        let (waits, loops) = of(id);
        quiet.threads += 1;
        quiet.brief += usize::from(catalog.thread(id).is_some_and(|t| t.start > 0 && t.end.is_some()));
        quiet.waits += waits;
        quiet.loops.extend(loops.iter().map(|l| {
            let file = catalog.modules.get(l.at.module.index()).map_or("?", |m| m.short());
            if l.name.is_empty() { format!("{file}+{:#x}", l.at.head) } else { l.name.clone() }
        }));
    }
    let mut all: Vec<Quiet> = all.into_values().collect();
    all.sort_by(|a, b| b.waits.cmp(&a.waits).then_with(|| a.name.cmp(&b.name)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::Thread;

    #[test]
    fn threads_that_came_and_went_are_counted() {
        let thread = |name: &str, start, end| Thread { name: name.into(), start, end, ..Thread::default() };
        let catalog = Catalog {
            threads: vec![
                thread("serve", 5, Some(6)),
                thread("serve", 0, Some(7)),
                thread("serve", 8, None),
                thread("main", 0, None),
                thread("serve", 9, Some(12)),
            ],
            ..Catalog::default()
        };
        let all = quiet(&catalog, (0..5).map(ThreadId), |t| (u64::from(t.0), &[]));
        let told: Vec<_> = all.iter().map(|q| (q.name.as_str(), q.threads, q.brief, q.waits)).collect();
        assert_eq!(told, [("serve", 4, 2, 7), ("main", 1, 0, 3)]);
    }
}
