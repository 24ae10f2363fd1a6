//! Holds the build to ARCHITECTURE.md: who may depend on whom, what the pure crates must not touch, and how
//! long files are.

use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files longer than this fail; from `AIM` on they are reported.
const LIMIT: usize = 900;
const AIM: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rust files below a folder of the repository, sorted.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|n| n != "target") {
                    walk(&path, into);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&root().join(folder), &mut files);
    files.sort();
    assert!(!files.is_empty(), "no Rust files in {folder}");
    files
}

/// The names in `[dependencies]` and, when asked for, `[dev-dependencies]` and `[build-dependencies]`.
fn dependencies(manifest: &str, all: bool) -> BTreeSet<String> {
    let table: toml::Table = read(&root().join(manifest)).parse().expect("a manifest is TOML");
    let sections: &[&str] =
        if all { &["dependencies", "dev-dependencies", "build-dependencies"] } else { &["dependencies"] };
    let names = sections.iter().filter_map(|s| table.get(*s)?.as_table()).flat_map(|t| t.keys().cloned());
    names.collect()
}

/// The other crates of this workspace among the dependencies. (A crate may name itself, to turn a feature
/// on for its tests.)
fn own(manifest: &str) -> BTreeSet<String> {
    let table: toml::Table = read(&root().join(manifest)).parse().expect("a manifest is TOML");
    let itself = table["package"]["name"].as_str().unwrap_or_default().to_string();
    let names = dependencies(manifest, true).into_iter();
    names.filter(|n| (n.starts_with("pg-") || n == "xtask") && *n != itself).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| (*n).to_string()).collect()
}

#[test]
fn crates_depend_only_on_whom_they_may() {
    assert_eq!(own("tracer/event/Cargo.toml"), set(&[]));
    assert_eq!(own("tracer/Cargo.toml"), set(&["pg-event"]));
    assert_eq!(own("graph/Cargo.toml"), set(&["pg-event"]));
    assert_eq!(own("Cargo.toml"), set(&["pg-event", "pg-graph", "pg-tracer"]));
    assert_eq!(own("xtask/Cargo.toml").intersection(&set(&["pg-tracer", "pg-graph"])).count(), 0);
    assert_eq!(dependencies("tracer/event/Cargo.toml", false), set(&["serde"]), "event types stand on serde");
}

/// The text without line comments and string literals, so that words in them do not count.
fn code_of(path: &Path) -> String {
    let strings = Regex::new(r#""(?:[^"\\\n]|\\.)*""#).expect("a pattern");
    let comments = Regex::new(r"//[^\n]*").expect("a pattern");
    let text = read(path);
    let text = strings.replace_all(&text, "\"\"");
    comments.replace_all(&text, "").into_owned()
}

/// What a pure crate must not say.
fn forbidden() -> Vec<Regex> {
    let words = "fs|net|time|thread|process|env|os";
    let patterns = [
        format!(r"\bstd::(?:{words})\b"),
        format!(r"\bstd::\{{[^}}]*\b(?:{words})(?:::|\s*[,}}])"),
        r"\bunsafe\b".into(),
        r"\b(?:e?print|e?println|dbg|include_str|include_bytes)!".into(),
        r"\b(?:rayon|libc|crossbeam_channel)::".into(),
    ];
    patterns.iter().map(|p| Regex::new(p).expect("a pattern")).collect()
}

#[test]
fn the_pure_crates_do_no_io_read_no_clock_and_start_no_threads() {
    let forbidden = forbidden();
    let mut found = Vec::new();
    for file in rust_files("graph/src").into_iter().chain(rust_files("tracer/event/src")) {
        let code = code_of(&file);
        // What is below `#[cfg(test)]` runs on a developer's machine only.
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for (n, line) in code.lines().enumerate() {
            if forbidden.iter().any(|f| f.is_match(line)) {
                found.push(format!("{}:{}: {}", file.display(), n + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "what a pure crate must not do:\n{}", found.join("\n"));
}

#[test]
fn the_patterns_find_what_they_should() {
    let forbidden = forbidden();
    let hit = |line: &str| forbidden.iter().any(|f| f.is_match(line));
    for bad in
        ["use std::fs;", "use std::{fmt, time::Instant};", "use std::{fmt, fs};", "unsafe {", "dbg!(1)"]
    {
        assert!(hit(bad), "{bad}");
    }
    for good in ["use std::fmt;", "use std::collections::{BTreeMap, HashMap};", "let timed = offset;"] {
        assert!(!hit(good), "{good}");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "let a = \"std::fs\"; // std::net\nlet b = 1;\n").expect("written");
    assert_eq!(code_of(file.path()), "let a = \"\"; \nlet b = 1;\n");
}

#[test]
fn unsafe_code_is_allowed_only_where_a_reason_is_given() {
    let mut without = Vec::new();
    for folder in ["src", "tracer", "graph", "xtask", "tests"] {
        for file in rust_files(folder) {
            let text = read(&file);
            let lines: Vec<&str> = text.lines().collect();
            for (n, line) in lines.iter().enumerate() {
                let near = || lines[n.saturating_sub(8)..(n + 4).min(lines.len())].join("\n");
                let allows = line.trim_start().starts_with('#') && line.contains("allow(unsafe_code");
                if allows && !near().contains("//") && !near().contains("reason =") {
                    without.push(format!("{}:{}", file.display(), n + 1));
                }
            }
        }
    }
    assert!(without.is_empty(), "unsafe code allowed without a reason:\n{}", without.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_none_is_huge() {
    let mut long = Vec::new();
    let mut silent = Vec::new();
    for folder in ["src", "tracer", "graph", "xtask", "tests", "benches"] {
        if !root().join(folder).is_dir() {
            continue;
        }
        for file in rust_files_or_none(folder) {
            let text = read(&file);
            let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
            let lines = text.lines().count();
            if lines > AIM {
                long.push((lines, name.clone()));
            }
            let told = text.starts_with("//!") || text.starts_with("#!") || name.ends_with("/tests.rs");
            if !told {
                silent.push(name);
            }
        }
    }
    long.sort();
    for (lines, name) in long.iter().rev() {
        println!("{lines:5} lines  {name}");
    }
    assert!(
        silent.is_empty(),
        "files that do not begin with `//!` and their purpose:\n{}",
        silent.join("\n")
    );
    let huge: Vec<_> = long.iter().filter(|(n, _)| *n > LIMIT).collect();
    assert!(huge.is_empty(), "split these, they are over {LIMIT} lines: {huge:?}");
}

fn rust_files_or_none(folder: &str) -> Vec<PathBuf> {
    if root().join(folder).is_dir() && folder == "benches" {
        // Scripts live there too; Rust files may be absent.
        let entries = fs::read_dir(root().join(folder)).into_iter().flatten().flatten().map(|e| e.path());
        return entries.filter(|p| p.extension().is_some_and(|e| e == "rs")).collect();
    }
    rust_files(folder)
}
