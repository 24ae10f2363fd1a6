//! `pg-tui violations`: units of work that took too long, without a screen.

use super::args::Violations;
use super::diagnose::harmless;
use super::exit::{Failure, Outcome};
use super::loading;
use crate::clean::{clean, clean_to};
use crate::session::Loaded;
use pg_graph::report::ViolationInfo;
use pg_graph::words::{moment, span, unit_type};
use pg_graph::{
    BuildOptions, Victim, ViolationFact, violation_info, violation_victim, way_victim, withdrawn_info,
};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

/// Run it. Code 1: there are none.
pub fn run(args: &Violations, out: &mut dyn Write) -> Outcome {
    let loaded = loading::load(&args.file, BuildOptions::default())?;
    let all = loaded.graph.violations();
    if args.withdrawn {
        return withdrawn(args, &loaded, out);
    }
    for (i, v) in all.iter().enumerate() {
        let info = violation_info(&loaded.graph, &loaded.catalog, v, i + 1);
        let line = if args.json { json(&info)? } else { text(&loaded, v, &info) };
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    if let n @ 1.. = loaded.graph.withdrawn().len() {
        let units = if n == 1 { "1 unit".into() } else { format!("{n} units") };
        say!(
            "pg-tui: {units} only seemed to take too long and turned out to be of another type (--withdrawn lists them)"
        );
    }
    if all.is_empty() {
        let file = args.file.display();
        return Err(Failure::Nothing(format!(
            "{file}: no unit of work took too long, or no guard looked (pg-tui guard does)"
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// Those that are none. Code 1: there are none of these.
fn withdrawn(args: &Violations, loaded: &Loaded, out: &mut dyn Write) -> Outcome {
    let all = loaded.graph.withdrawn();
    for w in all {
        let info = withdrawn_info(&loaded.graph, &loaded.catalog, w);
        let line = if args.json { json(&info)? } else { text(loaded, &w.told, &info) };
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    if all.is_empty() {
        let file = args.file.display();
        return Err(Failure::Nothing(format!(
            "{file}: of no unit it turned out that it had not taken too long"
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of `--json`.
pub fn json(info: &ViolationInfo) -> Result<String, Failure> {
    let plain = serde_json::to_string(info).map_err(|e| Failure::Other(format!("JSON: {e}")))?;
    Ok(harmless(&plain))
}

fn text(loaded: &Loaded, v: &ViolationFact, info: &ViolationInfo) -> String {
    const WIDTH: usize = 300;
    let handed_on = info.handed_on.as_ref().map_or_else(String::new, |h| format!(", {}", h.words));
    let c = &loaded.catalog;
    let more = if v.ended { "" } else { " and went on" };
    let place = crate::frames::innermost(&info.stack, 3).join(" ← ");
    let spent = loaded.graph.spent_words(c, v);
    let spent = if spent.is_empty() { spent } else { format!(" ({spent})") };
    let mostly = info.mostly.as_ref().map_or_else(String::new, |h| format!(", {}", h.words()));
    let turned_out = info.withdrawn.as_ref().map_or_else(String::new, |w| {
        let may = if w.threshold_ns == 0 { "as long as it likes".into() } else { span(w.threshold_ns) };
        format!(", withdrawn: it is of type {}, which may take {may}", w.unit_type)
    });
    let why = info.type_unknown.as_ref().map_or_else(String::new, |why| format!(", of unknown type: {why}"));
    let number = if info.number > 0 { info.number.to_string() } else { "-".into() };
    let line = format!(
        "{number:>4}  {:>10}  {}:{}  {}: {}{more}, may take {} ({:.2} x), seen {}{turned_out}{spent}{mostly}{handed_on}{why}  {place}",
        moment(v.time),
        info.process,
        info.tid,
        unit_type(c, v.unit_type),
        span(v.duration()),
        span(v.threshold),
        info.excess,
        info.at,
    );
    clean_to(&line, WIDTH)
}

/// The victim that a violation is, by its number in the recording; or the part of its transaction that took longest.
pub fn victim(
    loaded: &Loaded,
    file: &Path,
    number: NonZeroUsize,
    transaction: bool,
) -> Result<Victim, Failure> {
    let (graph, catalog) = (&loaded.graph, &loaded.catalog);
    let (file, all) = (file.display(), graph.violations());
    let v = all.get(number.get() - 1).ok_or_else(|| {
        Failure::Usage(format!(
            "{file}: there is no violation {number}; it has {} (pg-tui violations)",
            all.len()
        ))
    })?;
    let nothing = || {
        Failure::Nothing(format!(
            "{file}: nothing was recorded of the thread of violation {number} meanwhile"
        ))
    };
    if !transaction {
        return violation_victim(graph, catalog, v).ok_or_else(nothing);
    }
    let way = graph.slow_way(catalog, v).ok_or_else(|| {
        Failure::Nothing(format!(
            "{file}: no other thread is known to have handed the unit of violation {number} on"
        ))
    })?;
    say!("pg-tui: {}", clean(&way.words(catalog)));
    way_victim(graph, catalog, v, &way).ok_or_else(nothing)
}
