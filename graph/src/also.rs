//! What else hung: where nobody said who is meant, the worst victim is one of several, and may not be the one that a
//! person complains about.

use crate::cause::victim_info;
use crate::report::{AlsoHung, Report};
use crate::{EventGraph, Victim, VictimOptions, victims};
use pg_event::{Catalog, ProcessId};

/// What counts beside the worst, as a share of its score.
const BESIDE: f64 = 0.3;
/// Lines at most.
const LINES: usize = 5;

/// Hangs of the focus that count beside that of `report`, worst first, and whose processes are not on its way back: one
/// line for each process, and for several of a name that hung alike.
pub fn also_hung(graph: &EventGraph, catalog: &Catalog, victim: &Victim, report: &Report) -> Vec<AlsoHung> {
    let all = victims(graph, catalog, &VictimOptions::default());
    let process = |v: &Victim| catalog.thread(v.thread).map_or(ProcessId::NONE, |t| t.process);
    let mut seen = vec![process(victim)];
    let mut out: Vec<AlsoHung> = Vec::new();
    for v in all.iter().filter(|v| v.score >= victim.score * BESIDE) {
        if seen.contains(&process(v)) {
            continue;
        }
        seen.push(process(v));
        let info = victim_info(graph, catalog, v);
        if report.slice.iter().any(|s| s.pid == info.pid) {
            continue;
        }
        let alike = |a: &&mut AlsoHung| {
            a.victim.process == info.process
                && a.victim.block_type == v.block_type
                && a.waits_on == v.waits_on
        };
        if let Some(a) = out.iter_mut().find(alike) {
            a.alike += 1;
        } else if out.len() < LINES {
            out.push(AlsoHung { victim: info, waits_on: v.waits_on.clone(), alike: 0 });
        }
    }
    out
}
