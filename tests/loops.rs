//! Loops of shells in which nothing fails, recorded for real: one waits for a file to go, one for a program to end, one
//! does a job every now and then while another program wants a lock.

#[path = "common/mod.rs"]
mod common;

use common::{contract, pg_tui, skipped, text};
use serde_json::Value;
use std::path::Path;

/// Record a shell script for some seconds and diagnose it, at the level that people use.
fn recorded(script: &str, dir: &Path, seconds: u32) -> Value {
    let file = dir.join("a.pgs");
    let out = pg_tui(dir)
        .args(["record", "--no-tui", "--duration", &seconds.to_string(), "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", script])
        .current_dir(dir)
        .output()
        .expect("it starts");
    assert!(file.exists(), "{}", text(&out));
    let out = pg_tui(dir).args(["diagnose", "--json"]).arg(&file).output().expect("it starts");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out)));
    contract::check(&report);
    report
}

/// Record until it is as it should be: a burst, or a switch of a thread, may be missed now and then.
fn holds(script: &str, seconds: u32, check: impl Fn(&Value) -> Result<(), String>) {
    let mut why = String::new();
    for _ in 0..3 {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("lock"), "").expect("a file");
        let report = recorded(script, dir.path(), seconds);
        match check(&report) {
            Ok(()) => return,
            Err(e) => why = format!("{e}: {report:#}"),
        }
    }
    panic!("{why}");
}

fn has(why: &Value, words: &[&str]) -> Result<(), String> {
    let why = why.as_str().unwrap_or_default();
    words.iter().find(|w| !why.contains(**w)).map_or(Ok(()), |w| Err(format!("no \"{w}\"")))
}

#[test]
fn a_shell_that_waits_for_a_file_to_go_names_it() {
    if skipped("a_shell_that_waits_for_a_file_to_go_names_it") {
        return;
    }
    holds("while [ -e ./lock ]; do sleep 1; done", 10, |r| {
        let c = &r["root_causes"][0];
        if r["victim"]["block_type"] != "repeated-yield" || c["process"] != "sh" {
            return Err("the shell's loop is not the victim".into());
        }
        let object = c["object"].as_str().unwrap_or_default();
        if !object.ends_with("lock") {
            return Err(format!("the object is {object:?}"));
        }
        has(&c["why"], &["ran `sleep 1`", "lock succeeded each time", "until that is gone or changes"])
    });
}

#[test]
fn a_shell_that_waits_for_a_program_to_fail_names_it() {
    if skipped("a_shell_that_waits_for_a_program_to_fail_names_it") {
        return;
    }
    holds("while cat ./lock >/dev/null; do sleep 0.5; done", 6, |r| {
        if r["victim"]["block_type"] != "repeated-yield" {
            return Err("the loop is not the victim".into());
        }
        let why = &r["root_causes"][0]["why"];
        has(why, &["ran `cat ./lock`", "`sleep 0.5` in between", "succeeded each time (exit code 0)"])
    });
}

/// The loop goes on all the time; what is wanted is told first.
#[test]
fn a_job_every_now_and_then_comes_after_a_wait_for_a_lock() {
    if skipped("a_job_every_now_and_then_comes_after_a_wait_for_a_lock") {
        return;
    }
    let script = "flock ./lock sleep 6 & sleep 1; flock ./lock true & while true; do date; sleep 1; done";
    holds(script, 9, |r| {
        let v = &r["victim"];
        if v["process"] != "flock" || v["block_type"] != "long-wait" {
            return Err("the wait for the lock is not the victim".into());
        }
        Ok(())
    });
}

#[test]
fn a_shell_that_waits_for_a_process_to_end_names_it() {
    if skipped("a_shell_that_waits_for_a_process_to_end_names_it") {
        return;
    }
    holds("sleep 20 >/dev/null 2>&1 & while kill -0 $!; do sleep 1; done", 10, |r| {
        if r["victim"]["process"] != "sh" || r["victim"]["block_type"] != "repeated-yield" {
            return Err("the loop is not the victim".into());
        }
        let causes = r["root_causes"].as_array().cloned().unwrap_or_default();
        let of_loop = causes.iter().find(|c| c["process"] == "sh").ok_or("no cause is the loop")?;
        has(&of_loop["why"], &["(sleep, by kill with signal 0) is there", "it waits until that has ended"])?;
        let slice = r["slice"].as_array().cloned().unwrap_or_default();
        let asked = slice.iter().find(|s| s["cmdline"] == "sleep 20");
        asked.map(|_| ()).ok_or_else(|| "what is asked about is not followed".into())
    });
}
