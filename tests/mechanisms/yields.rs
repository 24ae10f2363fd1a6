//! Loops that ask again and again.

use crate::truth::{Truth, check};
use pg_event::{LoopTurn, Relation};
use pg_graph::BlockType;

/// The thread asks for a flag in memory: that it does so is what a recording without `--flag` can tell.
fn asks(test: &str, way: &'static str, role: &str, words: &str) {
    check(test, ("yields", way), role, |t: &Truth| {
        t.caused_by(role, role).victim(BlockType::RepeatedYield).says(words);
    });
}

#[test]
fn giving_up_the_cpu() {
    asks("giving_up_the_cpu", "yield", "yield.asker", "sched_yield");
}

#[test]
fn short_sleeps() {
    asks("short_sleeps", "nap", "nap.asker", "sle");
}

#[test]
fn polls_that_do_not_wait() {
    asks("polls_that_do_not_wait", "poll0", "poll0.asker", "poll");
}

#[test]
fn turning_in_place() {
    // Who is to set the flag and sleeps is the better answer: known where it is seen that no other thread could.
    check("turning_in_place", ("yields", "spin"), "spin.asker", |t| {
        let said = t.caused_by_either("spin.asker", &["spin.asker", "spin.setter"]);
        said.victim(BlockType::RepeatedYield).tells("look_again");
        assert_eq!(turns(t, "spin.asker"), [LoopTurn::Asks(vec!["flag".into()])]);
    });
}

/// What the loops do that most samples of a thread were in.
fn turns(t: &Truth, role: &str) -> Vec<LoopTurn> {
    let (g, c) = (&t.loaded.graph, &t.loaded.catalog);
    let samples = g.samples_of(t.thread(role), 0..u64::MAX);
    let mut all: Vec<&LoopTurn> = samples.iter().map(|s| c.turn_of(s.user_stack).0).collect();
    let many = all.len() / 10;
    all.sort_by_key(|t| format!("{t:?}"));
    all.chunk_by(|a, b| a == b).filter(|x| x.len() > many).map(|x| x[0].clone()).collect()
}

#[test]
fn a_loop_as_small_that_works() {
    check("a_loop_as_small_that_works", ("yields", "ring"), "ring.walker", |t| {
        t.caused_by("ring.walker", "ring.walker").victim(BlockType::LongRunning).says("walk");
        assert_eq!(turns(t, "ring.walker"), [LoopTurn::Works]);
    });
}

#[test]
fn short_waits_for_a_condition() {
    asks("short_waits_for_a_condition", "timedwait", "timedwait.asker", "");
}

#[test]
fn tries_to_lock() {
    asks("tries_to_lock", "trylock", "trylock.asker", "sle");
}

#[test]
fn a_file_lock_that_is_refused() {
    check("a_file_lock_that_is_refused", ("yields", "setlk"), "setlk.asker", |t| {
        t.caused_by("setlk.asker", "setlk.owner").victim(BlockType::RepeatedYield);
    });
}

/// Who made or removed a file is known by the folder, which was watched once the loop had asked there.
fn changed_by(test: &str, way: &'static str, relation: Relation) {
    let (asker, other) = (format!("{way}.asker"), format!("{way}.other"));
    check(test, ("yields", way), &asker, |t: &Truth| {
        t.caused_by(&asker, &other);
        let mut all = t.loaded.graph.changed_files().iter();
        let told = all.find(|h| h.holder == t.thread(&other)).map(|h| (h.subject, h.relation));
        assert_eq!(told, Some((t.thread(&asker), relation)));
    });
}

#[test]
fn a_file_that_is_made_in_the_end() {
    changed_by("a_file_that_is_made_in_the_end", "ready", Relation::Makes);
}

#[test]
fn a_folder_that_is_removed_in_the_end() {
    changed_by("a_folder_that_is_removed_in_the_end", "gone", Relation::Removes);
}

#[test]
fn memory_that_another_process_has_mapped() {
    check("memory_that_another_process_has_mapped", ("yields", "mapped"), "mapped.asker", |t| {
        t.caused_by("mapped.asker", "mapped.writer").victim(BlockType::RepeatedYield);
    });
}

#[test]
fn connections_that_are_refused_with_longer_and_longer_pauses() {
    check("connections_that_are_refused", ("yields", "backoff"), "backoff.asker", |t| {
        t.caused_by("backoff.asker", "backoff.asker").says("ECONNREFUSED").says("tcp 127.0.0.1:");
        // The socket knows no more where it was to go.
        let (asker, c) = (t.thread("backoff.asker"), &t.loaded.catalog);
        let calls = t.loaded.graph.syscalls_of(asker, 0..u64::MAX).iter();
        let mut absent = calls.filter(|u| u.what.nr.is_any(&["connect"]) && u.what.result == -2);
        let name = absent.next().and_then(|u| c.object(u.what.object)).map(|o| o.name.as_str());
        assert!(name.is_some_and(|n| n.ends_with("/nobody")), "{name:?}");
    });
}
