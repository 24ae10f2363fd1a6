//! Slow units as the report and lists tell them.

use super::{Part, ViolationFact, WithdrawnFact, compare};
use crate::EventGraph;
use crate::report::{HandedOnInfo, NormalInfo, PartInfo, UnitInfo, ViolationInfo, WithdrawnInfo};
use crate::transactions::HandedOn;
use crate::words::{moment, short_who, span, unit_type};
use pg_event::{Catalog, SeenBy, StackId, UnitTypeId};

/// Parts that are listed at most.
const MOST_PARTS: usize = 12;

/// What saw it, as the report names it.
pub fn seen_by(at: SeenBy) -> &'static str {
    match at {
        SeenBy::Context => "context",
        SeenBy::Switch => "switch",
        SeenBy::Sample => "sample",
        SeenBy::Asleep => "asleep",
        SeenBy::End => "end",
        SeenBy::Look => "look",
        SeenBy::Withdrawn => "withdrawn",
    }
}

/// The kernel's part of a stack at detection, the innermost frame first, without the frames of the look at it.
pub fn kernel_frames(catalog: &Catalog, stack: StackId) -> Vec<String> {
    let mut frames = catalog.show_stack(stack);
    frames.drain(..looking(&frames));
    if is_interrupt(&frames) { Vec::new() } else { frames }
}

/// Is it only the way in or out of an interrupt, which met a thread that computed?
fn is_interrupt(stack: &[String]) -> bool {
    const WAY: [&str; 5] =
        ["irqentry_", "exit_to_user_mode", "asm_sysvec_", "asm_common_interrupt", "sysvec_"];
    stack.iter().all(|f| WAY.iter().any(|way| f.starts_with(way)))
}

/// How many frames of a kernel's stack are those of the look at it, the innermost.
fn looking(stack: &[String]) -> usize {
    // Between the tracepoint and the program lies `__traceiter_*`, unless the kernel calls the only program directly.
    const OWN: [&str; 3] = ["__traceiter_", "bpf_trace_run", "bpf_prog_"];
    stack.iter().rposition(|f| OWN.iter().any(|own| f.starts_with(own))).map_or(0, |at| at + 1)
}

/// A violation for programs that read it; `number` counts those of the recording from 1.
pub fn violation_info(
    graph: &EventGraph,
    catalog: &Catalog,
    v: &ViolationFact,
    number: usize,
) -> ViolationInfo {
    let (t, p) = (catalog.thread(v.thread), catalog.process_of(v.thread));
    let spent = graph.spent(catalog, v);
    let mut stack = kernel_frames(catalog, v.kernel_stack);
    stack.extend(catalog.show_stack(v.user_stack));
    ViolationInfo {
        number,
        time: v.time,
        pid: p.map_or(0, |p| p.pid),
        tid: t.map_or(0, |t| t.tid),
        process: p.map_or_else(String::new, |p| p.name.clone()),
        thread: t.map_or_else(String::new, |t| t.name.clone()),
        unit_type: catalog.unit_type(v.unit_type).map_or_else(String::new, |t| t.name.clone()),
        start_ns: v.start,
        elapsed_ns: v.elapsed,
        duration_ns: v.ended.then(|| v.duration()),
        threshold_ns: v.threshold,
        excess: (v.excess() * 100.0).round() / 100.0,
        at: seen_by(v.at).to_owned(),
        stack,
        distance: (v.depth > 0).then(|| catalog.shown_at(v.user_stack, v.depth as usize) as u32),
        type_unknown: catalog.why_unknown(v.unit_type).map(str::to_owned),
        on_cpu_ns: spent.on_cpu,
        stolen_ns: spent.stolen,
        ready_ns: spent.ready,
        asleep_ns: spent.asleep,
        stopped_ns: spent.stopped,
        stopped_by: graph.stopped_by(catalog, v),
        handed_on: graph.handed_on(catalog, v.thread, v.time).map(|h| handed_on(catalog, &h)),
        mostly: graph.mostly(catalog, v).as_ref().map(Into::into),
        withdrawn: None,
    }
}

/// What was told of a unit that only seemed to take too long. It has no number.
pub fn withdrawn_info(graph: &EventGraph, catalog: &Catalog, w: &WithdrawnFact) -> ViolationInfo {
    let unit_type = catalog.unit_type(w.unit_type).map_or_else(String::new, |t| t.name.clone());
    let withdrawn = Some(WithdrawnInfo { unit_type, threshold_ns: w.threshold });
    ViolationInfo { withdrawn, ..violation_info(graph, catalog, &w.told, 0) }
}

fn handed_on(catalog: &Catalog, h: &HandedOn) -> HandedOnInfo {
    let (t, p) = (catalog.thread(h.by.thread), catalog.process_of(h.by.thread));
    let of = &h.hand_over;
    HandedOnInfo {
        pid: p.map_or(0, |p| p.pid),
        tid: t.map_or(0, |t| t.tid),
        process: p.map_or_else(String::new, |p| p.name.clone()),
        thread: t.map_or_else(String::new, |t| t.name.clone()),
        unit_type: catalog.unit_type(UnitTypeId(h.by.kind)).map_or_else(String::new, |t| t.name.clone()),
        start_ns: h.by.start,
        time_ns: of.time,
        queued_ns: of.queued(),
        runnable_ns: of.runnable,
        busy_ns: of.busy,
        strong: of.is_strong(),
        words: h.words(catalog),
    }
}

/// A violation beside the normal unit of its type.
pub(crate) fn unit_info(graph: &EventGraph, catalog: &Catalog, v: &ViolationFact) -> UnitInfo {
    let number = graph.violations().iter().position(|x| (x.thread, x.start) == (v.thread, v.start));
    let c = compare(graph, catalog, v);
    let normal = c.with.map(|n| NormalInfo {
        pid: catalog.process_of(n.unit.thread).map_or(0, |p| p.pid),
        tid: catalog.thread(n.unit.thread).map_or(0, |t| t.tid),
        start_ns: n.unit.start,
        duration_ns: n.unit.duration(),
        of: n.of,
    });
    let part = |p: &Part| PartInfo {
        what: p.what.to_owned(),
        function: (!p.function.is_empty()).then(|| p.function.clone()),
        ns: p.slow.time,
        normal_ns: c.with.map(|_| p.normal.time),
    };
    let handed_on = graph.handed_on(catalog, v.thread, v.time);
    let handed_on = handed_on.map_or_else(String::new, |h| format!("; {}", h.words(catalog)));
    UnitInfo {
        violation: violation_info(graph, catalog, v, number.map_or(0, |n| n + 1)),
        normal,
        parts: c.parts.iter().take(MOST_PARTS).map(part).collect(),
        words: words(catalog, v, &c) + &handed_on,
    }
}

/// In words: how long it took, how long such units take, and what it spent more on than a normal one.
fn words(catalog: &Catalog, v: &ViolationFact, c: &compare::Comparison) -> String {
    let took = if v.ended { "took" } else { "took at least" };
    let learnt = catalog.unit_type(v.unit_type).filter(|t| t.units > 0).map_or_else(String::new, |t| {
        format!(" ({} that were learnt from took {} on average)", t.units, span(t.mean))
    });
    let (unit_type, duration, threshold) =
        (unit_type(catalog, v.unit_type), span(v.duration()), span(v.threshold));
    let slow = format!("its unit ({unit_type}) {took} {duration} and may take {threshold}{learnt}");
    let Some(n) = c.with else {
        return format!("{slow}; no normal unit of this type was recorded to compare it with");
    };
    // What explains at least a tenth of the difference.
    let missing = v.duration().saturating_sub(n.unit.duration());
    let telling = |p: &&Part| p.more() > 0 && p.more() * 10 >= missing;
    let more = |p: &Part| format!("{} more {}", span(p.more()), spent_on(p));
    let more: Vec<String> = c.parts.iter().filter(telling).take(3).map(more).collect();
    let more = if more.is_empty() { String::new() } else { format!(": this one spent {}", more.join(", ")) };
    format!(
        "{slow}; a normal one, {} at {}, took {}{more}",
        short_who(catalog, n.unit.thread),
        moment(n.unit.start),
        span(n.unit.duration())
    )
}

/// `in disk waits of send_file`, `on the CPU`.
fn spent_on(p: &Part) -> String {
    match (p.what, p.function.as_str()) {
        ("running", _) => "on the CPU".into(),
        ("runnable", _) => "without a CPU".into(),
        ("unseen", _) => "unseen".into(),
        (what, "") => format!("in waits ({what})"),
        (what, function) => format!("in waits ({what}) of {function}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_look_at_a_stack_is_no_part_of_it() {
        let stack = ["bpf_get_task_stack", "bpf_prog_1_on_switch", "__traceiter_sched_switch", "futex_wait"];
        assert_eq!(looking(&stack.map(String::from)), 3);
        let stack =
            ["__bpf_get_stack", "bpf_prog_1_on_switch", "bpf_trace_run4", "irqentry_exit_to_user_mode"];
        assert_eq!(looking(&stack.map(String::from)), 3);
        assert_eq!(looking(&["do_page_fault".into()]), 0);
    }

    #[test]
    fn an_interrupt_is_nothing_that_a_thread_does() {
        let of = |stack: &[&str]| {
            is_interrupt(&stack.iter().map(|f| format!("{f} ([kernel])")).collect::<Vec<_>>())
        };
        assert!(of(&["irqentry_exit_to_user_mode", "asm_sysvec_apic_timer_interrupt"]));
        assert!(!of(&["handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"]));
        assert!(!of(&["vfs_write", "do_syscall_64"]));
    }
}
