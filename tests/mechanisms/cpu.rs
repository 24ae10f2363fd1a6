//! Threads that could run and have no CPU.

use crate::truth::check;
use pg_event::OffState;

#[test]
fn a_peer_of_higher_priority() {
    check("a_peer_of_higher_priority", ("cpu", ""), "runq.weak", |t| {
        // On a machine where others want the CPU as well, the one that got none is the first cause, and says who had it.
        let first = t.diagnose("runq.reader").root_causes.swap_remove(0);
        let bully = first.tid == Some(t.ids("runq.bully").1);
        let weak = first.tid == Some(t.ids("runq.weak").1) && first.why.contains("runq.bully");
        assert!(bully || weak, "{}", first.why);
    });
}

#[test]
fn a_quota_of_cpu_time() {
    check("a_quota_of_cpu_time", ("cpu", ""), "quota.limited", |t| {
        let g = &t.loaded.graph;
        let held = g.vertices_of(t.thread("quota.limited"));
        let held = held.filter(|v| g.vertex(*v).state == OffState::Throttled).count();
        assert!(held >= 5, "held back {held} times");
        t.caused_by("quota.reader", "quota.limited").says("quota").passes("cpu-quota");
    });
}
