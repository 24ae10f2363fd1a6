//! `pg-tui diagnose`: the cause of a hang without a screen.

use super::args::{At, Diagnose, ns};
use super::exit::{Failure, Outcome};
use super::page::Page;
use super::{loading, text};
use crate::flight::KEPT;
use crate::session::Loaded;
use crate::wall::{date_time, time_of_day};
use pg_event::Ns;
use pg_graph::report::Report;
use pg_graph::{BuildOptions, By, Diagnosis, Options, SelectError, Selection, Step, Victim, VictimOptions};
use regex::Regex;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Diagnose, out: &mut dyn Write) -> Outcome {
    let process = args.process.as_deref().map(|r| regex("--process", r)).transpose()?;
    let answers = args.answers.as_deref().map(read_answers).transpose()?;
    let build = BuildOptions {
        split_batches: !args.whole_turns,
        split_peers: !args.whole_turns,
        ..BuildOptions::default()
    };
    let loaded = loading::load_with(&args.file, build, &args.symbols.source())?;
    if args.steps {
        return super::steps::run(args, process.as_ref(), &loaded, out);
    }
    let victim = match args.violation {
        Some(number) => super::violations::victim(&loaded, &args.file, number, args.transaction)?,
        None => select(args, process, &loaded)?,
    };
    let mut report = diagnose(&loaded, victim.clone(), answers, args.replay, usize::from(args.top))?;
    let selected = args.pid.is_some() || args.tid.is_some() || args.process.is_some() || args.at.is_some();
    if !selected && args.violation.is_none() {
        report.also_hung = pg_graph::also_hung(&loaded.graph, &loaded.catalog, &victim, &report);
    }
    let stats = args.stats.then(|| pg_graph::stats(&loaded.graph, &victim, &report));
    report.stats.clone_from(&stats);
    if let Some(stats) = stats.filter(|_| !args.json) {
        out.write_all(text::shown(super::stats::table(&report, &stats)).as_bytes())?;
    } else if args.json {
        writeln!(out, "{}", json(&report)?)?;
    } else {
        let text = text::whole(&report, &loaded.header.focus, args.why_not, Page::of_output());
        out.write_all(text::shown(text).as_bytes())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What a flight recorder wrote this file for: that is what a person wants to know of it first.
fn kept_for(loaded: &Loaded) -> Option<Selection> {
    if !loaded.coverage.notes.iter().any(|n| n.starts_with(KEPT)) {
        return None;
    }
    let note = loaded.session.notes().into_iter().find(|n| n.id == 1 && n.bookmark)?;
    let tid = loaded.catalog.thread(note.thread)?.tid;
    (tid != 0).then(|| Selection { tid: Some(tid), at: Some(note.time), ..Selection::default() })
}

/// The worst victim that fits what was asked for.
fn select(args: &Diagnose, process: Option<Regex>, loaded: &Loaded) -> Result<Victim, Failure> {
    let at = args.at.map(|at| moment(at, loaded)).transpose()?;
    let selection = Selection { pid: args.pid, tid: args.tid, process, at };
    let open = args.pid.is_none() && args.tid.is_none() && args.at.is_none() && selection.process.is_none();
    let options = VictimOptions::default();
    if let Some(kept_for) = kept_for(loaded).filter(|_| open)
        && let Ok(victim) = pg_graph::select(&loaded.graph, &loaded.catalog, &kept_for, &options)
    {
        return Ok(victim);
    }
    pg_graph::select(&loaded.graph, &loaded.catalog, &selection, &VictimOptions::default()).map_err(|e| {
        match e {
            // Not that nothing hung: nothing of what is left of it did.
            SelectError::NothingAbnormal(_) if hides(loaded) => Failure::Input(format!(
                "{}: the file is damaged, and in what is left of it is {e}",
                args.file.display()
            )),
            SelectError::NothingAbnormal(_) => Failure::Nothing(format!("{}: {e}", args.file.display())),
            SelectError::NoMatch(_) => Failure::Usage(format!("{}: {e}", args.file.display())),
        }
    })
}

/// When that was in the recording, ns.
fn moment(at: At, loaded: &Loaded) -> Result<Ns, Failure> {
    let (start, end) = (loaded.header.start_wall, loaded.graph.duration());
    let second = match at {
        At::Since(seconds) => return Ok(ns(seconds)),
        At::Clock(second) => second,
    };
    match crate::wall::moment_of(start, second) {
        Some(at) if at <= end => Ok(at),
        Some(_) => Err(Failure::Usage(format!(
            "--at: the recording is from {} to {}",
            date_time(start),
            time_of_day(start, end)
        ))),
        None => {
            Err(Failure::Usage("--at: the file does not say when it began; use seconds since then".into()))
        }
    }
}

/// Can something be missing of a recording besides its very end?
fn hides(loaded: &Loaded) -> bool {
    let cut_off = !loaded.session.is_closed() && loaded.graph.event_count() == 0;
    cut_off || loaded.warnings.iter().any(|w| w.hides)
}

/// Compile a regular expression given on the command line.
pub fn regex(option: &str, text: &str) -> Result<Regex, Failure> {
    regex::RegexBuilder::new(text)
        .size_limit(1 << 20)
        .build()
        .map_err(|e| Failure::Usage(format!("{option}: no regular expression: {e}")))
}

fn read_answers(path: &Path) -> Result<Vec<pg_graph::AnswerLine>, Failure> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(1 << 20).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|f| f.take(1 << 20).read_to_string(&mut text))
    };
    read.map_err(|e| Failure::Usage(format!("--answers {}: {e}", path.display())))?;
    pg_graph::parse_answers(&text).map_err(|e| Failure::Usage(format!("--answers {}: {e}", path.display())))
}

/// The report on a victim.
fn diagnose(
    loaded: &Loaded,
    victim: Victim,
    answers: Option<Vec<pg_graph::AnswerLine>>,
    replay: bool,
    top: usize,
) -> Result<Report, Failure> {
    let (session, coverage) = loaded.info();
    let options = Options { session, coverage, top, ..Options::default() };
    let kept =
        loaded.session.decisions().iter().find(|d| (d.thread, d.start) == (victim.thread, victim.start));
    let left = kept.map_or(0, |d| d.decisions.len());
    let left = if replay || answers.is_some() { 0 } else { left };
    let decisions = kept.filter(|_| replay).map(|d| d.decisions.clone()).unwrap_or_default();
    let mut diagnosis = Diagnosis::with_decisions(&loaded.graph, &loaded.catalog, victim, options, decisions);
    let mut answers = answers.unwrap_or_default();
    loop {
        match diagnosis.next() {
            Step::Ask(q) => match pg_graph::take_answer(&mut answers, &q) {
                Some(Some(answer)) if answer > q.choices.len() => {
                    return Err(Failure::Usage(format!(
                        "--answers: question {} (\"{}\") has {}, and the answer given is {answer}",
                        q.number,
                        q.text,
                        match q.choices.len() {
                            0 => "no option but 0, to stop there".to_owned(),
                            1 => "one option".to_owned(),
                            n => format!("{n} options"),
                        }
                    )));
                }
                Some(answer) => diagnosis.answer(answer.unwrap_or(q.recommended), By::Answers),
                None => diagnosis.answer(q.recommended, By::Policy),
            },
            Step::Progress(what) => tracing::debug!("{what}"),
            Step::Done(mut report) => {
                if left > 0 {
                    let n = if left == 1 { "an answer is".to_owned() } else { format!("{left} answers are") };
                    let note =
                        format!("{n} kept in the file for this hang and not taken here: --replay does");
                    report.coverage.notes.push(note);
                }
                return Ok(*report);
            }
        }
    }
}

/// JSON in which no character can harm a terminal: names keep their value, unsafe characters are escaped.
pub fn json(report: &Report) -> Result<String, Failure> {
    let plain = serde_json::to_string_pretty(report)
        .map_err(|e| Failure::Other(format!("the report cannot be written: {e}")))?;
    Ok(harmless(&plain))
}

/// JSON with characters that could harm a terminal escaped.
pub fn harmless(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        // Outside of strings JSON has line ends only, inside serde_json escapes them.
        if c != '\n' && crate::clean::is_unsafe(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}
