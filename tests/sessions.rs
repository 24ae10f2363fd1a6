//! The bundled recordings open, and their diagnosis is what their README says.

#[path = "hangs/report.rs"]
mod report;

use report::{Report, diagnose};
use std::path::{Path, PathBuf};

fn sessions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions")
}

/// A copy: diagnosing must not depend on a writable checkout.
fn report_of(name: &str, select: &[&str]) -> Report {
    let dir = tempfile::tempdir().expect("a folder");
    let copy = dir.path().join(Path::new(name).file_name().expect("a file"));
    std::fs::copy(sessions().join(name), &copy).expect("the session is there");
    diagnose(&copy, select)
}

#[test]
fn demo() {
    report_of("demo.pgs", &[])
        .victim("^shopd ", &["long-wait"], 3_000_000_000)
        .slice(&["^payd .* pay-[123]$", "^payd .* tick$"])
        .root(1, "^payd .* tick$", "rebuild_index|hash_rows")
        .block_type("long-running")
        .clean(3);
    // It ran for a part of the time only, and no stack of the shop and its payments is cut off: what was copied of
    // others' stacks is another matter.
    let r = report_of("demo.pgs", &[]).0;
    let last = &r["slice"][2];
    let (spent, whole) = (last["spent_ns"].as_u64().expect("a time"), last["duration_ns"].as_u64());
    assert!(spent > 2_000_000_000 && Some(spent) < whole, "{last}");
    assert!(r["coverage"]["stacks_complete"].as_f64() > Some(0.9), "{}", r["coverage"]);
}

#[test]
fn redis_lua() {
    report_of("redis-lua.pgs", &["--process", "^redis-cli"])
        .victim("^redis-cli ", &["long-wait"], 1_000_000_000)
        .slice(&["^redis-server "])
        .root(1, "^redis-server ", "lua|eval|script")
        .block_type("long-running")
        .not_first("^redis-cli ")
        .clean(3);
}

#[test]
fn file_lock() {
    report_of("file-lock.pgs", &["--process", "^flock .* wc "])
        .victim("^flock .* wc ", &["long-wait"], 500_000_000)
        .slice(&["^flock .* xz ", "^xz "])
        .root(1, "^xz ", "lzma|xz")
        .block_type("long-running")
        .clean(3);
}

/// A recording of the cookbook.
fn cookbook(name: &str, select: &[&str]) -> Report {
    report_of(&format!("../assets/cookbook/{name}.pgs"), select)
}

#[test]
fn full_pipe() {
    cookbook("full-pipe", &[])
        .victim("^python3 ", &["long-wait"], 3_000_000_000)
        .slice(&["^find ", "^python3 "])
        .root(1, "^find ", "circular wait.*pipe is full")
        .clean(3);
}

#[test]
fn sqlite_busy() {
    cookbook("sqlite-busy", &[])
        .victim("^sqlite3 .* UPDATE", &["repeated-yield"], 4_000_000_000)
        .slice(&["^sqlite3 ", "^sh ", "^sleep "])
        .root(1, "^sleep ", "nanosleep")
        .clean(3);
}

#[test]
fn stopped_server() {
    cookbook("stopped-server", &[])
        .victim("^redis-cli .* ping", &["long-wait"], 3_000_000_000)
        .slice(&["^redis-server ", "^gdb "])
        .root(1, "^gdb ", "tracer|ptrace")
        .clean(3);
}

#[test]
fn cpu_quota() {
    cookbook("cpu-quota", &[])
        .victim("^flock .* true", &["long-wait"], 3_000_000_000)
        .slice(&["^flock .* gzip ", "^gzip "])
        .root(1, "^gzip ", "quota")
        .clean(3);
}

/// The recordings in a folder, none of them large.
fn recordings(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let all: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "pgs")).collect();
    for path in &all {
        let bytes = path.metadata().expect("a file").len();
        assert!(bytes < 2_000_000, "{}: {bytes} bytes", path.display());
    }
    all
}

#[test]
fn every_recording_is_small_and_explained() {
    let all = recordings(&sessions());
    assert_eq!(all.len(), 3);
    for path in all {
        assert!(path.with_extension("md").exists(), "{} has no README", path.display());
    }
    let text = std::fs::read_to_string(sessions().join("../assets/cookbook.md")).expect("the cookbook");
    let all = recordings(&sessions().join("../assets/cookbook"));
    assert_eq!(all.len(), 4);
    for path in all {
        let script = path.with_extension("sh");
        assert!(script.exists(), "{} has no script", path.display());
        let name = script.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(text.contains(&name), "the cookbook does not tell of {name}");
    }
    // Every picture it shows is there.
    for picture in text.split("](cookbook/").skip(1).filter_map(|t| t.split(')').next()) {
        assert!(sessions().join("../assets/cookbook").join(picture).exists(), "{picture} is missing");
    }
}
