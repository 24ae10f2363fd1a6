//! The bounded path on drawn recordings: what made a span of time.

use pg_graph::path::{State, Step, bounded, explained, is_chain, unbounded};
use pg_graph::sim::{Recording, TICK, draw};

/// The path as text, in ticks: `B 3..5 running`, links as `->`.
fn show(text: &str, who: &str, from: u64, to: u64) -> Vec<String> {
    let r = draw(text).expect("a drawing");
    let g = r.graph();
    let path = bounded(&g, r.thread(who), from * TICK..to * TICK);
    assert!(is_chain(&path));
    assert_eq!(path.iter().map(Step::duration).sum::<u64>(), (to - from) * TICK);
    path.iter().filter_map(|s| line(&r, s)).collect()
}

fn line(r: &Recording, s: &Step<pg_event::ThreadId, pg_graph::VertexId>) -> Option<String> {
    let Step::Interval { worker, interval: i } = s else { return None };
    let state = match i.state {
        State::Running => "runs",
        State::Blocked => "waits",
        State::Network => "waits for a message",
        State::Timer => "sleeps",
        State::Preempted => "has no CPU",
        State::Unknown => "unknown",
    };
    let name = &r.catalog.threads[worker.index()].name;
    Some(format!("{name} {}..{} {state}", i.start / TICK, i.end / TICK))
}

#[test]
fn a_chain_of_waits_ends_at_who_ran() {
    let text = "A ==........==
                B ===.....====
                C ====---=====
                B wakes A 10 cond
                C wakes B 8 pipe";
    assert_eq!(
        show(text, "A", 0, 12),
        [
            "A 0..2 runs",
            "B 2..3 runs",
            "C 3..4 runs",
            "C 4..7 has no CPU",
            "C 7..8 runs",
            "B 8..10 runs",
            "A 10..12 runs"
        ]
    );
}

#[test]
fn a_wait_that_nothing_explains_stays() {
    assert_eq!(show("A ==....==\nB ========", "A", 0, 8), ["A 0..2 runs", "A 2..6 waits", "A 6..8 runs"]);
}

#[test]
fn a_sleep_of_the_culprit_is_the_cause() {
    let text = "A ==......==
                B =zzzzzz===
                B wakes A 8 pipe";
    assert_eq!(show(text, "A", 0, 10), ["A 0..2 runs", "B 2..7 sleeps", "B 7..8 runs", "A 8..10 runs"]);
}

#[test]
fn a_span_may_begin_and_end_within_a_wait() {
    let text = "A ==......==
                B ===...====
                C ==========
                B wakes A 8 cond
                C wakes B 6 pipe";
    assert_eq!(show(text, "A", 4, 7), ["C 4..6 runs", "B 6..7 runs"]);
    assert_eq!(show(text, "A", 3, 5), ["C 3..5 runs"]);
}

#[test]
fn an_open_wait_has_no_explanation_yet() {
    assert_eq!(show("A ==....\nB ======", "A", 0, 6), ["A 0..2 runs", "A 2..6 waits"]);
}

#[test]
fn what_the_waker_did_before_does_not_count() {
    let text = "A =====...==
                B ======--==
                B wakes A 8 cond";
    assert_eq!(show(text, "A", 0, 10), ["A 0..5 runs", "B 5..6 runs", "B 6..8 has no CPU", "A 8..10 runs"]);
}

#[test]
fn a_worker_created_meanwhile_leads_to_its_creator() {
    let text = "A ==......==
                B ===.....==
                C    ===
                B spawns C 3
                C wakes A 6 pipe";
    // C ran from its creation on; before that B ran.
    let text = text.replace("A ==......==", "A ==....====");
    assert_eq!(show(&text, "A", 0, 10), ["A 0..2 runs", "B 2..3 runs", "C 3..6 runs", "A 6..10 runs"]);
}

#[test]
fn unbounded_goes_to_the_cause_before_the_wait() {
    let r = draw(
        "A =====....==
         B ======.....
         A wakes B 5 cond",
    );
    assert!(r.is_err(), "nobody waits then");
    let r = draw(
        "A ====....===
         B ==========
         B wakes A 8 pipe",
    )
    .unwrap();
    let g = r.graph();
    let path = unbounded(&g, r.thread("A"));
    assert!(is_chain(&path));
    assert_eq!(explained(&path).running, 11 * TICK);
}
