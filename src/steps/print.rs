//! A trace as text for people, and as JSON for programs.

use super::source::Sources;
use super::{LineKind, RowKind, Steps, grouped};
use crate::app::time;
use pg_event::trace::How;
use pg_event::{Catalog, Ns};
use pg_graph::BurstFact;
use serde_json::{Value, json};
use std::fmt::Write;

/// Lines of a tree that are printed.
const TREE: usize = 400;
/// Single steps that are printed.
const LISTED: u32 = 200;
/// Functions that are printed.
const FUNCTIONS: usize = 12;

/// Which instructions of how many, and how fast: `1,204 instructions in 20.1 ms in single steps (59.9 k/s)`.
pub fn summary(steps: u64, span: (Ns, Ns), how: How) -> String {
    let took = span.1.saturating_sub(span.0);
    let rate = steps.saturating_mul(1_000_000_000).checked_div(took).unwrap_or(0);
    let (n, s) = (grouped(steps), if steps == 1 { "" } else { "s" });
    format!("{n} instruction{s} in {} {} ({}/s)", time::length(took), how.words(), time::count(rate))
}

/// A burst as text.
pub fn text(s: &Steps, b: &BurstFact, who: &str) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, s, b, who);
    out
}

fn write_text(out: &mut String, s: &Steps, b: &BurstFact, who: &str) -> std::fmt::Result {
    writeln!(out, "{who} at {}", time::at(b.start))?;
    let told = summary(s.walk.steps, (b.start, b.end), b.how);
    writeln!(out, "  {told}; {}", s.trace.end.words())?;
    writeln!(out, "\nFunctions (instructions: own, with callees)")?;
    for f in s.walk.functions.iter().take(FUNCTIONS) {
        let calls = match f.calls {
            1 => "1 call".to_owned(),
            n => format!("{} calls", grouped(n)),
        };
        writeln!(out, "  {:>9} {:>9}  {}  {calls}", grouped(f.own), grouped(f.total), s.function(f.frame))?;
    }
    writeln!(out, "\nCalls and loops")?;
    let rows = s.rows(&std::collections::HashSet::new());
    for r in rows.iter().take(TREE) {
        let mark = match r.kind {
            RowKind::Loop => "@ ",
            RowKind::Syscall => "! ",
            RowKind::Call | RowKind::Code => "",
        };
        let place = if r.place.is_empty() { String::new() } else { format!("  {}", r.place) };
        writeln!(out, "  {:>9}  {}{mark}{}{place}", grouped(r.steps), "  ".repeat(r.indent.min(40)), r.text)?;
    }
    if rows.len() > TREE {
        writeln!(out, "  (and {} lines more: pg-tui open shows all)", rows.len() - TREE)?;
    }
    writeln!(out, "\nThe first steps")?;
    let source = Sources::read(&s.files());
    for l in s.lines(0..LISTED, &source) {
        let note = if l.note.is_empty() { String::new() } else { format!("   # {}", l.note) };
        match l.kind {
            LineKind::Function => writeln!(out, "  {}:", l.text)?,
            LineKind::Source => writeln!(out, "    {}{note}", l.text)?,
            LineKind::Step(n) => writeln!(out, "  {:>6} {}{note}", u64::from(n) + 1, l.text)?,
        }
    }
    if s.len() > LISTED {
        writeln!(out, "  (and {} steps more)", grouped(u64::from(s.len() - LISTED)))?;
    }
    Ok(())
}

/// A burst as JSON: who, when, the functions, the tree, each instruction once.
pub fn json(s: &Steps, b: &BurstFact, catalog: &Catalog) -> Value {
    let thread = catalog.thread(b.thread);
    let process = catalog.process_of(b.thread);
    let rows = s.rows(&std::collections::HashSet::new());
    let kind = |k: RowKind| match k {
        RowKind::Call => "call",
        RowKind::Loop => "loop",
        RowKind::Code => "code",
        RowKind::Syscall => "syscall",
    };
    let functions: Vec<Value> = s
        .walk
        .functions
        .iter()
        .map(|f| json!({"function": s.function(f.frame), "calls": f.calls, "own": f.own, "total": f.total}))
        .collect();
    let tree: Vec<Value> = rows
        .iter()
        .map(|r| {
            json!({"depth": r.indent, "kind": kind(r.kind), "text": r.text, "line": r.place,
                   "instructions": r.steps, "first_step": r.span.0})
        })
        .collect();
    json!({
        "pid": process.map(|p| p.pid),
        "tid": thread.map(|t| t.tid),
        "process": process.map(|p| p.name.as_str()),
        "thread": thread.map(|t| t.name.as_str()),
        "start_ns": b.start,
        "duration_ns": b.end.saturating_sub(b.start),
        "how": match b.how { How::SingleSteps => "single-steps", How::Translation => "translation", How::Unknown => "unknown" },
        "ended": s.trace.end.words(),
        "instructions": s.walk.steps,
        "deepest": s.walk.depth,
        "functions": functions,
        "tree": tree,
        "code": instructions(s),
    })
}

/// Each instruction executed, once, with how often it was.
fn instructions(s: &Steps) -> Vec<Value> {
    let mut often = vec![0u64; s.trace.blocks.len()];
    for r in &s.trace.runs {
        if let Some(n) = often.get_mut(r.block as usize) {
            *n += u64::from(r.times);
        }
    }
    let mut all: std::collections::BTreeMap<pg_event::FrameId, (u64, &[u8])> =
        std::collections::BTreeMap::new();
    for (block, n) in often.iter().enumerate() {
        for i in s.trace.block(block as u32) {
            let entry = all.entry(i.frame).or_insert((0, i.code()));
            entry.0 += n;
        }
    }
    all.into_iter()
        .map(|(frame, (n, code))| {
            let address = s.frame(frame).map_or(0, |f| f.address);
            let text = pg_tracer::steps::code::show(code, address).text;
            json!({"address": format!("0x{address:x}"), "function": s.function(frame), "line": s.line(frame),
                   "instruction": text, "times": n})
        })
        .collect()
}
