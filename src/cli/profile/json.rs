//! A profile as JSON: `profile show --json`. Times are in ns.

use crate::unit_rule::threshold_words;
use pg_graph::units::{
    Caution, FunctionId, Listed, Profile, Row, Rule, TypeId, TypeOptions, VERSION, average_relative,
};
use serde::Serialize;

/// The whole.
#[derive(Serialize)]
pub struct Whole {
    version: u16,
    units: u64,
    binaries: Vec<Binary>,
    loops: Vec<Loop>,
}

#[derive(Serialize)]
struct Binary {
    path: String,
    build_id: String,
}

#[derive(Serialize)]
struct Loop {
    /// Build-id of its binary, or the file name of one without.
    build_id: String,
    /// Where its turns begin in it.
    offset: u64,
    /// The function that it is in.
    function: Option<String>,
    module: Option<String>,
    entry: Option<u64>,
    /// Where its units begin and end, when a person said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<Given>,
    /// The waits between its units.
    boundaries: Vec<Boundary>,
    /// Mean deviation of the ten costliest types, in percent of their means.
    mean_relative_percent: Option<f64>,
    types: Vec<Type>,
}

#[derive(Serialize)]
struct Given {
    begin: String,
    /// `null`: with the call of the function that they begin with.
    end: Option<String>,
}

#[derive(Serialize)]
struct Boundary {
    syscall: String,
    calls: Vec<u64>,
    /// Of a loop of Python: the build-id of the interpreter's binary, when the calls are in that; else they are lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    interpreter: Option<String>,
    /// Of a wait within a connection for the next request of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Request>,
}

#[derive(Serialize)]
struct Request {
    /// Build-id of the binary that the loop of requests is in, and the calls in there.
    build_id: String,
    calls: Vec<u64>,
}

#[derive(Serialize)]
struct Type {
    number: usize,
    name: String,
    units: u64,
    mean_ns: f64,
    sigma_ns: Option<f64>,
    relative_percent: Option<f64>,
    median_ns: u64,
    p99_ns: u64,
    greatest_ns: u64,
    threshold_ns: u64,
    /// Where the threshold comes from.
    rule: String,
    /// Units that it was learnt from and that were above it.
    above: u64,
    /// Units that the rule takes, where there are fewer.
    needs_units: Option<u64>,
    silent: bool,
    /// Too little was seen of its units to say what they called.
    unseen: bool,
    /// Different call trees, and the call paths of the one in the middle of them.
    call_trees: usize,
    call_paths: Vec<Vec<String>>,
}

/// The contents of a profile.
pub fn profile(p: &Profile) -> Whole {
    let binary = |b: &pg_graph::units::Binary| Binary { path: b.path.clone(), build_id: b.build_id.clone() };
    let listed = p.listed(TypeOptions::default(), Rule::default());
    Whole {
        version: VERSION,
        units: p.units(),
        binaries: p.binaries().map(binary).collect(),
        loops: listed.iter().map(|l| loop_of(p, l)).collect(),
    }
}

fn loop_of(p: &Profile, l: &Listed) -> Loop {
    let function = p.loop_function(&l.key);
    let boundary = |b: &pg_graph::units::Boundary| Boundary {
        syscall: b.syscall.name().unwrap_or_default().into_owned(),
        calls: b.calls.clone(),
        interpreter: b.native.as_ref().map(|n| n.interpreter.clone()),
        request: b.request.as_ref().map(|r| Request { build_id: r.module.clone(), calls: r.calls.clone() }),
    };
    let rows: Vec<Row> = l.rows.iter().map(|r| r.1.clone()).collect();
    Loop {
        build_id: l.key.build_id.clone(),
        offset: l.key.offset,
        function: function.map(|f| f.function.name.clone()),
        module: function.map(|f| f.function.module.clone()),
        entry: function.map(|f| f.entry),
        given: l
            .key
            .given
            .as_ref()
            .map(|g| Given { begin: g.begin.clone(), end: Some(g.end.clone()).filter(|e| !e.is_empty()) }),
        boundaries: p.boundaries(&l.key).map(boundary).collect(),
        mean_relative_percent: average_relative(&rows),
        types: l.rows.iter().map(|(number, row)| type_of(p, l, *number, row)).collect(),
    }
}

fn type_of(p: &Profile, l: &Listed, number: usize, row: &Row) -> Type {
    let of = &l.of.types.types()[row.of];
    let function =
        |f: &FunctionId| p.functions().get(f.0 as usize).map_or_else(|| "?".to_owned(), |f| f.name.clone());
    let paths = l.of.types.trees()[of.representative].paths.paths();
    let needs_units = match row.threshold.caution {
        Some(Caution::TooFew { need, .. }) => Some(need),
        _ => None,
    };
    Type {
        number,
        name: l.of.known.names[row.of].clone(),
        units: row.units,
        mean_ns: row.mean,
        sigma_ns: row.sigma,
        relative_percent: row.relative,
        median_ns: row.median,
        p99_ns: row.p99,
        greatest_ns: row.greatest,
        threshold_ns: row.threshold.ns,
        rule: threshold_words(l.of.known.limits[row.of], Some(&row.threshold)),
        above: row.threshold.above,
        needs_units,
        silent: l.of.known.silent[row.of],
        unseen: l.of.unseen(TypeId(row.of as u32), p.functions()),
        call_trees: of.trees.len(),
        call_paths: paths.iter().map(|p| p.functions().iter().map(function).collect()).collect(),
    }
}
