//! A function that some work calls millions of times is left out by `train`, and the other work is learnt. (That its probes are
//! taken out while units are learnt: `tracer/tests/guards`.)

use super::RECORDER;
use super::common::{can_trace_and_compile, pg_tui, text};
use super::fed::Fed;
use serde_json::Value;
use std::sync::PoisonError;

#[test]
fn a_function_called_millions_of_times_is_left_out() {
    if !can_trace_and_compile("a_function_called_millions_of_times_is_left_out") {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    // Each kind a while, so that a first short look shows not all of them.
    let work = b"dabc".iter().flat_map(|k| std::iter::repeat_n(vec![*k], 30)).collect();
    let server = Fed::start(dir.path(), "tests/units/hot.c", work).unwrap();
    let profile = dir.path().join("hot.pgprof");
    let profile = profile.to_str().unwrap();
    let train = ["train", "-p", &server.pid().to_string(), "-d", "4", "--measure", "10", "-o", profile];
    let trained = pg_tui(dir.path()).args(train).output().unwrap();
    let said = text(&trained);
    assert!(trained.status.success() && said.contains("called too often"), "{said}");
    let shown = pg_tui(dir.path()).args(["profile", "show", "--json", profile]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let types = shown["loops"][0]["types"].as_array().unwrap();
    for name in ["brief", "longer", "longest"] {
        let of = types.iter().find(|t| t["name"].as_str().unwrap().split(' ').any(|f| f == name));
        assert!(of.is_some_and(|t| t["units"].as_u64().unwrap() >= 30), "{name}: {said}\n{shown:#}");
    }
}
