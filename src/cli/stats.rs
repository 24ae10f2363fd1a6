//! `diagnose --stats`: table 2 of Argus for one recording.

use super::text::count;
use crate::clean::clean;
use pg_graph::Stats;
use pg_graph::report::Report;
use pg_graph::words::span;
use std::fmt::Write;

/// The table as text.
pub fn table(r: &Report, s: &Stats) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, r, s);
    out
}

fn write(out: &mut String, r: &Report, s: &Stats) -> std::fmt::Result {
    let percent = |x: f64| format!("{:.2} %", x * 100.0);
    let v = &r.victim;
    writeln!(
        out,
        "{}: {} (pid {}), {} of {}\n",
        clean(&r.session.file),
        clean(&v.process),
        v.pid,
        v.words(),
        span(v.duration_ns)
    )?;
    for (name, value) in [
        ("connections filtered out", percent(s.filtered_out)),
        ("connections added by heuristics, flags and inference", percent(s.added)),
        ("data flags recorded", s.data_flags.to_string()),
        ("questions asked", s.questions.to_string()),
        ("slice, as answered (steps)", s.interactive.to_string()),
        ("slice, always the most recent edge (vertices)", s.automatic.to_string()),
        ("as answered / automatic", format!("{:.2}", s.ratio)),
    ] {
        writeln!(out, "  {name:<54} {value:>10}")?;
    }
    writeln!(out, "\n{} vertices, {} edges", count(r.session.vertices), count(s.edges))?;
    for (title, rows) in [("wake-ups that made no edge", &s.culled), ("weak edges", &s.weak)] {
        let all: u64 = rows.iter().map(|r| r.count).sum();
        writeln!(out, "\n{title}: {}", count(all))?;
        for r in rows {
            writeln!(out, "  {:<72} {:>10}", clean(&r.why), count(r.count))?;
        }
    }
    Ok(())
}
