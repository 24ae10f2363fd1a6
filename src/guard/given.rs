//! Units that begin and end where a person said, in running processes.

use super::boundary::judge;
use super::guarding::{Guarding, Opened, Refused, Watched, find, opened};
use pg_event::{Ns, UnitTypeRow};
use pg_graph::units::{
    Binary, CallPath, Function, FunctionId, Given, KnownTypes, LoopFunction, LoopKey, PathSet, Profile, Unit,
};
use pg_tracer::given::{FdKind, Found, GivenError, GivenPoint, find as find_point};
use pg_tracer::guards::{GivenProbe, GivenUnit, GuardedLoop, Plan};
use pg_tracer::stacks::Binary as Opens;
use std::collections::BTreeSet;

/// Where units begin, and where they end if that is not with the call of the function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// `--unit-begin`.
    pub begin: GivenPoint,
    /// `--unit-end`.
    pub end: Option<GivenPoint>,
}

/// Bounds with their places in processes.
pub struct Located {
    /// What the profile calls them.
    pub key: LoopKey,
    /// What the units begin with.
    pub name: String,
    /// Path of its binary.
    pub module: String,
    unit: GivenUnit,
    binaries: Vec<Opened>,
}

impl Located {
    /// Finds them.
    ///
    /// # Errors
    /// There is no process, or no such place.
    pub fn of(bounds: &Bounds, pids: &[u32]) -> Result<Self, Refused> {
        let binaries = opened(pids)?;
        let all: Vec<&Opens> = binaries.iter().map(|o| &o.binary).collect();
        let begins = find_point(&bounds.begin, &all, false)?;
        let ends = ends(bounds.end.as_ref(), &all)?;
        let first = begins.first().ok_or(GivenError::NoCall(String::new()))?;
        let binary = all[first.binary];
        let given = Given {
            begin: plain(&bounds.begin).to_string(),
            end: bounds.end.as_ref().map_or_else(String::new, ToString::to_string),
        };
        let key = LoopKey { build_id: binary.key().to_owned(), offset: first.address, given: Some(given) };
        let (name, module) = (first.name.clone(), binary.path.clone());
        let unit = unit(&bounds.begin, &begins, bounds.end.as_ref(), &ends, &binaries, pids);
        Ok(Self { key, name, module, unit, binaries })
    }

    /// Guards them without a profile: all are of one type, and may take so long.
    pub fn guard(self, threshold: Ns) -> Guarding {
        let row = UnitTypeRow {
            name: self.name.clone(),
            function: self.name.clone(),
            module: self.module,
            offset: self.key.offset,
            threshold,
            rule: "set by hand".into(),
            ..UnitTypeRow::default()
        };
        let guarded = GuardedLoop {
            thresholds: vec![threshold],
            unknown: threshold,
            given: Some(self.unit),
            ..GuardedLoop::default()
        };
        let given = self.key.given.as_ref().map(ToString::to_string);
        let watched = Watched {
            key: self.key,
            module: row.module.clone(),
            function: self.name,
            types: vec![row],
            known: KnownTypes::default(),
            limits: (vec![threshold], threshold),
            guards: 0,
            given,
        };
        Guarding {
            plan: Plan { loops: vec![guarded], ..Plan::default() },
            judge: judge(Vec::new()),
            loops: vec![watched],
            functions: Vec::new(),
            notes: Vec::new(),
            binaries: self.binaries,
        }
    }

    /// A profile that has these units, with nothing learnt of them yet: for [`super::measure`]. One unit stands for all,
    /// since a profile knows nothing without.
    pub fn seed(&self) -> Profile {
        let module = self.module.rsplit('/').next().unwrap_or_default().to_owned();
        let function = Function { module, name: self.name.clone() };
        let paths = PathSet::new([CallPath::new([FunctionId(0)])]);
        let unit = Unit { duration: 0, paths, contexts: BTreeSet::new() };
        let build_id =
            if self.key.build_id.contains('.') { String::new() } else { self.key.build_id.clone() };
        let binary = Binary { path: self.module.clone(), build_id };
        let mut seed = Profile::new([binary], std::slice::from_ref(&function), [(self.key.clone(), &unit)]);
        seed.place_loop(&self.key, LoopFunction { function, entry: self.key.offset }, []);
        seed
    }

    /// Leaves only these units in a profile.
    ///
    /// # Errors
    /// It has none.
    pub fn only(&self, profile: &mut Profile) -> Result<(), Refused> {
        if profile.loops().any(|l| *l == self.key) {
            profile.retain_loops(|l| *l == self.key);
            return Ok(());
        }
        let known = profile.loops().map(|l| {
            let function = || profile.loop_function(l).map(|f| format!("turns of {}", f.function.label()));
            l.given.as_ref().map(ToString::to_string).or_else(function).unwrap_or_default()
        });
        let known: Vec<String> = known.collect();
        let given = self.key.given.as_ref().map(ToString::to_string).unwrap_or_default();
        Err(Refused::NotLearnt { given, known: known.join(", ") })
    }
}

/// The units of a profile's loop that was given.
pub(super) fn learnt(
    of: &Given,
    key: &LoopKey,
    binaries: &[Opened],
    pids: &[u32],
) -> Result<GivenUnit, Refused> {
    // It was printed by what reads it; a profile may be anybody's.
    let point = |text: &str| -> Result<GivenPoint, GivenError> {
        text.parse().map_err(|_| GivenError::Unreadable(text.chars().take(200).collect()))
    };
    let begin = point(&of.begin)?;
    let end = if of.end.is_empty() { None } else { Some(point(&of.end)?) };
    let all: Vec<&Opens> = binaries.iter().map(|o| &o.binary).collect();
    let begins = match &begin {
        // In the binary that it was learnt in, the function at this place, whatever else has its name.
        GivenPoint::Function { .. } | GivenPoint::Address { .. } => {
            let own = find(binaries, &key.build_id).map(|o| &o.binary).ok_or(Refused::NoProcess)?;
            let module = own.path.clone();
            let mut found = find_point(&GivenPoint::Address { module, address: key.offset }, &all, false)?;
            found.truncate(1);
            found
        }
        _ => find_point(&begin, &all, false)?,
    };
    let ends = ends(end.as_ref(), &all)?;
    Ok(unit(&begin, &begins, end.as_ref(), &ends, binaries, pids))
}

fn ends(end: Option<&GivenPoint>, all: &[&Opens]) -> Result<Vec<Found>, GivenError> {
    end.map_or(Ok(Vec::new()), |e| find_point(e, all, true))
}

/// Without the module, which the profile names by its build-id.
fn plain(point: &GivenPoint) -> GivenPoint {
    match point.clone() {
        GivenPoint::Function { name, .. } => GivenPoint::Function { module: None, name },
        GivenPoint::Usdt { provider, name, .. } => GivenPoint::Usdt { module: None, provider, name },
        other => other,
    }
}

fn unit(
    begin: &GivenPoint,
    begins: &[Found],
    end: Option<&GivenPoint>,
    ends: &[Found],
    binaries: &[Opened],
    pids: &[u32],
) -> GivenUnit {
    let probe = |point: &GivenPoint, f: &Found| {
        let kind = match point {
            GivenPoint::Syscall { kind, .. } => kind.map_or(0, FdKind::bits),
            _ => 0,
        };
        GivenProbe {
            file: binaries[f.binary].binary.file(),
            offset: f.offset,
            entry: f.entry,
            call: f.call,
            kind,
            semaphore: f.semaphore,
            shared: !binaries[f.binary].is_private(pids),
        }
    };
    let all = |point: &GivenPoint, found: &[Found]| found.iter().map(|f| probe(point, f)).collect();
    GivenUnit { begins: all(begin, begins), ends: end.map_or_else(Vec::new, |e| all(e, ends)) }
}
