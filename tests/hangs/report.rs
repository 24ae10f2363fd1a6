//! Diagnoses a recording by the real program, and asks the report.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

use regex::RegexBuilder;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// A report of `pg-tui diagnose --json`.
pub struct Report(pub Value);

/// The program under test.
pub fn pg_tui() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pg-tui"));
    command.env("NO_COLOR", "1").env_remove("RUST_LOG");
    command
}

/// A program, and what it starts, that gets a CPU before others, as far as that is permitted. Where others take the
/// CPU from what is to compute or to answer, that is the cause of a wait, and is rightly told.
pub fn before_others(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-15"]).arg(program).env("NO_COLOR", "1").env_remove("RUST_LOG");
    command
}

/// Diagnoses a recording.
pub fn diagnose(file: &Path, select: &[&str]) -> Report {
    let out = pg_tui().arg("diagnose").arg(file).arg("--json").args(select).output().expect("pg-tui starts");
    assert!(out.status.success(), "diagnose {select:?}: {}\n{}", out.status, text(&out));
    let report = serde_json::from_slice(&out.stdout);
    Report(report.unwrap_or_else(|e| panic!("no JSON: {e}\n{}", text(&out))))
}

/// All that a program printed.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn has(text: &str, pattern: &str) -> bool {
    RegexBuilder::new(pattern).case_insensitive(true).build().expect("a pattern").is_match(text)
}

/// `process cmdline thread` of a part of the report.
fn who(part: &Value) -> String {
    ["process", "cmdline", "thread"].map(|k| part[k].as_str().unwrap_or_default()).join(" ")
}

impl Report {
    fn fail(&self, what: &str) -> ! {
        // The short form last: the end of a long message is what is left of it.
        let causes: Vec<&str> = self.list("root_causes").iter().filter_map(|c| c["why"].as_str()).collect();
        let steps: Vec<String> = self.list("slice").iter().map(who).collect();
        let whole = serde_json::to_string_pretty(&self.0).expect("it was JSON");
        panic!(
            "{what}\n{whole}\n{what}\nvictim: {}\nslice: {steps:#?}\ncauses: {causes:#?}",
            who(&self.0["victim"])
        )
    }

    fn list(&self, key: &str) -> &[Value] {
        self.0[key].as_array().map_or(&[], Vec::as_slice)
    }

    /// The victim is who the pattern says, with one of these block types, and hung for at least `ns`.
    pub fn victim(&self, pattern: &str, block_types: &[&str], ns: u64) -> &Self {
        let victim = &self.0["victim"];
        if !has(&who(victim), pattern) {
            self.fail(&format!("the victim is not {pattern}"));
        }
        if !block_types.iter().any(|t| victim["block_type"] == **t) {
            self.fail(&format!("the victim's block type is none of {block_types:?}"));
        }
        if victim["duration_ns"].as_u64().unwrap_or(0) < ns {
            self.fail(&format!("the victim hung for less than {ns} ns"));
        }
        self
    }

    /// The slice passes through these, in this order.
    pub fn slice(&self, patterns: &[&str]) -> &Self {
        let mut steps = self.list("slice").iter();
        for pattern in patterns {
            if !steps.any(|s| has(&who(s), pattern)) {
                self.fail(&format!("the slice does not pass {patterns:?} in order: {pattern} is missing"));
            }
        }
        self
    }

    /// Each of these is a step of the slice that waits for this (a word of the report).
    pub fn waits(&self, steps: &[(&str, &str)]) -> &Self {
        for (process, what) in steps {
            let fits = |s: &Value| has(&who(s), process) && s["waits_on"] == *what;
            if !self.list("slice").iter().any(fits) {
                self.fail(&format!("no step of {process} waits for {what}"));
            }
        }
        self
    }

    /// Among the root causes up to `rank`, one is of a process like `process` and says `words`.
    pub fn root(&self, rank: usize, process: &str, words: &str) -> &Self {
        let fits = |cause: &Value| {
            let mut said: Vec<&str> = ["function", "module", "syscall", "object", "why"]
                .iter()
                .filter_map(|k| cause[k].as_str())
                .collect();
            said.extend(cause["stack"].as_array().into_iter().flatten().filter_map(Value::as_str));
            has(&who(cause), process) && has(&said.join("\n"), words)
        };
        if !self.list("root_causes").iter().take(rank).any(fits) {
            self.fail(&format!("no root cause up to rank {rank} is {process} with {words}"));
        }
        self
    }

    /// The first root cause has this block type.
    pub fn block_type(&self, wanted: &str) -> &Self {
        if self.0["root_causes"][0]["block_type"] != wanted {
            self.fail(&format!("the first root cause is not {wanted}"));
        }
        self
    }

    /// The first root cause is none of these.
    pub fn not_first(&self, process: &str) -> &Self {
        if has(&who(&self.0["root_causes"][0]), process) {
            self.fail(&format!("{process} is innocent"));
        }
        self
    }

    /// Does the recording say that the kernel left switches out?
    pub fn unreported(&self) -> bool {
        let notes = self.0["coverage"]["notes"].as_array();
        let says = |n: &Value| n.as_str().is_some_and(|n| n.starts_with("the kernel did not report"));
        notes.is_some_and(|n| n.iter().any(says))
    }

    /// No more than `n` questions were asked, and nothing was lost.
    pub fn clean(&self, n: usize) -> &Self {
        if self.list("questions").len() > n {
            self.fail(&format!("more than {n} questions"));
        }
        if self.0["coverage"]["lost_events"] != 0 {
            self.fail("events were lost");
        }
        self
    }
}
