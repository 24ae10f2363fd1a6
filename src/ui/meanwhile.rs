//! What a thread did in a span of time, in a few lines: how long it ran and in what, how long it wanted a CPU, what it
//! waited for.

use super::parts::Ui;
use crate::app::recording::Recording;
use crate::app::time;
use crate::clean::clean_to;
use pg_event::{Ns, ObjectId, Sysno, ThreadId};
use pg_graph::VertexId;
use std::collections::HashMap;

/// Most vertices that are looked at: this is drawn often.
const MOST: usize = 20_000;

/// Most kinds of waits that are told.
const WAITS: usize = 3;

/// The lines, the most telling first.
pub fn lines(ui: &Ui, r: &Recording, thread: ThreadId, span: (Ns, Ns)) -> Vec<String> {
    let whole = span.1.saturating_sub(span.0);
    if whole == 0 {
        return Vec::new();
    }
    let share = r.graph.share(thread, span.0..span.1);
    let part = |ns: Ns| format!("{} ({})", ui.length(ns), time::percent(ns, whole));
    let profile = pg_graph::profile(&r.graph, &r.catalog, thread, &[span]);
    let inside = profile.function.filter(|_| share.running() > 0).map_or_else(String::new, |f| {
        format!(", {:.0} % of it in {}", profile.share * 100.0, clean_to(&f, 80))
    });
    let mut out = vec![format!("of these {} it ran {}{inside}", ui.length(whole), part(share.running()))];
    let queued = share.get(pg_graph::LaneState::Runnable);
    if queued * 20 > whole {
        out.push(format!("it wanted a CPU and had none for {}", part(queued)));
    }
    // Waits of a kind: how long, how many, and one of them.
    let mut waits: HashMap<(Sysno, ObjectId), (Ns, usize, VertexId)> = HashMap::new();
    for id in r.graph.vertices_in(thread, span.0..span.1).take(MOST) {
        let v = r.graph.vertex(id);
        let (from, to) = (v.start.max(span.0), v.woken.min(span.1));
        if v.waited() > 0 && to > from {
            let w = waits.entry((v.syscall, v.object)).or_insert((0, 0, id));
            *w = (w.0 + (to - from), w.1 + 1, w.2);
        }
    }
    let mut waits: Vec<_> = waits.into_values().collect();
    waits.sort_by_key(|w| (std::cmp::Reverse(w.0), w.2));
    for (ns, n, id) in waits.into_iter().take(WAITS).filter(|w| w.0 * 100 > whole) {
        let times = if n > 1 { format!(", {n} times") } else { String::new() };
        out.push(format!("it waited {} in {}{times}", part(ns), r.wait(&r.graph.vertex(id))));
    }
    out
}
