//! Slow units as Markdown, ready for a ticket.

use super::state::State;
use super::text::escape;
use super::time;
use std::fmt::Write;

/// The list of slow units.
pub fn violations(state: &State) -> String {
    let Some(r) = &state.recording else { return String::new() };
    if state.violations.rows.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "| type | thread | when | queued | took | of that | may take | excess | seen in |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (n, v) in &state.violations.rows {
        let queued = state.violations.queued(*n).map_or_else(String::new, time::length);
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {queued} | {} | {} | {} | {:.2} x | {} |",
            escape(&r.unit_type(v.unit_type)),
            escape(r.thread_name(v.thread)),
            time::at(v.time),
            time::length(v.duration()),
            r.graph.spent_words(&r.catalog, v),
            time::length(v.threshold),
            v.excess(),
            escape(&r.stack_line(v.user_stack, "←", 4))
        );
    }
    out
}

/// A slow unit beside a normal one.
pub fn units(state: &State) -> String {
    let (Some(r), Some((v, c))) = (&state.recording, &state.units.shown) else { return String::new() };
    let name = |t| escape(r.thread_name(t));
    let mut out = format!(
        "A unit of {} of {} at {} took {} and may take {}.\n",
        escape(&r.unit_type(v.unit_type)),
        name(v.thread),
        time::at(v.start),
        time::length(v.duration()),
        time::length(v.threshold)
    );
    if let Some(h) = r.graph.handed_on(&r.catalog, v.thread, v.time) {
        let _ = writeln!(out, "It was {}.", escape(&h.words(&r.catalog)));
    }
    if let Some(n) = c.with {
        let _ = writeln!(
            out,
            "A normal one of {} at {} took {}.",
            name(n.unit.thread),
            time::at(n.unit.start),
            time::length(n.unit.duration())
        );
    }
    out.push_str("\n| where the time went | slow | normal |\n|---|---|---|\n");
    for p in &c.parts {
        let of = if p.function.is_empty() { String::new() } else { format!(" in {}", escape(&p.function)) };
        let _ = writeln!(
            out,
            "| {}{of} | {} | {} |",
            p.what,
            time::length(p.slow.time),
            time::length(p.normal.time)
        );
    }
    out
}
