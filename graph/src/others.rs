//! Why not the others: threads that were looked at on the way and not followed, and those beside the victim.

use crate::class::class;
use crate::diagnose::{Group, Mostly, Outcome, activity};
use crate::report::Other;
use crate::words::{clean, percent, short_who, span};
use crate::{EventGraph, Vertex, VertexId, Victim, waits_on};
use pg_event::{Catalog, ThreadId};

/// Most threads told of.
const LIMIT: usize = 20;

/// The threads that are no cause, and why not.
pub(crate) fn others(g: &EventGraph, c: &Catalog, victim: &Victim, o: &Outcome) -> Vec<Other> {
    let on_way = |t: ThreadId| o.nodes.iter().any(|n| n.thread == t) || t == victim.thread;
    let mut out: Vec<(ThreadId, String)> = Vec::new();
    for (t, why) in &o.rejected {
        if !on_way(*t) && !out.iter().any(|x| x.0 == *t) {
            out.push((*t, why.clone()));
        }
    }
    if let Some(process) = c.process_id_of(victim.thread) {
        for t in g.threads_of(process) {
            if out.len() >= LIMIT {
                break;
            }
            if !on_way(t) && !out.iter().any(|x| x.0 == t) {
                out.push((t, beside(g, c, victim, t)));
            }
        }
    }
    out.truncate(LIMIT);
    out.into_iter().map(|(t, why)| row(c, t, &why)).collect()
}

fn row(c: &Catalog, t: ThreadId, why: &str) -> Other {
    let (thread, process) = (c.thread(t), c.process_of(t));
    Other {
        pid: process.map_or(0, |p| p.pid),
        tid: thread.map_or(0, |t| t.tid),
        process: process.map_or_else(String::new, |p| p.name.clone()),
        thread: thread.map_or_else(String::new, |t| t.name.clone()),
        why_not: clean(why, 300),
    }
}

/// What a thread of the victim's process did while the victim hung.
fn beside(g: &EventGraph, c: &Catalog, victim: &Victim, t: ThreadId) -> String {
    let act = activity(g, c, t, &[(victim.start, victim.end())]);
    let of = |part| format!("{} ({})", span(part), percent(part, act.total));
    let nobody = "and nobody on the way waited for it";
    match act.mostly() {
        Mostly::Running => format!("it ran {}, {nobody}", of(act.running)),
        Mostly::Runnable => format!("it wanted the CPU for {}, {nobody}", of(act.runnable)),
        Mostly::Unborn => "it did not exist for most of the time".into(),
        Mostly::Gone => "it had ended before most of the time".into(),
        Mostly::Unknown => "nothing was recorded of it meanwhile".into(),
        Mostly::Waiting(i) => act.groups.get(i).map_or_else(String::new, |group| {
            let v = representative(g, group);
            let call = v.syscall.name().unwrap_or_else(|| "the kernel".into());
            let on = waits_on(&v, c).unwrap_or("something unknown");
            if class(&v, c).idle() {
                format!("it was idle: {} in {call}, for whatever comes next", of(group.blocked))
            } else {
                format!("it waited {} in {call} ({on}) itself, {nobody}", of(group.blocked))
            }
        }),
    }
}

fn representative(g: &EventGraph, group: &Group) -> Vertex {
    g.vertex(group.longest().map_or(VertexId(u32::MAX), |c| c.last))
}

/// "x:7 was followed instead".
pub(crate) fn instead(c: &Catalog, followed: ThreadId) -> String {
    format!("{} was followed instead", short_who(c, followed))
}
