//! What of a profile can be guarded in processes.

use super::boundary::{Body, Judged, Way, judge};
use pg_event::{Ns, UnitTypeRow};
use pg_graph::units::{
    Context, FunctionId, KnownTypes, Limit, LoopKey, LoopTypes, Place, Profile, SelectOptions, TypeId,
    TypeOptions, candidates, guards, telling,
};
use pg_tracer::Error;
use pg_tracer::given::{GivenError, program_first};
use pg_tracer::guards::{GuardedFunction, GuardedLoop, Guards, Judge, Plan, Point, SeenUnits, Unknown};
use pg_tracer::stacks::Binary;
use pg_tracer::units::LoopBody;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bins of a type's histogram that a recording gets.
const MAX_BINS: usize = 512;

/// Why nothing of a profile can be guarded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    /// None of the processes is there.
    #[error("none of the processes is there, or none may be looked at")]
    NoProcess,
    /// The processes run something else.
    #[error(
        "the profile knows nothing of what these processes execute: it was learnt from {learnt}; after an update of the \
         program, train again"
    )]
    OtherBinary {
        /// What it was learnt from.
        learnt: String,
    },
    /// No wait between units is known.
    #[error("the profile does not say which waits are between units: train again")]
    NoBoundary,
    /// Units that a person gave the boundaries of have none here.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// The profile has no such units.
    #[error(
        "the profile knows no units that are {given}: it has {known}; learn them with pg-tui train --unit-begin, or \
         guard without --profile and say --threshold"
    )]
    NotLearnt {
        /// What was asked for.
        given: String,
        /// What there is.
        known: String,
    },
}

/// A loop that is guarded.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Which of the profile.
    pub key: LoopKey,
    /// File of its module.
    pub module: String,
    /// Name of its function.
    pub function: String,
    /// Its types, by their numbers in the profile. None while learning.
    pub types: Vec<UnitTypeRow>,
    /// The same as the profile has them.
    pub known: KnownTypes,
    /// How long they may take, and units of no known type, ns; 0 as long as they like.
    pub limits: (Vec<Ns>, Ns),
    /// Functions at which its types are told from each other.
    pub guards: usize,
    /// Its units are no turns of a loop: what they are, in words.
    pub given: Option<String>,
}

impl Watched {
    /// Why the type of a unit is not known, in words that follow a colon.
    pub fn why_unknown(&self, why: Unknown) -> String {
        match why {
            Unknown::NoTypes => "no types of this loop were learnt".into(),
            Unknown::Nothing => {
                "no function is probed that tells the types of this loop from each other".into()
            }
            Unknown::Dark => {
                "it began while no probes were set, which would have cost more than they may (--budget)"
                    .into()
            }
            Unknown::Resting => {
                "it had come by no function that is probed; others that tell types are called too often, \
                                 and rest"
                    .into()
            }
            Unknown::Passed => match self.guards {
                1 => "it had not come by the one function that tells types from each other".into(),
                n => format!("it had come by none of the {n} functions that tell types from each other"),
            },
        }
    }

    /// The row of units of no known type, and why that is, for a recording.
    pub fn unknown(&self, why: Unknown) -> UnitTypeRow {
        UnitTypeRow {
            function: self.function.clone(),
            module: self.module.clone(),
            offset: self.key.offset,
            threshold: self.limits.1,
            unknown: self.why_unknown(why),
            ..UnitTypeRow::default()
        }
    }
}

/// What is guarded.
pub struct Guarding {
    /// For [`pg_tracer::guards::Guards::start`].
    pub plan: Plan,
    /// As well.
    pub judge: Judge,
    /// The loops as the plan numbers them.
    pub loops: Vec<Watched>,
    /// Functions as the plan numbers them.
    pub functions: Vec<FunctionId>,
    /// Sentences about what is not guarded.
    pub notes: Vec<String>,
    /// The binaries.
    pub(super) binaries: Vec<Opened>,
}

/// A binary, and whether only processes that are guarded execute it.
pub(super) struct Opened {
    pub binary: Binary,
    private: OnceCell<bool>,
}

impl Opened {
    /// Do only these processes execute it?
    pub fn is_private(&self, pids: &[u32]) -> bool {
        *self.private.get_or_init(|| !self.binary.is_used_beside(pids))
    }
}

/// How long a process may take from `execve` until its program is mapped.
const TO_BE_MAPPED: Duration = Duration::from_secs(1);

/// Those of the processes, each once, programs before libraries. Of one that is just being started there are none yet:
/// it is waited for.
pub(super) fn opened(pids: &[u32]) -> Result<Vec<Opened>, Refused> {
    let mut all: Vec<Opened> = Vec::new();
    let begun = Instant::now();
    loop {
        for binary in pids.iter().flat_map(|&pid| program_first(pid, Binary::of_process(pid))) {
            if !all.iter().any(|known| known.binary.is_same(&binary)) {
                all.push(Opened { binary, private: OnceCell::new() });
            }
        }
        let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
        match () {
            () if !all.is_empty() => return Ok(all),
            () if begun.elapsed() > TO_BE_MAPPED || !pids.iter().any(is_there) => {
                return Err(Refused::NoProcess);
            }
            () => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// What is guarded of a profile in processes, for units of each type up to `limit`; told from each other by probes,
/// or without. While learning all functions of the profile are probed that `wanted` lets.
pub struct Ask<'a> {
    /// What was learnt.
    pub profile: &'a Profile,
    /// Its name, for those who want to change it.
    pub file: &'a str,
    /// The processes.
    pub pids: &'a [u32],
    /// How long a unit may take where the profile has nobody's word.
    pub limit: Limit,
    /// Set probes.
    pub probes: bool,
}

impl Guarding {
    /// For guarding.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn of(ask: &Ask) -> Result<Self, Refused> {
        let mut all = Self::loops_of(ask)?;
        let mut guarded: BTreeMap<FunctionId, usize> = BTreeMap::new();
        for (i, watched) in all.loops.iter_mut().enumerate() {
            let Some(of) = ask.profile.types(&watched.key, TypeOptions::default()) else { continue };
            watched.types = rows(ask, watched, &of.known);
            watched.limits = limits(&watched.types, &of.known.silent);
            (all.plan.loops[i].thresholds, all.plan.loops[i].unknown) = watched.limits.clone();
            if !ask.probes {
                watched.known = of.known;
                continue;
            }
            all.plan.loops[i].first.clone_from(&of.first);
            let mut told: BTreeMap<FunctionId, Vec<(u32, Vec<usize>)>> = BTreeMap::new();
            for (c, types) in telling(&of.contexts) {
                told.entry(c.function).or_default().push((c.depth, types));
            }
            let mut places: BTreeMap<Context, usize> = BTreeMap::new();
            for function in functions_of(&of) {
                let told = told.remove(&function).unwrap_or_default();
                let place = ask
                    .profile
                    .places(function)
                    .find_map(|p| at(&all.binaries, ask, p))
                    .filter(|_| !told.is_empty());
                let Some(place) = place else { continue };
                let number = *guarded.entry(function).or_insert_with(|| {
                    all.plan.functions.push(place);
                    all.functions.push(function);
                    all.plan.functions.len() - 1
                });
                watched.guards += 1;
                for (depth, types) in told {
                    places.insert(Context { function, depth }, all.plan.contexts.len());
                    all.plan.contexts.push((i, number, depth, types));
                }
            }
            let seen = of.seen.iter().filter(|s| !s.2.is_empty()).map(|(of, units, contexts)| SeenUnits {
                of: *of,
                units: *units,
                contexts: contexts.iter().filter_map(|c| places.get(c).copied()).collect(),
            });
            all.plan.loops[i].seen = seen.collect();
            watched.known = of.known;
        }
        Ok(all)
    }

    /// For learning: these functions are probed, and every unit is told. [`Self::functions`] are places in the list.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn learning<'p>(
        ask: &Ask,
        functions: impl IntoIterator<Item = (FunctionId, &'p Place)>,
    ) -> Result<Self, Refused> {
        let mut all = Self::loops_of(ask)?;
        all.plan.learning = true;
        for (function, place) in functions {
            if let Some(place) = at(&all.binaries, ask, place) {
                all.plan.functions.push(place);
                all.functions.push(function);
            }
        }
        Ok(all)
    }

    /// Guards these processes, and those they create.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn start(mut self, pids: &[u32]) -> Result<Guards, Error> {
        self.plan.binaries = self.binaries.into_iter().map(|o| o.binary).collect();
        Guards::start(self.plan, self.judge, pids)
    }

    /// The loops that are there, with their boundaries. Their types are not looked at.
    fn loops_of(ask: &Ask) -> Result<Self, Refused> {
        let binaries = opened(ask.pids)?;
        let mut plan = Plan::default();
        let (mut loops, mut paths) = (Vec::new(), Vec::new());
        let mut there = false;
        let is_there = |key: &&LoopKey| find(&binaries, &key.build_id).is_some();
        // A thread has one unit at a time: those that a person asked for.
        let given = ask.profile.loops().filter(is_there).any(|k| k.given.is_some());
        let mut notes = Vec::new();
        for key in ask.profile.loops() {
            let own = find(&binaries, &key.build_id).map(|o| &o.binary);
            let ways: Vec<Way> =
                ask.profile.boundaries(key).filter_map(|b| Way::of(key, b, &binaries)).collect();
            // Of a loop of Python an older profile has no way that guards would know.
            there |= own.is_some() || !ways.is_empty() || is_older_python(ask.profile, key);
            if let Some(of) = &key.given {
                let Some(binary) = own else { continue };
                let unit = super::given::learnt(of, key, &binaries, ask.pids)?;
                plan.loops.push(GuardedLoop { given: Some(unit), ..GuardedLoop::default() });
                paths.push(Judged { ways: Vec::new(), body: None });
                loops.push(watched(ask, key, &binary.path));
                continue;
            }
            if ways.is_empty() {
                continue;
            }
            if given {
                let left = "turns of loops are not guarded beside units that were given: guard these by a profile of \
                            their own";
                notes = vec![left.to_owned()];
                continue;
            }
            let turns: BTreeSet<(PathBuf, u64)> = ways.iter().filter_map(|w| w.behind(&binaries)).collect();
            let turns = turns.into_iter().filter(|_| ask.probes).collect();
            let function = ask.profile.loop_function(key).map(|f| &f.function);
            let python = function.filter(|_| ways.iter().any(|w| w.wait.is_some())).map(|f| f.name.clone());
            plan.loops.push(GuardedLoop { turns, python, ..GuardedLoop::default() });
            paths.push(Judged { ways, body: own.and_then(|b| body(ask.profile, key, b)) });
            let file = function.map(|f| f.module.clone());
            loops.push(watched(ask, key, &own.map(|b| b.path.clone()).or(file).unwrap_or_default()));
        }
        if !there {
            let learnt: Vec<&str> = ask.profile.binaries().map(|b| b.path.as_str()).collect();
            return Err(Refused::OtherBinary { learnt: learnt.join(", ") });
        }
        if loops.is_empty() {
            return Err(Refused::NoBoundary);
        }
        Ok(Self { plan, judge: judge(paths), loops, functions: Vec::new(), notes, binaries })
    }
}

/// Functions that tell the types of a loop from each other, and that contexts are known of.
pub fn functions_of(of: &LoopTypes) -> Vec<FunctionId> {
    let known: BTreeSet<FunctionId> = of.contexts.iter().flatten().map(|c| c.function).collect();
    let mut all = candidates(&of.types);
    all.retain(|c| known.contains(&c.function));
    guards(&of.splits, &all, SelectOptions::default())
}

/// Where a place is in the binaries. None where the kernel would have to step through its instructions, and in those
/// that other programs execute, too: functions of the C library are called by everything and tell little.
fn at(binaries: &[Opened], ask: &Ask, place: &Place) -> Option<GuardedFunction> {
    let opened = find(binaries, &place.build_id)?;
    let (file, offset) = (opened.binary.file(), opened.binary.offset(place.entry)?);
    if Point::find(&file, offset).stepped {
        return None;
    }
    opened.is_private(ask.pids).then_some(GuardedFunction { file, offset })
}

pub(super) fn find<'a>(binaries: &'a [Opened], key: &str) -> Option<&'a Opened> {
    binaries.iter().find(|o| o.binary.key() == key)
}

/// The code of a loop of machine code.
fn body(profile: &Profile, key: &LoopKey, binary: &Binary) -> Option<Body> {
    let entry = profile.loop_function(key)?.entry;
    let code = LoopBody::read(&binary.file(), binary.key(), entry, key.offset)?;
    Some(Body { module: key.build_id.clone(), turns: Box::new(move |call| code.turns(call)) })
}

/// Was it learnt of a loop of Python by a version that kept no native way to its waits?
fn is_older_python(profile: &Profile, key: &LoopKey) -> bool {
    let is_source = Path::new(&key.build_id).extension().is_some_and(|e| e == "py");
    is_source && profile.boundaries(key).all(|b| b.native.is_none())
}

fn watched(ask: &Ask, key: &LoopKey, module: &str) -> Watched {
    let function =
        ask.profile.loop_function(key).map_or_else(String::new, |f| f.function.label().into_owned());
    let given = key.given.as_ref().map(ToString::to_string);
    let (key, module, (types, limits, known)) = (key.clone(), module.to_owned(), Default::default());
    Watched { key, module, function, types, known, limits, guards: 0, given }
}

/// How long units may take by the rows of their types, of which some are silent; and those of no known type: the greatest,
/// unless one type may take as long as it likes.
fn limits(rows: &[UnitTypeRow], silent: &[bool]) -> (Vec<Ns>, Ns) {
    let limit = |(row, silent): (&UnitTypeRow, &bool)| if *silent { 0 } else { row.threshold };
    let known: Vec<Ns> = rows.iter().zip(silent).map(limit).collect();
    let unknown = if known.contains(&0) { 0 } else { known.iter().copied().max().unwrap_or(0) };
    (known, unknown)
}

/// Guarded loops with the names and limits that a person has given their types in the profile since it was `learnt`.
/// `None` when it knows other units of them now: their types may be others, and what tells those from each other is chosen
/// at the start. Nothing is clustered.
pub fn changed(ask: &Ask, learnt: &Profile, loops: &[Watched]) -> Option<Vec<Watched>> {
    let change = |watched: &Watched| {
        let known = ask.profile.said_since(learnt, &watched.key, &watched.known)?;
        let types = rows(ask, watched, &known);
        let limits = limits(&types, &known.silent);
        Some(Watched { types, known, limits, ..watched.clone() })
    };
    loops.iter().map(change).collect()
}

/// The types of a loop for a recording.
fn rows(ask: &Ask, watched: &Watched, of: &KnownTypes) -> Vec<UnitTypeRow> {
    let row = |t: usize| {
        let stats = &of.stats[t];
        let said = if of.limits[t] == Limit::Auto { ask.limit } else { of.limits[t] };
        let mut rule = crate::unit_rule::rule_words(said);
        let threshold = match said {
            Limit::Fixed(ns) => Some(ns),
            // A few units say nothing of how long the next may take.
            _ if !of.is_enough() => None,
            _ => {
                let found = of.threshold(TypeId(t as u32), ask.limit.rule().unwrap_or_default());
                rule = crate::unit_rule::threshold_words(said, found.as_ref());
                found.map(|t| t.ns)
            }
        };
        UnitTypeRow {
            name: of.names[t].clone(),
            function: watched.function.clone(),
            module: watched.module.clone(),
            offset: watched.key.offset,
            profile: ask.file.to_owned(),
            units: stats.count(),
            mean: stats.mean().unwrap_or(0.0).round() as Ns,
            sigma: stats.sigma().unwrap_or(0.0).round() as Ns,
            threshold: threshold.unwrap_or(0),
            rule,
            histogram: stats.histogram().coarse(MAX_BINS),
            unknown: String::new(),
        }
    };
    (0..of.stats.len()).map(row).collect()
}
