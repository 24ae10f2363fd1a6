//! The headless contract: what a report must look like, whatever it says.

use serde_json::Value;

const BLOCK_TYPES: [&str; 3] = ["long-running", "repeated-yield", "long-wait"];
const STATES: [&str; 7] = ["running", "runnable", "blocked", "throttled", "stopped", "exited", "not-created"];
const EDGES: [&str; 10] =
    ["program-order", "wake-up", "futex", "ipc", "timer", "work", "data-flag", "spawn", "exit", "holder"];

/// Hold a report to the contract.
pub fn check(r: &Value) {
    assert_eq!(r["format"], 1);
    strings(&r["session"], &["file", "host", "kernel"]);
    numbers(&r["session"], &["duration_ns", "events", "vertices", "edges"]);
    let v = &r["victim"];
    numbers(v, &["pid", "tid", "start_ns", "duration_ns"]);
    strings(v, &["process", "cmdline", "thread"]);
    one_of(&v["block_type"], &BLOCK_TYPES);
    for q in list(&r["questions"]) {
        one_of(&q["kind"], &["edge", "baseline", "data-flag"]);
        one_of(&q["by"], &["user", "answers", "policy"]);
        strings(q, &["text"]);
        numbers(q, &["options", "answer"]);
        assert!(q["answer"].as_u64() <= q["options"].as_u64(), "{q}");
    }
    let slice = list(&r["slice"]);
    assert!(!slice.is_empty());
    for s in slice {
        numbers(s, &["pid", "tid", "start_ns", "duration_ns", "spent_ns"]);
        assert!(s["spent_ns"].as_u64() <= s["duration_ns"].as_u64(), "{s}");
        strings(s, &["process", "cmdline", "thread"]);
        one_of(&s["state"], &STATES);
        for k in ["waits_on", "object", "syscall", "why_weak"] {
            assert!(s[k].is_null() || s[k].is_string(), "{k}: {s}");
        }
        assert_eq!(s["edge"].is_null(), s["strength"].is_null(), "{s}");
        if !s["edge"].is_null() {
            one_of(&s["edge"], &EDGES);
            one_of(&s["strength"], &["strong", "weak"]);
        }
        assert!(s["strength"] != "weak" || s["why_weak"].as_str().is_some_and(|w| !w.is_empty()), "{s}");
        stack(&s["stack"]);
    }
    let causes = list(&r["root_causes"]);
    assert!(!causes.is_empty());
    for (i, c) in causes.iter().enumerate() {
        assert_eq!(c["rank"], i + 1);
        assert!(c["why"].as_str().is_some_and(|w| !w.trim().is_empty()), "{c}");
        assert!(c["confidence"].as_f64().is_some_and(|x| (0.0..=1.0).contains(&x)), "{c}");
        if c["process"].is_null() {
            assert!(c["object"].is_string(), "a cause that is no process names its object: {c}");
        } else {
            numbers(c, &["pid", "tid", "duration_ns"]);
            one_of(&c["block_type"], &BLOCK_TYPES);
        }
        stack(&c["stack"]);
    }
    numbers(&r["coverage"], &["lost_events", "lost_ns"]);
    for k in ["stacks_complete", "symbols_resolved"] {
        assert!(
            r["coverage"][k].as_f64().is_some_and(|x| (0.0..=1.0).contains(&x)),
            "{k}: {}",
            r["coverage"]
        );
    }
    assert!(list(&r["coverage"]["notes"]).iter().all(Value::is_string));
}

fn list(v: &Value) -> &[Value] {
    v.as_array().unwrap_or_else(|| panic!("a list expected: {v}"))
}

fn strings(v: &Value, keys: &[&str]) {
    for k in keys {
        assert!(v[k].is_string(), "{k} is no string: {v}");
    }
}

fn numbers(v: &Value, keys: &[&str]) {
    for k in keys {
        assert!(v[k].is_u64(), "{k} is no number: {v}");
    }
}

fn one_of(v: &Value, words: &[&str]) {
    assert!(v.as_str().is_some_and(|s| words.contains(&s)), "{v} is none of {words:?}");
}

fn stack(v: &Value) {
    for f in list(v) {
        let f = f.as_str().unwrap_or_default();
        let open = f.rfind(" (").unwrap_or(0);
        assert!(open > 0 && f.ends_with(')'), "`function (module)` expected: {f}");
    }
}
