//! A thread that has left its loop and waits for the next connection: no unit is under way, though none of that was seen
//! when units were learnt.

use super::RECORDER;
use super::common::{Guard, can_trace_and_compile, pg_tui, text};
use super::fed::Fed;
use serde_json::Value;
use std::sync::PoisonError;
use std::thread::sleep;
use std::time::Duration;

#[test]
fn a_thread_that_is_parked_between_connections_is_in_no_unit() {
    if !can_trace_and_compile("a_thread_that_is_parked_between_connections_is_in_no_unit") {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let server = Fed::start(dir.path(), "tests/units/left.c", vec![b"r".to_vec()]).unwrap();
    let pid = server.pid().to_string();
    let train = ["train", "-p", &pid, "-d", "3", "--measure", "2", "-o", "left.pgprof"];
    let trained = pg_tui(dir.path()).current_dir(dir.path()).args(train).output().unwrap();
    assert!(trained.status.success(), "{}", text(&trained));

    let guard =
        ["guard", "-p", &pid, "--profile", "left.pgprof", "--threshold", "150ms", "--json", "-d", "120"];
    let guard = Guard::start(pg_tui(dir.path()).current_dir(dir.path()).args(guard));
    sleep(Duration::from_secs(1));
    // The first is judged, the others are known again. Then a sleep of the same function, within a request.
    for what in [b"p", b"p", b"z", b"p"] {
        assert!(server.ask(what));
        sleep(Duration::from_secs(1));
    }
    let guarded = guard.end();
    let said = text(&guarded);
    let told: Vec<Value> = String::from_utf8_lossy(&guarded.stdout)
        .lines()
        .filter_map(|l| serde_json::from_str(l).ok())
        .collect();
    // Whoever had no CPU for so long is told apart.
    let slow =
        told.iter().filter(|v| v["event"] == "violation" && v["starved"] == false && v["goes_on"] == false);
    let slow: Vec<&Value> = slow.collect();
    let [slow] = slow.as_slice() else { panic!("{said}") };
    let mut ends = told.iter().filter(|v| v["event"] == "ended" && v["start_ns"] == slow["start_ns"]);
    let took = ends.next().and_then(|v| v["duration_ns"].as_u64());
    assert!(took.is_some_and(|ns| (690_000_000..1_300_000_000).contains(&ns)), "{said}");
    // The requests after it are units as before.
    assert!(told.last().unwrap()["units"].as_u64().unwrap() > 100, "{said}");
}
