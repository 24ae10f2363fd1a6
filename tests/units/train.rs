//! A real server is learnt, and what was learnt is named, limited and merged. Needs the right to trace and a C compiler;
//! without them it says that it is skipped.

use super::common::{pg_tui, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// How often each request is sent.
const ROUNDS: u64 = 40;

fn run(dir: &Path, args: &[&str]) -> Output {
    pg_tui(dir).current_dir(dir).args(args).output().expect("pg-tui starts")
}

fn built(dir: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units/train.c");
    let args = ["-O1", "-g", "-pthread", "-Wl,--build-id", "-o", "server", source];
    let out = Command::new("gcc").current_dir(dir).args(args).output().expect("gcc runs");
    assert!(out.status.success(), "{}", text(&out));
}

fn show(dir: &Path, file: &str) -> Value {
    let out = run(dir, &["profile", "show", "--json", file]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// The loop of `serve`, if it was learnt.
fn serve(profile: &Value) -> Option<&Value> {
    profile["loops"].as_array()?.iter().find(|l| l["function"] == "serve")
}

/// The types whose call paths go through a function, the costliest first.
fn types_by<'a>(of: &'a Value, function: &str) -> Vec<&'a Value> {
    let goes = |p: &Value| p.as_array().is_some_and(|p| p.iter().any(|f| f == function));
    let calls = |t: &&Value| t["call_paths"].as_array().is_some_and(|all| all.iter().any(goes));
    of["types"].as_array().into_iter().flatten().filter(calls).collect()
}

/// Does the profile have the two kinds of work, each with nearly all of its units and not faster than it can be?
fn as_it_should_be(profile: &Value) -> Result<(), String> {
    let of = serve(profile).ok_or("no loop in serve")?;
    // A switch that the kernel does not report costs a unit or two now and then.
    let most = ROUNDS * 3 / 4..=ROUNDS;
    for (function, least_ms) in [("take_a_nap", 3.0), ("compute", 15.0)] {
        // On a busy machine one that lost the CPU elsewhere may be a type of its own.
        let types = types_by(of, function);
        let units: u64 = types.iter().filter_map(|t| t["units"].as_u64()).sum();
        let wrong =
            |t: &&Value| t["mean_ns"].as_f64().is_none_or(|ns| ns < least_ms * 1e6) || t["unseen"] == true;
        if !most.contains(&units) || types.iter().any(wrong) {
            return Err(format!("{function}: {types:#?}"));
        }
    }
    let quick = of["types"].as_array().and_then(|all| all.iter().find(|t| t["unseen"] == true));
    let quick = quick.ok_or("the short ones are no type")?;
    if !most.contains(&quick["units"].as_u64().unwrap_or(0)) {
        return Err(format!("short ones: {quick:#}"));
    }
    let boundary = &of["boundaries"][0];
    if boundary["syscall"] != "poll" || of["boundaries"].as_array().is_none_or(|b| b.len() != 1) {
        return Err(format!("boundaries: {boundary:#}"));
    }
    Ok(())
}

#[test]
fn a_server_is_learnt_by_what_it_does() {
    if !super::common::can_trace_and_compile("a_server_is_learnt_by_what_it_does") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    built(dir);
    let mut why = String::new();
    for _ in 0..4 {
        let _ = std::fs::remove_file(dir.join("server.pgprof"));
        let rounds = ROUNDS.to_string();
        let out = run(dir, &["train", "--keep", "a.pgs", "--", "./server", &rounds]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        match as_it_should_be(&show(dir, "server.pgprof")) {
            Ok(()) => return what_people_say_stays(dir),
            Err(e) => why = format!("{e}\n{}", text(&out)),
        }
    }
    panic!("{why}");
}

/// Names, thresholds and silence; the same recording learnt again, and merged.
fn what_people_say_stays(dir: &Path) {
    let says = |args: &[&str], words: &str| {
        let out = run(dir, args);
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out));
        assert!(text(&out).contains(words), "{args:?} does not say {words:?}: {}", text(&out));
    };
    let first = show(dir, "server.pgprof");
    let nap = types_by(serve(&first).unwrap(), "take_a_nap")[0].clone();
    let number = nap["number"].to_string();
    says(&["profile", "name", "server.pgprof", &number, "the nap"], "the nap: threshold");
    says(
        &["profile", "threshold", "server.pgprof", "the nap", "7ms"],
        "the nap: threshold 7.0 ms (set by hand)",
    );
    says(&["profile", "silence", "server.pgprof", "the nap"], "set by hand), silent");
    // From the kept recording the same is learnt, and added.
    says(&["train", "--from", "a.pgs", "-o", "server.pgprof"], "added to");
    let twice = show(dir, "server.pgprof");
    let again = types_by(serve(&twice).unwrap(), "take_a_nap")[0];
    assert_eq!(again["units"].as_u64(), nap["units"].as_u64().map(|n| 2 * n));
    assert_eq!(again["mean_ns"], nap["mean_ns"]);
    assert_eq!((&again["name"], &again["silent"]), (&Value::from("the nap"), &Value::from(true)));
    assert_eq!(
        (&again["threshold_ns"], &again["rule"]),
        (&Value::from(7_000_000), &Value::from("set by hand"))
    );
    // Whoever merges, the same comes out.
    says(&["train", "--from", "a.pgs", "-o", "other.pgprof"], "other.pgprof: ");
    says(&["profile", "merge", "both.pgprof", "other.pgprof", "server.pgprof"], "both.pgprof: ");
    says(&["profile", "merge", "htob.pgprof", "server.pgprof", "other.pgprof"], "htob.pgprof: ");
    let read = |name: &str| std::fs::read(dir.join(name)).expect("it was written");
    assert_eq!(read("both.pgprof"), read("htob.pgprof"));
    let made = nap["name"].as_str().unwrap();
    says(&["profile", "name", "server.pgprof", "the nap", ""], made);
    says(&["profile", "silence", "--off", "server.pgprof", made], "(set by hand)\n");
    // How that comes about depends on how many units were learnt: what is said is what is kept.
    let out = text(&run(dir, &["profile", "threshold", "server.pgprof", made, "auto"]));
    let rule = types_by(serve(&show(dir, "server.pgprof")).unwrap(), "take_a_nap")[0]["rule"].clone();
    assert_ne!(rule, "set by hand");
    assert!(out.contains(&format!("({})\n", rule.as_str().unwrap())), "{out} does not say {rule}");
}
